"""An interceptor that puts something around the hooks of the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headerware import DROP, Chain, Interceptor, Record
from headerware.core.batch import Batch
from headerware.core.errors import InterceptorError

if TYPE_CHECKING:
    from collections.abc import Callable


class Upper(Interceptor, frozen=True):
    def on_consume(self, record: Record) -> Record:
        return record.with_value(record.value.upper())


class Refusing(Interceptor, frozen=True):
    def on_consume(self, record: Record) -> Record:
        raise ValueError(record.value)


class Batches(Interceptor, frozen=True):
    def on_consume(self, record: Record) -> Any:
        return DROP if record.value == b"b" else record

    def on_consume_batch(self, batch: Batch) -> Batch:
        return batch.replace(not_taken=[at for at, value in enumerate(batch.values) if value == b"b"])


class Noting(Interceptor, frozen=True):
    """Note each call of a hook, with what it was given and what came of it."""

    seen: list[tuple[str, str, Any, Any]]

    def on_consume(self, record: Record) -> Record:
        return record

    def wrap_hook(self, step: str, direction: str, hook: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def noted(given: Any) -> Any:
            try:
                out = hook(given)
            except Exception as error:
                self.seen.append((step, direction, given, error))
                raise
            self.seen.append((step, direction, given, out))
            return out

        return noted


def noted(*interceptors: Interceptor, topics: tuple[str, ...] = ("*",)) -> tuple[Any, list[Any]]:
    seen: list[Any] = []
    return Chain([*interceptors, Noting(seen=seen, topics=topics)]).open(), seen


class TestWrapHook:
    def test_is_around_each_other_step_in_order(self) -> None:
        session, seen = noted(Batches(name="last"), Upper(name="first"))
        assert session.consume_outcome(Record("t", b"a")) == Record("t", b"A")
        assert [(step, direction) for step, direction, _, _ in seen] == [
            ("first", "consume"),
            ("last", "consume"),
        ]
        assert seen[0][2].value == b"a"
        assert seen[0][3].value == b"A"
        assert seen[1][2].value == b"A"
        assert seen[1][3].value == b"A"

    def test_sees_what_a_step_raised_and_changes_no_outcome(self) -> None:
        session, seen = noted(Upper(), Refusing(name="strict"))
        outcome = session.consume_outcome(Record("t", b"secret"))
        assert isinstance(outcome, InterceptorError)
        assert outcome.step == "strict"
        assert "secret" not in str(outcome)
        assert [type(result) for *_, result in seen] == [ValueError]

    def test_is_around_the_batch_form_too(self) -> None:
        session, seen = noted(Batches())
        records = [Record("t", b"a"), Record("t", b"b")]
        assert session.consume_outcomes(records) == [records[0], DROP]
        (_, _, together, _), (_, _, alone, answer) = seen
        assert (together.values, alone.value, answer) == ([b"a", b"b"], b"b", DROP)

    def test_is_around_the_batch_form_of_a_single_record(self) -> None:
        class Only(Interceptor, frozen=True):
            def on_consume_batch(self, batch: Batch) -> Batch:
                return batch.replace(values=[b"x"])

        session, seen = noted(Only())
        assert session.consume_outcome(Record("t", b"a")) == Record("t", b"x")
        assert [type(given) for _, _, given, _ in seen] == [Batch]

    def test_is_around_hooks_on_its_own_topics_only(self) -> None:
        session, seen = noted(Upper(), topics=("other",))
        assert session.consume_outcome(Record("t", b"a")).value == b"A"
        assert seen == []
