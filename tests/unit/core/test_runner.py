"""One record through a chain: the order of hooks, what they may give, and which topics they work on."""

from __future__ import annotations

import sys
import threading
from types import SimpleNamespace as Hooks
from typing import Any

import pytest

from headerware import DROP, Chain, HeaderError, Headers, InterceptorError, Record, Stage
from headerware.core import runner
from headerware.core.batch import Batch
from headerware.core.context import Context
from headerware.core.hooks import FanOut
from headerware.core.runner import flat
from headerware.core.topics import TopicPatterns


def mark(name: str, **options: Any) -> Hooks:
    """An interceptor that signs its name on both ways."""

    def hook(record: Record) -> Record:
        return record.with_value((record.value or b"") + name.encode(), record.headers)

    return Hooks(name=name, on_send=hook, on_consume=hook, **options)


def gives(result: Any, **options: Any) -> Hooks:
    return Hooks(name="odd", on_send=lambda _: result, **options)


def moves_to(topic: str, **options: Any) -> Hooks:
    return Hooks(name="move", on_send=lambda record: record.replace(topic=topic), **options)


def sent(chain: list[Any], topic: str = "orders") -> Any:
    return Chain(chain).open().send_outcome(Record(topic, b""))


class TestHeadersOfAReturnedRecord:
    """What a hook writes into a record is normalised as what an application passes is."""

    @pytest.mark.parametrize(
        "headers", [{"a": "1"}, [("a", "1")], [["a", b"1"]], Headers.builder({"a": b"1"})]
    )
    @pytest.mark.parametrize(
        "wrap", [lambda record: record, lambda record: [record], lambda r: FanOut(1, lambda: iter([r]))]
    )
    def test_become_headers_before_the_next_hook_sees_them(self, headers: Any, wrap: Any) -> None:
        seen: list[Any] = []

        def look(record: Record) -> Record:
            seen.append(record.headers)
            return record

        first = Hooks(name="first", on_send=lambda record: wrap(record.replace(headers=headers)))
        second = Hooks(name="second", on_send=look)
        list(flat(sent([first, second])))
        assert seen == [Headers({"a": b"1"})]
        assert isinstance(seen[0], Headers)

    def test_become_headers_in_a_batch_too(self) -> None:
        def hook(batch: Batch) -> Batch:
            return batch.replace(headers=[{"a": "1"}] * len(batch))  # type: ignore[list-item]  # a mistake

        (outcome,) = Chain([Hooks(on_send_batch=hook)]).open().send_outcomes([Record("orders", b"")])
        assert isinstance(outcome, Record)
        assert outcome.headers == Headers({"a": b"1"})
        assert isinstance(outcome.headers, Headers)

    def test_become_headers_where_a_hook_releases_them(self) -> None:
        step = Hooks(on_send=lambda _: [], flush=lambda: [Record("orders", b"", headers={"a": "1"})])  # type: ignore[arg-type]
        (outcome,) = Chain([step]).open().flush()
        assert isinstance(outcome, Record)
        assert isinstance(outcome.headers, Headers)

    @pytest.mark.parametrize("headers", [{"a": 1}, 5, [("a",)], {b"a": b"1"}])
    def test_of_a_wrong_type_are_the_fault_of_the_hook_that_wrote_them(self, headers: Any) -> None:
        first = Hooks(name="first", on_send=lambda record: record.replace(headers=headers))
        outcome = sent([first, mark("second")])
        assert isinstance(outcome, InterceptorError)
        assert outcome.step == "first"

    def test_a_topic_that_is_no_text_is_refused(self) -> None:
        outcome = sent([moves_to(5, stage=Stage.OBJECTS)])  # type: ignore[arg-type]
        assert isinstance(outcome, InterceptorError)
        assert "whose topic is a int" in str(outcome)


