"""Random values in the place of others, of the same type and shape, by the system's strong source.

texts      as long; digits become digits, letters letters, separators stay, all else becomes letters or digits
numbers    the same sign and count of digits; booleans either
decimals   the same sign, digits and scale
bytes      as many
times      a day of the hundred years from 1970, and a time of day where there was one
arrays, dicts, structs   the same, with random values; a dict's names, too, unless they are of a struct
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

from headerware.connect.data.logical import scale_of
from headerware.connect.data.numbers import BigInteger, Float32, Int8, Int16, Int32
from headerware.connect.data.schema import TIME, Schema
from headerware.connect.data.struct import Struct
from headerware.connect.data.times import DAY_MS, Instant, from_epoch_ms, to_epoch_ms
from headerware.connect.errors import ConnectDataError

_DIGITS: Final = "0123456789"
_LOWER: Final = "abcdefghijklmnopqrstuvwxyz"
_UPPER: Final = _LOWER.upper()
_SEPARATORS: Final = frozenset(" -_.:/,@+()")
_CENTURY_DAYS: Final = 36_525
_ABOVE: Final[dict[type, int]] = {Int8: 1 << 7, Int16: 1 << 15, Int32: 1 << 31, int: 1 << 63}
"""What is too large for a class; of larger numbers the count of bits is kept, not that of decimal digits."""


class RandomMask:
    """Replace values by random ones."""

    def of_value(self, value: Any) -> Any:
        """Return a random value like one without a schema; null stays null.

        Raises:
            ConnectDataError: there is none like it.
        """
        try:
            return _like(value, None)
        except RecursionError:
            raise ConnectDataError("a value with so many levels in it cannot be made random") from None

    def for_schema(self, schema: Schema, name: str) -> Callable[[Any], Any]:
        """Return a function that does so for values of a schema."""
        del name
        return lambda value: _like(value, schema)


def _like(value: Any, schema: Schema | None) -> Any:
    if value is None:
        return None
    make = _OF_CLASS.get(type(value)) or next(
        (_OF_CLASS[kind] for kind in (list, tuple, dict) if isinstance(value, kind)), None
    )
    if make is None:
        raise ConnectDataError(f"a value of class {type(value).__name__} cannot be made random")
    return make(value, schema)


def _boolean(_: bool, __: Schema | None) -> bool:  # noqa: FBT001 - it is the value to replace
    return secrets.randbits(1) == 1


def _integer(value: int, _: Schema | None) -> int:
    kind, size = type(value), abs(int(value))
    above = _ABOVE.get(kind, _ABOVE[int])
    if size > above:
        made = secrets.randbits(size.bit_length()) | 1 << size.bit_length() - 1
    else:
        digits = len(str(size))
        lowest = 10 ** (digits - 1) if digits > 1 else 0
        made = lowest + secrets.randbelow(min(10**digits, above) - lowest)
    return kind(-made if value < 0 else made)


def _float(value: float, _: Schema | None) -> float:
    kind, (mantissa, mark, exponent) = type(value), float.__repr__(value).partition("e")
    if math.isfinite(value):
        made = kind(_text_like(mantissa) + mark + exponent)
        if math.isfinite(made):
            return made
    return kind(secrets.randbits(53) / (1 << 53))


def _decimal(value: Decimal, _: Schema | None) -> Decimal:
    exponent = -scale_of(value)
    sign, digits, _exponent = value.as_tuple()
    return Decimal((sign, [secrets.randbelow(10) for _ in digits], exponent))


def _text(value: str, _: Schema | None) -> str:
    if not any(character.isalnum() for character in value):
        return "".join(secrets.choice(_LOWER) for _ in value)
    return _text_like(value)


def _text_like(value: str) -> str:
    return "".join(map(_character, value))


def _character(character: str) -> str:
    if character in _SEPARATORS:
        return character
    if character.isdigit():
        return secrets.choice(_DIGITS)
    if character.isupper():
        return secrets.choice(_UPPER)
    return secrets.choice(_LOWER if character.isalpha() else _LOWER + _DIGITS)


def _bytes(value: bytes | bytearray | memoryview, _: Schema | None) -> bytes:
    return secrets.token_bytes(memoryview(value).nbytes)


def _time(value: datetime | Instant, schema: Schema | None) -> Any:
    of_day = secrets.randbelow(DAY_MS)
    if schema is not None and schema.name == TIME:
        return from_epoch_ms(of_day)
    has_time = to_epoch_ms(value) % DAY_MS != 0
    return from_epoch_ms(secrets.randbelow(_CENTURY_DAYS) * DAY_MS + (of_day if has_time else 0))


def _array(value: list[Any] | tuple[Any, ...], schema: Schema | None) -> list[Any]:
    element = None if schema is None else schema.value_schema
    return [_like(item, element) for item in value]


def _dict(value: dict[Any, Any], schema: Schema | None) -> dict[Any, Any]:
    of_key, of_value = (None, None) if schema is None else (schema.key_schema, schema.value_schema)
    return {_like(key, of_key): _like(item, of_value) for key, item in value.items()}


def _struct(value: Struct, _: Schema | None) -> Struct:
    schema = value.schema
    values = zip(value.values, schema.fields, strict=True)
    return Struct.trusted(schema, [_like(item, field.schema) for item, field in values])


_OF_CLASS: Final[dict[type, Callable[[Any, Schema | None], Any]]] = {
    bool: _boolean,
    **dict.fromkeys((Int8, Int16, Int32, int, BigInteger), _integer),
    **dict.fromkeys((Float32, float), _float),
    Decimal: _decimal,
    str: _text,
    **dict.fromkeys((bytes, bytearray, memoryview), _bytes),
    **dict.fromkeys((datetime, Instant), _time),
    **dict.fromkeys((list, tuple), _array),
    dict: _dict,
    Struct: _struct,
}
