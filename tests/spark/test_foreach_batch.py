"""The function for foreachBatch, on real streams: what is written, waits, is refused, and is told."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom

from headerware import Chain, Headers, Record
from headerware.core.errors import ConfigError, SignatureError
from headerware.interceptors import Compress, Dedup, Serialize, Sign, Slice, Trace, Trail
from headerware.interceptors.slice_wire import SliceHeader
from headerware.interceptors.trail_entries import read_trail
from headerware.keyring import with_new_key
from headerware.keyring.writing import edit_keyring
from headerware.serdes import Avro, FolderSchemas
from headerware.spark_bridge import Progress, avro_type, foreach_batch, kafka_sink, kafka_source, writer_sink

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from opentelemetry.sdk.trace import ReadableSpan
    from pyspark.sql import DataFrame, Row, SparkSession

    from headerware.spark_bridge.batches.batch import Batch
    from headerware.spark_bridge.batches.sinks import Sink
    from tests.spark.conftest import Kafka

pytestmark = [pytest.mark.broker, pytest.mark.timeout(900)]

DEADLINE_S: Final = 240.0
MAX_BYTES: Final = 2_000
TRACEPARENT: Final = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def noise(title: str, size: int) -> bytes:
    """Make a message that cannot be compressed and begins with its name."""
    return title.encode() + random.Random(title).randbytes(size)


def small(title: str) -> bytes:
    return noise(title, 50)


def large(title: str, size: int = 8_000) -> bytes:
    return noise(title, size)


class Stream:
    """One query's source and checkpoint; each run works on all that there is, as one batch."""

    def __init__(self, spark: SparkSession, kafka: Kafka, folder: Path, *topics: str) -> None:
        self.folder = folder
        self.checkpoint = str(folder / "checkpoint")
        self.progress: list[Progress] = []
        options = {"kafka.bootstrap.servers": kafka.servers, "startingOffsets": "earliest"}
        self._source = kafka_source(spark.readStream, {**options, "subscribe": ",".join(topics)})

    def run(self, chain: Chain, sink: Sink | Callable[[DataFrame, int], Any], **options: Any) -> None:
        function = foreach_batch(
            chain, sink, checkpoint=self.checkpoint, on_progress=self.progress.append, **options
        )
        writer = self._source.writeStream.foreachBatch(function).option("checkpointLocation", self.checkpoint)
        query = writer.trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(DEADLINE_S)
        finally:
            query.stop()

    def undo(self, batch: int) -> None:
        """Take back the ledger's commit of a batch and Spark's, as after a kill in the middle of its write."""
        (ledger,) = (self.folder / "checkpoint" / "headerware").iterdir()
        (ledger / "committed" / f"{batch:012d}.json").unlink()
        for name in (f"{batch}", f".{batch}.crc"):
            (self.folder / "checkpoint" / "commits" / name).unlink()


class Keeping:
    """A sink that keeps the rows of each batch, by attempt, and passes them on."""

    def __init__(self, sink: Sink | None = None) -> None:
        self.attempts: list[list[Row]] = []
        self.columns: list[str] = []
        self._sink = sink

    def write(self, frame: DataFrame, batch: Batch) -> None:
        self.columns = frame.columns
        self.attempts.append(sorted(frame.collect(), key=lambda row: tuple(row["source"])))
        if self._sink is not None:
            self._sink.write(frame, batch)

    def values(self, attempt: int) -> list[bytes]:
        return [bytes(row["value"]) for row in self.attempts[attempt]]

    spans: tuple[ReadableSpan, ...]


class Rich(NamedTuple):
    """Three batches with everything in them, and a replay of the last one."""

    chain: Chain
    orders: str
    payments: str
    kept: Keeping
    progress: list[Progress]
    spans: tuple[ReadableSpan, ...]
    tampered: Record
    huge: Record
    out: list[Record]
    before_replay: list[Record]


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("keys") / "keys.json"
    edit_keyring(path, lambda held: with_new_key(held, "test", "hmac-sha256"), create=True)
    return str(path)


