"""Proofs of trails: each hop signs its entry over the entries before it and the record (spec/trail.md).

Header ``hw.trail.proof``, base64 of version 1:

    u8      version, 1
    u16     number of the last entry that was folded; 0 if none was
    32      link of that entry, if the number is not 0
    then for the first entry, and for each entry after the folded ones, up to the last with a proof:
    u16     3 bits kind, 1 bit salted, 12 bits hint of the key; 0 if the entry has no proof
    16      digest of the record that the hop sent; while no other hop has read that record, its salt
    n       kind 1: a signature of 64 bytes; kind 2: one of 32 bytes; kind 3: u16 length and a signature;
            kind 4: u16 length, and index, count, path and signature as in a batch of hw.sig
    then, from the chain that has read the record to the chain that sends it on:
    u16     0xE000
    16      digest of the record that was read

    link    SHA-256 of "headerware/hw.trail.proof/link/1", u16 number of the entry, u8 form (0 no proof,
            1 digest, 2 salt), 32 link of the first entry, 32 link of the entry before, 16 digest or salt,
            n entry as in hw.trail; for the first entry, both links are zero bytes
    digest  the first 16 bytes of SHA-256 of "headerware/hw.trail.proof/record/1", 16 salt, u32 length of key,
            u32 length of value, u32 count of headers, key, value, and each header as in hw.sig
    signed  "headerware/hw.trail.proof/1", u32 + n algorithm, u32 + n key (u8 + n id, u16 version), link

Numbers are big-endian. The entries of a trail are numbered from 1, including entries that were dropped.
"""

from __future__ import annotations

import logging
import os
from hashlib import sha256
from struct import Struct
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import msgspec

from headerware.core.boundary import is_own
from headerware.core.errors import HeaderwareError, KeyringError, SignatureError, WireFormatError
from headerware.core.header_text import decode_text, encode_text, text_bytes
from headerware.core.headers import Headers, Pair
from headerware.core.origins import Origins
from headerware.core.patterns import any_fits
from headerware.core.printable import printable
from headerware.core.requirement import Unprotected
from headerware.interceptors.trail import (
    MAX_LEFT_OUT,
    PROOF_HEADER,
    TRAIL_HEADER,
    Parts,
    Trail,
    TrailEntry,
    TrailReading,
    TrailStep,
    apart,
    bounded,
    checked_trail,
    continued,
    count_left_out,
    decode_trail,
    shortened,
)
from headerware.keyring.file import follow_keyring
from headerware.keyring.merkle import VerifiedBatches, batch_signer, leaf_beginning
from headerware.keyring.signature import beginning, rest_of_signed_bytes, signature_bytes, signer, verifier

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from headerware.core.batch import Batch
    from headerware.core.context import Context
    from headerware.core.record import Record
    from headerware.keyring import Key, Keyring
    from headerware.keyring.signature import Verify

PROVEN: Final = "headerware.trail"
"""The key of a :class:`TrailProof` in ``record.local``."""
MAX_HOPS: Final = 1_000
"""The largest ``max_entries``: proofs of more entries are refused before anything is verified."""

_VERSION: Final = 1
_SALT_BYTES: Final = 16
_LINK_BYTES: Final = 32
_HEAD_BYTES: Final = 3
"""The size of the version and of the number of the last entry that was folded."""
_SEEN_BYTES: Final = 2 + _SALT_BYTES
_NO_LINK: Final = bytes(_LINK_BYTES)
_NO_DIGEST: Final = bytes(_SALT_BYTES)
_NONE, _OWN_64, _OWN_32, _OWN_LONG, _SHARED, _SEEN = 0, 1, 2, 3, 4, 7
_SIZES: Final = {_OWN_64: 64, _OWN_32: 32}
_KIND_OF_SIZE: Final = {size: kind for kind, size in _SIZES.items()}
_SALTED: Final = 0x1000
_HINT: Final = 0x0FFF
_LINK: Final = b"headerware/hw.trail.proof/link/1"
_RECORD: Final = b"headerware/hw.trail.proof/record/1"
_KEY: Final = b"headerware/hw.trail.proof/key/1"
_OWN_DOMAIN: Final = b"headerware/hw.trail.proof/1"
_SHARED_DOMAIN: Final = b"headerware/hw.trail.proof/2"
_MIN_BATCH: Final = 2
_SKEW_MS: Final = 60_000
_KEPT: Final = 2
"""The first entry and the latest are never dropped."""

