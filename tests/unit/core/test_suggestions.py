from __future__ import annotations

import pytest

from headerware.core.suggestions import closest, did_you_mean, with_equals


def test_the_name_that_is_most_like_it() -> None:
    assert did_you_mean("sgin", ["sign", "slice", "trail"]) == "; did you mean 'sign'?"


def test_nothing_where_nothing_is_like_it() -> None:
    assert did_you_mean("encrypt", ["sign", "slice"]) == ""


def test_what_follows_is_said_with_and_without_a_name() -> None:
    assert did_you_mean("sgin", ["sign"], then="known: sign") == "; did you mean 'sign'? known: sign"
    assert did_you_mean("encrypt", ["sign"], then="known: sign") == "; known: sign"


def test_only_text_is_like_a_word() -> None:
    assert did_you_mean(1, [1, "true"]) == ""
    assert did_you_mean("ture", [1, "true"]) == "; did you mean 'true'?"


def test_the_same_name_in_other_case_comes_first() -> None:
    assert closest("CAST", ["Caste", "Cast"]) == "Cast"


class TestWithEquals:
    @pytest.mark.parametrize(
        ("text", "meant"),
        [
            ("tenant: north", "tenant=north"),
            ("tenant:north", "tenant=north"),
            ("auth: Basic abc==", "auth=Basic abc=="),
            ("tenant:", "tenant="),
            ("tenant", None),
            ("tenant=north", None),
            ("at=10:15", None),
            ("a:b=c", None),
            (":north", None),
        ],
    )
    def test_takes_a_colon_for_an_equals_sign(self, text: str, meant: str | None) -> None:
        assert with_equals(text) == meant
