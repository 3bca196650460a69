"""Copy a topic so that of each key the record with the highest version is kept, and follow it.

The worker learns a source up to where it ends, and then writes what wins into a target, each partition into
the same one, in the order of offsets, every record as it is. Then it may go on: what comes later and wins is
added. So for each key the last record of the target is always its winner, and where the target is compacted
by the broker, that is what is left of it.

What is written and up to where the source is done are one transaction. A process that is killed at any moment
loses nothing and writes nothing twice; whoever starts later takes over.

- A record is written if it is its key's winner by all that is known, which reaches at least to where the
  worker writes. What is known may be ahead: then an earlier winner is not written at all.
- A message in slices is written when its last slice has come, all slices in one transaction.
- What cannot be judged goes to a topic beside, or in its place into a target that is not compacted.
- What the broker refuses, for its size or time, goes to the topic beside, or stays in the source alone.

A rule may also judge each record alone, as retention does. Then nothing has to be known of keys, and the
source is read once.
"""

from __future__ import annotations

import json
import logging
import time
from collections import Counter, defaultdict
from contextlib import closing
from hashlib import blake2b
from threading import Event
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

import msgspec
from confluent_kafka import (
    KafkaError,
    KafkaException,
    TopicPartition,
)

from headerware.core.bounded_cache import BoundedCache
from headerware.core.context import wall_clock_ms
from headerware.core.errors import ConfigError, HeaderwareError
from headerware.core.printable import counted
from headerware.core.record import Record, bytes_of
from headerware.kafka.admin import Admin, Isolation
from headerware.kafka.errors import Kind, kind_of
from headerware.kafka.messages import is_readable, record_of
from headerware.kafka.reader import TopicReader
from headerware.kafka.single_records import SingleRecords
from headerware.ops.compaction.job import Copied, refusal
from headerware.ops.compaction.rules import Decision, Judged, Lost, Untouched
from headerware.ops.compaction.winners import Sync, Verdict, Winners, place_in_target
from headerware.ops.verify import Verification
from headerware.workers.transactions import TransactionalSender

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from confluent_kafka import Message

    from headerware.core.chain import Chain
    from headerware.kafka.reader import Progress

_BATCH: Final = 2_000
_LEARNED_AT_ONCE: Final = 50_000
"""Keys that are sorted before they go into the file, so that fewer of its pages are written."""
_MAX_TRANSACTION_BYTES: Final = 32 << 20
_SLICES_BYTES: Final = 64 << 20
_MAX_SLICES: Final = 100_000
_TIMEOUT_S: Final = 30.0
_WAIT_S: Final = 0.2
_RENEW_S: Final = 60.0
"""How often the offsets of all partitions are committed, or the broker would forget those that stand still.

One that is idle learns by that whether another has taken over. Topics that were made again are seen, too.
"""
_SETTLED_S: Final = 5.0
"""How long to wait for a moment without an open transaction."""
_HIGHEST: Final = 2**63 - 1
_REFUSED_SHOWN: Final = 100
_log: Final = logging.getLogger("headerware.ops.compaction")


class Result(msgspec.Struct, kw_only=True):
    """What was done, or would be; a message in slices counts as its slices.

    Args:
        source: the topic that was read.
        target: the topic that was written.
        executed: whether anything was written; else it is what would be.
        records: how many records were read.
        size_bytes: what they have, keys and headers included.
        written: how many won.
        written_bytes: what these have.
        tombstones: how many of them are tombstones.
        untouched: how many were left untouched, by cause.
        lost: how many were not kept, by cause.
        waiting: how many are slices of messages that are not whole, or that came twice.
        missed: how many offsets of the source were deleted before they were read.
        refused: which records the broker has refused and why, 100 at most; ``untouched`` counts them.
        stopped: whether it was stopped before the end.
        problems: why it cannot be done as it is; only where nothing was executed.
    """

    source: str
    target: str
    executed: bool
    records: int = 0
    size_bytes: int = 0
    written: int = 0
    written_bytes: int = 0
    tombstones: int = 0
    untouched: dict[Untouched, int] = msgspec.field(default_factory=dict)
    lost: dict[Lost, int] = msgspec.field(default_factory=dict)
    waiting: int = 0
    missed: int = 0
    refused: list[str] = msgspec.field(default_factory=list)
    stopped: bool = False
    problems: list[str] = msgspec.field(default_factory=list)

    @property
    def is_done(self) -> bool:
        """Whether nothing is missing or in the way; some records may have been left untouched."""
        return not (self.missed or self.stopped or self.problems)

    @property
    def ok(self) -> bool:
        """Whether all was judged and written, and nothing is in the way."""
        return self.is_done and not self.untouched


