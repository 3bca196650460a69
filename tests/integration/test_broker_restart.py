"""A broker that goes away under load and comes back: the chain goes on, and everything happens once."""

from __future__ import annotations

import random
import threading
from collections import Counter
from typing import TYPE_CHECKING, Final

import pytest

from headerware.interceptors import Compress, Sign, Slice, Trail

if TYPE_CHECKING:
    from headerware import Producer
    from tests.integration.conftest import Acknowledgements, Cluster, Reports

pytestmark = [pytest.mark.broker, pytest.mark.long]

PACE_S: Final = 0.01
LARGE: Final = 20_000


def send_until(
    stop: threading.Event, producer: Producer, topic: str, reports: Reports, sent: list[bytes]
) -> None:
    """Send small and large messages at a steady pace."""
    generator = random.Random(4)
    while not stop.wait(PACE_S):
        size = LARGE if len(sent) % 5 == 4 else 50
        value = b"%08d" % len(sent) + generator.randbytes(size)
        sent.append(value)
        producer.produce(topic, value, b"key-%d" % (len(sent) % 7), on_delivery=reports)
        producer.poll(0)


def test_each_record_is_reported_once_and_comes_once(
    second_cluster: Cluster, keyring: str, reports: Reports, acknowledgements: Acknowledgements
) -> None:
    topic = second_cluster.topic("restart", partitions=2)
    chain = [Trail(), Compress(), Slice(max_bytes=5_000), Sign(keyring=keyring, key_id="test")]
    producer = second_cluster.producer(acknowledgements, *chain, enable_idempotence=True, linger_ms=5)
    consumer = second_cluster.consumer(topic, *chain)
    sent: list[bytes] = []
    stop = threading.Event()
    sender = threading.Thread(target=send_until, args=(stop, producer, topic, reports, sent))
    sender.start()
    try:
        before = second_cluster.take(consumer, 50)
        sent_before = len(sent)
        second_cluster.stop()
        second_cluster.start()
        assert len(sent) > sent_before, "the load went on meanwhile"
    finally:
        stop.set()
        sender.join()
    assert producer.flush(60) == 0
    received = before + second_cluster.rest_of(consumer, topic)

    times = Counter(message.value() for message in received)
    assert [value[:8] for value in sent if times[value] != 1] == []
    assert len(times) == len(sent)
    for heard in (reports.errors, acknowledgements.errors):
        assert {value[:8]: heard.get(value) for value in sent} == {value[:8]: [None] for value in sent}
        assert len(heard) == len(sent)
    second_cluster.commit(consumer)
    for partition in (0, 1):
        ends = [m.offset() for m in second_cluster.on_the_wire(topic) if m.partition() == partition]
        assert second_cluster.committed(topic, topic, partition)[0] == len(ends)
