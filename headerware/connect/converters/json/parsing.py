"""From bytes to JSON, fast where nothing is unusual, in each mode.

A parser reads numbers with a point or an exponent as floats in ``fast`` and as Decimals in ``exact``.
``schemaless`` gives what a value without a schema is.
"""

from __future__ import annotations

import json
import math
from decimal import Decimal as DecimalNumber
from typing import Any, Final

import msgspec

from headerware.connect.converters.json.grammar import parse_as_jackson
from headerware.connect.converters.json.nodes import (
    MAX_DIGITS,
    MISSING,
    count_of_names,
    decimal_of,
    float64_of,
    signed_decimal_of,
    with_numbers,
)
from headerware.connect.data.numbers import BigInteger, wrapped_int64
from headerware.connect.errors import ConnectDataError

REFUSALS: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ConnectDataError)
"""What reading raises for what is no JSON, or too large for the fast way."""
_INT64: Final = range(-(1 << 63), 1 << 63)
_FAST: Final = msgspec.json.Decoder()
_EXACT: Final = msgspec.json.Decoder(float_hook=decimal_of)
_SIGNED: Final = msgspec.json.Decoder(float_hook=signed_decimal_of)
# Translated, all digits look alike: a search for many of them in a row is a search for bytes.
_DIGITS: Final = bytes.maketrans(b"123456789", b"000000000")
_LARGE: Final = b"0" * 19
_NUMBERS: Final = bytes.maketrans(b"123456789.eE+-", b"0" * 14)
_LONG: Final = b"0" * (MAX_DIGITS + 1)


def is_long(data: bytes) -> bool:
    """Return whether there may be a number of more digits than may be read."""
    return len(data) > MAX_DIGITS and _LONG in data.translate(_NUMBERS)


class KafkaParser:
    """Read JSON as Kafka does, with Jackson: more than JSON, and what a number's type cannot hold wraps."""

    def fast(self, data: bytes) -> Any:
        """Read JSON, with floats; Decimals and all that Jackson takes where that is not enough."""
        if is_long(data):
            return self.exact(data)
        try:
            return _FAST.decode(data)
        except REFUSALS:
            return self.exact(data)

    def exact(self, data: bytes) -> Any:
        """Read JSON, with Decimals.

        Raises:
            ConnectDataError: it is none.
        """
        if is_long(data):
            return parse_as_jackson(data)
        try:
            return _EXACT.decode(data)
        except REFUSALS:
            return parse_as_jackson(data)

    def schemaless(self, data: bytes) -> Any:
        """Read a value without a schema: integers of 64 bits, and floats.

        Raises:
            ConnectDataError: it is no JSON.
        """
        if b"-0" not in data and _LARGE not in data.translate(_DIGITS) and not is_long(data):
            try:
                return _FAST.decode(data)
            except REFUSALS:
                pass
        return self.plain(self.exact(data))

    def plain(self, tree: Any) -> Any:
        """Return what a value without a schema is, of what was read with Decimals."""
        return None if tree is MISSING else with_numbers(tree, _wrapped)

    def check_names(self, data: bytes, count: int) -> None:
        """Let a name that stands twice in an object be, as Kafka does: the last one counts."""


class StrictParser:
    """Read JSON, and nothing else: names once, and numbers as they are."""

    def fast(self, data: bytes) -> Any:
        """Read JSON, with floats; with Decimals where one is too large for that.

        Raises:
            ConnectDataError: it is none.
        """
        try:
            return _FAST.decode(data)
        except msgspec.ValidationError:
            return self.exact(data)
        except REFUSALS as error:
            raise _malformed(data, error) from None

    def exact(self, data: bytes) -> Any:
        """Read JSON, with Decimals.

        Raises:
            ConnectDataError: it is none.
        """
        try:
            return _SIGNED.decode(data)
        except REFUSALS as error:
            raise _malformed(data, error) from None

    def schemaless(self, data: bytes) -> Any:
        """Read a value without a schema; integers of more than 64 bits are ``BigInteger``.

        Raises:
            ConnectDataError: it is no JSON, a name stands twice in an object, or a number is out of range.
        """
        tree = self.fast(data)
        self.check_names(data, count_of_names(tree))
        if (
            tree.__class__ is DecimalNumber
            or b"e" in data
            or b"E" in data
            or _LARGE in data.translate(_DIGITS)
        ):
            return self.plain(tree)
        return tree

    def plain(self, tree: Any) -> Any:
        """Return what a value without a schema is.

        Raises:
            ConnectDataError: a number is out of range.
        """
        return with_numbers(tree, _unwrapped)

    def check_names(self, data: bytes, count: int) -> None:
        """Refuse a name that stands twice in an object.

        Args:
            data: the JSON.
            count: the names in what was read, where the last one of each is left.

        Raises:
            ConnectDataError: there is one.
        """
        # A name's colon follows a quote or white space. Where no more colons do than names were read, none
        # was lost; where more do, they may stand in text, so each object is looked at.
        if sum(map(data.count, _COLONS)) > count:
            try:
                json.loads(data, object_pairs_hook=_unique)
            except RecursionError as error:
                raise _malformed(data, error) from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise ConnectDataError(f"the name {twice!r} stands twice in a JSON object")
    return made


def _wrapped(number: DecimalNumber | int) -> int | float:
    return wrapped_int64(number) if isinstance(number, int) else float64_of(number)


def _unwrapped(number: DecimalNumber | int) -> int | float:
    if isinstance(number, int):
        return number if number in _INT64 else BigInteger(number)
    found = float64_of(number)
    if math.isinf(found):
        raise ConnectDataError("expected numbers in the range of a float of 64 bits")
    return found


def _malformed(data: bytes, error: Exception) -> ConnectDataError:
    if isinstance(error, ConnectDataError):
        return error
    nested = "is nested too deeply" if isinstance(error, RecursionError) else "is malformed"
    return ConnectDataError(f"expected JSON, but what the {len(data)} bytes hold {nested}")


_COLONS: Final = (b'":', b" :", b"\t:", b"\n:", b"\r:")
