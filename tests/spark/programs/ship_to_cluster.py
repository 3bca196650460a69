"""A driver whose executors have only what is shipped to them: rows go through a chain there and back.

    python ship_to_cluster.py TOLD

TOLD is JSON: ``master``; ``writing`` and ``reading``, the paths of chains; and what to ship by
``addArtifacts``: ``pyfile`` and ``archive``, if they are given. The last line that it prints is JSON.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from headerware.spark_bridge.decoding import decode
from headerware.spark_bridge.encoding import encode

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa

COLUMNS = "topic string, key binary, value binary, headers array<struct<key string, value binary>>"
told = json.loads(sys.argv[1])


def python(_: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
    import pyarrow as pa  # noqa: PLC0415 - runs on the executor

    yield pa.RecordBatch.from_pydict({"python": [sys.executable]})


builder = SparkSession.builder.master(told["master"]).appName("ship-to-cluster")
builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
spark = builder.config("spark.ui.enabled", "false").config("spark.executor.memory", "512m").getOrCreate()
spark.sparkContext.setLogLevel("OFF")
for kind in ("pyfile", "archive"):
    if kind in told:
        spark.addArtifacts(told[kind], **{kind: True})
plain = spark.createDataFrame([("t", b"k", b'{"iata": "00M", "state": "MS"}' * 20, [])] * 4, COLUMNS)
wire = encode(plain.repartition(2), told["writing"], job="ship").collect()
rows = [(row.topic, row.key, row.value, row.headers, 0, offset) for offset, row in enumerate(wire)]
frame = spark.createDataFrame(rows, f"{COLUMNS}, partition int, offset long").repartition(2)
read = decode(frame, told["reading"], verified=True, job="ship").collect()
found = {
    "python": spark.range(1).mapInArrow(python, "python string").collect()[0].python,
    "wire": [[name for name, _ in row.headers] for row in wire],
    "sizes": [len(row.value) for row in wire],
    "values": [bytes(row.value).decode() for row in read],
    "signers": sorted({row.verified.key_id for row in read if row.verified}),
}
spark.stop()
sys.stdout.write(json.dumps(found) + "\n")
