"""Rows for `headerware compact`: records a second against a plain copy in transactions, and memory."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator

import confluent_kafka
from report import Row

from headerware.ops.compaction import Compaction, Rule
from headerware.testing import KafkaBroker

BATCH = 2_000
VALUE = bytes(100)
MEMORY = """
import pathlib, re, sys, tempfile
from headerware.ops.compaction.rules import Judged, digest_of
from headerware.ops.compaction.winners import Winners
keys, at_once = int(sys.argv[1]), 50_000
with tempfile.TemporaryDirectory() as folder, Winners(f"{folder}/store", "bench") as winners:
    for first in range(0, keys, at_once):
        digests = [digest_of(b"%d" % number, 0) for number in range(first, first + at_once)]
        winners.learn([Judged(0, first + n, 100, d, n, None) for n, d in enumerate(digests)])
status = pathlib.Path('/proc/self/status').read_text()  # the parent's memory does not count there
print(int(re.search(r'VmHWM:\\s+([0-9]+)', status)[1]) // 1024)
"""


def rows(broker: KafkaBroker, *, pairs: int, records: int, keys: int) -> Iterator[Row]:
    """Copy a topic of which a tenth wins, by pairs; then learn keys, in processes of their own."""
    source = "compaction-source"
    broker.create_topic(source, config={"retention.ms": "-1"})
    _fill(broker, source, records)
    ours: list[float] = []
    plain: list[float] = []
    for index in range(pairs + 1):
        turns = [(_compacted, ours), (_copied, plain)]
        for run, rates in turns if index % 2 else reversed(turns):
            target = f"compaction-{uuid.uuid4().hex[:8]}"
            broker.create_topic(target, config={"retention.ms": "-1"})
            began = time.perf_counter()
            assert run(broker, source, target) >= records
            if index:
                rates.append(records / (time.perf_counter() - began))
    yield Row(
        "compaction by header, a tenth of the records wins",
        statistics.median(ours),
        statistics.median(plain),
        "records/s",
        statistics.median(a / b for a, b in zip(ours, plain, strict=True)),
        note=f"{records:,} records of 100 bytes; reads twice and writes a tenth, against reading once and "
        "writing all, both in transactions of 2,000",
    )
    few, many = (_memory_mib(count) for count in (50_000, keys))
    yield Row(
        f"memory for the winners of {keys:,} keys",
        many,
        few,
        "MiB",
        many / few,
        "ours at most 200",
        note="a process that learns them; reference: the same with 50,000 keys",
    )


def _fill(broker: KafkaBroker, topic: str, records: int) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 50})
    for number in range(records):
        headers: list[tuple[str, str | bytes | None]] = [("version", str(number * 7_919 % records))]
        producer.produce(topic, VALUE, b"%d" % (number % (records // 10)), headers=headers)
        if not number % 10_000:
            producer.flush()
    producer.flush()
    producer.close()


def _compacted(broker: KafkaBroker, source: str, target: str) -> int:
    conf = {"bootstrap.servers": broker.bootstrap_servers}
    with Compaction(conf, source, target, Rule(header="version")) as work:
        return work.execute().records


def _copied(broker: KafkaBroker, source: str, target: str) -> int:
    """Copy a topic as one would by hand."""
    conf = {"bootstrap.servers": broker.bootstrap_servers}
    consumer = confluent_kafka.Consumer(
        {
            **conf,
            "group.id": target,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    producer = confluent_kafka.Producer({**conf, "transactional.id": target, "linger.ms": 5})
    producer.init_transactions()
    place = confluent_kafka.TopicPartition(source, 0, 0)
    _, end = consumer.get_watermark_offsets(place)
    consumer.assign([place])
    done = 0
    while done < end:
        batch = consumer.consume(BATCH, 0.1)
        if not batch:
            continue
        producer.begin_transaction()
        for message in batch:
            producer.produce(
                target,
                message.value(),
                message.key(),
                message.partition() or 0,
                timestamp=message.timestamp()[1],
                headers=message.headers(),
            )
        done = (batch[-1].offset() or 0) + 1
        offsets = [confluent_kafka.TopicPartition(source, 0, done)]
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata())
        producer.commit_transaction()
    consumer.close()
    producer.close()
    return done


def _memory_mib(keys: int) -> float:
    command = [sys.executable, "-c", MEMORY, str(keys)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
