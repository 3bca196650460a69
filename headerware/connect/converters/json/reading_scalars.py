"""From JSON to the values of primitive and logical types, in each mode.

``kafka_4_3`` does what Jackson's conversions do: JSON of another kind is zero, false or null, and a number
that its type cannot hold loses its fraction and its highest bits. ``strict`` refuses all that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from decimal import Decimal as DecimalNumber
from typing import Any, Final

from headerware.connect.converters.json.binary import bytes_of_base64, bytes_of_base64_as_jackson
from headerware.connect.converters.json.nodes import (
    DigitsNeededError,
    float32_of,
    float64_of,
    is_negative_zero,
    is_tie,
    truncated,
)
from headerware.connect.data.logical import (
    TIME_TYPES,
    Decimal,
    Timestamp,
    of_unscaled,
    scale_of,
    unscaled_of,
)
from headerware.connect.data.numbers import Float32, Int8, Int16, Int32, wrapped_int64
from headerware.connect.data.schema import DECIMAL, Schema, Type
from headerware.connect.errors import ConnectDataError, ConnectError
from headerware.connect.modes import STRICT, Mode

Read = Callable[[Any], Any]
_INT32: Final = range(-(1 << 31), 1 << 31)
_INT64: Final = range(-(1 << 63), 1 << 63)


def scalars(mode: Mode) -> Callable[[Schema], Read | None]:
    """Return what makes the function for a schema of a primitive or logical type; None for the others."""
    table, decimal, is_strict = (
        (_STRICT, _strict_decimal, True) if mode == STRICT else (_KAFKA, _decimal, False)
    )

    def scalar(schema: Schema) -> Read | None:
        if schema.name == DECIMAL:
            return decimal(schema)
        if schema.name in TIME_TYPES:
            return _time(schema, strict=is_strict)
        return table.get(schema.type)

    return scalar


def _integer(width: type[Int8 | Int16 | Int32]) -> Read:
    limits = range(-(1 << width.bits - 1), 1 << width.bits - 1)
    new, wrapped = int.__new__, width.wrapped

    def read(node: Any) -> int:
        if node.__class__ is int and node in limits:
            return new(width, node)
        return wrapped(_integral(node))

    return read


def _int64(node: Any) -> int:
    if node.__class__ is int and node in _INT64:
        return node
    return wrapped_int64(_integral(node))


def _integral(node: Any) -> int:
    kind = node.__class__
    if kind is int:
        return node  # type: ignore[no-any-return]  # its class was just compared
    if kind is DecimalNumber:
        return truncated(node)
    if kind is float:
        raise DigitsNeededError
    return 0


def _float32(node: Any) -> Float32:
    kind = node.__class__
    if kind is float:
        if is_tie(node) or is_negative_zero(node):
            raise DigitsNeededError
        return Float32(node)
    return float32_of(node) if kind is int or kind is DecimalNumber else Float32()


def _float64(node: Any) -> float:
    kind = node.__class__
    if kind is float:
        if is_negative_zero(node):
            raise DigitsNeededError
        return node  # type: ignore[no-any-return]  # its class was just compared
    return float64_of(node) if kind is int or kind is DecimalNumber else 0.0


def _text(node: Any) -> str | None:
    return node if node.__class__ is str else None


def _bytes(node: Any) -> bytes | None:
    return bytes_of_base64_as_jackson(node) if node.__class__ is str else None


def _decimal(schema: Schema) -> Read:
    def read(node: Any) -> DecimalNumber:
        kind = node.__class__
        if kind is float:
            raise DigitsNeededError
        if kind is int:
            return DecimalNumber(node)
        if kind is str:
            return _decimal_of_bytes(schema, bytes_of_base64_as_jackson(node))
        if kind is not DecimalNumber:
            raise _mismatch("a number or Base64", node)
        return node  # type: ignore[no-any-return]  # its class was just compared

    return read


def _strict_decimal(schema: Schema) -> Read:
    try:
        scale = Decimal.scale(schema)
    except ConnectError as error:
        raise ConnectDataError(str(error)) from None
    if abs(scale) > _MAX_DIGITS:
        raise ConnectDataError(f"expected a scale of up to {_MAX_DIGITS} digits")

    def read(node: Any) -> DecimalNumber:
        kind = node.__class__
        if kind is float:
            raise DigitsNeededError
        if kind is str:
            return _decimal_of_bytes(schema, bytes_of_base64(node))
        if kind is not int and kind is not DecimalNumber:
            raise _mismatch("a number or Base64", node)
        return _scaled(DecimalNumber(node), scale)

    return read


def _decimal_of_bytes(schema: Schema, data: bytes) -> DecimalNumber:
    if len(data) > _MAX_DECIMAL_BYTES:
        raise ConnectDataError(f"expected a decimal of up to {_MAX_DECIMAL_BYTES} bytes, found {len(data)}")
    try:
        return Decimal.to_logical(schema, data)
    except ConnectError as error:
        raise ConnectDataError(str(error)) from None


def _scaled(number: DecimalNumber, scale: int) -> DecimalNumber:
    """Return a number so many digits after the point, if it needs no more."""
    missing = scale - scale_of(number)
    if number.adjusted() + scale > _MAX_DIGITS:
        raise ConnectDataError(f"expected a number of up to {_MAX_DIGITS} digits")
    unscaled = unscaled_of(number)
    if missing < 0:
        unscaled, rest = divmod(unscaled, 10 ** min(-missing, _MAX_DIGITS)) if unscaled else (0, 0)
        if rest:
            raise ConnectDataError(f"expected a number of up to {scale} digits after the point")
        missing = 0
    return of_unscaled(unscaled * 10**missing if unscaled else 0, scale)


def _time(schema: Schema, *, strict: bool) -> Read:
    kind = TIME_TYPES[schema.name or ""]
    limits = None if kind is Timestamp and not strict else _INT64 if kind is Timestamp else _INT32
    to_logical = kind.to_logical

    def read(node: Any) -> Any:
        if node.__class__ is not int or (limits is not None and node not in limits):
            raise _mismatch(f"an integer for a {schema.name}", node)
        return to_logical(schema, wrapped_int64(node))

    return read


def _strict_integer(width: type[Int8 | Int16 | Int32]) -> Read:
    limits = range(-(1 << width.bits - 1), 1 << width.bits - 1)
    new, expected = int.__new__, f"an integer of {width.bits} bits"

    def read(node: Any) -> int:
        if node.__class__ is int and node in limits:
            return new(width, node)
        raise _mismatch(expected, node)

    return read


def _strict_int64(node: Any) -> int:
    if node.__class__ is int and node in _INT64:
        return node
    raise _mismatch("an integer of 64 bits", node)


def _strict_float64(node: Any) -> float:
    kind = node.__class__
    if kind is float:
        return node  # type: ignore[no-any-return]  # its class was just compared
    if kind is int or kind is DecimalNumber:
        made = float64_of(node)
        if math.isfinite(made) and (kind is DecimalNumber or made == node):
            return made
    raise _mismatch("a number that a float of 64 bits can hold", node)


def _strict_float32(node: Any) -> Float32:
    kind = node.__class__
    if kind is float and is_tie(node):
        raise DigitsNeededError
    made = Float32(node) if kind is float else float32_of(node) if kind in _EXACT else None
    if made is None or math.isinf(made) or (kind is int and made != node):
        raise _mismatch("a number that a float of 32 bits can hold", node)
    return made


def _strict_bytes(node: Any) -> bytes:
    if node.__class__ is not str:
        raise _mismatch("Base64", node)
    return bytes_of_base64(node)


def _strictly(kind: type, expected: str) -> Read:
    def read(node: Any) -> Any:
        if node.__class__ is not kind:
            raise _mismatch(expected, node)
        return node

    return read


def _mismatch(expected: str, node: Any) -> ConnectDataError:
    kind = "another number" if node.__class__ in _NUMBERS else type(node).__name__
    return ConnectDataError(f"expected {expected}, found {kind}")


_MAX_DIGITS: Final = 2000
_MAX_DECIMAL_BYTES: Final = 10_000
"""Larger ones take quadratic time to become decimal digits."""
_EXACT: Final = (int, DecimalNumber)
_NUMBERS: Final = (int, float, DecimalNumber)
_KAFKA: Final[Mapping[Type, Read]] = {
    Type.INT8: _integer(Int8),
    Type.INT16: _integer(Int16),
    Type.INT32: _integer(Int32),
    Type.INT64: _int64,
    Type.FLOAT32: _float32,
    Type.FLOAT64: _float64,
    Type.BOOLEAN: lambda node: node is True,
    Type.STRING: _text,
    Type.BYTES: _bytes,
}
GIVES_NULL: Final = frozenset({_text, _bytes})
"""The functions that give null for JSON of another kind."""
_STRICT: Final[Mapping[Type, Read]] = {
    Type.INT8: _strict_integer(Int8),
    Type.INT16: _strict_integer(Int16),
    Type.INT32: _strict_integer(Int32),
    Type.INT64: _strict_int64,
    Type.FLOAT32: _strict_float32,
    Type.FLOAT64: _strict_float64,
    Type.BOOLEAN: _strictly(bool, "true or false"),
    Type.STRING: _strictly(str, "text"),
    Type.BYTES: _strict_bytes,
}
