"""Objects become what fastavro writes: dicts, lists and scalars.

Dicts are taken as they are. Dataclasses, msgspec Structs, attrs classes, enumerations and sets, at the top
or inside of dicts and lists, become builtin types as msgspec converts them; bytes, datetimes, dates, times,
decimals and UUIDs stay what they are, for Avro has logical types for them. Fields have the names that msgspec
encodes; those that a Struct with ``omit_defaults`` leaves out get the schema's defaults.
"""

from __future__ import annotations

import datetime as dt
import decimal
import uuid
from typing import Any, Final

import msgspec

_KEPT: Final = (
    bytes,
    bytearray,
    memoryview,
    dt.datetime,
    dt.date,
    dt.time,
    dt.timedelta,
    decimal.Decimal,
    uuid.UUID,
)
DIRECT: Final = frozenset({dict, list, tuple, str, int, float, bool, *_KEPT})
"""The types whose objects fastavro takes as they are."""


def plain(value: Any) -> Any:
    """Return an object as builtin types, with all that it holds.

    Raises:
        TypeError: it holds an object of a type that nobody knows how to convert.
        RecursionError: it holds itself.
    """
    return msgspec.to_builtins(value, builtin_types=_KEPT)


def own_schema(kind: type) -> Any:
    """Give the schema that a class carries as ``__avro_schema__`` (JSON text, or a dict or list), or None."""
    return getattr(kind, "__avro_schema__", None)
