"""Fixtures of the Spark tests: one session for the whole run."""

from __future__ import annotations

import os
import runpy
import sys
import time
import uuid
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from headerware import Chain, Consumer, Headers, HeaderwareError, Producer, Record
from headerware.kafka.errors import Kind, kind_of
from headerware.spark_bridge.session import configure
from headerware.testing import MissingPartError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, Row, SparkSession

    from headerware.spark_bridge import BatchProgress
    from headerware.spark_bridge.batches.sinks import Batch, Sink
    from headerware.testing import KafkaBroker

CONF = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
}

collect_ignore = (
    []
    if find_spec("headerware_native") or os.environ.get("HEADERWARE_REQUIRE_NATIVE")
    else ["test_native_steps.py"]
)
JVM_ENDS_S = 120
DEADLINE_S = 60.0
QUERY_ENDS_S = 240

# pyspark leaves it to the garbage collector to close the sockets of results.
LEFT_TO_COLLECTOR = r"ignore:unclosed <socket\.socket .*raddr=\('127\.0\.0\.1':ResourceWarning"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Ignore, in the tests of this folder only, the sockets that pyspark does not close."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings(LEFT_TO_COLLECTOR))


def needs_connector(item: pytest.Item) -> bool:
    """Return whether a test needs Spark's Kafka connector, as its markers say."""
    return any(item.get_closest_marker(name) is not None for name in ("broker", "connector"))


