"""A keyring file: read with care for who else can read it, and followed while it changes."""

from __future__ import annotations

import logging
import os
import stat
from collections import OrderedDict
from pathlib import Path
from threading import Lock
from typing import Final, Literal

from headerware.core.errors import KeyringError
from headerware.keyring.keyring import Key, Keyring, decode_keyring

Permissions = Literal["owner", "kubernetes"]

_log = logging.getLogger("headerware.keyring")

_UNKNOWN_KEYS_MAX: Final = 1024
FORBIDDEN: Final[dict[Permissions, int]] = {"owner": 0o077, "kubernetes": 0o037}
"""By policy: the bits that a file with secrets must not have. Kubernetes may let the group read."""
_FORBIDDEN_PUBLIC: Final = 0o022
"""Everyone may read public halves, but who can write the file decides which keys are trusted."""
_ADVICE: Final[dict[Permissions, str]] = {"owner": "600", "kubernetes": "440"}
_ADVICE_PUBLIC: Final = "644"

_Stamp = tuple[int, int, int, int, int]


def read_keyring(path: str | os.PathLike[str], *, permissions: Permissions = "owner") -> Keyring:
    """Read a keyring file.

    Args:
        path: the file.
        permissions: ``owner`` wants a plain file that nobody but its owner can read when it holds
            secrets; ``kubernetes`` also takes symbolic links and files that the group can read, as
            mounted secrets are. A file of public halves only may be read by everyone.

    Raises:
        KeyringError: a file that is missing, open to others, or no keyring.
    """
    return _read(os.fspath(path), permissions)[0]


class KeyringFile:
    """Follow a keyring file, so that rotation needs no restart.

    Safe for use by several threads. When a reload fails, the last good keyring goes on; the failure is
    logged once and counted.

    Args:
        path: the file.
        permissions: as in :func:`read_keyring`.
        refresh_ms: how often to look for changes, in milliseconds of the caller's clock.
        negative_ms: how long an unknown key stays unknown before it causes another look, in
            milliseconds.
        now_ms: the caller's clock at this moment.

    Raises:
        KeyringError: a file that is missing, open to others, or no keyring.
    """

    __slots__ = (
        "_checked_ms",
        "_due_ms",
        "_failure",
        "_keyring",
        "_lock",
        "_negative_ms",
        "_path",
        "_permissions",
        "_refresh_ms",
        "_stamp",
        "_unknown",
        "failures",
        "reloads",
    )

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        permissions: Permissions = "owner",
        refresh_ms: int = 1000,
        negative_ms: int = 10_000,
        now_ms: int = 0,
    ) -> None:
        self._path = os.fspath(path)
        self._permissions: Permissions = permissions
        self._refresh_ms = refresh_ms
        self._negative_ms = negative_ms
        self._lock = Lock()
        self._unknown: OrderedDict[tuple[str, int], int] = OrderedDict()
        self._failure: str | None = None
        self.reloads: int = 0
        self.failures: int = 0
        self._keyring, self._stamp = _read(self._path, permissions)
        self._checked_ms, self._due_ms = now_ms, now_ms + refresh_ms

    def current(self, now_ms: int) -> Keyring:
        """Give the keyring as it stands; the same object as long as the file did not change.

        Args:
            now_ms: the caller's clock, in milliseconds. One that runs backwards causes a look, too.
        """
        if not self._checked_ms <= now_ms < self._due_ms and self._lock.acquire(blocking=False):
            # Whoever does not get the lock goes on with what is there: another thread is looking.
            try:
                self._look(now_ms)
            finally:
                self._lock.release()
        return self._keyring

    def find(self, key_id: str, version: int, now_ms: int) -> Key:
        """Give one version of a key; an unknown one causes one look at the file before it is refused.

        Args:
            key_id: the key's name.
            version: its version.
            now_ms: the caller's clock, in milliseconds.

        Raises:
            KeyringError: no such key or version.
        """
        try:
            return self.current(now_ms).verifying_key(key_id, version)
        except KeyringError:
            if not self._may_look_for((key_id, version), now_ms):
                raise
        return self._keyring.verifying_key(key_id, version)

    def _may_look_for(self, wanted: tuple[str, int], now_ms: int) -> bool:
        with self._lock:
            seen_ms = self._unknown.get(wanted)
            if seen_ms is not None and seen_ms <= now_ms < seen_ms + self._negative_ms:
                return False
            self._unknown[wanted] = now_ms
            self._unknown.move_to_end(wanted)
            if len(self._unknown) > _UNKNOWN_KEYS_MAX:
                self._unknown.popitem(last=False)
            self._look(now_ms)
        return True

    def _look(self, now_ms: int) -> None:
        self._checked_ms, self._due_ms = now_ms, now_ms + self._refresh_ms
        try:
            if self._failure is None and _stamp(Path(self._path).stat()) == self._stamp:
                return
            self._keyring, self._stamp = _read(self._path, self._permissions)
        except (KeyringError, OSError) as error:
            self._note_failure(_text(self._path, error))
        else:
            self._failure = None
            self.reloads += 1

    def _note_failure(self, text: str) -> None:
        self.failures += 1
        if self._failure != text:
            _log.warning("the last good keyring goes on: %s", text)
        self._failure = text


def _read(path: str, permissions: Permissions) -> tuple[Keyring, _Stamp]:
    try:
        linked = Path(path).is_symlink()
        with Path(path).open("rb") as file:
            status = os.fstat(file.fileno())
            keyring = decode_keyring(file.read(), source=f"keyring {path}")
    except OSError as error:
        raise KeyringError(_text(path, error)) from error
    _check_permissions(path, keyring, status.st_mode, permissions, linked=linked)
    return keyring, _stamp(status)


def _check_permissions(
    path: str, keyring: Keyring, mode: int, permissions: Permissions, *, linked: bool
) -> None:
    if keyring.is_secret and linked and permissions == "owner":
        raise KeyringError(
            f"keyring {path} holds secrets and is a symbolic link: name the file itself, or set "
            'permissions to "kubernetes" for a mounted secret'
        )
    bits = stat.S_IMODE(mode)
    forbidden = FORBIDDEN[permissions] if keyring.is_secret else _FORBIDDEN_PUBLIC
    if bits & forbidden:
        wrong = "holds secrets that others can reach" if keyring.is_secret else "can be written by others"
        advice = _ADVICE[permissions] if keyring.is_secret else _ADVICE_PUBLIC
        raise KeyringError(f"keyring {path} {wrong} (mode {bits:04o}): run chmod {advice} {path}")


def _stamp(status: os.stat_result) -> _Stamp:
    # The mode counts as well, so that a file that was opened to others is noticed while it is followed.
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_mode)


def _text(path: str, error: Exception) -> str:
    if isinstance(error, OSError):
        return f"keyring {path} cannot be read: {error.strerror or type(error).__name__}"
    return str(error)
