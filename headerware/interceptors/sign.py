"""Sign records on send, and verify them on consume (spec/signature.md).

A signature covers the key, the value, the headers before ``hw.sig`` with their order and count, the cluster
and the topic. It does not cover the partition, nor what the broker writes. The layouts of ``hw.sig`` and of
the signed bytes are in :mod:`headerware.keyring.signature`.
"""

from __future__ import annotations

import logging
import os
from collections import Counter, OrderedDict
from contextlib import suppress
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, NamedTuple, get_args
from weakref import WeakSet

import msgspec

from headerware.core.awaited import Awaited
from headerware.core.batch import Deferred
from headerware.core.bounded_cache import BoundedCache
from headerware.core.dead_letter import GivenUp
from headerware.core.errors import (
    ConfigError,
    DelayedError,
    KeyringError,
    SignatureError,
    WireFormatError,
)
from headerware.core.errors import position as position_text
from headerware.core.header_text import decode_text, encode_text, text_bytes
from headerware.core.headers import EMPTY, Headers, HeaderValue, Pair
from headerware.core.hooks import Interceptor, Place, Role
from headerware.core.native import NativeForm, NativeState
from headerware.core.options import PATH
from headerware.core.origins import Origins, cluster_port
from headerware.core.record import CERTIFIED, VERIFIED, Record, Verified
from headerware.core.requirement import Require, Unprotected, requirement
from headerware.core.sequences import Sequences
from headerware.core.step import LoggedReasons
from headerware.interceptors.slice.header import SLICE_HEADER
from headerware.keyring import Keyring, KeyringFile, Permissions, key_id_problem
from headerware.keyring.certificate import key_thumbprint
from headerware.keyring.file import MAX_STALE_MS, check_keyring, follow_keyring, of_keyring_option
from headerware.keyring.merkle import (
    INDEX_AND_COUNT_BYTES,
    MAX_RECORDS,
    VerifiedBatches,
    batch_signer,
    leaf_beginning,
    path_bytes,
)
from headerware.keyring.signature import (
    BATCH,
    SIGNATURE_HEADER,
    STAMP_BYTES,
    STATEMENT_FIXED_BYTES,
    Statement,
    Verify,
    beginning,
    decode_stamp,
    decode_statement,
    encode_stamp,
    repeats,
    rest_of_signed_bytes,
    signature_bytes,
    signer,
    statement_end,
    verifier,
)
from headerware.keyring.signature import Sign as SignBytes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from headerware.core.batch import Batch
    from headerware.core.context import Context
    from headerware.core.services import Direction
    from headerware.keyring import Key

_Uncovered = Literal["strip", "refuse", "pass"]

_TO_TRUST: Final = "; if its signer may be trusted, import its public half: headerware keys import-public"
_MAX_TOPICS: Final = 1024
_MAX_STATEMENTS: Final = 256
MAX_PRODUCERS: Final = 1024
_MAX_TEXT_BYTES: Final = 255
_MAX_SKEW_MS: Final = 3_600_000
_LOOK_AGAIN_MS: Final = 100
"""How soon a record that waits for a version of its key is tried again."""
_MAX_SHOWN: Final = 60
_USUAL_BYTES: Final = 64
"""Room for the signature of most algorithms: a keyring may change between a slice and its signature."""
_MIN_BATCH: Final = 2
"""A single record has a signature of its own."""
_FRAMING_BYTES: Final = 10
"""The largest size of a header's two lengths in the record format."""

_UNACCEPTED: Final = "hw.unaccepted"
"""The name in ``record.local`` of the work that is left to :meth:`_Verification.on_accepted`."""

_SIGNED_NATIVELY: Final = frozenset({"hmac-sha256", "ed25519"})
"""The algorithms with which native code signs as fast as OpenSSL, or faster."""

_log = logging.getLogger("headerware.interceptors.sign")


