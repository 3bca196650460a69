"""Read a topic from a position on, without a group and without commits: to its end, or following it.

The end of a partition is the offset at which it ended when the reader started. Offsets have holes: markers of
transactions, aborted records, and records that compaction removed. So a partition has been read when a record
at the end or after it has come, or when librdkafka says that nothing is left before the end; the last offset
itself may have no record. A transaction that is still open counts as the end. A leader that has just been
elected may report an earlier end; the reader ignores that, and goes on.

Memory is bounded: librdkafka fetches 16 MiB ahead, and a batch is returned before the next batch is taken.
"""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import msgspec

from headerware.core.closing import Closing
from headerware.core.context import wall_clock_ms
from headerware.core.durations import duration_s
from headerware.core.errors import ConfigError, HeaderwareError
from headerware.core.printable import counted
from headerware.kafka.errors import Kind, kind_of, with_text
from headerware.kafka.settings import bootstrap_servers
from headerware.kafka.wrong_properties import explaining_properties

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from confluent_kafka import Consumer, Message, TopicPartition

    from headerware.kafka.admin import Isolation

_MISSING: Final = (
    "there is no such topic, or this user may not see it; look at the name, or give DESCRIBE on it"
)
_FETCHED_AHEAD_KIB: Final = 16_384
_WAIT_S: Final = 0.1
"""How long a batch that is not full waits for more, also at the end."""
_LONGEST_ANSWER_S: Final = 3_600.0
"""librdkafka counts milliseconds in 32 bits: a time that does not fit becomes no time at all."""
_END_IS_TOLD_MS: Final = 100
"""How long a broker may hold back an empty answer; only that answer shows that a marker was the end."""


class Start(msgspec.Struct, frozen=True):
    """Where to begin in each partition: at an offset, at a time, or that many records before the end."""

    kind: Literal["offset", "time", "last"]
    number: int

    @classmethod
    def parse(cls, text: str, *, now_ms: Callable[[], int] = wall_clock_ms) -> Start:
        """Read ``beginning``, ``end``, an offset, ``-N``, a time in ISO 8601, or an age such as ``15m``.

        Raises:
            ConfigError: the text is none of these.
        """
        word = {"beginning": BEGINNING, "end": cls("last", 0)}.get(text)
        if word is not None:
            return word
        if re.fullmatch(r"-?[0-9]{1,18}", text):
            return cls("last", -int(text)) if text.startswith("-") else cls("offset", int(text))
        age_s = duration_s(text)
        if age_s is not None:
            return cls("time", max(0, now_ms() - round(age_s * 1_000)))
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            raise ConfigError(
                "expected beginning, end, an offset, -N (that many records before the end), a time such as "
                f"2026-01-31T17:30 (UTC unless it says otherwise), or an age such as 15m; found {text!r}"
            ) from None
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return cls("time", max(0, int(moment.timestamp() * 1000)))


BEGINNING: Final = Start("offset", 0)


class Progress(NamedTuple):
    """The progress of a reader, in offsets; holes count, so that both numbers are equal at the end."""

    done: int
    total: int


def strict_settings(conf: Mapping[str, Any], isolation: Isolation = "read_committed") -> dict[str, Any]:
    """Return the settings of a reader that skips nothing: an offset that is gone is an error."""
    return {**conf, "isolation.level": isolation, "auto.offset.reset": "error"}


def assign_anew(consumer: Consumer, partitions: list[TopicPartition]) -> None:
    """Assign partitions that may be assigned already.

    Without the other call, librdkafka before 2.16 ends the process if the consumer is closed soon afterwards
    (``rd_kafka_assignment_partition_stopped: Assertion `rktp->rktp_started' failed``).
    """
    consumer.unassign()
    consumer.assign(partitions)


