"""A driver on a standalone cluster, whose executors die or are slow at one record of each scenario.

    python on_cluster.py TOLD

TOLD is JSON: ``master``, ``servers``, ``source`` (a topic of two partitions), ``folder``, ``max_bytes``,
``batch`` (how many offsets a batch has in scenarios with several), ``others`` (how many records the tasks
write that do not come to the record at which the writing executor dies), ``before`` (how many rows its task
has before that record), and ``scenarios``, in their order.
A scenario writes to topic SOURCE-SCENARIO, and its result to FOLDER/SCENARIO.json. It notes in FOLDER what
happens at its record: ``NAME.there`` when an attempt is at the record for the first time, ``NAME.again`` when
a second one is. Scenario ``driver`` waits at its record, to be killed; when it is run again, it goes on.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import Consumer, TopicPartition
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from headerware import Chain, ConfigError
from headerware.interceptors import Audit, Dedup, Slice
from headerware.ops.compaction import Rule
from headerware.spark_bridge import configure, copy_topic, decode, foreach_batch, kafka_sink, kafka_source

if TYPE_CHECKING:
    from collections.abc import Callable

    from headerware import Record
    from headerware.spark_bridge import BatchProgress

DEADLINE_S: Final = 120.0
SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "512m",
    # What the first session sets, the next ones of this JVM have, too.
    "spark.speculation": "false",
    "spark.dynamicAllocation.enabled": "false",
    # To compile plans for twenty rows takes longer than to run them.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # The tasks' records must be on the wire when one of them stops, and not in a buffer.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "5",
    "spark.buffer.size": "1024",
}
SPECULATING: Final = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1",
    "spark.speculation.quantile": "0.5",
    "spark.locality.wait": "0s",
}
ALLOCATING: Final = {
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.timeout": "1s",
    "spark.dynamicAllocation.executorIdleTimeout": "1s",
    "spark.dynamicAllocation.minExecutors": "0",
    "spark.dynamicAllocation.maxExecutors": "2",
    "spark.executor.cores": "1",
}

told: Final = json.loads(sys.argv[1])
folder: Final = Path(told["folder"])
servers: Final[str] = told["servers"]


class AtRecord:
    """An interceptor on the executors that acts when its record comes for the first time.

    ``kill`` kills its executor: the JVM, the daemon of Python workers and this worker. ``wait`` waits to be
    killed with the driver. ``slow`` waits until a second attempt is at the record. ``both`` lets both wait
    until rows of both are on the wire.
    """

    def __init__(self, action: str, name: str, value: bytes) -> None:
        self.path, self.action, self.value = f"{folder}/{name}", action, value
        self.deadline_s = DEADLINE_S

    def see(self, record: Record) -> Record:
        if record.value is not None and record.value.startswith(self.value):
            try:
                os.close(os.open(f"{self.path}.there", os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                os.close(os.open(f"{self.path}.again", os.O_CREAT))
                if self.action == "both":
                    self._act()
            else:
                self._act()
        return record

    def _act(self) -> None:
        ends = {"kill": "go", "both": "go", "wait": "never", "slow": "again"}[self.action]
        deadline = time.monotonic() + self.deadline_s
        while not os.path.exists(f"{self.path}.{ends}") and time.monotonic() < deadline:  # noqa: PTH110 - it travels
            time.sleep(0.02)
        if self.action == "kill":
            daemon = os.getppid()
            with open(f"/proc/{daemon}/stat") as stat:  # noqa: PTH123 - as above
                jvm = int(stat.read().rpartition(")")[2].split()[1])
            for process in (jvm, daemon, os.getpid()):
                os.kill(process, signal.SIGKILL)


class OnConsume(AtRecord):
    def on_consume(self, record: Record) -> Record:
        return self.see(record)


class OnSend(AtRecord):
    def on_send(self, record: Record) -> Record:
        return self.see(record)


def session(**more: str) -> SparkSession:
    builder = configure(SparkSession.builder.master(told["master"]).appName("on-cluster"))
    for key, value in {**SETTINGS, **more}.items():
        builder.config(key, value)
    os.environ["PYSPARK_PYTHON"] = sys.executable  # installed on every node
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def executors(spark: SparkSession) -> int:
    """Return how many executors there are; the status has the driver, too."""
    jvm: Any = spark.sparkContext._jsc
    return int(jvm.sc().getExecutorMemoryStatus().size()) - 1


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(what)
        time.sleep(0.05)


def written(topic: str) -> int:
    """Return how many records a topic has."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "written"})
    try:
        ends = (consumer.get_watermark_offsets(TopicPartition(topic, number), 10)[1] for number in (0, 1))
        return sum(ends)
    finally:
        consumer.close()


def let_go(name: str, topic: str | None = None, more: int = 0) -> None:
    """Let an executor go on once it is at its record, and ``more`` rows before it are in a topic."""

    def watch() -> None:
        wait_until((folder / f"{name}.there").exists, f"{name} is not reached")
        if topic is not None:
            wait_until(lambda: written(topic) > told["others"] + more, f"too little is in {topic}")
        (folder / f"{name}.go").touch()

    threading.Thread(target=watch, daemon=True).start()


