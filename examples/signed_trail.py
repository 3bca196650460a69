"""Prove who has handled a record: services sign their entries of the trail, and a liar is found out.

    python examples/signed_trail.py
    python examples/signed_trail.py --bootstrap-servers kafka-a:9092

Without an address it starts an embedded cluster. The shop sends an order, and the payment service sends it on
to the packing service. Mallory may write to the same topic, and has only a key of her own. She sends an order
with the trail of the paid one, and an order with an entry in the name of the payment service.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
import uuid
from functools import partial
from pathlib import Path

import click
import confluent_kafka
from rich.console import Console

from headerware import Chain, Consumer, Headers, Producer, Record, SignatureError
from headerware.cli.trail import trail_lines
from headerware.interceptors import Trail, prove_trail
from headerware.keyring import Keyring, public_part, with_new_key
from headerware.keyring.writing import edit_keyring, write_public_keyring
from headerware.testing import EmbeddedCluster


def make_keys(folder: Path) -> Keyring:
    """Make a keyring for each service, and one with all public halves, which is returned."""
    keys = []
    for service in ("shop", "payment", "mallory"):
        new_key = partial(with_new_key, key_id=service, algorithm="ed25519")
        keys += edit_keyring(folder / f"{service}.json", new_key, create=True).keys
    public, _ = public_part(Keyring(keys=tuple(keys)))
    write_public_keyring(folder / "public.json", public)
    return public


def writer(servers: str, folder: Path, service: str, *, key_id: str) -> Producer:
    """Return a producer that signs its entries of trails."""
    keyring = str(folder / f"{key_id}.json")
    trail = Trail(service=service, cluster="eu", signed=True, keyring=keyring, key_id=key_id)
    return Producer({"bootstrap.servers": servers}, chain=Chain([trail]))


def reader(servers: str, folder: Path, service: str, topic: str) -> Consumer:
    """Return a consumer that refuses records whose trail is not proven."""
    keyring = str(folder / "public.json")
    trail = Trail(service=service, cluster="eu", signed=True, keyring=keyring, require="enforce")
    conf = {"bootstrap.servers": servers, "group.id": f"{service}-{topic}", "auto.offset.reset": "earliest"}
    consumer = Consumer(conf, chain=Chain([trail]))
    consumer.subscribe([topic])
    return consumer


def pay(servers: str, folder: Path, orders: str, paid: str) -> None:
    """Read one order as the payment service, and send it on."""
    with (
        reader(servers, folder, "payment", orders) as consumer,
        writer(servers, folder, "payment", key_id="payment") as producer,
    ):
        for message in consumer.messages(30):
            producer.produce(paid, (message.value() or b"") + b", paid", partition=0)
            break


def lie(servers: str, folder: Path, paid: str) -> None:
    """Send an order with the trail of another order, and one in the name of another service."""
    plain = confluent_kafka.Consumer({"bootstrap.servers": servers, "group.id": f"mallory-{paid}"})
    plain.assign([confluent_kafka.TopicPartition(paid, 0, 0)])
    with contextlib.closing(plain), confluent_kafka.Producer({"bootstrap.servers": servers}) as producer:
        (message,) = plain.consume(1, 30)
        producer.produce(paid, b"order 2, paid", partition=0, headers=message.headers())
        producer.flush()
    with writer(servers, folder, "payment", key_id="mallory") as producer:
        producer.produce(paid, b"order 3, paid", partition=0)


def pack(servers: str, folder: Path, paid: str, public: Keyring, console: Console) -> None:
    """Read three records as the packing service, and print each with its trail, or why it was refused."""
    with contextlib.closing(reader(servers, folder, "packing", paid)) as consumer:
        left, deadline = 3, time.monotonic() + 30
        while left and time.monotonic() < deadline:
            try:
                message = consumer.poll(1)
            except SignatureError as error:
                console.print(f"refused: {error.message}")
                left -= 1
                continue
            if message is not None and message.error() is None:
                record = Record(paid, message.value(), message.key(), Headers(message.headers()))
                proof = prove_trail(record, public)
                console.print(f"accepted: {(message.value() or b'').decode()}")
                for line in trail_lines(proof.trail, hops=proof.hops, problem=proof.problem):
                    console.print(line)
                left -= 1


@click.command()
@click.option("--bootstrap-servers", "servers", help="The cluster; an embedded one by default.")
def main(servers: str | None) -> None:
    """Send an order through services, and lie about it."""
    run = uuid.uuid4().hex[:6]
    orders, paid = f"orders-{run}", f"paid-{run}"
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        if servers is None:
            cluster = stack.enter_context(EmbeddedCluster(topics={orders: 1, paid: 1}))
            servers = cluster.bootstrap_servers
        public = make_keys(folder)
        with writer(servers, folder, "shop", key_id="shop") as producer:
            producer.produce(orders, b"order 1")
        pay(servers, folder, orders, paid)
        lie(servers, folder, paid)
        pack(servers, folder, paid, public, Console(highlight=False, soft_wrap=True))


if __name__ == "__main__":
    main()
