"""Whichever engine looks at a text finds the same: RE2 and Python's re agree where both may be asked."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headerware.connect.errors import ConnectConfigError
from headerware.connect.java.regex import JavaPattern, _by_re, _by_re2, java_pattern

TEXTS = st.text(st.sampled_from("ab.-_1 \n\r\u2028é\U0001f600\ud800"), max_size=8)
ATOMS = st.sampled_from(
    [
        *(
            "a",
            "b",
            ".",
            "[ab]",
            "[^a]",
            r"\d",
            r"\w",
            r"\W",
            r"\s",
            "é",
            r"\p{L}",
            r"[\w&&[^b]]",
            r"\R",
            r"\.",
        ),
        *(
            r"\R",
            r"\.",
            "^",
            "$",
            r"\A",
            r"\z",
            r"\Z",
            r"\b",
            r"\B",
            "(?i)A",
            "(?s).",
            "(?m)^",
            "(?m)$",
            "(?d).",
            "",
        ),
    ]
)
COUNTS = st.sampled_from(["", "", "", "*", "+", "?", "*?", "+?", "??", "{2}", "{1,2}", "{0,9}", "{2,}"])
PATTERNS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.builds("".join, st.lists(inner, min_size=1, max_size=3)),
        st.builds("({})".format, inner),
        st.builds("(?:{}){}".format, inner, COUNTS),
        st.builds("(?:{}|{})".format, inner, inner),
        st.builds("(?:{}|{}){}".format, inner, inner, COUNTS),
    ),
    max_leaves=6,
)


def for_both(written: str, text: str) -> JavaPattern | None:
    """Return a pattern that both engines may be asked about a text."""
    try:
        pattern = java_pattern(written)
    except ConnectConfigError:
        return None
    both = pattern._linear is not None and text and pattern._means_the_same(text)
    return pattern if both else None


def places(matches: Any) -> list[tuple[int, int]]:
    return [match.span() for match in matches]


def span(match: Any) -> Any:
    return None if match is None else match.span()


@given(PATTERNS, TEXTS)
def test_both_engines_find_the_same(written: str, text: str) -> None:
    pattern = for_both(written, text)
    if pattern is not None:
        assert span(pattern._linear.search(text)) == span(pattern.exact.search(text))
        assert span(pattern._linear.fullmatch(text)) == span(pattern.exact.fullmatch(text))


@given(PATTERNS, TEXTS)
def test_replacing_finds_the_same_places(written: str, text: str) -> None:
    pattern = for_both(written, text)
    if pattern is not None:
        assert places(_by_re2(pattern._linear, text)) == places(_by_re(pattern.exact, text))
