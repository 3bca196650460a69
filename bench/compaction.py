"""Rows for `headerware compact` and `retain`: records a second against plain clients, and memory."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator

import confluent_kafka
from report import Row

from headerware.ops.compaction import Compaction, Rule
from headerware.ops.retention.rules import RetentionRule
from headerware.ops.retention.worker import Retention
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


RETENTION_MEMORY = """
import pathlib, re, sys
from headerware.ops.retention.rules import RetentionRule
from headerware.ops.retention.worker import Retention
with Retention({"bootstrap.servers": sys.argv[1]}, sys.argv[2], RetentionRule()) as work:
    assert work.preview().records == int(sys.argv[3])
status = pathlib.Path('/proc/self/status').read_text()
print(int(re.search(r'VmHWM:\\s+([0-9]+)', status)[1]) // 1024)
"""


def rows(broker: KafkaBroker, *, pairs: int, records: int, keys: int) -> Iterator[Row]:
    """Copy two topics by pairs: a tenth of the first wins, half of the second has expired; measure memory."""
    source, clicks = "compaction-source", "retention-source"
    _fill(broker, source, records, lambda number: ("version", str(number * 7_919 % records)))
    _fill(broker, clicks, records, lambda number: ("hw.expires", "1" if number % 2 else "9000000000000"))
    note = f"{records:,} records of 100 bytes"
    yield _compared(
        "compaction by header, a tenth of the records wins",
        *(_compacted, _copied, broker, source),
        records=records,
        pairs=pairs,
        note=f"{note}; reads twice and writes a tenth, against reading once and writing all, both in "
        "transactions of 2,000",
    )
    yield _compared(
        "retention by header, a copy without the half that has expired",
        *(_retained, _copied, broker, clicks),
        records=records,
        pairs=pairs,
        note=f"{note}; against a copy of all, both in transactions of 2,000",
    )
    yield _compared(
        "retention by header, a pass over a topic",
        *(_passed, _read, broker, clicks),
        records=records,
        pairs=pairs,
        note=f"{note}, cleanup.policy=delete, without --execute; against reading with the headers",
    )
    few, many = (_memory_mib(MEMORY, str(count)) for count in (50_000, keys))
    yield Row(
        f"memory for the winners of {keys:,} keys",
        many,
        few,
        "MiB",
        many / few,
        "ours at most 200",
        note="a process that learns them; reference: the same with 50,000 keys",
    )
    _fill(broker, "retention-few", 1_000, lambda _: ("hw.expires", "1"))
    servers = broker.bootstrap_servers
    few = _memory_mib(RETENTION_MEMORY, servers, "retention-few", "1000")
    many = _memory_mib(RETENTION_MEMORY, servers, clicks, str(records))
    yield Row(
        f"memory for a pass of retention over {records:,} records",
        many,
        few,
        "MiB",
        many / few,
        "ours at most 200",
        note="a process that makes a pass, cleanup.policy=delete; reference: the same over 1,000 records",
    )


def _compared(
    name: str,
    ours: Callable[[KafkaBroker, str, str], int],
    plain: Callable[[KafkaBroker, str, str], int],
    broker: KafkaBroker,
    source: str,
    *,
    records: int,
    pairs: int,
    note: str,
) -> Row:
    """Run both by turns, each with an empty topic of its own; the first turn does not count."""
    rates: tuple[list[float], list[float]] = ([], [])
    for index in range(pairs + 1):
        turns = list(zip((ours, plain), rates, strict=True))
        for run, found in turns if index % 2 else reversed(turns):
            target = f"compaction-{uuid.uuid4().hex[:8]}"
            broker.create_topic(target, config={"retention.ms": "-1"})
            began = time.perf_counter()
            assert run(broker, source, target) >= records
            if index:
                found.append(records / (time.perf_counter() - began))
    ratio = statistics.median(a / b for a, b in zip(*rates, strict=True))
    return Row(name, statistics.median(rates[0]), statistics.median(rates[1]), "records/s", ratio, note=note)


def _fill(broker: KafkaBroker, topic: str, records: int, header: Callable[[int], tuple[str, str]]) -> None:
    """Create a topic, and fill it with records that have one header each, ten for each key."""
    broker.create_topic(topic, config={"retention.ms": "-1"})
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 50})
    for number in range(records):
        headers: list[tuple[str, str | bytes | None]] = [header(number)]
        producer.produce(topic, VALUE, b"%d" % (number % (records // 10)), headers=headers)
        if not number % 10_000:
            producer.flush()
    producer.flush()
    producer.close()


def _compacted(broker: KafkaBroker, source: str, target: str) -> int:
    conf = {"bootstrap.servers": broker.bootstrap_servers}
    with Compaction(conf, source, target, Rule(header="version")) as work:
        return work.execute().records


def _retained(broker: KafkaBroker, source: str, target: str) -> int:
    conf = {"bootstrap.servers": broker.bootstrap_servers}
    with Compaction(conf, source, target, RetentionRule()) as work:
        return work.execute().records


def _passed(broker: KafkaBroker, source: str, _: str) -> int:
    with Retention({"bootstrap.servers": broker.bootstrap_servers}, source, RetentionRule()) as work:
        return work.preview().records


def _read(broker: KafkaBroker, source: str, target: str) -> int:
    """Read a topic with a plain consumer, with the headers of each record."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": target, "enable.auto.commit": False}
    )
    partition = confluent_kafka.TopicPartition(source, 0, 0)
    _, end = consumer.get_watermark_offsets(partition)
    consumer.assign([partition])
    done = found = 0
    while done < end:
        for message in consumer.consume(500, 0.1):
            found += bool(message.headers())
            done = (message.offset() or 0) + 1
    consumer.close()
    return found


def _copied(broker: KafkaBroker, source: str, target: str) -> int:
    """Copy a topic with plain clients."""
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
    partition = confluent_kafka.TopicPartition(source, 0, 0)
    _, end = consumer.get_watermark_offsets(partition)
    consumer.assign([partition])
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


def _memory_mib(script: str, *arguments: str) -> float:
    command = [sys.executable, "-c", script, *arguments]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
