from __future__ import annotations

from typing import Annotated, Any

import msgspec
import pytest

from headerware.core.plain_words import plain_words


@pytest.mark.parametrize(
    ("kind", "found", "option", "text"),
    [
        (
            int | None,
            "1h",
            "after_ms",
            "expected a whole number of milliseconds, found text '1h'; write 3600000",
        ),
        (int, "1MB", "max_bytes", "expected a whole number of bytes, found text '1MB'; write 1000000"),
        (int, "1.5 KiB", "max_bytes", "expected a whole number of bytes, found text '1.5 KiB'; write 1536"),
        (int, "900000", "max_bytes", "expected a whole number of bytes, found text '900000'; write 900000"),
        (int, "0.0001k", "max_bytes", "expected a whole number of bytes, found text"),
        (int, "36h", "max_age_days", "expected a whole number of days, found text"),
        (int, "48h", "max_age_days", "expected a whole number of days, found text '48h'; write 2"),
        (int, "1MB", "window", "expected a whole number, found text"),
        (int, "hunter2", "max_bytes", "expected a whole number of bytes, found text"),
        (int, 1.5, "after_ms_by_topic", "expected a whole number of milliseconds, found 1.5"),
        (float, [], "max_failed_unwraps_per_s", "expected a number, found a list"),
        (float | None, True, "timeout_s", "expected a number of seconds, found true or false"),
        (Annotated[int, msgspec.Meta(ge=1)], 0, "window", "expected a whole number of at least 1"),
        (Annotated[float, msgspec.Meta(gt=0)], 0.0, "pause_s", "expected a number of seconds above 0.0"),
        (Annotated[str, msgspec.Meta(min_length=1)], "", "name", "expected text that is not empty"),
        (list[str], "orders", "topics", "expected a list, found text"),
        (int | str, {}, "level", "expected a whole number or text, found a table"),
        (str, None, "name", "expected text, found null"),
        (None, 1, "nothing", "expected nothing: leave it out, found a whole number"),
        (bool, 1, "strict", "expected true or false, found a whole number"),
    ],
)
def test_tells_types_bounds_and_units(kind: Any, found: Any, option: str, text: str) -> None:
    with pytest.raises(msgspec.ValidationError) as refused:
        msgspec.convert(found, kind, strict=True)
    assert plain_words(str(refused.value), option, found) == text


def test_leaves_other_texts_but_for_quotation_marks() -> None:
    assert plain_words("`a` is `b`", "after_ms") == "'a' is 'b'"