class Sign(Interceptor, frozen=True, kw_only=True):
    """Sign each record, and refuse records whose signature is missing, wrong or for another topic.

    Verification removes ``hw.sig``, and sets ``record.verified``. Headers after ``hw.sig`` were added without
    a key, so no other step sees them. A wrong signature is refused even if none is required, and so is a
    later header whose name repeats a signed name or begins with ``hw.``, in any case. A record without a
    signature keeps all its headers, and its ``record.verified`` is None.

    Args:
        keyring: path of the keyring file (spec/keyring.md), a text or any ``os.PathLike``. In a TOML file it
            is relative to that file. Readers may name a JWKS instead, which needs the extra ``jose``.
        key_id: the key to sign with. Consumers need none: a record names its key.
        batch_records: how many records that are sent together (``produce_many``, ``produce_batch``, Spark)
            one signature covers at most, 1 to 65,535. Each of these records carries its path in a Merkle
            tree, 32 bytes for each doubling, and is verified alone, in any order. This makes asymmetric
            algorithms about ten times as fast. Records that are sent one by one have a signature each, and so
            have records signed with HMAC, which is fast.
        require: what happens to records without a signature: ``off`` passes them, ``warn`` counts them and
            logs each topic once, ``enforce`` refuses them. False and True mean off and enforce.
        uncovered: what happens to headers that were added after ``hw.sig``: ``strip`` removes them,
            ``refuse`` refuses the record, ``pass`` gives them to the application alone, after all steps.
        covered: names of headers that each signed record must have, covered by the signature.
        max_age_ms: how old a signature may be, in milliseconds by the local clock; None means no limit.
        clock_skew_ms: how far a signer's clock may be ahead of the local clock, in milliseconds; this applies
            to the beginning of a key, and to ``max_age_ms``. An hour at most.
        await_version_ms: how long a consumer holds back records that are signed with the next version of a
            key, which its keyring does not have yet, in milliseconds; then they are refused. A version is
            waited for once.
        cluster: this cluster's id; None asks the client, and the first record waits for the answer, two
            seconds at most. Records that are signed before the id is known are valid in any cluster; they are
            counted (``unbound``), and a warning is logged once.
        accept_origins: other topics whose records are accepted here, too, if a mirror copies them byte for
            byte: ``cluster/topic``, in which ``*`` and ``?`` are wildcards, and ``{topic}`` is the topic that
            is read.
        keyring_permissions: ``owner``, or ``kubernetes`` for a mounted secret: symbolic links, and files
            that the group can read.
        keyring_max_stale_ms: how long the last good keyring is used while the file is missing or broken,
            in milliseconds; then nothing is signed or verified until it is good again.
        keyring_root: path of a keyring file with the public half of an offline root. The keyring must then
            be a snapshot that the root has signed, newer than earlier snapshots and not expired.
        keyring_counter: with ``keyring_root``, a file in which to remember the counter of the newest
            snapshot, so that no older snapshot is accepted after a restart.
        replay_window: how many records to remember for each producer, to refuse copies of them at other
            positions; 0 is off. A session begins with an empty window, and does not know the records of other
            consumers.

    Raises:
        ConfigError: an option is not valid.
    """

    type: ClassVar[str] = "sign"
    role: ClassVar[Role] = Role.PROTECT
    place: ClassVar[Place | None] = Place.SIGN
    decodes: ClassVar[tuple[str, ...]] = (SIGNATURE_HEADER,)
    verifies: ClassVar[bool] = True
    names_cluster: ClassVar[bool] = True

    keyring: Annotated[str, PATH, msgspec.Meta(min_length=1)]
    key_id: str | None = None
    batch_records: Annotated[int, msgspec.Meta(ge=1, le=MAX_RECORDS)] = 1
    require: Require = "enforce"
    cluster: Annotated[str, msgspec.Meta(min_length=1, max_length=255)] | None = None
    uncovered: _Uncovered = "strip"
    covered: tuple[Annotated[str, msgspec.Meta(min_length=1)], ...] = ()
    max_age_ms: Annotated[int, msgspec.Meta(ge=1)] | None = None
    clock_skew_ms: Annotated[int, msgspec.Meta(ge=0, le=_MAX_SKEW_MS)] = 60_000
    await_version_ms: Annotated[int, msgspec.Meta(ge=0)] = 10_000
    accept_origins: tuple[str, ...] = ()
    keyring_permissions: Permissions = "owner"
    keyring_max_stale_ms: Annotated[int, msgspec.Meta(ge=0)] = MAX_STALE_MS
    keyring_root: Annotated[str | None, PATH] = None
    keyring_counter: Annotated[str | None, PATH] = None
    replay_window: Annotated[int, msgspec.Meta(ge=0)] = 0

    def __post_init__(self) -> None:
        """Normalize the options, and refuse options that are not valid."""
        msgspec.structs.force_setattr(self, "keyring", os.fspath(self.keyring))
        msgspec.structs.force_setattr(self, "require", requirement(self.require))
        if self.uncovered not in get_args(_Uncovered):  # options from code are not checked before
            raise ConfigError(f"expected strip, refuse or pass, found {self.uncovered!r}", path="uncovered")
        for name in self.covered:
            if name.casefold() == SIGNATURE_HEADER:
                raise ConfigError(f"a signature cannot cover {name!r}, which holds it", path="covered")
        if self.keyring_counter is not None and self.keyring_root is None:
            raise ConfigError("only snapshots have counters: set keyring_root, too", path="keyring_counter")
        if self.key_id is not None and (problem := key_id_problem(self.key_id)):
            raise ConfigError(problem, path="key_id")
        if not 1 <= self.batch_records <= MAX_RECORDS:
            message = f"expected 1 to {MAX_RECORDS}, found {self.batch_records}"
            raise ConfigError(message, path="batch_records")
        Origins(self.accept_origins)

    def check_files(self) -> None:
        """Read the keyring and the file of its root if this machine has them."""
        with of_keyring_option("keyring", "keyring_root"):
            check_keyring(self.keyring, self.keyring_root)

    def open(self, context: Context) -> SignStep:
        """Read the keyring, and return the hooks of one session.

        Raises:
            ConfigError: a producer's chain has no ``key_id``.
            KeyringError: the keyring cannot be read, or does not have the key to sign with.
        """
        file = follow_keyring(self, self.keyring, self.key_id, context)
        return SignStep(self, context, file)


class _Batches(NamedTuple):
    """The prepared statement and functions that sign batches of a topic."""

    statement: bytes
    leaf_beginning: bytes
    sign: Callable[[Sequence[bytes]], list[bytes]]


class _Prepared(NamedTuple):
    """The prepared statement and functions that sign records of a topic while this key version signs."""

    statement: bytes
    sign: SignBytes
    since_ms: float
    until_ms: float
    cluster: str | None
    """The cluster in which alone the signatures are valid; None if they are valid in any."""
    batches: _Batches | None
    key: Key
    thumbprint: str
    """The key's thumbprint, which certificates state."""


_Signing = tuple[Keyring, str | None, BoundedCache[tuple[str, str | None], _Prepared]]
"""A keyring, the cluster's id, and what both prepare for a topic and a certificate's thumbprint."""


