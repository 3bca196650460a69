from __future__ import annotations

import json

import pytest

from headerware.connect.data import (
    INT64_SCHEMA,
    OPTIONAL_BYTES_SCHEMA,
    Type,
)
from headerware.connect.transforms.json_expansion import NotExpandableError, expanded


class TestExpanded:
    @pytest.mark.parametrize(
        ("text", "kind"),
        [
            ('{"a": "x"}', Type.STRING),
            ('{"a": true}', Type.BOOLEAN),
            ('{"a": 2147483647}', Type.INT32),
            ('{"a": 2147483648}', Type.INT64),
            ('{"a": 1.0}', Type.FLOAT64),
            ('{"a": {}}', Type.STRUCT),
            ('{"a": [1]}', Type.ARRAY),
        ],
    )
    def test_infers_a_type(self, text: str, kind: Type) -> None:
        schema, value = expanded(text, "p", keeps_nulls=False)
        assert schema is not None
        assert schema.by_name["a"].schema.type is kind
        assert schema.by_name["a"].schema.optional
        assert json.loads(text) == value.to_dict()

    def test_leaves_out_nulls_and_empty_arrays(self) -> None:
        schema, value = expanded('{"a": null, "b": [], "c": 1}', "p", keeps_nulls=False)
        assert schema is not None
        assert value.to_dict() == {"c": 1}

    def test_keeps_nulls_as_optional_bytes(self) -> None:
        schema, value = expanded('{"a": null, "b": [null]}', "p", keeps_nulls=True)
        assert schema is not None
        assert schema.by_name["a"].schema is OPTIONAL_BYTES_SCHEMA
        assert value.to_dict() == {"a": None, "b": [None]}

    def test_lets_a_type_take_the_place_of_null_in_an_array_of_objects(self) -> None:
        schema, value = expanded('[{"a": null}, {"a": 1}, null]', "p", keeps_nulls=True)
        assert schema is not None
        assert schema.value_schema is not None
        assert schema.value_schema.by_name["a"].schema.type is Type.INT32
        assert [None if item is None else item.to_dict() for item in value] == [{"a": None}, {"a": 1}, None]

    def test_names_nested_structs_by_their_path(self) -> None:
        schema, _ = expanded('{"a": {"b": {"c": 1}}}', "payload", keeps_nulls=False)
        assert schema is not None
        assert schema.by_name["a"].schema.by_name["b"].schema.name == "payload.a.b"

    @pytest.mark.parametrize(
        "text",
        [
            "1",
            '"x"',
            " {}",
            "",
            "{",
            "[]",
            "[null]",
            '[1, "a"]',
            "[1, 1.5]",
            "[1, 3000000000]",
            "[1, true]",
            '[{"a": 1}, {"a": "x"}]',
            '[[1], ["a"]]',
            '{"a": 9223372036854775808}',
            '{"a": Infinity}',
            '{"a": 1, "a": 1}',
            '{"a": ' * 70 + "1" + "}" * 70,
            "[" * 100_000 + "]" * 100_000,
            "{" + "9" * 5000,
        ],
    )
    def test_takes_nothing_that_does_not_fit(self, text: str) -> None:
        with pytest.raises(NotExpandableError):
            expanded(text, "p", keeps_nulls=False)

    def test_keeps_a_long(self) -> None:
        schema, value = expanded('{"a": -9223372036854775808}', "p", keeps_nulls=False)
        assert schema is not None
        assert schema.by_name["a"].schema.type is INT64_SCHEMA.type
        assert value["a"] == -(1 << 63)
