"""One chain in services and in Spark: each reads the records of the other, on the real broker."""

from __future__ import annotations

import random
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import confluent_kafka
import pytest
from confluent_kafka import OFFSET_BEGINNING, KafkaError, TopicPartition
from pyspark.sql import functions as F  # noqa: N812 - as everyone who uses Spark writes it

from headerware import Chain, Consumer, Headers, Producer, load_chain
from headerware.interceptors import Compress, Sign, Trail, read_trail
from headerware.interceptors.slice.header import SliceHeader
from headerware.kafka.errors import Kind, kind_of
from headerware.keyring import with_new_key
from headerware.keyring.writing import edit_keyring
from headerware.spark_bridge import decode, encode, kafka_source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from confluent_kafka import Message
    from pyspark.sql import DataFrame, Row, SparkSession

    from headerware.testing import KafkaBroker

    Pairs = Sequence[tuple[str, bytes | None]]

pytestmark = pytest.mark.broker

DEADLINE_S = 60.0
QUERY_ENDS_S = 240
PARTITIONS = 3
SLICE_BYTES = 4_000
JOB = "headerware-tests"
FULL = """
[[interceptors]]
type = "trail"
service = "${{env:SERVICE:-everywhere}}"

[[interceptors]]
type = "trace"

[[interceptors]]
type = "dedup"

[[interceptors]]
type = "compress"

[[interceptors]]
type = "slice"
max_bytes = {slice_bytes}

[[interceptors]]
type = "sign"
keyring = "keys.json"
key_id = "test"
require = "enforce"
"""
BY_TOPIC = """
[[interceptors]]
type = "trail"
service = "everywhere"

[[interceptors]]
type = "slice"
topics = ["packed*", "keys*"]
max_bytes = {slice_bytes}

[[interceptors]]
type = "sign"
topics = ["!plain*"]
keyring = "keys.json"
key_id = "test"

[[interceptors]]
type = "header_ids"
topics = ["packed*"]

[[interceptors]]
type = "header_ids"
name = "compact-keys"
topics = ["keys*"]
form = "keys"
"""
noise = random.Random(5).randbytes


class Sent(NamedTuple):
    """A message of an application."""

    key: bytes | None
    value: bytes | None
    headers: Pairs = ()


MESSAGES = [
    Sent(b"small", b"too small to compress", [("a", b"1"), ("a", b"2"), ("n", None), ("e", b"")]),
    Sent(b"binary", b"\0\xff", [("b", b"\xff\0")]),
    Sent(b"text", b"compressible, and then small enough; " * 5_000, [("a", None)]),
    Sent(b"noise", noise(5 * SLICE_BYTES), [("a", b"1"), ("a", b"1")]),
    Sent(b"empty", b""),
    Sent(b"tombstone", None, [("why", b"deleted")]),
    Sent(b"", b"an empty key"),
    Sent(None, b"no key"),
    Sent(None, noise(3 * SLICE_BYTES), [("large", b"without a key")]),
    *(Sent(b"%d" % number, noise(2 * SLICE_BYTES)) for number in range(6)),
]  # fmt: skip
LARGE_WITHOUT_KEY = [Sent(None, noise(2 * SLICE_BYTES), [("n", b"%d" % number)]) for number in range(9)]
SMALL = [message for message in MESSAGES if len(message.value or b"") < 100]
PREFIXES = ("plain", "packed", "keys")