@pytest.fixture
def stream(spark: SparkSession, kafka: Kafka, tmp_path: Path) -> Callable[[str], Stream]:
    return lambda topic: Stream(spark, kafka, tmp_path, topic)


def cut(kafka: Kafka, topic: str, *values: bytes, chain: Chain | None = None) -> list[Record]:
    """Give the records that a service would put on the wire of a topic; they go to another one to be had."""
    aside = kafka.topic("aside")
    kafka.send(chain or Chain([Slice(max_bytes=MAX_BYTES)]), *(Record(aside, value) for value in values))
    return [record.replace(topic=topic, partition=None) for record in kafka.wire(aside)]


@pytest.fixture(scope="module")
def rich(
    spark: SparkSession, kafka: Kafka, keys: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Rich]:
    folder = tmp_path_factory.mktemp("rich")
    orders, payments = kafka.topic("orders"), kafka.topic("payments")
    for topic in (orders, payments):
        kafka.topic(f"{topic}-out", partitions=3)
        kafka.topic(f"{topic}.dead-letter")
        kafka.topic(f"{topic}-out.dead-letter")

    def chain(service: str) -> Chain:
        # Larger messages than that come in, and do not go out.
        largest = 50_000 if service == "bridge" else 500_000
        return Chain([
            Trace(),
            Trail(service=service),
            Dedup(),
            Compress(topics=("orders-*",)),
            Slice(max_bytes=MAX_BYTES, max_message_bytes=largest),
            Sign(keyring=keys, key_id="test", require="enforce", accept_origins=("*/aside-*",)),
        ])  # fmt: skip

    reading, writing = chain("reader"), chain("bridge")
    kept = Keeping(kafka_sink({"kafka.bootstrap.servers": kafka.servers}, chain=writing))
    stream = Stream(spark, kafka, folder, orders, payments)

    def run() -> None:
        stream.run(
            reading,
            kept,
            transform=lambda frame, _: frame.withColumn("topic", F.concat("topic", F.lit("-out"))).drop(
                "timestamp", "timestampType"
            ),
            dead_letters=kafka_sink({"kafka.bootstrap.servers": kafka.servers}),
            job="nightly",
        )

    service = chain("service")
    halves = cut(kafka, orders, large("large-1"), chain=service)
    (genuine,) = cut(kafka, orders, small("small-3"), chain=service)
    tampered = genuine.replace(value=small("forged!"))
    huge = Record(orders, large("huge-01", 60_000), b"huge")

    kafka.send(service, Record(orders, small("small-1"), b"1"), Record(orders, small("small-2")))
    kafka.send(service, Record(payments, small("paid--1"), b"p"), huge)
    (repeated,) = (record for record in kafka.wire(orders) if record.key == b"1")
    kafka.send(None, repeated, tampered, *halves[:2])
    run()

    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    kafka.send(None, repeated, *halves[2:])
    traced = Record(payments, small("paid--2"), headers=Headers([("traceparent", TRACEPARENT.encode())]))
    kafka.send(service, traced, Record(payments, small("paid--3")))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trace, "_TRACER_PROVIDER", provider)
        run()
    provider.shutdown()

    keyless = [Record(orders, large(f"keyless-{number}")) for number in range(3)]
    kafka.send(service, *keyless, *(Record(orders, large(f"keyed-{number}"), b"k") for number in range(2)))
    run()
    before_replay = kafka.wire(f"{orders}-out")
    stream.undo(2)
    run()
    out, refused = kafka.read(f"{orders}-out", chain("consumer"))
    paid, refused_too = kafka.read(f"{payments}-out", chain("consumer"))
    assert not [*refused, *refused_too]
    return Rich(
        chain("consumer"),
        orders,
        payments,
        kept,
        stream.progress,
        exporter.get_finished_spans(),
        tampered,
        huge,
        [*out, *paid],
        before_replay,
    )


