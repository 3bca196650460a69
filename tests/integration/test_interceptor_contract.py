"""What Kafka's clients promise interceptors, on a real broker: the table in docs/clients.md, row by row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from headerware import (
    DROP,
    Chain,
    Consumer,
    Context,
    Interceptor,
    InterceptorError,
    Producer,
    Record,
    Role,
    SerializingProducer,
)
from headerware.core.plugins import interceptor_type
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable

    from headerware import RecordMetadata
    from tests.integration.conftest import Cluster

pytestmark = pytest.mark.broker

DEADLINE_S = 60.0


class Appends:
    """Appends its letter on the way out, and on the way in."""

    def __init__(self, letter: bytes, *, fails: tuple[str, ...] = (), role: Role = Role.TRANSFORM) -> None:
        self.name = letter.decode()
        self.role = role
        self.letter = letter
        self.fails = fails
        self.seen: list[Any] = []
        self.acknowledged: list[tuple[Record, RecordMetadata, BaseException | None]] = []
        self.committed: list[tuple[int, str | None]] = []
        self.order: list[str] = []
        self.closed = 0

    def on_send(self, record: Record) -> Record:
        return self._appended("send", record)

    def on_consume(self, record: Record) -> Record:
        return self._appended("consume", record)

    def on_acknowledgement(
        self, record: Record, metadata: RecordMetadata, error: BaseException | None
    ) -> None:
        self.acknowledged.append((record, metadata, error))
        self._fail("acknowledgement")

    def on_commit(self, offsets: list[TopicPartition]) -> None:
        self.committed += [(offset.offset, offset.metadata) for offset in offsets]
        self._fail("commit")

    def close(self) -> None:
        self.closed += 1

    def _appended(self, way: str, record: Record) -> Record:
        self.seen.append(record.value)
        self._fail(way)
        return record.with_value((record.value or b"") + self.letter, record.headers.add(self.name, way))

    def _fail(self, way: str) -> None:
        if way in self.fails:
            raise RuntimeError(way)


def observer(letter: bytes, *fails: str) -> Appends:
    return Appends(letter, fails=fails, role=Role.OBSERVE)


@pytest.fixture
def topic(cluster: Cluster) -> str:
    return cluster.topic("contract")


class TestSending:
    def test_each_gets_what_the_one_before_returned(self, cluster: Cluster, topic: str) -> None:
        chain = [Appends(b"a"), Appends(b"b"), Appends(b"c")]
        producer = cluster.producer(*chain)
        producer.produce(topic, b"-")
        assert producer.flush(DEADLINE_S) == 0
        assert [each.seen for each in chain] == [[b"-"], [b"-a"], [b"-ab"]]
        assert [message.value() for message in cluster.on_the_wire(topic)] == [b"-abc"]

    def test_one_that_only_observes_and_fails_is_passed_over(self, cluster: Cluster, topic: str) -> None:
        chain = [Appends(b"a"), observer(b"b", "send"), Appends(b"c")]
        producer = cluster.producer(*chain)
        producer.produce(topic, b"-")
        assert producer.flush(DEADLINE_S) == 0
        assert chain[2].seen == [b"-a"]
        assert [message.value() for message in cluster.on_the_wire(topic)] == [b"-ac"]
        assert producer.stats()["b"]["skipped"] == 1

    def test_one_that_changes_records_and_fails_refuses_the_record(
        self, cluster: Cluster, topic: str
    ) -> None:
        """Unlike Java's: a record that was to be changed does not go out unchanged."""
        after = Appends(b"b")
        producer = cluster.producer(Appends(b"a", fails=("send",)), after)
        with pytest.raises(InterceptorError, match="RuntimeError"):
            producer.produce(topic, b"-")
        assert producer.flush(DEADLINE_S) == 0
        assert after.seen == []
        assert len(after.acknowledged) == 1