class Services:
    """Services at the broker, with a chain or without."""

    def __init__(self, broker: KafkaBroker, unique: Callable[[str], str]) -> None:
        self.servers = broker.bootstrap_servers
        self._broker = broker
        self._unique = unique

    def topic(self, prefix: str) -> str:
        name = self._unique(prefix)
        self._broker.create_topic(name, partitions=PARTITIONS)
        return name

    def send(self, topic: str, messages: Iterable[Sent], chain: Chain | None = None) -> None:
        conf = {"bootstrap.servers": self.servers, "log_level": 0}
        producer: Any = confluent_kafka.Producer(conf) if chain is None else Producer(conf, chain=chain)
        errors: list[Any] = []
        for message in messages:
            producer.produce(
                topic,
                message.value,
                message.key,
                headers=list(message.headers) or None,
                on_delivery=lambda error, _: errors.append(error),
            )
        assert producer.flush(DEADLINE_S) == 0
        assert set(errors) == {None}
        producer.close()

    def read(self, topic: str, chain: Chain | None = None) -> list[Message]:
        """Read a topic to its end; without a chain, as it is on the wire."""
        conf = {
            "bootstrap.servers": self.servers,
            "group.id": topic,
            "enable.partition.eof": True,
            "log_level": 0,
        }
        consumer: Any = confluent_kafka.Consumer(conf) if chain is None else Consumer(conf, chain=chain)
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(PARTITIONS)])
        found: list[Message] = []
        ended: set[int] = set()
        deadline = time.monotonic() + DEADLINE_S
        while len(ended) < PARTITIONS:
            assert time.monotonic() < deadline, f"{topic}: {len(found)} messages, and no end"
            message = consumer.poll(0.5)
            if message is None:
                continue
            error = message.error()
            if error is None:
                found.append(message)
            elif kind_of(error) is not Kind.COORDINATOR_MOVED:  # the client asks the coordinator again
                assert error.code() == KafkaError._PARTITION_EOF, error
                ended.add(message.partition())
        consumer.close()
        return found

    def source(self, reader: Any, topics: str, **options: str) -> DataFrame:
        common = {"kafka.bootstrap.servers": self.servers, "subscribe": topics, "startingOffsets": "earliest"}
        return kafka_source(reader, common | options)

    def write(self, frame: DataFrame) -> None:
        frame.write.format("kafka").option("kafka.bootstrap.servers", self.servers).save()


@pytest.fixture(scope="module")
def services(kafka_broker: KafkaBroker) -> Services:
    count = iter(range(1_000_000))
    run = random.Random().randbytes(4).hex()
    return Services(kafka_broker, lambda prefix: f"{prefix}-{run}-{next(count)}")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the configuration, as a platform team would provide it."""
    folder = tmp_path_factory.mktemp("platform")
    edit_keyring(folder / "keys.json", lambda keys: with_new_key(keys, "test", "hmac-sha256"), create=True)
    (folder / "headerware.toml").write_text(FULL.format(slice_bytes=SLICE_BYTES))
    (folder / "by_topic.toml").write_text(BY_TOPIC.format(slice_bytes=SLICE_BYTES))
    return folder


@pytest.fixture(scope="module")
def chain_file(home: Path) -> Path:
    return home / "headerware.toml"


def pairs(row: Row) -> list[tuple[str, bytes | None]]:
    """Return a row's headers as clients have them."""
    return [(header.key, as_bytes(header.value)) for header in row.headers or ()]


def as_bytes(part: Any) -> bytes | None:
    return None if part is None else bytes(part)


def without_trail(headers: Pairs) -> list[tuple[str, bytes | None]]:
    return [pair for pair in headers if pair[0] != "hw.trail"]


Place = tuple[str, int, int]


def rows_by_place(rows: Iterable[Row]) -> dict[Place, tuple[Any, ...]]:
    """Return the contents of rows by position; a position that comes twice fails."""
    found = {}
    for row in rows:
        place = (row.topic, row.partition, row.offset)
        assert place not in found, place
        content = (as_bytes(row.key), as_bytes(row.value), without_trail(pairs(row)))
        found[place] = (*content, int(row.timestamp.timestamp() * 1000))
    return found


def messages_by_place(messages: Iterable[Any]) -> dict[Place, tuple[Any, ...]]:
    """Return the same for the messages of a client."""
    return {
        (message.topic(), message.partition(), message.offset()): (
            message.key(),
            message.value(),
            without_trail(message.headers() or []),
            message.timestamp()[1],
        )
        for message in messages
    }


