"""spec/vectors/patterns.json: the one dialect of patterns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headerware import ConfigError
from headerware.core.patterns import fits
from headerware.core.topics import TopicPatterns, check_patterns
from tests.work import cpu_within

VECTORS: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "spec" / "vectors" / "patterns.json").read_text(encoding="utf-8")
)


def test_covers_every_kind() -> None:
    assert [len(VECTORS[kind]) for kind in ("patterns", "lists", "topics")] == [46, 12, 22]


@pytest.mark.parametrize(
    "case", VECTORS["patterns"], ids=lambda case: f"{case['pattern']!r} {case['text']!r}"
)
def test_patterns(case: dict[str, Any]) -> None:
    assert fits(case["pattern"], case["text"]) is case["fits"]


@pytest.mark.parametrize("case", VECTORS["lists"], ids=lambda case: f"{case['patterns']} {case['topic']}")
def test_lists(case: dict[str, Any]) -> None:
    assert TopicPatterns(case["patterns"]).matches(case["topic"]) is case["fits"]


@pytest.mark.parametrize("case", VECTORS["topics"], ids=lambda case: repr(case["pattern"]))
def test_topics(case: dict[str, Any]) -> None:
    if case["taken"]:
        check_patterns([case["pattern"]], path="topics")
    else:
        with pytest.raises(ConfigError, match="topics: expected a pattern such as"):
            check_patterns([case["pattern"]], path="topics")


def simply(pattern: str, text: str) -> bool:
    """Return the same by the definition, one character after the other."""
    if not pattern:
        return not text
    if pattern[0] == "*":
        return simply(pattern[1:], text) or (bool(text) and simply(pattern, text[1:]))
    return bool(text) and pattern[0] in {"?", text[0]} and simply(pattern[1:], text[1:])


@given(st.text("ab*?[!\n", max_size=7), st.text("ab[!\n", max_size=7))
def test_what_fits_is_what_the_definition_says(pattern: str, text: str) -> None:
    assert fits(pattern, text) is simply(pattern, text)


@pytest.mark.parametrize("pattern", ["*a*a*a*a*a*a*b", "*a?*a?*a?*b", "*" * 1_000 + "b", "a*" * 500 + "b"])
def test_texts_of_strangers_take_linear_time(pattern: str) -> None:
    with cpu_within(0.02):
        assert not fits(pattern, "a" * 100_000)