class SignStep:
    """The hooks of one session; sending is safe for several threads, consuming has one caller.

    Both directions follow the keyring file. ``producer`` is the session's producer id, 8 bytes; None draws
    one at random.
    """

    __slots__ = (
        "__weakref__",
        "_cluster",
        "_file",
        "_has_client",
        "_now_ms",
        "_options",
        "_prepared_for",
        "_producer",
        "_proof_of",
        "_rest",
        "_sequences",
        "_unbound",
        "_verification",
        "on_accepted",
        "on_accepted_batch",
        "on_consume",
        "on_consume_batch",
        "on_send",
        "on_stopped",
    )

    def __init__(
        self,
        options: Sign,
        context: Context,
        file: KeyringFile,
        *,
        producer: bytes | None = None,
        sequence: int = 0,
    ) -> None:
        self._options = options
        self._file = file
        self._now_ms = context.now_ms
        self._cluster = cluster_port(options.cluster, context.cluster_id)
        self._has_client = context.bootstrap_servers is not None
        self._unbound = 0
        self._producer = producer or os.urandom(8)
        self._sequences: Final = Sequences(sequence)
        self._proof_of: tuple[Keyring | None, int] = (None, _USUAL_BYTES)
        awaited = cluster_port(options.cluster, context.awaited_cluster_id)
        self._verification = _Verification(options, file, context, own_cluster=awaited)
        self._rest = rest_of_signed_bytes()
        self._prepared_for: Callable[[str, str | None, int], _Prepared] = self._preparing(awaited)
        self.on_send: Callable[[Record], Record] = self._sending_hook()
        self.on_consume: Callable[[Record], Record] = self._verification.on_consume
        self.on_consume_batch: Callable[[Batch], Batch] = self._verification.on_consume_batch
        self.on_stopped: GivenUp | None = self._verification.given_up
        self.on_accepted: Callable[[Record], Record] | None = None
        self.on_accepted_batch: Callable[[Batch], Batch] | None = None
        if self._verification.hears_accepted:
            self.on_accepted = self._verification.on_accepted
            self.on_accepted_batch = self._verification.on_accepted_batch
        _open_steps.add(self)

    def overhead_bytes(self, record: Record) -> int:
        """Return an upper bound of the bytes that the signature adds to a record on the wire."""
        cluster = self._cluster()
        layout = (
            STATEMENT_FIXED_BYTES
            + len((self._options.key_id or "").encode())
            + (_MAX_TEXT_BYTES if cluster is None else len(cluster.encode()))
            + len(record.topic.encode())
            + STAMP_BYTES
            + self._proof_bytes()
        )
        return len(SIGNATURE_HEADER) + _FRAMING_BYTES + text_bytes(layout)

    def _proof_bytes(self) -> int:
        """Return the largest size of the proof, which follows the stamp."""
        known, size = self._proof_of
        with suppress(KeyringError):  # nothing is signed then
            keyring = self._file.current(self._now_ms())
            if keyring is not known:
                # All versions, because the next one begins without a change of the keyring.
                keys = [key for key in keyring.versions(self._options.key_id or "") if "sign" in key.use]
                size = max([_USUAL_BYTES, *map(signature_bytes, keys)])
                if self._options.batch_records > 1 and any(key.secret is None for key in keys):
                    size += INDEX_AND_COUNT_BYTES + path_bytes(self._options.batch_records)
                self._proof_of = keyring, size
        return size

    def stats(self) -> dict[str, int]:
        """Return the counts of records with unusual signatures, and of the keyring's reloads."""
        return {
            "unbound": self._unbound,
            "awaited": self._verification.awaited,
            "unsigned": self._verification.unsigned.count,
            "uncovered": self._verification.uncovered,
            "keyring_reloads": self._file.reloads,
            "keyring_failures": self._file.failures,
        }

    def renew_producer(self) -> None:
        """Draw another producer id, as after a fork, so that no sequence is used twice."""
        self._producer = os.urandom(8)

    def _sending_hook(self) -> Callable[[Record], Record]:
        # One function with everything bound, because it is called for each record.
        now_ms, prepared_for, rest = self._now_ms, self._prepared_for, self._rest
        stamped, draw, new, to_text = encode_stamp, self._sequences.draw, tuple.__new__, encode_text

        def on_send(record: Record) -> Record:
            now = now_ms()
            local = record.local
            prepared = prepared_for(record.topic, None if local is None else local.get(CERTIFIED), now)
            statement, sign = prepared.statement, prepared.sign
            if prepared.cluster is None:
                self._count_unbound(1)
            headers = record.headers
            stamp = stamped(now, self._producer, draw())
            signature = sign(rest(stamp, record.key, record.value, headers))
            text = to_text(statement + stamp + signature)
            return record.with_headers(new(Headers, (*headers, (SIGNATURE_HEADER, text))))

        return on_send

    def on_send_batch(self, batch: Batch) -> Batch:
        """Sign each record; with ``batch_records``, one signature covers many if the key allows it.

        Records that do not all show the same certificate are left to :meth:`on_send`.
        """
        now_ms = self._now_ms()
        certified = _certificates(batch)
        if len(certified) > 1:
            return batch.leave()
        prepared = self._prepared_for(batch.topic, certified.pop(), now_ms)
        if prepared.batches is not None:
            return self._signed_together(batch, prepared, prepared.batches, now_ms)
        if prepared.cluster is None:
            self._count_unbound(len(batch))
        statement, sign, rest = prepared.statement, prepared.sign, self._rest
        stamped, new, to_text = encode_stamp, tuple.__new__, encode_text

        def signed(key: bytes | None, value: bytes | None, headers: Headers, sequence: int) -> tuple[Headers]:
            stamp = stamped(now_ms, self._producer, sequence)
            text = to_text(statement + stamp + sign(rest(stamp, key, value, headers)))
            return (new(Headers, (*headers, (SIGNATURE_HEADER, text))),)

        sequences = self._sequences.draw_many(len(batch))
        return batch.remake(("headers",), signed, batch.keys, batch.values, batch.headers, sequences)

    def native_form(self, direction: Direction, topic: str) -> NativeForm | None:
        """Return the native form of a batch hook."""
        if direction == "consume":
            return self._verification.native_form(topic)
        with suppress(SignatureError):  # the hooks raise it for each record
            if not _is_signed_natively(self._prepared_for(topic, None, self._now_ms())):
                return None
        return NativeForm(partial(self._native_signing, topic), pays=True, ordered=True)

    def _native_signing(self, topic: str, batch: Batch) -> NativeState | None:
        """Return the state of ``on_send_batch``, if each record gets a signature of its own."""
        certified = _certificates(batch)
        if len(certified) > 1:
            return None
        now_ms, producer = self._now_ms(), self._producer
        prepared = self._prepared_for(topic, certified.pop(), now_ms)
        if not _is_signed_natively(prepared):
            return None
        key = prepared.key

        def arguments() -> tuple[Any, ...]:
            return (key.id, key.version, key.algorithm, key.secret or key.private), prepared.cluster, producer

        sequences: list[int] = []

        def numbers() -> list[int]:
            sequences.extend(self._sequences.draw_many(len(batch)))
            return [now_ms, *sequences]

        def note(_batch: Batch, not_taken: Sequence[int], _facts: Any) -> None:
            self._sequences.give_back(sequences[at] for at in not_taken)
            if prepared.cluster is None:
                self._count_unbound(len(batch) - len(not_taken))

        def undo() -> None:
            self._sequences.give_back(sequences)

        return NativeState("sign", (prepared, producer), arguments, numbers, note, undo)

    def _signed_together(self, batch: Batch, prepared: _Prepared, batches: _Batches, now_ms: int) -> Batch:
        """Sign each group of records with one signature; a single record is left to :meth:`on_send`."""
        headers: list[Headers] = list(batch.headers)
        failures: dict[int, Exception] = {}
        not_taken: list[int] = []
        most = self._options.batch_records
        for first in range(0, len(batch), most):
            group = range(first, min(first + most, len(batch)))
            if len(group) < _MIN_BATCH:
                not_taken += group
                continue
            begun: dict[int, bytes] = {}
            leaves: list[bytes] = []
            for at in group:
                stamp = encode_stamp(now_ms, self._producer, self._sequences.draw())
                try:
                    signed = self._rest(
                        batches.leaf_beginning + stamp, batch.keys[at], batch.values[at], headers[at]
                    )
                except SignatureError as error:
                    failures[at] = error
                else:
                    begun[at] = batches.statement + stamp
                    leaves.append(sha256(signed).digest())
            if len(leaves) < _MIN_BATCH:
                not_taken += begun
                continue
            if prepared.cluster is None:
                self._count_unbound(len(leaves))
            for (at, head), proof in zip(begun.items(), batches.sign(leaves), strict=True):
                headers[at] = headers[at].append((SIGNATURE_HEADER, encode_text(head + proof)))
        return batch.replace(headers=headers, failures=failures, not_taken=not_taken)

    def _preparing(self, cluster_of: Callable[[], str | None]) -> Callable[[str, str | None, int], _Prepared]:
        """Return a function that prepares to sign, given a topic, a certificate's thumbprint and the time."""
        current = self._file.current
        # The three are replaced together, so that a thread with old ones adds no retired key to new ones.
        signing = self._signing(self._now_ms())

        def prepared_for(topic: str, certified: str | None, now_ms: int) -> _Prepared:
            nonlocal signing
            keyring, cluster, prepared = signing
            if current(now_ms) is not keyring or (cluster is None and cluster_of() is not None):
                keyring, cluster, prepared = signing = self._signing(now_ms)
            found = prepared[asked := (topic, certified)]
            if not found.since_ms <= now_ms <= found.until_ms:
                found = prepared[asked] = self._prepare(keyring, cluster, asked, now_ms)
            return found

        return prepared_for

    def _count_unbound(self, records: int) -> None:
        if not self._unbound and self._has_client:
            _log.warning(
                "no broker has answered yet, so the cluster's id is not known, and signatures are valid in "
                "any cluster until it is; look at bootstrap.servers; the option cluster of sign gives the id"
            )
        self._unbound += records

    def _signing(self, now_ms: int) -> _Signing:
        keyring, cluster = self._file.current(now_ms), self._cluster()

        def prepare(asked: tuple[str, str | None]) -> _Prepared:
            return self._prepare(keyring, cluster, asked, self._now_ms())

        return keyring, cluster, BoundedCache(_MAX_TOPICS, prepare)

    def _prepare(
        self, keyring: Keyring, cluster: str | None, asked: tuple[str, str | None], now_ms: int
    ) -> _Prepared:
        topic, certified = asked
        if self._options.key_id is None:
            raise SignatureError("sending needs a key_id to sign with, and none is configured")
        try:
            key = keyring.current_key(self._options.key_id, "sign", now_ms)
            since_ms, until_ms = keyring.term_ms(key)
            if certified is not None and certified != key_thumbprint(key):
                # Readers admit a record only if the key of its certificate has signed it.
                key = _certified_version(keyring, key, certified)
                since_ms, until_ms = key.limits_ms
            stated = Statement(key.id, key.version, cluster or "", topic)
            statement = stated.encode()
        except (KeyringError, WireFormatError) as error:
            raise SignatureError(f"cannot sign: {error}") from error
        if refusal := key.refusal(topic, now_ms):
            raise SignatureError(f"cannot sign: {refusal}")
        sign = signer(key, beginning(key.algorithm, statement))
        batches = None
        if self._options.batch_records > 1 and key.secret is None:
            shared = stated.encode(BATCH)
            batches = _Batches(shared, leaf_beginning(key, shared), batch_signer(key, shared))
        return _Prepared(statement, sign, since_ms, until_ms, cluster, batches, key, key_thumbprint(key))


