"""What the integration tests share: a cluster to read and write, keys, and chains."""

from __future__ import annotations

import contextlib
import re
import time
import uuid
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import confluent_kafka
import pytest
from confluent_kafka import IsolationLevel
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]  # theirs

from headerware import Chain, Consumer, HeaderwareError, Producer
from headerware.core.context import Context
from headerware.core.record import Record
from headerware.interceptors import Slice
from headerware.kafka.reader import TopicReader
from headerware.keyring import with_new_key
from headerware.keyring.writing import edit_keyring
from headerware.testing import JavaTools, KafkaBroker
from tests.committing import commit_stored
from tests.integration.gate import GatedBroker
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from confluent_kafka import KafkaError, Message

    from headerware import RecordMetadata

DEADLINE_S = 60.0
SEPARATOR = "<|>"
NULL = "<null>"
UNREACHED = (
    confluent_kafka.KafkaError._TRANSPORT,
    confluent_kafka.KafkaError._ALL_BROKERS_DOWN,
    confluent_kafka.KafkaError._TIMED_OUT,
    confluent_kafka.KafkaError.LEADER_NOT_AVAILABLE,
    confluent_kafka.KafkaError.NOT_LEADER_FOR_PARTITION,
    confluent_kafka.KafkaError.UNKNOWN_TOPIC_OR_PART,
)
Answer = TypeVar("Answer")
FROM_THE_BEGINNING = {"auto.offset.reset": "earliest", "enable.partition.eof": True}


