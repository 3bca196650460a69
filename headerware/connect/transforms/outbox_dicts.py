"""Read events out of the rows of an outbox table that have no schema."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from headerware.connect.data.schema import SchemaAndValue
from headerware.connect.data.times import Instant, to_epoch_ms
from headerware.connect.errors import ConnectDataError
from headerware.connect.fields.requirements import require_map
from headerware.connect.headers import ConnectHeader
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
from headerware.connect.transforms.outbox_json import NotExpandableError, parsed


class DictRows:
    """Read rows without a schema.

    Args:
        names: the columns.
    """

    def __init__(self, names: OutboxNames) -> None:
        self._names: Final = names

    def event(self, change: Any) -> Event:
        """Return the event of a change.

        Raises:
            ConnectDataError: there is no row, or it lacks a column.
        """
        names, row = self._names, require_map(change["after"], "the row of an outbox table")
        placed = [each for each in names.additional if names.refuses_missing or each.column in row]
        headers = [(ID_HEADER, names.id)] + [
            (each.alias, each.column) for each in placed if each.placement == "header"
        ]
        partitions = [_column(row, each.column) for each in placed if each.placement == "partition"]
        payload = self._payload(_column(row, names.payload))
        value = payload
        if names.has_envelope:
            value = {PAYLOAD: payload}
            value |= {
                each.alias: _column(row, each.column) for each in placed if each.placement == "envelope"
            }
        return Event(
            routed_by=text_of(_column(row, names.routed_by), names.routed_by),
            partition=partition_of(partitions[-1]) if partitions else None,
            key=SchemaAndValue(None, _column(row, names.key)),
            value=SchemaAndValue(None, value),
            is_empty=is_empty(payload),
            timestamp=self._timestamp(change, row),
            headers=[ConnectHeader(alias, None, _column(row, column)) for alias, column in headers],
        )

    def _payload(self, payload: Any) -> Any:
        if not self._names.expands or not isinstance(payload, str):
            return payload
        try:
            return parsed(payload)
        except NotExpandableError:
            warn_of_payload()
            return payload

    def _timestamp(self, change: dict[str, Any], row: dict[str, Any]) -> int | None:
        found = None if self._names.timestamp is None else _column(row, self._names.timestamp)
        if found is None:
            found = change.get("ts_ms")
            return found if type(found) is int else None
        if isinstance(found, datetime | Instant):
            return to_epoch_ms(found)
        raise no_unit(self._names.timestamp or "")


def _column(row: dict[str, Any], name: str) -> Any:
    if name not in row:
        raise ConnectDataError(f"the row of an outbox table has no column {name!r}")
    return row[name]
