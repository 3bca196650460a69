"""Copy a topic so that of each key the record with the highest version is kept, and follow it.

It is a worker (:mod:`headerware.workers`). Before it writes, it learns the source up to its end. Then it
writes what wins into a target, each partition into the same one, in the order of offsets, every record as it
is. Then it may go on: what comes later and wins is added. So for each key the last record of the target is
always its winner, and where the target is compacted by the broker, that is what is left of it.

- A record is written if it is its key's winner by all that is known, which reaches at least to where the
  worker writes. What is known may be ahead: then an earlier winner is not written at all.
- A message in slices is written when its last slice has come, all slices in one transaction.
- What cannot be judged goes to a side topic, or in its order into a target that is not compacted.
- What the broker refuses, for its size or time, goes to the side topic, or stays in the source alone.

A rule may also judge each record alone, as retention does. Then nothing has to be known of keys, and the
source is read once.
"""

from __future__ import annotations

import json
import logging
import time
from collections import Counter, defaultdict
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Self

import msgspec
from confluent_kafka import KafkaError, KafkaException

from headerware.core.commit_metadata import PendingOffsets
from headerware.core.context import wall_clock_ms
from headerware.core.errors import ConfigError, HeaderwareError, WireFormatError, position
from headerware.core.headers import EMPTY
from headerware.core.printable import counted
from headerware.core.record import Record, bytes_of
from headerware.kafka.admin import Admin, Isolation
from headerware.kafka.errors import Kind, kind_of
from headerware.kafka.messages import record_of
from headerware.kafka.reader import TopicReader, strict_settings
from headerware.kafka.single_records import SingleRecords
from headerware.ops.compaction.job import Copied, refusal
from headerware.ops.compaction.rules import (
    CopyRule,
    Judged,
    Lost,
    Unresolved,
    Verdict,
    judged_message,
    verdict_alone,
)
from headerware.ops.compaction.winners import Sync, Winners, offset_in_target
from headerware.ops.verify import Verification
from headerware.workers import Outcome, Policy, Unit, Worker
from headerware.workers.units import Units

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from confluent_kafka import TopicPartition

    from headerware.core.chain import Chain
    from headerware.interceptors.slice.header import SliceHeader
    from headerware.kafka.reader import Progress

_BATCH: Final = 2_000
_LEARNED_AT_ONCE: Final = 50_000
"""Keys that are sorted before they go into the file, so that fewer of its pages are written."""
_TIMEOUT_S: Final = 30.0
_SETTLED_S: Final = 5.0
"""How long to wait for a moment without an open transaction."""
_HIGHEST: Final = 2**63 - 1
_REFUSED_SHOWN: Final = 100
_UNJUDGED: Final[Mapping[str | None, Verdict | Literal["waits", "missed"]]] = {
    "unreadable": Verdict("unresolved", "unreadable"),
    "repeated": "waits",
    "gone": "missed",
    "stray": Verdict("unresolved", "malformed"),
}
"""What becomes of units that are not what they say."""
_log: Final = logging.getLogger("headerware.ops.compaction")


class CompactionResult(msgspec.Struct, kw_only=True):
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
        unresolved: how many could not be judged, by cause.
        lost: how many were not kept, by cause.
        waiting: how many are slices of messages that are not complete, or that came twice.
        missed: how many offsets of the source were deleted before they were read.
        refused: which records the broker has refused and why, 100 at most; ``unresolved`` counts them.
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
    unresolved: dict[Unresolved, int] = msgspec.field(default_factory=dict)
    lost: dict[Lost, int] = msgspec.field(default_factory=dict)
    waiting: int = 0
    missed: int = 0
    refused: list[str] = msgspec.field(default_factory=list)
    stopped: bool = False
    problems: list[str] = msgspec.field(default_factory=list)

    @property
    def is_done(self) -> bool:
        """Whether nothing is missing or in the way; some records may be unresolved."""
        return not (self.missed or self.stopped or self.problems)

    @property
    def ok(self) -> bool:
        """Whether all was judged and written, and nothing is in the way."""
        return self.is_done and not self.unresolved


