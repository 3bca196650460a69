"""Make, rotate, revoke, delete, publish and import keys.

Each function takes a keyring and returns a new one; headerware/keyring/file.py reads files, and
headerware/keyring/writing.py writes them. Moments are kept in UTC and in whole seconds.
"""

from __future__ import annotations

import secrets
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final

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
    require_zones,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

_SECRET_BYTES: Final[Mapping[str, int]] = {"hmac-sha256": HMAC_SECRET_MIN_BYTES, "aes-256": AES_BYTES}
"""The size of a new secret; the algorithms in SCHEMES have two halves instead."""


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
        KeyringError: there is a key of this name already, the name or a limit is not valid, the key has
            already expired, or a moment has no time zone.
    """
    require_zones(not_before=not_before, not_after=not_after, now=now)
    now = now or datetime.now(UTC)
    if present := next((key for key in keyring.keys if key.id == key_id), None):
        advice = "rotate it for a new version"
        if present.algorithm != algorithm:
            advice += (
                f" of {present.algorithm}; for {algorithm}, choose another id, or, if no record was ever "
                "signed or encrypted with the keys of this file, delete it and begin again"
            )
        raise KeyringError(f"there is a key {key_id!r} already: {advice}")
    _require_unexpired(key_id, not_after, now)
    new_key = _new_key(
        id=key_id,
        version=1,
        algorithm=algorithm,
        created=now,
        topics=topics,
        use=use or (WRAP_USE if algorithm == "aes-256" else SIGN_USE),
        not_before=not_before,
        not_after=not_after,
    )
    return Keyring(keys=(*keyring.keys, new_key))


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

    The new version has the topics and the use of the old version. The old version signs until the
    ``not_before`` of the new version.

    Args:
        keyring: the keyring so far.
        key_id: the key's name.
        not_before: the first moment at which the new version may sign, with a time zone. If None, the new
            version may sign at once. A ``not_before`` of the old version that has passed then holds for the
            new version, too, so that a signature that states an earlier time stays refused.
        not_after: the last moment at which the new version may sign, with a time zone; if None, the
            ``not_after`` of the old version.
        above: the highest version in another file; the new version's number is higher than this number.
        now: the time of the change, with a time zone; None means now.

    Raises:
        KeyringError: there is no such key or only its public half, its versions are used up, the new version
            has already expired, or a moment has no time zone.
    """
    require_zones(not_before=not_before, not_after=not_after, now=now)
    now = now or datetime.now(UTC)
    newest = keyring.versions(key_id)[-1]
    if newest.public is not None and newest.private is None:
        raise KeyringError(
            f"it has only the public half of {key_id!r}: rotate the key in the keyring that has its private "
            "half, and write the readers' file with --public"
        )
    version = max(newest.version, above) + 1
    if version > KEY_VERSION_MAX:
        raise KeyringError(f"key {key_id!r} has used up its {KEY_VERSION_MAX} versions: generate another")
    not_after = not_after or newest.not_after
    _require_unexpired(key_id, not_after, now)
    has_begun = newest.not_before is not None and newest.not_before <= now
    inherited_not_before = newest.not_before if has_begun else None
    new_key = _new_key(
        id=key_id,
        version=version,
        algorithm=newest.algorithm,
        created=now,
        topics=newest.topics,
        use=newest.use,
        not_before=not_before or inherited_not_before,
        not_after=not_after,
    )
    return Keyring(keys=(*_retire(keyring, new_key).keys, new_key))