def contents(messages: Iterable[Any]) -> Counter[Any]:
    """Count messages by the parts that an application sees."""
    return Counter(
        (message.key(), message.value(), tuple(without_trail(message.headers() or [])))
        for message in messages
    )


def sent_contents(messages: Iterable[Sent]) -> Counter[Any]:
    return Counter((message.key, message.value, tuple(message.headers)) for message in messages)


def trails(headers: Any) -> list[tuple[str | None, str | None, str | None]]:
    """Return by whom a record was read and written, and from and to which topics."""
    return [
        (entry.by_whom, entry.read_from_topic, entry.produced_into_topic)
        for entry in read_trail(Headers(headers))
    ]


class Topic(NamedTuple):
    """A topic that a service has written, and the messages that another service reads from it."""

    name: str
    received: list[Message]


@pytest.fixture(scope="module")
def written(services: Services, chain_file: Path) -> Topic:
    name = services.topic("orders")
    chain = load_chain(chain_file)
    services.send(name, MESSAGES, chain)
    return Topic(name, services.read(name, chain))


@pytest.fixture(scope="module")
def decoded(spark: SparkSession, services: Services, written: Topic, chain_file: Path) -> list[Row]:
    frame = services.source(spark.read, written.name)
    mine = frame.selectExpr("*", "concat('o', offset) mine", "map('p', partition) places")
    return decode(mine, str(chain_file)).collect()


class TestFromServicesToSpark:
    def test_a_service_reads_what_the_other_sent(self, written: Topic) -> None:
        assert contents(written.received) == sent_contents(MESSAGES)

    def test_spark_reads_exactly_what_a_service_reads(self, decoded: list[Row], written: Topic) -> None:
        assert rows_by_place(decoded) == messages_by_place(written.received)

    def test_all_columns_stay_and_the_users_with_them(self, decoded: list[Row]) -> None:
        kafka = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"]
        assert list(decoded[0].__fields__) == [*kafka, "mine", "places"]
        assert all(row.mine == f"o{row.offset}" for row in decoded)
        assert all(row.places == {"p": row.partition} for row in decoded)
        assert {row.timestampType for row in decoded} == {0}

    def test_the_trail_says_which_job_read_the_record(self, decoded: list[Row], written: Topic) -> None:
        expected = [("everywhere", None, written.name), (f"everywhere/{JOB}", written.name, None)]
        assert all(trails(pairs(row)) == expected for row in decoded)

    def test_a_mapping_and_slices_in_several_tasks_give_the_same(
        self, spark: SparkSession, services: Services, written: Topic, chain_file: Path
    ) -> None:
        frame = services.source(spark.read, written.name, minPartitions="12")
        # Spark rounds the share of each of the three partitions, which a hash has filled.
        assert frame.rdd.getNumPartitions() >= 9
        rows = decode(frame, {"headerware.config": str(chain_file)}).collect()
        assert rows_by_place(rows) == messages_by_place(written.received)

    def test_a_chain_made_in_code_gives_the_same(
        self, spark: SparkSession, services: Services, written: Topic, chain_file: Path
    ) -> None:
        rows = decode(services.source(spark.read, written.name), load_chain(chain_file)).collect()
        assert rows_by_place(rows) == messages_by_place(written.received)


@pytest.fixture(scope="module")
def filled(spark: SparkSession, services: Services, chain_file: Path) -> tuple[str, str]:
    """Write the messages to two topics; the bridge knows how many partitions the first one has."""
    counted, uncounted = services.topic("counted"), services.topic("uncounted")
    rows = [
        (topic, message.key, message.value, list(message.headers), number)
        for topic in (counted, uncounted)
        for number, message in enumerate(MESSAGES + LARGE_WITHOUT_KEY)
    ]
    schema = "topic string, key binary, value binary, headers array<struct<key string, value binary>>, n int"
    wire = encode(
        spark.createDataFrame(rows, schema),
        chain_file,
        identity=["topic", "n"],
        job="backfill",
        partition_counts={counted: PARTITIONS},
    )
    services.write(wire)
    return counted, uncounted


