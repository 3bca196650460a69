"""A server that closes the connection in the middle of an object, on a line boundary.

``http.client`` takes the lost connection for the end of the object, so only the stated length shows that
records are missing.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, BinaryIO, ClassVar, Final, cast
from urllib.request import urlopen

import pytest

from headerware.sources import (
    ItemContext,
    MemoryOffsets,
    NativeItem,
    Source,
    SourceConfig,
    SourceConformance,
    SourceError,
    TextKeys,
)
from headerware.sources.engine.decision import offset_key
from headerware.sources.engine.task import SourceTask
from tests.waiting import until

LINES: Final = b"".join(b'{"id": %d, "text": "%s"}\n' % (number, b"x" * 40) for number in range(4_000))
HALF: Final = LINES.index(b"\n", len(LINES) // 2) + 1
OBJECTS: Final = {"a": LINES, "b": LINES[:HALF], "c": b'{"id": 1}\n'}


class Server(ThreadingHTTPServer):
    """Serves the objects; cuts as many answers as it is told to."""

    daemon_threads = True
    cuts = 0
    answers = 0


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        server = cast("Server", self.server)
        data = OBJECTS[self.path.strip("/")]
        server.answers += 1
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if server.cuts and data is LINES:
            server.cuts -= 1
            data = data[:HALF]
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Write no log."""


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(("127.0.0.1", 0), Handler) as made:
        thread = threading.Thread(target=made.serve_forever)
        thread.start()
        yield made
        made.shutdown()
        thread.join()


class Page(NativeItem):
    length_is_exact = True

    def __init__(self, url: str, name: str) -> None:
        super().__init__(ItemContext(key=name, version="1"), len(OBJECTS[name]))
        self.url = f"{url}/{name}"

    def open_stream(self) -> BinaryIO:
        return cast("BinaryIO", urlopen(self.url, timeout=60))  # noqa: S310 - our own server


class Pages(Source[str], frozen=True, kw_only=True):
    type: ClassVar[str] = "pages"
    keys: ClassVar[TextKeys] = TextKeys()

    url: str

    def items(self, start: str | None) -> Iterator[NativeItem]:
        yield from (Page(self.url, name) for name in OBJECTS if start is None or name >= start)


def pages(server: Server) -> Pages:
    return Pages(url=f"http://127.0.0.1:{server.server_address[1]}")


class TestPages(SourceConformance):
    extractor = "jsonl"

    @pytest.fixture(autouse=True)
    def served(self, server: Server) -> None:
        self.server = server

    def make_source(self) -> Source[Any]:
        return pages(self.server)


class Reading:
    """Reads the source once, into memory."""

    def __init__(self, server: Server, **options: Any) -> None:
        self.config = SourceConfig(
            name="it",
            topic="t",
            source=pages(server),
            extractor="jsonl",
            poll_wait_s=0.02,
            retry_pause_s=0.001,
            retry_max_pause_s=0.01,
            **options,
        )
        self.offsets = MemoryOffsets()
        self.values: list[Any] = []

    def run(self) -> None:
        with SourceTask(self.config, self.offsets, once=True) as task:

            def poll() -> None:
                for batch in task.poll():
                    self.values += [record.value["id"] for record in batch.records]
                    task.acknowledge(batch)
                task.store_offsets()

            until(lambda: task.is_done, "the end of the source", meanwhile=poll)

    def entry(self, key: str) -> Any:
        return self.offsets.get(offset_key(self.config, key))


class TestAnswerThatIsCut:
    def test_is_read_again_from_the_last_record(self, server: Server) -> None:
        server.cuts = 2
        reading = Reading(server)
        reading.run()
        assert reading.values[:4_000] == [*range(4_000)]
        assert reading.entry("a").record_number == 4_000
        assert server.answers == len(OBJECTS) + 2

    def test_is_an_error_after_the_deadline(self, server: Server) -> None:
        server.cuts = 1_000_000
        reading = Reading(server, retry_deadline_s=0.1)
        expected = f"expected {len(LINES)} bytes, the listed length, found {HALF}"
        with pytest.raises(SourceError, match=expected):
            reading.run()
        assert reading.entry("a") is None or not reading.entry("a").complete

    def test_is_never_complete(self, server: Server) -> None:
        server.cuts = 1_000_000
        reading = Reading(server, retry_deadline_s=0.1, on_object_error="skip")
        reading.run()
        assert not reading.entry("a").complete
        assert reading.entry("b").complete
