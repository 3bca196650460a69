"""Admit records by certificates: a shop may write orders, a thief with the shop's certificate may not.

    python examples/admission.py
    python examples/admission.py --bootstrap-servers kafka-a:9092

Without an address it starts an embedded cluster. An offline issuer certifies the shop's signing key; the
reader's policy allows the topics in the issuer's certificates, and denies all other records.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from pathlib import Path

import click
import confluent_kafka

from headerware import AdmissionError, Chain, Consumer, Context, Headers, Producer, Record
from headerware.interceptors import Admission, Sign
from headerware.keyring import certify, encode_jwks, public_part, with_new_key
from headerware.keyring.keyring import Keyring
from headerware.keyring.writing import edit_keyring, write_public_keyring
from headerware.testing import EmbeddedCluster

POLICY = """
version = 1
audience = "example"

[[issuers]]
issuer = "security team"
jwks = "issuer.jwks.json"
algorithms = ["Ed25519"]

[[rules]]
effect = "allow"
subjects = ["shop"]
topics = ["orders*"]
"""


def make_keys(folder: Path) -> None:
    """Make keys as the security team, certify the shop's key, and write the files for readers."""

    def made(name: str, *use: str) -> Keyring:
        return edit_keyring(
            folder / f"{name}.json", lambda ring: with_new_key(ring, name, "ed25519", use=use), create=True
        )

    issuer, shop, thief = made("issuer", "certify"), made("shop", "sign"), made("thief", "sign")
    (folder / "shop.jwt").write_text(
        certify(
            issuer.keys[0],
            shop.keys[0],
            issuer="security team",
            subject="shop",
            audience=["example"],
            topics=["orders*"],
        )
    )
    (folder / "issuer.jwks.json").write_bytes(encode_jwks(issuer, use="certify"))
    public, _ = public_part(Keyring(keys=(*shop.keys, *thief.keys)))
    write_public_keyring(folder / "public.json", public)
    (folder / "policy.toml").write_text(POLICY)


def send(servers: str, topic: str, folder: Path, value: str) -> None:
    """Send a signed record with the certificate, as the shop."""
    chain = Chain(
        [
            Admission(certificate=str(folder / "shop.jwt")),
            Sign(keyring=str(folder / "shop.json"), key_id="shop"),
        ]
    )
    with Producer({"bootstrap.servers": servers}, chain=chain) as producer:
        producer.produce(topic, value, key="1", partition=0)
        producer.flush()


def steal(servers: str, topic: str, folder: Path, value: str) -> None:
    """Send a record with the shop's certificate as a thief, by hand, because a chain would refuse it."""
    step = Sign(keyring=str(folder / "thief.json"), key_id="thief").open(Context(side="producer"))
    stolen = Headers([("hw.admit", (folder / "shop.jwt").read_bytes())])
    record = step.on_send(Record(topic, value.encode(), b"1", stolen))
    with confluent_kafka.Producer({"bootstrap.servers": servers}) as producer:
        producer.produce(topic, record.value, record.key, 0, headers=list(record.headers))
        producer.flush()


def read(servers: str, topic: str, folder: Path, count: int) -> None:
    """Read the records, and print each admitted value and each reason of a refusal."""
    conf = {"bootstrap.servers": servers, "group.id": topic, "auto.offset.reset": "earliest"}
    admission = Admission(policy=str(folder / "policy.toml"))
    chain = Chain([admission, Sign(keyring=str(folder / "public.json"))])
    with contextlib.closing(Consumer(conf, chain=chain)) as consumer:
        consumer.subscribe([topic])
        deadline = time.monotonic() + 30
        while count and time.monotonic() < deadline:
            try:
                message = consumer.poll(1)
            except AdmissionError as error:
                click.echo(f"refused: {error.message}")
                count -= 1
                continue
            if message is not None and message.error() is None:
                click.echo(f"admitted: {(message.value() or b'').decode()}")
                count -= 1


@click.command()
@click.option("--bootstrap-servers", "servers", help="The cluster; an embedded one by default.")
@click.option("--topic", default="orders-example", show_default=True)
def main(servers: str | None, topic: str) -> None:
    """Send two records with one certificate, and read the admitted record."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        if servers is None:
            servers = stack.enter_context(EmbeddedCluster(topics={topic: 1})).bootstrap_servers
        make_keys(folder)
        send(servers, topic, folder, "an order of the shop")
        steal(servers, topic, folder, "an order of a thief, with the shop's certificate")
        read(servers, topic, folder, 2)


if __name__ == "__main__":
    main()
