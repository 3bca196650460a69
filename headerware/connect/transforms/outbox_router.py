"""OutboxRouter: turn the rows of an outbox table into events, with the keys of Debezium's router."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, NamedTuple, Self, cast

from headerware.connect.config import NOT_EMPTY_TEXT, ConfigKey, StrictConfig, one_of
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
from headerware.connect.data.times import Instant, to_epoch_ms
from headerware.connect.errors import ArgumentError, ConnectConfigError, ConnectDataError
from headerware.connect.fields.lists import split_escaped, unescaped
from headerware.connect.fields.paths import missing_field
from headerware.connect.fields.structs import SameSchemas, require_map, require_struct
from headerware.connect.fields.topics import legal_topic
from headerware.connect.headers import ConnectHeader
from headerware.connect.java.regex import VALID_PATTERN, java_pattern, replacement
from headerware.connect.modes import STRICT
from headerware.connect.transforms.base import MAX_PLANS, Transform
from headerware.connect.transforms.json_expansion import NotExpandableError, expanded, parsed
from headerware.core.bounded_cache import BoundedCache

if TYPE_CHECKING:
    from headerware.connect.config import ConfigDef
    from headerware.connect.modes import Mode

_Placement = Literal["header", "envelope", "partition"]
_PLACEMENTS: Final = ("header", "envelope", "partition")
_PLACEMENT_KEY: Final = "table.fields.additional.placement"


def _column_key(name: str, default: str | None, doc: str) -> ConfigKey:
    return ConfigKey(
        name=name, type="STRING", default=default, importance="LOW", check=NOT_EMPTY_TEXT, doc=doc
    )


def _flag(name: str, doc: str, *, default: bool = False) -> ConfigKey:
    return ConfigKey(name=name, type="BOOLEAN", default=default, doc=doc)


_log: Final = logging.getLogger("headerware.connect")
_LEVELS: Final = {"warn": logging.WARNING, "error": logging.ERROR}
_ENVELOPE: Final = ".Envelope"
_DELETE: Final = "d"
_EVENTS: Final = ("c", "r")
"""The operations that carry an event: inserts, and rows that existed at the first snapshot."""
_MAX_TOPICS: Final = 2048


class OutboxRouter(Transform):
    """Turn the inserted rows of an outbox table into the events that they hold (Debezium's EventRouter).

    The row's id becomes the header ``id``, ``aggregateid`` the key, ``payload`` the value, ``aggregatetype``
    the topic; the keys name other columns. Further columns go to headers, to an envelope around the payload,
    or choose the partition. Tombstones and deleted rows are dropped; other changes are logged and dropped, or
    refused. A record that is not a change event, such as a heartbeat, stays as it is. Values without schemas
    are accepted, too, if they are dicts with ``op`` and ``after``.

    Unlike in Debezium, the name of an envelope's schema follows each row's topic, not the first row's topic,
    and a topic that Kafka would refuse is refused.
    """

    CONFIG: ClassVar[ConfigDef] = StrictConfig(
        _column_key(
            "table.field.event.id", "id", "The column with the event's id, which becomes the header id."
        ),
        _column_key("table.field.event.key", "aggregateid", "The column with the record's key."),
        _column_key(
            "table.field.event.type",
            "type",
            f"The column with the event's type, which is ignored; place it with {_PLACEMENT_KEY}.",
        ),
        _column_key(
            "table.field.event.timestamp",
            None,
            "The column with the record's timestamp; by default the timestamp of the change.",
        ),
        _column_key("table.field.event.payload", "payload", "The column with the record's value."),
        _column_key(
            "table.field.event.schema.version", None, "The column with the version of the envelope's schema."
        ),
        ConfigKey(
            name=_PLACEMENT_KEY,
            type="LIST",
            default=[],
            importance="HIGH",
            doc="Further columns as column:placement or column:placement:alias; placements are header, "
            "envelope and partition.",
        ),
        _flag(
            "table.fields.additional.error.on.missing",
            "Whether to refuse a row that lacks a further column; otherwise the column is skipped.",
            default=True,
        ),
        _flag(
            "table.expand.json.payload",
            "Whether a payload that is a JSON text becomes a value with a schema.",
        ),
        ConfigKey(
            name="table.json.payload.null.behavior",
            type="STRING",
            default="ignore",
            check=one_of("ignore", "optional_bytes"),
            doc="Whether nulls in a JSON payload are left out, or become optional bytes.",
        ),
        ConfigKey(
            name="table.op.invalid.behavior",
            type="STRING",
            default="warn",
            check=one_of("warn", "error", "fatal"),
            doc="What to do with a change that is neither an insert nor a delete: warn and error log and "
            "drop it, fatal refuses it.",
        ),
        ConfigKey(
            name="route.by.field",
            type="STRING",
            default="aggregatetype",
            importance="HIGH",
            check=NOT_EMPTY_TEXT,
            doc="The column that chooses the topic.",
        ),
        ConfigKey(
            name="route.topic.regex",
            type="STRING",
            default="(?<routedByValue>.*)",
            importance="LOW",
            check=VALID_PATTERN,
            doc="The regular expression that this column must match to be replaced.",
        ),
        ConfigKey(
            name="route.topic.replacement",
            type="STRING",
            default="outbox.event.${routedByValue}",
            importance="HIGH",
            doc="The topic, with the groups of route.topic.regex.",
        ),
        _flag("route.tombstone.on.empty.payload", "Whether an empty payload makes a tombstone."),
    )

    def __init__(self, config: Mapping[str, Any] | None = None, *, mode: Mode = STRICT) -> None:
        super().__init__(config, mode=mode)
        options = self.options
        self._columns: Final = _Columns.of(options)
        self._dicts: Final = _DictRows(self._columns)
        self._route: Final = _routing(options["route.topic.regex"], options["route.topic.replacement"])
        self._tombstones: Final[bool] = options["route.tombstone.on.empty.payload"]
        self._invalid: Final[int | None] = _LEVELS.get(options["table.op.invalid.behavior"])
        self._plans: Final[BoundedCache[int, tuple[Schema, _StructRows]]] = BoundedCache(MAX_PLANS)

    def apply(self, record: Any) -> Any:
        """Return the event of a row, or None if the change carries no event.

        Raises:
            ConnectDataError: the row lacks a column, or the change is not one of an outbox.
        """
        value = record.value
        if value is None:
            return None
        if not _is_change(record):
            return record
        operation = value["op"]
        if operation == _DELETE:
            return None
        if operation not in _EVENTS:
            return self._unexpected()
        rows = self._dicts if record.value_schema is None else self._rows(value.schema)
        return self._made(record, rows.event(value))

    def _unexpected(self) -> None:
        if self._invalid is None:
            raise ConnectDataError("expected an insert or a delete in an outbox table, found another change")
        _log.log(self._invalid, "dropped a change of an outbox table that is neither an insert nor a delete")

    def _rows(self, schema: Schema) -> _StructRows:
        known = self._plans.get(id(schema))
        if known is not None:
            return known[1]
        rows = _StructRows(self._columns, schema)
        self._plans[id(schema)] = (schema, rows)
        return rows

    def _made(self, record: Any, event: _Event) -> Any:
        schema, value = event.value
        if self._tombstones and event.is_empty:
            schema = value = None
        headers = record.headers.duplicate()
        for header in event.headers:
            headers.add_header(header)
        return record.new_record(
            self._route(event.routed_by),
            event.partition,
            *event.key,
            schema,
            value,
            event.timestamp,
            headers,
        )


def _is_change(record: Any) -> bool:
    """Return whether a record's value is a change that Debezium captured."""
    schema, value = record.value_schema, record.value
    if schema is None:
        return isinstance(value, dict) and "op" in value and "after" in value
    if schema.name is None or not schema.name.endswith(_ENVELOPE):
        return False
    return "op" in require_struct(value, "a change of an outbox table")


def _routing(regex: str, text: str) -> Callable[[str], str]:
    """Return the function that returns the topic for the value of the column that chooses it."""
    pattern = java_pattern(regex, path="route.topic.regex")
    try:
        replace = replacement(pattern, text)
    except ArgumentError as error:
        raise ConnectConfigError(str(error), path="route.topic.replacement") from error

    def topic(routed_by: str) -> str:
        match = pattern.fullmatch(routed_by)
        return legal_topic(routed_by if match is None else replace(match))

    return BoundedCache[str, str](_MAX_TOPICS, topic).__getitem__


_ID_HEADER: Final = "id"
_PAYLOAD: Final = "payload"


class _Placed(NamedTuple):
    """A further column, its placement, and its name there."""

    column: str
    placement: _Placement
    alias: str


def _placed(text: str) -> _Placed:
    parts = [unescaped(part, _PLACEMENT_KEY).strip() for part in split_escaped(text, ":")]
    if len(parts) not in {2, 3} or "" in parts:
        raise ConnectConfigError(
            f"expected column:placement or column:placement:alias, found {text!r}", path=_PLACEMENT_KEY
        )
    placement: Any = parts[1].lower()
    if placement not in _PLACEMENTS:
        raise ConnectConfigError(
            f"expected a placement of {', '.join(_PLACEMENTS)}, found {parts[1]!r}", path=_PLACEMENT_KEY
        )
    return _Placed(parts[0], cast("_Placement", placement), parts[-1] if len(parts) == 3 else parts[0])


class _Columns(NamedTuple):
    """The columns of an outbox table, and how to treat the payload."""

    id: str
    key: str
    payload: str
    routed_by: str
    timestamp: str | None
    version: str | None
    additional: list[_Placed]
    refuses_missing: bool
    expands: bool
    keeps_nulls: bool

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Self:
        return cls(
            id=options["table.field.event.id"],
            key=options["table.field.event.key"],
            payload=options["table.field.event.payload"],
            routed_by=options["route.by.field"],
            timestamp=options["table.field.event.timestamp"],
            version=options["table.field.event.schema.version"],
            additional=[_placed(text) for text in options[_PLACEMENT_KEY]],
            refuses_missing=options["table.fields.additional.error.on.missing"],
            expands=options["table.expand.json.payload"],
            keeps_nulls=options["table.json.payload.null.behavior"] == "optional_bytes",
        )

    @property
    def has_envelope(self) -> bool:
        """Whether a further column goes to an envelope around the payload."""
        return any(each.placement == "envelope" for each in self.additional)


class _Event(NamedTuple):
    """The event in a row of an outbox table."""

    routed_by: str
    partition: int | None
    key: SchemaAndValue
    value: SchemaAndValue
    is_empty: bool
    timestamp: int | None
    headers: list[ConnectHeader]


def _no_unit(name: str) -> ConnectDataError:
    """Return the error for a timestamp whose unit is not known."""
    return ConnectDataError(f"the column {name!r} has no schema that states the unit of its timestamps")


def _text_of(value: Any, name: str) -> str:
    """Return a column's value, or raise ConnectDataError if it is not text."""
    if not isinstance(value, str):
        raise ConnectDataError(f"expected a text in the column {name!r}, found {type(value).__name__}")
    return value


def _partition_of(value: Any) -> int | None:
    """Return the partition that a column chooses, or None; refuse a value that is no partition's number."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ConnectDataError("expected a partition's number, which is an integer from 0")
    return int(value)


def _is_empty(payload: Any) -> bool:
    """Return whether a payload is null, or text or bytes with only white space."""
    return payload is None or (isinstance(payload, str | bytes) and not payload.strip())


def _warn_of_payload() -> None:
    """Log that a payload stays text; the payload itself may be secret."""
    _log.warning("a payload of an outbox table cannot be expanded as JSON; it stays text")


_MAX_ENVELOPES: Final = 256
_UNITS: Final[dict[str, Callable[[Any], int]]] = {
    "io.debezium.time.Timestamp": int,
    "io.debezium.time.MicroTimestamp": lambda value: int(value) // 1_000,
    "io.debezium.time.NanoTimestamp": lambda value: int(value) // 1_000_000,
    TIMESTAMP: to_epoch_ms,
}
"""The conversions to milliseconds, by the names of the schemas that state the unit."""


class _StructRows:
    """Read the rows of changes of one schema, or raise ConnectDataError if it lacks a column."""

    def __init__(self, columns: _Columns, schema: Schema) -> None:
        after = schema.by_name.get("after")
        if after is None or after.schema.type is not Type.STRUCT:
            raise ConnectDataError(f"expected a change with a row in its field 'after', found {schema}")
        self._columns: Final = columns
        self._same: Final = SameSchemas()
        self._change: Final = schema
        self._after: Final = after
        self._row: Final = after.schema
        self._id: Final = self._field(columns.id)
        self._key: Final = self._field(columns.key)
        self._payload: Final = self._field(columns.payload)
        self._routed_by: Final = self._field(columns.routed_by, Type.STRING)
        self._version: Final = None if columns.version is None else self._field(columns.version, Type.INT32)
        self._timestamp: Final = self._timestamps()
        self._placed: Final = self._additional()
        self._partitions: Final = [
            self._field(each.column, Type.INT32) for each, _ in self._placed if each.placement == "partition"
        ]
        self._envelopes: Final = lru_cache(_MAX_ENVELOPES)(self._envelope)

    def event(self, change: Struct) -> _Event:
        """Return the event of a change; raise ConnectDataError if it has no row, or lacks a column."""
        change = self._same.struct(change, self._change, "a change of an outbox table")
        row = self._same.struct(change.get(self._after), self._row, "the row of an outbox table")
        routed_by = _text_of(row.get(self._routed_by), self._routed_by.name)
        payload = self._expanded(row.get(self._payload))
        headers = [ConnectHeader(_ID_HEADER, self._id.schema, row.get(self._id))]
        headers += [
            ConnectHeader(each.alias, field.schema, row.get(field))
            for each, field in self._placed
            if each.placement == "header"
        ]
        return _Event(
            routed_by=routed_by,
            partition=_partition_of(row.get(self._partitions[-1])) if self._partitions else None,
            key=SchemaAndValue(self._key.schema, row.get(self._key)),
            value=self._enveloped(payload, row, routed_by) if self._columns.has_envelope else payload,
            is_empty=_is_empty(payload.value),
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

    def _additional(self) -> list[tuple[_Placed, Field]]:
        columns = self._columns
        kept = [
            each for each in columns.additional if columns.refuses_missing or each.column in self._row.by_name
        ]
        return [(each, self._field(each.column)) for each in kept]

    def _timestamps(self) -> Callable[[Struct, Struct], int | None]:
        own = None if self._columns.timestamp is None else self._field(self._columns.timestamp)
        captured = self._change.by_name.get("ts_ms")
        unit = None
        if own is not None and own.schema.type is Type.INT64:
            unit = _UNITS.get(own.schema.name or "")
        if own is not None and unit is None:
            raise _no_unit(own.name)

        def read(change: Struct, row: Struct) -> int | None:
            found = None if own is None else row.get(own)
            if found is not None and unit is not None:
                return unit(found)
            at = None if captured is None else change.get(captured)
            return None if at is None else int(at)

        return read

    def _expanded(self, payload: Any) -> SchemaAndValue:
        if self._columns.expands and isinstance(payload, str):
            try:
                return expanded(payload, self._columns.payload, keeps_nulls=self._columns.keeps_nulls)
            except NotExpandableError:
                _warn_of_payload()
        return SchemaAndValue(self._payload.schema, payload)

    def _enveloped(self, payload: SchemaAndValue, row: Struct, routed_by: str) -> SchemaAndValue:
        version = None if self._version is None else row.get(self._version)
        schema = self._envelopes(payload.schema or self._payload.schema, routed_by, version)
        placed = [row.get(field) for each, field in self._placed if each.placement == "envelope"]
        return SchemaAndValue(schema, Struct.trusted(schema, [payload.value, *placed]))

    def _envelope(self, payload: Schema, routed_by: str, version: int | None) -> Schema:
        builder = SchemaBuilder.struct().name(_envelope_name(self._row.name, routed_by))
        if version is not None:
            builder.version(int(version))
        builder.field(_PAYLOAD, payload)
        for each, field in self._placed:
            if each.placement == "envelope":
                builder.field(each.alias, field.schema)
        return builder.build()


def _envelope_name(row: str | None, routed_by: str) -> str:
    """Return the name of the row's schema, with the topic's name inserted before its last word."""
    if row is None:
        return routed_by
    space, dot, last = row.rpartition(".")
    return f"{space}{dot}{routed_by}.{last}"


class _DictRows:
    """Read rows without a schema."""

    def __init__(self, columns: _Columns) -> None:
        self._columns: Final = columns

    def event(self, change: Any) -> _Event:
        """Return the event of a change; raise ConnectDataError if it has no row, or lacks a column."""
        columns, row = self._columns, require_map(change["after"], "the row of an outbox table")
        placed = [each for each in columns.additional if columns.refuses_missing or each.column in row]
        headers = [(_ID_HEADER, columns.id)] + [
            (each.alias, each.column) for each in placed if each.placement == "header"
        ]
        partitions = [_column(row, each.column) for each in placed if each.placement == "partition"]
        payload = self._payload(_column(row, columns.payload))
        value = payload
        if columns.has_envelope:
            value = {_PAYLOAD: payload}
            value |= {
                each.alias: _column(row, each.column) for each in placed if each.placement == "envelope"
            }
        return _Event(
            routed_by=_text_of(_column(row, columns.routed_by), columns.routed_by),
            partition=_partition_of(partitions[-1]) if partitions else None,
            key=SchemaAndValue(None, _column(row, columns.key)),
            value=SchemaAndValue(None, value),
            is_empty=_is_empty(payload),
            timestamp=self._timestamp(change, row),
            headers=[ConnectHeader(alias, None, _column(row, column)) for alias, column in headers],
        )

    def _payload(self, payload: Any) -> Any:
        if not self._columns.expands or not isinstance(payload, str):
            return payload
        try:
            return parsed(payload)
        except NotExpandableError:
            _warn_of_payload()
            return payload

    def _timestamp(self, change: dict[str, Any], row: dict[str, Any]) -> int | None:
        found = None if self._columns.timestamp is None else _column(row, self._columns.timestamp)
        if found is None:
            found = change.get("ts_ms")
            return found if type(found) is int else None
        if isinstance(found, datetime | Instant):
            return to_epoch_ms(found)
        raise _no_unit(self._columns.timestamp or "")


def _column(row: dict[str, Any], name: str) -> Any:
    if name not in row:
        raise ConnectDataError(f"the row of an outbox table has no column {name!r}")
    return row[name]
