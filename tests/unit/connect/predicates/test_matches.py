"""Conditions on fields and headers: the predicates, and the transforms that keep or drop by them."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal as DecimalNumber
from typing import Any, Literal

import pytest

from headerware.connect.data import (
    BOOLEAN_SCHEMA,
    FLOAT32_SCHEMA,
    INT32_SCHEMA,
    OPTIONAL_STRING_SCHEMA,
    STRING_SCHEMA,
    Decimal,
    SchemaBuilder,
    Struct,
    Timestamp,
)
from headerware.connect.errors import ConnectConfigError, ConnectDataError
from headerware.connect.predicates.field_matches import FieldMatches
from headerware.connect.predicates.header_matches import HeaderMatches
from headerware.connect.records import SinkRecord
from headerware.connect.transforms.filter_by_field import FilterByField
from headerware.connect.transforms.filter_by_header import FilterByHeader

CUSTOMER = SchemaBuilder.struct().field("country", OPTIONAL_STRING_SCHEMA).optional().build()
ORDER = (
    SchemaBuilder.struct()
    .field("status", OPTIONAL_STRING_SCHEMA)
    .field("count", INT32_SCHEMA)
    .field("weight", FLOAT32_SCHEMA)
    .field("price", Decimal.schema(2))
    .field("paid", BOOLEAN_SCHEMA)
    .field("at", Timestamp.SCHEMA)
    .field("customer", CUSTOMER)
    .build()
)
VALUES: dict[str, Any] = {
    "status": "open",
    "count": 3,
    "weight": 0.1,
    "price": DecimalNumber("1.10"),
    "paid": True,
    "at": datetime(2024, 1, 1, tzinfo=UTC),
    "customer": {"country": "de"},
}


def schemad(**fields: Any) -> SinkRecord:
    return SinkRecord("t", value_schema=ORDER, value=Struct.of(ORDER, VALUES | fields))


def plain(**fields: Any) -> SinkRecord:
    return SinkRecord("t", value=VALUES | fields)


def holds(record: SinkRecord, **config: Any) -> bool:
    options = {name.replace("_", "."): value for name, value in config.items()}
    return FieldMatches.Value(options).test(record)


class TestFieldMatches:
    @pytest.mark.parametrize("make", [schemad, plain])
    @pytest.mark.parametrize(
        ("config", "expected"),
        [
            ({"field_name": "status", "field_value": "open"}, True),
            ({"field_name": "status", "field_value": "ope"}, False),
            ({"field_name": "status", "field_values": "shut,open"}, True),
            ({"field_name": "status", "field_values": "shut"}, False),
            ({"field_name": "status", "field_value_pattern": "^o"}, True),
            ({"field_name": "status", "field_value_pattern": "^p"}, False),
            ({"field_name": "status", "field_exists": "true"}, True),
            ({"field_name": "status", "field_exists": "false"}, False),
            ({"field_name": "count", "field_value": "3"}, True),
            ({"field_name": "count", "field_value": "3.0"}, True),
            ({"field_name": "count", "field_value_above": "2.5"}, True),
            ({"field_name": "count", "field_value_above": "3"}, False),
            ({"field_name": "count", "field_value_min": "3", "field_value_max": "3"}, True),
            ({"field_name": "count", "field_value_below": "3"}, False),
            ({"field_name": "price", "field_value": "1.1"}, True),
            ({"field_name": "price", "field_value_max": "1.09"}, False),
            ({"field_name": "paid", "field_value": "true"}, True),
            ({"field_name": "paid", "field_value": "false"}, False),
            ({"field_name": "at", "field_value_min": "2024-01-01T00:00:00Z"}, True),
            ({"field_name": "at", "field_value_above": "2024-01-01T01:00:00+01:00"}, False),
            ({"field_name": "customer.country", "field_value": "de"}, True),
        ],
    )
    def test_compares_a_value_as_what_it_is(
        self, make: Any, config: dict[str, Any], *, expected: bool
    ) -> None:
        assert holds(make(), **config) is expected

    def test_compares_a_float32_at_its_own_precision(self) -> None:
        assert holds(schemad(), field_name="weight", field_value="0.1")

    def test_compares_the_value_itself_if_no_field_is_named(self) -> None:
        predicate = FieldMatches.Key({"field.value.pattern": "^a"})
        assert predicate.test(SinkRecord("t", key="abc"))

    @pytest.mark.parametrize("make", [schemad, plain])
    @pytest.mark.parametrize(("behaviour", "expected"), [("include", True), ("exclude", False)])
    @pytest.mark.parametrize("name", ["status", "customer.country", "missing", "customer.missing"])
    def test_follows_the_configuration_if_the_field_is_missing_or_null(
        self, make: Any, behaviour: str, name: str, *, expected: bool
    ) -> None:
        record = make(status=None, customer={"country": None})
        config = {"field.name": name, "field.value": "x", "missing.or.null.behavior": behaviour}
        assert FieldMatches.Value(config).test(record) is expected

    @pytest.mark.parametrize("make", [schemad, plain])
    def test_refuses_a_missing_field_by_default(self, make: Any) -> None:
        with pytest.raises(ConnectDataError, match=r"'nope' is missing.*missing\.or\.null\.behavior"):
            holds(make(), field_name="nope", field_value="x")

    def test_does_not_exist_in_a_tombstone(self) -> None:
        assert holds(SinkRecord("t", value=None), field_name="a", field_exists="false")

    @pytest.mark.parametrize(
        ("name", "text"),
        [("count", "three"), ("paid", "yes"), ("at", "now"), ("price", "NaN"), ("weight", "NaN")],
    )
    def test_refuses_a_text_that_cannot_be_what_the_value_is(self, name: str, text: str) -> None:
        with pytest.raises(ConnectDataError, match="but the configured text is not"):
            holds(schemad(), field_name=name, field_value=text)

    def test_asks_every_value_of_a_list(self) -> None:
        with pytest.raises(ConnectDataError, match="but the configured text is not"):
            holds(schemad(), field_name="count", field_values="3,three")

    def test_refuses_to_compare_a_struct(self) -> None:
        with pytest.raises(ConnectDataError, match="class Struct"):
            holds(schemad(), field_name="customer", field_value="x")

    def test_refuses_to_look_for_a_pattern_in_a_number(self) -> None:
        with pytest.raises(ConnectDataError, match="expected text, found Int32"):
            holds(schemad(), field_name="count", field_value_pattern="3")

    def test_refuses_a_field_of_a_value_without_fields(self) -> None:
        with pytest.raises(ConnectDataError, match="expected a struct or dict"):
            holds(SinkRecord("t", value="text"), field_name="a", field_value="x")

    def test_never_quotes_the_record(self) -> None:
        with pytest.raises(ConnectDataError) as caught:
            holds(plain(count="secret-value", status=b"secret"), field_name="status", field_value="x")
        assert "secret" not in str(caught.value)

    @pytest.mark.parametrize(
        "config",
        [
            {},
            {"field.value": "a", "field.value.pattern": "b"},
            {"field.value": "a", "field.value.min": "1"},
            {"field.exists": "maybe"},
            {"field.values": ""},
            {"field.value": "a", "missing.or.null.behavior": "ignore"},
            {"field.value": "a", "field.nmae": "b"},
            {"field.value.pattern": "("},
            {"field.name": "a..b", "field.value": "x"},
        ],
    )
    def test_refuses_a_configuration_that_says_too_little_or_too_much(
        self, config: dict[str, str], mode: Literal["strict", "kafka_4_3"]
    ) -> None:
        with pytest.raises(ConnectConfigError):
            FieldMatches.Value(config, mode=mode)

    def test_needs_to_know_whether_it_looks_at_keys_or_values(self) -> None:
        with pytest.raises(TypeError, match=r"FieldMatches\.Value"):
            FieldMatches({"field.value": "a"})

    def test_reads_structs_of_many_schemas(self) -> None:
        predicate = FieldMatches.Value({"field.name": "b", "field.value": "x"})
        for count in range(200):
            builder = SchemaBuilder.struct()
            for at in range(count % 5):
                builder.field(f"f{at}", OPTIONAL_STRING_SCHEMA)
            schema = builder.field("b", STRING_SCHEMA).build()
            assert predicate.test(SinkRecord("t", value_schema=schema, value=Struct.of(schema, {"b": "x"})))


class TestHeaderMatches:
    def test_looks_at_the_last_header_of_the_name(self) -> None:
        record = SinkRecord("t")
        record.headers.add_string("tenant", "acme").add_string("tenant", "initech")
        assert HeaderMatches({"header.name": "tenant", "header.value": "initech"}).test(record)
        assert not HeaderMatches({"header.name": "tenant", "header.value": "acme"}).test(record)

    def test_compares_numbers(self) -> None:
        record = SinkRecord("t")
        record.headers.add_short("priority", 7)
        assert HeaderMatches({"header.name": "priority", "header.value.min": "5"}).test(record)

    def test_refuses_a_missing_header_by_default(self) -> None:
        with pytest.raises(ConnectDataError, match="the header 'a' is missing"):
            HeaderMatches({"header.name": "a", "header.value": "b"}).test(SinkRecord("t"))

    @pytest.mark.parametrize(("behaviour", "expected"), [("include", True), ("exclude", False)])
    def test_follows_the_configuration_if_it_is_missing(self, behaviour: str, *, expected: bool) -> None:
        config = {"header.name": "a", "header.value": "b", "missing.or.null.behavior": behaviour}
        assert HeaderMatches(config).test(SinkRecord("t")) is expected

    def test_sees_that_a_header_is_missing(self) -> None:
        assert HeaderMatches({"header.name": "a", "header.exists": "false"}).test(SinkRecord("t"))


class TestFilterByField:
    @pytest.mark.parametrize("make", [schemad, plain])
    @pytest.mark.parametrize(
        ("kind", "status", "kept"),
        [
            ("include", "open", True),
            ("include", "shut", False),
            ("exclude", "open", False),
            ("exclude", "shut", True),
        ],
    )
    def test_keeps_or_drops_matching_records(self, make: Any, kind: str, status: str, *, kept: bool) -> None:
        config = {"field.name": "status", "field.value": "open", "filter.type": kind}
        record = make(status=status)
        assert FilterByField.Value(config).apply(record) is (record if kept else None)

    @pytest.mark.parametrize("kind", ["include", "exclude"])
    @pytest.mark.parametrize(("behaviour", "kept"), [("include", True), ("exclude", False)])
    def test_treats_a_missing_field_alike_for_both_types(
        self, kind: str, behaviour: str, *, kept: bool
    ) -> None:
        config = {
            "field.name": "a",
            "field.value": "b",
            "filter.type": kind,
            "missing.or.null.behavior": behaviour,
        }
        record = SinkRecord("t", value={})
        assert FilterByField.Value(config).apply(record) is (record if kept else None)

    def test_refuses_a_tombstone_by_default(self) -> None:
        with pytest.raises(ConnectDataError, match="missing or null"):
            FilterByField.Value({"field.name": "a", "field.value": "b"}).apply(SinkRecord("t"))

    def test_looks_at_keys(self) -> None:
        transform = FilterByField.Key({"field.name": "id", "field.value.above": "3"})
        assert transform.apply(SinkRecord("t", key={"id": 3})) is None
        assert transform.apply(SinkRecord("t", key={"id": 4})) is not None


class TestFilterByHeader:
    @pytest.mark.parametrize(("kind", "kept"), [("include", True), ("exclude", False)])
    def test_keeps_or_drops_matching_records(self, kind: str, *, kept: bool) -> None:
        record = SinkRecord("t")
        record.headers.add_string("tenant", "acme")
        config = {"header.name": "tenant", "header.values": "acme,initech", "filter.type": kind}
        assert FilterByHeader(config).apply(record) is (record if kept else None)

    def test_drops_records_without_the_header_if_configured(self) -> None:
        config = {"header.name": "a", "header.value": "b", "missing.or.null.behavior": "exclude"}
        assert FilterByHeader(config).apply(SinkRecord("t")) is None
