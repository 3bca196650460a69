"""What MaskField puts in the place of values in the strict mode: nothing or a text, of the same type."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from typing import Any, Final, Protocol

from headerware.connect.data.logical import Decimal as DecimalType
from headerware.connect.data.logical import of_unscaled, scale_of, unscaled_of
from headerware.connect.data.numbers import BigInteger, Float32, Int8, Int16, Int32
from headerware.connect.data.schema import DECIMAL, LOGICAL_CLASSES, Schema, Type
from headerware.connect.data.times import Instant, from_epoch_ms
from headerware.connect.errors import ConnectDataError
from headerware.connect.java.numbers import parse_int64

_EPOCH: Final = from_epoch_ms(0)


class Mask(Protocol):
    """Hide values."""

    def of_value(self, value: Any) -> Any:
        """Return what takes the place of a value without a schema; null stays null.

        Raises:
            ConnectDataError: it cannot be masked.
        """

    def for_schema(self, schema: Schema, name: str) -> Callable[[Any], Any]:
        """Return a function that does so for values of a schema.

        Args:
            schema: the schema.
            name: the field's name, for errors.

        Raises:
            ConnectDataError: they cannot be masked.
        """


_BLANK: Final[dict[type, Callable[[], Any]]] = {
    bool: bool,
    Int8: Int8,
    Int16: Int16,
    Int32: Int32,
    int: int,
    Float32: Float32,
    float: float,
    BigInteger: BigInteger,
    Decimal: Decimal,
    datetime: lambda: _EPOCH,
    Instant: lambda: _EPOCH,
    str: str,
    bytes: bytes,
    bytearray: bytes,
    memoryview: bytes,
    list: list,
    tuple: list,
    dict: dict,
}
"""By class, what has nothing in it; lists and dicts are made anew, for they may be changed later."""
_CONTAINERS: Final[dict[type, Callable[[], Any]]] = {list: list, tuple: list, dict: dict}
"""Those of which there may be subclasses, such as an OrderedDict."""
_OF_TYPE: Final[dict[Type, type]] = {
    Type.INT8: Int8,
    Type.INT16: Int16,
    Type.INT32: Int32,
    Type.INT64: int,
    Type.FLOAT32: Float32,
    Type.FLOAT64: float,
    Type.BOOLEAN: bool,
    Type.STRING: str,
    Type.BYTES: bytes,
    Type.ARRAY: list,
    Type.MAP: dict,
}


def class_of(schema: Schema) -> type | None:
    """Return the class of a schema's values; None for structs."""
    logical = LOGICAL_CLASSES.get(schema.name or "")
    return logical[0] if logical else _OF_TYPE.get(schema.type)


class BlankMask:
    """Replace values by zero, false, or what is empty."""

    def of_value(self, value: Any) -> Any:
        """Return what takes the place of a value without a schema."""
        if value is None:
            return None
        make = _BLANK.get(type(value)) or next(
            (made for kind, made in _CONTAINERS.items() if isinstance(value, kind)), None
        )
        if make is None:
            raise ConnectDataError(f"a value of class {type(value).__name__} cannot be masked")
        return make()

    def for_schema(self, schema: Schema, name: str) -> Callable[[Any], Any]:
        """Return a function that does so for values of a schema."""
        kind = class_of(schema)
        if kind is None:
            raise ConnectDataError(f"field {name!r} is a struct; name the fields in it that are to be masked")
        if kind is Decimal:
            zero = of_unscaled(0, _scale(schema, name))
            return lambda value: None if value is None else zero
        make = _BLANK[kind]
        return lambda value: None if value is None else make()


class TextMask:
    """Replace values by what a text says, in their own types.

    Args:
        text: the text.
    """

    def __init__(self, text: str) -> None:
        self._text: Final = text
        self._known: dict[type, Any] = {}

    def of_value(self, value: Any) -> Any:
        """Return what takes the place of a value without a schema."""
        if value is None:
            return None
        kind = type(value)
        mask = self._known.get(kind)
        if mask is None:
            mask = self._known[kind] = _converted(self._text, kind, f"a value of class {kind.__name__}")
        return mask

    def for_schema(self, schema: Schema, name: str) -> Callable[[Any], Any]:
        """Return a function that does so for values of a schema."""
        mask = _converted(self._text, class_of(schema), f"field {name!r}")
        if schema.name == DECIMAL:
            mask = _rescaled(mask, _scale(schema, name), name)
        return lambda value: None if value is None else mask


_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?")
_BOOLEANS: Final = {"true": True, "false": False}
_MOST_ZEROS: Final = 10_000
"""A schema may say a scale of ten digits; a number of so many zeros would fill the memory."""
_REPLACED: Final[dict[type, tuple[re.Pattern[str], Callable[[str], Any]]]] = {
    bool: (re.compile("true|false"), _BOOLEANS.__getitem__),
    Int8: (_INTEGER, Int8),
    Int16: (_INTEGER, Int16),
    Int32: (_INTEGER, Int32),
    int: (_INTEGER, parse_int64),
    BigInteger: (_INTEGER, BigInteger),
    Float32: (_NUMBER, Float32),
    float: (_NUMBER, float),
    Decimal: (_NUMBER, Decimal),
    str: (re.compile(".*", re.DOTALL), str),
}


def _converted(text: str, kind: type | None, what: str) -> Any:
    if kind is None or kind not in _REPLACED:
        raise ConnectDataError(f"{what} cannot be masked by a replacement")
    pattern, convert = _REPLACED[kind]
    try:
        if pattern.fullmatch(text):
            return convert(text)
    except ValueError:
        pass
    raise ConnectDataError(f"the replacement for {what} is no {kind.__name__}")


def _scale(schema: Schema, name: str) -> int:
    if schema.parameters is None:
        raise ConnectDataError(f"field {name!r} is a decimal, but its schema says no scale")
    return DecimalType.scale(schema)


def _rescaled(number: Decimal, scale: int, name: str) -> Decimal:
    missing = scale - scale_of(number)
    if missing < 0:
        raise ConnectDataError(f"the replacement for field {name!r} has over {scale} digits after the point")
    if missing > _MOST_ZEROS:
        raise ConnectDataError(f"field {name!r} has too many digits after the point: {scale}")
    return of_unscaled(unscaled_of(number) * 10**missing, scale)
