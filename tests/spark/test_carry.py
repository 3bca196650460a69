"""Rows that are made of rows that were read carry on their trail, and the headers that the chain names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F  # noqa: N812 - as everyone who uses Spark writes it

from headerware import Chain, ConfigError, Headers
from headerware.interceptors import Trail, read_trail
from headerware.spark_bridge import decode, encode, keep_headers
from headerware.spark_bridge.frames.schema import HEADERS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CHAIN = Chain([Trail(service="job")], carry=["tenant"])
FRAME = "topic string, key binary, value binary, headers array<struct<key:string,value:binary>>"


def headers_by_value(frame: DataFrame) -> dict[bytes, Headers]:
    return {
        bytes(row.value): Headers(
            [(name, None if value is None else bytes(value)) for name, value in row.headers]
        )
        for row in frame.collect()
    }


@pytest.fixture
def read(spark: SparkSession) -> DataFrame:
    """Return a frame as it was read, with a row that has headers, and one that has none."""
    shop = Chain([Trail(service="shop")])
    rows: list[Any] = [
        ("in", b"k", b"1", [("tenant", b"north"), ("other", b"1")]),
        ("in", b"k", b"2", None),
    ]
    return decode(
        encode(spark.createDataFrame(rows, FRAME), shop, job="tea"), Chain([Trail(service="job")]), job="job"
    )


def made_anew(frame: DataFrame, headers: Any = None) -> DataFrame:
    """Return new rows that have nothing of the old ones but their values."""
    own = F.lit(None).cast(HEADERS) if headers is None else headers
    return frame.select(F.lit("out").alias("topic"), "value", own.alias("headers"), "carried_from")


class TestKeepHeaders:
    def test_rows_continue_the_trail_and_have_the_named_headers(self, read: DataFrame) -> None:
        frame = encode(made_anew(keep_headers(read)), CHAIN, job="job")
        assert "carried_from" not in frame.columns
        found = headers_by_value(frame)
        assert found[b"1"].names() == ("tenant", "hw.trail")
        assert found[b"2"].names() == ("hw.trail",)
        for headers in found.values():
            first, second = read_trail(headers)
            assert (first.by_whom, first.produced_into_topic) == ("shop/tea", "in")
            assert (second.by_whom, second.read_from_topic) == ("job/job", "in")
            assert second.produced_into_topic == "out"

    def test_what_a_row_has_itself_wins(self, read: DataFrame) -> None:
        own = F.array(F.struct(F.lit("Tenant").alias("key"), F.lit(b"south").alias("value")))
        found = headers_by_value(encode(made_anew(keep_headers(read), own), CHAIN, job="job"))
        assert found[b"1"].names() == ("Tenant", "hw.trail")

    def test_is_off_with_the_option(self, read: DataFrame) -> None:
        chain = Chain([Trail(service="job")], carry=False)
        found = headers_by_value(encode(made_anew(keep_headers(read)), chain, job="job"))
        assert [len(read_trail(headers)) for headers in found.values()] == [1, 1]

    def test_a_column_of_another_type_is_refused(self, read: DataFrame) -> None:
        with pytest.raises(ConfigError, match="expected array") as caught:
            encode(read.withColumn("carried_from", F.lit("text")), CHAIN)
        assert caught.value.path == "column carried_from"
