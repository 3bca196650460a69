"""The source framework as a data source: streams that fail between a batch and its commit, and batch reads.

What a batch has is tested without Spark, in tests/unit/spark_bridge/native. Here is what Spark does with it.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import confluent_kafka
import psutil
import pytest
from pyspark.errors import AnalysisException, StreamingQueryException

from headerware import Chain, ConfigError
from headerware.core.headers import Headers
from headerware.interceptors import Dedup, Trail, read_trail
from headerware.sources import SourceConfig
from headerware.sources.extractors.csv import CsvExtractor
from headerware.sources.ready.files import Files
from headerware.spark_bridge import encode, foreach_batch, register_source
from tests.gallery import entries
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from headerware.testing import KafkaBroker

pytestmark = [pytest.mark.usefixtures("interpreted"), pytest.mark.timeout(300)]

DEADLINE_S = 240
ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "sources.md").read_text(encoding="utf-8")
FENCED = re.MULTILINE | re.DOTALL
FORMAT = "headerware-objects"
CONFIG = """\
name = "spool"
topic = "{topic}"
key_pattern = '(?P<kind>[a-z]+)-.*'
extractor = {extractor}
on_object_error = "{policy}"
listing_pause_s = 0.1

[source]
type = "files"
folder = "spool"

[kafka]
"bootstrap.servers" = "the.plain.runtime:9092"
{kafka}
"""

AS_JSON = 'interceptors = "serialize"\n"interceptors.serialize.value" = "json"'

KILLED = """\
import json, os, pathlib, signal, sys
from pyspark.sql import SparkSession
from headerware.spark_bridge import register_source

config, checkpoint, written = sys.argv[1:]
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
register_source(spark)

def sink(frame, number):
    values = sorted(bytes(row["value"]).decode() for row in frame.collect())
    pathlib.Path(written).write_text(json.dumps(values))
    os.kill(os.getpid(), signal.SIGKILL)

options = {"manifestLocation": checkpoint + "/headerware-objects"}
stream = spark.readStream.format("headerware-objects").options(**options).load(config)
writer = stream.writeStream.foreachBatch(sink).option("checkpointLocation", checkpoint)
writer.start().awaitTermination()
"""


class Spool:
    """A folder of files, and the queries over it."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._folder = folder
        self.batches: dict[int, list[list[str]]] = {}
        """The values of each attempt at each batch."""
        (folder / "spool").mkdir()
        register_source(spark)
        self.configure()

    def configure(
        self,
        *,
        extractor: str = '{ type = "jsonl", values = "bytes" }',
        kafka: str = "",
        policy: str = "raise",
    ) -> None:
        text = CONFIG.format(extractor=extractor, kafka=kafka, policy=policy, topic="{kind}")
        self.file.write_text(text, encoding="utf-8")

    @property
    def file(self) -> Path:
        return self._folder / "spool.toml"

    @property
    def checkpoint(self) -> Path:
        return self._folder / "checkpoint"

    def write(self, name: str, *values: Any) -> None:
        lines = "".join(json.dumps(value) + "\n" for value in values)
        temporary = self._folder / "spool" / ".new"
        temporary.write_text(lines, encoding="utf-8")
        temporary.rename(self._folder / "spool" / name)

    def read(self, **options: str) -> DataFrame:
        return self._spark.read.format(FORMAT).options(**options).load(str(self.file))

    def stream(self, **options: str) -> DataFrame:
        options = {"manifestLocation": str(self.checkpoint / "headerware-objects"), **options}
        return self._spark.readStream.format(FORMAT).options(**options).load(str(self.file))

    def run(self, fails_in: int | None = None, **options: str) -> None:
        """Read what is there; fail behind the sink in one batch, so that Spark does not commit it."""

        def sink(frame: DataFrame, number: int) -> None:
            values = sorted(bytes(row["value"]).decode() for row in frame.collect())
            self.batches.setdefault(number, []).append(values)
            if number == fails_in:
                raise RuntimeError("the sink has it, and Spark does not know")

        self.ended(self.stream(**options).writeStream.foreachBatch(sink))

    def run_killed(self) -> list[str]:
        """Return the values of the first batch of a program that is killed when its sink has them."""
        written = self._folder / "written.json"
        command = [sys.executable, "-c", KILLED, str(self.file), str(self.checkpoint), str(written)]
        env = {key: value for key, value in os.environ.items() if not key.startswith("PYSPARK_GATEWAY")}
        done = subprocess.run(command, env=env, capture_output=True, timeout=DEADLINE_S, check=False)
        assert done.returncode == -signal.SIGKILL, done.stderr[-4_000:]
        found: list[str] = json.loads(written.read_text(encoding="utf-8"))
        return found

    def ended(self, writer: Any) -> None:
        writer = writer.option("checkpointLocation", str(self.checkpoint))
        query = writer.trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(DEADLINE_S)
        finally:
            query.stop()