class TestAcknowledgements:
    def only(self, hears: Appends) -> tuple[Record, RecordMetadata, BaseException | None]:
        (told,) = hears.acknowledged
        return told

    def test_of_a_delivered_record_have_position_and_headers(self, cluster: Cluster, topic: str) -> None:
        hears = Appends(b"a")
        producer = cluster.producer(hears)
        producer.produce(topic, b"-", headers={"own": "1"}, timestamp=1_700_000_000_000)
        assert producer.flush(DEADLINE_S) == 0
        record, metadata, error = self.only(hears)
        assert error is None
        assert (metadata.topic, metadata.partition, metadata.offset) == (topic, 0, 0)
        assert metadata.timestamp_ms == 1_700_000_000_000
        assert list(record.headers) == [("own", b"1"), ("a", b"send")]

    def test_of_a_record_that_the_broker_refuses(self, cluster: Cluster) -> None:
        topic = cluster.topic("contract", config={"max.message.bytes": "1000"})
        hears = Appends(b"a")
        reports: list[Any] = []
        producer = cluster.producer(hears)
        producer.produce(topic, bytes(5_000), on_delivery=lambda error, _: reports.append(error))
        assert producer.flush(DEADLINE_S) == 0
        record, metadata, error = self.only(hears)
        assert isinstance(error, KafkaException)
        assert [each.code() for each in (error.args[0], *reports)] == [KafkaError.MSG_SIZE_TOO_LARGE] * 2
        assert (metadata.topic, metadata.offset) == (topic, None)
        assert list(record.headers) == [("a", b"send")]

    def test_of_a_record_that_is_too_large_for_the_client(self, cluster: Cluster, topic: str) -> None:
        hears = Appends(b"a")
        with pytest.raises(KafkaException):
            cluster.producer(hears, message_max_bytes=1_000).produce(topic, bytes(5_000))
        _, metadata, error = self.only(hears)
        assert isinstance(error, KafkaException)
        assert error.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE
        assert (metadata.topic, metadata.partition, metadata.offset) == (topic, None, None)

    def test_of_a_record_that_no_serializer_takes(self, cluster: Cluster, topic: str) -> None:
        hears = Appends(b"a")
        conf = {"bootstrap.servers": cluster.servers, "value.serializer": "json"}
        producer: Any = SerializingProducer(conf, chain=Chain([hears]))
        with producer, pytest.raises(InterceptorError):
            producer.produce(topic, value=object(), partition=0)
        _, metadata, error = self.only(hears)
        assert isinstance(error, InterceptorError)
        assert (metadata.topic, metadata.partition) == (topic, 0)

    @pytest.mark.parametrize(
        ("name", "partition", "expected"),
        [(" no topic ", -1, None), (None, 7, 7)],
        ids=["no such topic", "no such partition"],
    )
    def test_of_a_record_without_a_place_to_go(
        self, cluster: Cluster, topic: str, name: str | None, partition: int, expected: int | None
    ) -> None:
        hears = Appends(b"a")
        producer = cluster.producer(hears)
        producer.produce(name or topic, b"-", partition=partition)
        assert producer.flush(DEADLINE_S) == 0
        _, metadata, error = self.only(hears)
        assert isinstance(error, KafkaException)
        assert (metadata.topic, metadata.partition, metadata.offset) == (name or topic, expected, None)

    def test_of_a_record_that_was_dropped(self, cluster: Cluster, topic: str) -> None:
        class Drops:
            def on_send(self, record: Record) -> Any:
                return DROP

        hears = Appends(b"a")
        producer = cluster.producer(hears, Drops())
        producer.produce(topic, b"-")
        assert producer.flush(DEADLINE_S) == 0
        error = self.only(hears)[2]
        assert isinstance(error, KafkaException)
        assert error.args[0].code() == KafkaError.POLICY_VIOLATION

    def test_reach_the_others_and_the_callback_if_one_fails(self, cluster: Cluster, topic: str) -> None:
        first, second, reports = Appends(b"a", fails=("acknowledgement",)), Appends(b"b"), []
        producer = cluster.producer(first, second)
        producer.produce(topic, b"-", on_delivery=lambda error, _: reports.append(error))
        assert producer.flush(DEADLINE_S) == 0
        assert (len(first.acknowledged), len(second.acknowledged), reports) == (1, 1, [None])


