"""Read the wire as any plain Kafka client does, and alter records."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import NamedTuple

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic
from request import within_a_request

from headerware import Chain, Context, Headers, Record, load_chain
from headerware.kafka.reader import TopicReader


class Size(NamedTuple):
    """The size of a set of records."""

    step: str
    records: int
    value_bytes: int
    header_bytes: int

    @property
    def total(self) -> int:
        """Values and headers together."""
        return self.value_bytes + self.header_bytes


def create_topic(servers: str, topic: str) -> None:
    """Create a topic of one partition on the given cluster."""
    client = AdminClient({"bootstrap.servers": servers})
    for future in client.create_topics([NewTopic(topic, 1)], request_timeout=5, operation_timeout=5).values():
        future.result()


def read(servers: str, topics: list[str]) -> list[confluent_kafka.Message]:
    """Read all records of the topics, without a chain."""
    seen: list[confluent_kafka.Message] = []
    for topic in topics:
        with TopicReader({"bootstrap.servers": servers}, topic, group_id="plain") as reader:
            reader.start()
            seen += chain.from_iterable(reader.to_end())
    return seen


def measured(step: str, messages: list[confluent_kafka.Message]) -> Size:
    """Measure messages as a plain client reads them."""
    return _size(step, [(message.value(), message.headers() or []) for message in messages])


def step_by_step(
    path: Path, applications: list[tuple[str, str, bytes]], prefix: str, cluster_id: str | None
) -> list[Size]:
    """Measure the same records after the first interceptor, after the first two, and so on."""
    records = [
        Record(topic=prefix + topic, key=key.encode(), value=value, headers=Headers(_content_type(topic)))
        for topic, key, value in applications
    ]
    whole = load_chain(path)
    # The producer has said already that OpenTelemetry's SDK is missing.
    context = Context(client_id="orders", cluster_id=lambda: cluster_id, warns=False)
    sizes = [_size("as the application sends it", [(r.value, r.headers) for r in records])]
    for count, name in enumerate(whole.names, 1):
        with within_a_request(), Chain(whole.interceptors[:count]).open(context) as session:
            sizes.append(_size(f"after {name}", [(r.value, r.headers) for r in session.send(records)]))
    return sizes


def cluster_id(servers: str) -> str | None:
    """Return the cluster's id."""
    return AdminClient({"bootstrap.servers": servers}).list_topics(timeout=10).cluster_id


def alter(servers: str, seen: list[confluent_kafka.Message], topic: str) -> str:
    """Produce a record again, unchanged except for one bit of its value."""
    message = next(message for message in seen if message.topic() == topic)
    value = bytearray(message.value())
    value[len(value) // 2] ^= 1
    producer = confluent_kafka.Producer({"bootstrap.servers": servers})
    producer.produce(topic, bytes(value), message.key(), headers=message.headers())
    producer.flush()
    place = f"{topic}[{message.partition()}]@{message.offset()}"
    return f"{place} again, with bit 0 of byte {len(value) // 2} flipped, the signature kept"


def _content_type(topic: str) -> list[tuple[str, str]]:
    return [] if topic == "files" else [("content-type", "application/json")]


def _size(step: str, records: list) -> Size:
    return Size(
        step,
        len(records),
        sum(len(value) for value, _ in records),
        sum(len(name) + len(value or b"") for _, headers in records for name, value in headers),
    )
