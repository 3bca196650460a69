"""Clients under plans of faults: what arrives is what the log says, and nothing else is lost."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, Message, TopicPartition

from headerware.clients import Consumer
from headerware.clients.aio import AsyncConsumer, AsyncProducer
from headerware.clients.delivery import Delivery, Seek
from headerware.core.chain import Chain
from headerware.core.context import Context
from headerware.core.errors import ConfigError, SignatureError
from headerware.interceptors import Audit, Dedup, Sign, Slice
from headerware.kafka.messages import record_of
from headerware.keyring import Keyring, encode_keyring, with_new_key
from headerware.ops.audit import compare, read_reports
from headerware.testing.faults import Faults, InjectedError
from tests.unit.clients.conftest import Fill, committed, take, values
from tests.unit.clients.test_aio import run
from tests.unit.clients.test_executor import read_all
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Make = Any
SESSION = {"session_timeout_ms": 6_000}


def numbers(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def number_of(value: bytes | None) -> int:
    return int(value or b"")


def arriving(faults: Faults, count: int) -> Counter[bytes]:
    """Return what is to arrive of the numbers up to ``count``, by the log of a plan."""
    found = Counter(numbers(count))
    for fault in faults.log:
        found[b"%d" % fault.number] += {"drop": -1, "double": 1}.get(fault.kind, 0)
    return +found


class TestProducer:
    def test_doubles_what_dedup_delivers_once(
        self, make_producer: Make, make_consumer: Make, connection: dict[str, Any], topic: str
    ) -> None:
        faults = Faults("send", double=0.3)
        with make_producer(Dedup(), faults) as producer:
            for value in numbers(50):
                producer.produce(topic, value)
        doubled = faults.counts["double"]
        assert doubled > 5
        assert len(read_all(connection, topic, 50 + doubled)) == 50 + doubled
        consumer = make_consumer(Dedup(), topic=topic)
        assert values(take(consumer, 50)) == numbers(50)
        until(
            lambda: consumer.stats()["dedup"]["duplicates"] == doubled, meanwhile=lambda: consumer.poll(0.1)
        )

    def test_reports_each_record_once(self, make_producer: Make, topic: str) -> None:
        faults = Faults("send", double=0.3, drop=0.3)
        reports: list[tuple[KafkaError | None, bytes | None]] = []
        with make_producer(faults) as producer:
            for value in numbers(40):
                producer.produce(
                    topic, value, on_delivery=lambda error, sent: reports.append((error, sent.value()))
                )
        assert Counter(value for _, value in reports) == Counter(numbers(40))
        dropped = {value for error, value in reports if error is not None}
        assert dropped == {b"%d" % fault.number for fault in faults.log if fault.kind == "drop"}

    def test_raises_what_is_refused(self, make_producer: Make, make_consumer: Make, topic: str) -> None:
        faults = Faults("send", at={1: "refuse"})
        with make_producer(faults) as producer:
            errors = producer.produce_many(topic, [{"value": value} for value in numbers(3)])
        assert [type(error) for error in errors] == [type(None), InjectedError, type(None)]
        assert values(take(make_consumer(topic=topic), 2)) == [b"0", b"2"]


class TestSign:
    def test_refuses_all_that_is_corrupted_and_nothing_else(
        self, make_producer: Make, make_consumer: Make, topic: str, tmp_path: Path
    ) -> None:
        path = tmp_path / "keys.json"
        path.write_bytes(encode_keyring(with_new_key(Keyring(), "hmac", "hmac-sha256")))
        path.chmod(0o600)
        sign = Sign(keyring=str(path), key_id="hmac", require="enforce")
        faults = Faults("send", seed=5, corrupt=0.5)
        with make_producer(sign, faults) as producer:
            for value in numbers(80):
                producer.produce(topic, value, b"key", headers={"tenant": b"north"})
        consumer = make_consumer(sign, topic=topic)
        delivered: list[int] = []
        refused: list[int | None] = []

        def poll() -> None:
            try:
                message = consumer.poll(0.2)
            except SignatureError as error:
                refused.append(error.offset)
            else:
                delivered.extend([] if message is None else [message.offset() or 0])

        until(lambda: len(delivered) + len(refused) == 80, meanwhile=poll)
        corrupted = {fault.number for fault in faults.log}
        assert len(corrupted) > 20
        assert {fault.detail.split()[0] for fault in faults.log} == {"value", "key", "header"}
        assert set(refused) == corrupted
        assert set(delivered) == set(range(80)) - corrupted


class TestAudit:
    def test_tells_what_was_lost(
        self,
        make_producer: Make,
        make_consumer: Make,
        connection: dict[str, Any],
        topic: str,
        unique_topic: Callable[[str], str],
    ) -> None:
        audit = Audit(audit_topic=unique_topic("audit"))
        with make_producer(audit) as producer:
            for value in numbers(40):
                producer.produce(topic, value)
        faults = Faults("consume", drop=0.2, at={39: "double"})
        expected = 40 - sum(faults.planned(number, 0)[0] == "drop" for number in range(40)) + 1
        consumer = make_consumer(audit, faults, topic=topic)
        take(consumer, expected)
        consumer.close()
        assert audit.audit_topic is not None
        reports = read_reports(connection, audit.audit_topic).reports
        rows = compare(reports, now_ms=int(time.time() * 1000), topics=[topic]).rows
        assert faults.counts["drop"] > 3
        assert sum(row.lost for row in rows) == faults.counts["drop"]
        assert sum(row.duplicated for row in rows) == 1


class TestConsumer:
    def test_gets_what_the_log_says(self, fill: Fill, make_consumer: Make, topic: str) -> None:
        fill(*numbers(100))
        faults = Faults("consume", seed=2, drop=0.2, double=0.2, reorder=0.2, delay=0.02, delay_ms=20)
        consumer = make_consumer(faults, topic=topic)
        expected = Faults("consume", seed=2, drop=0.2, double=0.2, reorder=0.2, delay=0.02)
        kinds = [expected.planned(number, 0)[0] for number in range(100)]
        count = 100 - kinds.count("drop") + kinds.count("double")
        found = values(take(consumer, count))
        assert Counter(found) == arriving(faults, 100)
        assert min(faults.counts.values()) > 0
        assert set(faults.counts) == {"drop", "double", "reorder", "delay"}
        assert found != sorted(found, key=number_of)

    def test_sends_dead_letters_of_what_is_refused(
        self, fill: Fill, make_consumer: Make, connection: dict[str, Any], topic: str
    ) -> None:
        fill(*numbers(4))
        faults = Faults("consume", at={1: "refuse", 2: "reorder"}, reorder_by=1, on_error="dead_letter")
        consumer = make_consumer(faults, topic=topic)
        assert values(take(consumer, 3)) == [b"0", b"3", b"2"]
        (letter,) = read_all(connection, f"{topic}.dead-letter", 1)
        assert letter.value() == b"1"
        assert dict(letter.headers() or [])["__connect.errors.exception.class.name"] == (
            b"headerware.testing.faults.InjectedError"
        )

    @pytest.mark.parametrize("at_once", [1, 50])
    def test_commits_no_offset_after_a_record_that_waits(
        self, fill: Fill, make_consumer: Make, topic: str, at_once: int
    ) -> None:
        fill(*numbers(5))
        faults = Faults("consume", at={1: "reorder"}, reorder_by=1_000, reorder_ms=10**9)
        consumer = make_consumer(faults, topic=topic, enable_auto_commit=False)
        found: list[Message] = []
        until(lambda: len(found) == 4, meanwhile=lambda: found.extend(consumer.consume(at_once, 0.2)))
        assert values(found) == [b"0", b"2", b"3", b"4"]
        consumer.commit(asynchronous=False)
        assert committed(consumer, topic) == (1, None)

    def test_gets_a_record_that_waits_when_its_time_has_come(
        self, fill: Fill, make_consumer: Make, topic: str
    ) -> None:
        fill(*numbers(3))
        faults = Faults("consume", at={0: "reorder"}, reorder_by=1_000)
        consumer = make_consumer(faults, topic=topic, auto_commit_interval_ms=50)
        assert values(take(consumer, 3)) == [b"1", b"2", b"0"]
        until(lambda: committed(consumer, topic) == (3, None), meanwhile=lambda: consumer.poll(0.1))

    @pytest.mark.parametrize(
        "again",
        [[], [Slice()], [Faults("consume", at={1: "reorder"})]],
        ids=["no chain", "slice", "faults"],
    )
    def test_loses_nothing_if_it_closes_while_a_record_waits(
        self, fill: Fill, make_consumer: Make, topic: str, again: list[object]
    ) -> None:
        fill(*numbers(5))
        held = Faults("consume", at={1: "reorder"}, reorder_by=1_000, reorder_ms=10**9)
        first = make_consumer(held, topic=topic)
        take(first, 4)
        first.close()
        second = make_consumer(*again, topic=topic)
        assert set(values(take(second, 4))) == {b"1", b"2", b"3", b"4"}

    def test_loses_nothing_to_a_rebalance(
        self,
        embedded_cluster: Any,
        make_producer: Make,
        make_consumer: Make,
        unique_topic: Callable[[str], str],
    ) -> None:
        topic, count = unique_topic("shared"), 300
        embedded_cluster.create_topic(topic, partitions=2)
        with make_producer() as producer:
            for number in range(count):
                producer.produce(topic, b"%d" % number, partition=number % 2)
        faults = Faults("consume", reorder=0.3, reorder_by=20, delay=0.02, delay_ms=10)
        first = make_consumer(faults, **SESSION)
        first.subscribe([topic])
        found = values(take(first, count // 3))
        second = make_consumer(faults, **SESSION)
        second.subscribe([topic])

        def poll() -> None:
            for consumer in (first, second):
                found.extend(values(consumer.consume(10, 0.05)))

        until(lambda: first.assignment() and second.assignment(), meanwhile=poll)
        until(lambda: len(set(found)) == count, "all numbers", meanwhile=poll)

    def test_lets_other_partitions_go_on_while_one_is_delayed(
        self, embedded_cluster: Any, make_producer: Make, make_consumer: Make, unique_topic: Any
    ) -> None:
        topic = unique_topic("delayed")
        embedded_cluster.create_topic(topic, partitions=2)
        with make_producer() as producer:
            for number in range(10):
                producer.produce(topic, b"%d" % number, partition=number % 2)
        faults = Faults("consume", delay=0.1, seed=13, delay_ms=3_000)
        planned = [[faults.planned(n, partition)[0] for n in range(5)] for partition in (0, 1)]
        assert planned == [[None, "delay", None, None, None], [None] * 5]
        consumer = make_consumer(faults)
        consumer.assign([TopicPartition(topic, 0), TopicPartition(topic, 1)])
        found = take(consumer, 10)
        own = [message.offset() for message in found if message.partition() == 0]
        assert own == [0, 1, 2, 3, 4]
        assert [message.partition() for message in found[-4:]] == [0] * 4

    def test_reassembles_messages_whose_slices_come_in_no_order(
        self, make_producer: Make, make_consumer: Make, topic: str
    ) -> None:
        faults = Faults("consume", reorder=0.4)
        large = bytes(range(256)) * 200
        with make_producer(Slice(max_bytes=2_000)) as producer:
            for number in range(3):
                producer.produce(topic, b"%d" % number + large)
        consumer = make_consumer(Slice(max_bytes=2_000), faults, topic=topic)
        assert set(values(take(consumer, 3))) == {b"%d" % number + large for number in range(3)}
        assert faults.counts["reorder"] > 10

    def test_reads_again_what_waited_when_it_seeks(self, fill: Fill, make_consumer: Make, topic: str) -> None:
        fill(*numbers(4))
        consumer = make_consumer(Faults("consume", at={1: "reorder"}, reorder_by=1), topic=topic)
        assert values(take(consumer, 3)) == [b"0", b"2", b"1"]
        consumer.seek(TopicPartition(topic, 0, 1))
        assert values(take(consumer, 3)) == [b"2", b"1", b"3"]

    def test_gives_what_waited_after_an_interrupt_too(self) -> None:
        session = Chain([Faults("consume", at={1: "reorder"}, reorder_by=2)]).open(Context(now_ms=lambda: 0))
        delivery = Delivery(session)
        delivery.begin([TopicPartition("orders", 0, 0)])

        def read(offsets: range) -> list[int | None]:
            for offset in offsets:
                message = Message("orders", 0, offset, b"key", b"value")
                record = record_of(message)
                delivery.add(message, record, delivery.consume(record))
            delivery.give(10)
            found, delivery.given = delivery.given, []
            return [message.offset() for message in found]

        assert read(range(3)) == [0, 2]
        delivery.read_again(("orders", 0), 3)
        assert delivery.commands[-1] == Seek(("orders", 0), 1)
        assert read(range(1, 4)) == [2, 3, 1]


class TestRun:
    """``Consumer.run`` with several workers."""

    @staticmethod
    def processed(consumer: Consumer, count: int, **options: Any) -> Counter[bytes | None]:
        seen: Counter[bytes | None] = Counter()
        failed: set[bytes | None] = set()
        lock = threading.Lock()

        def handle(message: Message) -> None:
            value = message.value()
            with lock:
                if value not in failed:
                    failed.add(value)
                    raise ValueError("the first attempt fails")
                seen[value] += 1
                if seen.total() == count:
                    consumer.stop()

        consumer.run(handle, workers=4, attempts=3, backoff_s=0.001, **options)
        return seen

    def test_survives_what_is_refused(
        self, fill: Fill, make_consumer: Make, connection: dict[str, Any], topic: str
    ) -> None:
        fill(*numbers(60))
        faults = Faults("consume", refuse=0.2, reorder=0.2, at={59: "double"})
        refused = {number for number in range(59) if faults.planned(number, 0)[0] == "refuse"}
        consumer = make_consumer(faults, topic=topic)
        seen = self.processed(consumer, 61 - len(refused), on_failure="dead_letter")
        assert len(refused) > 5
        expected = Counter(b"%d" % number for number in range(60) if number not in refused) + Counter([b"59"])
        assert seen == expected
        letters = read_all(connection, f"{topic}.dead-letter", len(refused))
        assert {message.value() for message in letters} == {b"%d" % number for number in refused}
        assert committed(consumer, topic)[0] == 60

    def test_goes_on_where_a_record_waited(self, fill: Fill, make_consumer: Make, topic: str) -> None:
        fill(*numbers(6))
        held = Faults("consume", at={2: "reorder"}, reorder_by=1_000, reorder_ms=10**9)
        first = make_consumer(held, topic=topic)
        assert set(self.processed(first, 5)) == {b"0", b"1", b"3", b"4", b"5"}
        first.close()
        second = make_consumer(Faults("consume"), topic=topic)
        assert set(self.processed(second, 4)) == {b"2", b"3", b"4", b"5"}


class TestAsyncClients:
    def test_send_and_get_what_the_logs_say(self, connection: dict[str, Any], topic: str, fill: Fill) -> None:
        sending = Faults("send", double=0.2, drop=0.1)
        receiving = Faults("consume", seed=1, reorder=0.3)

        async def main() -> list[bytes | None]:
            async with AsyncProducer(connection, chain=Chain([sending])) as producer:
                for value in numbers(60):
                    await producer.produce(topic, value)
            count = arriving(sending, 60).total()
            conf = {**connection, "group.id": topic, "auto.offset.reset": "earliest"}
            async with AsyncConsumer(conf, chain=Chain([receiving])) as consumer:
                await consumer.assign([TopicPartition(topic, 0)])
                found: list[bytes | None] = []
                while len(found) < count:
                    message = await consumer.poll(1)
                    if message is not None:
                        found.append(message.value())
                return found

        assert Counter(run(main())) == arriving(sending, 60)
        assert min(sending.counts.values()) > 2
        assert receiving.counts["reorder"] > 5


class TestShareConsumer:
    def test_cannot_hold_records_back(self, connection: dict[str, Any]) -> None:
        share = pytest.importorskip("headerware.clients.share")
        if not hasattr(confluent_kafka, "ShareConsumer"):
            pytest.skip("this confluent-kafka has no share consumers")
        with pytest.raises(ConfigError, match="'faults' holds records back, and"):
            share.ShareConsumer({**connection, "group.id": "g"}, chain=Chain([Faults("consume", delay=1)]))
