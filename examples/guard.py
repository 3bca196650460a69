"""Guard a topic: forward the records that a policy admits, and store the others with the reason.

    python examples/guard.py
    python examples/guard.py --bootstrap-servers kafka-a:9092

Without an address it starts an embedded cluster. Producers write into ``ingress.orders-example``. Only the
guard writes into ``orders-example``, and consumers read only this topic.
"""

from __future__ import annotations

import contextlib
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import click
import confluent_kafka
from rich.console import Console
from rich.table import Table

from headerware import Chain, Producer
from headerware.core.dead_letter import read_reason
from headerware.interceptors import Admission, Sign, Slice
from headerware.keyring import certify, encode_jwks, public_part, with_new_key
from headerware.keyring.keyring import Keyring
from headerware.keyring.writing import edit_keyring, write_public_keyring
from headerware.ops.guard import Guard
from headerware.testing import EmbeddedCluster

WHO = ("shop", "bank", "intern")
POLICY = """
version = 1
audience = "example"

[[issuers]]
issuer = "security team"
jwks = "issuer.jwks.json"
algorithms = ["Ed25519"]

[[rules]]
effect = "allow"
subjects = ["shop", "bank"]

[[rules]]
effect = "deny"
headers = { class = "secret" }

[[quotas]]
subjects = ["bank"]
records_per_s = 2
over = "refuse"
"""


def make_keys(folder: Path) -> None:
    """Make keys as the security team, certify the producers' keys, and write a policy."""

    def made(name: str, *use: str) -> Keyring:
        return edit_keyring(
            folder / f"{name}.json", lambda ring: with_new_key(ring, name, "ed25519", use=use), create=True
        )

    issuer = made("issuer", "certify")
    keys = [made(name, "sign").keys[0] for name in WHO]
    for name, key in zip(WHO, keys, strict=True):
        certificate = certify(
            issuer.keys[0],
            key,
            issuer="security team",
            subject=name,
            audience=["example"],
            topics=["ingress.*"],
        )
        (folder / f"{name}.jwt").write_text(certificate)
    (folder / "issuer.jwks.json").write_bytes(encode_jwks(issuer, use="certify"))
    write_public_keyring(folder / "public.json", public_part(Keyring(keys=tuple(keys)))[0])
    (folder / "policy.toml").write_text(POLICY)


def read(servers: str, topic: str) -> list[confluent_kafka.Message]:
    """Return the current records of a topic."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": servers, "group.id": f"show-{topic}", "enable.partition.eof": True}
    )
    found = []
    with contextlib.closing(consumer):
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, confluent_kafka.OFFSET_BEGINNING)])
        while (message := consumer.poll(30)) is not None and message.error() is None:
            found.append(message)
    return found


def headers_of(message: confluent_kafka.Message) -> list[Any]:
    """Return a record's headers."""
    return list(message.headers() or ())


def row_of(message: confluent_kafka.Message) -> list[str]:
    """Return a record's key, value and names of headers."""
    names = ", ".join(name for name, _ in headers_of(message) if not name.startswith("headerware."))
    return [(message.key() or b"").decode(), (message.value() or b"").decode(), names]


def send(servers: str, topic: str, folder: Path) -> int:
    """Send records as the producers and as a thief with copies but no key; return their number."""
    orders = [("shop", "an order", []), ("intern", "a joke", []), ("shop", "a plan", [("class", b"secret")])]
    orders += [("bank", f"payment {number}", []) for number in range(1, 4)]
    for who, value, headers in orders:
        chain = Chain(
            [
                Admission(certificate=str(folder / f"{who}.jwt")),
                Sign(keyring=str(folder / f"{who}.json"), key_id=who),
            ]
        )
        with Producer({"bootstrap.servers": servers}, chain=chain) as producer:
            producer.produce(topic, value, key=who, partition=0, headers=headers)
    first = read(servers, topic)[0]
    with confluent_kafka.Producer({"bootstrap.servers": servers}) as producer:
        producer.produce(topic, b"an order that nobody signed", b"shop", 0)
        producer.produce(topic, b"another order", first.key(), 0, headers=first.headers())
        producer.produce(topic, first.value(), first.key(), 0, headers=first.headers())
    return len(orders) + 3


def guard(servers: str, topic: str, egress: str, folder: Path, count: int) -> None:
    """Run a guard until it has decided about ``count`` records."""
    chain = Chain(
        [
            Slice(),
            Admission(policy=str(folder / "policy.toml")),
            # The window against copies covers the largest permitted age of a record.
            Sign(keyring=str(folder / "public.json"), replay_window=100_000, max_age_ms=3_600_000),
        ]
    )
    worker = Guard({"bootstrap.servers": servers}, {topic: egress}, chain=chain, group_id=f"guard-{egress}")
    thread = threading.Thread(target=worker.run)
    thread.start()
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and thread.is_alive():
        status = worker.status()
        refused = sum(sum(reasons.values()) for reasons in status.refused.values())
        if sum(status.admitted.values()) + refused >= count:
            break
        time.sleep(0.1)
    worker.stop()
    thread.join()


def show(servers: str, ingress: str, egress: str, letters: str) -> None:
    """Show the ingress topic with the result for each record, and then the egress topic."""
    refused = [read_reason(headers_of(each)) for each in read(servers, letters)]
    reasons = {reason.offset: reason for reason in refused if reason is not None}
    table = Table("key", "value", "headers", "result", title=f"before: {ingress}")
    for message in read(servers, ingress):
        reason = reasons.get(message.offset())
        # The reason begins with the record's position, which the table does not need.
        why = "" if reason is None else (reason.reason or "").partition(": ")[2]
        table.add_row(*row_of(message), f"refused: {why}" if reason else "admitted")
    Console(width=130).print(table)
    table = Table("key", "value", "headers", title=f"after: {egress}")
    for message in read(servers, egress):
        table.add_row(*row_of(message))
    Console(width=130).print(table)


@click.command()
@click.option("--bootstrap-servers", "servers", help="The cluster; an embedded one by default.")
@click.option("--topic", default="orders-example", show_default=True, help="The topic that is guarded.")
def main(servers: str | None, topic: str) -> None:
    """Send records of admitted and other writers, and show the guard's results."""
    ingress = f"ingress.{topic}"
    letters = f"{ingress}.dead-letter"
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        if servers is None:
            topics = dict.fromkeys((ingress, topic, letters), 1)
            servers = stack.enter_context(EmbeddedCluster(topics=topics)).bootstrap_servers
        make_keys(folder)
        count = send(servers, ingress, folder)
        guard(servers, ingress, topic, folder, count)
        show(servers, ingress, topic, letters)


if __name__ == "__main__":
    main()
