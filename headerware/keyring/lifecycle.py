"""Make, rotate, revoke, delete and publish keys.

Each function takes a keyring and returns a new one; files are read and written elsewhere.
"""

from __future__ import annotations

import secrets
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from headerware.core.errors import KeyringError
from headerware.keyring.asymmetric import SCHEMES
from headerware.keyring.keyring import (
    AES_BYTES,
    HMAC_SECRET_MIN_BYTES,
    KEY_VERSION_MAX,
    SIGN_USE,
    WRAP_USE,
    Algorithm,
    Key,
    Keyring,
)

if TYPE_CHECKING:
    from collections.abc import Mapping


def with_new_key(
    keyring: Keyring,
    key_id: str,
    algorithm: Algorithm,
    *,
    topics: tuple[str, ...] | None = None,
    use: tuple[str, ...] = (),
    not_before: datetime | None = None,
    not_after: datetime | None = None,
    now: datetime | None = None,
) -> Keyring:
    """Return the keyring with a new key, whose version 1 is active.

    Args:
        keyring: the keyring so far.
        key_id: the key's name.
        algorithm: ``hmac-sha256``, ``ed25519``, ``ecdsa-p256`` or ``rsa-pss-sha256`` to sign, ``aes-256`` to
            wrap data keys.
        topics: patterns of the topics that it may sign for; None means every topic, an empty list no topic.
        use: its purposes; if empty, the purpose of the algorithm, ``sign`` or ``wrap``.
        not_before: the first moment at which it may sign or wrap, with a time zone, or None.
        not_after: the last moment at which it may sign or wrap, with a time zone, or None.
        now: the time of creation, with a time zone; None means now.

    Raises:
        KeyringError: there is a key of this name already, or the name or a limit is not valid.
    """
    if any(key.id == key_id for key in keyring.keys):
        raise KeyringError(f"there is a key {key_id!r} already: rotate it for a new version")
    made = _key(
        id=key_id,
        version=1,
        algorithm=algorithm,
        created=now or datetime.now(UTC),
        topics=topics,
        use=use or (WRAP_USE if algorithm == "aes-256" else SIGN_USE),
        not_before=not_before,
        not_after=not_after,
    )
    return Keyring(keys=(*keyring.keys, made))


def with_rotation(
    keyring: Keyring,
    key_id: str,
    *,
    not_before: datetime | None = None,
    not_after: datetime | None = None,
    above: int = 0,
    now: datetime | None = None,
) -> Keyring:
    """Return the keyring with a new version of a key; the old version still verifies.

    The new version has the topics and the use of the old one. Until its ``not_before``, the old version
    signs.

    Args:
        keyring: the keyring so far.
        key_id: the key's name.
        not_before: the first moment at which the new version may sign. None keeps the old version's moment
            if it has passed; if not, the new version may sign at once.
        not_after: the last moment at which the new version may sign; None keeps the old version's moment.
        above: a version that is in use elsewhere; the new version gets a higher number.
        now: the time of the change, with a time zone; None means now.

    Raises:
        KeyringError: there is no such key, its versions are used up, or the new version has already expired.
    """
    at = now or datetime.now(UTC)
    newest = keyring.versions(key_id)[-1]
    version = max(newest.version, above) + 1
    if version > KEY_VERSION_MAX:
        raise KeyringError(f"key {key_id!r} has used up its {KEY_VERSION_MAX} versions: generate another")
    until = not_after or newest.not_after
    if until is not None and until < at:
        raise KeyringError(
            f"the new version of key {key_id!r} would already have expired: its not_after is "
            f"{until:%Y-%m-%dT%H:%M:%SZ}; give the new version a later one"
        )
    begun = newest.not_before if newest.not_before is not None and newest.not_before <= at else None
    made = _key(
        id=key_id,
        version=version,
        algorithm=newest.algorithm,
        created=at,
        topics=newest.topics,
        use=newest.use,
        not_before=not_before or begun,
        not_after=until,
    )
    begins = max(at, made.not_before or at)
    kept = tuple(
        _changed(key, status="retired", rotated=begins)
        if key.id == key_id and key.status == "active"
        else key
        for key in keyring.keys
    )
    return Keyring(keys=(*kept, made))


def with_revocation(
    keyring: Keyring,
    key_id: str,
    *,
    version: int | None = None,
    revoked_from: Mapping[str, int] | None = None,
    reason: str | None = None,
    now: datetime | None = None,
) -> Keyring:
    """Return the keyring in which a key, or one version of a key, is revoked.

    Args:
        keyring: the keyring so far.
        key_id: the key's name.
        version: the version; None means all versions.
        revoked_from: ``{"lkc-1/orders[3]": 1042}``: in these partitions of a cluster, records below the
            offset still verify. Times would not do, because a signer writes its own times. The offsets
            replace the offsets of an earlier revocation; None keeps these.
        reason: the reason, for people.
        now: the time of the change, with a time zone; None means now.

    Raises:
        KeyringError: no such key or version.
    """
    chosen = _chosen(keyring, key_id, version)
    at = now or datetime.now(UTC)
    numbers = {key.version for key in chosen}

    def revoked(key: Key) -> Key:
        if key.status == "deleted":  # a deletion is final
            return key
        return _changed(
            key,
            status="revoked",
            revoked=key.revoked or at,
            revoked_from=key.revoked_from if revoked_from is None else dict(revoked_from),
            reason=reason or key.reason,
        )

    return Keyring(
        keys=tuple(
            revoked(key) if key.id == key_id and key.version in numbers else key for key in keyring.keys
        )
    )


