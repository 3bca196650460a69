"""Find the parts of a record that a compiled expression reads, and bound the size of the values it builds.

The expression's library returns its tree in the wire format of protobuf (``cel.expr.CheckedExpr``), of which
these fields are read:

    Any           value = 2
    CheckedExpr   expr = 4
    Expr          const = 3, ident = 4, select = 5, call = 6, list = 7, struct = 8, comprehension = 9
    Const         string = 6
    Ident         name = 1
    Select        operand = 1, field = 2
    Call          target = 1, function = 2, args = 3
    List          elements = 1
    Struct        entries = 2, each with map_key = 3, value = 4
    Comprehension iter_var = 1, iter_range = 2, accu_var = 3, accu_init = 4, loop_condition = 5,
                  loop_step = 6, result = 7

The library limits an expression's steps, but neither its memory nor the work of a step: each of ten thousand
steps may search all of its input, or build a text of it. So :class:`SizeLimits` walks the tree with the sizes
of the record's values, and computes the largest possible size of each node's value:

    a + b, lists, maps           the sum of their parts
    s.replace(old, new)          s, with new in place of each character
    l.join(separator)            l, and a separator for each element
    template.format(...)         the template and the values; unbounded if the template is not a constant
    l.map(x, ...) and the like   the size of one result times the number of elements
    numbers, comparisons         a few bytes

The value of any other node is no larger than its parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

Tree = dict[str, "Tree | None"]
"""The names that are read, each with the names that are read within it; None if all of it is read."""

_Message = list[tuple[int, bytes]]
_IDENT, _SELECT, _CALL, _LIST, _STRUCT, _COMPREHENSION, _CONST = 4, 5, 6, 7, 8, 9, 3
_CHILDREN: Final[dict[int, tuple[int, ...]]] = {
    _SELECT: (1,),
    _CALL: (1, 3),
    _LIST: (1,),
    _COMPREHENSION: (2, 4, 5, 6, 7),
}
"""The fields of a node that contain further expressions; a struct's expressions are one message deeper."""
_ENTRIES, _ENTRY_CHILDREN = 2, (3, 4)
_INDEXING: Final = frozenset({"_[_]", "_?._", "_[?_]"})
_MAPS: Final = frozenset({"headers", "all_headers"})
"""The variables that are always maps; ``"a" in headers`` reads only the name ``a``."""


def field_references(serialized: bytes, variables: Iterable[str]) -> Tree:
    """Return the parts of each variable that an expression reads; all if its tree is not understood."""
    known = frozenset(variables)
    tree: Tree = {}
    try:
        checked = _all_of(_fields_of(serialized), 2)[0]
        for expression in _all_of(_fields_of(checked), 4):
            _walk(expression, tree, known)
    except (IndexError, ValueError):
        return dict.fromkeys(known)
    return tree


def _walk(expression: bytes, tree: Tree, known: frozenset[str]) -> None:
    chain = _chain(expression)
    if chain is None:
        chain = _membership(expression)
    if chain is not None:
        if chain[0] in known:
            _add(tree, chain)
        return
    for kind, body in _fields_of(expression):
        for child in _children(kind, body):
            _walk(child, tree, known)


def _add(tree: Tree, chain: list[str]) -> None:
    for step in chain[:-1]:
        inner = tree.setdefault(step, {})
        if inner is None:
            return
        tree = inner
    tree[chain[-1]] = None


def _chain(expression: bytes) -> list[str] | None:
    """Return the steps of ``a.b["c"]``, the variable first; None for any other expression."""
    fields = dict(_fields_of(expression))
    if _IDENT in fields:
        return [_text_of(_all_of(_fields_of(fields[_IDENT]), 1)[0])]
    if _SELECT in fields:
        select = _fields_of(fields[_SELECT])
        operand = _chain(_all_of(select, 1)[0])
        return None if operand is None else [*operand, _text_of(_all_of(select, 2)[0])]
    if _CALL in fields:
        function, arguments = _call_of(fields[_CALL])
        if function in _INDEXING:
            operand, step = _chain(arguments[0]), _constant_of(arguments[1])
            return None if operand is None or step is None else [*operand, step]
    return None


def _membership(expression: bytes) -> list[str] | None:
    """Return the steps of ``"a" in headers``."""
    fields = dict(_fields_of(expression))
    if _CALL not in fields:
        return None
    function, arguments = _call_of(fields[_CALL])
    if function != "@in":
        return None
    step, chain = _constant_of(arguments[0]), _chain(arguments[1])
    if step is None or chain is None or len(chain) > 1 or chain[0] not in _MAPS:
        return None
    return [*chain, step]


