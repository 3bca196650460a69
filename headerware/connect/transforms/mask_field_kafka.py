"""What MaskField puts in the place of values in ``kafka_4_3``: by their classes, not by their schemas."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

from headerware.connect.data.numbers import BigInteger, Float32, Int8, Int16, Int32
from headerware.connect.data.times import Instant, from_epoch_ms
from headerware.connect.errors import ConnectDataError, NumberTextError
from headerware.connect.java.numbers import parse_big_integer, parse_decimal
from headerware.connect.modes import KAFKA_4_3
from headerware.connect.values import (
    convert_to_byte,
    convert_to_double,
    convert_to_float,
    convert_to_integer,
    convert_to_long,
    convert_to_short,
)

_EPOCH: Final = from_epoch_ms(0)
_BLANK: Final[dict[type, Any]] = {
    bool: False,
    Int8: Int8(0),
    Int16: Int16(0),
    Int32: Int32(0),
    int: 0,
    Float32: Float32(0),
    float: 0.0,
    BigInteger: BigInteger(0),
    Decimal: Decimal(0),
    datetime: _EPOCH,
    Instant: _EPOCH,
    str: "",
}
_REPLACED: Final[dict[type, Callable[[str], Any]]] = {
    Int8: lambda text: convert_to_byte(None, text, mode=KAFKA_4_3),
    Int16: lambda text: convert_to_short(None, text, mode=KAFKA_4_3),
    Int32: lambda text: convert_to_integer(None, text, mode=KAFKA_4_3),
    int: lambda text: convert_to_long(None, text, mode=KAFKA_4_3),
    Float32: lambda text: convert_to_float(None, text, mode=KAFKA_4_3),
    float: lambda text: convert_to_double(None, text, mode=KAFKA_4_3),
    str: str,
    Decimal: parse_decimal,
    BigInteger: parse_big_integer,
}


class KafkaMask:
    """Give masks by the classes of values.

    Args:
        replacement: the text of numbers and texts; None for zeros and empty ones.
    """

    def __init__(self, replacement: str | None) -> None:
        self._replacement: Final = replacement
        self._known: dict[type, Any] = dict(_BLANK) if replacement is None else {}

    def of(self, value: Any) -> Any:
        """Return the mask of a value; null stays null.

        Raises:
            ConnectDataError: values of this class cannot be masked, or not so.
        """
        if value is None:
            return None
        kind = type(value)
        mask = self._known.get(kind)
        if mask is not None:
            return mask
        if self._replacement is None:
            return _empty(value)
        mask = self._known[kind] = _replaced(kind, self._replacement)
        return mask


def _empty(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return []
    if isinstance(value, dict):
        return {}
    if isinstance(value, datetime):
        return _EPOCH
    raise ConnectDataError(f"a value of class {type(value).__name__} cannot be masked")


def _replaced(kind: type, text: str) -> Any:
    convert = _REPLACED.get(kind)
    if convert is None:
        raise ConnectDataError(f"a value of class {kind.__name__} cannot be masked by a replacement")
    try:
        return convert(text)
    except NumberTextError as error:
        raise ConnectDataError(f"the replacement is no {kind.__name__}") from error
