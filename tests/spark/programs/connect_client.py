"""A client of Spark Connect: do one piece of work with the bridge on a server, and print what came of it.

It runs in a process of its own, because a process has either classic sessions or Connect's.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.errors.exceptions.connect import SparkConnectException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom

from headerware import Chain, ConfigError
from headerware.interceptors import Audit, Compress, Dedup, Lineage, Serialize, Sign, Slice, Trail
from headerware.serdes import Json
from headerware.spark_bridge import (
    KafkaAdmin,
    decode,
    encode,
    foreach_batch,
    functions,
    kafka_sink,
    kafka_source,
    split_failures,
    writer_sink,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headerware.spark_bridge import BatchProgress
    from headerware.spark_bridge.batches.sinks import Batch, Sink

MAX_BYTES: Final = 2_000
START_S: Final = 300
CUTTING: Final = Chain([Trail(service="writer"), Dedup(), Slice(max_bytes=MAX_BYTES)])
READING: Final = Chain([Trail(service="spark"), Dedup(), Compress(), Slice(max_bytes=MAX_BYTES)])


def kafka(given: dict[str, Any]) -> dict[str, str]:
    """Return the options of a source or sink."""
    return {"kafka.bootstrap.servers": given["servers"]}


def frames(spark: SparkSession, given: dict[str, Any]) -> dict[str, Any]:
    """Decode a topic of slices in a batch, use the columns and SQL, and write the rows to another topic."""
    read = kafka_source(spark.read, {**kafka(given), "subscribe": given["topic"]})
    decoded = decode(read, READING)
    functions.register_functions(spark)
    decoded.createOrReplaceTempView("decoded")
    by_sql = spark.sql("SELECT hw_trail(headers)[0].by_whom, map_keys(hw_headers_map(headers)) FROM decoded")
    encoded = encode(
        decoded.withColumn("topic", F.lit(given["target"])), CUTTING, identity=["topic", "offset"]
    )
    kept = ["topic", "key", "value", "headers"]
    encoded.select(*kept).write.format("kafka").options(**kafka(given)).save()
    columns = decoded.select(
        functions.trail()[0]["by_whom"], functions.header("note").cast("string"), F.length("value")
    )
    return {
        "columns": sorted(map(list, columns.collect()), key=str),
        "sql": sorted(map(list, by_sql.collect()), key=str),
        "slices": encoded.count(),
    }


def protected(spark: SparkSession, given: dict[str, Any]) -> dict[str, Any]:
    """Decode signed rows, of which one was forged, and rows of JSON."""
    read = kafka_source(spark.read, {**kafka(given), "subscribe": given["topic"]})
    chain = Chain([Sign(keyring=given["keyring"])])
    decoded = decode(read, chain, verified=True, failures="route").persist()
    good, dead_letters = split_failures(decoded)
    typed = decode(
        kafka_source(spark.read, {**kafka(given), "subscribe": given["typed"]}),
        Chain([Serialize(value=Json())]),
        value="name string, count bigint",
    )
    return {
        "verified": sorted(
            map(list, good.select("verified.key_id", F.col("value").cast("string")).collect())
        ),
        "dead_letters": sorted(map(list, dead_letters.select("topic", "step", "error").collect())),
        "typed": sorted(map(list, typed.select("value.name", "value.count").collect())),
    }


def stream(spark: SparkSession, given: dict[str, Any]) -> dict[str, Any]:
    """Run a stream with slices over batches, repeats and refused rows to the end of its topic."""
    options = {**kafka(given), "subscribe": given["topic"], "startingOffsets": "earliest"}
    source = kafka_source(spark.readStream, {**options, "maxOffsetsPerTrigger": given.get("batch", 1_000)})
    sink = kafka_sink({**kafka(given), "topic": given["target"]}, CUTTING)
    work = foreach_batch(
        READING,
        Stopping(sink, given["stop"], given.get("jvm")) if "stop" in given else sink,
        checkpoint=given["checkpoint"],
        dead_letters=kafka_sink(kafka(given)),
        on_progress=partial(_note, given["progress"]),
        job="connect",
    )
    return _ended(source.writeStream.foreachBatch(work), given["checkpoint"])


def counted(spark: SparkSession, given: dict[str, Any]) -> dict[str, Any]:
    """Run an audited stream whose sink computes its frame twice, and at last a part of it."""
    options = {**kafka(given), "subscribe": given["topic"], "startingOffsets": "earliest"}
    work = foreach_batch(
        Chain([Compress(), Audit(audit_topic=given["reports"])]),
        partial(_twice, sink=given["target"]),
        checkpoint=given["checkpoint"],
        audit_reports=kafka_sink(kafka(given)),
        on_progress=partial(_note, given["progress"]),
    )
    source = kafka_source(spark.readStream, options)
    return _ended(source.writeStream.foreachBatch(work), given["checkpoint"])


def _twice(frame: DataFrame, batch_id: int, *, sink: str) -> None:
    """Write a frame, and compute a part of it afterwards."""
    frame.write.mode("overwrite").parquet(sink)
    frame.head(1)


def refused(spark: SparkSession, given: dict[str, Any]) -> dict[str, Any]:
    """Run queries that cannot work, and return the reasons."""
    options = {**kafka(given), "subscribe": given["topic"], "startingOffsets": "earliest"}
    source = kafka_source(spark.readStream, options)
    elsewhere = foreach_batch(READING, _nothing, checkpoint=f"{given['checkpoint']}-other")
    named = Lineage(service="orders", dataset_namespace="kafka://broker:9092")
    lineage = foreach_batch(Chain([named]), _nothing, checkpoint=f"{given['checkpoint']}-2")
    said = {
        "elsewhere": _ended(source.writeStream.foreachBatch(elsewhere), given["checkpoint"])["error"],
        "lineage": _ended(source.writeStream.foreachBatch(lineage), f"{given['checkpoint']}-2")["error"],
    }
    for name, call in (
        ("called", lambda: elsewhere(spark.range(1), 0)),
        ("topic", lambda: kafka_source(spark.read, {**kafka(given), "subscribe": "no-such-topic"})),
        (
            "jaas",
            lambda: KafkaAdmin(spark, {**kafka(given), "kafka.sasl.jaas.config": "my.Module required;"}),
        ),
    ):
        try:
            call()
        except ConfigError as error:
            said[name] = str(error)
    return said


def files(spark: SparkSession, given: dict[str, Any]) -> dict[str, Any]:
    """Write the rows of a stream into a table of files, without dead letters."""
    options = {**kafka(given), "subscribe": given["topic"], "startingOffsets": "earliest"}
    work = foreach_batch(
        Chain([Compress()]),
        writer_sink(partial(_parquet, given["target"])),
        checkpoint=given["checkpoint"],
        on_progress=partial(_note, given["progress"]),
    )
    ended = _ended(
        kafka_source(spark.readStream, options).writeStream.foreachBatch(work), given["checkpoint"]
    )
    return {**ended, "rows": spark.read.parquet(given["target"]).count()}


def _parquet(folder: str, writer: Any, batch: Any) -> None:
    writer.mode("overwrite").parquet(f"{folder}/batch={batch.id}")


def _nothing(frame: DataFrame, batch_id: int) -> None:
    pass


def _note(file: str, progress: BatchProgress) -> None:
    with Path(file).open("a") as noted:
        states = [progress.batch, progress.skipped, progress.replay, progress.waiting]
        noted.write(json.dumps([*states, progress.decoded, progress.encoded, str(progress)]) + "\n")


class Stopping:
    """A sink that kills processes once batch 1 is written, and before it is committed.

    They are the server's worker and, if the server's pid is given, the server and the client before it.
    """

    def __init__(self, sink: Sink, mark: str, jvm: int | None) -> None:
        self.sink, self.mark = sink, Path(mark)
        self.others = () if jvm is None else (jvm, os.getpid())

    def write(self, frame: DataFrame, batch: Batch) -> None:
        """Write, and stop the first time."""
        self.sink.write(frame, batch)
        if batch.id == 1 and not self.mark.exists():
            self.mark.touch()
            for process in (*self.others, os.getpid()):
                os.kill(process, signal.SIGKILL)


def _ended(writer: Any, checkpoint: str) -> dict[str, Any]:
    query = _started(writer.option("checkpointLocation", checkpoint).trigger(availableNow=True))
    try:
        query.awaitTermination(240)
        failure = query.exception()
    except Exception as error:  # noqa: BLE001 - whatever the query ended with
        failure = error
    return {"error": None if failure is None else str(failure)}


def _started(writer: Any) -> Any:
    """Start a query; on a busy machine the server's worker may take longer than the 10 s that Spark waits."""
    deadline = time.monotonic() + START_S
    while True:
        try:
            return writer.start()
        except SparkConnectException as error:
            if "failed to connect back" not in str(error) or time.monotonic() > deadline:
                raise


def main() -> None:
    """Do the work that the first argument names, with the JSON of the third, on the server of the second."""
    work, url, given = sys.argv[1:]
    spark = SparkSession.builder.remote(url).getOrCreate()
    print(json.dumps(globals()[work](spark, json.loads(given))), flush=True)  # noqa: T201 - the result
    os._exit(0)  # newer clients ask the server for minutes as they end


if __name__ == "__main__":
    main()
