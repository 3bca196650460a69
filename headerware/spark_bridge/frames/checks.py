"""What a frame must have before anything runs: the connector's columns, and none that are in the way."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final

from pyspark.sql.types import BinaryType, DataType, IntegerType, LongType, StringType, TimestampType

from headerware.core.errors import ConfigError
from headerware.spark_bridge.frames.schema import HEADERS, same_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TEXT: Final = (BinaryType(), StringType())
_READ: Final[Mapping[str, tuple[DataType, ...]]] = {
    "topic": (StringType(),),
    "key": (BinaryType(),),
    "value": (BinaryType(),),
    "headers": (HEADERS,),
    "partition": (IntegerType(),),
    "offset": (LongType(),),
    "timestamp": (TimestampType(),),
    "timestampType": (IntegerType(),),
}
_OPTIONAL: Final = frozenset({"key", "partition", "offset", "timestamp", "timestampType"})
_WRITTEN: Final[Mapping[str, tuple[DataType, ...]]] = {
    "topic": (StringType(),),
    "key": _TEXT,
    "value": _TEXT,
    "headers": (HEADERS,),
    "partition": (IntegerType(),),
    "timestamp": (TimestampType(),),
}
_OPTIONAL_TO_WRITE: Final = frozenset({"key", "headers", "partition", "timestamp"})
_HINTS: Final = {
    "headers": 'read the topic with .option("includeHeaders", "true"), or with kafka_source()',
    "partition": "slices and repeats are told by where they were read, so keep partition and offset",
    "offset": "slices and repeats are told by where they were read, so keep partition and offset",
}


def check_read(frame: DataFrame, *, needs_position: bool) -> None:
    """Refuse a frame that cannot be decoded.

    Args:
        frame: the frame.
        needs_position: whether the chain must know partition and offset.

    Raises:
        ConfigError: which column is missing, doubled or of another type, and what to do.
    """
    needed = {"partition", "offset"} if needs_position else set()
    _check(frame, _READ, _OPTIONAL - needed)


def check_written(frame: DataFrame, *, typed: frozenset[str]) -> None:
    """Refuse a frame that cannot be encoded.

    Args:
        frame: the frame.
        typed: the columns (key, value) that a serializer of the chain takes in any type.

    Raises:
        ConfigError: which column is missing, doubled or of another type, and what to do.
    """
    _check(frame, {name: types for name, types in _WRITTEN.items() if name not in typed}, _OPTIONAL_TO_WRITE)
    _require_columns(frame, typed - _OPTIONAL_TO_WRITE)


def _check(frame: DataFrame, expected: Mapping[str, tuple[DataType, ...]], optional: frozenset[str]) -> None:
    _require_columns(frame, expected.keys() - optional)
    for field in frame.schema.fields:
        types = expected.get(field.name)
        if types is not None and not any(same_type(field.dataType, each) for each in types):
            wanted = " or ".join(each.simpleString() for each in types)
            raise ConfigError(
                f"expected {wanted}, found {field.dataType.simpleString()}", path=f"column {field.name}"
            )


def _require_columns(frame: DataFrame, names: frozenset[str] | set[str]) -> None:
    found = frame.columns
    for name in sorted(names):
        if name not in found:
            hint = _HINTS.get(name, "the bridge takes frames as Spark's Kafka connector gives them")
            raise ConfigError(f"there is none; {hint}. Found: {', '.join(found)}", path=f"column {name}")
    alike = [name.lower() for name in found]
    doubled = sorted(name for name in found if alike.count(name.lower()) > 1)
    if doubled:
        raise ConfigError(
            "there are several of this name, whatever its case; rename all but one",
            path=f"column {doubled[0]}",
        )


def require_free(frame: DataFrame, names: Collection[str]) -> None:
    """Refuse a frame that has columns of our names, in any case, for Spark does not tell them apart.

    Raises:
        ConfigError: which.
    """
    ours = {name.lower() for name in names}
    taken = sorted(name for name in frame.columns if name.lower() in ours)
    if taken:
        raise ConfigError("the bridge has a column of this name; rename yours", path=f"column {taken[0]}")


def require_mappable(frame: DataFrame) -> None:
    """Refuse a frame with a column that pyspark's ``mapInArrow`` takes for a field of another.

    Raises:
        ConfigError: which.
    """
    dotted = [name for name in frame.columns if "." in name or "`" in name]
    if dotted:
        raise ConfigError(
            "pyspark cannot hand a column to Python that has a dot or a backtick in its name; rename it",
            path=f"column {dotted[0]}",
        )
