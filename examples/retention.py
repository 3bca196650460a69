"""Remove records that have expired by their headers, except records under a legal hold: before and after.

    python examples/retention.py

A topic of clicks is deleted from its beginning. In a compacted topic of customers keys get tombstones. A copy
leaves out the expired records after a click that is kept.
"""

from __future__ import annotations

import sys
import time

import confluent_kafka
from rich.console import Console
from rich.table import Table

from headerware.kafka.reader import TopicReader
from headerware.ops.compaction import Compaction
from headerware.ops.retention.rules import RetentionRule
from headerware.ops.retention.worker import Retention
from headerware.testing import KafkaBroker

DAY_MS = 86_400_000
RECORDS = [
    # key, value, days until it expires, legal hold
    (b"ann", b"1", -2, None),
    (b"bob", b"2", -1, None),
    (b"ann", b"3", -1, b"case 7"),
    (b"cleo", b"4", -1, None),
    (b"dan", b"5", 30, None),
    (b"bob", b"6", None, None),
    (b"eve", b"7", -1, None),
]
POLICIES = {"clicks": "delete", "customers": "compact"}


def produce(servers: str, topic: str) -> None:
    """Send records as the services do."""
    producer = confluent_kafka.Producer({"bootstrap.servers": servers})
    for key, value, days, hold in RECORDS:
        headers: list[tuple[str, str | bytes | None]] = []
        if days is not None:
            headers.append(("hw.expires", b"%d" % (time.time() * 1_000 + days * DAY_MS)))
        if hold is not None:
            headers.append(("legal-hold", hold))
        producer.produce(topic, value, key, headers=headers)
    producer.flush()
    producer.close()


def read(servers: str, topic: str) -> list[tuple[str, str, str, str]]:
    """Return key, value, days until expiry, and legal hold of each record."""
    found = []
    # A broker writes the marker of a commit shortly after its answer; no transaction is aborted here.
    conf = {"bootstrap.servers": servers, "isolation.level": "read_uncommitted"}
    with TopicReader(conf, topic, group_id="example") as reader:
        reader.start()
        for batch in reader.to_end():
            for message in batch:
                headers = dict(message.headers() or [])
                expires = headers.get("hw.expires")
                days = "-" if expires is None else f"{round(int(expires) / DAY_MS - time.time() / 86_400):+}"
                parts = (message.key(), message.value(), days.encode(), headers.get("legal-hold"))
                found.append(tuple("-" if part is None else bytes(part).decode() for part in parts))
    return found  # type: ignore[return-value]  # four parts each


def show(console: Console, title: str, records: list[tuple[str, str, str, str]]) -> None:
    """Print a topic as a table."""
    table = Table("key", "value", "expires in days", "legal hold", title=title)
    for record in records:
        table.add_row(*record)
    console.print(table)


def main() -> None:
    """Remove the expired records of both topics, and show the topics before and after."""
    console = Console(highlight=False)
    after = {}
    with KafkaBroker() as broker:
        servers = broker.bootstrap_servers
        for topic, policy in POLICIES.items():
            broker.create_topic(topic, config={"cleanup.policy": policy, "retention.ms": "-1"})
            produce(servers, topic)
            show(console, f"before: {topic} ({policy})", read(servers, topic))
            with Retention({"bootstrap.servers": servers}, topic, RetentionRule()) as work:
                planned = work.preview()
                console.print(
                    f"would delete {planned.deleted} records of the beginning and {planned.tombstones} keys; "
                    f"{planned.rest} that have expired would stay"
                )
                work.execute()
            after[topic] = [record[:2] for record in read(servers, topic)]
            show(console, f"after: {topic}", read(servers, topic))
        broker.create_topic("kept-clicks", config={"retention.ms": "-1"})
        with Compaction(
            {"bootstrap.servers": servers}, "clicks", "kept-clicks", RetentionRule()
        ) as work_on_copy:
            copied = work_on_copy.execute()
        console.print(f"copied {copied.written} of the clicks, left out {copied.lost}")
        copy = [record[:2] for record in read(servers, "kept-clicks")]
        show(console, "a copy: kept-clicks", read(servers, "kept-clicks"))
    before = [(key.decode(), value.decode()) for key, value, _, _ in RECORDS]
    if copy != [record for record in before if record[1] in {"3", "5", "6"}]:
        sys.exit("the copy does not have exactly the records that have not expired")
    if after["clicks"] != before[2:]:
        sys.exit("the deleted beginning is not the expired beginning")
    if after["customers"] != [*before, ("cleo", "-"), ("eve", "-")]:
        sys.exit("the deleted keys are not the expired keys")


if __name__ == "__main__":
    main()
