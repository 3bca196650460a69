"""Keep the record with the highest version of each key, although an older version came last.

    python examples/compaction.py

Two services write the prices of the same products. One of them was disconnected for a while, and sends old
prices late. Kafka's own compaction would keep these; `headerware compact` does not.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import confluent_kafka
from rich.console import Console
from rich.table import Table

from headerware.kafka.reader import TopicReader
from headerware.ops.compaction import Compaction, CompactionResult, Rule
from headerware.testing import KafkaBroker

PRICES = [
    (b"bread", 1, b"2.10"),
    (b"milk", 1, b"0.99"),
    (b"bread", 3, b"2.30"),
    (b"cheese", 1, b"7.00"),
    (b"milk", 2, b"1.05"),
    (b"cheese", 2, None),  # no longer sold
    # These records come from the other service when it is connected again.
    (b"bread", 2, b"2.20"),
    (b"milk", 1, None),
    (b"cheese", 1, b"6.50"),
    (b"eggs", None, b"3.00"),
]


def produce(servers: str, topic: str) -> None:
    """Send records as the services do."""
    producer = confluent_kafka.Producer({"bootstrap.servers": servers})
    for key, version, value in PRICES:
        headers: list[tuple[str, str | bytes | None]] = []
        if version is not None:
            headers = [("version", str(version))]
        producer.produce(topic, value, key, headers=headers)
    producer.flush()
    producer.close()


def read(servers: str, topic: str) -> list[tuple[str, str, str]]:
    """Return key, version and value of all records."""
    found = []
    # A broker writes the marker of a commit shortly after its answer; no transaction is aborted here.
    conf = {"bootstrap.servers": servers, "isolation.level": "read_uncommitted"}
    with TopicReader(conf, topic, group_id="example") as reader:
        reader.start()
        for batch in reader.to_end():
            for message in batch:
                version = dict(message.headers() or []).get("version")
                parts = (message.key(), version, message.value())
                found.append(tuple("-" if part is None else bytes(part).decode() for part in parts))
    return found  # type: ignore[return-value]  # three parts each


def show(console: Console, title: str, records: list[tuple[str, str, str]]) -> None:
    """Print a topic as a table."""
    table = Table("key", "version", "value", title=title)
    for record in records:
        table.add_row(*record)
    console.print(table)


def compact(servers: str, store: Path, *, execute: bool) -> CompactionResult:
    """Compact the topic, or only return the planned counts."""
    conf = {"bootstrap.servers": servers}
    rule = Rule(header="version")
    with Compaction(conf, "prices", "latest-prices", rule, side_topic="odd-prices", store=str(store)) as work:
        return work.execute() if execute else work.preview()


def main() -> None:
    """Compact a topic, and show it before and after."""
    console = Console(highlight=False)
    with tempfile.TemporaryDirectory() as folder, KafkaBroker() as broker:
        servers = broker.bootstrap_servers
        for topic, policy in (("prices", "delete"), ("latest-prices", "compact"), ("odd-prices", "delete")):
            broker.create_topic(topic, config={"cleanup.policy": policy})
        produce(servers, "prices")
        show(console, "before", read(servers, "prices"))
        planned = compact(servers, Path(folder) / "store", execute=False)
        console.print(
            f"would write {planned.written}, leave out {planned.lost}, unresolved {planned.unresolved}"
        )
        compact(servers, Path(folder) / "store", execute=True)
        after = read(servers, "latest-prices")
        show(console, "after: latest-prices", after)
        show(console, "side topic: odd-prices", read(servers, "odd-prices"))
        again = compact(servers, Path(folder) / "store", execute=True)
        console.print(f"a second run reads {again.records} records")
    if after != [("bread", "3", "2.30"), ("milk", "2", "1.05"), ("cheese", "2", "-")]:
        sys.exit("another record was kept than the one with the highest version")


if __name__ == "__main__":
    main()
