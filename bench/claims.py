"""Rows for claims: a 64 MiB value to a store and back, against bare calls of the store with digests."""

from __future__ import annotations

import hashlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config
from report import Row

from headerware import Chain, Record
from headerware.interceptors import ClaimCheck
from headerware.object_store import FolderObjects, S3Objects

SIZE = 64 << 20
BUCKET = "bench"
REGION = "eu-central-1"


def rows(*, pairs: int) -> Iterator[Row]:
    """Measure both stores; no broker takes part, because the record itself is small."""
    value = os.urandom(SIZE)
    with _server() as endpoint:
        credentials = {"AWS_ACCESS_KEY_ID": "bench", "AWS_SECRET_ACCESS_KEY": "bench"}
        os.environ.update(credentials)
        config = Config(request_checksum_calculation="when_required", s3={"addressing_style": "path"})
        client = boto3.client("s3", region_name=REGION, endpoint_url=endpoint, config=config)
        store = S3Objects(bucket=BUCKET, region=REGION, endpoint=endpoint)
        yield _row("S3", store, lambda: _bare_s3(client, value), value, pairs)
        client.close()
        for name in credentials:
            del os.environ[name]
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        store = FolderObjects(path=folder)
        yield _row("a folder", store, lambda: _bare_file(root, value), value, pairs, lambda: _clear(root))


def _row(
    name: str,
    store: Any,
    bare: Callable[[], None],
    value: bytes,
    pairs: int,
    clear: Callable[[], None] = lambda: None,
) -> Row:
    ours: list[float] = []
    theirs: list[float] = []
    with closing(Chain([ClaimCheck(stores={"archive": store})]).open()) as session:

        def claimed() -> None:
            (record,) = session.consume(session.send([Record("bench", value)]))
            assert len(record.value) == SIZE

        for index in range(pairs + 1):
            turns = [(claimed, ours), (bare, theirs)]
            for run, rates in turns if index % 2 else reversed(turns):
                began = time.perf_counter()
                run()
                took_s = time.perf_counter() - began
                clear()
                if index:
                    rates.append(SIZE / took_s / 2**20)
    return Row(
        f"64 MiB value, through a claim in {name}",
        statistics.median(ours),
        statistics.median(theirs),
        "MiB/s",
        statistics.median(a / b for a, b in zip(ours, theirs, strict=True)),
        "at least 0.8",
        f"{pairs} pairs; stored and fetched; against bare calls of the store with SHA-256 both ways",
    )


def _bare_s3(client: Any, value: bytes) -> None:
    hashlib.sha256(value).digest()
    client.put_object(Bucket=BUCKET, Key="bare", Body=value)
    found = client.get_object(Bucket=BUCKET, Key="bare")["Body"].read()
    hashlib.sha256(found).digest()
    assert len(found) == SIZE


def _clear(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            path.unlink()


def _bare_file(folder: Path, value: bytes) -> None:
    """Write as safely as a store must: a new file gets its name after its content is on the disk."""
    hashlib.sha256(value).digest()
    with (folder / "new").open("wb") as file:
        file.write(value)
        file.flush()
        os.fsync(file.fileno())
    named = (folder / "new").rename(folder / "bare")
    inside = os.open(folder, os.O_RDONLY)
    os.fsync(inside)
    os.close(inside)
    found = named.read_bytes()
    hashlib.sha256(found).digest()
    assert len(found) == SIZE


@contextmanager
def _server() -> Iterator[str]:
    """Run a store of one object in a process of its own, which is the same for both sides."""
    with subprocess.Popen([sys.executable, __file__], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield f"http://127.0.0.1:{int(server.stdout.readline())}"
        server.terminate()


class _OneObject(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    content = bytearray(SIZE)

    def do_PUT(self) -> None:
        rest = memoryview(self.content)
        while rest:
            rest = rest[self.rfile.readinto(rest[: 1 << 20]) :]  # type: ignore[attr-defined]
        self._answer(b"")

    def do_GET(self) -> None:
        self._answer(self.content)

    def _answer(self, content: bytes | bytearray) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("ETag", '"0"')
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Log nothing."""


if __name__ == "__main__":
    served = ThreadingHTTPServer(("127.0.0.1", 0), _OneObject)
    print(served.server_port, flush=True)
    served.serve_forever()
