"""Limits of schemas, payloads and objects.

fastavro reads in C, without limits. A payload that nests deep enough overflows the stack and ends the
process. Five bytes can announce a billion nulls. Forty small records that each contain the next one
twice are a value of a trillion values. A decimal of a megabyte takes minutes. So each schema is surveyed:

* how deep its values nest, and whether they can nest without a limit (a recursive type);
* how many values an empty payload can stand for, and how many more each byte can add;
* whether there are decimals, whose cost grows with the square of their length.

Then the length of most payloads shows that they are safe. The other payloads are walked first
(:func:`walk_payload`): the walk follows Avro's binary encoding without making objects, and counts values. It
is in Python and costs some tenths of a microsecond for each value, but only recursive schemas, and payloads
that could hold too many values, need it.
"""

from __future__ import annotations

import sys
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headerware.core.errors import SerdeError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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
"""The smallest size of a value of each primitive type."""
MAX_DECIMAL_BYTES: Final = 1024
"""The longest decimal: it has 2,400 digits and takes some tenths of a millisecond."""

_FREE_VALUES: Final = 10_000
_VALUES_PER_BYTE: Final = 64
"""How many values a payload may have for each byte, in addition to ``_FREE_VALUES``.

Nulls, empty records and the like take no bytes, but they take a reader's time. The values of a reader's own
defaults are not counted here.
"""


_CONTAINERS: Final = (dict, list, tuple)
_MAX_VARINT_BYTES: Final = 10
_FIXED_BYTES: Final = {"null": 0, "boolean": 1, "float": 4, "double": 8}


class Limits(NamedTuple):
    """The limits of schemas and payloads; see :class:`~headerware.serdes.Avro`."""

    max_schema_bytes: int = 1 << 20
    max_depth: int = 128
    max_values: int = 1_000_000
    max_named_types: int = 4_096
    """fastavro copies the table of named types for each payload, which takes 70 ns for each type."""


STORED: Final = Limits(16 << 20, max_depth=300, max_values=sys.maxsize, max_named_types=sys.maxsize)
"""The limits of stores: as much as any serde allows. A reader of records has its own limits."""


class Shape(NamedTuple):
    """The properties of a schema's values."""

    recursive: bool
    values: int
    """The most values that one value contains if all arrays and maps are empty."""
    values_per_byte: float
    """The most further values for each byte of a payload."""
    has_decimals: bool
    """Whether there are decimals of any length."""

    def safe_bytes(self, limits: Limits) -> float:
        """Return the length up to which no payload can exceed the limits; negative if every payload may."""
        most_values = limits.max_values
        if self.values > _FREE_VALUES or self.values_per_byte > _VALUES_PER_BYTE:
            most_values = min(most_values, _FREE_VALUES)
        room = most_values - self.values
        if self.recursive or room < 0:
            return -1
        most = room / self.values_per_byte if self.values_per_byte else float("inf")
        return min(most, MAX_DECIMAL_BYTES) if self.has_decimals else most


def survey(tree: Any, named: dict[str, Any], limits: Limits, per_record: int = 0) -> Shape:
    """Return the shape of a schema's values; a reader's defaults add ``per_record`` values to each record."""
    _refuse_endless(named)
    seen = _Survey(named, limits, per_record)
    root = seen.size(tree, 0)
    if root.depth > limits.max_depth:
        raise _schema_too_deep(limits)
    seen.require_few(root)
    return Shape(seen.recursive, root.values, seen.values_per_byte, seen.has_decimals)


class _Size(NamedTuple):
    """The size of one value of a type, without the items of arrays and maps, and without recursion."""

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
            raise _schema_too_deep(self._limits)
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
        """Note the items of an array or a map; a map's keys count as values of at least one byte."""
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
        """Refuse a type if one value of it exceeds the limit."""
        most = self._limits.max_values
        if size.values > most:
            raise SerdeError(
                f"one value of the schema contains more than {most} values, the limit (max_values)"
            )

    def _add_unit(self, unit: _Size) -> None:
        """Note a value that a payload can repeat without limit."""
        self.require_few(unit)
        rate = unit.values / unit.min_bytes if unit.min_bytes else float("inf")
        self.values_per_byte = max(self.values_per_byte, rate)