_MAX_BYTES: Final = 64 << 20
"""The most bytes that a value built by an expression may have."""
_MAX_WORK_BYTES: Final = 1 << 30
"""The most bytes that all steps of an expression may read together."""
_POWERS: Final = [1 << power for power in range(6, 27)]
_ELEMENT_BYTES: Final = 64
_SCALAR_BYTES: Final = 8
_STEPS: Final = 10_000
"""The library's own limit of the elements that an expression iterates over."""
_GROWING: Final = frozenset({"replace", "join", "format"})
_SCALAR: Final = frozenset(
    {
        *("_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_", "_&&_", "_||_", "!_", "@in", "@not_strictly_false"),
        *("size", "matches", "contains", "startsWith", "endsWith", "indexOf", "lastIndexOf"),
        *("int", "uint", "double", "bool", "timestamp", "duration", "has", "_-_", "_*_", "_/_", "_%_", "-_"),
    }
)
_CONSTANT_WORK: Final = frozenset({"_+_", "_[_]", "_?._", "_[?_]", "_&&_", "_||_", "!_", "size", "_?_:_"})
"""Functions whose time does not depend on the size of their values, or whose copies are counted as built."""
_ITER_VAR, _ITER_RANGE, _ACCU_VAR, _ACCU_INIT, _LOOP_STEP, _RESULT = 1, 2, 3, 4, 6, 7


class _Size(NamedTuple):
    """The largest possible size of a value, in bytes, and of its parts.

    ``elements`` is the length of its longest list or map, ``largest`` the size of the largest element or key.
    """

    bytes: float = 0
    elements: float = 0
    largest: float = 0


def _together(sizes: list[_Size]) -> _Size:
    return _Size(
        sum(size.bytes for size in sizes),
        sum(size.elements for size in sizes),
        max((size.largest for size in sizes), default=0),
    )


def _size_of(value: Any) -> _Size:
    """Return the size of a record's values."""
    if isinstance(value, dict):
        keys, values = list(map(_size_of, value)), list(map(_size_of, value.values()))
    elif isinstance(value, list):
        keys, values = list(map(_size_of, value)), []
    else:
        return _Size(len(value) if isinstance(value, str | bytes | bytearray) else _SCALAR_BYTES)
    parts = [*keys, *values]
    return _Size(
        sum(part.bytes for part in parts) + _ELEMENT_BYTES * len(value),
        max([len(value), *(part.elements for part in parts)]),
        max([0, *(key.bytes for key in keys), *(part.largest for part in parts)]),
    )


class SizeLimits:
    """Refuse records from which a compiled expression could build values that are too large."""

    __slots__ = ("_roots", "_small", "is_bounded")

    def __init__(self, serialized: bytes) -> None:
        checked = _all_of(_fields_of(serialized), 2)[0]
        self._roots: Final = _all_of(_fields_of(checked), 4)
        self.is_bounded: Final = not any(map(_grows, self._roots))
        """Whether the size of its values is at most its input's, times a factor that its text determines."""
        self._small: Final = max(
            (size for size in _POWERS if _fits(self.of(_Size(size, size / _ELEMENT_BYTES, size)))), default=0
        )

    def refusal(self, given: Any) -> str | None:
        """Return the reason for refusing these values, or None."""
        size = _size_of(given)
        if size.bytes <= self._small or _fits(found := self.of(size)):
            return None
        return (
            f"may build values of {found[0]:.0f} bytes and read {found[1]:.0f} bytes on this record; "
            f"the limits are {_MAX_BYTES} and {_MAX_WORK_BYTES}"
        )

    def of(self, given: _Size) -> tuple[float, float]:
        """Return how many bytes the expression builds and reads at most."""
        walk = _Walk(given)
        for root in self._roots:
            walk.size(root, {})
        return walk.most, walk.work


def _fits(found: tuple[float, float]) -> bool:
    return found[0] <= _MAX_BYTES and found[1] <= _MAX_WORK_BYTES


def _grows(expression: bytes) -> bool:
    for kind, body in _fields_of(expression):
        if kind == _COMPREHENSION or (kind == _CALL and _call_of(body)[0] in _GROWING):
            return True
        if any(map(_grows, _children(kind, body))):
            return True
    return False


