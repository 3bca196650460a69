"""Dead letters on the real broker, in the header names that Connect and Spring use."""

from __future__ import annotations

import contextlib
import hashlib
import random
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from confluent_kafka import KafkaException

from headerware import DeadLetterError, Headers, Interceptor, InterceptorError, Record
from headerware.interceptors import Sign, Slice, Trail
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable

    from confluent_kafka import Message

    from headerware import Consumer
    from tests.integration.conftest import Cluster

pytestmark = pytest.mark.broker

DEADLINE_S: Final = 60.0
TIMESTAMP_MS: Final = 1_700_000_000_000
IMPATIENT: Final = {"headerware.dead_letter.message.timeout.ms": 500}
LONG: Final = ("message", "stacktrace")
CLAIM: Final[Any] = [("hw.slice", b"no slice at all")]
"""It keeps a slicer from cutting the letter, for a slice is never cut again."""


def tamper(cluster: Cluster, topic: str, keyring: str) -> list[tuple[str, bytes | None]]:
    """Lay three records, the second of them with a value that somebody has changed, and give its headers."""
    producer = cluster.producer(Trail(service="orders"), Sign(keyring=keyring, key_id="test"))

    def send(value: bytes) -> None:
        producer.produce(topic, value, b"key", 0, headers=[("a", b"1"), ("a", None)])
        assert producer.flush(DEADLINE_S) == 0

    send(b"good")
    headers = list(Headers(cluster.on_the_wire(topic)[0].headers()))
    wire = cluster.plain_producer()
    wire.produce(topic, b"evil", b"key", 0, timestamp=TIMESTAMP_MS, headers=headers)
    assert wire.flush(DEADLINE_S) == 0
    send(b"better")
    return headers


class TestLetters:
    def test_java_sees_the_original_and_the_reason(self, cluster: Cluster, keyring: str) -> None:
        topic = cluster.topic("orders")
        letters = cluster.topic("letters")
        headers = tamper(cluster, topic, keyring)
        names: Any
        for names in ("connect", "spring"):
            sign = Sign(
                keyring=keyring, on_error="dead_letter", dead_letter_topic=letters, dead_letter_headers=names
            )
            consumer = cluster.consumer(topic, sign, group_id=f"{topic}-{names}")
            assert [m.value() for m in cluster.rest_of(consumer, topic)] == [b"good", b"better"]
            cluster.commit(consumer)
            assert cluster.committed(f"{topic}-{names}", topic)[0] == 3

        connect, spring = cluster.in_java(letters, 2)
        for letter in (connect, spring):
            assert (letter.key, letter.value) == (b"key", b"evil")
            assert letter.headers[: len(headers)] == headers, "untouched, the signature included"
        reason = f"sign at {topic}[0]@1: the signature by key 'test' version 1 does not fit the record"
        told = dict(connect.headers[len(headers) :])
        assert {name: value for name, value in told.items() if not name.endswith(LONG)} == {
            "__connect.errors.topic": topic.encode(),
            "__connect.errors.partition": b"0",
            "__connect.errors.offset": b"1",
            "__connect.errors.stage": b"ON_CONSUME",
            "__connect.errors.class.name": b"sign",
            "__connect.errors.exception.class.name": b"headerware.core.errors.SignatureError",
        }
        assert (told["__connect.errors.exception.message"] or b"").startswith(reason.encode())
        assert told["__connect.errors.exception.stacktrace"]

        told = dict(spring.headers[len(headers) :])
        assert {name: value for name, value in told.items() if not name.endswith(LONG)} == {
            "kafka_dlt-original-topic": topic.encode(),
            "kafka_dlt-original-partition": struct.pack(">i", 0),
            "kafka_dlt-original-offset": struct.pack(">q", 1),
            "kafka_dlt-original-timestamp": struct.pack(">q", TIMESTAMP_MS),
            "kafka_dlt-original-timestamp-type": b"CreateTime",
            "kafka_dlt-original-consumer-group": f"{topic}-spring".encode(),
            "kafka_dlt-exception-fqcn": b"headerware.core.errors.SignatureError",
        }
        assert (told["kafka_dlt-exception-message"] or b"").startswith(reason.encode())
        assert told["kafka_dlt-exception-stacktrace"]

    def test_a_glued_message_is_cut_again(self, cluster: Cluster) -> None:
        topic = cluster.topic("orders")
        large = b"bad" + random.Random(3).randbytes(2_000_000)
        producer = cluster.producer(Slice())
        for value in (b"bad", large, b"good"):
            producer.produce(topic, value, b"key", headers=[("a", b"1")])
        assert producer.flush(DEADLINE_S) == 0
        consumer = cluster.consumer(topic, Picky(), Slice())
        assert [m.value() for m in cluster.rest_of(consumer, topic)] == [b"good"]

        letters = f"{topic}.dead-letter"
        assert len(cluster.on_the_wire(letters)) > 3, "the broker takes no record of this size"
        found = cluster.rest_of(cluster.consumer(letters, Slice()), letters)
        assert [m.value() for m in found] == [b"bad", large]
        for message in found:
            headers = Headers(message.headers())
            assert headers[0] == ("a", b"1")
            assert dict(headers)["__connect.errors.class.name"] == b"picky"


