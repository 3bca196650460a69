"""Run three services in a row that do not copy headers, and show one trail through all of them.

    python examples/carry_on.py
    python examples/carry_on.py --bootstrap-servers kafka-a:9092

Without an address it starts an embedded cluster. Each service reads from one topic and sends to the next.
A record that it sends while it processes another carries on the other's trail, and headers in its `carry`.
"""

from __future__ import annotations

import contextlib
import time
import uuid

import click
from rich.console import Console

from headerware import Chain, Consumer, Headers, Producer
from headerware.cli.trail import trail_lines
from headerware.interceptors import Trail, read_trail
from headerware.testing import EmbeddedCluster


def chain_of(service: str) -> Chain:
    """Return the chain of a service; in TOML the option is ``carry = ["tenant"]``."""
    return Chain([Trail(service=service)], carry=["tenant"])


def reader(servers: str, service: str, topic: str) -> Consumer:
    """Return a consumer that reads a topic from its beginning."""
    conf = {"bootstrap.servers": servers, "group.id": f"{service}-{topic}", "auto.offset.reset": "earliest"}
    consumer = Consumer(conf, chain=chain_of(service))
    consumer.subscribe([topic])
    return consumer


def run_service(servers: str, service: str, source: str, target: str) -> None:
    """Read one record as a service, and send a changed record to the next topic."""
    chain = chain_of(service)
    with (
        reader(servers, service, source) as consumer,
        Producer({"bootstrap.servers": servers}, chain=chain) as producer,
    ):
        for message in consumer.messages(30):
            value = message.value() or b""
            producer.produce(target, value + f" > {service}".encode())
            break


def show_last(servers: str, topic: str, console: Console) -> None:
    """Read a record as the last reader, and print its trail."""
    with reader(servers, "report", topic) as consumer:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            message = consumer.poll(1)
            if message is not None and message.error() is None:
                headers = Headers(message.headers())
                console.print(f"{(message.value() or b'').decode()}, tenant {headers.last('tenant')!r}")
                for line in trail_lines(read_trail(headers)):
                    console.print(line)
                return


@click.command()
@click.option("--bootstrap-servers", help="The cluster; an embedded one by default.")
def main(bootstrap_servers: str | None) -> None:
    """Send one order, and let three services pass it on."""
    run = uuid.uuid4().hex[:6]
    orders, paid, packed, sent = (f"{name}-{run}" for name in ("orders", "paid", "packed", "sent"))
    with contextlib.ExitStack() as stack:
        if bootstrap_servers is None:
            bootstrap_servers = stack.enter_context(EmbeddedCluster()).bootstrap_servers
        with Producer({"bootstrap.servers": bootstrap_servers}, chain=Chain()) as shop:
            shop.produce(orders, b"order 1", headers={"tenant": "north", "note": "nobody needs it later"})
        run_service(bootstrap_servers, "payment", orders, paid)
        run_service(bootstrap_servers, "packing", paid, packed)
        run_service(bootstrap_servers, "shipping", packed, sent)
        show_last(bootstrap_servers, sent, Console(highlight=False, soft_wrap=True))


if __name__ == "__main__":
    main()
