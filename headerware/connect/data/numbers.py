"""Numbers with a width: a plain int is an int64, a plain float a float64; the others have classes here."""

from __future__ import annotations

import struct
from typing import Any, ClassVar, Final, Self

from headerware.connect.errors import ConnectDataError

_FLOAT32: Final = struct.Struct(">f")


class _Sized(int):
    """An int of a fixed width: checked when it is made, a plain int in arithmetic."""

    __slots__ = ()
    bits: ClassVar[int]

    def __new__(cls, value: Any = 0, /) -> Self:
        """Convert a number or its text."""
        made = super().__new__(cls, value)
        if not -(1 << cls.bits - 1) <= made < 1 << cls.bits - 1:
            raise ConnectDataError(
                f"expected an integer of {cls.bits} bits, found one of {made.bit_length() + 1}"
            )
        return made

    @classmethod
    def wrapped(cls, value: int) -> Self:
        """Keep the lowest bits, as a narrowing cast in Java does."""
        half = 1 << cls.bits - 1
        return int.__new__(cls, ((value + half) & ((1 << cls.bits) - 1)) - half)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({int(self)})"

    def __str__(self) -> str:
        return int.__repr__(self)


class Int8(_Sized):
    """A signed integer of 8 bits (Java's byte)."""

    __slots__ = ()
    bits: ClassVar[int] = 8


class Int16(_Sized):
    """A signed integer of 16 bits (Java's short)."""

    __slots__ = ()
    bits: ClassVar[int] = 16


class Int32(_Sized):
    """A signed integer of 32 bits (Java's int)."""

    __slots__ = ()
    bits: ClassVar[int] = 32


class BigInteger(int):
    """An integer of any size (Java's BigInteger); no schema has this type, schemaless values may."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"BigInteger({int(self)})"

    def __str__(self) -> str:
        return int.__repr__(self)


class Float32(float):
    """A floating-point number of 32 bits (Java's float), rounded to them when it is made."""

    __slots__ = ()

    def __new__(cls, value: Any = 0.0, /) -> Self:
        """Round a number or its text; as in a Java cast, a number that is too large becomes infinite."""
        return super().__new__(cls, rounded_to_float32(float(value)))

    def __repr__(self) -> str:
        return f"Float32({float(self)!r})"

    def __str__(self) -> str:
        return float.__repr__(self)


def rounded_to_float32(value: float) -> float:
    """Round to the nearest number that 32 bits hold."""
    try:
        rounded: float = _FLOAT32.unpack(_FLOAT32.pack(value))[0]
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")
    return rounded


_INT64_BITS: Final = 64


def wrapped_int64(value: int) -> int:
    """Keep the lowest 64 bits, as a narrowing cast in Java does."""
    half = 1 << _INT64_BITS - 1
    return ((int(value) + half) & ((1 << _INT64_BITS) - 1)) - half
