"""Convert records of a chain to Connect's records and back, for transforms and sources.

A key or value of a chain has a schema if it is a :class:`~headerware.connect.data.Struct` or a
:class:`~headerware.connect.data.SchemaAndValue`; others are schemaless. Headers are bytes, which a header
converter decodes when they are first read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, overload

from headerware.connect.converters import wire_headers
from headerware.connect.converters.catalogue import header_converter_from
from headerware.connect.data.schema import Schema, SchemaAndValue
from headerware.connect.data.struct import Struct
from headerware.connect.data.struct import plain as plain_value
from headerware.connect.errors import ConnectDataError
from headerware.connect.records import ConnectRecord, SinkRecord, SourceRecord, TimestampType
from headerware.core.record import Record

if TYPE_CHECKING:
    from headerware.connect.converters.base import HeaderConverter

_TIMESTAMP_TYPES: Final = {
    0: TimestampType.NO_TIMESTAMP_TYPE,
    1: TimestampType.CREATE_TIME,
    2: TimestampType.LOG_APPEND_TIME,
}


@overload
def to_connect(
    record: Record, converter: HeaderConverter | None = None, *, side: Literal["producer"] = "producer"
) -> SourceRecord: ...


@overload
def to_connect(
    record: Record, converter: HeaderConverter | None = None, *, side: Literal["consumer"]
) -> SinkRecord: ...


def to_connect(
    record: Record,
    converter: HeaderConverter | None = None,
    *,
    side: Literal["producer", "consumer"] = "producer",
) -> SourceRecord | SinkRecord:
    """Return a record of a chain as a record of Connect.

    Args:
        record: the record, with objects or bytes.
        converter: the header converter; None is a SimpleHeaderConverter.
        side: ``producer`` gives a SourceRecord, on its way to a topic; ``consumer`` a SinkRecord.
    """
    (key_schema, key), (value_schema, value) = split(record.key), split(record.value)
    headers = wire_headers.to_connect(record.topic, record.headers, converter or _simple())
    if side == "producer":
        return SourceRecord(
            None,
            None,
            record.topic,
            record.partition,
            key_schema,
            key,
            value_schema,
            value,
            record.timestamp_ms,
            headers,
        )
    return SinkRecord(
        record.topic,
        record.partition,
        key_schema,
        key,
        value_schema,
        value,
        record.offset or 0,
        record.timestamp_ms,
        _TIMESTAMP_TYPES.get(record.timestamp_type, TimestampType.NO_TIMESTAMP_TYPE),
        headers,
    )


def from_connect(
    made: ConnectRecord,
    original: Record | None = None,
    converter: HeaderConverter | None = None,
    *,
    plain: bool = False,
) -> Record:
    """Return a record of Connect as a record of a chain, and freeze its headers.

    Args:
        made: the record.
        original: the original record of the chain, if any. An unchanged key or value stays the same object.
            Attributes that Connect does not have, such as the offset, are taken from the original.
        converter: the header converter; None is a SimpleHeaderConverter.
        plain: whether to return plain Python values: dicts for structs, and no schemas.

    Raises:
        ConnectError: the record has no topic, or a header cannot be written.
    """
    if made.topic is None:
        raise ConnectDataError("the record has no topic")
    original = Record(made.topic) if original is None else original
    headers = wire_headers.from_connect(made.topic, made.headers, converter or _simple())
    if plain:
        key, value = plain_value(made.key), plain_value(made.value)
    else:
        key = _same_or_joined(made.key_schema, made.key, original.key)
        value = _same_or_joined(made.value_schema, made.value, original.value)
    return Record(
        made.topic,
        value,
        key,
        headers,
        made.kafka_partition,
        made.timestamp,
        original.timestamp_type,
        original.offset,
        original.leader_epoch,
        original.local,
    )


def split(given: Any) -> tuple[Schema | None, Any]:
    """Return the schema and the value of a key or value; plain values have no schema."""
    if isinstance(given, Struct):
        return given.schema, given
    if isinstance(given, SchemaAndValue):
        return given
    return None, given


def joined(schema: Schema | None, value: Any) -> Any:
    """Return a key or value for a chain: a Struct, a SchemaAndValue, or a plain value."""
    if schema is None or value is None or isinstance(value, Struct):
        return value
    return SchemaAndValue(schema, value)


def _same_or_joined(schema: Schema | None, value: Any, original: Any) -> Any:
    # Compare with the original: a transform may have changed the record in place.
    old_schema, old_value = split(original)
    return original if value is old_value and schema is old_schema else joined(schema, value)


def _simple() -> HeaderConverter:
    return header_converter_from({})
