"""Consumers and records whose moment has not come: the partition waits, and nothing else does."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition

from headerware import (
    AsyncConsumer,
    Chain,
    ConfigError,
    Consumer,
    Context,
    Headers,
    Producer,
    Record,
    ShareConsumer,
)
from headerware.interceptors import Delay, Slice, not_before_header
from tests.committing import commit_stored
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from headerware.testing import EmbeddedCluster

WAIT_MS = 2_000  # far more than a busy machine needs to make a consumer
DEADLINE_S = 60.0


@pytest.fixture
def topic(embedded_cluster: EmbeddedCluster, unique_topic: Callable[[str], str]) -> str:
    """Return a topic with two partitions."""
    name = unique_topic("delays")
    embedded_cluster.create_topic(name, partitions=2)
    return name


@pytest.fixture
def put(connection: dict[str, Any], topic: str) -> Callable[..., int]:
    """Return a function that produces values into a partition, each with its delay in ms; it returns now."""
    producer = confluent_kafka.Producer(connection)

    def put_records(partition: int, *records: tuple[bytes, int]) -> int:
        now_ms = time.time_ns() // 1_000_000
        for value, delay_ms in records:
            headers: Any = [not_before_header(now_ms + delay_ms)] if delay_ms else None
            producer.produce(topic, value, b"k", partition, headers=headers)
        assert producer.flush(DEADLINE_S) == 0
        return now_ms

    return put_records


@pytest.fixture
def make(connection: dict[str, Any], topic: str) -> Iterator[Callable[..., Consumer]]:
    """Return a function that makes a consumer of both partitions."""
    made: list[Consumer] = []

    def make_consumer(*steps: object, assign: bool = True, **conf: Any) -> Consumer:
        settings = {name.replace("_", "."): value for name, value in conf.items()}
        base = {"group.id": topic, "auto.offset.reset": "earliest", "fetch.wait.max.ms": 20}
        consumer = Consumer({**connection, **base, **settings}, chain=Chain(steps or (Delay(),)))
        if assign:
            consumer.assign([TopicPartition(topic, 0), TopicPartition(topic, 1)])
        made.append(consumer)
        return consumer

    yield make_consumer
    for consumer in made:
        consumer.close()


def take(consumer: Consumer, count: int, *, batch: int = 0) -> list[tuple[bytes, int]]:
    """Return values with the time at which each came."""
    found: list[tuple[bytes, int]] = []
    deadline = time.monotonic() + DEADLINE_S
    while len(found) < count:
        assert time.monotonic() < deadline, found
        if batch:
            messages = consumer.consume(batch, 0.5)
        else:
            message = consumer.poll(0.5)
            messages = [] if message is None else [message]
        for message in messages:
            assert message.error() is None
            found.append((message.value() or b"", time.time_ns() // 1_000_000))
    return found


@pytest.fixture
def committed(connection: dict[str, Any], topic: str) -> Callable[[int], int]:
    """Return a function that asks for the group's committed offset of a partition."""

    def committed_offset(partition: int) -> int:
        asking = confluent_kafka.Consumer({**connection, "group.id": topic})
        try:
            return int(asking.committed([TopicPartition(topic, partition)], DEADLINE_S)[0].offset)
        finally:
            asking.close()

    return committed_offset


@pytest.mark.parametrize("batch", [0, 10])
def test_only_the_partition_waits_and_keeps_its_order(
    make: Callable[..., Consumer], put: Callable[..., int], batch: int
) -> None:
    began_ms = put(0, (b"a", WAIT_MS), (b"b", 0), (b"c", WAIT_MS + 300), (b"d", 0))
    put(1, (b"1", 0), (b"2", 0))
    consumer = make()
    found = take(consumer, 6, batch=batch)
    assert {value for value, _ in found[:2]} == {b"1", b"2"}
    assert [value for value, _ in found[2:]] == [b"a", b"b", b"c", b"d"]
    came = dict(found)
    assert came[b"2"] < began_ms + WAIT_MS <= came[b"a"]
    assert came[b"c"] >= began_ms + WAIT_MS + 300
    counts = consumer.stats()["delay"]
    assert (counts["delayed"], counts["failed"]) == (2, 0)


