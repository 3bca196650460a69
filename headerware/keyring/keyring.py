"""The keyring: named keys with versions, as an immutable value.

A key keeps its id through rotation. The newest version signs, and older versions still verify. A revoked
version verifies only records below the offset from which it is revoked. Likewise, the newest version of a
key-encryption key wraps data keys, and older versions still unwrap. Until the ``not_before`` of a new
version, the version before it is used. The ``repr`` of a key does not show its material.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from typing import Annotated, Final, Literal
from unicodedata import is_normalized

import msgspec

from headerware.core.errors import ConfigError, KeyringError
from headerware.core.strict_json import MAX_INTEGER
from headerware.core.suggestions import did_you_mean
from headerware.core.topics import TopicPatterns, check_patterns, is_topic_name
from headerware.keyring.asymmetric import SCHEMES

Algorithm = Literal["hmac-sha256", "ed25519", "ecdsa-p256", "rsa-pss-sha256", "aes-256"]
Status = Literal["active", "retired", "revoked", "deleted"]
Moment = Annotated[datetime, msgspec.Meta(tz=True)]

HMAC_SECRET_MIN_BYTES: Final = 32
_HMAC_SECRET_MAX_BYTES: Final = 1024
_SECRET_MIN_DISTINCT: Final = 8
"""32 random bytes have at least this many different values; a secret with fewer is a placeholder."""
AES_BYTES: Final = 32
_KEY_ID_MAX_BYTES: Final = 255
KEY_VERSION_MAX: Final = 0xFFFF
SIGN_USE: Final = ("sign",)
WRAP_USE: Final = ("wrap",)
_PARTITION: Final = re.compile(r"[^/\s]+/([^\[]+)\[(0|[1-9][0-9]{0,9})\]")
"""A partition in ``revoked_from``: the cluster's id, the topic, and the partition's number."""
_MAX_PARTITION: Final = 2**31 - 1
_PURPOSE: Final = re.compile(r"[a-z][a-z0-9_-]{0,63}")
_MOMENTS: Final = ("created", "rotated", "revoked", "deleted", "not_before", "not_after")


def key_id_problem(key_id: str) -> str | None:
    """Return why a text cannot be a key's id, or None if it can."""
    if (
        key_id.isprintable()
        and key_id == key_id.strip()
        and is_normalized("NFC", key_id)
        and 1 <= len(key_id.encode()) <= _KEY_ID_MAX_BYTES
    ):
        return None
    return (
        f"a key's id must be 1 to {_KEY_ID_MAX_BYTES} bytes of printable text: no line breaks or control "
        "characters, no space at either end, accents composed (NFC)"
    )


def require_zones(**moments: datetime | None) -> None:
    """Raise KeyringError for a moment without a time zone: Python takes it as the machine's local time."""
    for name, moment in moments.items():
        if _lacks_zone(moment):
            raise KeyringError(f"{name}: expected a moment with a time zone, found one without")


