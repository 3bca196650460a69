"""Files that are written whole or not at all: a reader sees the old content or the new one."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


def replace_file(
    target: Path, content: bytes, *, mode: int | None = None, prepare: Callable[[int], None] | None = None
) -> None:
    """Write a file, in the place of the one that is there, and wait until it is on the disk.

    Args:
        target: the file; a link is replaced by the file.
        content: all of it.
        mode: its permissions; None keeps those of the file that is there, or is 0o600 if there is none.
        prepare: called with the file's descriptor before anyone can see it, to set its owner for instance.

    Raises:
        OSError: it cannot be written; what was there stays.
    """
    if mode is None:
        mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else 0o600
    with _temporary(target) as (temporary, file):
        file.write(content)
        if prepare is not None:
            prepare(file.fileno())
        os.fchmod(file.fileno(), mode)
        file.flush()
        os.fsync(file.fileno())
        temporary.replace(target)
    sync(target.parent)


@contextlib.contextmanager
def created_file(target: Path) -> Iterator[Path]:
    """Make a new file: the block writes it under another name, and it gets its own name when it is whole.

    Raises:
        FileExistsError: there is a file already.
        OSError: it cannot be written.
    """
    temporary = _beside(target)
    try:
        yield temporary
        sync(temporary)
        os.link(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
    sync(target.parent)


def sync(path: Path) -> None:
    """Wait until a file or a folder is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _temporary(target: Path) -> Iterator[tuple[Path, BinaryIO]]:
    temporary = _beside(target)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield temporary, file
    finally:
        temporary.unlink(missing_ok=True)


def _beside(target: Path) -> Path:
    return target.with_name(f".{target.name}.{secrets.token_hex(8)}.tmp")