class TestConsuming:
    def test_each_gets_what_the_one_to_its_right_returned(self, cluster: Cluster, topic: str) -> None:
        cluster.plain_producer().produce(topic, b"-")
        chain = [Appends(b"a"), Appends(b"b")]
        (message,) = cluster.take(cluster.consumer(topic, *chain), 1)
        assert [each.seen for each in chain] == [[b"-b"], [b"-"]]
        assert message.value() == b"-ba"
        assert message.headers() == [("b", b"consume"), ("a", b"consume")]

    def test_may_drop_and_add_records(self, cluster: Cluster, topic: str) -> None:
        class Edits:
            def on_consume(self, record: Record) -> Any:
                twice = [record, record.with_value(b"added")]
                return {b"drop": DROP, b"twice": twice}.get(record.value, record)

        producer = cluster.plain_producer()
        for value in (b"drop", b"twice", b"drop", b"last"):
            producer.produce(topic, value, partition=0)
        producer.flush(DEADLINE_S)
        consumer = cluster.consumer(topic, Edits())
        found = cluster.take(consumer, 3)
        assert [message.value() for message in found] == [b"twice", b"added", b"last"]
        cluster.commit(consumer)
        assert cluster.committed(topic, topic)[0] == 4

    def test_one_that_only_observes_and_fails_is_passed_over(self, cluster: Cluster, topic: str) -> None:
        cluster.plain_producer().produce(topic, b"-")
        (message,) = cluster.take(
            cluster.consumer(topic, Appends(b"a"), observer(b"b", "consume"), Appends(b"c")), 1
        )
        assert message.value() == b"-ca"

    def test_one_that_changes_records_and_fails_refuses_the_record(
        self, cluster: Cluster, topic: str
    ) -> None:
        """Unlike Java's: the application does not get a record that was to be checked or changed."""
        cluster.plain_producer().produce(topic, b"-")
        consumer = cluster.consumer(topic, Appends(b"a"), Appends(b"b", fails=("consume",)))
        with pytest.raises(InterceptorError, match="RuntimeError"):
            cluster.take(consumer, 1)


class TestCommits:
    @pytest.fixture
    def hears(self) -> Appends:
        return Appends(b"a")

    @pytest.fixture
    def consume(self, cluster: Cluster, topic: str) -> Callable[..., Any]:
        """Return a function that makes a consumer which has read the topic's one record."""
        producer = cluster.plain_producer()
        producer.produce(topic, b"-", partition=0)
        producer.flush(DEADLINE_S)

        def make(*interceptors: object, **conf: Any) -> Any:
            consumer = cluster.consumer(topic, *interceptors, **conf)
            cluster.take(consumer, 1)
            return consumer

        return make

    def test_are_told_if_they_are_synchronous(self, consume: Any, hears: Appends) -> None:
        consume(hears, enable_auto_commit=False).commit(asynchronous=False)
        assert hears.committed == [(1, None)]

    def test_are_told_if_they_are_asynchronous(self, consume: Any, hears: Appends, topic: str) -> None:
        consumer = consume(hears, enable_auto_commit=False)
        consumer.commit(offsets=[TopicPartition(topic, 0, 1, "mine")])
        until(lambda: consumer.poll(0.1) or hears.committed)
        assert hears.committed == [(1, "mine")]

    def test_are_told_if_they_are_automatic(self, consume: Any, hears: Appends) -> None:
        consumer = consume(hears, auto_commit_interval_ms=100)
        until(lambda: consumer.poll(0.1) or hears.committed)
        assert hears.committed == [(1, None)]

    def test_are_told_on_close_before_the_end_of_the_interceptors(self, consume: Any) -> None:
        at_commit: list[int] = []

        class Hears(Appends):
            def on_commit(self, offsets: list[TopicPartition]) -> None:
                at_commit.append(self.closed)
                super().on_commit(offsets)

        hears = Hears(b"a")
        consume(hears, auto_commit_interval_ms=600_000).close()
        assert (hears.committed, at_commit, hears.closed) == ([(1, None)], [0], 1)

    @pytest.mark.parametrize("asynchronous", [True, False])
    def test_are_not_told_if_they_fail(
        self, consume: Any, hears: Appends, topic: str, *, asynchronous: bool
    ) -> None:
        """The broker refuses metadata of this size."""
        outcomes: list[Any] = []
        own = {"on_commit": lambda error, found: outcomes.append((error, found))}
        consumer = consume(hears, enable_auto_commit=False, settings=own)
        wrong = [TopicPartition(topic, 0, 1, "x" * 10_000)]
        if asynchronous:
            consumer.commit(offsets=wrong)
            until(lambda: consumer.poll(0.1) or outcomes)
            (error, partitions) = outcomes[0]
            assert error is not None or partitions[0].error is not None
        else:
            with pytest.raises(KafkaException):
                consumer.commit(offsets=wrong, asynchronous=False)
        assert hears.committed == []

    def test_reach_the_others_if_one_fails(self, consume: Any, hears: Appends) -> None:
        first = Appends(b"b", fails=("commit",))
        consume(first, hears, enable_auto_commit=False).commit(asynchronous=False)
        assert first.committed == hears.committed == [(1, None)]


