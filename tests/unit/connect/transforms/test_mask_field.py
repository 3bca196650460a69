"""MaskField in both modes; in the strict one nothing that was to be hidden comes through."""

from __future__ import annotations

import math
from collections import OrderedDict
from datetime import UTC, datetime
from decimal import Decimal as DecimalNumber
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headerware.connect.data import (
    BOOLEAN_SCHEMA,
    BYTES_SCHEMA,
    FLOAT64_SCHEMA,
    INT8_SCHEMA,
    INT32_SCHEMA,
    INT64_SCHEMA,
    OPTIONAL_STRING_SCHEMA,
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
    alike,
)
from headerware.connect.errors import ConnectConfigError, ConnectDataError, NullValueError
from headerware.connect.records import SourceRecord
from headerware.connect.transforms.mask_field import MaskField

SECRET = "hunter2-SECRET"


INNER = (
    SchemaBuilder.struct().field("pin", INT64_SCHEMA).field("note", OPTIONAL_STRING_SCHEMA).optional().build()
)


SCHEMA = (
    SchemaBuilder.struct()
    .field("flag", BOOLEAN_SCHEMA)
    .field("small", INT8_SCHEMA)
    .field("ratio", FLOAT64_SCHEMA)
    .field("text", STRING_SCHEMA)
    .field("raw", BYTES_SCHEMA)
    .field("price", Decimal.schema(2))
    .field("day", Date.SCHEMA)
    .field("at", Timestamp.SCHEMA)
    .field("tags", SchemaBuilder.array(STRING_SCHEMA).build())
    .field("map", SchemaBuilder.map(STRING_SCHEMA, STRING_SCHEMA).build())
    .field("in", INNER)
    .field("word", OPTIONAL_STRING_SCHEMA)
    .build()
)


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


VALUES: dict[str, Any] = {
    "flag": True,
    "small": 7,
    "ratio": 1.5,
    "text": SECRET,
    "raw": SECRET.encode(),
    "price": DecimalNumber("12.34"),
    "day": datetime(2020, 2, 2, tzinfo=UTC),
    "at": datetime(2020, 2, 2, 3, 4, 5, tzinfo=UTC),
    "tags": [SECRET],
    "map": {SECRET: SECRET},
    "in": {"pin": 1234, "note": SECRET},
    "word": None,
}


def struct_with(config: dict[str, Any], mode: Any = "strict", **values: Any) -> Struct:
    """Return the struct of all types with fields masked."""
    record = SourceRecord(value_schema=SCHEMA, value=Struct.of(SCHEMA, VALUES | values))
    made = MaskField.Value(config, mode=mode).apply(record)
    assert made.value_schema is SCHEMA
    made.value.validate()
    masked: Struct = made.value
    return masked


def dict_with(config: dict[str, Any], value: Any, mode: Any = "strict") -> Any:
    """Return a dict with fields masked."""
    return MaskField.Value(config, mode=mode).apply(SourceRecord(value=value)).value


class TestMaskField:
    @pytest.mark.parametrize(
        ("name", "mask"),
        [
            ("flag", False),
            ("small", Int8(0)),
            ("ratio", 0.0),
            ("text", ""),
            ("day", EPOCH),
            ("at", EPOCH),
            ("tags", []),
            ("map", {}),
            ("word", None),
        ],
    )
    def test_hides_a_field_of_each_type(self, name: str, mask: Any, mode: Any) -> None:
        assert alike(struct_with({"fields": name}, mode)[name], mask)

    @pytest.mark.parametrize(
        ("value", "mask"),
        [
            (True, False),
            (Int32(5), Int32(0)),
            (5, 0),
            (Float32(1.5), Float32(0)),
            (BigInteger(5), BigInteger(0)),
            (DecimalNumber("1.5"), DecimalNumber(0)),
            ("x", ""),
            (EPOCH.replace(year=2020), EPOCH),
            (["x"], []),
            ({"x": 1}, {}),
            (OrderedDict(x=1), {}),
            (None, None),
        ],
    )
    def test_hides_a_value_of_each_class(self, value: Any, mask: Any, mode: Any) -> None:
        assert alike(dict_with({"fields": "f"}, {"f": value, "g": 1}, mode), {"f": mask, "g": 1})

    @pytest.mark.parametrize(
        ("value", "mask"),
        [
            (Int8(5), Int8(42)),
            (5, 42),
            (Float32(5), Float32(42)),
            ("x", "42"),
            (DecimalNumber(1), DecimalNumber(42)),
            (BigInteger(1), BigInteger(42)),
        ],
    )
    def test_replaces_a_value_in_its_own_class(self, value: Any, mask: Any, mode: Any) -> None:
        made = dict_with({"fields": "f", "replacement": "42"}, {"f": value}, mode)
        assert alike(made, {"f": mask})

    @pytest.mark.parametrize("name", ["day", "tags", "map", "in", "raw", "small"])
    def test_refuses_a_replacement_that_does_not_fit(self, name: str, mode: Any) -> None:
        with pytest.raises(ConnectDataError):
            struct_with({"fields": name, "replacement": "xyz"}, mode)

    def test_refuses_an_empty_replacement(self, mode: Any) -> None:
        with pytest.raises(ConnectConfigError):
            MaskField.Value({"fields": "a", "replacement": " "}, mode=mode)

    def test_works_on_keys(self) -> None:
        assert MaskField.Key({"fields": "a"}).apply(SourceRecord(key={"a": "x"})).key == {"a": ""}


