"""A folder as an object store: a disk or a mounted volume.

A user who can write in the folder may put links, pipes and devices there. The store neither follows links nor
waits for pipes: it opens folders and files one by one, and refuses anything else.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Annotated, ClassVar, Final, Literal

from headerware.core.errors import NoSuchObjectError, ObjectStoreError
from headerware.core.options import PATH
from headerware.core.plain_files import require_folder
from headerware.object_store.store import UNFINISHED, Found, ObjectStoreOptions, StoredObject

_CHUNK_BYTES: Final = 1 << 20
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class FolderObjects(ObjectStoreOptions, frozen=True, kw_only=True):
    """Keep objects in a folder, which must be there: a volume that is not mounted counts as out of reach.

    Args:
        path: the folder. Each topic gets a folder of its own in it, readable for owner and group.
    """

    type: ClassVar[str] = "folder"

    path: Annotated[str, PATH]

    def check_files(self) -> None:
        """Refuse anything but a folder; another machine may have it."""
        require_folder(self.path)

    def open(self) -> FolderObjectStore:
        """Return the store."""
        return FolderObjectStore(self.path)


class FolderObjectStore:
    """The objects of a folder; see :class:`FolderObjects`. No timeout ends a call to a file system."""

    def __init__(self, path: str) -> None:
        self._path: Final = path

    def put(self, name: str, content: bytes, sha256: bytes, timeout_s: float) -> None:  # noqa: ARG002 - see above
        """Write an object, and wait until it is on the disk."""
        folder, _, file = name.partition("/")
        temporary = UNFINISHED + secrets.token_hex(8)
        try:
            with self._opened(folder, create=True) as inside:
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
                with os.fdopen(os.open(temporary, flags, 0o640, dir_fd=inside), "wb", buffering=0) as opened:
                    try:
                        _write(opened.fileno(), content)
                        os.fsync(opened.fileno())
                        os.rename(temporary, file, src_dir_fd=inside, dst_dir_fd=inside)
                    except BaseException:
                        os.unlink(temporary, dir_fd=inside)
                        raise
                os.fsync(inside)
        except OSError as error:
            if not os.path.isdir(self._path):  # noqa: PTH112 - options are plain text
                raise self._not_there(error) from error
            raise self._failure("an object cannot be written", error) from error

    @contextmanager
    def read(self, name: str, timeout_s: float) -> Iterator[Found]:  # noqa: ARG002 - see above
        """Open an object."""
        folder, _, file = name.partition("/")
        try:
            with self._opened(folder) as inside:
                descriptor = os.open(file, _FILE, dir_fd=inside)
        except FileNotFoundError as error:
            if not os.path.isdir(self._path):  # noqa: PTH112 - options are plain text
                raise self._not_there(error) from error
            raise NoSuchObjectError(f"the folder {self._path} has no such object") from None
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise self._no_object() from error
            raise self._failure("an object cannot be read", error) from error
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise self._no_object()
            yield Found(status.st_size, self._chunks(descriptor))
        finally:
            os.close(descriptor)

    def objects(self, folder: str) -> Iterator[StoredObject]:
        """List the files of a folder, also those that are being written."""
        try:
            with self._opened(folder) as inside, os.scandir(inside) as entries:
                for entry in entries:
                    if entry.is_file(follow_symlinks=False):
                        found = entry.stat(follow_symlinks=False)
                        modified_ms = found.st_mtime_ns // 1_000_000
                        yield StoredObject(f"{folder}/{entry.name}", found.st_size, modified_ms)
        except FileNotFoundError as error:
            if not os.path.isdir(self._path):  # noqa: PTH112 - options are plain text
                raise self._not_there(error) from error
        except OSError as error:
            raise self._failure("objects cannot be listed", error) from error

    def delete(self, name: str) -> None:
        """Delete an object's file."""
        folder, _, file = name.partition("/")
        try:
            with suppress(FileNotFoundError), self._opened(folder) as inside:
                os.unlink(file, dir_fd=inside)
        except OSError as error:
            raise self._failure("an object cannot be deleted", error) from error

    def check(self, access: Literal["read", "write"]) -> None:
        """Raise ``ObjectStoreError`` unless the folder is there, and this user may use it."""
        try:
            os.close(os.open(self._path, _FOLDER))
        except OSError as error:
            if not os.path.isdir(self._path):  # noqa: PTH112 - options are plain text
                raise self._not_there(error) from error
            raise self._failure("it cannot be opened", error) from error
        rights = {"reach objects": os.X_OK} | ({"write": os.W_OK} if access == "write" else {})
        for what, right in rights.items():
            if not os.access(self._path, right, effective_ids=os.access in os.supports_effective_ids):
                raise ObjectStoreError(
                    f"the folder {self._path}: this user may not {what} in it, or it is mounted read-only"
                )

    def close(self) -> None:
        """Do nothing: no file is kept open."""

    @contextmanager
    def _opened(self, folder: str, *, create: bool = False) -> Iterator[int]:
        """Yield a descriptor of a folder in this one; the folder must not be a link."""
        root = os.open(self._path, _FOLDER)
        try:
            if create:
                with suppress(FileExistsError):
                    os.mkdir(folder, 0o750, dir_fd=root)
                    os.fsync(root)
            inside = os.open(folder, _FOLDER | os.O_NOFOLLOW, dir_fd=root)
        finally:
            os.close(root)
        try:
            yield inside
        finally:
            os.close(inside)

    def _chunks(self, descriptor: int) -> Iterator[bytes]:
        while True:
            try:
                chunk = os.read(descriptor, _CHUNK_BYTES)
            except OSError as error:
                raise self._failure("an object cannot be read", error) from error
            if not chunk:
                return
            yield chunk

    def _no_object(self) -> NoSuchObjectError:
        return NoSuchObjectError(f"the folder {self._path} has a link, pipe or device in place of the object")

    def _not_there(self, error: OSError) -> ObjectStoreError:
        return self._failure("it is not there; make it, or mount its volume", error)

    def _failure(self, what: str, error: OSError) -> ObjectStoreError:
        return ObjectStoreError(f"the folder {self._path}: {what} ({error.strerror})")


def _write(descriptor: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
