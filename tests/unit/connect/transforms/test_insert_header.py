"""InsertHeader, DropHeaders and Filter."""

from __future__ import annotations

from typing import Any

import pytest

from headerware.connect.data import INT8_SCHEMA, INT64_SCHEMA, STRING_SCHEMA, Int8
from headerware.connect.errors import ConnectConfigError
from headerware.connect.headers import ConnectHeader
from headerware.connect.modes import Mode
from headerware.connect.transforms.insert_header import InsertHeader
from tests.unit.connect.conftest import record_with_headers


def inserted(literal: str, mode: Mode = "strict") -> ConnectHeader:
    made = InsertHeader({"header": "app", "value.literal": literal}, mode=mode).apply(record_with_headers())
    *before, last = made.headers
    assert before == list(record_with_headers().headers)
    assert isinstance(last, ConnectHeader)
    return last


class TestInsertHeader:
    @pytest.mark.parametrize(
        ("literal", "schema", "value"),
        [
            ("best-app-ever", STRING_SCHEMA, "best-app-ever"),
            ("42", INT8_SCHEMA, Int8(42)),
            ("null", None, None),
        ],
    )
    def test_takes_the_literal_for_what_it_looks_like_in_kafka(
        self, literal: str, schema: Any, value: Any
    ) -> None:
        assert inserted(literal, "kafka_4_3") == ConnectHeader("app", schema, value)

    @pytest.mark.parametrize(
        ("literal", "schema", "value"),
        [
            ("best-app-ever", STRING_SCHEMA, "best-app-ever"),
            ("42", INT64_SCHEMA, 42),
            ("007", STRING_SCHEMA, "007"),
            ("1,000", STRING_SCHEMA, "1,000"),
            ("null", None, None),
        ],
    )
    def test_takes_it_for_that_alone_which_gives_the_same_text_in_strict(
        self, literal: str, schema: Any, value: Any
    ) -> None:
        assert inserted(literal) == ConnectHeader("app", schema, value)

    def test_adds_to_headers_of_the_name_and_leaves_the_old_record(self) -> None:
        before = record_with_headers()
        made = InsertHeader({"header": "h", "value.literal": "new"}).apply(before)
        assert [header.value for header in made.headers.all_with_name("h")] == ["old", "again", "new"]
        assert before == record_with_headers()
        assert (made.topic, made.key, made.value, made.timestamp) == ("t", 1, {"a": 1}, 5)

    @pytest.mark.parametrize(
        "config",
        [
            {},
            {"header": "h"},
            {"value.literal": "x"},
            {"header": None, "value.literal": "x"},
            {"header": "h", "value.literal": None},
        ],
    )
    def test_wants_both_keys(self, config: dict[str, Any], mode: Mode) -> None:
        with pytest.raises(ConnectConfigError):
            InsertHeader(config, mode=mode)