class TestOrder:
    def test_sending_goes_left_to_right(self) -> None:
        assert sent([mark("a"), mark("b"), mark("c")]).value == b"abc"

    def test_consuming_goes_right_to_left(self) -> None:
        session = Chain([mark("a"), mark("b"), mark("c")]).open()
        (record,) = session.consume([Record("orders", b"")])
        assert record.value == b"cba"

    def test_one_object_may_stand_in_two_places(self) -> None:
        same = Hooks(on_send=mark("a").on_send)
        assert sent([same, mark("b"), same]).value == b"aba"

    def test_a_failure_of_an_object_in_two_places_names_the_right_one(self) -> None:
        def once(record: Record) -> Record:
            if record.value == b"b":
                raise ValueError
            return record

        same = Hooks(on_send=once)
        error = sent([same, mark("b"), same])
        assert error.step == "simplenamespace-2"

    def test_an_untouched_record_is_the_very_same_object(self) -> None:
        record = Record("orders", b"v", b"k", Headers({"a": b"1"}))
        session = Chain([Hooks(on_send=lambda r: r, on_consume=lambda r: r)]).open()
        assert session.send_outcome(record) is record
        assert session.consume_outcome(record) is record
        assert session.consume_outcomes([record])[0] is record

    def test_an_equal_topic_that_is_another_object_goes_on(self) -> None:
        renamed = Hooks(on_send=lambda record: record.replace(topic=record.topic.encode().decode()))
        assert sent([mark("a"), renamed, mark("b")]).value == b"ab"

    def test_an_interceptor_without_hooks_for_a_direction_is_passed_over(self) -> None:
        session = Chain([mark("a"), Hooks(on_consume=mark("x").on_consume), mark("c")]).open()
        assert session.send([Record("orders", b"")])[0].value == b"ac"


class TestEmptyChain:
    def test_looks_at_nothing(self) -> None:
        record = Record(None, object(), 5, [("hw.sig", 1)])  # type: ignore[arg-type]
        session = Chain().open()
        assert session.send_outcome(record) is record
        assert session.send_outcomes([record]) == [record]
        record = Record(None, object(), 5, [("hw.sig", b"1")])  # type: ignore[arg-type]
        assert session.consume_outcome(record) is record
        assert session.consume([record]) == [record]
        assert (session.stats(), session.poll(), session.flush(), session.safe_offsets()) == ({}, [], [], {})
        assert session.safe_offset("t", 0, 5) == 5

    def test_refuses_what_was_read_with_headers_that_nobody_can_ask_for(self) -> None:
        record = Record("orders", b"", headers=[(b"\xff", b"1")])  # type: ignore[arg-type]
        session = Chain().open()
        assert isinstance(session.consume_outcome(record), HeaderError)


class TestResults:
    def test_drop_takes_the_record_out_and_is_counted(self) -> None:
        session = Chain([gives(DROP), mark("b")]).open()
        assert session.send_outcome(Record("orders")) is DROP
        assert session.send([Record("orders")]) == []
        assert session.stats()["odd"]["dropped"] == 2
        assert session.stats()["odd"]["failed"] == 0

    @pytest.mark.parametrize("result", [None, b"x", "x", 5, object(), {}, {"a": 1}, ValueError("returned")])
    def test_anything_else_is_an_error_that_names_its_type(self, result: Any) -> None:
        error = sent([gives(result)])
        assert isinstance(error, InterceptorError)
        advice = "; end the hook with `return record`" if result is None else ""
        assert str(error) == (
            f"odd at orders: returned {type(result).__name__}; "
            f"expected a Record, DROP or an iterable of Records{advice}"
        )

    def test_a_record_that_a_hook_changes_says_how_to_make_another(self) -> None:
        def change(record: Any) -> Any:
            record.value = b"x"

        error = sent([Hooks(on_send=change, name="odd")])
        assert isinstance(error, InterceptorError)
        assert "a record cannot be changed: return another, by record.replace(value=...)" in str(error)

    @pytest.mark.parametrize("result", [[None], [DROP], [b"x"], Headers({"a": b""}), bytearray(b"x")])
    def test_a_collection_of_anything_else_is_an_error(self, result: Any) -> None:
        error = sent([gives(result)])
        assert isinstance(error, InterceptorError)
        assert "expected Records only" in str(error)


