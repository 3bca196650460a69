"""Remove the records of a topic that have outlived their time, as Kafka permits it.

One pass reads the topic to where it ends, and decides by the rules alone. Then the beginning of each
partition, where all has expired, is deleted up to an offset. Keys of a compacted topic get tombstones.
Nothing is kept between passes: what was not removed, because the process was killed, is found again. What
stayed is looked at again, for its time may have come.

Objects of the claim check are deleted last, and only those that no record claims any more. So no record that
is there has lost its object, wherever a pass ends.

Who removes has the lease of the topic from before it reads until it closes, so that one pass is at work. What
follows does no harm if there are two all the same, for one has stood still and does not know yet that its
lease is lost.

Only who removes something takes the transactional id, and so the place of a pass that is removing then. If it
were taken before the topic is read, passes that last longer than the time between their starts would stop one
another, and none would come to an end.

A tombstone must not delete a record that came meanwhile. So the tombstones of a batch are stored in a
transaction, and before it is committed, the partition is read from where the pass ended up to them, with what
is not committed. If a record of such a key stands before its tombstone, the transaction is undone, and done
again without that key. What comes after a tombstone is newer, and stays. So two passes at once do no harm
either. What stands after the pass is read once: before a transaction all but what comes in its own time.

A pass may take hours, and a topic may be deleted meanwhile, and made again under its name. So its id is asked
for again before anything is removed.
"""

from __future__ import annotations

import json
import logging
import secrets
from collections import Counter
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec
from confluent_kafka import KafkaException

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
"""The header of the tombstones that are written here; its value is drawn by each process, and counted."""
_TOMBSTONES: Final = 1_000
_TOMBSTONE_BYTES: Final = 8 << 20
_TIMEOUT_S: Final = 30.0
_BATCH: Final = 500
UNMEANT: Final[frozenset[RetentionDisposition]] = frozenset(
    {"unverified", "malformed", "unknown_id", "incomplete"}
)
"""Dispositions of records that stay for ever, though nobody has said so."""
_log: Final = logging.getLogger("headerware.ops.retention")


class HeldBack(msgspec.Struct, frozen=True, kw_only=True):
    """The first record of a partition that stays; nothing behind it can be deleted with the beginning.

    Args:
        disposition: why it stays.
        offset: its offset.
        expired: how many records behind it have expired; only what was read is counted.
        reason: what its readers say of it, if it is not verified; else None.
        key_id: the key that it claims to be signed with, if it is not verified. Anybody may claim that.
        timestamp_ms: its time, if it is one that nobody means to keep; None if it has none, or is gone.
    """

    disposition: RetentionDisposition
    offset: int
    expired: int
    reason: str | None = None
    key_id: str | None = None
    timestamp_ms: int | None = None