class Translated(msgspec.Struct, frozen=True, kw_only=True):
    """Where a consumer group that has read the source goes on in the target.

    Args:
        partition: the partition, the same in both.
        source: the offset that the group has committed there.
        lag: how many offsets of the source it has not read.
        target: the offset in the target. Nothing that the group has not read stands before it.
        exact: whether nothing that the group has read stands behind it, or will.
    """

    partition: int
    source: int
    lag: int
    target: int
    exact: bool


class _Topic(NamedTuple):
    id: str
    partitions: int
    configs: Mapping[str, str]

    @property
    def is_compacted(self) -> bool:
        return "compact" in self.configs["cleanup.policy"]

    def keeps(self, name: str) -> float:
        """Return a limit of retention; infinity without one."""
        limit = int(self.configs[name])
        return float(limit) if limit >= 0 and "delete" in self.configs["cleanup.policy"] else float("inf")


class Compaction:
    """Copy what a rule keeps of a topic, such as the record with the highest version of each key.

    It is for one caller at a time; only :meth:`stop` is for any thread.

    Args:
        conf: the settings of a client of confluent-kafka, for all clients that it makes.
        source: the topic that is read.
        target: the topic that is written; nobody else writes to it.
        rule: where the version of a record stands, or another decision about what is kept.
        beside: a topic for what is left untouched; without it that goes into the target.
        audit: a topic for an account of each transaction, as JSON.
        chain: a chain with ``sign``; what it does not verify is left untouched.
        store: a file for what is known of the source; without it all is learned again at each start.
        group_id: the group whose offsets say what is done, and the transactional id.
        rate: how many records are read in a second at most, or None.
        timeout_s: how long the cluster may take to answer, in seconds.
        now_ms: the clock.

    Raises:
        ConfigError: there is no such source, or the topics are not different ones.
        confluent_kafka.KafkaException: the settings are wrong, or the cluster does not answer.
    """

    def __init__(
        self,
        conf: Mapping[str, Any],
        source: str,
        target: str,
        rule: Decision,
        *,
        beside: str | None = None,
        audit: str | None = None,
        chain: Chain | None = None,
        store: str | None = None,
        group_id: str | None = None,
        rate: float | None = None,
        timeout_s: float = _TIMEOUT_S,
        now_ms: Callable[[], int] = wall_clock_ms,
    ) -> None:
        names = [name for name in (source, target, beside, audit) if name is not None]
        if len(set(names)) < len(names):
            raise ConfigError(f"expected different topics, found {', '.join(names)}")
        self._conf: Final = {"log_level": 0, **conf}
        # An offset that is gone is told, not passed over.
        self._reading: Final = {
            **self._conf,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
        }
        self._source: Final = source
        self._target: Final = target
        self._beside: Final = beside
        self._audit: Final = audit
        self._rule: Final = rule.for_topic(source)
        self._store: Final = store
        # A pass of retention that removes from the target has another group and transactional id.
        kind = rule.worker if rule.alone is None else f"{rule.worker}-into"
        self._group: Final = group_id or f"headerware-{kind}-{target}"
        self._rate: Final = rate
        self._batch: Final = _BATCH if rate is None else max(1, min(_BATCH, int(rate)))
        self._timeout_s: Final = timeout_s
        self._now_ms: Final = now_ms
        self._stop: Final = Event()
        self._slices: BoundedCache[tuple[int, int], Record] = BoundedCache(
            _MAX_SLICES, max_cost=_SLICES_BYTES, cost=lambda _, record: bytes_of(record)
        )
        self._singles: Final = SingleRecords(self._reading, self._group, timeout_s)
        self._admin: Final = Admin(self._conf, timeout_s=timeout_s)
        self._member: Any = None
        self._renewed = float("-inf")
        self._progress: Callable[[], Progress]
        with self._open() as reader:
            self._topics: Final = {
                name: topic for name in names if (topic := self._described(name)) is not None
            }
            copy = self._topics.get(target)
            self._compacts: Final = copy is not None and copy.is_compacted
            ids = [self._topics[source].id, None if copy is None else copy.id]
            purpose = [self._rule, *ids, chain is not None]
            self._purpose: Final = blake2b(msgspec.json.encode(purpose), digest_size=8).hexdigest()
            self._cluster_id: Final = reader.cluster_id
        self._chain: Final = chain
        self._verification: Verification | None = None
        self.copied: Final = Copied(
            conf=self._conf,
            source=source,
            group=self._group,
            purpose=self._purpose,
            timeout_s=timeout_s,
        )
        """Up to where it is done."""

    def stop(self) -> None:
        """Stop behind the transaction that is under way; for signal handlers and other threads."""
        self._stop.set()

    @property
    def progress(self) -> Progress:
        """How far the present pass over the source is, in offsets."""
        return self._progress()

    def preview(self, tell: Callable[[Result], object] = lambda _: None) -> Result:
        """Return what would be done, without writing or committing.

        ``tell`` is called with what is in the way, before anything is read, and then after each batch.
        """
        result = Result(source=self._source, target=self._target, executed=False, problems=self.problems())
        tell(result)
        self._open_chain()
        with Winners(None, self._purpose, alone=self._rule.alone) as winners:
            self._work(winners, None, result, follow=False, tell=tell)
        return result

    def execute(self, *, follow: bool = False, tell: Callable[[Result], object] = lambda _: None) -> Result:
        """Write what wins, and return what was done; ``tell`` is called behind each transaction.

        Args:
            follow: whether to go on at the end of the source, until :meth:`stop`.
            tell: is called with the result so far.

        Raises:
            ConfigError: the topics do not fit, or the store is another's.
            HeaderwareError: another process has taken over, or the audit refuses an account.
            KeyringError: records cannot be verified now.
            confluent_kafka.KafkaException: the cluster refuses what it is asked.
        """
        if problems := self.problems():
            raise ConfigError("; ".join(problems))
        self._open_chain()
        result = Result(source=self._source, target=self._target, executed=True)
        with (
            Winners(self._store, self._purpose, alone=self._rule.alone) as winners,
            closing(
                TransactionalSender(
                    self._conf,
                    self._group,
                    what=f"{self._rule.worker} of {self._source}",
                    topics=set(self._topics) - {self._source},
                    timeout_s=self._timeout_s,
                )
            ) as sender,
        ):
            self._work(winners, sender, result, follow=follow, tell=tell)
        return result

    def translate(self, group: str) -> list[Translated]:
        """Return where a consumer group of the source goes on in the target, by what it has committed.

        A group that has read as much as the worker has is placed exactly, if no transaction stays open. For
        those that have read less the file ``store`` knows places some 1,000 offsets apart; without it they
        begin anew. Nothing is changed.

        Raises:
            ConfigError: there is no target.
            confluent_kafka.KafkaException: the cluster does not answer.
        """
        if self._target not in self._topics:
            raise ConfigError(f"there is no topic {self._target}, into which {self._source} was copied")
        # In this order: what the target gets in between comes from behind what is done. Its end is the one
        # before a transaction that is open: what that writes may be what the group has not read.
        target_begins = self._admin.beginnings(self._target, self._topics[self._target].partitions)
        target_ends, settled_ends = self._target_ends()
        done = self._positions()
        ends = self._ends(self._source)
        with TopicReader(self._reading, self._source, group_id=group, timeout_s=self._timeout_s) as reader:
            committed = reader.committed()
        translated = []
        for partition, (offset, _) in sorted(committed.items()):
            worker = done.get(partition, 0)
            target: int | None = settled_ends[partition]
            if offset < worker:
                target = self._known_place(partition, offset)
            translated.append(
                Translated(
                    partition=partition,
                    source=offset,
                    lag=max(0, ends[partition] - offset),
                    target=max(target_begins[partition], target or 0),
                    exact=offset == worker and settled_ends[partition] == target_ends[partition],
                )
            )
        return translated

    def _target_ends(self) -> tuple[dict[int, int], dict[int, int]]:
        """Return where the target ends, and where without what is not committed; the same, if it may be."""
        deadline = time.monotonic() + _SETTLED_S
        while True:
            ends = self._ends(self._target)
            settled = self._ends(self._target, "read_committed")
            if ends == settled or time.monotonic() > deadline:
                return ends, settled
            time.sleep(0.1)

    def _known_place(self, partition: int, source: int) -> int | None:
        """Return from where on the target has what comes from an offset of the source on; None if unknown."""
        if self._store is None:
            return None
        return place_in_target(self._store, self._purpose, partition, source)

    def commit_translated(self, group: str, translated: Sequence[Translated]) -> None:
        """Commit, for a group without members, where it goes on in the target.

        Raises:
            HeaderwareError: the group has committed offsets there before.
            confluent_kafka.KafkaException: the group has members, or the cluster refuses it.
        """
        with TopicReader(self._reading, self._target, group_id=group, timeout_s=self._timeout_s) as reader:
            if reader.committed():
                raise HeaderwareError(
                    f"group {group} has offsets of {self._target} already; they were left as they are"
                )
        self._admin.set_committed(group, self._target, {each.partition: each.target for each in translated})

    def _open_chain(self) -> None:
        """Open the chain; a job's driver does not, for only its workers may have the keys."""
        if self._chain is not None and self._verification is None:
            self._verification = Verification(self._chain, self._source, cluster_id=self._cluster_id)

    def _work(
        self,
        winners: Winners,
        sender: TransactionalSender | None,
        result: Result,
        *,
        follow: bool,
        tell: Callable[[Result], object],
    ) -> None:
        done = self._positions()  # only behind a sender's start are they those of the last transaction
        self._learn(winners, done, lambda: tell(result))
        with self._open() as reader:
            self._write(reader, winners, sender, result, done, follow=follow, tell=tell)
        result.stopped = self._stop.is_set() and not follow

    def _write(
        self,
        reader: TopicReader,
        winners: Winners,
        sender: TransactionalSender | None,
        result: Result,
        done: dict[int, int],
        *,
        follow: bool,
        tell: Callable[[Result], object],
    ) -> None:
        """Write what wins, from where the group is done."""
        self._start(reader, done)
        self._member = reader.group_metadata()
        for partition, (begin, _) in reader.bounds.items():
            before = done.get(partition, begin)
            result.missed += max(0, begin - before)
            done[partition] = max(begin, before)
        self._send(_Plan(done), winners, sender, result)
        began = time.monotonic()
        for batch in self._batches(reader, follow=follow):
            plan = _Plan(done)
            records = [record_of(message) for message in batch]
            judged = [self._judged(record) for record in records]
            for record, each in zip(records, judged, strict=True):
                if each.part is not None and sender is not None:
                    self._slices[each.partition, each.offset] = record
            winners.learn(judged)
            for record, verdict in zip(records, winners.verdicts(judged), strict=True):
                self._add(plan, record, verdict, writes=sender is not None)
                if plan.size_bytes > _MAX_TRANSACTION_BYTES:
                    self._send(plan, winners, sender, result)
                    plan = _Plan(done)
            self._send(plan, winners, sender, result)
            tell(result)
            self._keep_rate(began, result.records)

    def _keep_rate(self, began: float, records: int) -> None:
        if self._rate:
            self._stop.wait(max(0.0, began + records / self._rate - time.monotonic()))

    def _start(self, reader: TopicReader, done: Mapping[int, int], **options: Any) -> None:
        """Begin to read behind what is done, or as the options of the reader's start say.

        A leader that has just been elected may not know its end yet: it is waited for.
        """
        deadline = time.monotonic() + self._timeout_s
        options = {"offsets": done, **options}
        reader.start(**options)
        while cut := [each for each, (_, end) in reader.bounds.items() if done.get(each, 0) > end]:
            if time.monotonic() > deadline:
                partition, (_, end) = cut[0], reader.bounds[cut[0]]
                raise HeaderwareError(
                    f"group {self._group} is done with {self._source}[{partition}] up to offset "
                    f"{done[partition]}, but it has ended at {end} for {self._timeout_s:g} s: records were "
                    f"lost; begin anew, with another group and target"
                )
            if self._stop.wait(_WAIT_S):
                return
            reader.start(**options)

    def _learn(self, winners: Winners, done: Mapping[int, int], tell: Callable[[], object]) -> None:
        """Learn the source from where it is known up to its end; of what it has lost, learn the target."""
        if any(offset > done.get(partition, 0) for partition, offset in winners.done.items()):
            winners.clear()  # somebody has set the group back
        is_behind = any(offset > winners.learned.get(partition, 0) for partition, offset in done.items())
        by_key = self._rule.alone is None
        if not by_key and not is_behind:
            return
        if by_key and is_behind:
            with self._open(self._target) as reader:
                reader.start()
                began, records = time.monotonic(), 0
                for batch in reader.to_end(max_records=self._batch, each_batch=True):
                    # A signature names the topic that it was made for.
                    copies = [record_of(message).replace(topic=self._source) for message in batch]
                    winners.learn_copy([self._judged(record) for record in copies])
                    records += len(batch)
                    tell()
                    self._keep_rate(began, records)
                    if self._stop.is_set():
                        return
        began, records = time.monotonic(), 0
        with self._open() as reader:
            if by_key:
                reader.start(offsets=winners.learned)
            else:  # only slices are learned, whose messages may be whole later
                self._start(reader, done, offsets=winners.learned, up_to=done)
            judged: list[Judged] = []
            for batch in reader.to_end(max_records=self._batch, each_batch=True):
                judged += [self._judged(record_of(message)) for message in batch]
                if len(judged) >= _LEARNED_AT_ONCE:
                    winners.learn(judged)
                    judged = []
                records += len(batch)
                tell()
                self._keep_rate(began, records)
                if self._stop.is_set():
                    return
            winners.learn(judged)
            winners.learned_to({partition: end for partition, (_, end) in reader.bounds.items()})

    def _open(self, topic: str | None = None) -> TopicReader:
        """Return a reader of the source, or of another topic, whose progress is shown from now on."""
        reader = TopicReader(
            self._reading, topic or self._source, group_id=self._group, timeout_s=self._timeout_s
        )
        self._progress = lambda: reader.progress
        return reader

    def _batches(self, reader: TopicReader, *, follow: bool) -> Iterator[list[Message]]:
        """Yield what there is, up to the end or until it is stopped; at times an empty batch."""
        deadline = time.monotonic() + self._timeout_s
        while not self._stop.is_set() and (follow or not reader.has_reached_the_end):
            batch = reader.read(max_records=self._batch, timeout_s=_WAIT_S)
            if batch:
                yield batch
                deadline = time.monotonic() + self._timeout_s
            elif follow and time.monotonic() > self._renewed + _RENEW_S:
                yield []
            elif not follow and time.monotonic() > deadline:
                raise HeaderwareError(
                    f"{self._source} could not be read to the end: no answer within {self._timeout_s:g} s"
                )

    def _judged(self, record: Record) -> Judged:
        verified = None if self._verification is None else self._verification.verified
        return self._rule.judged(record, now_ms=self._now_ms(), verified=verified, compacts=self._compacts)

    def _add(self, plan: _Plan, record: Record, verdict: Verdict, *, writes: bool) -> None:
        """Add what becomes of a record to what is done next."""
        plan.records += 1
        plan.read_bytes += bytes_of(record) if is_readable(record) else 0
        partition, count = record.partition or 0, len(verdict.offsets)
        plan.done[partition] = (record.offset or 0) + 1
        counts = plan.counts[partition]
        if verdict.outcome == "waits":
            return
        if verdict.outcome == "loses":
            counts[verdict.outcome, verdict.why] += count
            return
        if writes and verdict.why != "unreadable":
            topic = self._target if verdict.outcome == "wins" else self._beside or self._target
            found = [self._slice(record, offset) for offset in verdict.offsets]
            if None in found:
                counts["missed", None] += count
                return
            copies = [each.replace(topic=topic) for each in found if each is not None]
            plan.copies.append(_Copy(copies, verdict, is_tombstone=record.value is None))
        plan.size_bytes += verdict.size_bytes
        plan.take(verdict, partition, is_tombstone=record.value is None)

    def _slice(self, record: Record, offset: int) -> Record | None:
        """Return a record, or another slice of its message; None if that is gone."""
        if offset == record.offset:
            return record
        known = self._slices.get((record.partition or 0, offset))
        return known or self._singles.get(self._source, record.partition or 0, offset, seen=True)

    def _send(
        self, plan: _Plan, winners: Winners, sender: TransactionalSender | None, result: Result
    ) -> None:
        """Send what is planned in one transaction, and note it."""
        is_due = time.monotonic() > self._renewed + _RENEW_S
        changed = {
            partition: offset
            for partition, offset in plan.done.items()
            if is_due or offset != plan.begins.get(partition)
        }
        if sender is not None and is_due:
            self._require_same_topics()
        if sender is not None and changed:
            syncs = self._syncs(winners, {partition: plan.begins[partition] for partition in changed})
            offsets = [
                TopicPartition(self._source, partition, offset, self.copied.metadata)
                for partition, offset in changed.items()
            ]
            while failed := sender.send(self._records(plan, changed), offsets, self._member):
                self._leave_alone(plan, failed, result)
            winners.written(changed, syncs)
            if is_due:
                self._renewed = time.monotonic()
        plan.begins.update(changed)
        plan.count(result)

    def _records(self, plan: _Plan, changed: Mapping[int, int]) -> list[Record]:
        """Return what a transaction writes: the copies, and the account of them."""
        records = [record for copy in plan.copies for record in copy.records]
        if self._audit is not None and plan.records:
            records.append(self._account(plan, changed))
        return records

    def _leave_alone(self, plan: _Plan, failed: Mapping[int, KafkaError], result: Result) -> None:
        """Take the broker's refusals of some records of a plan, by their indexes; the others may go.

        Raises:
            HeaderwareError: the account is refused.
        """
        copies = [(copy, record) for copy in plan.copies for record in copy.records]
        if (error := failed.get(len(copies))) is not None:
            raise HeaderwareError(
                f"{self._audit} takes no accounts: {error.str()}; nothing of the transaction is written"
            )
        for index, error in failed.items():
            copy, record = copies[index]
            if not any(record is each for each in copy.records):
                continue  # another slice of its message is refused, too
            left = plan.leave_alone(copy, self._beside) or f"it stays in {self._source} alone"
            text = f"{refusal(self._source, record, error)}; {left}"
            _log.warning("%s", text)
            if len(result.refused) < _REFUSED_SHOWN:
                result.refused.append(text)

    def _syncs(self, winners: Winners, begins: Mapping[int, int]) -> dict[int, Sync]:
        """Return places in both topics; only between transactions is the target's end such a place."""
        wanted = [partition for partition, offset in begins.items() if winners.needs_sync(partition, offset)]
        if not wanted:
            return {}
        ends = self._ends(self._target)
        return {partition: Sync(begins[partition], ends[partition]) for partition in wanted}

    def _account(self, plan: _Plan, changed: Mapping[int, int]) -> Record:
        """Return a record for the audit topic: what becomes of the records of a transaction, and why."""
        partitions = {
            str(partition): {
                "from": plan.begins[partition],
                "to": offset,
                **{
                    outcome if why is None else f"{outcome}: {why}": count
                    for (outcome, why), count in sorted(plan.counts[partition].items(), key=str)
                    if count
                },
            }
            for partition, offset in changed.items()
            if offset != plan.begins[partition]
        }
        account = {
            "worker": self._rule.worker,
            "group": self._group,
            "source": self._source,
            "target": self._target,
            "at_ms": self._now_ms(),
            "partitions": partitions,
        }
        return Record(str(self._audit), json.dumps(account).encode(), self._source.encode())

    def _positions(self) -> dict[int, int]:
        """Return up to where the group is done.

        Raises:
            HeaderwareError: it has done something else, or a job has marked the copy.
        """
        committed = self.copied.offsets()
        if self.copied.is_marked(committed):
            raise HeaderwareError(self._marked())
        return {partition: offset for partition, (offset, _) in committed.items()}

    def _marked(self) -> str:
        return (
            f"a Spark job copies {self._source} into {self._target}, or was killed: its mark stands in the "
            f"metadata of the offsets of group {self._group}. Let it end, or run it again: "
            f"copy_topic(..., execute=True) goes on where it was, and removes the mark when it ends. Or "
            f"begin anew, with another group (--group) and a new target"
        )

    def problems(self, *, for_job: bool = False) -> list[str]:
        """Return why it cannot be done as it is; ``for_job`` says that a job of Spark is to do it.

        Raises:
            HeaderwareError: the group has done something else.
            confluent_kafka.KafkaException: the cluster does not answer.
        """
        source, problems = self._topics[self._source], []
        for name in (self._target, self._beside):
            if name is None:
                continue
            topic = self._topics.get(name)
            if topic is None or topic.partitions != source.partitions:
                found = "there is none" if topic is None else f"it has {topic.partitions}"
                problems.append(
                    f"{name} needs {counted(source.partitions, 'partition')}, but {found}; create it so"
                )
                continue
            if topic.configs["message.timestamp.type"] != "CreateTime":
                problems.append(f"{name} needs message.timestamp.type=CreateTime, to keep the records' times")
            problems += [
                f"{name} has a smaller {limit} than {self._source}, {topic.configs[limit]}; give it as much"
                for limit in ("retention.ms", "retention.bytes")
                if topic.keeps(limit) < source.keeps(limit)
            ]
            if int(topic.configs["max.message.bytes"]) < int(source.configs["max.message.bytes"]):
                problems.append(
                    f"{name} has a smaller max.message.bytes than {self._source}; give it as much"
                )
        if self._rule.alone is not None:
            problems += [
                f"{name} is compacted: a copy without the latest record of a key would bring back an older "
                f"one; there keys get tombstones, without a copy"
                for name in (self._source, self._target)
                if name in self._topics and self._topics[name].is_compacted
            ]
        elif self._compacts and self._beside is None:
            problems.append(
                f"{self._target} is compacted, so it cannot keep what has no key or version; name a topic "
                f"for that (--beside)"
            )
        if self._beside in self._topics and self._topics[str(self._beside)].is_compacted:
            problems.append(
                f"{self._beside} is compacted; what is left untouched needs cleanup.policy=delete"
            )
        if self._audit is not None and self._audit not in self._topics:
            problems.append(f"there is no topic {self._audit}; create it")
        committed = self.copied.offsets()
        if not for_job and self.copied.is_marked(committed):
            problems.append(self._marked())
        if not problems and (partition := self._written_by_others(committed)) is not None:
            problems.append(
                f"{self._target}[{partition}] has records that group {self._group} has not written, or the "
                f"broker has forgotten its offsets (offsets.retention.minutes); a copy begins in an empty "
                f"topic, with a group of its own"
            )
        return problems

    def _written_by_others(self, committed: Iterable[int]) -> int | None:
        """Return a partition of the target that has records, while the group has no offset of the source.

        Nothing says what these were made of: all of the source's partition would come once more.
        """
        with self._open(self._target) as reader:
            reader.start(offsets=dict.fromkeys(committed, _HIGHEST))
            return next((batch[0].partition() for batch in reader.to_end()), None)

    def _require_same_topics(self) -> None:
        """Raise a HeaderwareError if a topic was deleted since the start, and perhaps made again."""
        for name in (self._source, self._target):
            topic = self._described(name)
            if topic is None or topic.id != self._topics[name].id:
                raise HeaderwareError(
                    f"{name} was deleted, or made again: begin anew, with another group and a new target"
                )

    def _described(self, name: str) -> _Topic | None:
        """Return what the cluster says of a topic; None if there is none."""
        try:
            found = self._admin.describe_topic(name)
            return _Topic(found.id, found.partitions, self._admin.topic_settings(name))
        except KafkaException as error:
            if kind_of(error) is Kind.UNKNOWN_TOPIC:
                return None
            raise

    def _ends(self, topic: str, isolation: Isolation = "read_uncommitted") -> dict[int, int]:
        return self._admin.ends(topic, self._topics[topic].partitions, isolation=isolation)

    def close(self) -> None:
        """Close its clients."""
        self._singles.close()
        if self._verification is not None:
            self._verification.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Copy:
    """A record, or a message in slices, that is written as a whole or not at all."""

    __slots__ = ("is_tombstone", "records", "verdict")

    def __init__(self, records: list[Record], verdict: Verdict, *, is_tombstone: bool) -> None:
        self.records = records
        self.verdict = verdict
        self.is_tombstone: Final = is_tombstone


