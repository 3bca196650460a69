"""Write numbers and values as Java does.

A floating-point number has the fewest digits that are read back as the same number, with at least one digit
after the point. Below 0.001 and from 10,000,000 on it has an exponent: ``1.0E7``. Java before 19 writes more
digits for some numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import datetime
from decimal import Context
from decimal import Decimal as DecimalNumber
from typing import Any, Final

from headerware.connect.data.numbers import BigInteger, Float32, Int8, Int16, Int32, rounded_to_float32
from headerware.connect.data.struct import Struct
from headerware.connect.data.times import DAY_MS, Instant, to_epoch_ms
from headerware.connect.errors import ConnectDataError
from headerware.connect.java.calendar import EPOCH_DAY, date_of

# A context of its own: the thread's context may write exponents in lower case.
_WRITING: Final = Context(capitals=1)
_WEEKDAYS: Final = ("Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed")
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_PLAIN_FROM: Final = 1e-3
_PLAIN_TO: Final = 1e7
_INT_DIGITS_BITS: Final = 10_000
"""Longer integers are written by way of a decimal, because str() refuses thousands of digits."""


def float64_text(value: float) -> str:
    """Write a float64 as ``Double.toString``."""
    if _PLAIN_FROM <= value < _PLAIN_TO or -_PLAIN_TO < value <= -_PLAIN_FROM or value == 0:
        return float.__repr__(value)
    if not math.isfinite(value):
        return _not_finite(value)
    shortest = float.__repr__(value)
    digits, exponent = _digits_and_exponent(shortest)
    if len(digits) == 1:
        # Java prefers the nearest number of two digits to one of a single digit: 4.9E-324, not 5.0E-324.
        digits, exponent = _digits_and_exponent(f"{abs(value):.1e}")
    return _java_form(math.copysign(1.0, value) < 0, digits, exponent)


def float32_text(value: float) -> str:
    """Write a float32 as ``Float.toString``."""
    if value == 0 or not math.isfinite(value):
        return _not_finite(value) if value != 0 else float.__repr__(value)
    size = abs(float(value))
    shortest = _shortest32(size)
    if _PLAIN_FROM <= size < _PLAIN_TO:
        return float.__repr__(math.copysign(float(shortest), value))
    return _java_form(value < 0, *_digits_and_exponent(shortest))


def _shortest32(size: float) -> str:
    # Numbers of up to six digits all differ in 32 bits, so a shorter text shows as zeros at the end.
    # The smallest numbers are an exception, because they have fewer bits.
    for digits in range(5 if size >= 2.0**-126 else 1, 8):
        text = f"{size:.{digits}e}"
        if rounded_to_float32(float(text)) == size:
            return text
    return f"{size:.8e}"


def _digits_and_exponent(text: str) -> tuple[str, int]:
    """Return the digits of a number without zeros at the ends, and the power of ten of the first one."""
    mantissa, _, power = text.lstrip("-").partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    leading_zeros = len(whole + fraction) - len(digits)
    return digits.rstrip("0"), len(whole) - 1 - leading_zeros + int(power or 0)


def _java_form(negative: bool, digits: str, exponent: int) -> str:  # noqa: FBT001 - the sign comes first
    sign = "-" if negative else ""
    if not -3 <= exponent < 7:
        return f"{sign}{digits[0]}.{digits[1:] or '0'}E{exponent}"
    if exponent < 0:
        return f"{sign}0.{'0' * (-exponent - 1)}{digits}"
    whole = digits[: exponent + 1].ljust(exponent + 1, "0")
    return f"{sign}{whole}.{digits[exponent + 1 :] or '0'}"


def _not_finite(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def integer_text(value: int) -> str:
    """Write an integer of any size."""
    if value.bit_length() < _INT_DIGITS_BITS:
        return int.__repr__(value)
    return f"{DecimalNumber(int(value)):f}"


def _decimal_text(value: DecimalNumber) -> str:
    """Write a decimal as ``BigDecimal.toString``, with an exponent if its scale requires one."""
    return _WRITING.to_sci_string(value or value.copy_abs())


NUMBER_TEXTS: Final[dict[type, Callable[[Any], str]]] = {
    **dict.fromkeys((int, Int8, Int16, Int32, BigInteger), integer_text),
    float: float64_text,
    Float32: float32_text,
    DecimalNumber: _decimal_text,
}
"""The function that writes a number, by its class."""


def number_text(value: Any) -> str:
    """Write any number."""
    write = NUMBER_TEXTS.get(type(value))
    if write is not None:
        return write(value)
    if isinstance(value, DecimalNumber):
        return _decimal_text(value)
    return integer_text(value) if isinstance(value, int) else float64_text(value)


def java_text(value: Any) -> str:
    """Write any value as ``String.valueOf``: lists ``[a, b]``, maps ``{a=b}``, structs ``Struct{a=b}``.

    Args:
        value: the value. For bytes, Java writes only a hash of the object, and so does this function.

    Raises:
        ConnectDataError: the value is nested too deeply.
    """
    try:
        return _text(value)
    except RecursionError:
        raise ConnectDataError("the value is nested too deeply to be written") from None


def _text(value: Any) -> str:
    write = _TEXTS.get(type(value))
    if write is not None:
        return write(value)
    for kind, write_kind in _TEXTS.items():
        if isinstance(value, kind):
            return write_kind(value)
    return str(value)


def _list(value: Any) -> str:
    return f"[{', '.join(map(_text, value))}]"


def _map(value: dict[Any, Any]) -> str:
    return "{" + ", ".join(f"{_text(key)}={_text(item)}" for key, item in value.items()) + "}"


def _struct(value: Struct) -> str:
    pairs = zip(value.schema.by_name, value.values, strict=True)
    return "Struct{" + ",".join(f"{name}={_text(item)}" for name, item in pairs if item is not None) + "}"


def _buffer(value: memoryview) -> str:
    return f"java.nio.HeapByteBuffer[pos=0 lim={value.nbytes} cap={value.nbytes}]"


def _array(value: bytes) -> str:
    return f"[B@{id(value) & 0x7FFFFFFF:x}"


def _time(value: datetime | Instant) -> str:
    """Write a point in time as ``java.util.Date.toString``: ``Sun May 21 16:31:05 UTC 2017``."""
    days, of_day_ms = divmod(to_epoch_ms(value), DAY_MS)
    year, month, day = date_of(days + EPOCH_DAY)
    seconds = of_day_ms // 1000
    clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    of_era = year if year > 0 else 1 - year
    return f"{_WEEKDAYS[days % 7]} {_MONTHS[month - 1]} {day:02} {clock} UTC {of_era}"


# The order counts for subclasses: bool and Instant are ints.
_TEXTS: Final[dict[type, Callable[[Any], str]]] = {
    str: str,
    type(None): lambda _: "null",
    bool: lambda value: "true" if value else "false",
    Instant: _time,
    Float32: float32_text,
    **NUMBER_TEXTS,
    datetime: _time,
    list: _list,
    tuple: _list,
    dict: _map,
    Struct: _struct,
    memoryview: _buffer,
    bytes: _array,
    bytearray: _array,
}