def test_poll_keeps_its_timeout_and_the_application_hears_of_no_error(
    make: Callable[..., Consumer], put: Callable[..., int]
) -> None:
    put(0, (b"a", 60_000))
    consumer = make()
    until(lambda: consumer.poll(0.05) or consumer.stats()["delay"]["delayed"], "the record was seen")
    before = time.monotonic()
    assert consumer.poll(0.2) is None
    assert consumer.poll(0) is None
    assert time.monotonic() - before < DEADLINE_S / 2


def test_poll_without_a_timeout_returns_when_the_moment_has_come(
    make: Callable[..., Consumer], put: Callable[..., int]
) -> None:
    put(0, (b"a", WAIT_MS))
    message = make().poll()
    assert message is not None
    assert message.value() == b"a"


def test_offsets_are_not_committed_past_a_record_that_waits(
    make: Callable[..., Consumer], put: Callable[..., int], committed: Callable[[int], int]
) -> None:
    put(0, (b"a", 0), (b"b", 60_000), (b"c", 0))
    put(1, (b"1", 0))
    consumer = make()
    take(consumer, 2)
    until(lambda: consumer.poll(0.05) or consumer.stats()["delay"]["delayed"], "the record was seen")
    commit_stored(consumer)
    consumer.close()
    assert [committed(0), committed(1)] == [1, 1]


def test_a_message_in_slices_waits_whole_and_comes_again_after_a_restart(
    make: Callable[..., Consumer], connection: dict[str, Any], topic: str
) -> None:
    value = bytes(range(256)) * 40
    chain = Chain([Delay(after_ms=WAIT_MS), Slice(max_bytes=4_000)])
    with Producer(connection, chain=chain) as producer:
        producer.produce(topic, value, b"k", 0)
        assert producer.flush(DEADLINE_S) == 0
    first = make(Delay(), Slice(max_bytes=4_000))
    until(lambda: first.poll(0.02) or first.stats()["delay"]["delayed"], "the message was seen")
    first.commit(offsets=[TopicPartition(topic, 0, 3)], asynchronous=False)
    first.close()
    second = make(Delay(), Slice(max_bytes=4_000))
    assert [found for found, _ in take(second, 1)] == [value]


def test_a_message_in_slices_is_delivered_by_the_consumer_that_waited(
    make: Callable[..., Consumer], connection: dict[str, Any], topic: str
) -> None:
    value = bytes(range(256)) * 40
    with Producer(connection, chain=Chain([Delay(after_ms=WAIT_MS), Slice(max_bytes=4_000)])) as producer:
        producer.produce(topic, value, b"k", 0)
        producer.produce(topic, b"next", b"k", 0)
    consumer = make(Delay(), Slice(max_bytes=4_000))
    assert [found for found, _ in take(consumer, 2)] == [value, b"next"]
    assert consumer.poll(0.2) is None


def test_a_seek_ends_the_wait(make: Callable[..., Consumer], put: Callable[..., int], topic: str) -> None:
    put(0, (b"a", 0), (b"b", 60_000), (b"c", 0))
    consumer = make()
    take(consumer, 1)
    until(lambda: consumer.poll(0.05) or consumer.stats()["delay"]["delayed"], "the record was seen")
    consumer.seek(TopicPartition(topic, 0, 2))
    assert [value for value, _ in take(consumer, 1)] == [b"c"]


def test_pause_and_resume_of_the_application_do_not_end_the_wait(
    make: Callable[..., Consumer], put: Callable[..., int], topic: str
) -> None:
    began_ms = put(0, (b"a", WAIT_MS), (b"b", 0))
    consumer = make()
    until(lambda: consumer.poll(0.02) or consumer.stats()["delay"]["delayed"], "the record was seen")
    partition = [TopicPartition(topic, 0)]
    consumer.pause(partition)
    consumer.resume(partition)
    found = take(consumer, 2)
    assert [value for value, _ in found] == [b"a", b"b"]
    assert found[0][1] >= began_ms + WAIT_MS


