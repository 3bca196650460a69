"""Send dead letters back to where their records came from, or elsewhere, each exactly once.

One transaction has the records of a batch and the offsets of their letters, under a group of its own. So a
process that is killed at any moment neither loses a record nor sends one twice; the next one goes on where
the last transaction ended. Whoever starts later takes over: the transactional id fences those before.

The first slice of a message goes last into a compacted topic, for it alone has the message's key there
(spec/slice.md): its letter waits until the others are sent, over transactions and runs.

Letters that are not sent stay: the committed offset is the first of them, and its metadata has those behind
it (spec/dead-letter.md). They are looked at again next time.

What a letter says of its original is a claim of whoever wrote it. So records only go to topics, and are only
read from topics, that the command or the configuration permits.
"""

from __future__ import annotations

import hashlib
import re
import time
import zlib
from collections import defaultdict
from threading import Event
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Self

import msgspec
from confluent_kafka import TopicPartition

from headerware.clients.partition_picker import partition_of_key
from headerware.core.bounded_cache import BoundedCache
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
from headerware.core.errors import ConfigError, HeaderwareError, WireFormatError, position
from headerware.core.headers import EMPTY
from headerware.core.topics import TopicPatterns, check_patterns
from headerware.interceptors.slice.header import MAX_SLICES, is_slice_key
from headerware.kafka.admin import Admin
from headerware.kafka.batch_size import SETTINGS_TIMEOUT_S
from headerware.kafka.messages import is_readable, record_of
from headerware.kafka.reader import Progress, TopicReader
from headerware.kafka.single_records import SingleRecords
from headerware.keyring.signature import SIGNATURE_HEADER
from headerware.ops.slices import slice_header_of
from headerware.ops.stays import Stays, decode_stays
from headerware.ops.transactions import PARTITIONER, TIMEOUT_S, TransactionalSender
from headerware.registry.names import named_headers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from headerware.core.record import Record
    from headerware.ops.tail import Condition

