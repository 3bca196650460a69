"""JSON as it is read: None, bool, int, float or Decimal, str, list and dict.

Numbers with a point or an exponent are read as float first, which is fast; where their digits matter, they
are read again as Decimal. Nothing here depends on the decimal context.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal as DecimalNumber
from decimal import InvalidOperation
from typing import Any, Final

from headerware.connect.data.numbers import Float32, rounded_to_float32
from headerware.connect.errors import ConnectDataError

MISSING: Final = object()
"""What Kafka reads where there are no bytes; of no JSON type."""
MAX_DIGITS: Final = 1000
"""The digits that a number may have, as in Jackson, which Kafka reads JSON with."""
MAX_DEPTH: Final = 1000
"""How deep lists and objects may be nested, as in Jackson."""
_MAX_SCALE: Final = (1 << 31) - 1
_EXPONENT: Final = "expected numbers with exponents of up to 32 bits"


class DigitsNeededError(Exception):
    """A number was read as float, but its digits matter: read the JSON again with Decimals."""


def decimal_of(text: str) -> DecimalNumber:
    """Return a number with a point or an exponent exactly, as Java has it: zero has no sign.

    Raises:
        ConnectDataError: it has too many digits, or its exponent too large a number.
    """
    number = signed_decimal_of(text)
    return number or number.copy_abs()


def signed_decimal_of(text: str) -> DecimalNumber:
    """Give a number with a point or an exponent exactly; zero keeps its sign, for a float may be read of it.

    Raises:
        ConnectDataError: it has too many digits, or its exponent too large a number.
    """
    if len(text) > MAX_DIGITS and sum(map(str.isdigit, text)) > MAX_DIGITS:
        raise ConnectDataError(f"expected numbers of up to {MAX_DIGITS} digits")
    try:
        number = DecimalNumber(text)
    except InvalidOperation:  # an exponent that not even a Decimal has
        raise ConnectDataError(_EXPONENT) from None
    exponent = number.as_tuple().exponent
    if not isinstance(exponent, int) or not -_MAX_SCALE <= exponent <= _MAX_SCALE:
        raise ConnectDataError(_EXPONENT)
    return number


def truncated(number: DecimalNumber) -> int:
    """Return the lowest 64 bits of a number's integral part, or the whole."""
    exponent = number.as_tuple().exponent
    # Ten to the power of 64 is a multiple of two to the power of 64.
    return 0 if isinstance(exponent, int) and exponent >= 64 else int(number)


def float64_of(number: DecimalNumber | int) -> float:
    """Return the nearest float, infinity where there is none."""
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def float32_of(number: DecimalNumber | int) -> Float32:
    """Return the nearest float of 32 bits, infinity where there is none."""
    near = float64_of(number)
    if is_tie(near) and number != near:
        # Rounded twice, it would go to the even neighbour; it is above or below the middle.
        near = math.nextafter(near, math.inf if number > near else -math.inf)
    return Float32(near)


def is_tie(number: float) -> bool:
    """Return whether a float may lie in the middle of two floats of 32 bits."""
    rounded = rounded_to_float32(number)
    other = 2 * number - rounded
    return rounded != number and other == rounded_to_float32(other)


def is_negative_zero(number: float) -> bool:
    """Return whether this is -0.0: which Java has for what is too near to zero, but not for a zero."""
    return number == 0.0 and math.copysign(1.0, number) < 0


def with_numbers(tree: Any, number: Callable[[Any], Any]) -> Any:
    """Put other numbers in place of all ints and Decimals; lists and objects are changed in place.

    Args:
        tree: what was read; it may be nested as deep as it likes.
        number: gives the one for the other.
    """
    root = [tree]
    pending: list[Any] = [root]
    while pending:
        holder = pending.pop()
        for at, item in holder.items() if holder.__class__ is dict else enumerate(holder):
            kind = item.__class__
            if kind is dict or kind is list:
                pending.append(item)
            elif kind is int or kind is DecimalNumber:
                holder[at] = number(item)
    return root[0]


def count_of_names(tree: Any) -> int:
    """Count the names in all objects."""
    count = 0
    pending: list[Any] = [tree]
    while pending:
        node = pending.pop()
        if node.__class__ is dict:
            count += len(node)
            node = node.values()
        elif node.__class__ is not list:
            continue
        pending += [item for item in node if item.__class__ is dict or item.__class__ is list]
    return count
