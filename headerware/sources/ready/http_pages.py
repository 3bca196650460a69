"""A source that reads a paginated JSON API over HTTP."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from contextvars import ContextVar
from datetime import UTC
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

_RETRYABLE_STATUSES: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
_MAX_RETRY_AFTER_S: Final = 86_400.0
"""The longest wait that a server can ask for; a longer one could overflow the wait."""
_ENCODINGS: Final = frozenset({"", "identity", "gzip"})
"""The encodings that httpx decompresses within limits; zstd or nested gzip could become gigabytes."""
_is_requesting: Final = ContextVar("_is_requesting", default=False)
# httpx logs complete addresses, with their secrets.
getLogger("httpx").addFilter(lambda _: not _is_requesting.get())


class HttpPages(Source[int], frozen=True, kw_only=True):
    """List pages by their numbers, up to the first page without records; read a page as JSON lines.

    Name ``jsonl`` as the extractor. The server must fill pages in order: only the last page may become
    longer. Two equal pages in succession are an error, because a server that ignores the number would return
    the same page forever. Redirects are not followed, so that no other host gets the headers. After an answer
    with ``Retry-After``, the server is asked again at that time.

    Args:
        url: the address of the pages.
        page: the name of the parameter for the page number.
        first: the number of the first page, or its offset.
        step: what is added to the number for the next page: 1 for page numbers, the page size for offsets.
        parameters: other parameters, such as ``{"per_page": "100"}``.
        headers: headers of the request; keep a token in the environment: ``Bearer ${env:TOKEN}``.
        records: the names that lead to the list of records, such as ``data.items``; empty if the page is the
            list.
        timeout_s: how long to wait for the next bytes of an answer, in seconds.
        max_page_bytes: the longest page.

    Raises:
        ConfigError: an option cannot work.
    """

    type: ClassVar[str] = "http"
    keys: ClassVar[IntegerKeys] = IntegerKeys()
    # Only the last page can change, so its key is the only one to remember: the next listing begins there.
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
        """Refuse options with which no page can be requested."""
        try:
            address = httpx.URL(self.url)
        except httpx.InvalidURL:
            address = httpx.URL()
        if address.scheme not in {"http", "https"} or not address.host:
            raise ConfigError("expected an address that begins with https:// or http://", path="url")
        for name, value in self.headers.items():
            if not (name.isascii() and value.isascii() and (name + value).isprintable()):
                raise ConfigError(
                    "expected printable ASCII, found other characters, such as a line break",
                    path=f"headers.{name}",
                )
        for option in ("step", "timeout_s", "max_page_bytes"):
            if getattr(self, option) <= 0:
                raise ConfigError(f"expected more than 0, found {getattr(self, option)}", path=option)

    def open(self, context: SourceContext) -> OpenSource[int]:  # noqa: ARG002 - every task lists all pages
        """Return a client, without sending a request yet."""
        headers = {"Accept": "application/json", "Accept-Encoding": "gzip", **self.headers}
        # Without TLS, a proxy from the environment would see the headers, such as a token.
        trusts = httpx.URL(self.url).scheme == "https"
        client = httpx.Client(headers=headers, timeout=self.timeout_s, trust_env=trusts)
        return _Pages(self, client)


class _Pages:
    """List pages with an open client."""

    def __init__(self, options: HttpPages, client: httpx.Client) -> None:
        self._options: Final = options
        self._client: Final = client

    def items(self, start: int | None) -> Iterator[NativeItem]:
        options = self._options
        number = options.first if start is None else start
        previous_version = None
        while lines := self._lines(number):
            page = Page(number, lines)
            if page.context.version == previous_version:
                raise SourceError(
                    f"page {number} is equal to the page before it; check that the server knows the "
                    f"parameter {options.page!r}"
                )
            yield page
            previous_version = page.context.version
            number += options.step

    def close(self) -> None:
        self._client.close()

    def _lines(self, number: int) -> list[bytes]:
        """Return the records of a page as lines of JSON; no lines if the page does not exist."""
        body = self._body(number)
        if body is None:
            return []
        node: bytes | msgspec.Raw = body
        try:
            for name in filter(None, self._options.records.split(".")):
                node = msgspec.json.decode(node, type=dict[str, msgspec.Raw])[name]
            records = msgspec.json.decode(node, type=list[msgspec.Raw])
            return [msgspec.json.format(bytes(record), indent=-1) for record in records]
        except (msgspec.DecodeError, UnicodeDecodeError, KeyError, RecursionError) as error:
            where = self._options.records or "the page"
            raise SourceError(
                f"expected a list of records at {where} of page {number} ({type(error).__name__}); "
                "set 'records' to the names that lead to the list"
            ) from None

    def _body(self, number: int) -> bytes | None:
        options = self._options
        parameters = {**options.parameters, options.page: str(number)}
        body = bytearray()
        context_token = _is_requesting.set(True)
        try:
            address = httpx.URL(options.url).copy_merge_params(parameters)
            with self._client.stream("GET", address) as response:
                status = response.status_code
                if status == 404 and number != options.first:
                    return None
                if status in _RETRYABLE_STATUSES:
                    after_s = _seconds(response.headers.get("retry-after", ""))
                    raise SourceUnavailableError(
                        f"page {number}: expected status 200, found {status}; it is tried again later",
                        after_s=after_s,
                    )
                if status != 200:
                    raise SourceError(f"page {number}: expected status 200, found {status}")
                if response.headers.get("content-encoding", "").strip().lower() not in _ENCODINGS:
                    raise SourceError(f"page {number}: expected gzip or no encoding, found another encoding")
                for piece in response.iter_bytes():
                    body += piece
                    if len(body) > options.max_page_bytes:
                        raise SourceError(
                            f"page {number} has more than {options.max_page_bytes} bytes (max_page_bytes)"
                        )
        except httpx.TransportError as error:
            raise SourceUnavailableError(
                f"page {number} cannot be read now: {type(error).__name__}"
            ) from None
        except httpx.DecodingError:
            raise SourceError(
                f"page {number}: expected gzip, as its header says, found other bytes"
            ) from None
        finally:
            _is_requesting.reset(context_token)
        return bytes(body)


class Page(NativeItem):
    """A page as it was when it was listed; the version is a digest of its records."""

    length_is_exact = True

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
        """Return whether the page still begins with the records of an earlier version."""
        count, _, digest = version.partition(":")
        return count.isdecimal() and _digest(self._lines[: int(count)]) == digest


def _seconds(text: str) -> float:
    """Return how many seconds to wait, from a Retry-After in seconds or as a date; 0 if it is neither."""
    if text.isdecimal():
        return min(float(text), _MAX_RETRY_AFTER_S)
    try:
        moment = parsedate_to_datetime(text)
        # A date in the old form of asctime has no zone; it is in UTC (RFC 9110, 5.6.7).
        after_s = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() - time()
    except (ValueError, OverflowError):
        return 0.0
    return min(max(0.0, after_s), _MAX_RETRY_AFTER_S)


def _digest(lines: list[bytes]) -> str:
    return hashlib.sha256(b"\n".join(lines)).hexdigest()[:32]
