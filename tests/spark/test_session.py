from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pyspark
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everyone who uses Spark writes it

from headerware.spark_bridge.connector_jars import package
from headerware.spark_bridge.origin import kafka_source
from headerware.spark_bridge.session import (
    SUBMIT_ARGS,
    builder_settings,
    configure,
    require_connector,
    spark_home,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow as pa

    from headerware.testing import KafkaBroker

SUBMIT_SECONDS = 120
MEBIBYTE = 1024 * 1024
# A user's program; it prints its result, or the error by which it was refused.
PROGRAM = """
import sys
from pyspark.sql import SparkSession
from headerware import HeaderwareError
from headerware.spark_bridge.session import require_connector
from headerware.spark_bridge.session import configure

try:
    spark = configure(SparkSession.builder.appName("submitted")).getOrCreate()
except HeaderwareError as error:
    sys.exit(f"refused: {error}")
require_connector(spark)
print("rows", spark.range(1).mapInArrow(lambda batches: batches, "id long").count())
print("bytes", spark.conf.get("spark.sql.execution.arrow.maxBytesPerBatch"))
print("jars", spark.conf.get("spark.jars"))
"""

FIRST_PROGRAM = """
from pyspark.sql import SparkSession
from headerware.spark_bridge import configure

builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
spark = configure(builder.config("spark.ui.showConsoleProgress", "false")).getOrCreate()
print("rows", spark.range(1).count())
log = spark._jvm.org.apache.logging.log4j.LogManager.getLogger("org.apache.kafka.clients.Metadata")
log.warn("a warning of Kafka is shown")
spark.stop()
"""
LOGGING = ("SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS", "SPARK_CONF_DIR")


def sizes(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Return each batch's size in bytes."""
    import pyarrow as pa  # noqa: PLC0415 - runs in the workers

    for batch in batches:
        yield pa.RecordBatch.from_pydict({"bytes": [batch.nbytes]})


def interpreters(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Return the Python that runs this."""
    import pyarrow as pa  # noqa: PLC0415 - runs in the workers

    for _ in batches:
        yield pa.RecordBatch.from_pydict({"python": [sys.executable]})


@pytest.fixture
def small_batches(spark: SparkSession) -> Iterator[None]:
    """Limit Arrow batches to a mebibyte, as a user would, for one test."""
    key = "spark.sql.execution.arrow.maxBytesPerBatch"
    before = str(spark.conf.get(key))
    spark.conf.set(key, str(MEBIBYTE))
    yield
    spark.conf.set(key, before)


class TestConfiguredSession:
    def test_workers_run_this_python(self, spark: SparkSession) -> None:
        found = spark.range(1).mapInArrow(interpreters, "python string").collect()
        assert [Path(row.python) for row in found] == [Path(os.environ.get("PYSPARK_PYTHON", sys.executable))]

    def test_the_bound_of_arrow_batches_holds(self, spark: SparkSession, small_batches: None) -> None:
        wide = F.expr("cast(repeat('x', 100000) as binary)")
        headers = spark.range(0, 50, 1, 1).select(F.array(F.struct(wide.alias("value"))).alias("headers"))
        found = [row.bytes for row in headers.mapInArrow(sizes, "bytes long").collect()]
        # A batch ends with the row that passes the bound.
        assert len(found) == 5
        assert max(found) < MEBIBYTE + 200_000

    @pytest.mark.connector
    def test_configure_again_gives_the_same_session(self, spark: SparkSession, small_batches: None) -> None:
        again = configure(SparkSession.builder)
        assert again.getOrCreate() is spark
        assert spark.conf.get("spark.sql.execution.arrow.maxBytesPerBatch") == str(MEBIBYTE)

    @pytest.mark.connector
    def test_configure_adds_no_packages_to_a_running_jvm(self, spark: SparkSession) -> None:
        assert "spark.jars.packages" not in builder_settings(configure(SparkSession.builder))


@pytest.mark.connector
class TestRequireConnector:
    def test_accepts_a_configured_session(self, spark: SparkSession) -> None:
        require_connector(spark)


@pytest.mark.broker
class TestKafkaSource:
    def test_reads_headers(
        self, spark: SparkSession, kafka_broker: KafkaBroker, topic_with: Callable[..., str]
    ) -> None:
        topic = topic_with([("h", b"1"), ("h", None)])
        frame = kafka_source(spark.read, options(kafka_broker, topic))
        (row,) = frame.select("value", "headers", "topic").collect()
        assert (bytes(row.value), row.topic) == (b"v", topic)
        assert [(h.key, h.value and bytes(h.value)) for h in row.headers] == [("h", b"1"), ("h", None)]

    def test_streams(
        self, spark: SparkSession, kafka_broker: KafkaBroker, topic_with: Callable[..., str]
    ) -> None:
        frame = kafka_source(spark.readStream, options(kafka_broker, topic_with([])))
        assert frame.isStreaming
        assert "headers" in frame.columns

    def test_leaves_what_the_options_say(
        self, spark: SparkSession, kafka_broker: KafkaBroker, topic_with: Callable[..., str]
    ) -> None:
        own = options(kafka_broker, topic_with([])) | {"includeheaders": False}
        assert "headers" not in kafka_source(spark.read, own).columns

    def test_does_not_read_what_was_aborted(
        self, spark: SparkSession, kafka_broker: KafkaBroker, unique_topic: Callable[[str], str]
    ) -> None:
        topic = unique_topic("aborted")
        kafka_broker.create_topic(topic, partitions=1)
        in_transactions(kafka_broker, topic, {b"kept": True, b"aborted": False})
        own = options(kafka_broker, topic)
        assert [bytes(row.value) for row in kafka_source(spark.read, own).collect()] == [b"kept"]
        dirty = kafka_source(spark.read, own | {"kafka.isolation.level": "read_uncommitted"})
        assert [bytes(row.value) for row in dirty.collect()] == [b"kept", b"aborted"]


@pytest.mark.long
class TestSparkSubmit:
    @pytest.mark.connector
    def test_packages_come_from_the_command_line(self, tmp_path: Path) -> None:
        done = submit(tmp_path, "--packages", package(pyspark.__version__))
        assert done.returncode == 0, done.stderr
        assert "rows 1" in done.stdout
        assert f"bytes {64 * MEBIBYTE}" in done.stdout
        assert done.stdout.count("spark-sql-kafka-0-10") == 1

    def test_says_that_the_command_line_lacks_them(self, tmp_path: Path) -> None:
        done = submit(tmp_path)
        assert done.returncode != 0
        # What Python writes to stderr, spark-submit writes to stdout.
        assert "refused: this Spark runs without its Kafka connector" in done.stdout
        assert f"give it --packages {package(pyspark.__version__)}" in done.stdout


@pytest.mark.connector
@pytest.mark.long
class TestFirstProgram:
    def test_prints_its_own_output_and_one_line_of_java(self, tmp_path: Path) -> None:
        (tmp_path / "program.py").write_text(FIRST_PROGRAM)
        done = subprocess.run(
            [sys.executable, "program.py"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=SUBMIT_SECONDS,
            check=False,
            env={name: value for name, value in os.environ.items() if name not in {*LOGGING, SUBMIT_ARGS}},
        )
        assert done.stdout == "rows 1\n", done.stderr
        lines = [line for line in done.stderr.splitlines() if "Using incubator modules" not in line]
        assert [line.partition(" WARN ")[2] for line in lines] == ["Metadata: a warning of Kafka is shown"]


def submit(tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the program by spark-submit, as a user does."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    command = [str(spark_home() / "bin" / "spark-submit"), "--master", "local[1]"]
    quiet = ["--conf", "spark.ui.enabled=false", "--conf", f"spark.sql.warehouse.dir={tmp_path}"]
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PYSPARK_", "_PYSPARK"))}
    return subprocess.run(
        [*command, *quiet, *arguments, str(program)],
        capture_output=True,
        text=True,
        timeout=SUBMIT_SECONDS,
        check=False,
        env=kept | {"PYSPARK_DRIVER_PYTHON": sys.executable},
    )


def options(broker: KafkaBroker, topic: str) -> dict[str, Any]:
    return {
        "kafka.bootstrap.servers": broker.bootstrap_servers,
        "subscribe": topic,
        "startingOffsets": "earliest",
    }


@pytest.fixture
def topic_with(
    kafka_broker: KafkaBroker, unique_topic: Callable[[str], str]
) -> Callable[[list[tuple[str, str | bytes | None]]], str]:
    """Return a function that makes a topic with one record of these headers."""

    def make(headers: list[tuple[str, str | bytes | None]]) -> str:
        topic = unique_topic("source")
        kafka_broker.create_topic(topic, partitions=1)
        producer = confluent_kafka.Producer({"bootstrap.servers": kafka_broker.bootstrap_servers})
        producer.produce(topic, b"v", headers=headers)
        assert producer.flush(30) == 0
        return topic

    return make


def in_transactions(broker: KafkaBroker, topic: str, values: dict[bytes, bool]) -> None:
    """Write each value in a transaction of its own, committed or aborted."""
    conf = {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": topic}
    producer = confluent_kafka.Producer(conf)
    producer.init_transactions(30)
    for value, committed in values.items():
        producer.begin_transaction()
        producer.produce(topic, value)
        producer.flush(30)
        (producer.commit_transaction if committed else producer.abort_transaction)(30)