_OWN_COVERED: Final = frozenset({"hw.owner", "hw.schema", "hw.source", "hw.source.key", "hw.source.record"})
"""Headers of Headerware that are the same at each reader of a record; no step to the right adds them."""
_ADDED_LATER: Final = frozenset(
    {"traceparent", "tracestate", "baggage", "b3", "uber-trace-id", "x-amzn-trace-id"}
)
_ADDED_LATER_PREFIXES: Final = ("headerware.", "x-b3-", "uberctx-", "x-datadog-")
"""Headers that tracing, or a redrive, adds or changes between one hop and the next."""

_u16 = Struct(">H")
_number_and_form = Struct(">HB")
_log = logging.getLogger("headerware.interceptors.trail")

HopState = Literal["proven", "unproven", "broken", "read"]


class HopProof(msgspec.Struct, frozen=True, kw_only=True):
    """Whether one entry of a trail is proven.

    Args:
        state: ``proven``; ``unproven`` (the entry has no proof that can be checked); ``broken`` (it has a
            proof that does not fit); ``read`` (the last entry, whose service has not sent the record on).
        key_id: the id of the key that signed, if the signature fits.
        key_version: the version of this key.
        reason: why the entry is not proven.
    """

    state: HopState
    key_id: str | None = None
    key_version: int | None = None
    reason: str | None = None


class TrailProof(msgspec.Struct, frozen=True, kw_only=True):
    """A trail, and which of its entries are proven.

    Entries that were left out are covered by the proof of the entry after them: its signer has seen their
    number and their links.

    Args:
        trail: the trail.
        hops: the proof of each entry, in the order of the entries.
        problem: why the trail does not prove where the record has been; None if it does.
    """

    trail: TrailReading
    hops: tuple[HopProof, ...] = ()
    problem: str | None = None

    @property
    def is_proven(self) -> bool:
        """Whether each hop is proven, and the last one for this record."""
        return self.problem is None


_NOT_CHECKED: Final = HopProof(state="unproven", reason="a later hop is not proven")


def prove_trail(
    record: Record,
    keyring: Keyring,
    *,
    signers: Iterable[str] = (),
    accept_origins: Iterable[str] = (),
    now_ms: int | None = None,
) -> TrailProof:
    """Return which hops of a record's trail are proven.

    The record is as the chain of its writer had it at ``trail``: decrypted and decompressed, and with its
    value as bytes. If a consumer with ``trail`` has delivered it, its own entry is the last one, ``read``.

    Args:
        record: the record, with its topic, key, value and headers.
        keyring: the keys of the services, of which the public halves are enough.
        signers: services that keys may speak for, as in the options of ``trail``.
        accept_origins: topics whose records may have been copied without an entry, as in the options of
            ``trail``; the cluster of the record itself is not compared.
        now_ms: the clock that ``not_before`` of keys is compared with, in milliseconds since the epoch; None
            compares it only with the time of the entry.

    Raises:
        WireFormatError: the trail itself does not follow spec/trail.md.
    """
    return TrailProver(signers, Origins(accept_origins)).prove(record, keyring, now_ms, delivered=True)


