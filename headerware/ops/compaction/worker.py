"""Copy a topic, keep the record with the highest version of each key, and follow the topic.

Compaction is a worker (:mod:`headerware.workers`). Before it writes, it learns the source up to its end. Then
it writes the winners unchanged into the target, in the order of their offsets, each into the partition with
the same number. It may then follow the source and add later winners. For each key, the last record in the
target is therefore the winner, and if the broker compacts the target, only the winner is left.

- A record is written if no better record of its key is known. At least all records before it are known; if
later
  records are known too, an earlier winner is not written at all.
- A message in slices is written when its last slice has come, with all slices in one transaction.
- A record that cannot be judged is written to a side topic, or to the target if the broker does not compact
it. - A record that the broker refuses because of its size or time is written to the side topic, or is not
copied.

A rule may also judge each record alone, as retention does. Then no winners are learned, and the source is
read once.
"""

from __future__ import annotations

import json
import logging
import time
from collections import Counter, defaultdict
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import msgspec
from confluent_kafka import KafkaError, KafkaException

from headerware.core.closing import Closing
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
"""How many records are learned in one transaction; their sorted keys share pages of the file."""
_TIMEOUT_S: Final = 30.0
_SETTLED_S: Final = 5.0
"""How long to wait for a time without an open transaction."""
_HIGHEST: Final = 2**63 - 1
_REFUSED_SHOWN: Final = 100
_UNJUDGED: Final[Mapping[str | None, Verdict | Literal["waits", "missed"]]] = {
    "unreadable": Verdict("unresolved", "unreadable"),
    "repeated": "waits",
    "gone": "missed",
    "stray": Verdict("unresolved", "malformed"),
}
"""The decisions about units with a problem."""
_log: Final = logging.getLogger("headerware.ops.compaction")


class CompactionResult(msgspec.Struct, kw_only=True):
    """The result of a compaction, or its preview; each slice of a message counts as a record.

    Args:
        source: the topic that was read.
        target: the topic that was written.
        executed: True if records were written; False for a preview, which tells what would be written.
        records: how many records were read.
        size_bytes: their size, including keys and headers.
        written: how many records won.
        written_bytes: the size of the records that won.
        tombstones: how many of the records that won are tombstones.
        unresolved: how many records could not be judged, by cause.
        lost: how many records were not kept, by cause.
        waiting: how many records are slices of incomplete messages, or repeated slices.
        missed: how many offsets of the source were deleted before they were read.
        refused: the records that the broker refused and the reasons, at most 100; ``unresolved`` counts them.
        stopped: whether :meth:`Compaction.stop` ended it before the end of the source.
        problems: why the copy cannot be executed; only in a preview.
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
        """Whether the copy has reached the end and lacks no records; some records may be unresolved."""
        return not (self.missed or self.stopped or self.problems)

    @property
    def ok(self) -> bool:
        """Whether the copy is done and no record is unresolved."""
        return self.is_done and not self.unresolved


class Translated(msgspec.Struct, frozen=True, kw_only=True):
    """The offset from which a consumer group of the source continues in the target.

    Args:
        partition: the partition, with the same number in both topics.
        source: the group's committed offset in the source.
        lag: how many offsets of the source the group has not read.
        target: the offset in the target; the target has no unread record before it.
        exact: whether the target has no record after it that the group has read, and will not get one.
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
        """Return a limit of retention; infinity if there is no limit."""
        limit = int(self.configs[name])
        return float(limit) if limit >= 0 and "delete" in self.configs["cleanup.policy"] else float("inf")


