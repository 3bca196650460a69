"""Use an encrypted topic: rotate its key, then delete the old key, which makes old records unreadable.

    python examples/encrypted_topic.py
    python examples/encrypted_topic.py --bootstrap-servers localhost:9092

The key-encryption key is in a keyring file here; docs/key-services.md describes AWS and Vault. Records are
signed, too: otherwise every reader with the key could write records that other readers accept.
"""

from __future__ import annotations

import contextlib
import logging
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console

from headerware import Chain, Consumer, Producer
from headerware.interceptors import Compress, Encrypt, Sign
from headerware.keyring import with_deletion, with_new_key, with_rotation
from headerware.keyring.services import FileKeys
from headerware.keyring.writing import edit_keyring
from headerware.testing import EmbeddedCluster


def chain(keyring: Path, **options: Any) -> Chain:
    """Return the chain of both sides; consumers send shredded records to a dead-letter topic."""
    keys = FileKeys(keyring=str(keyring))
    encrypt = Encrypt(key_service=keys, key_id="cards", headers=("customer",), **options)
    return Chain([Compress(), encrypt, Sign(keyring=str(keyring), key_id="shop")])


def make_keys(keyring: Path) -> None:
    """Make a key that wraps data keys and a signing key, as ``headerware keys generate`` does."""
    edit_keyring(keyring, lambda keys: with_new_key(keys, "cards", "aes-256"), create=True)
    edit_keyring(keyring, lambda keys: with_new_key(keys, "shop", "ed25519"))


def produce(servers: str, keyring: Path, topic: str, value: str) -> None:
    """Write one record; a running producer uses a rotated key within an hour."""
    with Producer({"bootstrap.servers": servers}, chain=chain(keyring)) as producer:
        producer.produce(topic, value, key="order-7", headers={"tenant": "blue", "customer": "A. Jones"})


def read(consumer: Any, topics: list[str], count: int) -> list[Any]:
    """Read ``count`` messages, or fewer if no more arrive."""
    found: list[Any] = []
    consumer.subscribe(topics)
    deadline = time.monotonic() + 30
    while len(found) < count and time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            found.append(message)
    consumer.close()
    return found


def run(console: Console, servers: str, topic: str, keyring: Path) -> bool:
    """Write under two versions of the key, read both, delete the first, and read again."""
    conf: dict[str, Any] = {"bootstrap.servers": servers, "auto.offset.reset": "earliest"}
    make_keys(keyring)
    produce(servers, keyring, topic, "card 4111 1111 1111 1111")
    edit_keyring(keyring, lambda keys: with_rotation(keys, "cards"))
    produce(servers, keyring, topic, "card 5500 0000 0000 0004")

    [wire, _] = read(confluent_kafka.Consumer({**conf, "group.id": "plain"}), [topic], 2)
    console.print(f"on the wire: {len(wire.value())} bytes of ciphertext, key {wire.key().decode()!r}")
    console.print(f"headers on the wire: {', '.join(name for name, _ in wire.headers())}")
    both = read(Consumer({**conf, "group.id": "before"}, chain=chain(keyring)), [topic], 2)
    console.print(f"headers for readers with the key: {', '.join(name for name, _ in both[0].headers())}")
    console.print(f"after the rotation, both are read: {[message.value().decode() for message in both]}")

    edit_keyring(keyring, lambda keys: with_deletion(keys, "cards", version=1, reason="end of retention"))
    consumer = Consumer({**conf, "group.id": "after"}, chain=chain(keyring, on_error="dead_letter"))
    left = read(consumer, [topic], 1)
    [letter] = read(confluent_kafka.Consumer({**conf, "group.id": "letters"}), [f"{topic}.dead-letter"], 1)
    reason = dict(letter.headers())["__connect.errors.exception.message"].decode()
    console.print(f"after the deletion: {[message.value().decode() for message in left]}")
    console.print(f"the other one is a dead letter, still encrypted: {reason}")
    return (
        [message.value() for message in both] == [b"card 4111 1111 1111 1111", b"card 5500 0000 0000 0004"]
        and [message.value() for message in left] == [b"card 5500 0000 0000 0004"]
        and letter.value() == wire.value()
        and b"4111" not in wire.value()
        and "customer" not in dict(wire.headers())
        and dict(both[0].headers()) == {"tenant": b"blue", "customer": b"A. Jones"}
    )


@contextlib.contextmanager
def cluster(servers: str | None, *topics: str) -> Iterator[str]:
    """Create the topics with one partition each, and yield the brokers' addresses."""
    if servers is None:
        with EmbeddedCluster(topics=dict.fromkeys(topics, 1)) as embedded:
            yield embedded.bootstrap_servers
    else:
        admin = AdminClient({"bootstrap.servers": servers})
        for topic in topics:
            admin.create_topics([NewTopic(topic, 1)])[topic].result()
        yield servers


@click.command()
@click.option("--bootstrap-servers", help="Brokers to use; an embedded cluster by default.")
def main(bootstrap_servers: str | None) -> None:
    """Show an encrypted topic whose key is rotated and deleted."""
    logging.getLogger("headerware").setLevel(logging.ERROR)  # the dead letter is shown below
    console = Console(highlight=False, soft_wrap=True)
    topic = f"cards-{time.time_ns()}"
    with (
        tempfile.TemporaryDirectory() as folder,
        cluster(bootstrap_servers, topic, f"{topic}.dead-letter") as servers,
    ):
        if not run(console, servers, topic, Path(folder) / "keys.json"):
            raise SystemExit(1)


if __name__ == "__main__":
    main()