class TrailProver:
    """Prove trails; remember verifiers of keys and the roots of batches. For one caller at a time.

    Args:
        signers: as in :func:`prove_trail`.
        origins: the topics whose records may have been copied to the topic where they are found.
    """

    def __init__(self, signers: Iterable[str], origins: Origins) -> None:
        self._services: Final[dict[str, list[str]]] = {}
        for key_id, _, service in (each.rpartition("=") for each in signers):
            self._services.setdefault(key_id, []).append(service)
        self._origins: Final = origins
        self._digest: Final = _digests()
        self._keyring: Keyring | None = None
        self._by_hint: dict[int, list[Key]] = {}
        self._verify: dict[tuple[str, int, bool], Verify] = {}
        self._batches: Final = VerifiedBatches()

    def prove(
        self,
        record: Record,
        keyring: Keyring,
        now_ms: int | None = None,
        *,
        cluster: str | None = None,
        delivered: bool = False,
        thorough: bool = True,
    ) -> TrailProof:
        """Return the proof of a record from its topic, or, if it was ``delivered``, as a consumer gave it.

        Unless it is ``thorough``, no hop before an unproven or broken one is checked: then a forged record
        costs one signature, however many proofs it has.
        """
        if keyring is not self._keyring:
            self._use(keyring)
        value, proofs = _last_of(record.headers)
        if value is None:
            return TrailProof(trail=TrailReading(), problem="it has no trail")
        if not thorough and value.count(b",") > MAX_HOPS:
            problem = f"its trail has more than {MAX_HOPS:,} entries, which no proofs have"
            return TrailProof(trail=TrailReading(), problem=problem)
        reading = decode_trail(value)
        if not reading.entries:
            return TrailProof(trail=reading, problem="its trail has no entries")
        try:
            history = _history(value, proofs)
        except WireFormatError as error:
            why = HopProof(state="unproven", reason=f"its proofs cannot be read: {error}")
            return TrailProof(trail=reading, hops=(why,) * len(reading), problem=why.reason)
        hops = self._hops(history, reading, record, now_ms, delivered=delivered, thorough=thorough)
        return TrailProof(trail=reading, hops=hops, problem=self._problem(reading, hops, record, cluster))

    def _use(self, keyring: Keyring) -> None:
        self._keyring, self._by_hint, self._verify = keyring, {}, {}
        self._batches.clear()
        for key in keyring.keys:
            if key.status != "deleted" and "sign" in key.use:
                self._by_hint.setdefault(_hint(key), []).append(key)

    def _hops(
        self,
        history: _History,
        reading: TrailReading,
        record: Record,
        now_ms: int | None,
        *,
        delivered: bool,
        thorough: bool,
    ) -> tuple[HopProof, ...]:
        last = history.last
        digest = _digest_of_last(history, record, self._digest)
        links = (history if digest is None else history.resolved(digest)).links()
        found: list[HopProof] = []
        for at in reversed(range(len(reading))):
            if not thorough and found and found[-1].state not in {"proven", "read"}:
                found.append(_NOT_CHECKED)
                continue
            entry, hop = reading[at], history.hops[at]
            if delivered and at == len(reading) - 1 and hop.kind == _NONE and _is_only_read(entry):
                found.append(HopProof(state="read"))
            elif why := _why_unknown(history, at):
                found.append(HopProof(state="unproven", reason=why))
            elif not hop.salted and at == last:
                why = "its proof no longer says for which record it was made"
                found.append(HopProof(state="broken", reason=why))
            else:
                after = at + 1 < len(reading) and history.hops[at + 1].kind == _NONE
                sent_on = after and not _is_only_read(reading[at + 1])
                found.append(self._hop(entry, hop, links[at], now_ms, sent_on=sent_on))
        return tuple(reversed(found))

    def _hop(
        self, entry: TrailEntry, hop: _Hop, link: bytes, now_ms: int | None, *, sent_on: bool
    ) -> HopProof:
        candidates = self._by_hint.get(hop.hint, [])
        key = next((key for key in candidates if self._fits(key, hop, link)), None)
        if key is None:
            if sent_on:
                why = "the next hop, which has no proof, has sent the record on, perhaps changed"
                return HopProof(state="unproven", reason=why)
            if not candidates:
                return HopProof(state="unproven", reason="its key is not in the keyring")
            why = "its signature does not fit: the entry, an earlier one or the record was changed"
            return HopProof(state="broken", reason=why)
        signed_by = f"key {key.id!r} version {key.version}"
        if not self._may_speak(key.id, entry.by_whom):
            who = "no service" if entry.by_whom is None else f"service {printable(entry.by_whom)!r}"
            why = f"{signed_by} signed it, which may not speak for {who} (signers)"
            return HopProof(state="broken", key_id=key.id, key_version=key.version, reason=why)
        why_not = f"{signed_by} is revoked" if key.status == "revoked" else None
        why_not = why_not or key.refusal(
            entry.produced_into_topic or "", entry.when_ms, now_ms, clock_skew_ms=_SKEW_MS
        )
        return HopProof(
            state="unproven" if why_not else "proven",
            key_id=key.id,
            key_version=key.version,
            reason=why_not,
        )

    def _fits(self, key: Key, hop: _Hop, link: bytes) -> bool:
        named = key.id, key.version, hop.kind == _SHARED
        verify = self._verify.get(named)
        if verify is None:
            statement = _statement(key)
            if hop.kind == _SHARED:
                if key.secret is not None:
                    return False
                verify = self._batches.verifier(key, statement, _SHARED_DOMAIN)
            else:
                verify = verifier(key, beginning(key.algorithm, statement, domain=_OWN_DOMAIN))
            self._verify[named] = verify
        if hop.kind != _SHARED and len(hop.proof) != signature_bytes(key):
            return False
        try:
            return verify(link, hop.proof)
        except WireFormatError:
            return False

    def _may_speak(self, key_id: str, by_whom: str | None) -> bool:
        if by_whom is None:
            return False
        if by_whom == key_id or by_whom.startswith(f"{key_id}/"):
            return True
        return any_fits(self._services.get(key_id, ()), by_whom)

    def _problem(
        self, reading: TrailReading, hops: Sequence[HopProof], record: Record, cluster: str | None
    ) -> str | None:
        for at in reversed(range(len(hops))):
            hop = hops[at]
            if hop.state not in {"proven", "read"}:
                who = reading[at].by_whom
                named = "" if who is None else f" of {printable(who)!r}"
                return f"hop {at + 1}{named} is {hop.state}: {hop.reason}"
        if reading.left_out and not any(hop.state == "proven" for hop in hops[1:]):
            return "no hop has signed how many entries were left out"
        for at in range(1 + bool(reading.left_out), len(reading)):
            entry = reading[at]
            if entry.read_from_topic is not None and (
                why := self._copied(reading[at - 1], entry.read_from_cluster, entry.read_from_topic)
            ):
                return f"hop {at} sent it {why}, by hop {at + 1}"
        latest = next((entry for entry in reversed(reading.entries) if not _is_only_read(entry)), None)
        if latest is None:
            return "no hop has sent it"
        why = self._copied(latest, cluster, record.topic)
        return None if why is None else f"its last hop sent it {why}"

    def _copied(self, sent: TrailEntry, cluster: str | None, topic: str) -> str | None:
        """Return why a record may not have come to a topic, as the end of a sentence; None if it may."""
        into = sent.produced_into_cluster or "", sent.produced_into_topic or ""
        return self._origins.problem(*into, own=cluster, found_in=topic)