def with_revocation(
    keyring: Keyring,
    key_id: str,
    *,
    version: int | None = None,
    revoked_from: Mapping[str, int] | None = None,
    reason: str | None = None,
    now: datetime | None = None,
) -> Keyring:
    """Revoke a key, or one of its versions; return the new keyring.

    A deletion is final: if some of the versions are deleted, only the others are revoked.

    Args:
        keyring: the keyring so far.
        key_id: the key's name.
        version: the version; None means all versions.
        revoked_from: ``{"lkc-1/orders[3]": 1042}``: in these partitions of a cluster, records below the
            offset still verify. These offsets replace the offsets of an earlier revocation; None keeps them.
            Offsets are used, not times, because a signer can forge times.
        reason: the reason, for people; None keeps an earlier reason.
        now: the time of the change, with a time zone; None means now.

    Raises:
        KeyringError: there is no such key or version, it is deleted, ``revoked_from`` is not valid, or
            ``now`` has no time zone.
    """
    require_zones(now=now)
    selected = [key for key in _select(keyring, key_id, version) if key.status != "deleted"]
    if not selected:
        which = f"key {key_id!r}" if version is None else f"key {key_id!r} version {version}"
        raise KeyringError(f"{which} is deleted, which is final: there is nothing left to revoke")
    now = now or datetime.now(UTC)

    def revoke(key: Key) -> Key:
        return _replace(
            key,
            status="revoked",
            revoked=key.revoked or now,
            revoked_from=key.revoked_from if revoked_from is None else dict(revoked_from),
            reason=reason or key.reason,
        )

    return _replace_keys(keyring, selected, revoke)


def with_deletion(
    keyring: Keyring,
    key_id: str,
    *,
    version: int | None = None,
    reason: str | None = None,
    now: datetime | None = None,
) -> Keyring:
    """Delete the secret of a key that wraps data keys, or of one of its versions; return the new keyring.

    Records that are encrypted under the key can never be read again. The key's id and versions stay in the
    keyring, so that readers can tell a deleted key from a key that has not arrived yet.

    Args:
        keyring: the keyring so far.
        key_id: the key's name.
        version: the version; None means all versions.
        reason: the reason, for people; None keeps an earlier reason.
        now: the time of the change, with a time zone; None means now.

    Raises:
        KeyringError: there is no such key or version, the key signs, or ``now`` has no time zone.
    """
    require_zones(now=now)
    selected = _select(keyring, key_id, version)
    if selected[0].algorithm != "aes-256":
        raise KeyringError(f"key {key_id!r} signs, and only keys that wrap can be deleted: revoke it")
    now = now or datetime.now(UTC)

    def delete(key: Key) -> Key:
        return _replace(
            key, status="deleted", secret=None, deleted=key.deleted or now, reason=reason or key.reason
        )

    return _replace_keys(keyring, selected, delete)


def public_part(keyring: Keyring) -> tuple[Keyring, tuple[Key, ...]]:
    """Return a keyring of public halves that everyone may read, and the keys without a public half.

    Keys keep their status. HMAC and AES keys have no public half: anyone who can verify or decrypt with such
    a key can also sign or encrypt with it.
    """
    public = tuple(
        _replace(key, private=None, public=key.public_half)
        for key in keyring.keys
        if key.algorithm in SCHEMES
    )
    left_out = tuple(key for key in keyring.keys if key.algorithm not in SCHEMES)
    return Keyring(keys=public), left_out


def with_public_versions(public: Keyring, keyring: Keyring, key_id: str) -> Keyring:
    """Return a keyring of public halves with the new versions of a key; other keys do not change.

    Versions that are in ``public`` already are kept. They are retired if a newer version is active, and
    revoked if they are revoked in ``keyring``; if both are revoked, a record verifies only if both
    revocations permit it. Only higher versions are added, so a version that was removed from ``public`` does
    not come back.

    Args:
        public: the keyring of public halves.
        keyring: the keyring that has the key.
        key_id: the key's name.

    Raises:
        KeyringError: the key has no public half, or ``public`` has a different key of this name.
    """
    versions = public_part(Keyring(keys=keyring.versions(key_id)))[0].keys
    if not versions:
        raise KeyringError(f"key {key_id!r} has no public half: readers that verify need the keyring itself")
    published = {key.version: key for key in public.keys if key.id == key_id}
    for key in versions:
        if key.version in published and published[key.version].public != key.public:
            raise KeyringError(
                f"key {key_id!r} version {key.version} has another public half in the readers' file: two "
                "keys have one name, so give one of them another id"
            )
    revoked = {key.version: key for key in versions if key.status == "revoked"}
    still_there = [key for key in published.values() if key.version in revoked]
    public = _replace_keys(public, still_there, lambda key: _revoked_as(key, revoked[key.version]))
    active = next((key for key in versions if key.status == "active"), None)
    if active is not None:
        public = _retire(public, active)
    missing = tuple(key for key in versions if key.version > max(published, default=0))
    return Keyring(keys=(*public.keys, *missing))


