"""Typed columns on the executors: the objects that serdes give become Arrow columns, and come back.

Objects are None, bool, int, float, str, bytes, Decimal, date, time, datetime, timedelta and UUID, and dicts
and lists of them; Connect's structs, and its values beside a schema, are taken for what they hold. A type
comes from :func:`~headerware.spark_bridge.frames.avro_types.avro_type`, from
:func:`~headerware.spark_bridge.frames.json_types.json_type` or from the user, by way of pyspark's
``to_arrow_type``. Neither function needs a JVM.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from headerware.core.errors import SerdeError
from headerware.spark_bridge.frames.connect_objects import CLASSES, connect_object
from headerware.spark_bridge.frames.typed_columns import node_of
from headerware.spark_bridge.frames.typed_layout import spread
from headerware.spark_bridge.frames.typed_objects import read

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa


class Column(NamedTuple):
    """Objects as a column.

    Attributes:
        array: one item per object; null where the object was None, and where it does not fit.
        failures: by row, where in the object what does not fit, such as ``items[3].price: expected double,
            found str``; never with a value in it.
    """

    array: pa.Array
    failures: dict[int, str]


def column(objects: Sequence[Any], kind: pa.DataType) -> Column:
    """Put objects into a column; one that does not fit takes no other along.

    A dict's fields that the type does not have are left out, as Spark's own readers leave them out. A field
    that is missing is null, where the type lets it be null; else the object does not fit. None is null at the
    top whatever the type, for a tombstone has no value. Nothing is rounded, cut or guessed: an integer beyond
    a column's range, a decimal with more digits, text for bytes, a datetime without a zone for an instant
    (or with one for a local time) do not fit. These are taken though they are of another class: an int for a
    double that holds it exactly, a float without a fraction for an integer, a UUID for text, a time for an
    int (milliseconds) or a long (microseconds) since midnight, a tuple for an array. An object of a union
    goes to the first member of its own class that takes it, or else to the first that takes it at all;
    dicts, to the struct with just their fields.

    Args:
        objects: what a deserializer gave, one per row.
        kind: the column's Arrow type; timestamps in microseconds.

    Raises:
        ConfigError: the type is, or holds, none that Spark's columns have here; or the column would pass
            2 GiB, and the batches are to be smaller.
    """
    node, rows = node_of(kind), list(objects)
    if not CLASSES.isdisjoint(map(type, rows)):
        rows = list(map(connect_object, rows))
    array, misfits = node.build(rows)
    if misfits:
        good = [row for row in range(len(rows)) if row not in misfits]
        array = spread(node.build([rows[row] for row in good])[0], good, len(rows))
    return Column(array, {row: str(misfits[row]) for row in sorted(misfits)})


def objects(array: pa.Array) -> list[Any]:
    """Return a column's objects, as serializers take them.

    Structs and maps become dicts, arrays lists, decimals ``Decimal`` of the column's scale, timestamps
    datetimes in UTC, local ones datetimes without a zone, Spark's unions the one member that is there.

    Args:
        array: the column, such as Spark hands to ``mapInArrow``; any zone of its timestamps stands for the
            same instants.

    Returns:
        one object per row; in place of an object that cannot be made, a SerdeError that says why and where:
        a date outside of the years 1 to 9999, text that is no UTF-8, a map that has a key twice.

    Raises:
        ConfigError: the column is, or holds, a type that objects do not have.
    """
    found, misfits = read(array)
    for row, misfit in misfits.items():
        found[row] = SerdeError(str(misfit))
    return found
