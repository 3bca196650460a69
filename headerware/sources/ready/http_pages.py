"""The pages of an interface over HTTP that gives JSON."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from contextvars import ContextVar
from email.utils import parsedate_to_datetime
from logging import getLogger
from time import time
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
_ENCODINGS: Final = frozenset({"", "identity", "gzip"})
"""What httpx decompresses a piece of at a time; a piece of zstd, or of gzip in gzip, becomes gigabytes."""
_asking: Final = ContextVar("_asking", default=False)
getLogger("httpx").addFilter(lambda _: not _asking.get())  # it logs whole addresses, with their secrets


class HttpPages(Source[int], frozen=True, kw_only=True):
    """List pages by their numbers, up to the first without records; a page is read as JSON lines.

    Name ``jsonl`` as the extractor. Pages are expected to be filled in order: the last one may become longer,
    and those before it stay. Two that are the same are an error, for a server that does not know the number
    gives one page for ever. Redirects are not followed, so that no other host gets the headers. A server that
    says ``Retry-After`` is asked again then.

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
        try:
            address = httpx.URL(self.url)
        except httpx.InvalidURL:
            address = httpx.URL()
        if address.scheme not in {"http", "https"} or not address.host:
            raise ConfigError("expected an address that begins with https:// or http://", path="url")
        for name, value in self.headers.items():
            if not (name.isascii() and value.isascii() and (name + value).isprintable()):
                raise ConfigError("expected printable ASCII; is there a line break?", path=f"headers.{name}")
        for option in ("step", "timeout_s", "max_page_bytes"):
            if getattr(self, option) <= 0:
                raise ConfigError(f"expected more than 0, found {getattr(self, option)}", path=option)

    def open(self, context: SourceContext) -> OpenSource[int]:  # noqa: ARG002 - each task lists all
        """Return a client; nothing is sent yet."""
        headers = {"Accept": "application/json", "Accept-Encoding": "gzip", **self.headers}
        # A proxy of the environment would see what travels in the clear, such as a token in a header.
        trusts = httpx.URL(self.url).scheme == "https"
        client = httpx.Client(headers=headers, timeout=self.timeout_s, trust_env=trusts)
        return _Pages(self, client)


class _Pages:
    """A client that is open."""

    def __init__(self, options: HttpPages, client: httpx.Client) -> None:
        self._options: Final = options
        self._client: Final = client

    def items(self, start: int | None) -> Iterator[NativeItem]:
        options = self._options
        number = options.first if start is None else start
        before = None
        while lines := self._lines(number):
            page = Page(number, lines)
            if page.context.version == before:
                raise SourceError(
                    f"page {number} is the page before it; does the server know {options.page!r}?"
                )
            yield page
            before = page.context.version
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
        asking = _asking.set(True)
        try:
            address = httpx.URL(options.url).copy_merge_params(parameters)
            with self._client.stream("GET", address) as response:
                status = response.status_code
                if status == 404 and number != options.first:
                    return None
                if status in _PASSING:
                    after_s = _seconds(response.headers.get("retry-after", ""))
                    raise SourceUnavailableError(f"page {number} has status {status}", after_s=after_s)
                if status != 200:
                    raise SourceError(f"expected page {number}, found status {status}")
                if response.headers.get("content-encoding", "").strip().lower() not in _ENCODINGS:
                    raise SourceError(f"expected page {number} in gzip, or as it is; found another encoding")
                for piece in response.iter_bytes():
                    body += piece
                    if len(body) > options.max_page_bytes:
                        raise SourceError(
                            f"page {number} has more than {options.max_page_bytes} bytes (max_page_bytes)"
                        )
        except httpx.TransportError as error:
            raise SourceUnavailableError(f"page {number} cannot be had now: {type(error).__name__}") from None
        except httpx.DecodingError:
            raise SourceError(f"page {number} is not the gzip that it says it is") from None
        finally:
            _asking.reset(asking)
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


def _seconds(text: str) -> float:
    """Return how long a Retry-After says to wait: a number of seconds, or a date; 0 if it says nothing."""
    if text.isdecimal():
        return float(text)
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - time())
    except (ValueError, OverflowError):
        return 0.0


def _digest(lines: list[bytes]) -> str:
    return hashlib.sha256(b"\n".join(lines)).hexdigest()[:32]