@pytest.fixture(scope="module")
def backfilled(services: Services, filled: tuple[str, str], chain_file: Path) -> list[Message]:
    return services.read(filled[0], load_chain(chain_file))


class TestFromSparkToServices:
    def test_a_service_that_enforces_signatures_reads_all(self, backfilled: list[Message]) -> None:
        assert contents(backfilled) == sent_contents(MESSAGES + LARGE_WITHOUT_KEY)

    def test_the_trail_says_which_job_wrote_the_record(
        self, backfilled: list[Message], filled: tuple[str, str]
    ) -> None:
        name = filled[0]
        expected = [("everywhere/backfill", None, name), ("everywhere", name, None)]
        assert all(trails(message.headers() or []) == expected for message in backfilled)

    def test_every_record_on_the_wire_is_signed_and_has_its_identity(
        self, services: Services, filled: tuple[str, str]
    ) -> None:
        names = [Headers(message.headers()).names() for message in services.read(filled[0])]
        assert all("hw.sig" in each for each in names)
        whole = [each for each in names if each != ("hw.slice", "hw.sig")]
        assert len(whole) == len(MESSAGES + LARGE_WITHOUT_KEY), "later slices carry no more than that"
        assert all("hw.id" in each for each in whole)

    @pytest.mark.parametrize(("index", "there"), [(0, {0, 1, 2}), (1, {0})])
    def test_the_slices_of_a_message_without_a_key_share_a_partition(
        self, services: Services, filled: tuple[str, str], index: int, there: set[int]
    ) -> None:
        partitions: dict[bytes, set[int | None]] = {}
        for message in services.read(filled[index]):
            stamp = Headers(message.headers()).last("hw.slice")
            if stamp is not None and message.key() is None:
                slices = partitions.setdefault(SliceHeader.decode(stamp).message_id, set())
                slices.add(message.partition())
        assert len(partitions) == 1 + len(LARGE_WITHOUT_KEY)
        assert {len(each) for each in partitions.values()} == {1}
        # Which of them is used hangs on a hash over the topic's random name.
        assert set.union(*partitions.values()) <= there

    def test_text_and_chosen_partitions_arrive(
        self, spark: SparkSession, services: Services, chain_file: Path
    ) -> None:
        topic = services.topic("text")
        keyed = [(topic, f"k{number}", "äöü " * 20, number % PARTITIONS) for number in range(6)]
        rows = [*keyed, (topic, None, "x" * 9, None)]
        frame = spark.createDataFrame(rows, "topic string, key string, value string, partition int")
        services.write(encode(frame, chain_file, identity=["key"]))
        found = {message.key(): message for message in services.read(topic, load_chain(chain_file))}
        assert found.pop(None).value() == b"x" * 9
        assert {key: message.partition() for key, message in found.items()} == {
            b"k%d" % number: number % PARTITIONS for number in range(6)
        }
        assert {message.value() for message in found.values()} == {("äöü " * 20).encode()}


@pytest.fixture(scope="module")
def names(services: Services, home: Path) -> dict[str, str]:
    chain = load_chain(home / "by_topic.toml")
    names = {prefix: services.topic(prefix) for prefix in PREFIXES}
    for prefix, name in names.items():
        services.send(name, SMALL if prefix == "plain" else MESSAGES, chain)
    services.send(names["plain"], [Sent(b"bare", b"no headers at all")])
    return names


@pytest.fixture(scope="module")
def decoded_by_topic(
    spark: SparkSession, services: Services, names: dict[str, str], home: Path
) -> Iterator[DataFrame]:
    frame = services.source(spark.read, ",".join(names.values()))
    decoded = decode(frame, home / "by_topic.toml").cache()
    yield decoded
    decoded.unpersist()


