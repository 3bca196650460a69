"""Rows with native code, and the same rows without it; and native code against its steps alone."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pairing import Chunk, compare, rate
from report import Row

from headerware import Chain, Context, Headers, Record
from headerware.core.native import NATIVE_VARIABLE, native_module
from headerware.interceptors import Compress, Sign, Trail
from headerware.keyring import with_new_key
from headerware.keyring.writing import edit_keyring

WAYS: dict[str, bool] = {"": False, ", natively": True} if native_module()[0] is not None else {"": False}
"""What the names of rows end with, and whether native code is in force."""
TOPIC = "orders"
CHUNK = 5_000
BATCH = 500
EXAMPLE = re.compile(r"^(.+?) +(\d+) ns$", re.MULTILINE)


@contextmanager
def in_force(natively: bool) -> Iterator[None]:  # noqa: FBT001 - a value of WAYS
    """Let sessions that see their first record of a topic meanwhile run natively, or not."""
    before = os.environ.get(NATIVE_VARIABLE)
    os.environ[NATIVE_VARIABLE] = "1" if natively else "0"
    native_module.cache_clear()
    try:
        yield
    finally:
        os.environ.pop(NATIVE_VARIABLE)
        os.environ.update({} if before is None else {NATIVE_VARIABLE: before})
        native_module.cache_clear()


def rows(*, pairs: int) -> Iterator[Row]:
    """Measure native code against Python, and against its steps in Rust alone; no broker takes part."""
    if True not in WAYS.values():
        return
    with tempfile.TemporaryDirectory() as folder:
        keyring = str(Path(folder) / "keys.json")
        edit_keyring(keyring, lambda keys: with_new_key(keys, "hmac", "hmac-sha256"), create=True)
        edit_keyring(keyring, lambda keys: with_new_key(keys, "ed25519", "ed25519"))
        for key_id in ("hmac", "ed25519"):
            steps = [Trail(service="bench"), Compress(), Sign(keyring=keyring, key_id=key_id)]
            yield from _against_python(key_id, Chain(steps), _records(100), pairs)
        if shutil.which("cargo") is not None:
            alone = _steps_alone()
            for key_id in ("hmac", "ed25519"):
                steps = [Trail(service="bench"), Compress(), Sign(keyring=keyring, key_id=key_id)]
                yield from _against_steps(key_id, Chain(steps), _records(300), alone)


def _records(size: int) -> list[Record]:
    """Return the record of the crate's example, many times."""
    value = (b'{"id": 1042, "customer": "Ada", "lines": [{"sku": "A-1", "count": 2}]}, ' * 5)[:size]
    traceparent = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    headers = [("content-type", b"application/json"), ("traceparent", traceparent), ("tenant", b"blue")]
    return [Record(TOPIC, value, b"k-1042", Headers(headers), 0, offset=at) for at in range(CHUNK)]


def _both_ways(chain: Chain, records: list[Record], natively: bool) -> dict[str, Chunk]:  # noqa: FBT001
    with in_force(natively):
        writing, reading = chain.open(_context("producer")), chain.open(_context("consumer"))
        wire = [each.replace(partition=0, offset=at) for at, each in enumerate(writing.send(records))]
        reading.consume(wire[:BATCH])
    return {"send": _in_batches(writing.send, records), "consume": _in_batches(reading.consume, wire)}


def _context(side: Any) -> Context:
    return Context(side=side, cluster_id=lambda: "prod-1")


def _in_batches(go: Callable[[list[Record]], object], records: list[Record]) -> Chunk:
    def chunk() -> int:
        for at in range(0, CHUNK, BATCH):
            go(records[at : at + BATCH])
        return CHUNK

    return chunk


def _against_python(key_id: str, chain: Chain, records: list[Record], pairs: int) -> Iterator[Row]:
    ours, theirs = (_both_ways(chain, records, natively) for natively in (True, False))
    for way, chunk in ours.items():
        found = compare(chunk, theirs[way], pairs=pairs)
        name = f"{way}, trail + compress + sign ({key_id}), natively against Python, 100-byte values"
        note = f"batches of {BATCH}, 3 headers, {pairs} pairs of {CHUNK:,}, in process"
        bar = "at least 4" if key_id == "hmac" else ""
        yield Row(name, found.ours, found.reference, "records/s", found.ratio, bar, note)


def _steps_alone() -> dict[str, float]:
    """Return the nanoseconds of each step in Rust, as the crate's example measures them."""
    crate = Path(__file__).parents[1] / "native" / "headerware-wire"
    command = ["cargo", "run", "--release", "--quiet", "--example", "bench"]
    printed = subprocess.run(command, cwd=crate, check=True, capture_output=True, text=True).stdout
    return {name: float(nanoseconds) for name, nanoseconds in EXAMPLE.findall(printed)}


def _against_steps(
    key_id: str, chain: Chain, records: list[Record], alone: dict[str, float]
) -> Iterator[Row]:
    algorithm = {"hmac": "hmac-sha256"}.get(key_id, key_id)
    steps = {
        "send": ("trail, a new one", "compress, zstd", f"sign, {algorithm}"),
        "consume": (f"verify, {algorithm}", "decompress, zstd", "trail, one more entry"),
    }
    for way, chunk in _both_ways(chain, records, natively=True).items():
        ours = max(rate(chunk) for _ in range(5))
        limit = 1e9 / sum(alone[step] for step in steps[way])
        name = f"{way}, trail + compress + sign ({key_id}), natively, against the steps in Rust alone"
        note = f"300-byte values, 3 headers, batches of {BATCH}; the best of five runs of both"
        yield Row(name, ours, limit, "records/s", ours / limit, "", note)
