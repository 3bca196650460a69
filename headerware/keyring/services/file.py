"""The key service ``file``: key-encryption keys in a keyring file, for one machine or a mounted secret.

A wrapped data key (spec/keyring.md, "Wrapped data keys"), big-endian:

    u8        1, the version of this layout
    u16       the key-encryption key's version
    12 bytes  nonce, random
    ...       ciphertext of the data key (AES-256-GCM), and the tag of 16 bytes

The additional authenticated data is the text ``headerware wrapped key`` and a zero byte, the layout's version
(u8), the key's id (u8 length, UTF-8), its version (u16), and the context (u32 length, bytes).
"""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING, Annotated, ClassVar, Final

import msgspec

from headerware.core.awaited import Awaited
from headerware.core.errors import (
    ConfigError,
    InvalidWrappedKeyError,
    KeyDeletedError,
    KeyringError,
    KeyServiceError,
    KeyServiceUnavailableError,
    NoSuchKeyError,
)
from headerware.core.options import PATH
from headerware.keyring.file import (
    MAX_STALE_MS,
    KeyringFile,
    Permissions,
    check_keyring,
    naming_file,
    of_keyring_option,
)
from headerware.keyring.services.service import KeyServiceOptions, Wrapped

if TYPE_CHECKING:
    from collections.abc import Callable

    from headerware.core.context import Context
    from headerware.keyring.keyring import Key, Keyring

_LAYOUT: Final = 1
_HEAD: Final = struct.Struct(">BH")
_NONCE_BYTES: Final = 12
_TAG_BYTES: Final = 16
DATA_KEY_BYTES: Final = range(16, 65)
_DOMAIN: Final = b"headerware wrapped key\0"
_PUBLIC_ONLY: Final = (
    "; it has public keys only, and `keys export-public` leaves out keys that decrypt: copy the keyring that "
    "records are written with"
)


class FileKeys(KeyServiceOptions, frozen=True, kw_only=True):
    """Keep key-encryption keys in a keyring file (``headerware keys generate --algorithm aes-256``).

    Args:
        keyring: the path of the keyring file; changes are followed, so rotation needs no restart.
        permissions: ``owner``, or ``kubernetes`` for a mounted secret.
        max_stale_ms: how long the last good keyring is used while the file is missing or broken.
        root: a keyring file with the public half of an offline root; the keyring must then be a snapshot
            that the root has signed, that is newer than earlier ones, and that has not expired.
        counter: with ``root``, a file in which to remember the counter of the newest snapshot.
        await_version_ms: how long records wait for the next version of a key if a writer has it before this
            file does, in milliseconds; then they are refused. The wait is counted once for each version.
    """

    type: ClassVar[str] = "file"
    printable: ClassVar[tuple[str, ...]] = (
        "keyring",
        "permissions",
        "max_stale_ms",
        "root",
        "counter",
        "await_version_ms",
    )

    keyring: Annotated[str, PATH, msgspec.Meta(min_length=1)]
    permissions: Permissions = "owner"
    max_stale_ms: Annotated[int, msgspec.Meta(ge=0)] = MAX_STALE_MS
    root: Annotated[str | None, PATH] = None
    counter: Annotated[str | None, PATH] = None
    await_version_ms: Annotated[int, msgspec.Meta(ge=0)] = 300_000

    def __post_init__(self) -> None:
        """Refuse a counter without snapshots."""
        if self.counter is not None and self.root is None:
            raise ConfigError("only snapshots have counters: set root, too", path="counter")

    def check_files(self) -> None:
        """Read the keyring and the file of its root if this machine has them."""
        with of_keyring_option("keyring", "root"):
            check_keyring(self.keyring, self.root)

    def open(self, context: Context) -> FileKeyService:
        """Read the keyring, and return the service.

        Raises:
            KeyringError: the keyring cannot be read.
        """
        with of_keyring_option("keyring", "root"):
            file = KeyringFile(
                os.fspath(self.keyring),
                permissions=self.permissions,
                max_stale_ms=self.max_stale_ms,
                now_ms=context.now_ms(),
                root=self.root,
                counter_file=None if context.dry_run else self.counter,
            )
        return FileKeyService(file, now_ms=context.now_ms, await_version_ms=self.await_version_ms)


