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
import pytest

from headerware.sources import Extracted
from headerware.sources.extractors import CsvExtractor, JsonLinesExtractor
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
