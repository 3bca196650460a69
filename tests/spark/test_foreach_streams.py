"""The function for foreachBatch in special cases: messages that expire, changes, failures, and types."""

from __future__ import annotations

import random
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom

from headerware import Chain, Record
from headerware.core.errors import ConfigError
from headerware.interceptors import Dedup, Serialize, Slice, Trail
from headerware.interceptors.trail import read_trail
from headerware.serdes import Avro, FolderSchemas
from headerware.spark_bridge import avro_type, foreach_batch, kafka_sink, writer_sink

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from tests.spark.conftest import Kafka, Keeping, Stream

pytestmark = [
    pytest.mark.broker,
    pytest.mark.timeout(900),
    pytest.mark.usefixtures("interpreted"),
]

MAX_BYTES: Final = 2_000
CUTTING: Final = Chain([Slice(max_bytes=MAX_BYTES)])
LARGE: Final = random.Random(1).randbytes(8_000)


class TestIncompleteMessages:
    def test_expire_by_the_batches_time_with_a_letter_for_each_slice(
        self, keeping: type[Keeping], stream: Callable[[str], Stream], kafka: Kafka
    ) -> None:
        topic = kafka.topic("expired")
        letters = kafka.topic(f"{topic}.dead-letter")
        reading = Chain([Slice(max_bytes=MAX_BYTES, expire_ms=1)])
        dead = kafka_sink({"kafka.bootstrap.servers": kafka.servers})
        slices = kafka.cut(topic, CUTTING, LARGE)
        kept, query = keeping(), stream(topic)
        kafka.send(None, *slices[:3])
        query.run(reading, kept, dead_letters=dead)
        assert query.progress[0].waiting == 3
        assert not kafka.wire(letters)
        kafka.send(None, Record(topic, b"later"))
        query.run(reading, kept, dead_letters=dead)
        assert query.progress[1].waiting == 0
        assert kept.values(1) == [b"later"]
        assert [letter.value for letter in kafka.wire(letters)] == [piece.value for piece in slices[:3]]

    def test_expire_by_offsets(
        self, keeping: type[Keeping], stream: Callable[[str], Stream], kafka: Kafka
    ) -> None:
        topic = kafka.topic("gap")
        letters = kafka.topic(f"{topic}.dead-letter")
        slices = kafka.cut(topic, CUTTING, LARGE)
        later = [Record(topic, f"later-{number}".encode()) for number in range(6)]
        kafka.send(None, *slices[:2], *later)
        kept, query = keeping(), stream(topic)
        query.run(
            Chain([Slice(max_bytes=MAX_BYTES, max_gap=5)]),
            kept,
            dead_letters=kafka_sink({"kafka.bootstrap.servers": kafka.servers}),
        )
        assert query.progress[0].waiting == 0
        assert query.progress[0].decoded["refused"] == 2
        assert kept.values(0) == [record.value for record in later]
        assert [letter.value for letter in kafka.wire(letters)] == [piece.value for piece in slices[:2]]


class TestWhatCannotWork:
    @pytest.mark.parametrize(
        ("settings", "says"),
        [
            ({"dead_letters": Chain([Trail()])}, "give a kafka_sink without a chain"),
            ({"checkpoint": ""}, "checkpoint: expected a folder"),
            ({"window_batches": -1}, "window_batches: expected 0 or more"),
            ({"window_ms": -1}, "window_ms: expected 0 or more"),
        ],
    )
    def test_is_refused_before_the_query_starts(self, settings: dict[str, Any], says: str) -> None:
        if chain := settings.get("dead_letters"):
            settings = {"dead_letters": kafka_sink({"kafka.bootstrap.servers": "localhost:9"}, chain)}
        with pytest.raises(ConfigError, match=says):
            foreach_batch(CUTTING, lambda frame, batch: None, **{"checkpoint": "here", **settings})


class TestChangedChain:
    def test_counts_from_the_next_batch_and_keeps_what_waits(
        self, keeping: type[Keeping], stream: Callable[[str], Stream], kafka: Kafka
    ) -> None:
        topic = kafka.topic("changed")
        slices = kafka.cut(topic, CUTTING, LARGE)
        kept, query = keeping(), stream(topic)
        kafka.send(None, Record(topic, b"first"), *slices[:2])
        query.run(Chain([Trail(service="old"), Slice()]), kept)
        kafka.send(None, Record(topic, b"second"))
        with pytest.raises(StreamingQueryException, match="slices wait in the ledger"):
            query.run(Chain([Trail(service="new")]), kept)
        query.run(Chain([Trail(service="new")]), kept, discard_waiting=True)
        trails = [
            read_trail([(each["key"], bytes(each["value"])) for each in rows[-1]["headers"]])
            for rows in (kept.attempts[0], kept.attempts[1])
        ]
        assert [(trail[-1].by_whom or "")[:4] for trail in trails] == ["old/", "new/"]
        assert kept.values(0) == [b"first"]
        assert kept.values(1) == [b"second"]
        assert [(progress.waiting, progress.replay) for progress in query.progress] == [(2, False), (0, True)]