class Translated(msgspec.Struct, frozen=True, kw_only=True):
    """Where a consumer group that has read the source goes on in the target.

    Args:
        partition: the partition, the same in both.
        source: the offset that the group has committed there.
        lag: how many offsets of the source it has not read.
        target: the offset in the target. Nothing that the group has not read stands before it.
        exact: whether nothing that the group has read stands after it, or will.
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


class Compaction(Policy):
    """Copy what a rule keeps of a topic, such as the record with the highest version of each key.

    It is for one caller at a time; only :meth:`stop` is for any thread.

    Args:
        conf: the settings of a client of confluent-kafka, for all clients that it makes.
        source: the topic that is read.
        target: the topic that is written; nobody else writes to it.
        rule: where the version of a record stands, or another rule about what is kept.
        side_topic: a topic for what is unresolved; without it that goes into the target.
        audit: a topic for an account of each transaction, as JSON.
        chain: a chain with ``sign``; what it does not verify is unresolved.
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
        rule: CopyRule,
        *,
        side_topic: str | None = None,
        audit: str | None = None,
        chain: Chain | None = None,
        store: str | None = None,
        group_id: str | None = None,
        rate: float | None = None,
        timeout_s: float = _TIMEOUT_S,
        now_ms: Callable[[], int] = wall_clock_ms,
    ) -> None:
        names = [name for name in (source, target, side_topic, audit) if name is not None]
        if len(set(names)) < len(names):
            raise ConfigError(f"expected different topics, found {', '.join(names)}")
        self._conf: Final = {"log_level": 0, **conf}
        self._reading: Final = strict_settings(self._conf)
        self._source: Final = source
        self._target: Final = target
        self._side_topic: Final = side_topic
        self._audit: Final = audit
        self._rule: Final = rule.for_topic(source)
        self._store: Final = store
        # A pass of retention that removes from the target has another group and transactional id.
        kind = rule.worker if rule.alone is None else f"{rule.worker}-into"
        self._group: Final = group_id or f"headerware-{kind}-{target}"
        self._timeout_s: Final = timeout_s
        self._now_ms: Final = now_ms
        self._singles: Final = SingleRecords(self._reading, self._group, timeout_s)
        self._admin: Final = Admin(self._conf, timeout_s=timeout_s)
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
        self._winners: Winners
        self._result = CompactionResult(source=source, target=target, executed=False)
        self._tell: Callable[[CompactionResult], object] = lambda _: None
        self._judged: Final[dict[tuple[int, int], Judged]] = {}
        """What was said of the records of a batch when they were read."""
        self._done: dict[int, int] = {}
        """Up to where the last transaction was done."""
        self._syncs: dict[int, Sync] = {}
        Worker(
            self._conf,
            source,
            self,
            name=rule.worker,
            group_id=self._group,
            own=self.copied.metadata,
            writes=set(self._topics) - {source},
            rate=rate,
            batch=_BATCH,
            timeout_s=timeout_s,
        )

    def stop(self) -> None:
        """Stop after the transaction that is under way; for signal handlers and other threads."""
        self.worker.stop()

    @property
    def progress(self) -> Progress:
        """How far the present pass over the source is, in offsets."""
        return self._progress()

    def preview(self, tell: Callable[[CompactionResult], object] = lambda _: None) -> CompactionResult:
        """Return what would be done, without writing or committing.

        ``tell`` is called with what is in the way, before anything is read, and then after each batch.
        """
        result = CompactionResult(
            source=self._source, target=self._target, executed=False, problems=self.problems()
        )
        tell(result)
        return self._run(result, None, tell, lambda: self.worker.preview(self._told))

    def execute(
        self, *, follow: bool = False, tell: Callable[[CompactionResult], object] = lambda _: None
    ) -> CompactionResult:
        """Write what wins, and return what was done; ``tell`` is called after each transaction.

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
        result = CompactionResult(source=self._source, target=self._target, executed=True)
        self._run(result, self._store, tell, lambda: self.worker.run(follow=follow, tell=self._told))
        result.stopped = result.stopped and not follow
        return result

    def _run(
        self,
        result: CompactionResult,
        store: str | None,
        tell: Callable[[CompactionResult], object],
        work: Callable[[], object],
    ) -> CompactionResult:
        if self._chain is not None and self._verification is None:
            # A job's driver does not open it, for only its workers may have the keys.
            self._verification = Verification(self._chain, self._source, cluster_id=self._cluster_id)
        self._result, self._tell = result, tell
        with Winners(store, self._purpose) as self._winners:
            work()
        result.missed += self.worker.deleted
        self._told()
        result.stopped = self.worker.is_stopped
        return result

    def _told(self) -> None:
        """Tell the result so far."""
        result, worker = self._result, self.worker
        result.records, result.size_bytes = worker.records, worker.size_bytes
        settled = result.written + sum(result.unresolved.values()) + sum(result.lost.values())
        result.waiting = max(0, result.records - settled)
        self._tell(result)

    # What the worker asks

    def begin(self, committed: Mapping[int, tuple[int, str]]) -> Mapping[int, tuple[int, str]]:
        """Learn the source up to its end, and find the slices that a job has left pending."""
        found = self.copied.read(committed)
        if self.copied.is_marked(found):
            raise HeaderwareError(self._marked())
        done = {number: offset for number, (offset, _) in found.items()}
        if any(offset > done.get(number, 0) for number, offset in self._winners.done.items()):
            self._winners.clear()  # somebody has set the group back
        if self._rule.alone is None:
            self._learn(done)
        by_job = {number: offset for number, (offset, own) in found.items() if own == self.copied.ended}
        committed = {**committed, **self._with_pending(by_job)}
        self._done = done
        self._progress = lambda: self.worker.progress
        return committed

    def part_of(self, record: Record) -> SliceHeader | None:
        """Return which slice a record is, if it can be judged: what anybody may write joins no message."""
        judged = self._judge(record)
        self._judged[judged.partition, judged.offset] = judged
        return judged.part

    def decide(self, units: Sequence[Unit]) -> Iterator[Outcome]:
        """Return what becomes of records and messages."""
        judged = [None if unit.problem else self._judged_unit(unit) for unit in units]
        self._judged.clear()
        self._note_syncs()
        found = [each for each in judged if each is not None]
        if self._rule.alone is None:
            self._winners.learn(found)
            verdicts = iter(self._winners.verdicts(found))
        else:
            verdicts = iter([verdict_alone(each.why, self._rule.alone) for each in found])
        for unit, each in zip(units, judged, strict=True):
            yield self._outcome(unit, _UNJUDGED[unit.problem] if each is None else next(verdicts))

    def _judged_unit(self, unit: Unit) -> Judged:
        # Slices that have waited are judged again.
        found = [
            self._judged.get((record.partition or 0, record.offset or 0)) or self._judge(record)
            for record in unit.records
        ]
        return found[0] if found[0].part is None else judged_message(found)

    def _outcome(self, unit: Unit, verdict: Verdict | Literal["waits", "missed"]) -> Outcome:
        if isinstance(verdict, str):
            return Outcome(unit, "dropped", why=verdict)
        if verdict.outcome == "loses":
            return Outcome(unit, "dropped", why=_words(verdict), about=verdict)
        topic = self._target if verdict.outcome == "wins" else self._side_topic or self._target
        # What is unreadable could not be written as it is.
        copied = () if verdict.why == "unreadable" else unit.records
        records = [record.replace(topic=topic) for record in copied]
        return Outcome(unit, "sent" if records else "dropped", records, why=_words(verdict), about=verdict)

    def give_up(self, unit: Unit) -> Outcome:
        """Return that an incomplete message cannot be judged."""
        return self._outcome(unit, Verdict("unresolved", "incomplete"))

    def decide_again(self, outcome: Outcome, refusals: Mapping[int, KafkaError]) -> Outcome:
        """Send what a topic refuses to the side topic, or leave it in the source."""
        index, error = next(iter(refusals.items()))
        refused = outcome.records[index]
        topic = None if refused.topic == self._side_topic else self._side_topic
        text = (
            f"{refusal(self._source, refused, error)}; "
            f"{f'it stays in {self._source} alone' if topic is None else f'it goes to {topic}'}"
        )
        _log.warning("%s", text)
        if len(self._result.refused) < _REFUSED_SHOWN:
            self._result.refused.append(text)
        verdict = Verdict("unresolved", "refused")
        records = [] if topic is None else [record.replace(topic=topic) for record in outcome.unit.records]
        return Outcome(
            outcome.unit, "sent" if records else "dropped", records, why=_words(verdict), about=verdict
        )

    def account(self, outcomes: Sequence[Outcome], _offsets: Sequence[TopicPartition]) -> Record | None:
        """Return a record for the audit topic: what becomes of the records of a transaction, and why."""
        if self._audit is None:
            return None
        counts = defaultdict[int, Counter[str]](Counter)
        for outcome in outcomes:
            if outcome.why != "waits":
                counts[outcome.unit.topic_partition[1]][outcome.why] += len(outcome.unit.offsets)
        partitions = {
            str(number): {
                "from": self._done.get(number, 0),
                "to": offset,
                **dict(sorted(counts[number].items())),
            }
            for number, offset in self.worker.positions.items()
            if counts[number] or offset != self._done.get(number)
        }
        account = {
            "worker": self._rule.worker,
            "group": self._group,
            "source": self._source,
            "target": self._target,
            "at_ms": self._now_ms(),
            "partitions": partitions,
        }
        return Record(self._audit, json.dumps(account).encode(), self._source.encode())

    def committed(self, outcomes: Sequence[Outcome]) -> None:
        """Count what was done, and note up to where."""
        result = self._result
        for outcome in outcomes:
            unit, verdict = outcome.unit, outcome.about
            count = len(unit.offsets)
            if verdict is None:
                result.missed += count if outcome.why == "missed" else 0
            elif verdict.outcome == "wins":
                result.written += count
                result.written_bytes += sum(map(bytes_of, unit.records))
                result.tombstones += sum(record.value is None for record in unit.records)
            else:
                counts: dict[Any, int] = result.lost if verdict.outcome == "loses" else result.unresolved
                counts[verdict.why] = counts.get(verdict.why, 0) + count
        positions = self.worker.positions
        if result.executed:
            changed = {number: at for number, at in positions.items() if at != self._done.get(number)}
            resume = self.worker.commits
            self._winners.written(changed, {number: resume[number] for number in changed}, self._syncs)
        self._done, self._syncs = positions, {}

    def renew(self) -> None:
        """Raise a HeaderwareError if a topic was deleted since the start, and perhaps made again."""
        for name in (self._source, self._target):
            topic = self._described(name)
            if topic is None or topic.id != self._topics[name].id:
                raise HeaderwareError(
                    f"{name} was deleted, or made again: begin anew, with another group and a new target"
                )

    # What is known of the topics

    def _judge(self, record: Record) -> Judged:
        verified = None if self._verification is None else self._verification.verified
        return self._rule.judged(record, now_ms=self._now_ms(), verified=verified, compacts=self._compacts)

    def _learn(self, done: Mapping[int, int]) -> None:
        """Learn the source from where it is known up to its end; of what it has lost, learn the target."""
        winners = self._winners
        if any(offset > winners.learned.get(number, 0) for number, offset in done.items()):
            with self._open(self._target) as reader:
                reader.start()
                for records in self._read(reader):
                    # A signature names the topic that it was made for.
                    winners.learn_copy(
                        [self._judge(record.replace(topic=self._source)) for record in records]
                    )
        with self._open() as reader:
            reader.start(offsets=winners.resume)
            units, judged = self._new_units(), list[Judged]()
            for records in self._read(reader):
                judged += self._complete(units, records)
                if len(judged) >= _LEARNED_AT_ONCE:
                    winners.learn(judged)
                    judged = []
            winners.learn(judged)
            if not self.worker.is_stopped:
                ends = {number: end for number, (_, end) in reader.bounds.items()}
                firsts = units.incomplete().items()
                winners.learned_to(ends, {key[1]: min(each.first for each in found) for key, found in firsts})

    def _with_pending(self, done: Mapping[int, int]) -> dict[int, tuple[int, str]]:
        """Return what a job would have committed if it knew which slices are pending.

        Raises:
            HeaderwareError: more are than a commit can note.
        """
        if not done:
            return {}
        with self._open() as reader:
            reader.start(up_to=done)
            units = self._new_units()
            for records in self._read(reader):
                for _ in self._complete(units, records):
                    pass
        committed = {}
        for number, offset in done.items():
            incomplete = units.incomplete().get((self._source, number), [])
            pending = PendingOffsets(at for message in incomplete for at in message.offsets.values())
            try:
                first, metadata = pending.encode(offset, self.copied.metadata)
            except WireFormatError as error:
                raise HeaderwareError(
                    f"{position(self._source, number, None)}: {error}: a job has left more slices of "
                    f"incomplete messages than the worker can wait for; begin anew, with another group "
                    f"(--group) and a new target"
                ) from error
            committed[number] = first, metadata or ""
        return committed

    def _read(self, reader: TopicReader) -> Iterator[list[Record]]:
        """Yield what there is, as slowly as was asked, until it is stopped."""
        for batch in reader.to_end(max_records=self.worker.pace.batch(_BATCH), each_batch=True):
            self.worker.pace.begin()
            yield [record_of(message) for message in batch]
            self._told()
            self.worker.pace.keep(len(batch))
            if self.worker.is_stopped:
                return

    def _new_units(self) -> Units:
        """Return units of what is said of records, without keys and values."""

        def fetched(topic: str, number: int, offset: int) -> Record | None:
            record = self._singles.get(topic, number, offset, seen=True)
            return None if record is None else _without_payload(record, self._judge(record))

        return Units(fetched, part_of=lambda record: _judgement(record).part)

    def _complete(self, units: Units, records: Iterable[Record]) -> Iterator[Judged]:
        """Yield what is said of records, and of the messages that they make complete."""
        for record in records:
            judged = self._judge(record)
            if judged.part is None:
                yield judged
                continue
            unit = units.add(_without_payload(record, judged))
            if unit is not None and unit.problem is None:
                yield judged_message([*map(_judgement, unit.records)])

    def _note_syncs(self) -> None:
        """Note positions in both topics; only between transactions is the target's end one of them."""
        wanted = [number for number, offset in self._done.items() if self._winners.needs_sync(number, offset)]
        if wanted:
            ends = self._ends(self._target)
            self._syncs = {number: Sync(self._done[number], ends[number]) for number in wanted}

    def _open(self, topic: str | None = None) -> TopicReader:
        """Return a reader of the source, or of another topic, whose progress is shown from now on."""
        reader = TopicReader(
            self._reading, topic or self._source, group_id=self._group, timeout_s=self._timeout_s
        )
        self._progress = lambda: reader.progress
        return reader

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
        # In this order: what the target gets in between comes from after what is done. Its end is the one
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
                target = self._known_offset(partition, offset)
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

    def _known_offset(self, partition: int, source: int) -> int | None:
        """Return from where on the target has what comes from an offset of the source on; None if unknown."""
        if self._store is None:
            return None
        return offset_in_target(self._store, self._purpose, partition, source)

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
        for name in (self._target, self._side_topic):
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
        elif self._compacts and self._side_topic is None:
            problems.append(
                f"{self._target} is compacted, so it cannot keep what has no key or version; name a topic "
                f"for that (--side-topic)"
            )
        if self._side_topic in self._topics and self._topics[str(self._side_topic)].is_compacted:
            problems.append(
                f"{self._side_topic} is compacted; what is unresolved needs cleanup.policy=delete"
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
        self.worker.close()
        self._singles.close()
        if self._verification is not None:
            self._verification.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _words(verdict: Verdict) -> str:
    return verdict.outcome if verdict.why is None else f"{verdict.outcome}: {verdict.why}"


def _without_payload(record: Record, judged: Judged) -> Record:
    """Return a record of which only its position is left, and what is said of it."""
    local = {"judged": judged}
    return Record(record.topic, None, None, EMPTY, record.partition, offset=record.offset, local=local)


def _judgement(record: Record) -> Judged:
    judged: Judged = (record.local or {})["judged"]
    return judged