def frame(spark: SparkSession, *, is_stream: bool, **options: str) -> Any:
    reading = {"kafka.bootstrap.servers": servers, "subscribe": told["source"], "startingOffsets": "earliest"}
    return kafka_source(spark.readStream if is_stream else spark.read, {**reading, **options})


def chain(*first: AtRecord) -> Chain:
    return Chain([*first, Dedup(), Slice(max_bytes=told["max_bytes"])])


def decoded(spark: SparkSession, name: str, *hooks: AtRecord) -> None:
    """Decode the topic, and note the digests of the values that came."""
    rows = decode(frame(spark, is_stream=False), chain(*hooks)).select("value")
    rows.write.parquet(str(folder / f"{name}.parquet"))  # as Spark's committer leaves it
    found = spark.read.parquet(str(folder / f"{name}.parquet")).collect()
    note(name, values=[hashlib.sha256(row.value).hexdigest() for row in found])


def copied(
    spark: SparkSession,
    name: str,
    reading: Chain,
    writing: Chain | None,
    on_progress: Callable[[BatchProgress], None] = lambda _: None,
    **options: str,
) -> None:
    """Take the topic through ``foreachBatch`` into another one, and note the batches."""
    batches: list[Any] = []

    def keep(progress: BatchProgress) -> None:
        counts = {side: getattr(progress, side) for side in ("decoded", "encoded")}
        totals = {side: [found.get("records_in"), found.get("records_out")] for side, found in counts.items()}
        batches.append({"id": progress.batch, "replay": progress.replay, **totals})
        on_progress(progress)

    checkpoint = str(folder / name)
    sink = kafka_sink({"kafka.bootstrap.servers": servers, "topic": f"{told['source']}-{name}"}, writing)
    function = foreach_batch(reading, sink, checkpoint=checkpoint, on_progress=keep)
    writer = frame(spark, is_stream=True, **options).writeStream.foreachBatch(function)
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()
    note(name, batches=batches)


def note(name: str, **found: Any) -> None:
    (folder / f"{name}.json").write_text(json.dumps(found))


def killed_decode(spark: SparkSession) -> None:
    let_go("decode")
    decoded(spark, "decode", OnConsume("kill", "decode", b"small-030"))


def killed_write(spark: SparkSession) -> None:
    let_go("write", f"{told['source']}-write")
    copied(spark, "write", chain(), chain(OnSend("kill", "write", b"small-030")))


def killed_reassembly(spark: SparkSession) -> None:
    let_go("reassembly")
    copied(spark, "reassembly", chain(OnConsume("kill", "reassembly", b"large-050")), chain())


def slow_tasks(spark: SparkSession) -> None:
    decoded(spark, "slow-decode", OnConsume("slow", "slow-decode", b"small-030"))
    reading = [
        OnConsume("slow", "speculation-decode", b"small-030"),
        OnConsume("slow", "speculation-reassembly", b"large-050"),
    ]
    writing = OnSend("both", "speculation-write", b"small-031")
    let_go("speculation-write", f"{told['source']}-speculation", told["before"])
    copied(spark, "speculation", chain(*reading), chain(writing))
    copied(spark, "no-identities", Chain([]), None)
    function = foreach_batch(
        Chain([Audit()]),
        lambda *_: None,
        checkpoint=str(folder / "audit"),
        audit_reports=kafka_sink({"kafka.bootstrap.servers": servers}),
    )
    stream = frame(spark, is_stream=True).writeStream.foreachBatch(function)
    try:
        stream.option("checkpointLocation", str(folder / "audit")).start().awaitTermination()
    except StreamingQueryException as error:
        note("audit", error=str(error))
    try:
        copy_topic(
            spark, {"kafka.bootstrap.servers": servers}, told["source"], "-", Rule(header="h"), execute=True
        )
    except ConfigError as error:
        note("copy", error=str(error))


def idle_executors(spark: SparkSession) -> None:
    """Let the executors of each batch go before the next batch begins."""
    seen: list[int] = []

    def idle(_: BatchProgress) -> None:
        seen.append(executors(spark))
        wait_until(lambda: executors(spark) == 0, "an executor stays")

    copied(spark, "allocation", chain(), chain(), idle, maxOffsetsPerTrigger=told["batch"])
    note("executors", seen=seen)


def killed_driver(spark: SparkSession) -> None:
    writing = chain(OnSend("wait", "driver", b"small-030"))
    copied(spark, "driver", chain(), writing, maxOffsetsPerTrigger=told["batch"])


SCENARIOS: Final[dict[str, tuple[dict[str, str], Callable[[SparkSession], None]]]] = {
    "speculation": (SPECULATING, slow_tasks),
    "allocation": (ALLOCATING, idle_executors),
    "decode": ({}, killed_decode),
    "write": ({}, killed_write),
    "reassembly": ({}, killed_reassembly),
    "driver": ({}, killed_driver),
}


def main() -> None:
    spark, before = None, None
    for scenario in told["scenarios"]:
        settings, run = SCENARIOS[scenario]
        if spark is not None and settings != before:
            spark.stop()
        spark, before = session(**settings), settings
        run(spark)


if __name__ == "__main__":
    main()
