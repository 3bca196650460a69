"""What a schema may ask for: a survey of a schema that says how far its payloads can be trusted.

fastavro reads in C, without limits: a payload that nests deep enough overflows the stack and ends the
process, five bytes can announce a thousand million nulls, forty small records that each hold the next one
twice are a value of a million million, and a decimal of a megabyte takes minutes. So each schema is surveyed
once:

* how deep its values nest, and whether they can nest without end (a type that holds itself);
* how many values an empty payload can stand for, and how many more each byte can add;
* whether there are decimals, whose cost grows with the square of their length.

From that follows in two multiplications, for most payloads, that nothing can go wrong; the others are
walked first (:mod:`headerware.serdes.avro.walk`).
"""

from __future__ import annotations

import sys
from graphlib import CycleError, TopologicalSorter
from typing import Any, Final, NamedTuple

from headerware.core.errors import SerdeError

PRIMITIVE_BYTES: Final = {
    "null": 0,
    "boolean": 1,
    "int": 1,
    "long": 1,
    "float": 4,
    "double": 8,
    "bytes": 1,
    "string": 1,
}
"""The fewest bytes that a value of each primitive type takes."""
MAX_DECIMAL_BYTES: Final = 1024
"""The length of a decimal: 2,400 digits, at which one takes some tenths of a millisecond."""

FREE_VALUES: Final = 10_000
VALUES_PER_BYTE: Final = 64
"""How many values a payload may stand for by its length: so many, and so many more for each byte.

Only nulls, empty records and the like take no bytes, and a reader's time goes by values. What a reader's own
defaults add is not counted here.
"""


class Limits(NamedTuple):
    """How much schemas and payloads may ask for.

    Attributes:
        max_schema_bytes: the size of a schema's text.
        max_depth: how deep a schema, or a value by it, may nest: records, unions, arrays and maps count.
        max_values: how many values a payload may hold, counting records, unions, arrays and maps too.
        max_named_types: how many records, enumerations and fixed types a schema may define, and how many
            branches a union may have. fastavro copies the table of them for each payload, 70 ns a type.
    """

    max_schema_bytes: int = 1 << 20
    max_depth: int = 128
    max_values: int = 1_000_000
    max_named_types: int = 4_096


STORED: Final = Limits(16 << 20, max_depth=300, max_values=sys.maxsize, max_named_types=sys.maxsize)
"""What stores take: what any serde may; who reads a record by a schema keeps to his own limits."""


class Shape(NamedTuple):
    """What a schema's values can be like.

    Attributes:
        recursive: whether a type holds itself, so that values nest as deep as a payload is long.
        values: the most values that one value is made of, with all arrays and maps empty.
        values_per_byte: how many more each byte of a payload can stand for, at most.
        has_decimals: whether there are decimals of any length.
    """

    recursive: bool
    values: int
    values_per_byte: float
    has_decimals: bool

    def safe_bytes(self, limits: Limits) -> float:
        """Return the length up to which no payload can pass the limits; a negative one where any may."""
        most_values = limits.max_values
        if self.values > FREE_VALUES or self.values_per_byte > VALUES_PER_BYTE:
            most_values = min(most_values, FREE_VALUES)
        room = most_values - self.values
        if self.recursive or room < 0:
            return -1
        most = room / self.values_per_byte if self.values_per_byte else float("inf")
        return min(most, MAX_DECIMAL_BYTES) if self.has_decimals else most


def survey(tree: Any, named: dict[str, Any], limits: Limits, per_record: int = 0) -> Shape:
    """Find out what a schema's values can be like.

    Args:
        tree: the schema with full names, no deeper than the limits allow.
        named: its named types.
        limits: what it may ask for.
        per_record: how many values a reader's defaults add to each record.

    Raises:
        SerdeError: its values nest too deep, are too many, or hold themselves and never end.
    """
    _refuse_endless(named)
    seen = _Survey(named, limits, per_record)
    root = seen.size(tree, 0)
    if root.depth > limits.max_depth:
        raise _too_deep(limits)
    seen.require_few(root)
    return Shape(seen.recursive, root.values, seen.values_per_byte, seen.has_decimals)


