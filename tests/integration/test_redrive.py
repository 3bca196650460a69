"""Sending dead letters back on a real broker: what goes, what stays, and that each goes once."""

from __future__ import annotations

import json
import os
import random
import struct
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from headerware import Consumer, Context, Headers, HeaderwareError, Interceptor, InterceptorError, Record
from headerware.core.commit_metadata import PendingOffsets
from headerware.core.headers import Pair
from headerware.interceptors import Dedup, HeaderIds, Sign, Slice
from headerware.interceptors.slice.header import SLICE_HEADER, SliceHeader
from headerware.ops.redrive import Redrive, RedriveResult, Selection
from headerware.ops.tail import Condition
from headerware.sources.config import SourceConfig
from headerware.sources.engine.records import source_dead_letter
from headerware.sources.ready import Files
from tests.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from confluent_kafka import Message

    from tests.integration.conftest import Cluster

pytestmark = pytest.mark.broker
DEADLINE_S: Final = 60.0
TIMESTAMP_MS: Final = 1_700_000_000_000
SELECTED: Final = Selection()
NO_SETTINGS: Final[Mapping[str, Any]] = MappingProxyType({})


def connect(topic: str, partition: int, offset: int, message: str = "it is bad") -> list[Pair]:
    facts = {"topic": topic, "partition": partition, "offset": offset, "exception.message": message}
    return [(f"__connect.errors.{name}", str(fact).encode()) for name, fact in facts.items()]


class Topics:
    """A topic and its dead letters, which tests write as they like."""

    def __init__(self, cluster: Cluster, partitions: int = 1) -> None:
        self.cluster = cluster
        self.topic = cluster.topic("orders", partitions=partitions)
        self.letters = f"{self.topic}.dead-letter"
        cluster.broker.create_topic(self.letters, partitions=partitions)
        self._wire = cluster.plain_producer()

    def put(self, value: bytes | None, headers: Any, *, topic: str | None = None, **parts: Any) -> None:
        self._wire.produce(
            topic or self.letters,
            value,
            **{"key": b"key", "partition": 0, "timestamp": TIMESTAMP_MS, **parts},
            headers=list(headers),
        )

    def fill(self, *values: bytes) -> None:
        for offset, value in enumerate(values):
            self.put(value, connect(self.topic, 0, offset))
        self.flush()

    def flush(self) -> None:
        assert self._wire.flush(DEADLINE_S) == 0

    def redrive(
        self, selection: Selection = SELECTED, *, execute: bool = True, **options: Any
    ) -> RedriveResult:
        with self.open(selection, **options) as work:
            return work.execute() if execute else work.preview()

    def open(
        self, selection: Selection = SELECTED, *, conf: Mapping[str, Any] = NO_SETTINGS, **options: Any
    ) -> Redrive:
        settings = {"bootstrap.servers": self.cluster.servers, **conf}
        return Redrive(settings, self.letters, selection, **options)

    def back(self, topic: str | None = None) -> list[Message]:
        self.cluster.wait_until_stable(topic or self.topic)
        return self.cluster.on_the_wire(topic or self.topic)


@pytest.fixture
def topics(cluster: Cluster) -> Topics:
    return Topics(cluster)


def outcomes(result: RedriveResult) -> list[str]:
    return [each["why"] or each["outcome"] for each in result.shown]