class SignedTrailStep(TrailStep):
    """The hooks of one session whose trails are proofs; sending is safe for several threads.

    Native code does not make proofs, so this class has no ``native_form``.
    """

    __slots__ = (
        "_always_proves",
        "_batch_records",
        "_digest",
        "_file",
        "_key_id",
        "_key_of",
        "_prover",
        "_require",
        "_salts",
        "_unproven",
    )

    def __init__(
        self, options: Trail, context: Context, *, salts: Callable[[int], bytes] = os.urandom
    ) -> None:
        super().__init__(options, context)
        self._key_id: Final = options.key_id or options.service
        self._file: Final = follow_keyring(options, options.keyring or "", self._key_id, context)
        self._batch_records: Final = options.batch_records
        self._require: Final = options.require
        self._always_proves: Final = context.dry_run
        self._prover: Final = TrailProver(options.signers, Origins(options.accept_origins))
        self._digest: Final = _digests()
        self._salts: Final = salts
        self._key_of: tuple[Keyring, _Signing] | None = None
        self._unproven: Final = Unprotected(
            options.require, log=_log, without="whose trail is not proven", refusal=SignatureError
        )

    def stats(self) -> dict[str, int]:
        """Return the counts of records whose trail is not proven, and of the keyring's reloads."""
        return {
            "unproven": self._unproven.count,
            "keyring_reloads": self._file.reloads,
            "keyring_failures": self._file.failures,
        }

    def on_send(self, record: Record) -> Record:
        """Complete the latest entry, or add an entry, and sign it."""
        if self._cluster is None:
            self._look_for_cluster()
        now_ms = self._now_ms()
        signing = self._signing(record.topic, now_ms)
        sent = self._begun(record, now_ms, self._salts(_SALT_BYTES))
        return self._finished(record, sent, signing, signing.own(sent.link), shared=False)

    def on_send_batch(self, batch: Batch) -> Batch:
        """Sign many records with one signature, if the key and ``batch_records`` permit it."""
        if self._cluster is None:
            self._look_for_cluster()
        now_ms = self._now_ms()
        signing = self._signing(batch.topic, now_ms)
        if self._batch_records < _MIN_BATCH or signing.together is None or len(batch) < _MIN_BATCH:
            return batch.leave()
        records = batch.records()
        headers: list[Headers] = list(batch.headers)
        failures: dict[int, Exception] = {}
        not_taken: list[int] = []
        for first in range(0, len(batch), self._batch_records):
            begun: dict[int, _Sent] = {}
            group = range(first, min(first + self._batch_records, len(batch)))
            for at in group:
                try:
                    begun[at] = self._begun(records[at], now_ms, self._salts(_SALT_BYTES))
                except HeaderwareError as error:
                    failures[at] = error
            if len(begun) < _MIN_BATCH:
                not_taken += begun
                continue
            proofs = signing.together([sent.link for sent in begun.values()])
            for (at, sent), proof in zip(begun.items(), proofs, strict=True):
                headers[at] = self._finished(records[at], sent, signing, proof, shared=True).headers
        return batch.replace(headers=headers, failures=failures, not_taken=not_taken)

    def on_consume(self, record: Record) -> Record:
        """Prove the trail if that is required, and add an entry; a dry run only proves."""
        if self._cluster is None:
            self._look_for_cluster()
        now_ms = self._now_ms()
        if self._always_proves or self._require != "off":
            proof = self._proven(record, now_ms)
            if proof.problem is not None:
                if self._require == "enforce":
                    raise SignatureError(f"its trail is not proven: {proof.problem}")
                if self._require == "warn":
                    self._unproven.judge(record)
            local = {**(record.local or {}), PROVEN: proof}
            record = record.with_parts(record.value, record.key, record.headers, local)
        return record if self._always_proves else self._read_by(record, now_ms)

    def on_consume_batch(self, batch: Batch) -> Batch:
        """Leave each record to :meth:`on_consume`."""
        return batch.leave()

    def _proven(self, record: Record, now_ms: int) -> TrailProof:
        try:
            return self._prover.prove(
                record,
                self._file.current(now_ms),
                now_ms,
                cluster=self._cluster,
                thorough=self._always_proves,
            )
        except WireFormatError as error:
            return TrailProof(trail=TrailReading(), problem=f"its trail cannot be read: {error}")

    def _read_by(self, record: Record, now_ms: int) -> Record:
        """Add an entry, and the digest of the record to its proofs, for the hop that sends it on."""
        others, trail, proofs = _apart(record.headers)
        try:
            value = checked_trail(trail[1]) if trail is not None else b"1"
            value = continued(value, self._read[record.topic], now_ms)
            history = _history(value, proofs).recovered()
        except WireFormatError:
            return record  # what cannot be read stays as it is
        seen = _digest_of_last(history, record, self._digest)
        try:
            pairs = self._within_bounds(value, history._replace(seen=seen))
        except WireFormatError:
            return record
        return record.with_headers(Headers.trusted((*others, *pairs)))

    def _begun(self, record: Record, now_ms: int, salt: bytes) -> _Sent:
        """Return the trail of a record that is sent, with what its latest entry's proof has to sign."""
        parts = self._produced[record.topic]
        others, trail, proofs = _apart(record.headers)
        value, history = self._own_history(trail, proofs, parts, now_ms)
        before = history.settled()
        digest = self._digest(salt, record)
        hop = _Hop(_OWN_64, 0, salted=False, digest=digest, proof=b"")
        history = before._replace(hops=(*before.hops[:-1], hop))
        return _Sent(others, value, before, salt, history.links()[-1])

    def _own_history(
        self, trail: Pair | None, proofs: bytes | None, parts: Parts, now_ms: int
    ) -> tuple[bytes, _History]:
        value = b"1"
        if trail is not None:
            try:
                value = checked_trail(trail[1])
                count_left_out(value.partition(b",")[0])
                bounded(continued(value, parts, now_ms), self._max_entries, self._max_bytes)
            except WireFormatError:
                value, proofs = b"1", None  # a trail that cannot go on ends here
        value = continued(value, parts, now_ms)
        try:
            return value, _history(value, proofs)
        except WireFormatError:
            return value, _history(value, None)

    def _finished(
        self, record: Record, sent: _Sent, signing: _Signing, proof: bytes, *, shared: bool
    ) -> Record:
        kind = _SHARED if shared else _KIND_OF_SIZE.get(len(proof), _OWN_LONG)
        hop = _Hop(kind, signing.hint, salted=True, digest=sent.salt, proof=proof)
        history = sent.before._replace(hops=(*sent.before.hops[:-1], hop))
        pairs = self._within_bounds(sent.value, history)
        return record.with_headers(Headers.trusted((*sent.others, *pairs)))

    def _within_bounds(self, value: bytes, history: _History) -> tuple[Pair, ...]:
        """Return both headers, without the entries from the second on that exceed a bound."""
        short = bounded(value, self._max_entries, self._max_bytes)
        count = len(history.entries)
        dropped = count - short.count(b",")
        if (more := history.dropped_to_fit(dropped, self._max_bytes)) > dropped:
            dropped, short = more, shortened(value, count - more, self._max_bytes)
        text = history.encode(dropped=dropped)
        trail = TRAIL_HEADER, short
        return (trail,) if text is None else (trail, (PROOF_HEADER, text))

    def _signing(self, topic: str, now_ms: int) -> _Signing:
        keyring = self._file.current(now_ms)
        known = self._key_of
        if known is None or known[0] is not keyring or not known[1].since_ms <= now_ms <= known[1].until_ms:
            try:
                key = keyring.current_key(self._key_id or "", "sign", now_ms)
            except KeyringError as error:
                raise SignatureError(f"cannot sign the trail: {error}") from error
            self._key_of = known = keyring, _signing(key, *keyring.term_ms(key))
        if refusal := known[1].key.refusal(topic, now_ms):
            raise SignatureError(f"cannot sign the trail: {refusal}")
        return known[1]


