"""Connect's records: keys and values with schemas, and typed headers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, Final, Literal, Self

from headerware.connect.data.equality import alike
from headerware.connect.data.schema import Schema
from headerware.connect.headers import ConnectHeader, ConnectHeaders

Part = Literal["key", "value"]


class TimestampType(Enum):
    """Where a record's timestamp comes from, in Kafka's own words."""

    NO_TIMESTAMP_TYPE = "NoTimestampType"
    CREATE_TIME = "CreateTime"
    LOG_APPEND_TIME = "LogAppendTime"


class ConnectRecord:  # noqa: PLW1641 - mutable, so not hashable
    """The base class of source and sink records.

    Args:
        topic: the topic's name.
        kafka_partition: the partition, or None if the partitioner is to choose one.
        key_schema: the schema of the key; None for a schemaless key.
        key: the key.
        value_schema: the schema of the value; None for a schemaless value.
        value: the value; None is a tombstone.
        timestamp: milliseconds since the epoch, or None.
        headers: its :class:`ConnectHeaders`, or an iterable of headers.
    """

    __slots__ = (
        "_headers",
        "kafka_partition",
        "key",
        "key_schema",
        "timestamp",
        "topic",
        "value",
        "value_schema",
    )

    def __init__(
        self,
        topic: str | None = None,
        kafka_partition: int | None = None,
        key_schema: Schema | None = None,
        key: Any = None,
        value_schema: Schema | None = None,
        value: Any = None,
        timestamp: int | None = None,
        headers: Iterable[ConnectHeader] | None = None,
    ) -> None:
        self.topic: str | None = topic
        self.kafka_partition: int | None = kafka_partition
        self.key_schema: Schema | None = key_schema
        self.key: Any = key
        self.value_schema: Schema | None = value_schema
        self.value: Any = value
        self.timestamp: int | None = timestamp
        self._headers = headers if isinstance(headers, ConnectHeaders) else ConnectHeaders(headers)

    @property
    def headers(self) -> ConnectHeaders:
        """The headers, which may be changed in place until the record leaves."""
        return self._headers

    def new_record(
        self,
        topic: str | None,
        kafka_partition: int | None,
        key_schema: Schema | None,
        key: Any,
        value_schema: Schema | None,
        value: Any,
        timestamp: int | None,
        headers: Iterable[ConnectHeader] | None = None,
    ) -> Self:
        """Return a record of the same kind with other contents.

        Args:
            topic: the topic's name.
            kafka_partition: the partition.
            key_schema: the schema of the key.
            key: the key.
            value_schema: the schema of the value.
            value: the value.
            timestamp: milliseconds since the epoch.
            headers: the headers; by default a duplicate of this record's headers.
        """
        given = headers if headers is None or isinstance(headers, ConnectHeaders) else ConnectHeaders(headers)
        made = self._copy(given)
        made.topic, made.kafka_partition, made.timestamp = topic, kafka_partition, timestamp
        made.key_schema, made.key = key_schema, key
        made.value_schema, made.value = value_schema, value
        return made

    def with_part(self, part: Part, schema: Schema | None, value: Any) -> Self:
        """Return a record with another key or value and a duplicate of the headers."""
        made = self._copy()
        if part == "value":
            made.value_schema, made.value = schema, value
        else:
            made.key_schema, made.key = schema, value
        return made

    def with_topic(self, topic: str | None) -> Self:
        """Return a record for another topic."""
        made = self._copy()
        made.topic = topic
        return made

    def with_headers(self, headers: ConnectHeaders) -> Self:
        """Return a record with other headers."""
        return self._copy(headers)

    def _copy(self, headers: ConnectHeaders | None = None) -> Self:
        made = object.__new__(type(self))
        made.topic, made.kafka_partition, made.timestamp = self.topic, self.kafka_partition, self.timestamp
        made.key_schema, made.key = self.key_schema, self.key
        made.value_schema, made.value = self.value_schema, self.value
        made._headers = self._headers.duplicate() if headers is None else headers
        return made

    def _facts(self) -> tuple[Any, ...]:
        """Return the attributes that are equal in equal records, apart from headers, key and value."""
        return (self.topic, self.kafka_partition, self.timestamp, self.key_schema, self.value_schema)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return (
            self._facts() == other._facts()
            and alike(self.key, other.key)
            and alike(self.value, other.value)
            and self._headers == other._headers
        )

    def __repr__(self) -> str:
        """Show the partition and the schemas; keys and values may be secret."""
        return (
            f"{type(self).__name__}(topic={self.topic!r}, partition={self.kafka_partition}, "
            f"key={self.key_schema}, value={self.value_schema}, headers={self._headers})"
        )


class SourceRecord(ConnectRecord):
    """A record on its way to a topic.

    Args:
        source_partition: the part of the source that it was read from, such as a file.
        source_offset: the position there.
        topic: see :class:`ConnectRecord` for this and the other arguments.
    """

    __slots__ = ("source_offset", "source_partition")

    def __init__(
        self,
        source_partition: Mapping[str, Any] | None = None,
        source_offset: Mapping[str, Any] | None = None,
        topic: str | None = None,
        kafka_partition: int | None = None,
        key_schema: Schema | None = None,
        key: Any = None,
        value_schema: Schema | None = None,
        value: Any = None,
        timestamp: int | None = None,
        headers: Iterable[ConnectHeader] | None = None,
    ) -> None:
        super().__init__(topic, kafka_partition, key_schema, key, value_schema, value, timestamp, headers)
        self.source_partition: Mapping[str, Any] | None = source_partition
        self.source_offset: Mapping[str, Any] | None = source_offset

    def _copy(self, headers: ConnectHeaders | None = None) -> Self:
        made = super()._copy(headers)
        made.source_partition, made.source_offset = self.source_partition, self.source_offset
        return made

    def _facts(self) -> tuple[Any, ...]:
        return (*super()._facts(), self.source_partition, self.source_offset)


class SinkRecord(ConnectRecord):
    """A record from a topic.

    Args:
        topic: see :class:`ConnectRecord` for this and the other arguments.
        kafka_offset: the offset in the partition.
        timestamp_type: the kind of the timestamp.
        original_topic: the topic that it was read from, before any transform; by default ``topic``.
        original_kafka_partition: the partition that it was read from.
        original_kafka_offset: the offset that it was read from.
    """

    __slots__ = (
        "kafka_offset",
        "original_kafka_offset",
        "original_kafka_partition",
        "original_topic",
        "timestamp_type",
    )

    def __init__(
        self,
        topic: str | None = None,
        kafka_partition: int | None = None,
        key_schema: Schema | None = None,
        key: Any = None,
        value_schema: Schema | None = None,
        value: Any = None,
        kafka_offset: int = 0,
        timestamp: int | None = None,
        timestamp_type: TimestampType = TimestampType.NO_TIMESTAMP_TYPE,
        headers: Iterable[ConnectHeader] | None = None,
        *,
        original_topic: str | None = None,
        original_kafka_partition: int | None = None,
        original_kafka_offset: int | None = None,
    ) -> None:
        super().__init__(topic, kafka_partition, key_schema, key, value_schema, value, timestamp, headers)
        self.kafka_offset: int = kafka_offset
        self.timestamp_type: TimestampType = timestamp_type
        self.original_topic: str | None = topic if original_topic is None else original_topic
        self.original_kafka_partition: int | None = (
            kafka_partition if original_kafka_partition is None else original_kafka_partition
        )
        self.original_kafka_offset: int = (
            kafka_offset if original_kafka_offset is None else original_kafka_offset
        )

    def _copy(self, headers: ConnectHeaders | None = None) -> Self:
        made = super()._copy(headers)
        made.kafka_offset, made.timestamp_type = self.kafka_offset, self.timestamp_type
        made.original_topic = self.original_topic
        made.original_kafka_partition = self.original_kafka_partition
        made.original_kafka_offset = self.original_kafka_offset
        return made

    def _facts(self) -> tuple[Any, ...]:
        return (*super()._facts(), *(getattr(self, slot) for slot in _OF_SINK))


_OF_SINK: Final = SinkRecord.__slots__