def _is_signed_natively(prepared: _Prepared) -> bool:
    return prepared.batches is None and prepared.key.algorithm in _SIGNED_NATIVELY


def _certificates(batch: Batch) -> set[str | None]:
    """Return the thumbprints of the certificates that the records show; None is no certificate."""
    return {None if local is None else local.get(CERTIFIED) for local in batch.locals}


def _certified_version(keyring: Keyring, current: Key, certified: str) -> Key:
    """Return the key version that a certificate is for, which signs until the certificate is replaced."""
    for key in keyring.versions(current.id):
        if key.status in {"active", "retired"} and key.is_secret and key_thumbprint(key) == certified:
            return key
    raise SignatureError(
        f"the record's certificate is for another key than {current.id!r} version {current.version}, which "
        "signs, so no reader would admit the record; have a certificate issued for this key (headerware keys "
        "certify)"
    )


_open_steps: WeakSet[SignStep] = WeakSet()


def _renew_producers() -> None:
    for step in tuple(_open_steps):
        step.renew_producer()


os.register_at_fork(after_in_child=_renew_producers)


class _Known(NamedTuple):
    """A statement that was verified in a topic before, and the function that verifies its records."""

    verify: Verify
    key: Key
    end: int
    """The index after the statement in ``hw.sig``."""
    conditional_key: Key | None
    """The key, if its validity depends on the record; otherwise None."""
    statement: Statement
    thumbprint: str


