"""The options by which a command reaches a cluster, the consumer that they make, and a topic's last records.

The commands only look: no group is joined, and nothing is committed.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from confluent_kafka import Consumer, Message

_Command = TypeVar("_Command", bound="Callable[..., Any]")


def client_options(command: _Command) -> _Command:
    """Add ``--bootstrap-servers``, ``-X`` and ``--client-config`` to a command."""
    for option in (
        click.option(
            "-F",
            "--client-config",
            type=click.Path(exists=True, dir_okay=False),
            help="A file of client properties, one KEY=VALUE a line; -X counts for more.",
        ),
        click.option(
            "-X", "--property", "properties", multiple=True, help="A client property, KEY=VALUE; repeatable."
        ),
        click.option("--bootstrap-servers", help="The brokers' addresses."),
    ):
        command = option(command)
    return command


def client_settings(
    bootstrap_servers: str | None, properties: tuple[str, ...], client_config: str | None
) -> dict[str, Any]:
    """Return a client's settings from a command's options; the servers may be in either of the others."""
    settings: dict[str, Any] = {"log_level": 0}  # errors are shown once, by the exception
    if client_config is not None:
        lines = Path(client_config).read_text(encoding="utf-8").splitlines()
        settings |= dict(
            _property(line, "--client-config", f"line {number}: ")
            for number, line in enumerate(lines, 1)
            if line.strip() and not line.lstrip().startswith("#")
        )
    settings |= dict(_property(text, "--property") for text in properties)
    if bootstrap_servers is not None:
        settings["bootstrap.servers"] = bootstrap_servers
    return settings


def _property(text: str, option: str, where: str = "") -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise click.BadParameter(f"{where}expected KEY=VALUE, found no '='", param_hint=option)
    return name.strip(), value.strip()


def require_servers(settings: dict[str, Any], what: str) -> str:
    """Return the brokers' addresses; without any it is wrong use, for ``what`` needs them."""
    servers: str | None = settings.get("bootstrap.servers")
    if not servers:
        raise click.UsageError(
            f"{what} needs --bootstrap-servers, or bootstrap.servers in --property or --client-config"
        )
    return servers


def open_consumer(settings: dict[str, Any], *, group_id: str) -> Consumer:
    """Open a consumer that only looks; the group is neither joined nor committed to."""
    # Not the package's own names, which may have a chain where those of an application have one.
    from confluent_kafka.cimpl import Consumer  # noqa: PLC0415 - only few commands need a client

    with kafka_errors():
        return Consumer(
            {
                "auto.offset.reset": "earliest",
                **settings,
                "group.id": group_id,  # librdkafka asks for one
                "enable.auto.commit": False,
                "enable.partition.eof": True,
            }
        )


@contextmanager
def kafka_errors(what: str | None = None) -> Iterator[None]:
    """Show an error of the client as one line, with what it is about before it."""
    from confluent_kafka import KafkaException  # noqa: PLC0415 - only few commands need a client

    try:
        yield
    except KafkaException as error:
        text = error.args[0].str()
        raise click.ClickException(text if what is None else f"{what}: {text}") from error


def last_records(
    consumer: Consumer, topic: str, partition: int | None, offset: int | None, limit: int, deadline: float
) -> Iterator[Message]:
    """Yield up to ``limit`` records of each partition, the last ones or those from ``offset`` on."""
    from confluent_kafka import TopicPartition  # noqa: PLC0415 - only few commands need a client

    with kafka_errors(topic):
        ends = {}
        starts = []
        for number in _partitions(consumer, topic, partition, deadline):
            topic_partition = TopicPartition(topic, number)
            low, high = consumer.get_watermark_offsets(topic_partition, timeout=_left(deadline))
            first = max(low, high - limit if offset is None else offset)
            if first < high:
                starts.append(TopicPartition(topic, number, first))
                ends[number] = min(high, first + limit)
        consumer.assign(starts)
        yield from _until(consumer, ends, limit, deadline)


def _partitions(consumer: Consumer, topic: str, partition: int | None, deadline: float) -> list[int]:
    found = consumer.list_topics(topic, timeout=_left(deadline)).topics[topic]
    if found.error is not None:
        raise click.ClickException(f"{topic}: {found.error.str()}")
    if partition is not None and partition not in found.partitions:
        raise click.ClickException(
            f"{topic} has {len(found.partitions)} partitions, none of number {partition}"
        )
    return sorted(found.partitions) if partition is None else [partition]


def _until(consumer: Consumer, ends: dict[int, int], limit: int, deadline: float) -> Iterator[Message]:
    """Yield messages until each partition is at its end; offsets have holes, so the last may not be there."""
    open_partitions = set(ends)
    while open_partitions:
        for message in consumer.consume(min(limit, 500), timeout=min(0.5, _left(deadline))):
            number, offset, error = message.partition(), message.offset(), message.error()
            if error is not None:
                if error.code() != error._PARTITION_EOF:  # noqa: SLF001 - librdkafka's own name for it
                    raise click.ClickException(error.str())
                open_partitions.discard(number)
            elif number in open_partitions and offset is not None:
                if offset < ends[number]:
                    yield message
                if offset >= ends[number] - 1:
                    open_partitions.discard(number)


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        message = "the time is over; allow more with --timeout"
        raise click.ClickException(message)
    return left