class Configured(Interceptor, frozen=True, kw_only=True):
    """Remembers what it was opened with."""

    type: ClassVar[str] = "configured"
    opened: ClassVar[list[Any]] = []
    made: ClassVar[list[Appends]] = []

    level: int = 0

    def open(self, context: Context) -> Any:
        self.opened.append((self.level, context.side, context.client_id, context.group_id))
        self.made.append(Appends(b"a"))
        return self.made[-1]


@pytest.fixture
def configured(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Return the lines of a client's configuration that name the interceptor."""
    monkeypatch.setitem(interceptor_type._built_in, "configured", f"{__name__}:Configured")
    Configured.opened.clear()
    Configured.made.clear()
    return {"interceptors": "configured", "interceptors.configured.level": "3"}


class TestLife:
    @pytest.mark.parametrize(("kind", "side"), [(Producer, "producer"), (Consumer, "consumer")])
    def test_each_is_configured_and_closed_once(
        self, cluster: Cluster, configured: dict[str, str], kind: Any, side: str
    ) -> None:
        group = {"group.id": "billing"} if kind is Consumer else {}
        client = kind({"bootstrap.servers": cluster.servers, "client.id": "orders-1", **group, **configured})
        assert Configured.opened == [(3, side, "orders-1", group.get("group.id"))]
        client.close()
        client.close()
        assert [each.closed for each in Configured.made] == [1]

    @pytest.mark.parametrize("kind", [Producer, Consumer])
    def test_those_that_were_opened_are_closed_if_the_client_cannot_be_made(
        self, cluster: Cluster, configured: dict[str, str], kind: Any
    ) -> None:
        wrong = {"bootstrap.servers": cluster.servers, "group.id": "g", "no.such.property": "1"}
        with pytest.raises(KafkaException):
            kind({**wrong, **configured})
        assert [each.closed for each in Configured.made] == [1]

    def test_a_producer_closes_them_behind_the_last_acknowledgement(
        self, cluster: Cluster, topic: str
    ) -> None:
        at_acknowledgement: list[int] = []

        class Hears(Appends):
            def on_acknowledgement(self, *told: Any) -> None:
                at_acknowledgement.append(self.closed)
                super().on_acknowledgement(*told)

        hears = Hears(b"a")
        producer = cluster.producer(hears, linger_ms=200)
        producer.produce(topic, b"-")
        producer.close()
        assert (at_acknowledgement, hears.closed) == ([0], 1)