class TestStrictMode:
    def test_hides_bytes(self) -> None:
        assert struct_with({"fields": "raw"})["raw"] == b""
        assert dict_with({"fields": "f"}, {"f": memoryview(b"x")}) == {"f": b""}

    def test_gives_a_decimal_the_scale_of_its_schema(self) -> None:
        assert str(struct_with({"fields": "price"})["price"]) == "0.00"
        assert str(struct_with({"clobber.fields": "price:7"})["price"]) == "7.00"
        with pytest.raises(ConnectDataError, match="over 2 digits"):
            struct_with({"clobber.fields": "price:7.123"})

    def test_hides_nested_fields(self) -> None:
        masked = struct_with({"fields": "in.pin,in.note"})
        assert masked["in"].to_dict() == {"pin": 0, "note": ""}
        assert dict_with({"fields": "a.b"}, {"a": {"b": SECRET, "c": 1}}) == {"a": {"b": "", "c": 1}}

    def test_leaves_null_and_absent_fields(self) -> None:
        assert struct_with({"fields": "in.pin"}, **{"in": None})["in"] is None
        values: list[dict[str, Any]] = [{}, {"a": None}, {"a": {}}, {"a": {"b": None}}]
        for value in values:
            assert dict_with({"fields": "a.b"}, value) == value

    @pytest.mark.parametrize("schema", [None, SCHEMA])
    def test_leaves_a_tombstone_alone(self, schema: Any) -> None:
        record = SourceRecord(topic="t", value_schema=schema)
        assert MaskField.Value({"fields": "text"}).apply(record) is record

    @pytest.mark.parametrize("name", ["secret", "in.secret", "tags.x", "map.x", "text.x", "in"])
    @pytest.mark.parametrize("key", ["fields", "clobber.fields"])
    def test_refuses_a_schema_in_which_it_cannot_hide_the_field(self, name: str, key: str) -> None:
        with pytest.raises(ConnectDataError) as caught:
            struct_with({key: f"{name}:x" if key == "clobber.fields" else name})
        assert SECRET not in str(caught.value)

    @pytest.mark.parametrize(
        "value",
        [
            {"a": SECRET},
            {"a": [{"b": SECRET}]},
            {"a.b": SECRET},
            {"a": {1: SECRET}},
            {1: SECRET},
            {"a": {"b": Struct.of(SCHEMA, VALUES)}},
            {"a": {"b": object()}},
            {"a": Struct.of(SCHEMA, VALUES)},
            SECRET,
            [SECRET],
            Struct.of(SCHEMA, VALUES),
        ],
    )
    @pytest.mark.parametrize(
        "config", [{"fields": "a.b"}, {"clobber.fields": "a.b:x"}, {"fields": "a.b", "replacement": "x"}]
    )
    def test_refuses_a_value_in_which_the_field_may_hide(self, value: Any, config: dict[str, str]) -> None:
        with pytest.raises(ConnectDataError) as caught:
            dict_with(config, value)
        assert SECRET not in str(caught.value)

    def test_refuses_a_struct_of_another_schema_than_the_record_says(self) -> None:
        other = SchemaBuilder.struct().field("text", STRING_SCHEMA).build()
        record = SourceRecord(value_schema=other, value=Struct.of(SCHEMA, VALUES))
        with pytest.raises(ConnectDataError, match="another schema"):
            MaskField.Value({"fields": "text"}).apply(record)

    def test_masks_the_default_that_comes_for_a_null(self) -> None:
        schema = SchemaBuilder.struct().field("d", SchemaBuilder.string().default(SECRET).build()).build()
        record = SourceRecord(value_schema=schema, value=Struct(schema))
        assert MaskField.Value({"fields": "d"}).apply(record).value.values == [""]
        kept = MaskField.Value({"fields": "d", "replace.null.with.default": "false"}).apply(record)
        assert kept.value.values == [None]

    def test_gives_fields_replacements_of_their_own(self) -> None:
        masked = struct_with({"clobber.fields": r"text:a\:b\,c,small:9,flag:true", "fields": "ratio"})
        assert (masked["text"], masked["small"], masked["flag"], masked["ratio"]) == ("a:b,c", 9, True, 0.0)

    @pytest.mark.parametrize("replacement", ["300", "1.5", "0x1p3", "1_0", " 7x", "9" * 5000])
    def test_refuses_a_replacement_that_would_lose_digits(self, replacement: str) -> None:
        with pytest.raises(ConnectDataError):
            struct_with({"fields": "small", "replacement": replacement})

    @pytest.mark.parametrize(
        "config",
        [
            {},
            {"fields": ""},
            {"fields": "a,a.b"},
            {"fields": "a", "clobber.fields": "a:x"},
            {"fields": "a", "randomize.fields": "a"},
            {"clobber.fields": "a:x", "replacement": "y"},
            {"clobber.fields": "a"},
            {"fields": "a..b"},
            {"fields": "a", "field": "b"},
        ],
    )
    def test_refuses_ambiguous_input(self, config: dict[str, str]) -> None:
        with pytest.raises(ConnectConfigError):
            MaskField.Value(config)

    def test_does_not_give_one_list_to_two_records(self) -> None:
        transform = MaskField.Value({"fields": "f"})
        first, second = (transform.apply(SourceRecord(value={"f": ["x"]})).value["f"] for _ in range(2))
        assert first is not second

    def test_does_not_change_the_value_that_came(self) -> None:
        came = {"a": {"b": SECRET}}
        dict_with({"fields": "a.b"}, came)
        assert came == {"a": {"b": SECRET}}


