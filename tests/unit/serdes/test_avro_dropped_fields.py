"""A field that the schema does not have is dropped, and a warning names it once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from headerware.core.headers import EMPTY
from headerware.serdes import Avro
from headerware.serdes.serde import SerdeContext

if TYPE_CHECKING:
    from collections.abc import Callable

ADDRESS: dict[str, Any] = {
    "type": "record",
    "name": "Address",
    "fields": [{"name": "city", "type": "string"}],
}
SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "shop.Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "to", "type": ["null", ADDRESS], "default": None},
        {"name": "via", "type": {"type": "array", "items": "Address"}, "default": []},
        {"name": "by", "type": {"type": "map", "values": "Address"}, "default": {}},
    ],
}


@dataclass
class Order:
    id: int
    nots: str


@pytest.fixture
def write() -> Callable[[Any], object]:
    serde = Avro(schema=SCHEMA).open(SerdeContext(part="value"))
    return lambda value: serde.serialize("orders", EMPTY, value)[0]


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.name == "headerware.serdes.avro"]


@pytest.mark.parametrize(
    ("value", "record", "field"),
    [
        ({"id": 1, "nots": "x"}, "shop.Order", "nots"),
        (Order(1, "x"), "shop.Order", "nots"),
        ({"id": 1, "to": {"city": "Ulm", "zip": "1"}}, "shop.Address", "zip"),
        ({"id": 1, "via": [{"city": "Ulm", "zip": "1"}]}, "shop.Address", "zip"),
        ({"id": 1, "by": {"sea": {"city": "Ulm", "zip": "1"}}}, "shop.Address", "zip"),
    ],
)
def test_is_warned_of_once_with_the_remedy(
    write: Callable[[Any], object], caplog: pytest.LogCaptureFixture, value: Any, record: str, field: str
) -> None:
    for _ in range(200):
        write(value)
    (warning,) = warnings(caplog)
    assert warning.startswith(f"a field {field!r} is not in the schema {record!r}, and is dropped")
    assert "set strict = true" in warning


def test_is_found_later_in_time(write: Callable[[Any], object], caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(100):
        write({"id": 1})
    for _ in range(257):
        write({"id": 1, "late": 1})
    (warning,) = warnings(caplog)
    assert warning.startswith("a field 'late' is not in the schema")


def test_is_found_if_each_second_object_has_it(
    write: Callable[[Any], object], caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(1_000):
        write({"id": 1, "late": 1} if number > 100 and number % 2 else {"id": 1})
    (warning,) = warnings(caplog)
    assert warning.startswith("a field 'late' is not in the schema")


def test_a_union_is_looked_into_by_the_branch_that_a_tuple_names(caplog: pytest.LogCaptureFixture) -> None:
    other = {"type": "record", "name": "Other", "fields": [{"name": "x", "type": "long"}]}
    union = ["null", other, {"type": "array", "items": ADDRESS}]
    schema = {"type": "record", "name": "R", "fields": [{"name": "of", "type": union}]}
    serde = Avro(schema=schema).open(SerdeContext(part="value"))
    serde.serialize("orders", EMPTY, {"of": ("Other", {"x": 1})})
    assert warnings(caplog) == []
    serde.serialize("orders", EMPTY, {"of": ("Other", {"x": 1, "y": 2})})
    (warning,) = warnings(caplog)
    assert warning.startswith("a field 'y' is not in the schema 'Other'")


def test_an_object_that_fits_gets_no_warning(
    write: Callable[[Any], object], caplog: pytest.LogCaptureFixture
) -> None:
    write({"id": 1, "note": "x", "to": {"city": "Ulm", "-type": "shop.Address"}})
    assert warnings(caplog) == []


def test_many_fields_do_not_fill_the_log_and_keys_that_are_no_names_are_not_shown(
    write: Callable[[Any], object], caplog: pytest.LogCaptureFixture
) -> None:
    write({"id": 1, "ann@example.com": 1, **{f"field_{number}": 1 for number in range(100)}})
    assert len(warnings(caplog)) == 8
    assert "ann" not in caplog.text
    assert "a field whose name Avro does not allow is not in the schema" in caplog.text