def is_decimal(node: Any) -> bool:
    return isinstance(node, dict) and node.get("logicalType") == "decimal"


def _refuse_endless(named: dict[str, Any]) -> None:
    """Refuse a record that always contains itself, because no value of it can end."""
    held = {
        name: [child for field in node["fields"] if (child := _record_name(field["type"], named))]
        for name, node in named.items()
        if node["type"] in {"record", "error"}
    }
    try:
        TopologicalSorter(held).prepare()
    except CycleError:
        raise SerdeError(
            "the schema has a record that always contains itself: no value of it can end"
        ) from None


def _record_name(node: Any, named: dict[str, Any]) -> str | None:
    name = node.get("name") if isinstance(node, dict) else node
    return name if isinstance(name, str) and name in named else None


def _schema_too_deep(limits: Limits) -> SerdeError:
    return SerdeError(f"the schema nests more than {limits.max_depth} deep, the limit (max_depth)")


def walk_payload(
    payload: bytes,
    tree: Any,
    named: dict[str, Any],
    limits: Limits,
    *,
    start: int = 0,
    per_record: int = 0,
    count: int = 1,
) -> None:
    """Raise SerdeError if a payload is truncated or corrupt, nests too deep or holds too many values.

    A reader's defaults add ``per_record`` values to each record. A block of a file is a payload of ``count``
    values, one after another; the limits apply to each of them.
    """
    walk = _Walk(payload, named, limits, start, per_record)
    try:
        for _ in range(count):
            walk.begin()
            walk.value(tree, 0)
    except RecursionError:
        raise _too_deep("payload", limits) from None


def walk_object(value: Any, limits: Limits) -> None:
    """Refuse an object that nests too deep or contains itself."""
    # A level in Python is at most two in Avro: a record, and the union that contains it.
    level = [value]
    for _ in range(limits.max_depth + 1):
        level = [child for parent in level if isinstance(parent, _CONTAINERS) for child in _children(parent)]
        if not level:
            return
        if len(level) > limits.max_values:
            raise SerdeError(f"the object holds more than {limits.max_values} values, the limit (max_values)")
    raise _too_deep("object", limits)


def _children(parent: Any) -> Any:
    return parent.values() if isinstance(parent, dict) else parent


