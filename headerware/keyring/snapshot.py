"""Keyring snapshots: keyrings with a counter and an expiry that an offline root has signed (spec/keyring.md).

A system that distributes snapshots cannot make or change one. Readers notice if it puts an older snapshot
back, or if it keeps new snapshots from them until the last one has expired.

The Ed25519 signature covers, big-endian:

    28 bytes     "headerware keyring snapshot" and a zero byte
    u8           1, the version of this layout
    u8 length    the root key's id, UTF-8
    u16          the root key's version
    u64          the counter
    u64, u64     created and expires, in milliseconds since the epoch
    u32 length   the keyring file
"""

from __future__ import annotations

import errno
import hashlib
import os
import struct
from datetime import datetime
from typing import Annotated, Any, Final, Literal

import msgspec

from headerware.core.errors import KeyringError
from headerware.core.strict_json import MAX_INTEGER, decode_json
from headerware.keyring.document import SNAPSHOT_FORMAT, decode_keyring, encode_keyring
from headerware.keyring.keyring import Key, Keyring, Moment, require_zones
from headerware.keyring.signature import signer, verifier

SNAPSHOT_USE: Final = "snapshots"
_VERSION: Final = 1
_DOMAIN: Final = b"headerware keyring snapshot\0"
_MAX_COUNTER_FILE_BYTES: Final = 128
_Counter = Annotated[int, msgspec.Meta(ge=1, le=MAX_INTEGER)]


