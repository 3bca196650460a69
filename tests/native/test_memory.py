"""A value states its own size: native code outlives a lack of memory for it, and keeps no large buffer."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys
from pathlib import Path
import pyarrow as pa
import zstandard
from headerware import Chain, Context, Headers, Record
from headerware.core.batch import ArrowColumn, ArrowKind, Batch
from headerware.core.native import native_module
from headerware.interceptors import Compress, Trail

MB, SIZE = 1 << 20, 200 << 20

def in_mb(column):
    return int(Path("/proc/self/statm").read_text().split()[column]) * resource.getpagesize() // MB

def limit(more_mb):
    resource.setrlimit(resource.RLIMIT_AS, ((in_mb(0) + more_mb) * MB,) * 2)

def compressed(value, codec=b"zstd"):
    return Record("t", value, headers=Headers([("hw.compress", codec)]), partition=0, offset=0)

def headers_of(array):
    return [Headers((pair["key"], pair["value"]) for pair in pairs) for pairs in array.to_pylist()]

def as_arrays(records):
    pairs = pa.array([[{"key": name, "value": value} for name, value in each.headers] for each in records])
    kind = ArrowKind(lambda array: array.to_pylist(), frozenset({bytes, type(None)}))
    headers = ArrowKind(headers_of, frozenset({Headers}), lambda array: array.values.field(0).to_pylist())
    values, keys = pa.array([each.value for each in records]), pa.nulls(len(records), pa.binary())
    columns = {"keys": ArrowColumn(keys, kind), "headers": ArrowColumn(pairs, headers)}
    return Batch("t", ArrowColumn(values, kind), partitions=[0] * len(records), **columns)

def outcomes(value, codec=b"zstd"):
    given = [small, compressed(value, codec), small]
    if sys.argv[2] == "arrays":
        given = as_arrays(given)
    return [type(outcome).__name__ for outcome in session.consume_outcomes(given)]

assert native_module()[0]
compressor = zstandard.ZstdCompressor()
small, large = compressed(compressor.compress(b"x" * 500)), compressor.compress(bytes(SIZE))
forged = b"\\x1f\\x8b\\x08\\0\\0\\0\\0\\0\\0\\xff" + bytes(200_000) + SIZE.to_bytes(4, "little")
session = Chain([Trail(), Compress()]).open(Context(side="consumer", now_ms=lambda: 1))
session.consume([small] * 2)
session.consume_outcomes(as_arrays([small] * 2))  # Arrow takes its address space before the limit
match sys.argv[1]:
    case "none":
        limit(100)
        print(*outcomes(large))
    case "forged":
        limit(100)
        print(*outcomes(forged, b"gzip"))
    case "for one copy":
        limit(300)
        print(*outcomes(large))
    case "enough":
        before_mb = in_mb(1)
        print(*outcomes(large))
        assert in_mb(1) - before_mb < 100
"""

SENDING = """
import resource
from pathlib import Path
from headerware import Chain, Context, Record
from headerware.core.batch import Batch
from headerware.interceptors import Compress, Trail

session = Chain([Trail(), Compress()]).open(Context(side="producer", now_ms=lambda: 1))
session.send([Record("t", b"x" * 500)])
(run,) = [stage.native for stage in session._send.hooks_of("t").stages if stage.native]
batch = Batch.of([Record("t", bytes(20 << 20))] * 64)
pages = int(Path("/proc/self/statm").read_text().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (150 << 20),) * 2)
out = run(batch)
print(len(out.not_taken), max(map(len, out.values)) < 10_000)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
def test_large_values_that_become_small() -> None:
    """Each value gets room for the worst case of compression, and gives it back."""
    done = subprocess.run(
        [sys.executable, "-c", SENDING], check=False, capture_output=True, text=True, timeout=120
    )
    assert done.stdout.split() == ["0", "True"], done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
@pytest.mark.parametrize("columns", ["lists", "arrays"])
@pytest.mark.parametrize(
    ("memory", "outcome"),
    [
        ("none", "InterceptorError"),  # from a MemoryError, as without native code
        ("forged", "CompressionError"),
        ("for one copy", "Record"),
        ("enough", "Record"),
    ],
)
def test_a_large_value(memory: str, outcome: str, columns: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, memory, columns],
        check=False, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.stdout.split() == ["Record", outcome, "Record"], done.stderr
