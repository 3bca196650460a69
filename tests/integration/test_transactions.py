"""Transactions through a chain: what is committed comes, whole; what is aborted does not, and is told of."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Final

import pytest
from confluent_kafka import KafkaError, KafkaException

from headerware.core.commit_metadata import decode_metadata
from headerware.interceptors import Compress, Sign, Slice, Trail

if TYPE_CHECKING:
    from collections.abc import Callable

    from confluent_kafka import Message

    from headerware import Producer, Record
    from tests.integration.conftest import Acknowledgements, Cluster, Reports

pytestmark = pytest.mark.broker

SECONDS: Final = 60


def values(messages: list[Message]) -> list[bytes | None]:
    return [message.value() for message in messages]


def noise(name: bytes) -> bytes:
    """Make a message of five slices."""
    return name + random.Random(name).randbytes(20_000)


@pytest.fixture
def chain(keyring: str) -> list[object]:
    return [Trail(), Compress(), Slice(max_bytes=5_000), Sign(keyring=keyring, key_id="test")]


@pytest.fixture
def producer(cluster: Cluster, chain: list[object], acknowledgements: Acknowledgements) -> Producer:
    # Nothing leaves before it is flushed, so that an abort finds records to purge.
    producer = cluster.producer(
        acknowledgements, *chain, transactional_id=cluster.topic("transactional"), linger_ms=20_000
    )
    producer.init_transactions(SECONDS)
    return producer


def code_of(error: BaseException | KafkaError | None) -> int | None:
    cause: Any = error.args[0] if isinstance(error, KafkaException) else error
    return None if cause is None else int(cause.code())


class TestAbort:
    def test_aborted_records_are_reported_once_and_never_seen(
        self,
        cluster: Cluster,
        chain: list[object],
        producer: Producer,
        reports: Reports,
        acknowledgements: Acknowledgements,
    ) -> None:
        topic = cluster.topic("aborted")
        stored, purged = [b"stored", noise(b"stored")], [b"purged", noise(b"purged")]
        kept = [b"first", noise(b"first"), b"last", noise(b"last")]

        def send(*messages: bytes) -> None:
            for value in messages:
                producer.produce(topic, value, on_delivery=reports)

        producer.begin_transaction()
        send(*kept[:2])
        producer.commit_transaction(SECONDS)

        producer.begin_transaction()
        send(*stored)
        assert producer.flush(SECONDS) == 0
        send(*purged)
        producer.abort_transaction(SECONDS)

        producer.begin_transaction()
        send(*kept[2:])
        producer.commit_transaction(SECONDS)

        expected: dict[bytes, list[int | None]] = {value: [None] for value in [*kept, *stored]}
        expected |= {value: [KafkaError._PURGE_QUEUE] for value in purged}
        for heard in (reports.errors, acknowledgements.errors):
            assert {value: list(map(code_of, errors)) for value, errors in heard.items()} == expected

        consumer = cluster.consumer(topic, *chain, isolation_level="read_committed")
        assert values(cluster.rest_of(consumer, topic)) == kept
        assert consumer.stats()["slice"]["pending_messages"] == 0
        everything = cluster.consumer(
            topic, *chain, isolation_level="read_uncommitted", group_id=f"{topic}-all"
        )
        assert values(cluster.rest_of(everything, topic)) == [*kept[:2], *stored, *kept[2:]]

    def test_outside_of_a_transaction_a_record_fails_once(
        self, cluster: Cluster, producer: Producer, reports: Reports, acknowledgements: Acknowledgements
    ) -> None:
        with pytest.raises(KafkaException, match="_STATE"):
            producer.produce("nowhere", b"early", on_delivery=reports)
        with pytest.raises(KafkaException, match="_STATE"):
            producer.produce("nowhere", noise(b"early"), on_delivery=reports)
        assert producer.flush(SECONDS) == 0
        assert reports.errors == {}, "what produce raises is not reported as well"
        heard = {value: list(map(code_of, errors)) for value, errors in acknowledgements.errors.items()}
        assert heard == {b"early": [KafkaError._STATE], noise(b"early"): [KafkaError._STATE]}


class TestConsumeTransformProduce:
    """A message of the source is half read while the messages behind it are worked off."""

    @pytest.fixture
    def source(self, cluster: Cluster) -> str:
        return cluster.topic("source")

    @pytest.fixture
    def target(self, cluster: Cluster) -> str:
        return cluster.topic("target")

    @pytest.fixture
    def put(
        self, cluster: Cluster, source: str, cut: Callable[[str, bytes], list[Record]]
    ) -> Callable[..., None]:
        wire = cluster.plain_producer()
        pieces = cut(source, LARGE)

        def lay(*records: int | bytes) -> None:
            for record in records:
                if isinstance(record, bytes):
                    wire.produce(source, record, b"key", 0)
                else:
                    piece = pieces[record]
                    wire.produce(source, piece.value, b"key", 0, headers=list(piece.headers))
            assert wire.flush(SECONDS) == 0

        return lay

    @pytest.fixture
    def work(
        self, cluster: Cluster, producer: Producer, source: str, target: str
    ) -> Callable[[int, Callable[[float], None]], None]:
        """Return a function that takes so many messages on in one transaction, as a consumer of its own."""

        def run(count: int, end: Callable[[float], None]) -> None:
            consumer = cluster.consumer(
                source,
                Slice(),
                enable_auto_commit=False,
                group_instance_id="me",
                isolation_level="read_committed",
            )
            producer.begin_transaction()
            for message in cluster.take(consumer, count):
                producer.produce(target, (message.value() or b"").upper())
            positions = consumer.position(consumer.assignment())
            producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), SECONDS)
            end(SECONDS)
            consumer.close()

        return run

    def test_offsets_are_held_back_and_nothing_is_done_twice(
        self,
        cluster: Cluster,
        chain: list[object],
        source: str,
        target: str,
        put: Callable[..., None],
        producer: Producer,
        work: Callable[[int, Callable[[float], None]], None],
    ) -> None:
        put(b"one", 0, b"two", 1, b"three")
        work(3, producer.commit_transaction)
        offset, metadata = cluster.committed(source, source)
        assert offset == 1, "where the half-read message begins"
        assert decode_metadata(0, metadata)[:2] == (5, frozenset())

        put(2, b"four", 3, 4)
        work(2, producer.commit_transaction)
        assert cluster.committed(source, source)[0] == 9
        reader = cluster.consumer(target, *chain, isolation_level="read_committed")
        assert values(cluster.rest_of(reader, target)) == [b"ONE", b"TWO", b"THREE", b"FOUR", LARGE.upper()]

    def test_an_abort_takes_the_offsets_back(
        self,
        cluster: Cluster,
        chain: list[object],
        source: str,
        target: str,
        put: Callable[..., None],
        producer: Producer,
        work: Callable[[int, Callable[[float], None]], None],
    ) -> None:
        put(b"one", 0, b"two")
        work(2, producer.abort_transaction)
        put(1, 2, 3, 4)
        work(3, producer.commit_transaction)
        reader = cluster.consumer(target, *chain, isolation_level="read_committed")
        assert values(cluster.rest_of(reader, target)) == [b"ONE", b"TWO", LARGE.upper()]


LARGE: Final = b"large" + bytes(6_000)