def with_deletion(
    keyring: Keyring,
    key_id: str,
    *,
    version: int | None = None,
    reason: str | None = None,
    now: datetime | None = None,
) -> Keyring:
    """Return the keyring without the material of a key that wraps data keys, or of one version of it.

    Records that are encrypted under the key can never be read again. The key's id and versions stay in the
    keyring, so that readers can tell a deleted key from a key that has not arrived yet.

    Args:
        keyring: the keyring so far.
        key_id: the key's name.
        version: the version; None means all versions.
        reason: the reason, for people.
        now: the time of the change, with a time zone; None means now.

    Raises:
        KeyringError: there is no such key or version, or the key signs.
    """
    chosen = _chosen(keyring, key_id, version)
    if chosen[0].algorithm != "aes-256":
        raise KeyringError(f"key {key_id!r} signs, and only keys that wrap can be deleted: revoke it")
    at = now or datetime.now(UTC)
    numbers = {key.version for key in chosen}

    def deleted(key: Key) -> Key:
        return _changed(
            key, status="deleted", secret=None, deleted=key.deleted or at, reason=reason or key.reason
        )

    return Keyring(
        keys=tuple(
            deleted(key) if key.id == key_id and key.version in numbers else key for key in keyring.keys
        )
    )


def public_part(keyring: Keyring) -> tuple[Keyring, tuple[Key, ...]]:
    """Return a keyring of public halves that everyone may read, and the keys without a public half.

    Keys keep their status. HMAC and AES keys have no public half: anyone who can verify or decrypt with such
    a key can also sign or encrypt with it.
    """
    public = tuple(
        _changed(key, private=None, public=key.public_half)
        for key in keyring.keys
        if key.algorithm in SCHEMES
    )
    left_out = tuple(key for key in keyring.keys if key.algorithm not in SCHEMES)
    return Keyring(keys=public), left_out


def with_public_versions(public: Keyring, keyring: Keyring, key_id: str) -> Keyring:
    """Return a keyring of public halves with the new versions of a key; other keys do not change.

    Versions that are in ``public`` already are kept, and retired if a newer version is active. Only higher
    versions are added, so a version that was removed from ``public`` does not come back.

    Args:
        public: the keyring of public halves.
        keyring: the keyring that has the key.
        key_id: the key's name.

    Raises:
        KeyringError: the key has no public half, or ``public`` has a different key of this name.
    """
    own = public_part(Keyring(keys=keyring.versions(key_id)))[0].keys
    if not own:
        raise KeyringError(f"key {key_id!r} has no public half: readers that verify need the keyring itself")
    there = {key.version: key for key in public.keys if key.id == key_id}
    for key in own:
        if key.version in there and there[key.version].public != key.public:
            raise KeyringError(
                f"key {key_id!r} version {key.version} has another public half in the readers' file: two "
                "keys have one name, so give one of them another id"
            )
    active = next((key for key in own if key.status == "active"), None)

    def kept(key: Key) -> Key:
        if key.id != key_id or key.status != "active" or active is None:
            return key
        return _changed(key, status="retired", rotated=active.not_before or active.created)

    missing = tuple(key for key in own if key.version > max(there, default=0))
    return Keyring(keys=(*map(kept, public.keys), *missing))


def _chosen(keyring: Keyring, key_id: str, version: int | None) -> tuple[Key, ...]:
    return keyring.versions(key_id) if version is None else (keyring.verifying_key(key_id, version),)


def _key(*, algorithm: Algorithm, **fields: Any) -> Key:
    try:
        return Key(algorithm=algorithm, status="active", **_in_whole_seconds(fields), **_material(algorithm))
    except ValueError as error:
        raise KeyringError(str(error)) from error


def _material(algorithm: Algorithm) -> dict[str, Any]:
    if algorithm == "hmac-sha256":
        return {"secret": secrets.token_bytes(HMAC_SECRET_MIN_BYTES)}
    if algorithm == "aes-256":
        return {"secret": secrets.token_bytes(AES_BYTES)}
    scheme = SCHEMES[algorithm]
    private = scheme.generate()
    return {"private": private, "public": scheme.public_half(private)}


def _changed(key: Key, **changes: Any) -> Key:
    return msgspec.structs.replace(key, **_in_whole_seconds(changes))


def _in_whole_seconds(fields: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value.astimezone(UTC).replace(microsecond=0) if isinstance(value, datetime) else value
        for name, value in fields.items()
    }
