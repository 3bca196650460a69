"""A driver whose queries append one topic to Delta and Iceberg tables.

python append_to_tables.py SERVERS TOPIC FOLDER stop      stop in the second batch, and be killed
python append_to_tables.py SERVERS TOPIC FOLDER finish    go on from the checkpoints, and print the result

The name of a query has the format and the point where it stops: ``written`` when the table has the batch,
and the ledger does not; ``writing`` in the middle of the write. ``iceberg-expired`` is as
``iceberg-written``, and its table loses its snapshots before the query goes on. ``letters`` has dead letters
of both of its chains.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from headerware import Chain, InterceptorError
from headerware.spark_bridge import configure, foreach_batch, kafka_sink, kafka_source, table_sink

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from headerware import Record
    from headerware.spark_bridge import BatchProgress
    from headerware.spark_bridge.batches.sinks import Batch, Sink

PACKAGES = ("io.delta:delta-spark_2.13:4.0.0", "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.10.1")
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.jars.packages": ",".join(PACKAGES),
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension,"
    "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
    "spark.sql.catalog.lake.type": "hadoop",
    # To compile plans for twenty rows, and to cut them into 50 tasks, takes longer than to run them.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.sql.shuffle.partitions": "1",
}
STOP_BATCH = 1
BATCH = 20
DEADLINE_S = 300.0

servers, topic, folder_name, mode = sys.argv[1:]
folder = Path(folder_name)
TABLES = {
    "delta-written": "written",
    "delta-writing": f"{folder}/tables/writing",
    "iceberg-written": "lake.db.written",
    "iceberg-writing": "lake.db.writing",
    "iceberg-expired": "lake.db.expired",
}


def stopping(batches: Iterable[pa.RecordBatch], there: str) -> Iterator[pa.RecordBatch]:
    """Pass rows on, and stop after the first ones."""
    for batch in batches:
        yield batch
        Path(there).touch()
        time.sleep(DEADLINE_S)


class StoppingSink:
    """A table's sink, with a stop in the second batch."""

    def __init__(self, sink: Sink, query: str) -> None:
        self.sink, self.point, self.there = sink, query.partition("-")[2], str(folder / f"{query}.there")

    def write(self, frame: DataFrame, batch: Batch) -> None:
        stops = batch.id == STOP_BATCH and mode == "stop"
        if stops and self.point == "writing":
            there = self.there
            frame = frame.mapInArrow(lambda batches: stopping(batches, there), frame.schema)
        self.sink.write(frame, batch)
        if stops:
            Path(self.there).touch()
            time.sleep(DEADLINE_S)


class Refusing:
    """An interceptor that refuses one record as it is read, and another as it is sent."""

    def on_consume(self, record: Record) -> Record:
        if record.value == b"n-03":
            raise InterceptorError("refused as it is read")
        return record

    def on_send(self, record: Record) -> Record:
        if record.value == b"n-04":
            raise InterceptorError("refused as it is sent")
        return record


def started(spark: SparkSession, query: str, function: Any) -> Any:
    reading = {"kafka.bootstrap.servers": servers, "subscribe": topic, "startingOffsets": "earliest"}
    stream = kafka_source(spark.readStream, {**reading, "maxOffsetsPerTrigger": str(BATCH)})
    writer = stream.writeStream.foreachBatch(function).option("checkpointLocation", str(folder / query))
    return writer.trigger(availableNow=True).start()


def started_table(spark: SparkSession, query: str, progress: list[BatchProgress]) -> Any:
    sink = table_sink(TABLES[query], format="delta" if "delta" in query else "iceberg")
    function = foreach_batch(
        Chain([]), StoppingSink(sink, query), checkpoint=folder / query, on_progress=progress.append
    )
    return started(spark, query, function)


def rows(spark: SparkSession, table: str) -> list[str]:
    if "/" in table:
        frame = spark.read.format("delta").load(table)
    else:
        spark.catalog.refreshTable(table)  # the queries' sessions have caches of their own
        frame = spark.table(table)
    return sorted(row[0] for row in frame.selectExpr("cast(value as string)").collect())


def expire_snapshots(spark: SparkSession, table: str) -> None:
    """Let another job append to the table, and expire all snapshots but its own."""
    spark.table(table).limit(0).writeTo(table).append()
    name = table.removeprefix("lake.")
    spark.sql(
        f"call lake.system.expire_snapshots(table => '{name}', older_than => now(), retain_last => 1)"
    ).collect()


def restored(spark: SparkSession, query: str) -> str:
    """Return why the query does not go on, and do what it says."""
    try:
        started_table(spark, query, []).awaitTermination()
    except StreamingQueryException as error:
        found = str(error)
    else:
        found = "no error"
    first, last = STOP_BATCH * BATCH, STOP_BATCH * BATCH + BATCH - 1
    repeated = f"source.offset between {first} and {last}"
    spark.sql(f"delete from {TABLES[query]} where {repeated}")  # noqa: S608 - our own names
    (ledger,) = (folder / query / "headerware").iterdir()
    for attempt in (ledger / "begun").glob(f"{STOP_BATCH:012d}-*"):
        attempt.unlink()
    return found


def finish(spark: SparkSession) -> dict[str, Any]:
    # This session's catalog is in memory, and has no names of the killed driver.
    spark.sql(f"create table written using delta location '{folder}/warehouse/written'")
    expire_snapshots(spark, TABLES["iceberg-expired"])
    error = restored(spark, "iceberg-expired")
    progress: dict[str, list[BatchProgress]] = {query: [] for query in TABLES}
    queries = [started_table(spark, query, progress[query]) for query in TABLES]
    letters = foreach_batch(
        Chain([Refusing()]),
        kafka_sink({"kafka.bootstrap.servers": servers, "topic": f"{topic}-out"}, Chain([Refusing()])),
        dead_letters=table_sink("letters", format="delta"),
        checkpoint=folder / "letters",
    )
    queries.append(started(spark, "letters", letters))
    for query in queries:
        query.awaitTermination()
    return {
        "error": error,
        "rows": {query: rows(spark, table) for query, table in {**TABLES, "letters": "letters"}.items()},
        "replays": {
            query: [(each.batch, each.decoded["records_in"]) for each in batches if each.replay]
            for query, batches in progress.items()
        },
    }


builder = SparkSession.builder.master("local[4]").appName("tables")
for key, value in {**SETTINGS, "spark.sql.warehouse.dir": f"{folder}/warehouse"}.items():
    builder.config(key, value)
builder.config("spark.sql.catalog.lake.warehouse", f"{folder}/lake")
spark = configure(builder).getOrCreate()
spark.sparkContext.setLogLevel("OFF")
if mode == "finish":
    sys.stdout.write(json.dumps(finish(spark)) + "\n")
    sys.exit()
for query in TABLES:
    started_table(spark, query, [])
deadline = time.monotonic() + DEADLINE_S
while not all((folder / f"{query}.there").exists() for query in TABLES):
    failed = [query.exception() for query in spark.streams.active if query.exception()]
    if failed or time.monotonic() > deadline:
        sys.exit(f"the queries did not come to their points: {failed}")
    time.sleep(0.1)
gateway: Any = spark.sparkContext._gateway
for pid in (gateway.proc.pid, os.getpid()):
    os.kill(pid, signal.SIGKILL)
