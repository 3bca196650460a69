"""Send the records of dead letters back to their topics, or to another topic, each exactly once.

Redrive is a worker (:mod:`headerware.workers`). One transaction contains the records of a batch and the
offsets of their dead letters, so a process that is killed at any moment neither loses a record nor sends a
record twice. Dead letters that are not sent are pending: the next start of the command decides about them
again.

The dead letters of a message in slices are one unit: all slices go to the topic of the first slice, into one
partition. If slices are missing at the end of the topic, the slices that were found are sent, because the
missing ones may already be in their topic or may arrive in another way.

Anyone who can write to the topic can claim any original in a dead letter. Records are therefore sent to and
read from only the topics that the command or the configuration permits.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import msgspec

from headerware.clients.compacted_topics import CompactedTopics
from headerware.clients.partition_picker import partition_of_key
from headerware.core.closing import Closing
from headerware.core.dead_letter import (
    STUB,
    Reason,
    is_dead_letter_topic,
    is_of_a_source,
    origin_of,
    read_reason,
    redriven,
    redrives,
    without_reason,
)
from headerware.core.errors import ConfigError, position
from headerware.core.topics import TopicPatterns, check_patterns
from headerware.kafka.messages import headers_of, is_readable
from headerware.kafka.reader import TopicReader, strict_settings
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
"""The value of ``to`` that stands for the topic that each dead letter names."""
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
"""Why a selected dead letter is pending."""
WHY: Final[dict[Why, str]] = {
    "no_reason": "it is not a dead letter: no header tells a reason; if DEAD_LETTER_TOPIC is meant to be "
    "another topic, name that one, such as orders.dead-letter",
    "unreadable": "its headers cannot be read: a name is not UTF-8",
    "no_topic": "it names no topic of the original, or a name that Kafka does not permit",
    "not_allowed": "it names a topic that is not allowed; permit it with --allow TOPIC, or choose another "
    "with --to",
    "no_partition": "it names a topic or a partition that does not exist",
    "another_cluster": "it comes from another cluster; choose a topic of this cluster with --to",
    "gone": "it has no payload, and its topic does not have the original any more",
    "changed": "it has no payload, and its topic has another record at the original's offset",
    "no_payload": "it has only the position of a record, or of slices, that could not be kept; read that "
    "position",
    "of_a_source": "it is a part of a source's object, not a record; repair the object, and the source reads "
    "it again",
    "incomplete": "the first slice of its message is missing, and only that slice names the topic",
    "compacted": "its topic is compacted and would keep one slice of the message; choose another with --to",
    "too_often": "it was sent back too often; permit more with --max-attempts, or move it with --parking "
    "TOPIC",
    "unfit": "its topic refuses it because of its size, key or timestamp",
}
_INTERNAL: Final = frozenset(
    {"__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata"}
)
_MAX_SHOWN_TEXT: Final = 200
_FIRST_OFFSETS: Final = 100
"""How many offsets of each partition are looked at to tell whether a topic has dead letters."""


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """Which dead letters are sent, and to which topic.

    Args:
        to: a topic, or ``original`` for the topic that each dead letter names.
        allow: patterns of the topics that dead letters may name. None permits the topics whose dead-letter
            topic this is, by ``patterns``.
        patterns: the patterns of dead-letter topics in the configuration, such as ``{topic}.dead-letter``.
        where: conditions on the headers; all must hold.
        reason: a regular expression that is searched for in the reason, the error's class and the step.
        max_attempts: how often a record is sent back at most; 0 means no limit, and adds no header.
        parking: the topic for dead letters that reached ``max_attempts``; None leaves them pending.
        limit: how many records are sent at most; None means no limit.

    Raises:
        ConfigError: a pattern of topics or the regular expression is not valid.
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
        """Refuse patterns that are not valid."""
        check_patterns(self.allow or (), path="allow")
        if self.reason is not None:
            try:
                re.compile(self.reason)
            except re.error as error:
                raise ConfigError(
                    f"expected a regular expression, found {self.reason!r}: {error}", path="reason"
                ) from None


