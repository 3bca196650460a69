"""Count traffic and costs by owner: usage as Parquet, and a bill as one HTML page.

    python examples/chargeback_report.py
    python examples/chargeback_report.py --bootstrap-servers localhost:9092 --prices prices.toml

Two services write the owner (hw.owner) and a trail into records. An old service does neither. A consumer
group reads some of the records. A Spark job counts both directions from headers, sizes and offsets.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import click
import confluent_kafka
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from demo.data import records
from demo.spark import start
from pyspark.sql import SparkSession
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from headerware import Chain, Producer
from headerware.interceptors import Trail
from headerware.ops.chargeback import Bill, Covered, charge, load_prices, record_bytes, write_report
from headerware.spark_bridge import KafkaAdmin
from headerware.spark_bridge.chargeback import snapshot, stored_offsets, usage, usage_rows
from headerware.testing import KafkaBroker

PRICES = Path(__file__).with_name("chargeback_prices.toml")
PARTITIONS = 2
READ = 1_500
SERVICES = {  # by topic: the service, and the owner that it writes into records
    "airports": ("catalogue", b"geography"),
    "stocks": ("exchange", b"markets"),
    "seattle-weather": ("exchange", None),  # the owner is in the table of owners
    "us-employment": (None, None),  # the owner is unknown
}


class Moved(NamedTuple):
    """The number and the size of records that a client read or wrote."""

    records: int
    size: int


@contextlib.contextmanager
def cluster(servers: str | None) -> Iterator[str]:
    """Yield the brokers' addresses."""
    if servers is not None:
        yield servers
    else:
        with KafkaBroker() as broker:
            yield broker.bootstrap_servers


def create(servers: str, topics: Sequence[str], group: str) -> None:
    """Create the topics, and a consumer group that has read nothing yet."""
    admin = AdminClient({"bootstrap.servers": servers})
    for future in admin.create_topics([NewTopic(topic, PARTITIONS) for topic in topics]).values():
        future.result(30)
    places = [TopicPartition(topic, number, 0) for topic in topics for number in range(PARTITIONS)]
    asked = [ConsumerGroupTopicPartitions(group, places)]
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:  # brokers hear of new topics and groups a moment later
        (future,) = admin.alter_consumer_group_offsets(asked, request_timeout=5).values()
        with contextlib.suppress(KafkaException):
            if all(place.error is None for place in future.result().topic_partitions):
                return
        time.sleep(0.1)
    sys.exit("the brokers do not know the new topics and the group after 60 s")


def produce(servers: str, run: str) -> int:
    """Send records as the services do, and return their number."""
    count = 0
    with contextlib.ExitStack() as stack:
        producers = {
            service: stack.enter_context(
                Producer(
                    {"bootstrap.servers": servers},
                    chain=Chain([Trail(service=service, cluster="demo")] if service else []),
                )
            )
            for service, _ in SERVICES.values()
        }
        for topic, key, value in records():
            service, owner = SERVICES[topic]
            headers = [] if owner is None else [("hw.owner", owner)]
            producers[service].produce(f"{topic}-{run}", value, key, headers=headers)
            count += 1
    return count


def consume(servers: str, group: str, topics: Sequence[str], count: int, *, commit: bool) -> Moved:
    """Read ``count`` records, and return their number and size on the wire."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(list(topics))
    found, size, deadline = 0, 0, time.monotonic() + 60
    while found < count and time.monotonic() < deadline:
        for message in consumer.consume(count - found, 1):
            if message.error() is None:
                found += 1
                size += record_bytes(message.key(), message.value(), message.headers() or [])
    if commit:
        consumer.commit(asynchronous=False)
    consumer.close()
    return Moved(found, size)


def committed(admin: KafkaAdmin, group: str) -> list[tuple[str, str, int, int]]:
    """Return a group's committed offsets; a nightly job would do so for all ``admin.groups()``."""
    return [(group, *place, offset) for place, offset in admin.group_offsets(group).items()]


def bill(
    spark: SparkSession, servers: str, run: str, prices: Path, folder: Path
) -> tuple[Bill, Moved, Moved]:
    """Run the services and a reader between two moments, count their traffic, and return all three counts."""
    topics, group = [f"{topic}-{run}" for topic in SERVICES], f"billing-{run}"
    create(servers, topics, group)
    options = {"kafka.bootstrap.servers": servers, "subscribe": ",".join(topics), "includeHeaders": "true"}
    with KafkaAdmin(spark, options) as admin:
        first = snapshot(spark, str(folder / "offsets"), committed(admin, group))
        count = produce(servers, run)
        read = consume(servers, group, topics, READ, commit=True)
        snapshot(spark, str(folder / "offsets"), committed(admin, group))
        begin, end = admin.begin_offsets(topics), admin.end_offsets(topics)
    frame = usage(
        spark.read.format("kafka").options(**options).load(),
        offsets=stored_offsets(spark, str(folder / "offsets"), since=first[0].at),
        covered=[Covered(*place, offset, end[place]) for place, offset in begin.items()],
    )
    frame.coalesce(1).write.mode("overwrite").parquet(str(folder / "usage"))
    found = charge(usage_rows(spark.read.parquet(str(folder / "usage"))), load_prices(prices))
    write_report(folder / "report.html", found, title="Chargeback of the demo")
    return found, consume(servers, f"check-{run}", topics, count, commit=False), read


def show(console: Console, found: Bill) -> None:
    """Print the costs by owner."""
    table = Table("owner", "bytes in", "bytes out", found.prices.currency)
    for owner, traffic in sorted(found.by_owner.items(), key=lambda item: -item[1].cost):
        cost = f"{traffic.cost:.6f}"
        name = "(unattributed)" if owner is None else escape(owner)
        table.add_row(name, f"{traffic.bytes_in:,}", f"{traffic.bytes_out:,}", cost)
    console.print(table)


@click.command()
@click.option("--bootstrap-servers", help="Use this cluster instead of starting a broker.")
@click.option("--prices", type=click.Path(dir_okay=False, path_type=Path), default=PRICES)
@click.option("--folder", type=click.Path(file_okay=False, path_type=Path), default=Path("chargeback-report"))
def main(bootstrap_servers: str | None, prices: Path, folder: Path) -> None:
    """Write a bill for the traffic through Kafka."""
    console, folder = Console(highlight=False, soft_wrap=True), folder.resolve()
    spark = start(SparkSession.builder.master("local[2]").appName("chargeback"))
    with cluster(bootstrap_servers) as servers:
        found, came, went = bill(spark, servers, str(time.time_ns()), prices, folder)
    spark.stop()
    show(console, found)
    console.print(f"the report: {folder / 'report.html'}, the usage: {folder / 'usage'}")
    total = found.total
    if (total.records_in, total.bytes_in) != came or (total.records_out, total.bytes_out) != went:
        sys.exit("the bill is not for what was produced and read")


if __name__ == "__main__":
    main()
