"""Many records at a time: the same outcomes as one by one, whatever a batch hook does to some of them."""

from __future__ import annotations

from types import SimpleNamespace as Hooks
from typing import TYPE_CHECKING, Any

import pytest

from headerware import DROP, Chain, InterceptorError, Record, SignatureError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SECRET = "hunter2"


class Batch:
    """A batch hook that answers by a record's value, and keeps what it was given."""

    def __init__(self, answers: dict[bytes, Any] | None = None, **options: Any) -> None:
        self.answers = answers or {}
        self.batches: list[list[Any]] = []
        self.name = "batch"
        self.on_error = None
        self.__dict__.update(options)

    def on_send_batch(self, records: Sequence[Record]) -> list[Any]:
        self.batches.append([record.value for record in records])
        return [self.answers.get(record.value, record) for record in records]

    on_consume_batch = on_send_batch


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
        batch = Batch()
        given = records(b"a", b"b", b"c")
        assert Chain([batch]).open().send_outcomes(given) == given
        assert batch.batches == [[b"a", b"b", b"c"]]

    def test_get_one_batch_for_each_topic_and_outcomes_keep_their_order(self) -> None:
        batch = Batch({b"b": DROP})
        given = [Record(topic, value) for topic, value in (("x", b"a"), ("y", b"b"), ("x", b"c"))]
        assert Chain([batch]).open().send_outcomes(given) == [given[0], DROP, given[2]]
        assert batch.batches == [[b"a", b"c"], [b"b"]]

    def test_serve_single_records_as_a_batch_of_one(self) -> None:
        batch = Batch({b"b": DROP})
        session = Chain([batch]).open()
        assert session.send_outcome(Record("t", b"a")) == Record("t", b"a")
        assert session.send_outcome(Record("t", b"b")) is DROP
        assert batch.batches == [[b"a"], [b"b"]]

    def test_are_passed_over_for_single_records_where_there_is_a_single_hook(self) -> None:
        batch = Batch(on_send=lambda record: record)
        Chain([batch]).open().send_outcome(Record("t", b"a"))
        assert batch.batches == []

    def test_mix_with_single_hooks(self) -> None:
        before, behind = Seen(), Seen()
        batch = Batch({b"b": Record("t", b"B")})
        Chain([before, batch, behind]).open().send_outcomes(records(b"a", b"b"))
        assert (before.values, behind.values) == ([b"a", b"b"], [b"a", b"B"])

    def test_run_right_to_left_on_consume(self) -> None:
        left = Batch(name="left")
        right = Batch({b"a": Record("t", b"A")}, name="right")
        Chain([left, right]).open().consume_outcomes(records(b"a"))
        assert left.batches == [[b"A"]]

    def test_are_not_called_with_nothing(self) -> None:
        batch = Batch()
        chain = [Hooks(on_send=lambda _: DROP), batch]
        assert Chain(chain).open().send_outcomes(records(b"a")) == [DROP]
        assert Chain([batch]).open().send_outcomes([]) == []
        assert batch.batches == []

    def test_may_be_generators(self) -> None:
        given = records(b"a", b"b")
        assert Chain([Hooks(on_send_batch=iter)]).open().send_outcomes(given) == given


