"""Parquet."""

from __future__ import annotations

import datetime as dt
import gzip
import io
import subprocess
import sys
import tracemalloc
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headerware.connect.data import Struct
from headerware.core.errors import BadRecordError, ConfigError, ObjectError
from headerware.sources import Input
from headerware.sources.conformance import ExtractorConformance
from headerware.sources.extractor import extracted
from headerware.sources.extractors import ParquetExtractor
from tests.source_objects import MemoryObject, records, values

ROWS = [{"id": n, "city": None if n == 3 else f"city {n}"} for n in range(1, 8)]


def parquet(table: Any, **options: Any) -> bytes:
    stream = io.BytesIO()
    pq.write_table(pa.table(table) if isinstance(table, dict) else table, stream, **options)
    return stream.getvalue()


DAMAGE = """
import sys
from pathlib import Path
from headerware.core.errors import ObjectError
from headerware.sources import Input
from headerware.sources.extractors import ParquetExtractor
from tests.source_objects import MemoryObject
whole = Path(sys.argv[1]).read_bytes()
for at in range(len(whole) - 8 - int.from_bytes(whole[-8:-4], "little"), len(whole)):
    for bit in (1, 2, 8):
        item = MemoryObject(whole[:at] + bytes([whole[at] ^ bit]) + whole[at + 1:])
        for read in (ParquetExtractor().extract, lambda given: ParquetExtractor().splits(given, 1)):
            try:
                with Input(item) as given:
                    list(read(given))
            except ObjectError:
                pass
print("done")
"""
SAMPLE = parquet(pa.Table.from_pylist(ROWS), row_group_size=3)


