"""The last records of a topic, for commands that only look: no group is joined, and nothing is committed."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Iterator

    from confluent_kafka import Consumer, Message


def client_settings(bootstrap_servers: str, properties: tuple[str, ...]) -> dict[str, Any]:
    """Return a client's settings from the options ``--bootstrap-servers`` and ``-X KEY=VALUE``."""
    settings: dict[str, Any] = {}
    for text in properties:
        name, equals, value = text.partition("=")
        if not equals:
            message = "expected KEY=VALUE, found no '='"
            raise click.BadParameter(message, param_hint="--property")
        settings[name] = value
    return settings | {
        "bootstrap.servers": bootstrap_servers,
        "log_level": 0,  # errors are shown once, by the exception
    }


def open_consumer(bootstrap_servers: str, properties: tuple[str, ...]) -> Consumer:
    """Return a consumer that joins no group and commits nothing."""
    from confluent_kafka import KafkaException  # noqa: PLC0415 - only this needs a client
    from confluent_kafka.cimpl import Consumer  # noqa: PLC0415 - as above; and never one with a chain

    settings = client_settings(bootstrap_servers, properties) | {
        "group.id": "headerware-trail",  # librdkafka asks for one; it is neither joined nor committed to
        "enable.auto.commit": False,
        "enable.partition.eof": True,
    }
    try:
        return Consumer(settings)
    except KafkaException as error:
        raise click.ClickException(error.args[0].str()) from error


def last_records(
    consumer: Consumer, topic: str, partition: int | None, offset: int | None, limit: int, deadline: float
) -> Iterator[Message]:
    """Yield up to ``limit`` records of each partition, the last ones or those from ``offset`` on."""
    from confluent_kafka import KafkaException, TopicPartition  # noqa: PLC0415 - only this needs a client

    try:
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
    except KafkaException as error:
        raise click.ClickException(f"{topic}: {error.args[0].str()}") from error


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
