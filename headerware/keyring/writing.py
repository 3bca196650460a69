"""Edit keyring files: one writer at a time, and each writes the complete file or nothing."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headerware.core.atomic_files import replace_file
from headerware.core.errors import KeyringError
from headerware.core.plain_files import read_plain, require_path
from headerware.keyring.document import encode_keyring, is_jwks
from headerware.keyring.file import FORBIDDEN, MAX_BYTES, Permissions, naming_file, read_keyring
from headerware.keyring.jwks import encode_jwks, jwks_problem
from headerware.keyring.keyring import Keyring
from headerware.keyring.snapshot import encode_snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from headerware.keyring.snapshot import Snapshot

_SECRET_MODE: Final = 0o600
_PUBLIC_MODE: Final = 0o644


def edit_keyring(
    path: str | os.PathLike[str],
    change: Callable[[Keyring], Keyring],
    *,
    permissions: Permissions = "owner",
    create: bool = False,
) -> Keyring:
    """Change a keyring file under its lock, and return the new keyring.

    Writers wait for each other at a lock file next to the keyring, so that no writer undoes another's change.
    The new file replaces the old one in one step and keeps its owner and mode; a reader sees the old file or
    the new one. If there is no file and ``create`` is set, ``change`` gets an empty keyring.
    """
    target = Path(os.fspath(path))
    with _write_errors(target):
        # Change the target of a link; otherwise a file would replace the link.
        target = target.resolve() if permissions == "kubernetes" else target
        with _locked(target):
            fresh = create and not target.exists() and not target.is_symlink()
            before = Keyring() if fresh else read_keyring(target, permissions=permissions, jwks=False)
            with naming_file(target):
                after = change(before)
            _replace(target, after, permissions, encode_keyring)
    return after


def edit_with_public(
    path: str | os.PathLike[str],
    public: str | os.PathLike[str],
    change: Callable[[Keyring, Keyring], tuple[Keyring, Keyring]],
    *,
    permissions: Permissions = "owner",
) -> Keyring:
    """Change a keyring file and the file of its public halves, and return the new keyring.

    The file of public halves, a keyring or a JWKS, is replaced first, so that readers know a version before
    anything is signed with it. If the program ends between the two writes, repeat the call.

    Args:
        path: the keyring file.
        public: the file of public halves.
        change: takes both keyrings, and returns the new ones.
        permissions: the permissions of the keyring file, as in :func:`edit_keyring`.

    Raises:
        KeyringError: a file cannot be read or written; the file of public halves has secrets; or it is a JWKS
            and the active version has limits that a JWKS cannot state.
    """
    # Change the target of a link; otherwise readers of the target would not get the new version.
    require_path(path)
    require_path(public)
    target, shown = Path(os.fspath(path)), Path(os.path.realpath(public))
    target = target.resolve() if permissions == "kubernetes" else target
    if target.resolve() == shown:
        raise KeyringError(f"{shown} is the keyring itself, expected the file of its public halves")
    with _locks(target, shown):
        before, there = read_keyring(target, permissions=permissions, jwks=False), read_keyring(shown)
        if there.is_secret:
            raise KeyringError(f"{shown} is a keyring with secrets, expected one of public halves")
        with naming_file(target):
            after, published = change(before, there)
        encode: Callable[[Keyring], bytes] = encode_keyring
        if is_jwks(read_plain(shown, MAX_BYTES)[0]):
            with naming_file(shown):
                published, encode = _as_jwks(published), encode_jwks
        for file, keyring, encoding in ((shown, published, encode), (target, after, encode_keyring)):
            with _write_errors(file):
                _replace(file, keyring, permissions, encoding)
    return after


def _as_jwks(public: Keyring) -> Keyring:
    """Return the keys that a JWKS can have; leaving a key out revokes it in a JWKS."""
    kept = Keyring(keys=tuple(key for key in public.keys if key.status != "revoked"))
    for key in kept.keys:
        if key.status == "active" and (problem := jwks_problem(key)):
            raise KeyringError(f"key {key.id!r} version {key.version} cannot be in a JWKS: {problem}")
    return Keyring(keys=tuple(key for key in kept.keys if jwks_problem(key) is None))


def write_public_keyring(
    path: str | os.PathLike[str],
    keyring: Keyring,
    *,
    encode: Callable[[Keyring], bytes] = encode_keyring,
) -> None:
    """Write a keyring of public halves, readable by everyone; refuse one that holds secrets.

    An older public keyring is replaced; a file with secrets is never replaced. ``encode`` returns the file's
    content.
    """
    target = Path(os.fspath(path))
    if keyring.is_secret:
        raise KeyringError("a keyring with secrets is not written where everyone can read it")
    with _write_errors(target), _locked(target):
        if target.exists():
            before = read_keyring(target, permissions="owner")
            if before.is_secret:
                raise KeyringError(f"{target} is a keyring with secrets, and is not overwritten")
            _require_revoked(before, keyring, target)
        _replace(target, keyring, "owner", encode)


def write_snapshot(
    path: str | os.PathLike[str], make: Callable[[bytes | None], Snapshot], *, is_secret: bool
) -> Snapshot:
    """Make a snapshot from the file's present content, write it under the file's lock, and return it.

    ``make`` gets None if there is no file. Everyone may read the file unless the snapshot holds secrets.
    """
    target = Path(os.fspath(path))
    with _write_errors(target), _locked(target):
        made = make(read_plain(target, MAX_BYTES, follow=False)[0] if target.exists() else None)
        replace_file(
            target,
            encode_snapshot(made),
            mode=_SECRET_MODE if is_secret else _PUBLIC_MODE,
            prepare=lambda descriptor: _keep_owner(descriptor, target),
        )
    return made


def _require_revoked(before: Keyring, after: Keyring, target: Path) -> None:
    """Raise KeyringError for a keyring that would make a revoked key trusted again."""
    revoked = {(key.id, key.version) for key in before.keys if key.status == "revoked"}
    for key in after.keys:
        if (key.id, key.version) in revoked and key.status != "revoked":
            raise KeyringError(
                f"key {key.id!r} version {key.version} is revoked in {target}, and would be trusted again: "
                "revoke it in its keyring, too (headerware keys revoke --public does both)"
            )


@contextlib.contextmanager
def _locks(*targets: Path) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for target in targets:
            with _write_errors(target):
                stack.enter_context(_locked(target))
        yield


@contextlib.contextmanager
def _write_errors(target: Path) -> Iterator[None]:
    require_path(target)
    try:
        yield
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise KeyringError(f"keyring {target} cannot be written: {reason}") from error


@contextlib.contextmanager
def _locked(target: Path) -> Iterator[None]:
    lock = target.with_name(f"{target.name}.lock")
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, _SECRET_MODE)
    try:
        _keep_owner(descriptor, target)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _replace(
    target: Path, keyring: Keyring, permissions: Permissions, encode: Callable[[Keyring], bytes]
) -> None:
    replace_file(
        target,
        encode(keyring),
        mode=_mode(target, keyring, permissions),
        prepare=lambda descriptor: _keep_owner(descriptor, target),
    )


def _mode(target: Path, keyring: Keyring, permissions: Permissions) -> int:
    if not target.exists():
        return _SECRET_MODE if keyring.is_secret else _PUBLIC_MODE
    mode = stat.S_IMODE(target.stat().st_mode)
    # The new keyring may be the first with secrets in a file that everyone could read until now.
    return mode & ~FORBIDDEN[permissions] if keyring.is_secret else mode


def _keep_owner(descriptor: int, target: Path) -> None:
    # When root edits another user's keyring, that user must still be able to read and lock it.
    if not target.exists():
        return
    wanted, found = target.stat(), os.fstat(descriptor)
    if (wanted.st_uid, wanted.st_gid) != (found.st_uid, found.st_gid):
        os.fchown(descriptor, wanted.st_uid, wanted.st_gid)
