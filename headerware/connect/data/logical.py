"""Logical types: the name of a schema gives the values of a primitive type another meaning.

Decimal(scale)   bytes   decimal.Decimal    two's complement, big-endian, of the unscaled number
Date             int32   datetime in UTC    days since the epoch
Time             int32   datetime in UTC    milliseconds since midnight, on the first day
Timestamp        int64   datetime in UTC    milliseconds since the epoch
"""

from __future__ import annotations

import re
from datetime import datetime
from decimal import Decimal as DecimalNumber
from typing import ClassVar, Final

from headerware.connect.data.numbers import Int32
from headerware.connect.data.schema import DATE, DECIMAL, TIME, TIMESTAMP, Schema, SchemaBuilder
from headerware.connect.data.times import DAY_MS, Instant, from_epoch_ms, to_epoch_ms
from headerware.connect.errors import ConnectDataError, NullValueError, NumberTextError


class Decimal:
    """Exact decimal numbers with a fixed count of digits after the point."""

    LOGICAL_NAME: ClassVar[str] = DECIMAL
    SCALE: ClassVar[str] = "scale"

    @staticmethod
    def builder(scale: int) -> SchemaBuilder:
        """Return a builder for a schema of decimals with this many digits after the point."""
        return SchemaBuilder.bytes().name(DECIMAL).parameter("scale", str(scale)).version(1)

    @staticmethod
    def schema(scale: int) -> Schema:
        """Return the schema of decimals with this many digits after the point."""
        return Decimal.builder(scale).build()

    @staticmethod
    def from_logical(schema: Schema, value: DecimalNumber) -> bytes:
        """Return the bytes of a decimal.

        Raises:
            ConnectDataError: the schema has no scale, or one that differs from the value's.
        """
        scale = Decimal.scale(schema)
        found = scale_of(value)
        if found != scale:
            raise ConnectDataError(
                f"expected {scale} digits after the point, as the schema says, found {found}"
            )
        unscaled = unscaled_of(value)
        return unscaled.to_bytes(_length(unscaled), "big", signed=True)

    @staticmethod
    def to_logical(schema: Schema, value: bytes) -> DecimalNumber:
        """Return the decimal that bytes stand for.

        Raises:
            ConnectDataError: the schema has no scale.
            NumberTextError: there are no bytes.
        """
        if not value:
            raise NumberTextError("expected the bytes of a number, found none")
        return of_unscaled(int.from_bytes(value, "big", signed=True), Decimal.scale(schema))

    @staticmethod
    def scale(schema: Schema) -> int:
        """Return the scale of a schema: the digits after the point.

        Raises:
            ConnectDataError: the schema has none.
        """
        if schema.parameters is None:
            raise NullValueError(
                "expected a decimal's schema with the parameter 'scale', found no parameters"
            )
        text = schema.parameters.get("scale") or ""
        # Java's int, because Python's also takes underscores, white space and any number of digits.
        scale = int(text) if _SCALE.fullmatch(text) else None
        if scale is None or not -(1 << 31) <= scale < 1 << 31:
            raise ConnectDataError("expected a decimal's schema with a number as its parameter 'scale'")
        return scale


class _TimeType:
    """The check that the three types of points in time share."""

    LOGICAL_NAME: ClassVar[str]

    @classmethod
    def _check(cls, schema: Schema) -> None:
        if schema.name != cls.LOGICAL_NAME:
            raise ConnectDataError(f"expected a schema named {cls.LOGICAL_NAME}, found {schema}")


class Date(_TimeType):
    """Dates without a time of day and a zone."""

    LOGICAL_NAME: ClassVar[str] = DATE
    SCHEMA: ClassVar[Schema]

    @staticmethod
    def builder() -> SchemaBuilder:
        """Return a builder for a schema of dates."""
        return SchemaBuilder.int32().name(DATE).version(1)

    @classmethod
    def from_logical(cls, schema: Schema, value: datetime | Instant) -> Int32:
        """Return the days since the epoch.

        Raises:
            ConnectDataError: the schema is of another type, or the value is not at midnight.
        """
        cls._check(schema)
        days, rest = divmod(to_epoch_ms(value), DAY_MS)
        if rest:
            raise ConnectDataError("expected a date, found a point in time that is not at midnight in UTC")
        return Int32.wrapped(days)

    @classmethod
    def to_logical(cls, schema: Schema, value: int) -> datetime | Instant:
        """Return the midnight of a day since the epoch.

        Raises:
            ConnectDataError: the schema is of another type.
        """
        cls._check(schema)
        return from_epoch_ms(value * DAY_MS)


