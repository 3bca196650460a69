"""Remove the records of a topic that have expired, in the ways that Kafka permits.

A pass reads the topic to its end, and decides by the rules alone. Then it deletes the beginning of each
partition in which all records have expired, and writes tombstones for keys of a compacted topic. No state is
stored between
passes: each pass judges all records again, including records that were not removed because the process was
killed.

Objects of the claim check are deleted last, and only objects that no record claims any more. If a pass ends
early, no existing record has therefore lost its object.

An executing pass holds the lease of the topic from before it reads until it is closed, so that only one pass
works at a time. If a process was suspended and does not know yet that its lease is lost, there may be two
passes; the following rules keep that harmless.

A pass takes the transactional id only when it has something to remove; this ends another pass that is
removing records. If each pass took the id before it read the topic, passes that take longer than the interval
between their starts would end one another, and none would finish.

A tombstone must not delete a record that came after the pass read the topic. The tombstones of a batch are
therefore written in a transaction, and before the commit the partition is read from the end of the pass up to
the tombstones, including uncommitted records. If a record is before the tombstone of its key, the transaction
is aborted, and repeated without that key. A record after the tombstone is newer, and is not deleted by it.
Each record after the pass is read once, most of them before a transaction begins.

A pass may take hours, and the topic may be deleted and recreated in the meantime. The id of the topic is
therefore checked before records are removed.
"""

from __future__ import annotations

import json
import logging
import secrets
from collections import Counter
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

import msgspec
from confluent_kafka import KafkaException

from headerware.core.closing import Closing
from headerware.core.context import wall_clock_ms
from headerware.core.errors import ConfigError, HeaderwareError, position
from headerware.core.headers import Headers
from headerware.core.record import Record
from headerware.core.stop_flag import StopFlag
from headerware.kafka.admin import Admin, Isolation
from headerware.kafka.errors import Kind, kind_of
from headerware.kafka.messages import is_readable, record_of
from headerware.kafka.reader import TopicReader, strict_settings
from headerware.kafka.single_records import SingleRecords
from headerware.ops.claims import (
    LEAST_AGE_MS,
    delete_orphans,
    find_orphans,
    require_topics_and_stores,
)
from headerware.ops.retention.keys import Choice, Keys
from headerware.ops.retention.plan import Partition, PartitionPlan, Tombstones
from headerware.ops.retention.rules import DISPOSITIONS, Judge, RetentionDisposition, RetentionRule
from headerware.ops.verify import Verification
from headerware.workers.ownership import Lease
from headerware.workers.pace import Pace
from headerware.workers.transactions import TransactionalSender
from headerware.workers.units import Room

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from confluent_kafka import Message

    from headerware.core.chain import Chain
    from headerware.kafka.reader import Progress

RETAINED: Final = "headerware.retained"
"""The header of the tombstones; its value is a random token of the process and a count."""
_TOMBSTONES: Final = 1_000
_TOMBSTONE_BYTES: Final = 8 << 20
_TIMEOUT_S: Final = 30.0
_BATCH: Final = 500
UNMEANT: Final[frozenset[RetentionDisposition]] = frozenset(
    {"unverified", "malformed", "unknown_id", "incomplete"}
)
"""Dispositions of records that stay forever although no rule says so."""
_log: Final = logging.getLogger("headerware.ops.retention")


class HeldBack(msgspec.Struct, frozen=True, kw_only=True):
    """The first record of a partition that stays; later records cannot be deleted with the beginning.

    Args:
        disposition: why the record stays.
        offset: the offset of the record.
        expired: how many later records that were read have expired.
        reason: why the record does not verify; None if it verifies or was not checked.
        key_id: the key that an unverified record claims to be signed with; anyone can make this claim.
        timestamp_ms: the timestamp of a record that stays although no rule says so; None if it has none or
            was deleted.
    """

    disposition: RetentionDisposition
    offset: int
    expired: int
    reason: str | None = None
    key_id: str | None = None
    timestamp_ms: int | None = None