class TestTooLarge:
    """Whoever can write to a topic can write records that no dead-letter topic takes with a reason."""

    def refused(self, cluster: Cluster, *records: dict[str, Any], **settings: Any) -> list[Message]:
        """Lay plain records and a good one through a chain that refuses them, and give their letters."""
        topic = cluster.topic("orders", config={"message.timestamp.after.max.ms": str(2**62)})
        letters = cluster.topic("letters", config=settings)
        wire = cluster.plain_producer(message_max_bytes=2_000_000)
        for record in (*records, {"value": b"good", "key": b"key"}):
            wire.produce(topic, partition=0, **record)
            assert wire.flush(DEADLINE_S) == 0
        told: Any = {"on_error": "dead_letter", "dead_letter_topic": letters}
        consumer = cluster.consumer(topic, Picky(**told), Slice(**told))
        assert [m.value() for m in cluster.rest_of(consumer, topic)] == [b"good"]
        cluster.commit(consumer)
        assert cluster.committed(topic, topic)[0] == len(records) + 1
        return cluster.on_the_wire(letters)

    # What Java's producer sends at most: such a letter leaves room for a short reason at the broker's limit.
    NEARLY: Final = b"bad" + bytes(1_048_000)
    LARGEST: Final = b"bad" + bytes(1_048_450)

    def test_a_reason_is_shortened_where_that_is_enough(self, cluster: Cluster) -> None:
        (letter,) = self.refused(cluster, {"value": self.NEARLY, "key": b"k", "headers": CLAIM})
        assert letter.value() == self.NEARLY
        names = Headers(letter.headers()).names()
        assert "__connect.errors.exception.stacktrace" not in names
        assert "__connect.errors.exception.message" in names

    def test_a_stub_stands_for_the_largest(self, cluster: Cluster) -> None:
        (letter,) = self.refused(cluster, {"value": self.LARGEST, "headers": CLAIM})
        assert letter.value() is None
        headers = dict(Headers(letter.headers()))
        assert headers["__connect.errors.offset"] == b"0"
        assert headers["headerware.stub.value.bytes"] == str(len(self.LARGEST)).encode()
        assert headers["headerware.stub.value.sha256"] == hashlib.sha256(self.LARGEST).hexdigest().encode()

    def test_a_stub_stands_for_headers_that_are_too_large(self, cluster: Cluster) -> None:
        bloated = [*CLAIM, ("x", bytes(1_048_350))]
        (letter,) = self.refused(cluster, {"value": b"bad", "headers": bloated})
        headers = dict(Headers(letter.headers()))
        assert headers["headerware.stub.headers"] == b"2"
        assert "x" not in headers

    def test_the_brokers_limit_may_be_lower_than_the_clients(self, cluster: Cluster) -> None:
        limits = {"max.message.bytes": "10000"}
        (letter,) = self.refused(cluster, {"value": b"bad" + bytes(20_000), "headers": CLAIM}, **limits)
        assert dict(Headers(letter.headers()))["headerware.stub.value.bytes"] == b"20003"

    def test_what_compression_made_small_is_no_obstacle(self, cluster: Cluster) -> None:
        topic = cluster.topic("orders")
        wire = cluster.plain_producer(message_max_bytes=50_000_000, compression_type="gzip")
        wire.produce(topic, b"bad" + bytes(20_000_000), headers=CLAIM)
        wire.produce(topic, b"good")
        assert wire.flush(DEADLINE_S) == 0
        consumer = cluster.consumer(topic, Picky(), Slice(on_error="dead_letter"))
        assert [m.value() for m in cluster.rest_of(consumer, topic)] == [b"good"]
        (letter,) = cluster.on_the_wire(f"{topic}.dead-letter")
        assert dict(Headers(letter.headers()))["headerware.stub.value.bytes"] == b"20000003"

    def test_a_time_that_the_topic_refuses_is_left_out(self, cluster: Cluster) -> None:
        soon = int(time.time() * 1000) + 86_400_000
        (letter,) = self.refused(
            cluster,
            {"value": b"bad", "timestamp": soon, "key": b"k"},
            **{"message.timestamp.after.max.ms": "3600000"},
        )
        assert (letter.key(), letter.value()) == (b"k", b"bad")
        assert letter.timestamp()[1] < soon

    def test_a_key_that_the_topic_refuses_is_no_obstacle_either(self, cluster: Cluster) -> None:
        (letter,) = self.refused(cluster, {"value": b"bad"}, **{"cleanup.policy": "compact"})
        assert dict(Headers(letter.headers()))["headerware.stub.value.bytes"] == b"3"
        assert letter.key() == dict(Headers(letter.headers()))["__connect.errors.topic"] + b"[0]@0"


