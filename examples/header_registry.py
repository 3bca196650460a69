"""Use a registry of header ids: a team's names become small numbers on the wire, and names again.

    python examples/header_registry.py
    python examples/header_registry.py --bootstrap-servers localhost:9092

The registry begins as a TOML file; then a second service follows it live on a Kafka topic.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
import time
from collections.abc import Iterator
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

import click
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from rich.markup import escape

from headerware import Chain, Consumer, Context, HeaderId, Headers, Producer, Record, RegistryError
from headerware import registry as ids
from headerware.interceptors import Compress, HeaderIds, Sign, Trail
from headerware.keyring import with_new_key
from headerware.keyring.writing import edit_keyring
from headerware.registry.stores import create_store
from headerware.registry.stores.topic import TopicStore
from headerware.testing import EmbeddedCluster

SHOP = IPv4Network("0.1.0.0/16")
NAMES = ("shop.tenant", "shop.region", "shop.priority", "shop.campaign", "shop.coupon")
IDS = [HeaderId(f"0.1.0.{number}") for number in range(1, 6)]
VALUES = (b"acme", b"eu-west", b"high", b"spring", b"-10%")
DAY = "2026-01-31"


def entry(header_id: HeaderId, name: str, owner: str = "shop") -> ids.Register:
    """Return the registration of a name for an id, by its owner."""
    told = {"encoding": "utf-8", "description": f"The {name} of an order.", "since": DAY}
    return ids.Register(ids.Entry(id=header_id, name=name, owner=owner, **told), by=owner)


def made(console: Console, path: str) -> ids.Registry:
    """Make a registry in a TOML file: the platform allocates blocks, and their owners register ids."""
    with create_store(path, ids.with_built_in(registrar="platform")) as store:
        block = ids.Block(network=SHOP, owner="shop", description="The shop's headers.", since=DAY)
        store.apply(ids.Allocate(block, by="platform"))
        for header_id, name in zip(IDS[:4], NAMES, strict=False):  # the coupon has no name yet
            registry = store.apply(entry(header_id, name))
            console.print(f"  {header_id} {name}")
        try:
            registry = store.apply(entry(IDS[4], "billing.code", owner="billing"))
        except RegistryError as refused:
            console.print(f"  refused: {refused}")
    return registry


def sizes(console: Console, folder: Path, headers: Headers) -> bool:
    """Measure the size of the names of a chain's headers, with Kafka's two lengths for each."""
    keys = str(folder / "keys.json")
    edit_keyring(keys, lambda ring: with_new_key(ring, "shop", "hmac-sha256"), create=True)
    chain = Chain([Trail(service="shop"), Compress(), Sign(keyring=keys, key_id="shop", cluster="east")])
    [record] = chain.open(Context()).send([Record(topic="t", value=b"umbrella " * 100, headers=headers)])
    forms = {"by name": record.headers}
    for form in ("keys", "packed"):  # used alone here; in a chain it is the last step
        forms[form] = HeaderIds(form=form).open(Context()).on_send(record).headers
    values = sum(len(value) for _, value in record.headers)
    costs = [sum(len(name) + len(value) + 2 for name, value in pairs) - values for pairs in forms.values()]
    for (form, pairs), cost in zip(forms.items(), costs, strict=True):
        console.print(f"  {form:8} {cost:3} bytes  {', '.join(map(ascii, pairs.names()))}")
    return costs[0] > 2 * costs[1] > 2 * costs[2]


def read(console: Console, servers: str, topic: str, *, group: str) -> list[Any]:
    """Return and show the headers of two messages, as an application sees them."""
    conf = {"bootstrap.servers": servers, "group.id": group, "auto.offset.reset": "earliest"}
    seen: list[Any] = []
    deadline = time.monotonic() + 30
    with Consumer(conf, chain=Chain([HeaderIds()])) as consumer:
        consumer.subscribe([topic])
        while len(seen) < 2 and time.monotonic() < deadline:
            message = consumer.poll(1)
            if message is not None and message.error() is None:
                seen.append(message.headers())
                shown = ", ".join(f"{name} = {value.decode()}" for name, value in seen[-1])
                console.print(f"  {escape(shown)}")
    return seen


@contextlib.contextmanager
def cluster(servers: str | None, topic: str) -> Iterator[str]:
    """Create the topic with one partition, and yield the brokers' addresses."""
    if servers is None:  # elsewhere the store creates its own topic
        with EmbeddedCluster(topics={topic: 1, f"{topic}-registry": 1}) as embedded:
            yield embedded.bootstrap_servers
    else:
        admin = AdminClient({"bootstrap.servers": servers})
        admin.create_topics([NewTopic(topic, 1)])[topic].result()
        yield servers


def run(console: Console, servers: str, topic: str, folder: Path) -> bool:
    """Make a registry, use it, and change it."""
    console.print("[bold]A team makes a registry[/]")
    registry = made(console, path := str(folder / "headers.toml"))
    ids.use_registry(registry)  # from here on, this process has the names of the ids

    console.print("[bold]The size of the names of a whole chain's headers[/]")
    headers = Headers(zip(IDS, VALUES, strict=True))  # ids are accepted in place of names
    small = sizes(console, folder, headers)
    for form in ("keys", "packed"):
        chain = Chain([HeaderIds(form=form, registry=path)])
        with Producer({"bootstrap.servers": servers}, chain=chain) as producer:
            producer.produce(topic, b"an order", headers=headers)

    console.print("[bold]A service without the registry[/] reads both forms; what has no name is an id")
    ids.use_registry(None)
    dotted = read(console, servers, topic, group=f"without-{topic}")

    console.print("[bold]A service that follows the registry on a topic[/] reads the same records")
    # The embedded cluster always waits this long before it answers a fetch.
    location = f"kafka://{servers}/{topic}-registry?snapshot=&fetch.wait.max.ms=10"
    with create_store(location, registry) as ours, TopicStore.from_location(location) as theirs:
        theirs.follow(ids.use_registry)
        ours.apply(entry(IDS[4], NAMES[4]))
        deadline = time.monotonic() + 30
        while ids.default_names().id_of(NAMES[4]) is None and time.monotonic() < deadline:
            time.sleep(0.01)
    named = read(console, servers, topic, group=f"with-{topic}")
    without = list(zip(map(str, IDS), VALUES, strict=True))
    return small and dotted == [without] * 2 and named == [list(zip(NAMES, VALUES, strict=True))] * 2


@click.command()
@click.option("--bootstrap-servers", help="Use this cluster instead of starting an embedded one.")
def main(bootstrap_servers: str | None) -> None:
    """Send headers as ids, and read them with and without a registry."""
    topic = f"orders-{time.time_ns()}"
    with cluster(bootstrap_servers, topic) as servers, tempfile.TemporaryDirectory() as folder:
        if not run(Console(highlight=False, soft_wrap=True), servers, topic, Path(folder)):
            sys.exit("the headers did not come back as they were sent")


if __name__ == "__main__":
    main()