def with_imported(keyring: Keyring, public: Keyring) -> Keyring:
    """Return the keyring with the public halves of other services' keys, as these services publish them.

    A key is the keyring's own if the keyring has a secret of one of its versions; own keys do not change.
    Versions of other keys are added, or replaced with their status, revocation and limits. Limits only become
    narrower: a version keeps the limits that it has in the keyring, and a new version of a key keeps the
    ``topics`` and the ``use`` of the newest version there. A version that is revoked in the keyring stays
    there, also if ``public`` does not have it.

    Args:
        keyring: the keyring of a service that verifies the records of other services, and signs its own.
        public: the public halves that the other services publish.

    Raises:
        KeyringError: ``public`` has secrets, or another public half of a version that is in the keyring, or a
            further version of an own key; it lacks a version that the keyring trusts; or it would let the
            keyring trust a revoked version again.
    """
    if public.is_secret:
        raise KeyringError(
            "expected public halves to import, found secrets: import what the owner of the keys exports with "
            "headerware keys export-public"
        )
    own = {key.id for key in keyring.keys if key.is_secret or key.algorithm not in SCHEMES}
    known = {(key.id, key.version): key for key in keyring.keys}
    for key in public.keys:
        _require_importable(key, known.get((key.id, key.version)), is_own=key.id in own)
    newest = {key.id: key for key in sorted(keyring.keys, key=lambda key: key.version)}
    imported = {
        (key.id, key.version): _narrowed(key, known.get((key.id, key.version)), newest.get(key.id))
        for key in public.keys
        if key.id not in own
    }
    kept = [key for key in keyring.keys if (key.id, key.version) not in imported]
    changed = {key_id for key_id, _ in imported}
    for key in kept:
        if key.id in changed and key.status != "revoked":
            raise KeyringError(
                f"the imported file has key {key.id!r} and lacks its version {key.version}, which is trusted "
                "here: it may be an older file; if nobody should trust the version any more, revoke it first"
            )
    return Keyring(keys=(*kept, *imported.values()))


def _require_importable(key: Key, known: Key | None, *, is_own: bool) -> None:
    """Raise KeyringError unless a version may be imported, or is the same as the version that is known."""
    if known is None:
        if is_own:
            raise KeyringError(
                f"key {key.id!r} has its secret here, and the imported file has its version {key.version}, "
                "which is not here: two keys have one name, so give one of them another id"
            )
        return
    if (known.algorithm, known.public_half) != (key.algorithm, key.public):
        raise KeyringError(
            f"key {key.id!r} version {key.version} has another public half in the imported file: two keys "
            "have one name, so give one of them another id"
        )
    if known.status != "revoked" or is_own:
        return
    if key.status != "revoked":
        raise KeyringError(
            f"key {key.id!r} version {key.version} is revoked here, and would be trusted again: the imported "
            "file may be an older one"
        )
    if any(offset > known.revoked_from.get(at, 0) for at, offset in key.revoked_from.items()):
        raise KeyringError(
            f"key {key.id!r} version {key.version} is revoked here from lower offsets than in the imported "
            "file, and more of its records would be trusted again: the file may be an older one; if its "
            "offsets are right, state them with headerware keys revoke --from first"
        )