class Key(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One version of a key.

    Args:
        id: the key's name, 1 to 255 bytes of printable text.
        version: 1 to 65535; rotation counts it up.
        algorithm: the algorithm that it signs or wraps with; a record cannot choose another.
        status: ``active`` signs and verifies, ``retired`` verifies, and signs until the next version begins,
            ``revoked`` does neither; likewise for wrapping and unwrapping. ``deleted`` no longer has any
            material.
        created: when this version was made.
        rotated: when the next version took over, or None.
        revoked: when it was revoked, or None.
        deleted: when its material was deleted, or None.
        secret: the key of HMAC, 32 to 1024 bytes, or of AES, 32 bytes.
        private: the private half, for an algorithm that has two halves.
        public: the public half; it is enough to verify.
        revoked_from: ``{"lkc-1/orders[3]": 1042}``: in these partitions of a cluster, records below the
            offset still verify although the key is revoked.
        reason: why it was revoked, for people.
        topics: patterns of the topics that it may sign for, as interceptors take them (``orders.*``,
            ``!orders.test``); None means every topic, and an empty list no topic.
        use: its purposes; a key without ``sign`` neither signs nor verifies records, and one without ``wrap``
            neither wraps nor unwraps data keys.
        not_before: the first moment at which it may sign or wrap, or None.
        not_after: the last moment at which it may sign or wrap, or None.

    Raises:
        ValueError: the material does not fit the algorithm, or a field is out of range.
    """

    id: str
    version: int
    algorithm: Algorithm
    status: Status
    created: Moment
    rotated: Moment | None = None
    revoked: Moment | None = None
    deleted: Moment | None = None
    secret: bytes | None = None
    private: bytes | None = None
    public: bytes | None = None
    revoked_from: dict[str, int] = {}
    reason: str | None = None
    topics: tuple[str, ...] | None = None
    use: tuple[str, ...] = msgspec.field(
        default_factory=lambda: SIGN_USE
    )  # a factory, so that the field is always written
    not_before: Moment | None = None
    not_after: Moment | None = None

    def __post_init__(self) -> None:
        """Refuse a key that could not work."""
        if problem := key_id_problem(self.id):
            raise ValueError(problem)
        if not 1 <= self.version <= KEY_VERSION_MAX:
            raise ValueError(f"a key's version must be 1 to {KEY_VERSION_MAX}, found {self.version}")
        wrong = _WRONG[self.algorithm](self)
        if wrong:
            raise ValueError(f"{_name(self)} is {self.algorithm}: {wrong}")
        wrong = _wrong_limits(self)
        if wrong:
            raise ValueError(f"{_name(self)}: {wrong}")

    @property
    def is_secret(self) -> bool:
        """Whether it holds material that only its owner may read."""
        return self.secret is not None or self.private is not None

    @property
    def public_half(self) -> bytes | None:
        """The public half, derived from the private half if the key has one; None for a key with a secret."""
        if self.private is None:
            return self.public
        return SCHEMES[self.algorithm].public_half(self.private)

    @property
    def limits_ms(self) -> tuple[float, float]:
        """The first and last moment at which it may sign or wrap, in milliseconds; infinity for no limit."""
        begins_ms = -math.inf if self.not_before is None else _ms(self.not_before)
        return begins_ms, math.inf if self.not_after is None else _ms(self.not_after)

    def verifies_at(self, cluster: str | None, topic: str, partition: int | None, offset: int | None) -> bool:
        """Return whether the key, even if revoked, may verify a record at a position.

        ``cluster`` is the id of the cluster that the record was read from, or None if it is unknown. Then a
        revoked key verifies nothing, because each cluster has its own offsets.
        """
        if self.status != "revoked":
            return True
        limit = self.revoked_from.get(f"{cluster}/{topic}[{partition}]") if cluster else None
        return limit is not None and offset is not None and offset < limit

    def refusal(
        self, topic: str, at_ms: int, now_ms: int | None = None, *, clock_skew_ms: int = 0
    ) -> str | None:
        """Return why the key may not sign a record, or None if it may.

        The signer states the time of signing: anyone with the key can state any moment between ``not_before``
        and ``not_after``, even after the key has expired. So a reader also passes its own clock, which must
        have reached ``not_before``, and limits the age of signatures. A lost key must be revoked.

        Args:
            topic: the topic that the record is signed for.
            at_ms: the time of signing that the record states, in milliseconds since the epoch.
            now_ms: the reader's own clock, in the same unit; None checks ``at_ms`` only, as a signer does.
            clock_skew_ms: how far the reader's clock may be behind the signer's, in milliseconds.
        """
        if "sign" not in self.use:
            return _other_use(self, "sign")
        if self.topics is not None and not _may_sign(self.topics, topic):
            named = f"topics {', '.join(self.topics)}" if self.topics else "no topic"
            return f"{_name(self)} is for {named}, not for {topic!r}"
        if self.not_before is not None:
            clocks = ("the time of signing", at_ms, 0), ("the local clock", now_ms, clock_skew_ms)
            for clock, time_ms, skew_ms in clocks:
                if time_ms is not None and time_ms + skew_ms < _ms(self.not_before):
                    since = _shown(self.not_before)
                    return f"{_name(self)} is valid from {since}, and {clock} is {_shown(time_ms)}"
        if self.not_after is not None and at_ms > _ms(self.not_after):
            until = _shown(self.not_after)
            return f"{_name(self)} is valid until {until}, and the time of signing is {_shown(at_ms)}"
        return None

    def __repr__(self) -> str:
        """Return a text without the material."""
        return (
            f"Key(id={self.id!r}, version={self.version}, algorithm={self.algorithm!r}, "
            f"status={self.status!r})"
        )


class Keyring(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True):
    """The keys of one file.

    Args:
        keys: the keys, in the file's order.

    Raises:
        ValueError: two keys have the same id and version, or an id has two active versions.
    """

    keys: tuple[Key, ...] = ()

    def __post_init__(self) -> None:
        """Refuse two keys with one id and version, and an id with two active versions."""
        seen: set[tuple[str, int]] = set()
        active: set[str] = set()
        for key in self.keys:
            if (key.id, key.version) in seen:
                raise ValueError(f"key {key.id!r} version {key.version} appears twice")
            if key.status == "active" and key.id in active:
                raise ValueError(f"key {key.id!r} has two active versions")
            seen.add((key.id, key.version))
            if key.status == "active":
                active.add(key.id)

    def current_key(self, key_id: str, use: str, now_ms: int) -> Key:
        """Return the version of a key that signs, wraps or certifies now.

        This is the active version. Before its ``not_before``, it is the newest older version that is valid
        already, so that a new version can be distributed before it signs. :meth:`Key.refusal` checks for
        which topics the key signs.

        Args:
            key_id: the key's name.
            use: the purpose, such as ``sign`` or ``wrap``.
            now_ms: the clock, in milliseconds since the epoch.

        Raises:
            KeyringError: there is no such key; no version is active, or none is valid yet; or the version
                has expired, has another purpose, or has only its public half in this keyring.
        """
        active = next((key for key in self.versions(key_id) if key.status == "active"), None)
        if active is None:
            versions = self.versions(key_id)
            if all(key.status == "retired" and not key.is_secret for key in versions):  # as all of a JWKS
                raise _public_only(versions[-1])
            states = ", ".join(map(_state, versions))
            raise KeyringError(f"key {key_id!r} has no active version ({states}): rotate it to make one")
        candidates = self._active_and_older(active)
        chosen = next((key for key in candidates if key.limits_ms[0] <= now_ms), None)
        if chosen is None:
            first = min(candidates, key=lambda key: key.limits_ms[0])
            raise KeyringError(
                f"{_name(first)} is valid from {_shown(int(first.limits_ms[0]))}, it is {_shown(now_ms)} "
                "now, and there is no older version to use until then: wait, or rotate the key for a version "
                "that is valid at once"
            )
        if use not in chosen.use:
            able = sorted({repr(key.id) for key in self.keys if use in key.use}) or ["none"]
            raise KeyringError(f"{_other_use(chosen, use)}; keys in the keyring for this: {', '.join(able)}")
        if chosen.not_after is not None and now_ms > _ms(chosen.not_after):
            begins = self._next_begins_ms(chosen)
            later = "" if begins == math.inf else f", and the next version begins at {_shown(int(begins))}"
            raise KeyringError(
                f"{_name(chosen)} is valid until {_shown(chosen.not_after)}, it is {_shown(now_ms)} now"
                f"{later}: rotate the key with a --not-after in the future"
            )
        if not chosen.is_secret:
            raise _public_only(chosen)
        return chosen

    def term_ms(self, key: Key) -> tuple[float, float]:
        """Return the first and last moment at which a version is the current one, unless the keyring changes.

        Args:
            key: what :meth:`current_key` returns.

        Returns:
            Both in milliseconds since the epoch; infinity for no limit.
        """
        begins_ms, ends_ms = key.limits_ms
        return begins_ms, min(ends_ms, self._next_begins_ms(key) - 1)

    def _next_begins_ms(self, key: Key) -> float:
        active = next(each for each in self.versions(key.id) if each.status == "active")
        later = [each.limits_ms[0] for each in self._active_and_older(active) if each.version > key.version]
        return min(later, default=math.inf)

    def _active_and_older(self, active: Key) -> list[Key]:
        """Return a key's active version and the retired versions below it, newest first."""
        return [
            key
            for key in reversed(self.versions(active.id))
            if key is active or (key.status == "retired" and key.version < active.version)
        ]

    def verifying_key(self, key_id: str, version: int) -> Key:
        """Return one version of a key, of any status; :meth:`Key.verifies_at` checks for which records.

        Raises:
            KeyringError: no such key or version.
        """
        key = self._by_id_and_version.get((key_id, version))
        if key is None:
            raise KeyringError(f"there is no version {version} of a key {key_id!r} in the keyring")
        return key

    def may_get(self, key_id: str, version: int) -> bool:
        """Return whether a version may still arrive: it is the next version of a key in this keyring.

        Versions count up by one. A writer can name any version, so no version but the next is waited for.
        """
        newest = self._newest.get(key_id)
        return newest is not None and version == newest + 1

    def versions(self, key_id: str) -> tuple[Key, ...]:
        """Return all versions of a key, oldest first.

        Raises:
            KeyringError: no such key.
        """
        found = sorted((key for key in self.keys if key.id == key_id), key=lambda key: key.version)
        if not found:
            near = did_you_mean(key_id, {key.id for key in self.keys})
            raise KeyringError(f"there is no key {key_id!r} in the keyring: {self._names()}{near}")
        return tuple(found)

    @property
    def is_secret(self) -> bool:
        """Whether it holds material that only its owner may read."""
        return any(key.is_secret for key in self.keys)

    @cached_property
    def _by_id_and_version(self) -> dict[tuple[str, int], Key]:
        return {(key.id, key.version): key for key in self.keys}

    @cached_property
    def _newest(self) -> dict[str, int]:
        return {key.id: key.version for key in sorted(self.keys, key=lambda key: key.version)}

    def _names(self) -> str:
        names = sorted({key.id for key in self.keys})
        return f"it has {', '.join(map(repr, names))}" if names else "it is empty"


def _public_only(key: Key) -> KeyringError:
    error = KeyringError(
        f"{_name(key)} has only its public half here: it verifies, but cannot sign; use the "
        "keyring that has its private half"
    )
    error.public_only = True
    return error


def _name(key: Key) -> str:
    return f"key {key.id!r} version {key.version}"


def _state(key: Key) -> str:
    since = {"revoked": key.revoked, "deleted": key.deleted, "retired": key.rotated}.get(key.status)
    return f"version {key.version} {key.status}{f' since {_shown(since)}' if since else ''}"


def _other_use(key: Key, use: str) -> str:
    wanted = {"sign": "signing records", "wrap": "wrapping"}.get(use, use)
    return f"{_name(key)} is for {', '.join(key.use)}, not for {wanted}"


@lru_cache(maxsize=1024)
def _may_sign(topics: tuple[str, ...], topic: str) -> bool:
    return bool(topics) and TopicPatterns(topics).matches(topic)


def _lacks_zone(moment: datetime | None) -> bool:
    return moment is not None and moment.utcoffset() is None


def _ms(moment: datetime) -> float:
    return moment.timestamp() * 1000


def _shown(moment: datetime | int) -> str:
    try:
        at = datetime.fromtimestamp(moment / 1000, UTC) if isinstance(moment, int) else moment.astimezone(UTC)
    except (OverflowError, ValueError, OSError):
        return f"{moment} ms since 1970"
    return at.isoformat(timespec="milliseconds")


def _wrong_limits(key: Key) -> str | None:
    try:
        check_patterns(key.topics or (), path="topics")
    except ConfigError as error:
        return f"its {error}"
    if not all(map(_is_position, key.revoked_from, key.revoked_from.values())):
        return "its revoked_from must have offsets of 0 or more, by cluster/topic[partition]"
    if key.algorithm != "aes-256" and "wrap" in key.use:
        return "it cannot wrap data keys: wrapping takes aes-256"
    if key.algorithm != "aes-256" and key.status == "deleted":
        return "its status must be active, retired or revoked: only keys that wrap can be deleted"
    if not key.use or not all(map(_PURPOSE.fullmatch, key.use)):
        return "its use must be one or more lower-case words, such as sign"
    for name in _MOMENTS:
        if _lacks_zone(getattr(key, name)):
            return f"its {name} has no time zone"
    if key.not_before is not None and key.not_after is not None and key.not_after < key.not_before:
        return "its not_after is earlier than its not_before"
    return None


def _is_position(partition: str, offset: int) -> bool:
    found = _PARTITION.fullmatch(partition)
    if found is None or not is_topic_name(found[1]):
        return False
    return int(found[2]) <= _MAX_PARTITION and 0 <= offset <= MAX_INTEGER


def _wrong_hmac(key: Key) -> str | None:
    if key.private is not None or key.public is not None:
        return "expected a secret, and neither a private nor a public half"
    if key.secret is None:
        return "its secret is missing"
    if not HMAC_SECRET_MIN_BYTES <= len(key.secret) <= _HMAC_SECRET_MAX_BYTES:
        wanted = f"{HMAC_SECRET_MIN_BYTES} to {_HMAC_SECRET_MAX_BYTES} bytes"
        return f"its secret must have {wanted}, found {len(key.secret)}"
    if len(set(key.secret)) < _SECRET_MIN_DISTINCT:
        return "its secret repeats a few bytes and can be guessed: generate a random one"
    return None


def _wrong_aes(key: Key) -> str | None:
    if key.private is not None or key.public is not None:
        return "expected a secret, and neither a private nor a public half"
    if "sign" in key.use:
        return 'it cannot sign: its use must be ["wrap"]'
    if key.topics is not None or key.revoked_from:
        return "topics and revoked_from are for keys that sign"
    if key.status == "deleted":
        return None if key.secret is None else "it is deleted, and must have no secret"
    if key.secret is None:
        return "its secret is missing"
    if len(key.secret) != AES_BYTES:
        return f"its secret must have {AES_BYTES} bytes, found {len(key.secret)}"
    if len(set(key.secret)) < _SECRET_MIN_DISTINCT:
        return "its secret repeats a few bytes and can be guessed: generate a random one"
    return None


def _wrong_halves(key: Key) -> str | None:
    if key.secret is not None:
        return "expected a private or a public half, and no secret"
    if key.private is None and key.public is None:
        return "its private and public half are both missing"
    scheme = SCHEMES[key.algorithm]
    if problem := scheme.problem(key.private, key.public):
        return problem
    if key.private is not None and key.public not in {None, scheme.public_half(key.private)}:
        return "its public half does not belong to its private half"
    return None


_WRONG: Final[Mapping[Algorithm, Callable[[Key], str | None]]] = {
    "hmac-sha256": _wrong_hmac,
    "ed25519": _wrong_halves,
    "ecdsa-p256": _wrong_halves,
    "rsa-pss-sha256": _wrong_halves,
    "aes-256": _wrong_aes,
}
