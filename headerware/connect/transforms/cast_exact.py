"""Casts that keep what a value says: a number that does not fit, or would lose digits, is refused.

A text becomes an integer where it is how that is written: ``42``, but not ``+42``, ``007`` or ``42.0``. It
becomes a floating-point number where that has the same value: ``1.50``, but not ``1f``, ``.5`` or ``NaN``. It
becomes a boolean where it is ``true`` or ``false``; numbers do where they are 1 or 0.
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Callable
from decimal import Decimal as DecimalNumber
from typing import TYPE_CHECKING, Any, Final

from headerware.connect.data.logical import TIME_TYPES
from headerware.connect.data.numbers import Float32, Int8, Int16, Int32
from headerware.connect.data.schema import DATE, DECIMAL, TIME, TIMESTAMP, Type
from headerware.connect.data.times import is_time
from headerware.connect.errors import ConnectDataError
from headerware.connect.java.date_format import DateFormat
from headerware.connect.java.numbers import float32_of_decimal, is_number
from headerware.connect.java.text import NUMBER_TEXTS, float32_text, float64_text, java_text, number_text
from headerware.connect.transforms.cast_kafka import SOURCES, castable

if TYPE_CHECKING:
    from headerware.connect.data.schema import Schema

Convert = Callable[[Any], Any]
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?(?:[eE][+-]?[0-9]{1,4})?")
_INTEGER: Final = re.compile(r"0|-?[1-9][0-9]{0,18}")
_MOST_DIGITS: Final = 19
_INT64: Final = range(-(1 << 63), 1 << 63)
LOGICAL_NAMES: Final = frozenset({DATE, TIME, TIMESTAMP, DECIMAL})
"""The names that say nothing of what a value is cast to."""
_DATES: Final = {
    DATE: DateFormat("yyyy-MM-dd"),
    TIME: DateFormat("HH:mm:ss.SSS'Z'"),
    TIMESTAMP: DateFormat("yyyy-MM-dd'T'HH:mm:ss.SSS'Z'"),
}


def exact_cast(schema: Schema | None, target: Type) -> Convert:
    """Return the function that casts values of a schema; null stays null.

    Args:
        schema: the schema; None for values without one.
        target: the type to cast to.

    Raises:
        ConnectDataError: values of this schema cannot be cast.
    """
    cast = CASTS[target]
    if schema is None:
        return lambda value: None if value is None else cast(castable(value))
    if schema.type not in SOURCES:
        raise ConnectDataError(f"expected a number, boolean, string or bytes to cast, found {schema}")
    if schema.type is Type.BYTES and schema.name != DECIMAL and target is not Type.STRING:
        raise ConnectDataError(f"bytes are cast to string alone, in base64; expected is {target.value}")
    logical = TIME_TYPES.get(schema.name or "")
    if logical is None:
        return lambda value: None if value is None else cast(value)
    if target is Type.STRING:
        write = _DATES[logical.LOGICAL_NAME].format
        return lambda value: None if value is None else write(_time(value, schema))
    encode = logical.from_logical
    return lambda value: None if value is None else cast(encode(schema, _time(value, schema)))


def _time(value: Any, schema: Schema) -> Any:
    if not is_time(value):
        raise ConnectDataError(f"expected a datetime for {schema}, found {type(value).__name__}")
    return value


def _lossy(target: str, what: str) -> ConnectDataError:
    return ConnectDataError(f"expected a value that {target} holds without loss, found {what}")


def _integer(width: type[Int8 | Int16 | Int32] | None) -> Convert:
    target = "int64" if width is None else f"int{width.bits}"

    def cast(value: Any) -> Any:
        number = _whole(value, target)
        if width is None:
            if number not in _INT64:
                raise _lossy(target, "a larger number")
            return int(number)
        try:
            return width(number)
        except ConnectDataError:
            raise _lossy(target, "a larger number") from None

    return cast


def _whole(value: Any, target: str) -> int:
    if isinstance(value, str):
        if _INTEGER.fullmatch(value) is None:
            raise _lossy(target, "a text that is not how an integer is written")
        return int(value)
    if not isinstance(value, bool) and not is_number(value):
        raise _lossy(target, f"a value of class {type(value).__name__}")
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if not value.is_integer():
            raise _lossy(target, "a number with a fraction, or none")
        return int(value)
    return _whole_decimal(value, target)


def _whole_decimal(value: DecimalNumber, target: str) -> int:
    sign, digits, exponent = value.as_tuple()
    # Looked at before it is made an integer, which may have any number of digits.
    if not isinstance(exponent, int) or value.adjusted() >= _MOST_DIGITS:
        raise _lossy(target, "a larger number, or none")
    if not value:
        return 0
    if exponent < 0 and any(digits[exponent:]):
        raise _lossy(target, "a number with a fraction")
    whole = digits[:exponent] if exponent < 0 else digits
    return int(DecimalNumber((sign, whole, max(exponent, 0))))


def _float32(value: Any) -> Float32:
    if isinstance(value, float):
        made = Float32(value)
        # Shown in its fewest digits, a float64 is the same number, such as 0.1.
        if made == value or math.isnan(value) or float(float32_text(made)) == value:
            return made
        raise _lossy("float32", "a number with more digits")
    text = _decimal_text(value, "float32")
    return Float32(_checked(float32_of_decimal(text), float32_text, text, "float32"))


def _float64(value: Any) -> float:
    if isinstance(value, Float32):
        return float(value)
    if isinstance(value, float):
        return value
    text = _decimal_text(value, "float64")
    return _checked(float(text), float64_text, text, "float64")


def _checked(number: float, write: Callable[[float], str], text: str, target: str) -> float:
    if not math.isfinite(number) or DecimalNumber(write(number)) != DecimalNumber(text):
        raise _lossy(target, "a number with more digits, or a larger one")
    return number


def _decimal_text(value: Any, target: str) -> str:
    if isinstance(value, str):
        if _NUMBER.fullmatch(value) is None:
            raise _lossy(target, "a text that is not how a number is written")
        return value
    if isinstance(value, bool):
        return str(int(value))
    if is_number(value):
        return number_text(value)
    raise _lossy(target, f"a value of class {type(value).__name__}")


def _boolean(value: Any) -> bool:
    if isinstance(value, str):
        if value in {"true", "false"}:
            return value == "true"
    elif isinstance(value, bool):
        return value
    elif is_number(value) and value in (0, 1):
        return bool(value)
    raise _lossy("boolean", "something else than true, false, 1 and 0")


def _text(value: Any) -> str:
    write = NUMBER_TEXTS.get(value.__class__)
    if write is not None:
        return write(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode()
    if isinstance(value, str | bool) or is_number(value):
        return java_text(value)
    raise _lossy("string", f"a value of class {type(value).__name__}")


CASTS: Final[dict[Type, Convert]] = {
    Type.INT8: _integer(Int8),
    Type.INT16: _integer(Int16),
    Type.INT32: _integer(Int32),
    Type.INT64: _integer(None),
    Type.FLOAT32: _float32,
    Type.FLOAT64: _float64,
    Type.BOOLEAN: _boolean,
    Type.STRING: _text,
}
"""What casts to each type."""