class TestParquet(ExtractorConformance):
    extractor = ParquetExtractor()
    sample, count = SAMPLE, 7
    empty = parquet(pa.Table.from_pylist(ROWS).slice(0, 0))
    damaged = SAMPLE[: len(SAMPLE) // 2]


class TestParquetWithSchemas(TestParquet):
    extractor = ParquetExtractor(schemas=True)


class TestRows:
    def test_have_the_names_of_columns(self) -> None:
        assert values(ParquetExtractor(), SAMPLE) == ROWS

    def test_may_have_some_columns(self) -> None:
        assert values(ParquetExtractor(columns=["city"]), SAMPLE)[0] == {"city": "city 1"}

    def test_begin_at_the_row_group_of_the_first_that_is_not_known(self) -> None:
        given = Input(MemoryObject(SAMPLE), skip=5)
        assert [number for number, _ in extracted(ParquetExtractor(), given)] == [6, 7]
        assert given.skipped == 3

    def test_come_from_an_object_that_is_compressed_as_a_whole(self) -> None:
        assert values(ParquetExtractor(), gzip.compress(SAMPLE)) == ROWS

    def test_come_from_an_object_that_cannot_seek(self) -> None:
        assert values(ParquetExtractor(), MemoryObject(SAMPLE, seekable=False)) == ROWS

    def test_of_splits_have_their_numbers(self) -> None:
        splits = list(ParquetExtractor().splits(Input(MemoryObject(SAMPLE)), 1))
        assert [(split.begin, split.end, split.first_record) for split in splits] == [
            (0, 1, 1),
            (1, 2, 4),
            (2, 3, 7),
        ]
        found = extracted(ParquetExtractor(), Input(MemoryObject(SAMPLE), split=splits[1]))
        assert [number for number, _ in found] == [4, 5, 6]

    def test_that_are_too_large_are_one_error(self) -> None:
        data = parquet({"text": ["a", "x" * 3_000, "b"], "list": [[1], [2], [3]]})
        found = records(ParquetExtractor(max_record_bytes=1_000), data)
        assert [isinstance(record, BadRecordError) for record in found] == [False, True, False]

    def test_of_columns_that_are_not_there_are_refused(self) -> None:
        with pytest.raises(ObjectError, match="expected the column 'town', found: id, city"):
            values(ParquetExtractor(columns=["town"]), SAMPLE)
        with pytest.raises(ConfigError, match="columns"):
            ParquetExtractor(columns=[])


NOW = dt.datetime(2026, 11, 23, 4, 5, 6, 789_000, tzinfo=dt.UTC)
NOW_NS = 1_795_406_706_789_012_345
TYPES: list[tuple[Any, Any, Any, Any]] = [  # the type, the value, as plain Python, in a Struct
    (pa.int8(), -8, -8, -8),
    (pa.uint8(), 200, 200, 200),
    (pa.int16(), -300, -300, -300),
    (pa.int32(), 1 << 30, 1 << 30, 1 << 30),
    (pa.uint32(), 1 << 31, 1 << 31, 1 << 31),
    (pa.int64(), 1 << 60, 1 << 60, 1 << 60),
    (pa.uint64(), 1 << 63, 1 << 63, Decimal(1 << 63)),
    (pa.float32(), 0.5, 0.5, 0.5),
    (pa.float64(), 0.1, 0.1, 0.1),
    (pa.bool_(), True, True, True),
    (pa.string(), "ü", "ü", "ü"),
    (pa.large_binary(), b"\xff", b"\xff", b"\xff"),
    (pa.decimal128(9, 2), Decimal("1.10"), Decimal("1.10"), Decimal("1.10")),
    (pa.date32(), NOW.date(), NOW.date(), dt.datetime(2026, 11, 23, tzinfo=dt.UTC)),
    (pa.time32("ms"), dt.time(1), dt.time(1), dt.datetime(1970, 1, 1, 1, tzinfo=dt.UTC)),
    (pa.time64("us"), dt.time(0, 0, 1), dt.time(0, 0, 1), 1_000_000),
    (pa.timestamp("ms", "UTC"), NOW, NOW, NOW),
    (pa.timestamp("us", "UTC"), NOW, NOW, 1_795_406_706_789_000),
    (pa.timestamp("ns", "UTC"), NOW, NOW, 1_795_406_706_789_000_000),
    (pa.list_(pa.int32()), [1, None], [1, None], [1, None]),
    (pa.list_(pa.timestamp("us")), [dt.datetime(1970, 1, 2)], [dt.datetime(1970, 1, 2)], [86_400_000_000]),  # noqa: DTZ001
    (pa.map_(pa.string(), pa.int64()), {"a": 1}, [("a", 1)], {"a": 1}),
    (pa.struct([("a", pa.int16())]), {"a": 1}, {"a": 1}, {"a": 1}),
    (pa.dictionary(pa.int32(), pa.string()), "x", "x", "x"),
]


class TestTypes:
    @pytest.mark.parametrize(("kind", "value", "plain", "held"), TYPES, ids=lambda found: str(found)[:20])
    def test_keep_their_values(self, kind: Any, value: Any, plain: Any, held: Any) -> None:
        data = parquet(pa.table({"a": pa.array([value, None], kind)}))
        assert values(ParquetExtractor(), data) == [{"a": plain}, {"a": None}]
        found = values(ParquetExtractor(schemas=True), data)
        for struct in found:
            assert isinstance(struct, Struct)
            struct.validate()
        assert [struct.to_dict() for struct in found] == [{"a": held}, {"a": None}]

    def test_never_lose_nanoseconds(self) -> None:
        data = parquet(pa.table({"a": pa.array([NOW_NS], pa.timestamp("ns"))}))
        (found,) = values(ParquetExtractor(schemas=True), data)
        assert found["a"] == NOW_NS
        assert found.schema.field("a").schema.name == "io.debezium.time.NanoTimestamp"
        with pytest.raises(ObjectError, match="'a' has times finer"):
            values(ParquetExtractor(), data)

    def test_without_names_are_an_error(self) -> None:
        with pytest.raises(ObjectError, match="name"):
            values(ParquetExtractor(schemas=True), parquet({"": [1]}))

    @pytest.mark.parametrize("schemas", [False, True])
    @pytest.mark.parametrize(
        "column",
        [
            pa.array([0, 2**55, 5], pa.timestamp("ms")),
            pa.array([0, 2**30, 5], pa.int32()).cast(pa.date32()),
            pa.array([[0], [1, 2**55], []], pa.list_(pa.timestamp("ms"))),
            pa.StringArray.from_buffers(
                3, pa.array(["a", "bc", "d"]).buffers()[1], pa.py_buffer(b"a\xff\xfed")
            ),
        ],
        ids=["time", "date", "list", "text"],
    )
    def test_that_python_does_not_have_are_one_error(self, column: Any, *, schemas: bool) -> None:
        found = records(ParquetExtractor(schemas=schemas), parquet(pa.table({"n": [1, 2, 3], "bad": column})))
        assert [isinstance(record, BadRecordError) for record in found] == [False, True, False]
        assert "'bad'" in str(found[1])
        assert found[2].value["n"] == 3  # type: ignore[union-attr]

    def test_follow_each_file(self) -> None:
        one, two = parquet({"a": [1]}), parquet({"a": [1], "b": ["x"]})
        found = [values(ParquetExtractor(schemas=True), data)[0] for data in (one, two)]
        assert [struct.keys() for struct in found] == [["a"], ["a", "b"]]


class TestDamage:
    @pytest.mark.parametrize("kept", range(0, len(SAMPLE), 37))
    def test_by_a_cut_is_an_error(self, kept: int) -> None:
        with pytest.raises(ObjectError):
            values(ParquetExtractor(), SAMPLE[:kept])

    def test_of_bytes_is_an_error_or_other_values(self) -> None:
        for at in range(0, len(SAMPLE), 11):
            data = bytearray(SAMPLE)
            data[at] ^= 0xFF
            try:
                values(ParquetExtractor(), bytes(data))
            except ObjectError as error:
                assert "city" not in str(error)  # noqa: PT017 - some damage shows, some does not

    def test_of_what_is_not_parquet_is_an_error(self) -> None:
        for data in (b"", b"PAR1", b"id,city\n", b"PAR1" + bytes(50) + b"\xff\xff\xff\x7fPAR1"):
            with pytest.raises(ObjectError):
                values(ParquetExtractor(), data)

    def test_of_any_byte_of_the_foot_never_ends_the_process(self, tmp_path: Path) -> None:
        (tmp_path / "sample").write_bytes(SAMPLE)
        found = subprocess.run(
            [sys.executable, "-c", DAMAGE, tmp_path / "sample"], capture_output=True, text=True, check=False
        )
        assert (found.returncode, found.stdout, found.stderr) == (0, "done\n", "")

    def test_of_an_expanding_object_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("headerware.sources.extractors.parquet.FREE_BYTES", 1 << 20)
        data = parquet({"a": ["x" * (4 << 20)]}, compression="zstd", use_dictionary=False)
        with pytest.raises(ObjectError, match="max_expansion"):
            values(ParquetExtractor(), data)


class TestMemory:
    def test_does_not_grow_with_long_values_that_repeat(self) -> None:
        data = parquet(pa.table({"n": list(range(3_000)), "text": ["x" * 20_000] * 3_000}))
        assert len(data) < 1 << 20
        tracemalloc.start()
        try:
            assert sum(1 for _ in extracted(ParquetExtractor(), Input(MemoryObject(data)))) == 3_000
            assert tracemalloc.get_traced_memory()[1] < 32 << 20
        finally:
            tracemalloc.stop()

    def test_does_not_grow_with_a_row_group(self) -> None:
        def peak(rows: int) -> int:
            table = pa.table({"n": range(rows), "text": [f"{number:0100}" for number in range(rows)]})
            data = parquet(table, row_group_size=rows, use_dictionary=False, compression="none")
            del table
            pool = pa.system_memory_pool()
            before, most = pool.bytes_allocated(), 0
            for _, _ in extracted(ParquetExtractor(), Input(MemoryObject(data))):
                most = max(most, pool.bytes_allocated() - before)
            return most

        default = pa.default_memory_pool()
        pa.set_memory_pool(pa.system_memory_pool())
        try:
            assert peak(200_000) < 2 * peak(50_000) < 8 << 20
        finally:
            pa.set_memory_pool(default)
