"""Distribute keys by an untrusted way: snapshots of a keyring, signed by an offline root.

    python examples/keyring_snapshots.py
    python examples/keyring_snapshots.py --bootstrap-servers localhost:9092

A security team publishes valid keys in a topic. A service follows the topic, and verifies orders. The team
revokes a key; then an attacker who can write to the topic puts the older keyring back.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import click
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from rich.markup import escape

from headerware import Chain, Consumer, InterceptorError, KeyringError, Producer
from headerware.interceptors import Sign
from headerware.keyring import (
    Keyring,
    encode_keyring,
    encode_snapshot,
    public_part,
    sign_snapshot,
    with_new_key,
    with_revocation,
)
from headerware.keyring.snapshot_topic import SnapshotFollower, publish_snapshot
from headerware.testing import EmbeddedCluster
from headerware.topic_table import Rows, TopicTable

NAME = "orders"


def write(path: Path, keyring: Keyring) -> Path:
    path.write_bytes(encode_keyring(keyring))
    path.chmod(0o600 if keyring.is_secret else 0o644)
    return path


def publish(table: TopicTable[Rows], keyring: Keyring, root: Keyring, counter: int) -> bytes:
    """Sign a snapshot of the keyring's public halves with the root, and publish it."""
    now = datetime.now(UTC)
    public, _ = public_part(keyring)
    made = sign_snapshot(public, root.keys[0], counter=counter, created=now, expires=now + timedelta(days=30))
    publish_snapshot(table, NAME, encode_snapshot(made), public_part(root)[0], timeout_s=10)
    return encode_snapshot(made)


def produce(servers: str, topic: str, keyring: Path) -> None:
    chain = Chain([Sign(keyring=str(keyring), key_id="shop")])
    with Producer({"bootstrap.servers": servers}, chain=chain) as producer:
        producer.produce(topic, b"an order")


def read_one(consumer: Consumer) -> str:
    """Return the next order as a service sees it."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            message = consumer.poll(0.2)
        except InterceptorError as refused:
            return f"refused: {refused.message}"
        if message is not None and message.error() is None:
            return f"{message.value().decode()}, verified"
    return "nothing"


def look(follower: SnapshotFollower) -> str:
    try:
        found = follower.look(time.time_ns() // 1_000_000)
    except KeyringError as error:
        return f"refused: {error}"
    return "nothing new" if found is None else f"snapshot {found.counter} is here"


def run(console: Console, servers: str, topic: str, folder: Path) -> bool:
    """Publish a snapshot, verify an order, revoke the key, and replay the old snapshot."""
    root = with_new_key(Keyring(), "root", "ed25519", use=("snapshots",))
    keys = with_new_key(Keyring(), "shop", "ed25519")
    private = write(folder / "shop.json", keys)
    trusted = write(folder / "root.pub", public_part(root)[0])
    seen: list[str] = []

    def show(who: str, what: str) -> None:
        seen.append(what)
        console.print(f"[bold]{who:12}[/] {escape(what)}")

    with TopicTable({"bootstrap.servers": servers}, f"keyrings-{topic}", rows=Rows) as table:
        follower = SnapshotFollower(table, NAME, public_part(root)[0], folder / "keys.json")
        first = publish(table, keys, root, 1)
        show("distribution", look(follower))
        options = Sign(
            keyring=str(folder / "keys.json"),
            keyring_root=str(trusted),
            keyring_counter=str(folder / "counter"),
        )
        consumer = Consumer(
            {"bootstrap.servers": servers, "group.id": topic, "auto.offset.reset": "earliest"},
            chain=Chain([options]),
        )
        consumer.subscribe([topic])
        produce(servers, topic, private)
        show("service", read_one(consumer))

        publish(table, with_revocation(keys, "shop", reason="laptop lost"), root, 2)
        show("distribution", look(follower))
        time.sleep(1.1)  # services check their file once a second
        produce(servers, topic, private)
        show("service", read_one(consumer))

        table.put(NAME.encode(), first)  # an attacker tries to make the revoked key valid again
        show("distribution", look(follower))
        produce(servers, topic, private)
        show("service", read_one(consumer))
        consumer.close()
    starts = ["snapshot 1", "an order", "snapshot 2", "refused", "refused", "refused"]
    return all(what.startswith(start) for what, start in zip(seen, starts, strict=True))


@contextlib.contextmanager
def cluster(servers: str | None, topic: str) -> Iterator[str]:
    """Create the topics with one partition each, and yield the brokers' addresses."""
    topics = {topic: 1, f"keyrings-{topic}": 1}
    if servers is None:
        with EmbeddedCluster(topics=topics) as embedded:
            yield embedded.bootstrap_servers
    else:
        admin = AdminClient({"bootstrap.servers": servers})
        wanted = [
            NewTopic(topic, 1),
            NewTopic(f"keyrings-{topic}", 1, config={"cleanup.policy": "compact"}),
        ]
        for created in admin.create_topics(wanted).values():
            created.result()
        yield servers


@click.command()
@click.option("--bootstrap-servers", help="Use this cluster instead of starting an embedded one.")
def main(bootstrap_servers: str | None) -> None:
    """Distribute keys by an untrusted topic."""
    topic = f"orders-{time.time_ns()}"
    with cluster(bootstrap_servers, topic) as servers, tempfile.TemporaryDirectory() as folder:
        if not run(Console(highlight=False, soft_wrap=True), servers, topic, Path(folder)):
            sys.exit("the keys did not count as they should")


if __name__ == "__main__":
    main()
