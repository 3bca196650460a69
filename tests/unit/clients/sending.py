"""Interceptors of producers, and what was reported and written."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import confluent_kafka
from confluent_kafka import KafkaError, TopicPartition

from headerware.core.errors import InterceptorError
from headerware.core.hooks import DROP, FanOut
from headerware.core.record import Record

if TYPE_CHECKING:
    from collections.abc import Callable

    from confluent_kafka import Message

    from headerware.core.record import RecordMetadata

Report = tuple[KafkaError | None, Any]


class Stamp:
    """Add a header."""

    def __init__(self, name: str = "stamp", value: str = "1") -> None:
        self.name, self.header, self.value = f"stamp-{name}", name, value

    def on_send(self, record: Record) -> Record:
        return record.with_headers(record.headers.add(self.header, self.value))


class Acks:
    """Remember acknowledgements."""

    def __init__(self) -> None:
        self.seen: list[tuple[Record, RecordMetadata | None, BaseException | None]] = []
        self.closed = 0

    def on_acknowledgement(
        self, record: Record, metadata: RecordMetadata | None, error: BaseException | None
    ) -> None:
        self.seen.append((record, metadata, error))

    def close(self) -> None:
        self.closed += 1


class Drop:
    def on_send(self, record: Record) -> Any:
        return DROP


class Refuse:
    def on_send(self, record: Record) -> Record:
        if record.value == b"bad":
            raise InterceptorError("no")
        return record


class Held:
    """Release records of its own at the first flush."""

    def __init__(self, topic: str, *held: bytes) -> None:
        self._held = [Record(topic, value) for value in held]

    def on_send(self, record: Record) -> Record:
        return record

    def flush(self) -> list[Record]:
        held, self._held = self._held, []
        return held


class Halves:
    """Cut a value into as many pieces as it has bytes."""

    def on_send(self, record: Record) -> Any:
        pieces = [
            record.with_value(bytes([byte]), record.headers.add("n", str(i)))
            for i, byte in enumerate(record.value)
        ]
        return FanOut(len(pieces), lambda: iter(pieces))


def reports() -> tuple[list[Report], Callable[[KafkaError | None, Message], None]]:
    seen: list[Report] = []
    return seen, lambda error, message: seen.append((error, message))


def wire(connection: dict[str, Any], topic: str, count: int) -> list[Message]:
    """Read what really went to the topic."""
    consumer = confluent_kafka.Consumer({**connection, "group.id": "wire", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[Message] = []
    deadline = time.monotonic() + 60
    while len(found) < count and time.monotonic() < deadline:
        found.extend(consumer.consume(count - len(found), 0.2))
    consumer.close()
    assert len(found) == count
    return found
