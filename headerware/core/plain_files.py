"""Read files that somebody may have replaced by a pipe, a device, or far too much data."""

from __future__ import annotations

import errno
import os
import shlex
import stat
from typing import Final

_WRITTEN_BY_OTHERS: Final = 0o022


def read_plain(
    path: str | os.PathLike[str], max_bytes: int, *, follow: bool = True
) -> tuple[bytes, os.stat_result]:
    """Return the content of a plain file, and its status when it was open.

    Never wait for a pipe, and never read more than ``max_bytes``. Raise an OSError for anything but a plain
    file of at most that size; a link has ``errno.ELOOP`` unless ``follow``. A ValueError says that no file
    can have this name.
    """
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
    descriptor = os.open(path, flags if follow else flags | os.O_NOFOLLOW)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "expected a plain file, found a folder, pipe or device")
        if status.st_size <= max_bytes:
            with os.fdopen(descriptor, "rb", closefd=False) as file:
                content = file.read(max_bytes + 1)
            if len(content) <= max_bytes:
                return content, status
        raise OSError(errno.EFBIG, f"it is larger than {max_bytes:,} bytes")
    finally:
        os.close(descriptor)


def changeable_by_others(path: str | os.PathLike[str], status: os.stat_result) -> str | None:
    """Return a sentence about who else can change a trusted file, with advice; None if nobody can.

    Args:
        path: the file's name, for the advice.
        status: the file's status when it was open.
    """
    return owned_by_another(path, status) or writable_by_others(path, status)


def owned_by_another(path: str | os.PathLike[str], status: os.stat_result) -> str | None:
    """Return a sentence, with advice, about a file of neither this process's user nor root; else None."""
    user = os.geteuid()
    if status.st_uid in {0, user}:
        return None
    return (
        f"belongs to user {status.st_uid}, who could change what is trusted here; expected this process's "
        f"user {user} or root: run chown {user} {shlex.quote(os.fspath(path))}"
    )


def writable_by_others(path: str | os.PathLike[str], status: os.stat_result) -> str | None:
    """Return a sentence, with advice, about a file that its group or all users can write; else None."""
    mode = stat.S_IMODE(status.st_mode)
    if not mode & _WRITTEN_BY_OTHERS:
        return None
    return f"can be written by others (mode {mode:04o}): run chmod go-w {shlex.quote(os.fspath(path))}"