class TestOutcomesOfBatches:
    def test_drops_lists_and_waiting_are_each_their_own(self) -> None:
        fan = [Record("t", b"c1"), Record("t", b"c2")]
        behind = Seen()
        session = Chain([Batch({b"b": DROP, b"c": fan, b"d": []}), behind]).open()
        a, b, c, d = session.send_outcomes(records(b"a", b"b", b"c", b"d"))
        assert isinstance(a, Record)
        assert (b, c, d) == (DROP, fan, [])
        assert sorted(behind.values) == [b"a", b"c1", b"c2"]

    def test_an_error_of_one_takes_no_neighbour_along(self) -> None:
        batch = Batch({b"b": SignatureError("bad")})
        a, b, c = Chain([batch]).open().consume_outcomes(records(b"a", b"b", b"c"))
        assert isinstance(a, Record)
        assert isinstance(b, SignatureError)
        assert isinstance(c, Record)
        assert str(b) == "batch at t[0]@1: bad"

    def test_one_error_given_for_several_records_gets_the_position_of_each(self) -> None:
        same = SignatureError("bad")
        batch = Batch({b"a": same, b"b": same})
        outcomes = Chain([batch]).open().consume_outcomes(records(b"a", b"b"))
        assert [str(outcome) for outcome in outcomes] == ["batch at t[0]@0: bad", "batch at t[0]@1: bad"]

    def test_a_raise_fails_every_record_each_with_its_position(self) -> None:
        def hook(_: Any) -> list[Any]:
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

        def hook(_: Any) -> list[Any]:
            raise CostlyError(5)

        outcomes = Chain([Hooks(name="b", on_send_batch=hook)]).open().send_outcomes(records(b"a", b"b"))
        assert [(type(outcome), getattr(outcome, "cents", 0)) for outcome in outcomes] == [
            (CostlyError, 5)
        ] * 2

    @pytest.mark.parametrize("count", [0, 1, 3])
    def test_a_wrong_count_fails_every_record(self, count: int) -> None:
        hook = Hooks(name="b", on_send_batch=lambda _: [DROP] * count)
        outcomes = Chain([hook]).open().send_outcomes(records(b"a", b"b"))
        assert [str(outcome) for outcome in outcomes] == [
            f"b at t[0]@{offset}: a batch hook gave {count} outcomes for 2 records" for offset in (0, 1)
        ]

    def test_a_wrong_count_for_a_single_record_fails_it(self) -> None:
        outcome = Chain([Hooks(on_send_batch=lambda _: [])]).open().send_outcome(Record("t", b"a"))
        assert isinstance(outcome, InterceptorError)

    @pytest.mark.parametrize("result", [None, b"x", 5])
    def test_anything_else_is_an_error_of_that_record(self, result: Any) -> None:
        a, b = Chain([Batch({b"b": result})]).open().send_outcomes(records(b"a", b"b"))
        assert isinstance(a, Record)
        assert isinstance(b, InterceptorError)
        assert "expected a Record, DROP" in str(b)

    def test_none_instead_of_a_list_fails_every_record(self) -> None:
        outcomes = Chain([Hooks(on_send_batch=lambda _: None)]).open().send_outcomes(records(b"a", b"b"))
        assert all(isinstance(outcome, InterceptorError) for outcome in outcomes)

    def test_a_foreign_error_is_wrapped_without_its_text(self) -> None:
        def hook(_: Any) -> list[Any]:
            raise ValueError(SECRET)

        (outcome,) = Chain([Hooks(name="b", on_send_batch=hook)]).open().send_outcomes(records(b"a"))
        assert isinstance(outcome, InterceptorError)
        assert str(outcome).startswith("b at t[0]@0: raised ValueError at test_batches.py:")
        assert SECRET not in str(outcome)
        assert isinstance(outcome.__cause__, ValueError)


class TestSkippingInBatches:
    def test_the_last_good_record_passes_each_remaining_step_exactly_once(self) -> None:
        first = Batch({b"a": Record("t", b"A"), b"b": Record("t", b"B")}, name="first")
        failing = Batch({b"B": ValueError("no")}, name="failing", on_error="skip")
        last, behind = Batch(name="last"), Seen()
        outcomes = Chain([first, failing, last, behind]).open().send_outcomes(records(b"a", b"b", b"c"))
        assert [outcome.value for outcome in outcomes if isinstance(outcome, Record)] == [b"A", b"B", b"c"]
        assert last.batches == [[b"A", b"B", b"c"]]
        assert behind.values == [b"A", b"B", b"c"]

    def test_a_single_hook_among_batches_is_skipped_alike(self) -> None:
        single = Hooks(name="single", on_send=fails_on(b"b", ValueError("no")), on_error="skip")
        last = Batch(name="last")
        session = Chain([Batch(), single, last]).open()
        outcomes = session.send_outcomes(records(b"a", b"b"))
        assert outcomes == records(b"a", b"b")
        assert last.batches == [[b"a", b"b"]]
        assert session.stats()["single"]["skipped"] == 1

    def test_a_wrong_result_is_skipped_through_the_remaining_steps_exactly_once(self) -> None:
        behind, last = Seen(), Batch(name="last")
        first = Batch({b"b": 5}, name="first", on_error="skip")
        outcomes = Chain([first, behind, last]).open().send_outcomes(records(b"a", b"b"))
        assert outcomes == records(b"a", b"b")
        assert sorted(behind.values) == [b"a", b"b"]
        assert sorted(value for batch in last.batches for value in batch) == [b"a", b"b"]

    def test_dropping_failures_leaves_the_others(self) -> None:
        batch = Batch({b"b": ValueError("no")}, on_error="drop")
        session = Chain([batch]).open()
        a, b, c = session.send_outcomes(records(b"a", b"b", b"c"))
        assert (a, b, c) == (*records(b"a"), DROP, records(b"", b"", b"c")[2])
        assert session.stats()["batch"]["dropped"] == 1