class TestSlicesOverBatches:
    def test_wait_for_the_rest_of_their_message(self, rich: Rich) -> None:
        assert [progress.waiting for progress in rich.progress] == [2, 0, 0, 0]
        assert large("large-1") not in rich.kept.values(0)

    def test_become_one_whole_message(self, rich: Rich) -> None:
        assert rich.kept.values(1).count(large("large-1")) == 1
        assert [record.value for record in rich.out].count(large("large-1")) == 1

    def test_become_the_same_rows_in_a_replay(self, rich: Rich) -> None:
        assert len(rich.kept.attempts[2]) == 5
        assert rich.kept.attempts[3] == rich.kept.attempts[2]
        assert [progress.replay for progress in rich.progress] == [False, False, False, True]


class TestReplay:
    def test_is_written_again_and_read_once(self, rich: Rich, kafka: Kafka) -> None:
        again = kafka.wire(f"{rich.orders}-out")
        assert len(again) > len(rich.before_replay)
        counts = Counter(record.value for record in rich.out)
        assert counts == Counter(value for attempt in range(3) for value in rich.kept.values(attempt))

    def test_gives_each_message_the_partition_that_it_had(self, rich: Rich, kafka: Kafka) -> None:
        places = defaultdict(list)
        for record in kafka.wire(f"{rich.orders}-out"):
            if (identity := record.headers.last("hw.id")) is not None:
                places[identity].append(record.partition)
        assert {len(found) for found in places.values()} == {1, 2}
        assert all(len(set(found)) == 1 for found in places.values())


class TestDeadLetters:
    def test_of_a_forged_record_are_the_untouched_original(self, rich: Rich, kafka: Kafka) -> None:
        letters = kafka.wire(f"{rich.orders}.dead-letter")
        assert [(letter.value, letter.key) for letter in letters] == [
            (rich.tampered.value, rich.tampered.key)
        ]
        headers = dict(letters[0].headers)
        assert headers["hw.sig"] == rich.tampered.headers.last("hw.sig")
        assert headers["__connect.errors.topic"] == rich.orders.encode()
        assert (headers["__connect.errors.exception.class.name"] or b"").endswith(b"SignatureError")

    def test_of_what_cannot_be_encoded_are_the_row(self, rich: Rich, kafka: Kafka) -> None:
        letters = kafka.wire(f"{rich.orders}-out.dead-letter")
        assert [(letter.value, letter.key) for letter in letters] == [(rich.huge.value, b"huge")]
        message = letters[0].headers.last("__connect.errors.exception.message") or b""
        assert b"max_message_bytes is 50000" in message

    def test_let_the_rest_go_on(self, rich: Rich) -> None:
        written = {record.value for record in rich.out}
        assert {small("small-1"), small("small-2"), small("paid--1")} <= written
        assert not written & {rich.tampered.value, rich.huge.value}

    def test_are_counted(self, rich: Rich) -> None:
        assert [progress.decoded["refused"] for progress in rich.progress] == [1, 0, 0, 0]
        assert [progress.encoded["refused"] for progress in rich.progress] == [1, 0, 0, 0]


class TestDedup:
    def test_drops_a_repeat_within_the_batch(self, rich: Rich) -> None:
        assert rich.kept.values(0).count(small("small-1")) == 1

    def test_drops_a_repeat_in_a_later_batch(self, rich: Rich) -> None:
        assert small("small-1") not in rich.kept.values(1)


