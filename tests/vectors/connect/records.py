"""Between the oracle's JSON and records, headers and errors."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from headerware.connect.errors import ArgumentError, ConnectError
from headerware.connect.headers import ConnectHeader, ConnectHeaders
from headerware.connect.records import ConnectRecord, SinkRecord, SourceRecord, TimestampType
from tests.vectors.connect.codec import cast, out, out_linked, out_schema, schema_of, value_of
from tests.vectors.connect.nodes import as_int, as_long, as_text, member, present


def headers_of(nodes: Any) -> ConnectHeaders:
    """Read headers."""
    made = ConnectHeaders()
    for node in nodes or ():
        schema = schema_of(node.get("schema"))
        made.add(as_text(member(node, "key")), value_of(node.get("value"), schema), schema)
    return made


def out_header(header: ConnectHeader) -> dict[str, Any]:
    """Write a header."""
    return {"key": header.key, "schema": out_schema(header.schema), "value": out_linked(header.value)}


def out_headers(headers: Iterable[ConnectHeader]) -> list[Any]:
    """Write headers."""
    return [out_header(header) for header in headers]


def record_of(node: Any) -> ConnectRecord:
    """Read a record: one of a source, unless it says that it is a sink's."""
    node = present(node)
    key_schema, value_schema = schema_of(node.get("keySchema")), schema_of(node.get("valueSchema"))
    key, value = value_of(node.get("key"), key_schema), value_of(node.get("value"), value_schema)
    topic = _or_none(node, "topic", as_text)
    timestamp = _or_none(node, "timestamp", as_long)
    partition = _or_none(node, "partition", as_int)
    if node.get("kind") == "sink":
        return SinkRecord(
            topic,
            partition or 0,
            key_schema,
            key,
            value_schema,
            value,
            as_long(node.get("offset", 0)),
            timestamp,
            _timestamp_type(as_text(node.get("timestampType", "CREATE_TIME"))),
            headers_of(node.get("headers")),
        )
    places = [cast(value_of(node.get(name)), dict) for name in ("sourcePartition", "sourceOffset")]
    return SourceRecord(
        places[0],
        places[1],
        topic,
        partition,
        key_schema,
        key,
        value_schema,
        value,
        timestamp,
        headers_of(node.get("headers")),
    )


def _or_none(node: dict[str, Any], name: str, read: Callable[[Any], Any]) -> Any:
    return None if node.get(name) is None else read(node[name])


def _timestamp_type(name: str) -> TimestampType:
    try:
        return TimestampType[name]
    except KeyError:
        raise ArgumentError("the case has a timestamp type that there is not") from None


def out_record(record: ConnectRecord | None, given: ConnectRecord) -> dict[str, Any] | None:
    """Write a record.

    Args:
        record: the record, or None for one that was dropped.
        given: the record that the case gave, which may be the same object.
    """
    if record is None:
        return None
    return {
        "same": record is given,
        "topic": record.topic,
        "partition": record.kafka_partition,
        "keySchema": out_schema(record.key_schema),
        "key": out(record.key),
        "valueSchema": out_schema(record.value_schema),
        "value": out(record.value),
        "timestamp": record.timestamp,
        "headers": out_headers(record.headers),
    }


def out_error(error: Exception, stage: str | None = None) -> dict[str, str]:
    """Write an error by the name of its Java class; one that is not meant shows its own."""
    kind = error.java if isinstance(error, ConnectError) else f"python.{type(error).__name__}"
    return {"error": kind} if stage is None else {"error": kind, "stage": stage}
