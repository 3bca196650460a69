"""Tasks verify the trails that services have signed, and sign their own entries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F  # noqa: N812 - as everyone who uses Spark writes it

from headerware import Record
from headerware.core.headers import Headers
from headerware.interceptors import prove_trail
from headerware.spark_bridge import decode, encode, keep_headers, proven_trail, trail
from headerware.spark_bridge.frames.schema import HEADERS
from tests.trails import ORDER, Hops

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "topic string, partition int, offset bigint, key binary, value binary, headers "


def frame(spark: SparkSession, records: list[Record]) -> DataFrame:
    rows = [
        (record.topic, 0, at, record.key, record.value, [(name, value) for name, value in record.headers])
        for at, record in enumerate(records)
    ]
    return spark.createDataFrame(rows, SCHEMA + HEADERS.simpleString())


def record_of(row: Any) -> Record:
    headers = [(each.key, None if each.value is None else bytes(each.value)) for each in row.headers]
    return Record(row.topic, bytes(row.value), bytes(row.key), Headers(headers))


@pytest.mark.one_spark
def test_tasks_verify_and_sign_trails(spark: SparkSession, tmp_path: Path) -> None:
    hops = Hops(tmp_path)
    orders = [hops.send("shop", ORDER.replace(value=b"%d" % number)) for number in range(4)]
    orders[2] = orders[2].replace(value=b"forged")
    chain = hops.chain("payment", require="enforce")
    read = decode(frame(spark, orders), chain, failures="route").cache()
    (refused,) = read.where("failure is not null").collect()
    assert (refused.offset, refused.failure.step) == (2, "trail")

    accepted = keep_headers(read.where("failure is null").drop("failure"))
    made = accepted.select(
        F.lit("paid").alias("topic"),
        "key",
        F.concat("value", F.lit(b", paid")).alias("value"),
        "carried_from",
    )
    sent = encode(made, chain, job="orders").cache()
    rows = sent.collect()
    assert len(rows) == 3
    for row in rows:
        proof = prove_trail(record_of(row), hops.public)
        assert ([hop.key_id for hop in proof.hops], proof.problem) == (["shop", "payment"], None)
        assert (proof.trail[-1].by_whom or "").startswith("payment/")
    shown_by = [
        [(hop.by_whom.partition("/")[0], hop.state, hop.key_id) for hop in row.trail]
        for row in sent.select(proven_trail(hops.public)).collect()
    ]
    assert shown_by == [[("shop", "proven", "shop"), ("payment", "proven", "payment")]] * 3
    changed = sent.withColumn("value", F.lit(b"forged")).select(proven_trail(hops.public))
    assert {tuple(hop.state for hop in row.trail) for row in changed.collect()} == {("proven", "broken")}
    shown = sent.select(trail()[0]["by_whom"].alias("first")).collect()
    assert {row.first for row in shown} == {"shop"}
    read.unpersist()
    sent.unpersist()
