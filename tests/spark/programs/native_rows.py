"""Encode and decode rows on Spark, and print a digest of them, and which native code executors have.

``native_rows.py KEYRING``: the keyring has a key with the id ``k``.
"""

from __future__ import annotations

import hashlib
import json
import sys
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom

from headerware import Chain
from headerware.core.native import native_module
from headerware.interceptors import Compress, Sign, Trail
from headerware.spark_bridge import decode, encode

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ROWS = 20_000


def found(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Say in each row which native code this process has."""
    for batch in batches:
        yield pa.RecordBatch.from_pydict({"found": [native_module()[1]] * batch.num_rows})


def main() -> None:
    """Run the program."""
    chain = Chain([Trail(), Compress(), Sign(keyring=sys.argv[1], key_id="k", require="enforce")])
    builder = SparkSession.builder.master("local[2]").appName("native rows")
    spark = builder.config("spark.ui.enabled", "false").getOrCreate()
    value = F.concat(F.lit("value " * 40), F.col("id").cast("string")).cast("binary")
    number = F.struct(F.lit("number").alias("key"), F.col("id").cast("string").cast("binary").alias("value"))
    plain = spark.range(ROWS).select(
        F.lit("orders").alias("topic"),
        F.col("id").cast("string").cast("binary").alias("key"),
        F.when(F.col("id") % 100 > 0, value).alias("value"),
        F.when(F.col("id") % 3 > 0, F.array(number)).alias("headers"),
        F.lit(0).alias("partition"),
        F.col("id").alias("offset"),
    )
    wire = encode(plain.drop("offset"), chain, job="job")
    sent = wire.withColumn("partition", F.lit(0)).withColumn("offset", F.monotonically_increasing_id())
    digest = F.when(F.col("offset") % 50 == 0, F.lit(b"forged")).otherwise(F.col("value"))
    rows = decode(sent.withColumn("value", digest), chain, failures="route", verified=True)
    shown = rows.select(
        F.col("key").cast("string").alias("key"),
        F.hex("value").alias("value"),
        # Values of our own headers have times in them, and in refused rows signatures.
        F.expr("transform(headers, each -> if(each.key like 'hw.%', each.key, string(each)))").alias(
            "headers"
        ),
        "verified.key_id",
        "failure.error",
    )
    lines = sorted(row.json for row in shown.select(F.to_json(F.struct("*")).alias("json")).collect())
    (executors,) = spark.range(1).mapInArrow(found, "found string").first() or ("",)
    digests = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    sys.stdout.write(json.dumps({"rows": len(lines), "digest": digests, "executors": executors}) + "\n")
    spark.stop()


if __name__ == "__main__":
    main()
