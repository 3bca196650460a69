"""Run your own worker: copy records from one topic to another with masked fields, each exactly once.

    python examples/own_worker.py
    python examples/own_worker.py --bootstrap-servers kafka-a:9092 --follow

Without an address it starts an embedded cluster. ``headerware.workers`` reads, collects the slices of
messages, writes in transactions, and stores the progress in a group's offsets. So this file only decides:
a record with a JSON object is written with some fields masked, a tombstone is written unchanged, and all
others become dead letters, which ``headerware redrive`` sends back after a repair. Kill the worker at
any moment and start it again: no record is lost or written twice.
"""

from __future__ import annotations

import contextlib
import json
import time
from typing import TYPE_CHECKING, Any, Final

import click
from rich.console import Console
from rich.table import Table

from headerware import Producer
from headerware.core.errors import InterceptorError
from headerware.testing import EmbeddedCluster
from headerware.workers import Outcome, Policy, Unit, Worker

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headerware import Record

MASK: Final = "***"
ORDERS: Final = (
    b'{"order": 1, "email": "ada@example.org", "total": 20}',
    b'{"order": 2, "email": "bob@example.org", "total": 35, "phone": "555-0100"}',
    b"this is no JSON",
    None,
)


class Mask(Policy):
    """Write records into a topic with some fields masked; each keeps its partition and its time.

    If the topic may have fewer partitions, replace also ``partition=None``, and the key decides.

    Args:
        target: the topic.
        fields: the names of the fields.
    """

    def __init__(self, target: str, fields: Sequence[str]) -> None:
        self._target = target
        self._fields = frozenset(fields)

    def decide(self, units: Sequence[Unit]) -> Iterator[Outcome]:
        """Mask each record; a record that cannot be masked becomes a dead letter."""
        for unit in units:
            try:
                masked = self._masked(unit)
            except InterceptorError as error:
                yield self.dead_letter(unit, error.at("mask", unit.records[0]))
            else:
                yield Outcome(unit, "sent", [masked])

    def _masked(self, unit: Unit) -> Record:
        record, *others = unit.records
        if others or unit.problem:
            raise InterceptorError(f"expected a record, found {unit.problem or 'a message in slices'}")
        if record.value is None:
            return record.replace(topic=self._target)
        try:
            value = json.loads(record.value)
        except ValueError as error:
            raise InterceptorError("expected JSON") from error
        if not isinstance(value, dict):
            raise InterceptorError(f"expected a JSON object, found a {type(value).__name__}")
        masked = {name: MASK if name in self._fields else each for name, each in value.items()}
        return record.replace(topic=self._target, value=json.dumps(masked).encode())


def produce(conf: dict[str, Any], topic: str) -> None:
    """Write some orders as the shop, and a record that is not an order."""
    producer = Producer(conf)
    for number, value in enumerate(ORDERS):
        producer.produce(topic, value, str(number).encode(), headers={"shop": "north"})
    producer.flush()


def show(worker: Worker) -> None:
    """Print the number of records by result."""
    table = Table("records", "result", "reason")
    for (disposition, why), count in sorted(worker.counts.items()):
        table.add_row(str(count), disposition.replace("_", " "), why)
    Console().print(table)


@click.command()
@click.option("--bootstrap-servers", help="Kafka; without it an embedded cluster.")
@click.option("--source", default="orders-example", show_default=True, help="Read this topic.")
@click.option("--target", default="orders-masked-example", show_default=True, help="Write this topic.")
@click.option(
    "--field", "fields", multiple=True, default=("email", "phone"), show_default=True, help="Mask this field."
)
@click.option("--follow", is_flag=True, help="Go on at the end of the topic, until Ctrl-C.")
def main(
    bootstrap_servers: str | None, source: str, target: str, fields: tuple[str, ...], *, follow: bool
) -> None:
    """Copy records from one topic to another with masked fields."""
    with contextlib.ExitStack() as stack:
        if bootstrap_servers is None:
            topics = {source: 1, target: 1, f"{source}.dead-letter": 1}
            bootstrap_servers = stack.enter_context(EmbeddedCluster(topics=topics)).bootstrap_servers
            produce({"bootstrap.servers": bootstrap_servers}, source)
        conf = {"bootstrap.servers": bootstrap_servers}
        policy = Mask(target, fields)
        worker = stack.enter_context(Worker(conf, source, policy, name="mask", writes=[target]))
        began = time.monotonic()
        with contextlib.suppress(KeyboardInterrupt):
            worker.run(follow=follow)
        show(worker)
        print(f"done in {time.monotonic() - began:.1f} s; the progress is in group {worker.group_id}")


if __name__ == "__main__":
    main()