class TestUnavailableTopic:
    """The broker makes no topics of its own accord, so there is none to put the letter into."""

    def test_the_consumer_stays_where_it_is_until_there_is_one(
        self, second_cluster: Cluster, keyring: str
    ) -> None:
        topic = second_cluster.topic("orders")
        tamper(second_cluster, topic, keyring)
        consumer = second_cluster.consumer(
            topic,
            Sign(keyring=keyring, on_error="dead_letter"),
            settings=IMPATIENT,
        )
        assert [m.value() for m in second_cluster.take(consumer, 1)] == [b"good"]
        for _ in range(3):
            error = self.error_of(consumer)
            assert f"because: sign at {topic}[0]@1" in str(error)
            with contextlib.suppress(KafkaException):  # there is nothing new to commit
                consumer.commit(asynchronous=False)
            assert second_cluster.committed(topic, topic)[0] == 1

        letters = f"{topic}.dead-letter"
        second_cluster.broker.create_topic(letters)
        assert self.next_of(consumer) == b"better"
        # Once, or once more if the broker took longer to answer than this consumer waits.
        assert [m.value() for m in second_cluster.on_the_wire(letters)] in ([b"evil"], [b"evil"] * 2)
        second_cluster.commit(consumer)
        assert second_cluster.committed(topic, topic)[0] == 3

    def test_after_a_restart_the_record_is_still_there(self, second_cluster: Cluster, keyring: str) -> None:
        topic = second_cluster.topic("orders")
        tamper(second_cluster, topic, keyring)
        settings = {"group.instance.id": "only"}
        sign = Sign(keyring=keyring, on_error="dead_letter")
        first = second_cluster.consumer(topic, sign, settings={**settings, **IMPATIENT})
        assert [m.value() for m in second_cluster.take(first, 1)] == [b"good"]
        self.error_of(first)
        first.close()
        second_cluster.broker.create_topic(f"{topic}.dead-letter")
        second = second_cluster.consumer(topic, sign, settings=settings)
        assert [m.value() for m in second_cluster.rest_of(second, topic)] == [b"better"]
        assert [m.value() for m in second_cluster.on_the_wire(f"{topic}.dead-letter")] == [b"evil"]

    def test_a_glued_message_is_read_again_until_there_is_one(
        self, second_cluster: Cluster, cut: Callable[[str, bytes], list[Record]]
    ) -> None:
        topic = second_cluster.topic("orders")
        wire = second_cluster.plain_producer()
        large = b"bad" + bytes(6_000)
        first, *later = cut(topic, large)
        for value, headers in [
            (first.value, list(first.headers)),
            (b"between", None),
            *((piece.value, list(piece.headers)) for piece in later),
            (b"behind", None),
        ]:
            wire.produce(topic, value, b"key", 0, headers=headers)
        assert wire.flush(DEADLINE_S) == 0
        consumer = second_cluster.consumer(topic, Picky(), Slice(), settings=IMPATIENT)
        assert [m.value() for m in second_cluster.take(consumer, 1)] == [b"between"]
        for _ in range(2):
            self.error_of(consumer)
            second_cluster.commit(consumer)
            assert second_cluster.committed(topic, topic)[0] == 0, "where the message begins"
        letters = f"{topic}.dead-letter"
        second_cluster.broker.create_topic(letters)
        assert self.next_of(consumer) == b"behind", "and what lies between does not come again"
        second_cluster.commit(consumer)
        assert second_cluster.committed(topic, topic)[0] == len(later) + 3
        found = second_cluster.rest_of(second_cluster.consumer(letters, Slice()), letters)
        assert [m.value() for m in found] in ([large], [large] * 2)

    def next_of(self, consumer: Consumer) -> bytes | None:
        """Return the next message, once the dead letter could be stored."""
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline:
            try:
                message = consumer.poll(0.2)
            except DeadLetterError:
                continue
            if message is not None and message.error() is None:
                return message.value()
        pytest.fail(f"it did not go on within {DEADLINE_S:.0f} s")

    def error_of(self, consumer: Consumer) -> DeadLetterError:
        with pytest.raises(DeadLetterError) as caught:
            consumer.poll(DEADLINE_S)
        return caught.value


