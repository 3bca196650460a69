"""Files that are written completely or not at all: a reader sees the old content or the new content."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import stat
from typing import TYPE_CHECKING, BinaryIO, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


_NO_FOLDER_SYNC: Final = {errno.EINVAL, errno.ENOTSUP, errno.EACCES, errno.EPERM}
"""The errors if a file system does not sync folders, or if a folder may be written but not read."""


def replace_file(
    target: Path,
    content: bytes,
    *,
    mode: int | None = None,
    new_mode: int = 0o600,
    prepare: Callable[[int], None] | None = None,
) -> None:
    """Write a file, replacing an old file of this name, and wait until the new file is on the disk.

    After an OSError the old file is still there. A symbolic link is itself replaced. ``mode`` None keeps the
    old file's permissions; a new file has ``new_mode``, less the process's umask. ``prepare`` is called with
    the descriptor before anyone can see the file, for instance to set its owner.
    """
    if mode is None and target.exists():
        mode = stat.S_IMODE(target.stat().st_mode)
    with _temporary(target, new_mode if mode is None else 0o600) as (temporary, file):
        file.write(content)
        if prepare is not None:
            prepare(file.fileno())
        if mode is not None:
            os.fchmod(file.fileno(), mode)
        file.flush()
        os.fsync(file.fileno())
        temporary.replace(target)
    try:
        _sync(target.parent)
    except OSError as error:
        if error.errno not in _NO_FOLDER_SYNC:
            raise


@contextlib.contextmanager
def created_file(target: Path) -> Iterator[Path]:
    """Yield a path to write to; when the block ends, the file becomes the target, which must not exist."""
    temporary = _temporary_path(target)
    try:
        yield temporary
        _sync(temporary)
        os.link(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
    _sync(target.parent)


@contextlib.contextmanager
def locked(lock: Path) -> Iterator[None]:
    """Let one thread of one process do the block at a time; the lock's file and its folder stay."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _sync(path: Path) -> None:
    """Wait until a file or a folder is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _temporary(target: Path, mode: int) -> Iterator[tuple[Path, BinaryIO]]:
    temporary = _temporary_path(target)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield temporary, file
    finally:
        temporary.unlink(missing_ok=True)


def _temporary_path(target: Path) -> Path:
    return target.with_name(f".{target.name}.{secrets.token_hex(8)}.tmp")