class TestChainsByTopic:
    """Three topics, each with steps of its own, in one frame; two of them have ids for header names."""

    def test_spark_reads_what_services_read(
        self, services: Services, names: dict[str, str], decoded_by_topic: DataFrame, home: Path
    ) -> None:
        chain = load_chain(home / "by_topic.toml")
        received = [message for name in names.values() for message in services.read(name, chain)]
        assert rows_by_place(decoded_by_topic.collect()) == messages_by_place(received)
        assert len(received) == len(SMALL) + 1 + 2 * len(MESSAGES)

    def test_services_read_what_spark_writes_on(
        self, services: Services, names: dict[str, str], decoded_by_topic: DataFrame, home: Path
    ) -> None:
        chain_path = home / "by_topic.toml"
        copies = {prefix: services.topic(prefix) for prefix in PREFIXES}
        copy_of = {names[prefix]: copies[prefix] for prefix in PREFIXES}
        copied = F.create_map(*(F.lit(name) for pair in copy_of.items() for name in pair))
        renamed = decoded_by_topic.withColumn("topic", copied[F.col("topic")])
        counts = dict.fromkeys(copies.values(), PARTITIONS)
        services.write(encode(renamed, chain_path, partition_counts=counts))
        chain = load_chain(chain_path)
        for prefix, copy in copies.items():
            expected = [*SMALL, Sent(b"bare", b"no headers at all")] if prefix == "plain" else MESSAGES
            assert contents(services.read(copy, chain)) == sent_contents(expected), prefix

        plain, packed, keys = (services.read(copies[prefix]) for prefix in PREFIXES)
        assert not names_of(plain) & {"hw.sig", "hw.slice", "hw.ids"}
        assert {"hw.ids"} < names_of(packed)
        assert not names_of(packed) & {"hw.sig", "hw.slice", "hw.trail"}
        assert not any(name.startswith("hw.") for name in names_of(keys))
        assert "~E" in names_of(keys), "the slices' header, in base 64"
        # A mirror chooses partitions by the keys, not by where it read a record.
        assert {message.key(): message.partition() for message in keys if message.key()} == {
            message.key(): message.partition() for message in packed if message.key()
        }

    def test_the_trail_goes_on_in_a_mirror(
        self, services: Services, names: dict[str, str], decoded_by_topic: DataFrame
    ) -> None:
        row = next(row for row in decoded_by_topic.collect() if as_bytes(row.key) == b"bare")
        assert trails(pairs(row)) == [(f"everywhere/{JOB}", names["plain"], None)]


def names_of(messages: Iterable[Any]) -> set[str]:
    return {name for message in messages for name, _ in message.headers() or []}


class TestStreams:
    def test_rows_that_stand_alone_go_to_parquet(
        self, spark: SparkSession, services: Services, home: Path, tmp_path: Path
    ) -> None:
        sign = Sign(keyring=str(home / "keys.json"), key_id="test")
        chain = Chain([Trail(service="everywhere"), Compress(), sign])
        topic = services.topic("stream")
        services.send(topic, MESSAGES, chain)
        stream = decode(services.source(spark.readStream, topic), chain, job="archive")
        writer = stream.writeStream.format("parquet").option(
            "checkpointLocation", str(tmp_path / "checkpoint")
        )
        query = writer.trigger(availableNow=True).start(str(tmp_path / "archive"))
        assert query.awaitTermination(QUERY_ENDS_S)
        rows = spark.read.parquet(str(tmp_path / "archive")).collect()
        received = services.read(topic, chain)
        assert len(received) == len(MESSAGES)
        assert rows_by_place(rows) == messages_by_place(received)
        assert {trails(pairs(row))[-1] for row in rows} == {("everywhere/archive#0", topic, None)}
