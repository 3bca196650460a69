"""Convert values to decimals (KIP-145's ``Values.convertToDecimal``)."""

from __future__ import annotations

import math
from decimal import Decimal as DecimalNumber
from typing import Any, Final

from headerware.connect.data.logical import Decimal, of_unscaled, scale_of
from headerware.connect.data.schema import Schema
from headerware.connect.data.times import is_time
from headerware.connect.errors import ConnectDataError
from headerware.connect.java.numbers import is_number, parse_decimal, to_float64
from headerware.connect.java.text import float64_text, number_text
from headerware.connect.modes import STRICT, Mode
from headerware.connect.values.numbers_of import exact_number
from headerware.connect.values.shapes import decimal_of

_MAX_DIGITS: Final = 10_000
"""The most digits that zeros are added up to; a small text can say a number that fills the memory."""


def convert_to_decimal(
    schema: Schema | None, value: Any, scale: int, *, mode: Mode = "strict"
) -> DecimalNumber | None:
    """Convert a number, a text or the bytes of a decimal to a decimal.

    Args:
        schema: what the value is; None for a schemaless one.
        value: the value.
        scale: the digits after the point. In ``kafka_4_3`` they count for bytes only: the others come with as
            many as they have, and integers by way of a float64, ``5`` as ``5.0``.
        mode: ``strict`` gives exactly the number, with zeros added or taken away, or else refuses.

    Raises:
        ConnectDataError: the value stands for no decimal; in ``strict``, for none of so many digits after the
            point; in ``kafka_4_3``, it is null.
        NumberTextError: in ``kafka_4_3``, no number, infinity, a text that is no number, or no bytes.
    """
    if mode == STRICT:
        return None if value is None else _exactly(schema, value, scale)
    if isinstance(value, bytes | bytearray | memoryview):
        return Decimal.to_logical(decimal_of(scale), bytes(value))
    if isinstance(value, DecimalNumber):
        return value
    if is_number(value):
        return parse_decimal(float64_text(to_float64(value)))
    if isinstance(value, str):
        return parse_decimal(value)
    raise _refused(value)


def _exactly(schema: Schema | None, value: Any, scale: int) -> DecimalNumber:
    if isinstance(value, bytes | bytearray | memoryview):
        if not value:
            raise ConnectDataError("expected the bytes of a decimal, found none")
        return of_unscaled(int.from_bytes(bytes(value), "big", signed=True), scale)
    if is_time(value):
        raise _refused(value)
    number = exact_number(schema, value)
    if isinstance(number, float):
        if not math.isfinite(number):
            raise ConnectDataError("expected a decimal, found infinity or no number")
        # As it is written, which is the decimal that is meant: 0.1, not the float's 55 digits.
        number = DecimalNumber(number_text(number))
    return rescaled(DecimalNumber(number), scale)


def rescaled(number: DecimalNumber, scale: int) -> DecimalNumber:
    """Return a decimal with so many digits after the point.

    Args:
        number: the decimal.
        scale: the digits after the point.

    Raises:
        ConnectDataError: it has digits beyond them, or would have too many in all.
    """
    zeros = scale - scale_of(number)
    sign, digits, _ = number.as_tuple()
    if not number:
        return of_unscaled(0, scale)
    if zeros > 0 and zeros + len(digits) > _MAX_DIGITS:
        raise ConnectDataError(f"expected a decimal of at most {_MAX_DIGITS} digits, found a longer one")
    if zeros < 0 and any(digits[zeros:]):
        raise ConnectDataError(f"expected a decimal of {scale} digits after the point, found more")
    kept = digits + (0,) * zeros if zeros >= 0 else digits[:zeros]
    return DecimalNumber((sign, kept, -scale))


def _refused(value: Any) -> ConnectDataError:
    if value is None:
        return ConnectDataError("expected a decimal, found null")
    return ConnectDataError(f"expected a decimal, found a value of class {type(value).__name__}")
