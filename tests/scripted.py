"""A consumer that gives what a test tells it to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, Message

if TYPE_CHECKING:
    from headerware.kafka.reader import TopicReader


class Scripted:
    """Give messages, each once: records by their offsets, and errors among them."""

    def __init__(self, topic: str, *given: int | KafkaError) -> None:
        self._messages = [
            Message(topic, 0, -1, None, None, None, each)
            if isinstance(each, KafkaError)
            else Message(topic, 0, each, b"%d" % each, b"v")
            for each in given
        ]

    def poll(self, _timeout_s: float) -> Message | None:
        return self._messages.pop(0) if self._messages else None

    def consume(self, count: int, timeout: float) -> list[Message]:
        given, self._messages = self._messages[:count], self._messages[count:]
        return given

    def close(self) -> None:
        """Nothing is open."""


def script(reader: TopicReader, topic: str, *given: int | KafkaError) -> None:
    """Let a reader that has started get these messages, in place of what its topic holds."""
    anything: Any = reader
    anything._consumer.close()
    anything._consumer = Scripted(topic, *given)
