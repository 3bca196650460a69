"""Read files that somebody may have replaced by a pipe, a device, or far too much data."""

from __future__ import annotations

import errno
import os
import stat


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
            raise OSError(errno.EINVAL, "it is a folder, pipe or device, expected a plain file")
        if status.st_size <= max_bytes:
            with os.fdopen(descriptor, "rb", closefd=False) as file:
                content = file.read(max_bytes + 1)
            if len(content) <= max_bytes:
                return content, status
        raise OSError(errno.EFBIG, f"it is larger than {max_bytes:,} bytes")
    finally:
        os.close(descriptor)
