"""The Kafka side of a table: only this module reads, writes and creates its topic.

Deadlines are times of the monotonic clock, in seconds. If the brokers do not answer in time, UnreachableError
is raised; if they refuse a request, another RegistryError is raised.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Lock
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headerware.core.errors import ConfigError, RegistryError
from headerware.kafka.admin import Admin
from headerware.kafka.errors import NO_ANSWER, Kind, kind_of
from headerware.kafka.reader import TopicReader
from headerware.topic_table.rows import TableRecord

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Message, Producer

_log = logging.getLogger("headerware.topic_table")

_FOLLOWING: Final = {
    "group.id": "headerware-table",  # librdkafka requires one; no consumer joins it, and nothing is committed
    "fetch.wait.max.ms": 500,  # many processes follow a table for long, and rows seldom come
}
_READING: Final = {
    "isolation.level": "read_committed",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "error",
    "allow.auto.create.topics": False,
}
_QUIET: Final = {"log_level": 0}
"""The table reports unreachable brokers once; librdkafka would log a line at each attempt."""
_WRITING: Final = {"enable.idempotence": True, "acks": "all", "linger.ms": 0}
_OF_PRODUCERS: Final = (
    "acks",
    "batch.",
    "compression.",
    "delivery.",
    "enable.gapless.guarantee",
    "enable.idempotence",
    "linger.",
    "max.in.flight",
    "message.send.max.retries",
    "message.timeout.ms",
    "partitioner",
    "queue.buffering.",
    "request.required.acks",
    "request.timeout.ms",
    "retries",
    "sticky.partitioning.",
    "transaction.",
    "transactional.",
)
_OF_CONSUMERS: Final = (
    "allow.auto.create.topics",
    "auto.",
    "check.crcs",
    "coordinator.",
    "enable.auto.",
    "enable.partition.eof",
    "fetch.",
    "group.",
    "heartbeat.",
    "isolation.level",
    "max.partition.fetch.bytes",
    "max.poll.",
    "partition.assignment.",
    "queued.",
    "session.timeout.ms",
)
_BATCH: Final = 1_000
_PAUSE_S: Final = 0.05
_POLICY_S: Final = 2.0
_POLL_S: Final = 0.02
"""It is short because another thread's poll may have served the report that this thread waits for."""
_PURGE_S: Final = 1.0


class UnreachableError(RegistryError):
    """The brokers did not answer in time."""


class Batch(NamedTuple):
    records: list[TableRecord]
    position: int
    """The offset at which reading goes on."""
    lost: bool
    """Whether that offset is no longer in the topic, which must then be read again."""


