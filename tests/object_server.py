"""A store that speaks enough of S3 for objects to be put and read, and misbehaves when it is told to."""

from __future__ import annotations

import base64
import hashlib
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Final, Literal, Self
from urllib.parse import parse_qs, urlsplit

if TYPE_CHECKING:
    from types import TracebackType

Misbehaviour = Literal[
    "redirect", "slow_head", "slow_body", "unavailable", "busy_once", "cut", "chunked", "denied"
]
BUCKET: Final = "archive"


class ObjectServer:
    """Serve objects of one bucket on loopback; ``mode`` says how it misbehaves."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._tls: Final = tls
        self.objects: dict[str, bytes] = {}
        """Objects by their path after the bucket."""
        self.requests: list[tuple[str, str]] = []
        """The method and path of each request."""
        self.mode: Misbehaviour | None = None
        self.elsewhere = ""
        """The address that redirects name."""
        self.stated_length: int | None = None
        """The length that answers state, if it is a lie."""
        self.stopping: Final = threading.Event()

    @property
    def url(self) -> str:
        scheme = "http" if self._tls is None else "https"
        return f"{scheme}://127.0.0.1:{self._server.server_port}"

    def options(self, **more: Any) -> dict[str, Any]:
        """Return the options of a store of type s3 that is this one."""
        return {"type": "s3", "bucket": BUCKET, "region": "eu-central-1", "endpoint": self.url, **more}

    def __enter__(self) -> Self:
        handler = type("Handler", (_Handler,), {"store": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        if self._tls is not None:
            self._server.socket = self._tls.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stopping.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    store: ObjectServer

    def do_PUT(self) -> None:
        content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self._misbehaves():
            return
        digest = base64.b64encode(hashlib.sha256(content).digest()).decode()
        if self.headers.get("x-amz-checksum-sha256") != digest:
            self._answer(400, b"<Error><Code>BadDigest</Code></Error>")
            return
        self.store.objects[self._key()] = content
        self._answer(200, b"")

    def do_GET(self) -> None:
        if self._misbehaves():
            return
        if "list-type" in parse_qs(urlsplit(self.path).query):
            self._answer(200, self._listed())
            return
        content = self.store.objects.get(self._key())
        if content is None:
            missing = b"NoSuchKey" if self.path.startswith(f"/{BUCKET}/") else b"NoSuchBucket"
            self._answer(404, b"<Error><Code>" + missing + b"</Code></Error>")
            return
        self._answer(200, content)

    def _listed(self) -> bytes:
        """Return all objects, whatever prefix was asked for."""
        entry = "<Contents><Key>{}</Key><LastModified>{}</LastModified><Size>{}</Size></Contents>"
        found = [(key, "2026-01-01T00:00:00Z", len(content)) for key, content in self.store.objects.items()]
        entries = "".join(entry.format(*each) for each in found)
        return f"<ListBucketResult><IsTruncated>false</IsTruncated>{entries}</ListBucketResult>".encode()

    def _key(self) -> str:
        return urlsplit(self.path).path.removeprefix(f"/{BUCKET}/")

    def _misbehaves(self) -> bool:
        store, mode = self.store, self.store.mode
        store.requests.append((self.command, urlsplit(self.path).path))
        if mode == "redirect":
            self.send_response(307)
            self.send_header("Location", store.elsewhere)
            self.send_header("Content-Length", "0")
            self.end_headers()
        elif mode == "slow_head":
            self._trickle(b"HTTP/1.1 200 OK\r\nX-Padding: " + b"x" * 10_000)
        elif mode == "slow_body":
            content = store.objects[self._key()]
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(content))
            self._trickle(content)
        elif mode in {"unavailable", "busy_once"}:
            store.mode = None if mode == "busy_once" else mode
            self._answer(503, b"<Error><Code>SlowDown</Code></Error>")
        elif mode == "denied":
            self._answer(403, b"<Error><Code>AccessDenied</Code></Error>")
        elif mode == "cut":
            content = store.objects[self._key()]
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(content))
            self.wfile.write(content[: len(content) // 2])
            self.close_connection = True
        elif mode == "chunked":
            self.wfile.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n")
        return mode is not None

    def _answer(self, status: int, content: bytes) -> None:
        stated = self.store.stated_length
        self.send_response(status)
        self.send_header("Content-Length", str(len(content) if stated is None else stated))
        self.end_headers()
        self.wfile.write(content)
        if stated is not None:
            self.close_connection = True

    def _trickle(self, content: bytes) -> None:
        """Send a byte now and then, so that no timeout of a socket ever passes."""
        self.close_connection = True
        for byte in content:
            try:
                self.wfile.write(bytes([byte]))
                self.wfile.flush()
            except OSError:
                return
            if self.store.stopping.wait(0.05):
                return

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Say nothing."""
