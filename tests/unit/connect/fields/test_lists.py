"""Lists and pairs in configuration, with and without escapes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headerware.connect.config import ConfigDef, ConfigKey
from headerware.connect.errors import ConnectConfigError
from headerware.connect.fields.lists import (
    ESCAPABLE,
    items,
    java_split,
    pairs,
    split_escaped,
    unescaped,
)

LIST = ConfigDef(ConfigKey(name="names", type="LIST"))


def escaped(text: str) -> str:
    """Put a backslash before everything that may have one."""
    return "".join(f"\\{character}" if character in ESCAPABLE else character for character in text)


class TestItems:
    def test_takes_the_escapes_away(self) -> None:
        assert items([r"a\,b", r"c\.d", r"e\\"], "strict", "names") == ["a,b", "c.d", "e\\"]

    def test_knows_no_escapes_in_kafka_4_3(self) -> None:
        assert items([r"a\.b", ""], "kafka_4_3", "names") == [r"a\.b", ""]

    def test_refuses_an_empty_item(self) -> None:
        with pytest.raises(ConnectConfigError, match="must not be empty"):
            items([""], "strict", "names")

    @pytest.mark.parametrize("text", ["a\\", r"\n", r"a\ b", "\\\n"])
    def test_refuses_a_backslash_before_nothing_special(self, text: str) -> None:
        with pytest.raises(ConnectConfigError, match=r"the backslash .* escapes nothing") as caught:
            items([text], "strict", "names")
        assert caught.value.path == "names"

    def test_are_parted_at_commas_that_are_not_escaped(self) -> None:
        parsed = LIST.parse({"names": r" a\, b , c\\,d "}, "strict")
        assert parsed == {"names": [r"a\, b", r"c\\", "d"]}

    def test_are_parted_at_all_commas_in_kafka_4_3(self) -> None:
        assert LIST.parse({"names": r"a\, b"}, "kafka_4_3") == {"names": ["a\\", "b"]}

    @pytest.mark.parametrize("written", ['"card"', "a, 'card'", '"a,b"', ['"a"'], " ' a ' "])
    def test_in_quotes_are_refused_by_strict_only(self, written: str | list[str]) -> None:
        with pytest.raises(ConnectConfigError, match="quotes would be part of the name") as caught:
            LIST.parse({"names": written}, "strict")
        assert caught.value.path == "names"
        assert "card" not in str(caught.value)
        assert LIST.parse({"names": written}, "kafka_4_3")["names"]

    def test_may_have_quotes_of_their_own(self) -> None:
        assert items(LIST.parse({"names": r"\"a\", it's, '"})["names"], "strict", "names") == [
            '"a"',
            "it's",
            "'",
        ]

    def test_are_text(self) -> None:
        assert LIST.parse({"names": ["a,b"]}, "strict") == {"names": ["a,b"]}
        with pytest.raises(ConnectConfigError):
            LIST.parse({"names": ["a", 1]}, "strict")


class TestPairs:
    def test_keeps_the_escapes_for_further_splitting(self) -> None:
        assert pairs([r"a\.b:c\:d"], "strict", "renames") == [(r"a\.b", r"c\:d")]

    @pytest.mark.parametrize("text", ["a", "a:b:c", ":b", "a:", r"a\:b", ""])
    def test_requires_a_pair(self, text: str) -> None:
        with pytest.raises(ConnectConfigError, match="expected pairs"):
            pairs([text], "strict", "renames")

    @pytest.mark.parametrize("text", ['"a":b', "a:'b'", '"a:b"', "''"])
    def test_refuses_quotes_in_strict_only(self, text: str) -> None:
        with pytest.raises(ConnectConfigError, match="quotes would be part of the name"):
            pairs([text], "strict", "renames")
        if ":" in text:
            assert pairs([text], "kafka_4_3", "renames") == [tuple(text.split(":"))]

    @pytest.mark.parametrize(
        ("text", "pair"), [(":b", ("", "b")), ("a:b::", ("a", "b")), ("\\:b", ("\\", "b"))]
    )
    def test_parts_as_java_does_in_kafka_4_3(self, text: str, pair: tuple[str, str]) -> None:
        assert pairs([text], "kafka_4_3", "renames") == [pair]

    @pytest.mark.parametrize("text", ["a", "a:", "a:b:c", ":", ""])
    def test_refuses_the_same_input_as_java(self, text: str) -> None:
        with pytest.raises(ConnectConfigError):
            pairs([text], "kafka_4_3", "renames")


class TestSplit:
    @pytest.mark.parametrize(
        ("text", "parts"),
        [("", [""]), (":", []), ("a:", ["a"]), (":a", ["", "a"]), ("a::b:", ["a", "", "b"])],
    )
    def test_drops_empty_parts_at_the_end_as_java_does(self, text: str, parts: list[str]) -> None:
        assert java_split(text, ":") == parts

    @given(st.lists(st.text(st.sampled_from("ab\\.,:!?$ é")), min_size=1))
    def test_finds_escaped_names(self, names: list[str]) -> None:
        text = ".".join(map(escaped, names))
        assert [unescaped(part, "names") for part in split_escaped(text, ".")] == names
