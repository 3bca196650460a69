"""Read events out of the rows of an outbox table that have a schema."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from headerware.connect.data.schema import (
    LOGICAL_CLASSES,
    TIMESTAMP,
    Field,
    Schema,
    SchemaAndValue,
    SchemaBuilder,
    Type,
)
from headerware.connect.data.struct import Struct
from headerware.connect.data.times import to_epoch_ms
from headerware.connect.errors import ConnectDataError
from headerware.connect.fields.paths import missing_field
from headerware.connect.fields.requirements import require_struct
from headerware.connect.headers import ConnectHeader
from headerware.connect.transforms.edits import struct_of
from headerware.connect.transforms.outbox_events import (
    ID_HEADER,
    PAYLOAD,
    Event,
    OutboxNames,
    is_empty,
    no_unit,
    partition_of,
    text_of,
    warn_of_payload,
)
from headerware.connect.transforms.outbox_json import NotExpandableError, expanded
from headerware.connect.transforms.outbox_options import Additional

_SCHEMAS: Final = 256
_UNITS: Final[dict[str, Callable[[Any], int]]] = {
    "io.debezium.time.Timestamp": int,
    "io.debezium.time.MicroTimestamp": lambda value: int(value) // 1_000,
    "io.debezium.time.NanoTimestamp": lambda value: int(value) // 1_000_000,
    TIMESTAMP: to_epoch_ms,
}
"""Gives milliseconds, by the names of the schemas that say the unit."""


class StructRows:
    """Read rows of one schema.

    Args:
        names: the columns.
        schema: the schema of the changes.

    Raises:
        ConnectDataError: a column is missing, or of a type that it cannot have.
    """

    def __init__(self, names: OutboxNames, schema: Schema) -> None:
        after = schema.by_name.get("after")
        if after is None or after.schema.type is not Type.STRUCT:
            raise ConnectDataError(f"expected a change with a row in its field 'after', found {schema}")
        self._names: Final = names
        self._change: Final = schema
        self._after: Final = after
        self._row: Final = after.schema
        self._id: Final = self._field(names.id)
        self._key: Final = self._field(names.key)
        self._payload: Final = self._field(names.payload)
        self._routed_by: Final = self._field(names.routed_by, Type.STRING)
        self._version: Final = None if names.version is None else self._field(names.version, Type.INT32)
        self._timestamp: Final = self._timestamps()
        self._placed: Final = self._additional()
        self._partitions: Final = [
            self._field(each.column, Type.INT32) for each, _ in self._placed if each.placement == "partition"
        ]
        self._envelopes: dict[tuple[Schema, str, int | None], Schema] = {}

    def event(self, change: Struct) -> Event:
        """Return the event of a change.

        Raises:
            ConnectDataError: there is no row, or a column is null that may not be.
        """
        change = struct_of(self._change, change, "a change of an outbox table")
        row = require_struct(change.get(self._after), "the row of an outbox table")
        row = struct_of(self._row, row, "the row of an outbox table")
        routed_by = text_of(row.get(self._routed_by), self._routed_by.name)
        payload = self._expanded(row.get(self._payload))
        headers = [ConnectHeader(ID_HEADER, self._id.schema, row.get(self._id))]
        headers += [
            ConnectHeader(each.alias, field.schema, row.get(field))
            for each, field in self._placed
            if each.placement == "header"
        ]
        return Event(
            routed_by=routed_by,
            partition=partition_of(row.get(self._partitions[-1])) if self._partitions else None,
            key=SchemaAndValue(self._key.schema, row.get(self._key)),
            value=self._enveloped(payload, row, routed_by) if self._names.has_envelope else payload,
            is_empty=is_empty(payload.value),
            timestamp=self._timestamp(change, row),
            headers=headers,
        )

    def _field(self, name: str, kind: Type | None = None) -> Field:
        field = self._row.by_name.get(name)
        if field is None:
            raise missing_field(self._row, name, name)
        if kind is not None and (field.schema.type is not kind or field.schema.name in LOGICAL_CLASSES):
            raise ConnectDataError(
                f"expected {kind.value} in the column {name!r}, found {field.schema.type.value}"
            )
        return field

    def _additional(self) -> list[tuple[Additional, Field]]:
        names = self._names
        kept = [
            each for each in names.additional if names.refuses_missing or each.column in self._row.by_name
        ]
        return [(each, self._field(each.column)) for each in kept]

    def _timestamps(self) -> Callable[[Struct, Struct], int | None]:
        own = None if self._names.timestamp is None else self._field(self._names.timestamp)
        captured = self._change.by_name.get("ts_ms")
        unit = None
        if own is not None and own.schema.type is Type.INT64:
            unit = _UNITS.get(own.schema.name or "")
        if own is not None and unit is None:
            raise no_unit(own.name)

        def read(change: Struct, row: Struct) -> int | None:
            found = None if own is None else row.get(own)
            if found is not None and unit is not None:
                return unit(found)
            at = None if captured is None else change.get(captured)
            return None if at is None else int(at)

        return read

    def _expanded(self, payload: Any) -> SchemaAndValue:
        if self._names.expands and isinstance(payload, str):
            try:
                return expanded(payload, self._names.payload, keeps_nulls=self._names.keeps_nulls)
            except NotExpandableError:
                warn_of_payload()
        return SchemaAndValue(self._payload.schema, payload)

    def _enveloped(self, payload: SchemaAndValue, row: Struct, routed_by: str) -> SchemaAndValue:
        version = None if self._version is None else row.get(self._version)
        schema = self._envelope(payload.schema or self._payload.schema, routed_by, version)
        placed = [row.get(field) for each, field in self._placed if each.placement == "envelope"]
        return SchemaAndValue(schema, Struct.trusted(schema, [payload.value, *placed]))

    def _envelope(self, payload: Schema, routed_by: str, version: int | None) -> Schema:
        known = self._envelopes.get((payload, routed_by, version))
        if known is not None:
            return known
        if len(self._envelopes) >= _SCHEMAS:
            self._envelopes = {}
        builder = SchemaBuilder.struct().name(_envelope_name(self._row.name, routed_by))
        if version is not None:
            builder.version(int(version))
        builder.field(PAYLOAD, payload)
        for each, field in self._placed:
            if each.placement == "envelope":
                builder.field(each.alias, field.schema)
        made = self._envelopes[payload, routed_by, version] = builder.build()
        return made


def _envelope_name(row: str | None, routed_by: str) -> str:
    """Return the row's name with the topic's before its last word."""
    if row is None:
        return routed_by
    space, dot, last = row.rpartition(".")
    return f"{space}{dot}{routed_by}.{last}"
