"""How large what an expression builds may be, told before it is built.

The library bounds an expression's steps, not its memory nor the work of a step: a step may build a text out
of all that it is given, or look through it, and there may be ten thousand steps. So the tree is gone through
with the sizes of what the record brings, and each node says how large its value can be at most:

    a + b, lists, maps           what is in them, together
    s.replace(old, new)          s, with new in the place of each character
    l.join(separator)            l, and a separator for each element
    template.format(...)         the template and the values; without bound where the template is the record's
    l.map(x, ...) and the like   as many times what one element becomes as there are elements
    numbers, comparisons         nothing to speak of

Everything else gives no more than it takes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from headerware.connect.expressions.mentions import (
    CALL,
    COMPREHENSION,
    CONST,
    IDENT,
    LIST,
    SELECT,
    STRUCT,
    all_of,
    call_of,
    children,
    constant_of,
    fields_of,
    text_of,
)

MAX_BYTES: Final = 64 << 20
"""How much an expression may build."""
MAX_WORK_BYTES: Final = 1 << 30
"""How much it may go through, all steps together."""
_POWERS: Final = [1 << power for power in range(6, 27)]
_ELEMENT_BYTES: Final = 64
_SCALAR_BYTES: Final = 8
_STEPS: Final = 10_000
"""The library's own limit of the elements that an expression goes through."""
_GROWING: Final = frozenset({"replace", "join", "format"})
_SCALAR: Final = frozenset(
    {
        *("_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_", "_&&_", "_||_", "!_", "@in", "@not_strictly_false"),
        *("size", "matches", "contains", "startsWith", "endsWith", "indexOf", "lastIndexOf"),
        *("int", "uint", "double", "bool", "timestamp", "duration", "has", "_-_", "_*_", "_/_", "_%_", "-_"),
    }
)
_LOOKING_NOWHERE: Final = frozenset({"_+_", "_[_]", "_?._", "_[?_]", "_&&_", "_||_", "!_", "size", "_?_:_"})
"""Functions that take as long for a large value as for a small one, or that copy what is counted as built."""
_ITER_VAR, _ITER_RANGE, _ACCU_VAR, _ACCU_INIT, _LOOP_STEP, _RESULT = 1, 2, 3, 4, 6, 7


class Size(NamedTuple):
    """How large a value is at most.

    Args:
        bytes: all of it.
        elements: how many elements it has where it is a list or a map, or one within has.
        largest: how large a list's element or a map's key in it is.
    """

    bytes: float = 0
    elements: float = 0
    largest: float = 0


def _together(sizes: list[Size]) -> Size:
    return Size(
        sum(size.bytes for size in sizes),
        sum(size.elements for size in sizes),
        max((size.largest for size in sizes), default=0),
    )


def size_of(value: Any) -> Size:
    """Measure what an expression is given."""
    if isinstance(value, dict):
        keys, values = list(map(size_of, value)), list(map(size_of, value.values()))
    elif isinstance(value, list):
        keys, values = list(map(size_of, value)), []
    else:
        return Size(len(value) if isinstance(value, str | bytes | bytearray) else _SCALAR_BYTES)
    parts = [*keys, *values]
    return Size(
        sum(part.bytes for part in parts) + _ELEMENT_BYTES * len(value),
        max([len(value), *(part.elements for part in parts)]),
        max([0, *(key.bytes for key in keys), *(part.largest for part in parts)]),
    )


class Growth:
    """Tell how much an expression builds.

    Args:
        serialized: the compiled expression.
    """

    __slots__ = ("_roots", "_small", "is_bounded")

    def __init__(self, serialized: bytes) -> None:
        checked = all_of(fields_of(serialized), 2)[0]
        self._roots: Final = all_of(fields_of(checked), 4)
        self.is_bounded: Final = not any(map(_grows, self._roots))
        """Whether it builds no more than it is given, but for a factor that its text decides."""
        self._small: Final = max(
            (size for size in _POWERS if _fits(self.of(Size(size, size / _ELEMENT_BYTES, size)))), default=0
        )

    def refusal(self, given: Any) -> str | None:
        """Return what is wrong with values that it would make too much of, or None."""
        size = size_of(given)
        if size.bytes <= self._small or _fits(found := self.of(size)):
            return None
        return (
            f"may build or go through too much of this record: {found[0]:.0f} and {found[1]:.0f} bytes, "
            f"where {MAX_BYTES} and {MAX_WORK_BYTES} are the limits"
        )

    def of(self, given: Size) -> tuple[float, float]:
        """Return how many bytes it builds at most out of what it is given, and how many it goes through."""
        walk = _Walk(given)
        for root in self._roots:
            walk.size(root, {})
        return walk.most, walk.work


