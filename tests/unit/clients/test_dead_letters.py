from __future__ import annotations

import time
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from headerware.clients import Consumer, Producer
from headerware.clients.dead_letters import DeadLetters, dead_letter_error
from headerware.core.chain import Chain
from headerware.core.errors import DeadLetterError, InterceptorError
from headerware.core.hooks import Interceptor
from headerware.core.record import Record
from headerware.interceptors import Slice
from tests.committing import commit_stored
from tests.unit.clients.conftest import Fill, MakeConsumer, committed, take, values


class TestDeadLetters:
    class Careful(Interceptor, frozen=True, kw_only=True):
        def on_consume(self, record: Record) -> Record:
            if record.value == b"bad":
                raise InterceptorError("no")
            return record

    def test_are_published_and_passed(
        self, connection: dict[str, Any], make_consumer: MakeConsumer, fill: Fill, topic: str
    ) -> None:
        fill(b"bad", b"b")
        consumer = make_consumer(self.Careful(on_error="dead_letter"), topic=topic)
        assert values(take(consumer, 1)) == [b"b"]
        reader = confluent_kafka.Consumer(
            {**connection, "group.id": "dead_letters", "auto.offset.reset": "earliest"}
        )
        reader.assign([TopicPartition(f"{topic}.dead-letter", partition, 0) for partition in range(4)])
        dead_letter = reader.poll(60)
        reader.close()
        assert dead_letter is not None
        assert dead_letter.value() == b"bad"
        assert ("__connect.errors.offset", b"0") in (dead_letter.headers() or [])

    def test_hold_everything_back_until_they_are_stored(
        self, connection: dict[str, Any], fill: Fill, topic: str
    ) -> None:
        fill(b"a", b"bad", b"c")
        chain = Chain([self.Careful(on_error="dead_letter", dead_letter_topic="not a topic's name")])
        consumer = Consumer(
            {
                **connection,
                "group.id": topic,
                "auto.offset.reset": "earliest",
                "headerware.dead_letter.message.timeout.ms": 1_000,
                "headerware.dead_letter.bootstrap.servers": "127.0.0.1:1",
            },
            chain=chain,
        )
        consumer.assign([TopicPartition(topic, 0)])
        assert values(take(consumer, 1)) == [b"a"]
        for _ in range(2):
            with pytest.raises(DeadLetterError):
                consumer.poll(60)
        commit_stored(consumer)
        assert committed(consumer, topic)[0] == 1
        consumer.close()

    def test_that_cannot_be_stored_cost_no_place_in_the_group(
        self, connection: dict[str, Any], fill: Fill, topic: str
    ) -> None:
        fill(b"bad")
        # Once more if the machine was too busy to poll in time.
        assert any(self.keep_their_place(connection, topic, f"{topic}-{attempt}") for attempt in range(5))

    def keep_their_place(self, connection: dict[str, Any], topic: str, group: str) -> bool:
        lost: list[Any] = []
        consumer = Consumer(
            {
                **connection,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 2_000,
                "heartbeat.interval.ms": 300,
                "max.poll.interval.ms": 2_000,
                "headerware.dead_letter.message.timeout.ms": 500,
                "headerware.dead_letter.bootstrap.servers": "127.0.0.1:1",
            },
            chain=Chain([self.Careful(on_error="dead_letter")]),
        )
        consumer.subscribe([topic], on_lost=lambda _, partitions: lost.extend(partitions))
        held, deadline, longest_s, last = 0, time.monotonic() + 5, 0.0, time.monotonic()
        while time.monotonic() < deadline:
            longest_s, last = max(longest_s, time.monotonic() - last), time.monotonic()
            try:
                message = consumer.poll(0.2)
            except DeadLetterError:
                held += 1
            else:
                assert message is None, message.error()
        for _ in range(4):  # serve what is due
            event = confluent_kafka.Consumer.poll(consumer, 0.25)
            assert event is None or event.error() is None
        share = consumer.assignment()
        consumer.close()
        if longest_s > 1.5:
            return False
        assert held >= 2
        assert lost == []
        assert len(share) == 1
        return True

    def test_of_a_message_without_a_key_stay_in_one_partition(
        self, connection: dict[str, Any], topic: str
    ) -> None:
        sender = Producer(connection, chain=Chain([Slice(max_bytes=2_000)]))
        sender.produce(topic, b"bad" * 5_000)
        sender.flush(60)

        class Suspicious(Interceptor, frozen=True, kw_only=True):
            def on_consume(self, record: Record) -> Record:
                raise InterceptorError("no")

        chain = Chain([Suspicious(on_error="dead_letter"), Slice(max_bytes=2_000)])
        conf = {**connection, "auto.offset.reset": "earliest"}
        with Consumer({**conf, "group.id": topic}, chain=chain) as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            deadline = time.monotonic() + 60
            while consumer.stats()["suspicious"]["dead_lettered"] < 1:
                assert time.monotonic() < deadline
                assert consumer.poll(0.1) is None
        dead_letters = [TopicPartition(f"{topic}.dead-letter", partition, 0) for partition in range(4)]
        with Consumer({**conf, "group.id": f"{topic}-dead_letters"}, chain=Chain([Slice()])) as reader:
            reader.assign(dead_letters)
            assert values(take(reader, 1)) == [b"bad" * 5_000]


class TestAfterTheEnd:
    def test_nothing_is_sent_and_no_producer_is_made(self) -> None:
        dead_letters = DeadLetters({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
        dead_letters.close()
        record = Record("dead", b"v")
        with pytest.raises(DeadLetterError, match="was closed"):
            dead_letters.publish(record)
        with pytest.raises(KafkaException, match="was closed"):
            dead_letters.post(record, lambda _: None)
        assert not dead_letters.wait(0)


class TestFailures:
    def test_of_many_records_do_not_keep_each_other_from_trying_again(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """However often others ask meanwhile, one tries again when the moment is over."""
        now = [100.0]
        monkeypatch.setattr("headerware.clients.dead_letters.time.monotonic", lambda: now[0])
        dead_letters = DeadLetters({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
        produced: list[Record] = []
        monkeypatch.setattr(dead_letters, "_produce", lambda record, _: produced.append(record))
        record = Record("dead", b"v")
        published = dead_letters.publish(record)
        published(KafkaError(KafkaError._MSG_TIMED_OUT), None)
        refused = 0
        while len(produced) < 2:
            now[0] += 0.01
            try:
                dead_letters.publish(record)
            except DeadLetterError:
                refused += 1
        assert 0 < refused < 10


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, "; grant this user the right WRITE on orders.dead-letter"),
        (KafkaError._UNKNOWN_TOPIC, "; create it, or name another one by dead_letter_topic"),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, "; create it, or name another one by dead_letter_topic"),
        (KafkaError._MSG_TIMED_OUT, ""),
    ],
)
def test_says_what_is_missing(code: int, advice: str) -> None:
    error = KafkaError(code)
    told = str(dead_letter_error("orders.dead-letter", KafkaException(error)))
    assert told == f"topic 'orders.dead-letter' did not take it: {error.str()} ({error.name()}){advice}"
