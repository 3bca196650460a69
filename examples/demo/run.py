"""Run ``make demo``: two ordinary applications, with a chain that is not in their code.

Starts an embedded cluster (or takes ``--bootstrap-servers``, or starts Apache Kafka with ``--broker real``),
runs produce.py and consume.py as separate processes under the same chain.toml, and shows the records
on the wire, as a plain client reads them.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import show
import wire
from confluent_kafka import KafkaException
from data import TOPICS, large_file, records
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from headerware import HeaderwareError
from headerware.testing import EmbeddedCluster, KafkaBroker

HERE = Path(__file__).parent
CHAIN = HERE / "chain.toml"
CreateTopic = Callable[[str], object]


@click.command()
@click.option("--bootstrap-servers", help="Use this cluster instead of starting one.")
@click.option("--broker", type=click.Choice(["embedded", "real"]), default="embedded", show_default=True)
def main(bootstrap_servers: str | None, broker: str) -> None:
    """Run the demo."""
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 110)
    size = "largest" if broker == "real" else "small"
    try:
        with (
            _cluster(console, bootstrap_servers, broker) as (servers, create_topic),
            tempfile.TemporaryDirectory() as folder,
        ):
            _run(console, servers, create_topic, Path(folder), size)
    except (HeaderwareError, KafkaException, subprocess.CalledProcessError) as error:
        console.print(f"[red]the demo stopped:[/] {error}")
        sys.exit(1)


def _run(console: Console, servers: str, create_topic: CreateTopic, folder: Path, size: str) -> None:
    prefix = f"demo-{time.time_ns() // 10**9}-"
    keyring = folder / "keys.json"
    environment = {**os.environ, "HEADERWARE_CONFIG": str(CHAIN), "KEYRING": str(keyring)}
    show.configuration(console, CHAIN)
    generate = ["keys", "generate", "--keyring", str(keyring), "--id", "demo", "--algorithm", "hmac-sha256"]
    subprocess.run([sys.executable, "-m", "headerware", *generate], check=True, capture_output=True)

    show.step(console, 1, "An application produces", "produce.py: real records, and one large binary")
    topics = [prefix + topic for topic in TOPICS]
    for topic in topics:
        create_topic(topic)
    report = _produced(servers, prefix, size, {**environment, "SERVICE": "orders"})
    if report["failed"]:
        raise HeaderwareError(f"{len(report['failed'])} records failed, the first: {report['failed'][0]}")
    os.environ.update({"KEYRING": str(keyring), "SERVICE": "orders"})
    path = large_file(size)
    applications = [*records(), ("files", path.name, path.read_bytes())]
    seen = wire.read(servers, topics)
    show.sizes(console, wire.step_by_step(CHAIN, applications, prefix, wire.cluster_id(servers)), seen)

    show.step(
        console, 2, "Somebody alters a record on its way", "a plain client flips one bit of a stored value"
    )
    altered = wire.alter(servers, seen, prefix + "stocks")
    console.print(f"   {altered}")

    show.step(console, 3, "Another application consumes", "consume.py: the same chain, the other way")
    received = _consumed(console, servers, report["sent"] + 1, topics, {**environment, "SERVICE": "billing"})
    show.refused(console, [line["refused"] for line in received if "refused" in line])
    delivered = [line for line in received if "topic" in line]
    original = {hashlib.sha256(value).hexdigest() for _, _, value in applications}
    intact = sum(line["sha256"] in original for line in delivered)
    console.print(
        f"   {len(delivered):,} of {report['sent']:,} records delivered, "
        f"{intact:,} byte for byte as they were sent"
    )
    show.large_file(console, path, next(line for line in delivered if line["topic"] == prefix + "files"))

    show.step(console, 4, "One record's paper trail", "what hw.trail holds when billing has read it")
    show.trail(console, next(line for line in delivered if line["topic"] == prefix + "stocks"))
    if intact != report["sent"] or len(delivered) != report["sent"]:
        raise HeaderwareError("records came back other than they were sent")


def _produced(servers: str, prefix: str, size: str, environment: dict[str, str]) -> dict:
    command = [sys.executable, str(HERE / "produce.py"), servers, prefix, size]
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout)


def _consumed(
    console: Console, servers: str, expected: int, topics: list[str], environment: dict[str, str]
) -> list[dict]:
    command = [sys.executable, str(HERE / "consume.py"), servers, str(expected), *topics]
    columns = (TextColumn("   {task.description}"), BarColumn(), MofNCompleteColumn())
    received: list[dict] = []
    with (
        Progress(*columns, console=console, transient=True) as progress,
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as consumer,
    ):
        task = progress.add_task("records", total=expected)
        for line in consumer.stdout or ():
            received.append(json.loads(line))
            progress.advance(task)
    if consumer.returncode:
        raise subprocess.CalledProcessError(consumer.returncode, command)
    return received


@contextlib.contextmanager
def _cluster(console: Console, servers: str | None, broker: str) -> Iterator[tuple[str, CreateTopic]]:
    if servers:
        console.print(f"[dim]using the cluster at {servers}[/]")
        yield servers, functools.partial(wire.create_topic, servers)
    elif broker == "real":
        console.print("[dim]starting Apache Kafka (the first time it is fetched, which takes a minute)[/]")
        with KafkaBroker() as real:
            console.print(f"[dim]Apache Kafka runs at {real.bootstrap_servers}[/]")
            yield real.bootstrap_servers, real.create_topic
    else:
        with EmbeddedCluster() as cluster:
            console.print(f"[dim]an embedded cluster runs at {cluster.bootstrap_servers}[/]")
            yield cluster.bootstrap_servers, cluster.create_topic


if __name__ == "__main__":
    main()
