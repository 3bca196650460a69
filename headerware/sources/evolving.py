"""The record of a source between extraction and the chain."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from headerware.connect.data.schema import Schema
from headerware.connect.wire_records import joined
from headerware.core.headers import EMPTY, Headers
from headerware.core.record import Record

if TYPE_CHECKING:
    from typing import Self

SOURCE_HEADER: Final = "hw.source"
"""The name of the source that a record was read from; its offsets are stored under this name."""
KEY_HEADER: Final = "hw.source.key"
"""The native key as text, if the source has a key serde."""
NUMBER_HEADER: Final = "hw.source.record"
"""The number of the record in its object, in decimal digits; the first is 1."""


class EvolvingRecord(msgspec.Struct, frozen=True):
    """One record of an object, before it becomes a record for the chain.

    Args:
        native_key: the key of the object, which must not be changed.
        record_number: the record's number in the object, which must not be changed.
        topic: the topic.
        partition: the partition, or None to let the partitioner choose.
        key: the record's key.
        key_schema: the schema of the key, or None.
        value: the value.
        value_schema: the schema of the value, or None.
        headers: the headers.
        timestamp_ms: milliseconds since the epoch, or None for the time of sending.
        properties: the properties of the offset, which are stored when the record is stored.
    """

    native_key: Any
    record_number: int
    topic: str
    partition: int | None = None
    key: Any = None
    key_schema: Schema | None = None
    value: Any = None
    value_schema: Schema | None = None
    headers: Headers = EMPTY
    timestamp_ms: int | None = None
    properties: Mapping[str, Any] | None = None

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some fields changed."""
        return msgspec.structs.replace(self, **changes)

    def to_record(self) -> Record:
        """Return the record for the chain, with the key and the value joined with their schemas."""
        value, key = joined(self.value_schema, self.value), joined(self.key_schema, self.key)
        return Record(self.topic, value, key, self.headers, self.partition, self.timestamp_ms)
