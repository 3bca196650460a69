"""Rows for one 64 MiB message, split and reassembled, against the same bytes sent as records of one slice."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import msgspec
from report import Row

import headerware
from headerware import Chain
from headerware.interceptors import Slice
from headerware.testing import KafkaBroker

SIZE = 64 * 1024 * 1024
PIECE = 900_000


def rows(broker: KafkaBroker, *, pairs: int) -> Iterator[Row]:
    """Measure throughput by pairs in this process, and memory in a process of its own for each side."""
    value = os.urandom(SIZE)
    pieces = [value[start : start + PIECE] for start in range(0, SIZE, PIECE)]
    sent: dict[str, list[float]] = {"ours": [], "cut": []}
    seen: dict[str, list[float]] = {"ours": [], "cut": []}
    broker.create_topic("large-ours")
    broker.create_topic("large-cut")
    conf = {"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 5}
    ours = headerware.Producer(conf, chain=Chain([Slice(max_bytes=PIECE)]))
    cut = confluent_kafka.Producer(conf)
    mine = headerware.Consumer(_consumer(broker, "ours"), chain=Chain([Slice(max_bytes=PIECE)]))
    theirs = confluent_kafka.Consumer(_consumer(broker, "cut"))
    mine.assign([confluent_kafka.TopicPartition("large-ours", 0, confluent_kafka.OFFSET_BEGINNING)])
    theirs.assign([confluent_kafka.TopicPartition("large-cut", 0, confluent_kafka.OFFSET_BEGINNING)])
    for index in range(pairs + 1):
        turns = [("ours", ours, [value], "large-ours", mine), ("cut", cut, pieces, "large-cut", theirs)]
        for name, producer, values, topic, consumer in turns if index % 2 else reversed(turns):
            began = time.perf_counter()
            for one in values:
                producer.produce(topic, one, key=b"k")
            producer.flush()
            produced = time.perf_counter()
            size = _received(consumer, len(values))
            ended = time.perf_counter()
            assert size == SIZE, f"{name}: {size} bytes came back"
            if index:
                sent[name].append(SIZE / (produced - began))
                seen[name].append(SIZE / (ended - began))
    mine.close()
    theirs.close()
    note = f"{pairs} pairs; {PIECE:,}-byte records"
    yield _throughput("64 MiB message, produced", sent, note)
    yield _throughput("64 MiB message, produced and consumed", seen, note)
    yield from (_memory(broker, side) for side in ("produce", "consume"))


def _consumer(broker: KafkaBroker, group: str) -> dict[str, Any]:
    return {"bootstrap.servers": broker.bootstrap_servers, "group.id": group, "auto.offset.reset": "earliest"}


def _received(consumer: Any, messages: int) -> int:
    size = count = 0
    while count < messages:
        message = consumer.poll(30)
        assert message is not None, "nothing came for 30 s"
        assert message.error() is None, message.error()
        size += len(message.value())
        count += 1
    return size


def _throughput(name: str, rates: dict[str, list[float]], note: str) -> Row:
    ratio = statistics.median(a / b for a, b in zip(rates["ours"], rates["cut"], strict=True))
    ours, cut = (statistics.median(rates[side]) / 2**20 for side in ("ours", "cut"))
    return Row(name, ours, cut, "MiB/s", ratio, "at least 0.8", note)


def _memory(broker: KafkaBroker, side: str) -> Row:
    command = [sys.executable, __file__, side, broker.bootstrap_servers]
    growth = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return Row(
        f"64 MiB message, growth of memory, {side}",
        growth / 2**20,
        SIZE / 2**20,
        "MiB",
        growth / SIZE,
        "at most 2.5",
        "peak resident size over that before, librdkafka's queues and the message itself included"
        + ("" if side == "produce" else ", 16 MiB fetched ahead"),
    )


def _peak_bytes() -> int:
    with open("/proc/self/status", encoding="ascii") as status:  # noqa: PTH123 - a file of the kernel's
        line = next(line for line in status if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def _measure(side: str, servers: str) -> int:
    """Return the growth of the peak resident size over one message, after a small one as warm-up."""
    topic, chain = "large-memory", Chain([Slice(max_bytes=PIECE)])
    if side == "produce":
        producer = headerware.Producer({"bootstrap.servers": servers}, chain=chain)
        producer.produce(topic, b"x" * 2 * PIECE, key=b"k")
        producer.flush()
        before = _peak_bytes()
        producer.produce(topic, os.urandom(SIZE), key=b"k")
        producer.flush()
        return _peak_bytes() - before
    # Records that are fetched ahead count, so the queue is as small as a reader of large messages sets it.
    conf = {
        "bootstrap.servers": servers,
        "group.id": f"memory {side}",
        "auto.offset.reset": "earliest",
        "queued.max.messages.kbytes": 16_384,
    }
    consumer = headerware.Consumer(conf, chain=chain)
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    assert _received(consumer, 1) == 2 * PIECE
    before = _peak_bytes()
    assert _received(consumer, 1) == SIZE
    growth = _peak_bytes() - before
    consumer.close()
    return growth


if __name__ == "__main__":
    print(msgspec.json.encode(_measure(*sys.argv[1:])).decode())
