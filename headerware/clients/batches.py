"""Batches: what ``produce_many`` and ``produce_batch`` take for a record."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException

from headerware.clients.codes import APPLICATION, QUEUE_FULL
from headerware.core.headers import Headers
from headerware.core.record import Record

Sendable = Record | Mapping[str, Any]
"""A Record, or a mapping with any of value, key, headers, partition, timestamp and on_delivery."""

_NAMES: Final = frozenset({"value", "key", "headers", "partition", "timestamp", "on_delivery", "callback"})


def to_record(topic: str, item: Sendable) -> tuple[Record, Callable[..., Any] | None]:
    """Return the record that an item stands for, and its own callback.

    Raises:
        TypeError: it is neither a Record nor a mapping, or has an unknown key.
        HeaderError: its headers are none.
    """
    if isinstance(item, Record):
        return (item if item.topic == topic else item.replace(topic=topic)), None
    if not isinstance(item, Mapping):
        raise TypeError(f"a record is a Record or a mapping, not {type(item).__name__}")
    unknown = sorted(str(name) for name in item if name not in _NAMES)
    if unknown:
        raise TypeError(f"unknown keys of a record: {', '.join(unknown)}; known: {', '.join(sorted(_NAMES))}")
    partition = item.get("partition")
    record = Record(
        topic,
        item.get("value"),
        item.get("key"),
        Headers(item.get("headers")),
        None if partition in {None, -1} else partition,
        item.get("timestamp") or None,
    )
    return record, first_callback(item.get("on_delivery"), item.get("callback"))


def first_callback(*given: Callable[..., Any] | None) -> Callable[..., Any] | None:
    """Return the first callback that there is; one may be callable and empty, and so false.

    Raises:
        TypeError: it cannot be called.
    """
    for callback in given:
        if callback is not None:
            if not callable(callback):
                raise TypeError(f"expected a callable as callback, found {type(callback).__name__}")
            return callback
    return None


def message_records(messages: Any, partition: int) -> list[dict[str, Any]]:
    """Check a batch of dicts as confluent-kafka does, and give each its partition.

    Raises:
        TypeError: no list, or an item that is no dict or has parts of a wrong type; nothing is sent then.
    """
    if not isinstance(messages, list):
        raise TypeError("messages must be a list")
    for index, message in enumerate(messages):
        if not isinstance(message, dict):
            raise TypeError(f"Message at index {index} must be a dict")
        if not isinstance(message.get("partition"), int | None):
            raise TypeError(f"Message partition at index {index} must be int")
    return [
        {"partition": partition} | {name: message[name] for name in _NAMES if message.get(name) is not None}
        for message in messages
    ]


def error_of(error: Exception) -> KafkaError:
    """Return the KafkaError that stands for what ``produce`` raised."""
    if isinstance(error, KafkaException) and isinstance(error.args[0], KafkaError):
        return error.args[0]
    if isinstance(error, BufferError):
        return KafkaError(QUEUE_FULL, str(error))
    return KafkaError(APPLICATION, str(error))