def _fits(found: tuple[float, float]) -> bool:
    return found[0] <= MAX_BYTES and found[1] <= MAX_WORK_BYTES


def _grows(expression: bytes) -> bool:
    for kind, body in fields_of(expression):
        if kind == COMPREHENSION or (kind == CALL and call_of(body)[0] in _GROWING):
            return True
        if any(map(_grows, children(kind, body))):
            return True
    return False


class _Walk:
    """Go through an expression's tree."""

    __slots__ = ("_given", "_times", "most", "work")

    def __init__(self, given: Size) -> None:
        self._given: Final = given
        self._times = 1.0
        self.most = 0.0
        self.work = 0.0

    def size(self, expression: bytes, names: Mapping[str, Size]) -> Size:
        """Return how large a node's value is at most."""
        found = self._size(expression, names)
        self.most = max(self.most, found.bytes)
        return found

    def _size(self, expression: bytes, names: Mapping[str, Size]) -> Size:
        fields, given = dict(fields_of(expression)), self._given
        if IDENT in fields:
            return names.get(text_of(all_of(fields_of(fields[IDENT]), 1)[0]), given)
        if SELECT in fields:
            operand = self.size(all_of(fields_of(fields[SELECT]), 1)[0], names)
            return given._replace(bytes=operand.bytes)
        if CONST in fields:
            return Size(len(fields[CONST]))
        if COMPREHENSION in fields:
            return self._comprehension(fields[COMPREHENSION], names)
        kind, body = next(iter(fields.items()), (0, b""))
        parts = [self.size(child, names) for child in children(kind, body)]
        whole = _together(parts)
        if kind in {LIST, STRUCT}:
            largest = max((part.bytes for part in parts), default=0)
            return Size(whole.bytes + _ELEMENT_BYTES * len(parts), len(parts), max(largest, whole.largest))
        if kind != CALL:
            return whole
        if call_of(body)[0] not in _LOOKING_NOWHERE:
            self.work += self._times * whole.bytes
        return _call(body, parts, whole)

    def _comprehension(self, body: bytes, names: Mapping[str, Size]) -> Size:
        fields = fields_of(body)

        def part(number: int, names: Mapping[str, Size]) -> Size:
            found = all_of(fields, number)
            return self.size(found[0], names) if found else Size()

        element, accumulated = (text_of(all_of(fields, number)[0]) for number in (_ITER_VAR, _ACCU_VAR))
        over, start = part(_ITER_RANGE, names), part(_ACCU_INIT, names)
        times = min(over.elements, _STEPS)
        one = over._replace(bytes=over.largest)
        before, self._times = self._times, min(self._times * times, _STEPS)
        step = part(_LOOP_STEP, {**names, element: one, accumulated: Size()})
        self._times = before
        made = Size(start.bytes + times * step.bytes, start.elements + times * step.elements, step.largest)
        self.most = max(self.most, made.bytes)
        return part(_RESULT, {**names, accumulated: made})


def _call(body: bytes, parts: list[Size], whole: Size) -> Size:
    function = call_of(body)[0]
    if function in _SCALAR:
        return Size(_SCALAR_BYTES)
    if function == "_?_:_":
        return Size(*map(max, zip(*parts[1:], strict=True)))
    if function == "replace":
        return Size(parts[0].bytes + (1 + parts[0].bytes) * parts[2].bytes)
    if function == "join":
        return Size(parts[0].bytes + parts[0].elements * sum(part.bytes for part in parts[1:]))
    if function == "split":
        return Size(whole.bytes + _ELEMENT_BYTES * (1 + parts[0].bytes), 1 + parts[0].bytes, parts[0].bytes)
    if function == "format" and constant_of(all_of(fields_of(body), 1)[0]) is None:
        return Size(float("inf"))
    return whole
