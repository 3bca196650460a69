"""Follow a file of configuration, with the files that it names, while records pass."""

from __future__ import annotations

from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from headerware.core.errors import ConfigError
from headerware.core.file_versions import Stamp, is_young, settled, stamp_of
from headerware.core.per_process import PerProcess

if TYPE_CHECKING:
    import logging
    from collections.abc import Callable, Iterable

_T = TypeVar("_T")
_REFRESH_MS: Final = 1_000
_WAIT_S: Final = 1.0
"""How long a record waits for files that are being written."""


class FollowedFile(Generic[_T]):
    """Provide what a file says now; a bad version is refused, and the last good one stays in use.

    Safe for use by several threads at once.

    Args:
        path: the file.
        read: reads the file, and returns what it says, with all files that were read for this.
        what: what the file is, for the log.
        log: where bad versions are logged.
        now_ms: the present time of the caller's clock, in milliseconds.

    Raises:
        ConfigError: a file is missing or wrong.
    """

    def __init__(
        self,
        path: str,
        read: Callable[[Path], tuple[_T, tuple[Path, ...]]],
        *,
        what: str,
        log: logging.Logger,
        now_ms: int = 0,
    ) -> None:
        self._path = Path(path)
        self._read_files = read
        self._what = what
        self._log = log
        self._lock = PerProcess(Lock)
        self._files: tuple[Path, ...] = (self._path,)
        self._stamp = _stamps(self._files)
        """The stamp of the version that was read or refused; empty if the files must be read again anyway."""
        self._settled = self._stamp
        """The stamp of the version that has not changed for a moment."""
        if is_young(self._stamp[0]):
            self._settle()
        self._read()
        self._looked_ms = now_ms
        self.failure: str | None = None
        """The reason why the present version of the file cannot be used; None if it can."""
        self.reloads: int = 0
        self.failures: int = 0

    def current(self, now_ms: int, *, within_ms: int = _REFRESH_MS) -> _T:
        """Return what the file says; it is the same object as long as no file has changed.

        Args:
            now_ms: the present time of the caller's clock, in milliseconds.
            within_ms: how old the last look at the files may be, in milliseconds.
        """
        if not 0 <= now_ms - self._looked_ms < within_ms:
            self._look(now_ms)
        return self._value

    def _look(self, now_ms: int) -> None:
        with self._lock.get():
            self._looked_ms = now_ms
            stamp = _stamps(self._files)
            if stamp == self._stamp:
                return
            try:
                if stamp != self._settled:
                    self._settle()
                self._read()
            except ConfigError as error:
                self.failures += 1
                if self.failure != str(error):
                    self._log.error("%s; the last good %s stays in use", error, self._what)
                self.failure = str(error)
                return
            self.failure = None
            self.reloads += 1

    def _settle(self) -> None:
        """Wait until the files no longer change."""
        found = settled(lambda: _stamps(self._files), within_s=_WAIT_S)
        if found is None:
            raise ConfigError("it is being written", path=str(self._path))
        self._settled = found

    def _read(self) -> None:
        """Read the files, and use what they say."""
        stamp = self._settled
        self._stamp = ()  # a child that is forked meanwhile must read the files, too
        try:
            value, files = self._read_files(self._path)
        except ConfigError:
            # A file that is there and bad is not read again before it changes; a missing one is.
            self._stamp = stamp if None not in stamp else ()
            raise
        if _stamps(self._files) != stamp:
            raise ConfigError("it was changed while it was read", path=str(self._path))
        if files != self._files:
            self._files, self._settled = files, _stamps(files)
        self._value = value
        self._stamp = self._settled if self._settled[0] == stamp[0] else ()


def _stamps(files: Iterable[Path]) -> tuple[Stamp, ...]:
    return tuple(map(stamp_of, files))
