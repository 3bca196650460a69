"""The consuming half of ``sign``: whose record it is, where it belongs, and that it is whole."""

from __future__ import annotations

import logging
from fnmatch import fnmatchcase
from glob import escape
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import msgspec

from headerware.core.errors import KeyringError, SignatureError, WireFormatError
from headerware.core.header_text import decode_text
from headerware.core.headers import EMPTY, Headers, HeaderValue, Pair
from headerware.core.record import VERIFIED, Record, Verified
from headerware.keyring.signature import (
    HEADER,
    STAMP_BYTES,
    Statement,
    beginning,
    decode_stamp,
    decode_statement,
    repeats,
    rest_of_signed_bytes,
)
from headerware.keyring.signing import Verify, verifier

if TYPE_CHECKING:
    from collections.abc import Callable

    from headerware.interceptors.sign_replay import Place, ReplayWindow
    from headerware.keyring import Key, KeyringFile

_log = logging.getLogger("headerware.interceptors.sign")

_TOPICS_MAX: Final = 1024
_STATEMENTS_MAX: Final = 256
_UNSETTLED: Final = "hw.unsettled"
"""Where a record carries what :meth:`Verifying.settle` has to see to, until it has."""
_SLICE: Final = "hw.slice"
_SHOWN_MAX: Final = 60
TOPIC: Final = "{topic}"
"""What stands in an origin for the topic that a record is read from."""

Require = Literal["off", "warn", "enforce"]
Uncovered = Literal["strip", "refuse", "pass"]


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """What a reader requires; the options of the same names say what each means."""

    require: Require
    uncovered: Uncovered
    covered: frozenset[str]
    max_age_ms: int | None
    clock_skew_ms: int
    origins: tuple[tuple[str, str], ...]


class _Known(NamedTuple):
    """A statement that was met before in a topic, with its key made ready."""

    verify: Verify
    end: int
    judged: Key | None
    """The key, where it depends on the record whether it counts."""
    statement: Statement


class _Unsettled(msgspec.Struct, frozen=True, gc=False):
    """What is left to do once no step has refused a record."""

    by: Verifying
    place: Place
    missing: frozenset[str]


