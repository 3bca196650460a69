"""Sessions that somebody watches."""

from __future__ import annotations

from typing import Any

import pytest

from headerware import DROP, Chain, Context, Interceptor, Record
from headerware.core.errors import InterceptorError
from headerware.core.printable import printable


class Upper(Interceptor, frozen=True):
    def on_consume(self, record: Record) -> Record:
        return record.with_value(record.value.upper())


class Refusing(Interceptor, frozen=True):
    def on_consume(self, record: Record) -> Record:
        raise ValueError(record.value)


class Batches(Interceptor, frozen=True):
    def on_consume_batch(self, records: list[Record]) -> list[Any]:
        return [DROP for _ in records]


def watched(*interceptors: Interceptor) -> tuple[Any, list[tuple[str, Any, Any]]]:
    seen: list[tuple[str, Any, Any]] = []

    def watch(step: str, record: Record, result: Any) -> None:
        if step != "chain":
            seen.append((step, record.value, result))

    return Chain(interceptors).open(Context(watch=watch)), seen


class TestWatch:
    def test_is_told_of_each_step_in_order_with_its_result(self) -> None:
        session, seen = watched(Batches(name="last"), Upper(name="first"))
        assert session.consume_outcome(Record("t", b"a")) is DROP
        assert [(step, value) for step, value, _ in seen] == [("first", b"a"), ("last", b"A")]
        assert seen[0][2].value == b"A"
        assert seen[1][2] is DROP

    def test_is_told_what_a_step_raised_and_changes_no_outcome(self) -> None:
        session, seen = watched(Upper(), Refusing())
        outcome = session.consume_outcome(Record("t", b"secret"))
        assert isinstance(outcome, InterceptorError)
        assert "secret" not in str(outcome)
        assert [type(result) for _, _, result in seen] == [ValueError]

    def test_sees_batches_record_by_record(self) -> None:
        session, seen = watched(Batches())
        assert session.consume_outcomes([Record("t", b"a"), Record("t", b"b")]) == [DROP, DROP]
        assert [value for _, value, _ in seen] == [b"a", b"b"]


class TestPrintable:
    @pytest.mark.parametrize(
        ("text", "shown"),
        [
            ("plain text, 日本", "plain text, 日本"),
            ("\x1b[2J", "\\x1b[2J"),
            ("\x9b2J", "\\x9b2J"),
            ("a\nb\tc", "a\\nb\\tc"),
            ("\u202eabc", "\\u202eabc"),
            ("\ud800", "\\ud800"),
        ],
    )
    def test_escapes_what_a_terminal_would_obey(self, text: str, shown: str) -> None:
        assert printable(text) == shown