class TestTransform:
    def test_sees_clean_columns(self, rich: Rich) -> None:
        expected = ["key", "value", "topic", "partition", "offset", "headers", "source"]
        assert rich.kept.columns == expected

    def test_says_where_rows_go(self, rich: Rich) -> None:
        assert {record.topic for record in rich.out} == {f"{rich.orders}-out", f"{rich.payments}-out"}

    def test_leaves_each_topic_its_own_chain(self, rich: Rich, kafka: Kafka) -> None:
        names = {
            topic: {name for record in kafka.wire(f"{topic}-out") for name, _ in record.headers}
            for topic in (rich.orders, rich.payments)
        }
        assert "hw.compress" not in names[rich.payments]
        assert "hw.sig" in names[rich.payments] & names[rich.orders]

    def test_that_gives_no_frame_fails_the_query(self, stream: Callable[[str], Stream], kafka: Kafka) -> None:
        topic = kafka.topic("nothing")
        kafka.send(None, Record(topic, b"a"))
        with pytest.raises(StreamingQueryException, match="expected a function that gives a DataFrame"):
            stream(topic).run(Chain([Trail()]), Keeping(), transform=lambda _frame, _batch: None)


class TestTrail:
    def test_says_which_batch_of_which_job_it_was(self, rich: Rich) -> None:
        trails = {bytes(record.value)[:7]: read_trail(record.headers) for record in rich.out}
        (produced, forwarded, _consumed) = trails[b"small-1"]
        assert produced.by_whom == "service"
        assert forwarded.by_whom == "reader/nightly#0"
        assert (forwarded.read_from_topic, forwarded.produced_into_topic) == (
            rich.orders,
            f"{rich.orders}-out",
        )
        assert trails[b"large-1"][1].by_whom == "reader/nightly#1"


class TestSlicesOnTheWire:
    def test_without_a_key_stand_in_one_partition_each(self, rich: Rich, kafka: Kafka) -> None:
        partitions = defaultdict(set)
        for record in kafka.wire(f"{rich.orders}-out"):
            header = record.headers.last("hw.slice")
            if header is not None and record.key is None:
                partitions[SliceHeader.decode(header).message_id].add(record.partition)
        assert len(partitions) == 7  # one over two batches, and three that were written twice
        assert {len(found) for found in partitions.values()} == {1}


class TestSignatures:
    def test_name_the_cluster(self, rich: Rich, kafka: Kafka, keys: str) -> None:
        other = Chain([
            *list(rich.chain)[:-1],
            Sign(keyring=keys, require="enforce", cluster="another-cluster"),
        ])  # fmt: skip
        found, refused = kafka.read(f"{rich.payments}-out", other)
        assert not found
        assert {type(error) for error in refused} == {SignatureError}


class TestProgress:
    def test_counts_what_came_and_what_went(self, rich: Rich, kafka: Kafka) -> None:
        first = rich.progress[0]
        read = [record for record in kafka.wire(rich.orders) if (record.offset or 0) < 5 + 36]
        assert first.decoded["records_in"] > len(rich.kept.attempts[0])
        assert first.decoded["bytes_in"] > 60_000
        assert first.encoded["records_in"] == len(rich.kept.attempts[0])
        assert read

    def test_counts_by_step(self, rich: Rich) -> None:
        assert rich.progress[2].encoded["steps"]["slice"]["sliced"] == 5
        assert rich.progress[1].decoded["steps"]["slice"]["glued"] == 1

    def test_names_query_and_batch(self, rich: Rich) -> None:
        assert [progress.batch for progress in rich.progress] == [0, 1, 2, 2]
        assert len({progress.query_id for progress in rich.progress}) == 1


class TestSpan:
    def test_is_one_a_batch_with_links_to_its_records(self, rich: Rich) -> None:
        (span,) = rich.spans
        assert span.name == "process"
        assert span.kind is trace.SpanKind.CONSUMER
        assert [format(link.context.trace_id, "032x") for link in span.links] == [TRACEPARENT.split("-")[1]]

    def test_is_the_parent_of_what_is_written(self, rich: Rich) -> None:
        parents = {bytes(record.value)[:7]: record.headers.last("traceparent") for record in rich.out}
        context = rich.spans[0].context
        assert context is not None
        expected = f"00-{context.trace_id:032x}-{context.span_id:016x}-01".encode()
        assert parents[b"paid--3"] == parents[b"large-1"] == expected
        assert parents[b"paid--1"] is None

    def test_leaves_a_record_its_own_context(self, rich: Rich) -> None:
        parents = {bytes(record.value)[:7]: record.headers.last("traceparent") for record in rich.out}
        assert parents[b"paid--2"] == TRACEPARENT.encode()