class _Walk:
    """A position in a payload."""

    __slots__ = (
        "_end",
        "_left",
        "_limits",
        "_most",
        "_named",
        "_payload",
        "_per_record",
        "_position",
        "_sent",
    )

    def __init__(
        self, payload: bytes, named: dict[str, Any], limits: Limits, start: int, per_record: int
    ) -> None:
        self._per_record = per_record
        self._payload = payload
        self._named = named
        self._limits = limits
        self._position = start
        self._end = len(payload)
        self._most: Final = _FREE_VALUES + _VALUES_PER_BYTE * (self._end - start)
        self._sent = 0

    def begin(self) -> None:
        """Begin a value of the top level."""
        self._left = self._limits.max_values

    def value(self, node: Any, depth: int) -> None:
        """Walk over one value."""
        self._take(1)
        if isinstance(node, list):
            self._deeper(depth)
            self.value(node[self._index(len(node))], depth + 1)
            return
        kind = node if isinstance(node, str) else node["type"]
        size = _FIXED_BYTES.get(kind)
        if size is not None:
            self._skip(size)
            return
        step = _STEPS.get(kind)
        if step is None:
            node = self._named[kind]
            step = _STEPS[node["type"]]
        step(self, node, depth)

    def number(self, _node: Any = None, _depth: int = 0) -> int:
        """Read a zigzag number."""
        value = shift = 0
        payload, position = self._payload, self._position
        for byte in payload[position : position + _MAX_VARINT_BYTES]:
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:  # the highest bit says that more bytes follow
                self._position = position + shift // 7
                return value >> 1 ^ -(value & 1)
        if self._end - position < _MAX_VARINT_BYTES:
            raise self._truncated()
        raise SerdeError(f"the payload holds a number of more than {_MAX_VARINT_BYTES} bytes")

    def sized(self, node: Any, _depth: int) -> None:
        """Skip bytes or a string."""
        length = self._length()
        if length > MAX_DECIMAL_BYTES and is_decimal(node):
            raise SerdeError(
                f"the payload holds a decimal of {length} bytes; the limit is {MAX_DECIMAL_BYTES}"
            )
        self._skip(length)

    def fixed(self, node: Any, _depth: int) -> None:
        """Skip a fixed."""
        self._skip(node["size"])

    def enum(self, node: Any, _depth: int) -> None:
        """Check and skip the index of a symbol."""
        self._index(len(node["symbols"]))

    def record(self, node: Any, depth: int) -> None:
        """Walk over a record's fields."""
        self._deeper(depth)
        self._left -= self._per_record
        for field in node["fields"]:
            self.value(field["type"], depth + 1)

    def array(self, node: Any, depth: int) -> None:
        """Walk over an array's blocks."""
        self._deeper(depth)
        items = node["items"]
        for count in self._blocks():
            for _ in range(count):
                self.value(items, depth + 1)

    def map(self, node: Any, depth: int) -> None:
        """Walk over a map's blocks."""
        self._deeper(depth)
        values = node["values"]
        for count in self._blocks():
            for _ in range(count):
                self._take(1)
                self._skip(self._length())
                self.value(values, depth + 1)

    def _blocks(self) -> Iterator[int]:
        """Yield the count of each block once its items are next, and refuse a count beyond the limits.

        A block may state its size. When fastavro skips a field, it trusts this size. So with a wrong size it
        would read bytes that were not checked here.
        """
        while count := self.number():
            size = self._length() if count < 0 else None
            count = abs(count)
            if count > self._left or self._sent + count > self._most:
                raise self._too_many(count)
            start = self._position
            yield count
            if size is not None and self._position - start != size:
                raise SerdeError(
                    f"the payload states a block of {size} bytes, but its items have {self._position - start}"
                )

    def _length(self) -> int:
        length = self.number()
        if length < 0:
            raise SerdeError(f"the payload states a length of {length}")
        return length

    def _index(self, choices: int) -> int:
        index = self.number()
        if not 0 <= index < choices:
            raise SerdeError(f"the payload names choice {index}, but its schema has {choices}")
        return index

    def _skip(self, count: int) -> None:
        self._position += count
        if self._position > self._end:
            raise self._truncated()

    def _take(self, count: int) -> None:
        self._left -= count
        self._sent += count
        if self._left < 0 or self._sent > self._most:
            raise self._too_many(0)

    def _deeper(self, depth: int) -> None:
        if depth >= self._limits.max_depth:
            raise _too_deep("payload", self._limits)

    def _too_many(self, more: int) -> SerdeError:
        if self._left >= more:
            return SerdeError(
                f"the payload has {self._end} bytes and stands for more than {self._most} values; "
                f"the limit is {_FREE_VALUES}, and {_VALUES_PER_BYTE} for each byte"
            )
        return SerdeError(
            f"the payload holds more than {self._limits.max_values} values, the limit (max_values)"
        )

    def _truncated(self) -> SerdeError:
        return SerdeError(f"the payload is truncated: it has {self._end} bytes, and its schema needs more")


_STEPS: Final[dict[str, Callable[[_Walk, Any, int], Any]]] = {
    "array": _Walk.array,
    "bytes": _Walk.sized,
    "enum": _Walk.enum,
    "error": _Walk.record,
    "fixed": _Walk.fixed,
    "int": _Walk.number,
    "long": _Walk.number,
    "map": _Walk.map,
    "record": _Walk.record,
    "string": _Walk.sized,
}


def _too_deep(what: str, limits: Limits) -> SerdeError:
    return SerdeError(
        f"the {what} nests more than {limits.max_depth} deep, the limit (max_depth), or contains itself"
    )