class TestKafkaMode:
    def test_adds_fields_that_are_not_there(self) -> None:
        assert dict_with({"fields": "a,b"}, {"a": 1}, "kafka_4_3") == {"a": 0, "b": None}

    def test_passes_over_fields_that_a_schema_does_not_have(self) -> None:
        assert (
            struct_with({"fields": "in.pin,nope"}, "kafka_4_3").to_dict()
            == struct_with({"fields": "nope"}, "kafka_4_3").to_dict()
        )

    def test_wraps_a_replacement_that_is_too_large(self) -> None:
        assert struct_with({"fields": "small", "replacement": "300"}, "kafka_4_3")["small"] == Int8(44)

    def test_forgets_the_scale_of_a_decimal(self) -> None:
        assert str(struct_with({"fields": "price"}, "kafka_4_3")["price"]) == "0"

    @pytest.mark.parametrize("name", ["raw", "in"])
    def test_refuses_bytes_and_structs(self, name: str) -> None:
        with pytest.raises(ConnectDataError):
            struct_with({"fields": name}, "kafka_4_3")

    @pytest.mark.parametrize("schema", [None, SCHEMA])
    def test_refuses_a_null(self, schema: Any) -> None:
        with pytest.raises(ConnectDataError):
            MaskField.Value({"fields": "a"}, mode="kafka_4_3").apply(SourceRecord(value_schema=schema))

    def test_stumbles_over_a_null_boolean(self) -> None:
        config = {"fields": "a", "replace.null.with.default": None}
        with pytest.raises(NullValueError):
            MaskField.Value(config, mode="kafka_4_3")
        with pytest.raises(ConnectConfigError):
            MaskField.Value(config)

    def test_requires_fields(self) -> None:
        with pytest.raises(ConnectConfigError):
            MaskField.Value({"randomize.fields": "a"}, mode="kafka_4_3")


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
        with pytest.raises(ConnectDataError, match="nested too deeply"):
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


class TestMisspelt:
    @pytest.mark.parametrize("mode", ["strict", "kafka_4_3"])
    def test_an_object_without_any_of_the_fields_is_a_warning(
        self, mode: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        mask = MaskField.Value({"fields": "snn,other"}, mode=mode)
        mask.apply(SourceRecord(topic="t", value={"other": 1}))
        assert not caplog.messages
        for _ in range(2):
            mask.apply(SourceRecord(topic="t", value={"ssn": SECRET}))
        assert caplog.messages == [
            "MaskField: an object has none of the fields other, snn; it passes unmasked"
        ]

    def test_a_schema_without_any_of_the_fields_is_a_warning_in_kafkas_mode(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        schema = SchemaBuilder.struct().field("ssn", STRING_SCHEMA).build()
        mask = MaskField.Value({"fields": "snn"}, mode="kafka_4_3")
        mask.apply(SourceRecord(topic="t", value_schema=schema, value=Struct.of(schema, {"ssn": SECRET})))
        assert len(caplog.messages) == 1
