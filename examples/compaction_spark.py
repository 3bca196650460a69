"""Compact a topic by a Spark job, and let the worker go on after the job.

    python examples/compaction_spark.py

The topic is the one of `compaction.py`. A topic of this size needs no Spark; Spark is for very large topics.
"""

from __future__ import annotations

import sys

import confluent_kafka
from compaction import produce, read, show
from demo.spark import start
from pyspark.sql import SparkSession
from rich.console import Console

from headerware.ops.compaction import Compaction, Rule
from headerware.spark_bridge import copy_topic
from headerware.testing import KafkaBroker

SOURCE, TARGET, SIDE_TOPIC = "prices", "latest-prices", "odd-prices"
RULE = Rule(header="version")


def produce_later(servers: str) -> None:
    """Send later records as a service does: a new price, and an outdated price."""
    producer = confluent_kafka.Producer({"bootstrap.servers": servers})
    for key, version, value in ((b"bread", b"4", b"2.40"), (b"milk", b"1", b"0.95")):
        producer.produce(SOURCE, value, key, headers=[("version", version)])
    producer.flush()
    producer.close()


def compact(spark: SparkSession, broker: KafkaBroker) -> None:
    """Compact a topic by a job, and then by the worker."""
    console, servers = Console(highlight=False), broker.bootstrap_servers
    for topic, policy in ((SOURCE, "delete"), (TARGET, "compact"), (SIDE_TOPIC, "delete")):
        broker.create_topic(topic, config={"cleanup.policy": policy})
    produce(servers, SOURCE)
    show(console, "before", read(servers, SOURCE))
    options = {"kafka.bootstrap.servers": servers}
    done = copy_topic(spark, options, SOURCE, TARGET, RULE, side_topic=SIDE_TOPIC, execute=True)
    console.print(f"the job read {done.records} records, and wrote {done.written}")
    show(console, f"after the job: {TARGET}", read(servers, TARGET))
    show(console, f"side topic: {SIDE_TOPIC}", read(servers, SIDE_TOPIC))
    produce_later(servers)
    with Compaction({"bootstrap.servers": servers}, SOURCE, TARGET, RULE, side_topic=SIDE_TOPIC) as worker:
        result = worker.execute()
    console.print(f"the worker read {result.records} more, and wrote {result.written}")
    after = read(servers, TARGET)
    show(console, f"after the worker: {TARGET}", after)
    if after != [
        ("bread", "3", "2.30"),
        ("milk", "2", "1.05"),
        ("cheese", "2", "-"),
        ("bread", "4", "2.40"),
    ]:
        sys.exit("another record was kept than the one with the highest version")


def main() -> None:
    """Start Spark and a broker."""
    spark = start(SparkSession.builder.master("local[2]").appName("compaction"))
    with KafkaBroker() as broker:
        compact(spark, broker)


if __name__ == "__main__":
    main()
