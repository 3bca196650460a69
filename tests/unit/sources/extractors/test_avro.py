"""Avro's container files."""

from __future__ import annotations

import datetime as dt
import io
import json
import tracemalloc
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pytest
import zstandard

from headerware.connect.data import Struct
from headerware.core.errors import BadRecordError, ConfigError, ObjectError
from headerware.sources import Input
from headerware.sources.conformance import ExtractorConformance
from headerware.sources.extractor import extracted
from headerware.sources.extractors import AvroExtractor
from tests.source_objects import MadeObject, MemoryObject, records, values

CITY = {
    "type": "record",
    "name": "geo.City",
    "fields": [{"name": "id", "type": "int"}, {"name": "name", "type": ["null", "string"]}],
}
ROWS = [{"id": n, "name": None if n == 3 else f"city {n}"} for n in range(1, 8)]
NODE = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}
SYNC = b"0123456789abcdef"
UUID = "12345678-1234-5678-1234-567812345678"
NOW = dt.datetime(2026, 11, 23, 4, 5, 6, 789_012, tzinfo=dt.UTC)
TYPES: list[tuple[Any, Any, Any]] = [  # the type, the value, and what a Struct holds
    (
        {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        Decimal("1.10"),
        Decimal("1.10"),
    ),
    ({"type": "int", "logicalType": "date"}, NOW.date(), dt.datetime(2026, 11, 23, tzinfo=dt.UTC)),
    ({"type": "long", "logicalType": "timestamp-millis"}, NOW, NOW.replace(microsecond=789_000)),
    ({"type": "long", "logicalType": "timestamp-micros"}, NOW, 1_795_406_706_789_012),
    ({"type": "string", "logicalType": "uuid"}, UUID, UUID),
    ({"type": "array", "items": ["null", "int"]}, [1, None], [1, None]),
    ({"type": "map", "values": "float"}, {"a": 0.5}, {"a": 0.5}),
    ({"type": "enum", "name": "Kind", "symbols": ["A", "B"]}, "B", "B"),
    ({"type": "fixed", "name": "Two", "size": 2}, b"ab", b"ab"),
    (CITY, ROWS[0], ROWS[0]),
    (["null", "boolean"], None, None),
]


def avro(rows: list[Any], schema: Any = CITY, codec: str = "null", per_block: int = 3) -> bytes:
    """Return a file with a few values a block."""
    stream = io.BytesIO()
    fastavro.writer(stream, schema, rows[:per_block], codec, sync_marker=SYNC)
    head = avro([], schema, codec) if rows else b""
    more = [avro(rows[at : at + per_block], schema, codec) for at in range(per_block, len(rows), per_block)]
    return stream.getvalue() + b"".join(file.removeprefix(head) for file in more)


SAMPLE = avro(ROWS)
SECRETS = avro([{"id": 1, "name": "SECRET"}] * 2, per_block=1)


class TestAvro(ExtractorConformance):
    extractor = AvroExtractor()
    sample, count = SAMPLE, 7
    empty = avro([])
    damaged = SAMPLE[:-20]
    bad = SECRETS.replace(b"\x0cSECRET", b"\x0cSECR\xffT", 1)


class TestAvroWithSchemas(TestAvro):
    extractor = AvroExtractor(schemas=True)


@pytest.mark.parametrize("codec", ["null", "deflate", "bzip2", "xz", "zstandard", "snappy", "lz4"])
class TestCodecs:
    def test_are_read(self, codec: str) -> None:
        assert values(AvroExtractor(), _with_codec(codec)) == ROWS

    def test_tell_of_damage(self, codec: str) -> None:
        data = bytearray(_with_codec(codec))
        first = data.index(SYNC) + len(SYNC)
        at = data.index(SYNC, first) - 6  # in the first block's data, at its end
        data[at] ^= 0x5A
        found: list[Any] = []
        try:
            found = values(AvroExtractor(), bytes(data))
        except ObjectError:
            return
        assert codec in {"null", "deflate", "lz4", "zstandard"}  # these have no checksum
        assert found != ROWS

    def test_are_bounded(self, codec: str) -> None:
        extractor = AvroExtractor(max_record_bytes=1_000)
        with pytest.raises(ObjectError, match="max_record_bytes"):
            values(extractor, _with_codec(codec, [{"id": 1, "name": "x" * 100_000}]))


def _with_codec(codec: str, rows: list[Any] = ROWS) -> bytes:
    """Return a file of a codec; zstandard, for which fastavro wants another package, is compressed here."""
    if codec != "zstandard":
        return avro(rows, codec=codec)
    plain = avro(rows, per_block=len(rows))
    head, block = plain.split(SYNC)[:2]
    stream = io.BytesIO(block)
    count = fastavro.schemaless_reader(stream, "long", None)
    fastavro.schemaless_reader(stream, "long", None)
    out = io.BytesIO()
    out.write(head.replace(b"\x08null", b"\x12zstandard") + SYNC)
    packed = zstandard.compress(stream.read())
    for number in (count, len(packed)):
        fastavro.schemaless_writer(out, "long", number)
    return out.getvalue() + packed + SYNC


class TestValues:
    def test_are_plain(self) -> None:
        assert values(AvroExtractor(), SAMPLE) == ROWS

    def test_may_have_a_schema_that_follows_the_file(self) -> None:
        found = records(AvroExtractor(schemas=True), SAMPLE)
        struct = found[0].value  # type: ignore[union-attr]
        assert isinstance(struct, Struct)
        struct.validate()
        assert struct.schema.name == "geo.City"
        assert struct.to_dict() == ROWS[0]

    def test_may_be_other_than_records(self) -> None:
        assert values(AvroExtractor(), avro([1, 2, 3, 4], "long")) == [1, 2, 3, 4]
        (found, *_) = records(AvroExtractor(schemas=True), avro([1], "int"))
        assert found.schema.type.value == "int32"  # type: ignore[union-attr]

    @pytest.mark.parametrize(("kind", "value", "held"), TYPES)
    def test_of_each_type_keep_what_they_are(self, kind: Any, value: Any, held: Any) -> None:
        schema = {"type": "record", "name": "All", "fields": [{"name": "a", "type": kind}]}
        (struct,) = values(AvroExtractor(schemas=True), avro([{"a": value}], schema))
        struct.validate()
        assert struct.to_dict() == {"a": held}

    @pytest.mark.parametrize(("kind", "value"), [(["null", "int", "string"], None), (NODE, {"next": None})])
    def test_without_a_schema_in_connect_say_so(self, kind: Any, value: Any) -> None:
        schema = {"type": "record", "name": "Odd", "fields": [{"name": "a", "type": kind}]}
        data = avro([{"a": value}], schema)
        assert values(AvroExtractor(), data) == [{"a": value}]
        with pytest.raises(ObjectError, match="schemas = false"):
            values(AvroExtractor(schemas=True), data)


class TestEvolution:
    @pytest.fixture
    def schema_file(self, tmp_path: Path) -> str:
        people = {"name": "people", "type": "long", "default": -1}
        later = {**CITY, "fields": [{"name": "name", "type": ["null", "string"]}, people]}
        path = tmp_path / "city.avsc"
        path.write_text(json.dumps(later))
        return str(path)

    @pytest.mark.parametrize("schemas", [False, True])
    def test_brings_files_to_one_schema(self, schema_file: str, *, schemas: bool) -> None:
        extractor = AvroExtractor(schema_file=schema_file, schemas=schemas)
        found = [value for data in (SAMPLE, SECRETS) for value in values(extractor, data)]
        assert len(found) == 9
        first = found[0].to_dict() if schemas else found[0]
        assert first == {"name": "city 1", "people": -1}

    def test_without_a_resolution_is_an_error_of_each_value(self, tmp_path: Path) -> None:
        path = tmp_path / "other.avsc"
        path.write_text(json.dumps({**CITY, "fields": [{"name": "missing", "type": "long"}]}))
        found = records(AvroExtractor(schema_file=str(path)), SAMPLE)
        assert len(found) == 7
        assert all(isinstance(record, BadRecordError) for record in found)

    def test_by_what_is_no_schema_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="schema_file"):
            values(AvroExtractor(schema_file=str(tmp_path / "none.avsc")), SAMPLE)