class Compaction(Closing, Policy):
    """Copy the records of a topic that a rule keeps, such as the highest version of each key.

    For one caller at a time; any thread may call :meth:`stop`.

    Args:
        conf: the settings of a client of confluent-kafka, used for all clients.
        source: the topic that is read.
        target: the topic that is written; no other client may write to it.
        rule: the rule that decides which records are kept.
        side_topic: a topic for unresolved records; None writes them into the target.
        audit: a topic for an account of each transaction, as JSON.
        chain: a chain with ``sign``; records that it does not verify are unresolved.
        store: a file for the winners; with None the source is learned again at each start.
        group_id: the group whose offsets are the progress; also the transactional id.
        rate: how many records are read per second at most; None means no limit.
        timeout_s: how long the cluster may take to answer, in seconds.
        now_ms: the clock.

    Raises:
        ConfigError: the source does not exist, or two of the topics are the same.
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
        # Retention of the target itself uses the plain name for its group and transactional id.
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
        """The progress of the copy."""
        self._winners: Winners
        self._result = CompactionResult(source=source, target=target, executed=False)
        self._tell: Callable[[CompactionResult], object] = lambda _: None
        self._judged: Final[dict[tuple[int, int], Judged]] = {}
        """The judgements of a batch's records, from when the records were read."""
        self._done: dict[int, int] = {}
        """The offsets up to which the last transaction was done, by partition."""
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
        """How far the current reading of a topic is, in offsets."""
        return self._progress()

    def preview(self, tell: Callable[[CompactionResult], object] = lambda _: None) -> CompactionResult:
        """Return what would be written, without writing or committing.

        ``tell`` is called once with the problems, before records are read, and then after each batch.
        """
        result = CompactionResult(
            source=self._source, target=self._target, executed=False, problems=self.problems()
        )
        tell(result)
        return self._run(result, None, tell, lambda: self.worker.preview(self._told))

    def execute(
        self, *, follow: bool = False, tell: Callable[[CompactionResult], object] = lambda _: None
    ) -> CompactionResult:
        """Write the winners, and return the result.

        Args:
            follow: whether to follow the source after its end, until :meth:`stop`.
            tell: called with the result so far after each transaction.

        Raises:
            ConfigError: :meth:`problems` has found some, or the store belongs to another copy.
            HeaderwareError: another process has taken over, or the audit topic refuses an account.
            KeyringError: records cannot be verified now.
            confluent_kafka.KafkaException: the cluster refuses a request.
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
            # Not opened in the driver of a Spark job, because perhaps only the job's workers have the keys.
            self._verification = Verification(self._chain, self._source, cluster_id=self._cluster_id)
        self._result, self._tell = result, tell
        with Winners(store, self._purpose) as self._winners:
            work()
        result.missed += self.worker.deleted
        self._told()
        result.stopped = self.worker.is_stopped
        return result

    def _told(self) -> None:
        """Report the result so far."""
        result, worker = self._result, self.worker
        result.records, result.size_bytes = worker.records, worker.size_bytes
        decided = result.written + sum(result.unresolved.values()) + sum(result.lost.values())
        result.waiting = max(0, result.records - decided)
        self._tell(result)

    # The policy of the worker

    def begin(self, committed: Mapping[int, tuple[int, str]]) -> Mapping[int, tuple[int, str]]:
        """Learn the source up to its end, and find the slices that a job has left pending."""
        found = self.copied.read(committed)
        if self.copied.is_marked(found):
            raise HeaderwareError(self._marked())
        done = {number: offset for number, (offset, _) in found.items()}
        if any(offset > done.get(number, 0) for number, offset in self._winners.done.items()):
            self._winners.clear()  # the group's offsets were set back
        if self._rule.alone is None:
            self._learn(done)
        by_job = {number: offset for number, (offset, own) in found.items() if own == self.copied.ended}
        committed = {**committed, **self._with_pending(by_job)}
        self._done = done
        self._progress = lambda: self.worker.progress
        return committed

    def part_of(self, record: Record) -> SliceHeader | None:
        """Return a record's slice header; None if the record cannot be judged, so it joins no message."""
        judged = self._judge(record)
        self._judged[judged.partition, judged.offset] = judged
        return judged.part

    def decide(self, units: Sequence[Unit]) -> Iterator[Outcome]:
        """Yield the outcome of each unit."""
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
        # Pending slices of earlier batches are judged again.
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
        # The client cannot write unreadable headers as they are.
        copied = () if verdict.why == "unreadable" else unit.records
        records = [record.replace(topic=topic) for record in copied]
        return Outcome(unit, "sent" if records else "dropped", records, why=_words(verdict), about=verdict)

    def give_up(self, unit: Unit) -> Outcome:
        """Return that an incomplete message cannot be judged."""
        return self._outcome(unit, Verdict("unresolved", "incomplete"))

    def decide_again(self, outcome: Outcome, refusals: Mapping[int, KafkaError]) -> Outcome:
        """Send a record that its topic refuses to the side topic, or do not copy it."""
        index, error = next(iter(refusals.items()))
        refused = outcome.records[index]
        if kind_of(error) is Kind.UNKNOWN_PARTITION:
            raise HeaderwareError(
                f"{refused.topic} has no partition {refused.partition}, but {self._source} has; "
                "add partitions, and start again"
            )
        topic = None if refused.topic == self._side_topic else self._side_topic
        text = (
            f"{refusal(self._source, refused, error)}; "
            f"{'it is not copied' if topic is None else f'it is written to {topic}'}"
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
        """Return the account of a transaction as a record for the audit topic: the counts by decision."""
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
        """Count the committed outcomes, and store the progress."""
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
        """Raise a HeaderwareError if a topic was deleted or recreated since the start."""
        for name in (self._source, self._target):
            topic = self._described(name)
            if topic is None or topic.id != self._topics[name].id:
                raise HeaderwareError(
                    f"topic {name} was deleted or recreated; start again with another group and a new target"
                )

    # Learning

    def _judge(self, record: Record) -> Judged:
        verified = None if self._verification is None else self._verification.verified
        return self._rule.judged(record, now_ms=self._now_ms(), verified=verified, compacts=self._compacts)

    def _learn(self, done: Mapping[int, int]) -> None:
        """Learn the source up to its end, after the target if the store lacks records that were copied."""
        winners = self._winners
        if any(offset > winners.learned.get(number, 0) for number, offset in done.items()):
            with self._open(self._target) as reader:
                reader.start()
                for records in self._read(reader):
                    # The signatures name the source topic.
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
        """Return units of judgements, without keys and values."""

        def fetched(topic: str, number: int, offset: int) -> Record | None:
            record = self._singles.get(topic, number, offset, seen=True)
            return None if record is None else _without_payload(record, self._judge(record))

        return Units(fetched, part_of=lambda record: _judgement(record).part)

    def _complete(self, units: Units, records: Iterable[Record]) -> Iterator[Judged]:
        """Yield the judgements of records, and of the messages that they complete."""
        for record in records:
            judged = self._judge(record)
            if judged.part is None:
                yield judged
                continue
            unit = units.add(_without_payload(record, judged))
            if unit is not None and unit.problem is None:
                yield judged_message([*map(_judgement, unit.records)])

    def _note_syncs(self) -> None:
        """Find positions in both topics, which is possible only between two transactions."""
        wanted = [number for number, offset in self._done.items() if self._winners.needs_sync(number, offset)]
        if wanted:
            ends = self._ends(self._target)
            self._syncs = {number: Sync(self._done[number], ends[number]) for number in wanted}

    def _open(self, topic: str | None = None) -> TopicReader:
        """Return a reader of the source or of another topic, and show its progress from now on."""
        reader = TopicReader(
            self._reading, topic or self._source, group_id=self._group, timeout_s=self._timeout_s
        )
        self._progress = lambda: reader.progress
        return reader

    def translate(self, group: str) -> list[Translated]:
        """Return the offsets from which a consumer group of the source can continue in the target.

        The result is exact for a group that has read as far as the worker, if no transaction is open. For a
        group that has read less, the file ``store`` has positions about every 1,000 offsets; without the
        file, the group begins at the start of the target. Nothing is changed.

        Raises:
            ConfigError: the target does not exist.
            confluent_kafka.KafkaException: the cluster does not answer.
        """
        if self._target not in self._topics:
            raise ConfigError(f"topic {self._target} does not exist; copy {self._source} into it first")
        # The order matters: records that the target gets between these calls come from later offsets of the
        # source. The committed end is used, because the group may not have read the records of an open
        # transaction.
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
        """Return the target's ends with and without open transactions; wait a while until they are equal."""
        deadline = time.monotonic() + _SETTLED_S
        while True:
            ends = self._ends(self._target)
            settled = self._ends(self._target, "read_committed")
            if ends == settled or time.monotonic() > deadline:
                return ends, settled
            time.sleep(0.1)

    def _known_offset(self, partition: int, source: int) -> int | None:
        """Return the stored offset of the target for an offset of the source; None if there is none."""
        if self._store is None:
            return None
        return offset_in_target(self._store, self._purpose, partition, source)

    def commit_translated(self, group: str, translated: Sequence[Translated]) -> None:
        """Commit the translated offsets in the target, for a group without members.

        Raises:
            HeaderwareError: the group already has offsets in the target.
            confluent_kafka.KafkaException: the group has members, or the cluster refuses the request.
        """
        with TopicReader(self._reading, self._target, group_id=group, timeout_s=self._timeout_s) as reader:
            if reader.committed():
                raise HeaderwareError(
                    f"group {group} already has offsets in {self._target}; they were not changed"
                )
        self._admin.set_committed(group, self._target, {each.partition: each.target for each in translated})

    def _positions(self) -> dict[int, int]:
        """Return the progress; raise HeaderwareError if the offsets belong to another copy or a job."""
        committed = self.copied.offsets()
        if self.copied.is_marked(committed):
            raise HeaderwareError(self._marked())
        return {partition: offset for partition, (offset, _) in committed.items()}

    def _marked(self) -> str:
        return (
            f"a Spark job copies {self._source} into {self._target}, or was killed: its mark is in the "
            f"metadata of the offsets of group {self._group}. Wait for the job's end, or run the job again: "
            "copy_topic(..., execute=True) continues the copy, and removes the mark at its end. Or start "
            f"again with another group (--group) and a new target"
        )

    def problems(self, *, for_job: bool = False) -> list[str]:
        """Return why the copy cannot be executed; ``for_job`` is True if a Spark job will execute it.

        Raises:
            HeaderwareError: the group's offsets belong to another copy.
            confluent_kafka.KafkaException: the cluster does not answer.
        """
        source, problems = self._topics[self._source], []
        for name in (self._target, self._side_topic):
            if name is None:
                continue
            topic = self._topics.get(name)
            expected = counted(source.partitions, "partition")
            if topic is None:
                problems.append(f"topic {name} does not exist; create it with {expected}")
                continue
            if topic.partitions != source.partitions:
                problems.append(
                    f"topic {name} has {counted(topic.partitions, 'partition')}, expected {expected}, as "
                    f"{self._source} has; create another topic with {expected}"
                )
                continue
            if topic.configs["message.timestamp.type"] != "CreateTime":
                problems.append(f"{name} needs message.timestamp.type=CreateTime, to keep the timestamps")
            problems += [
                f"{name} has a smaller {limit} ({topic.configs[limit]}) than {self._source}; raise it"
                for limit in ("retention.ms", "retention.bytes")
                if topic.keeps(limit) < source.keeps(limit)
            ]
            if int(topic.configs["max.message.bytes"]) < int(source.configs["max.message.bytes"]):
                problems.append(f"{name} has a smaller max.message.bytes than {self._source}; raise it")
        if self._rule.alone is not None:
            problems += [
                f"{name} is compacted: a copy without the latest record of a key would bring back an older "
                f"record; use retention without a copy, which writes tombstones"
                for name in (self._source, self._target)
                if name in self._topics and self._topics[name].is_compacted
            ]
        elif self._compacts and self._side_topic is None:
            problems.append(
                f"{self._target} is compacted, so it cannot keep records without a key or version; name a "
                f"topic for them (--side-topic)"
            )
        if self._side_topic in self._topics and self._topics[str(self._side_topic)].is_compacted:
            problems.append(f"{self._side_topic} is compacted; a side topic needs cleanup.policy=delete")
        if self._audit is not None and self._audit not in self._topics:
            problems.append(f"topic {self._audit} does not exist; create it")
        committed = self.copied.offsets()
        if not for_job and self.copied.is_marked(committed):
            problems.append(self._marked())
        if not problems and (partition := self._written_by_others(committed)) is not None:
            problems.append(
                f"{self._target}[{partition}] has records that group {self._group} has not written, or the "
                "group's offsets have expired (offsets.retention.minutes); start the copy with an empty "
                f"target and a new group"
            )
        return problems

    def _written_by_others(self, committed: Iterable[int]) -> int | None:
        """Return a partition of the target that has records although the group has no offset in the source.

        A copy would begin at the start of that partition, and could write its records twice.
        """
        with self._open(self._target) as reader:
            reader.start(offsets=dict.fromkeys(committed, _HIGHEST))
            return next((batch[0].partition() for batch in reader.to_end()), None)

    def _described(self, name: str) -> _Topic | None:
        """Return the cluster's description of a topic; None if the topic does not exist."""
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
        """Close the clients."""
        self.worker.close()
        self._singles.close()
        if self._verification is not None:
            self._verification.close()


def _words(verdict: Verdict) -> str:
    return verdict.outcome if verdict.why is None else f"{verdict.outcome}: {verdict.why}"


def _without_payload(record: Record, judged: Judged) -> Record:
    """Return a record that has only its position and the judgement."""
    local = {"judged": judged}
    return Record(record.topic, None, None, EMPTY, record.partition, offset=record.offset, local=local)


def _judgement(record: Record) -> Judged:
    judged: Judged = (record.local or {})["judged"]
    return judged
