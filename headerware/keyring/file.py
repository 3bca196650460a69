"""Read a keyring file, with checks of its owner and mode, and follow it while it changes."""

from __future__ import annotations

import errno
import logging
import math
import os
import shlex
import stat
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from headerware.core.context import wall_clock_ms
from headerware.core.errors import KeyringError
from headerware.core.per_process import PerProcess
from headerware.core.plain_files import owned_by_another, read_plain, writable_by_others
from headerware.keyring.document import decode_keyring
from headerware.keyring.keyring import Key, Keyring
from headerware.keyring.snapshot import SnapshotChecks, require_unexpired

if TYPE_CHECKING:
    from collections.abc import Iterator

Permissions = Literal["owner", "kubernetes"]

_log = logging.getLogger("headerware.keyring")

MAX_BYTES: Final = 4 << 20
MAX_STALE_MS: Final = 300_000
"""Longer than the replacement of a file (two minutes for a mounted secret), but short enough that a
revocation with a mistake in it does not wait long."""
_EXTRA_LOOK_MS: Final = 100
_EXTRA_LOOKS: Final = 10
FORBIDDEN: Final[dict[Permissions, int]] = {"owner": 0o077, "kubernetes": 0o037}
"""The bits of the mode that a file with secrets must not have; Kubernetes may let the group read."""
_ADVICE: Final[dict[Permissions, str]] = {"owner": "600", "kubernetes": "440"}

_Stamp = tuple[int, int, int, int, int, int]


def read_keyring(
    path: str | os.PathLike[str],
    *,
    permissions: Permissions = "owner",
    root: str | os.PathLike[str] | None = None,
    jwks: bool = True,
) -> Keyring:
    """Read a keyring file once, to administer it.

    Args:
        path: the file, which must belong to this user or to root; root may read everybody's.
        permissions: ``owner`` takes a file with secrets only if it is a plain file that nobody but its owner
            can read; ``kubernetes`` also takes symbolic links and files that the group can read, as mounted
            secrets are. A file with nothing but public halves may be readable by everyone.
        root: the public half of the root that signed the file, if it is a snapshot; None if it is a keyring.
        jwks: whether it may also be a JWKS (RFC 7517), the keys of which only verify.

    Raises:
        KeyringError: the file is missing, open to others, another user's, or not a keyring; or a snapshot
            that is not the root's, or has expired.
    """
    any_owner = os.geteuid() == 0
    checks = None
    if root is not None:
        checks = SnapshotChecks(_read(os.fspath(root), "owner", any_owner=any_owner).keyring)
    return _read(
        os.fspath(path), permissions, checks, wall_clock_ms(), any_owner=any_owner, jwks=jwks
    ).keyring