class TopicReader(Closing):
    """Read a topic by assignment, with a consumer of its own; for one caller at a time.

    Args:
        conf: the settings of a client of confluent-kafka.
        topic: the topic.
        group_id: a group's name, because librdkafka requires one; the reader does not join the group.
        partition: this partition only, or None for all.
        timeout_s: how long the cluster may take to answer, here and in each method; with :meth:`to_end`, how
            long reading all records may take, from :meth:`start` on.

    Raises:
        ConfigError: there is no such topic, or no such partition.
        confluent_kafka.KafkaException: the settings are wrong, or the cluster does not answer.
    """

    def __init__(
        self,
        conf: Mapping[str, Any],
        topic: str,
        *,
        group_id: str,
        partition: int | None = None,
        timeout_s: float = 30.0,
    ) -> None:
        # Not confluent_kafka.Consumer, which may have been replaced by a consumer with a chain.
        from confluent_kafka.cimpl import Consumer  # noqa: PLC0415 - slow to import

        from headerware.kafka.first_answer import Troubles  # noqa: PLC0415 - as above

        self._topic = topic
        self._group_id = group_id
        self._timeout_s = timeout_s
        self._deadline = time.monotonic() + timeout_s
        troubles = Troubles()
        with explaining_properties(conf):
            self._consumer: Final = Consumer(
                {
                    "log_level": 0,  # errors are raised
                    "auto.offset.reset": "earliest",
                    "error_cb": troubles,
                    "queued.max.messages.kbytes": _FETCHED_AHEAD_KIB,
                    "fetch.wait.max.ms": _END_IS_TOLD_MS,
                    **conf,
                    "group.id": group_id,
                    "enable.auto.commit": False,
                    "enable.partition.eof": True,
                }
            )
        try:
            metadata = troubles.first_metadata(self._consumer, bootstrap_servers(conf), topic, self._deadline)
            self.cluster_id: Final[str | None] = metadata.cluster_id
            """The cluster's id."""
            self.partitions: Final = _partitions(metadata.topics[topic], partition)
            """The partitions that are read."""
        except BaseException:
            self._consumer.close()
            raise
        self._begin: dict[int, int] = {}
        self._ends: dict[int, int] = {}
        self._positions: dict[int, int] = {}
        self._open: set[int] = set()
        self._unread: list[Message] = []
        """The messages after an error, which were fetched but not returned."""

    def start(
        self,
        start: Start = BEGINNING,
        *,
        limit: int | None = None,
        offsets: Mapping[int, int] | None = None,
        up_to: Mapping[int, int] | None = None,
    ) -> None:
        """Begin to read; with ``limit``, at most so many offsets of each partition.

        ``offsets`` has the offsets at which some partitions begin; the others begin at ``start``. If
        ``up_to`` is given, each partition that it names ends there at the latest, and the others are not
        read. A second call begins anew, and so does its timeout.
        """
        from confluent_kafka import TopicPartition  # noqa: PLC0415 - as above

        self._deadline = time.monotonic() + self._timeout_s
        for number in self.partitions:
            asked_for = TopicPartition(self._topic, number)
            low, high = self._consumer.get_watermark_offsets(asked_for, timeout=_left_s(self._deadline))
            first = high - start.number if start.kind == "last" else start.number
            first = (offsets or {}).get(number, first)
            self._begin[number], self._ends[number] = min(high, max(low, first)), high
        if start.kind == "time":
            asked = [TopicPartition(self._topic, number, start.number) for number in self.partitions]
            for answer in self._consumer.offsets_for_times(asked, timeout=_left_s(self._deadline)):
                # A negative offset means that no record is so new.
                end = self._ends[answer.partition]
                self._begin[answer.partition] = answer.offset if 0 <= answer.offset < end else end
        if limit is not None:
            self._ends = {number: min(end, self._begin[number] + limit) for number, end in self._ends.items()}
        if up_to is not None:
            self._ends = {
                number: max(self._begin[number], min(end, up_to.get(number, 0)))
                for number, end in self._ends.items()
            }
        self._positions, self._unread = dict(self._begin), []
        self._open = {number for number, end in self._ends.items() if self._begin[number] < end}
        assign_anew(
            self._consumer,
            [TopicPartition(self._topic, number, offset) for number, offset in self._begin.items()],
        )

    def read(self, *, max_records: int = 100, timeout_s: float = 0.2, at_once: bool = False) -> list[Message]:
        """Return the next records, perhaps none, and also records after the end; wait up to a time.

        With ``at_once``, wait for one record only, and return the records that came with it.

        Raises:
            confluent_kafka.KafkaException: a partition cannot be read. Records before the error are returned
                first, and records after it by later calls: the client returns each record once.
        """
        from confluent_kafka import KafkaException  # noqa: PLC0415 - as above

        found, self._unread = self._unread or self._fetched(max_records, timeout_s, at_once=at_once), []
        records: list[Message] = []
        for at, message in enumerate(found):
            error = message.error()
            if error is None:
                records.append(message)
            elif kind_of(error) is Kind.END_OF_PARTITION:
                self._came_to(message.partition(), message.offset())
            elif error.retriable() or kind_of(error) is Kind.ALL_UNREACHABLE:
                continue
            elif records:
                self._unread = found[at:]
                break
            else:
                self._unread = found[at + 1 :]
                raise KafkaException(error)
        # The last record of a partition counts.
        for number, offset in {message.partition(): message.offset() for message in records}.items():
            self._came_to(number, None if offset is None else offset + 1)
        return records

    def _fetched(self, max_records: int, timeout_s: float, *, at_once: bool) -> list[Message]:
        if not at_once:
            return self._consumer.consume(max_records, timeout=timeout_s)
        first = self._consumer.poll(timeout_s)
        return [] if first is None else [first, *self._consumer.consume(max_records - 1, timeout=0)]

    def _came_to(self, partition: int | None, offset: int | None) -> None:
        """Note that all of a partition was read below an offset."""
        assert partition is not None and offset is not None  # noqa: PT018, S101 - what was read has both
        self._positions[partition] = max(self._positions[partition], offset)
        if offset >= self._ends[partition]:
            self._open.discard(partition)

    def finish(self, partition: int) -> None:
        """Read no more of a partition, as if its end had come; for callers of :meth:`to_end`."""
        self._open.discard(partition)

    def committed(self) -> dict[int, tuple[int, str]]:
        """Return the offsets that the group has committed, with their metadata, by partition.

        This waits for transactions that are being ended.

        Raises:
            confluent_kafka.KafkaException: the group's coordinator does not answer.
        """
        from confluent_kafka import KafkaException, TopicPartition  # noqa: PLC0415 - as above

        asked = [TopicPartition(self._topic, number) for number in self.partitions]
        deadline = time.monotonic() + self._timeout_s
        while True:
            try:
                found = self._consumer.committed(asked, timeout=_left_s(deadline))
                break
            except KafkaException as error:
                kind = kind_of(error)
                if kind is Kind.TIMED_OUT:
                    # librdkafka looks for the coordinator until time is up, even if that is forbidden.
                    text = (
                        f"the committed offsets of group {self._group_id} are not known after "
                        f"{self._timeout_s:g} s: its coordinator does not answer, or a right on the group is "
                        f"missing"
                    )
                    raise with_text(error.args[0], text) from error
                # A coordinator that has moved, or is new, is looked up again.
                if kind is not Kind.COORDINATOR_MOVED or time.monotonic() > deadline:
                    raise
                time.sleep(_WAIT_S)
        for each in found:
            if each.error is not None:  # an unknown offset is not the same as none
                raise KafkaException(each.error)
        return {each.partition: (each.offset, each.metadata or "") for each in found if each.offset >= 0}

    def group_metadata(self) -> Any:
        """Return the group's metadata, for transactions that commit the offsets of what was read."""
        return self._consumer.consumer_group_metadata()

    def to_end(self, *, max_records: int = 500, each_batch: bool = False) -> Iterator[list[Message]]:
        """Yield the records from the start to the end, in batches.

        With ``each_batch``, ``timeout_s`` is for each batch rather than for all, so the caller may take long.

        Raises:
            HeaderwareError: reading takes longer than ``timeout_s``.
            confluent_kafka.KafkaException: a partition cannot be read.
        """
        from confluent_kafka import TopicPartition  # noqa: PLC0415 - as above

        reading = set(self.partitions)
        while self._open:
            if finished := reading - self._open:
                # Records after the end are not wanted; without this, librdkafka would go on fetching them.
                self._consumer.pause([TopicPartition(self._topic, number) for number in finished])
                reading -= finished
            left_s = self._deadline - time.monotonic()
            if left_s <= 0:
                raise HeaderwareError(
                    f"{self._topic}: {counted(len(self._open), 'partition')} could not be read to the end "
                    f"within {self._timeout_s:g} s; allow more time (timeout)"
                )
            batch = self.read(max_records=max_records, timeout_s=min(_WAIT_S, left_s))
            if len(self._open) < len(self.partitions):  # open partitions have no records after their end
                batch = [each for each in batch if (each.offset() or 0) < self._ends[each.partition() or 0]]
            if batch:
                yield batch
                if each_batch:
                    self._deadline = time.monotonic() + self._timeout_s

    def count_partitions(self, topic: str) -> int:
        """Return how many partitions another topic of the cluster has; 0 if there is no such topic."""
        deadline = time.monotonic() + self._timeout_s
        found = self._consumer.list_topics(topic, timeout=_left_s(deadline)).topics[topic]
        return 0 if found.error is not None else len(found.partitions)

    @property
    def bounds(self) -> dict[int, tuple[int, int]]:
        """The offset at which reading began in each partition, and the offset at which it ended then."""
        return {number: (begin, self._ends[number]) for number, begin in self._begin.items()}

    @property
    def positions(self) -> Mapping[int, int]:
        """The offset of each partition at which reading goes on."""
        return self._positions

    @property
    def has_reached_the_end(self) -> bool:
        """Whether all records have been read that were there at the start."""
        return not self._open

    @property
    def progress(self) -> Progress:
        """The progress towards the end."""
        done = sum(
            (min(self._positions[number], end) if number in self._open else end) - self._begin[number]
            for number, end in self._ends.items()
        )
        return Progress(done, sum(end - self._begin[number] for number, end in self._ends.items()))

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()


def _left_s(deadline: float) -> float:
    return min(max(0.1, deadline - time.monotonic()), _LONGEST_ANSWER_S)


def _partitions(found: Any, partition: int | None) -> list[int]:
    if found.error is not None:
        is_missing = kind_of(found.error) is Kind.UNKNOWN_TOPIC
        raise ConfigError(f"{found.topic}: {_MISSING if is_missing else found.error.str()}")
    if partition is None:
        return sorted(found.partitions)
    if partition not in found.partitions:
        partitions = counted(len(found.partitions), "partition")
        raise ConfigError(f"{found.topic} has {partitions}, none of number {partition}")
    return [partition]
