"""Convert a record's values to the values of the expression language.

    null, boolean, bytes           unchanged
    string                         unchanged; refused if it contains a zero character
    int8 to int64                  int
    float32, float64               double
    Decimal                        int of 64 bits if it is one, else double; refused if digits would be lost
    Date, Time, Timestamp          string as in RFC 3339, to the millisecond: ``timestamp(value.when)``
    list, map                      list, map
    struct                         map; a null field has its default, or is null if there is no default

Numbers beyond 64 bits are refused. Only the parts that the expression reads are converted.
"""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from headerware.connect.data.numbers import BigInteger, Float32, Int8, Int16, Int32
from headerware.connect.data.schema import Schema, Type
from headerware.connect.data.struct import Struct
from headerware.connect.data.times import Instant
from headerware.connect.errors import ConnectDataError
from headerware.core.bounded_cache import BoundedCache

if TYPE_CHECKING:
    from collections.abc import Callable

    from headerware.connect.expressions.analysis import Tree

    _Plan = tuple[Schema, Callable[[Struct], dict[str, Any]]]

_DEPTH: Final = 32
"""How deep a value may nest; the library converts by recursion, without a limit of its own."""
_PLANS: Final = 64
_INT64_BOUND: Final = 1 << 63
_PLAIN_TYPES: Final = frozenset(
    {
        Type.INT8,
        Type.INT16,
        Type.INT32,
        Type.INT64,
        Type.FLOAT64,
        Type.BOOLEAN,
    }
)
"""The types whose values the language takes as they are, unless the schema's name makes them logical."""


class Reader:
    """Convert the parts of a key, a value or a header that an expression reads; all if the tree is None.

    Safe for use by several threads.
    """

    __slots__ = ("_plans", "_tree")

    def __init__(self, tree: Tree | None) -> None:
        self._tree: Final = tree
        # The schemas are kept alive, because their plans are found by identity.
        self._plans: Final[BoundedCache[int, _Plan]] = BoundedCache(_PLANS)

    def __call__(self, value: Any) -> Any:
        """Return the value for the language."""
        if type(value) is Struct and self._tree is not None:
            try:
                plan = self._plans[id(value.schema)][1]
            except KeyError:
                plan = self._new_plan(value.schema)
            return plan(value)
        return _read(value, self._tree, _DEPTH)

    def _new_plan(self, schema: Schema) -> Callable[[Struct], dict[str, Any]]:
        plan = _struct_plan(schema, self._tree or {})
        self._plans[id(schema)] = (schema, plan)
        return plan


def _struct_plan(schema: Schema, tree: Tree) -> Callable[[Struct], dict[str, Any]]:
    """Make the function that reads structs of a schema; it skips names that the schema lacks."""
    reads = [
        (name, field.index, field.schema.default, _field_reader(field.schema, inner))
        for name, inner in tree.items()
        if (field := schema.by_name.get(name)) is not None
    ]

    def read(struct: Struct) -> dict[str, Any]:
        made, values = {}, struct.values
        for name, index, default, convert in reads:
            value = values[index]
            if value is None:
                value = default
            made[name] = value if convert is None or value is None else convert(value)
        return made

    return read


def _field_reader(schema: Schema, tree: Tree | None) -> Callable[[Any], Any] | None:
    if schema.name is None:
        if schema.type in _PLAIN_TYPES:
            return None
        if schema.type is Type.STRING:
            return checked_text
    return Reader(tree)


def _read(value: Any, tree: Tree | None, depth: int) -> Any:
    convert = _CONVERTERS.get(type(value), _unknown)
    if convert is None:
        return value
    if depth <= 0:
        raise ConnectDataError(f"a value nests deeper than {_DEPTH} levels, the limit of expressions")
    if tree is None or not isinstance(value, dict | Struct):
        return convert(value, depth - 1)
    return {name: _read(value[name], inner, depth - 1) for name, inner in tree.items() if name in value}


def _list(values: Any, depth: int) -> list[Any]:
    return [_read(value, None, depth) for value in values]


def _map(values: dict[Any, Any], depth: int) -> dict[Any, Any]:
    return {_key(name): _read(value, None, depth) for name, value in values.items()}


def _struct(value: Struct, depth: int) -> dict[str, Any]:
    return {checked_text(name): _read(value[name], None, depth) for name in value}


def _key(value: Any) -> Any:
    if isinstance(value, str):
        return checked_text(value)
    if isinstance(value, bool):
        return value
    if isinstance(value, int) and not isinstance(value, Instant):
        return _integer(value, 0)
    raise ConnectDataError(
        "expected text, an integer or a boolean as a key of a map in an expression, "
        f"found {type(value).__name__}"
    )


def checked_text(text: str) -> str:
    """Return a text; refuse zero characters, at which the library would truncate it."""
    if "\0" in text:
        raise ConnectDataError("expressions cannot hold text with a zero character")
    return text


def _text(value: str, _depth: int) -> str:
    return checked_text(value)


def _integer(value: int, _depth: int) -> int:
    # Not with a range, which compares a subclass of int with its numbers one by one.
    if not -_INT64_BOUND <= value < _INT64_BOUND:
        raise ConnectDataError("an integer does not fit into the 64 bits that expressions have")
    return int(value)


def _float(value: float, _depth: int) -> float:
    return float(value)


def _decimal(value: Decimal, _depth: int) -> int | float:
    if not value.is_finite():
        raise ConnectDataError("expressions take finite decimals only")
    # Look at the exponent first: an integer of very many digits takes long to make.
    if value.adjusted() < _INT64_DIGITS and value == value.to_integral_value():
        integer = int(value)
        if -_INT64_BOUND <= integer < _INT64_BOUND:
            return integer
    near = float(value)
    if Decimal(repr(near)) != value:
        raise ConnectDataError("a decimal has more digits than an expression's number keeps")
    return near


_INT64_DIGITS: Final = 20


def _time(value: datetime, _depth: int) -> str:
    text = value.isoformat(timespec="microseconds" if value.microsecond % 1000 else "milliseconds")
    return text.removesuffix("+00:00") + "Z" if text.endswith("+00:00") or value.tzinfo is None else text


def _bytes(value: Any, _depth: int) -> bytearray:
    # The library truncates immutable bytes at a zero.
    return bytearray(value)


def _instant(_value: Any, _depth: int) -> Any:
    raise ConnectDataError("expressions take points in time of the years 1 to 9999 only")


def _unknown(value: Any, depth: int) -> Any:
    """Convert a value of a subclass; refuse classes that the language has no type for."""
    for kind, convert in _CONVERTERS.items():
        if isinstance(value, kind):
            return value if convert is None else convert(value, depth)
    raise ConnectDataError(f"expressions have no type for a value of class {type(value).__name__}")


_CONVERTERS: Final[dict[type, Callable[[Any, int], Any] | None]] = {
    type(None): None,
    bool: None,
    str: _text,
    int: _integer,
    float: None,
    bytes: _bytes,
    Int8: None,
    Int16: None,
    Int32: None,
    Float32: _float,
    BigInteger: _integer,
    Decimal: _decimal,
    datetime: _time,
    Instant: _instant,
    list: _list,
    tuple: _list,
    dict: _map,
    Struct: _struct,
    bytearray: _bytes,
    memoryview: _bytes,
}
"""The conversion of each class; None if the language takes the value as it is."""


def as_record_value(value: Any) -> Any:
    """Return an expression's result as a record's value: the library returns bytes as bytearrays."""
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, list):
        return [as_record_value(item) for item in value]
    if isinstance(value, dict):
        return {key: as_record_value(item) for key, item in value.items()}
    return value