ORIGINAL: Final = "original"
"""The word for the topic that each letter names."""
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
    "too_often",
    "unfit",
]
"""Why a letter stays, though it was selected."""
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
    "incomplete": "its message lacks slices: it would replace a whole one in a compacted topic, or go astray",
    "too_often": "it was sent back too often; --max-attempts permits more, --parking TOPIC moves it away",
    "unfit": "its topic refuses it, for its size, key or time",
}
_INTERNAL: Final = frozenset(
    {"__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata"}
)
_BATCH: Final = 500
_LOOK_BACK: Final = 1_000
"""How many letters before the first that is left are read again, for the other slices of messages.

If some are missing then, it is read once more, from as far back as a message may reach.
"""
_MAX_MESSAGES: Final = 1_000
_MAX_SHOWN_TEXT: Final = 200


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """Which letters are sent, and where.

    Args:
        to: a topic, or ``original`` for the one that each letter names.
        allow: patterns of the topics that letters may name. None means those whose dead-letter topic this is,
            by ``patterns``.
        patterns: the patterns of dead-letter topics in the configuration, such as ``{topic}.dead-letter``.
        where: conditions on the letter's headers, of which all must hold.
        reason: a regular expression that is searched for in the reason, the error's class and the step.
        max_attempts: how often a record is sent back; 0 does not count and adds no header.
        parking: the topic for letters that were sent back that often; None leaves them.
        limit: how many letters are sent at most, or None.

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


class Letter(NamedTuple):
    """A letter and what becomes of it.

    ``outcome`` is ``sent``, ``parked``, ``passed_over`` (it is not selected), ``waits`` (a first slice that
    goes when the others have gone) or ``stays``, then with ``why``.
    ``sent`` is the record for ``sent`` and ``parked``. ``message`` is the partition and the id of the message
    in slices that it belongs to, or None.
    """

    record: Record
    reason: Reason | None
    outcome: Literal["sent", "parked", "passed_over", "waits", "stays"]
    sent: Record | None = None
    why: Why | None = None
    attempts: int = 0
    message: tuple[int | None, bytes] | None = None

    def facts(self) -> dict[str, Any]:
        """Return what may be shown of it: neither payload nor key, and no values of other headers."""
        reason = self.reason
        return {
            "letter": position(self.record.topic, self.record.partition, self.record.offset),
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


class Result(msgspec.Struct, kw_only=True):
    """What was done, or would be.

    Args:
        topic: the dead-letter topic.
        executed: whether anything was sent; else it is what would be.
        letters: how many letters were looked at.
        sent: how many records were sent, by topic.
        parked: how many letters were moved to the parking topic.
        passed_over: how many were not selected.
        stays: how many stay though they were selected, by cause.
        deleted: how many offsets the topic has no more that no run has answered, markers of transactions too.
        stopped: whether it was stopped before the end.
        shown: the first letters, as :meth:`Letter.facts`.
    """

    topic: str
    executed: bool
    letters: int = 0
    sent: dict[str, int] = msgspec.field(default_factory=dict)
    parked: int = 0
    passed_over: int = 0
    stays: dict[Why, int] = msgspec.field(default_factory=dict)
    deleted: int = 0
    stopped: bool = False
    shown: list[dict[str, Any]] = msgspec.field(default_factory=list)

    @property
    def done(self) -> int:
        """How many letters were sent or parked."""
        return sum(self.sent.values()) + self.parked

    def add(self, letters: Sequence[Letter], shown: int) -> None:
        """Count letters, and keep the facts of the first ones."""
        for letter in letters:
            if letter.outcome == "waits":
                continue  # it comes again
            self.letters += 1
            if letter.outcome == "sent" and letter.sent is not None:
                self.sent[letter.sent.topic] = self.sent.get(letter.sent.topic, 0) + 1
            elif letter.outcome == "parked":
                self.parked += 1
            elif letter.outcome == "passed_over":
                self.passed_over += 1
                continue
            elif letter.why is not None:
                self.stays[letter.why] = self.stays.get(letter.why, 0) + 1
            if len(self.shown) < shown:
                self.shown.append(letter.facts())


class Redrive:
    """Send the letters of a topic back; for one caller at a time, only :meth:`stop` is for any thread.

    Args:
        conf: the settings of a client of confluent-kafka, for all clients that it makes.
        topic: the dead-letter topic.
        selection: which letters are sent, and where.
        group_id: the group whose offsets say which letters are done, and the transactional id.
        rate: how many letters are sent in a second at most, or None.
        shown: how many letters are described in the result.
        timeout_s: how long the cluster may take to answer.

    Raises:
        ConfigError: there is no such topic, or records would go into the dead-letter topic itself.
        confluent_kafka.KafkaException: the settings are wrong, or the cluster does not answer.
    """

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
        self._conf: Final = {"log_level": 0, **conf}
        self._topic: Final = topic
        self._selection: Final = selection
        self._group: Final = group_id or f"headerware-redrive-{topic}"
        self._rate: Final = rate
        self._shown: Final = shown
        self._timeout_s: Final = timeout_s
        self._stop: Final = Event()
        self._fetched: Final = SingleRecords(self._conf, self._group, timeout_s)
        for target in (selection.to, selection.parking):
            if target == topic:
                raise ConfigError(f"letters of {topic} cannot be sent into {topic} itself")
        self._allowed: Final = None if selection.allow is None else TopicPatterns(selection.allow)
        self._pattern: Final = None if selection.reason is None else re.compile(selection.reason)
        # The consumer's own settings stand first: a topic is read as its applications read it.
        self._reader: Final = TopicReader(
            {"isolation.level": "read_committed", **self._conf},
            topic,
            group_id=self._group,
            timeout_s=timeout_s,
        )
        self._partitions: dict[str, int] = {}
        self._messages: BoundedCache[tuple[int | None, bytes], _Message] = BoundedCache(_MAX_MESSAGES)
        self._compacted: dict[str, bool | None] = {}
        for target in (selection.to, selection.parking):
            if target not in (ORIGINAL, None) and not self._count_partitions(target):
                self.close()
                raise ConfigError(f"there is no topic {target}; create it first")

    def stop(self) -> None:
        """Stop behind the transaction that is under way; for signal handlers and other threads."""
        self._stop.set()

    @property
    def progress(self) -> Progress:
        """How far it is, in offsets."""
        return self._reader.progress

    def preview(self) -> Result:
        """Return what would be done, without sending or committing anything."""
        result = Result(topic=self._topic, executed=False)
        for letters in self._planned(_Places(self._reader.committed()), result):
            result.add(letters, self._shown)
        return result

    def execute(self, tell: Callable[[Result], object] = lambda _: None) -> Result:
        """Send the letters, and return what was done; ``tell`` is called behind each transaction.

        Raises:
            HeaderwareError: another process has taken over, or more letters stay than a commit can note.
            confluent_kafka.KafkaException: the cluster refuses what it is asked.
        """
        result = Result(topic=self._topic, executed=True)
        sender = TransactionalSender(
            self._conf,
            self._group,
            what=f"redrive of {self._topic}",
            topics=self._targets(),
            timeout_s=self._timeout_s,
        )
        try:
            # Only behind this are the offsets those of the last transaction: it ends what is open.
            places = _Places(self._reader.committed())
            began = time.monotonic()
            for planned in self._planned(places, result):
                letters = self._sent(sender, planned, places)
                for each in letters:
                    known = None if each.message is None else self._messages.get(each.message)
                    if each.why == "unfit" and known is not None:
                        known.letter = _stripped(each)
                result.add(letters, self._shown)
                tell(result)
                if self._rate:
                    self._stop.wait(max(0.0, began + result.done / self._rate - time.monotonic()))
        finally:
            sender.close()
        return result

    def _targets(self) -> list[str]:
        """Return the topics that are written, as far as they are known before letters name them."""
        selection = self._selection
        known = [] if selection.parking is None else [selection.parking]
        if selection.to != ORIGINAL:
            return [*known, selection.to]
        for pattern in selection.patterns:
            if is_dead_letter_topic(pattern, self._topic):
                before, _, after = pattern.partition("{topic}")
                known.append(self._topic.removeprefix(before).removesuffix(after))
        return [topic for topic in known if self._is_allowed(topic) or topic == selection.parking]

    def _sent(
        self, sender: TransactionalSender, letters: Sequence[Letter], places: _Places
    ) -> Sequence[Letter]:
        """Send what is to be sent, and return what became of each letter.

        A record that its topic refuses stays, with all slices of its message, and the others go.
        """
        while True:
            offsets = [self._offset(*place) for place in places.answered(letters)]
            unfit = sender.send([each.sent for each in letters], offsets, self._reader.group_metadata())
            if not unfit:
                places.commit()
                return letters
            messages = {letters[index].message for index in unfit} - {None}
            letters = [
                each._replace(outcome="stays", why="unfit", sent=None)
                if index in unfit or (each.message in messages and each.sent is not None)
                else each
                for index, each in enumerate(letters)
            ]

    def _offset(self, number: int, position_: int, stays: Stays) -> TopicPartition:
        """Return what is committed for a partition."""
        try:
            offset, metadata = stays.encode(position_)
        except WireFormatError as error:
            raise HeaderwareError(
                f"{self._topic}[{number}]: {error}; what was sent before is committed. Redrive the first of "
                f"those that stay, with other conditions or into a parking topic"
            ) from error
        if metadata:
            return TopicPartition(self._topic, number, offset, metadata)
        return TopicPartition(self._topic, number, offset)

    def _planned(self, places: _Places, result: Result) -> Iterator[list[Letter]]:
        """Yield what becomes of the letters, batch by batch."""
        limit = self._selection.limit
        size = _BATCH if self._rate is None else max(1, min(_BATCH, int(self._rate)))
        is_cut = False
        self._reader.start(offsets=places.begins_before(_LOOK_BACK))
        result.deleted = places.begin(self._reader, self._topic, self._group)
        look = self._look
        waiting: defaultdict[int, Stays] = defaultdict(Stays)

        def noted(letter: Letter) -> Letter:
            stays = waiting[letter.record.partition or 0]
            (stays.add if letter.outcome == "waits" else stays.discard)(letter.record.offset or 0)
            return letter

        while True:
            for batch in self._reader.to_end(max_records=size, each_batch=True):
                room = None if limit is None else limit - result.done
                letters: list[Letter] = []
                for message in batch:
                    # What is not looked at now must not be passed over: nothing is read behind it.
                    if self._stop.is_set() or (room is not None and room <= 0):
                        is_cut = True
                        break
                    for found in look(record_of(message), places):
                        letters.append(noted(found))
                        if room is not None and found.sent is not None:
                            room -= 1
                            if room <= 0:
                                break
                yield letters
                if is_cut or self._stop.is_set() or (limit is not None and result.done >= limit):
                    result.stopped = self._stop.is_set()
                    return
            if look == self._look_again:
                break
            places.end(self._reader)
            unfinished = {
                number or 0 for (number, _), known in self._messages.entries().items() if known.waits
            }
            if not unfinished:
                break
            ends = {number: end for number, (_, end) in self._reader.bounds.items() if number in unfinished}
            self._reader.start(offsets=places.begins_before(MAX_SLICES), up_to=ends)
            look = self._look_again
        yield list(map(noted, self._heads_left()))
        # Of more messages than are kept in mind, it is only known that they are not whole.
        if rest := sum(map(len, waiting.values())):
            result.letters += rest
            result.stays["incomplete"] = result.stays.get("incomplete", 0) + rest

    def _look(self, letter: Record, places: _Places) -> Iterator[Letter]:
        """Yield what becomes of a letter, and of first slices that have waited for it."""
        is_done = places.is_done(letter.partition or 0, letter.offset or 0)
        if is_done and slice_header_of(letter) is None:
            return
        found = self._judge(letter, is_done=is_done)  # an earlier run may have left other slices
        if not is_done:
            yield found
        yield from self._heads(found.message)

    def _look_again(self, letter: Record, places: _Places) -> Iterator[Letter]:
        """Yield what becomes of a slice that has waited for the first one of its message.

        That may stand behind it, or be done since long. And slices that are done since long may be all that a
        first one waits for.
        """
        header = slice_header_of(letter)
        known = None if header is None else self._messages.get((letter.partition, header.message_id))
        if header is None or known is None or not known.waits:
            return
        has_waited = known.early >> header.index & 1
        if places.is_done(letter.partition or 0, letter.offset or 0):
            found = self._judge(letter, is_done=True)
        elif has_waited:
            known.early &= ~(1 << header.index)  # a copy is for the next run
            found = self._judge(letter, is_done=False, again=True)
            yield found
        else:
            return
        yield from self._heads(found.message)

    def _judge(self, letter: Record, *, is_done: bool, again: bool = False) -> Letter:
        """Decide what becomes of one letter; one that is done only says what its message is."""
        if not is_readable(letter):
            return Letter(letter, None, "stays", why="unreadable")
        message = slice_header_of(letter)
        if message is None:
            return self._judge_whole(letter)
        # Only the first slice has the reason, and the others go where it goes.
        of = letter.partition, message.message_id
        known = self._messages.get(of)
        if known is None:
            known = self._messages[of] = _Message(message.count)
        if message.index == 0 or known.letter is None:
            found = self._judge_whole(letter)._replace(message=of)
            if message.index and self._needs_first(found):
                if again:
                    why = found.why or "incomplete"
                    is_selected = found.outcome != "passed_over"
                    return found._replace(outcome="stays", sent=None, why=why) if is_selected else found
                if not is_done:
                    known.early |= 1 << message.index
                return found._replace(outcome="waits", sent=None, why=None)
            found = self._in_one_partition(found, message.message_id)
            known.letter = _stripped(found)
        else:
            found = known.letter._replace(record=letter)
            if found.sent is not None:
                headers = letter.headers if found.outcome == "parked" else without_reason(letter.headers)
                whither = found.sent
                sent = letter.replace(topic=whither.topic, partition=whither.partition, headers=headers)
                found = found._replace(sent=sent)
        if found.sent is None or found.outcome != "sent" or self._is_compacted(found.sent.topic) is False:
            return found
        if message.index == 0:
            if not is_done:
                known.heads.append(letter.offset or 0)
            return found._replace(outcome="waits", sent=None)
        known.gone |= 1 << message.index
        if is_slice_key(found.sent.key) or named_headers(letter).last(SIGNATURE_HEADER) is not None:
            return found
        # What a dead letter was split into has the message's key, of which compaction would leave one.
        return found._replace(sent=found.sent.replace(key=message.own_key))

    def _needs_first(self, found: Letter) -> bool:
        """Return whether only the first slice of a message can tell where another one goes."""
        sent = found.sent
        if sent is None or sent.partition is not None:
            return found.reason is None
        return is_slice_key(sent.key) and self._count_partitions(sent.topic) > 1

    def _heads(self, of: tuple[int | None, bytes] | None) -> Iterator[Letter]:
        """Yield the first slices of a message that have waited, if the others have gone."""
        known = None if of is None else self._messages.get(of)
        if of is None or known is None or known.letter is None or known.letter.sent is None:
            return
        if known.heads and known.is_complete:
            yield from self._taken_heads(of, known)
            known.gone = 0  # a copy of the message may follow

    def _taken_heads(self, of: tuple[int | None, bytes], known: _Message) -> Iterator[Letter]:
        heads, known.heads = known.heads, []
        for offset in heads:
            letter = self._fetched.get(self._topic, of[0] or 0, offset, seen=True)
            if letter is not None:
                yield self._in_one_partition(self._judge_whole(letter)._replace(message=of), of[1])

    def _heads_left(self) -> Iterator[Letter]:
        """Yield the first slices that still wait at the end, because others of their messages are missing.

        They stay where they would replace whole messages. Where nobody knows that, they go: the missing
        slices may be in the topic, or come by another way.
        """
        for of, known in self._messages.entries().items():
            if known.letter is None:
                continue
            sent = known.letter.sent
            if sent is not None and self._is_compacted(sent.topic) is None:
                yield from self._taken_heads(of, known)
            for offset in known.heads:
                yield known.letter._replace(
                    record=known.letter.record.replace(offset=offset),
                    outcome="stays",
                    sent=None,
                    why=known.letter.why or "incomplete",
                )

    def _is_compacted(self, topic: str) -> bool | None:
        """Return whether a topic is compacted; None if that is not told.

        Then its messages in slices go as into a compacted one, which does no harm on others.
        """
        if topic not in self._compacted:
            told = Admin(self._conf, timeout_s=SETTINGS_TIMEOUT_S).told_settings([topic]).get(topic)
            self._compacted[topic] = None if told is None else "compact" in told["cleanup.policy"]
        return self._compacted[topic]

    def _in_one_partition(self, found: Letter, message_id: bytes) -> Letter:
        """Choose one partition for all slices of a message, whatever their keys; each run chooses alike."""
        sent = found.sent
        if sent is None or sent.partition is not None:
            return found
        count = self._count_partitions(sent.topic)
        decided = partition_of_key(sent.key, str(self._conf.get("partitioner", PARTITIONER)), count)
        partition = zlib.crc32(message_id) % count if decided is None else decided
        return found._replace(sent=sent.replace(partition=partition))

    def _judge_whole(self, letter: Record) -> Letter:
        reason = read_reason(letter.headers)
        if not self._is_selected(letter, reason):
            return Letter(letter, reason, "passed_over")
        if reason is None:
            return Letter(letter, None, "stays", why="no_reason")
        if is_of_a_source(letter.headers):
            return Letter(letter, reason, "stays", why="of_a_source")
        return self._judge_selected(letter, reason)

    def _judge_selected(self, letter: Record, reason: Reason) -> Letter:
        count, first_ms = redrives(letter.headers)
        selection = self._selection
        if 0 < selection.max_attempts <= count:
            if selection.parking is None:
                return Letter(letter, reason, "stays", why="too_often", attempts=count)
            parked = letter.replace(topic=selection.parking, partition=None)
            return Letter(letter, reason, "parked", parked, attempts=count)
        if (why := self._why_not(reason)) is not None:
            return Letter(letter, reason, "stays", why=why, attempts=count)
        original: Record | Why = self._original(letter, reason)
        if isinstance(original, str):
            return Letter(letter, reason, "stays", why=original, attempts=count)
        headers = without_reason(original.headers)
        if selection.max_attempts:
            headers = redriven(headers, count + 1, first_ms or reason.first_failed_ms)
        is_back = selection.to == ORIGINAL
        sent = original.replace(
            topic=reason.topic if is_back else selection.to,
            partition=reason.partition if is_back else None,
            headers=headers,
        )
        return Letter(letter, reason, "sent", sent, attempts=count)

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
        if reason.cluster is not None and reason.cluster != self._reader.cluster_id:
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
            self._partitions[topic] = self._reader.count_partitions(topic)
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
        if reason.cluster is not None and reason.cluster != self._reader.cluster_id:
            return "another_cluster"
        if reason.partition >= self._count_partitions(reason.topic):
            return "no_partition"
        found = self._fetched.get(reason.topic, reason.partition, reason.offset)
        if found is None:
            return "gone"
        if not is_readable(found):
            return "unreadable"
        if is_stub and not _fits_stub(found, dict(letter.headers)):
            return "changed"
        return found

    def close(self) -> None:
        """Close its clients."""
        self._fetched.close()
        self._reader.close()

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


class _Message:
    """What is known of a message in slices; the same size whatever its headers and key are."""

    __slots__ = ("_all", "early", "gone", "heads", "letter")

    def __init__(self, count: int) -> None:
        self._all: Final = (1 << count) - 2
        self.letter: Letter | None = None
        """Where its slices go, or why they do not; None as long as only the first one can tell."""
        self.early = 0
        """The slices that wait for that, as bits by their indexes."""
        self.gone = 0
        """The slices that have gone into a compacted topic, as bits by their indexes."""
        self.heads: list[int] = []
        """The offsets of its first slice, that waits for the others; there may be copies."""

    @property
    def waits(self) -> bool:
        """Whether some of its slices wait for others."""
        return bool(self.early or self.heads)

    @property
    def is_complete(self) -> bool:
        """Whether all slices but the first have gone."""
        return self.gone & self._all == self._all


def _stripped(letter: Letter) -> Letter:
    """Return a letter without what may be large."""
    reason = letter.reason
    if reason is not None:
        short = {
            name: text and text[:_MAX_SHOWN_TEXT]
            for name in ("group", "step", "error", "reason")
            for text in [getattr(reason, name)]
        }
        reason = msgspec.structs.replace(reason, **short)
    bare = letter.record.replace(key=None, value=None, headers=EMPTY)
    sent = letter.sent and letter.sent.replace(key=None, value=None, headers=EMPTY)
    return letter._replace(record=bare, reason=reason, sent=sent)


class _Places:
    """Which letters of each partition are done: those below the position that do not stay."""

    def __init__(self, committed: Mapping[int, tuple[int, str]]) -> None:
        self.begins: Final = {number: offset for number, (offset, _) in committed.items()}
        self._positions: dict[int, int] = {}
        self._stays: defaultdict[int, Stays] = defaultdict(Stays)
        self._moved: set[int] = set()
        self._known: dict[int, tuple[int, frozenset[int]]] = {
            number: decode_stays(offset, metadata) for number, (offset, metadata) in committed.items()
        }

    def begins_before(self, count: int) -> dict[int, int]:
        """Return where partitions begin, and so many offsets before that."""
        return {number: max(0, offset - count) for number, offset in self.begins.items()}

    def begin(self, reader: TopicReader, topic: str, group: str) -> int:
        """Begin where a reader begins, and return how many offsets before that no run has answered.

        Raises:
            HeaderwareError: more was committed than there is.
        """
        deleted = 0
        for number, (begin, end) in reader.bounds.items():
            below, stays = self._known.get(number, (0, frozenset()))
            if below > end:
                raise HeaderwareError(
                    f"group {group} is done with {topic}[{number}] up to offset {below}, but it ends at "
                    f"{end}: the topic was made again; delete the group, or name another (--group)"
                )
            self._positions[number] = max(begin, below)
            left = frozenset(offset for offset in stays if offset >= begin)
            self._stays[number] = Stays(left)
            if number in self._known:
                gone = len(stays) - len(left) + self._positions[number] - below
                deleted += gone
                self._moved |= {number} if gone else set()
            self._known[number] = below, left
        return deleted

    def end(self, reader: TopicReader) -> None:
        """Go to where the reader ended, past what stands behind the last letters: markers of transactions."""
        for number, (_, end) in reader.bounds.items():
            if self._positions[number] < end:
                self._positions[number] = end
                self._moved.add(number)

    def is_done(self, partition: int, offset: int) -> bool:
        """Return whether an earlier run is done with a letter."""
        below, stays = self._known.get(partition, (0, frozenset[int]()))
        return offset < below and offset not in stays

    def answered(self, letters: Sequence[Letter]) -> list[tuple[int, int, Stays]]:
        """Take what becomes of letters, and return what is to be committed: partitions, positions, stays.

        The same letters may come again with other outcomes.
        """
        for letter in letters:
            number, offset = letter.record.partition or 0, letter.record.offset or 0
            stays = self._stays[number]
            (stays.discard if letter.sent is not None else stays.add)(offset)
            self._positions[number] = max(self._positions[number], offset + 1)
            self._moved.add(number)
        return [(number, self._positions[number], self._stays[number]) for number in sorted(self._moved)]

    def commit(self) -> None:
        """Forget what has moved: it is committed."""
        self._moved.clear()