class TableReader:
    """Read the topic of a table, which has one partition, from its beginning, and follow it.

    Several threads may call `end` while another polls; all else is for one thread at a time. `end` has a
    client of its own. confluent-kafka admits one thread at a time to a client, in no fair order, and brokers
    answer a connection in order: with one client, `end` would wait for a fetch that waits for records.
    """

    def __init__(
        self,
        conf: Mapping[str, Any],
        topic: str,
        *,
        create: bool,
        replication_factor: int,
        topic_settings: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._conf = conf
        self._topic_settings = topic_settings
        self._topic = topic
        self._create = create
        self._replication_factor = replication_factor
        self._settings = {**_FOLLOWING, **_QUIET, **_without(conf, _OF_PRODUCERS), **_READING}
        self._reader: TopicReader | None = None
        self._asker = _make_consumer(self._settings)
        self._asking = Lock()
        self._checked = False

    def begin(self, deadline: float, resume_at: int = -1) -> int | None:
        """Check the topic, go to its beginning, and return the offset at which it ends now.

        With ``resume_at``, go to this offset; return None if the topic no longer has it.
        """
        self._close_reader()
        with self._errors():
            admin = Admin(self._conf, timeout_s=seconds_left(deadline))
            count = self._partitions(admin, deadline)
        if count is None:
            self._make_topic(deadline)
        elif count != 1:
            raise RegistryError(
                f"topic {self._topic!r} has {count} partitions, expected one: only records of one partition "
                "have one order; create a topic with one partition"
            )
        with self._errors():
            self._reader = TopicReader(
                self._settings,
                self._topic,
                group_id=str(self._settings["group.id"]),
                timeout_s=seconds_left(deadline),
            )
            self._reader.start(offsets=None if resume_at < 0 else {0: resume_at})
            start, end = self._reader.bounds[0]
            return end if resume_at < 0 or start == resume_at else None

    def end(self, deadline: float) -> int:
        """Return the offset at which the topic ends now, without open transactions."""
        from confluent_kafka import TopicPartition  # noqa: PLC0415 - heavy

        if not self._asking.acquire(timeout=seconds_left(deadline)):
            raise UnreachableError(
                f"topic {self._topic!r}: another thread still waits for the brokers' answer"
            )
        try:
            with self._errors():
                found = self._asker.get_watermark_offsets(
                    TopicPartition(self._topic, 0), timeout=seconds_left(deadline), cached=False
                )
        finally:
            self._asking.release()
        if found is None:
            raise UnreachableError(f"the brokers did not say in time where topic {self._topic!r} ends")
        return int(found[1])

    def poll(self, timeout_s: float) -> Batch:
        """Wait for the next records and return them; the next call raises an error that comes after them."""
        assert self._reader is not None  # noqa: S101 - it has begun
        lost = False
        records: list[Message] = []
        try:
            with self._errors():
                records = self._reader.read(max_records=_BATCH, timeout_s=timeout_s, at_once=True)
        except UnreachableError as error:
            _log.debug("%s", error)
            lost = kind_of(error.__cause__) is Kind.OFFSET_GONE
        return Batch([_record(each) for each in records], self._reader.positions[0], lost)

    def close(self) -> None:
        with self._asking:
            self._asker.close()
        self._close_reader()

    def _close_reader(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        from confluent_kafka import KafkaException  # noqa: PLC0415 - heavy

        try:
            yield
        except KafkaException as error:
            raise self._failure(error.args[0]) from error
        except ConfigError as error:  # it was deleted just now
            raise RegistryError(str(error)) from error
        except RuntimeError as error:
            raise RegistryError(f"topic {self._topic!r}: the client is closed") from error

    def _partitions(self, admin: Admin, deadline: float) -> int | None:
        """Return the number of partitions of the topic, or None if there is no such topic."""
        metadata = admin.metadata(self._topic)
        found = metadata.topics[self._topic]
        if found.error is None:
            self._check_policy(deadline)
            return len(found.partitions)
        if kind_of(found.error) is Kind.UNKNOWN_TOPIC:
            return None
        raise self._failure(found.error)

    def _check_policy(self, deadline: float) -> None:
        if not self._checked:
            self._checked = True
            # This leaves time for the next request if the brokers do not answer this one.
            _warn_of_deletion(self._conf, self._topic, timeout_s=min(_POLICY_S, seconds_left(deadline) / 2))

    def _make_topic(self, deadline: float) -> None:
        if not self._create:
            raise RegistryError(
                f"there is no topic {self._topic!r}; create it with one partition and "
                "cleanup.policy=compact, or let it be created (the option create; --create of commands)"
            )
        self._checked = True  # a topic that is created here is compacted
        admin = Admin(self._conf, timeout_s=seconds_left(deadline))
        _create_topic(admin, self._topic, self._replication_factor, self._topic_settings)
        with self._errors():
            while not self._partitions(admin, deadline):
                if not seconds_left(deadline):
                    raise UnreachableError(f"topic {self._topic!r} was created, but cannot be seen yet")
                time.sleep(min(_PAUSE_S, seconds_left(deadline)))

    def _failure(self, error: KafkaError) -> RegistryError:
        return _failure_of(f"topic {self._topic!r} cannot be read", error)


def _record(message: Message) -> TableRecord:
    offset: Any = message.offset()
    key: Any = message.key()
    value: Any = message.value()
    return TableRecord(offset, key, value)


class TopicWriter:
    """Write to partition 0 of a topic; safe for use by several threads."""

    def __init__(self, conf: Mapping[str, Any], topic: str) -> None:
        self._conf = conf
        self._topic = topic
        self._lock = Lock()
        self._producer: Producer | None = None

    def put(self, rows: Sequence[tuple[bytes, bytes | None]], deadline: float) -> int:
        """Write records once, in their order, and return the offset of the last one.

        After an error some of them may have been written; after UnreachableError perhaps all.
        """
        from confluent_kafka import KafkaException  # noqa: PLC0415 - heavy

        reports: list[tuple[KafkaError | None, Message]] = []
        producer = self._live_producer()
        try:
            for key, value in rows:
                producer.produce(
                    self._topic, value, key, partition=0, on_delivery=lambda *report: reports.append(report)
                )
        except KafkaException as error:
            raise self._failure(error.args[0]) from error
        while len(reports) < len(rows) and seconds_left(deadline):
            producer.poll(min(_POLL_S, seconds_left(deadline)))
        if len(reports) < len(rows):
            self._give_up(producer)
        # Giving up brings reports as well: of a purge, or of a delivery at the last moment.
        offsets = [self._offset(*report) for report in reports]
        return max(offsets) if len(offsets) == len(rows) else self._unknown()

    def close(self) -> None:
        with self._lock:
            producer, self._producer = self._producer, None
        if producer is not None:
            producer.flush(_PURGE_S)

    def _live_producer(self) -> Producer:
        with self._lock:
            if self._producer is None:
                self._producer = _make_producer(self._conf)
            return self._producer

    def _give_up(self, producer: Producer) -> None:
        """Purge unsent records, which would be written minutes later; the next write has a new producer."""
        with self._lock:
            if self._producer is producer:
                self._producer = None
        producer.purge()
        producer.flush(_PURGE_S)

    def _offset(self, error: KafkaError | None, message: Message) -> int:
        if error is None:
            offset: Any = message.offset()
            return int(offset)
        if error.fatal():
            with self._lock:
                self._producer = None
        # A record that is purged from the queue may have been sent before, and wait for a retry.
        if kind_of(error) is Kind.UNCONFIRMED:
            self._unknown()
        raise self._failure(error)

    def _unknown(self) -> int:
        raise UnreachableError(
            f"topic {self._topic!r}: the brokers did not confirm in time; the record may have been written, "
            "or not: refresh the table to see"
        )

    def _failure(self, error: KafkaError) -> RegistryError:
        return _failure_of(f"topic {self._topic!r} cannot be written", error)


def seconds_left(deadline: float) -> float:
    """Return the seconds until a deadline of the monotonic clock, or 0."""
    return max(deadline - time.monotonic(), 0.0)


_FINAL: Final = frozenset({Kind.FORBIDDEN, Kind.REFUSED, Kind.UNFIT})


def _failure_of(what: str, error: KafkaError) -> RegistryError:
    """Return our error for an error of librdkafka: a final refusal, or unreachable brokers."""
    kind = RegistryError if kind_of(error) in _FINAL else UnreachableError
    return kind(f"{what}: {error.str()}")


def _make_consumer(settings: Mapping[str, Any]) -> Consumer:
    from confluent_kafka import KafkaException  # noqa: PLC0415 - heavy
    from confluent_kafka.cimpl import Consumer  # noqa: PLC0415 - heavy; and never one with a chain

    try:
        return Consumer(dict(settings))
    except (KafkaException, TypeError, ValueError) as error:
        raise RegistryError(f"the Kafka client refuses its configuration: {error}") from error


def _make_producer(conf: Mapping[str, Any]) -> Producer:
    """Make an idempotent producer; a consumer has accepted the same configuration before."""
    from confluent_kafka.cimpl import Producer  # noqa: PLC0415 - heavy; and never one with a chain

    return Producer({**_QUIET, **_without(conf, _OF_CONSUMERS + _OF_PRODUCERS), **_WRITING})


def _create_topic(
    admin: Admin, topic: str, replication_factor: int, topic_settings: Mapping[str, str]
) -> None:
    """Create a compacted topic of one partition; do nothing if another process was faster."""
    from confluent_kafka import KafkaException  # noqa: PLC0415 - heavy

    try:
        admin.create_topic(
            topic,
            partitions=1,
            replication_factor=replication_factor,
            settings={"cleanup.policy": "compact", **topic_settings},
        )
    except KafkaException as error:
        if kind_of(error) is Kind.TOPIC_EXISTS:
            return
        kind = UnreachableError if kind_of(error) in NO_ANSWER else RegistryError
        raise kind(f"cannot create the topic: {error.args[0].str()}") from error


def _warn_of_deletion(conf: Mapping[str, Any], topic: str, *, timeout_s: float) -> None:
    """Warn if the brokers delete the topic's records by age."""
    from confluent_kafka import KafkaException  # noqa: PLC0415 - heavy

    try:
        told = Admin(conf, timeout_s=timeout_s).topic_settings(topic)
    except KafkaException as error:  # a client that may read need not be allowed to describe
        _log.debug("its cleanup.policy is not known: topic %s", error.args[0].str())
        return
    policy, retention = told["cleanup.policy"], told["retention.ms"]
    if "delete" in policy and retention != "-1":
        text = "topic %s: records are deleted by their age (cleanup.policy=%s, retention.ms=%s); compact it"
        _log.warning(text, topic, policy, retention)


def _without(conf: Mapping[str, Any], prefixes: tuple[str, ...]) -> dict[str, Any]:
    """Leave out properties by prefix: librdkafka warns of properties that a client does not use."""
    return {name: value for name, value in conf.items() if not name.startswith(prefixes)}
