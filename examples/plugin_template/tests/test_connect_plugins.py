"""A transform and a predicate need neither a broker nor Kafka Connect to be tested."""

from __future__ import annotations

from typing import Any

import pytest
from headerware_stamp import InTopics, Truncate

from headerware.connect import ConnectConfigError, ConnectDataError, Pipeline, SourceRecord
from headerware.connect.data import INT64_SCHEMA, OPTIONAL_STRING_SCHEMA, SchemaBuilder, Struct

COMMENT = SchemaBuilder.struct().field("id", INT64_SCHEMA).field("text", OPTIONAL_STRING_SCHEMA).build()
LINES = {
    "transforms": "short",
    "transforms.short.type": "Truncate$Value",
    "transforms.short.field": "text",
    "transforms.short.length": "3",
    "transforms.short.predicate": "isComment",
    "predicates": "isComment",
    "predicates.isComment.type": "InTopics",
    "predicates.isComment.topics": "comments, reviews",
}


def comment(text: str | None) -> Struct:
    return Struct(COMMENT).put("id", 1).put("text", text)


class TestTruncate:
    def test_shortens_a_struct_and_leaves_the_old_one(self) -> None:
        before = comment("lovely")
        made = Truncate.Value({"field": "text", "length": 3}).apply(
            SourceRecord(topic="comments", value_schema=COMMENT, value=before)
        )
        assert made.value == comment("lov")
        assert before == comment("lovely")

    def test_shortens_a_dict_without_a_schema(self) -> None:
        record = SourceRecord(topic="comments", key={"text": "lovely", "id": 1})
        made = Truncate.Key({"field": "text", "length": 3}).apply(record)
        assert made.key == {"text": "lov", "id": 1}

    @pytest.mark.parametrize("value", [comment(None), comment("ok")])
    def test_leaves_what_is_short_enough(self, value: Struct) -> None:
        record = SourceRecord(value_schema=COMMENT, value=value)
        assert Truncate.Value({"field": "text", "length": 3}).apply(record).value == value

    @pytest.mark.parametrize("field", ["id", "missing"])
    def test_refuses_a_field_that_is_no_text(self, field: str) -> None:
        record = SourceRecord(value_schema=COMMENT, value=comment("secret"))
        with pytest.raises(ConnectDataError, match=f"expected a text field '{field}'") as caught:
            Truncate.Value({"field": field}).apply(record)
        assert "secret" not in str(caught.value)


class TestInTopics:
    @pytest.mark.parametrize(("topic", "holds"), [("comments", True), ("orders", False), (None, False)])
    def test_holds_for_its_topics(self, topic: str | None, holds: bool) -> None:  # noqa: FBT001 - a case
        assert InTopics({"topics": "comments,reviews"}).test(SourceRecord(topic=topic)) is holds


class TestConfiguration:
    def test_finds_both_by_their_names(self) -> None:
        with Pipeline.from_config(LINES) as pipeline:
            short = pipeline.apply(SourceRecord(topic="reviews", value={"text": "lovely"}))
            other = pipeline.apply(SourceRecord(topic="orders", value={"text": "lovely"}))
        assert (short.value, other.value) == ({"text": "lov"}, {"text": "lovely"})

    @pytest.mark.parametrize(
        ("key", "value"),
        [
            ("transforms.short.length", "0"),
            ("transforms.short.length", "long"),
            ("transforms.short.lenght", "3"),
            ("transforms.short.type", "Truncate"),
            ("predicates.isComment.topic", "comments"),
        ],
    )
    def test_a_wrong_key_is_named_in_full(self, key: str, value: Any) -> None:
        with pytest.raises(ConnectConfigError) as caught:
            Pipeline.from_config({**LINES, key: value})
        assert caught.value.path == key
