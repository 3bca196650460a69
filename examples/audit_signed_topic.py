"""Audit a signed topic: report signers, records that do not verify with the reasons, and missing records.

    python examples/audit_signed_topic.py
    python examples/audit_signed_topic.py --bootstrap-servers localhost:9092

Two services sign their records, one signature for a batch. Then an attacker with write access, but without
a key, sends records again: changed, stripped and copied. `headerware verify` shows the same in a terminal.
"""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import click
import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console

from headerware import Chain, Producer
from headerware.interceptors import Sign
from headerware.keyring import Keyring, encode_keyring, public_part, with_new_key
from headerware.ops.verify import Report, verify_topic
from headerware.testing import EmbeddedCluster

SERVICES = ("orders", "billing")
console = Console(highlight=False, soft_wrap=True)


def make_keyrings(folder: Path) -> tuple[Path, Path]:
    """Make a keyring for the services, and a keyring of the public halves for the auditor."""
    keyring = Keyring()
    for service in SERVICES:
        keyring = with_new_key(keyring, service, "ecdsa-p256")
    secret, public = folder / "keys.json", folder / "public.json"
    secret.touch(mode=0o600)
    secret.write_bytes(encode_keyring(keyring))
    public.write_bytes(encode_keyring(public_part(keyring)[0]))
    public.chmod(0o644)
    return secret, public


def send_signed(servers: str, topic: str, keyring: Path) -> None:
    """Send 200 records of each service; each batch of 64 has one signature."""
    for service in SERVICES:
        chain = Chain([Sign(keyring=str(keyring), key_id=service, batch_records=64)])
        with Producer({"bootstrap.servers": servers}, chain=chain) as producer:
            records = [{"key": service, "value": json.dumps({"id": number})} for number in range(200)]
            for error in filter(None, producer.produce_many(topic, records)):
                raise error


def attack(servers: str, topic: str) -> None:
    """Read the topic as every reader can, and write records again: changed, stripped, and unchanged."""
    reader = confluent_kafka.Consumer(
        {"bootstrap.servers": servers, "group.id": "mallory", "auto.offset.reset": "earliest"}
    )
    reader.subscribe([topic])
    found, deadline = [], time.monotonic() + 30
    while len(found) < 3 and time.monotonic() < deadline:
        message = reader.poll(1)
        if message is not None and message.error() is None:
            found.append(message)
    reader.close()
    writer = confluent_kafka.Producer({"bootstrap.servers": servers})
    changed, stripped, copied = found
    writer.produce(topic, b'{"id": 0, "price": 1}', changed.key(), headers=changed.headers())
    writer.produce(topic, stripped.value(), stripped.key())
    writer.produce(topic, copied.value(), copied.key(), headers=copied.headers())
    writer.flush(30)


def audit(servers: str, topic: str, keyring: Path) -> Report:
    """Verify the topic with public keys only; a repeated sequence is refused, too."""
    chain = Chain([Sign(keyring=str(keyring), replay_window=1_000)])
    return verify_topic({"bootstrap.servers": servers}, topic, chain)


def show(report: Report) -> None:
    """Print the report."""
    console.print(
        f"{report.records} records: {report.verified} verified, {report.refused} refused, "
        f"{report.unsigned} unsigned"
    )
    for signer in report.signers:
        console.print(
            f"  {signer.key_id} version {signer.key_version}: {signer.records} records, sequences "
            f"{signer.first_sequence} to {signer.last_sequence}, {signer.missing} missing"
        )
    for refusal in report.refusals:
        places = [f"partition {at}, offset {found.first}" for at, found in refusal.partitions.items()]
        console.print(f"  refused, {'; '.join(places)}: {refusal.reason}")
    for partition, found in report.unsigned_partitions.items():
        console.print(f"  unsigned: partition {partition}, offset {found.first}")


@contextlib.contextmanager
def cluster(servers: str | None, topic: str) -> Iterator[str]:
    """Create the topic with one partition, and yield the brokers' addresses."""
    if servers is None:
        with EmbeddedCluster(topics={topic: 1}) as embedded:
            yield embedded.bootstrap_servers
    else:
        admin = AdminClient({"bootstrap.servers": servers})
        admin.create_topics([NewTopic(topic, 1)])[topic].result()
        yield servers


@click.command()
@click.option("--bootstrap-servers", help="Use this cluster instead of starting an embedded one.")
def main(bootstrap_servers: str | None) -> None:
    """Audit a signed topic."""
    topic = f"audited-orders-{time.time_ns()}"
    with cluster(bootstrap_servers, topic) as servers, tempfile.TemporaryDirectory() as folder:
        secret, public = make_keyrings(Path(folder))
        send_signed(servers, topic, secret)
        console.print("before the attack:", end=" ")
        show(audit(servers, topic, public))
        attack(servers, topic)
        console.print("after it:", end=" ")
        report = audit(servers, topic, public)
        show(report)
    if (report.verified, report.refused, report.unsigned) != (400, 2, 1):
        sys.exit("the audit did not find what was done to the topic")


if __name__ == "__main__":
    main()
