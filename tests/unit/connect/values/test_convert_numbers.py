"""Values converted to booleans, numbers and decimals."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal as DecimalNumber
from typing import Any

import pytest

from headerware.connect.data import (
    STRING_SCHEMA,
    BigInteger,
    Date,
    Float32,
    Int8,
    Int16,
    Int32,
    Schema,
    Time,
    Timestamp,
)
from headerware.connect.data.logical import scale_of
from headerware.connect.errors import ConnectDataError, NullValueError, NumberTextError
from headerware.connect.modes import Mode
from headerware.connect.values import (
    convert_to_boolean,
    convert_to_byte,
    convert_to_decimal,
    convert_to_double,
    convert_to_float,
    convert_to_integer,
    convert_to_long,
    convert_to_short,
)

DAY = datetime(2017, 5, 21, tzinfo=UTC)
Convert = Callable[..., Any]
TO_NUMBERS = [
    convert_to_byte,
    convert_to_short,
    convert_to_integer,
    convert_to_long,
    convert_to_float,
    convert_to_double,
]


class TestConvertToBoolean:
    @pytest.mark.parametrize(
        ("value", "expected"),
        [
            (None, None),
            (True, True),
            ("true", True),
            ("false", False),
            ("0", False),
            ("1", True),
            (Int8(0), False),
            (-1.0, True),
            (DecimalNumber("1e300"), True),
            (DecimalNumber(0), False),
        ],
    )
    def test_converts(self, value: Any, expected: bool | None, mode: Mode) -> None:  # noqa: FBT001 - expected
        assert convert_to_boolean(None, value, mode=mode) is (
            # To the lowest 64 bits this number is 0.
            False if mode == "kafka_4_3" and value == DecimalNumber("1e300") else expected
        )

    @pytest.mark.parametrize("value", ["TRUE", "abc", "", b"1", [True], object()])
    def test_refuses_invalid_input(self, value: Any, mode: Mode) -> None:
        with pytest.raises(ConnectDataError):
            convert_to_boolean(STRING_SCHEMA, value, mode=mode)

    def test_takes_fractions_and_times_as_kafka_does_in_its_mode_only(self) -> None:
        assert convert_to_boolean(None, 0.5, mode="kafka_4_3") is False
        assert convert_to_boolean(Date.SCHEMA, DAY, mode="kafka_4_3") is True
        for schema, value in ((None, 0.5), (None, math.nan), (Date.SCHEMA, DAY)):
            with pytest.raises(ConnectDataError):
                convert_to_boolean(schema, value)

    def test_stumbles_over_the_text_of_null(self) -> None:
        with pytest.raises(NullValueError):
            convert_to_boolean(None, "null", mode="kafka_4_3")
        with pytest.raises(ConnectDataError):
            convert_to_boolean(None, "null")


class TestConvertToNumbers:
    @pytest.mark.parametrize("convert", TO_NUMBERS)
    def test_leaves_null(self, convert: Convert, mode: Mode) -> None:
        assert convert(None, None, mode=mode) is None

    @pytest.mark.parametrize(
        ("convert", "expected"),
        list(zip(TO_NUMBERS, [Int8(7), Int16(7), Int32(7), 7, Float32(7), 7.0], strict=True)),
    )
    @pytest.mark.parametrize(
        "value", [Int8(7), Int32(7), 7, 7.0, Float32(7), BigInteger(7), DecimalNumber("7.00"), "7", "+7.0"]
    )
    def test_converts_numbers_and_texts(
        self, convert: Convert, value: Any, expected: Any, mode: Mode
    ) -> None:
        found = convert(None, value, mode=mode)
        assert (type(found), found) == (type(expected), expected)

    def test_converts_points_in_time_as_their_schema_says(self, mode: Mode) -> None:
        moment = datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
        assert convert_to_long(Timestamp.SCHEMA, DAY, mode=mode) == 1495324800000
        assert convert_to_short(Date.SCHEMA, DAY, mode=mode) == 17307
        assert convert_to_double(Time.SCHEMA, moment, mode=mode) == 1000.0

    @pytest.mark.parametrize("convert", TO_NUMBERS)
    @pytest.mark.parametrize(
        ("schema", "value"),
        [
            *(
                (None, value)
                for value in (True, "abc", "", " 7", "NaN", "1_0", b"7", [7], DAY, DecimalNumber("NaN"))
            ),
            (STRING_SCHEMA, DAY),
            (Date.SCHEMA, datetime(2017, 5, 21, 1, tzinfo=UTC)),
        ],
    )
    def test_requires_a_number(self, convert: Convert, schema: Schema | None, value: Any, mode: Mode) -> None:
        with pytest.raises(ConnectDataError):
            convert(schema, value, mode=mode)

    @pytest.mark.parametrize(
        ("convert", "value", "expected"),
        [
            (convert_to_byte, 300, 44),
            (convert_to_byte, math.inf, -1),
            (convert_to_short, 1.9, 1),
            (convert_to_integer, "-1.9", -1),
            (convert_to_long, 1e300, (1 << 63) - 1),
            (convert_to_long, "99999999999999999999", 7766279631452241919),
            (convert_to_long, "٣", 3),
            (convert_to_long, BigInteger(1 << 64), 0),
            (convert_to_float, 1e300, math.inf),
            (convert_to_float, (1 << 24) + 1, float(1 << 24)),
            (convert_to_double, "1e400", math.inf),
            (convert_to_double, BigInteger(10**400), math.inf),
            (convert_to_double, "1e-400", 0.0),
        ],
    )
    def test_narrows_as_kafka_does_in_its_mode_only(
        self, convert: Convert, value: Any, expected: float
    ) -> None:
        assert convert(None, value, mode="kafka_4_3") == expected
        with pytest.raises(ConnectDataError):
            convert(None, value)

    @pytest.mark.parametrize("value", [math.nan, 1 << 63, "1e2147483647", DecimalNumber("1e2147483647")])
    def test_requires_an_integer_of_64_bits(self, value: Any) -> None:
        with pytest.raises(ConnectDataError):
            convert_to_long(None, value)

    def test_rounds_fractions_to_the_nearest_float(self) -> None:
        assert convert_to_float(None, 0.1) == Float32(0.1)
        assert convert_to_double(None, DecimalNumber("0.1")) == 0.1
        assert convert_to_float(None, -math.inf) == -math.inf
        assert math.isnan(convert_to_double(None, Float32(math.nan)) or 0)


class TestConvertToDecimal:
    @pytest.mark.parametrize(
        ("value", "scale", "expected"),
        [
            (DecimalNumber("12.75"), 2, "12.75"),
            (DecimalNumber("12.75"), 4, "12.7500"),
            (DecimalNumber("12.7500"), 2, "12.75"),
            (DecimalNumber(1200), -2, "1.2E+3"),
            (5, 2, "5.00"),
            (9007199254740993, 0, "9007199254740993"),
            (0.1, 1, "0.1"),
            (Float32(0.1), 3, "0.100"),
            ("12.75", 2, "12.75"),
            (b"\x04\xfb", 2, "12.75"),
            (DecimalNumber("1" * 50), 0, "1" * 50),
            (DecimalNumber("0e2147483647"), 2, "0.00"),
        ],
    )
    def test_gives_exactly_the_scale(self, value: Any, scale: int, expected: str) -> None:
        found = convert_to_decimal(None, value, scale)
        assert found is not None
        assert (str(found), scale_of(found)) == (expected if scale >= 0 else str(found), scale)
        assert found == DecimalNumber(expected)

    @pytest.mark.parametrize(
        "value",
        [
            DecimalNumber("12.755"),
            0.125,
            "0.001",
            "1e2147483647",
            math.nan,
            math.inf,
            "abc",
            b"",
            True,
            DAY,
            [1],
        ],
    )
    def test_refuses_a_value_that_needs_more_digits(self, value: Any) -> None:
        with pytest.raises(ConnectDataError):
            convert_to_decimal(Date.SCHEMA, value, 2)

    def test_leaves_null(self) -> None:
        assert convert_to_decimal(None, None, 2) is None

    @pytest.mark.parametrize(
        ("value", "expected"),
        [
            (DecimalNumber("12.755"), "12.755"),
            (5, "5.0"),
            (9007199254740993, "9007199254740992"),
            ("1.500", "1.500"),
            (memoryview(b"\x04\xfb"), "12.75"),
        ],
    )
    def test_heeds_the_scale_for_bytes_only_as_kafka_does(self, value: Any, expected: str) -> None:
        assert str(convert_to_decimal(None, value, 2, mode="kafka_4_3")) == expected

    @pytest.mark.parametrize(
        ("value", "error"),
        [
            (None, ConnectDataError),
            (True, ConnectDataError),
            (DAY, ConnectDataError),
            ("abc", NumberTextError),
            (math.nan, NumberTextError),
            (b"", NumberTextError),
        ],
    )
    def test_raises_what_kafka_raises(self, value: Any, error: type[Exception]) -> None:
        with pytest.raises(error):
            convert_to_decimal(None, value, 2, mode="kafka_4_3")
