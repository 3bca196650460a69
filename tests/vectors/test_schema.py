"""spec/vectors/schema.json, read and written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from fastavro.schema import to_parsing_canonical_form

from headerware.core.errors import SerdeError
from headerware.core.headers import EMPTY, Headers
from headerware.serdes.avro.schema import DIGEST_BYTES, Algorithm, AvroSchema, Fingerprint
from headerware.serdes.avro.serde import Avro
from headerware.serdes.schema_header import SCHEMA_HEADER, decode_mark, encode_mark
from headerware.serdes.serde import SerdeContext
from headerware.serdes.stores.folder import FolderSchemas

if TYPE_CHECKING:
    from headerware.serdes.serde import Part

VECTORS = json.loads((Path(__file__).parents[2] / "spec/vectors/schema.json").read_text(encoding="utf-8"))
ALGORITHMS = pytest.mark.parametrize("algorithm", DIGEST_BYTES)
PARTS = pytest.mark.parametrize("part", ["key", "value"])


def cases(name: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", VECTORS[name], ids=[case["name"] for case in VECTORS[name]])


class TestSchemaVectors:
    @cases("schemas")
    def test_canonical_form(self, case: dict[str, Any]) -> None:
        assert AvroSchema.parsed(case["schema"]).canonical == case["canonical"]
        is_avros_own = to_parsing_canonical_form(json.loads(case["schema"])) == case["canonical"]
        assert is_avros_own is case["avro"]

    @cases("schemas")
    @ALGORITHMS
    def test_fingerprints(self, case: dict[str, Any], algorithm: Algorithm) -> None:
        assert Fingerprint.of(case["schema"], algorithm).digest.hex() == case[f"{algorithm}_hex"]

    @cases("schemas")
    @ALGORITHMS
    def test_the_canonical_form_has_the_same_fingerprint(
        self, case: dict[str, Any], algorithm: Algorithm
    ) -> None:
        assert Fingerprint.of(case["canonical"], algorithm) == Fingerprint.of(case["schema"], algorithm)

    @cases("records")
    @ALGORITHMS
    @PARTS
    def test_records_both_ways(
        self, case: dict[str, Any], algorithm: Algorithm, part: Part, tmp_path: Path
    ) -> None:
        store = FolderSchemas(path=str(tmp_path))
        writer = Avro(schema=case["schema"], store=store, fingerprint=algorithm).open(SerdeContext(part=part))
        reader = Avro(store=store).open(SerdeContext(part=part))
        header = case["headers"][part][algorithm].encode()
        payload, headers = writer.serialize("orders", EMPTY, case["object"])
        assert payload is not None
        assert payload.hex() == case["payload_hex"]
        assert headers.all(SCHEMA_HEADER) == (header,)
        given = Headers([(SCHEMA_HEADER, header)])
        assert reader.deserialize("orders", given, payload) == (case["object"], EMPTY)
        writer.close()
        reader.close()

    @cases("records")
    @ALGORITHMS
    @PARTS
    def test_headers_both_ways(self, case: dict[str, Any], algorithm: Algorithm, part: Part) -> None:
        header = case["headers"][part][algorithm].encode()
        fingerprint = Fingerprint.of(case["schema"], algorithm)
        assert decode_mark(header) == (part, fingerprint)
        assert encode_mark(part, fingerprint) == header

    @cases("refused_schemas")
    def test_refused_schemas(self, case: dict[str, Any]) -> None:
        with pytest.raises(SerdeError, match="the schema"):
            AvroSchema.parsed(case["schema"])

    @cases("refused")
    def test_refused_headers(self, case: dict[str, Any]) -> None:
        header = None if case["header"] is None else case["header"].encode()
        with pytest.raises(SerdeError, match="expected"):
            decode_mark(header)
        # And by the serde, which does not even look at the payload.
        with pytest.raises(SerdeError, match="expected"):
            Avro(schema='"int"').open(SerdeContext()).deserialize(
                "orders", Headers([(SCHEMA_HEADER, header)]), b"\x02"
            )
