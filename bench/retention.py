"""Rows for `headerware retain`: a pass in records a second against a plain read, and memory."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Iterator

import confluent_kafka
from report import Row

from headerware.ops.retention.rules import RetentionRule
from headerware.ops.retention.worker import Retention
from headerware.testing import KafkaBroker

VALUE = bytes(100)
MEMORY = """
import pathlib, re, sys
from headerware.ops.retention.keys import Keys
keys = Keys()
count = int(sys.argv[1])
for number in range(count):
    keys.note(0, b"%d" % (number * 7_919 % count), number, "expired", None)
assert keys.choose({0: 0})[0].tombstones == count
done = 0
while found := keys.chosen(0, most=1_000, most_bytes=1 << 20):
    done += keys.drop(0, [each.key for each in found])
assert done == count
status = pathlib.Path('/proc/self/status').read_text()  # the parent's memory does not count there
print(int(re.search(r'VmHWM:\\s+([0-9]+)', status)[1]) // 1024)
"""


def rows(broker: KafkaBroker, *, pairs: int, records: int, keys: int) -> Iterator[Row]:
    """Measure passes over a compacted topic whose keys have all expired; then the memory of keys alone."""
    topic = "retention-topic"
    broker.create_topic(topic, config={"cleanup.policy": "compact"})
    _fill(broker, topic, records)
    ours: list[float] = []
    plain: list[float] = []
    for index in range(pairs + 1):
        turns = [(_looked_at, ours), (_read, plain)]
        for run, rates in turns if index % 2 else reversed(turns):
            began = time.perf_counter()
            assert run(broker, topic) == records
            if index:
                rates.append(records / (time.perf_counter() - began))
    yield Row(
        "a pass of retention by header over a compacted topic",
        statistics.median(ours),
        statistics.median(plain),
        "records/s",
        statistics.median(a / b for a, b in zip(ours, plain, strict=True)),
        note=f"{records:,} records of 100 bytes with hw.expires, each with a key of its own, without "
        "--execute; against a plain read with a look at that header",
    )
    few, many = (_memory_mib(count) for count in (50_000, keys))
    yield Row(
        f"memory for {keys:,} keys that get tombstones",
        many,
        few,
        "MiB",
        many / few,
        "ours at most 250",
        note="a process that notes and chooses them; reference: the same with 50,000 keys",
    )


def _fill(broker: KafkaBroker, topic: str, records: int) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 50})
    for number in range(records):
        producer.produce(topic, VALUE, b"%d" % number, headers=[("hw.expires", b"1000000000000")])
        if not number % 10_000:
            producer.flush()
    producer.flush()
    producer.close()


def _looked_at(broker: KafkaBroker, topic: str) -> int:
    with Retention({"bootstrap.servers": broker.bootstrap_servers}, topic, RetentionRule()) as work:
        return work.preview().tombstones


def _read(broker: KafkaBroker, topic: str) -> int:
    """Read a topic with a plain consumer."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": topic,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    partition = confluent_kafka.TopicPartition(topic, 0, 0)
    _, end = consumer.get_watermark_offsets(partition)
    consumer.assign([partition])
    expired = done = 0
    while done < end:
        for message in consumer.consume(500, 0.1):
            done = (message.offset() or 0) + 1
            expired += int(dict(message.headers() or []).get("hw.expires") or b"0") < time.time() * 1_000
    consumer.close()
    return expired


def _memory_mib(keys: int) -> float:
    command = [sys.executable, "-c", MEMORY, str(keys)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
