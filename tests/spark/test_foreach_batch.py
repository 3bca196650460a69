"""The function for foreachBatch on real streams: written, waiting and refused rows, and reports."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom

from headerware import Chain, Headers, Record
from headerware.core.errors import SignatureError
from headerware.interceptors import Compress, Dedup, Sign, Slice, Trace, Trail
from headerware.interceptors.slice.header import SliceHeader
from headerware.interceptors.trail import read_trail
from headerware.keyring import with_new_key
from headerware.keyring.writing import edit_keyring
from headerware.spark_bridge import kafka_sink

if TYPE_CHECKING:
    from collections.abc import Callable

    from opentelemetry.sdk.trace import ReadableSpan

    from headerware.spark_bridge import BatchProgress
    from tests.spark.conftest import Kafka, Keeping, Stream

pytestmark = [
    pytest.mark.broker,
    pytest.mark.timeout(900),
    pytest.mark.usefixtures("interpreted"),
]

MAX_BYTES: Final = 2_000
TRACEPARENT: Final = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def noise(title: str, size: int) -> bytes:
    """Make a message that cannot be compressed and begins with its name."""
    return title.encode() + random.Random(title).randbytes(size)


def small(title: str) -> bytes:
    return noise(title, 50)


def large(title: str, size: int = 8_000) -> bytes:
    return noise(title, size)


class Rich(NamedTuple):
    """Three batches with everything in them, and a replay of the last one."""

    chain: Chain
    orders: str
    payments: str
    kept: Keeping
    progress: list[BatchProgress]
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


@pytest.fixture(scope="module")
def rich(
    new_stream: Callable[..., Stream],
    keeping: type[Keeping],
    kafka: Kafka,
    keys: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Rich:
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
    kept = keeping(kafka_sink({"kafka.bootstrap.servers": kafka.servers}, chain=writing))
    stream = new_stream(folder, orders, payments)

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
    halves = kafka.cut(orders, service, large("large-1"))
    (genuine,) = kafka.cut(orders, service, small("small-3"))
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
        handed_over = Counter(value for attempt in range(3) for value in rich.kept.values(attempt))
        del handed_over[rich.huge.value]
        assert Counter(record.value for record in rich.out) == handed_over

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
    def test_are_for_the_cluster_that_is_written_to(self, rich: Rich, kafka: Kafka, keys: str) -> None:
        chains = {
            cluster: Chain([*list(rich.chain)[:-1], Sign(keyring=keys, cluster=cluster)])
            for cluster in (kafka.cluster_id(), "another-cluster")
        }
        (found, refused), (found_elsewhere, refused_elsewhere) = (
            kafka.read(f"{rich.payments}-out", chain) for chain in chains.values()
        )
        assert len(found) == 3
        assert not refused
        assert not found_elsewhere
        assert {type(error) for error in refused_elsewhere} == {SignatureError}


class TestProgress:
    def test_counts_what_came_and_what_went(self, rich: Rich, kafka: Kafka) -> None:
        came = [record for topic in (rich.orders, rich.payments) for record in kafka.wire(topic)]
        decoded = [progress.decoded for progress in rich.progress[:3]]
        assert sum(counts["records_in"] for counts in decoded) == len(came)
        assert sum(counts["bytes_in"] for counts in decoded) == sum(len(record.value) for record in came)
        encoded = [progress.encoded for progress in rich.progress]
        assert [counts["records_in"] for counts in encoded] == [len(rows) for rows in rich.kept.attempts]
        twice = kafka.wire(f"{rich.orders}-out")
        assert encoded[3]["records_out"] == len(twice) - len(rich.before_replay)
        written = [sum(len(record.value) for record in records) for records in (rich.before_replay, twice)]
        assert encoded[3]["bytes_out"] == written[1] - written[0]

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
        expected = f"00-{context.trace_id:032x}-{context.span_id:016x}-".encode()
        assert (parents[b"paid--3"] or b"").startswith(expected)
        assert parents[b"large-1"] == parents[b"paid--3"]
        assert parents[b"paid--1"] is None

    def test_leaves_a_record_its_own_context(self, rich: Rich) -> None:
        parents = {bytes(record.value)[:7]: record.headers.last("traceparent") for record in rich.out}
        assert parents[b"paid--2"] == TRACEPARENT.encode()
