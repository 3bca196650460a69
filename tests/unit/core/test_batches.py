"""Many records at a time: the same outcomes as one by one, whatever a batch hook does to some of them."""

from __future__ import annotations

from types import SimpleNamespace as Hooks
from typing import TYPE_CHECKING, Any, cast

import pytest

from headerware import DROP, Chain, InterceptorError, Record, SignatureError
from headerware.core.batch import Batch
from tests.batches import answered

if TYPE_CHECKING:
    from collections.abc import Callable

SECRET = "hunter2"


class Step:
    """A step that answers by a record's value, and keeps what it was given."""

    def __init__(self, answers: dict[bytes, Any] | None = None, **options: Any) -> None:
        self.answers = answers or {}
        self.batches: list[list[Any]] = []
        self.singles: list[Any] = []
        self.name = "batch"
        self.on_error = None
        self.__dict__.update(options)

    def on_send(self, record: Record) -> Any:
        self.singles.append(record.value)
        return self.answers.get(record.value, record)

    def on_send_batch(self, batch: Batch) -> Batch:
        self.batches.append(list(batch.values))
        return answered(batch, [self.answers.get(record.value, record) for record in batch])

    on_consume, on_consume_batch = on_send, on_send_batch


class Seen:
    """A single hook that keeps what passed it."""

    def __init__(self) -> None:
        self.values: list[Any] = []

    def on_send(self, record: Record) -> Record:
        self.values.append(record.value)
        return record


def records(*found: bytes) -> list[Record]:
    return [Record("t", value, partition=0, offset=number) for number, value in enumerate(found)]


def fails_on(value: bytes, error: Exception) -> Callable[[Record], Record]:
    def hook(record: Record) -> Record:
        if record.value == value:
            raise error
        return record

    return hook


class TestBatchHooks:
    def test_get_all_records_of_a_topic_at_once_in_order(self) -> None:
        batch = Step()
        given = records(b"a", b"b", b"c")
        assert list(Chain([batch]).open().send_outcomes(given)) == given
        assert batch.batches == [[b"a", b"b", b"c"]]

    def test_get_one_batch_for_each_topic_and_outcomes_keep_their_order(self) -> None:
        batch = Step({b"b": DROP})
        given = [Record(topic, value) for topic, value in (("x", b"a"), ("y", b"b"), ("x", b"c"))]
        assert Chain([batch]).open().send_outcomes(given) == [given[0], DROP, given[2]]
        assert batch.batches == [[b"a", b"c"], [b"b"]]

    def test_a_list_that_the_caller_changes_later_does_not_change_outcomes(self) -> None:
        given = records(b"a", b"b")
        before = list(given)
        outcomes = Chain([Hooks(on_send_batch=lambda batch: batch)]).open().send_outcomes(given)
        given.reverse()
        assert list(outcomes) == before

    def test_a_topic_that_is_only_equal_to_the_others_becomes_text(self) -> None:
        class Name(str):
            __slots__ = ()

        outcomes = Chain([Step()]).open().send_outcomes([Record("t", b"a"), Record(Name("t"), b"b")])
        assert [type(cast("Record", outcome).topic) for outcome in outcomes] == [str, str]

    def test_serve_single_records_as_a_batch_of_one(self) -> None:
        given: list[Any] = []

        def hook(batch: Batch) -> Batch:
            given.append(list(batch.values))
            return batch if batch.values == [b"a"] else batch.replace(values=[b"B"])

        session = Chain([Hooks(on_send_batch=hook)]).open()
        assert session.send_outcome(Record("t", b"a")) == Record("t", b"a")
        assert session.send_outcome(Record("t", b"b")) == Record("t", b"B")
        assert given == [[b"a"], [b"b"]]

    def test_are_passed_over_for_single_records_where_there_is_a_single_hook(self) -> None:
        step = Step({b"a": DROP})
        assert Chain([step]).open().send_outcome(Record("t", b"a")) is DROP
        assert (step.batches, step.singles) == ([], [b"a"])

    def test_leave_records_to_the_single_hook_once(self) -> None:
        step, after = Step({b"b": DROP, b"d": Record("t", b"D")}), Step(name="after")
        outcomes = Chain([step, after]).open().send_outcomes(records(b"a", b"b", b"c", b"d"))
        assert [each.value if isinstance(each, Record) else each for each in outcomes] == [
            b"a",
            DROP,
            b"c",
            b"D",
        ]
        assert (step.batches, step.singles) == ([[b"a", b"b", b"c", b"d"]], [b"b"])
        assert (after.batches, after.singles) == ([[b"a", b"c", b"D"]], [])

    def test_may_leave_all_records_to_the_single_hook(self) -> None:
        step, after = Step(name="first", on_send_batch=lambda batch: batch.leave()), Step(name="after")
        outcomes = Chain([step, after]).open().send_outcomes(records(b"a", b"b"))
        assert list(outcomes) == records(b"a", b"b")
        assert (step.singles, after.batches) == ([b"a", b"b"], [[b"a", b"b"]])

    def test_may_not_leave_records_to_a_hook_that_is_not_there(self) -> None:
        session = Chain([Hooks(name="b", on_send_batch=lambda batch: batch.leave())]).open()
        expected = "b at t: its batch hook left a record to its single hook, and it has none"
        assert str(session.send_outcome(Record("t", b"a"))) == expected
        assert [str(each) for each in session.send_outcomes([Record("t", b"a")] * 2)] == [expected] * 2

    def test_mix_with_single_hooks(self) -> None:
        before, behind = Seen(), Seen()
        batch = Step({b"b": Record("t", b"B")})
        Chain([before, batch, behind]).open().send_outcomes(records(b"a", b"b"))
        assert (before.values, behind.values) == ([b"a", b"b"], [b"a", b"B"])

    def test_run_right_to_left_on_consume(self) -> None:
        left = Step(name="left")
        right = Step({b"a": Record("t", b"A")}, name="right")
        Chain([left, right]).open().consume_outcomes(records(b"a"))
        assert left.batches == [[b"A"]]

    def test_are_not_called_with_nothing(self) -> None:
        batch = Step()
        chain = [Hooks(on_send=lambda _: DROP), batch]
        assert Chain(chain).open().send_outcomes(records(b"a")) == [DROP]
        assert Chain([batch]).open().send_outcomes([]) == []
        assert batch.batches == []