class _Sent(NamedTuple):
    """A record that is being sent: its other headers, its trail, and what its latest entry signs."""

    others: list[Pair]
    value: bytes
    before: _History
    salt: bytes
    link: bytes


class _Signing(NamedTuple):
    """The functions that sign with one version of a key."""

    key: Key
    hint: int
    since_ms: float
    until_ms: float
    own: Callable[[bytes], bytes]
    together: Callable[[Sequence[bytes]], list[bytes]] | None


def _signing(key: Key, since_ms: float, until_ms: float) -> _Signing:
    statement = _statement(key)
    own = signer(key, beginning(key.algorithm, statement, domain=_OWN_DOMAIN))
    together = None if key.secret is not None else _together(key, statement)
    return _Signing(key, _hint(key), since_ms, until_ms, own, together)


def _together(key: Key, statement: bytes) -> Callable[[Sequence[bytes]], list[bytes]]:
    sign, leaf = batch_signer(key, statement, _SHARED_DOMAIN), leaf_beginning(key, statement, _SHARED_DOMAIN)
    return lambda links: sign([sha256(leaf + link).digest() for link in links])


class _Hop(NamedTuple):
    """The proof of one entry."""

    kind: int
    hint: int
    salted: bool
    digest: bytes
    """The digest of the record that the hop sent; its salt if ``salted``."""
    proof: bytes