class TestResuming:
    def test_goes_to_the_block(self) -> None:
        found = records(AvroExtractor(), SAMPLE)[3]
        given = Input(MemoryObject(SAMPLE), skip=4, properties=found.properties)  # type: ignore[union-attr]
        assert [number for number, _ in extracted(AvroExtractor(), given)] == [5, 6, 7]
        assert given.skipped == 3

    def test_meets_the_same_damage_again(self) -> None:
        head, block = avro([], "long"), b"\x06\x08" + b"\x02\x04\x06\x08" + SYNC  # three of four values
        for known in range(4):
            properties = {"byte": len(head), "in_block": known} if known else None
            with pytest.raises(ObjectError, match="has bytes after its last value"):
                records(AvroExtractor(), head + block + block, skip=known, properties=properties)

    def test_leaves_an_unfinished_block_of_a_growing_object(self) -> None:
        for cut in range(1, 28):
            item = MemoryObject(SAMPLE[:-cut], grows=True)
            assert values(AvroExtractor(), item) == ROWS[:6]


class TestDamage:
    def test_by_a_cut_is_an_error_except_between_blocks(self) -> None:
        ends = [at + len(SYNC) for at in range(len(SAMPLE)) if SAMPLE.startswith(SYNC, at)]
        for cut in range(len(SAMPLE)):
            if cut not in ends:
                with pytest.raises(ObjectError):
                    values(AvroExtractor(), SAMPLE[:cut])

    def test_in_a_block_spoils_the_rest_of_it(self) -> None:
        data = SAMPLE.replace(b"city 2", b"city\xff2")
        assert values(AvroExtractor(), data) == [ROWS[0], None, None, *ROWS[3:]]

    @pytest.mark.parametrize("schemas", [False, True])
    def test_does_not_spoil_what_is_behind_a_time_that_python_does_not_have(self, *, schemas: bool) -> None:
        kind = {"type": "long", "logicalType": "timestamp-millis"}
        head = avro([], kind)
        block = avro([1, 2**63 - 1, 2, -(2**63), 3], "long", per_block=5).removeprefix(avro([], "long"))
        found = records(AvroExtractor(schemas=schemas), head + block)
        assert [isinstance(record, BadRecordError) for record in found] == [False, True, False, True, False]
        assert found[4].properties == {"byte": len(head), "in_block": 5}  # type: ignore[union-attr]

    @pytest.mark.parametrize(
        "block",
        [
            b"\x02" + b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f",  # a length of 2**62
            b"\x02\x01",  # a negative length
            b"\xff" * 11,  # a number without an end
            b"\xfe\xff\xff\xff\xff\x7f\x00" + SYNC,  # 2**40 values in no byte
        ],
    )
    def test_of_a_block_s_head_is_an_error(self, block: bytes) -> None:
        with pytest.raises(ObjectError):
            values(AvroExtractor(), avro([], "null") + block)

    def test_by_endless_nulls_is_an_error(self) -> None:
        data = avro([], {"type": "array", "items": "null"})
        block = b"\x02\x0e" + b"\xfe\xff\xff\xff\xff\x0f\x00" + SYNC  # 2**32 nulls
        with pytest.raises(ObjectError, match="limit"):
            values(AvroExtractor(), data + block)

    def test_by_endless_depth_is_an_error(self) -> None:
        payload = b"\x02" * 200_000
        head = io.BytesIO()
        for number in (1, len(payload)):
            fastavro.schemaless_writer(head, "long", number)
        with pytest.raises(ObjectError, match="deep"):
            values(AvroExtractor(), avro([], NODE) + head.getvalue() + payload + SYNC)

    @pytest.mark.parametrize("schema", [b"{", b'"nonsense"', b'{"type": "record"}'])
    def test_of_the_schema_is_an_error(self, schema: bytes) -> None:
        head = io.BytesIO()
        meta = {"avro.schema": schema, "avro.codec": b"null"}
        fastavro.schemaless_writer(head, {"type": "map", "values": "bytes"}, meta)
        with pytest.raises(ObjectError, match="schema"):
            values(AvroExtractor(), b"Obj\x01" + head.getvalue() + SYNC)

    def test_of_what_is_not_avro_is_an_error(self) -> None:
        for data in (b"", b"Obj\x02", b"Obj\x01" + b"\xff" * 100, SAMPLE.replace(b"\x08null", b"\x08none")):
            with pytest.raises(ObjectError):
                values(AvroExtractor(), data)


class TestMemory:
    def test_does_not_grow_with_the_object(self) -> None:
        head = avro([])
        block = avro([{"id": 1, "name": "x" * 80}] * 500, per_block=500).removeprefix(head)

        def peak(blocks: int) -> int:
            item = MadeObject([head, *[block] * blocks])
            tracemalloc.start()
            try:
                assert sum(1 for _ in extracted(AvroExtractor(), Input(item))) == blocks * 500
                return tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()

        assert peak(40) < peak(5) + (1 << 18)