class TestOutcomesOfBatches:
    def test_drops_lists_and_waiting_are_each_their_own(self) -> None:
        fan = [Record("t", b"c1"), Record("t", b"c2")]
        behind = Seen()
        session = Chain([Step({b"b": DROP, b"c": fan, b"d": []}), behind]).open()
        a, b, c, d = session.send_outcomes(records(b"a", b"b", b"c", b"d"))
        assert isinstance(a, Record)
        assert (b, c, d) == (DROP, fan, [])
        assert sorted(behind.values) == [b"a", b"c1", b"c2"]

    def test_an_error_of_one_takes_no_neighbour_along(self) -> None:
        batch = Step({b"b": SignatureError("bad")})
        a, b, c = Chain([batch]).open().consume_outcomes(records(b"a", b"b", b"c"))
        assert isinstance(a, Record)
        assert isinstance(b, SignatureError)
        assert isinstance(c, Record)
        assert str(b) == "batch at t[0]@1: bad"

    def test_one_error_given_for_several_records_gets_the_position_of_each(self) -> None:
        same = SignatureError("bad")
        batch = Step({b"a": same, b"b": same})
        outcomes = Chain([batch]).open().consume_outcomes(records(b"a", b"b"))
        assert [str(outcome) for outcome in outcomes] == ["batch at t[0]@0: bad", "batch at t[0]@1: bad"]

    def test_a_raise_fails_every_record_each_with_its_position(self) -> None:
        def hook(_: Any) -> Batch:
            raise SignatureError("bad root")

        outcomes = (
            Chain([Hooks(name="b", on_consume_batch=hook)]).open().consume_outcomes(records(b"a", b"b"))
        )
        assert [str(outcome) for outcome in outcomes] == ["b at t[0]@0: bad root", "b at t[0]@1: bad root"]
        assert {type(outcome) for outcome in outcomes} == {SignatureError}

    def test_an_error_type_with_a_constructor_of_its_own_is_kept(self) -> None:
        class CostlyError(InterceptorError):
            def __init__(self, cents: int) -> None:
                super().__init__("too dear")
                self.cents = cents

        def hook(_: Any) -> Batch:
            raise CostlyError(5)

        outcomes = Chain([Hooks(name="b", on_send_batch=hook)]).open().send_outcomes(records(b"a", b"b"))
        assert [(type(outcome), getattr(outcome, "cents", 0)) for outcome in outcomes] == [
            (CostlyError, 5)
        ] * 2

    @pytest.mark.parametrize("count", [1, 3])
    def test_a_wrong_count_fails_every_record(self, count: int) -> None:
        hook = Hooks(name="b", on_send_batch=lambda _: Batch("t", [b"x"] * count))
        outcomes = Chain([hook]).open().send_outcomes(records(b"a", b"b"))
        assert [str(outcome) for outcome in outcomes] == [
            f"b at t[0]@{offset}: a batch hook returned {count} records for 2" for offset in (0, 1)
        ]

    def test_a_wrong_count_for_a_single_record_fails_it(self) -> None:
        hook = Hooks(on_send_batch=lambda _: Batch("t", [b"x"] * 2))
        assert isinstance(Chain([hook]).open().send_outcome(Record("t", b"a")), InterceptorError)

    @pytest.mark.parametrize("changes", [{"failures": {2: ValueError()}}, {"not_taken": [-1]}])
    def test_a_record_that_is_not_there_fails_every_record(self, changes: dict[str, Any]) -> None:
        hook = Hooks(name="b", on_send_batch=lambda batch: batch.replace(**changes))
        outcomes = Chain([hook]).open().send_outcomes(records(b"a", b"b"))
        assert all("a batch hook names record" in str(outcome) for outcome in outcomes)

    def test_another_topic_fails_every_record(self) -> None:
        hook = Hooks(name="b", on_send_batch=lambda _: Batch("other", [b"x"] * 2))
        outcomes = Chain([hook]).open().send_outcomes(records(b"a", b"b"))
        assert all("a batch hook changed the topic" in str(outcome) for outcome in outcomes)

    def test_headers_that_are_none_fail_their_record(self) -> None:
        headers: Any = [{"a": "1"}, [("b", 5)]]
        hook = Hooks(name="b", on_send_batch=lambda batch: batch.replace(headers=headers))
        first, second = Chain([hook]).open().send_outcomes(records(b"a", b"b"))
        assert isinstance(first, Record)
        assert first.headers.last("a") == b"1"
        assert isinstance(second, InterceptorError)

    @pytest.mark.parametrize("result", [None, b"x", 5])
    def test_anything_else_is_an_error_of_that_record(self, result: Any) -> None:
        a, b = Chain([Step({b"b": result})]).open().send_outcomes(records(b"a", b"b"))
        assert isinstance(a, Record)
        assert isinstance(b, InterceptorError)
        assert "expected a Record, DROP" in str(b)

    @pytest.mark.parametrize("result", [None, [], [DROP, DROP]])
    def test_anything_but_a_batch_fails_every_record(self, result: Any) -> None:
        outcomes = Chain([Hooks(on_send_batch=lambda _: result)]).open().send_outcomes(records(b"a", b"b"))
        assert all("expected a Batch" in str(outcome) for outcome in outcomes)

    def test_a_foreign_error_is_wrapped_without_its_text(self) -> None:
        def hook(_: Any) -> Batch:
            raise ValueError(SECRET)

        (outcome,) = Chain([Hooks(name="b", on_send_batch=hook)]).open().send_outcomes(records(b"a"))
        assert isinstance(outcome, InterceptorError)
        assert str(outcome).startswith("b at t[0]@0: raised ValueError at test_batches.py:")
        assert SECRET not in str(outcome)
        assert isinstance(outcome.__cause__, ValueError)


