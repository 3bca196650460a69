"""Objects in memory for the tests of extractors, and what an extractor makes of them."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

from headerware.core.errors import BadRecordError
from headerware.sources import Extracted, Extractor, Input, ItemContext, NativeItem
from headerware.sources.extractor import extracted


class MemoryObject(NativeItem):
    """An object of some bytes."""

    def __init__(self, data: bytes, *, grows: bool = False, seekable: bool = True) -> None:
        super().__init__(ItemContext(key="object", grows=grows), len(data))
        self._data = data
        self._seekable = seekable

    def open_stream(self) -> BinaryIO:
        stream = io.BytesIO(self._data)
        if not self._seekable:
            stream.seekable = lambda: False  # type: ignore[method-assign]
            stream.seek = _refused  # type: ignore[method-assign]
        return stream


def _refused(*_: object) -> int:
    raise io.UnsupportedOperation("seek")


class MadeObject(NativeItem):
    """An object whose bytes are made as they are read, so that none of them are held."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        super().__init__(ItemContext(key="made"))
        self._pieces = pieces

    def open_stream(self) -> BinaryIO:
        return io.BufferedReader(_Made(iter(self._pieces)))


class _Made(io.RawIOBase):
    def __init__(self, pieces: Iterator[bytes]) -> None:
        super().__init__()
        self._pieces = pieces
        self._left = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._left:
            self._left = next(self._pieces, b"")
        found, self._left = self._left[: len(buffer)], self._left[len(buffer) :]
        buffer[: len(found)] = found
        return len(found)


def records(extractor: Extractor, data: bytes | NativeItem, **given: Any) -> list[Extracted | BadRecordError]:
    """Return what an extractor makes of an object."""
    item = MemoryObject(data) if isinstance(data, bytes) else data
    return [record for _, record in extracted(extractor, Input(item, **given))]


def values(extractor: Extractor, data: bytes | NativeItem, **given: Any) -> list[Any]:
    """Return the values of an object; ``None`` for a bad record."""
    found = records(extractor, data, **given)
    return [record.value if isinstance(record, Extracted) else None for record in found]


def problems(extractor: Extractor, data: bytes | NativeItem) -> list[str]:
    """Return the texts of an object's bad records."""
    return [str(record) for record in records(extractor, data) if isinstance(record, BadRecordError)]