class TestOlderCheckpoint:
    def test_by_one_batch_is_refused_as_records_would_be_lost(
        self, keeping: type[Keeping], stream: Callable[[str], Stream], kafka: Kafka
    ) -> None:
        topic = kafka.topic("restored")
        kept, query = keeping(), stream(topic)
        for value in (b"first", b"second"):
            kafka.send(None, Record(topic, value))
            query.run(CUTTING, kept)
        for folder in ("offsets", "commits"):  # as in a copy from before the second batch
            for name in ("1", ".1.crc"):
                Path(query.checkpoint, folder, name).unlink()
        kafka.send(None, Record(topic, b"third"))
        with pytest.raises(StreamingQueryException, match="found 1 again, with other records"):
            query.run(CUTTING, kept)

    def test_that_lacks_its_commit_alone_is_a_replay(
        self, keeping: type[Keeping], stream: Callable[[str], Stream], kafka: Kafka
    ) -> None:
        topic = kafka.topic("between")
        kept, query = keeping(), stream(topic)
        kafka.send(None, Record(topic, b"first"))
        query.run(CUTTING, kept)
        for name in ("0", ".0.crc"):  # as after a driver that died between the two commits
            Path(query.checkpoint, "commits", name).unlink()
        kafka.send(None, Record(topic, b"second"))
        query.run(CUTTING, kept)
        assert [progress.skipped for progress in query.progress] == [False, True, False]
        assert [kept.values(0), kept.values(1)] == [[b"first"], [b"second"]]


class TestIdentity:
    def test_must_come_from_somewhere(self, stream: Callable[[str], Stream], kafka: Kafka) -> None:
        topic = kafka.topic("unidentified")
        kafka.send(None, Record(topic, b"a"))
        sink = kafka_sink({"kafka.bootstrap.servers": kafka.servers}, chain=Chain([Dedup()]))
        with pytest.raises(StreamingQueryException, match=r"no longer say where .* identity=\[\.\.\.\]"):
            stream(topic).run(Chain([]), sink, transform=lambda frame, _: frame.drop("source"))

    def test_may_come_from_columns_that_tell_rows_apart(
        self, stream: Callable[[str], Stream], kafka: Kafka
    ) -> None:
        topic, out = kafka.topic("named"), kafka.topic("named")
        letters = kafka.topic(f"{out}.refused")
        kafka.send(None, *(Record(topic, value, key) for key, value in [(b"a", b"1"), (b"b", b"2")]))
        kafka.send(None, Record(topic, b"3", b"b"))
        options = {"kafka.bootstrap.servers": kafka.servers}
        query = stream(topic)
        for _ in range(2):
            query.run(
                Chain([]),
                kafka_sink({**options, "topic": out}, chain=Chain([Dedup()]), identity=["key"]),
                transform=lambda frame, _: frame.drop("source"),
                dead_letters=kafka_sink(options),
                dead_letter_topic="{topic}.refused",
            )
            if len(query.progress) == 1:
                query.undo(0)
        assert [progress.replay for progress in query.progress] == [False, True]
        assert len(kafka.wire(out)) == 4
        found, _ = kafka.read(out, Chain([Dedup()]))
        assert sorted((record.key, record.value) for record in found) == [(b"a", b"1"), (b"b", b"2")]
        assert {letter.value for letter in kafka.wire(letters)} == {b"3"}