_NO_PROOF: Final = _Hop(_NONE, 0, salted=False, digest=_NO_DIGEST, proof=b"")


class _History(NamedTuple):
    """The entries of a trail with their proofs, one for each; at least one entry."""

    entries: tuple[bytes, ...]
    left_out: int
    folded: bytes
    """The link of the last entry that was left out; zero bytes if it is unknown, or none was left out."""
    hops: tuple[_Hop, ...]
    lost: bool
    """Whether entries were left out whose links are unknown, so that later ones cannot be verified."""
    seen: bytes | None
    """The digest of the record that was read, by the chain that has read it."""

    @property
    def last(self) -> int | None:
        """The index of the last entry with a proof, or None."""
        return next((at for at in reversed(range(len(self.hops))) if self.hops[at].kind != _NONE), None)

    def links(self) -> list[bytes]:
        """Return the link of each entry."""
        first = _link(1, self.hops[0], _NO_LINK, _NO_LINK, self.entries[0])
        found, before = [first], self.folded if self.left_out else first
        for at in range(1, len(self.entries)):
            number = min(self.left_out + at + 1, MAX_LEFT_OUT)
            before = _link(number, self.hops[at], first, before, self.entries[at])
            found.append(before)
        return found

    def resolved(self, digest: bytes) -> _History:
        """Return the history with the digest of the record in place of the salt of the last proof."""
        last = self.last
        assert last is not None  # noqa: S101 - the callers have looked
        hop = self.hops[last]._replace(salted=False, digest=digest)
        return self._replace(hops=(*self.hops[:last], hop, *self.hops[last + 1 :]), seen=None)

    def recovered(self) -> _History:
        """Return the history without proofs that need links which nobody has any more."""
        if not self.lost:
            return self
        hops = (self.hops[0], *(_NO_PROOF for _ in self.hops[1:]))
        return self._replace(hops=hops, lost=False, folded=_NO_LINK, seen=None)

    def settled(self) -> _History:
        """Return the history as the next hop takes it over: with the digest that was seen."""
        found = self.recovered()
        last = found.last
        if found.seen is None or last is None or not found.hops[last].salted:
            return found._replace(seen=None)
        return found.resolved(found.seen)

    def dropped_to_fit(self, dropped: int, max_bytes: int) -> int:
        """Return how many entries to drop, this many or more, so that the header's value has its size.

        The first entry and the latest stay, whatever their size. Nothing is encoded here, because others
        decide how many entries and proofs there are.
        """
        last = self.last
        most = len(self.entries) - _KEPT
        if last is None:
            return dropped
        sizes = [_hop_bytes(hop) for hop in self.hops[: last + 1]]
        later = sum(sizes[dropped + 1 :])
        while dropped < most:
            size = _HEAD_BYTES + sizes[0] + later
            if self.left_out or dropped:
                size += _LINK_BYTES
            if self.seen is not None and self.hops[last if dropped < last else 0].salted:
                size += _SEEN_BYTES
            if text_bytes(size) <= max_bytes:
                break
            dropped += 1
            later -= sizes[dropped] if dropped <= last else 0
        return dropped

    def encode(self, *, dropped: int) -> bytes | None:
        """Return the header's value without some entries from the second on; None if it has no proof."""
        left_out, link = min(self.left_out + dropped, MAX_LEFT_OUT), self.folded
        if dropped:
            link = self.settled().links()[dropped]
        hops = [self.hops[0], *self.hops[dropped + 1 :]]
        while hops and hops[-1].kind == _NONE:
            hops.pop()
        if not hops:
            return None
        folded = min(left_out + 1, MAX_LEFT_OUT) if left_out else 0
        return Proofs(folded, link, tuple(hops), self.seen if hops[-1].salted else None).encode()


