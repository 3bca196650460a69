"""Send values of three sizes through one chain: in one record, in slices, and to a store with a claim.

    python examples/claim_check.py
    python examples/claim_check.py --bootstrap-servers localhost:9092 --folder /mnt/claims

The store is a folder; docs/claim-check.md says how to use a bucket instead. Without servers this starts an
embedded cluster.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
import uuid
from pathlib import Path

import click
import confluent_kafka
from rich.console import Console

from headerware import Chain, ClaimError, Consumer, Producer, Record
from headerware.core.order import sizes
from headerware.interceptors import ClaimCheck, Slice
from headerware.object_store import FolderObjects
from headerware.ops.claims import find_orphans
from headerware.testing import EmbeddedCluster

DEADLINE_S = 30.0
VALUES = {"receipt": os.urandom(2_000), "scan": os.urandom(100_000), "film": os.urandom(3_000_000)}


def read(consumer: confluent_kafka.Consumer, topic: str, count: int) -> list[confluent_kafka.Message]:
    """Return the first messages of a topic."""
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    found: list[confluent_kafka.Message] = []
    deadline = time.monotonic() + DEADLINE_S
    while len(found) < count and time.monotonic() < deadline:
        found += [message for message in consumer.consume(count, 0.5) if message.error() is None]
    return found


def refused(consumer: Consumer, topic: str) -> str:
    """Return the reason for which a consumer refuses a record."""
    try:
        read(consumer, topic, len(VALUES))
    except ClaimError as error:
        return error.message
    raise click.ClickException("a changed object was accepted")


@click.command()
@click.option("--bootstrap-servers", "servers", help="The cluster; an embedded one if this is left out.")
@click.option("--folder", type=click.Path(file_okay=False, exists=True), help="The store; else a new folder.")
def main(servers: str | None, folder: str | None) -> None:
    """Show how each value is sent, the records that a plain client sees, and a refused record."""
    console = Console(highlight=False)
    topic = f"documents-{uuid.uuid4().hex[:8]}"
    with contextlib.ExitStack() as stack:
        if servers is None:
            servers = stack.enter_context(EmbeddedCluster(topics={topic: 1})).bootstrap_servers
        if folder is None:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
        archive = FolderObjects(path=folder)
        chain = Chain([ClaimCheck(stores={"archive": archive}, min_bytes=1_000_000), Slice(max_bytes=50_000)])
        for name, above, up_to in sizes(tuple(chain)):
            console.print(f"{name} carries values above {above:,} and up to {up_to:,} bytes")

        conf = {"bootstrap.servers": servers}
        with Producer(conf, chain=chain) as producer:
            for key, value in VALUES.items():
                producer.produce(topic, value, key, partition=0)

        group = {**conf, "group.id": uuid.uuid4().hex, "auto.offset.reset": "earliest"}
        with contextlib.closing(confluent_kafka.Consumer(group)) as plain:
            *_, last = read(plain, topic, 5)
        (stored,) = [path for path in Path(folder, topic).iterdir() if path.is_file()]
        console.print(f"a plain client reads of the film: {(last.value() or b'').decode().strip()}")
        console.print(f"the store has {stored.stat().st_size:,} bytes in {topic}/{stored.name}")

        with contextlib.closing(Consumer(group, chain=chain)) as consumer:
            for message in read(consumer, topic, len(VALUES)):
                key = (message.key() or b"").decode()
                same = message.value() == VALUES[key]
                size = len(message.value() or b"")
                console.print(f"a client with the chain reads {key}: {size:,} bytes, {same and 'as sent'}")

        with chain.open() as session:  # a value that is stored, and a record that is never sent
            session.send([Record(topic, VALUES["film"])])
        report = find_orphans(conf, [topic], chain, before_ms=int(time.time() * 1000) + 1_000)
        console.print(
            f"of {report.objects} objects {report.claimed} is claimed, {len(report.orphans)} is not"
        )

        stored.chmod(0o600)
        stored.write_bytes(bytes(len(VALUES["film"])))
        with contextlib.closing(Consumer(group, chain=chain)) as consumer:
            console.print(f"somebody changes the object: {refused(consumer, topic)}")


if __name__ == "__main__":
    main()
