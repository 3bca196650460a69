"""Objects of other systems that take far more memory than they have bytes.

Each is read by a process of its own, which tells the most memory that it held beyond that of its imports.
"""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headerware.sources import Extracted
from headerware.sources.extractors import CsvExtractor, JsonLinesExtractor, ParquetExtractor
from tests.source_objects import records

MIB: Final = 1 << 20
_PROGRAM: Final = """
import sys
from pathlib import Path

import msgspec

from headerware.core.errors import SourceError
from headerware.sources import Input, ItemContext, NativeItem
from headerware.sources.extractor import extracted_runs, extractor_from


class File(NativeItem):
    def open_stream(self):
        return open(self.context.key, "rb")


def peak_mib():
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) // 1024


extractor = extractor_from(msgspec.json.decode(sys.argv[2]))
if extractor.type == "parquet":
    import pyarrow.parquet
count, problem, before = 0, "", peak_mib()
try:
    for _, run in extracted_runs(extractor, Input(File(ItemContext(key=sys.argv[1])))):
        count += len(run)
except SourceError as error:
    problem = str(error)
print(msgspec.json.encode([peak_mib() - before, count, problem]).decode())
"""


class Outcome(NamedTuple):
    """What came of reading an object."""

    peak_mib: int
    records: int
    problem: str


def read(path: Path, data: bytes, extractor: str, **options: Any) -> Outcome:
    """Read an object in another process."""
    path.write_bytes(data)
    given = msgspec.json.encode({"type": extractor, **options}).decode()
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(path), given], capture_output=True, check=True, timeout=300
    )
    return msgspec.json.decode(done.stdout, type=Outcome)


class TestCsv:
    @pytest.mark.parametrize("end", [b"", b'"\n'])
    def test_row_of_many_short_lines_is_refused_before_they_are_held(
        self, tmp_path: Path, end: bytes
    ) -> None:
        data = gzip.compress(b'a,b\n1,"' + b"\n" * (15 * MIB) + end)
        assert len(data) < 20_000
        found = read(tmp_path / "lines.csv.gz", data, "csv")
        assert "max_record_lines" in found.problem
        assert found.peak_mib < 150  # it was 1,700

    def test_row_of_as_many_lines_as_may_be_is_read(self) -> None:
        data = b'a,b\n1,"' + b"x\n" * 9 + b'"\n2,3\n'
        found = records(CsvExtractor(max_record_lines=10), data)
        assert [each.value["b"] for each in found if isinstance(each, Extracted)] == ["x\n" * 9, "3"]


class TestJsonLines:
    def test_line_of_many_small_values_counts_for_what_it_takes(self) -> None:
        data = b"[" + b"[]," * MIB + b"1]\n"
        (found,) = records(JsonLinesExtractor(), data)
        assert isinstance(found, Extracted)
        assert found.size_bytes > sys.getsizeof(found.value) + MIB * sys.getsizeof([])


def parquet(path: Path, values: Any, **options: Any) -> bytes:
    pq.write_table(pa.table({"a": values}), path, compression="zstd", **options)
    return path.read_bytes()


def varint(number: int, length: int = 0) -> bytes:
    """Return an integer in Thrift's compact protocol, in so many bytes at least."""
    left, found = 2 * number, bytearray()
    while left >= 0x80 or len(found) < length - 1:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*found, left])


class TestParquet:
    def test_long_value_that_repeats_is_not_held_for_each_row(self, tmp_path: Path) -> None:
        path = tmp_path / "repeats.parquet"
        values = pa.DictionaryArray.from_arrays([0] * 600, [b"x" * (5 * MIB // 2)])
        data = parquet(path, values, store_schema=False)
        assert len(data) < 20_000
        found = read(path, data, "parquet")
        assert (found.records, found.problem) == (600, "")
        assert found.peak_mib < 250  # it was 2,400

    def test_value_that_repeats_the_one_before_it_is_not_either(self, tmp_path: Path) -> None:
        path = tmp_path / "delta.parquet"
        options = {"use_dictionary": False, "column_encoding": {"a": "DELTA_BYTE_ARRAY"}}
        found = read(path, parquet(path, [b"x" * MIB] * 250, **options), "parquet")
        assert (found.records, found.problem) == (250, "")
        assert found.peak_mib < 250  # it was 700

    def test_page_that_expands_is_refused_whatever_the_foot_says(self, tmp_path: Path) -> None:
        path = tmp_path / "expands.parquet"
        data = parquet(path, [b"x" * (100 * MIB)], use_dictionary=False, write_statistics=False)
        stated = pq.read_metadata(path).row_group(0).total_byte_size
        forged = data.replace(varint(stated), varint(2_000, len(varint(stated))))
        path.write_bytes(forged)
        assert pq.read_metadata(path).row_group(0).total_byte_size == 2_000
        assert len(forged) < 20_000
        found = read(path, forged, "parquet")
        assert "max_expansion" in found.problem
        assert found.peak_mib < 70

    @pytest.mark.parametrize("options", [{}, {"use_dictionary": False}, {"data_page_version": "2.0"}])
    def test_pages_of_honest_files_are_passed(self, tmp_path: Path, options: dict[str, Any]) -> None:
        table = pa.table(
            {
                "n": list(range(30_000)),
                "text": [f"{number % 999}" * 30 for number in range(30_000)],
                "list": [[number, None] for number in range(30_000)],
                "nested": [{"a": [b"x" * (number % 50)]} for number in range(30_000)],
            }
        )
        path = tmp_path / "honest.parquet"
        pq.write_table(table, path, row_group_size=9_000, data_page_size=20_000, **options)
        found = records(ParquetExtractor(), path.read_bytes())
        assert [each.value for each in found if isinstance(each, Extracted)] == table.to_pylist()
