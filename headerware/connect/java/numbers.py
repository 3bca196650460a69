"""Read numbers from text, and narrow them, as Java does.

Integers     a sign and decimal digits of any script of the basic plane: ``+7``, ``٣``
Floats       ASCII, blanks around: ``.5``, ``1e3``, ``1f``, ``0x1.8p1``, ``NaN``, ``-Infinity``
BigDecimal   a sign, digits, a point, an exponent of 32 bits: ``-.5``, ``1.``, ``1e-3``; no blanks
"""

from __future__ import annotations

import math
import re
import struct
from decimal import MAX_EMAX, MIN_EMIN, ROUND_DOWN, Context
from decimal import Decimal as DecimalNumber
from fractions import Fraction
from typing import Any, Final

from headerware.connect.data.numbers import (
    BigInteger,
    Float32,
    Int8,
    Int16,
    Int32,
    rounded_to_float32,
    wrapped_int64,
)
from headerware.connect.data.times import Instant
from headerware.connect.errors import NumberTextError

BLANKS: Final = "".join(map(chr, range(33)))
"""The characters that Java's ``trim`` removes."""
_INT32: Final = range(-(1 << 31), 1 << 31)
_INT64_MAX: Final = (1 << 63) - 1
_INT64_DIGITS: Final = 19
_MANY_DIGITS: Final = 1000
_INTEGER: Final = re.compile(r"([+-]?)0*([0-9]*)")
_DECIMAL: Final = re.compile(r"[+-]?(?=\.?[0-9])[0-9]*(?:\.([0-9]*))?(?:[eE]([+-]?)0*([0-9]{1,10}))?")
_FLOAT: Final = re.compile(
    r"([+-]?)(?:(NaN|Infinity)|((?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?)"
)
_HEX_FLOAT: Final = re.compile(
    r"[+-]?0[xX]([0-9a-fA-F]*)(?:\.([0-9a-fA-F]*))?[pP]([+-]?)(?=[0-9])0*([0-9]*)[fFdD]?"
)
_DOUBLE: Final = struct.Struct("<d")
_BITS: Final = struct.Struct("<Q")
_TIE: Final = 1 << 28
_BELOW_FLOAT32: Final = (1 << 29) - 1
_FLOAT32_MIN_NORMAL: Final = 2.0**-126


def is_number(value: Any) -> bool:
    """Return whether a value is a ``Number`` in Java: a boolean and a point in time are not."""
    return isinstance(value, int | float | DecimalNumber) and not isinstance(value, bool | Instant)


def to_int64(number: float | DecimalNumber) -> int:
    """Narrow any number as Java's ``longValue``: fractions are dropped, floats saturate, the rest wraps."""
    if isinstance(number, int):
        return wrapped_int64(number)
    if isinstance(number, float):
        return saturated(number, _INT64_MAX)
    power = number.adjusted()
    if power < _INT64_DIGITS - 1:
        return int(number) if power >= 0 else 0
    # A power of ten from the 64th on has no bit left among the lowest 64.
    if _exponent(number) >= 64:
        return 0
    return wrapped_int64(int(_lowest_digits(number) if power > _MANY_DIGITS else number))


def to_float64(number: float | DecimalNumber | Fraction) -> float:
    """Round any number to a float64; a number that is too large becomes infinite."""
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def saturated(number: float, maximum: int) -> int:
    """Narrow a float as a cast in Java: towards zero, and to the nearest end of the range; NaN becomes 0."""
    if math.isnan(number):
        return 0
    if number >= maximum:
        return maximum
    return -maximum - 1 if number <= -maximum - 1 else int(number)


def parse_int8(text: str) -> Int8:
    """Read an int8 as ``Byte.parseByte``."""
    return Int8(_integer(text, Int8.bits))


def parse_int16(text: str) -> Int16:
    """Read an int16 as ``Short.parseShort``."""
    return Int16(_integer(text, Int16.bits))


def parse_int32(text: str) -> Int32:
    """Read an int32 as ``Integer.parseInt``."""
    return Int32(_integer(text, Int32.bits))


def parse_int64(text: str) -> int:
    """Read an int64 as ``Long.parseLong``."""
    return _integer(text, 64)


def parse_big_integer(text: str) -> BigInteger:
    """Read an integer of any size as ``new BigInteger``."""
    sign, digits = _signed_digits(text)
    return BigInteger(-_long_int(digits) if sign == "-" else _long_int(digits))


def parse_float64(text: str) -> float:
    """Read a float64 as ``Double.parseDouble``."""
    trimmed = text.strip(BLANKS)
    match = _FLOAT.fullmatch(trimmed)
    if match is not None:
        return float(match[1] + (match[2] or match[3]))
    return to_float64(_exactly_hexadecimal(trimmed)) * _hexadecimal_sign(trimmed)


