"""A driver whose queries, all over one topic, stop in their second batch, each at a point of its own.

python stop_at_points.py SERVERS TOPIC FOLDER MAX_BYTES

Query POINT writes to topic TOPIC-POINT. What happens shows in FOLDER: ``POINT.there`` when the query is at
its point, ``POINT.done`` when it is through, ``POINT.progress`` with a line a batch. Two queries go on when
``POINT.go`` is there: ``worker`` by killing its Python worker, ``task`` by an error. The others wait to be
killed with the driver.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

from headerware import Chain
from headerware.interceptors import Dedup, Slice
from headerware.spark_bridge import BatchProgress, configure, foreach_batch, kafka_sink, kafka_source
from headerware.spark_bridge.batches.ledger import Ledger

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

    from headerware import Record
    from headerware.spark_bridge.batches.sinks import Batch, Sink

DRIVER_POINTS = ("begun", "decoded", "rows", "sink", "written", "committed")
TASK_POINTS = ("worker", "task")
STOP_BATCH = 1
STOP_AT = b"small-036"
DEADLINE_S = 400.0

servers, source, folder_name, max_bytes = sys.argv[1:]
folder = Path(folder_name)


def stop(point: str) -> None:
    (folder / f"{point}.there").touch()
    threading.Event().wait()


class AtRecord:
    """An interceptor on the executors that acts on one record, the first time that it comes."""

    def __init__(self, folder: str, point: str, name: bytes, deadline_s: float) -> None:
        self.there, self.go = f"{folder}/{point}.there", f"{folder}/{point}.go"
        self.point, self.name, self.deadline_s = point, name, deadline_s

    def on_send(self, record: Record) -> Record:
        if record.value.startswith(self.name) and not os.path.exists(self.there):  # noqa: PTH110 - it travels
            os.close(os.open(self.there, os.O_CREAT))
            deadline = time.monotonic() + self.deadline_s
            while not os.path.exists(self.go) and time.monotonic() < deadline:  # noqa: PTH110 - as above
                time.sleep(0.02)
            if self.point == "worker":
                os.kill(os.getpid(), signal.SIGKILL)
            raise RuntimeError("this task fails once")
        return record


class StoppingSink:
    """Kafka's sink, with a stop before and one after."""

    def __init__(self, sink: Sink, point: str) -> None:
        self.sink, self.point = sink, point

    def write(self, frame: DataFrame, batch: Batch) -> None:
        if self.point == "rows" and batch.id == STOP_BATCH:
            stop(self.point)
        self.sink.write(frame, batch)
        if self.point == "written" and batch.id == STOP_BATCH:
            stop(self.point)


def stopping(method: Callable[..., Any], point: str, *, after: bool) -> Callable[..., Any]:
    """Wrap a method of the ledger, which knows its query by its folder."""

    def stopped(ledger: Ledger, batch: int, *args: Any, **kwargs: Any) -> Any:
        is_here = batch == STOP_BATCH and f"/{point}/headerware/" in ledger._storage.path()
        if is_here and not after:
            stop(point)
        found = method(ledger, batch, *args, **kwargs)
        if is_here:
            stop(point)
        return found

    return stopped


def note(point: str, progress: BatchProgress) -> None:
    with (folder / f"{point}.progress").open("a") as lines:
        lines.write(json.dumps([progress.batch, progress.skipped, progress.replay, progress.waiting]) + "\n")
    if point == "committed" and progress.batch == STOP_BATCH:
        stop(point)


def started(spark: SparkSession, point: str) -> Any:
    steps = [Dedup(), Slice(max_bytes=int(max_bytes))]
    if point in {"sink", *TASK_POINTS}:
        writing = Chain([AtRecord(str(folder), point, STOP_AT, DEADLINE_S), *steps])
    else:
        writing = Chain(steps)
    options = {"kafka.bootstrap.servers": servers, "topic": f"{source}-{point}"}
    checkpoint = str(folder / point)
    function = foreach_batch(
        Chain(steps),
        StoppingSink(kafka_sink(options, chain=writing), point),
        checkpoint=checkpoint,
        on_progress=lambda progress: note(point, progress),
    )
    reading = {"kafka.bootstrap.servers": servers, "subscribe": source, "startingOffsets": "earliest"}
    stream = kafka_source(spark.readStream, {**reading, "maxOffsetsPerTrigger": "20"})
    writer = stream.writeStream.foreachBatch(function).option("checkpointLocation", checkpoint)
    return writer.trigger(availableNow=True).start()


Ledger.begin = stopping(Ledger.begin, "begun", after=True)  # type: ignore[method-assign]  # to stop there
Ledger.leave = stopping(Ledger.leave, "decoded", after=False)  # type: ignore[method-assign]  # to stop there

builder = configure(SparkSession.builder.master("local[4,4]").appName("stop-at-points"))
for key, value in {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # To compile plans for twenty rows takes longer than to run them.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # The tasks' records must be on the wire when one of them stops, and not in a buffer.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "5",
    "spark.buffer.size": "1024",
}.items():
    builder.config(key, value)
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("OFF")
gateway: Any = spark.sparkContext._gateway
(folder / "jvm").write_text(str(gateway.proc.pid))
queries = {point: started(spark, point) for point in (*TASK_POINTS, *DRIVER_POINTS)}
for point in TASK_POINTS:
    queries[point].awaitTermination()
    (folder / f"{point}.done").touch()
for point in DRIVER_POINTS:
    queries[point].awaitTermination()
sys.exit("a query went past the point where it was to stop")