class Proofs(NamedTuple):
    """What ``hw.trail.proof`` holds: see the layout."""

    folded: int = 0
    link: bytes = _NO_LINK
    hops: tuple[_Hop, ...] = ()
    seen: bytes | None = None

    def encode(self) -> bytes:
        """Return the header's value."""
        parts = [bytes((_VERSION,)), _u16.pack(self.folded)]
        if self.folded:
            parts.append(self.link)
        for hop in self.hops:
            parts += _encode_hop(hop)
        if self.seen is not None:
            parts += (_u16.pack(_SEEN << 13), self.seen)
        return encode_text(b"".join(parts))


def _hop_bytes(hop: _Hop) -> int:
    if hop.kind == _NONE:
        return _u16.size
    size = 0 if hop.kind in _SIZES else _u16.size
    return _u16.size + _SALT_BYTES + size + len(hop.proof)


def _encode_hop(hop: _Hop) -> tuple[bytes, ...]:
    if hop.kind == _NONE:
        return (_u16.pack(0),)
    head = _u16.pack(hop.kind << 13 | (_SALTED if hop.salted else 0) | hop.hint)
    size = b"" if hop.kind in _SIZES else _u16.pack(len(hop.proof))
    return head, hop.digest, size, hop.proof


def _history(value: bytes, proofs: bytes | None) -> _History:
    """Return the entries of a checked trail, which has some, with the proofs that belong to them.

    Raises:
        WireFormatError: the proofs do not follow spec/trail.md, or the trail's beginning does not.
    """
    start, *entries = value.split(b",")
    left_out = count_left_out(start)
    folded, link, hops, seen = Proofs() if proofs is None else read_proofs(proofs)
    expected = min(left_out + 1, MAX_LEFT_OUT) if left_out else 0
    later = hops[1:]
    lost = bool(hops) and folded != expected
    if lost:
        gone = max(expected, 1) - max(folded, 1)
        later = later[gone:] if gone > 0 else ()
        link = _NO_LINK
    found = [*hops[:1], *later][: len(entries)]
    found += [_NO_PROOF] * (len(entries) - len(found))
    return _History(tuple(entries), left_out, link, tuple(found), lost, seen)


def read_proofs(value: bytes | None) -> Proofs:
    """Decode the value of one ``hw.trail.proof`` header.

    Raises:
        WireFormatError: it does not follow spec/trail.md.
    """
    layout = decode_text(value, PROOF_HEADER)
    reader = _Reader(layout)
    if (version := reader.take(1)[0]) != _VERSION:
        raise WireFormatError(f"{PROOF_HEADER}: expected version {_VERSION}, found version {version}")
    folded, hops, seen = reader.number(), list[_Hop](), None
    if folded == 1:
        raise WireFormatError(f"{PROOF_HEADER}: the first entry is never folded")
    link = reader.take(_LINK_BYTES) if folded else _NO_LINK
    while reader.at < len(layout):
        head = reader.number()
        kind = head >> 13
        if kind == _SEEN and head == _SEEN << 13:
            seen = reader.take(_SALT_BYTES)
            if reader.at != len(layout):
                raise WireFormatError(f"{PROOF_HEADER}: found bytes after the digest that was seen")
            break
        if kind == _NONE and head == 0:
            hops.append(_NO_PROOF)
        elif _NONE < kind <= _SHARED:
            digest = reader.take(_SALT_BYTES)
            size = _SIZES.get(kind) or reader.number()
            if kind == _OWN_LONG and size in _KIND_OF_SIZE:
                raise WireFormatError(f"{PROOF_HEADER}: a signature of {size} bytes has a kind of its own")
            hop = _Hop(kind, head & _HINT, bool(head & _SALTED), digest, reader.take(size))
            hops.append(hop)
        else:
            raise WireFormatError(f"{PROOF_HEADER}: proof {len(hops) + 1} is of no known kind")
        if len(hops) > MAX_HOPS:
            raise WireFormatError(f"{PROOF_HEADER}: expected proofs of at most {MAX_HOPS} entries")
    if not hops or hops[-1].kind == _NONE:
        raise WireFormatError(f"{PROOF_HEADER}: expected a proof at its end")
    return Proofs(folded, link, tuple(hops), seen)