@pytest.fixture
def spool(spark: SparkSession, tmp_path: Path) -> Spool:
    """Return a folder with a source."""
    return Spool(spark, tmp_path)


class TestStreams:
    @pytest.mark.long
    def test_repeat_the_batch_of_a_killed_driver_with_the_same_rows(self, spool: Spool) -> None:
        spool.write("b-1.jsonl", 1, 2)
        spool.batches[0] = [spool.run_killed()]
        spool.write("a-0.jsonl", 0)
        spool.write("b-2.jsonl", 3)
        spool.run()  # before pyspark 4.2 only the batch that was not committed, and then what is new, too
        spool.write("b-1.jsonl", 10)
        spool.run()
        assert spool.batches.pop(0) == [["1", "2"], ["1", "2"]]
        later = [value for attempts in spool.batches.values() for values in attempts for value in values]
        assert sorted(later) == ["0", "10", "3"]

    def test_stop_if_a_batch_cannot_be_repeated(self, spool: Spool) -> None:
        spool.write("a-1.jsonl", 1)
        with pytest.raises(StreamingQueryException):
            spool.run(fails_in=0)
        spool.write("a-1.jsonl", 10)
        with pytest.raises(StreamingQueryException, match=r"a-1\.jsonl.*has changed since batch 1"):
            spool.run()
        spool.configure(policy="skip")
        spool.run()
        spool.run()
        assert spool.batches == {0: [["1"], []], 1: [["10"]]}

    @pytest.mark.long
    def test_go_on_after_their_process_was_killed(self, spool: Spool) -> None:
        """The process that plans is killed while the query runs; the query fails, and starts again."""
        for number in range(4):
            spool.write(f"a-{number}.jsonl", number)
        found: list[str] = []

        def sink(frame: DataFrame, number: int) -> None:
            found.extend(bytes(row["value"]).decode() for row in frame.collect())

        def start() -> StreamingQuery:
            frame = spool.stream(maxObjectsPerTrigger="1")
            writer = frame.writeStream.foreachBatch(sink)
            return writer.option("checkpointLocation", str(spool.checkpoint)).start()

        query = start()
        try:
            until(lambda: bool(found))
            for process in planners():
                os.kill(process.pid, signal.SIGKILL)
            until(lambda: not query.isActive)
            repeated = list(found)
            query = start()
            until(lambda: set(found) == {"0", "1", "2", "3"})
            spool.write("a-4.jsonl", 4)
            until(lambda: "4" in found)
        finally:
            query.stop()
        assert [value for value in found if found.count(value) > 1 and value not in repeated] == []

    def test_go_through_foreach_batch(self, spool: Spool) -> None:
        spool.configure(
            extractor='"csv"', kafka='interceptors = "serialize"\n"interceptors.serialize.value" = "json"'
        )
        spool.write("a-1.csv", "n,x")
        (spool.checkpoint.parent / "spool" / "a-1.csv").write_text("n,x\n1,one\n2,two\n", encoding="utf-8")
        written: list[tuple[str, Any, str | None]] = []
        identities: list[bytes] = []

        def sink(frame: DataFrame, number: int) -> None:
            chain = Chain([Trail(), Dedup()])
            for row in encode(frame, chain, job="spool", identity=["headers"]).collect():
                headers = Headers((pair["key"], bytes(pair["value"])) for pair in row["headers"])
                (entry,) = read_trail(headers)
                written.append((row["topic"], json.loads(row["value"]), entry.by_whom))
                identities.append(headers.last("hw.id") or b"")

        function = foreach_batch(Chain([]), sink, checkpoint=str(spool.checkpoint))
        spool.ended(spool.stream().writeStream.foreachBatch(function))
        assert sorted(written, key=str) == [
            ("a", {"n": "1", "x": "one"}, "spark/spool#0"),
            ("a", {"n": "2", "x": "two"}, "spark/spool#0"),
        ]
        assert len(set(identities) - {b""}) == 2

    def test_need_a_place_for_manifests(self, spool: Spool, spark: SparkSession) -> None:
        frame = spark.readStream.format(FORMAT).load(str(spool.file))
        with pytest.raises(StreamingQueryException, match="manifestLocation"):
            spool.ended(frame.writeStream.format("noop"))


