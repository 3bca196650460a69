"""Numbers as Java reads and narrows them."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Context
from decimal import Decimal as DecimalNumber
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headerware.connect.data import BigInteger, Float32, Int8, Int16, Int32
from headerware.connect.errors import NumberTextError
from headerware.connect.java.numbers import (
    parse_big_integer,
    parse_decimal,
    parse_float32,
    parse_float64,
    parse_int8,
    parse_int16,
    parse_int32,
    parse_int64,
    to_int64,
)

WIDE = Context(prec=3000)


class TestIntegers:
    @pytest.mark.parametrize(
        ("parse", "given", "expected"),
        [
            (parse_int8, "-128", Int8(-128)),
            (parse_int16, "+32767", Int16(32767)),
            (parse_int32, "0002147483647", Int32(2147483647)),
            (parse_int32, "-0", Int32(0)),
            (parse_int64, "-9223372036854775808", -(1 << 63)),
            (parse_int64, "٣", 3),
            (parse_int64, "0" * 5000 + "1", 1),
            (parse_big_integer, "-007", BigInteger(-7)),
        ],
    )
    def test_are_read(self, parse: Callable[[str], Any], given: str, expected: Any) -> None:
        found = parse(given)
        assert (type(found), int(found)) == (type(expected), int(expected))

    def test_may_have_thousands_of_digits(self) -> None:
        assert parse_big_integer("9" * 5001) == 10**5001 - 1

    @pytest.mark.parametrize("parse", [parse_int8, parse_int16, parse_int32, parse_int64, parse_big_integer])
    @pytest.mark.parametrize(
        "given", ["", "-", "+-1", " 1", "1 ", "1.0", "1_0", "0x1", "1e1", "\U0001d7d9", "½", "--1"]
    )
    def test_are_refused_where_there_are_none(self, parse: Callable[[str], Any], given: str) -> None:
        with pytest.raises(NumberTextError):
            parse(given)

    @pytest.mark.parametrize(
        ("parse", "given"),
        [
            (parse_int8, "128"),
            (parse_int16, "-32769"),
            (parse_int32, "2147483648"),
            (parse_int64, "9223372036854775808"),
            (parse_int64, "9" * 5000),
        ],
    )
    def test_are_refused_where_they_do_not_fit(self, parse: Callable[[str], Any], given: str) -> None:
        with pytest.raises(NumberTextError):
            parse(given)


class TestFloats:
    @pytest.mark.parametrize(
        ("given", "expected"),
        [
            ("1.5", 1.5),
            (" .5\t", 0.5),
            ("1.", 1.0),
            ("1e3d", 1000.0),
            ("-1F", -1.0),
            ("0x1.8p1", 3.0),
            ("-0X.8P+2f", -2.0),
            ("0x1p99999999999999999999", math.inf),
            ("-0x1p-99999999999999999999", -0.0),
            ("0x0p99999999999999999999", 0.0),
            ("1e99999999999", math.inf),
            ("-Infinity", -math.inf),
            ("-0", -0.0),
        ],
    )
    def test_are_read(self, given: str, expected: float) -> None:
        for found in (parse_float64(given), parse_float32(given)):
            assert found == expected
            assert math.copysign(1, found) == math.copysign(1, expected)

    def test_may_be_no_number(self) -> None:
        assert math.isnan(parse_float64("NaN"))
        assert math.isnan(parse_float32("+NaN"))

    @pytest.mark.parametrize("parse", [parse_float32, parse_float64])
    @pytest.mark.parametrize(
        "given",
        ["", ".", "1e", "1_0", "nan", "inf", "٣", "0x1", "0x1.8", "0x.p1", "1fd", "\u20031", "NaNf", "1L"],
    )
    def test_are_refused_where_there_are_none(self, parse: Callable[[str], Any], given: str) -> None:
        with pytest.raises(NumberTextError):
            parse(given)

    @pytest.mark.parametrize(
        ("given", "expected"),
        [
            ("1.000000059604644775390625", 1.0),
            ("1.0000000596046447753906250000000000000001", 1.0000001192092896),
            ("1.0000000596046447753906249999999999999999", 1.0),
            ("0x1.0000010000000000000001p0", 1.0000001192092896),
            # Halfway below the smallest number of 32 bits, and just above that.
            ("7.006492321624085354618e-46", 0.0),
            ("7.0064923216240853546186479164495807e-46", 1.401298464324817e-45),
        ],
    )
    def test_of_32_bits_are_rounded_once(self, given: str, expected: float) -> None:
        assert parse_float32(given) == Float32(expected)


class TestDecimals:
    @pytest.mark.parametrize(
        ("given", "unscaled", "scale"),
        [
            ("1.50", 150, 2),
            ("-.5", -5, 1),
            ("1.", 1, 0),
            ("1E3", 1, -3),
            ("-0.0", 0, 1),
            ("\u0663.\u0665", 35, 1),
            ("1e2147483647", 1, -2147483647),
            ("1.5e-0000000000000001", 15, 2),
            ("1" + "0" * 40 + ".1", 10**41 + 1, 1),
        ],
    )
    def test_are_read_with_their_scale(self, given: str, unscaled: int, scale: int) -> None:
        sign, digits, exponent = parse_decimal(given).as_tuple()
        assert (sign, exponent) == (int(unscaled < 0), -scale)
        assert int("".join(map(str, digits))) == abs(unscaled)

    @pytest.mark.parametrize(
        "given",
        ["", ".", "+", "1e", "1e+", "e1", " 1", "1_0", "NaN", "Infinity", "1e2147483648", "1.5.5", "1f"],
    )
    def test_are_refused_where_there_are_none(self, given: str) -> None:
        with pytest.raises(NumberTextError):
            parse_decimal(given)


class TestToInt64:
    @pytest.mark.parametrize(
        ("number", "expected"),
        [
            (1.9, 1),
            (-1.9, -1),
            (math.nan, 0),
            (math.inf, (1 << 63) - 1),
            (-1e300, -(1 << 63)),
            (1 << 64, 0),
            ((1 << 63) + 5, -(1 << 63) + 5),
            (DecimalNumber("-12.75"), -12),
            (DecimalNumber(99999999999999999999), 7766279631452241919),
            (DecimalNumber("1e2147483647"), 0),
            (DecimalNumber("1e-2147483647"), 0),
            (DecimalNumber("9" * 5000), -1),
        ],
    )
    def test_narrows_as_java(self, number: Any, expected: int) -> None:
        assert to_int64(number) == expected

    @given(st.integers(-(10**2000), 10**2000), st.integers(0, 20))
    def test_wraps_long_decimals_as_integers(self, unscaled: int, scale: int) -> None:
        whole = abs(unscaled) // 10**scale * (1 if unscaled >= 0 else -1)
        expected = ((whole + (1 << 63)) % (1 << 64)) - (1 << 63)
        assert to_int64(DecimalNumber(unscaled).scaleb(-scale, WIDE)) == expected
