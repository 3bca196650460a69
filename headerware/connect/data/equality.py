"""Equality as in Java, by class and content: an int8 of 1 is neither an int64 of 1 nor a boolean."""

from __future__ import annotations

import math
from decimal import Decimal as DecimalNumber
from typing import Any

from headerware.connect.errors import ConnectDataError


def alike(one: Any, other: Any) -> bool:
    """Return whether two values are equal by class and content, like Java's boxed values.

    NaN equals NaN, 0.0 does not equal -0.0, and the decimal 1.0 does not equal 1.00. Lists and maps are
    compared by their contents.

    Raises:
        ConnectDataError: the values are nested too deeply.
    """
    try:
        return _alike(one, other)
    except RecursionError:
        raise ConnectDataError("the values are nested too deeply to be compared") from None


def _alike(one: Any, other: Any) -> bool:
    if one is other:
        return True
    if isinstance(one, list | tuple):
        return isinstance(other, list | tuple) and len(one) == len(other) and all(map(_alike, one, other))
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return len(one) == len(other) and all(
            key in other and _alike(value, other[key]) for key, value in one.items()
        )
    if isinstance(one, float):
        if math.isnan(one) or math.isnan(other):
            return math.isnan(one) and math.isnan(other)
        return bool(one == other) and math.copysign(1.0, one) == math.copysign(1.0, other)
    if isinstance(one, DecimalNumber):
        return bool(one.as_tuple() == other.as_tuple())
    return bool(one == other)
