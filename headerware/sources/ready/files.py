"""A source of the files below a folder, in the order of their paths."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from heapq import nsmallest
from io import FileIO
from typing import Annotated, Any, BinaryIO, ClassVar, Final

import msgspec

from headerware.core.errors import ConfigError, SourceUnavailableError
from headerware.core.options import PATH
from headerware.core.patterns import any_fits
from headerware.sources.keys import TextKeys
from headerware.sources.source import (
    ItemContext,
    NativeItem,
    ObjectMovedError,
    OpenSource,
    Source,
    SourceContext,
)

_FINGERPRINT_BYTES: Final = 1 << 10
_PAGE: Final = 100_000
"""How many names of a folder are held at once; a folder with more is listed several times."""


class Files(Source[str], frozen=True, kw_only=True):
    """List files by their paths below a folder, with ``/`` between names; links are not followed.

    A file that is written in place may be read before it is complete. Write the file elsewhere and rename it,
    or use ``grows``. A name that is not UTF-8 is an error of its file.

    Args:
        folder: the folder.
        include: patterns of paths, such as ``*.csv`` or ``orders/*``; ``*`` also matches slashes.
        exclude: patterns of paths to leave out; by default hidden files and folders.
        grows: whether lines are appended to files while they are read, as to logs. Appended lines are then
            read too, and an unfinished last record is left until it is complete. A file is recognized by its
            beginning and by the end of the part that was read, so that a renamed or copied file continues
            where it was, and a file that was truncated and rewritten starts again.
    """

    type: ClassVar[str] = "files"
    keys: ClassVar[TextKeys] = TextKeys()

    folder: Annotated[str, PATH]
    include: Annotated[list[str], msgspec.Meta(min_length=1)] = msgspec.field(default_factory=lambda: ["*"])
    exclude: list[str] = msgspec.field(default_factory=lambda: [".*", "*/.*"])
    grows: bool = False

    def open(self, context: SourceContext) -> OpenSource[str]:  # noqa: ARG002 - each task lists all
        """Return the source itself; raise ConfigError if the folder cannot be listed."""
        try:
            os.scandir(self.folder).close()
        except OSError as error:
            raise ConfigError(f"folder {self.folder!r}: {error.strerror}", path="source.folder") from error
        return self

    def items(self, start: str | None) -> Iterator[NativeItem]:
        """Yield the files from a path on; only the names of some folders are held in memory."""
        return self._below("", start or "")

    def _below(self, prefix: str, start: str) -> Iterator[NativeItem]:
        """Yield the files of one folder; ``prefix`` ends in ``/``, or is empty for the source's folder."""
        for name in self._names(prefix, start):
            path = prefix + name
            if name.endswith("/"):
                yield from self._below(path, start)
            elif (item := self._item(path)) is not None:
                yield item

    def _names(self, prefix: str, start: str) -> Iterator[str]:
        """Yield names in order; a folder's name ends in ``/``, so that it sorts like the paths below it."""
        last = ""
        while page := nsmallest(_PAGE, self._scanned(prefix, start, last)):
            yield from page
            if len(page) < _PAGE:
                return
            last = page[-1]

    def _scanned(self, prefix: str, start: str, last: str) -> Iterator[str]:
        folder = os.path.join(self.folder, prefix)  # noqa: PTH118 - faster with many files
        try:
            entries = os.scandir(folder)
        except OSError as error:
            if prefix and isinstance(error, FileNotFoundError):
                return  # the folder was deleted after it was listed
            raise SourceUnavailableError(f"folder {folder!r}: {error.strerror}") from error
        with entries:
            for entry in entries:
                is_folder = entry.is_dir(follow_symlinks=False)
                name = entry.name + "/" if is_folder else entry.name
                if name <= last:
                    continue
                path = prefix + name
                if is_folder:
                    wanted = (path >= start or start.startswith(path)) and not _any(self.exclude, path[:-1])
                else:
                    wanted = path >= start and self._includes(path) and entry.is_file(follow_symlinks=False)
                if wanted:
                    yield name

    def _includes(self, path: str) -> bool:
        return _any(self.include, path) and not _any(self.exclude, path)

    def _item(self, path: str) -> NativeItem | None:
        try:
            return GrowingFile(self.folder, path) if self.grows else File(self.folder, path)
        except FileNotFoundError:
            return None  # the file was deleted after it was listed


class File(NativeItem):
    """A file, as it was when it was listed."""

    length_is_exact = True

    def __init__(self, folder: str, path: str) -> None:
        self._path: Final = os.path.join(folder, path)  # noqa: PTH118 - faster with many files
        found = os.stat(self._path, follow_symlinks=False)  # noqa: PTH116 - as above
        version = f"{found.st_ino}:{found.st_size}:{found.st_mtime_ns}"
        super().__init__(_context(path, found, version), found.st_size)

    def open_stream(self) -> BinaryIO:
        """Open the file; raise ObjectMovedError if it has become shorter since it was listed."""
        file = open(self._path, "rb")  # noqa: PTH123, SIM115 - the framework closes it
        if os.fstat(file.fileno()).st_size < self.length:
            file.close()
            raise ObjectMovedError("the file has become shorter since it was listed")
        return file

    def extends(self, version: str) -> bool:
        """Return whether only the inode differs."""
        return version.partition(":")[2] == (self.context.version or "").partition(":")[2]