class TestSinks:
    def test_a_writer_overwrites_its_batch_in_a_replay(
        self, stream: Callable[[str], Stream], kafka: Kafka, spark: SparkSession, tmp_path: Path
    ) -> None:
        topic = kafka.topic("parquet")
        kafka.send(None, Record(topic, b"a"), Record(topic, b"b"))
        path = str(tmp_path / "table")
        sink = writer_sink(lambda writer, batch: writer.mode("overwrite").parquet(f"{path}/batch={batch.id}"))
        query = stream(topic)
        query.run(Chain([Trail()]), sink)
        query.undo(0)
        query.run(Chain([Trail()]), sink)
        assert [progress.replay for progress in query.progress] == [False, True]
        rows = spark.read.parquet(path).select("value", "batch", "source.offset").collect()
        assert sorted((bytes(row[0]), row[1], row[2]) for row in rows) == [(b"a", 0, 0), (b"b", 0, 1)]

    def test_a_function_gets_the_frame_and_the_batch(
        self, stream: Callable[[str], Stream], kafka: Kafka
    ) -> None:
        topic = kafka.topic("function")
        kafka.send(None, Record(topic, b"a", b"k"))
        seen: list[tuple[int, list[bytes]]] = []

        def sink(frame: DataFrame, batch: int) -> None:
            seen.append((batch, [bytes(row["value"]) for row in frame.collect()]))

        stream(topic).run(Chain([Trail()]), sink)
        assert seen == [(0, [b"a"])]

    def test_anything_else_is_refused(self) -> None:
        with pytest.raises(ConfigError, match=r"sink: expected kafka_sink\(\.\.\.\)"):
            foreach_batch(Chain([]), "orders", checkpoint="x")  # type: ignore[arg-type]

    def test_kafka_needs_its_brokers(self) -> None:
        with pytest.raises(ConfigError, match=r"kafka\.bootstrap\.servers"):
            kafka_sink({"topic": "orders"})

    def test_that_fails_leaves_the_batch_for_a_replay(
        self, keeping: type[Keeping], stream: Callable[[str], Stream], kafka: Kafka
    ) -> None:
        topic = kafka.topic("failing")
        kafka.send(None, Record(topic, b"a"))
        kept, query = keeping(), stream(topic)

        def fail(frame: DataFrame, batch: int) -> None:
            raise OSError("the disk is full")

        with pytest.raises(StreamingQueryException, match="the disk is full"):
            query.run(Chain([Dedup()]), fail)
        query.run(Chain([Dedup()]), kept)
        assert kept.values(0) == [b"a"]
        assert [progress.replay for progress in query.progress] == [True]


class TestTypedFrames:
    def test_keep_messages_in_slices_over_batches(
        self, keeping: type[Keeping], stream: Callable[[str], Stream], kafka: Kafka, tmp_path: Path
    ) -> None:
        amount = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
        fields = [{"name": "id", "type": "long"}, {"name": "amount", "type": amount}]
        schema = {"type": "record", "name": "Order", "fields": [*fields, {"name": "note", "type": "string"}]}
        serde = Avro(schema=schema, store=FolderSchemas(path=str(tmp_path / "schemas")))
        chain = Chain([Serialize(value=serde), Slice(max_bytes=MAX_BYTES)])
        topic, aside, out = kafka.topic("typed"), kafka.topic("aside"), kafka.topic("typed")
        notes = ["short", random.Random(1).randbytes(4_000).hex()]
        orders = [
            {"id": number, "amount": Decimal("9.99"), "note": note} for number, note in enumerate(notes)
        ]
        kafka.send(chain, *(Record(aside, order) for order in orders))
        wire = [record.replace(topic=topic, partition=None) for record in kafka.wire(aside)]
        kept = keeping(kafka_sink({"kafka.bootstrap.servers": kafka.servers, "topic": out}, chain=chain))
        query = stream(topic)
        for part in (wire[:3], wire[3:]):
            kafka.send(None, *part)
            query.run(
                chain,
                kept,
                value=avro_type(schema),
                transform=lambda frame, _: frame.withColumn(
                    "value", F.col("value").withField("id", F.col("value.id") + 10)
                ),
            )
        assert [progress.waiting for progress in query.progress] == [2, 0]
        assert [[row["value"]["note"] for row in rows] for rows in kept.attempts] == [
            [note] for note in notes
        ]
        found, refused = kafka.read(out, chain)
        assert not refused
        assert sorted((record.value for record in found), key=lambda order: order["id"]) == [
            {"id": number + 10, "amount": Decimal("9.99"), "note": note} for number, note in enumerate(notes)
        ]


class TestOutsideOfAStream:
    def test_is_refused(self, keeping: type[Keeping], spark: SparkSession, tmp_path: Path) -> None:
        function = foreach_batch(Chain([]), keeping(), checkpoint=str(tmp_path))
        with pytest.raises(ConfigError, match="expected to be called by a streaming query"):
            function(spark.range(1), 0)


class TestTransform:
    def test_that_gives_no_frame_fails_the_query(
        self, keeping: type[Keeping], stream: Callable[[str], Stream], kafka: Kafka
    ) -> None:
        topic = kafka.topic("nothing")
        kafka.send(None, Record(topic, b"a"))
        with pytest.raises(StreamingQueryException, match="expected a function that returns a DataFrame"):
            stream(topic).run(Chain([Trail()]), keeping(), transform=lambda _frame, _batch: None)
