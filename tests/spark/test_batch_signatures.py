"""Rows that tasks sign together, each of which verifies alone."""

from __future__ import annotations

from base64 import b64decode
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F  # noqa: N812 - as everyone who uses Spark writes it

from headerware import Chain, Context, Record
from headerware.interceptors import Sign
from headerware.keyring import with_new_key
from headerware.keyring.writing import edit_keyring
from headerware.spark_bridge import decode, encode

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

RECORDS = 2_000
SIGNATURE_BYTES = 64


@pytest.mark.one_spark
def test_tasks_sign_batches_that_services_and_tasks_verify(spark: SparkSession, tmp_path: Path) -> None:
    keyring = str(tmp_path / "keys.json")
    edit_keyring(keyring, lambda keys: with_new_key(keys, "test", "ed25519"), create=True)
    chain = Chain([Sign(keyring=keyring, key_id="test", batch_records=256, cluster="spark")])
    number = spark.range(RECORDS, numPartitions=2)
    text = F.concat(F.lit("record "), F.col("id").cast("string")).cast("binary")
    encoded = encode(number.select(F.lit("orders").alias("topic"), text.alias("value"), "id"), chain)
    signed = encoded.withColumns({"partition": F.lit(0), "offset": F.col("id")}).drop("id").cache()
    rows = signed.collect()
    layouts = [b64decode(bytes(row.headers[-1].value), validate=True) for row in rows]
    assert {layout[0] for layout in layouts} == {2}
    assert len({layout[-SIGNATURE_BYTES:] for layout in layouts}) == 8  # of 1,000 rows in each task

    session = chain.open(Context(side="consumer"))
    for row in rows[::-7]:
        headers = [(header.key, bytes(header.value)) for header in row.headers]
        (read,) = session.consume(
            [Record("orders", bytes(row.value), headers=headers, partition=0, offset=row.offset)]  # type: ignore[arg-type]
        )
        assert read.verified is not None
    back = decode(signed, chain)
    assert back.where("cast(value as string) = concat('record ', offset)").count() == RECORDS
    signed.unpersist()
