r"""Regular expressions mean what they mean in Java; the expected results are those of ``java.util.regex``."""

from __future__ import annotations

import re

import pytest

from headerware.connect.errors import ArgumentError, ConnectConfigError, ConnectDataError, GroupNumberError
from headerware.connect.java import regex
from headerware.connect.java.regex import PATTERN_WITH_TEXT, VALID_PATTERN, java_pattern, replacement
from tests.work import cpu_within


def matches(pattern: str, text: str) -> bool:
    return java_pattern(pattern).fullmatch(text) is not None


class TestCharacters:
    @pytest.mark.parametrize(
        ("pattern", "yes", "no"),
        [
            (r"\d", "7", "\u0667"),
            (r"\w", "_", "é"),
            (r"\s", "\x0b", "\xa0"),
            (r"\h", "\xa0", "\n"),
            (r"\H", "a", "\t"),
            (r"\v", "\u2028", " "),
            (r"\D\W\S", "a-x", "a-\n"),
            (r"\p{Alpha}", "Z", "é"),
            (r"\p{Lower}", "a", "A"),
            (r"\P{Lower}", "A", "a"),
            (r"\p{Punct}+", "!~_$", "a"),
            (r"\p{XDigit}{2}", "fA", "fg"),
            (r"\p{L}+", "éß", "1"),
            (r"\pL", "é", "1"),
            (r"\p{Lu}", "É", "é"),
            (r"\p{IsLu}", "É", "é"),
            (r"\p{gc=Nd}", "\u0667", "x"),
            (r"\p{general_category=Nd}", "7", "x"),
            (r"\p{IsLetter}", "é", "-"),
            (r"\p{IsUppercase}", "\u2160", "a"),
            (r"\p{IsWhite_Space}", "\u3000", "a"),
            (r"\p{IsAssigned}", "a", "\u0378"),
            (r"\p{LC}", "\u01c5", "1"),
            (r"\p{L1}", "ÿ", "Ā"),
            (r"\p{javaLowerCase}", "ª", "A"),
            (r"\x41\u0042\x{43}\0104", "ABCD", "abcd"),
            (r"\uD83D\uDE00", "\U0001f600", "x"),
            (r"\N{LATIN SMALL LETTER A}", "a", "b"),
            (r"\t\n\r\f\a\e\cA", "\t\n\r\f\a\x1b\x01", "tnrfaeA"),
            (r"\Qa.*\E+", "a.***", "a.b"),
            (r"\Qa.*", "a.*", "abc"),
            (r"a\.b\-c\_d", "a.b-c_d", "axb-c_d"),
            ("]}", "]}", "]"),
            (".", "\t", "\x85"),
            ("(?s).", "\n", ""),
            ("(?d).", "\x85", "\n"),
            (r"\R", "\r\n", "\n\n"),
        ],
    )
    def test_are_javas(self, pattern: str, yes: str, no: str) -> None:
        assert matches(pattern, yes)
        assert not matches(pattern, no)


class TestClasses:
    @pytest.mark.parametrize(
        ("pattern", "found"),
        [
            ("[a-c]", "abc"),
            ("[^a-c]", "dxyz-]&"),
            ("[a-c&&b-z]", "bc"),
            ("[a-d&&[^bc]]", "ad"),
            ("[a-c[x-z]]", "abcxyz"),
            ("[^a[b]]", "cdxyz-]&"),
            ("[]a]", "]a"),
            ("[a-]", "a-"),
            ("[a&]", "a&"),
            (r"[\w&&[^\d_]&&[a-b]]", "ab"),
            (r"[\]\-]", "]-"),
            ("[&&ab]", "ab"),
            (r"[\p{Lower}&&[^a-x]]", "yz"),
            ("[a\\Q]-\\E]", "a]-"),
        ],
    )
    def test_hold_these_characters(self, pattern: str, found: str) -> None:
        among = "abcdxyz-]&"
        assert {char for char in among if matches(pattern, char)} == set(found)

    def test_of_nothing_match_nothing(self) -> None:
        assert java_pattern("[a&&b]").search("ab") is None


