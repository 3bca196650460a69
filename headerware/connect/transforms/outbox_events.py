"""What an outbox table's row holds, and where; what reading rows with and without schemas shares."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, Self

from headerware.connect.data.schema import SchemaAndValue
from headerware.connect.errors import ConnectDataError
from headerware.connect.headers import ConnectHeader
from headerware.connect.transforms.outbox_options import Additional

_log: Final = logging.getLogger("headerware.connect")
ID_HEADER: Final = "id"
"""The header that has the event's id."""
PAYLOAD: Final = "payload"
"""The payload's field in an envelope."""


class OutboxNames(NamedTuple):
    """The columns of an outbox table, and what is done with the payload."""

    id: str
    key: str
    payload: str
    routed_by: str
    timestamp: str | None
    version: str | None
    additional: list[Additional]
    refuses_missing: bool
    expands: bool
    keeps_nulls: bool

    @classmethod
    def of(cls, options: Mapping[str, Any], placed: list[Additional]) -> Self:
        """Read them from an outbox router's options.

        Args:
            options: the options.
            placed: the further columns.
        """
        return cls(
            id=options["table.field.event.id"],
            key=options["table.field.event.key"],
            payload=options["table.field.event.payload"],
            routed_by=options["route.by.field"],
            timestamp=options["table.field.event.timestamp"],
            version=options["table.field.event.schema.version"],
            additional=placed,
            refuses_missing=options["table.fields.additional.error.on.missing"],
            expands=options["table.expand.json.payload"],
            keeps_nulls=options["table.json.payload.null.behavior"] == "optional_bytes",
        )

    @property
    def has_envelope(self) -> bool:
        """Whether a further column goes to an envelope around the payload."""
        return any(each.placement == "envelope" for each in self.additional)


class Event(NamedTuple):
    """What a row of an outbox table holds."""

    routed_by: str
    partition: int | None
    key: SchemaAndValue
    value: SchemaAndValue
    is_empty: bool
    timestamp: int | None
    headers: list[ConnectHeader]


def no_unit(name: str) -> ConnectDataError:
    """Make the error for a timestamp whose unit nothing says."""
    return ConnectDataError(f"the column {name!r} has no schema that says the unit of its timestamps")


def text_of(value: Any, name: str) -> str:
    """Return the text of a column.

    Raises:
        ConnectDataError: it is none.
    """
    if not isinstance(value, str):
        raise ConnectDataError(f"expected a text in the column {name!r}, found {type(value).__name__}")
    return value


def partition_of(value: Any) -> int | None:
    """Return the partition that a column chooses; None where it chooses none.

    Raises:
        ConnectDataError: it is no partition's number.
    """
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ConnectDataError("expected a partition's number, which is an integer from 0")
    return int(value)


def is_empty(payload: Any) -> bool:
    """Return whether a payload is null, or a text or bytes with nothing in it but white space."""
    return payload is None or (isinstance(payload, str | bytes) and not payload.strip())


def warn_of_payload() -> None:
    """Log that a payload stays text; the payload itself may be secret."""
    _log.warning("a payload of an outbox table cannot be expanded as JSON; it stays text")
