"""Retention: one process looks for expired records on very many partitions."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Final

import confluent_kafka
import numpy as np
from simulations.section import Anchor, Rows, Section, Table, least

from headerware.kafka.reader import TopicReader
from headerware.ops.retention.rules import RetentionRule
from headerware.ops.retention.worker import Retention
from headerware.testing import EmbeddedCluster, KafkaBroker

VISIT_MS: Final = 1.0
READ_RECORDS_PER_S: Final = 200_000.0
EXTRA_RECORDS: Final = 500
"""How many records a pass over beginnings gets from a partition after the first record that is kept."""


def retention_tables(size: float) -> Iterator[Table]:
    rows: Rows = []
    for partitions in (1_000, 100_000):
        for rate in (1_000.0, 10_000.0, 100_000.0):
            for days in (1, 30):
                complete = pass_s(partitions, rate, days * 86_400.0, extra=None)
                beginnings = pass_s(partitions, rate, days * 86_400.0, extra=EXTRA_RECORDS)
                rows.append(
                    (
                        f"{partitions:,}",
                        f"{rate:,.0f}",
                        f"{days}",
                        f"{rate * days * 0.0864:,.0f}",
                        duration(complete),
                        duration(beginnings),
                    )
                )
    yield Table(
        "retention",
        (
            "partitions",
            "records a second",
            "they live, days",
            "the topic holds, million",
            "a pass",
            "a pass over beginnings",
        ),
        rows,
    )
    rows = []
    for part in (0.0, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1):
        rows.append(
            (f"{part:.4%}", *(f"{held(part, rate, size, seed=6):.2f}" for rate in (0.01, 1.0, 100.0)))
        )
    yield Table(
        "retention-held",
        (
            "records that live 30 days, all others a day",
            "held by what is due, a record in 100 s on a partition",
            "a record a second",
            "100 a second",
        ),
        rows,
    )


def pass_s(partitions: int, records_per_s: float, live_s: float, *, extra: int | None) -> float:
    """Return the duration to which passes converge, if each pass begins when the previous pass is over.

    A pass deletes the records that had expired when it began. So the next pass finds the records that came
    after this moment, and the records that had not expired. It reads all of them, or only the expired ones
    and ``extra`` records of each partition.
    """
    took_s = 0.0
    for _ in range(1_000):
        came = records_per_s * took_s
        left = records_per_s * live_s if extra is None else extra * partitions
        took_s = partitions * VISIT_MS / 1e3 + (came + left) / READ_RECORDS_PER_S
    return took_s


def duration(seconds: float) -> str:
    """Return a duration in a readable unit."""
    for unit, length in (("days", 86_400.0), ("hours", 3_600.0), ("minutes", 60.0)):
        if seconds >= 2 * length:
            return f"{seconds / length:,.1f} {unit}"
    return f"{seconds:,.1f} s"


def held(part: float, records_per_s: float, size: float, seed: int) -> float:
    """Return a partition's records divided by its live records, if only its beginning can be deleted.

    A partition holds all records from its oldest live record on. With long-lived records at random, the age
    of the oldest one is 30 days less an exponential time, whose mean is the time between two of them.
    """
    long_s, short_s = 30 * 86_400.0, 86_400.0
    rng = np.random.default_rng(seed)
    due = short_s * (1 - part) + long_s * part
    if not part:
        return 1.0
    gaps = -np.log1p(-rng.random(max(1_000, int(100_000 * size)))) / (records_per_s * part)
    oldest = np.maximum(long_s - gaps, short_s)
    return float(oldest.mean() / due)


def measured_visit_ms() -> float:
    """Measure our reader on a topic of many partitions with one record each."""
    with EmbeddedCluster(topics={"many": 200}) as cluster:
        conf = {"bootstrap.servers": cluster.bootstrap_servers}
        producer = confluent_kafka.Producer(conf)
        for number in range(200):
            producer.produce("many", b"v", partition=number)
        producer.flush(30)

        def visit() -> None:
            with TopicReader(conf, "many", group_id="simulate") as reader:
                reader.start()
                assert sum(map(len, reader.to_end())) == 200

        return least(visit, time.perf_counter) / 200 * 1e3


def measured_judged_per_s() -> float:
    """Measure how many records a pass reads and judges in a second of CPU."""
    records = 100_000
    with KafkaBroker() as broker:
        conf = fill_expiring(broker, partitions=1, records=records, expired=records)

        def judge() -> None:
            with Retention(conf, "clicks", RetentionRule()) as work:
                assert work.preview().deleted == records

        return records / least(judge, time.process_time)


def measured_extra() -> float:
    """Measure how many records a pass over beginnings gets after the first record that is kept."""
    partitions, expired = 20, 100
    with KafkaBroker() as broker:
        conf = fill_expiring(broker, partitions=partitions, records=3_000, expired=expired)
        with Retention(conf, "clicks", RetentionRule(), beginnings=True) as work:
            return work.preview().records / partitions - expired


def fill_expiring(broker: KafkaBroker, *, partitions: int, records: int, expired: int) -> dict[str, Any]:
    """Fill partitions with records, of which the first ones have expired; return the client's settings."""
    broker.create_topic("clicks", partitions=partitions)
    conf = {"bootstrap.servers": broker.bootstrap_servers, "log_level": 0}
    producer = confluent_kafka.Producer({**conf, "linger.ms": 50})
    for offset in range(records):
        moment = b"1" if offset < expired else b"9" * 15
        for number in range(partitions):
            producer.produce("clicks", bytes(200), partition=number, headers=[("hw.expires", moment)])
        if not offset % 1_000:
            producer.flush(30)
    assert producer.flush(30) == 0
    producer.close()
    return conf


SECTION: Final = Section(
    "retention",
    retention_tables,
    (
        Anchor("time of a visit of a partition, ms", VISIT_MS, "ms", measured_visit_ms),
        Anchor(
            "records read and judged, a second of CPU",
            READ_RECORDS_PER_S,
            "records/s",
            measured_judged_per_s,
        ),
        Anchor("records behind a beginning that a pass is given", EXTRA_RECORDS, "records", measured_extra),
    ),
)
