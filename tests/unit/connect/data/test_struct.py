"""Structs, and plain Python values that become them."""

from __future__ import annotations

import datetime as dt
import pickle
from decimal import Decimal as DecimalNumber
from typing import Any

import pytest

from headerware.connect.data import (
    BYTES_SCHEMA,
    FLOAT32_SCHEMA,
    INT8_SCHEMA,
    INT32_SCHEMA,
    INT64_SCHEMA,
    OPTIONAL_STRING_SCHEMA,
    STRING_SCHEMA,
    Date,
    Decimal,
    Float32,
    Int8,
    Int32,
    SchemaBuilder,
    Struct,
    Time,
    Timestamp,
    plain,
    validate_value,
)
from headerware.connect.errors import ConnectDataError

ADDRESS = SchemaBuilder.struct().name("Address").field("city", STRING_SCHEMA).build()
PERSON = (
    SchemaBuilder.struct()
    .name("Person")
    .field("id", INT32_SCHEMA)
    .field("name", OPTIONAL_STRING_SCHEMA)
    .field("country", SchemaBuilder.string().default("CH").build())
    .field("address", SchemaBuilder.struct().name("Address").field("city", STRING_SCHEMA).optional().build())
    .build()
)
EVERYTHING = (
    SchemaBuilder.struct()
    .field("small", INT8_SCHEMA)
    .field("single", FLOAT32_SCHEMA)
    .field("price", Decimal.schema(2))
    .field("day", Date.SCHEMA)
    .field("at", Time.SCHEMA)
    .field("when", Timestamp.SCHEMA)
    .field("tags", SchemaBuilder.array(STRING_SCHEMA).build())
    .field("counts", SchemaBuilder.map(STRING_SCHEMA, INT32_SCHEMA).build())
    .field("addresses", SchemaBuilder.array(ADDRESS).build())
    .field("raw", BYTES_SCHEMA)
    .build()
)


class TestStruct:
    def test_holds_the_values_that_are_put(self) -> None:
        person = Struct(PERSON).put("id", Int32(7)).put("name", "Ada")
        assert (person["id"], person.get("name"), person.get_int32("id")) == (7, "Ada", 7)

    def test_gives_the_default_for_null(self) -> None:
        person = Struct(PERSON)
        assert person.get("country") == "CH"
        assert person.get_without_default("country") is None

    @pytest.mark.parametrize("value", [7, 7.0, True, "7", Int8(7), None])
    def test_takes_exactly_the_type_of_a_field(self, value: Any) -> None:
        with pytest.raises(ConnectDataError, match=r"int32.*'id'"):
            Struct(PERSON).put("id", value)

    def test_never_quotes_a_value(self) -> None:
        with pytest.raises(ConnectDataError) as caught:
            Struct(PERSON).put("id", "secret")
        assert "secret" not in str(caught.value)
        assert "secret" not in repr(Struct(PERSON).put("name", "secret"))

    def test_names_the_fields_that_there_are(self) -> None:
        with pytest.raises(ConnectDataError, match="it has: id, name, country, address"):
            Struct(PERSON).put("nmae", "Ada")

    def test_validates_required_fields(self) -> None:
        with pytest.raises(ConnectDataError, match=r"required.*'id'"):
            Struct(PERSON).validate()
        Struct(PERSON).put("id", Int32(1)).validate()

    def test_refuses_a_struct_of_another_schema(self) -> None:
        other = SchemaBuilder.struct().name("Address").field("town", STRING_SCHEMA).optional().build()
        with pytest.raises(ConnectDataError, match="another schema"):
            Struct(PERSON).put("address", Struct(other))

    def test_looks_into_structs_that_are_put(self) -> None:
        address = PERSON.by_name["address"].schema
        with pytest.raises(ConnectDataError, match="'city'"):
            Struct(PERSON).put("address", Struct(address))

    def test_refuses_another_getter_than_the_fields(self) -> None:
        with pytest.raises(ConnectDataError, match="int32, not string"):
            Struct(PERSON).put("id", Int32(1)).get_string("id")

    def test_can_be_read_like_a_dict(self) -> None:
        person = Struct(PERSON).put("id", Int32(1))
        assert list(person) == ["id", "name", "country", "address"]
        assert "id" in person
        assert "age" not in person
        assert dict(person) == {"id": 1, "name": None, "country": "CH", "address": None}

    def test_is_equal_by_schema_and_content(self) -> None:
        one, other = (Struct(PERSON).put("id", Int32(1)) for _ in range(2))
        assert one == other
        assert one != other.put("name", "Ada")

    def test_survives_pickling(self) -> None:
        person = Struct(PERSON).put("id", Int32(1))
        assert pickle.loads(pickle.dumps(person)) == person  # noqa: S301 - our own pickle

    def test_is_of_a_struct_schema(self) -> None:
        with pytest.raises(ConnectDataError, match="struct"):
            Struct(INT32_SCHEMA)