@pytest.fixture(scope="session")
def spark(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Return the only session of the run; do not stop it, and make no other in this process.

    It has the Kafka connector if a test of the run needs it. The connector of the newest Spark may not have
    come to a mirror yet.
    """
    try:
        from pyspark.sql import SparkSession  # noqa: PLC0415

        builder = SparkSession.builder.master("local[2]").appName("headerware-tests")
        if any(map(needs_connector, request.session.items)):
            configure(builder)
        else:
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    except (ImportError, MissingPartError) as error:
        if os.environ.get("HEADERWARE_REQUIRE_ALL"):
            pytest.fail(f"HEADERWARE_REQUIRE_ALL is set, and a part is missing: {error}", pytrace=False)
        pytest.skip(str(error))
    warehouse = tmp_path_factory.mktemp("warehouse")
    for key, value in {**CONF, "spark.sql.warehouse.dir": str(warehouse)}.items():
        builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    gateway: Any = session.sparkContext._gateway
    yield session
    session.stop()
    # The JVM ends when nobody holds its standard input; it must not outlive the run.
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(JVM_ENDS_S)


@pytest.fixture
def run_example(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[object, str]]:
    """Return a function that runs an example as a program, but in this process, with the shared session.

    To start Spark takes longer than most examples; connect_spark.py and, by spark-submit,
    spark_foreach_batch.py run in processes of their own.
    """

    def run(path: Path, *arguments: str, **replaced: object) -> tuple[object, str]:
        """Return what the example ended with, and its output; ``replaced`` are globals to replace."""
        monkeypatch.chdir(tmp_path)
        monkeypatch.syspath_prepend(str(path.parent))
        monkeypatch.setattr(sys, "argv", [str(path), *arguments])
        monkeypatch.setattr(type(spark), "stop", lambda _: None)
        main = runpy.run_path(str(path))["main"]
        main.callback.__globals__.update(replaced)
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code, capsys.readouterr().out

    return run


class Kafka:
    """The shared broker, as the tests of streams use it."""

    def __init__(self, broker: KafkaBroker) -> None:
        self._broker = broker
        self.servers = broker.bootstrap_servers

    def topic(self, name: str, *, partitions: int = 1) -> str:
        """Create a topic that no other test has; a name with a dash is unique already."""
        unique = name if "-" in name else f"{name}-{uuid.uuid4().hex[:8]}"
        self._broker.create_topic(unique, partitions=partitions)
        return unique

    def send(self, chain: Chain | None, *records: Record) -> None:
        """Send records like a service; without a chain, as they are on the wire."""
        with Producer({"bootstrap.servers": self.servers}, chain=chain or Chain([])) as producer:
            for record in records:
                partition = -1 if record.partition is None else record.partition
                producer.produce(
                    record.topic, record.value, record.key, partition, headers=list(record.headers)
                )
            assert producer.flush(DEADLINE_S) == 0

    def wire(self, topic: str) -> list[Record]:
        """Return all records of a topic, as they are on the wire, by partition and offset."""
        found, _ = self.read(topic, Chain([]))
        return sorted(found, key=lambda record: (record.partition or 0, record.offset or 0))

    def read(
        self, topics: str | list[str], chain: Chain, *, group: str | None = None, count: int | None = None
    ) -> tuple[list[Record], list[HeaderwareError]]:
        """Read topics to their ends as a service does, and give the records and what was refused.

        Args:
            topics: one or more, from their beginnings, or from what the group has committed.
            chain: the service's.
            group: one that commits what it has read, when it ends.
            count: how many records are enough, instead of all.
        """
        consumer = Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": group or uuid.uuid4().hex,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": group is not None,
                "enable.partition.eof": True,
            },
            chain=chain,
        )
        named = [topics] if isinstance(topics, str) else topics
        ends = {(topic, number): end for topic in named for number, end in self.ends(topic).items()}
        try:
            # Groups make their members wait; nobody shares these partitions.
            places = [TopicPartition(*place) for place in ends]
            consumer.assign(consumer.committed(places, timeout=DEADLINE_S) if group else places)
            return _rest(consumer, {place for place, end in ends.items() if end}, count)
        finally:
            consumer.close()

    def cluster_id(self) -> str | None:
        """Return the cluster's id, as the broker tells it."""
        return AdminClient({"bootstrap.servers": self.servers}).list_topics(timeout=DEADLINE_S).cluster_id

    def cut(self, topic: str, chain: Chain, *values: object) -> list[Record]:
        """Return the records that a service would write to a topic, without writing them."""
        aside = self.topic("aside")
        self.send(chain, *(Record(aside, value) for value in values))
        return [record.replace(topic=topic, partition=None) for record in self.wire(aside)]

    def ends(self, topic: str) -> dict[int, int]:
        """Return the offset that each partition's next record will get."""
        consumer = confluent_kafka.Consumer({"bootstrap.servers": self.servers, "group.id": "ends"})
        try:
            numbers = consumer.list_topics(topic, timeout=DEADLINE_S).topics[topic].partitions
            return {
                number: consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=DEADLINE_S)[1]
                for number in numbers
            }
        finally:
            consumer.close()


def _rest(
    consumer: Consumer, ends: set[tuple[str | None, int | None]], count: int | None
) -> tuple[list[Record], list[HeaderwareError]]:
    found: list[Record] = []
    refused: list[HeaderwareError] = []
    deadline = time.monotonic() + DEADLINE_S
    while ends and (count is None or len(found) < count):
        assert time.monotonic() < deadline, f"{len(found)} records, not read to {ends}"
        try:
            message = consumer.poll(0.2)
        except HeaderwareError as error:
            refused.append(error)
            continue
        if message is None:
            continue
        problem = message.error()
        if problem is None:
            found.append(_record(message))
        elif kind_of(problem) is not Kind.COORDINATOR_MOVED:  # the client asks the coordinator again
            assert problem.code() == confluent_kafka.KafkaError._PARTITION_EOF, problem
            ends.discard((message.topic(), message.partition()))
    return found, refused


def _record(message: Any) -> Record:
    return Record(
        message.topic(),
        message.value(),
        message.key(),
        Headers(message.headers() or ()),
        message.partition(),
        message.timestamp()[1],
        offset=message.offset(),
    )


@pytest.fixture(scope="session")
def kafka(kafka_broker: KafkaBroker) -> Kafka:
    """Return the shared broker."""
    return Kafka(kafka_broker)


