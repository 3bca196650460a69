"""Random masks: of the same type and shape, and of nothing else."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from decimal import Decimal as DecimalNumber
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headerware.connect.data import (
    INT32_SCHEMA,
    STRING_SCHEMA,
    BigInteger,
    Date,
    Decimal,
    Float32,
    Instant,
    Int8,
    Int16,
    Int32,
    SchemaBuilder,
    Struct,
    Time,
    Timestamp,
)
from headerware.connect.errors import ConnectDataError
from headerware.connect.records import SourceRecord
from headerware.connect.transforms.mask_field import MaskField

MASK = MaskField.Value({"randomize.fields": "field"})


def random(value: Any) -> Any:
    """Return what a value becomes in a dict."""
    return MASK.apply(SourceRecord(value={"field": value})).value["field"]


class TestRandomMask:
    @given(st.text())
    def test_keeps_the_length_of_a_text(self, text: str) -> None:
        assert len(random(text)) == len(text)

    def test_keeps_the_shape_of_a_text(self) -> None:
        made = random("4111-1111 AB cd@x.org")
        assert [made[at] for at in (4, 9, 12, 15, 17)] == ["-", " ", " ", "@", "."]
        assert made[:4].isdigit()
        assert made[10:12].isupper()
        assert made[13:15].islower()

    @pytest.mark.parametrize("text", ["-" * 20, "!?$%^" * 4, "日本語" * 5])
    def test_lets_no_text_through(self, text: str) -> None:
        made = random(text)
        assert made != text
        assert made.isascii()

    @given(st.integers(-128, 127).map(Int8) | st.integers(-(1 << 15), (1 << 15) - 1).map(Int16))
    def test_keeps_sign_and_digits_of_an_integer(self, number: int) -> None:
        made = random(number)
        assert type(made) is type(number)
        assert made == 0 or (made < 0) == (number < 0)
        assert len(str(abs(made))) == len(str(abs(number)))

    @given(st.integers(-(1 << 63), (1 << 63) - 1))
    def test_stays_within_64_bits(self, number: int) -> None:
        assert -(1 << 63) <= random(number) < 1 << 63

    def test_makes_integers_of_any_size(self) -> None:
        made = random(BigInteger(1 << 40_000))
        assert type(made) is BigInteger
        assert made.bit_length() == 40_001

    @given(st.floats())
    def test_makes_finite_numbers(self, number: float) -> None:
        assert math.isfinite(random(number))
        assert type(random(Float32(number))) is Float32

    @given(st.decimals(allow_nan=False, allow_infinity=False))
    def test_keeps_the_scale_of_a_decimal(self, number: DecimalNumber) -> None:
        made = random(number)
        assert made.as_tuple().exponent == number.as_tuple().exponent
        assert made.is_signed() == number.is_signed()

    def test_makes_bytes_of_the_same_length(self) -> None:
        for value in (b"x" * 16, bytearray(16), memoryview(bytes(16))):
            made = random(value)
            assert len(made) == 16
            assert made != bytes(value)

    def test_makes_either_boolean(self) -> None:
        assert {random(value) for value in [True] * 200} == {True, False}

    @pytest.mark.parametrize(
        ("schema", "value"),
        [
            (Date.SCHEMA, datetime(2020, 2, 2, tzinfo=UTC)),
            (Time.SCHEMA, datetime(1970, 1, 1, 3, tzinfo=UTC)),
            (Timestamp.SCHEMA, datetime(2020, 2, 2, 3, tzinfo=UTC)),
            (Timestamp.SCHEMA, Instant(1 << 60)),
        ],
    )
    def test_makes_points_in_time_of_a_schema(self, schema: Any, value: Any) -> None:
        of_struct = SchemaBuilder.struct().field("field", schema).build()
        record = SourceRecord(value_schema=of_struct, value=Struct.of(of_struct, {"field": value}))
        made = {MASK.apply(record).value["field"] for _ in range(20)}
        assert len(made) > 1
        for each in made:
            if schema is Date.SCHEMA:
                Date.from_logical(schema, each)
            elif schema is Time.SCHEMA:
                Time.from_logical(schema, each)
            else:
                assert 1970 <= each.year < 2071
        assert value not in made

    def test_goes_through_lists_dicts_and_structs(self) -> None:
        schema = SchemaBuilder.struct().field("n", INT32_SCHEMA).field("s", STRING_SCHEMA).build()
        came = {
            "list": ["secretsecret", Int32(1)],
            "struct": Struct.of(schema, {"n": 5, "s": "secretsecret"}),
        }
        made = random(came)
        assert "secret" not in repr(made)
        [items] = [item for item in made.values() if isinstance(item, list)]
        [struct] = [item for item in made.values() if isinstance(item, Struct)]
        assert len(items[0]) == 12
        struct.validate()
        assert len(struct["s"]) == 12

    def test_leaves_null(self) -> None:
        assert random(None) is None

    @pytest.mark.parametrize("value", [object(), {1, 2}, DecimalNumber("NaN")])
    def test_refuses_what_it_does_not_know(self, value: Any) -> None:
        with pytest.raises(ConnectDataError):
            random(value)

    def test_refuses_endless_nesting(self) -> None:
        value: list[Any] = []
        value.append(value)
        with pytest.raises(ConnectDataError, match="levels"):
            random(value)


class TestRandomizedFields:
    def test_fit_their_schemas(self) -> None:
        schema = (
            SchemaBuilder.struct()
            .field("s", STRING_SCHEMA)
            .field("price", Decimal.schema(2))
            .field("map", SchemaBuilder.map(STRING_SCHEMA, INT32_SCHEMA).build())
            .field("in", SchemaBuilder.struct().field("n", INT32_SCHEMA).build())
            .build()
        )
        came = {
            "s": "x" * 30,
            "price": DecimalNumber("12.34"),
            "map": {"k" * 30: 1},
            "in": {"n": 123_456_789},
        }
        record = SourceRecord(value_schema=schema, value=Struct.of(schema, came))
        made = MaskField.Value({"randomize.fields": "s,price,map,in.n"}).apply(record).value
        made.validate()
        assert made["s"] != came["s"]
        assert "k" * 30 not in made["map"]