class FileKeyService:
    """Wrap under keys of a keyring file; calls use memory, and read the file when it changes."""

    is_local: Final = True

    def __init__(
        self, file: KeyringFile, *, now_ms: Callable[[], int], await_version_ms: int = 300_000
    ) -> None:
        self._file: Final = file
        self._now_ms: Final = now_ms
        self._awaited: Final[Awaited[tuple[str, int]]] = Awaited(await_version_ms, now_ms)

    def wrap(self, key_id: str, data_key: bytes, context: bytes) -> Wrapped:
        """Wrap under the version that is active now; see :class:`KeyService`."""
        now_ms = self._now_ms()
        keyring = self._keyring(now_ms)
        versions = self._versions(keyring, key_id)
        try:
            key = keyring.current_key(key_id, "wrap", now_ms)
        except KeyringError as error:
            gone = all(version.status in {"deleted", "revoked"} for version in versions)
            raise (KeyDeletedError if gone else KeyServiceError)(str(error)) from None
        return Wrapped(wrap_under(key, data_key, context, nonce=os.urandom(_NONCE_BYTES)), str(key.version))

    def unwrap(self, key_id: str, wrapped: bytes, context: bytes) -> bytes:
        """Unwrap under the version that the wrapped key names; see :class:`KeyService`."""
        now_ms = self._now_ms()
        version = _version_of(wrapped)
        key = self._find(key_id, version, now_ms)
        if key.status in {"revoked", "deleted"}:
            raise KeyDeletedError(f"key {key_id!r} version {version} is {key.status}")
        if "wrap" not in key.use:
            raise InvalidWrappedKeyError(f"key {key_id!r} is for {', '.join(key.use)}, not for wrapping")
        return unwrap_under(key, wrapped, context)

    def close(self) -> None:
        """Do nothing: nothing is open between calls."""

    def _keyring(self, now_ms: int) -> Keyring:
        try:
            return self._file.current(now_ms)
        except KeyringError as error:
            raise KeyServiceUnavailableError(str(error)) from error

    def _versions(self, keyring: Keyring, key_id: str) -> tuple[Key, ...]:
        try:
            with naming_file(self._file.path):
                return keyring.versions(key_id)
        except KeyringError as error:
            advice = "" if keyring.is_secret else _PUBLIC_ONLY
            raise NoSuchKeyError(f"{error}{advice}") from error

    def _find(self, key_id: str, version: int, now_ms: int) -> Key:
        self._keyring(now_ms)
        try:
            return self._file.find(key_id, version, now_ms)
        except KeyringError as error:
            if self._file.failure is not None:
                raise KeyServiceUnavailableError(
                    f"{error} when it was last read; now {self._file.failure}"
                ) from error
        keyring = self._keyring(now_ms)
        newest = self._versions(keyring, key_id)[-1].version
        if keyring.may_get(key_id, version) and self._awaited.waits((key_id, version)):
            raise NoSuchKeyError(
                f"key {key_id!r} has no version {version} here yet, the newest is {newest}: distribute the "
                "keyring"
            )
        raise InvalidWrappedKeyError(f"key {key_id!r} has no version {version}, the newest is {newest}")


def wrap_under(key: Key, data_key: bytes, context: bytes, *, nonce: bytes) -> bytes:
    """Return a data key in the layout above; a nonce must never be used twice under a key."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - heavy

    if len(data_key) not in DATA_KEY_BYTES:
        raise ValueError(f"a data key must have 16 to 64 bytes, found {len(data_key)}")
    sealed = AESGCM(key.secret or b"").encrypt(nonce, data_key, _authenticated(key, context))
    return _HEAD.pack(_LAYOUT, key.version) + nonce + sealed


def unwrap_under(key: Key, wrapped: bytes, context: bytes) -> bytes:
    """Return the data key, or raise InvalidWrappedKeyError."""
    from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - heavy
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - heavy

    body = _HEAD.size + _NONCE_BYTES
    try:
        return AESGCM(key.secret or b"").decrypt(
            wrapped[_HEAD.size : body], wrapped[body:], _authenticated(key, context)
        )
    except InvalidTag:
        raise InvalidWrappedKeyError(
            f"it was not wrapped under key {key.id!r} version {key.version} for this context, or was changed"
        ) from None


def _authenticated(key: Key, context: bytes) -> bytes:
    name = key.id.encode()
    return b"".join(
        (
            _DOMAIN,
            struct.pack(">BB", _LAYOUT, len(name)),
            name,
            struct.pack(">HI", key.version, len(context)),
            context,
        )
    )


def _version_of(wrapped: bytes) -> int:
    if len(wrapped) - _HEAD.size - _NONCE_BYTES - _TAG_BYTES not in DATA_KEY_BYTES:
        raise InvalidWrappedKeyError(
            f"expected a wrapped key, found {len(wrapped)} bytes, which cannot be one"
        )
    layout, version = _HEAD.unpack_from(wrapped)
    if layout != _LAYOUT:
        raise InvalidWrappedKeyError(f"expected layout {_LAYOUT} of a wrapped key, found {layout}")
    return int(version)
