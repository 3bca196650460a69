"""Count traffic and costs by owner in one process, without Spark: two runs, before and after.

    python examples/chargeback.py

Two services write the owner (hw.owner) and a trail into records; an old service does neither. A consumer
group reads some of the records between two runs of the count, which a timer would start once an hour.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import confluent_kafka
from rich.console import Console
from rich.table import Table

from headerware import Chain, Producer
from headerware.interceptors import Trail
from headerware.ops.chargeback import Bill, KeptUsage, charge, count_usage, load_prices, write_report
from headerware.testing import KafkaBroker

PRICES = Path(__file__).with_name("chargeback_prices.toml")
TOPICS = ["airports", "stocks"]
READ = 40


def produce(servers: str, count: int) -> None:
    """Send records as the services do."""
    for service, owner, topic in (
        ("catalogue", b"geography", "airports"),
        ("exchange", b"markets", "stocks"),
        (None, None, "stocks"),
    ):
        chain = Chain([Trail(service=service, cluster="demo")] if service else [])
        with Producer({"bootstrap.servers": servers}, chain=chain) as producer:
            for number in range(count):
                headers = [] if owner is None else [("hw.owner", owner)]
                producer.produce(topic, bytes(number), headers=headers)


def consume(servers: str, count: int) -> None:
    """Read ``count`` records as a consumer group, and commit."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "billing-nightly",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["stocks"])
    found = 0
    for _ in range(600):
        found += sum(message.error() is None for message in consumer.consume(count - found, 0.1))
        if found == count:
            break
    consumer.commit(asynchronous=False)
    consumer.close()


def run(servers: str, folder: Path) -> tuple[int, Bill]:
    """Count new records, and return their number and the bill of all records."""
    with KeptUsage(folder / "usage.db") as kept:
        counted = count_usage({"bootstrap.servers": servers}, TOPICS, kept)
        return counted.records, charge(kept.usage(), load_prices(PRICES))


def show(console: Console, title: str, bill: Bill) -> None:
    """Print the costs by owner."""
    table = Table("owner", "records in", "bytes in", "records out", bill.prices.currency, title=title)
    for owner, traffic in sorted(bill.by_owner.items(), key=str):
        cost = f"{traffic.cost:.{bill.prices.decimals}f}"
        counts = f"{traffic.records_in:,}", f"{traffic.bytes_in:,}", f"{traffic.records_out:,}"
        table.add_row(owner or "(unattributed)", *counts, cost)
    console.print(table)


def main() -> None:
    """Run twice, with traffic before and between."""
    console = Console(highlight=False)
    with tempfile.TemporaryDirectory() as folder, KafkaBroker() as broker:
        servers = broker.bootstrap_servers
        for topic in TOPICS:
            broker.create_topic(topic)
        produce(servers, 100)
        consume(servers, READ)  # before the first run: the time of these reads is unknown
        first, bill = run(servers, Path(folder))
        show(console, f"after the first run, which counted {first} records", bill)
        produce(servers, 50)
        consume(servers, READ)
        second, bill = run(servers, Path(folder))
        show(console, f"after the second run, which counted {second} records", bill)
        write_report(Path(folder) / "report.html", bill)
    if (first, second, bill.total.records_out) != (300, 150, READ):
        sys.exit("the bill is not for what was produced and read")


if __name__ == "__main__":
    main()
