"""Refuse records, repair the chain, and send the dead letters back.

    python examples/redrive.py
    python examples/redrive.py --bootstrap-servers localhost:9092

Without addresses it starts an embedded cluster.
"""

from __future__ import annotations

import contextlib
import logging
import time
import uuid

import click
from confluent_kafka.admin import AdminClient, NewTopic

from headerware import Chain, Consumer, Interceptor, InterceptorError, Producer, Record
from headerware.ops.redrive import Redrive, Selection
from headerware.testing import EmbeddedCluster


class Prices(Interceptor, frozen=True, kw_only=True):
    """Refuse records with an unknown currency."""

    currencies: tuple[str, ...] = ("EUR",)

    def on_consume(self, record: Record) -> Record:
        """Check the header ``currency``."""
        currency = (record.headers.last("currency") or b"").decode()
        if currency not in self.currencies:
            raise InterceptorError("the currency is not known")
        return record


def consume(servers: str, topic: str, prices: Prices, group: str, count: int) -> list[str]:
    """Return ``count`` records, as an application reads them."""
    conf = {"bootstrap.servers": servers, "group.id": group, "auto.offset.reset": "earliest"}
    found: list[str] = []
    deadline = time.monotonic() + 10
    # The consumer commits its offsets when it is closed.
    with Consumer(conf, chain=Chain([prices])) as consumer:
        consumer.subscribe([topic])
        while len(found) < count and time.monotonic() < deadline:
            message = consumer.poll(0.5)
            if message is not None and message.error() is None:
                found.append((message.value() or b"").decode())
    return found


@click.command()
@click.option("--bootstrap-servers", help="The cluster's addresses; an embedded cluster by default.")
def main(bootstrap_servers: str | None) -> None:
    """Show a record that is refused, sent back, and read."""
    logging.getLogger("headerware").addHandler(logging.NullHandler())  # the refusal is shown below
    with contextlib.ExitStack() as stack:
        topic = f"prices-{uuid.uuid4().hex[:8]}"
        letters = f"{topic}.dead-letter"
        if bootstrap_servers is None:
            cluster = stack.enter_context(EmbeddedCluster(topics={topic: 1, letters: 1}))
            servers = cluster.bootstrap_servers
        else:
            servers = bootstrap_servers
            admin = AdminClient({"bootstrap.servers": servers})
            created = admin.create_topics([NewTopic(name, num_partitions=1) for name in (topic, letters)])
            for future in created.values():
                future.result()

        with Producer({"bootstrap.servers": servers}) as producer:
            for value, currency in (("1 euro", "EUR"), ("2 crowns", "SEK"), ("3 euros", "EUR")):
                producer.produce(topic, value, "shop", headers={"currency": currency})
        strict = Prices(on_error="dead_letter", dead_letter_headers="headerware")
        read = consume(servers, topic, strict, "billing", 2)
        click.echo(f"read:      {', '.join(read)}")

        with Redrive({"bootstrap.servers": servers}, letters, Selection()) as work:
            (letter,) = work.preview().shown
        click.echo(f"refused:   {letter['original']}, for: {letter['reason']}")

        repaired = Prices(currencies=("EUR", "SEK"), on_error="dead_letter")
        with Redrive({"bootstrap.servers": servers}, letters, Selection()) as work:
            click.echo(f"sent back: {work.execute().done}")
        read = consume(servers, topic, repaired, "reports", 4)
        click.echo(f"read:      {', '.join(read)}")


if __name__ == "__main__":
    main()