def _narrowed(key: Key, known: Key | None, newest: Key | None) -> Key:
    """Return an imported version with the limits that it and the keyring's version, or the newest, have."""
    here = known or newest
    if here is None:
        return key
    narrower: dict[str, Any] = {
        "topics": _common_topics(here.topics, key.topics),
        "use": tuple(purpose for purpose in key.use if purpose in here.use),
    }
    if known is not None:  # a new version has a term of its own
        begins, ends = (known.not_before, key.not_before), (known.not_after, key.not_after)
        narrower["not_before"] = max((each for each in begins if each is not None), default=None)
        narrower["not_after"] = min((each for each in ends if each is not None), default=None)
    changes = {name: value for name, value in narrower.items() if value != getattr(key, name)}
    return _replace(key, **changes) if changes else key


def _common_topics(ours: tuple[str, ...] | None, theirs: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """Return patterns of topics that both allow; patterns are compared as text."""
    if ours is None or theirs is None or ours == theirs:
        return ours if theirs is None else theirs
    if not ours or not theirs:
        return ()
    excluded = dict.fromkeys(pattern for pattern in (*ours, *theirs) if pattern.startswith("!"))
    included, others = ([each for each in of if not each.startswith("!")] for of in (theirs, ours))
    if included and others:
        included = [pattern for pattern in included if pattern in others]
        return (*included, *excluded) if included else ()
    return (*included, *others, *excluded)


def _select(keyring: Keyring, key_id: str, version: int | None) -> tuple[Key, ...]:
    versions = keyring.versions(key_id)
    selected = tuple(key for key in versions if version in {None, key.version})
    if not selected:
        numbers = ", ".join(str(key.version) for key in versions)
        raise KeyringError(f"key {key_id!r} has no version {version} in the keyring: it has {numbers}")
    return selected


def _revoked_as(key: Key, revoked: Key) -> Key:
    """Return a public version, revoked as in the keyring, but not below an offset at which it was revoked."""
    if key.status != "revoked":
        return revoked
    offsets = {
        partition: min(offset, revoked.revoked_from[partition])
        for partition, offset in key.revoked_from.items()
        if partition in revoked.revoked_from
    }
    return _replace(key, revoked_from=offsets)


def _retire(keyring: Keyring, successor: Key) -> Keyring:
    """Retire the active version of a key below a new version."""
    takes_over_at = max(successor.created, successor.not_before or successor.created)
    older = [
        key
        for key in keyring.keys
        if key.id == successor.id and key.status == "active" and key.version < successor.version
    ]
    return _replace_keys(keyring, older, partial(_replace, status="retired", rotated=takes_over_at))


def _replace_keys(keyring: Keyring, selected: Iterable[Key], change: Callable[[Key], Key]) -> Keyring:
    versions = {(key.id, key.version) for key in selected}
    return Keyring(
        keys=tuple(change(key) if (key.id, key.version) in versions else key for key in keyring.keys)
    )


def _require_unexpired(key_id: str, not_after: datetime | None, now: datetime) -> None:
    if not_after is not None and not_after < now:
        raise KeyringError(
            f"key {key_id!r} would already have expired: its not_after is "
            f"{not_after.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}; give a later not_after"
        )


def _new_key(*, algorithm: Algorithm, **fields: Any) -> Key:
    return _valid(partial(Key, algorithm=algorithm, status="active", **_new_material(algorithm)), fields)


def _new_material(algorithm: Algorithm) -> dict[str, Any]:
    if algorithm in _SECRET_BYTES:
        return {"secret": secrets.token_bytes(_SECRET_BYTES[algorithm])}
    scheme = SCHEMES[algorithm]
    private = scheme.generate()
    return {"private": private, "public": scheme.public_half(private)}


def _replace(key: Key, **changes: Any) -> Key:
    return _valid(partial(msgspec.structs.replace, key), changes)


def _valid(make: Callable[..., Key], fields: Mapping[str, Any]) -> Key:
    """Make a key from fields; raise KeyringError if they are not valid."""
    in_whole_seconds = {
        name: value.astimezone(UTC).replace(microsecond=0) if isinstance(value, datetime) else value
        for name, value in fields.items()
    }
    try:
        return make(**in_whole_seconds)
    except ValueError as error:
        raise KeyringError(str(error)) from error