_VerifiedParts = tuple[Headers, dict[str, Any]]
"""The headers and the local state of a record that was verified."""
_Position = tuple[str, int | None, int | None]
"""A topic, a partition and an offset."""


class _Unaccepted(msgspec.Struct, frozen=True, gc=False):
    """The work that is left once all steps have accepted a record."""

    verification: _Verification
    position: _Position
    missing: frozenset[str]


class _Verification:
    """Verify a session's records: signer, position and content; for one caller at a time."""

    __slots__ = (
        "_awaited",
        "_batches",
        "_covered",
        "_file",
        "_known",
        "_logged",
        "_now_ms",
        "_options",
        "_origins",
        "_own_cluster",
        "_trusting",
        "_verified",
        "_window",
        "awaited",
        "given_up",
        "hears_accepted",
        "uncovered",
        "unsigned",
    )

    def __init__(
        self,
        options: Sign,
        file: KeyringFile,
        context: Context,
        *,
        own_cluster: Callable[[], str | None],
    ) -> None:
        self._options = options
        self._file = file
        self._awaited: Awaited[tuple[str, int]] = Awaited(
            options.await_version_ms if context.tries_again else 0, context.now_ms
        )
        self._logged = LoggedReasons()
        self.awaited: int = 0
        self._own_cluster = own_cluster
        self._covered = frozenset(options.covered)
        self._origins = Origins(options.accept_origins)
        self._window = ReplayWindow(options.replay_window) if options.replay_window else None
        self.given_up: Final = None if self._window is None else self._window.given_up
        self.hears_accepted: Final = (
            self._window is not None or bool(options.covered) or options.uncovered == "pass"
        )
        """Whether anything is left to do once all steps have accepted a record."""
        self._known: BoundedCache[str, BoundedCache[bytes, _Known]] = BoundedCache(
            _MAX_TOPICS, lambda _topic: BoundedCache(_MAX_STATEMENTS)
        )
        self._batches = VerifiedBatches()
        self.unsigned: Final = Unprotected(
            options.require, log=_log, without="without a signature", step=options.type, refusal=_unsigned
        )
        self.uncovered: int = 0
        self._now_ms: Final = context.now_ms
        self._trusting: tuple[Keyring, str | None] = file.current(context.now_ms()), None
        """The keyring and the cluster's id with which the known statements were examined."""
        self._verified: Final[Callable[[Record], _VerifiedParts | None]] = self._verifying(context.now_ms)

    def on_accepted(self, record: Record) -> Record:
        """Finish the verification of a record that all steps have accepted.

        A sequence is remembered now, so that a refused copy does not make the genuine record a replay.
        Missing headers are refused now, because only the first slice of a message has headers. Headers that
        no step may see are given to the application now.
        """
        made = self._accepted(record.headers, record.local)
        return record if made is None else record.with_parts(record.value, record.key, *made)

    def on_accepted_batch(self, batch: Batch) -> Batch:
        """Do as :meth:`on_accepted` for each record."""
        return batch.remake(("headers", "local"), self._accepted, batch.headers, batch.locals)

    def _accepted(self, headers: Headers, local: Mapping[str, Any] | None) -> _VerifiedParts | None:
        unaccepted = None if local is None else local.get(_UNACCEPTED)
        if local is None or unaccepted is None or unaccepted.verification is not self:
            return None
        verified: Verified = local[VERIFIED]
        if unaccepted.missing:
            raise _not_covered(unaccepted.missing)
        if self._window is not None:
            self._window.remember(verified, unaccepted.position)
        if verified.set_aside:
            headers = Headers.trusted((*headers, *verified.set_aside))
        return headers, {name: state for name, state in local.items() if name != _UNACCEPTED}

    def on_consume(self, record: Record) -> Record:
        """Verify a record, and remove its signature."""
        made = self._verified(record)
        return record if made is None else record.with_parts(record.value, record.key, *made)

    def on_consume_batch(self, batch: Batch) -> Batch:
        """Do as :meth:`on_consume` for each record."""
        return batch.remake(("headers", "local"), self._verified, batch.records())

    def native_form(self, topic: str) -> NativeForm | None:
        """Return the native form of ``on_consume_batch``.

        Native code gets the keys of statements that the hooks have accepted in this topic, and verifies
        records with these keys. All else is left to the hooks, such as the refusal of a replay.
        """
        known_in: BoundedCache[bytes, _Known] = self._known[topic]
        token: tuple[_Known, ...] = ()
        keys: dict[tuple[str, int], _Known] = {}
        own: str | None = None

        def arguments() -> tuple[Any, ...]:
            options = self._options
            made_of = [
                (key.id, key.version, key.algorithm, key.secret or key.public_half)
                for key in (known.key for known in keys.values())
            ]
            return own, options.max_age_ms, options.clock_skew_ms, made_of

        def state(_batch: Batch) -> NativeState | None:
            nonlocal known_in, token, keys, own
            now_ms = self._now_ms()
            keyring, own = self._trusting
            if self._file.current(now_ms) is not keyring or (own is None and self._own_cluster() is not None):
                return None  # the hooks begin anew
            known_in = self._known[topic]
            found = tuple(known_in.entries().values())
            if found != token:
                token = found
                keys = {
                    (known.statement.key_id, known.statement.key_version): known
                    for known in found
                    if known.conditional_key is None and known.statement.topic == topic
                }
            if not keys:
                return None
            return NativeState("verify", (own, token), arguments, lambda: (now_ms,), note)

        def note(batch: Batch, not_taken: Sequence[int], facts: Any) -> dict[str, Sequence[Any]]:
            signers = [
                (*of, cluster, known.thumbprint) for of, known in keys.items() for cluster in ("", own or "")
            ]
            count = len(batch)

            def made() -> list[dict[str, Any]]:
                found = []
                for by, signed_at_ms, producer, sequence in zip(*facts.columns(), strict=True):
                    key_id, version, cluster, thumbprint = signers[by]
                    signed = key_id, version, signed_at_ms, cluster, topic, producer, sequence
                    found.append({VERIFIED: Verified(*signed, thumbprint=thumbprint)})
                if not_taken:
                    taken, apart = iter(found), set(not_taken)
                    found = [{} if at in apart else next(taken) for at in range(count)]
                return found

            if not self.hears_accepted:
                return {"locals": Deferred(made, count)}
            more, refused = made(), list(not_taken)
            rows = zip(more, batch.partitions, batch.offsets, batch.headers, strict=True)
            for at, (local, partition, offset, headers) in enumerate(rows):
                if not local:  # native code has not taken it
                    continue
                position = topic, partition, offset
                try:
                    local[_UNACCEPTED] = self._unaccepted(local[VERIFIED], position, headers[:-1])
                except SignatureError:  # the hooks raise it
                    refused.append(at)
            return {"locals": more, "not_taken": refused}

        return NativeForm(state, pays=True, alone=self.hears_accepted)

    def _verifying(self, now_ms: Callable[[], int]) -> Callable[[Record], _VerifiedParts | None]:
        """Return a function that verifies a record; it returns None for one without a signature."""
        check, unusual, new = self._check(now_ms), self._unusual, tuple.__new__

        def verified(record: Record) -> _VerifiedParts | None:
            headers = record.headers
            if not headers or headers[-1][0] != SIGNATURE_HEADER:
                return unusual(record, check)
            covered = headers[:-1]
            local = check(record, headers[-1][1], covered, ())
            return new(Headers, covered), local if record.local is None else {**record.local, **local}

        return verified

    def _check(
        self, now_ms: Callable[[], int]
    ) -> Callable[[Record, HeaderValue, tuple[Pair, ...], tuple[Pair, ...]], dict[str, Any]]:
        # One function with everything bound: it is called for each record, _examine for each statement.
        current, own_cluster = self._file.current, self._own_cluster
        rest, examine, judge = rest_of_signed_bytes(), self._examine, self._judge
        known_in, stamp_of, max_age_ms = self._known, decode_stamp, self._options.max_age_ms
        batches, end_of = self._batches, statement_end
        unaccepted = self._unaccepted if self.hears_accepted else None
        passes = self._options.uncovered == "pass"
        to_layout, new_verified = decode_text, Verified
        # The cluster's id is looked up with the first record, which may wait for it.
        keyring, own = self._trusting
        # Most records have the statement of the record before; a statement states its own length.
        latest_topic, latest_statement = "", b""
        latest_known: _Known | None = None
        # One statement whose signatures have not fitted yet, for a flood of forged records.
        unproven: tuple[str, bytes, _Known] | None = None

        def check(
            record: Record, text: HeaderValue, covered: tuple[Pair, ...], later: tuple[Pair, ...]
        ) -> dict[str, Any]:
            nonlocal keyring, own, latest_topic, latest_statement, latest_known, unproven
            now = now_ms()
            newest = current(now)
            if newest is not keyring or (own is None and own_cluster() is not None):
                known_in.clear()
                batches.clear()
                keyring, own, latest_known, unproven = newest, own_cluster(), None, None
                self._trusting = keyring, own
            try:
                value = to_layout(text, SIGNATURE_HEADER)
            except WireFormatError as error:
                raise SignatureError(f"its hw.sig cannot be read: {error}") from error
            topic = record.topic
            if latest_known and topic == latest_topic and value.startswith(latest_statement):
                known: _Known | None = latest_known
            else:
                known = known_in[topic].get(value[: end_of(value)])
            if known:
                found = known
            elif unproven and unproven[:2] == (topic, value[: end_of(value)]):
                found = unproven[2]
            else:
                found = examine(record, value, own, now)
                unproven = topic, value[: found.end], found
            verify, _, end, conditional_key, statement, thumbprint = found
            stamp, proof = value[end : end + STAMP_BYTES], value[end + STAMP_BYTES :]
            try:
                fits = verify(rest(stamp, record.key, record.value, covered), proof)
            except WireFormatError as error:
                raise SignatureError(f"its hw.sig cannot be read: {error}") from error
            if not fits:
                raise SignatureError(_mismatch(statement))
            signed_at_ms, producer, sequence = stamp_of(stamp)
            if conditional_key is not None or max_age_ms is not None:
                judge(conditional_key, statement, record, own, signed_at_ms, now)
            if found is not latest_known:
                latest_topic, latest_statement, latest_known = topic, value[:end], found
                if not known:
                    known_in[topic][latest_statement] = found
            verified = new_verified(
                statement.key_id,
                statement.key_version,
                signed_at_ms,
                statement.cluster,
                statement.topic,
                producer,
                sequence,
                thumbprint=thumbprint,
            )
            if later:
                verified = msgspec.structs.replace(
                    verified,
                    uncovered=tuple(pair[0] for pair in later),
                    set_aside=Headers.trusted(later) if passes else EMPTY,
                )
            if unaccepted is None:
                return {VERIFIED: verified}
            position = topic, record.partition, record.offset
            return {VERIFIED: verified, _UNACCEPTED: unaccepted(verified, position, covered)}

        return check

    def _unaccepted(self, verified: Verified, position: _Position, covered: tuple[Pair, ...]) -> _Unaccepted:
        if self._window is not None:
            self._window.check(verified, position)
        missing = self._covered
        if missing:
            names = {pair[0] for pair in covered}
            missing = missing - names
            if missing and SLICE_HEADER not in names:
                raise _not_covered(missing)
        return _Unaccepted(self, position, missing)

    def _examine(self, record: Record, value: bytes, own: str | None, now_ms: int) -> _Known:
        try:
            statement, end = decode_statement(value)
        except WireFormatError as error:
            raise SignatureError(f"its hw.sig cannot be read: {error}") from error
        problem = self._origins.problem(statement.cluster, statement.topic, own=own, found_in=record.topic)
        if problem:
            raise SignatureError(f"signed {problem}")
        key = self._find(statement, now_ms)
        stated = value[:end]
        if value[0] == BATCH:
            ready = self._batches.verifier(key, stated)
        else:
            ready = verifier(key, beginning(key.algorithm, stated))
        is_bound = key.not_before is not None or key.not_after is not None
        if not is_bound:
            signed_at_ms = decode_stamp(value[end : end + STAMP_BYTES])[0]
            _require_permitted(key, statement, signed_at_ms, now_ms, self._options.clock_skew_ms)
        conditional_key = key if is_bound or key.status == "revoked" else None
        return _Known(ready, key, end, conditional_key, statement, key_thumbprint(key))

    def _find(self, statement: Statement, now_ms: int) -> Key:
        """Return the key that a statement names; hold the record back while its version may still come."""
        key_id, version = named = statement.key_id, statement.key_version
        try:
            return self._file.find(key_id, version, now_ms)
        except KeyringError as error:
            if self._file.failure is not None:  # so it is not known which keys there are
                raise KeyringError(f"{error} when it was last read; now {self._file.failure}") from error
            if self._file.current(now_ms).may_get(key_id, version) and self._awaited.waits(named):
                if self._logged.is_new(named):
                    wait_s = self._options.await_version_ms / 1000
                    _log.warning("%s yet; its records wait for it, %g s at most", error, wait_s)
                self.awaited += 1
                raise DelayedError(f"{error} yet", until_ms=now_ms + _LOOK_AGAIN_MS) from error
            hint = "" if self._options.keyring_root else _TO_TRUST
            raise SignatureError(f"signed with a key that is not trusted here: {error}{hint}") from error

    def _judge(
        self,
        key: Key | None,
        statement: Statement,
        record: Record,
        own: str | None,
        signed_at_ms: int,
        now_ms: int,
    ) -> None:
        """Refuse a genuine signature that is too old or too new, or whose key is not valid for the record."""
        if key is not None:
            if not key.verifies_at(own, record.topic, record.partition, record.offset):
                here = "" if own or not key.revoked_from else "; the id of the cluster here is not known"
                raise SignatureError(f"signed with {_key_name(statement)}, which is revoked{here}")
            _require_permitted(key, statement, signed_at_ms, now_ms, self._options.clock_skew_ms)
        max_age_ms, clock_skew_ms = self._options.max_age_ms, self._options.clock_skew_ms
        if max_age_ms is None:
            return
        if now_ms - signed_at_ms > max_age_ms:
            raise SignatureError(f"signed {now_ms - signed_at_ms} ms ago; max_age_ms is {max_age_ms}")
        if signed_at_ms - now_ms > clock_skew_ms:
            ahead_ms = signed_at_ms - now_ms
            raise SignatureError(
                f"signed {ahead_ms} ms in the future by the local clock; clock_skew_ms is {clock_skew_ms}"
            )

    def _unusual(self, record: Record, check: Callable[..., dict[str, Any]]) -> _VerifiedParts | None:
        headers = record.headers
        names = headers.names()
        if SIGNATURE_HEADER not in names:
            self.unsigned.judge(record)
            return None
        at = names.index(SIGNATURE_HEADER)
        covered, later, added = headers[:at], headers[at + 1 :], names[at + 1 :]
        if repeats(names[:at], added):
            raise SignatureError(
                "a header that was added after hw.sig repeats a signed name, or its name begins with hw. "
                "(in any case), is an id of Headerware's block or has a zero byte"
            )
        if self._options.uncovered == "refuse":
            raise SignatureError(
                f"found headers after hw.sig that the signature does not cover ({len(added)}), the first one "
                f'{added[0][:_MAX_SHOWN]!r} (uncovered = "refuse")'
            )
        local = check(record, headers[at][1], covered, later)
        self.uncovered += 1
        return Headers.trusted(covered), {**(record.local or {}), **local}


