"""Encode and decode with keys, in a session that logs as much as it can; then tell where to look.

    python with_keys.py FOLDER

The folder has chain.toml and keys.json. What Spark would clear away at the end is copied to FOLDER/kept.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everyone who uses Spark writes it

from headerware.spark_bridge import decode, encode
from headerware.spark_bridge.chain_source import TaskSpec, chain_source
from headerware.spark_bridge.executors.shipping import shipped

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.eventLog.enabled": "true",
    "spark.eventLog.compress": "false",
    "spark.eventLog.rolling.enabled": "false",
    "spark.eventLog.logStageExecutorMetrics": "true",
    "spark.python.worker.reuse": "true",
    # Files stay until the session stops.
    "spark.cleaner.referenceTracking": "false",
    # Every function goes through a broadcast, and nothing is hidden by compression.
    "spark.broadcast.UDFCompressionThreshold": "16",
    "spark.broadcast.compress": "false",
    "spark.shuffle.compress": "false",
    "spark.shuffle.spill.compress": "false",
}


def session(folder: Path) -> SparkSession:
    builder = SparkSession.builder.master("local[1]").appName("with-keys")
    for name in ("events", "local", "kept"):
        (folder / name).mkdir()
    places = {
        "spark.eventLog.dir": (folder / "events").as_uri(),
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    for key, value in {**SETTINGS, **places}.items():
        builder.config(key, value)
    return builder.getOrCreate()  # no configure, which would add the connector


def run(spark: SparkSession, folder: Path, form: str, chain: str | dict[str, str]) -> None:
    plain = spark.range(20).select(
        F.lit("orders").alias("topic"),
        F.col("id").cast("string").alias("key"),
        F.expr("cast(repeat('value ', 500) as binary)").alias("value"),
    )
    places = {"partition": F.lit(0), "offset": F.monotonically_increasing_id()}
    wire = encode(plain, chain, identity=["key"]).withColumns(places)
    stored = str(folder / f"wire-{form}")
    wire.write.parquet(stored)
    read = spark.read.parquet(stored)
    decoded = decode(read, chain)
    assert decoded.count() == 20
    broken = decode(read.withColumn("value", F.expr("cast('evil' as binary)")), chain)
    try:
        broken.count()
    except PySparkException as error:
        (folder / f"error-{form}").write_text(str(error), encoding="utf-8")
    plans = [frame._jdf.queryExecution().toString() for frame in (wire, decoded, broken)]
    (folder / f"plans-{form}").write_text("\n".join(plans), encoding="utf-8")
    spec = TaskSpec(
        source=chain_source(chain)[0], side="consumer", job="with-keys", schema=decoded.schema.json()
    )
    entry = "headerware.spark_bridge.executors.decoding:decode_rows"
    function = shipped(entry, spec, None, False)  # noqa: FBT003 - as the driver ships it
    (folder / f"function-{form}").write_bytes(cloudpickle.dumps(function))  # type: ignore[no-untyped-call]  # as pyspark has it


def main() -> None:
    folder = Path(sys.argv[1])
    spark = session(folder)
    path = str(folder / "chain.toml")
    run(spark, folder, "path", path)
    run(spark, folder, "mapping", {"headerware.config": path, "interceptors.trail.cluster": "here"})
    shutil.copytree(folder / "local", folder / "kept" / "local", dirs_exist_ok=True)
    spark.stop()


if __name__ == "__main__":
    main()
