"""The column ``verified``: who signed each row."""

from __future__ import annotations

import datetime as dt
import time
from typing import TYPE_CHECKING, Any

import pytest

from headerware import Chain, ConfigError, Context, Record
from headerware.interceptors import Sign, Slice
from headerware.keyring import with_new_key
from headerware.keyring.writing import edit_keyring
from headerware.spark_bridge import decode, split_failures
from headerware.spark_bridge.frames.schema import HEADERS

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

COLUMNS = (
    f"topic string, key binary, value binary, headers {HEADERS.simpleString()}, partition int, offset long"
)


@pytest.fixture
def keyring(tmp_path: Path) -> str:
    path = str(tmp_path / "keys.json")
    edit_keyring(path, lambda keys: with_new_key(keys, "shop", "ed25519"), create=True)
    return path


def frame(spark: SparkSession, records: list[Record]) -> DataFrame:
    rows = [
        (each.topic, each.key, each.value, list(each.headers), 0, offset)
        for offset, each in enumerate(records)
    ]
    return spark.createDataFrame(rows, COLUMNS)


def sent(chain: Chain, *records: Record) -> list[Record]:
    with chain.open(Context(side="producer", cluster_id=lambda: "eu")) as session:
        return session.send(records)


def test_says_who_signed_each_row(spark: SparkSession, keyring: str) -> None:
    sign = Sign(keyring=keyring, key_id="shop", require="off")
    before = dt.datetime.now(dt.UTC)
    records = [*sent(Chain([sign]), Record("orders", b"1"), Record("orders", b"2")), Record("orders", b"3")]
    found = decode(frame(spark, records), Chain([sign]), verified=True, cluster_id="eu").orderBy("offset")
    first, second, unsigned = (row.verified for row in found.collect())
    assert (first.key_id, first.key_version, first.cluster, first.topic) == ("shop", 1, "eu", "orders")
    assert before - dt.timedelta(seconds=1) < first.signed_at.astimezone(dt.UTC)
    assert first.signed_at.timestamp() <= time.time()
    assert (first.subject, first.issuer, first.uncovered) == ("", "", [])
    assert len(first.thumbprint) == 43
    assert (first.producer, int(second.sequence)) == (second.producer, int(first.sequence) + 1)
    assert unsigned is None


def test_is_null_for_a_row_that_is_refused(spark: SparkSession, keyring: str) -> None:
    chain = Chain([Sign(keyring=keyring, key_id="shop")])
    (good,) = sent(chain, Record("orders", b"1"))
    given = frame(spark, [good, good.replace(value=b"2")])
    found = decode(given, chain, verified=True, failures="route", cluster_id="eu")
    rows = {row.offset: row for row in found.collect()}
    assert (rows[0].verified.key_id, rows[0].failure) == ("shop", None)
    assert (rows[1].verified, rows[1].failure.step) == (None, "sign")
    clean, _ = split_failures(found)
    assert [row.verified.key_id for row in clean.collect()] == ["shop"]


def test_of_a_message_in_slices_is_that_of_its_slices(spark: SparkSession, keyring: str) -> None:
    chain = Chain([Slice(max_bytes=2_000), Sign(keyring=keyring, key_id="shop")])
    records = sent(chain, Record("orders", b"x" * 5_000, b"k"))
    assert len(records) > 1
    (row,) = decode(frame(spark, records), chain, verified=True, cluster_id="eu").collect()
    assert (len(row.value), row.verified.key_id) == (5_000, "shop")


def test_is_not_there_unless_it_is_asked_for(spark: SparkSession, keyring: str) -> None:
    chain = Chain([Sign(keyring=keyring, key_id="shop")])
    given = frame(spark, sent(chain, Record("orders", b"1")))
    assert "verified" not in decode(given, chain).columns
    named: Any = given.withColumnRenamed("key", "verified")
    with pytest.raises(ConfigError, match="column verified: the bridge has a column of this name"):
        decode(named, chain, verified=True)