class DeadLetter(NamedTuple):
    """A dead letter, and the decision about it.

    Args:
        record: the dead letter; for a message in slices, the dead letter of the first slice.
        reason: what the dead letter tells about its original; None if it tells nothing.
        outcome: ``sent``, ``parked``, ``passed_over`` (not selected), or ``pending`` with ``why``.
        sent: the record to send, for ``sent`` and ``parked``.
        why: why the dead letter is pending.
        attempts: how often the record was sent back before.
    """

    record: Record
    reason: Reason | None
    outcome: Literal["sent", "parked", "passed_over", "pending"]
    sent: Record | None = None
    why: Why | None = None
    attempts: int = 0

    def facts(self) -> dict[str, Any]:
        """Return the facts that may be shown: no payload, no key, and no values of other headers."""
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
    """The result of a redrive, or its preview.

    Args:
        topic: the dead-letter topic.
        executed: True if records were sent; False for a preview, which tells what would be sent.
        dead_letters: how many dead letters were decided about; each slice of a message has its own.
        sent: how many records were sent, by topic.
        parked: how many dead letters were moved to the parking topic.
        passed_over: how many dead letters were not selected.
        pending: how many selected dead letters are pending, by cause.
        deleted: how many offsets the topic lost before they were done, including transaction markers.
        stopped: whether :meth:`Redrive.stop` ended it before the end of the topic.
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
        """The number of dead letters that were sent or parked."""
        return sum(self.sent.values()) + self.parked

    def add(self, letter: DeadLetter, count: int, shown: int) -> None:
        """Count the dead letters of a unit, and keep the facts of the first units."""
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


class Redrive(Closing, Policy):
    """Send the dead letters of a topic back; for one caller at a time. Any thread may call :meth:`stop`.

    Args:
        conf: the settings of a client of confluent-kafka, used for all clients.
        topic: the dead-letter topic.
        selection: which dead letters are sent, and to which topic.
        group_id: the group whose offsets tell which dead letters are done; also the transactional id.
        rate: how many records are sent per second at most; None means no limit.
        shown: how many dead letters are described in the result.
        timeout_s: how long the cluster may take to answer, in seconds.

    Raises:
        ConfigError: a topic does not exist, or records would be sent into the dead-letter topic itself.
        confluent_kafka.KafkaException: the settings are wrong, or the cluster does not answer.
    """

    paces: Literal["read", "written"] = "written"
    takes_incomplete = True
    too_many_pending = "Redrive the first pending dead letters, with other conditions or into a parking topic"

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
        self._conf: Final = conf
        self._timeout_s: Final = timeout_s
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
        try:
            self._require_dead_letter_topic()
            self._require_targets()
        except BaseException:
            self.close()
            raise

    def _require_dead_letter_topic(self) -> None:
        """Refuse a topic that has a dead-letter topic and no dead letters: the names were mixed up.

        Without this, a redrive of ``orders`` would say that no dead letters are left. A dead-letter topic can
        have a dead-letter topic, too: its consumers may refuse dead letters.
        """
        patterns = self._selection.patterns
        if any(is_dead_letter_topic(pattern, self._topic) for pattern in patterns):
            return
        for letters in (each.replace("{topic}", self._topic) for each in patterns if "{topic}" in each):
            if self._count_partitions(letters) and not self._has_dead_letters():
                raise ConfigError(
                    f"expected a dead-letter topic, found {self._topic}, which does not begin with dead "
                    f"letters; did you mean {letters}, which has its dead letters? If not, give a --config "
                    f"whose dead_letter_topic is {self._topic}"
                )

    def _require_targets(self) -> None:
        for target in (self._selection.to, self._selection.parking):
            if target not in (ORIGINAL, None) and not self._count_partitions(target):
                raise ConfigError(f"topic {target} does not exist; create it first")

    def _has_dead_letters(self) -> bool:
        """Return whether one of the first records of the partitions is a dead letter."""
        settings = strict_settings({"log_level": 0, **self._conf})
        with TopicReader(
            settings, self._topic, group_id=self._work.group_id, timeout_s=self._timeout_s
        ) as reader:
            reader.start(limit=_FIRST_OFFSETS)
            found = (headers_of(message) for batch in reader.to_end() for message in batch)
            return any(origin_of(headers or (), self._topic) is not None for headers in found)

    def stop(self) -> None:
        """Stop after the transaction that is under way; for signal handlers and other threads."""
        self._work.stop()

    @property
    def progress(self) -> Progress:
        """How far the dead-letter topic is done, in offsets."""
        return self._work.progress

    def preview(self) -> RedriveResult:
        """Return what would be sent, without sending or committing anything."""
        return self._run(executed=False, work=self._work.preview)

    def execute(self, tell: Callable[[RedriveResult], object] = lambda _: None) -> RedriveResult:
        """Send dead letters, and return the result; call ``tell`` after each transaction.

        Raises:
            HeaderwareError: another process has taken over, or more dead letters are pending than a commit's
                metadata can contain.
            confluent_kafka.KafkaException: the cluster refuses a request.
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
        """Return the topics to write to that are known before any dead letter is read."""
        selection = self._selection
        known = [] if selection.parking is None else [selection.parking]
        if selection.to != ORIGINAL:
            return [*known, selection.to]
        for pattern in selection.patterns:
            if is_dead_letter_topic(pattern, self._topic):
                before, _, after = pattern.partition("{topic}")
                known.append(self._topic.removeprefix(before).removesuffix(after))
        return [topic for topic in known if self._is_allowed(topic) or topic == selection.parking]

    # The policy of the worker

    def decide(self, units: Sequence[Unit]) -> Iterator[Outcome]:
        """Yield the outcome of each unit of dead letters."""
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
        """Leave a record that its topic refuses pending, with all slices of its message."""
        letter: DeadLetter = outcome.about
        if self._room is not None:
            self._room += len(outcome.records)
        unfit = letter._replace(outcome="pending", why="unfit", sent=None)
        return Outcome(outcome.unit, "pending", about=unfit)

    def committed(self, outcomes: Sequence[Outcome]) -> None:
        """Count the committed outcomes."""
        for outcome in outcomes:
            if outcome.about is not None:
                self._result.add(outcome.about, len(outcome.unit.offsets), self._shown)

    # The decision about a dead letter

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
        """Return the records to send for a unit: all slices go to the topic and partition of the first."""
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
        """Return the partition for all slices of a message; the choice is the same at each start."""
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
        """Return why a record cannot go back to the topic and partition that its dead letter names."""
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
        """Return whether records may be read from and sent to a topic that a dead letter names."""
        if topic == self._topic or topic in _INTERNAL:
            return False
        if self._allowed is not None:
            return self._allowed.matches(topic)
        # A pattern without {topic} does not tell which topics its dead letters come from.
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
        """Return the original record: the payload of the dead letter, or the record that it refers to."""
        is_stub = any(name.startswith(STUB) for name, _ in letter.headers)
        if not is_stub and letter.value is None and letter.key == _position_key(reason):
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
        """Close the clients."""
        self._originals.close()
        self._work.close()


def _position_key(reason: Reason) -> bytes | None:
    """Return the original's position, which is the key of a dead letter without a payload."""
    if reason.topic is None:
        return None
    return position(reason.topic, reason.partition, reason.offset).encode()


def _fits_stub(found: Record, stub: Mapping[str, bytes | None]) -> bool:
    """Return whether a record matches the digests in a stub."""
    for name, part in (("value", found.value), ("key", found.key)):
        told = stub.get(f"{STUB}{name}.sha256")
        if told != (None if part is None else hashlib.sha256(part).hexdigest().encode()):
            return False
    return stub.get(f"{STUB}headers") == str(len(found.headers)).encode()
