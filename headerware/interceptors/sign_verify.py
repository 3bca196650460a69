"""The consuming half of ``sign``: whose record it is, where it belongs, and that it is whole."""

from __future__ import annotations

import logging
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import msgspec

from headerware.core.errors import KeyringError, SignatureError, WireFormatError
from headerware.core.headers import Headers, HeaderValue, Pair
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
    from collections.abc import Callable, Sequence

    from headerware.core.record import Record
    from headerware.interceptors.sign_replay import ReplayWindow
    from headerware.keyring import Key, KeyringFile

_log = logging.getLogger("headerware.interceptors.sign")

_TOPICS_MAX: Final = 1024
_STATEMENTS_MAX: Final = 256

Require = Literal["off", "warn", "enforce"]


class Verified(msgspec.Struct, frozen=True):
    """Say what a signature covers, in ``record.local["sign"]`` of a record to which headers were added.

    Args:
        key_id: the key that signed.
        key_version: its version.
        signed_at_ms: when, by the signer's clock, in milliseconds since the epoch.
        cluster: the cluster it was signed for; empty where the signer did not know it.
        topic: the topic it was signed for.
        uncovered: the names of the headers that were added later and that nobody vouches for.
    """

    key_id: str
    key_version: int
    signed_at_ms: int
    cluster: str
    topic: str
    uncovered: tuple[str, ...]


class _Known(NamedTuple):
    """A statement that was met before in a topic, with its key made ready."""

    verify: Verify
    end: int
    revoked: Key | None
    statement: Statement


class Verifying:
    """Verify a session's records, for one caller at a time.

    Args:
        file: where the keys are.
        now_ms: the clock, in milliseconds since the epoch.
        own_cluster: gives the cluster that the records are read from, or None as long as it is unknown.
        require: what happens to records without a signature.
        origins: ``cluster/topic`` globs of what may also be read here.
        window: the replay window, or None.
    """

    __slots__ = (
        "_file",
        "_known",
        "_origins",
        "_own_cluster",
        "_require",
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
        require: Require,
        origins: Sequence[str],
        window: ReplayWindow | None,
    ) -> None:
        self._file = file
        self._own_cluster = own_cluster
        self._require = require
        self._origins = tuple(origin.rsplit("/", 1) for origin in origins)
        self._window = window
        self._known: dict[str, dict[bytes, _Known]] = {}
        self._warned: set[str] = set()
        self.unsigned: int = 0
        self.uncovered: int = 0
        self.on_consume: Final[Callable[[Record], Record]] = self._hook(now_ms)

    def _hook(self, now_ms: Callable[[], int]) -> Callable[[Record], Record]:
        check, unusual, new = self._check(now_ms), self._unusual, tuple.__new__

        def on_consume(record: Record) -> Record:
            headers = record.headers
            if not headers or headers[-1][0] != HEADER:
                return unusual(record, check)
            covered = headers[:-1]
            check(record, headers[-1][1], covered)
            return record.with_headers(new(Headers, covered))

        return on_consume

    def _check(
        self, now_ms: Callable[[], int]
    ) -> Callable[[Record, HeaderValue, tuple[Pair, ...]], tuple[_Known, bytes]]:
        # One function with everything bound, for it runs once a record; the rest is met once a statement.
        current, own_cluster = self._file.current, self._own_cluster
        rest, window, meet, remember = rest_of_signed_bytes(), self._window, self._meet, self._remember
        known_in = self._known
        nothing: dict[bytes, _Known] = {}
        keyring, own = current(now_ms()), own_cluster()

        def check(record: Record, value: HeaderValue, covered: tuple[Pair, ...]) -> tuple[_Known, bytes]:
            nonlocal keyring, own
            now = now_ms()
            newest = current(now)
            if newest is not keyring or (own is None and own_cluster() is not None):
                known_in.clear()
                keyring, own = newest, own_cluster()
            if value is None:
                raise SignatureError("its hw.sig is null")
            topic = record.topic
            met = known_in.get(topic, nothing)
            # All but stamp and signature is the statement: 24 + 32 bytes for HMAC, 24 + 64 for Ed25519.
            known = met.get(value[:-56]) or met.get(value[:-88])
            ready = known or meet(record, value, own, now)
            verify, end, revoked, statement = ready
            stamp = value[end : end + STAMP_BYTES]
            if not verify(rest(stamp, record.key, record.value, covered), value[end + STAMP_BYTES :]):
                raise SignatureError(_mismatch(statement))
            if revoked is not None and not revoked.verifies_at(topic, record.partition, record.offset):
                raise SignatureError(f"signed with {_key_name(statement)}, which is revoked")
            if not known:
                remember(topic, value[:end], ready)
            if window is not None:
                _, producer, sequence = decode_stamp(stamp)
                window.check(statement.key_id, producer, sequence, record)
            return ready, stamp

        return check

    def _meet(self, record: Record, value: bytes, own: str | None, now_ms: int) -> _Known:
        try:
            statement, end = decode_statement(value)
            key = self._file.find(statement.key_id, statement.key_version, now_ms)
        except WireFormatError as error:
            raise SignatureError(f"its hw.sig cannot be read: {error}") from error
        except KeyringError as error:
            raise SignatureError(f"signed with a key that is not trusted here: {error}") from error
        self._check_origin(statement, record.topic, own)
        ready = verifier(key, beginning(key.algorithm, value[:end]))
        return _Known(ready, end, key if key.status == "revoked" else None, statement)

    def _check_origin(self, statement: Statement, topic: str, own: str | None) -> None:
        same_cluster = not statement.cluster or own is None or statement.cluster == own
        if same_cluster and statement.topic == topic:
            return
        for cluster, name in self._origins:
            if fnmatchcase(statement.cluster, cluster) and fnmatchcase(statement.topic, name):
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

    def _unusual(
        self,
        record: Record,
        check: Callable[[Record, HeaderValue, tuple[Pair, ...]], tuple[_Known, bytes]],
    ) -> Record:
        headers = record.headers
        names = headers.names()
        if HEADER not in names:
            return self._unsigned(record)
        at = names.index(HEADER)
        covered, later, added = headers[:at], headers[at + 1 :], names[at + 1 :]
        known, stamp = check(record, headers[at][1], covered)
        if repeats(names[:at], added):
            raise SignatureError(
                "a header that was added behind hw.sig repeats a signed name, or its name begins with hw."
            )
        self.uncovered += 1
        local = _verified(known.statement, stamp, added)
        return record.with_headers(Headers.trusted((*covered, *later))).with_local("sign", local)

    def _unsigned(self, record: Record) -> Record:
        if self._require == "enforce":
            raise SignatureError("expected a signature, found no hw.sig header")
        self.unsigned += 1
        if self._require == "warn" and record.topic not in self._warned:
            if len(self._warned) < _TOPICS_MAX:
                self._warned.add(record.topic)
            _log.warning("topic %r has records without a signature", record.topic)
        return record


def _verified(statement: Statement, stamp: bytes, uncovered: tuple[str, ...]) -> Verified:
    return Verified(
        statement.key_id,
        statement.key_version,
        decode_stamp(stamp)[0],
        statement.cluster,
        statement.topic,
        uncovered,
    )


def _mismatch(statement: Statement) -> str:
    return (
        f"the signature by {_key_name(statement)} does not fit the record: its key, value, covered headers "
        "or the signature itself were changed, or another key of that name signed"
    )


def _key_name(statement: Statement) -> str:
    return f"key {statement.key_id!r} version {statement.key_version}"


def _cluster_name(cluster: str | None) -> str:
    return repr(cluster) if cluster else "(unknown)"
