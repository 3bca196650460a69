"""A row for chargeback in one process: counting a topic, against reading it and summing sizes."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import confluent_kafka
from pairing import compare
from report import Row

from headerware.kafka.reader import TopicReader
from headerware.ops.chargeback import KeptUsage, count_usage, record_bytes
from headerware.testing import KafkaBroker

RECORDS = 100_000
VALUE_BYTES = 200
HEADERS: list[tuple[str, str | bytes | None]] = [
    ("hw.owner", b"shop"),
    ("hw.trail", b"1,at=1767225600000;by=checkout;into=east/orders"),
    ("content-type", b"application/json"),
]


def rows(broker: KafkaBroker, *, pairs: int) -> Iterator[Row]:
    """Measure both on one topic; each run counts the topic into a new file."""
    topic = "bench-chargeback"
    broker.create_topic(topic, partitions=3)
    conf = {"bootstrap.servers": broker.bootstrap_servers}
    producer = confluent_kafka.Producer({**conf, "linger.ms": 50})
    for number in range(RECORDS):
        producer.produce(topic, bytes(VALUE_BYTES), partition=number % 3, headers=HEADERS)
        if number % 10_000 == 0:
            producer.flush(60)
    assert producer.flush(60) == 0
    numbers = count()
    with tempfile.TemporaryDirectory() as folder:

        def ours() -> int:
            with KeptUsage(Path(folder) / f"{next(numbers)}.db") as kept:
                return count_usage(conf, [topic], kept, groups=None).records

        found = compare(ours, lambda: _read(conf, topic), pairs=pairs, warm_up=1)
    yield Row(
        "chargeback in one process, against reading and summing sizes",
        found.ours,
        found.reference,
        "records/s",
        found.ratio,
        note=f"{RECORDS:,} records with {VALUE_BYTES}-byte values and 3 headers, from a new reader to its "
        f"end; {pairs} pairs",
    )


def _read(conf: dict[str, str], topic: str) -> int:
    records = size = 0
    with TopicReader(conf, topic, group_id="bench") as reader:
        reader.start()
        for batch in reader.to_end():
            for message in batch:
                records += 1
                size += record_bytes(message.key(), message.value(), message.headers() or [])
    assert size > records
    return records