class TestTopics:
    @pytest.mark.parametrize(
        ("patterns", "matched"),
        [
            (["*"], {"orders", "orders.eu", "payments"}),
            (["orders*"], {"orders", "orders.eu"}),
            (["orders"], {"orders"}),
            (["!orders"], {"orders.eu", "payments"}),
            (["orders*", "!*.eu"], {"orders"}),
            (["!*.eu", "orders*"], {"orders"}),
            (["order?"], {"orders"}),
            (["?*s"], {"orders", "payments"}),
            (["[op]*s"], set()),
            ([], {"orders", "orders.eu", "payments"}),
            (["ORDERS"], set()),
        ],
    )
    def test_patterns_include_and_exclude(self, patterns: list[str], matched: set[str]) -> None:
        topics = ("orders", "orders.eu", "payments")
        assert {topic for topic in topics if TopicPatterns(patterns).matches(topic)} == matched

    def test_only_matching_interceptors_work(self) -> None:
        chain = [mark("a", topics=("orders",)), mark("b", topics=("!orders",)), mark("c")]
        assert sent(chain).value == b"ac"
        assert sent(chain, "payments").value == b"bc"

    def test_one_type_may_stand_twice_for_different_topics(self) -> None:
        chain = [mark("a", topics=("orders",)), mark("a2", topics=("payments",))]
        assert sent(chain, "payments").value == b"a2"

    def test_a_moved_record_meets_the_steps_behind_for_its_new_topic_only(self) -> None:
        chain = [
            mark("a", topics=("new",)),
            moves_to("new", stage=Stage.OBJECTS),
            mark("b", topics=("orders",)),
            mark("c", topics=("new",)),
        ]
        chain[0].stage = Stage.OBJECTS
        record = sent(chain)
        assert (record.topic, record.value) == ("new", b"c")

    def test_a_list_may_move_its_records_each_to_its_own_topic(self) -> None:
        split = Hooks(
            name="split",
            stage=Stage.OBJECTS,
            on_send=lambda record: [record.replace(topic="new"), record, record.replace(topic="other")],
        )
        records = sent([split, mark("b", topics=("orders",)), mark("c", topics=("new",))])
        assert [(record.topic, record.value) for record in records] == [
            ("new", b"c"),
            ("orders", b"b"),
            ("other", b""),
        ]

    @pytest.mark.parametrize("many", [False, True])
    def test_a_bytes_stage_interceptor_may_not_move_a_record(self, many: bool) -> None:  # noqa: FBT001 - parametrized
        def hook(record: Record) -> Any:
            moved = record.replace(topic="new")
            return [record, moved] if many else moved

        error = sent([Hooks(name="move", on_send=hook), mark("b")])
        assert isinstance(error, InterceptorError)
        assert str(error) == "move at orders: changed the topic; only transforms at the object stage may"


class TestHooksOfTopics:
    def test_are_bounded_and_counts_survive(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(runner, "_TOPICS_LIMIT", 10)
        session = Chain([mark("a"), mark("b", topics=("t1*",))]).open()
        for number in range(35):
            session.send([Record(f"t{number}", b"")])
        assert len(session._send._by_topic) <= 10
        assert session.stats()["a"]["sent"] == 35
        assert session.stats()["b"]["sent"] == 11

    def test_the_bound_itself_holds_for_more_than_a_thousand_topics(self) -> None:
        session = Chain([mark("a")]).open()
        outcomes = session.consume_outcomes([Record(f"t{number}", b"") for number in range(1_205)])
        assert all(isinstance(outcome, Record) and outcome.value == b"a" for outcome in outcomes)
        assert len(session._consume._by_topic) <= 1_000
        assert session.stats()["a"]["consumed"] == 1_205

    def test_a_batch_across_the_bound_is_whole(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(runner, "_TOPICS_LIMIT", 3)
        batched = Hooks(name="b", on_send_batch=lambda batch: batch)
        session = Chain([batched]).open()
        records = [Record(f"t{number}", b"") for number in range(10)]
        assert session.send_outcomes(records) == records
        assert session.stats()["b"]["sent"] == 10


class TestCountsOfManyTopics:
    def test_are_exact_when_another_thread_still_counts(self) -> None:
        """As one that waits in a hook while others meet a thousand topics."""

        class Waits:
            def on_send(self, record: Record) -> Any:
                if record.value == b"wait":
                    inside.set()
                    assert go_on.wait(60)
                    return DROP
                return record

        class Pass:
            def on_send(self, record: Record) -> Record:
                return record

        inside, go_on = threading.Event(), threading.Event()
        session = Chain([Waits(), Pass()]).open(Context())
        thread = threading.Thread(target=session.send_outcome, args=[Record("topic-0", b"wait")])
        thread.start()
        assert inside.wait(60)
        for number in range(5_000):
            session.send_outcome(Record(f"topic-{number}", b"1"))
        go_on.set()
        thread.join()
        assert [counts["sent"] for counts in session.stats().values()] == [5_001, 5_000]

    def test_are_exact_under_several_threads(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def send(thread: int) -> None:
            for number in range(3_000):
                session.send_outcome(Record(f"topic-{(number + thread) % 37}", b"1"))

        class Pass:
            def on_send(self, record: Record) -> Record:
                return record

        monkeypatch.setattr(runner, "_TOPICS_LIMIT", 5)
        before = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        session = Chain([Pass()]).open(Context())
        try:
            threads = [threading.Thread(target=send, args=[index]) for index in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        finally:
            sys.setswitchinterval(before)
        assert [counts["sent"] for counts in session.stats().values()] == [12_000]