class Picky(Interceptor, frozen=True, kw_only=True):
    """Refuse what begins with "bad"."""

    on_error: Any = "dead_letter"

    def on_consume(self, record: Record) -> Record:
        if record.value.startswith(b"bad"):
            raise InterceptorError("it is bad")
        return record


class TestKilled:
    """Between a dead letter and its record's commit: the record comes again, and no dead letter is lost."""

    COUNT: Final = 4_000
    PROGRAM: Final = Path(__file__).parent / "programs" / "refuse.py"

    def committed(self, cluster: Cluster, topic: str) -> int:
        return max(0, cluster.committed(topic, topic)[0])

    def kept(self, cluster: Cluster, topic: str) -> list[int]:
        """Return the offsets of the records whose dead letters are stored, in the order of the topic."""
        letters = cluster.on_the_wire(f"{topic}.dead-letter")
        return [
            int(dict(Headers(each.headers()))["headerware.dead_letter.offset"] or b"") for each in letters
        ]

    def test_nothing_is_committed_before_its_dead_letter_is_stored(self, cluster: Cluster) -> None:
        topic = cluster.topic("refused")
        cluster.broker.create_topic(f"{topic}.dead-letter")
        wire = cluster.plain_producer()
        for number in range(self.COUNT):
            wire.produce(topic, b"%d" % number, b"key", 0)
        assert wire.flush(DEADLINE_S) == 0
        command = [sys.executable, str(self.PROGRAM), cluster.servers, topic]
        for wanted in (1, self.COUNT // 4, self.COUNT // 2, self.COUNT):
            with subprocess.Popen(command) as application:
                until(lambda: self.committed(cluster, topic) >= wanted)  # noqa: B023 - it ends here
                application.kill()
            committed = self.committed(cluster, topic)
            assert set(range(committed)) <= set(self.kept(cluster, topic))
        kept = self.kept(cluster, topic)
        assert set(kept) == set(range(self.COUNT))
        first_of_each = list(dict.fromkeys(kept))
        assert first_of_each == sorted(first_of_each), "they keep the order of their records"
