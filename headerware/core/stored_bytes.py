"""Bytes on disk: a value that is too large to be in memory, and the file that it is collected in."""

from __future__ import annotations

import os
from io import SEEK_CUR, SEEK_END, SEEK_SET, BufferedReader, RawIOBase, UnsupportedOperation
from typing import TYPE_CHECKING, Final, NoReturn

if TYPE_CHECKING:
    from pathlib import Path

    from _typeshed import WriteableBuffer


class UnnamedFile:
    """A file that has no name, so that nobody else can open it, and that is gone with the object."""

    __slots__ = ("_descriptor",)

    def __init__(self, folder: str | Path | None = None) -> None:
        """Make a file in a folder, by default that of temporary files.

        Raises:
            OSError: it cannot be made there.
        """
        import tempfile  # noqa: PLC0415 - which few processes need

        self._descriptor = -1
        with tempfile.TemporaryFile(buffering=0, dir=folder) as file:
            self._descriptor = os.dup(file.fileno())

    def __del__(self) -> None:
        """Close the file, which frees its room."""
        if self._descriptor >= 0:
            os.close(self._descriptor)

    def __reduce__(self) -> NoReturn:
        """Refuse to be copied or pickled: the number of a descriptor means another file elsewhere, or later.

        Raises:
            TypeError: always.
        """
        raise TypeError("a value on disk cannot be pickled; bytes(value) can, or value[begin:end]")

    def write(self, content: bytes, at: int) -> None:
        """Write bytes at a position.

        Raises:
            OSError: there is no room.
        """
        left = memoryview(content)
        while left:
            written = os.pwrite(self._descriptor, left, at)
            left, at = left[written:], at + written

    def read(self, size_bytes: int, at: int) -> bytes:
        """Return the bytes at a position, fewer at the end of the file."""
        parts: list[bytes] = []
        while size_bytes > 0 and (part := os.pread(self._descriptor, size_bytes, at)):
            parts.append(part)
            size_bytes, at = size_bytes - len(part), at + len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def read_into(self, buffer: WriteableBuffer, at: int) -> int:
        """Fill a buffer from a position, and return how many bytes were there."""
        return os.preadv(self._descriptor, [buffer], at)


class StoredBytes:
    """The value of a large record, which is on disk and not in memory; it never changes.

    It is read with :meth:`open`, or in parts, as ``value[begin:end]``, which gives bytes; ``bytes(value)``
    reads all of it. Several threads may read at once. The file has no name, and is gone when nothing refers
    to the value or to a reader of it any more.
    """

    __slots__ = ("_file", "_size")

    def __init__(self, file: UnnamedFile, size_bytes: int) -> None:
        self._file: Final = file
        self._size: Final = size_bytes

    def open(self) -> BufferedReader:
        """Return a binary file that reads the value from its beginning; each call gives another."""
        return BufferedReader(_Reader(self._file, self._size))

    def __len__(self) -> int:
        """Return the length of the value in bytes."""
        return self._size

    def __bytes__(self) -> bytes:
        """Read all of the value into memory."""
        return self._file.read(self._size, 0)

    def __deepcopy__(self, _: object) -> StoredBytes:
        """Return the value itself, as it never changes."""
        return self

    def __getitem__(self, part: slice) -> bytes:
        """Return a part of the value.

        Raises:
            TypeError: not a slice such as ``value[begin:end]``.
        """
        if part.__class__ is not slice or part.step not in {None, 1}:  # type: ignore[redundant-expr]  # callers are not checked
            raise TypeError("a value on disk is read in parts: value[begin:end], without a step")
        begin, end, _ = part.indices(self._size)
        return self._file.read(end - begin, begin)

    def __repr__(self) -> str:
        """Return the length, and nothing of the value."""
        return f"<{type(self).__name__} of {self._size} bytes>"


class _Reader(RawIOBase):
    """Read a file from its beginning, with a position of its own."""

    def __init__(self, file: UnnamedFile, size_bytes: int) -> None:
        self._file: Final = file
        self._size: Final = size_bytes
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        read = self._file.read_into(memoryview(buffer)[: max(self._size - self._at, 0)], self._at)
        self._at += read
        return read

    def seek(self, offset: int, whence: int = SEEK_SET) -> int:
        origins = {SEEK_SET: 0, SEEK_CUR: self._at, SEEK_END: self._size}
        if whence not in origins:
            raise UnsupportedOperation(f"whence is {whence}; expected 0, 1 or 2")
        position = origins[whence] + offset
        if position < 0:
            raise ValueError(f"the position would be {position}; expected 0 or more")
        self._at = position
        return position

    def tell(self) -> int:
        return self._at