class _Reader:
    """Take a layout apart from its beginning."""

    __slots__ = ("_layout", "at")

    def __init__(self, layout: bytes) -> None:
        self._layout: Final = layout
        self.at = 0

    def take(self, count: int) -> bytes:
        end = self.at + count
        if end > len(self._layout):
            raise WireFormatError(f"{PROOF_HEADER}: it is cut off after {len(self._layout)} bytes")
        found, self.at = self._layout[self.at : end], end
        return found

    def number(self) -> int:
        found: int = _u16.unpack(self.take(_u16.size))[0]
        return found


def _link(number: int, hop: _Hop, first: bytes, before: bytes, entry: bytes) -> bytes:
    form = 0 if hop.kind == _NONE else 1 + hop.salted
    return sha256(
        b"".join((_LINK, _number_and_form.pack(number, form), first, before, hop.digest, entry))
    ).digest()


def _digests() -> Callable[[bytes, Record], bytes]:
    """Return a function that computes the digest of a record with a salt."""
    rest = rest_of_signed_bytes()

    def digest(salt: bytes, record: Record) -> bytes:
        headers = tuple(pair for pair in record.headers if is_covered(pair[0]))
        return sha256(_RECORD + rest(salt, record.key, record.value, headers)).digest()[:_SALT_BYTES]

    return digest


def is_covered(name: str) -> bool:
    """Return whether the digest of a record covers a header of this name."""
    if is_own(name):
        return name in _OWN_COVERED
    folded = name.casefold()
    return not (folded in _ADDED_LATER or folded.startswith(_ADDED_LATER_PREFIXES))


def _statement(key: Key) -> bytes:
    named = key.id.encode()
    return bytes((len(named),)) + named + _u16.pack(key.version)


def _hint(key: Key) -> int:
    found: int = _u16.unpack(sha256(_KEY + _statement(key)).digest()[:2])[0]
    return found & _HINT


def _apart(headers: Headers) -> tuple[list[Pair], Pair | None, bytes | None]:
    """Return the other headers, the last trail, and the last value of proofs."""
    others, trail = apart(headers)
    proofs = [value for name, value in others if name == PROOF_HEADER]
    if proofs:
        others = [pair for pair in others if pair[0] != PROOF_HEADER]
    return others, trail, proofs[-1] if proofs else None


def _last_of(headers: Headers) -> tuple[bytes | None, bytes | None]:
    values = [headers.all(name) for name in (TRAIL_HEADER, PROOF_HEADER)]
    trail, proofs = (found[-1] if found else None for found in values)
    return trail, proofs


def _digest_of_last(
    history: _History, record: Record, digest: Callable[[bytes, Record], bytes]
) -> bytes | None:
    """Return the digest of a record that was read, with the salt of the last proof; None if it has none.

    No signer signs zero bytes as a digest, so they fit no proof.
    """
    last = history.last
    if last is None or not history.hops[last].salted:
        return None
    try:
        return digest(history.hops[last].digest, record)
    except SignatureError:  # a header has a name that no signer can sign
        return _NO_DIGEST


def _why_unknown(history: _History, at: int) -> str | None:
    """Return why the proof of an entry cannot be checked, or None if it can."""
    hop = history.hops[at]
    if hop.kind == _NONE:
        return "it has no proof"
    if at and history.lost:
        return "entries before it were dropped by a service that does not sign its trail"
    if hop.salted and at != history.last:
        return "no service has noted the digest of the record that it sent"
    return None


def _is_only_read(entry: TrailEntry) -> bool:
    return entry.produced_into_cluster is None and entry.produced_into_topic is None