class GrowingFile(NativeItem):
    """A file that grows at its end, with the size that it had when it was listed.

        version = length ":" first "." size ":" last

    ``length`` is the length of the beginning: a kilobyte, or the size of a shorter file. ``first`` is the
    hash of the beginning, ``last`` the hash of the last kilobyte before ``size``. A file that cannot be read
    has no version, and its error is raised when it is opened, so that the error concerns only this file and
    not the listing.
    """

    length_is_exact = True

    def __init__(self, folder: str, path: str) -> None:
        self._folder: Final = folder
        self._path: Final = os.path.join(folder, path)  # noqa: PTH118 - as above
        self._beginning = b""
        self._refusal: tuple[int | None, str | None] | None = None
        """The code and the text of the error if the file cannot be read."""
        found, version = os.stat(self._path, follow_symlinks=False), None  # noqa: PTH116 - as above
        try:
            with open(self._path, "rb", buffering=0) as file:  # noqa: PTH123 - as above
                found = os.fstat(file.fileno())
                self._beginning = file.read(_FINGERPRINT_BYTES)
                size = max(found.st_size, len(self._beginning))
                beginning = f"{len(self._beginning)}:{_hash(self._beginning)}"
                version = f"{beginning}.{size}:{_last_hash(file, size)}"
        except FileNotFoundError:
            raise
        except OSError as error:
            self._refusal, size = (error.errno, error.strerror), found.st_size
        super().__init__(_context(path, found, version, grows=True), size)

    def open_stream(self) -> BinaryIO:
        """Open the file; raise ObjectMovedError if it is not the file that was listed."""
        if self._refusal is not None:
            raise OSError(*self._refusal, self._path)
        try:
            file = open(self._path, "rb")  # noqa: PTH123, SIM115 - as above
        except FileNotFoundError as error:
            raise ObjectMovedError("the file was moved after it was listed") from error
        first = f"{len(self._beginning)}:{_hash(file.read(len(self._beginning)))}"
        if self.context.version != f"{first}.{self.length}:{_last_hash(file, self.length)}":
            file.close()
            raise ObjectMovedError("another file has this path since it was listed")
        file.seek(0)
        return file

    def extends(self, version: str) -> bool:
        """Return whether this is the same file, perhaps longer, by its beginning and its former end."""
        if self._refusal is not None:
            return True  # not known, so the offset is kept
        beginning, _, rest = version.partition(".")
        text, _, last = rest.partition(":")
        if not text.isdecimal() or (size := int(text)) > self.length:
            return False
        if beginning not in self.beginnings([beginning.partition(":")[0]]):
            return False
        try:
            with open(self._path, "rb", buffering=0) as file:  # noqa: PTH123 - as above
                return last == _last_hash(file, size)
        except FileNotFoundError:
            return False

    def continues(self, key: Any, version: str) -> bool:
        """Return whether this is the file of another path, renamed or copied.

        Short files are often equal, so a file of less than a kilobyte counts as another file while the other
        path still has its file.
        """
        length = version.partition(":")[0]
        if self._refusal is not None or length == "0" or not self.extends(version):
            return False
        return length == str(_FINGERPRINT_BYTES) or not self._is_still_there(key, version)

    def beginnings(self, lengths: Iterable[str]) -> Iterable[str]:
        """Return the beginnings of the file with these lengths, in the form of versions."""
        most = len(self._beginning)
        return [f"{each}:{_hash(self._beginning[: int(each)])}" for each in lengths if _is_length(each, most)]

    def _is_still_there(self, key: str, version: str) -> bool:
        try:
            return GrowingFile(self._folder, key).extends(version)
        except OSError:
            return False


def _context(path: str, found: os.stat_result, version: str | None, *, grows: bool = False) -> ItemContext:
    return ItemContext(key=path, version=version, timestamp_ms=found.st_mtime_ns // 1_000_000, grows=grows)


def _is_length(text: str, most: int) -> bool:
    return text.isdecimal() and len(text) < 10 and int(text) <= most


def _last_hash(file: BinaryIO | FileIO, size: int) -> str:
    """Return the hash of the last kilobyte before a size."""
    file.seek(max(0, size - _FINGERPRINT_BYTES))
    return _hash(file.read(min(size, _FINGERPRINT_BYTES)))


def _hash(data: bytes) -> str:
    return blake2b(data, digest_size=8).hexdigest()


def _any(patterns: list[str], path: str) -> bool:
    return any_fits(patterns, path)
