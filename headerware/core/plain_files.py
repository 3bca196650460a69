"""Read files that somebody may have replaced by a pipe, a device, or far too much data."""

from __future__ import annotations

import errno
import json
import os
import re
import shlex
import stat
from contextlib import suppress
from itertools import islice
from typing import Final

from headerware.core.errors import ConfigError
from headerware.core.suggestions import closest

_WRITTEN_BY_OTHERS: Final = 0o022
_MAX_PATH_LENGTH: Final = 4_096
_MAX_NAME_BYTES: Final = 255
_MAX_NEIGHBOURS: Final = 1_000
_NOT_MEANT: Final = re.compile(r"\.|.*(?:~|\.(?:lock|tmp|bak))$", re.DOTALL).match
"""Whether a name is that of a hidden or temporary file."""
_IS_ON_A_DRIVE: Final = re.compile(r"[A-Za-z]:[\\/\s]").match
_CONTENT_BEGINS: Final = ("{", "[", "-----BEGIN")


def require_path(path: str | os.PathLike[str], option: str = "") -> None:
    """Raise a ConfigError, which does not show the text, if a path is the content of a file.

    The content may be a secret, such as a keyring that somebody put into an environment variable. So call
    this before anything that may fail and show the path, such as opening the file.
    """
    text = os.fspath(path)
    if is_content(text):
        if _IS_ON_A_DRIVE(text):
            found = "a path with a line break; a backslash begins an escape: write / or two backslashes"
        else:
            found = f"the content of a file ({len(text):,} characters); write it to a file, and name the file"
        raise ConfigError(f"expected a path, found {found}", path=option)


def is_content(text: str) -> bool:
    """Return whether a text that should be a path can be only the content of a file."""
    return (
        len(text) > _MAX_PATH_LENGTH
        or "\n" in text
        or "\r" in text
        or text.lstrip().startswith(_CONTENT_BEGINS)
        or any(len(os.fsencode(name)) > _MAX_NAME_BYTES for name in text.split("/"))
    )


def why_unreadable(path: str | os.PathLike[str], error: Exception) -> str:
    """Return why a file cannot be read, the working directory if the path begins there, and a like name."""
    reason = getattr(error, "strerror", None) or type(error).__name__
    if isinstance(error, UnicodeError):
        reason = "it is not UTF-8"
    elif isinstance(error, ValueError):
        reason = "a path has no zero byte"
    where = ""
    if isinstance(error, OSError) and not os.path.isabs(path):  # noqa: PTH117 - also for bytes
        with suppress(OSError):  # the working directory may have been removed
            where = f", in the working directory {os.getcwd()}"  # noqa: PTH109 - text
    return f"{reason}{where}{like_file(path) if isinstance(error, FileNotFoundError) else ''}"


def like_file(path: str | os.PathLike[str]) -> str:
    """Return the end of a sentence with the file that a missing path may mean; empty if there is none.

    The file is in the path's folder or in the working directory.
    """
    folder, name = os.path.split(os.fsdecode(path))
    for each in dict.fromkeys((folder, "")):
        with suppress(OSError, ValueError), os.scandir(each or ".") as found:
            entries = islice(found, _MAX_NEIGHBOURS)
            names = [entry.name for entry in entries if entry.is_file() and not _NOT_MEANT(entry.name)]
            if (near := closest(name, names)) is not None:
                # A path in a file is relative to that file: only a full path is right from there, too.
                at = os.path.join(each, near) if each == folder else os.path.abspath(near)  # noqa: PTH100, PTH118
                return f"; did you mean {at!r}?"
    return ""


def read_plain(
    path: str | os.PathLike[str], max_bytes: int, *, follow: bool = True
) -> tuple[bytes, os.stat_result]:
    """Return the content of a plain file, and its status when it was open.

    Never wait for a pipe, and never read more than ``max_bytes``. Raise an OSError for anything but a plain
    file of at most that size; a link has ``errno.ELOOP`` unless ``follow``. A ValueError says that no file
    can have this name, and a ConfigError that the path is the content of a file.
    """
    require_path(path)
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


def read_if_there(path: str | os.PathLike[str], max_bytes: int) -> bytes | None:
    """Return the content of a plain file; None if it is not there, or this user may not read it.

    So a check can read the files of another machine, such as keyrings, as far as this machine has them. Raise
    an OSError for anything but a plain file of at most ``max_bytes``.
    """
    try:
        return read_plain(path, max_bytes)[0]
    except (FileNotFoundError, PermissionError):
        return None


def require_json(text: str, file: str) -> None:
    """Raise a ConfigError, at its line, if the text of a file is not JSON."""
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        problem = ConfigError(f"is not JSON: {error.msg}", path=file)
        raise problem.located(file, error.lineno, error.colno) from None  # the cause has all of the text
    except RecursionError:
        raise ConfigError("is not JSON: it is nested too deeply", path=file) from None


def require_folder(path: str | os.PathLike[str]) -> None:
    """Raise a ConfigError, for an option ``path``, if a name is there and is no folder."""
    if os.path.exists(path) and not os.path.isdir(path):  # noqa: PTH110, PTH112 - options are plain text
        raise ConfigError(f"expected a folder, found the file {os.fspath(path)}", path="path")


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