class TestWhatGoesBack:
    @pytest.mark.parametrize("dialect", ["connect", "spring", "kafka", "headerware"])
    def test_is_the_record_as_it_was(self, topics: Topics, dialect: str) -> None:
        reasons: dict[str, list[Pair]] = {
            "connect": connect(topics.topic, 0, 7),
            "spring": [
                ("kafka_dlt-original-topic", topics.topic.encode()),
                ("kafka_dlt-original-partition", struct.pack(">i", 0)),
                ("kafka_dlt-original-offset", struct.pack(">q", 7)),
                ("kafka_dlt-original-timestamp", struct.pack(">q", TIMESTAMP_MS - 5)),
            ],
            "kafka": [
                ("__dlq.errors.topic", topics.topic.encode()),
                ("__dlq.errors.partition", b"0"),
                ("__dlq.errors.offset", b"7"),
                ("__dlq.errors.delivery.count", b"5"),
            ],
            "headerware": [
                ("headerware.dead_letter.version", b"1"),
                ("headerware.dead_letter.topic", topics.topic.encode()),
                ("headerware.dead_letter.partition", b"0"),
                ("headerware.dead_letter.first_failed", b"1600000000000"),
            ],
        }
        reason = reasons[dialect]
        own: list[Pair] = [("a", b"1"), ("a", None), ("", b""), ("ü", b"\xff")]
        topics.put(b"\x00\xff", [*own, *reason], key=b"\xfe")
        topics.put(None, [*own, *reason], key=b"tombstone")
        topics.flush()
        assert topics.redrive().sent == {topics.topic: 2}
        first, second = topics.back()
        assert (first.key(), first.value()) == (b"\xfe", b"\x00\xff")
        assert (second.key(), second.value()) == (b"tombstone", None)
        assert first.timestamp()[1] == TIMESTAMP_MS - 5 * (dialect == "spring")
        count = b"1;first=1600000000000" if dialect == "headerware" else b"1"
        assert list(Headers(first.headers())) == [*own, ("headerware.redriven", count)]

    def test_keeps_partition_and_order(self, cluster: Cluster) -> None:
        topics = Topics(cluster, partitions=3)
        for number in range(600):
            topics.put(
                b"%d" % number,
                connect(topics.topic, number % 3, number),
                key=b"%d" % (number % 7),
                partition=number % 2,
            )
        topics.flush()
        topics.redrive()
        found = topics.back()
        assert len(found) == 600
        last: dict[Any, int] = {}
        for message in found:
            number = int(message.value() or b"")
            assert message.partition() == number % 3
            # A key whose letters stand in one partition comes back in their order.
            place = message.key(), number % 2, message.partition()
            assert last.get(place, -1) < number
            last[place] = number

    def test_without_execute_nothing_is_sent_or_committed(self, topics: Topics, cluster: Cluster) -> None:
        topics.fill(b"a", b"b")
        shown = topics.redrive(execute=False)
        assert (shown.sent, shown.executed, outcomes(shown)) == ({topics.topic: 2}, False, ["sent", "sent"])
        assert topics.back() == []
        assert cluster.committed(f"headerware-redrive-{topics.letters}", topics.letters)[0] < 0

    def test_a_second_run_sends_nothing(self, topics: Topics) -> None:
        topics.fill(b"a", b"b")
        assert topics.redrive().done == 2
        again = topics.redrive()
        assert (again.done, again.dead_letters) == (0, 0)
        topics.put(b"c", connect(topics.topic, 0, 2))
        topics.flush()
        assert topics.redrive().done == 1
        assert [message.value() for message in topics.back()] == [b"a", b"b", b"c"]


class TestSelection:
    def test_what_is_not_selected_stays_for_later_runs(self, topics: Topics) -> None:
        for number in range(30):
            topics.put(
                b"%d" % number,
                [("n", b"%d" % (number % 3)), *connect(topics.topic, 0, number, f"reason {number % 2}")],
            )
        topics.flush()
        by_header = Selection(where=(Condition.parse("n=1"),))
        by_reason = Selection(reason="reason 0")
        assert topics.redrive(by_header).done == 10
        assert topics.redrive(by_reason).done == 10
        assert topics.redrive(by_reason).done == 0
        assert topics.redrive(by_header).done == 0
        assert topics.redrive().done == 10
        assert sorted(int(message.value() or b"") for message in topics.back()) == list(range(30))

    def test_a_limit_and_what_is_left(self, topics: Topics) -> None:
        topics.fill(*(b"%d" % number for number in range(10)))
        assert [topics.redrive(Selection(limit=4)).done for _ in range(4)] == [4, 4, 2, 0]
        assert [message.value() for message in topics.back()] == [b"%d" % number for number in range(10)]

    def test_a_rate(self, topics: Topics) -> None:
        topics.fill(*(b"%d" % number for number in range(30)))
        began = time.monotonic()
        assert topics.redrive(rate=20).done == 30
        assert time.monotonic() - began >= 1.4

    def test_another_topic(self, topics: Topics, cluster: Cluster) -> None:
        other = cluster.topic("repaired", partitions=2)
        topics.put(b"a", connect("somewhere", 9, 9))
        topics.flush()
        assert topics.redrive(Selection(to=other)).sent == {other: 1}

    def test_more_selections_than_a_commit_can_note_end_with_advice(self, topics: Topics) -> None:
        rest = random.Random(4)
        for number in range(60_000):
            topics.put(b"", [("n", b"%d" % rest.randrange(2)), *connect(topics.topic, 0, number)])
            if not number % 10_000:
                topics.flush()
        topics.flush()
        with pytest.raises(HeaderwareError, match="what was written before is committed"):
            topics.redrive(Selection(where=(Condition.parse("n=1"),)))
        sent = len(topics.back())
        assert sent > 10_000
        # Nothing is lost or doubled by it.
        left = topics.redrive()
        assert left.done == 60_000 - sent