class _Plan:
    """What goes into the next transaction, and what is to be counted once it is committed."""

    def __init__(self, begins: dict[int, int]) -> None:
        self.begins: Final = begins
        """Up to where each partition is done; it moves on with the commit."""
        self.done: Final = dict(begins)
        self.copies: Final[list[_Copy]] = []
        self.counts: Final[defaultdict[int, Counter[tuple[str, str | None]]]] = defaultdict(Counter)
        self.records = self.read_bytes = self.size_bytes = self.written_bytes = self.tombstones = 0

    def take(self, verdict: Verdict, partition: int, *, is_tombstone: bool, sign: int = 1) -> None:
        """Count a verdict, or with a ``sign`` of -1 take it back."""
        self.counts[partition][verdict.outcome, verdict.why] += sign * len(verdict.offsets)
        if verdict.outcome == "wins":
            self.written_bytes += sign * verdict.size_bytes
            self.tombstones += sign * is_tombstone

    def leave_alone(self, copy: _Copy, beside: str | None) -> str:
        """Put beside what the broker has refused, and say so; empty if it goes nowhere."""
        first = copy.records[0]
        partition, refused = first.partition or 0, copy.verdict._replace(outcome="untouched", why="refused")
        self.take(copy.verdict, partition, is_tombstone=copy.is_tombstone, sign=-1)
        self.take(refused, partition, is_tombstone=copy.is_tombstone)
        copy.verdict = refused
        if beside is None or first.topic == beside:
            copy.records = []
            return ""
        copy.records = [each.replace(topic=beside) for each in copy.records]
        return f"it goes to {beside}"

    def count(self, result: Result) -> None:
        """Add it to a result."""
        result.records += self.records
        result.size_bytes += self.read_bytes
        result.written_bytes += self.written_bytes
        result.tombstones += self.tombstones
        counts: Any = sum(self.counts.values(), Counter())
        for (outcome, why), count in (+counts).items():
            if outcome == "wins":
                result.written += count
            elif outcome == "untouched":
                result.untouched[why] = result.untouched.get(why, 0) + count
            elif outcome == "loses":
                result.lost[why] = result.lost.get(why, 0) + count
            else:
                result.missed += count
        # A run may begin in the middle of a message.
        settled = result.written + sum(result.untouched.values()) + sum(result.lost.values())
        result.waiting = max(0, result.records - settled)
