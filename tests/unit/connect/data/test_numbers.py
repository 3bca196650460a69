"""Numbers that carry their width, points in time, and logical types."""

from __future__ import annotations

import datetime as dt
import math
import pickle
from decimal import Decimal as DecimalNumber
from decimal import localcontext
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headerware.connect.data import (
    INT32_SCHEMA,
    Date,
    Decimal,
    Float32,
    Instant,
    Int8,
    Int16,
    Int32,
    Time,
    Timestamp,
    alike,
)
from headerware.connect.data.logical import scale_of, unscaled_of
from headerware.connect.data.times import from_epoch_ms, to_epoch_ms
from headerware.connect.errors import ConnectDataError, NullValueError, NumberTextError


class TestInt8:
    @pytest.mark.parametrize(("kind", "bits"), [(Int8, 8), (Int16, 16), (Int32, 32)])
    def test_and_its_like_hold_their_range_and_no_more(self, kind: Any, bits: int) -> None:
        lowest, highest = -(1 << bits - 1), (1 << bits - 1) - 1
        assert (kind(lowest), kind(highest)) == (lowest, highest)
        for beyond in (lowest - 1, highest + 1):
            with pytest.raises(ConnectDataError, match=f"{bits} bits"):
                kind(beyond)

    @given(st.integers())
    def test_wraps_as_a_cast_in_java(self, value: int) -> None:
        wrapped = Int8.wrapped(value)
        assert -128 <= wrapped <= 127
        assert (wrapped - value) % 256 == 0

    def test_prints_as_a_plain_number_and_shows_its_class(self) -> None:
        assert (str(Int8(5)), f"{Int8(5)}", repr(Int8(5))) == ("5", "5", "Int8(5)")

    def test_survives_pickling(self) -> None:
        assert type(pickle.loads(pickle.dumps(Int32(5)))) is Int32  # noqa: S301 - our own pickle


class TestFloat32:
    def test_is_rounded_when_it_is_made(self) -> None:
        assert Float32(0.1) == 0.10000000149011612

    def test_overflows_to_infinity_as_a_cast_in_java(self) -> None:
        assert Float32(1e300) == math.inf
        assert Float32(-1e300) == -math.inf


class TestAlike:
    @pytest.mark.parametrize(
        ("one", "other"),
        [
            (1, True),
            (1, Int8(1)),
            (1.0, 1),
            (1.0, Float32(1)),
            (0.0, -0.0),
            ([1], [True]),
            ({"a": 1}, {"a": 1.0}),
        ],
    )
    def test_tells_classes_and_signs_apart(self, one: Any, other: Any) -> None:
        assert not alike(one, other)

    @pytest.mark.parametrize("value", [math.nan, [math.nan], {"a": [1, None]}, "x", b"x", None])
    def test_finds_a_value_in_a_copy_of_itself(self, value: Any) -> None:
        assert alike(value, pickle.loads(pickle.dumps(value)))  # noqa: S301 - our own pickle


class TestInstant:
    @given(st.integers(-(1 << 63), (1 << 63) - 1))
    def test_or_a_datetime_holds_every_millisecond(self, epoch_ms: int) -> None:
        assert to_epoch_ms(from_epoch_ms(epoch_ms)) == epoch_ms

    def test_stands_for_what_datetime_cannot_hold_only(self) -> None:
        assert from_epoch_ms(0) == dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
        assert isinstance(from_epoch_ms(-62135596800001), Instant)
        assert isinstance(from_epoch_ms(253402300800000), Instant)

    def test_of_a_datetime_in_another_zone_is_the_same_instant(self) -> None:
        zone = dt.timezone(dt.timedelta(hours=2))
        assert to_epoch_ms(dt.datetime(1970, 1, 1, 2, tzinfo=zone)) == 0


class TestDecimal:
    @given(st.decimals(allow_nan=False, allow_infinity=False))
    def test_comes_back_from_its_bytes(self, value: DecimalNumber) -> None:
        schema = Decimal.schema(scale_of(value))
        back = Decimal.to_logical(schema, Decimal.from_logical(schema, value))
        assert (unscaled_of(back), scale_of(back)) == (unscaled_of(value), scale_of(value))

    @pytest.mark.parametrize(
        ("number", "data"),
        [
            ("0", "00"),
            ("127", "7f"),
            ("128", "0080"),
            ("-1", "ff"),
            ("-128", "80"),
            ("-129", "ff7f"),
            ("1.56", "009c"),
        ],
    )
    def test_has_the_bytes_that_java_writes(self, number: str, data: str) -> None:
        value = DecimalNumber(number)
        assert Decimal.from_logical(Decimal.schema(scale_of(value)), value).hex() == data

    def test_is_never_rounded_by_the_context(self) -> None:
        value = DecimalNumber("1" * 60 + ".5")
        with localcontext() as context:
            context.prec = 5
            schema = Decimal.schema(1)
            assert Decimal.to_logical(schema, Decimal.from_logical(schema, value)) == value

    def test_of_another_scale_is_refused(self) -> None:
        with pytest.raises(ConnectDataError, match=r"2 digits.*found 1"):
            Decimal.from_logical(Decimal.schema(2), DecimalNumber("1.5"))

    def test_of_no_bytes_is_refused(self) -> None:
        with pytest.raises(NumberTextError):
            Decimal.to_logical(Decimal.schema(2), b"")

    def test_needs_a_schema_with_a_scale(self) -> None:
        with pytest.raises(NullValueError):
            Decimal.scale(INT32_SCHEMA)


class TestDate:
    def test_counts_days(self) -> None:
        day = dt.datetime(1969, 12, 31, tzinfo=dt.UTC)
        assert Date.from_logical(Date.SCHEMA, day) == -1
        assert Date.to_logical(Date.SCHEMA, -1) == day

    def test_has_no_time_of_day(self) -> None:
        with pytest.raises(ConnectDataError, match="midnight"):
            Date.from_logical(Date.SCHEMA, dt.datetime(1970, 1, 1, 1, tzinfo=dt.UTC))

    @pytest.mark.parametrize("kind", [Date, Time, Timestamp])
    def test_and_the_others_want_their_own_schema(self, kind: Any) -> None:
        with pytest.raises(ConnectDataError, match=kind.LOGICAL_NAME):
            kind.to_logical(INT32_SCHEMA, 1)


class TestTime:
    @pytest.mark.parametrize("value_ms", [-1, 86_400_001])
    def test_lies_within_a_day(self, value_ms: int) -> None:
        with pytest.raises(ConnectDataError, match="86400000"):
            Time.to_logical(Time.SCHEMA, value_ms)
        with pytest.raises(ConnectDataError, match="86400000"):
            Time.from_logical(Time.SCHEMA, from_epoch_ms(value_ms))