def parse_float32(text: str) -> Float32:
    """Read a float32 as ``Float.parseFloat``: rounded once, from the text."""
    trimmed = text.strip(BLANKS)
    match = _FLOAT.fullmatch(trimmed)
    if match is not None:
        return float32_of_decimal(match[1] + (match[2] or match[3]))
    exact = _exactly_hexadecimal(trimmed)
    return Float32(_float32_of(to_float64(exact), exact) * _hexadecimal_sign(trimmed))


def parse_decimal(text: str) -> DecimalNumber:
    """Read a decimal as ``new BigDecimal``, with its scale; there is no negative zero."""
    made = decimal_or_none(text)
    if made is None:
        raise NumberTextError("expected the text of a decimal number, found other text")
    return made


def decimal_or_none(text: str) -> DecimalNumber | None:
    """Read a decimal as ``new BigDecimal``; return None if the text is not a decimal."""
    ascii_text = _in_ascii_digits(text)
    match = _DECIMAL.fullmatch(ascii_text)
    if match is None:
        return None
    fraction, sign, exponent = match.groups()
    if exponent is not None:
        power = -int(exponent) if sign == "-" else int(exponent)
        if power not in _INT32 or len(fraction or "") - power not in _INT32:
            return None
    made = DecimalNumber(ascii_text)
    return made or made.copy_abs()


def float32_of_decimal(text: str) -> Float32:
    """Round the text of a decimal number, NaN or Infinity to 32 bits, once.

    Rounding to 64 bits first and then to 32 bits is wrong if the first result is halfway between two floats.
    """
    wide = float(text)
    return Float32(_float32_of(wide, DecimalNumber(text)) if _is_tie(wide) else wide)


def _float32_of(wide: float, exact: DecimalNumber | Fraction) -> float:
    """Round a number to 32 bits, given its rounding to 64 bits and its exact value."""
    if not _is_tie(wide):
        return rounded_to_float32(wide)
    nearest: Any = type(exact).from_float(wide)
    if exact == nearest:
        return rounded_to_float32(wide)
    return rounded_to_float32(math.nextafter(wide, math.inf if exact > nearest else -math.inf))


def _is_tie(wide: float) -> bool:
    """Return whether a number lies halfway between two numbers of 32 bits."""
    if abs(wide) < _FLOAT32_MIN_NORMAL:
        scaled = math.ldexp(wide, 150)
        return scaled.is_integer() and scaled % 2 == 1
    bits: int = _BITS.unpack(_DOUBLE.pack(wide))[0]
    return bits & _BELOW_FLOAT32 == _TIE


def _in_ascii_digits(text: str) -> str:
    """Replace the digits of other scripts by 0 to 9; as in Java, not the digits beyond the basic plane."""
    if text.isascii():
        return text
    return "".join(str(int(char)) if char.isdecimal() and char < "\U00010000" else char for char in text)


def _integer(text: str, bits: int) -> int:
    sign, digits = _signed_digits(text)
    # Counted first, because int() refuses thousands of digits.
    number = int(sign + digits) if len(digits) <= _INT64_DIGITS else 1 << bits
    if not -(1 << bits - 1) <= number < 1 << bits - 1:
        raise NumberTextError(f"expected an integer of {bits} bits, found a larger one")
    return number


def _signed_digits(text: str) -> tuple[str, str]:
    """Return an integer's sign, and its digits without leading zeros."""
    match = _INTEGER.fullmatch(_in_ascii_digits(text))
    if match is None or match.end() == match.end(1):
        raise NumberTextError("expected the text of an integer, found other text")
    return match[1], match[2] or "0"


def _long_int(digits: str) -> int:
    """Read an integer by halves, because int() refuses thousands of digits."""
    if len(digits) <= _MANY_DIGITS:
        return int(digits)
    half = len(digits) // 2
    power: int = 10**half
    return _long_int(digits[:-half]) * power + _long_int(digits[-half:])


def _exactly_hexadecimal(text: str) -> Fraction:
    """Return the absolute value of a hexadecimal float."""
    match = _HEX_FLOAT.fullmatch(text)
    if match is None or not (match[1] or match[2]):
        raise NumberTextError("expected the text of a floating-point number, found other text")
    whole, fraction, sign, power = match.groups(default="")
    digits = whole + fraction
    # Exponents far outside of a float's range change nothing, and a hostile one must not fill the memory.
    bound = 4096 + 4 * len(digits)
    exponent = int(sign + (power[:18] or "0")) - 4 * len(fraction)
    return int(digits, 16) * Fraction(2) ** max(-bound, min(bound, exponent))


def _hexadecimal_sign(text: str) -> float:
    return -1.0 if text.startswith("-") else 1.0


def _lowest_digits(number: DecimalNumber) -> DecimalNumber:
    """Return the remainder of a division by 2**64, because int() is slow with a long decimal."""
    dividing = Context(prec=number.adjusted() + 2, Emax=MAX_EMAX, Emin=MIN_EMIN)
    return dividing.remainder(number.to_integral_value(ROUND_DOWN), 1 << 64)


def _exponent(number: DecimalNumber) -> int:
    exponent = number.as_tuple().exponent
    return exponent if isinstance(exponent, int) else 0
