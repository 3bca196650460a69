"""Tell versions of a configuration file apart, and whether a version is complete.

The first half of a TOML file is often valid, and may be a shorter chain or a policy that denies less. A file
that is replaced by renaming another file is safe. If a file is written in place, a new version is read only
after it has not changed for a moment. A file whose writer stopped half-way is recognised if the file begins
with the text of its last line:

    last_line = "# end of the policy"
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any, Final, TypeVar

from headerware.core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_T = TypeVar("_T")
LAST_LINE: Final = "last_line"
"""The key that states a file's last line."""
SETTLE_S: Final = 0.2
"""How long a file must have been unchanged, in seconds."""
Stamp = tuple[str, int, int, int, int, int] | None
"""The stamp of one version of a file; None if there is no file."""


def stamp_of(path: str | os.PathLike[str]) -> Stamp:
    """Return the stamp of the present version of a file."""
    try:
        found = os.stat(path)  # noqa: PTH116 - a path as text, too
        # With the resolved path: a mounted folder is replaced by pointing a link elsewhere.
        real = os.path.realpath(os.fspath(path))
    except OSError:
        return None
    return real, found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def settled(look: Callable[[], _T], *, within_s: float | None = None) -> _T | None:
    """Wait until the result of ``look`` has not changed for a moment, and return it.

    Return None if it still changes after ``within_s`` seconds; without a limit, wait as long as it takes.
    """
    deadline = None if within_s is None else time.monotonic() + within_s
    now = look()
    while deadline is None or time.monotonic() < deadline:
        before = now
        time.sleep(SETTLE_S)
        if (now := look()) == before:
            return now
    return None


def settle_young(path: str | os.PathLike[str]) -> None:
    """Wait until a recently changed file no longer changes; for callers that read it once."""
    if is_young(stamp_of(path)):
        settled(lambda: stamp_of(path))


def is_young(stamp: Stamp) -> bool:
    """Return whether a file was changed a moment ago, by the clock of this machine."""
    return stamp is not None and -SETTLE_S < time.time() - stamp[-1] / 1e9 < SETTLE_S


def require_whole(table: Mapping[str, Any], text: str, path: str) -> None:
    """Raise a ConfigError for a file that states its last line, and ends with another line.

    Args:
        table: what the file was parsed to.
        text: the file.
        path: its path.
    """
    if LAST_LINE not in table:
        return
    wanted = table[LAST_LINE]
    if not isinstance(wanted, str) or not wanted.startswith("#"):
        raise ConfigError("expected a comment, such as '# end'", path=f"{path}: {LAST_LINE}")
    if next(iter(table)) != LAST_LINE:
        raise ConfigError(
            "expected this key before all others: a file that was cut off could be without a later key",
            path=f"{path}: {LAST_LINE}",
        )
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if lines[-1] != wanted or lines.count(wanted) != 1:
        raise ConfigError(
            f"expected {wanted!r} as the last line, and nowhere else; the file is being written, or its "
            "writer stopped too early",
            path=path,
        )
