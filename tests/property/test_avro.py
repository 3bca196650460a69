from __future__ import annotations

import contextlib
import io
import json
from typing import Any

import fastavro
import pytest
from fastavro.schema import fingerprint, to_parsing_canonical_form
from hypothesis import assume, given
from hypothesis import strategies as st

from headerware.core.errors import SerdeError
from headerware.core.headers import EMPTY, Headers
from headerware.serdes.avro.limits import Limits, walk_payload
from headerware.serdes.avro.schema import AvroSchema, BadSchemaError
from headerware.serdes.avro.serde import Avro
from headerware.serdes.schema_header import decode_mark
from headerware.serdes.serde import SerdeContext

LIMITS = Limits(max_values=20_000)
PRIMITIVES = ["null", "boolean", "int", "long", "float", "double", "bytes", "string"]


@st.composite
def schemas(draw: st.DrawFn, depth: int = 3) -> Any:
    """Make a schema of up to some levels; named types get names of their own from the second pass."""
    kind = draw(
        st.sampled_from([*PRIMITIVES, "fixed", "enum", *(["array", "map", "record", "union"] * (depth > 0))])
    )
    if kind in PRIMITIVES:
        return kind
    if kind == "fixed":
        return {"type": "fixed", "name": "?", "size": draw(st.integers(0, 6))}
    if kind == "enum":
        return {"type": "enum", "name": "?", "symbols": ["A", "B", "C"][: draw(st.integers(1, 3))]}
    inner = schemas(depth=depth - 1)
    if kind == "array":
        return {"type": "array", "items": draw(inner)}
    if kind == "map":
        return {"type": "map", "values": draw(inner)}
    if kind == "union":
        return draw(st.lists(st.sampled_from(PRIMITIVES), min_size=1, max_size=4, unique=True))
    fields = draw(st.lists(inner, max_size=3))
    return {
        "type": "record",
        "name": "?",
        "fields": [{"name": f"f{n}", "type": t} for n, t in enumerate(fields)],
    }


def named(schema: Any) -> Any:
    """Return each named type a name of its own."""
    text, count = json.dumps(schema), 0
    while '"?"' in text:
        text, count = text.replace('"?"', f'"N{count}"', 1), count + 1
    return json.loads(text)


VALUES: dict[str, st.SearchStrategy[Any]] = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": st.integers(-(1 << 31), (1 << 31) - 1),
    "long": st.integers(-(1 << 63), (1 << 63) - 1),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "bytes": st.binary(max_size=20),
    "string": st.text(max_size=20),
}


def values(schema: Any) -> st.SearchStrategy[Any]:
    if isinstance(schema, list):
        return st.one_of([VALUES[branch] for branch in schema])
    kind = schema if isinstance(schema, str) else schema["type"]
    if kind in VALUES:
        return VALUES[kind]
    if kind == "fixed":
        return st.binary(min_size=schema["size"], max_size=schema["size"])
    if kind == "enum":
        return st.sampled_from(schema["symbols"])
    if kind == "array":
        return st.lists(values(schema["items"]), max_size=4)
    if kind == "map":
        return st.dictionaries(st.text(max_size=5), values(schema["values"]), max_size=4)
    return st.fixed_dictionaries({field["name"]: values(field["type"]) for field in schema["fields"]})


ALL = schemas().map(named)
WITH_VALUES = ALL.flatmap(lambda schema: st.tuples(st.just(schema), values(schema)))
LINK = {
    "type": "record",
    "name": "Link",
    "fields": [{"name": "next", "type": ["null", "Link"]}, {"name": "n", "type": "long"}],
}


def read_by_fastavro(schema: Any, payload: bytes) -> Any:
    return fastavro.schemaless_reader(io.BytesIO(payload), schema, None)