class _Size(NamedTuple):
    """What one value of a type takes, without what is in its arrays and maps, and without itself again."""

    values: int
    min_bytes: int
    depth: int


class _Survey:
    def __init__(self, named: dict[str, Any], limits: Limits, per_record: int) -> None:
        self._per_record: Final = per_record
        self._named: Final = named
        self._limits: Final = limits
        self._known: dict[str, _Size] = {}
        self._open: set[str] = set()
        self._held: set[str] = set()
        self.values_per_byte = 0.0
        self.has_decimals = False

    @property
    def recursive(self) -> bool:
        return bool(self._held)

    def size(self, node: Any, depth: int) -> _Size:
        if depth > self._limits.max_depth:
            raise _too_deep(self._limits)
        if isinstance(node, list):
            branches = [self.size(branch, depth + 1) for branch in node] or [_Size(0, 0, 0)]
            return _Size(
                1 + max(branch.values for branch in branches),
                1 + min(branch.min_bytes for branch in branches),
                1 + max(branch.depth for branch in branches),
            )
        kind = node if isinstance(node, str) else node["type"]
        if kind in PRIMITIVE_BYTES:
            self.has_decimals |= kind == "bytes" and is_decimal(node)
            return _Size(1, PRIMITIVE_BYTES[kind], 0)
        if kind == "array":
            return self._repeated(self.size(node["items"], depth + 1), 0)
        if kind == "map":
            return self._repeated(self.size(node["values"], depth + 1), 1)
        return self._named_size(node if isinstance(node, str) else node["name"], depth)

    def _repeated(self, item: _Size, key: int) -> _Size:
        """Take in what an array or a map repeats; a map's keys are values, and take a byte at least."""
        self._add_unit(_Size(item.values + key, item.min_bytes + key, item.depth))
        return _Size(1, 1, 1 + item.depth)

    def _named_size(self, name: str, depth: int) -> _Size:
        if name in self._known:
            return self._known[name]
        if name in self._open:
            self._held.add(name)
            return _Size(0, 0, 0)
        self._open.add(name)
        found = self._defined(self._named[name], depth)
        self._open.discard(name)
        if name in self._held:
            self._add_unit(found)
        self._known[name] = found
        return found

    def _defined(self, node: Any, depth: int) -> _Size:
        if node["type"] == "fixed":
            return _Size(1, node["size"], 0)
        if node["type"] == "enum":
            return _Size(1, 1, 0)
        fields = [self.size(field["type"], depth + 1) for field in node["fields"]]
        return _Size(
            1 + self._per_record + sum(field.values for field in fields),
            sum(field.min_bytes for field in fields),
            1 + max((field.depth for field in fields), default=0),
        )

    def require_few(self, size: _Size) -> None:
        """Refuse a type of which one value is too many."""
        most = self._limits.max_values
        if size.values > most:
            raise SerdeError(f"one value of the schema is made of more than {most}, the limit (max_values)")

    def _add_unit(self, unit: _Size) -> None:
        """Take in what a payload can hold any number of."""
        self.require_few(unit)
        rate = unit.values / unit.min_bytes if unit.min_bytes else float("inf")
        self.values_per_byte = max(self.values_per_byte, rate)


def is_decimal(node: Any) -> bool:
    """Return whether a type is a decimal."""
    return isinstance(node, dict) and node.get("logicalType") == "decimal"


def _refuse_endless(named: dict[str, Any]) -> None:
    """Refuse a record that always holds itself, for no value of it ends."""
    held = {
        name: [child for field in node["fields"] if (child := _record_name(field["type"], named))]
        for name, node in named.items()
        if node["type"] in {"record", "error"}
    }
    try:
        TopologicalSorter(held).prepare()
    except CycleError:
        raise SerdeError("the schema has a record that always holds itself: no value of it can end") from None


def _record_name(node: Any, named: dict[str, Any]) -> str | None:
    name = node.get("name") if isinstance(node, dict) else node
    return name if isinstance(name, str) and name in named else None


def _too_deep(limits: Limits) -> SerdeError:
    return SerdeError(f"the schema nests more than {limits.max_depth} deep, the limit (max_depth)")
