from __future__ import annotations

from headerware.core.suggestions import closest, did_you_mean


def test_the_name_that_is_most_like_it() -> None:
    assert did_you_mean("sgin", ["sign", "slice", "trail"]) == "did you mean 'sign'? "


def test_nothing_where_nothing_is_like_it() -> None:
    assert did_you_mean("encrypt", ["sign", "slice"]) == ""


def test_the_same_name_in_other_case_comes_first() -> None:
    assert closest("CAST", ["Caste", "Cast"]) == "Cast"
