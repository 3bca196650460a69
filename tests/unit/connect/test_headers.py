"""Connect's headers: an ordered multimap that changes in place (KIP-145)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal as DecimalNumber
from typing import Any

import pytest

from headerware.connect.data import (
    BOOLEAN_SCHEMA,
    BYTES_SCHEMA,
    FLOAT32_SCHEMA,
    FLOAT64_SCHEMA,
    INT8_SCHEMA,
    INT16_SCHEMA,
    INT32_SCHEMA,
    INT64_SCHEMA,
    OPTIONAL_BYTES_SCHEMA,
    OPTIONAL_STRING_SCHEMA,
    STRING_SCHEMA,
    Date,
    Decimal,
    Float32,
    Int8,
    Int16,
    Int32,
    Schema,
    SchemaAndValue,
    SchemaBuilder,
    Struct,
    Time,
    Timestamp,
)
from headerware.connect.errors import ConnectDataError, NullValueError
from headerware.connect.headers import ConnectHeader, ConnectHeaders
from headerware.core.errors import HeaderError

INTS = SchemaBuilder.array(INT64_SCHEMA).build()
COUNTS = SchemaBuilder.map(STRING_SCHEMA, INT64_SCHEMA).build()
POINT = SchemaBuilder.struct().field("x", INT64_SCHEMA).build()
DAY = datetime(2024, 2, 29, tzinfo=UTC)
NOON = datetime(1970, 1, 1, 12, tzinfo=UTC)
Add = Callable[[ConnectHeaders], object]


def sample() -> ConnectHeaders:
    return ConnectHeaders().add_string("a", "1").add_int("b", 2).add_string("a", "3").add("c", 4)


def names(headers: ConnectHeaders) -> list[str]:
    return [header.key for header in headers]


class TestHeader:
    @pytest.mark.parametrize("name", ["key", "schema", "value"])
    def test_is_not_changed(self, name: str) -> None:
        header = ConnectHeader("a", STRING_SCHEMA, "1")
        with pytest.raises(AttributeError):
            setattr(header, name, "b")
        assert header == ConnectHeader("a", STRING_SCHEMA, "1")


class TestAdd:
    @pytest.mark.parametrize(
        ("add", "schema", "value"),
        [
            (lambda headers: headers.add_string("k", "v"), STRING_SCHEMA, "v"),
            (lambda headers: headers.add_string("k", None), OPTIONAL_STRING_SCHEMA, None),
            (lambda headers: headers.add_bytes("k", b"v"), BYTES_SCHEMA, b"v"),
            (lambda headers: headers.add_bytes("k", None), OPTIONAL_BYTES_SCHEMA, None),
            (lambda headers: headers.add_boolean("k", True), BOOLEAN_SCHEMA, True),  # noqa: FBT003 - a value
            (lambda headers: headers.add_byte("k", 1), INT8_SCHEMA, Int8(1)),
            (lambda headers: headers.add_short("k", 1), INT16_SCHEMA, Int16(1)),
            (lambda headers: headers.add_int("k", 1), INT32_SCHEMA, Int32(1)),
            (lambda headers: headers.add_long("k", 1), INT64_SCHEMA, 1),
            (lambda headers: headers.add_float("k", 1.5), FLOAT32_SCHEMA, Float32(1.5)),
            (lambda headers: headers.add_double("k", 1), FLOAT64_SCHEMA, 1.0),
            (lambda headers: headers.add_list("k", [1], INTS), INTS, [1]),
            (lambda headers: headers.add_list("k", None, INTS), None, None),
            (lambda headers: headers.add_map("k", {"a": 1}, COUNTS), COUNTS, {"a": 1}),
            (lambda headers: headers.add_map("k", None, COUNTS), None, None),
            (lambda headers: headers.add_struct("k", Struct(POINT)), POINT, Struct(POINT)),
            (lambda headers: headers.add_struct("k", None), None, None),
            (
                lambda headers: headers.add_decimal("k", DecimalNumber("1.50")),
                Decimal.schema(2),
                DecimalNumber("1.50"),
            ),
            (lambda headers: headers.add_decimal("k", None), None, None),
            (lambda headers: headers.add_date("k", DAY), Date.SCHEMA, DAY),
            (lambda headers: headers.add_date("k", None), Date.SCHEMA, None),
            (lambda headers: headers.add_time("k", NOON), Time.SCHEMA, NOON),
            (lambda headers: headers.add_timestamp("k", NOON), Timestamp.SCHEMA, NOON),
            (lambda headers: headers.add("k", 5), None, 5),
            (lambda headers: headers.add("k", "v", STRING_SCHEMA), STRING_SCHEMA, "v"),
            (lambda headers: headers.add("k", None, OPTIONAL_STRING_SCHEMA), OPTIONAL_STRING_SCHEMA, None),
        ],
    )
    def test_gives_a_value_its_schema(self, add: Add, schema: Schema | None, value: Any) -> None:
        headers = ConnectHeaders()
        assert add(headers) is headers
        assert list(headers) == [ConnectHeader("k", schema, value)]

    @pytest.mark.parametrize(
        "add",
        [
            lambda headers: headers.add("k", "secret", INT32_SCHEMA),
            lambda headers: headers.add("k", 1, INT32_SCHEMA),
            lambda headers: headers.add("k", True, INT64_SCHEMA),  # noqa: FBT003 - a value
            lambda headers: headers.add("k", None, STRING_SCHEMA),
            lambda headers: headers.add_string("k", 5),
            lambda headers: headers.add_bytes("k", "secret"),
            lambda headers: headers.add_boolean("k", 1),
            lambda headers: headers.add_byte("k", 128),
            lambda headers: headers.add_long("k", "secret"),
            lambda headers: headers.add_list("k", [1], STRING_SCHEMA),
            lambda headers: headers.add_list("k", "secret", INTS),
            lambda headers: headers.add_map("k", {}, INTS),
            lambda headers: headers.add_date("k", NOON),
            lambda headers: headers.add_time("k", DAY),
        ],
    )
    def test_refuses_a_value_of_another_type_and_does_not_quote_it(self, add: Add) -> None:
        headers = ConnectHeaders()
        with pytest.raises(ConnectDataError) as caught:
            add(headers)
        assert "secret" not in str(caught.value)
        assert len(headers) == 0

    @pytest.mark.parametrize(
        "call",
        [
            lambda headers: headers.add_header(None),
            lambda headers: headers.add_string(None, "x"),
            lambda headers: headers.add_list("k", [1], None),
            lambda headers: headers.remove(None),
            lambda headers: headers.last_with_name(None),
        ],
    )
    def test_wants_names_headers_and_schemas(self, call: Add) -> None:
        with pytest.raises(NullValueError):
            call(ConnectHeaders())


class TestLook:
    def test_last_and_all_with_a_name(self) -> None:
        last = sample().last_with_name("a")
        assert last is not None
        assert last.value == "3"
        assert sample().last_with_name("z") is None
        assert [header.value for header in sample().all_with_name("a")] == ["1", "3"]
        assert ("a" in sample(), "z" in sample(), len(sample())) == (True, False, 4)


class TestChange:
    def test_remove_and_clear(self) -> None:
        assert names(sample().remove("a").remove("nope")) == ["b", "c"]
        assert len(sample().clear()) == 0

    def test_retain_latest_of_all_or_of_one(self) -> None:
        headers = sample().add_int("b", 9)
        assert [header.value for header in headers.duplicate().retain_latest()] == ["3", 4, Int32(9)]
        assert names(headers.retain_latest("a")) == ["b", "a", "c", "b"]

    def test_apply_replaces_removes_or_leaves(self) -> None:
        def change(header: ConnectHeader) -> ConnectHeader | None:
            return None if header.value == "1" else header.rename("z")

        assert names(sample().apply(change)) == ["z", "z", "z"]
        assert names(sample().apply(change, "a")) == ["b", "z", "c"]

    def test_apply_keeps_what_it_did_before_an_error(self) -> None:
        def change(header: ConnectHeader) -> ConnectHeader:
            if header.key == "b":
                raise OSError
            return header.with_value(None, "new")

        headers = sample()
        with pytest.raises(OSError):
            headers.apply(change)
        assert [header.value for header in headers] == ["new", Int32(2), "3", 4]

    def test_a_duplicate_is_apart(self) -> None:
        first = sample()
        second = first.duplicate().clear()
        assert (len(first), len(second)) == (4, 0)

    def test_frozen_headers_refuse_every_change(self) -> None:
        frozen = sample().freeze()
        changes: list[Add] = [
            lambda headers: headers.add("k", 1),
            lambda headers: headers.remove("a"),
            lambda headers: headers.clear(),
            lambda headers: headers.retain_latest(),
            lambda headers: headers.apply(lambda header: header),
        ]
        for change in changes:
            with pytest.raises(HeaderError, match="their record has left"):
                change(frozen)
        assert frozen == sample()
        assert len(frozen.duplicate().clear()) == 0


class TestEquality:
    def test_is_by_order_name_schema_and_value(self) -> None:
        assert sample() == sample()
        assert sample() != sample().add("k", 1)
        assert ConnectHeaders().add("a", 1) != ConnectHeaders().add("a", 1, INT64_SCHEMA)
        assert ConnectHeaders().add("a", 1) != ConnectHeaders().add("a", Int32(1))
        assert ConnectHeader("a", None, 1) != 1
        assert ConnectHeaders() != []

    def test_a_struct_says_its_schema(self) -> None:
        assert ConnectHeader("a", None, Struct(POINT)) == ConnectHeader("a", POINT, Struct(POINT))

    def test_shows_no_values(self) -> None:
        headers = ConnectHeaders().add_string("k", "secret")
        assert "secret" not in repr(headers)
        assert "secret" not in repr(headers.last_with_name("k"))


class TestAddOfASchemaAndValue:
    def test_adds_a_value_that_has_its_schema(self) -> None:
        headers = ConnectHeaders().add("n", SchemaAndValue(INT32_SCHEMA, Int32(5)))
        headers.add("none", SchemaAndValue(None, None))
        assert headers == ConnectHeaders(
            [ConnectHeader("n", INT32_SCHEMA, Int32(5)), ConnectHeader("none", None, None)]
        )

    def test_refuses_a_second_schema_and_a_value_of_another_type(self) -> None:
        with pytest.raises(ConnectDataError, match="has its schema already"):
            ConnectHeaders().add("n", SchemaAndValue(INT64_SCHEMA, 5), INT64_SCHEMA)
        with pytest.raises(ConnectDataError, match="expected"):
            ConnectHeaders().add("n", SchemaAndValue(INT64_SCHEMA, "5"))