class Snapshot(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A signed keyring, as it is distributed.

    Args:
        root: the id of the root key that signed it.
        root_version: that key's version.
        counter: increases with each snapshot; a snapshot with a lower counter is older.
        created: when it was signed.
        expires: the moment from which on it is no longer used.
        keyring: the keyring file.
        signature: Ed25519's, 64 bytes.
    """

    format: Literal["headerware-keyring-snapshot"] = SNAPSHOT_FORMAT
    version: Literal[1] = _VERSION
    root: str
    root_version: int
    counter: _Counter
    created: Moment
    expires: Moment
    keyring: bytes
    signature: bytes = b""

    @property
    def expires_ms(self) -> int:
        """The end, in milliseconds since the epoch."""
        return _ms(self.expires)

    def __repr__(self) -> str:
        """Return a text without the keyring."""
        return f"Snapshot(root={self.root!r}, counter={self.counter}, expires={self.expires.isoformat()})"


def sign_snapshot(
    keyring: Keyring, root: Key, *, counter: int, created: datetime, expires: datetime
) -> Snapshot:
    """Sign a keyring.

    Args:
        keyring: the keyring that readers are to use.
        root: the root key, with its private half; its use is ``snapshots``.
        counter: one more than the counter of the snapshot before; 1 for the first snapshot.
        created: now, with a time zone; kept in whole seconds.
        expires: the moment when readers stop using it, with a time zone; kept in whole seconds.

    Raises:
        KeyringError: the key cannot sign snapshots, a moment has no time zone, or ``expires`` is not later
            than ``created``.
    """
    require_zones(created=created, expires=expires)
    _require_root(root, created)
    if root.private is None:
        raise KeyringError(f"root key {root.id!r} version {root.version} has only its public half here")
    unsigned = Snapshot(
        root=root.id,
        root_version=root.version,
        counter=counter,
        created=created.replace(microsecond=0),
        expires=expires.replace(microsecond=0),
        keyring=encode_keyring(keyring),
    )
    if not unsigned.created < unsigned.expires:
        raise KeyringError(f"a snapshot must expire later than it is created, {created.isoformat()}")
    if not 1 <= counter <= MAX_INTEGER:
        raise KeyringError(f"a snapshot's counter must be 1 to {MAX_INTEGER}, found {counter}")
    return msgspec.structs.replace(unsigned, signature=signer(root, _DOMAIN)(_signed_bytes(unsigned)))


def encode_snapshot(snapshot: Snapshot) -> bytes:
    """Return a snapshot as JSON."""
    return msgspec.json.format(msgspec.json.encode(snapshot), indent=2) + b"\n"


def verify_snapshot(text: bytes, roots: Keyring, *, source: str = "snapshot") -> tuple[Snapshot, Keyring]:
    """Verify a snapshot's signature, and return it with its keyring; counter and expiry are not checked.

    Args:
        text: the JSON.
        roots: the public halves of the root keys that are trusted.
        source: the snapshot's name in errors, such as its path.

    Raises:
        KeyringError: the text is not a snapshot, or none of these roots signed it.
    """
    try:
        snapshot = decode_json(text, Snapshot)
    except ValueError:
        # The error may quote a value that is a secret.
        raise KeyringError(
            f"{source} is no snapshot of a keyring: headerware keys sign-snapshot makes them"
        ) from None
    try:
        root = roots.verifying_key(snapshot.root, snapshot.root_version)
    except KeyringError as error:
        raise KeyringError(f"{source} is signed by a root that is not trusted here: {error}") from error
    try:
        _require_root(root, snapshot.created)
    except KeyringError as error:
        raise KeyringError(f"{source}: {error}") from error
    if not verifier(root, _DOMAIN)(_signed_bytes(snapshot), snapshot.signature):
        raise KeyringError(f"{source} was changed, or was not signed by root key {snapshot.root!r}")
    return snapshot, decode_keyring(snapshot.keyring, source=source)


class SnapshotChecks:
    """Accept only snapshots that are newer than the last one and have not expired.

    The highest counter is remembered in memory, and in a file if there is one, so that a restart does not
    forget it. For one caller at a time; processes may share the file.

    Args:
        roots: the public halves of the root keys that are trusted.
        counter_file: where to remember the highest counter, or None.
    """

    def __init__(self, roots: Keyring, counter_file: str | None = None) -> None:
        self.trust(roots)
        self._counter_file: Final = counter_file
        self._highest = (0, "")

    def trust(self, roots: Keyring) -> None:
        """Trust these roots from now on, and no others.

        Raises:
            KeyringError: a root has its private half.
        """
        if roots.is_secret:
            raise KeyringError(
                "the root has its private half here, and this half belongs offline: headerware keys "
                "export-public makes the file that readers need"
            )
        self._roots = roots

    def accept(self, text: bytes, now_ms: int, *, source: str = "snapshot") -> tuple[Snapshot, Keyring]:
        """Verify a snapshot, and return it with its keyring.

        Raises:
            KeyringError: as :func:`verify_snapshot`; or the snapshot has expired, is older than the last
                accepted one, or differs from the accepted one with the same counter.
        """
        snapshot, keyring = verify_snapshot(text, self._roots, source=source)
        require_unexpired(snapshot.expires_ms, now_ms, source=source)
        self._require_newer(_counter_and_digest(snapshot), source)
        return snapshot, keyring

    def remember(self, text: bytes, *, source: str = "snapshot") -> None:
        """Count a snapshot as accepted, even if it has expired.

        Raises:
            KeyringError: as :func:`verify_snapshot`.
        """
        self._highest = _counter_and_digest(verify_snapshot(text, self._roots, source=source)[0])

    def _require_newer(self, found: tuple[int, str], source: str) -> None:
        _require_follows(self._highest, found, source)
        if self._counter_file is not None and found != self._highest:
            try:
                _advance(self._counter_file, found, source)
            except OSError as error:
                raise KeyringError(
                    f"the counter of snapshots in {self._counter_file} cannot be written: {error.strerror}"
                ) from error
        self._highest = found


def _counter_and_digest(snapshot: Snapshot) -> tuple[int, str]:
    """Return the counter, and a digest that tells snapshots with the same counter apart."""
    return snapshot.counter, hashlib.sha256(_signed_bytes(snapshot)).hexdigest()


def require_unexpired(expires_ms: float, now_ms: int, *, source: str) -> None:
    """Raise KeyringError if a snapshot has expired."""
    if now_ms >= expires_ms:
        raise KeyringError(
            f"{source} expired {(now_ms - expires_ms) / 1000:,.0f} s ago, and no newer one has arrived: "
            "either nobody signed one, or somebody keeps it back"
        )


def _require_follows(highest: tuple[int, str], found: tuple[int, str], source: str) -> None:
    if found[0] < highest[0]:
        raise KeyringError(
            f"{source} is older than the last snapshot: its counter is {found[0]}, expected {highest[0]} or "
            "more; somebody put an older keyring back"
        )
    if found[0] == highest[0] and found[1] != highest[1]:
        raise KeyringError(
            f"{source} differs from the last snapshot, but has the same counter, {found[0]}: sign a newer one"
        )


def _advance(path: str, found: tuple[int, str], source: str) -> None:
    """Write a counter and its digest to a locked file; raise KeyringError for a lower counter."""
    import fcntl  # noqa: PLC0415 - needs a POSIX system

    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    descriptor = os.open(path, flags, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        before = os.pread(descriptor, _MAX_COUNTER_FILE_BYTES, 0)
        if before:
            counter, _, digest = before.decode("ascii", "replace").strip().partition(" ")
            if not counter.isdecimal() or len(digest) != hashlib.sha256().digest_size * 2:
                raise KeyringError(f"{path} holds no counter of snapshots: remove it if that is safe")
            _require_follows((int(counter), digest), found, source)
        after = f"{found[0]:019} {found[1]}\n".encode()  # of a fixed length
        if os.pwrite(descriptor, after, 0) < len(after):
            os.pwrite(descriptor, before, 0)
            os.ftruncate(descriptor, len(before))
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _require_root(root: Key, created: datetime) -> None:
    name = f"root key {root.id!r} version {root.version}"
    if root.algorithm != "ed25519" or SNAPSHOT_USE not in root.use:
        raise KeyringError(f"{name} is not for snapshots: expected ed25519 and the use {SNAPSHOT_USE}")
    if root.status == "revoked":
        raise KeyringError(f"{name} is revoked")
    if root.not_before is not None and created < root.not_before:
        raise KeyringError(f"{name} may sign from {root.not_before.isoformat()}, not {created.isoformat()}")
    if root.not_after is not None and created > root.not_after:
        raise KeyringError(f"{name} may sign until {root.not_after.isoformat()}, not {created.isoformat()}")


def _signed_bytes(snapshot: Snapshot) -> bytes:
    root = snapshot.root.encode()
    if len(root) > 255 or not 0 <= snapshot.root_version <= 0xFFFF:
        raise KeyringError(
            "the snapshot names an impossible root key: its id is over 255 bytes or its version no u16"
        )
    return b"".join(
        (
            struct.pack(">BB", _VERSION, len(root)),
            root,
            struct.pack(">HQQQI", *_numbers(snapshot), len(snapshot.keyring)),
            snapshot.keyring,
        )
    )


def _numbers(snapshot: Snapshot) -> tuple[Any, ...]:
    return (
        snapshot.root_version,
        snapshot.counter,
        max(0, _ms(snapshot.created)),
        max(0, _ms(snapshot.expires)),
    )


def _ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)