class TestIncompleteMessages:
    def test_expire_by_the_batches_time_with_a_letter_for_each_slice(
        self, stream: Callable[[str], Stream], kafka: Kafka
    ) -> None:
        topic = kafka.topic("expired")
        letters = kafka.topic(f"{topic}.dead-letter")
        reading = Chain([Slice(max_bytes=MAX_BYTES, expire_ms=1)])
        dead = kafka_sink({"kafka.bootstrap.servers": kafka.servers})
        slices = cut(kafka, topic, large("large-1"))
        kept, query = Keeping(), stream(topic)
        kafka.send(None, *slices[:3])
        query.run(reading, kept, dead_letters=dead)
        assert query.progress[0].waiting == 3
        assert not kafka.wire(letters)
        kafka.send(None, Record(topic, b"later"))
        query.run(reading, kept, dead_letters=dead)
        assert query.progress[1].waiting == 0
        assert kept.values(1) == [b"later"]
        assert [letter.value for letter in kafka.wire(letters)] == [piece.value for piece in slices[:3]]

    def test_expire_by_offsets(self, stream: Callable[[str], Stream], kafka: Kafka) -> None:
        topic = kafka.topic("gap")
        letters = kafka.topic(f"{topic}.dead-letter")
        slices = cut(kafka, topic, large("large-1"))
        later = [Record(topic, f"later-{number}".encode()) for number in range(6)]
        kafka.send(None, *slices[:2], *later)
        kept, query = Keeping(), stream(topic)
        query.run(
            Chain([Slice(max_bytes=MAX_BYTES, max_gap=5)]),
            kept,
            dead_letters=kafka_sink({"kafka.bootstrap.servers": kafka.servers}),
        )
        assert query.progress[0].waiting == 0
        assert query.progress[0].decoded["refused"] == 2
        assert kept.values(0) == [record.value for record in later]
        assert [letter.value for letter in kafka.wire(letters)] == [piece.value for piece in slices[:2]]


class TestChangedChain:
    def test_counts_from_the_next_batch_and_keeps_what_waits(
        self, stream: Callable[[str], Stream], kafka: Kafka
    ) -> None:
        topic = kafka.topic("changed")
        slices = cut(kafka, topic, large("large-1"))
        kept, query = Keeping(), stream(topic)
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
        self, stream: Callable[[str], Stream], kafka: Kafka
    ) -> None:
        topic = kafka.topic("failing")
        kafka.send(None, Record(topic, b"a"))
        kept, query = Keeping(), stream(topic)

        def fail(frame: DataFrame, batch: int) -> None:
            raise OSError("the disk is full")

        with pytest.raises(StreamingQueryException, match="the disk is full"):
            query.run(Chain([Dedup()]), fail)
        query.run(Chain([Dedup()]), kept)
        assert kept.values(0) == [b"a"]
        assert [progress.replay for progress in query.progress] == [True]


class TestTypedFrames:
    def test_keep_messages_in_slices_over_batches(
        self, stream: Callable[[str], Stream], kafka: Kafka, tmp_path: Path
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
        kept = Keeping(kafka_sink({"kafka.bootstrap.servers": kafka.servers, "topic": out}, chain=chain))
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
            {**order, "id": order["id"] + 10} for order in orders
        ]


class TestOutsideOfAStream:
    def test_is_refused(self, spark: SparkSession, tmp_path: Path) -> None:
        function = foreach_batch(Chain([]), Keeping(), checkpoint=str(tmp_path))
        with pytest.raises(ConfigError, match="expected to be called by a streaming query"):
            function(spark.range(1), 0)