class Time(_TimeType):
    """Times of day without a date and a zone."""

    LOGICAL_NAME: ClassVar[str] = TIME
    SCHEMA: ClassVar[Schema]

    @staticmethod
    def builder() -> SchemaBuilder:
        """Return a builder for a schema of times."""
        return SchemaBuilder.int32().name(TIME).version(1)

    @classmethod
    def from_logical(cls, schema: Schema, value: datetime | Instant) -> Int32:
        """Return the milliseconds since midnight.

        Raises:
            ConnectDataError: the schema is of another type, or the value is not on the first day.
        """
        cls._check(schema)
        return Int32(_of_day(to_epoch_ms(value)))

    @classmethod
    def to_logical(cls, schema: Schema, value: int) -> datetime | Instant:
        """Return the time of day as a point in time on the first day.

        Raises:
            ConnectDataError: the schema is of another type, or the value is larger than a day.
        """
        cls._check(schema)
        return from_epoch_ms(_of_day(value))


class Timestamp(_TimeType):
    """Points in time, to the millisecond."""

    LOGICAL_NAME: ClassVar[str] = TIMESTAMP
    SCHEMA: ClassVar[Schema]

    @staticmethod
    def builder() -> SchemaBuilder:
        """Return a builder for a schema of timestamps."""
        return SchemaBuilder.int64().name(TIMESTAMP).version(1)

    @classmethod
    def from_logical(cls, schema: Schema, value: datetime | Instant) -> int:
        """Return the milliseconds since the epoch.

        Raises:
            ConnectDataError: the schema is of another type.
        """
        cls._check(schema)
        return to_epoch_ms(value)

    @classmethod
    def to_logical(cls, schema: Schema, value: int) -> datetime | Instant:
        """Return the point in time that is this many milliseconds after the epoch.

        Raises:
            ConnectDataError: the schema is of another type.
        """
        cls._check(schema)
        return from_epoch_ms(value)


Date.SCHEMA = Date.builder().build()
Time.SCHEMA = Time.builder().build()
Timestamp.SCHEMA = Timestamp.builder().build()

_SCALE: Final = re.compile(r"[+-]?\d{1,20}")
TIME_TYPES: Final[dict[str, type[Date | Time | Timestamp]]] = {DATE: Date, TIME: Time, TIMESTAMP: Timestamp}
"""The types of points in time, by the names of their schemas."""


def scale_of(value: DecimalNumber) -> int:
    """Return the digits after the point; negative if zeros before the point are not kept, as in ``1E3``."""
    exponent = value.as_tuple().exponent
    if not isinstance(exponent, int):
        raise ConnectDataError("expected a finite decimal number, found infinity or NaN")
    return -exponent


def unscaled_of(value: DecimalNumber) -> int:
    """Return the digits of a decimal as an integer."""
    sign, digits, _ = value.as_tuple()
    return int(DecimalNumber((sign, digits, 0)))


def of_unscaled(unscaled: int, scale: int) -> DecimalNumber:
    """Return the decimal of an integer's digits, ``scale`` of them after the point."""
    sign, digits, _ = DecimalNumber(unscaled).as_tuple()
    return DecimalNumber((sign, digits, -scale))


def _length(number: int) -> int:
    """Return the fewest bytes that hold a number in two's complement, at least one, as Java writes it."""
    magnitude = number if number >= 0 else ~number
    return magnitude.bit_length() // 8 + 1


def _of_day(value_ms: int) -> int:
    if not 0 <= value_ms <= DAY_MS:
        raise ConnectDataError("expected a time of day, from 0 to 86400000 milliseconds")
    return value_ms
