"""A source of the objects of a bucket: Amazon S3 and compatible stores, Google Cloud Storage, Azure.

obstore lists and reads the objects. It lists page by page, from a name on, in about 3 us per object. boto3
and s3fs take about 70 us, and s3fs holds a complete listing
(docs/decisions/0017-sources-read-buckets-by-obstore.md).
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Annotated, Any, BinaryIO, ClassVar, Final, cast

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
"""The id of the process that first used obstore; a forked process does not have its threads."""


class ObjectStorage(Source[str], frozen=True, kw_only=True):
    """List the objects of a bucket below a prefix, by their names without the prefix.

    Objects without bytes are not listed, such as the markers of folders. A name that obstore does not support
    stops the listing: a name with an empty part, as in ``a//b``, with a part ``.`` or ``..``, or with a
    control character. A process that was forked from a process that used obstore is refused; use spawn.

    Args:
        url: the bucket and the prefix, such as ``s3://bucket/orders/2026``.
        options: options of obstore, such as ``region`` and ``endpoint``; others come from the environment.
        include: patterns of names, such as ``*.parquet``; ``*`` also matches slashes.
        allow_http: whether to permit an endpoint without TLS.

    Raises:
        ConfigError: an option cannot work.
    """

    type: ClassVar[str] = "objects"
    keys: ClassVar[TextKeys] = TextKeys()
    includes_start: ClassVar[bool] = False

    url: str
    options: dict[str, str] = msgspec.field(default_factory=dict)
    include: Annotated[list[str], msgspec.Meta(min_length=1)] = msgspec.field(default_factory=lambda: ["*"])
    allow_http: bool = False

    def __post_init__(self) -> None:
        """Refuse an address with an unknown scheme."""
        if self.url.partition("://")[0] not in _SCHEMES:
            raise ConfigError(
                f"expected an address with {', '.join(_SCHEMES)}; for folders use the source 'files'",
                path="url",
            )

    def open(self, context: SourceContext) -> OpenSource[str]:  # noqa: ARG002 - each task lists all
        """Return the store, without sending a request yet."""
        with _errors("options: the store", ConfigError, ConfigError):
            store = from_url(
                self.url,
                client_options={"allow_http": self.allow_http},
                retry_config={"max_retries": 2, "retry_timeout": timedelta(seconds=10)},
                **cast("Any", self.options),
            )
        return _Bucket(store, self.include)


class _Bucket:
    """An open store."""

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
    """An object with its version when it was listed; it has the store's options, but no connection."""

    length_is_exact = True

    def __init__(self, store: Any, found: Any) -> None:
        self._store: Final = store
        self._e_tag: Final = found["e_tag"]
        modified_ms = int(found["last_modified"].timestamp() * 1_000)
        version = self._e_tag or f"{found['size']}:{modified_ms}"
        context = ItemContext(key=found["path"], version=version, timestamp_ms=modified_ms)
        super().__init__(context, found["size"])

    def open_stream(self) -> BinaryIO:
        """Return a stream, which requests the object when it is first read."""
        _require_own_process()
        return cast("BinaryIO", _ObjectStream(self._store, self.context.key, self.length, self._e_tag))


class _ObjectStream(ReadingStream):
    """The bytes of one version of an object, read with a request for each part.

    No connection stays open between reads. The parts become longer while the object is read in sequence.
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
    """Turn obstore's errors into errors that are tried again, or not; their first line has no contents."""
    try:
        yield
    except exceptions.PreconditionError:
        raise refusal(f"{what} has changed after it was listed") from None
    except BaseException as error:
        # Some options make obstore panic, with an exception of pyo3 that no module exports.
        if not isinstance(error, _ERRORS) and type(error).__name__ != "PanicException":
            raise
        told = _SECRET.sub("...", str(error).partition("\n")[0])
        passes = isinstance(error, exceptions.GenericError)
        raise (passing if passes else refusal)(f"{what} cannot be read: {told}") from None


def _require_own_process() -> None:
    if os.getpid() not in (_used_by or [os.getpid()]):
        raise SourceError(
            "this process was forked from one that uses obstore, and lacks its threads; use spawn"
        )
    _used_by[:] = [os.getpid()]