class TestFlags:
    @pytest.mark.parametrize(
        ("pattern", "yes", "no"),
        [
            ("(?i)ab", "aB", "é"),
            ("(?i)é", "é", "É"),
            ("(?iu)é", "É", "e"),
            ("a(?i)b|c", "C", "AB"),
            ("(a(?i)b)c", "aBc", "aBC"),
            ("(?i:a)b", "Ab", "AB"),
            ("(?i)a(?-i)b", "Ab", "AB"),
            ("(?i)[^a]", "b", "A"),
            (r"(?i)\p{Lower}", "A", "1"),
            (r"(?i)(.)\1", "aA", "ab"),
            ("(?x)a b # c\n c", "abc", "a b c"),
            (r"(?x)a\ b", "a b", "ab"),
        ],
    )
    def test_count_from_where_they_stand(self, pattern: str, yes: str, no: str) -> None:
        assert matches(pattern, yes)
        assert not matches(pattern, no)


class TestPlaces:
    @pytest.mark.parametrize(
        ("pattern", "text", "places"),
        [
            ("^", "a\nb", [0]),
            ("(?m)^", "a\nb\r\nc\n", [0, 2, 5]),
            ("$", "a\r\n", [1, 3]),
            ("$", "a\n", [1, 2]),
            ("(?m)$", "a\nb\r\nc", [1, 3, 6]),
            ("(?d)$", "a\r\n", [2, 3]),
            ("(?md)^", "a\rb\nc", [0, 4]),
            (r"\z", "a\n", [2]),
            (r"\Z", "a\n", [1, 2]),
            (r"\A", "a\na", [0]),
            (r"\b", "é-a", [0, 1, 2, 3]),
            (r"\B", "", [0]),
        ],
    )
    def test_are_javas(self, pattern: str, text: str, places: list[int]) -> None:
        compiled = java_pattern(pattern).exact
        assert [at for at in range(len(text) + 1) if compiled.match(text, at)] == places


class TestGroups:
    def test_have_numbers_and_names(self) -> None:
        found = java_pattern(r"(?<first>a+)(?:b)(c)\k<first>\2").fullmatch("aabcaac")
        assert found is not None
        assert (found["first"], found[2]) == ("aa", "c")

    @pytest.mark.parametrize(
        ("pattern", "yes", "no"),
        [
            ("a*+b", "aab", "ab "),
            ("a?+a", "aa", "a"),
            ("(?>a|ab)c", "ac", "abc"),
            ("(a)\\11", "aa1", "a1"),
            ("a{2,3}?", "aaa", "a"),
            ("x{2}{3}", "xx", "xxxxxx"),
        ],
    )
    def test_repeat_and_look_around_as_in_java(self, pattern: str, yes: str, no: str) -> None:
        assert matches(pattern, yes)
        assert not matches(pattern, no)

    def test_look_behind_by_several_lengths(self) -> None:
        assert java_pattern("(?<=a|bc)d").search("bcd") is not None
        assert java_pattern("(?<!a|bc)d").search("bcd ad") is None


class TestTime:
    """Counted by how much longer a text takes that is longer: attacks take for ever, not a little more."""

    @pytest.mark.parametrize(
        ("pattern", "text"),
        [
            ("(a+)+b", "a" * 100_000),
            ("(a|aa)+$", "a" * 100_000 + "!"),
            ("([a-z]+\\.)+x", "ab." * 30_000),
            ("(.*)-(.*)-(.*)-(.*)-x", "-" * 20_000),
            ("^(([a-z])+.)+[A-Z]([a-z])+$", "a" * 50_000),
            (r"(\w+\s?)*\.", "word " * 10_000),
            (r"\b(\w+)+\b!", "a" * 50_000),
            ("(?m)^(a+)+$", "a" * 50_000 + "!"),
            (".*foo.*bar.*baz", "foo bar " * 5_000),
        ],
    )
    def test_is_linear_where_re2_knows_the_pattern(self, pattern: str, text: str) -> None:
        compiled = java_pattern(pattern)
        with cpu_within(0.5):
            assert compiled.search(text) is None
            assert compiled.fullmatch(text) is None
            assert compiled.sub(lambda _: "", text) == text

    @pytest.mark.parametrize(
        ("pattern", "text"),
        [
            ("(?=x)(.*)-(.*)-(.*)-x", "-" * 5_000),
            (r"(.)\1.*\1.*x", "ab" * 5_000),
            ("(.*)(.*)(.*)x$", "a" * 5_000 + "\n"),
            ("(a+)+$", "a" * 100 + "\n"),
            (r"(\w+)+\b!", "é" * 100),
            ("(a+)+b", "a" * 100 + "\ud800"),
        ],
    )
    def test_is_bounded_by_the_texts_length_elsewhere(self, pattern: str, text: str) -> None:
        for ask in (java_pattern(pattern, path="field.pattern").search, java_pattern(pattern).fullmatch):
            with pytest.raises(ConnectDataError, match=f"a text of {len(text)} characters") as caught:
                ask(text)
            assert text[:5] not in str(caught.value)

    @pytest.mark.parametrize(
        ("pattern", "text"), [("(?!internal-)(.*)-(.*)", "orders-" * 30), (r"(.)\1.*", "aab" * 200)]
    )
    def test_leaves_texts_of_usual_lengths_alone(self, pattern: str, text: str) -> None:
        assert java_pattern(pattern).fullmatch(text) is not None

    @pytest.mark.parametrize(
        "pattern", ["(?=(a+)+)", r"(a+)+\1", "(a++)*", "(a*)*", "(?:(?:x?){30}){30}", "(a|b?)+"]
    )
    def test_without_bound_is_refused(self, pattern: str) -> None:
        with pytest.raises(ConnectConfigError, match=r"takes time without bound.*as in \(a\+\)\+") as caught:
            java_pattern(pattern, path="regex")
        assert caught.value.path == "regex"

    def test_without_bound_asks_for_re2_where_that_is_missing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(regex, "_re2", lambda: None)
        with pytest.raises(ConnectConfigError, match=r"needs RE2: .*pip install .*\[connect\]"):
            java_pattern("(c+)+")
        compiled = java_pattern("c.*c.*x")
        assert compiled.search("c" * 100) is None
        with pytest.raises(ConnectDataError, match="too much time"):
            compiled.search("c" * 10_000)


