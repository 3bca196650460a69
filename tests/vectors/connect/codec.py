"""Between the oracle's JSON and Connect's values.

A value is ``{"t": type, "v": ...}``; a plain JSON integer is an int64, a plain float a float64, an object a
map. Maps that keep their order are :class:`Linked`; the others are Java's HashMaps, written in the order of
their keys' JSON and marked as unordered.
"""

from __future__ import annotations

import json
import struct
from base64 import b64encode
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal as DecimalNumber
from decimal import InvalidOperation
from typing import Any, Final

from headerware.connect.converters.charsets import utf_8_as_java
from headerware.connect.data import (
    BigInteger,
    Float32,
    Instant,
    Int8,
    Int16,
    Int32,
    Schema,
    SchemaAndValue,
    Struct,
)
from headerware.connect.data.logical import scale_of, unscaled_of
from headerware.connect.data.times import from_epoch_ms, to_epoch_ms
from headerware.connect.errors import ArgumentError, NullValueError, NumberTextError, ValueClassError
from headerware.connect.values import float32_text, float64_text
from tests.vectors.connect.nodes import as_boolean, as_bytes, as_int, as_long, as_text, member
from tests.vectors.connect.numbers import float32_of, float64_of
from tests.vectors.connect.schemas import read_schema, write_schema

Node = dict[str, Any]


class Linked(dict[Any, Any]):
    """A map that keeps its order in Java, too: what a case gives, and what is not built anew."""


class AnObject:
    """A value of a class that Connect does not know."""

    def __str__(self) -> str:
        return "anObject"


def schema_of(node: Any) -> Schema | None:
    """Read a schema."""
    return read_schema(node, value_of)


def out_schema(schema: Schema | None) -> Any:
    """Write a schema."""
    return write_schema(schema, out_linked)


def value_of(node: Any, hint: Schema | None = None) -> Any:
    """Read a value.

    Args:
        node: what the case says.
        hint: the schema of a struct that says none itself.
    """
    kind = type(node)
    if kind is str or kind is bool or node is None:
        return node
    if kind is dict:
        return _of_object(node, hint)
    if kind is list:
        return [value_of(item) for item in node]
    return as_long(node) if kind is int else float(node)


def _of_object(node: dict[str, Any], hint: Schema | None) -> Any:
    if "t" not in node:
        return Linked({key: value_of(item) for key, item in node.items()})
    kind = as_text(node["t"])
    if kind == "struct":
        return _struct(node, hint)
    read = _READERS.get(kind)
    if read is None:
        raise ArgumentError("the case has a value of a type that there is not")
    if kind in _FLOATS and "bits" in node:
        return _FLOATS[kind](as_text(node["bits"]))
    return read(member(node, "v") if kind not in _VALUELESS else None)


def _struct(node: dict[str, Any], hint: Schema | None) -> Struct:
    schema = schema_of(node["schema"]) if "schema" in node else hint
    if schema is None:
        raise NullValueError("a struct without a schema")
    made, fields = Struct(schema), schema.by_name
    for name, item in member(node, "v").items():
        field = fields.get(name)
        made.put(name, value_of(item, None if field is None else field.schema))
    return made


def _map(node: Any) -> Linked:
    return Linked({value_of(key): value_of(item) for key, item in node})


def _decimal(node: Any) -> DecimalNumber:
    try:
        found = DecimalNumber(as_text(node).replace("_", "?"))
    except InvalidOperation:
        raise NumberTextError("expected a decimal") from None
    if not found.is_finite():
        raise NumberTextError("expected a decimal")
    return found or found.copy_abs()  # there is no -0 in Java


def _big_integer(node: Any) -> BigInteger:
    try:
        return BigInteger(as_text(node).replace("_", "?"))
    except ValueError:
        raise NumberTextError("expected an integer") from None


def _float32_of_bits(text: str) -> Float32:
    return Float32(struct.unpack(">f", (int(text, 16) & 0xFFFF_FFFF).to_bytes(4, "big"))[0])


def _float64_of_bits(text: str) -> float:
    found: float = struct.unpack(">d", int(text, 16).to_bytes(8, "big"))[0]
    return found


_READERS: Final[dict[str, Callable[[Any], Any]]] = {
    "null": lambda _: None,
    "boolean": as_boolean,
    "int8": lambda node: Int8.wrapped(as_int(node)),
    "int16": lambda node: Int16.wrapped(as_int(node)),
    "int32": lambda node: Int32(as_int(node)),
    "int64": as_long,
    "float32": lambda node: float32_of(as_text(node)),
    "float64": lambda node: float64_of(as_text(node)),
    "string": as_text,
    "bytes": as_bytes,
    "bytebuffer": lambda node: memoryview(as_bytes(node)),
    "decimal": _decimal,
    "bigint": _big_integer,
    "date": lambda node: from_epoch_ms(as_long(node)),
    "array": lambda node: [value_of(item) for item in node or ()],
    "map": _map,
    "object": lambda _: AnObject(),
}
_FLOATS: Final[dict[str, Callable[[str], Any]]] = {"float32": _float32_of_bits, "float64": _float64_of_bits}
_VALUELESS: Final = frozenset({"null", "object"})