class KeyringFile:
    """Follow a keyring file, so that rotation needs no restart.

    When a reload fails, the last good keyring is used for a while, and the log says so; after that there is
    no keyring until the file is good again. Safe for use by several threads at once.

    Args:
        path: the file, of this process's user or of root.
        permissions: as in :func:`read_keyring`.
        refresh_ms: how often to look for changes, in milliseconds of the caller's clock.
        max_stale_ms: how long the last good keyring may be used after the file was last good, in
            milliseconds.
        now_ms: the caller's clock now, in milliseconds.
        root: a keyring file with the public halves of the roots that sign snapshots. The file must then be
            a snapshot: newer than those before, and used until it expires. This file is followed, too. None
            takes keyrings alone.
        counter_file: with ``root``, where to remember the counter of the newest snapshot, so that a restart
            does not forget it; None remembers it in memory.

    Raises:
        KeyringError: the file is missing, open to others, another user's, or not a keyring; or a snapshot
            that the root did not sign, or that has expired, or is older than the one before.
    """

    __slots__ = (
        "_checked_ms",
        "_checks",
        "_due_ms",
        "_expires_ms",
        "_extra_ms",
        "_failure",
        "_good_ms",
        "_keyring",
        "_lock",
        "_max_stale_ms",
        "_path",
        "_permissions",
        "_refresh_ms",
        "_root",
        "_stamps",
        "failures",
        "reloads",
    )

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        permissions: Permissions = "owner",
        refresh_ms: int = 1000,
        max_stale_ms: int = MAX_STALE_MS,
        now_ms: int = 0,
        root: str | os.PathLike[str] | None = None,
        counter_file: str | os.PathLike[str] | None = None,
    ) -> None:
        self._path = os.fspath(path)
        self._permissions: Permissions = permissions
        self._refresh_ms = refresh_ms
        self._max_stale_ms = max_stale_ms
        self._lock = PerProcess(Lock)  # a forked child must not wait for its parent's thread
        self._failure: str | None = None
        self.reloads: int = 0
        self.failures: int = 0
        self._root = None if root is None else os.fspath(root)
        self._stamps: tuple[_Stamp, ...]
        self._checks: SnapshotChecks | None = None
        trusted: tuple[_Stamp, ...] = ()
        if self._root is not None:
            counter_path = None if counter_file is None else os.fspath(counter_file)
            roots = _read(self._root, "owner")
            self._checks, trusted = SnapshotChecks(roots.keyring, counter_path), (roots.stamp,)
        self._keyring, stamp, self._expires_ms = _read(self._path, permissions, self._checks, now_ms)
        self._stamps = stamp, *trusted
        self._checked_ms, self._due_ms = now_ms, now_ms + refresh_ms
        self._good_ms = now_ms
        self._extra_ms = now_ms - _EXTRA_LOOKS * _EXTRA_LOOK_MS

    def current(self, now_ms: int) -> Keyring:
        """Return the present keyring; it is the same object as long as the file has not changed.

        Args:
            now_ms: the caller's clock, in milliseconds. If it runs backwards, the file is looked at, too.

        Raises:
            KeyringError: the file has been bad for too long, or is a snapshot that has expired.
        """
        if not self._checked_ms <= now_ms < self._due_ms and not self._lock.get().locked():
            # If it is locked, another thread is looking at the file. It is "with" rather than acquire and
            # try, for an interrupt between the two would leave it locked, and the keyring old for ever.
            with self._lock.get():
                if not self._checked_ms <= now_ms < self._due_ms:
                    self._look(now_ms)
        if self._failure is not None and now_ms - self._good_ms >= self._max_stale_ms:
            raise KeyringError(self._stale(self._failure))
        if now_ms >= self._expires_ms:
            require_unexpired(self._expires_ms, now_ms, source=f"keyring {self._path}")
        return self._keyring

    def find(self, key_id: str, version: int, now_ms: int) -> Key:
        """Return one version of a key; look at the file once more before an unknown one is refused.

        Such looks are bounded, ten at once and ten a second, because a sender can name any number of keys
        that do not exist.

        Args:
            key_id: the key's name.
            version: its version.
            now_ms: the caller's clock, in milliseconds.

        Raises:
            KeyringError: there is no such key or version, or the file has been bad for too long.
        """
        try:
            return self.current(now_ms).verifying_key(key_id, version)
        except KeyringError:
            if not self._looked_again(now_ms):
                raise
        return self.current(now_ms).verifying_key(key_id, version)

    @property
    def failure(self) -> str | None:
        """Why the file cannot be used now, so that its keys are not known; None if it can."""
        return self._failure

    def _looked_again(self, now_ms: int) -> bool:
        with self._lock.get():
            unused_ms = now_ms - _EXTRA_LOOKS * _EXTRA_LOOK_MS
            spent_ms = self._extra_ms if unused_ms < self._extra_ms <= now_ms else unused_ms
            if spent_ms + _EXTRA_LOOK_MS > now_ms:
                return False
            self._extra_ms = spent_ms + _EXTRA_LOOK_MS
            self._look(now_ms)
        return True

    def _look(self, now_ms: int) -> None:
        self._checked_ms, self._due_ms = now_ms, now_ms + self._refresh_ms
        self._good_ms = min(self._good_ms, now_ms)
        stamps: tuple[_Stamp, ...] = ()
        try:
            paths = (self._path,) if self._root is None else (self._path, self._root)
            stamps = tuple(_stamp(os.stat(path)) for path in paths)  # noqa: PTH116 - text, once a second
            if stamps != self._stamps:
                trusted: tuple[_Stamp, ...] = ()
                if self._root is not None and self._checks is not None:
                    roots = _read(self._root, "owner")
                    self._checks.trust(roots.keyring)
                    trusted = (roots.stamp,)
                found = _read(self._path, self._permissions, self._checks, now_ms)
                self._keyring, stamp, self._expires_ms = found
                stamps = stamp, *trusted
                self.reloads += 1
                self._failure = None
        except (KeyringError, OSError) as error:
            self._note_failure(_text(self._path, error))
            if isinstance(error.__cause__ or error, OSError):
                stamps = ()
        else:
            if self._failure is None:
                self._good_ms = now_ms
            else:
                self.failures += 1
        # A file that was read and is bad is not read again until it changes; one that cannot be read is.
        self._stamps = stamps

    def _note_failure(self, text: str) -> None:
        self.failures += 1
        if self._failure != text:
            _log.error(
                "%s; the last good keyring goes on for at most %g s, then nothing is signed or verified",
                text,
                self._max_stale_ms / 1000,
            )
        self._failure = text

    def _stale(self, failure: str) -> str:
        return (
            f"{failure}; the last good keyring is older than {self._max_stale_ms / 1000:g} s and no longer "
            "used: mend the file, and it is taken up without a restart"
        )


