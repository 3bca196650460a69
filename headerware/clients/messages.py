"""Conversions between confluent-kafka's messages and our records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import KafkaError, Message

from headerware.core.boundary import is_own
from headerware.core.headers import Headers
from headerware.core.record import Record, RecordMetadata
from headerware.kafka.messages import is_readable, record_of, wire_headers

_SCHEMA: Final = "hw.schema"
_new_headers = tuple.__new__


class MessageHeaders(list[Any]):
    """A message's headers, with the interceptors' state and the hidden headers, which a message cannot hold.

    A Message takes no attributes and no weak references, and to make a subclass of Message takes four times
    as long as to set other headers. If the application sets other headers, the state is lost.
    """

    __slots__ = ("all_headers", "local", "topic")

    local: Mapping[str, Any] | None
    """The interceptors' state."""
    topic: str
    """The topic on the wire, which a transform may have changed in the message."""
    all_headers: Headers | None
    """All headers of the record, if the application does not see all of them."""

    def __reduce__(self) -> Any:
        """Copy and pickle as a plain list, because the state of an interceptor may not allow copies."""
        return list, (list(self),)


def updated_message(message: Message, before: Record, after: Record) -> Message:
    """Change a message as the chain has changed its record; commits take only a Message of C."""
    if after is before:
        return message
    headers = after.headers
    # The records of a batch share one text for their topic.
    is_moved = after.topic is not before.topic and after.topic != before.topic
    if after.local or is_moved:
        message.set_headers(_headers_with_local(headers, after, before.topic))
    elif headers is not before.headers:
        # The result of wire_headers without a call; None means "no headers".
        message.set_headers(list(headers) if headers else None)  # type: ignore[arg-type]
    if after.value is not before.value:
        message.set_value(after.value)
    if after.key is not before.key:
        message.set_key(after.key)
    if is_moved:
        message.set_topic(after.topic)  # type: ignore[attr-defined]  # missing from the stubs
    return message


def message_of(record: Record, topic: str | None = None) -> Message:
    """Return a message for a record that the chain added; ``topic`` replaces the record's own."""
    if record.local or (topic is not None and topic != record.topic):
        headers = _headers_with_local(record.headers, record, topic or record.topic)
    else:
        headers = wire_headers(record.headers)
    return Message(
        record.topic,
        -1 if record.partition is None else record.partition,
        -1 if record.offset is None else record.offset,
        record.key,
        record.value,
        headers,
        None,
        (record.timestamp_type, 0 if record.timestamp_ms is None else record.timestamp_ms),
        leader_epoch=-1 if record.leader_epoch is None else record.leader_epoch,
    )


def _headers_with_local(headers: Headers, record: Record, topic: str) -> Any:
    known = MessageHeaders(headers)
    known.local = record.local
    known.topic = topic
    known.all_headers = None
    return known


def hide_own_headers(message: Message) -> None:
    """Hide Headerware's own headers from the application.

    The header of schemas is not hidden, because the application's own deserializer needs it.
    """
    if message.error() is not None:
        return
    headers: Any = message.headers() or ()
    shown = [pair for pair in headers if pair[0] == _SCHEMA or not is_own(pair[0])]
    if len(shown) < len(headers):
        seen = MessageHeaders(shown)  # even if it is empty, because it keeps the hidden headers
        seen.topic, seen.local = wire_topic_and_local(message)
        seen.all_headers = _new_headers(Headers, headers)
        message.set_headers(seen)


def wire_topic_and_local(message: Message) -> tuple[str, Mapping[str, Any] | None]:
    """Return the topic on the wire and the interceptors' state of a delivered message."""
    headers = message.headers()
    if headers.__class__ is MessageHeaders:
        return headers.topic, headers.local
    return message.topic() or "", None


def record_with_local(message: Message) -> Record:
    """Return the record of a delivered message, with the interceptors' state and all headers."""
    record = record_of(message)
    headers: Any = message.headers() if is_readable(record) else None
    if headers.__class__ is not MessageHeaders:
        return record
    found = record.headers if headers.all_headers is None else headers.all_headers
    return record.replace(local=headers.local, headers=found)


def undelivered_message(record: Record, error: KafkaError) -> Message:
    """Return the message of a delivery report for a record that never reached librdkafka."""
    return Message(
        record.topic,
        -1 if record.partition is None else record.partition,
        -1,
        _as_bytes(record.key),
        _as_bytes(record.value),
        wire_headers(record.headers),
        error,
    )


def with_original_parts(message: Message, original: Record, sent: Record) -> Message:
    """Put the application's own key, value and headers into a delivery report's message, and return it."""
    message.set_headers(wire_headers(original.headers))
    if sent is not original:
        message.set_value(_as_bytes(original.value))
        message.set_key(_as_bytes(original.key))
    return message


def metadata_of(message: Message) -> RecordMetadata:
    """Return a record's metadata from its delivery report."""
    kind, timestamp_ms = message.timestamp()
    return RecordMetadata(
        message.topic() or "", message.partition(), message.offset(), timestamp_ms if kind else None
    )


def _as_bytes(part: Any) -> Any:
    """Return text as the bytes that a delivery report shows; return other objects unchanged."""
    return part.encode() if isinstance(part, str) else part
