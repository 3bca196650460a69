"""Send dead letters back to where their records came from, or elsewhere, each exactly once.

It is a worker (:mod:`headerware.workers`): one transaction has the records of a batch, and says which dead
letters are done. So a process that is killed at any moment neither loses a record nor sends one twice. Dead
letters that are not sent are pending, and are looked at again next time.

The dead letters of the slices of a message are one unit: all of them go where that of the first slice goes,
into one partition. Where slices are missing, those that are there go at the end of the topic, for the missing
ones may be in their topic, or come by another way.

What a dead letter says of its original is a claim of whoever wrote it. So records only go to topics, and are
only read from topics, that the command or the configuration permits.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Self

import msgspec

from headerware.clients.compacted_topics import CompactedTopics
from headerware.clients.partition_picker import partition_of_key
from headerware.core.dead_letter import (
    STUB,
    Reason,
    is_dead_letter_topic,
    is_of_a_source,
    read_reason,
    redriven,
    redrives,
    without_reason,
)
from headerware.core.errors import ConfigError, position
from headerware.core.topics import TopicPatterns, check_patterns
from headerware.kafka.messages import is_readable
from headerware.kafka.single_records import SingleRecords
from headerware.workers import Outcome, Policy, Worker
from headerware.workers.transactions import PARTITIONER, TIMEOUT_S
from headerware.workers.units import slice_header_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from confluent_kafka import KafkaError

    from headerware.core.record import Record
    from headerware.kafka.reader import Progress
    from headerware.ops.tail import Condition
    from headerware.workers import Unit

ORIGINAL: Final = "original"
"""The word for the topic that each dead letter names."""
DEFAULT_PATTERN: Final = "{topic}.dead-letter"
Why = Literal[
    "no_reason",
    "unreadable",
    "no_topic",
    "not_allowed",
    "no_partition",
    "another_cluster",
    "gone",
    "changed",
    "no_payload",
    "of_a_source",
    "incomplete",
    "compacted",
    "too_often",
    "unfit",
]
"""Why a dead letter is pending, though it was selected."""
WHY: Final[dict[Why, str]] = {
    "no_reason": "it is no dead letter: it has no header with a reason",
    "unreadable": "its headers cannot be read: a name is no UTF-8",
    "no_topic": "it does not name the original's topic, or in no name that Kafka permits",
    "not_allowed": "it names a topic that is not allowed; --allow TOPIC allows it, --to sends elsewhere",
    "no_partition": "it names a topic or a partition that does not exist",
    "another_cluster": "it comes from another cluster; --to sends it into a topic of this one",
    "gone": "it has no payload, and the original is not in its topic any more",
    "changed": "it has no payload, and another record stands where the original was",
    "no_payload": "it only names the place of a record, or of slices, that could not be kept; look there",
    "of_a_source": "it is a part of an object, no record; repair it, and its source reads it again",
    "incomplete": "its message lacks the first slice, which alone tells where it goes",
    "compacted": "its topic is compacted and would keep one slice of its message; --to sends it elsewhere",
    "too_often": "it was sent back too often; --max-attempts permits more, --parking TOPIC moves it away",
    "unfit": "its topic refuses it, for its size, key or time",
}
_INTERNAL: Final = frozenset(
    {"__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata"}
)
_MAX_SHOWN_TEXT: Final = 200


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """Which dead letters are sent, and where.

    Args:
        to: a topic, or ``original`` for the one that each dead letter names.
        allow: patterns of the topics that dead letters may name. None means those whose dead-letter topic
            this is, by ``patterns``.
        patterns: the patterns of dead-letter topics in the configuration, such as ``{topic}.dead-letter``.
        where: conditions on the headers, of which all must hold.
        reason: a regular expression that is searched for in the reason, the error's class and the step.
        max_attempts: how often a record is sent back; 0 does not count and adds no header.
        parking: the topic for dead letters that were sent back that often; None leaves them pending.
        limit: how many records are sent at most, or None.

    Raises:
        ConfigError: a pattern that is none.
    """

    to: str = ORIGINAL
    allow: tuple[str, ...] | None = None
    patterns: tuple[str, ...] = (DEFAULT_PATTERN,)
    where: tuple[Condition, ...] = ()
    reason: str | None = None
    max_attempts: int = 3
    parking: str | None = None
    limit: int | None = None

    def __post_init__(self) -> None:
        """Refuse patterns that are none."""
        check_patterns(self.allow or (), path="allow")
        if self.reason is not None:
            try:
                re.compile(self.reason)
            except re.error as error:
                raise ConfigError(
                    f"{self.reason!r} is no regular expression: {error}", path="reason"
                ) from None


class DeadLetter(NamedTuple):
    """A dead letter, and what is decided about it.

    Args:
        record: the dead letter; of a message in slices, that of the first one.
        reason: what it says of its original, or None.
        outcome: ``sent``, ``parked``, ``passed_over`` (it is not selected) or ``pending``, then with ``why``.
        sent: the record for ``sent`` and ``parked``.
        why: why it is pending.
        attempts: how often it was sent back before.
    """

    record: Record
    reason: Reason | None
    outcome: Literal["sent", "parked", "passed_over", "pending"]
    sent: Record | None = None
    why: Why | None = None
    attempts: int = 0

    def facts(self) -> dict[str, Any]:
        """Return what may be shown of it: neither payload nor key, and no values of other headers."""
        reason = self.reason
        return {
            "dead_letter": position(self.record.topic, self.record.partition, self.record.offset),
            "outcome": self.outcome,
            "why": self.why,
            "to": None if self.sent is None else self.sent.topic,
            "dialect": reason and reason.dialect,
            "original": reason and reason.topic and position(reason.topic, reason.partition, reason.offset),
            "step": reason and reason.step and reason.step[:_MAX_SHOWN_TEXT],
            "error": reason and reason.error and reason.error[:_MAX_SHOWN_TEXT],
            "reason": reason and reason.reason and reason.reason[:_MAX_SHOWN_TEXT],
            "attempts": self.attempts,
        }


class RedriveResult(msgspec.Struct, kw_only=True):
    """What was done, or would be.

    Args:
        topic: the dead-letter topic.
        executed: whether anything was sent; else it is what would be.
        dead_letters: how many dead letters were looked at; each slice of a message has one.
        sent: how many records were sent, by topic.
        parked: how many dead letters were moved to the parking topic.
        passed_over: how many were not selected.
        pending: how many are pending though they were selected, by cause.
        deleted: how many offsets that were not done the topic has no more, markers of transactions too.
        stopped: whether it was stopped before the end.
        shown: the first dead letters, as :meth:`DeadLetter.facts`.
    """

    topic: str
    executed: bool
    dead_letters: int = 0
    sent: dict[str, int] = msgspec.field(default_factory=dict)
    parked: int = 0
    passed_over: int = 0
    pending: dict[Why, int] = msgspec.field(default_factory=dict)
    deleted: int = 0
    stopped: bool = False
    shown: list[dict[str, Any]] = msgspec.field(default_factory=list)

    @property
    def done(self) -> int:
        """How many dead letters were sent or parked."""
        return sum(self.sent.values()) + self.parked

    def add(self, letter: DeadLetter, count: int, shown: int) -> None:
        """Count the dead letters of a unit, and keep the facts of the first ones."""
        self.dead_letters += count
        if letter.outcome == "sent" and letter.sent is not None:
            self.sent[letter.sent.topic] = self.sent.get(letter.sent.topic, 0) + count
        elif letter.outcome == "parked":
            self.parked += count
        elif letter.outcome == "passed_over":
            self.passed_over += count
            return
        elif letter.why is not None:
            self.pending[letter.why] = self.pending.get(letter.why, 0) + count
        if len(self.shown) < shown:
            self.shown.append(letter.facts())


class Redrive(Policy):
    """Send the dead letters of a topic back; for one caller at a time, only :meth:`stop` is for any thread.

    Args:
        conf: the settings of a client of confluent-kafka, for all clients that it makes.
        topic: the dead-letter topic.
        selection: which dead letters are sent, and where.
        group_id: the group whose offsets say which dead letters are done, and the transactional id.
        rate: how many records are sent in a second at most, or None.
        shown: how many dead letters are described in the result.
        timeout_s: how long the cluster may take to answer.

    Raises:
        ConfigError: there is no such topic, or records would go into the dead-letter topic itself.
        confluent_kafka.KafkaException: the settings are wrong, or the cluster does not answer.
    """

    paces: Literal["read", "written"] = "written"
    takes_incomplete = True
    too_many_pending = (
        "Redrive the first of those that are pending, with other conditions or into a parking topic"
    )

    def __init__(
        self,
        conf: Mapping[str, Any],
        topic: str,
        selection: Selection,
        *,
        group_id: str | None = None,
        rate: float | None = None,
        shown: int = 20,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        for target in (selection.to, selection.parking):
            if target == topic:
                raise ConfigError(f"dead letters of {topic} cannot be sent into {topic} itself")
        self._topic: Final = topic
        self._selection: Final = selection
        self._shown: Final = shown
        self._partitioner: Final = str(conf.get("partitioner", PARTITIONER))
        self._allowed: Final = None if selection.allow is None else TopicPatterns(selection.allow)
        self._pattern: Final = None if selection.reason is None else re.compile(selection.reason)
        self._partitions: dict[str, int] = {}
        self._is_compacted: Final = CompactedTopics({"log_level": 0, **conf})
        self._room = selection.limit
        self._result = RedriveResult(topic=topic, executed=False)
        self._work: Final = Worker(
            conf,
            topic,
            self,
            name="redrive",
            group_id=group_id,
            writes=self._targets(),
            rate=rate,
            timeout_s=timeout_s,
        )
        self._originals: Final = SingleRecords({"log_level": 0, **conf}, self._work.group_id, timeout_s)
        for target in (selection.to, selection.parking):
            if target not in (ORIGINAL, None) and not self._count_partitions(target):
                self.close()
                raise ConfigError(f"there is no topic {target}; create it first")

    def stop(self) -> None:
        """Stop after the transaction that is under way; for signal handlers and other threads."""
        self._work.stop()

    @property
    def progress(self) -> Progress:
        """How far it is, in offsets."""
        return self._work.progress

    def preview(self) -> RedriveResult:
        """Return what would be done, without sending or committing anything."""
        return self._run(executed=False, work=self._work.preview)

    def execute(self, tell: Callable[[RedriveResult], object] = lambda _: None) -> RedriveResult:
        """Send dead letters, and return what was done; ``tell`` is called after each transaction.

        Raises:
            HeaderwareError: another process has taken over, or more is pending than a commit can note.
            confluent_kafka.KafkaException: the cluster refuses what it is asked.
        """
        return self._run(executed=True, work=lambda: self._work.run(tell=lambda: tell(self._result)))

    def _run(self, *, executed: bool, work: Callable[[], object]) -> RedriveResult:
        result = self._result = RedriveResult(topic=self._topic, executed=executed)
        self._room = self._selection.limit
        self._partitions.clear()  # topics may have been created since
        work()
        result.deleted = self._work.deleted
        result.stopped = self._work.is_stopped
        return result

    def _targets(self) -> list[str]:
        """Return the topics that are written, as far as they are known before dead letters name them."""
        selection = self._selection
        known = [] if selection.parking is None else [selection.parking]
        if selection.to != ORIGINAL:
            return [*known, selection.to]
        for pattern in selection.patterns:
            if is_dead_letter_topic(pattern, self._topic):
                before, _, after = pattern.partition("{topic}")
                known.append(self._topic.removeprefix(before).removesuffix(after))
        return [topic for topic in known if self._is_allowed(topic) or topic == selection.parking]

    # What the worker asks

    def decide(self, units: Sequence[Unit]) -> Iterator[Outcome]:
        """Return what becomes of dead letters."""
        for unit in units:
            if self._room is not None and self._room <= 0:
                self.worker.finish()
                yield Outcome(unit, "pending", why="limit")
                continue
            letter = self._judged(unit)
            records = self._records(unit, letter)
            if self._room is not None:
                self._room -= len(records)
            yield Outcome(unit, "sent" if records else "pending", records, about=letter)

    def give_up(self, unit: Unit) -> Outcome:
        """Decide about what there is of a message, as at the end of the topic."""
        (outcome,) = self.decide([unit])
        return outcome

    def decide_again(self, outcome: Outcome, _refusals: Mapping[int, KafkaError]) -> Outcome:
        """Leave what a topic refuses pending, with all slices of its message."""
        letter: DeadLetter = outcome.about
        if self._room is not None:
            self._room += len(outcome.records)
        unfit = letter._replace(outcome="pending", why="unfit", sent=None)
        return Outcome(outcome.unit, "pending", about=unfit)

    def committed(self, outcomes: Sequence[Outcome]) -> None:
        """Count what was done."""
        for outcome in outcomes:
            if outcome.about is not None:
                self._result.add(outcome.about, len(outcome.unit.offsets), self._shown)

    # What becomes of a dead letter

    def _judged(self, unit: Unit) -> DeadLetter:
        letter = unit.records[0]
        if not is_readable(letter):
            return DeadLetter(letter, None, "pending", why="unreadable")
        found = self._judged_alone(letter)
        is_sliced = slice_header_of(letter) is not None
        if is_sliced and found.why == "no_reason":
            return found._replace(why="incomplete")
        if is_sliced and found.outcome == "sent" and found.sent and self._is_compacted(found.sent.topic):
            return found._replace(outcome="pending", sent=None, why="compacted")
        return found

    def _records(self, unit: Unit, letter: DeadLetter) -> list[Record]:
        """Return what is sent for a unit: slices go where the first one goes, into one partition."""
        sent = letter.sent
        if sent is None:
            return []
        header = slice_header_of(letter.record)
        if header is not None and sent.partition is None:
            sent = sent.replace(partition=self._partition_of(sent, header.message_id))
        return [
            sent,
            *(
                each.replace(
                    topic=sent.topic,
                    partition=sent.partition,
                    headers=each.headers if letter.outcome == "parked" else without_reason(each.headers),
                )
                for each in unit.records[1:]
            ),
        ]

    def _partition_of(self, sent: Record, message_id: bytes) -> int:
        """Return the partition for all slices of a message; each run chooses alike."""
        count = self._count_partitions(sent.topic)
        decided = partition_of_key(sent.key, self._partitioner, count)
        return zlib.crc32(message_id) % count if decided is None else decided

    def _judged_alone(self, letter: Record) -> DeadLetter:
        reason = read_reason(letter.headers)
        if not self._is_selected(letter, reason):
            return DeadLetter(letter, reason, "passed_over")
        if reason is None:
            return DeadLetter(letter, None, "pending", why="no_reason")
        if is_of_a_source(letter.headers):
            return DeadLetter(letter, reason, "pending", why="of_a_source")
        return self._judged_selected(letter, reason)

    def _judged_selected(self, letter: Record, reason: Reason) -> DeadLetter:
        count, first_ms = redrives(letter.headers)
        selection = self._selection
        if 0 < selection.max_attempts <= count:
            if selection.parking is None:
                return DeadLetter(letter, reason, "pending", why="too_often", attempts=count)
            parked = letter.replace(topic=selection.parking, partition=None)
            return DeadLetter(letter, reason, "parked", parked, attempts=count)
        if (why := self._why_not(reason)) is not None:
            return DeadLetter(letter, reason, "pending", why=why, attempts=count)
        original: Record | Why = self._original(letter, reason)
        if isinstance(original, str):
            return DeadLetter(letter, reason, "pending", why=original, attempts=count)
        headers = without_reason(original.headers)
        if selection.max_attempts:
            headers = redriven(headers, count + 1, first_ms or reason.first_failed_ms)
        is_back = selection.to == ORIGINAL
        sent = original.replace(
            topic=reason.topic if is_back else selection.to,
            partition=reason.partition if is_back else None,
            headers=headers,
        )
        return DeadLetter(letter, reason, "sent", sent, attempts=count)

    def _is_selected(self, letter: Record, reason: Reason | None) -> bool:
        if not all(condition.holds(letter.headers) for condition in self._selection.where):
            return False
        if self._pattern is None:
            return True
        texts = () if reason is None else (reason.reason, reason.error, reason.step)
        return any(text is not None and self._pattern.search(text) for text in texts)

    def _why_not(self, reason: Reason) -> Why | None:
        """Return why a record cannot go back to the place that its letter names."""
        if self._selection.to != ORIGINAL:
            return None
        if reason.topic is None:
            return "no_topic"
        if not self._is_allowed(reason.topic):
            return "not_allowed"
        if reason.cluster is not None and reason.cluster != self.worker.reader.cluster_id:
            return "another_cluster"
        count = self._count_partitions(reason.topic)
        return "no_partition" if count == 0 or (reason.partition or 0) >= count else None

    def _is_allowed(self, topic: str) -> bool:
        """Return whether records may be read from and sent to a topic that a letter names."""
        if topic == self._topic or topic in _INTERNAL:
            return False
        if self._allowed is not None:
            return self._allowed.matches(topic)
        # A pattern without {topic} says nothing about where its letters come from.
        return any(
            "{topic}" in pattern
            and is_dead_letter_topic(pattern, self._topic)
            and pattern.replace("{topic}", topic) == self._topic
            for pattern in self._selection.patterns
        )

    def _count_partitions(self, topic: str) -> int:
        if topic not in self._partitions:
            self._partitions[topic] = self.worker.reader.count_partitions(topic)
        return self._partitions[topic]

    def _original(self, letter: Record, reason: Reason) -> Record | Why:
        """Return the original with its payload and time: the letter itself, or what it refers to."""
        is_stub = any(name.startswith(STUB) for name, _ in letter.headers)
        if not is_stub and letter.value is None and letter.key == _place_of(reason):
            return "no_payload"
        if not is_stub and not (reason.dialect == "kafka" and letter.value is None and letter.key is None):
            time_ms = letter.timestamp_ms if reason.timestamp_ms is None else reason.timestamp_ms
            return letter.replace(timestamp_ms=time_ms)
        if reason.topic is None or reason.partition is None or reason.offset is None:
            return "no_topic"
        if not self._is_allowed(reason.topic):
            return "not_allowed"
        if reason.cluster is not None and reason.cluster != self.worker.reader.cluster_id:
            return "another_cluster"
        if reason.partition >= self._count_partitions(reason.topic):
            return "no_partition"
        found = self._originals.get(reason.topic, reason.partition, reason.offset)
        if found is None:
            return "gone"
        if not is_readable(found):
            return "unreadable"
        if is_stub and not _fits_stub(found, dict(letter.headers)):
            return "changed"
        return found

    def close(self) -> None:
        """Close its clients."""
        self._originals.close()
        self._work.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _place_of(reason: Reason) -> bytes | None:
    """Return the position of the original as the key of a letter that has nothing of it."""
    if reason.topic is None:
        return None
    return position(reason.topic, reason.partition, reason.offset).encode()


def _fits_stub(found: Record, stub: Mapping[str, bytes | None]) -> bool:
    """Return whether a record is the one that a stub describes."""
    for name, part in (("value", found.value), ("key", found.key)):
        told = stub.get(f"{STUB}{name}.sha256")
        if told != (None if part is None else hashlib.sha256(part).hexdigest().encode()):
            return False
    return stub.get(f"{STUB}headers") == str(len(found.headers)).encode()
