"""Read keyring files, check their owner and mode, and follow their changes."""

from __future__ import annotations

import errno
import logging
import math
import os
import shlex
import stat
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Protocol

from headerware.core.context import wall_clock_ms
from headerware.core.errors import ConfigError, KeyringError, below
from headerware.core.per_process import PerProcess
from headerware.core.plain_files import (
    owned_by_another,
    read_if_there,
    read_plain,
    why_unreadable,
    writable_by_others,
)
from headerware.keyring.document import decode_keyring
from headerware.keyring.keyring import Key, Keyring
from headerware.keyring.snapshot import SnapshotChecks, require_unexpired, verify_snapshot

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headerware.core.client_chain import Side
    from headerware.core.context import Context

Permissions = Literal["owner", "kubernetes"]

_log = logging.getLogger("headerware.keyring")

MAX_BYTES: Final = 4 << 20
MAX_STALE_MS: Final = 300_000
"""Longer than the replacement of a file takes (two minutes for a mounted secret), and short, because a
revocation in a broken file has no effect before this time has passed."""
_EXTRA_LOOK_MS: Final = 100
_EXTRA_LOOKS: Final = 10
FORBIDDEN: Final[dict[Permissions, int]] = {"owner": 0o077, "kubernetes": 0o037}
"""The mode bits that a file with secrets must not have; with Kubernetes, the group may read."""
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
        path: the file, which must belong to this user or to root; root may read files of all users.
        permissions: ``owner`` accepts a file with secrets only if it is a plain file that nobody but its
            owner can read; ``kubernetes`` also accepts symbolic links and files that the group can read,
            because mounted secrets are such files. A file with public halves only may be readable by
            everyone.
        root: a keyring file with the public half of the root, if ``path`` is a snapshot; None if ``path`` is
            a keyring.
        jwks: whether the file may also be a JWKS (RFC 7517), whose keys only verify.

    Raises:
        KeyringError: the file is missing, open to others, another user's, or not a keyring; or the snapshot
            was not signed by the root, or has expired.
    """
    any_owner = os.geteuid() == 0
    checks = None
    if root is not None:
        checks = SnapshotChecks(_read_roots(os.fspath(root), any_owner=any_owner).keyring)
    return _read(
        os.fspath(path), permissions, checks, wall_clock_ms(), any_owner=any_owner, jwks=jwks
    ).keyring


def check_keyring(path: str | os.PathLike[str], root: str | os.PathLike[str] | None = None) -> None:
    """Raise a KeyringError if this machine has a keyring file that is none; the file's mode may be any.

    Args:
        path: the file; with ``root`` a snapshot, which is checked if this machine has both.
        root: the keyring file with the public half of the root, or None.
    """
    source = f"keyring {os.fspath(path)}"
    text = _text_if_there(path)
    if root is None:
        if text is not None:
            decode_keyring(text, source=source)
        return
    try:
        of_roots = _text_if_there(root)
        roots = None if of_roots is None else decode_keyring(of_roots, source=f"keyring {os.fspath(root)}")
    except KeyringError as error:
        error.of_root = True
        raise
    if text is not None and roots is not None:
        verify_snapshot(text, roots, source=source)


def _text_if_there(path: str | os.PathLike[str]) -> bytes | None:
    try:
        return read_if_there(path, MAX_BYTES)
    except OSError as error:
        raise KeyringError(_text(os.fspath(path), error)) from error


class KeyringFile:
    """Follow a keyring file, so that rotation needs no restart.

    When a reload fails, an error is logged, and the last good keyring is used for ``max_stale_ms``. After
    that, no key is available until the file is good again. Safe for use by several threads at once.

    Args:
        path: the file, of this process's user or of root.
        permissions: as in :func:`read_keyring`.
        refresh_ms: how often to look for changes, in milliseconds of the caller's clock.
        max_stale_ms: how long the last good keyring may be used after the file was last good, in
            milliseconds.
        now_ms: the present time of the caller's clock, in milliseconds.
        root: a keyring file with the public halves of the roots that sign snapshots; it is followed, too.
            The file at ``path`` must then be a snapshot that is newer than earlier ones and has not expired.
            None accepts keyrings only.
        counter_file: with ``root``, where to remember the counter of the newest snapshot, so that a restart
            does not forget it; None remembers it in memory.

    Raises:
        KeyringError: the file is missing, open to others, another user's, or not a keyring; or the snapshot
            was not signed by a root, has expired, or is older than the one before.
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
        "_permissions",
        "_refresh_ms",
        "_root",
        "_stamps",
        "failures",
        "path",
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
        self.path: Final = os.fspath(path)
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
            roots = _read_roots(self._root)
            self._checks, trusted = SnapshotChecks(roots.keyring, counter_path), (roots.stamp,)
        self._keyring, stamp, self._expires_ms = _read(self.path, permissions, self._checks, now_ms)
        self._stamps = stamp, *trusted
        self._checked_ms, self._due_ms = now_ms, now_ms + refresh_ms
        self._good_ms = now_ms
        self._extra_ms = now_ms - _EXTRA_LOOKS * _EXTRA_LOOK_MS

    def current(self, now_ms: int) -> Keyring:
        """Return the present keyring; it is the same object as long as the file has not changed.

        Args:
            now_ms: the caller's clock, in milliseconds. If the clock runs backwards, the file is checked,
                too.

        Raises:
            KeyringError: the file has been bad for too long, or its snapshot has expired.
        """
        if not self._checked_ms <= now_ms < self._due_ms and not self._lock.get().locked():
            # If the lock is taken, another thread is checking the file. An interrupt between "acquire" and
            # "try" would leave the lock taken, and the keyring would never be read again; "with" is safe.
            with self._lock.get():
                if not self._checked_ms <= now_ms < self._due_ms:
                    self._look(now_ms)
        if self._failure is not None and now_ms - self._good_ms >= self._max_stale_ms:
            raise KeyringError(self._stale(self._failure))
        if now_ms >= self._expires_ms:
            require_unexpired(self._expires_ms, now_ms, source=f"keyring {self.path}")
        return self._keyring

    def find(self, key_id: str, version: int, now_ms: int) -> Key:
        """Return one version of a key; check the file once more before refusing an unknown version.

        These extra checks are limited, to ten at once and ten a second, because a sender can name any number
        of keys that do not exist.

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
        """The reason why the present file cannot be used; None if it can be used."""
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
            paths = (self.path,) if self._root is None else (self.path, self._root)
            stamps = tuple(_stamp(os.stat(path)) for path in paths)  # noqa: PTH116 - text, once a second
            if stamps != self._stamps:
                trusted: tuple[_Stamp, ...] = ()
                if self._root is not None and self._checks is not None:
                    roots = _read_roots(self._root)
                    self._checks.trust(roots.keyring)
                    trusted = (roots.stamp,)
                found = _read(self.path, self._permissions, self._checks, now_ms)
                self._keyring, stamp, self._expires_ms = found
                stamps = stamp, *trusted
                self.reloads += 1
                self._failure = None
        except (KeyringError, OSError) as error:
            self._note_failure(_text(self.path, error))
            if isinstance(error.__cause__ or error, OSError):
                stamps = ()
        else:
            if self._failure is None:
                self._good_ms = now_ms
            else:
                self.failures += 1
        # A bad file is not read again until it changes; a file that could not be read is tried again.
        self._stamps = stamps

    def _note_failure(self, text: str) -> None:
        self.failures += 1
        if self._failure != text:
            _log.error(
                "%s; the last good keyring is used for at most %g s, then nothing is signed or verified",
                text,
                self._max_stale_ms / 1000,
            )
        self._failure = text

    def _stale(self, failure: str) -> str:
        return (
            f"{failure}; the last good keyring is older than {self._max_stale_ms / 1000:g} s and no longer "
            "used: repair the file, and it is read again without a restart"
        )


class KeyringOptions(Protocol):
    """The options of an interceptor that follows a keyring to sign with it."""

    @property
    def keyring_permissions(self) -> Permissions: ...
    @property
    def keyring_max_stale_ms(self) -> int: ...
    @property
    def keyring_root(self) -> str | None: ...
    @property
    def keyring_counter(self) -> str | None: ...


def follow_keyring(options: KeyringOptions, path: str, key_id: str | None, context: Context) -> KeyringFile:
    """Return the keyring of an interceptor that signs; a producer's must have the key to sign with.

    Raises:
        ConfigError: a producer's chain has no ``key_id``.
        KeyringError: the keyring cannot be read, or does not have the key.
    """
    now_ms = context.now_ms()
    with of_keyring_option("keyring", "keyring_root"), naming_key(key_id, side=context.side):
        file = KeyringFile(
            path,
            permissions=options.keyring_permissions,
            max_stale_ms=options.keyring_max_stale_ms,
            now_ms=now_ms,
            root=options.keyring_root,
            counter_file=None if context.dry_run else options.keyring_counter,
        )
    if context.side == "producer":
        if key_id is None:
            raise ConfigError("sending needs the id of a key to sign with", path="key_id")
        with below("key_id"), naming_file(path):
            file.current(now_ms).current_key(key_id, "sign", now_ms)
    return file


def _missing(
    path: str, key_id: str | None = None, algorithm: str | None = None, *, reads: bool = False
) -> KeyringError:
    """Return the error for a keyring that does not exist, with advice.

    A writer may make one with a key. A new key does not fit what a reader gets, so it needs the writer's.
    """
    options = f"--keyring {shlex.quote(path)} --id {shlex.quote(key_id or 'NAME')}"
    if algorithm is not None:
        options += f" --algorithm {algorithm}"
    advice = f"name the file that has the keys, or make one: headerware keys generate {options}"
    if reads:
        public = "public half here (headerware keys export-public; of an HMAC key the keyring)"
        file = "keyring here" if algorithm else public
        advice = f"copy the writer's {file}, or name the file that has the keys"
    error = KeyringError(f"{_not_found(path)}; {advice}")
    error.missing = path
    return error


def _not_found(path: str) -> str:
    return _text(path, FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT)))


@contextmanager
def naming_key(key_id: str | None, algorithm: str | None = None, side: Side | None = None) -> Iterator[None]:
    """Let the error for a missing keyring say how to get one that has the key which is needed."""
    try:
        yield
    except KeyringError as error:
        if error.missing is None:
            raise
        reads = side == "consumer" or key_id is None  # without the id, a chain cannot send
        found = _missing(error.missing, key_id, algorithm, reads=reads)
        found.path = error.path
        raise found from error


@contextmanager
def of_keyring_option(keyring: str, root: str) -> Iterator[None]:
    """Put the option that names the wrong file, the keyring or the roots, before the path of an error."""
    try:
        yield
    except KeyringError as error:
        with below(root if error.of_root else keyring):
            raise


@contextmanager
def naming_file(path: str | os.PathLike[str]) -> Iterator[None]:
    """Add the keyring's path to an error about a key, unless the error names the path already."""
    try:
        yield
    except KeyringError as error:
        text, name = str(error), os.fspath(path)
        found = KeyringError(text if name in text else f"keyring {name}: {text}")
        found.public_only = error.public_only
        raise found from error


class _Found(NamedTuple):
    keyring: Keyring
    stamp: _Stamp
    expires_ms: float
    """The end of a snapshot; infinity for a keyring."""


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
    except ConfigError as error:  # it is no path, and may be a secret
        raise KeyringError(f"the keyring cannot be read: {error}") from None
    except (OSError, ValueError) as error:
        if isinstance(error, FileNotFoundError) and checks is None:
            raise _missing(path) from error
        raise KeyringError(_text(path, error)) from error
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


def _read_roots(path: str, *, any_owner: bool = False) -> _Found:
    """Read the keyring file of the roots; nobody should make one here, because the roots' owner has it."""
    try:
        return _read(path, "owner", any_owner=any_owner)
    except KeyringError as error:
        found = error
        if error.missing is not None:
            found = KeyringError(f"{_not_found(path)}; name the file with the root's public half")
        found.of_root = True
        raise found from error.__cause__


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
    # The mode and both times are included, so that a followed file is checked again after chmod or chown.
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
    named = error.filename if isinstance(error, OSError) else None  # may be the file of the roots
    at = os.fsdecode(named or path)
    return f"keyring {at} cannot be read: {why_unreadable(at, error)}"