class RetentionResult(msgspec.Struct, kw_only=True):
    """What was removed of a topic, or would be.

    Args:
        topic: the topic.
        executed: whether anything was removed; else it is what would be.
        records: how many records were read.
        dispositions: how many there are of each disposition.
        deleted: how many stand in beginnings that are deleted.
        delete_before: up to which offset each of these partitions is deleted.
        held_back: the first record that stays, of each partition of which the beginning is deleted.
        tombstones: how many keys get tombstones, those of slices among them.
        replaced: how many records these stand for.
        newer: how many keys got none, for a newer record had come.
        rest: how many expired records only a copy can leave out. Of a compacted topic these are the latest
            ones of keys that have a held record, or a record that stays in another partition; the broker
            removes those that are not the latest.
        beginnings: whether only beginnings were read; then ``dispositions`` and ``rest`` are those of what
            was read.
        stopped: whether it was stopped before the end.
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
        """The records that nobody means to keep, and that keep expired ones from being deleted, for ever."""
        return {
            number: each
            for number, each in self.held_back.items()
            if each.disposition in UNMEANT and (each.expired or self.beginnings)
        }

    @property
    def ok(self) -> bool:
        """Whether the pass came to its end, and nothing is in the way."""
        return not (self.stopped or self.in_the_way)


class Objects(msgspec.Struct, frozen=True, kw_only=True):
    """The objects of a topic that no record claims any more.

    Args:
        count: how many there are.
        size_bytes: what they have together.
        deleted: how many were deleted.
        unreadable: how many records may claim something that cannot be read; then nothing is deleted.
    """

    count: int
    size_bytes: int
    deleted: int
    unreadable: int


class _NewerError(HeaderwareError):
    """Newer records of some keys have come."""


class _Since:
    """What stands in a partition after the pass, with what is not committed; each record is read once."""

    def __init__(self, reader: TopicReader, number: int, position: int) -> None:
        self._reader: Final = reader
        self._number: Final = number
        self.position = position

    def batches(self) -> Iterator[list[tuple[bytes, bytes | None]]]:
        """Yield the keys of what has come, each with the token if it is a tombstone of this command.

        Raises:
            HeaderwareError: the partition ends before what was read.
        """
        self._reader.start(offsets={self._number: self.position})
        (_, end) = self._reader.bounds[self._number]
        if end < self.position:
            raise HeaderwareError(
                f"a partition ends at offset {end}, but was read to {self.position}: it was cut off, or its "
                f"leader is new and does not know its end yet; start again"
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


class Retention:
    """Remove what has expired of a topic; for one caller at a time, only :meth:`stop` is for any thread.

    Args:
        conf: the settings of a client of confluent-kafka, for all clients that it makes.
        topic: the topic.
        rule: how long records live.
        audit: a topic for an account of what is removed and why, as JSON.
        chain: a chain with ``sign``; what it does not verify stays.
        beginnings: whether to read each partition only up to its first record that stays, and count nothing
            behind it. A partition that begins with slices of messages is read to its end.
        rate: how many records are read in a second at most, or None.
        timeout_s: how long the cluster may take to answer, in seconds.
        now_ms: the clock.

    Raises:
        ConfigError: there is no such topic, or it is compacted, and only beginnings are wanted.
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
            raise ConfigError(f"expected another topic for the audit than {topic}", path="audit")
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
                    f"there is no topic {audit}, or this user may not see it; create it", path="audit"
                )
            cluster_id = reader.cluster_id
        self._policy: Final = frozenset(self._admin.topic_settings(topic)["cleanup.policy"].split(","))
        self._topic_id: Final = self._admin.describe_topic(topic).id
        if beginnings and "compact" in self._policy:
            raise ConfigError(
                f"{topic} is compacted, so it must be read to its end, for all of its keys", path="beginnings"
            )
        self._verification: Final = (
            None if chain is None else Verification(chain, topic, cluster_id=cluster_id, now_ms=now_ms)
        )

    def stop(self) -> None:
        """Stop after what is being removed; for signal handlers and other threads."""
        self._stop.set()

    def preview(self, tell: Callable[[Progress], object] = lambda _: None) -> RetentionResult:
        """Return what would be removed, without removing anything; ``tell`` hears how far the pass is."""
        result = RetentionResult(topic=self._topic, executed=False, beginnings=self._beginnings)
        with closing(Keys()) as keys:
            for number, (plan, choice) in self._plans(result, keys, tell).items():
                _count_deleted(result, number, plan)
                result.tombstones += choice.tombstones
                result.replaced += choice.replaced
        return result

    def execute(self, tell: Callable[[Progress], object] = lambda _: None) -> RetentionResult:
        """Remove what has expired by now, and return what that was.

        It takes the lease of the topic, and has it until :meth:`close`.

        Args:
            tell: is called with how far the pass over the topic is, in offsets, after each batch.

        Raises:
            LeaseHeldError: another process is at work, or has taken over; nothing more is removed.
            LeaseLostError: the lease is lost; nothing more is removed.
            HeaderwareError: another process has taken over, the topic is another one now, the audit refuses a
                record, or there is no room for the keys.
            KeyringError: records cannot be verified now.
            confluent_kafka.KafkaException: the cluster refuses what it is asked.
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
        """Raise what :meth:`objects` would raise at once; to be called before :meth:`execute`.

        Args:
            chain: as for :meth:`objects`.
            copies: likewise.

        Raises:
            ConfigError: the chain has no ``claim_check`` for the topic, a topic is not there, or a store
                cannot be opened.
            confluent_kafka.KafkaException: the cluster does not answer.
        """
        topics = [self._topic, *copies]
        require_topics_and_stores(self._conf, topics, chain, timeout_s=self._timeout_s)

    def objects(self, chain: Chain, *, copies: Sequence[str] = (), execute: bool = False) -> Objects:
        """Find the topic's objects that no record claims any more, and delete them if asked to.

        Call it after :meth:`execute`. Objects of the last hour stay, for their records may be on their way.

        Args:
            chain: a chain with ``claim_check``, which has the stores.
            copies: all other topics that have copies of its records; dead letters are read anyway.
            execute: whether to delete them.

        Raises:
            ConfigError: the chain has no ``claim_check`` for the topic, or a topic is not there.
            ObjectStoreError: a store cannot be listed completely, or an object cannot be deleted.
            HeaderwareError: a topic cannot be read to its end, or the audit refuses a record.
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
        """Read the topic, and return what may be removed of each partition."""
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
        """Say of the records that are in the way whose they are, since when, and what is wrong with them."""
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
        """Return why a record of a partition does not verify; of each partition one is asked for."""
        verification.look(record)
        report = verification.report()
        for refusal in report.refusals:
            if record.partition in refusal.partitions:
                return {"reason": refusal.reason, "key_id": refusal.key_id}
        return {"reason": "it is not signed"} if record.partition in report.unsigned_partitions else {}

    def _batches(self, reader: TopicReader) -> Iterator[list[Message]]:
        try:
            yield from reader.to_end(max_records=self._pace.batch(_BATCH), each_batch=True)
        except KafkaException as error:
            if kind_of(error) is not Kind.OFFSET_GONE:
                raise
            raise HeaderwareError(
                f"records of {self._topic} were deleted before they were read, by another pass or by the "
                f"broker; nothing was removed by this one; start it again"
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
        """Delete a partition's beginning; the account comes first, so that nothing goes without one."""
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
                # Outside of the transaction, which the broker ends after some seconds.
                for batch in since.batches():
                    others = {key for key, token in batch if not self._is_ours(token)}
                    result.newer += keys.drop(number, others)
                found = keys.chosen(number, most=size, most_bytes=_TOMBSTONE_BYTES)
                if not found:
                    return
                try:
                    self._delete_keys(sender, number, [each.key for each in found], since, came)
                except _NewerError:
                    size = max(1, size // 2)  # the fewer, the sooner none of them has come meanwhile
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
        """Write tombstones in one transaction, unless newer records stand before them; note all that came."""
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
                    f"{self._topic}[{number}]: tombstones could not be read again, so none was written"
                )
            if not tombstones.safe:
                raise _NewerError("newer records have come")

        self._send(sender, records, require_latest)

    def _is_ours(self, token: bytes | None) -> bool:
        """Return whether a tombstone was written by this process; if not the present one, it was undone."""
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
        """Return a record for the audit: what is removed, of which partition, and why."""
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
                f"{records[index].topic} refuses a record: {error.str()}; nothing is removed by it"
            )

    def _open(self, isolation: Isolation, partition: int | None = None) -> TopicReader:
        # One partition is read again and again, and mostly nothing is left but the mark of a transaction.
        quick = {} if partition is None else {"fetch.wait.max.ms": 10}
        return TopicReader(
            {**quick, **strict_settings(self._conf, isolation)},
            self._topic,
            group_id=self._id,
            partition=partition,
            timeout_s=self._timeout_s,
        )

    def _require_same_topic(self) -> None:
        """Raise a HeaderwareError if the topic was deleted and made again since the pass began."""
        if self._admin.describe_topic(self._topic).id != self._topic_id:
            raise HeaderwareError(
                f"{self._topic} was deleted and made again meanwhile: nothing more is removed; start again"
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
        """Give the lease back, and close what the chain has opened."""
        if self._lease is not None:
            self._lease.close()
            self._lease = None
        if self._verification is not None:
            self._verification.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
