"""Read a signed topic, and report which records verify, which do not, and why.

A record is verified as by a consumer with the chain: by the step ``sign`` and the steps after ``sign`` in the
chain. The other steps are left out, and nothing is committed or published. There are two differences, because
the records may be years old and are read only once: ``max_age_ms`` does not apply, and sequences are
remembered for the complete topic, not for a window.

The size of a report is bounded, so nobody can fill the memory by writing to the topic; further entries are
only counted.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from headerware.core.chain import Chain
from headerware.core.context import Context, wall_clock_ms
from headerware.core.errors import ConfigError, HeaderError, KeyringError, RegistryError, WireFormatError
from headerware.core.header_text import decode_text
from headerware.core.headers import Headers
from headerware.core.hooks import Role
from headerware.core.order import role_of
from headerware.core.record import Record, Verified
from headerware.core.runner import single_form
from headerware.core.step import wrapped
from headerware.core.topics import works_on
from headerware.interceptors.sign import Sign
from headerware.interceptors.slice.header import SLICE_HEADER, SliceHeader
from headerware.kafka.reader import BEGINNING, Start, TopicReader
from headerware.keyring.signature import SIGNATURE_HEADER, STAMP_BYTES, decode_stamp, decode_statement

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from headerware.core.step import Step
    from headerware.kafka.reader import Progress

_MAX_SIGNERS: Final = 10_000
_MAX_REFUSALS: Final = 1_000
_MAX_NAMES: Final = 1_000
_MAX_PAGES: Final = 1 << 18
"""The limit of pages of sequences for all signers together; a page takes about 256 bytes of memory."""
_PAGE_BITS: Final = 1_024
_OTHERS: Final = "(further reasons)"


class Offsets(msgspec.Struct, frozen=True, kw_only=True):
    """The number of records in one partition, and their first and last offset.

    Args:
        records: how many records.
        first: the offset of the first record.
        last: the offset of the last record.
    """

    records: int
    first: int
    last: int


class Signer(msgspec.Struct, frozen=True, kw_only=True):
    """A producer whose records verify.

    Args:
        key_id: the key that the producer signs with.
        key_version: the key's version.
        producer: the producer session, as hexadecimal text.
        records: how many of its records verify.
        uncovered: how many of these have headers that were added after signing.
        first_sequence: its lowest sequence in the topic.
        last_sequence: its highest sequence in the topic.
        gaps: how many gaps its sequences have between the lowest and the highest; None if there are too many
            sequences to remember. The records in a gap may be in other topics and partitions, or compaction
            or retention has removed them.
        missing: how many sequences are missing in the gaps.
        repeated: how many records repeat a sequence at another position. Such a record is a copy, or a
            producer without idempotence stored it twice.
        partitions: the offsets of its records, by partition.
    """

    key_id: str
    key_version: int
    producer: str
    records: int
    uncovered: int
    first_sequence: int
    last_sequence: int
    gaps: int | None
    missing: int | None
    repeated: int
    partitions: Mapping[int, Offsets]


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """Records that a consumer refuses for one reason.

    Args:
        reason: what was expected, and what was found.
        key_id: the key that the records claim to be signed with, not verified; None if it cannot be read.
        key_version: the claimed version of this key.
        producer: the claimed producer session.
        records: how many records.
        partitions: their offsets, by partition.
    """

    reason: str
    key_id: str | None
    key_version: int | None
    producer: str | None
    records: int
    partitions: Mapping[int, Offsets]


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The result of verifying a topic.

    Args:
        topic: the topic.
        records: how many records were read.
        verified: how many records verify.
        refused: how many signed records do not verify, whether or not the chain requires signatures.
        unsigned: how many records have no signature.
        uncovered: how many records verify and have headers that were added after signing.
        uncovered_names: the names of these headers, each with the number of records.
        signers: the producers whose records verify.
        refusals: the refused records, by reason.
        unsigned_partitions: the offsets of the unsigned records, by partition.
        signers_left_out: how many verified records have signers that did not fit into ``signers``.
    """

    topic: str
    records: int
    verified: int
    refused: int
    unsigned: int
    uncovered: int
    uncovered_names: Mapping[str, int]
    signers: tuple[Signer, ...]
    refusals: tuple[Refusal, ...]
    unsigned_partitions: Mapping[int, Offsets]
    signers_left_out: int

    @property
    def ok(self) -> bool:
        """Whether all records verify."""
        return self.verified == self.records