class Verifying:
    """Verify a session's records, for one caller at a time.

    Args:
        file: where the keys are.
        now_ms: the clock, in milliseconds since the epoch.
        own_cluster: gives the cluster that the records are read from, or None as long as it is unknown.
        rules: what is required.
        window: the replay window, or None.
    """

    __slots__ = (
        "_file",
        "_known",
        "_own_cluster",
        "_rules",
        "_warned",
        "_window",
        "on_consume",
        "uncovered",
        "unsigned",
    )

    def __init__(
        self,
        file: KeyringFile,
        *,
        now_ms: Callable[[], int],
        own_cluster: Callable[[], str | None],
        rules: Rules,
        window: ReplayWindow | None,
    ) -> None:
        self._file = file
        self._own_cluster = own_cluster
        self._rules = rules
        self._window = window
        self._known: dict[str, dict[bytes, _Known]] = {}
        self._warned: set[str] = set()
        self.unsigned: int = 0
        self.uncovered: int = 0
        self.on_consume: Final[Callable[[Record], Record]] = self._hook(now_ms)

    @property
    def settles(self) -> bool:
        """Whether anything is left to do once a record has passed all other steps."""
        return self._window is not None or bool(self._rules.covered) or self._rules.uncovered == "pass"

    def settle(self, record: Record) -> Record:
        """Do what waits until no step has refused a record.

        A sequence counts as seen only now, so that a refused copy does not make the genuine record a replay.
        Which headers are covered is judged now, for of a message in slices only the first has any. And only
        now does the application get what no step may see.

        Raises:
            SignatureError: a header is not covered that must be, or a copy was seen meanwhile.
        """
        local = record.local
        mine = None if local is None else local.get(_UNSETTLED)
        if local is None or mine is None or mine.by is not self:
            return record
        verified: Verified = local[VERIFIED]
        if mine.missing:
            raise _uncovered(mine.missing)
        if self._window is not None:
            self._window.remember(verified, mine.place)
        headers = record.headers
        return Record(
            record.topic,
            record.value,
            record.key,
            Headers.trusted((*headers, *verified.set_aside)) if verified.set_aside else headers,
            record.partition,
            record.timestamp_ms,
            record.timestamp_type,
            record.offset,
            record.leader_epoch,
            {name: state for name, state in local.items() if name != _UNSETTLED},
        )

    def _hook(self, now_ms: Callable[[], int]) -> Callable[[Record], Record]:
        check, unusual, new = self._check(now_ms), self._unusual, tuple.__new__

        def on_consume(record: Record) -> Record:
            headers = record.headers
            if not headers or headers[-1][0] != HEADER:
                return unusual(record, check)
            covered = headers[:-1]
            local = check(record, headers[-1][1], covered, ())
            return Record(
                record.topic,
                record.value,
                record.key,
                new(Headers, covered),
                record.partition,
                record.timestamp_ms,
                record.timestamp_type,
                record.offset,
                record.leader_epoch,
                local if record.local is None else {**record.local, **local},
            )

        return on_consume

    def _check(
        self, now_ms: Callable[[], int]
    ) -> Callable[[Record, HeaderValue, tuple[Pair, ...], tuple[Pair, ...]], dict[str, Any]]:
        # One function with everything bound, for it runs once a record; the rest is met once a statement.
        current, own_cluster = self._file.current, self._own_cluster
        rest, meet, remember, judge = rest_of_signed_bytes(), self._meet, self._remember, self._judge
        known_in, stamp_of, max_age_ms = self._known, decode_stamp, self._rules.max_age_ms
        unsettled = self._unsettled if self.settles else None
        passes = self._rules.uncovered == "pass"
        to_layout, new_verified = decode_text, Verified
        nothing: dict[bytes, _Known] = {}
        keyring, own = current(now_ms()), own_cluster()

        def check(
            record: Record, text: HeaderValue, covered: tuple[Pair, ...], later: tuple[Pair, ...]
        ) -> dict[str, Any]:
            nonlocal keyring, own
            now = now_ms()
            newest = current(now)
            if newest is not keyring or (own is None and own_cluster() is not None):
                known_in.clear()
                keyring, own = newest, own_cluster()
            try:
                value = to_layout(text, HEADER)
            except WireFormatError as error:
                raise SignatureError(f"its hw.sig cannot be read: {error}") from error
            topic = record.topic
            met = known_in.get(topic, nothing)
            # All but stamp and signature is the statement: 24 + 32 bytes for HMAC, 24 + 64 for Ed25519.
            known = met.get(value[:-56]) or met.get(value[:-88])
            ready = known or meet(record, value, own, now)
            verify, end, judged, statement = ready
            stamp = value[end : end + STAMP_BYTES]
            if not verify(rest(stamp, record.key, record.value, covered), value[end + STAMP_BYTES :]):
                raise SignatureError(_mismatch(statement))
            signed_at_ms, producer, sequence = stamp_of(stamp)
            if judged is not None or max_age_ms is not None:
                judge(judged, statement, record, signed_at_ms, now)
            if not known:
                remember(topic, value[:end], ready)
            verified = new_verified(
                statement.key_id,
                statement.key_version,
                signed_at_ms,
                statement.cluster,
                statement.topic,
                producer,
                sequence,
            )
            if later:
                verified = msgspec.structs.replace(
                    verified,
                    uncovered=tuple(pair[0] for pair in later),
                    set_aside=Headers.trusted(later) if passes else EMPTY,
                )
            if unsettled is None:
                return {VERIFIED: verified}
            return {VERIFIED: verified, _UNSETTLED: unsettled(verified, record, covered)}

        return check

    def _unsettled(self, verified: Verified, record: Record, covered: tuple[Pair, ...]) -> _Unsettled:
        place = (record.topic, record.partition, record.offset)
        if self._window is not None:
            self._window.look(verified, place)
        missing = self._rules.covered
        if missing:
            names = {pair[0] for pair in covered}
            missing = missing - names
            if missing and _SLICE not in names:
                raise _uncovered(missing)
        return _Unsettled(self, place, missing)

    def _meet(self, record: Record, value: bytes, own: str | None, now_ms: int) -> _Known:
        try:
            statement, end = decode_statement(value)
            key = self._file.find(statement.key_id, statement.key_version, now_ms)
        except WireFormatError as error:
            raise SignatureError(f"its hw.sig cannot be read: {error}") from error
        except KeyringError as error:
            if self._file.failure is not None:  # nobody can tell what keys there are
                raise KeyringError(f"{error}, as it was last read: {self._file.failure}") from error
            raise SignatureError(f"signed with a key that is not trusted here: {error}") from error
        self._check_origin(statement, record.topic, own)
        ready = verifier(key, beginning(key.algorithm, value[:end]))
        is_bound = key.not_before is not None or key.not_after is not None
        if not is_bound:
            _require_permitted(key, statement, decode_stamp(value[end : end + STAMP_BYTES])[0], now_ms)
        judged = key if is_bound or key.status == "revoked" else None
        return _Known(ready, end, judged, statement)

    def _judge(
        self, key: Key | None, statement: Statement, record: Record, signed_at_ms: int, now_ms: int
    ) -> None:
        """Refuse a record whose signature fits but comes too late, too early, or from a key without a say."""
        if key is not None:
            if not key.verifies_at(record.topic, record.partition, record.offset):
                raise SignatureError(f"signed with {_key_name(statement)}, which is revoked")
            _require_permitted(key, statement, signed_at_ms, now_ms)
        max_age_ms, clock_skew_ms = self._rules.max_age_ms, self._rules.clock_skew_ms
        if max_age_ms is None:
            return
        if now_ms - signed_at_ms > max_age_ms:
            raise SignatureError(f"signed {now_ms - signed_at_ms} ms ago; max_age_ms is {max_age_ms}")
        if signed_at_ms - now_ms > clock_skew_ms:
            ahead_ms = signed_at_ms - now_ms
            raise SignatureError(
                f"signed {ahead_ms} ms in the future by the clock here; clock_skew_ms is {clock_skew_ms}"
            )

    def _check_origin(self, statement: Statement, topic: str, own: str | None) -> None:
        same_cluster = not statement.cluster or own is None or statement.cluster == own
        if same_cluster and statement.topic == topic:
            return
        for cluster, name in self._rules.origins:
            permitted = name.replace(TOPIC, escape(topic))
            if fnmatchcase(statement.cluster, cluster) and fnmatchcase(statement.topic, permitted):
                return
        raise SignatureError(
            f"signed for topic {statement.topic!r} of cluster {_cluster_name(statement.cluster)}, found in "
            f"topic {topic!r} of cluster {_cluster_name(own)}; accept_origins permits no such origin"
        )

    def _remember(self, topic: str, statement: bytes, known: _Known) -> None:
        met = self._known.get(topic)
        if met is None:
            if len(self._known) >= _TOPICS_MAX:
                self._known.clear()
            met = self._known[topic] = {}
        if len(met) >= _STATEMENTS_MAX:
            met.clear()
        met[statement] = known

    def _unusual(self, record: Record, check: Callable[..., dict[str, Any]]) -> Record:
        headers = record.headers
        names = headers.names()
        if HEADER not in names:
            return self._unsigned(record)
        at = names.index(HEADER)
        covered, later, added = headers[:at], headers[at + 1 :], names[at + 1 :]
        if repeats(names[:at], added):
            raise SignatureError(
                "a header that was added behind hw.sig repeats a signed name, or its name begins with hw. "
                "(in any case) or is an id of such a name"
            )
        if self._rules.uncovered == "refuse":
            raise SignatureError(
                f"{len(added)} headers stand behind hw.sig and are not covered, the first of them "
                f'{added[0][:_SHOWN_MAX]!r} (uncovered = "refuse")'
            )
        local = check(record, headers[at][1], covered, later)
        self.uncovered += 1
        return record.replace(headers=Headers.trusted(covered), local={**(record.local or {}), **local})

    def _unsigned(self, record: Record) -> Record:
        if self._rules.require == "enforce":
            raise SignatureError("expected a signature, found no hw.sig header")
        self.unsigned += 1
        if self._rules.require == "warn" and record.topic not in self._warned:
            if len(self._warned) < _TOPICS_MAX:
                self._warned.add(record.topic)
            _log.warning("topic %r has records without a signature", record.topic)
        return record


def _require_permitted(key: Key, statement: Statement, signed_at_ms: int, now_ms: int) -> None:
    refusal = key.refusal(statement.topic, signed_at_ms, now_ms)
    if refusal is not None:
        raise SignatureError(f"signed with a key that may not vouch for it: {refusal}")


def _uncovered(missing: frozenset[str]) -> SignatureError:
    names = ", ".join(map(repr, sorted(missing)))
    return SignatureError(f"expected these headers to be there and to be covered by the signature: {names}")


def _mismatch(statement: Statement) -> str:
    return (
        f"the signature by {_key_name(statement)} does not fit the record: its key, value, covered headers "
        "or the signature itself were changed, or another key of that name signed"
    )


def _key_name(statement: Statement) -> str:
    return f"key {statement.key_id!r} version {statement.key_version}"


def _cluster_name(cluster: str | None) -> str:
    return repr(cluster) if cluster else "(unknown)"