class RetentionResult(msgspec.Struct, kw_only=True):
    """The result of a pass, or its preview.

    Args:
        topic: the topic.
        executed: True if records were removed; False for a preview, which tells what would be removed.
        records: how many records were read.
        dispositions: how many records have each disposition.
        deleted: how many records are deleted with the beginnings of partitions.
        delete_before: the offset before which each of these partitions is deleted.
        held_back: the first record that stays, for each partition whose beginning can be deleted.
        tombstones: how many keys get tombstones, including the keys of slices.
        replaced: how many records the tombstones replace.
        newer: how many keys got no tombstone because a newer record had come.
        rest: how many expired records only a copy can leave out. In a compacted topic, these are the latest
            records of keys that have a held record, or a record that stays in another partition; the broker
            removes records that are not the latest.
        beginnings: whether only beginnings were read; then ``dispositions`` and ``rest`` count only these.
        stopped: whether :meth:`Retention.stop` ended the pass early.
    """

    topic: str
    executed: bool
    records: int = 0
    dispositions: dict[RetentionDisposition, int] = msgspec.field(default_factory=dict)
    deleted: int = 0
    delete_before: dict[int, int] = msgspec.field(default_factory=dict)
    held_back: dict[int, HeldBack] = msgspec.field(default_factory=dict)
    tombstones: int = 0
    replaced: int = 0
    newer: int = 0
    rest: int = 0
    beginnings: bool = False
    stopped: bool = False

    @property
    def in_the_way(self) -> dict[int, HeldBack]:
        """The records that stay although no rule says so, and so keep expired records from being deleted."""
        return {
            number: each
            for number, each in self.held_back.items()
            if each.disposition in UNMEANT and (each.expired or self.beginnings)
        }

    @property
    def ok(self) -> bool:
        """Whether the pass reached its end, and no record is in the way."""
        return not (self.stopped or self.in_the_way)


class Objects(msgspec.Struct, frozen=True, kw_only=True):
    """The objects of a topic that no record claims any more.

    Args:
        count: how many objects.
        size_bytes: their total size.
        deleted: how many objects were deleted.
        unreadable: how many records may contain a claim that could not be read; if any, no object is deleted.
    """

    count: int
    size_bytes: int
    deleted: int
    unreadable: int


class _NewerError(HeaderwareError):
    """Newer records of some of the batch's keys have come."""


class _Since:
    """The records of a partition after the end of the pass, including uncommitted ones; each is read once."""

    def __init__(self, reader: TopicReader, number: int, position: int) -> None:
        self._reader: Final = reader
        self._number: Final = number
        self.position = position

    def batches(self) -> Iterator[list[tuple[bytes, bytes | None]]]:
        """Yield the keys of new records, each with its token if the record is a tombstone of retention."""
        self._reader.start(offsets={self._number: self.position})
        (_, end) = self._reader.bounds[self._number]
        if end < self.position:
            raise HeaderwareError(
                f"a partition ends at offset {end}, but was read up to {self.position}: it was truncated, or "
                f"its new leader does not know its end yet; start again"
            )
        for batch in self._reader.to_end(each_batch=True):
            records = (record_of(message) for message in batch)
            yield [(record.key, _token_of(record)) for record in records if record.key is not None]
        self.position = end


def _token_of(record: Record) -> bytes | None:
    if record.value is not None or not is_readable(record):
        return None
    return record.headers.last(RETAINED)


def _count_deleted(result: RetentionResult, number: int, plan: PartitionPlan) -> None:
    result.deleted += plan.deleted
    if plan.deleted:
        result.delete_before[number] = plan.delete_before


