"""Walk a payload or an object before fastavro does, where it could be too deep or too many.

The walk over a payload follows Avro's binary encoding without making anything of it, and counts. It is in
Python, so it costs some tenths of a microsecond a value; only schemas whose types hold themselves, and
payloads that could be too many values, pay for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headerware.core.errors import SerdeError
from headerware.serdes.avro.limits import FREE_VALUES, MAX_DECIMAL_BYTES, VALUES_PER_BYTE, is_decimal

if TYPE_CHECKING:
    from collections.abc import Callable

    from headerware.serdes.avro.limits import Limits

_CONTAINERS: Final = (dict, list, tuple)
_MAX_VARINT_BYTES: Final = 10
_FIXED_BYTES: Final = {"null": 0, "boolean": 1, "float": 4, "double": 8}


def walk_payload(
    payload: bytes,
    tree: Any,
    named: dict[str, Any],
    limits: Limits,
    *,
    start: int = 0,
    per_record: int = 0,
) -> None:
    """Follow a payload to its end.

    Args:
        payload: the bytes.
        tree: their schema.
        named: its named types.
        limits: what the payload may hold.
        start: where the Avro bytes begin.
        per_record: how many values a reader's defaults add to each record.

    Raises:
        SerdeError: it is cut, no payload of this schema, nests too deep or holds too many values.
    """
    walk = _Walk(payload, named, limits, start, per_record)
    try:
        walk.value(tree, 0)
    except RecursionError:
        raise _too_deep("payload", limits) from None


def walk_object(value: Any, limits: Limits) -> None:
    """Refuse an object that nests deeper than the limit, or holds itself.

    Raises:
        SerdeError: it does.
    """
    # A level in Python is at most two in Avro: a record, and the union that it stands in.
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
    """A place in a payload."""

    __slots__ = ("_end", "_left", "_limits", "_most", "_named", "_payload", "_per_record", "_place", "_sent")

    def __init__(
        self, payload: bytes, named: dict[str, Any], limits: Limits, start: int, per_record: int
    ) -> None:
        self._per_record = per_record
        self._payload = payload
        self._named = named
        self._limits = limits
        self._place = start
        self._end = len(payload)
        self._left = limits.max_values
        self._most: Final = FREE_VALUES + VALUES_PER_BYTE * (self._end - start)
        self._sent = 0

    def value(self, node: Any, depth: int) -> None:
        """Pass one value."""
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
        """Pass a zigzag number, and give it."""
        value = shift = 0
        payload, place = self._payload, self._place
        for byte in payload[place : place + _MAX_VARINT_BYTES]:
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:  # the bit that says that more follow
                self._place = place + shift // 7
                return value >> 1 ^ -(value & 1)
        raise self._cut() if self._end - place < _MAX_VARINT_BYTES else SerdeError("a number never ends")

    def sized(self, node: Any, _depth: int) -> None:
        """Pass bytes or a string."""
        length = self._length()
        if length > MAX_DECIMAL_BYTES and is_decimal(node):
            raise SerdeError(
                f"the payload holds a decimal of {length} bytes; {MAX_DECIMAL_BYTES} are the limit"
            )
        self._skip(length)

    def fixed(self, node: Any, _depth: int) -> None:
        """Pass a fixed."""
        self._skip(node["size"])

    def enum(self, node: Any, _depth: int) -> None:
        """Pass a symbol."""
        self._index(len(node["symbols"]))

    def record(self, node: Any, depth: int) -> None:
        """Pass a record's fields."""
        self._deeper(depth)
        self._left -= self._per_record
        for field in node["fields"]:
            self.value(field["type"], depth + 1)

    def array(self, node: Any, depth: int) -> None:
        """Pass an array's blocks."""
        self._deeper(depth)
        items = node["items"]
        while count := self._count():
            for _ in range(count):
                self.value(items, depth + 1)

    def map(self, node: Any, depth: int) -> None:
        """Pass a map's blocks."""
        self._deeper(depth)
        values = node["values"]
        while count := self._count():
            for _ in range(count):
                self._take(1)
                self._skip(self._length())
                self.value(values, depth + 1)

    def _count(self) -> int:
        """Pass a block's count, and its size where it has one, and refuse a count that cannot be."""
        count = self.number()
        if count < 0:
            count = -count
            self._length()
        if count > self._left or self._sent + count > self._most:
            raise self._too_many(count)
        return count

    def _length(self) -> int:
        length = self.number()
        if length < 0:
            raise SerdeError(f"the payload states a length of {length}")
        return length

    def _index(self, choices: int) -> int:
        index = self.number()
        if not 0 <= index < choices:
            raise SerdeError(f"the payload names choice {index}, and its schema has {choices}")
        return index

    def _skip(self, count: int) -> None:
        self._place += count
        if self._place > self._end:
            raise self._cut()

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
                f"{FREE_VALUES} and {VALUES_PER_BYTE} a byte are the limit"
            )
        return SerdeError(
            f"the payload holds more than {self._limits.max_values} values, the limit (max_values)"
        )

    def _cut(self) -> SerdeError:
        return SerdeError(f"the payload is cut: it has {self._end} bytes, and its schema asks for more")


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
        f"the {what} nests more than {limits.max_depth} deep, the limit (max_depth), or holds itself"
    )