class TestAvroProperties:
    @given(WITH_VALUES)
    def test_any_object_comes_back(self, case: tuple[Any, Any]) -> None:
        schema, value = case
        assume(value is not None)
        serde = Avro(schema=json.dumps(schema)).open(SerdeContext())
        payload, headers = serde.serialize("t", EMPTY, value)
        assert payload is not None
        expected = read_by_fastavro(schema, payload)
        assert Avro().open(SerdeContext()).deserialize("t", headers, payload)[0] == expected
        out = io.BytesIO()
        fastavro.schemaless_writer(out, schema, value)
        assert payload == out.getvalue()

    @given(WITH_VALUES, st.data())
    def test_a_cut_or_a_longer_payload_is_refused(self, case: tuple[Any, Any], data: st.DataObject) -> None:
        schema, value = case
        assume(value is not None)
        serde = Avro(schema=json.dumps(schema)).open(SerdeContext())
        payload, _ = serde.serialize("t", EMPTY, value)
        assert payload is not None
        with pytest.raises(SerdeError):
            serde.deserialize("t", EMPTY, payload + b"\0")
        assume(payload)
        with pytest.raises(SerdeError):
            serde.deserialize("t", EMPTY, payload[: data.draw(st.integers(0, len(payload) - 1))])

    @given(ALL | st.just(LINK), st.binary(max_size=60))
    def test_garbage_is_refused_or_is_a_value(self, schema: Any, garbage: bytes) -> None:
        serde = Avro(schema=json.dumps(schema), max_values=20_000).open(SerdeContext())
        with contextlib.suppress(SerdeError):
            serde.deserialize("t", EMPTY, garbage)

    @given(WITH_VALUES)
    def test_the_walk_takes_what_fastavro_writes(self, case: tuple[Any, Any]) -> None:
        schema, value = case
        parsed = AvroSchema.parsed(json.dumps(schema))
        out = io.BytesIO()
        fastavro.schemaless_writer(out, schema, value)
        walk_payload(out.getvalue(), parsed.tree, parsed.named, LIMITS)

    @given(WITH_VALUES, st.binary(max_size=60), st.integers(1, 80))
    def test_what_the_survey_calls_safe_passes_no_limit(
        self, case: tuple[Any, Any], garbage: bytes, max_values: int
    ) -> None:
        schema, value = case
        parsed, tight = AvroSchema.parsed(json.dumps(schema)), Limits(max_values=max_values)
        out = io.BytesIO()
        fastavro.schemaless_writer(out, schema, value)
        for payload in (out.getvalue(), garbage):
            if len(payload) > parsed.shape.safe_bytes(tight):
                continue
            with contextlib.suppress(SerdeError):
                walk_payload(payload, parsed.tree, parsed.named, LIMITS)
                refusal = ""
                try:
                    walk_payload(payload, parsed.tree, parsed.named, tight)
                except SerdeError as error:
                    refusal = str(error)
                assert refusal == ""

    @given(ALL)
    def test_the_canonical_form_is_avros_own_without_logical_types(self, schema: Any) -> None:
        parsed = AvroSchema.parsed(json.dumps(schema))
        own = to_parsing_canonical_form(schema)
        assert parsed.canonical == own
        assert AvroSchema.parsed(own).canonical == own
        assert parsed.fingerprint("md5").digest.hex() == fingerprint(own, "md5")
        assert parsed.fingerprint("sha256").digest.hex() == fingerprint(own, "sha256")
        assert parsed.fingerprint("rabin").digest[::-1].hex() == fingerprint(own, "CRC-64-AVRO")

    @given(
        st.recursive(
            st.none()
            | st.booleans()
            | st.integers()
            | st.sampled_from([*PRIMITIVES, "record", "array", "N"]),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(
                    st.sampled_from(
                        ["type", "name", "fields", "items", "values", "size", "symbols", "logicalType"]
                    ),
                    inner,
                    max_size=5,
                )
            ),
            max_leaves=12,
        ),
        st.binary(max_size=10),
    )
    def test_json_that_is_no_schema_is_refused_or_works(self, plain: Any, payload: bytes) -> None:
        try:
            parsed = AvroSchema.parsed(json.dumps(plain))
        except BadSchemaError:
            return
        assert AvroSchema.parsed(parsed.text).canonical == parsed.canonical
        headers = Headers([("avro.schema", parsed.text.encode())])
        with contextlib.suppress(SerdeError):
            Avro(max_values=1000).open(SerdeContext()).deserialize("t", headers, payload)

    @given(st.none() | st.binary(max_size=40))
    def test_header_garbage_is_refused_or_whole(self, value: bytes | None) -> None:
        try:
            part, fingerprint = decode_mark(value)
        except SerdeError:
            return
        assert value is not None
        assert value == bytes((1, ("key", "value").index(part))) + fingerprint.code
