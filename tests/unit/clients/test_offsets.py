from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, ClassVar

import confluent_kafka
import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from headerware.clients import Consumer, Producer, offsets
from headerware.clients.dead_letters import DeadLetters
from headerware.clients.delivery import Delivery
from headerware.clients.offsets import held_back, register_consumer
from headerware.core.chain import Chain
from headerware.core.commit_metadata import PendingOffsets
from headerware.core.context import Context
from headerware.core.errors import DeadLetterError, InterceptorError, ReassemblyError
from headerware.core.hooks import Interceptor, Place
from headerware.core.record import Record
from headerware.interceptors.slice import Slice
from tests.unit.clients.conftest import take

SLICED = b"x" * 1_500
"""Two slices at 1,000 bytes."""
OpenConsumer = Callable[..., Consumer]
PutSlices = Callable[..., None]


@pytest.fixture
def put_slices(connection: dict[str, Any], topic: str) -> PutSlices:
    """Return a function that produces wire records: ``put_slices("A1", "b", "A2")`` puts slices around b."""
    split: dict[str, list[Record]] = {}

    def put(*names: str) -> None:
        with Producer(connection, chain=Chain()) as producer:
            for name in names:
                if name.islower():
                    producer.produce(topic, name.encode(), partition=0)
                    continue
                if name[0] not in split:
                    step = Slice(max_bytes=1_000).open(Context(pick_partition=lambda _: 0))
                    split[name[0]] = pieces_of(
                        step.on_send(Record(topic, SLICED + name[0].encode(), partition=0))
                    )
                piece = split[name[0]][int(name[1]) - 1]
                producer.produce(topic, piece.value, piece.key, 0, headers=list(piece.headers))

    return put


def pieces_of(outcome: Any) -> list[Record]:
    return list(outcome)


def names(messages: list[Message]) -> list[str]:
    return [(message.value() or b"")[-1:].decode() for message in messages]


def up_to_the_end(consumer: Consumer) -> list[Message]:
    """Return the messages up to the end of the partition, of which the consumer tells."""
    found: list[Message] = []
    deadline = time.monotonic() + 60
    while True:
        assert time.monotonic() < deadline
        message = consumer.poll(0.2)
        if message is not None and message.error() is not None:
            return found
        found += [] if message is None else [message]


def nothing_more(consumer: Consumer) -> bool:
    return consumer.poll(0.4) is None


def on_broker(connection: dict[str, Any], group: str, topic: str) -> tuple[int, str | None]:
    """Read the committed offset with its metadata, as the broker has it."""
    reader = confluent_kafka.Consumer({**connection, "group.id": group})
    found = reader.committed([TopicPartition(topic, 0)], 10)[0]
    reader.close()
    return found.offset, found.metadata


@pytest.fixture
def open_consumer(connection: dict[str, Any], topic: str) -> Any:
    """Return a function that opens one consumer of the group after the other."""
    made: list[Consumer] = []

    def make(**conf: Any) -> Consumer:
        settings = {name.replace("_", "."): value for name, value in conf.items()}
        consumer = Consumer(
            {**connection, "group.id": topic, "auto.offset.reset": "earliest", **settings},
            chain=Chain([Slice(max_bytes=1_000)]),
        )
        consumer.assign([TopicPartition(topic, 0)])
        made.append(consumer)
        return consumer

    yield make
    for consumer in made:
        consumer.close()