@pytest.fixture(scope="session")
def no_jvm() -> Any:
    """Return what stands for a session of Spark Connect in code that only asks whether there is a JVM.

    A real one cannot be made next to a classic session; test_connect.py has one in a process of its own.
    """
    return type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()


@pytest.fixture(scope="module")
def two_partitions_of_state(spark: SparkSession) -> Iterator[None]:
    """Keep the state of streams in two partitions: Spark makes 200, each with a store of its own."""
    before = str(spark.conf.get("spark.sql.shuffle.partitions"))
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    yield
    spark.conf.set("spark.sql.shuffle.partitions", before)


@pytest.fixture(scope="module")
def interpreted(spark: SparkSession) -> Iterator[None]:
    """Interpret plans: to compile one for twenty rows takes longer than to run it."""
    settings = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
    before = {name: str(spark.conf.get(name)) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    yield
    for name, value in before.items():
        spark.conf.set(name, value)


class Stream:
    """The source and the checkpoint of a query; each run processes all new records as one batch."""

    def __init__(self, spark: SparkSession, kafka: Kafka, folder: Path, *topics: str, **source: str) -> None:
        self.checkpoint = str(folder / "checkpoint")
        self.progress: list[BatchProgress] = []
        from headerware.spark_bridge import kafka_source  # noqa: PLC0415 - where there is a session

        options = {"kafka.bootstrap.servers": kafka.servers, "startingOffsets": "earliest", **source}
        self._source = kafka_source(spark.readStream, {**options, "subscribe": ",".join(topics)})

    def run(self, chain: Chain, sink: Sink | Callable[[DataFrame, int], Any], **options: Any) -> None:
        """Run the query to the end of its topics, or raise its error."""
        from headerware.spark_bridge import foreach_batch  # noqa: PLC0415 - where there is a session

        function = foreach_batch(
            chain, sink, checkpoint=self.checkpoint, on_progress=self.progress.append, **options
        )
        writer = self._source.writeStream.foreachBatch(function).option("checkpointLocation", self.checkpoint)
        query = writer.trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(QUERY_ENDS_S)
        finally:
            query.stop()

    def undo(self, batch: int) -> None:
        """Remove the ledger's commit of a batch and Spark's, as after a kill during its write."""
        checkpoint = Path(self.checkpoint)
        (ledger,) = (checkpoint / "headerware").iterdir()
        (ledger / "committed" / f"{batch:012d}.json").unlink()
        for name in (f"{batch}", f".{batch}.crc"):
            (checkpoint / "commits" / name).unlink()


class Keeping:
    """A sink that keeps the rows of each batch, by attempt, and passes them on."""

    def __init__(self, sink: Sink | None = None) -> None:
        self.attempts: list[list[Row]] = []
        self.columns: list[str] = []
        self._sink = sink

    def write(self, frame: DataFrame, batch: Batch) -> None:
        """Keep the rows in the order of their positions."""
        self.columns = frame.columns
        self.attempts.append(sorted(frame.collect(), key=lambda row: tuple(row["source"])))
        if self._sink is not None:
            self._sink.write(frame, batch)

    def values(self, attempt: int) -> list[bytes]:
        """Return the values of an attempt."""
        return [bytes(row["value"]) for row in self.attempts[attempt]]


@pytest.fixture(scope="session")
def new_stream(spark: SparkSession, kafka: Kafka) -> Callable[..., Stream]:
    """Return a function of folder and topics that makes a stream."""
    return partial(Stream, spark, kafka)


@pytest.fixture
def stream(new_stream: Callable[..., Stream], tmp_path: Path) -> Callable[..., Stream]:
    """Return a function of a topic, and options of the source, that makes the test's stream."""
    return partial(new_stream, tmp_path)


@pytest.fixture(scope="session")
def keeping() -> type[Keeping]:
    """Return the sink that keeps."""
    return Keeping
