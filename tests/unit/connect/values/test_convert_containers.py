"""Values converted to lists, maps and structs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headerware.connect.data import INT32_SCHEMA, STRING_SCHEMA, Int8, SchemaBuilder, Struct
from headerware.connect.errors import ConnectDataError, NullValueError
from headerware.connect.modes import Mode
from headerware.connect.values import convert_to_list, convert_to_map, convert_to_struct

STRUCT_SCHEMA = SchemaBuilder.struct().field("id", INT32_SCHEMA).build()
Convert = Callable[..., Any]
ALL = [convert_to_list, convert_to_map, convert_to_struct]


class TestBothModes:
    @pytest.mark.parametrize(
        ("convert", "value"),
        [(convert_to_list, [1]), (convert_to_map, {"a": 1}), (convert_to_struct, Struct(STRUCT_SCHEMA))],
    )
    def test_leave_what_is_one(self, convert: Convert, value: Any, mode: Mode) -> None:
        assert convert(STRING_SCHEMA, value, mode=mode) is value

    def test_make_lists_of_tuples(self, mode: Mode) -> None:
        assert convert_to_list(None, (1, 2), mode=mode) == [1, 2]

    @pytest.mark.parametrize(
        ("convert", "given", "expected"),
        [
            (convert_to_list, "[1,2]", [1, 2]),
            (convert_to_list, "[]", []),
            (convert_to_list, '[1,"a",null]', [1, "a", None]),
            (convert_to_map, '{"a":1}', {"a": 1}),
            (convert_to_map, "{}", {}),
            (convert_to_map, '{"a":1,"b":"x"}', {"a": 1, "b": "x"}),
        ],
    )
    def test_read_texts(self, convert: Convert, given: str, expected: Any, mode: Mode) -> None:
        if mode == "kafka_4_3" and "null" in given:
            given, expected = '[1,"a"]', [1, "a"]
        assert convert(None, given, mode=mode) == expected

    @pytest.mark.parametrize("convert", ALL)
    @pytest.mark.parametrize("value", ["abc", "", "[1", "1", 1, b"[1]", object()])
    def test_refuse_all_else(self, convert: Convert, value: Any, mode: Mode) -> None:
        with pytest.raises(ConnectDataError):
            convert(None, value, mode=mode)

    @pytest.mark.parametrize("convert", ALL)
    def test_differ_on_null(self, convert: Convert) -> None:
        assert convert(None, None) is None
        with pytest.raises(ConnectDataError):
            convert(None, None, mode="kafka_4_3")

    @pytest.mark.parametrize("convert", [convert_to_list, convert_to_map])
    def test_differ_on_the_text_of_null(self, convert: Convert) -> None:
        with pytest.raises(ConnectDataError):
            convert(None, "null")
        with pytest.raises(NullValueError):
            convert(None, "null", mode="kafka_4_3")


class TestStrict:
    @pytest.mark.parametrize("given", ["{true:1,1:2}", "{[1]:2}", '{"a":1,"a":2}', "[1,]", "[" * 100_000])
    def test_refuses_texts_that_are_ambiguous(self, given: str) -> None:
        for convert in (convert_to_list, convert_to_map):
            with pytest.raises(ConnectDataError):
                convert(None, given)


class TestKafka43:
    def test_ignores_the_text_after_a_list(self) -> None:
        assert convert_to_list(None, "[1] tail", mode="kafka_4_3") == [Int8(1)]
