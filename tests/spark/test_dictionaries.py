"""Spark writes and reads with a trained dictionary, from a folder and from a topic; so does a client."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

from headerware import Chain, Headers, Record
from headerware.dictionaries import FolderDictionaries, TopicDictionaries
from headerware.dictionaries.dictionary import encode_mark
from headerware.dictionaries.store import publish
from headerware.interceptors import Compress
from headerware.spark_bridge import decode, encode
from tests.airports import airports, trained

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from headerware.dictionaries import Dictionaries
    from tests.spark.conftest import Kafka

pytestmark = pytest.mark.broker

COLUMNS = "topic string, key binary, value binary, headers array<struct<key string, value binary>>"


@pytest.mark.parametrize("kind", ["folder", "topic"])
def test_spark_writes_and_reads_with_a_dictionary(
    spark: SparkSession, kafka: Kafka, tmp_path: Path, kind: str
) -> None:
    settings: Dictionaries = FolderDictionaries(path=str(tmp_path))
    if kind == "topic":
        settings = TopicDictionaries(
            servers=kafka.servers, topic=f"dictionaries-{uuid.uuid4().hex}", create=True
        )
    store = settings.open()
    publish(store, trained(), "airports")
    store.close()
    chain = Chain([Compress(dictionaries=settings)])
    values = airports()[:30]
    plain = spark.createDataFrame([("airports", b"k", value, []) for value in values], COLUMNS)
    wire = encode(plain, chain).collect()
    assert [[(name, value) for name, value in row.headers] for row in wire] == [
        [("hw.compress", bytearray(encode_mark(trained().id)))]
    ] * len(values)
    with chain.open() as session:
        sent = [
            Record(
                row.topic, bytes(row.value), bytes(row.key), Headers((n, bytes(v)) for n, v in row.headers)
            )
            for row in wire
        ]
        assert [record.value for record in session.consume(sent)] == values
    rows = [(row.topic, bytes(row.key), bytes(row.value), row.headers) for row in wire]
    positions = [(*row, 0, offset) for offset, row in enumerate(rows)]
    read = decode(spark.createDataFrame(positions, f"{COLUMNS}, partition int, offset long"), chain).collect()
    assert sorted(bytes(row.value) for row in read) == sorted(values)
    assert [row.headers for row in read] == [[]] * len(values)