class TestOf:
    VALUES: dict[str, Any] = {  # noqa: RUF012 - never changed
        "small": 5,
        "single": 0.1,
        "price": DecimalNumber("1.50"),
        "day": dt.date(2020, 2, 29),
        "at": dt.time(12, 30),
        "when": dt.datetime(2020, 2, 29, 12, tzinfo=dt.UTC),
        "tags": ("a", "b"),
        "counts": {"a": 1},
        "addresses": [{"city": "Zug"}],
        "raw": b"x",
    }

    def test_gives_plain_values_their_widths_and_shapes(self) -> None:
        made = Struct.of(EVERYTHING, self.VALUES)
        made.validate()
        assert isinstance(made["small"], Int8)
        assert isinstance(made["single"], Float32)
        assert made["day"] == dt.datetime(2020, 2, 29, tzinfo=dt.UTC)
        assert made["at"] == dt.datetime(1970, 1, 1, 12, 30, tzinfo=dt.UTC)
        assert made["addresses"][0] == Struct(ADDRESS).put("city", "Zug")

    def test_comes_back_as_plain_values(self) -> None:
        back = Struct.of(EVERYTHING, self.VALUES).to_dict()
        assert type(back["small"]) is int
        assert back["single"] == pytest.approx(0.1)
        assert back["counts"] == {"a": 1}
        assert back["addresses"] == [{"city": "Zug"}]

    @pytest.mark.parametrize(
        ("field", "value", "said"),
        [
            ("small", 128, "8 bits"),
            ("small", 1.0, "int8"),
            ("small", True, "int8"),
            ("price", 1.5, "Decimal"),
            ("tags", "ab", "array"),
            ("tags", ["a", 1], "element of array"),
            ("counts", {"a": 1 << 31}, "value of map"),
            ("addresses", [{"town": "Zug"}], "no field 'town'"),
            ("day", "2020-02-29", "Date"),
            ("raw", "x", "bytes"),
        ],
    )
    def test_refuses_a_value_that_does_not_fit(self, field: str, value: Any, said: str) -> None:
        with pytest.raises(ConnectDataError, match=said):
            Struct.of(EVERYTHING, {**self.VALUES, field: value})

    def test_refuses_a_field_that_is_not_there(self) -> None:
        with pytest.raises(ConnectDataError, match="'nmae'"):
            Struct.of(PERSON, {"id": 1, "nmae": "Ada"})

    def test_leaves_null_where_a_default_stands_for_it(self) -> None:
        assert Struct.of(PERSON, {"id": 1}).get_without_default("country") is None

    def test_refuses_a_required_field_that_is_left_out(self) -> None:
        with pytest.raises(ConnectDataError, match="'id'"):
            Struct.of(PERSON, {"name": "Ada"})


class TestValidateValue:
    @pytest.mark.parametrize("value", [True, Int32(1), 1.0, "1", None])
    def test_takes_a_plain_int_only_for_an_int64(self, value: Any) -> None:
        validate_value(INT64_SCHEMA, 1)
        with pytest.raises(ConnectDataError):
            validate_value(INT64_SCHEMA, value)

    @pytest.mark.parametrize("value", [b"x", bytearray(b"x"), memoryview(b"x")])
    def test_takes_bytes_of_every_kind(self, value: Any) -> None:
        validate_value(BYTES_SCHEMA, value)

    def test_refuses_elements_without_a_schema(self) -> None:
        from headerware.connect.data import Schema, Type  # noqa: PLC0415 - for this one

        with pytest.raises(ConnectDataError, match="no schema"):
            validate_value(Schema(Type.ARRAY), [None])

    def test_wants_the_logical_value_of_a_logical_type(self) -> None:
        with pytest.raises(ConnectDataError, match="Date"):
            validate_value(Date.SCHEMA, Int32(1))


class TestPlain:
    def test_leaves_plain_values_alone(self) -> None:
        value = {"a": [1, "x", None, DecimalNumber("1.0")]}
        assert plain(value) == value

    def test_takes_off_widths_in_dicts_without_a_schema(self) -> None:
        (key, value), *_ = plain({Int32(1): Float32(1.5)}).items()
        assert (type(key), type(value)) == (int, float)
