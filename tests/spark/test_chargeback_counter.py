"""One process counts what the Spark job counts: the same rows, and the same page to the byte."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal

import confluent_kafka
import pytest

from headerware import Chain, Consumer, Producer, Record
from headerware.interceptors import Audit, HeaderIds, Slice, Trail
from headerware.ops.audit.accounts import Account, Done, Verdicts
from headerware.ops.chargeback import (
    Covered,
    GroupOffset,
    KeptUsage,
    Usage,
    charge,
    count_usage,
    load_prices,
    write_report,
)
from headerware.spark_bridge import KafkaAdmin
from headerware.spark_bridge.chargeback import audit_counts, usage, usage_rows

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.spark.conftest import Kafka

pytestmark = [pytest.mark.broker]

PRICES = """
decimals = 6
incoming = { per_gib = 90, per_million_records = 20.5 }
outgoing = { per_gib = 50.25 }
[owners]
"plain-*" = "nobody's friend"
[groups]
"billing-*" = "billing"
"""
MADE = datetime(2026, 2, 1, tzinfo=UTC)


def in_order(rows: Iterable[Usage]) -> list[Usage]:
    return sorted(rows, key=repr)


def read_some(kafka: Kafka, group: str, topics: list[str], count: int, chain: Chain) -> None:
    """Be a group that reads so many records and commits."""
    conf = {
        "bootstrap.servers": kafka.servers,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    consumer = Consumer(conf, chain=chain)
    try:
        consumer.subscribe(topics)
        found = 0
        for _ in range(600):
            found += sum(message.error() is None for message in consumer.consume(count - found, 0.2))
            if found >= count:
                break
        assert found >= count
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()


def write(kafka: Kafka, orders: str, plain: str, count: int) -> None:
    """Be services with ids in both forms, slices, broken trails, and a transaction that is aborted."""
    conf = {"bootstrap.servers": kafka.servers}
    forms: tuple[Literal["keys", "packed"], ...] = ("keys", "packed")
    for number, form in enumerate(forms):
        chain = Chain([Trail(service=f"checkout-{number}"), Slice(max_bytes=2_000), HeaderIds(form=form)])
        with Producer(conf, chain=chain) as producer:
            for n in range(count):
                value = bytes(5_000) if n % 7 == 0 else b"v" * n
                headers: list[tuple[str, str | bytes | None]] = [
                    ("hw.owner", b"shop-%d" % (n % 3)),
                    ("q", b"\x00"),
                ]
                producer.produce(orders, value, b"k%d" % n, headers=headers[n % 2 :])
    odd: list[list[tuple[str, Any]]] = [
        [],
        [("hw.trail", b"no trail")],
        [("hw.trail", b"1,at=5;by=mirror/job#3"), ("hw.owner", b"<b>\x1b\xff")],
        [("hw.trail", b"1,at=5;by=bestellungen-%C3%BC")],
        [("hw.ids", b"1~~")],
        [("hw.owner", b"old"), ("hw.owner", None)],
        [("hw.slice", b"no slice"), ("hw.owner", b"sliced")],
        [("~K", b"compact"), ("n\u00e4me", b"x")],
    ]
    raw = confluent_kafka.Producer({**conf, "transactional.id": f"{orders}-{count}"})
    raw.init_transactions(30)
    for settle in (raw.commit_transaction, raw.abort_transaction):
        raw.begin_transaction()
        for n, headers in enumerate(odd * 3):
            raw.produce(plain, None if n % 5 == 0 else b"v" * n, headers=headers, timestamp=_time_ms(n))
        settle(30)


def _time_ms(n: int) -> int:
    return int(datetime(2026, 1, 31, 9, tzinfo=UTC).timestamp() * 1000) + n * 400_000


class TestCountUsage:
    def test_comes_to_what_the_spark_job_comes_to(
        self, spark: SparkSession, kafka: Kafka, tmp_path: Path
    ) -> None:
        orders, plain = kafka.topic("orders", partitions=3), kafka.topic("plain", partitions=2)
        audited = kafka.topic("audit")
        topics = [orders, plain]
        groups = group, counting, late = [f"{name}-{orders}" for name in ("billing", "counting", "late")]
        (tmp_path / "prices.toml").write_text(PRICES)
        prices = load_prices(tmp_path / "prices.toml")
        counts = Chain([Audit(service="reader", audit_topic=audited), Slice(), HeaderIds()])
        conf = {"bootstrap.servers": kafka.servers}
        options = {"kafka.bootstrap.servers": kafka.servers, "includeHeaders": "true"}
        moments: list[GroupOffset] = []
        begun = datetime(2026, 1, 31, 23, 30, 1, 250, tzinfo=UTC)

        def run(number: int) -> None:
            """Count here, and note for Spark what groups had committed at that moment."""
            at = begun + timedelta(minutes=40 * number)
            with KafkaAdmin(spark, options) as admin:
                moments.extend(
                    GroupOffset(name, *place, offset, at)
                    for name in groups
                    for place, offset in admin.group_offsets(name).items()
                )
            with KeptUsage(tmp_path / "usage.db") as kept:
                count_usage(
                    conf,
                    [orders, f"{plain[:-1]}?"],
                    kept,
                    groups=groups,
                    audit_topics=[audited],
                    clock=lambda: at,
                )

        write(kafka, orders, plain, 30)
        read_some(kafka, group, topics, 20, Chain([]))
        run(0)
        read_some(kafka, group, topics, 25, Chain([]))
        read_some(kafka, counting, [orders], 20, counts)
        account = Account(
            group=f"guard-{orders}",
            instance="a",
            at_ms=int(begun.timestamp() * 1_000),
            records=(Verdicts(topic=orders, verdict="admitted", reason=None, count=7, bytes=770),),
            done=(Done(topic=orders, partition=0, offset=7),),
        )
        kafka.send(None, Record(audited, account.encode()))
        run(1)
        write(kafka, orders, plain, 40)
        read_some(kafka, group, topics, 60, Chain([]))
        read_some(kafka, late, [plain], 10, Chain([]))
        read_some(kafka, counting, [orders], 15, counts)
        run(2)
        run(3)

        with KafkaAdmin(spark, options) as admin:
            begin, end = admin.begin_offsets(topics), admin.end_offsets(topics)
        frame = spark.read.format("kafka").options(**options)
        rows = in_order(
            usage_rows(
                usage(
                    frame.option("subscribe", ",".join(topics)).load(),
                    audit=audit_counts(frame.option("subscribe", audited).load()),
                    offsets=moments,
                    covered=[Covered(*place, offset, end[place]) for place, offset in begin.items()],
                )
            )
        )
        with KeptUsage(tmp_path / "usage.db") as kept:
            found = in_order(kept.usage())
        assert found == rows
        told = [row for row in rows if row.group == account.group]
        assert [(row.topic, row.records, row.bytes, row.source) for row in told] == [
            (orders, 7, 770, "audit")
        ]
        assert {row.source for row in rows} == {"records", "offsets", "audit", "unknown"}
        assert {row.producer for row in rows} >= {
            "checkout-0",
            "checkout-1",
            "mirror",
            "bestellungen-\u00fc",
            None,
        }
        assert sum(row.malformed for row in rows) > 0
        for name, each in (("here", found), ("spark", rows)):
            write_report(tmp_path / f"{name}.html", charge(each, prices), at=MADE)
        assert (tmp_path / "here.html").read_bytes() == (tmp_path / "spark.html").read_bytes()
        assert len(kafka.wire(orders)) > 140, "some messages are slices"
