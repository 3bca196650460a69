"""The chain of a consumer in a group changes again and again, in the middle of messages in slices."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from headerware import Consumer
from headerware.interceptors import Dedup, Slice

if TYPE_CHECKING:
    from pathlib import Path

    from confluent_kafka import Message

    from tests.integration.conftest import Cluster

pytestmark = pytest.mark.broker

DEADLINE_S = 60.0
PARTITIONS = 3
EACH = 150
DEDUP = '[[interceptors]]\ntype = "dedup"\n'
CHAINS = (
    f'{DEDUP}[[interceptors]]\ntype = "slice"\n',
    f'{DEDUP}[[interceptors]]\ntype = "slice"\nexpire_ms = 60000\n',
    f'{DEDUP}[[interceptors]]\ntype = "compress"\n[[interceptors]]\ntype = "slice"\nexpire_ms = 60000\n',
    f'{DEDUP}[[interceptors]]\ntype = "slice"\n[[interceptors]]\ntype = "header_ids"\n',
)


def payload(producer: int, number: int) -> bytes:
    """Return a value of its own, every third too large for one record."""
    return b"%d-%d-" % (producer, number) + bytes(4_500 if number % 3 == 0 else 10)


def test_each_message_comes_once_and_a_restart_meets_none_again(cluster: Cluster, tmp_path: Path) -> None:
    topic = cluster.topic("live", partitions=PARTITIONS)
    file = tmp_path / "chain.toml"
    file.write_text(CHAINS[0])
    conf: dict[str, Any] = {
        "bootstrap.servers": cluster.servers,
        "log_level": 0,
        "group.id": topic,
        "auto.offset.reset": "earliest",
        "auto.commit.interval.ms": 200,
        "headerware.config": str(file),
    }
    producers = [cluster.producer(Dedup(), Slice(max_bytes=1_500), linger_ms=0) for _ in range(3)]

    def produce(index: int) -> None:
        for number in range(EACH):
            producers[index].produce(topic, payload(index, number), partition=number % PARTITIONS)
            producers[index].poll(0.01)  # slowly, so that slices of several producers mix
        producers[index].flush(DEADLINE_S)

    threads = [threading.Thread(target=produce, args=(index,)) for index in range(len(producers))]
    expected = Counter(payload(index, number) for index in range(len(producers)) for number in range(EACH))
    found: list[Message] = []
    deadline = time.monotonic() + DEADLINE_S
    with Consumer(conf) as consumer:
        consumer.subscribe([topic])
        for thread in threads:
            thread.start()
        versions = 0
        while len(found) < sum(expected.values()):
            assert time.monotonic() < deadline, f"{len(found)} of {sum(expected.values())} messages came"
            found += consumer.consume(7, 0.05)
            if len(found) > 15 * versions:
                versions += 1
                file.write_text(CHAINS[versions % len(CHAINS)])
                assert consumer.reload() is True
        stats = consumer.stats()
    for thread in threads:
        thread.join()
    assert [message.error() for message in found if message.error() is not None] == []
    assert Counter(message.value() for message in found) == expected
    assert stats["client"]["reloads"] >= 5 * len(CHAINS)
    with Consumer(conf) as consumer:
        consumer.subscribe([topic])
        while not consumer.assignment():
            assert time.monotonic() < deadline
            assert consumer.poll(0.1) is None
        assert consumer.consume(1, 1) == []
