"""The source ``http``, against a server on this machine."""

from __future__ import annotations

import gzip
import json
import threading
import time
from collections.abc import Iterator
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from headerware.core.errors import ConfigError, SourceError, SourceUnavailableError
from headerware.sources import Input, Source, SourceContext, open_source
from headerware.sources.conformance import SourceConformance
from headerware.sources.extractor import extracted
from headerware.sources.extractors import JsonLinesExtractor
from headerware.sources.ready import HttpPages


class Server(ThreadingHTTPServer):
    """Gives pages of records, or what a test wants instead."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.records = [{"id": number} for number in range(1, 8)]
        self.per_page = 3
        self.status = 200
        self.beyond = 200
        self.wraps: list[str] = []
        self.body: bytes | None = None
        self.headers: dict[str, str] = {}
        self.seen: list[tuple[str, dict[str, str]]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/orders"

    def source(self, **options: Any) -> HttpPages:
        return HttpPages(**{"url": self.url, **options})

    def items(self, start: int | None = None, **options: Any) -> list[Any]:
        opened = open_source(self.source(**options), SourceContext())
        try:
            return list(opened.items(start))
        finally:
            opened.close()


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        server = self.server
        server.seen.append((self.path, dict(self.headers)))
        page = int(parse_qs(urlsplit(self.path).query)["page"][0])
        found = server.records[(page - 1) * server.per_page : page * server.per_page]
        answer: Any = found
        for name in reversed(server.wraps):
            answer = {"more": 1, name: answer}
        body = server.body if server.body is not None else json.dumps(answer, indent=2).encode()
        self.send_response(server.status if found or server.status != 200 else server.beyond)
        self.send_header("Content-Length", str(len(body)))
        for name, value in server.headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as made:
        thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield made
        made.shutdown()
        thread.join()


class TestConformance(SourceConformance):
    extractor = "jsonl"

    @pytest.fixture(autouse=True)
    def filled(self, server: Server) -> None:
        self.server = server

    def make_source(self) -> Source[Any]:
        return self.server.source()

    def change(self, key: Any) -> None:
        self.server.records[3 * (key - 1)] = {"id": 100}


class TestPages:
    def test_are_read_as_lines(self, server: Server) -> None:
        records = extracted(JsonLinesExtractor(), Input(server.items()[1]))
        assert [record.value for _, record in records] == [{"id": 4}, {"id": 5}, {"id": 6}]  # type: ignore[union-attr]

    def test_begin_anywhere(self, server: Server) -> None:
        assert [item.context.key for item in server.items(3)] == [3]

    @pytest.mark.parametrize("beyond", [200, 404])
    def test_end_at_the_first_without_records(self, server: Server, beyond: int) -> None:
        server.beyond = beyond
        assert [item.context.key for item in server.items()] == [1, 2, 3]

    def test_may_hold_their_records_deeper(self, server: Server) -> None:
        server.wraps = ["data", "items"]
        assert len(server.items(records="data.items")) == 3

    def test_are_asked_for_with_parameters_and_headers(self, server: Server) -> None:
        server.items(3, parameters={"per_page": "3"}, headers={"Authorization": "Bearer token"})
        path, headers = server.seen[0]
        assert parse_qs(urlsplit(path).query) == {"per_page": ["3"], "page": ["3"]}
        assert headers["Authorization"] == "Bearer token"

    def test_keep_what_the_address_asks_for(self, server: Server) -> None:
        server.items(3, url=f"{server.url}?kind=new")
        assert parse_qs(urlsplit(server.seen[0][0]).query) == {"kind": ["new"], "page": ["3"]}

    def test_may_be_compressed(self, server: Server) -> None:
        server.body, server.headers = gzip.compress(b"[1]"), {"Content-Encoding": "gzip"}
        listing = open_source(server.source(), SourceContext()).items(None)
        assert next(listing).open_stream().read() == b"1\n"

    def test_that_become_longer_go_on(self, server: Server) -> None:
        before = server.items(3)[0]
        server.records += [{"id": 8}, {"id": 9}, {"id": 10}]
        after, following = server.items(3)
        assert following.context.key == 4
        assert after.context.version != before.context.version
        assert after.extends(before.context.version)

    def test_that_become_others_start_again(self, server: Server) -> None:
        before = server.items(3)[0]
        server.records[6:] = [{"id": 70}, {"id": 8}]
        assert not server.items(3)[0].extends(before.context.version)


class TestErrors:
    @pytest.mark.parametrize("status", [429, 500, 503])
    def test_that_pass_are_tried_again(self, server: Server, status: int) -> None:
        server.status = status
        with pytest.raises(SourceUnavailableError, match=str(status)):
            server.items()

    @pytest.mark.parametrize("later", ["7", "{date}"])
    def test_that_pass_say_when(self, server: Server, later: str) -> None:
        server.status = 429
        server.headers = {"Retry-After": later.format(date=formatdate(time.time() + 8, usegmt=True))}
        with pytest.raises(SourceUnavailableError) as raised:
            server.items()
        assert 0 < raised.value.after_s <= 8

    @pytest.mark.parametrize("form", ["%a %b %e %H:%M:%S %Y", "%a, %d %b %Y %H:%M:%S -0000"])
    def test_that_say_when_without_a_zone_say_it_in_utc(
        self, server: Server, monkeypatch: pytest.MonkeyPatch, form: str
    ) -> None:
        server.status = 429
        server.headers = {"Retry-After": time.strftime(form, time.gmtime(time.time() + 600))}
        with monkeypatch.context() as patch:
            patch.setenv("TZ", "EAST-05:00")
            time.tzset()
            with pytest.raises(SourceUnavailableError) as raised:
                server.items()
        time.tzset()
        assert 300 < raised.value.after_s <= 600

    @pytest.mark.parametrize("later", ["9" * 30, "9" * 400, "Mon, 29 Nov 9999 00:00:00 GMT"])
    def test_that_name_a_time_too_far_away_wait_a_day(self, server: Server, later: str) -> None:
        server.status, server.headers = 503, {"Retry-After": later}
        with pytest.raises(SourceUnavailableError) as raised:
            server.items()
        assert raised.value.after_s == 86_400

    @pytest.mark.parametrize("later", ["soon", "nan", "inf", "-1", "Mon, 99 Nov 99999 00:00:00 GMT", ""])
    def test_that_say_no_time_are_tried_as_always(self, server: Server, later: str) -> None:
        server.status, server.headers = 503, {"Retry-After": later}
        with pytest.raises(SourceUnavailableError) as raised:
            server.items()
        assert raised.value.after_s == 0

    def test_of_a_server_that_always_gives_one_page(self, server: Server) -> None:
        server.body = b"[1, 2]"
        with pytest.raises(SourceError, match="check that the server knows the parameter 'page'"):
            server.items()

    def test_of_redirects_send_nothing_elsewhere(self, server: Server) -> None:
        server.status, server.headers = 302, {"Location": server.url.replace("127.0.0.1", "localhost")}
        with pytest.raises(SourceError, match="302"):
            server.items(headers={"Authorization": "Bearer token"})
        assert len(server.seen) == 1

    @pytest.mark.parametrize("encoding", ["zstd", "br", "gzip, gzip", "deflate"])
    def test_of_encodings_without_a_bound(self, server: Server, encoding: str) -> None:
        server.headers = {"Content-Encoding": encoding}
        with pytest.raises(SourceError, match="encoding"):
            server.items()

    def test_of_damaged_compression(self, server: Server) -> None:
        server.headers = {"Content-Encoding": "gzip"}
        with pytest.raises(SourceError, match="page 1: expected gzip"):
            server.items()

    def test_and_logs_show_no_secret(self, server: Server, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level("DEBUG")
        url = server.url.replace("//", "//user:SECRET@")
        server.items(url=f"{url}?a=SECRET", parameters={"key": "SECRET"}, headers={"Token": "SECRET"})
        server.status = 500
        with pytest.raises(OSError, match="500") as raised:
            server.items(url=f"{url}?a=SECRET")
        assert "SECRET" not in caplog.text + str(raised.value)
        with httpx.Client() as other:  # another user of httpx keeps its log
            other.get(f"{server.url}?page=1")
        assert "HTTP Request" in caplog.text

    @pytest.mark.parametrize("status", [301, 401, 404])
    def test_that_stay_are_not(self, server: Server, status: int) -> None:
        server.status = status
        with pytest.raises(SourceError, match=str(status)):
            server.items()

    def test_of_the_network_are_tried_again(self, server: Server) -> None:
        with pytest.raises(SourceUnavailableError, match="page 1"):
            server.items(url="http://127.0.0.1:1/")

    @pytest.mark.parametrize("body", [b"SECRET", b'{"SECRET": 1}', b"[1, SECRET]", b"\xff", b'{"items": 1}'])
    def test_of_contents_quote_nothing(self, server: Server, body: bytes) -> None:
        server.body = body
        with pytest.raises(SourceError, match="list of records") as raised:
            server.items(records="items" if body.startswith(b'{"items') else "")
        assert "SECRET" not in str(raised.value)

    def test_of_long_pages(self, server: Server) -> None:
        with pytest.raises(SourceError, match="max_page_bytes"):
            server.items(max_page_bytes=10)

    @pytest.mark.parametrize(
        ("options", "path"),
        [
            ({"url": "ftp://host"}, "url"),
            ({"url": "https://"}, "url"),
            ({"url": "https://host:port"}, "url"),
            ({"step": 0}, "step"),
            ({"timeout_s": 0}, "timeout_s"),
            ({"headers": {"Authorization": "Bearer SECRET\n"}}, "headers.Authorization"),
            ({"headers": {"Authorization": "Bearer SECRÉT"}}, "headers.Authorization"),
        ],
    )
    def test_of_options(self, options: dict[str, Any], path: str) -> None:
        with pytest.raises(ConfigError, match=path) as raised:
            HttpPages(**{"url": "https://host", **options})
        assert "SECR" not in str(raised.value)


def test_what_travels_in_the_clear_goes_through_no_proxy_of_the_environment(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = Server()
    thread = threading.Thread(target=proxy.serve_forever)
    thread.start()
    try:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.server_address[1]}")
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        server.items(headers={"Authorization": "Bearer secret"})
    finally:
        proxy.shutdown()
        proxy.server_close()
        thread.join()
    assert (len(proxy.seen), server.seen != []) == (0, True)