def _out_float32(value: float) -> Node:
    bits = "7fc00000" if value != value else struct.pack(">f", value).hex()  # noqa: PLR0124 - NaN has one form
    return {"t": "float32", "v": float32_text(value), "bits": bits}


def _out_float64(value: float) -> Node:
    bits = "7ff8000000000000" if value != value else struct.pack(">d", value).hex()  # noqa: PLR0124 - as above
    return {"t": "float64", "v": float64_text(value), "bits": bits}


def _out_decimal(value: DecimalNumber) -> Node:
    unscaled = str(DecimalNumber(unscaled_of(value)))
    return {"t": "decimal", "v": str(value), "unscaled": unscaled, "scale": scale_of(value)}


def _out_other(value: Any) -> Node:
    name = "Oracle$1" if isinstance(value, AnObject) else type(value).__qualname__
    return {"t": "java", "class": name, "v": str(value)}


def _base64(value: Any) -> str:
    return b64encode(bytes(value)).decode("ascii")


_SCALARS: Final[dict[type, Callable[[Any], Node | None]]] = {
    type(None): lambda _: None,
    bool: lambda value: {"t": "boolean", "v": value},
    Int8: lambda value: {"t": "int8", "v": int(value)},
    Int16: lambda value: {"t": "int16", "v": int(value)},
    Int32: lambda value: {"t": "int32", "v": int(value)},
    BigInteger: lambda value: {"t": "bigint", "v": str(DecimalNumber(int(value)))},
    Instant: lambda value: {"t": "date", "v": int(value)},
    int: lambda value: {"t": "int64", "v": value},
    Float32: _out_float32,
    float: _out_float64,
    str: lambda value: {"t": "string", "v": value},
    bytes: lambda value: {"t": "bytes", "v": _base64(value)},
    bytearray: lambda value: {"t": "bytes", "v": _base64(value)},
    memoryview: lambda value: {"t": "bytebuffer", "v": _base64(value)},
    DecimalNumber: _out_decimal,
    datetime: lambda value: {"t": "date", "v": to_epoch_ms(value)},
    object: _out_other,
}


class _Writer:
    """Write values.

    Args:
        ordered: whether all maps keep their order; a plain dict stands for a HashMap otherwise.
    """

    def __init__(self, *, ordered: bool) -> None:
        self._ordered: Final = ordered
        self._writers: Final[dict[type, Callable[[Any], Node | None]]] = {
            **_SCALARS,
            list: self._list,
            tuple: self._list,
            dict: self._map,
            Struct: self._struct,
        }

    def write(self, value: Any) -> Node | None:
        """Return the node of a value."""
        write = self._writers.get(value.__class__)
        if write is None:
            write = next(self._writers[kind] for kind in type(value).__mro__ if kind in self._writers)
        return write(value)

    def _list(self, value: list[Any]) -> Node:
        return {"t": "array", "v": list(map(self.write, value))}

    def _map(self, value: dict[Any, Any]) -> Node:
        write = self.write
        pairs = [[write(key), write(item)] for key, item in value.items()]
        if self._ordered or isinstance(value, Linked):
            return {"t": "map", "v": pairs}
        pairs.sort(key=_java_order)
        return {"t": "map", "order": "unspecified", "v": pairs}

    def _struct(self, value: Struct) -> Node:
        fields = dict(zip(value.schema.by_name, map(self.write, value.values), strict=True))
        return {"t": "struct", "schema": out_schema(value.schema), "v": fields}


def _java_order(pair: list[Any]) -> bytes:
    """Return what sorts as Java's text of the JSON of a pair's key does: by units of UTF-16."""
    key = pair[0]
    is_text = key is not None and key["t"] == "string"
    # Keys are text nearly always, whose JSON takes a tenth of the time of an object's.
    text = f'{{"t":"string","v":{_compact(key["v"])}}}' if is_text else _compact(key)
    return text.encode("utf-16-be", "surrogatepass")


_compact: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_unordered: Final = _Writer(ordered=False)
_linked: Final = _Writer(ordered=True)


def out(value: Any) -> Any:
    """Write a value; a plain dict stands for a HashMap."""
    return _unordered.write(value)


def out_linked(value: Any) -> Any:
    """Write a value whose maps all keep their order."""
    return _linked.write(value)


def out_pair(pair: SchemaAndValue | None, write: Callable[[Any], Any] = out) -> Any:
    """Write a value beside its schema."""
    return None if pair is None else {"schema": out_schema(pair.schema), "value": write(pair.value)}


def out_bytes(data: bytes | None) -> dict[str, Any]:
    """Write bytes, as text, too."""
    if data is None:
        return {"b64": None}
    return {"b64": _base64(data), "utf8": utf_8_as_java(bytes(data))}


def cast(value: Any, kind: type | tuple[type, ...]) -> Any:
    """Return a value of a class, or null; refuse another as Java's cast does."""
    if value is not None and not isinstance(value, kind):
        raise ValueClassError(f"the case has a value of class {type(value).__name__}")
    return value