class TestHoldingBack:
    def test_commits_the_first_slice_of_what_is_incomplete_and_the_watermark(
        self, connection: dict[str, Any], open_consumer: OpenConsumer, put_slices: PutSlices, topic: str
    ) -> None:
        put_slices("a", "B1", "c", "d")
        consumer = open_consumer(enable_auto_commit=False)
        assert names(take(consumer, 3)) == ["a", "c", "d"]
        consumer.commit(asynchronous=False)
        assert on_broker(connection, topic, topic) == (1, "hw1:4:")
        assert consumer.committed([TopicPartition(topic, 0)], 10)[0].metadata is None
        assert consumer.position([TopicPartition(topic, 0)])[0].offset == 4

    def test_holds_explicit_commits_back_too(
        self, connection: dict[str, Any], open_consumer: OpenConsumer, put_slices: PutSlices, topic: str
    ) -> None:
        put_slices("A1", "b")
        consumer = open_consumer(enable_auto_commit=False, enable_auto_offset_store=False)
        (message,) = take(consumer, 1)
        done = consumer.commit(message, asynchronous=False)
        assert [offset.offset for offset in done] == [0]
        assert on_broker(connection, topic, topic) == (0, "hw1:2:")
        consumer.commit(offsets=[TopicPartition(topic, 0, 2, "mine")], asynchronous=False)
        assert on_broker(connection, topic, topic) == (0, "hw1:2:mine")
        consumer.store_offsets(message)
        consumer.commit(asynchronous=False)
        assert on_broker(connection, topic, topic) == (0, "hw1:2:")

    def test_brings_a_watermark_that_rises_above_the_same_offset_to_the_broker(
        self, connection: dict[str, Any], open_consumer: OpenConsumer, put_slices: PutSlices, topic: str
    ) -> None:
        put_slices("a", "B1", "c")
        consumer = open_consumer(auto_commit_interval_ms=50)
        take(consumer, 2)
        put_slices("d")
        take(consumer, 1)
        deadline = time.monotonic() + 60
        while on_broker(connection, topic, topic) != (1, "hw1:4:"):
            assert time.monotonic() < deadline, on_broker(connection, topic, topic)
            consumer.poll(0.1)

    def test_commits_the_watermark_on_close(
        self, connection: dict[str, Any], open_consumer: OpenConsumer, put_slices: PutSlices, topic: str
    ) -> None:
        put_slices("a", "B1", "c")
        consumer = open_consumer()
        take(consumer, 2)
        consumer.close()
        assert on_broker(connection, topic, topic) == (1, "hw1:3:")

    def test_holds_back_what_is_read_again_after_an_interrupt(
        self,
        connection: dict[str, Any],
        open_consumer: OpenConsumer,
        put_slices: PutSlices,
        topic: str,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        def interrupt(*_: object) -> None:
            raise KeyboardInterrupt

        put_slices("A1", "b", "c")
        consumer = open_consumer(enable_auto_commit=False)
        *_, last = take(consumer, 2)
        put_slices("d", "A2")
        monkeypatch.setattr(Delivery, "add", interrupt)
        with pytest.raises(KeyboardInterrupt):
            consumer.poll(60)
        monkeypatch.undo()
        consumer.commit(last, asynchronous=False)
        assert on_broker(connection, topic, topic) == (0, "hw1:3:")
        assert names(take(consumer, 2)) == ["d", "A"]
        consumer.commit(asynchronous=False)
        assert on_broker(connection, topic, topic) == (5, None)

    def test_holds_a_batch_back(
        self, connection: dict[str, Any], open_consumer: OpenConsumer, put_slices: PutSlices, topic: str
    ) -> None:
        put_slices("a", "B1", "c", "B2", "D1")
        consumer = open_consumer(enable_auto_commit=False)
        found: list[Message] = []
        deadline = time.monotonic() + 60
        while len(found) < 3 and time.monotonic() < deadline:
            found.extend(consumer.consume(10, 0.3))
        consumer.consume(1, 0.3)
        assert names(found) == ["a", "c", "B"]
        consumer.commit(asynchronous=False)
        assert on_broker(connection, topic, topic) == (4, "hw1:5:")

    def test_releases_what_has_expired(
        self, connection: dict[str, Any], put_slices: PutSlices, topic: str
    ) -> None:
        put_slices("A1", "b")
        consumer = Consumer(
            {**connection, "group.id": topic, "auto.offset.reset": "earliest", "enable.auto.commit": False},
            chain=Chain([Slice(max_bytes=1_000, expire_ms=300)]),
        )
        consumer.assign([TopicPartition(topic, 0)])
        take(consumer, 1)
        with pytest.raises(ReassemblyError):
            consumer.poll(60)
        deadline = time.monotonic() + 60
        while on_broker(connection, topic, topic)[0] != 2:
            assert time.monotonic() < deadline
            consumer.poll(0.2)
            try:
                consumer.commit(asynchronous=False)
            except confluent_kafka.KafkaException:
                continue
        assert on_broker(connection, topic, topic) == (2, None)
        consumer.close()

    def test_holds_a_transactions_offsets_back(
        self, open_consumer: OpenConsumer, put_slices: PutSlices, topic: str
    ) -> None:
        put_slices("a", "B1", "c")
        consumer = open_consumer()
        take(consumer, 2)
        metadata = consumer.consumer_group_metadata()
        held = held_back(metadata, [TopicPartition(topic, 0, 3, "mine")])
        assert [(offset.offset, offset.metadata) for offset in held] == [(1, "hw1:3:mine")]
        untouched = [TopicPartition(topic, 0, 3)]
        assert held_back(b"another consumer's", untouched) is untouched


class TestRestart:
    def test_delivers_nothing_again(
        self, open_consumer: OpenConsumer, put_slices: PutSlices, topic: str
    ) -> None:
        put_slices("a", "B1", "c", "D1", "D2")
        first = open_consumer()
        assert names(take(first, 3)) == ["a", "c", "D"]
        first.close()
        put_slices("B2", "e")
        second = open_consumer()
        assert names(take(second, 2)) == ["B", "e"]
        assert nothing_more(second)
        assert second.stats()["client"]["repeated"] == 2

    def test_keeps_the_watermark_through_a_second_one(
        self, connection: dict[str, Any], open_consumer: OpenConsumer, put_slices: PutSlices, topic: str
    ) -> None:
        put_slices("A1", "b", "c")
        first = open_consumer()
        take(first, 2)
        first.close()
        second = open_consumer()
        assert nothing_more(second)
        second.close()
        assert on_broker(connection, topic, topic) == (0, "hw1:3:")
        put_slices("A2", "d")
        assert names(take(open_consumer(), 2)) == ["A", "d"]

    def test_keeps_the_watermark_when_it_stops_before_it(
        self, connection: dict[str, Any], open_consumer: OpenConsumer, put_slices: PutSlices, topic: str
    ) -> None:
        put_slices("A1", "b", "c", "d")
        first = open_consumer()
        take(first, 3)
        first.close()
        second = open_consumer()
        deadline = time.monotonic() + 60
        while second.position([TopicPartition(topic, 0)])[0].offset != 2:
            assert second.poll(0) is None
            assert time.monotonic() < deadline
        second.close()
        assert on_broker(connection, topic, topic) == (0, "hw1:4:")

    def test_delivers_what_a_worker_of_the_group_has_left_pending(
        self, open_consumer: OpenConsumer, put_slices: PutSlices, topic: str
    ) -> None:
        put_slices("a", "b", "c", "d", "e")
        first = open_consumer()
        offset, metadata = PendingOffsets({1, 3}).encode(4)
        left = TopicPartition(topic, 0, offset, metadata=metadata or "")
        confluent_kafka.Consumer.commit(first, offsets=[left], asynchronous=False)
        first.close()
        assert names(take(open_consumer(), 3)) == ["b", "d", "e"]

    @pytest.mark.parametrize("beyond", [1, 10**6, 2**62])
    def test_does_not_believe_a_watermark_beyond_the_partitions_end(
        self,
        open_consumer: OpenConsumer,
        put_slices: PutSlices,
        topic: str,
        caplog: pytest.LogCaptureFixture,
        beyond: int,
    ) -> None:
        put_slices("a", "b", "c")
        first = open_consumer()
        # As anyone in the group may commit it.
        forged = TopicPartition(topic, 0, 1, metadata=f"hw1:{3 + beyond}:")
        confluent_kafka.Consumer.commit(first, offsets=[forged], asynchronous=False)
        first.close()
        second = open_consumer()
        assert names(take(second, 2)) == ["b", "c"]
        put_slices("d")
        assert names(take(second, 1)) == ["d"]
        assert second.stats()["client"]["repeated"] == 0
        assert f"{3 + beyond} of {topic}[0] is beyond the partition's end 3" in caplog.text

    def test_repeats_records_where_the_partitions_end_is_not_to_be_had(
        self,
        open_consumer: OpenConsumer,
        put_slices: PutSlices,
        topic: str,
        caplog: pytest.LogCaptureFixture,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        put_slices("A1", "b")
        first = open_consumer()
        take(first, 1)
        first.close()
        monkeypatch.setattr(Consumer, "get_watermark_offsets", lambda *_, **__: None)
        assert names(take(open_consumer(), 1)) == ["b"]
        assert "records may repeat" in caplog.text

    def test_delivers_all_where_the_application_says_from_where(
        self, open_consumer: OpenConsumer, put_slices: PutSlices, topic: str
    ) -> None:
        put_slices("A1", "b")
        first = open_consumer()
        take(first, 1)
        first.close()
        second = open_consumer()
        second.assign([TopicPartition(topic, 0, 0)])
        assert names(take(second, 1)) == ["b"]


class TestDeadLetters:
    class Picky(Interceptor, frozen=True, kw_only=True):
        place: ClassVar[Place | None] = Place.COMPRESS

        def on_consume(self, record: Record) -> Record:
            if record.value.endswith(b"B"):
                raise InterceptorError("no")
            return record

    def test_of_a_reassembled_message_hold_everything_back_until_they_are_stored(
        self, connection: dict[str, Any], put_slices: PutSlices, topic: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        stored: list[str] = []
        publish = DeadLetters.publish

        def outage(dead_letters: DeadLetters, record: Record) -> None:
            if not available:
                raise KafkaException(confluent_kafka.KafkaError(1, "unavailable"))
            publish(dead_letters, record)
            stored.append(record.topic)

        monkeypatch.setattr(DeadLetters, "publish", outage)
        available = False
        put_slices("a", "B1", "c", "B2", "d")
        conf = {**connection, "group.id": topic, "auto.offset.reset": "earliest", "enable.auto.commit": False}
        with Consumer(
            conf, chain=Chain([self.Picky(on_error="dead_letter"), Slice(max_bytes=1_000)])
        ) as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            assert names(take(consumer, 2)) == ["a", "c"]
            for _ in range(3):
                with pytest.raises(DeadLetterError):
                    consumer.poll(60)
            consumer.commit(asynchronous=False)
            assert on_broker(connection, topic, topic) == (1, "hw1:3:")
            available = True
            assert names(take(consumer, 1)) == ["d"]
            assert set(stored) == {f"{topic}.dead-letter"}
            consumer.commit(asynchronous=False)
            assert on_broker(connection, topic, topic) == (5, None)


class TestAMessageThatWasNotRead:
    @pytest.mark.parametrize("call", ["commit", "store_offsets"])
    @pytest.mark.parametrize(
        ("position", "lacks"), [((0,), "offset"), ((0, -1), "offset"), ((-1, 7), "partition"), ((), "offset")]
    )
    def test_commits_nothing(
        self,
        open_consumer: OpenConsumer,
        connection: dict[str, Any],
        topic: str,
        call: str,
        position: tuple[int, ...],
        lacks: str,
    ) -> None:
        consumer = open_consumer(**{"enable.auto.offset.store": False})
        with pytest.raises(KafkaException, match=f"without {lacks}") as caught:
            getattr(consumer, call)(Message(topic, *position))  # type: ignore[arg-type]  # topic, partition, offset
        assert caught.value.args[0].code() == KafkaError._NO_OFFSET
        assert on_broker(connection, topic, topic) == (OFFSET_INVALID, None)


class TestSeek:
    def test_begins_at_the_first_slice_of_a_message_that_was_delivered(
        self, open_consumer: OpenConsumer, put_slices: PutSlices, topic: str
    ) -> None:
        put_slices("A1", "b", "A2", "d")
        consumer = open_consumer()
        found = take(consumer, 3)
        assert names(found) == ["b", "A", "d"]
        consumer.seek(TopicPartition(topic, 0, found[1].offset() or 0))
        assert names(take(consumer, 2)) == ["A", "d"]

    @pytest.mark.parametrize("offset", [1, 3, 4, OFFSET_BEGINNING, OFFSET_END])
    @pytest.mark.parametrize("ends", ["commit", "close"])
    def test_forgets_no_delivery_before_it(
        self,
        connection: dict[str, Any],
        open_consumer: OpenConsumer,
        put_slices: PutSlices,
        topic: str,
        offset: int,
        ends: str,
    ) -> None:
        put_slices("A1", "b", "c", "d")
        consumer = open_consumer(enable_auto_commit=ends == "close")
        take(consumer, 1)
        consumer.commit(asynchronous=False)
        assert on_broker(connection, topic, topic) == (0, "hw1:2:")
        take(consumer, 2)
        consumer.seek(TopicPartition(topic, 0, offset))
        if ends == "commit":
            consumer.commit(asynchronous=False)
        consumer.close()
        assert on_broker(connection, topic, topic) == (0, "hw1:4:")
        put_slices("A2", "f")
        assert names(take(open_consumer(), 2)) == ["A", "f"]

    def test_commits_from_where_it_went(
        self, connection: dict[str, Any], open_consumer: OpenConsumer, put_slices: PutSlices, topic: str
    ) -> None:
        put_slices("A1", "b", "c", "d")
        consumer = open_consumer(enable_auto_commit=False)
        take(consumer, 3)
        consumer.seek(TopicPartition(topic, 0, 2))
        assert names(take(consumer, 1)) == ["c"]
        consumer.commit(asynchronous=False)
        assert on_broker(connection, topic, topic) == (0, "hw1:3:")
        consumer.close()
        put_slices("A2")
        assert names(take(open_consumer(), 2)) == ["d", "A"]

    @pytest.mark.parametrize("offset", [2, 4, OFFSET_END])
    def test_loses_no_message_that_waits(
        self,
        connection: dict[str, Any],
        open_consumer: OpenConsumer,
        put_slices: PutSlices,
        topic: str,
        offset: int,
    ) -> None:
        put_slices("A1", "b", "c", "d")
        consumer = open_consumer(enable_auto_commit=False, enable_partition_eof=True)
        up_to_the_end(consumer)
        consumer.seek(TopicPartition(topic, 0, offset))
        up_to_the_end(consumer)
        put_slices("A2", "e")
        assert names(up_to_the_end(consumer)) == ["A", "e"]
        consumer.commit(asynchronous=False)
        assert on_broker(connection, topic, topic) == (6, None)

    def test_loses_no_message_that_is_being_read_again(
        self,
        connection: dict[str, Any],
        open_consumer: OpenConsumer,
        put_slices: PutSlices,
        topic: str,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        def interrupt(*_: object) -> None:
            raise KeyboardInterrupt

        put_slices("A1", "b", "c")
        consumer = open_consumer(enable_auto_commit=False)
        take(consumer, 2)
        put_slices("d", "e")
        monkeypatch.setattr(Delivery, "add", interrupt)
        with pytest.raises(KeyboardInterrupt):
            consumer.poll(60)
        monkeypatch.undo()
        consumer.seek(TopicPartition(topic, 0, 4))
        assert names(take(consumer, 1)) == ["e"]
        consumer.commit(asynchronous=False)
        assert on_broker(connection, topic, topic) == (0, "hw1:5:")
        put_slices("A2")
        assert names(take(consumer, 1)) == ["A"]


class HoldsBack:
    def committable(self, positions: list[TopicPartition]) -> list[TopicPartition]:
        return [TopicPartition(each.topic, each.partition, each.offset - 1) for each in positions]


def offset_after(metadata: bytes) -> int:
    return held_back(metadata, [TopicPartition("orders", 0, 9)])[0].offset


class TestRegister:
    def test_finds_the_consumer_that_gave_the_metadata_out(self) -> None:
        consumer = HoldsBack()
        register_consumer(b"generation-1", consumer, HoldsBack.committable)
        assert offset_after(b"generation-1") == 8
        assert offset_after(b"of nobody") == 9

    def test_forgets_a_consumers_earlier_generations(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(offsets, "_consumers", {})
        consumer, other = HoldsBack(), HoldsBack()
        register_consumer(b"generation-0", other, HoldsBack.committable)
        for generation in range(100):
            register_consumer(b"generation-%d" % generation, consumer, HoldsBack.committable)
        assert set(offsets._consumers) == {b"generation-0", b"generation-99"}
        assert offset_after(b"generation-99") == 8
        assert offset_after(b"generation-0") == 8
