"""Several records made of one: at once, lazily, none yet, and each a record in its own right."""

from __future__ import annotations

from types import SimpleNamespace as Hooks
from typing import TYPE_CHECKING, Any

import pytest

from headerware import DROP, Chain, FanOut, InterceptorError, Record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SECRET = "hunter2"


def split(record: Record) -> list[Record]:
    return [record.with_value(bytes([byte]), record.headers) for byte in record.value]


def appends(text: bytes) -> Callable[[Record], Record]:
    return lambda record: record.with_value(record.value + text, record.headers)


class Splitter:
    """Split lazily, and count what was really made."""

    def __init__(self) -> None:
        self.made = 0

    def on_send(self, record: Record) -> FanOut:
        def pieces() -> Iterator[Record]:
            for piece in split(record):
                self.made += 1
                yield piece

        return FanOut(len(record.value), pieces, size_bytes=len(record.value))


def values(outcome: Any) -> list[Any]:
    return [record.value for record in outcome]


class TestEager:
    def test_each_goes_through_the_steps_behind(self) -> None:
        outcome = (
            Chain([Hooks(on_send=split), Hooks(on_send=appends(b"!"))])
            .open()
            .send_outcome(Record("t", b"ab"))
        )
        assert values(outcome) == [b"a!", b"b!"]

    def test_a_generator_will_do(self) -> None:
        def hook(record: Record) -> Iterator[Record]:
            yield from split(record)

        assert values(Chain([Hooks(on_send=hook)]).open().send_outcome(Record("t", b"ab"))) == [b"a", b"b"]

    def test_fan_out_of_fan_out_is_flat_and_in_order(self) -> None:
        twice = Hooks(on_send=lambda record: [record, record])
        outcome = Chain([Hooks(on_send=split), twice]).open().send_outcome(Record("t", b"ab"))
        assert values(outcome) == [b"a", b"a", b"b", b"b"]

    def test_an_empty_list_waits_and_is_no_drop(self) -> None:
        session = Chain([Hooks(name="wait", on_consume=lambda _: [])]).open()
        assert session.consume_outcome(Record("t", b"")) == []
        assert session.stats()["wait"]["dropped"] == 0

    def test_what_waits_further_on_waits_as_a_whole(self) -> None:
        waits = Hooks(on_consume=lambda _: [])
        session = Chain([waits, Hooks(on_consume=split)]).open()
        assert session.consume_outcome(Record("t", b"ab")) == []

    def test_is_dropped_where_every_one_was_dropped(self) -> None:
        session = Chain([Hooks(on_send=split), Hooks(on_send=lambda _: DROP)]).open()
        assert session.send_outcome(Record("t", b"ab")) is DROP

    def test_keeps_those_that_were_not_dropped(self) -> None:
        some = Hooks(on_send=lambda record: DROP if record.value == b"a" else record)
        assert values(Chain([Hooks(on_send=split), some]).open().send_outcome(Record("t", b"ab"))) == [b"b"]

    def test_an_error_of_one_is_the_outcome(self) -> None:
        def hook(record: Record) -> Record:
            if record.value == b"b":
                raise InterceptorError("refused")
            return record

        outcome = (
            Chain([Hooks(on_send=split), Hooks(name="x", on_send=hook)])
            .open()
            .send_outcome(Record("t", b"abc"))
        )
        assert isinstance(outcome, InterceptorError)
        assert outcome.last_record is not None
        assert outcome.last_record.value == b"b"

    def test_a_generator_that_fails_is_a_hook_that_fails(self) -> None:
        def hook(record: Record) -> Iterator[Record]:
            yield record
            raise ValueError(SECRET)

        step = Hooks(name="gen", on_send=hook, on_error="skip")
        session = Chain([step, Hooks(on_send=appends(b"!"))]).open()
        outcome = session.send_outcome(Record("t", b"ab"))
        assert isinstance(outcome, Record)
        assert outcome.value == b"ab!"
        assert session.stats()["gen"]["skipped"] == 1


class TestLazy:
    def test_makes_nothing_before_it_is_asked(self) -> None:
        splitter = Splitter()
        outcome = Chain([splitter]).open().send_outcome(Record("t", b"abcd"))
        assert isinstance(outcome, FanOut)
        assert (len(outcome), outcome.size_bytes, splitter.made) == (4, 4, 0)

    def test_makes_one_at_a_time_through_the_steps_behind(self) -> None:
        splitter = Splitter()
        outcome = Chain([splitter, Hooks(on_send=appends(b"!"))]).open().send_outcome(Record("t", b"abcd"))
        assert isinstance(outcome, FanOut)
        pieces = iter(outcome)
        assert next(pieces).value == b"a!"
        assert splitter.made == 1
        assert values(pieces) == [b"b!", b"c!", b"d!"]
        assert splitter.made == 4

    def test_stays_lazy_in_a_batch(self) -> None:
        splitter = Splitter()
        outcomes = (
            Chain([splitter, Hooks(on_send_batch=lambda batch: batch)])
            .open()
            .send_outcomes([Record("t", b"abcd")])
        )
        assert isinstance(outcomes[0], FanOut)
        assert splitter.made == 0

    def test_send_gives_all_of_them(self) -> None:
        assert values(Chain([Splitter()]).open().send([Record("t", b"ab")])) == [b"a", b"b"]

    def test_drops_those_that_are_dropped_further_on(self) -> None:
        some = Hooks(on_send=lambda record: DROP if record.value == b"a" else record)
        assert values(Chain([Splitter(), some]).open().send([Record("t", b"ab")])) == [b"b"]

    def test_an_error_further_on_comes_when_its_record_is_taken(self) -> None:
        def hook(record: Record) -> Record:
            if record.value == b"b":
                raise InterceptorError("refused")
            return record

        outcome = Chain([Splitter(), Hooks(name="x", on_send=hook)]).open().send_outcome(Record("t", b"abc"))
        assert isinstance(outcome, FanOut)
        pieces = iter(outcome)
        assert next(pieces).value == b"a"
        with pytest.raises(InterceptorError, match="x at t: refused"):
            next(pieces)

    def test_a_failing_cut_is_wrapped_without_its_text(self) -> None:
        def pieces() -> Iterator[Record]:
            yield Record("t", b"a")
            raise ValueError(SECRET)

        session = Chain([Hooks(name="split", on_send=lambda _: FanOut(2, pieces))]).open()
        with pytest.raises(InterceptorError, match="split at t: raised ValueError") as caught:
            session.send([Record("t", b"ab")])
        assert SECRET not in str(caught.value)
        assert session.stats()["split"]["failed"] == 1

    def test_a_cut_of_no_record_is_refused(self) -> None:
        session = Chain([Hooks(name="split", on_send=lambda _: FanOut(1, lambda: iter([None])))]).open()  # type: ignore[list-item]
        with pytest.raises(InterceptorError, match="expected Records only"):
            session.send([Record("t", b"ab")])

    def test_an_error_of_a_lazy_cut_behind_a_list_is_still_an_outcome(self) -> None:
        def pieces() -> Iterator[Record]:
            raise InterceptorError("no room")

        chain = [Hooks(on_send=split), Hooks(name="split", on_send=lambda _: FanOut(1, pieces))]
        outcome = Chain(chain).open().send_outcome(Record("t", b"ab"))
        assert isinstance(outcome, InterceptorError)
        assert str(outcome) == "split at t: no room"

    def test_may_be_gone_through_again(self) -> None:
        outcome = Chain([Splitter()]).open().send_outcome(Record("t", b"ab"))
        assert values(outcome) == values(outcome) == [b"a", b"b"]
