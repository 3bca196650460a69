"""The frames of chargeback, as Spark writes schemas.

An hour is when it begins, in UTC; null where a record has no time that a calendar reaches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headerware.core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame

USAGE: Final = (
    "hour timestamp, topic string, owner string, producer string, direction string, group string, "
    "records bigint, bytes bigint, malformed bigint, source string"
)
"""What is counted: the fields of ``headerware.ops.chargeback.Usage``."""

KEYS: Final = ("hour", "topic", "owner", "producer", "direction", "group", "source")
"""What is counted by; the rest are sums."""

OFFSETS: Final = "group string, topic string, partition int, offset bigint, at timestamp"
"""What consumer groups had committed at a moment."""

RECORDS: Final[Mapping[str, str]] = {
    "key": "binary",
    "value": "binary",
    "headers": "array<struct<key:string,value:binary>>",
    "topic": "string",
    "timestamp": "timestamp",
}
"""What a frame of records needs, each as Spark calls its type."""

POSITIONS: Final[Mapping[str, str]] = {"partition": "int", "offset": "bigint"}
"""What it needs besides where reads are told by committed offsets."""

AUDIT: Final[Mapping[str, str]] = {
    "group": "string",
    "topic": "string",
    "hour": "timestamp",
    "records": "bigint",
    "bytes": "bigint",
}
"""What consumers counted of their own reads; there may be ``owner`` and ``producer`` too, of strings."""

_ADVICE: Final = {"headers": "; read the topic with option('includeHeaders', 'true')"}


def require(frame: DataFrame, columns: Mapping[str, str], what: str) -> None:
    """Refuse a frame that lacks a column, or has one of another type.

    Args:
        frame: the frame.
        columns: the types by name.
        what: what the frame is called in the error.

    Raises:
        ConfigError: which column is missing or wrong, what it was expected to be, and what to do.
    """
    found = {field.name: field.dataType.simpleString() for field in frame.schema.fields}
    for name, kind in columns.items():
        seen = found.get(name, "no such column")
        if seen != kind:
            raise ConfigError(f"expected {kind}, found {seen}{_ADVICE.get(name, '')}", path=f"{what}.{name}")