class TestSkippingInBatches:
    def test_the_last_good_record_passes_each_remaining_step_exactly_once(self) -> None:
        first = Step({b"a": Record("t", b"A"), b"b": Record("t", b"B")}, name="first")
        failing = Step({b"B": ValueError("no")}, name="failing", on_error="skip")
        last, behind = Step(name="last"), Seen()
        outcomes = Chain([first, failing, last, behind]).open().send_outcomes(records(b"a", b"b", b"c"))
        assert [outcome.value for outcome in outcomes if isinstance(outcome, Record)] == [b"A", b"B", b"c"]
        assert last.batches == [[b"A", b"B", b"c"]]
        assert behind.values == [b"A", b"B", b"c"]

    def test_a_single_hook_among_batches_is_skipped_alike(self) -> None:
        single = Hooks(name="single", on_send=fails_on(b"b", ValueError("no")), on_error="skip")
        last = Step(name="last")
        session = Chain([Step(), single, last]).open()
        outcomes = session.send_outcomes(records(b"a", b"b"))
        assert list(outcomes) == records(b"a", b"b")
        assert last.batches == [[b"a", b"b"]]
        assert session.stats()["single"]["skipped"] == 1

    def test_a_wrong_result_is_skipped_through_the_remaining_steps_exactly_once(self) -> None:
        behind, last = Seen(), Step(name="last")
        first = Step({b"b": 5}, name="first", on_error="skip")
        outcomes = Chain([first, behind, last]).open().send_outcomes(records(b"a", b"b"))
        assert list(outcomes) == records(b"a", b"b")
        assert behind.values == [b"a", b"b"]
        assert (last.singles, last.batches) == ([], [[b"a", b"b"]])

    def test_dropping_failures_leaves_the_others(self) -> None:
        batch = Step({b"b": ValueError("no")}, on_error="drop")
        session = Chain([batch]).open()
        a, b, c = session.send_outcomes(records(b"a", b"b", b"c"))
        assert (a, b, c) == (*records(b"a"), DROP, records(b"", b"", b"c")[2])
        assert session.stats()["batch"]["dropped"] == 1