@contextmanager
def naming_file(path: str | os.PathLike[str]) -> Iterator[None]:
    """Begin an error about a key with the keyring's path, unless it names it already."""
    try:
        yield
    except KeyringError as error:
        text, name = str(error), os.fspath(path)
        raise KeyringError(text if name in text else f"keyring {name}: {text}") from error


class _Found(NamedTuple):
    keyring: Keyring
    stamp: _Stamp
    expires_ms: float
    """When a snapshot ends; never, for a keyring."""


def _read(
    path: str,
    permissions: Permissions,
    checks: SnapshotChecks | None = None,
    now_ms: int = 0,
    *,
    any_owner: bool = False,
    jwks: bool = True,
) -> _Found:
    try:
        text, status, linked = _contents(path)
    except (OSError, ValueError) as error:
        advice = ""
        if isinstance(error, FileNotFoundError) and checks is None:
            command = f"headerware keys generate --keyring {shlex.quote(path)} --id NAME"
            advice = f"; name the file that has the keys, or make one: {command}"
        raise KeyringError(f"{_text(path, error)}{advice}") from error
    if not any_owner and (problem := owned_by_another(path, status)):
        raise KeyringError(f"keyring {path} {problem}")
    source, expires_ms = f"keyring {path}", math.inf
    if checks is None:
        keyring = decode_keyring(text, source=source, jwks=jwks)
    else:
        snapshot, keyring = checks.accept(text, now_ms, source=source)
        expires_ms = snapshot.expires_ms
    if keyring.is_secret:
        _check_permissions(path, status.st_mode, permissions, linked=linked)
    elif problem := writable_by_others(path, status):
        raise KeyringError(f"keyring {path} {problem}")
    return _Found(keyring, _stamp(status), expires_ms)


def _contents(path: str) -> tuple[bytes, os.stat_result, bool]:
    """Return the content and status of a file, and whether its name is a link."""
    try:
        return *read_plain(path, MAX_BYTES, follow=False), False
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        return *read_plain(path, MAX_BYTES), True


def _check_permissions(path: str, mode: int, permissions: Permissions, *, linked: bool) -> None:
    if linked and permissions == "owner":
        raise KeyringError(
            f"keyring {path} holds secrets and is a symbolic link: name the file itself, or set "
            'permissions to "kubernetes" for a mounted secret'
        )
    bits = stat.S_IMODE(mode)
    if bits & FORBIDDEN[permissions]:
        raise KeyringError(
            f"keyring {path} holds secrets that others can reach (mode {bits:04o}): run chmod "
            f"{_ADVICE[permissions]} {path}"
        )


def _stamp(status: os.stat_result) -> _Stamp:
    # With the mode and both times of change, so that a followed file is checked again after chmod or chown.
    return (
        status.st_dev,
        status.st_ino,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
        status.st_mode,
    )


def _text(path: str, error: Exception) -> str:
    if isinstance(error, KeyringError):
        return str(error)
    reason = error.strerror if isinstance(error, OSError) else None
    named = error.filename if isinstance(error, OSError) else None  # the root's, too
    return f"keyring {named or path} cannot be read: {reason or type(error).__name__}"