class TestBounds:
    """What a run keeps and does for a letter does not grow with the letters before it."""

    def test_a_batch_touches_its_own_letters_only(
        self, topics: Topics, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        touched: list[int] = []

        class Counted(PendingOffsets):
            def add(self, offset: int) -> None:
                touched.append(offset)
                super().add(offset)

        def touched_as_often(times: int) -> bool:
            return Counter(touched) == dict.fromkeys(range(3_000), times)

        monkeypatch.setattr("headerware.workers.done.PendingOffsets", Counted)
        topics.fill(*(b"" for _ in range(3_000)))
        result = topics.redrive(Selection(reason="another"))
        assert (result.passed_over, touched_as_often(2)) == (3_000, True), "when it was read, and was left"
        touched.clear()
        assert topics.redrive().done == 3_000
        assert touched == 2 * list(range(3_000)), (
            "those of the commit that it began with, and what it has read"
        )


class TestWhatRetentionTook:
    def delete(self, topics: Topics, before: int) -> None:
        admin = AdminClient({"bootstrap.servers": topics.cluster.servers})
        (deleted,) = admin.delete_records([TopicPartition(topics.letters, 0, before)]).values()
        deleted.result()

    def test_is_told_once(self, topics: Topics) -> None:
        topics.fill(*(b"%d" % number for number in range(10)))
        assert topics.redrive(Selection(limit=4)).deleted == 0
        topics.redrive(Selection(reason="another"))
        self.delete(topics, 6)
        assert topics.redrive(execute=False).deleted == 2
        result = topics.redrive(Selection(limit=1))
        assert (result.deleted, result.done) == (2, 1)
        self.delete(topics, 10)
        assert (topics.redrive().deleted, topics.redrive().deleted) == (3, 0)

    def test_is_no_loss_where_nothing_is_left(self, topics: Topics, cluster: Cluster) -> None:
        topics.letters = topics.letters.replace("orders", "parked")
        cluster.broker.create_topic(topics.letters)
        producer = cluster.plain_producer(transactional_id=topics.letters)
        producer.init_transactions(DEADLINE_S)
        producer.begin_transaction()
        producer.produce(topics.letters, b"a", headers=list(connect(topics.topic, 0, 0)))
        producer.commit_transaction(DEADLINE_S)
        topics.cluster.wait_until_stable(topics.letters)
        assert topics.redrive(Selection(to=topics.topic)).done == 1
        self.delete(topics, 2)
        assert topics.redrive(Selection(to=topics.topic)).deleted == 0


class TestCircles:
    def test_end_at_max_attempts(self, topics: Topics) -> None:
        topics.put(b"a", [("headerware.redriven", b"2;first=5"), *connect(topics.topic, 0, 0)])
        topics.put(b"b", [("headerware.redriven", b"3;first=5"), *connect(topics.topic, 0, 1)])
        topics.flush()
        result = topics.redrive()
        assert (result.done, result.pending) == (1, {"too_often": 1})
        (message,) = topics.back()
        assert Headers(message.headers()).last("headerware.redriven") == b"3;first=5"

    def test_may_end_in_a_parking_topic(self, topics: Topics, cluster: Cluster) -> None:
        parking = cluster.topic("parking")
        headers = [("headerware.redriven", b"3"), *connect(topics.topic, 0, 0)]
        topics.put(b"a", headers)
        topics.flush()
        assert topics.redrive(Selection(parking=parking)).parked == 1
        (letter,) = topics.back(parking)
        assert (letter.value(), list(Headers(letter.headers()))) == (b"a", headers)

    def test_without_a_count_the_record_has_no_header_more(self, topics: Topics) -> None:
        topics.put(b"a", [("headerware.redriven", b"9"), *connect(topics.topic, 0, 0)])
        topics.flush()
        topics.redrive(Selection(max_attempts=0))
        assert topics.back()[0].headers() is None

    def test_a_poison_record_goes_round_three_times(self, topics: Topics, cluster: Cluster) -> None:
        step = Poisoned(on_error="dead_letter", dead_letter_headers="headerware")
        topics.put(b"bad", [("a", b"1")], topic=topics.topic)
        topics.flush()
        consumer = cluster.consumer(topics.topic, step)
        for attempt in range(1, 5):
            assert cluster.rest_of(consumer, topics.topic) == []
            letter = topics.back(topics.letters)[-1]
            headers = dict(Headers(letter.headers()))
            assert headers["headerware.dead_letter.attempts"] == b"%d" % attempt
            assert topics.redrive().done == (attempt < 4)
        assert len(topics.back(topics.letters)) == 4
        sizes = {len(Headers(each.headers())) for each in topics.back(topics.letters)}
        assert len(sizes) <= 2, "only the count is new"


class Poisoned(Interceptor, frozen=True, kw_only=True):
    def on_consume(self, record: Record) -> Record:
        if record.value == b"bad":
            raise InterceptorError("it is bad")
        return record


class TestPayloadsByReference:
    def dlq(self, topics: Topics, offset: int) -> list[tuple[str, bytes]]:
        facts = {"topic": topics.topic, "partition": 0, "offset": offset, "group": "g", "delivery.count": 5}
        return [(f"__dlq.errors.{name}", str(fact).encode()) for name, fact in facts.items()]

    def test_of_the_brokers_letters_is_fetched(self, topics: Topics) -> None:
        for number in range(5):
            topics.put(
                b"%d" % number, [("n", b"%d" % number)], topic=topics.topic, timestamp=TIMESTAMP_MS + number
            )
        topics.flush()
        for offset in (4, 1, 2):
            topics.put(None, self.dlq(topics, offset), key=None)
        topics.flush()
        assert topics.redrive().done == 3
        back = topics.back()[5:]
        assert [message.value() for message in back] == [b"4", b"1", b"2"]
        assert [message.timestamp()[1] - TIMESTAMP_MS for message in back] == [4, 1, 2]
        assert [Headers(message.headers()).last("n") for message in back] == [b"4", b"1", b"2"]
        assert {message.key() for message in back} == {b"key"}

    def test_that_is_gone_is_reported_and_stays(self, topics: Topics, cluster: Cluster) -> None:
        for number in range(3):
            topics.put(b"%d" % number, [], topic=topics.topic)
        topics.flush()
        admin = AdminClient({"bootstrap.servers": cluster.servers})
        for future in admin.delete_records([TopicPartition(topics.topic, 0, 2)]).values():
            future.result()
        for offset in (0, 1, 2, 3, 2**62):
            topics.put(None, self.dlq(topics, offset), key=None)
        topics.flush()
        result = topics.redrive()
        assert (result.done, result.pending) == (1, {"gone": 4})

    def test_that_nobody_could_keep_makes_no_tombstone(self, topics: Topics, cluster: Cluster) -> None:
        first, *_ = cut_by_hand(b"a" * 100, 60)
        topics.put(first[0], [first[1]], topic=topics.topic)
        topics.flush()
        consumer = cluster.consumer(topics.topic, Slice(expire_ms=1))

        def stop() -> None:
            until(lambda: bool(cluster.on_the_wire(topics.letters)))
            consumer.stop()

        stopping = threading.Thread(target=stop)
        stopping.start()
        consumer.run(lambda _: None, on_failure="dead_letter")
        stopping.join()
        (letter,) = cluster.on_the_wire(topics.letters)
        assert (letter.key(), letter.value()) == (f"{topics.topic}[0]@0".encode(), None)
        result = topics.redrive()
        assert (result.done, result.pending) == (0, {"no_payload": 1})
        assert len(topics.back()) == 1

    def test_that_is_a_part_of_a_sources_object_is_no_record(self, topics: Topics) -> None:
        config = SourceConfig(name="s", topic=topics.topic, extractor="csv", source=Files(folder="."))
        for number, raw in (("1", None), ("2", b"1,2,3")):
            made = source_dead_letter(
                config, "a.csv", number, topic=topics.topic, reason="it is bad", raw=raw
            )
            topics.put(made.value, made.headers, key=made.key)
        topics.flush()
        result = topics.redrive()
        assert (result.done, result.pending) == (0, {"of_a_source": 2})
        assert topics.back() == []

    def test_of_a_stub_is_fetched_and_compared(self, cluster: Cluster) -> None:
        topic = cluster.topic("orders")
        letters = f"{topic}.dead-letter"
        cluster.broker.create_topic(letters, config={"max.message.bytes": "10000"})
        wire = cluster.plain_producer()
        for value in (b"bad" + bytes(20_000), b"bad" + bytes(20_001)):
            wire.produce(topic, value, b"key", headers=[("hw.slice", b"none")])
        assert wire.flush(DEADLINE_S) == 0
        consumer = cluster.consumer(topic, Refusing(on_error="dead_letter", dead_letter_headers="headerware"))
        assert cluster.rest_of(consumer, topic) == []
        stubs = cluster.on_the_wire(letters)
        assert [stub.value() for stub in stubs] == [None, None]
        # One more, which names a record that it does not describe.
        headers = dict(Headers(stubs[0].headers())) | {"headerware.dead_letter.offset": b"1"}
        wire.produce(letters, None, stubs[0].key(), headers=list(headers.items()))
        assert wire.flush(DEADLINE_S) == 0
        with Redrive({"bootstrap.servers": cluster.servers}, letters, SELECTED) as work:
            result = work.execute()
        assert (result.sent, result.pending) == ({topic: 2}, {"changed": 1})
        messages = cluster.on_the_wire(topic)
        values = [message.value() for message in messages]
        assert values[2:] == values[:2]


class Refusing(Interceptor, frozen=True, kw_only=True):
    def on_consume(self, record: Record) -> Record:
        raise InterceptorError("it is bad")


class TestMessagesInSlices:
    def test_go_back_as_one_whatever_the_limit(self, cluster: Cluster) -> None:
        topic = cluster.topic("orders")
        letters = f"{topic}.dead-letter"
        cluster.broker.create_topic(letters)
        large = b"bad" + random.Random(3).randbytes(2_500_000)
        producer = cluster.producer(Slice())
        producer.produce(topic, large, b"key", headers=[("a", b"1")])
        assert producer.flush(DEADLINE_S) == 0
        consumer = cluster.consumer(topic, Refusing(on_error="dead_letter"), Slice())
        assert cluster.rest_of(consumer, topic) == []
        slices = len(cluster.on_the_wire(letters))
        assert slices > 2
        for done in (slices, 0):
            with Redrive({"bootstrap.servers": cluster.servers}, letters, Selection(limit=1)) as work:
                assert work.execute().done == done
        found = cluster.rest_of(cluster.consumer(topic, Slice(), group_id=f"{topic}-2"), topic)
        assert [message.value() for message in found] == [large, large]
        assert list(Headers(found[1].headers()).names()) == ["a", "headerware.redriven"]

    @pytest.mark.parametrize(
        ("key", "form"), [(None, None), (b"", None), (b"key", None), (None, "keys"), (None, "packed")]
    )
    def test_stay_together_in_another_topic(self, cluster: Cluster, key: bytes | None, form: Any) -> None:
        topic = cluster.topic("orders")
        other = cluster.topic("repaired", partitions=16)
        letters = f"{topic}.dead-letter"
        cluster.broker.create_topic(letters)
        pieces = cut_by_hand(b"a" * 5_000, 100)
        wire = cluster.plain_producer()
        for offset, (value, header) in enumerate(pieces):
            headers = Headers([header])
            if form is not None:
                headers = (
                    HeaderIds(form=form).open(Context()).on_send(Record(topic, b"", None, headers)).headers
                )
            wire.produce(letters, value, key, 0, headers=[*headers, *connect(topic, 0, offset)])
        assert wire.flush(DEADLINE_S) == 0
        with Redrive({"bootstrap.servers": cluster.servers}, letters, Selection(to=other)) as work:
            assert work.execute().done == 50
        found = cluster.on_the_wire(other)
        assert len(found) == 50
        assert len({message.partition() for message in found}) == 1

    def test_whose_first_slice_comes_last_stay_together_in_another_topic(self, cluster: Cluster) -> None:
        topic = cluster.topic("orders")
        other = cluster.topic("repaired", partitions=16)
        letters = f"{topic}.dead-letter"
        cluster.broker.create_topic(letters)
        wire = cluster.plain_producer()
        first, *rest = cut_by_hand(b"a" * 1_000, 100)
        for offset, (value, header) in enumerate([*rest, first]):
            wire.produce(letters, value, b"key", 0, headers=[header, *connect(topic, 0, offset)])
        assert wire.flush(DEADLINE_S) == 0
        with Redrive({"bootstrap.servers": cluster.servers}, letters, Selection(to=other)) as work:
            assert work.execute().done == 10
        wire.produce(other, b"plain", b"key")
        assert wire.flush(DEADLINE_S) == 0
        found = cluster.on_the_wire(other)
        assert len({message.partition() for message in found}) == 1, "that of the message's key"

    def test_stay_together_if_the_topic_refuses_one(self, cluster: Cluster) -> None:
        topic = cluster.topic("orders", config={"max.message.bytes": "10000"})
        letters = f"{topic}.dead-letter"
        cluster.broker.create_topic(letters)
        large = random.Random(3).randbytes(45_000)
        wire = cluster.plain_producer()
        for value, header in cut_by_hand(large, 20_000):
            wire.produce(letters, value, b"key", 0, headers=[header, *connect(topic, 0, 5)])
        assert wire.flush(DEADLINE_S) == 0
        with Redrive({"bootstrap.servers": cluster.servers}, letters, SELECTED) as work:
            result = work.execute()
        assert (result.done, result.pending) == (0, {"unfit": 3}), (
            "the last one would fit, but goes with them"
        )

    @pytest.mark.parametrize("to", ["original", "another"])
    def test_of_which_some_are_missing_go_at_the_end_and_into_one_partition(
        self, cluster: Cluster, to: str
    ) -> None:
        topic = cluster.topic("orders", partitions=16)
        letters = f"{topic}.dead-letter"
        cluster.broker.create_topic(letters)
        wire = cluster.plain_producer()
        pieces = cut_by_hand(b"a" * 300, 100)
        other = cluster.topic("repaired", partitions=16) if to == "another" else topic

        def put(index: int, reason: list[Pair]) -> None:
            value, header = pieces[index]
            wire.produce(letters, value, None, 0, headers=[header, *reason])
            assert wire.flush(DEADLINE_S) == 0

        def run() -> RedriveResult:
            selection = Selection(to="original" if other == topic else other)
            with Redrive({"bootstrap.servers": cluster.servers}, letters, selection) as work:
                return work.execute()

        put(0, connect(topic, 3, 0))
        put(2, [])
        wire.produce(letters, b"plain", b"key", 0, headers=list(connect(topic, 3, 3)))
        assert wire.flush(DEADLINE_S) == 0
        assert run().done == 3
        put(1, connect(topic, 3, 1))
        assert run().done == 1
        found = cluster.on_the_wire(other)
        assert [message.value() for message in found].count(b"plain") == 1
        slices = [message for message in found if message.value() != b"plain"]
        assert len({message.partition() for message in slices}) == 1
        assert len(slices) == 3
        assert run().dead_letters == 0

    def test_without_the_first_one_are_pending(self, cluster: Cluster) -> None:
        topic = cluster.topic("orders")
        letters = f"{topic}.dead-letter"
        cluster.broker.create_topic(letters)
        wire = cluster.plain_producer()
        first, *rest = cut_by_hand(b"a" * 300, 100)
        for value, header in rest:
            wire.produce(letters, value, b"key", 0, headers=[header])
        assert wire.flush(DEADLINE_S) == 0
        for _ in range(2):
            with Redrive({"bootstrap.servers": cluster.servers}, letters, SELECTED) as work:
                result = work.execute()
            assert (result.dead_letters, result.done, result.pending) == (2, 0, {"incomplete": 2})
        wire.produce(letters, first[0], b"key", 0, headers=[first[1], *connect(topic, 0, 0)])
        assert wire.flush(DEADLINE_S) == 0
        with Redrive({"bootstrap.servers": cluster.servers}, letters, SELECTED) as work:
            assert work.execute().done == 3
        found = cluster.rest_of(cluster.consumer(topic, Slice()), topic)
        assert [message.value() for message in found] == [b"a" * 300]


class TestSlicesOnCompactedTopics:
    """Compaction would keep one of them."""

    def test_are_pending_and_may_go_elsewhere(self, cluster: Cluster) -> None:
        topic = cluster.topic("customers", config={"cleanup.policy": "compact"})
        other = cluster.topic("repaired")
        letters = f"{topic}.dead-letter"
        cluster.broker.create_topic(letters)
        wire = cluster.plain_producer()
        for offset, (value, header) in enumerate(cut_by_hand(b"a" * 300, 100)):
            wire.produce(letters, value, b"key", 0, headers=[header, *connect(topic, 0, offset)])
        wire.produce(letters, b"small", b"key", 0, headers=list(connect(topic, 0, 3)))
        assert wire.flush(DEADLINE_S) == 0
        settings = {"bootstrap.servers": cluster.servers}
        for letters_left in (4, 3):
            with Redrive(settings, letters, SELECTED) as work:
                result = work.execute()
            assert (result.dead_letters, result.pending) == (letters_left, {"compacted": 3})
        assert [message.value() for message in cluster.on_the_wire(topic)] == [b"small"]
        with Redrive(settings, letters, Selection(to=other)) as work:
            assert work.execute().done == 3
        found = cluster.rest_of(cluster.consumer(other, Slice()), other)
        assert [message.value() for message in found] == [b"a" * 300]


def cut_by_hand(value: bytes, size: int) -> list[tuple[bytes, tuple[str, bytes]]]:
    count = -(-len(value) // size)
    message_id = random.Random(7).randbytes(16)
    return [
        (
            value[index * size : (index + 1) * size],
            (SLICE_HEADER, SliceHeader(message_id, index, count, len(value), size).encode()),
        )
        for index in range(count)
    ]


class TestRefusedByTheTopic:
    def test_stays_and_the_others_go(self, cluster: Cluster) -> None:
        topic = cluster.topic("orders", config={"max.message.bytes": "10000"})
        letters = f"{topic}.dead-letter"
        cluster.broker.create_topic(letters)
        wire = cluster.plain_producer()
        for offset, value in enumerate([b"a", bytes(20_000), b"b", bytes(20_001), b"c"]):
            wire.produce(letters, value, b"key", 0, headers=[*connect(topic, 0, offset)])
        assert wire.flush(DEADLINE_S) == 0
        for done in (3, 0):
            with Redrive({"bootstrap.servers": cluster.servers}, letters, SELECTED) as work:
                result = work.execute()
            assert (result.done, result.pending) == (done, {"unfit": 2})
        assert [message.value() for message in cluster.on_the_wire(topic)] == [b"a", b"b", b"c"], "in order"


class TestProtectedReaders:
    """A record that `run` gave up comes back at another position: it is a copy for those who processed it."""

    @pytest.mark.parametrize("kind", ["sign", "dedup", "both"])
    def test_takes_it_who_gave_it_up_and_nobody_else(
        self, topics: Topics, cluster: Cluster, keyring: str, kind: str
    ) -> None:
        sign = Sign(keyring=keyring, key_id="test", replay_window=100)
        chain = {"sign": (sign,), "dedup": (Dedup(),), "both": (Dedup(), sign)}[kind]
        producer = cluster.producer(*chain)
        for value in (b"good", b"bad"):
            producer.produce(topics.topic, value, b"key")
        assert producer.flush(DEADLINE_S) == 0

        other = cluster.consumer(topics.topic, *chain, group_id=f"{topics.topic}-other")
        assert [message.value() for message in cluster.take(other, 2)] == [b"good", b"bad"]
        consumer = cluster.consumer(topics.topic, *chain)
        seen: list[bytes | None] = []
        broken = True

        def handle(message: Message) -> None:
            seen.append(message.value())
            if message.value() == b"bad" and broken:
                raise LookupError

        with running(consumer, handle):
            until(lambda: topics.back(topics.letters))
            assert len(topics.back(topics.letters)) == 1, [m.headers() for m in topics.back(topics.letters)]
            broken = False
            assert topics.redrive().done == 1
            until(lambda: seen == [b"good", b"bad", b"bad"])
            stats = consumer.stats()
        assert not any(stats[name].get("failed") for name in stats if name != "client")
        refused: list[HeaderwareError] = []
        assert cluster.rest_of(other, topics.topic, refused) == []
        assert ["replayed" in str(each) for each in refused] == ([] if kind == "dedup" else [True])

    def test_its_signature_is_still_valid(self, topics: Topics, cluster: Cluster, keyring: str) -> None:
        sign = Sign(keyring=keyring, key_id="test")
        producer = cluster.producer(sign)
        producer.produce(topics.topic, b"bad", b"key", headers=[("a", b"1")])
        assert producer.flush(DEADLINE_S) == 0
        step = Poisoned(on_error="dead_letter")
        assert cluster.rest_of(cluster.consumer(topics.topic, step, sign), topics.topic) == []
        assert topics.redrive().done == 1
        found = cluster.rest_of(
            cluster.consumer(topics.topic, sign, group_id=f"{topics.topic}-2"), topics.topic
        )
        assert [message.value() for message in found] == [b"bad", b"bad"]


class running:  # noqa: N801 - it is used as a function
    """Let a consumer run in a thread, and stop it."""

    def __init__(self, consumer: Consumer, handle: Any) -> None:
        self._consumer = consumer
        self._thread = threading.Thread(
            target=consumer.run,
            args=(handle,),
            kwargs={"on_failure": "dead_letter", "attempts": 1, "dead_letter_headers": "headerware"},
        )

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._consumer.stop()
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive()


class TestTwoAtOnce:
    def test_the_later_takes_over(self, topics: Topics) -> None:
        topics.fill(*(b"%d" % number for number in range(100)))
        with topics.open(rate=1) as first:
            began = threading.Event()
            failures: list[HeaderwareError] = []

            def run() -> None:
                try:
                    first.execute(lambda _: began.set())
                except HeaderwareError as error:
                    failures.append(error)

            thread = threading.Thread(target=run)
            thread.start()
            assert began.wait(DEADLINE_S)
            # Whatever ids the settings have: two that would answer the same letters have one between them.
            ids = {"transactional.id": "another", "group.id": "another"}
            with topics.open(conf=ids) as second:
                second.execute()
            thread.join(DEADLINE_S)
        assert ["another redrive" in str(each) for each in failures] == [True]
        assert [int(message.value() or b"") for message in topics.back()] == list(range(100))


class Command:
    """``headerware redrive`` as a process."""

    def __init__(self, topics: Topics) -> None:
        self._command = [
            *(sys.executable, "-m", "headerware", "redrive", topics.letters),
            *("--bootstrap-servers", topics.cluster.servers, "--json"),
        ]

    def start(self, *options: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*self._command, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def run(self, *options: str, timeout_s: float = DEADLINE_S) -> tuple[int, dict[str, Any]]:
        with self.start(*options) as process:
            shown, said = process.communicate(timeout=timeout_s)
        assert said == ""
        return process.returncode, json.loads(shown)


@pytest.mark.long
class TestKilledAtAnyMoment:
    # `HEADERWARE_REDRIVE_LETTERS=1000000 pytest ...` is the long form.
    LETTERS: Final = int(os.environ.get("HEADERWARE_REDRIVE_LETTERS", "20000"))
    TIMES: Final = max(1.0, LETTERS / 200_000)

    def test_nothing_is_lost_and_nothing_comes_twice(self, cluster: Cluster) -> None:
        topics = Topics(cluster, partitions=2)
        for number in range(self.LETTERS):
            topics.put(b"%d" % number, connect(topics.topic, number % 2, number), partition=number % 2)
            if not number % 10_000:
                topics.flush()
        topics.flush()
        command, rest = Command(topics), random.Random(7)

        def has_sent(process: subprocess.Popen[str], sent: int) -> bool:
            return process.poll() is not None or cluster.count_committed(topics.topic) > sent

        for turn in range(8):
            sent = cluster.count_committed(topics.topic)
            process = command.start("--execute", "--rate", str(self.LETTERS // 20))
            if turn % 2:  # in the middle of the work; else while it starts
                until(partial(has_sent, process, sent))
            time.sleep(rest.uniform(0, 0.5 * self.TIMES))
            with suppress(ProcessLookupError):
                process.kill()
            process.communicate()
        code, shown = command.run("--execute", timeout_s=DEADLINE_S * self.TIMES)
        assert (code, shown["ok"]) == (0, True)
        assert 0 < shown["result"]["sent"][topics.topic] < self.LETTERS, "the killed ones did some of it"
        found = [int(message.value() or b"") for message in topics.back()]
        assert len(found) == self.LETTERS
        assert set(found) == set(range(self.LETTERS))
        for parity in (0, 1):
            own = [number for number in found if number % 2 == parity]
            assert own == sorted(own), "in order"


class TestCommand:
    def test_shows_first_then_does_it_then_has_nothing_to_do(self, topics: Topics) -> None:
        topics.fill(b"a")
        command = Command(topics)
        assert command.run()[1]["result"]["executed"] is False
        assert topics.back() == []
        assert command.run("--execute")[1]["result"]["sent"] == {topics.topic: 1}
        assert command.run("--execute")[1]["result"]["dead_letters"] == 0

    def test_exit_codes(self, topics: Topics) -> None:
        topics.put(b"a", connect("salaries", 0, 0))
        topics.flush()
        command = Command(topics)
        code, shown = command.run()
        assert (code, shown["ok"], shown["result"]["pending"]) == (3, False, {"not_allowed": 1})
        assert command.run("--to", topics.letters)[0] == 1
        assert (
            command.run("--to", "missing")[1]["error"]["message"]
            == "topic missing does not exist; create it first"
        )
        assert command.run("--where", "=")[0] == 2

    def test_a_signal_stops_it_behind_a_transaction(self, topics: Topics) -> None:
        topics.fill(*(b"%d" % number for number in range(2_000)))
        process = Command(topics).start("--execute", "--rate", "20")
        until(lambda: topics.cluster.count_committed(topics.topic) >= 20)
        process.terminate()
        shown, _ = process.communicate(timeout=DEADLINE_S)
        result = json.loads(shown)["result"]
        assert (process.returncode, result["stopped"]) == (1, True)
        assert len(topics.back()) == result["sent"][topics.topic] < 2_000

    def test_the_configuration_says_where_letters_may_go(
        self, topics: Topics, cluster: Cluster, tmp_path: Path
    ) -> None:
        letters = cluster.topic("dlq")
        config = tmp_path / "headerware.toml"
        config.write_text(f'[[interceptors]]\ntype = "compress"\ndead_letter_topic = "{letters}"\n')
        topics.put(b"a", connect(topics.topic, 0, 0), topic=letters)
        topics.flush()
        topics.letters = letters
        command = Command(topics)
        # The name of a topic for all letters does not tell where they come from.
        assert command.run("--config", str(config))[1]["result"]["pending"] == {"not_allowed": 1}
        shown = command.run("--config", str(config), "--allow", "orders-*", "--execute")[1]
        assert shown["result"]["sent"] == {topics.topic: 1}