class TestBadPatterns:
    @pytest.mark.parametrize(
        "pattern",
        [
            *("(", ")", "a)", "[", "[a", "[]", "[a-", "[z-a]", "[a&&]", "*", "a**", "+a", "a|*", "(?", "(?i"),
            *("a{", "{", "a{2", "a{2,1}", "a{,2}", "a{99999999999}", "(?<a>x)(?<a>y)", "(?<1>x)", "(?<a"),
            *("\\", r"\i", r"\y", r"[\b]", r"\k<a>", r"\k", r"\1", r"(a\1)", r"\xZZ", r"\u12", r"\0", r"\c"),
            *(r"\p{Nope}", r"\p{", r"\pX", r"\x{110000}", r"\N{NO SUCH NAME}", r"\N", r"(?z)a", "(?@a)"),
            *(r"\X", r"\b{g}", "(?U)a", r"\p{IsGreek}", r"\p{InGreek}", "(?<=a*)b", "(" * 5000 + ")" * 5000),
        ],
    )
    def test_are_refused(self, pattern: str) -> None:
        with pytest.raises(ConnectConfigError) as caught:
            java_pattern(pattern, path="transforms.a.regex")
        assert caught.value.path == "transforms.a.regex"
        assert VALID_PATTERN.refuse(pattern) is not None

    def test_null_is_refused_and_so_is_nothing_where_text_is_wanted(self) -> None:
        assert VALID_PATTERN.refuse(None) is not None
        assert PATTERN_WITH_TEXT.refuse(None) is not None
        assert PATTERN_WITH_TEXT.refuse("") is not None
        assert VALID_PATTERN.refuse("") is None
        assert PATTERN_WITH_TEXT.refuse("a") is None


class TestReplacement:
    @staticmethod
    def replaced(pattern: str, text: str, by: str) -> str:
        compiled = java_pattern(pattern)
        return replacement(compiled, by)(compiled.search(text))

    @pytest.mark.parametrize(
        ("by", "expected"),
        [
            ("x", "x"),
            ("", ""),
            ("$0", "ab"),
            ("$2$1", "ba"),
            ("${n}!", "b!"),
            ("$12", "a2"),
            ("$1x$3", "ax"),
            (r"\$1", "$1"),
            (r"\\$1", "\\a"),
            (r"\x", "x"),
        ],
    )
    def test_puts_groups_in(self, by: str, expected: str) -> None:
        assert self.replaced("(a)(?<n>b)(c)?", "ab", by) == expected

    @pytest.mark.parametrize(
        "by", ["$", "a$", "$x", "${", "${n", "${}", "${1}", "${nope}", "${n-}", "\\", "a\\", "$é", "$ 1"]
    )
    def test_that_cannot_be_read_is_refused(self, by: str) -> None:
        with pytest.raises(ArgumentError) as caught:
            replacement(re.compile("(?P<n>a)"), by)
        assert caught.value.java == "java.lang.IllegalArgumentException"

    def test_with_a_group_that_is_not_there_is_refused(self) -> None:
        with pytest.raises(GroupNumberError) as caught:
            replacement(re.compile("(a)"), "$2")
        assert caught.value.java == "java.lang.IndexOutOfBoundsException"