class ReplayWindow:
    """Remember the position of each sequence of a producer.

    The same sequence at the same position is a record read again, as after a seek or a restart; at any other
    position it is a replay. Records are checked when they come, and remembered once all steps have accepted
    them. The window holds at most ``size`` sequences of each producer, and 1,024 producers; a copy of a
    record that has left the window passes. If there are too many producers, the key with the most producers
    loses the one that was silent for longest, so that no signer pushes out other signers' producers. For one
    caller at a time.
    """

    __slots__ = ("_of_key", "_producers", "_size", "given_up")

    def __init__(self, size: int) -> None:
        self._size = size
        self.given_up: Final = GivenUp(lambda record: (record.topic, record.partition, record.offset))
        """The records that the application gave up; each may come back once, from a dead-letter topic."""
        self._producers: OrderedDict[tuple[str, bytes], OrderedDict[int, _Position]] = OrderedDict()
        self._of_key: Counter[str] = Counter()
        """How many producers each key has."""

    def check(self, verified: Verified, position: _Position) -> None:
        """Refuse a record whose sequence was seen, unless it was seen at the same position.

        Sequences are kept by signer, so that one signer cannot use up another signer's sequences.
        """
        positions = self._producers.get(verified.signer)
        before = None if positions is None else positions.get(verified.sequence)
        if before is None or (before == position and position[2] is not None):
            return
        if before not in self.given_up:
            raise SignatureError(
                f"replayed: sequence {verified.sequence} of producer {verified.producer.hex()} was seen at "
                f"{position_text(*before)}"
            )

    def remember(self, verified: Verified, position: _Position) -> None:
        """Check a record again that all steps have accepted, and remember it."""
        self.check(verified, position)
        positions = self._positions_of(verified.signer)
        before = positions.get(verified.sequence)
        if before is not None and before != position:
            self.given_up.discard(before)
        positions[verified.sequence] = position
        if len(positions) > self._size:
            positions.popitem(last=False)

    def _positions_of(self, signer: tuple[str, bytes]) -> OrderedDict[int, _Position]:
        positions = self._producers.get(signer)
        if positions is None:
            positions = self._producers[signer] = OrderedDict()
            self._of_key[signer[0]] += 1
            if len(self._producers) > MAX_PRODUCERS:
                self._forget_one()
        else:
            self._producers.move_to_end(signer)
        return positions

    def _forget_one(self) -> None:
        key_id = max(self._of_key, key=self._of_key.__getitem__)
        del self._producers[next(signer for signer in self._producers if signer[0] == key_id)]
        self._of_key[key_id] -= 1
        if not self._of_key[key_id]:
            del self._of_key[key_id]


def _require_permitted(
    key: Key, statement: Statement, signed_at_ms: int, now_ms: int, clock_skew_ms: int
) -> None:
    refusal = key.refusal(statement.topic, signed_at_ms, now_ms, clock_skew_ms=clock_skew_ms)
    if refusal is not None:
        raise SignatureError(f"signed with a key that may not vouch for it: {refusal}")


def _unsigned(advice: str) -> SignatureError:
    return SignatureError(f"expected a signature, found no hw.sig header{advice}")


def _not_covered(missing: frozenset[str]) -> SignatureError:
    names = ", ".join(map(repr, sorted(missing)))
    return SignatureError(f"expected these headers to be there and to be covered by the signature: {names}")


def _mismatch(statement: Statement) -> str:
    return (
        f"the signature by {_key_name(statement)} does not fit the record: its key, value, covered headers "
        "or the signature itself were changed, or another key of that name signed (`headerware keys list` "
        "shows fingerprints to compare)"
    )


def _key_name(statement: Statement) -> str:
    return f"key {statement.key_id!r} version {statement.key_version}"