class Retention(Closing):
    """Remove the expired records of a topic; for one caller at a time. Any thread may call :meth:`stop`.

    Args:
        conf: the settings of a client of confluent-kafka, used for all clients.
        topic: the topic.
        rule: the lifetimes of records.
        audit: a topic for accounts of the removed records, as JSON.
        chain: a chain with ``sign``; records that it does not verify stay.
        beginnings: whether to read each partition only up to its first record that stays. A partition that
            begins with slices of messages is read to its end.
        rate: how many records are read per second at most; None means no limit.
        timeout_s: how long the cluster may take to answer, in seconds.
        now_ms: the clock.

    Raises:
        ConfigError: a topic does not exist, or the topic is compacted and ``beginnings`` is set.
        confluent_kafka.KafkaException: the settings are wrong, or the cluster does not answer.
    """

    def __init__(
        self,
        conf: Mapping[str, Any],
        topic: str,
        rule: RetentionRule,
        *,
        audit: str | None = None,
        chain: Chain | None = None,
        beginnings: bool = False,
        rate: float | None = None,
        timeout_s: float = _TIMEOUT_S,
        now_ms: Callable[[], int] = wall_clock_ms,
    ) -> None:
        if audit == topic:
            raise ConfigError(f"expected an audit topic other than {topic}, found the same", path="audit")
        self._conf: Final = {"log_level": 0, **conf}
        self._topic: Final = topic
        self._rule: Final = rule.for_topic(topic)
        self._audit: Final = audit
        self._beginnings: Final = beginnings
        self._timeout_s: Final = timeout_s
        self._now_ms: Final = now_ms
        self._id: Final = f"headerware-retain-{topic}"
        self._token: Final = secrets.token_hex(8).encode()
        self._attempt = 0
        self._ends: dict[int, int] = {}
        self._stop: Final = StopFlag()
        self._pace: Final = Pace(rate, self._stop)
        self._lease: Lease | None = None
        self._admin: Final = Admin(self._conf, timeout_s=timeout_s)
        with self._open("read_committed") as reader:
            if audit is not None and not reader.count_partitions(audit):
                raise ConfigError(
                    f"topic {audit} does not exist, or this user may not see it; create it", path="audit"
                )
            cluster_id = reader.cluster_id
        self._policy: Final = frozenset(self._admin.topic_settings(topic)["cleanup.policy"].split(","))
        self._topic_id: Final = self._admin.describe_topic(topic).id
        if beginnings and "compact" in self._policy:
            raise ConfigError(
                f"{topic} is compacted, so it must be read to its end; leave this out", path="beginnings"
            )
        self._verification: Final = (
            None if chain is None else Verification(chain, topic, cluster_id=cluster_id, now_ms=now_ms)
        )

    def stop(self) -> None:
        """Stop after the removal that is under way; for signal handlers and other threads."""
        self._stop.set()

    def preview(self, tell: Callable[[Progress], object] = lambda _: None) -> RetentionResult:
        """Return what would be removed, without removing anything; ``tell`` is called with the progress."""
        result = RetentionResult(topic=self._topic, executed=False, beginnings=self._beginnings)
        with closing(Keys()) as keys:
            for number, (plan, choice) in self._plans(result, keys, tell).items():
                _count_deleted(result, number, plan)
                result.tombstones += choice.tombstones
                result.replaced += choice.replaced
        return result

    def execute(self, tell: Callable[[Progress], object] = lambda _: None) -> RetentionResult:
        """Remove the records that have expired by now, and return the result.

        This takes the lease of the topic, and keeps it until :meth:`close`.

        Args:
            tell: called with the progress of the pass, in offsets, after each batch.

        Raises:
            LeaseHeldError: another process works on the topic, or has taken over; no more records are
                removed.
            LeaseLostError: the lease is lost; no more records are removed.
            HeaderwareError: another process has taken over, the topic was recreated, the audit topic refuses
                an account, or there is no space for the keys.
            KeyringError: records cannot be verified now.
            confluent_kafka.KafkaException: the cluster refuses a request.
        """
        result = RetentionResult(topic=self._topic, executed=True, beginnings=self._beginnings)
        self._require_lease()
        with closing(Keys()) as keys:
            plans = self._plans(result, keys, tell)
            if any(plan.deleted or choice.tombstones for plan, choice in plans.values()):
                with closing(self._sender()) as sender:
                    for number, (plan, choice) in sorted(plans.items()):
                        if self._stop.is_set():
                            break
                        if plan.deleted:
                            self._delete(sender, number, plan)
                            _count_deleted(result, number, plan)
                        if choice.tombstones:
                            self._write_tombstones(sender, number, keys, self._ends[number], result)
        result.stopped = self._stop.is_set()
        return result

    def require_objects(self, chain: Chain, *, copies: Sequence[str] = ()) -> None:
        """Raise the errors that :meth:`objects` would raise before it reads.

        Call this before :meth:`execute`.

        Args:
            chain: as for :meth:`objects`.
            copies: as for :meth:`objects`.

        Raises:
            ConfigError: the chain has no ``claim_check`` for the topic, a topic does not exist, or a store
                cannot be opened.
            confluent_kafka.KafkaException: the cluster does not answer.
        """
        topics = [self._topic, *copies]
        require_topics_and_stores(self._conf, topics, chain, timeout_s=self._timeout_s)

    def objects(self, chain: Chain, *, copies: Sequence[str] = (), execute: bool = False) -> Objects:
        """Find the topic's objects that no record claims any more, and delete them with ``execute``.

        Call this after :meth:`execute`. Objects of the last hour stay, because their records may not have
        been sent yet.

        Args:
            chain: a chain with ``claim_check``, which names the stores.
            copies: all other topics that have copies of the topic's records, except dead-letter topics.
            execute: whether to delete the objects.

        Raises:
            ConfigError: the chain has no ``claim_check`` for the topic, or a topic does not exist.
            ObjectStoreError: a store cannot be listed completely, or an object cannot be deleted.
            HeaderwareError: a topic cannot be read to its end, or the audit topic refuses an account.
            confluent_kafka.KafkaException: the cluster does not answer.
        """
        report = find_orphans(
            self._conf,
            [self._topic, *copies],
            chain,
            before_ms=self._now_ms() - LEAST_AGE_MS,
            timeout_s=self._timeout_s,
        )
        own = tuple(each for each in report.orphans if each.name.startswith(f"{self._topic}/"))
        report = msgspec.structs.replace(report, orphans=own)
        deleted = 0
        if execute and own and not report.unreadable and not self._stop.is_set():
            self._require_lease()
            if self._audit is not None:
                with closing(self._sender()) as sender:
                    self._account(sender, None, "objects", len(own))
            deleted = delete_orphans(report, chain, now_ms=self._now_ms)
        return Objects(
            count=len(own), size_bytes=report.size_bytes, deleted=deleted, unreadable=report.unreadable
        )

    def _plans(
        self, result: RetentionResult, keys: Keys, tell: Callable[[Progress], object]
    ) -> dict[int, tuple[PartitionPlan, Choice]]:
        """Read the topic, and return the plan for each partition."""
        now_ms = self._now_ms()
        with self._open("read_committed") as reader:
            reader.start()
            bounds, room = reader.bounds, Room()
            partitions = {
                number: Partition(
                    number,
                    begin,
                    deletes="delete" in self._policy,
                    keys=keys if "compact" in self._policy else None,
                    room=room,
                )
                for number, (begin, _) in bounds.items()
            }
            judge = Judge(
                self._rule,
                now_ms,
                None if self._verification is None else self._verification.verified,
                compacted="compact" in self._policy,
            )
            for batch in self._batches(reader):
                self._pace.begin()
                for message in batch:
                    disposition, part = judge.disposition_of(message)
                    partition = partitions[message.partition() or 0]
                    partition.take(message.offset() or 0, message.key(), disposition, part)
                result.records += len(batch)
                tell(reader.progress)
                if self._beginnings:
                    for number in {message.partition() or 0 for message in batch}:
                        if partitions[number].beginning_is_known:
                            reader.finish(number)
                if self._stop.is_set():
                    result.stopped = True
                    return {}
                if self._lease is not None and self._lease.is_lost:
                    self._lease.require()
                self._pace.keep(len(batch))
        self._ends = {number: end for number, (_, end) in bounds.items()}
        plans = {number: partition.plan(self._ends[number]) for number, partition in partitions.items()}
        choices = keys.choose({number: plan.delete_before for number, plan in plans.items()})
        dispositions: Counter[RetentionDisposition] = Counter()
        for number, plan in plans.items():
            dispositions.update(plan.dispositions)
            expired = plan.dispositions.get("expired", 0) + plan.dispositions.get("stale", 0)
            if (
                plan.first_kept is not None
                and plan.first_kept_offset is not None
                and "delete" in self._policy
            ):
                later = expired + plan.dispositions.get("signed", 0) - plan.deleted
                result.held_back[number] = HeldBack(
                    disposition=plan.first_kept, offset=plan.first_kept_offset, expired=later
                )
            result.rest += choices[number].left if "compact" in self._policy else expired - plan.deleted
        result.dispositions = dict(dispositions)
        self._look_into(result)
        return {number: (plan, choices[number]) for number, plan in plans.items()}

    def _look_into(self, result: RetentionResult) -> None:
        """Add the time, the key and the reason to the records that are in the way, and log them."""
        with closing(SingleRecords(strict_settings(self._conf), self._id, self._timeout_s)) as singles:
            for number, each in result.in_the_way.items():
                record = singles.get(self._topic, number, each.offset)
                known = {} if record is None else {"timestamp_ms": record.timestamp_ms}
                if record is not None and self._verification is not None and each.disposition == "unverified":
                    known |= self._refusal_of(self._verification, record)
                result.held_back[number] = found = msgspec.structs.replace(each, **known)
                where = position(self._topic, number, each.offset)
                _log.warning(
                    "%s is in the way: %s (%s)",
                    where,
                    DISPOSITIONS[each.disposition],
                    found.reason or each.disposition,
                )

    def _refusal_of(self, verification: Verification, record: Record) -> dict[str, Any]:
        """Return why a record does not verify; call this for at most one record of each partition."""
        verification.look(record)
        report = verification.report()
        for refusal in report.refusals:
            if record.partition in refusal.partitions:
                return {"reason": refusal.reason, "key_id": refusal.key_id}
        return (
            {"reason": "the record is not signed"} if record.partition in report.unsigned_partitions else {}
        )

    def _batches(self, reader: TopicReader) -> Iterator[list[Message]]:
        try:
            yield from reader.to_end(max_records=self._pace.batch(_BATCH), each_batch=True)
        except KafkaException as error:
            if kind_of(error) is not Kind.OFFSET_GONE:
                raise
            raise HeaderwareError(
                f"records of {self._topic} were deleted before they were read, by another pass or by the "
                f"broker; this pass has removed nothing; start again"
            ) from error

    def _sender(self) -> TransactionalSender:
        return TransactionalSender(
            self._conf,
            self._id,
            what=f"retention of {self._topic}",
            topics=[self._topic],
            timeout_s=self._timeout_s,
        )

    def _delete(self, sender: TransactionalSender, number: int, plan: PartitionPlan) -> None:
        """Delete a partition's beginning, after its account is written, so that no account is missing."""
        self._require_lease()
        self._account(sender, number, "records", plan.deleted, before=plan.delete_before)
        self._require_same_topic()
        self._admin.delete_records(self._topic, number, plan.delete_before)

    def _write_tombstones(
        self, sender: TransactionalSender, number: int, keys: Keys, end: int, result: RetentionResult
    ) -> None:
        """Write tombstones for the keys of a partition that have no newer record."""
        size, came = _TOMBSTONES, set[bytes]()
        with self._open("read_uncommitted", number) as reader:
            since = _Since(reader, number, end)
            while not self._stop.is_set():
                result.newer += keys.drop(number, came)
                came.clear()
                # Read outside of the transaction, whose timeout is some seconds.
                for batch in since.batches():
                    others = {key for key, token in batch if not self._is_ours(token)}
                    result.newer += keys.drop(number, others)
                found = keys.chosen(number, most=size, most_bytes=_TOMBSTONE_BYTES)
                if not found:
                    return
                try:
                    self._delete_keys(sender, number, [each.key for each in found], since, came)
                except _NewerError:
                    size = max(1, size // 2)  # fewer keys are less likely to have new records
                    continue
                keys.drop(number, (each.key for each in found))
                result.tombstones += len(found)
                result.replaced += sum(each.replaced for each in found)
                size = min(_TOMBSTONES, size * 2)

    def _delete_keys(
        self,
        sender: TransactionalSender,
        number: int,
        keys: Sequence[bytes],
        since: _Since,
        came: set[bytes],
    ) -> None:
        """Write tombstones in one transaction; add the keys of new records to ``came``.

        Raises:
            _NewerError: a newer record is before a tombstone; the transaction is aborted.
        """
        self._attempt += 1
        own = b"%s.%d" % (self._token, self._attempt)
        headers = Headers([(RETAINED, own)])
        records = [Record(self._topic, None, key, headers, number) for key in keys]
        if self._audit is not None:
            records.append(self._account_of(number, "keys", len(keys), before=since.position))
        tombstones = Tombstones(keys)

        def require_latest() -> None:
            self._require_same_topic()
            self._require_lease()
            tombstones.begin()
            for batch in since.batches():
                for key, token in batch:
                    if token == own or not self._is_ours(token):
                        tombstones.see(key, own=token == own)
                    if not self._is_ours(token):
                        came.add(key)
            if not tombstones.complete:
                raise HeaderwareError(
                    f"{self._topic}[{number}]: the tombstones could not be read back; none was committed"
                )
            if not tombstones.safe:
                raise _NewerError("newer records have come")

        self._send(sender, records, require_latest)

    def _is_ours(self, token: bytes | None) -> bool:
        """Return whether this process wrote a tombstone, in the current or an aborted transaction."""
        return token is not None and token.startswith(self._token)

    def _account(
        self,
        sender: TransactionalSender,
        number: int | None,
        what: str,
        count: int,
        *,
        before: int | None = None,
    ) -> None:
        if self._audit is not None:
            self._send(sender, [self._account_of(number, what, count, before=before)], None)

    def _account_of(self, number: int | None, what: str, count: int, *, before: int | None) -> Record:
        """Return an account as a record for the audit topic."""
        account = {
            "worker": "retain",
            "topic": self._topic,
            "partition": number,
            "at_ms": self._now_ms(),
            "removed": what,
            "count": count,
            "before": before,
            "why": "no record claims them" if number is None else "expired",
        }
        return Record(str(self._audit), json.dumps(account).encode(), self._topic.encode())

    @staticmethod
    def _send(
        sender: TransactionalSender, records: Sequence[Record], check: Callable[[], object] | None
    ) -> None:
        for index, error in sender.send(records, check=check).items():
            raise HeaderwareError(
                f"{records[index].topic} refuses a record: {error.str()}; the transaction is aborted"
            )

    def _open(self, isolation: Isolation, partition: int | None = None) -> TopicReader:
        # A single partition is read often, and its last offset is mostly a transaction marker.
        quick = {} if partition is None else {"fetch.wait.max.ms": 10}
        return TopicReader(
            {**quick, **strict_settings(self._conf, isolation)},
            self._topic,
            group_id=self._id,
            partition=partition,
            timeout_s=self._timeout_s,
        )

    def _require_same_topic(self) -> None:
        """Raise a HeaderwareError if the topic was deleted and recreated since the pass began."""
        if self._admin.describe_topic(self._topic).id != self._topic_id:
            raise HeaderwareError(
                f"{self._topic} was deleted and recreated during the pass; no more records are removed; "
                "start again"
            )

    def _require_lease(self) -> None:
        """Take the lease, or raise an error if it is lost."""
        if self._lease is not None:
            self._lease.require()
            return
        self._lease = Lease(
            self._conf,
            self._topic,
            self._id,
            what=f"retention of {self._topic}",
            timeout_s=self._timeout_s,
        )

    def close(self) -> None:
        """Release the lease, and close the chain."""
        if self._lease is not None:
            self._lease.close()
            self._lease = None
        if self._verification is not None:
            self._verification.close()