class _Sequences:
    """The sequences of one signer, as a bitmap in pages."""

    def __init__(self, room: list[int]) -> None:
        self._room = room
        self._pages: dict[int, bytearray] = {}
        self.first: int | None = None
        self.last: int = 0
        self.complete = True

    def add(self, sequence: int) -> bool:
        """Add a sequence, and return whether it was added before."""
        self.first = sequence if self.first is None else min(self.first, sequence)
        self.last = max(self.last, sequence)
        number, bit = divmod(sequence, _PAGE_BITS)
        page = self._pages.get(number)
        if page is None:
            if not self._room[0]:
                self.complete = False
                return False
            self._room[0] -= 1
            page = self._pages[number] = bytearray(_PAGE_BITS // 8)
        at, mask = bit >> 3, 1 << (bit & 7)
        if page[at] & mask:
            return True
        page[at] |= mask
        return False

    def gaps(self) -> tuple[int, int] | None:
        """Return the number of gaps and of sequences that are missing in them; None if not known."""
        if not self.complete or self.first is None:
            return None
        runs = count = 0
        before, reached = -2, False
        for number in sorted(self._pages):
            bits = int.from_bytes(self._pages[number], "little")
            goes_on = reached and number == before + 1
            runs += (bits & ~(bits << 1 | goes_on)).bit_count()
            count += bits.bit_count()
            before, reached = number, bool(bits >> (_PAGE_BITS - 1))
        return runs - 1, self.last - self.first + 1 - count


class _OffsetsByPartition(dict[int, Offsets]):
    def add(self, record: Record) -> None:
        partition, offset = record.partition or 0, record.offset or 0
        known = self.get(partition)
        if known is None:
            self[partition] = Offsets(records=1, first=offset, last=offset)
        else:
            self[partition] = Offsets(
                records=known.records + 1, first=min(known.first, offset), last=max(known.last, offset)
            )

    @property
    def records(self) -> int:
        return sum(offsets.records for offsets in self.values())


class _SignerRecords:
    """The verified records of one signer."""

    def __init__(self, room: list[int]) -> None:
        self.offsets = _OffsetsByPartition()
        self.sequences = _Sequences(room)
        self.uncovered = self.repeated = 0


class _Claim(NamedTuple):
    """The signer that a record claims, not verified."""

    key_id: str | None = None
    key_version: int | None = None
    producer: str | None = None


_UNREADABLE: Final = _Claim()


class Verification:
    """Verify the records of a topic one by one; for one caller at a time.

    Args:
        chain: a chain with ``sign``.
        topic: the topic.
        cluster_id: its cluster's id, which signatures name.
        now_ms: the clock that ``not_before`` of keys is compared with.

    Raises:
        ConfigError: the chain does not sign this topic.
        HeaderwareError: an interceptor cannot start, for example because its keyring is missing.
    """

    def __init__(
        self,
        chain: Chain,
        topic: str,
        *,
        cluster_id: str | None = None,
        now_ms: Callable[[], int] = wall_clock_ms,
    ) -> None:
        steps = [step for step in chain if works_on(step, topic)]
        at = next((at for at, step in enumerate(steps) if isinstance(step, Sign)), None)
        if at is None:
            others = [pattern for step in chain if isinstance(step, Sign) for pattern in step.topics]
            found = "found no such step; name another file"
            if others:
                found = f"found one for {', '.join(map(repr, others))} only; add the topic to its topics"
            raise ConfigError(
                f"expected a chain with sign for topic {topic!r}, {found}, or verify by --keyring FILE "
                f"without a chain"
            )
        sign = steps[at]
        assert isinstance(sign, Sign)  # noqa: S101 - it was looked for
        self._topic = topic
        self._covered = frozenset(sign.covered)
        self._refuses_repeated = sign.replay_window > 0
        steps[at] = msgspec.structs.replace(
            sign,
            require="off",  # unsigned records are counted
            uncovered="refuse" if sign.uncovered == "refuse" else "strip",
            covered=(),  # checked by _missing: only the first slice of a message has these headers
            max_age_ms=None,
            replay_window=0,
        )
        context = Context(
            side="consumer",
            client_id="headerware-verify",
            now_ms=now_ms,
            cluster_id=lambda: cluster_id,
            dry_run=True,
        )
        running = [step for step in steps[at:] if role_of(step) is not Role.OBSERVE]
        self._session = Chain(running).open(context)
        # Call the hooks directly: a session would refuse values that the steps before sign have encoded.
        self._hooks = [hook for step in reversed(self._session.steps) if (hook := _hook(step)) is not None]
        self._room = [_MAX_PAGES]
        self._signers: dict[tuple[str, int, bytes], _SignerRecords] = {}
        self._refusals: dict[tuple[str, _Claim], _OffsetsByPartition] = {}
        self._unsigned = _OffsetsByPartition()
        self._names: dict[str, int] = {}
        self._records = self._verified = self._uncovered = self._left_out = 0

    def look(self, record: Record) -> None:
        """Verify a record from the wire.

        Raises:
            KeyringError: the keyring cannot be read, so no record can be verified now.
        """
        self._records += 1
        read = record
        try:
            read = record.replace(headers=Headers(record.headers))
            for hook in self._hooks:
                out = hook(read)
                if not isinstance(out, Record):
                    self._refuse(record, "a step after sign drops the record, or makes several records of it")
                    return
                read = out
        except KeyringError:
            raise
        except HeaderError as error:
            self._refuse(record, str(error))
        except Exception as error:  # noqa: BLE001 - any exception of a hook refuses the record
            self._refuse(record, wrapped(error).message, _claim(read.headers))
        else:
            if read.verified is None:
                self._unsigned.add(record)
            else:
                self._add(read, read.verified)

    def verified(self, record: Record) -> Record | None:
        """Return the record as verified, without headers that were added later; None if it does not verify.

        The record is not counted in the report.

        Raises:
            KeyringError: the keyring cannot be read, so no record can be verified now.
            RegistryError: the registry of header ids cannot be read, so no record can be verified now.
        """
        try:
            read = record.replace(headers=Headers(record.headers))
            for hook in self._hooks:
                out = hook(read)
                if not isinstance(out, Record):
                    return None
                read = out
        except (KeyringError, RegistryError):
            raise
        except Exception:  # noqa: BLE001 - any exception of a hook refuses the record
            return None
        return None if read.verified is None or self._missing(read) else read

    def _missing(self, record: Record) -> frozenset[str]:
        """Return the headers that the signature must cover and the record lacks."""
        missing = self._covered.difference(record.headers.names())
        return missing if _begins_a_message(record.headers) else frozenset()

    def _add(self, record: Record, verified: Verified) -> None:
        claim = _Claim(verified.key_id, verified.key_version, verified.producer.hex())
        if missing := self._missing(record):
            names = ", ".join(map(repr, sorted(missing)))
            reason = f"expected these headers to be there and to be covered by the signature: {names}"
            self._refuse(record, reason, claim)
            return
        signer = verified.key_id, verified.key_version, verified.producer
        seen = self._signers.get(signer)
        if seen is None:
            is_listed = len(self._signers) < _MAX_SIGNERS
            seen = _SignerRecords(self._room if is_listed else [0])  # only listed signers take pages
            if is_listed:
                self._signers[signer] = seen
        if seen.sequences.add(verified.sequence):
            seen.repeated += 1
            if self._refuses_repeated:
                reason = "replayed: its sequence was seen at another position (replay_window)"
                self._refuse(record, reason, claim)
                return
        self._verified += 1
        self._left_out += signer not in self._signers
        seen.offsets.add(record)
        if verified.uncovered:
            self._uncovered += 1
            seen.uncovered += 1
            for name in set(verified.uncovered):
                if name in self._names or len(self._names) < _MAX_NAMES:
                    self._names[name] = self._names.get(name, 0) + 1

    def _refuse(self, record: Record, reason: str, claim: _Claim = _UNREADABLE) -> None:
        key = reason, claim
        if key not in self._refusals and len(self._refusals) >= _MAX_REFUSALS:
            key = _OTHERS, _UNREADABLE
        self._refusals.setdefault(key, _OffsetsByPartition()).add(record)

    def report(self) -> Report:
        """Return the report of the records so far."""
        return Report(
            topic=self._topic,
            records=self._records,
            verified=self._verified,
            refused=sum(offsets.records for offsets in self._refusals.values()),
            unsigned=self._unsigned.records,
            uncovered=self._uncovered,
            uncovered_names=dict(self._names),
            signers=tuple(_signer(*signer, seen) for signer, seen in self._signers.items()),
            refusals=tuple(
                Refusal(reason=reason, records=offsets.records, partitions=dict(offsets), **claim._asdict())
                for (reason, claim), offsets in self._refusals.items()
            ),
            unsigned_partitions=dict(self._unsigned),
            signers_left_out=self._left_out,
        )

    def close(self) -> None:
        """Close the interceptors."""
        self._session.close()


def verify_topic(
    conf: Mapping[str, Any],
    topic: str,
    chain: Chain,
    *,
    start: Start = BEGINNING,
    partition: int | None = None,
    timeout_s: float = 60.0,
    on_progress: Callable[[Progress], object] | None = None,
) -> Report:
    """Verify the records that a topic has now.

    Args:
        conf: the settings of a client of confluent-kafka; ``isolation.level`` decides whether records of open
            and aborted transactions are read, as for any consumer.
        topic: the topic.
        chain: a chain with ``sign``, such as the chain of the topic's consumers.
        start: where to begin in each partition.
        partition: verify only this partition; None verifies all.
        timeout_s: how long the cluster may be without an answer, in seconds.
        on_progress: called after each batch with how far the topic was read.

    Raises:
        ConfigError: the chain does not sign this topic, or the topic or partition does not exist.
        KeyringError: the keyring cannot be read.
        HeaderwareError: an interceptor cannot start, or the topic cannot be read to its end.
        confluent_kafka.KafkaException: the settings are wrong, or a partition cannot be read.
    """
    from headerware.kafka.messages import record_of  # noqa: PLC0415 - loads the client

    with TopicReader(
        conf, topic, group_id="headerware-verify", partition=partition, timeout_s=timeout_s
    ) as reader:
        verification = Verification(chain, topic, cluster_id=reader.cluster_id)
        try:
            reader.start(start)
            for batch in reader.to_end(each_batch=True):
                for message in batch:
                    verification.look(record_of(message))
                if on_progress is not None:
                    on_progress(reader.progress)
            return verification.report()
        finally:
            verification.close()


def _hook(step: Step) -> Callable[[Record], Any] | None:
    """Return a step's consuming hook for one record; None if the step has no such hook."""
    single, batch = step.hook("on_consume"), step.hook("on_consume_batch")
    return single_form(batch) if single is None and batch is not None else single


def _claim(headers: Iterable[tuple[str, bytes | None]]) -> _Claim:
    """Return the signer that a record claims; empty if the signature header cannot be read."""
    value = next((value for name, value in headers if name == SIGNATURE_HEADER), None)
    with suppress(WireFormatError):
        layout = decode_text(value, SIGNATURE_HEADER)
        statement, end = decode_statement(layout)
        _, producer, _ = decode_stamp(layout[end : end + STAMP_BYTES])
        return _Claim(statement.key_id, statement.key_version, producer.hex())
    return _UNREADABLE


def _begins_a_message(headers: Headers) -> bool:
    """Return whether the record is a complete message or the first slice of one."""
    value = headers.last(SLICE_HEADER)
    if value is None:
        return True
    with suppress(WireFormatError):
        return SliceHeader.unpack(value).index == 0
    return True


def _signer(key_id: str, key_version: int, producer: bytes, seen: _SignerRecords) -> Signer:
    gaps = seen.sequences.gaps()
    return Signer(
        key_id=key_id,
        key_version=key_version,
        producer=producer.hex(),
        records=seen.offsets.records,
        uncovered=seen.uncovered,
        first_sequence=seen.sequences.first or 0,
        last_sequence=seen.sequences.last,
        gaps=None if gaps is None else gaps[0],
        missing=None if gaps is None else gaps[1],
        repeated=seen.repeated,
        partitions=dict(seen.offsets),
    )
