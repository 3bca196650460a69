"""Whatever the text, strict reading loses nothing, and neither mode fails."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, time
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from headerware.connect.data import (
    BOOLEAN_SCHEMA,
    FLOAT64_SCHEMA,
    INT64_SCHEMA,
    OPTIONAL_STRING_SCHEMA,
    STRING_SCHEMA,
    Date,
    Schema,
    SchemaBuilder,
    Time,
    Timestamp,
    conformed,
    validate_value,
)
from headerware.connect.values import convert_to_string, parse_string

LITERALS = [
    *(
        "null",
        "true",
        "1",
        "-7",
        "007",
        "1.5",
        "1.10",
        "99999999999999999999",
        "1e5",
        "2017-05-21",
        "2017-13-45",
    ),
    *("16:31:05.387Z", "2017-05-21T16:31:05.387Z", '"a"', '"a\\"b"', '" "', "a", "\\", " ", "٣", "∞", "😀"),
]
SOUP = st.lists(st.sampled_from([*LITERALS, *'[]{},:"']), max_size=12).map("".join)
TEXTS = st.one_of(st.text(), SOUP)
_QUOTED_OR_BLANKS = re.compile(r'("(?:[^"\\]|\\.)*")|[ \t\r\n]+')
SAMPLES: list[tuple[Schema, st.SearchStrategy[Any]]] = [
    (STRING_SCHEMA, st.text()),
    (INT64_SCHEMA, st.integers(-(1 << 63), (1 << 63) - 1)),
    (FLOAT64_SCHEMA, st.floats(allow_nan=False, allow_infinity=False)),
    (BOOLEAN_SCHEMA, st.booleans()),
    (Date.SCHEMA, st.dates()),
    (
        Time.SCHEMA,
        st.times().map(lambda at: time(at.hour, at.minute, at.second, at.microsecond // 1000 * 1000)),
    ),
    (
        Timestamp.SCHEMA,
        st.datetimes(max_value=datetime(9999, 12, 31)).map(  # noqa: DTZ001 - Hypothesis wants it without a zone
            lambda at: at.replace(microsecond=at.microsecond // 1000 * 1000, tzinfo=UTC)
        ),
    ),
]


class TestStrict:
    @given(TEXTS)
    @example("[1,1.5]")
    @example('{"a" : [null, "b"]}')
    def test_writes_back_what_it_read(self, text: str) -> None:
        found = parse_string(text)
        assert found is not None
        if found.schema is None:
            assert text == "null"
            return
        validate_value(found.schema, found.value)
        written = convert_to_string(found.schema, found.value)
        assert written is not None
        assert found.schema == STRING_SCHEMA or parse_string(written) == found
        if written != text:
            assert text[0] in "[{"
            assert _as_numbers(_without_blanks(written)) == _as_numbers(_without_blanks(text))

    @given(st.sampled_from(SAMPLES).flatmap(lambda sample: st.tuples(st.just(sample[0]), sample[1])))
    def test_reads_in_an_array_what_was_written(self, sample: tuple[Schema, Any]) -> None:
        schema = SchemaBuilder.array(sample[0]).build()
        value = conformed(schema, [sample[1]])
        found = parse_string(convert_to_string(schema, value))
        assert found is not None
        if found.schema == STRING_SCHEMA:
            assert isinstance(sample[1], float)
            return
        assert (found.schema, found.value) == (schema, value)

    @given(st.dictionaries(st.text(), st.one_of(st.none(), st.text()), min_size=1))
    def test_reads_maps_of_text_that_were_written(self, entries: dict[str, str | None]) -> None:
        nullable = None in entries.values()
        schema = SchemaBuilder.map(
            STRING_SCHEMA, OPTIONAL_STRING_SCHEMA if nullable else STRING_SCHEMA
        ).build()
        text = convert_to_string(schema, entries)
        found = parse_string(text)
        if all(value is None for value in entries.values()):
            assert found == (STRING_SCHEMA, text)
        else:
            assert found == (schema, entries)


class TestKafka43:
    @given(TEXTS)
    def test_reads_any_text(self, text: str) -> None:
        found = parse_string(text, mode="kafka_4_3")
        assert found is None or found.value is not None
        if found is not None:
            assert convert_to_string(found.schema, found.value, mode="kafka_4_3") is not None


def _without_blanks(text: str) -> str:
    return _QUOTED_OR_BLANKS.sub(lambda match: match[1] or "", text)


def _as_numbers(text: str) -> list[object]:
    """Return a text's parts, and its numbers as such, for integers among floats are written as floats."""
    parts = re.split(r'("(?:[^"\\]|\\.)*"|[\[\]{},])', text)
    return [
        float(part) if re.fullmatch(r"-?[0-9][0-9.E-]*", part) and _is_float(part) else part for part in parts
    ]


def _is_float(part: str) -> bool:
    try:
        return math.isfinite(float(part))
    except ValueError:
        return False
