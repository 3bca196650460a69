"""The pages of an interface over HTTP that gives JSON."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from typing import Any, BinaryIO, ClassVar, Final

import msgspec

from headerware.core.errors import ConfigError, MissingPartError, SourceError, SourceUnavailableError
from headerware.core.extras import install_command
from headerware.sources.keys import IntegerKeys
from headerware.sources.source import ItemContext, NativeItem, OpenSource, Source, SourceContext

try:
    import httpx
except ImportError as _missing:
    raise MissingPartError(f"http needs httpx: {install_command('sources')}") from _missing

_PASSING: Final = frozenset({408, 425, 429, 500, 502, 503, 504})


class HttpPages(Source[int], frozen=True, kw_only=True):
    """List pages by their numbers, up to the first without records; a page is read as JSON lines.

    Name ``jsonl`` as the extractor. Pages are expected to be filled in order: the last one may become longer,
    and those before it stay. Redirects are not followed.

    Args:
        url: the address of the pages.
        page: the name of the parameter with the number.
        first: the number of the first page, or its offset.
        step: how much the number rises from page to page: 1, or the count of records for an offset.
        parameters: other parameters, such as ``{"per_page": "100"}``.
        headers: headers of the request; a token belongs in the environment: ``Bearer ${env:TOKEN}``.
        records: the names that lead to the list of records, such as ``data.items``; empty if the page is the
            list.
        timeout_s: how long an answer may take to begin or to go on, in seconds.
        max_page_bytes: the longest page.

    Raises:
        ConfigError: an option that cannot work.
    """

    type: ClassVar[str] = "http"
    keys: ClassVar[IntegerKeys] = IntegerKeys()
    # A listing begins at the last page, which may have become longer; nothing appears before it.
    fixed: ClassVar[dict[str, Any]] = {"ring_buffer": 1, "rescan_interval_s": 0.0}

    url: str
    page: str = "page"
    first: int = 1
    step: int = 1
    parameters: dict[str, str] = msgspec.field(default_factory=dict)
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    records: str = ""
    timeout_s: float = 30.0
    max_page_bytes: int = 16 << 20

    def __post_init__(self) -> None:
        """Refuse what no page could be asked for with."""
        if not self.url.startswith(("http://", "https://")):
            raise ConfigError("expected an address that begins with https:// or http://", path="url")
        for option in ("step", "timeout_s", "max_page_bytes"):
            if getattr(self, option) <= 0:
                raise ConfigError(f"expected more than 0, found {getattr(self, option)}", path=option)

    def open(self, context: SourceContext) -> OpenSource[int]:  # noqa: ARG002 - each task lists all
        """Return a client; nothing is sent yet."""
        client = httpx.Client(headers={"Accept": "application/json", **self.headers}, timeout=self.timeout_s)
        return _Pages(self, client)


class _Pages:
    """A client that is open."""

    def __init__(self, options: HttpPages, client: httpx.Client) -> None:
        self._options: Final = options
        self._client: Final = client

    def items(self, start: int | None) -> Iterator[NativeItem]:
        options = self._options
        number = options.first if start is None else start
        while lines := self._lines(number):
            yield Page(number, lines)
            number += options.step

    def close(self) -> None:
        self._client.close()

    def _lines(self, number: int) -> list[bytes]:
        """Return the records of a page as lines of JSON; none if there is no such page."""
        found = self._body(number)
        if found is None:
            return []
        try:
            for name in filter(None, self._options.records.split(".")):
                found = msgspec.json.decode(found, type=dict[str, msgspec.Raw])[name]
            records = msgspec.json.decode(found, type=list[msgspec.Raw])
            return [msgspec.json.format(bytes(record), indent=-1) for record in records]
        except (msgspec.DecodeError, UnicodeDecodeError, KeyError, RecursionError) as error:
            where = self._options.records or "the page"
            raise SourceError(
                f"expected a list of records at {where} of page {number} ({type(error).__name__})"
            ) from None

    def _body(self, number: int) -> Any:
        options = self._options
        parameters = {**options.parameters, options.page: str(number)}
        body = bytearray()
        try:
            with self._client.stream("GET", options.url, params=parameters) as response:
                status = response.status_code
                if status == 404 and number != options.first:
                    return None
                if status in _PASSING:
                    raise SourceUnavailableError(f"page {number} cannot be had now: status {status}")
                if status != 200:
                    raise SourceError(f"expected page {number}, found status {status}")
                for piece in response.iter_bytes():
                    body += piece
                    if len(body) > options.max_page_bytes:
                        raise SourceError(
                            f"page {number} has more than {options.max_page_bytes} bytes (max_page_bytes)"
                        )
        except (httpx.TransportError, httpx.InvalidURL) as error:
            raise SourceUnavailableError(f"page {number} cannot be had now: {type(error).__name__}") from None
        return bytes(body)


class Page(NativeItem):
    """A page as it was when it was listed, for its contents are its version."""

    def __init__(self, number: int, lines: list[bytes]) -> None:
        self._lines: Final = lines
        version = f"{len(lines)}:{_digest(lines)}"
        super().__init__(
            ItemContext(key=number, version=version, grows=True), sum(map(len, lines)) + len(lines)
        )

    def open_stream(self) -> BinaryIO:
        """Return the records as lines."""
        return io.BytesIO(b"".join(line + b"\n" for line in self._lines))

    def extends(self, version: str) -> bool:
        """Return whether the records that were there still begin the page."""
        count, _, digest = version.partition(":")
        return count.isdecimal() and _digest(self._lines[: int(count)]) == digest


def _digest(lines: list[bytes]) -> str:
    return hashlib.sha256(b"\n".join(lines)).hexdigest()[:32]
