"""Texts with the topic in them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headerware.connect.errors import ConnectConfigError, ConnectDataError
from headerware.connect.fields.topics import TopicTemplate, by_topic, literal


class TestTopicTemplate:
    @pytest.mark.parametrize(
        ("text", "filled"),
        [
            ("com.${topic}.v1", "com.orders.v1"),
            ("${topic}${topic}", "ordersorders"),
            (r"\${topic}", "${topic}"),
            (r"\\${topic}", r"\orders"),
            (r"C:\dir", r"C:\dir"),
            ("${", "${"),
            ("plain", "plain"),
        ],
    )
    def test_holds_the_topic(self, text: str, filled: str) -> None:
        assert TopicTemplate(text, "strict", "name").of("orders") == filled

    def test_is_plain_text_in_kafka_4_3(self) -> None:
        assert TopicTemplate("${topic}", "kafka_4_3", "name").of("orders") == "${topic}"

    def test_refuses_other_placeholders(self) -> None:
        with pytest.raises(ConnectConfigError, match="no placeholder"):
            TopicTemplate("${env:HOME}", "strict", "name")

    def test_refuses_a_record_without_a_topic(self) -> None:
        with pytest.raises(ConnectDataError, match="topic"):
            TopicTemplate("${topic}", "strict", "name").of(None)

    @given(st.text(st.sampled_from("a\\${}topic")))
    def test_is_what_a_literal_says(self, text: str) -> None:
        assert TopicTemplate(literal(text), "strict", "name").constant == text


class TestByTopic:
    def test_makes_a_thing_once_for_each_topic(self) -> None:
        made: list[str] = []

        def make(text: str) -> str:
            made.append(text)
            return text

        cache = by_topic(TopicTemplate("n.${topic}", "strict", "name"), make)
        assert [cache[topic] for topic in ("a", "b", "a")] == ["n.a", "n.b", "n.a"]
        assert made == ["n.a", "n.b"]

    def test_forgets_topics_rather_than_fill_the_memory(self) -> None:
        cache = by_topic(TopicTemplate("${topic}", "strict", "name"), str)
        for number in range(3000):
            cache[str(number)]
        assert len(cache) <= 1024