def test_a_pause_of_the_application_outlasts_the_wait(
    make: Callable[..., Consumer], put: Callable[..., int], topic: str
) -> None:
    began_ms = put(0, (b"a", WAIT_MS))
    consumer = make()
    while not consumer.stats()["delay"]["delayed"]:
        assert consumer.poll(0.02) is None
    consumer.pause([TopicPartition(topic, 0)])
    until(
        lambda: time.time_ns() // 1_000_000 > began_ms + WAIT_MS + 200, meanwhile=lambda: consumer.poll(0.05)
    )
    assert consumer.poll(0.1) is None
    consumer.resume([TopicPartition(topic, 0)])
    assert [value for value, _ in take(consumer, 1)] == [b"a"]


def test_a_partition_that_goes_and_comes_back_is_read(
    make: Callable[..., Consumer], put: Callable[..., int], topic: str
) -> None:
    put(0, (b"a", WAIT_MS), (b"b", 0))
    consumer = make()
    until(lambda: consumer.poll(0.02) or consumer.stats()["delay"]["delayed"], "the record was seen")
    consumer.unassign()
    assert consumer.poll(0.05) is None
    consumer.assign([TopicPartition(topic, 0, 0)])
    assert [value for value, _ in take(consumer, 2)] == [b"a", b"b"]


def test_run_waits_and_commits_nothing_beyond(
    make: Callable[..., Consumer], put: Callable[..., int], committed: Callable[[int], int]
) -> None:
    began_ms = put(0, (b"a", 0), (b"b", WAIT_MS), (b"c", 0))
    put(1, (b"1", 0))
    consumer, found = make(), []
    while_waiting: list[int] = []

    def handle(message: confluent_kafka.Message) -> None:
        found.append((message.value(), time.time_ns() // 1_000_000))
        if len(found) == 4:
            consumer.stop()

    def watch() -> None:
        until(lambda: consumer.stats()["delay"]["delayed"])
        while_waiting.append(committed(0))

    watching = threading.Thread(target=watch)
    watching.start()
    consumer.run(handle, order="partition")
    watching.join(DEADLINE_S)
    assert [value for value, _ in found if value != b"1"] == [b"a", b"b", b"c"]
    assert dict(found)[b"b"] >= began_ms + WAIT_MS
    assert while_waiting[0] <= 1
    assert committed(0) == 3


def test_asyncio_waits_too(connection: dict[str, Any], put: Callable[..., int], topic: str) -> None:
    began_ms = put(0, (b"a", WAIT_MS))

    async def read() -> bytes | None:
        conf = {**connection, "group.id": topic, "auto.offset.reset": "earliest"}
        async with AsyncConsumer(conf, chain=Chain([Delay()])) as consumer:
            await consumer.assign([TopicPartition(topic, 0)])
            while (message := await consumer.poll(1.0)) is None:
                pass
            return message.value()

    assert asyncio.run(asyncio.wait_for(read(), DEADLINE_S)) == b"a"
    assert time.time_ns() // 1_000_000 >= began_ms + WAIT_MS


@pytest.mark.skipif(not hasattr(confluent_kafka, "ShareConsumer"), reason="no share consumers")
def test_share_consumers_refuse_it(connection: dict[str, Any], topic: str) -> None:
    with pytest.raises(ConfigError, match="share group"):
        ShareConsumer({**connection, "group.id": topic}, chain=Chain([Delay()]))


def test_a_record_of_the_past_is_not_held(make: Callable[..., Consumer], put: Callable[..., int]) -> None:
    put(0, (b"a", -1_000))
    consumer = make()
    assert [value for value, _ in take(consumer, 1)] == [b"a"]
    assert consumer.stats()["delay"]["delayed"] == 0


def test_dry_runs_show_the_record_at_once() -> None:
    record = Record("orders", b"v", headers=Headers([not_before_header(10**14)]), timestamp_ms=10**14)
    chain = Chain([Delay()])
    with chain.open(Context(side="consumer", now_ms=lambda: 10**14 - 5, dry_run=True)) as session:
        assert session.consume_outcome(record) is not None
