"""OutboxRouter: make events of the rows that Debezium captures from an outbox table.

transforms=outbox
transforms.outbox.type=OutboxRouter
transforms.outbox.route.by.field=aggregatetype
transforms.outbox.route.topic.replacement=outbox.event.${routedByValue}
transforms.outbox.table.fields.additional.placement=type:header:eventType,tenant:envelope
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, ClassVar, Final

from headerware.connect.errors import ArgumentError, ConnectConfigError, ConnectDataError
from headerware.connect.fields.requirements import require_struct
from headerware.connect.java.regex import java_pattern, replacement
from headerware.connect.modes import STRICT
from headerware.connect.transforms.base import Transform
from headerware.connect.transforms.outbox_dicts import DictRows
from headerware.connect.transforms.outbox_events import Event, OutboxNames
from headerware.connect.transforms.outbox_options import OUTBOX, additional
from headerware.connect.transforms.outbox_rows import StructRows
from headerware.connect.transforms.topics import legal_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headerware.connect.config import ConfigDef
    from headerware.connect.data.schema import Schema
    from headerware.connect.modes import Mode

_log: Final = logging.getLogger("headerware.connect")
_LEVELS: Final = {"warn": logging.WARNING, "error": logging.ERROR}
_ENVELOPE: Final = ".Envelope"
_DELETE: Final = "d"
_EVENTS: Final = ("c", "r")
"""The operations that bring an event: inserts, and rows that were there at the first snapshot."""
_PLANS: Final = 64
_TOPICS: Final = 1024


class OutboxRouter(Transform):
    """Turn the inserted rows of an outbox table into the events that they hold (Debezium's EventRouter).

    The row's id becomes the header ``id``, ``aggregateid`` the key, ``payload`` the value, ``aggregatetype``
    the topic; the keys name other columns. Further columns go to headers, to an envelope around the payload,
    or choose the partition. Tombstones and deleted rows are dropped; changes that are neither are logged and
    dropped, or refused. What is no change event, such as a heartbeat, stays as it is. Values without schemas
    are taken, too, where they are dicts with ``op`` and ``after``.

    Unlike Debezium's, the name of an envelope's schema follows the row's topic, not the first one's, and a
    topic that Kafka does not take is refused.
    """

    CONFIG: ClassVar[ConfigDef] = OUTBOX

    def __init__(self, config: Mapping[str, Any] | None = None, *, mode: Mode = STRICT) -> None:
        super().__init__(config, mode=mode)
        options = self.options
        self._names: Final = OutboxNames.of(options, additional(options["table.fields.additional.placement"]))
        self._dicts: Final = DictRows(self._names)
        self._route: Final = _routing(options["route.topic.regex"], options["route.topic.replacement"])
        self._tombstones: Final[bool] = options["route.tombstone.on.empty.payload"]
        self._invalid: Final[int | None] = _LEVELS.get(options["table.op.invalid.behavior"])
        self._plans: dict[int, tuple[Schema, StructRows]] = {}

    def apply(self, record: Any) -> Any:
        """Return the event of a row, or None where it brings none.

        Raises:
            ConnectDataError: the row lacks a column, or the change is none that an outbox has.
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

    def _rows(self, schema: Schema) -> StructRows:
        known = self._plans.get(id(schema))
        if known is not None:
            return known[1]
        if len(self._plans) >= _PLANS:
            self._plans = {}
        rows = StructRows(self._names, schema)
        self._plans[id(schema)] = (schema, rows)
        return rows

    def _made(self, record: Any, event: Event) -> Any:
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
    """Return what makes the topic of the column that chooses it."""
    pattern = java_pattern(regex, path="route.topic.regex")
    try:
        replace = replacement(pattern, text)
    except ArgumentError as error:
        raise ConnectConfigError(str(error), path="route.topic.replacement") from error
    known: dict[str, str] = {}

    def route(routed_by: str) -> str:
        topic = known.get(routed_by)
        if topic is None:
            if len(known) >= _TOPICS:
                known.clear()
            match = pattern.fullmatch(routed_by)
            topic = known[routed_by] = legal_topic(routed_by if match is None else replace(match))
        return topic

    return route
