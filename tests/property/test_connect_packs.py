from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headerware.connect.data import (
    OPTIONAL_STRING_SCHEMA,
    STRING_SCHEMA,
    SchemaBuilder,
    Struct,
    plain,
    validate_value,
)
from headerware.connect.errors import ConnectConfigError, ConnectDataError
from headerware.connect.expressions import CompiledExpression
from headerware.connect.expressions.analysis import field_references
from headerware.connect.predicates.field_matches import FieldMatches
from headerware.connect.records import SinkRecord
from headerware.connect.transforms.change_case import ChangeCase
from headerware.connect.transforms.content_router import ContentRouter
from headerware.connect.transforms.field_to_headers import FieldToHeaders
from headerware.connect.transforms.hash import Hash
from headerware.connect.transforms.headers_to_field import HeadersToField
from headerware.connect.transforms.json_expansion import NotExpandableError, expanded

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
TEXT = st.text(st.characters(codec="utf-8"))
SCALARS = st.none() | st.booleans() | INT64 | st.floats(allow_nan=False) | TEXT | st.binary()
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)
WORDS = st.lists(st.from_regex(r"[a-z][a-z0-9]{0,5}", fullmatch=True), min_size=1, max_size=4)
WHOLE = CompiledExpression("value")
ARRAY = SchemaBuilder.array(OPTIONAL_STRING_SCHEMA).build()
PERSON = SchemaBuilder.struct().field("name", STRING_SCHEMA).field("mail", OPTIONAL_STRING_SCHEMA).build()
TAGGED = SchemaBuilder.struct().field("name", STRING_SCHEMA).field("tags", ARRAY).build()


@given(VALUES)
def test_an_expression_sees_a_value_as_it_is(value: Any) -> None:
    record = SinkRecord("t", value=value)
    if _has_zero(value):
        with pytest.raises(ConnectDataError, match="zero character"):
            WHOLE.evaluate(record)
    else:
        assert WHOLE.evaluate(record) == value


def _has_zero(value: Any) -> bool:
    if isinstance(value, dict):
        return any(_has_zero(key) or _has_zero(item) for key, item in value.items())
    if isinstance(value, list):
        return any(map(_has_zero, value))
    return isinstance(value, str) and "\0" in value


@given(st.binary(max_size=200))
def test_garbage_for_a_tree_never_fails(data: bytes) -> None:
    assert field_references(data, ("value",)) in ({}, {"value": None})


@given(st.text(max_size=60))
def test_garbage_for_an_expression_is_refused_as_what_it_is(text: str) -> None:
    with contextlib.suppress(ConnectConfigError, ConnectDataError):
        CompiledExpression(text).evaluate(SinkRecord("t", value={"a": 1}))


@given(secret=st.text(st.characters(codec="utf-8"), min_size=6), keyed=st.booleans())
def test_a_hash_shows_nothing_of_what_it_hashes(secret: str, *, keyed: bool) -> None:
    config = {"field.name": "mail", "function": "sha256"} | ({"secret": "pepper"} if keyed else {})
    transform = Hash.Value(config)
    for record in (
        SinkRecord("t", value={"name": "n", "mail": secret}),
        SinkRecord("t", value_schema=PERSON, value=Struct.of(PERSON, {"name": "n", "mail": secret})),
    ):
        made = transform.apply(record)
        assert secret not in json.dumps(plain(made.value), ensure_ascii=False)
        assert len(made.value["mail"]) == 64
        assert transform.apply(record) == made


@given(st.lists(st.none() | TEXT, max_size=5))
def test_headers_and_an_array_are_the_same(tags: list[str | None]) -> None:
    config = {"fields": "tags", "headers": "tag", "operation": "move"}
    there, back = FieldToHeaders.Value(config), HeadersToField.Value(config)
    record = SinkRecord("t", value={"name": "n", "tags": tags})
    assert back.apply(there.apply(record)) == record
    record = SinkRecord("t", value_schema=TAGGED, value=Struct.of(TAGGED, {"name": "n", "tags": tags}))
    made = back.apply(there.apply(record))
    assert made.value.to_dict() == record.value.to_dict()
    made.value.validate()


@given(WORDS)
def test_a_change_of_case_has_a_way_back(words: list[str]) -> None:
    name = "_".join(words)
    there = ChangeCase.Value({"from": "LOWER_UNDERSCORE", "to": "LOWER_CAMEL"})
    back = ChangeCase.Value({"from": "LOWER_CAMEL", "to": "LOWER_UNDERSCORE"})
    assert back.apply(there.apply(SinkRecord("t", value={name: 1}))).value == {name: 1}


@given(JSON)
def test_expanded_json_fits_its_schema_and_says_what_the_text_says(node: Any) -> None:
    try:
        schema, value = expanded(json.dumps(node), "payload", keeps_nulls=True)
    except NotExpandableError:
        return
    assert schema is not None
    validate_value(schema, value)
    assert _without_absent(plain(value)) == _without_absent(node)


def _without_absent(node: Any) -> Any:
    """Leave out nulls, which fields become that only other elements have, and empty arrays."""
    if isinstance(node, dict):
        return {key: _without_absent(item) for key, item in node.items() if item is not None and item != []}
    return [_without_absent(item) for item in node] if isinstance(node, list) else node


@given(INT64, INT64)
def test_bounds_are_what_numbers_say(number: int, bound: int) -> None:
    record = SinkRecord("t", value={"n": number})
    for key, expected in {
        "value": number == bound,
        "value.above": number > bound,
        "value.below": number < bound,
        "value.min": number >= bound,
        "value.max": number <= bound,
    }.items():
        predicate = FieldMatches.Value({"field.name": "n", f"field.{key}": str(bound)})
        assert predicate.test(record) is expected


@given(st.text())
def test_a_record_chooses_a_legal_topic_or_none(name: str) -> None:
    router = ContentRouter({"topic.field": "r", "topic.fallback": "lost"})
    record = SinkRecord("t", value={"r": name})
    legal = set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
    if name and not set(name) <= legal:
        with pytest.raises(ConnectDataError):
            router.apply(record)
    else:
        with contextlib.suppress(ConnectDataError):
            assert router.apply(record).topic in {name, "lost"}
