"""The objects of a bucket: Amazon S3 and what speaks its protocol, Google Cloud Storage, Azure.

obstore lists and reads them. It lists a page at a time, from a name on, at some 3 us an object. boto3 and
s3fs take 70, and s3fs holds a whole listing (docs/decisions/0017-sources-read-buckets-by-obstore.md).
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, BinaryIO, ClassVar, Final, cast

import msgspec

from headerware.core.errors import (
    ConfigError,
    MissingPartError,
    ObjectError,
    SourceError,
    SourceUnavailableError,
)
from headerware.core.extras import install_command
from headerware.core.patterns import any_fits
from headerware.sources.extractors.streams import ReadingStream
from headerware.sources.keys import TextKeys
from headerware.sources.source import ItemContext, NativeItem, OpenSource, Source, SourceContext

try:
    import obstore
    from obstore import exceptions
    from obstore.store import from_url
except ImportError as _missing:
    raise MissingPartError(f"objects needs obstore: {install_command('sources')}") from _missing

_PAGE: Final = 1_000
_FIRST_READ_BYTES: Final = 1 << 20
_LONGEST_READ_BYTES: Final = 8 << 20
_SCHEMES: Final = ("s3", "gs", "az", "abfs", "abfss")
_ERRORS: Final = (exceptions.BaseError, ValueError, TypeError)
_SECRET: Final = re.compile(r"(?<=://)[^/@\s]+(?=@)|(?<=Failed to parse \")[^\"]+")
_used_by: list[int] = []
"""The process that has first used obstore, whose threads a forked one does not have."""


class ObjectStorage(Source[str], frozen=True, kw_only=True):
    """List the objects of a bucket below a prefix, by their names without the prefix.

    An object without bytes is not listed; among these are the markers of folders. A name that obstore has not
    stops the listing: one with an empty part, as in ``a//b``, with ``.`` or ``..`` for a part, or a control
    character. A process that is forked from one that has used obstore is refused; spawn it.

    Args:
        url: the bucket and the prefix, such as ``s3://bucket/orders/2026``.
        options: obstore's own, such as ``region`` and ``endpoint``; others come from the environment.
        include: patterns of names, such as ``*.parquet``; ``*`` stands for slashes, too.
        allow_http: whether an endpoint may be without TLS.

    Raises:
        ConfigError: an option that cannot work.
    """

    type: ClassVar[str] = "objects"
    keys: ClassVar[TextKeys] = TextKeys()
    includes_start: ClassVar[bool] = False

    url: str
    options: dict[str, str] = msgspec.field(default_factory=dict)
    include: list[str] = msgspec.field(default_factory=lambda: ["*"])
    allow_http: bool = False

    def __post_init__(self) -> None:
        """Refuse an address of another kind."""
        if self.url.partition("://")[0] not in _SCHEMES:
            raise ConfigError(f"expected one of {', '.join(_SCHEMES)}, or the source 'files'", path="url")

    def open(self, context: SourceContext) -> OpenSource[str]:  # noqa: ARG002 - each task lists all
        """Return the store; nothing is sent yet."""
        with _errors("options: the store", ConfigError, ConfigError):
            store = from_url(
                self.url,
                client_options={"allow_http": self.allow_http},
                retry_config={"max_retries": 2, "retry_timeout": timedelta(seconds=10)},
                **cast("Any", self.options),
            )
        return _Bucket(store, self.include)


class _Bucket:
    """A store that is open."""

    def __init__(self, store: Any, include: list[str]) -> None:
        self._store = store
        self._include = include

    def items(self, start: str | None) -> Iterator[NativeItem]:
        _require_own_process()
        with _errors("the bucket", SourceError):
            for page in obstore.list(self._store, offset=start, chunk_size=_PAGE):
                for found in page:
                    path = found["path"]
                    if found["size"] and any_fits(self._include, path):
                        yield StoredObject(self._store, found)

    def close(self) -> None:
        pass


class StoredObject(NativeItem):
    """An object, as it was when it was listed; it holds the store's options, but no connection."""

    def __init__(self, store: Any, found: Any) -> None:
        self._store: Final = store
        self._e_tag: Final = found["e_tag"]
        modified_ms = int(found["last_modified"].timestamp() * 1_000)
        version = self._e_tag or f"{found['size']}:{modified_ms}"
        context = ItemContext(key=found["path"], version=version, timestamp_ms=modified_ms)
        super().__init__(context, found["size"])

    def open_stream(self) -> BinaryIO:
        """Return a stream; the object is asked for when it is first read."""
        _require_own_process()
        return cast("BinaryIO", _ObjectStream(self._store, self.context.key, self.length, self._e_tag))


class _ObjectStream(ReadingStream):
    """The bytes of one version of an object, by requests for a part each.

    No connection waits while a reader is busy. The parts become longer as reading goes on.
    """

    def __init__(self, store: Any, path: str, size: int, e_tag: str | None) -> None:
        super().__init__()
        self._store = store
        self._path = path
        self._size = size
        self._e_tag = e_tag
        self._position = 0
        self._begin = 0
        self._part = memoryview(b"")
        self._length = _FIRST_READ_BYTES

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._position = max(0, offset + (0, self._position, self._size)[whence])
        return self._position

    def give(self, most: int) -> bytes | memoryview:
        if self._position >= self._size:
            return b""
        at = self._position - self._begin
        if not 0 <= at < len(self._part):
            follows = at == len(self._part)
            self._length = min(2 * self._length, _LONGEST_READ_BYTES) if follows and at else _FIRST_READ_BYTES
            self._begin, at = self._position, 0
            self._part = self._asked_for(self._begin, min(self._begin + self._length, self._size))
        found = self._part[at : at + most]
        self._position += len(found)
        return found

    def _asked_for(self, begin: int, end: int) -> memoryview:
        options: Any = {"range": (begin, end)}
        if self._e_tag is not None:
            options["if_match"] = self._e_tag
        with _errors("the object", ObjectError):
            found = memoryview(obstore.get(self._store, self._path, options=options).bytes())
        if len(found) != end - begin:
            raise SourceUnavailableError(f"expected {end - begin} bytes of the object, found {len(found)}")
        return found


@contextmanager
def _errors(what: str, refusal: type[Exception], passing: Any = SourceUnavailableError) -> Iterator[None]:
    """Turn obstore's errors into what is tried again, and what is not; the first line names no contents."""
    try:
        yield
    except exceptions.PreconditionError:
        raise refusal(f"{what} has changed since it was listed") from None
    except BaseException as error:
        # Some options make obstore panic, by an exception of pyo3's that no module exports.
        if not isinstance(error, _ERRORS) and type(error).__name__ != "PanicException":
            raise
        told = _SECRET.sub("...", str(error).partition("\n")[0])
        passes = isinstance(error, exceptions.GenericError)
        raise (passing if passes else refusal)(f"{what} cannot be had: {told}") from None


def _require_own_process() -> None:
    if os.getpid() not in (_used_by or [os.getpid()]):
        raise SourceError("forked from a process that uses obstore, whose threads this one has not; spawn it")
    _used_by[:] = [os.getpid()]
