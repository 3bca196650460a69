"""How Java writes numbers and values."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from decimal import Decimal as DecimalNumber
from decimal import localcontext
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headerware.connect.data import (
    INT32_SCHEMA,
    OPTIONAL_STRING_SCHEMA,
    BigInteger,
    Float32,
    Instant,
    Int8,
    SchemaBuilder,
    Struct,
)
from headerware.connect.errors import ConnectDataError
from headerware.connect.values import float32_text, float64_text, java_text

STRUCT_SCHEMA = SchemaBuilder.struct().field("id", INT32_SCHEMA).field("name", OPTIONAL_STRING_SCHEMA).build()


class TestFloat64Text:
    @pytest.mark.parametrize(
        ("value", "expected"),
        [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.0, "1.0"),
            (100.0, "100.0"),
            (0.001, "0.001"),
            (0.000999, "9.99E-4"),
            (9999999.5, "9999999.5"),
            (1e7, "1.0E7"),
            (-12345678.9, "-1.23456789E7"),
            (1e23, "1.0E23"),
            (1.7976931348623157e308, "1.7976931348623157E308"),
            (5e-324, "4.9E-324"),
            (2.2250738585072014e-308, "2.2250738585072014E-308"),
            (math.nan, "NaN"),
            (math.inf, "Infinity"),
            (-math.inf, "-Infinity"),
        ],
    )
    def test_writes_as_java(self, value: float, expected: str) -> None:
        assert float64_text(value) == expected

    @given(st.floats(allow_nan=False, allow_infinity=False))
    def test_is_read_back_the_same(self, value: float) -> None:
        assert float(float64_text(value)) == value


class TestFloat32Text:
    @pytest.mark.parametrize(
        ("value", "expected"),
        [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (0.1, "0.1"),
            (1.1, "1.1"),
            (3.14159265358979, "3.1415927"),
            (16777216.0, "1.6777216E7"),
            (1e10, "1.0E10"),
            (0.0001, "1.0E-4"),
            (3.4028234663852886e38, "3.4028235E38"),
            (1.401298464324817e-45, "1.4E-45"),
            (2.802596928649634e-45, "2.8E-45"),
            (math.nan, "NaN"),
            (-math.inf, "-Infinity"),
        ],
    )
    def test_writes_as_java(self, value: float, expected: str) -> None:
        assert float32_text(Float32(value)) == expected

    @given(st.floats(width=32, allow_nan=False, allow_infinity=False))
    def test_is_read_back_the_same(self, value: float) -> None:
        assert Float32(float32_text(Float32(value))) == value

    @given(st.floats(min_value=2.0**-100, max_value=2.0**100, width=32))
    def test_has_no_digit_to_spare(self, value: float) -> None:
        digits = float32_text(Float32(value)).partition("E")[0].replace(".", "").strip("0")
        shorter = f"{value:.{max(len(digits) - 2, 0)}e}"
        assert len(digits) == 1 or Float32(shorter) != value


class TestJavaText:
    @pytest.mark.parametrize(
        ("value", "expected"),
        [
            (None, "null"),
            (True, "true"),
            ("a", "a"),
            (Int8(-1), "-1"),
            (1.0, "1.0"),
            (Float32(0.1), "0.1"),
            (BigInteger(10) ** 30, "1" + "0" * 30),
            (DecimalNumber("1.50"), "1.50"),
            (DecimalNumber("1E+3"), "1E+3"),
            (DecimalNumber("-0.00"), "0.00"),
            (["a", 1, None, [True]], "[a, 1, null, [true]]"),
            (("a",), "[a]"),
            ({"a": 1, Int8(2): None}, "{a=1, 2=null}"),
            (memoryview(b"ab"), "java.nio.HeapByteBuffer[pos=0 lim=2 cap=2]"),
            (datetime(2017, 5, 21, 16, 31, 5, 387000, UTC), "Sun May 21 16:31:05 UTC 2017"),
            (Instant(-62135769600001), "Fri Dec 31 23:59:59 UTC 1"),
            (Instant(253402300800000), "Sat Jan 01 00:00:00 UTC 10000"),
            (Struct.of(STRUCT_SCHEMA, {"id": 1, "name": "a"}), "Struct{id=1,name=a}"),
            (Struct(STRUCT_SCHEMA), "Struct{}"),
        ],
    )
    def test_writes_as_java(self, value: Any, expected: str) -> None:
        assert java_text(value) == expected

    def test_writes_integers_of_thousands_of_digits(self) -> None:
        assert java_text(BigInteger(10**5000)) == "1" + "0" * 5000

    def test_writes_bytes_as_a_hash_of_the_object(self) -> None:
        assert java_text(b"secret").startswith("[B@")

    def test_does_not_heed_the_context_of_the_thread(self) -> None:
        with localcontext() as context:
            context.capitals = 0
            context.prec = 3
            assert java_text(DecimalNumber("1.23456E+9")) == "1.23456E+9"

    def test_refuses_deep_nesting(self) -> None:
        value: list[Any] = []
        for _ in range(100_000):
            value = [value]
        with pytest.raises(ConnectDataError, match="nested too deeply"):
            java_text(value)
