"""What an expression reads, so that nothing else of a record is converted for it.

The expression's library gives its tree in the wire format of protobuf (``cel.expr.CheckedExpr``), of which
these fields are read:

    Any           value = 2
    CheckedExpr   expr = 4
    Expr          ident = 4, select = 5, call = 6, list = 7, struct = 8, comprehension = 9
    Ident         name = 1
    Select        operand = 1, field = 2
    Call          target = 1, function = 2, args = 3
    List          elements = 1
    Struct        entries = 2, each with map_key = 3, value = 4
    Comprehension iter_range = 2, accu_init = 4, loop_condition = 5, loop_step = 6, result = 7
    Const         string = 6 (Expr: const = 3)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Tree = dict[str, "Tree | None"]
"""The names that are read, and what is read in each; None for all of it."""

_Message = list[tuple[int, bytes]]
IDENT, SELECT, CALL, LIST, STRUCT, COMPREHENSION, CONST = 4, 5, 6, 7, 8, 9, 3
_CHILDREN: Final[dict[int, tuple[int, ...]]] = {
    SELECT: (1,),
    CALL: (1, 3),
    LIST: (1,),
    COMPREHENSION: (2, 4, 5, 6, 7),
}
"""Which fields of a node hold further expressions; a struct's stand one message deeper."""
_ENTRIES, _ENTRY_CHILDREN = 2, (3, 4)
_INDEXING: Final = frozenset({"_[_]", "_?._", "_[?_]"})
_MEMBERSHIP: Final = "@in"
_MAPS: Final = frozenset({"headers", "all_headers"})
"""The variables that are maps for certain; of them, ``"a" in headers`` reads one name only."""


def mentions(serialized: bytes, variables: Iterable[str]) -> Tree:
    """Return what an expression reads of each variable.

    Args:
        serialized: the compiled expression.
        variables: the variables that there are; where the tree is not understood, all of them are read.
    """
    known = frozenset(variables)
    tree: Tree = {}
    try:
        checked = all_of(fields_of(serialized), 2)[0]
        for expression in all_of(fields_of(checked), 4):
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
    for kind, body in fields_of(expression):
        for child in children(kind, body):
            _walk(child, tree, known)


def children(kind: int, body: bytes) -> Iterator[bytes]:
    """Return the expressions in a node."""
    if kind == STRUCT:
        for entry in all_of(fields_of(body), _ENTRIES):
            yield from (child for number, child in fields_of(entry) if number in _ENTRY_CHILDREN)
    elif kind in _CHILDREN:
        yield from (child for number, child in fields_of(body) if number in _CHILDREN[kind])


def _add(tree: Tree, chain: list[str]) -> None:
    for step in chain[:-1]:
        inner = tree.setdefault(step, {})
        if inner is None:
            return
        tree = inner
    tree[chain[-1]] = None


def _chain(expression: bytes) -> list[str] | None:
    """Return the steps of ``a.b["c"]``, the variable first; None for any other expression."""
    fields = dict(fields_of(expression))
    if IDENT in fields:
        return [text_of(all_of(fields_of(fields[IDENT]), 1)[0])]
    if SELECT in fields:
        select = fields_of(fields[SELECT])
        operand = _chain(all_of(select, 1)[0])
        return None if operand is None else [*operand, text_of(all_of(select, 2)[0])]
    if CALL in fields:
        function, arguments = call_of(fields[CALL])
        if function in _INDEXING:
            operand, step = _chain(arguments[0]), constant_of(arguments[1])
            return None if operand is None or step is None else [*operand, step]
    return None


def _membership(expression: bytes) -> list[str] | None:
    """Return the steps of ``"a" in headers``."""
    fields = dict(fields_of(expression))
    if CALL not in fields:
        return None
    function, arguments = call_of(fields[CALL])
    if function != _MEMBERSHIP:
        return None
    step, chain = constant_of(arguments[0]), _chain(arguments[1])
    if step is None or chain is None or len(chain) > 1 or chain[0] not in _MAPS:
        return None
    return [*chain, step]


def call_of(body: bytes) -> tuple[str, list[bytes]]:
    """Return a call's function and its arguments."""
    call = fields_of(body)
    return text_of(all_of(call, 2)[0]), all_of(call, 3)


def constant_of(expression: bytes) -> str | None:
    """Return a constant text."""
    constants = all_of(fields_of(expression), CONST)
    texts = all_of(fields_of(constants[0]), 6) if constants else []
    return text_of(texts[0]) if texts else None


def text_of(data: bytes) -> str:
    """Return a text."""
    return data.decode()


def all_of(message: _Message, number: int) -> list[bytes]:
    """Return all fields of a number."""
    return [value for found, value in message if found == number]


def fields_of(data: bytes) -> _Message:
    """Return a message's fields that have a length; numbers are of no use here."""
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