class _Walk:
    """Compute the sizes in an expression's tree."""

    __slots__ = ("_given", "_times", "most", "work")

    def __init__(self, given: _Size) -> None:
        self._given: Final = given
        self._times = 1.0
        self.most = 0.0
        self.work = 0.0

    def size(self, expression: bytes, names: Mapping[str, _Size]) -> _Size:
        """Return the largest possible size of a node's value."""
        found = self._size(expression, names)
        self.most = max(self.most, found.bytes)
        return found

    def _size(self, expression: bytes, names: Mapping[str, _Size]) -> _Size:
        fields, given = dict(_fields_of(expression)), self._given
        if _IDENT in fields:
            return names.get(_text_of(_all_of(_fields_of(fields[_IDENT]), 1)[0]), given)
        if _SELECT in fields:
            operand = self.size(_all_of(_fields_of(fields[_SELECT]), 1)[0], names)
            return given._replace(bytes=operand.bytes)
        if _CONST in fields:
            return _Size(len(fields[_CONST]))
        if _COMPREHENSION in fields:
            return self._comprehension(fields[_COMPREHENSION], names)
        kind, body = next(iter(fields.items()), (0, b""))
        parts = [self.size(child, names) for child in _children(kind, body)]
        total = _together(parts)
        if kind in {_LIST, _STRUCT}:
            largest = max((part.bytes for part in parts), default=0)
            return _Size(total.bytes + _ELEMENT_BYTES * len(parts), len(parts), max(largest, total.largest))
        if kind != _CALL:
            return total
        if _call_of(body)[0] not in _CONSTANT_WORK:
            self.work += self._times * total.bytes
        return _call(body, parts, total)

    def _comprehension(self, body: bytes, names: Mapping[str, _Size]) -> _Size:
        fields = _fields_of(body)

        def part(number: int, names: Mapping[str, _Size]) -> _Size:
            found = _all_of(fields, number)
            return self.size(found[0], names) if found else _Size()

        element, accumulated = (_text_of(_all_of(fields, number)[0]) for number in (_ITER_VAR, _ACCU_VAR))
        over, start = part(_ITER_RANGE, names), part(_ACCU_INIT, names)
        times = min(over.elements, _STEPS)
        one = over._replace(bytes=over.largest)
        before, self._times = self._times, min(self._times * times, _STEPS)
        step = part(_LOOP_STEP, {**names, element: one, accumulated: _Size()})
        self._times = before
        made = _Size(start.bytes + times * step.bytes, start.elements + times * step.elements, step.largest)
        self.most = max(self.most, made.bytes)
        return part(_RESULT, {**names, accumulated: made})


def _call(body: bytes, parts: list[_Size], total: _Size) -> _Size:
    function = _call_of(body)[0]
    if function in _SCALAR:
        return _Size(_SCALAR_BYTES)
    if function == "_?_:_":
        return _Size(*map(max, zip(*parts[1:], strict=True)))
    if function == "replace":
        return _Size(parts[0].bytes + (1 + parts[0].bytes) * parts[2].bytes)
    if function == "join":
        return _Size(parts[0].bytes + parts[0].elements * sum(part.bytes for part in parts[1:]))
    if function == "split":
        return _Size(total.bytes + _ELEMENT_BYTES * (1 + parts[0].bytes), 1 + parts[0].bytes, parts[0].bytes)
    if function == "format" and _constant_of(_all_of(_fields_of(body), 1)[0]) is None:
        return _Size(float("inf"))
    return total


def _children(kind: int, body: bytes) -> Iterator[bytes]:
    """Return the expressions in a node."""
    if kind == _STRUCT:
        for entry in _all_of(_fields_of(body), _ENTRIES):
            yield from (child for number, child in _fields_of(entry) if number in _ENTRY_CHILDREN)
    elif kind in _CHILDREN:
        yield from (child for number, child in _fields_of(body) if number in _CHILDREN[kind])


def _call_of(body: bytes) -> tuple[str, list[bytes]]:
    """Return a call's function and its arguments."""
    call = _fields_of(body)
    return _text_of(_all_of(call, 2)[0]), _all_of(call, 3)


def _constant_of(expression: bytes) -> str | None:
    """Return the text of a constant, or None."""
    constants = _all_of(_fields_of(expression), _CONST)
    texts = _all_of(_fields_of(constants[0]), 6) if constants else []
    return _text_of(texts[0]) if texts else None


def _text_of(data: bytes) -> str:
    return data.decode()


def _all_of(message: _Message, number: int) -> list[bytes]:
    """Return the values of all fields of a number."""
    return [value for found, value in message if found == number]


def _fields_of(data: bytes) -> _Message:
    """Return a message's fields that have a length; numbers are not needed here."""
    return list(_read(data))


def _read(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        kind = tag & 7
        if kind == 0:
            _, at = _varint(data, at)
        elif kind == 2:
            length, at = _varint(data, at)
            if at + length > len(data):
                raise ValueError("a field ends beyond its message")
            yield tag >> 3, data[at : at + length]
            at += length
        else:
            at += _FIXED[kind]


_FIXED: Final = (0, 8, 0, 0, 0, 4, 0, 0)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return number, at
