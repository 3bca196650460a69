"""Erase a person: each has a key of their own, and without it their records can never be read again.

    python examples/erase_a_person.py
    python examples/erase_a_person.py --bootstrap-servers localhost:9092

docs/guides/erase-a-person.md does the same with a configuration and the command line.
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
from rich.console import Console

from headerware import Chain, Consumer, InterceptorError, Producer
from headerware.cli import main as headerware
from headerware.interceptors import Encrypt
from headerware.keyring import with_new_key
from headerware.keyring.services import FileKeys
from headerware.keyring.subjects import SubjectTopic
from headerware.keyring.writing import edit_keyring
from headerware.testing import EmbeddedCluster

CONFIG = """
[[interceptors]]
type = "encrypt"
key_service = {{ type = "file", keyring = "keys.json" }}
key_id = "customers"
key_of = "header:customer"
subject_keys = {{ type = "topic", topic = "{keys_topic}" }}
"""


def chain(folder: Path, keys_topic: str) -> Chain:
    """Return the chain of both sides."""
    return Chain(
        [
            Encrypt(
                key_service=FileKeys(keyring=str(folder / "keys.json")),
                key_id="customers",
                key_of="header:customer",
                subject_keys=SubjectTopic(topic=keys_topic, create=True),
            )
        ]
    )


def read(consumer: Any, topic: str, count: int) -> list[str]:
    """Return what can be read of some records: the value, or why there is none."""
    found: list[str] = []
    consumer.subscribe([topic])
    deadline = time.monotonic() + 60
    while len(found) < count and time.monotonic() < deadline:
        try:
            message = consumer.poll(1)
        except InterceptorError as error:
            found.append(type(error).__name__)
            continue
        if message is not None and message.error() is None:
            found.append(repr(message.value())[:24])
    consumer.close()
    return found


def erase(servers: str, folder: Path, keys_topic: str, customer: str) -> None:
    """Do what ``headerware keys erase`` does."""
    (folder / "chain.toml").write_text(CONFIG.format(keys_topic=keys_topic), encoding="utf-8")
    arguments = ["keys", "erase", str(folder / "chain.toml"), customer, "--yes", "-b", servers]
    headerware([*arguments, "--out", str(folder / "receipt.json")], standalone_mode=False)


def run(console: Console, servers: str, topic: str, keys_topic: str, folder: Path) -> bool:
    """Write for two people, erase one of them, and read again."""
    conf: dict[str, Any] = {"bootstrap.servers": servers, "auto.offset.reset": "earliest"}
    edit_keyring(folder / "keys.json", lambda keys: with_new_key(keys, "customers", "aes-256"), create=True)
    with Producer({"bootstrap.servers": servers}, chain=chain(folder, keys_topic)) as producer:
        for customer in ("ann", "bob"):
            producer.produce(topic, f"for {customer}", "k", headers={"customer": customer})
    before = read(Consumer({**conf, "group.id": "before"}, chain=chain(folder, keys_topic)), topic, 2)
    console.print(f"before: {before}")
    erase(servers, folder, keys_topic, "ann")
    after = read(Consumer({**conf, "group.id": "after"}, chain=chain(folder, keys_topic)), topic, 2)
    console.print(f"after:  {after}")
    wire = read(confluent_kafka.Consumer({**conf, "group.id": "plain"}), topic, 2)
    console.print(f"both records are still in the topic, as ciphertext: {len(wire)}")
    return (before, after) == (["b'for ann'", "b'for bob'"], ["ShreddedError", "b'for bob'"])


@contextlib.contextmanager
def cluster(servers: str | None, *topics: str) -> Iterator[str]:
    """Yield the brokers' addresses; an embedded cluster gets the topics with one partition each."""
    if servers is None:
        with EmbeddedCluster(topics=dict.fromkeys(topics, 1)) as embedded:
            yield embedded.bootstrap_servers
    else:
        yield servers


@click.command()
@click.option("--bootstrap-servers", help="Brokers to use; an embedded cluster by default.")
def main(bootstrap_servers: str | None) -> None:
    """Show how a person is erased."""
    logging.getLogger("headerware").setLevel(logging.ERROR)
    console = Console(highlight=False, soft_wrap=True)
    topic, keys_topic = f"orders-{time.time_ns()}", f"customer-keys-{time.time_ns()}"
    with tempfile.TemporaryDirectory() as folder, cluster(bootstrap_servers, topic, keys_topic) as servers:
        if not run(console, servers, topic, keys_topic, Path(folder)):
            raise SystemExit(1)


if __name__ == "__main__":
    main()