class TestBatchReads:
    def test_split_a_large_object(self, spool: Spool) -> None:
        spool.write("a-1.jsonl", *range(5_000))
        frame = spool.read(maxPartitionBytes="8000")
        assert frame.rdd.getNumPartitions() > 2
        assert sorted(int(bytes(row["value"])) for row in frame.collect()) == list(range(5_000))

    def test_of_a_source_made_in_code(self, spool: Spool, spark: SparkSession, tmp_path: Path) -> None:
        (tmp_path / "spool" / "a.csv").write_text("n,x\n1,one\n", encoding="utf-8")
        config = SourceConfig(
            name="coded", source=Files(folder=str(tmp_path / "spool")), extractor=CsvExtractor(), topic="t"
        )
        kafka = {"interceptors": "serialize", "interceptors.serialize.value": "json"}
        register_source(spark, config, kafka=kafka)
        row = spark.read.format(FORMAT).option("source", "coded").load().first()
        assert row is not None
        assert (row["topic"], json.loads(row["value"])) == ("t", {"n": "1", "x": "one"})
        names = [pair["key"] for pair in row["headers"]]
        assert names[:3] == ["hw.source", "hw.source.key", "hw.source.record"]

    def test_say_what_makes_bytes_of_objects(self, spool: Spool) -> None:
        spool.configure(extractor='"jsonl"')
        spool.write("a-1.jsonl", {"n": 1})
        with pytest.raises(Exception, match=r"the value is a dict, and rows hold bytes; give a serde"):
            spool.read().collect()

    def test_refuse_what_is_encodes(self, spool: Spool) -> None:
        spool.configure(kafka='interceptors = "trail"\n"interceptors.trail.service" = "s"')
        with pytest.raises(AnalysisException, match=r"'trail' works on bytes.*encode"):
            spool.read()

    def test_refuse_an_unknown_option(self, spool: Spool) -> None:
        with pytest.raises(AnalysisException, match=r"maxobjectpertrigger.*maxObjectsPerTrigger"):
            spool.read(maxObjectPerTrigger="1")

    @pytest.mark.parametrize("option", ["subscribe", "subscribePattern", "kafka.bootstrap.servers"])
    def test_say_who_reads_kafka(self, spool: Spool, option: str) -> None:
        with pytest.raises(AnalysisException, match=r"read by Spark's own connector: use kafka_source"):
            spool.read(**{option: "orders"})

    def test_refuse_two_sources_of_a_name(self, spark: SparkSession, tmp_path: Path) -> None:
        config = SourceConfig(
            name="a", source=Files(folder=str(tmp_path)), extractor=CsvExtractor(), topic="t"
        )
        with pytest.raises(ConfigError, match="two sources"):
            register_source(spark, config, config)


@pytest.mark.broker
@pytest.mark.long
class TestPage:
    def test_runs_and_shows_what_it_says(
        self,
        spark: SparkSession,
        kafka_broker: KafkaBroker,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        monkeypatch.chdir(tmp_path)
        (tmp_path / "chain.toml").write_text("[[interceptors]]\ntype = 'dedup'\n", encoding="utf-8")
        kafka_broker.create_topic("cities")
        whole, stream = (
            block for block in re.findall(r"^```python\n(.*?)^```$", PAGE, FENCED) if "spark" in block
        )
        servers = kafka_broker.bootstrap_servers
        namespace = {"spark": spark, "checkpoint": str(tmp_path / "checkpoint"), "servers": servers}
        for block in (whole, stream):
            # Spark's processes have the working directory in which its JVM was started.
            program = block.replace('load("', f'load("{tmp_path}/')
            exec(compile(program, "docs/sources.md", "exec"), namespace)  # noqa: S102 - our own
        (shown,) = re.findall(r"^print\(.*\)  # (.*)$", whole, re.MULTILINE)
        assert capsys.readouterr().out.splitlines() == [shown]
        (query,) = spark.streams.active
        try:
            query.processAllAvailable()
        finally:
            query.stop()
        consumer = confluent_kafka.Consumer({"bootstrap.servers": servers, "group.id": "page"})
        try:
            place = confluent_kafka.TopicPartition("cities", 0)
            assert consumer.get_watermark_offsets(place, timeout=DEADLINE_S)[1] == 2
        finally:
            consumer.close()


@pytest.mark.broker
@pytest.mark.long
class TestExample:
    def test_runs_on_a_cluster(self, kafka_broker: KafkaBroker, run_example: Callable[..., Any]) -> None:
        there = ["--bootstrap-servers", kafka_broker.bootstrap_servers]
        code, shown = run_example(ROOT / "examples" / "spark_source.py", *there)
        assert not code
        assert "3,376 airports; the topic has 6,752 records" in shown
        assert entries()["spark_source.py"].is_shown_by(shown), shown


def planners() -> list[psutil.Process]:
    """Return the processes that plan the streams of this process's session."""
    children = psutil.Process().children(recursive=True)
    return [
        child for child in children if any("python_streaming_source_runner" in each for each in _line(child))
    ]


def _line(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except psutil.NoSuchProcess:
        return []
