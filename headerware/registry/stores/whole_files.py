"""Files that are written whole or not at all, by one writer after the other."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_UNREADABLE: Final = 0o600
"""Until a new file has the mode of the one whose place it takes."""


@contextlib.contextmanager
def locked(path: Path) -> Iterator[Path]:
    """Hold a file against other writers that come through here, and give the file itself.

    The lock is on the file, so that none is left lying beside it in a repository. A writer puts another
    file in its place, so whoever waited looks whether what he holds is still the one.

    Args:
        path: the file, or a link to it.

    Raises:
        OSError: there is no such file, or it may not be written.
    """
    while True:
        target = Path(os.path.realpath(path))  # which, unlike resolve, leaves loops to open
        descriptor = os.open(target, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if _is_at(descriptor, target):
                yield target
                return
        finally:
            os.close(descriptor)


def replace_file(target: Path, content: bytes) -> None:
    """Put a file in the place of another, with its mode; a reader sees one or the other.

    Args:
        target: the file, no link.
        content: all of it.

    Raises:
        OSError: it cannot be written.
    """
    temporary = _beside(target)
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _UNREADABLE)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            os.fchmod(file.fileno(), stat.S_IMODE(target.stat().st_mode))
        _sync(temporary)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
    _sync(target.parent)


@contextlib.contextmanager
def created_file(target: Path) -> Iterator[Path]:
    """Make a new file: the block writes it under another name, and it gets its own when it is whole.

    Args:
        target: where.

    Raises:
        FileExistsError: there is a file already.
        OSError: it cannot be written.
    """
    temporary = _beside(target)
    try:
        yield temporary
        _sync(temporary)
        os.link(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
    _sync(target.parent)


def _beside(target: Path) -> Path:
    return target.with_name(f".{target.name}.{secrets.token_hex(8)}.tmp")


def _is_at(descriptor: int, target: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), target.stat())
    except FileNotFoundError:
        return False


def _sync(path: Path) -> None:
    """Wait until a file or a folder is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