class Cluster:
    """One real broker, as the tests use it; all clients made here are closed when the test is over."""

    def __init__(self, broker: KafkaBroker, gated: GatedBroker | None = None) -> None:
        self.broker = broker
        self._gated = gated
        self._made: list[Any] = []
        self.is_stopped = False

    @property
    def servers(self) -> str:
        return self.broker.bootstrap_servers if self._gated is None else self._gated.servers

    def stop(self) -> None:
        """Stop the broker, behind its gate."""
        assert self._gated is not None
        self._gated.stop()
        self.is_stopped = True

    def start(self) -> None:
        """Start the broker again, and let clients in once it is ready."""
        assert self._gated is not None
        self._gated.start()
        self.is_stopped = False

    def topic(self, prefix: str, *, partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
        """Create a topic that no other test has."""
        name = f"{prefix}-{uuid.uuid4().hex[:12]}"
        self.broker.create_topic(name, partitions=partitions, config=config)
        return name

    def producer(self, *interceptors: object, chain: Chain | None = None, **conf: Any) -> Producer:
        producer = Producer(self._conf(conf), chain=chain or Chain(interceptors))
        self._made.append(producer)
        return producer

    def consumer(
        self,
        topic: str,
        *interceptors: object,
        chain: Chain | None = None,
        partition: int | None = None,
        settings: Mapping[str, Any] | None = None,
        **conf: Any,
    ) -> Consumer:
        """Make a consumer that reads a topic from its beginning, in a group named after it.

        It is subscribed to the topic; or it has one partition assigned, and is no member of the group.
        """
        own = {**FROM_THE_BEGINNING, "group.id": topic, **(settings or {})}
        consumer = Consumer({**own, **self._conf(conf)}, chain=chain or Chain(interceptors))
        if partition is None:
            consumer.subscribe([topic])
        else:
            consumer.assign([confluent_kafka.TopicPartition(topic, partition, 0)])
        self._made.append(consumer)
        return consumer

    def plain_producer(self, **conf: Any) -> confluent_kafka.Producer:
        producer = confluent_kafka.Producer(self._conf(conf))
        self._made.append(producer)
        return producer

    def plain_consumer(self) -> confluent_kafka.Consumer:
        consumer = confluent_kafka.Consumer({"group.id": uuid.uuid4().hex, **self._conf({})})
        self._made.append(consumer)
        return consumer

    def on_the_wire(self, topic: str) -> list[Message]:
        """Read all that a topic holds, as a client that has never heard of Headerware does."""
        # Only an empty answer tells that a transaction's marker was the end, and brokers hold it back.
        soon = {"fetch.wait.max.ms": 10}
        conf = {**FROM_THE_BEGINNING, "group.id": uuid.uuid4().hex, **soon, **self._conf({})}
        consumer = confluent_kafka.Consumer(conf)
        try:
            partitions = consumer.list_topics(topic, timeout=DEADLINE_S).topics[topic].partitions
            consumer.assign([confluent_kafka.TopicPartition(topic, number, 0) for number in partitions])
            return self.rest_of(consumer, topic)
        finally:
            consumer.close()

    def in_java(self, topic: str, count: int) -> list[JavaRecord]:
        """Read so many records, as Java's console consumer does."""
        # It prints what is no text as \xNN.
        deserializer = "org.apache.kafka.common.serialization.BytesDeserializer"
        properties = {f"{part}.deserializer": deserializer for part in ("key", "value", "headers")}
        properties |= {"print.headers": "true", "print.key": "true", "headers.separator": SEPARATOR}
        properties |= {"null.literal": NULL}
        lines = JavaTools().console_consumer(self.servers, topic, max_messages=count, properties=properties)
        return [JavaRecord.of(line) for line in lines]

    def rest_of(
        self, consumer: Any, topic: str, refused: list[HeaderwareError] | None = None
    ) -> list[Message]:
        """Read what is left, to where every partition ends now; what is refused goes to a list, or fails."""
        deadline = time.monotonic() + DEADLINE_S
        ends = once_reached(lambda: ends_of(consumer, topic), deadline)
        found: list[Message] = []
        while ends:
            assert time.monotonic() < deadline, f"{topic}: {len(found)} messages, not read to {ends}"
            try:
                message = consumer.poll(0.2)
            except HeaderwareError as error:
                if refused is None:
                    raise
                refused.append(error)
                continue
            if message is None:
                continue
            if is_record(message):
                found.append(message)
            # A record may be followed by new ones, and the news of an end may be that of an earlier one.
            passed = message.offset() + (message.error() is None)
            if passed >= ends.get(message.partition(), 0):
                ends.pop(message.partition(), None)
        return found

    def take(self, consumer: Any, count: int) -> list[Message]:
        """Read so many messages, or fail."""
        found: list[Message] = []
        deadline = time.monotonic() + DEADLINE_S
        while len(found) < count:
            assert time.monotonic() < deadline, f"only {len(found)} of {count} messages came"
            message = consumer.poll(0.2)
            if message is not None and is_record(message):
                found.append(message)
        return found

    @staticmethod
    def commit(consumer: Any) -> None:
        """Commit what was given; an automatic commit may have left nothing to commit."""
        commit_stored(consumer)

    def committed(self, group: str, topic: str, partition: int = 0) -> tuple[int, str | None]:
        """Ask the broker, as any tool does, for a group's committed offset and its metadata."""
        consumer = confluent_kafka.Consumer({"bootstrap.servers": self.servers, "group.id": group})
        try:
            wanted = [confluent_kafka.TopicPartition(topic, partition)]
            found = consumer.committed(wanted, timeout=DEADLINE_S)[0]
        finally:
            consumer.close()
        return found.offset, found.metadata

    def ends(self, topic: str, level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED) -> list[int]:
        """Return where the partitions of a topic end; one that was just made is waited for."""
        admin = AdminClient(self._conf({}))

        def ask() -> list[int]:
            partitions = admin.list_topics(topic, timeout=DEADLINE_S).topics[topic].partitions
            latest = {
                confluent_kafka.TopicPartition(topic, number): OffsetSpec.latest()  # type: ignore[no-untyped-call]  # theirs
                for number in partitions
            }
            asked = admin.list_offsets(latest, isolation_level=level)
            return [future.result().offset for future in asked.values()]

        return once_reached(ask, time.monotonic() + DEADLINE_S)

    def takes(self, topic: str, size_bytes: int) -> bool:
        """Return whether a topic takes a record of a size; a new configuration comes into force later."""
        errors: list[KafkaError | None] = []
        producer = self.plain_producer()
        producer.produce(topic, bytes(size_bytes), b"k", 0, on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(DEADLINE_S) == 0
        return errors == [None]

    def count_committed(self, topic: str) -> int:
        """Return how many records a topic shows now; what a transaction hides that is open does not count."""
        settings = self._conf({"isolation_level": "read_committed", "fetch_wait_max_ms": 10})
        with TopicReader(settings, topic, group_id=uuid.uuid4().hex) as reader:
            reader.start()
            return sum(len(batch) for batch in reader.to_end())

    def wait_until_stable(self, topic: str) -> None:
        """Wait for the markers of transactions, which brokers write when a commit has returned."""
        until(lambda: self.ends(topic, IsolationLevel.READ_COMMITTED) == self.ends(topic))

    def close(self) -> None:
        for client in reversed(self._made):
            with contextlib.suppress(RuntimeError):  # closed by the test
                if isinstance(client, confluent_kafka.Producer):
                    client.purge()
                client.close()

    def _conf(self, conf: Mapping[str, Any]) -> dict[str, Any]:
        settings = {key.replace("_", "."): value for key, value in conf.items()}
        return {"bootstrap.servers": self.servers, "log_level": 0, **settings}


class JavaRecord(NamedTuple):
    """What Java's console consumer prints of a record."""

    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]

    @classmethod
    def of(cls, line: str) -> JavaRecord:
        headers, key, value = line.split("\t")
        pairs = [] if headers == "NO_HEADERS" else headers.split(SEPARATOR)
        named = [pair.split(":", 1) for pair in pairs]
        return cls(_printed(key), _printed(value), [(name, _printed(text)) for name, text in named])


def _printed(text: str) -> bytes | None:
    """Read bytes as Java prints them."""
    if text == NULL:
        return None
    return re.sub(rb"\\x([0-9A-F]{2})", lambda found: bytes.fromhex(found[1].decode()), text.encode())


class Acknowledgements:
    """An interceptor that remembers what it hears of each value."""

    def __init__(self) -> None:
        self.errors: dict[bytes, list[BaseException | None]] = {}

    def on_acknowledgement(
        self, record: Record, metadata: RecordMetadata | None, error: BaseException | None
    ) -> None:
        self.errors.setdefault(record.value, []).append(error)


class Reports:
    """A delivery callback that remembers what it hears of each value."""

    def __init__(self) -> None:
        self.errors: dict[bytes, list[KafkaError | None]] = {}

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        self.errors.setdefault(message.value() or b"", []).append(error)


def ends_of(consumer: Any, topic: str) -> dict[int, int]:
    """Return the end of each partition that has any records."""
    numbers = consumer.list_topics(topic, timeout=DEADLINE_S).topics[topic].partitions
    places = [confluent_kafka.TopicPartition(topic, number) for number in numbers]
    ends = {p.partition: consumer.get_watermark_offsets(p, timeout=DEADLINE_S)[1] for p in places}
    return {partition: end for partition, end in ends.items() if end}


def once_reached(ask: Callable[[], Answer], deadline: float) -> Answer:
    """Ask a broker until it is reached: a closed connection, or no leader yet, fails a request at once."""
    while True:
        try:
            return ask()
        except confluent_kafka.KafkaException as error:
            if error.args[0].code() not in UNREACHED or time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def is_record(message: Message) -> bool:
    """Whether a message is a record, and not the news that a partition has ended; errors fail the test."""
    error = message.error()
    if error is None:
        return True
    assert error.code() == confluent_kafka.KafkaError._PARTITION_EOF, error
    return False


@pytest.fixture(scope="module")
def shared_cluster(kafka_broker: KafkaBroker) -> Iterator[Cluster]:
    """Return the shared broker to what a module makes once."""
    cluster = Cluster(kafka_broker)
    yield cluster
    cluster.close()


@pytest.fixture
def cluster(kafka_broker: KafkaBroker) -> Iterator[Cluster]:
    """Return the shared broker."""
    cluster = Cluster(kafka_broker)
    yield cluster
    cluster.close()


@pytest.fixture
def acknowledgements() -> Acknowledgements:
    return Acknowledgements()


@pytest.fixture
def reports() -> Reports:
    return Reports()


@pytest.fixture(scope="session")
def second_broker() -> Iterator[GatedBroker]:
    """Return a broker that makes no topics of its own accord and compacts at once; tests may restart it."""
    with GatedBroker({"auto.create.topics.enable": False, "log.cleaner.backoff.ms": 100}) as gated:
        yield gated


@pytest.fixture
def second_cluster(second_broker: GatedBroker) -> Iterator[Cluster]:
    cluster = Cluster(second_broker.broker, second_broker)
    yield cluster
    cluster.close()
    if cluster.is_stopped:  # by a test that failed; the next one needs it
        cluster.start()


@pytest.fixture
def keyring(tmp_path: Path) -> str:
    """Make a keyring with the key ``test``, and give its path."""
    path = tmp_path / "keys.json"
    edit_keyring(path, lambda keys: with_new_key(keys, "test", "hmac-sha256"), create=True)
    return str(path)


@pytest.fixture
def chain_file(tmp_path: Path, keyring: str) -> Path:
    """Write a TOML file with the whole chain, and give its path; each process sets SERVICE."""
    path = tmp_path / "headerware.toml"
    path.write_text(
        f"""
        [[interceptors]]
        type = "trace"

        [[interceptors]]
        type = "trail"
        service = "${{env:SERVICE:-test}}"

        [[interceptors]]
        type = "compress"

        [[interceptors]]
        type = "slice"
        max_bytes = 100_000

        [[interceptors]]
        type = "sign"
        keyring = "{keyring}"
        key_id = "test"
        require = "enforce"
        """
    )
    return path


@pytest.fixture
def cut() -> Callable[[str, bytes], list[Record]]:
    """Return a function that cuts a message into the records that a producer would put on the wire."""

    def pieces(topic: str, value: bytes, partition: int = 0) -> list[Record]:
        with Chain([Slice(max_bytes=1_500)]).open(Context(pick_partition=lambda _: partition)) as session:
            return session.send([Record(topic, value, b"key", partition=partition)])

    return pieces
