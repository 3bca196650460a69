"""Arrays and maps as Kafka 4.3 makes them of the values that it finds in a text."""

from __future__ import annotations

from typing import Any

from headerware.connect.data.equality import alike
from headerware.connect.data.schema import STRING_SCHEMA, Schema, SchemaAndValue
from headerware.connect.errors import ConnectDataError
from headerware.connect.values.aligning import aligned
from headerware.connect.values.shapes import array_of, map_of, widened

_Found = SchemaAndValue | None
"""A value with its schema, or None for null."""


def array_value(found: list[_Found]) -> SchemaAndValue:
    """Make an array of values, with their schema where they have one in common.

    Args:
        found: the values; None for null.

    Raises:
        ConnectDataError: there are nulls among others, or points in time among numbers.
    """
    schema, is_even = _common(found)
    values = [None if item is None else item[1] for item in found]
    if schema is not None and not is_even:
        values = [aligned(schema, value) for value in values]
    return SchemaAndValue(array_of(schema), values)


def map_value(keys: list[SchemaAndValue], items: list[_Found]) -> SchemaAndValue:
    """Make a map of values, with their schemas where the keys have one in common.

    Args:
        keys: the keys; of equal ones the first place and the last value count.
        items: the value of each key; None for null.

    Raises:
        ConnectDataError: as in :func:`array_value`, or a dict cannot hold the keys.
    """
    of_key, keys_are_even = _common(keys)
    of_item, items_are_even = _common(items)
    plain = of_key is STRING_SCHEMA and keys_are_even
    names = [key[1] for key in keys] if plain else _names(keys)
    values = [None if item is None else item[1] for item in items]
    made = dict(zip(names, values, strict=True))
    if of_key is None:
        return SchemaAndValue(map_of(None, None), made)
    if not keys_are_even:
        made = {aligned(of_key, name): value for name, value in made.items()}
    if of_item is not None and not items_are_even:
        made = {name: aligned(of_item, value) for name, value in made.items()}
    return SchemaAndValue(map_of(of_key, of_item), made)


def _common(found: list[SchemaAndValue] | list[_Found]) -> tuple[Schema | None, bool]:
    """Return the schema of several values, and whether all of them have just that.

    It is None where they have none in common, or are all null.
    """
    schema: Schema | None = None
    is_even = True
    for item in found:
        of_item = None if item is None else item[0]
        if of_item is schema and of_item is not None:
            continue
        if of_item is None:
            is_even = False
        elif schema is None:
            schema = of_item
        else:
            is_even = False
            schema = widened(schema, of_item)
            if schema is None:
                break
    return schema, is_even


def _names(keys: list[SchemaAndValue]) -> list[Any]:
    known: dict[Any, Any] = {}
    names = [frozen(key.value) for key in keys]
    if not all(alike(known.setdefault(name, name), name) for name in names):
        raise ConnectDataError("expected keys that a dict can tell apart, which true and 1 are not")
    return names


class MapKey(dict[Any, Any]):
    """A map that is the key of another one; it must not be changed."""

    def __hash__(self) -> int:  # type: ignore[override]  # unlike a dict's, which may change
        return hash(frozenset(self.items()))


def frozen(value: Any) -> Any:
    """Return a value that can be the key of a map: tuples for lists."""
    if isinstance(value, list):
        return tuple(map(frozen, value))
    if isinstance(value, dict):
        return MapKey({frozen(key): frozen(item) for key, item in value.items()})
    return value
