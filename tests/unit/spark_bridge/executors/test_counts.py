from __future__ import annotations

import pickle
from typing import Any

import pytest

from headerware.core.chain import Chain
from headerware.core.headers import Headers
from headerware.core.native import native_module
from headerware.core.record import Record
from headerware.interceptors import Trail
from headerware.spark_bridge.executors.counts import TRACES_LIMIT, CountsParam, TaskCounter, merged


class Heap:
    """Add up what tasks report, as Spark's accumulator does."""

    reported: list[Any] = []  # noqa: RUF012 - it is pickled by reference

    def add(self, counts: Any) -> None:
        self.reported.append(counts)


def trace(number: int) -> Record:
    return Record("t", headers=Headers([("traceparent", b"%d" % number), ("other", b"x")]))


class TestMerged:
    def test_adds_numbers_at_every_depth(self) -> None:
        ours = {"records_in": 1, "steps": {"trail": {"sent": 1}, "sign": {"sent": 2}}}
        theirs = {"records_in": 2, "bytes_in": 5, "steps": {"trail": {"sent": 3, "failed": 1}}}
        assert merged(ours, theirs) == {
            "records_in": 3,
            "bytes_in": 5,
            "steps": {"trail": {"sent": 4, "failed": 1}, "sign": {"sent": 2}},
        }

    def test_joins_short_lists_without_repeats(self) -> None:
        assert merged({"traces": ["a", "b"]}, {"traces": ["b", "c"]}) == {"traces": ["a", "b", "c"]}
        many = {"traces": [str(number) for number in range(TRACES_LIMIT)]}
        assert len(merged(many, {"traces": ["new"]})["traces"]) == TRACES_LIMIT

    def test_changes_neither(self) -> None:
        ours: dict[str, Any] = {"steps": {"a": {"n": 1}}}
        merged(ours, {"steps": {"a": {"n": 1}}})
        assert ours == {"steps": {"a": {"n": 1}}}


class TestParts:
    def test_count_once_however_often_they_are_computed(self) -> None:
        param = CountsParam()
        sums: dict[Any, Any] = param.zero({})
        for part, records in (("a", 2), ("b", 3), ("a", 2), ("b", 1), ("a", 4)):
            sums = param.addInPlace(sums, {(part,): {"records_in": records}})
        assert sums == {("a",): {"records_in": 4}, ("b",): {"records_in": 3}}


class TestTally:
    @pytest.fixture(autouse=True)
    def _none_reported(self) -> None:
        Heap.reported.clear()

    def test_reports_what_this_task_did(self) -> None:
        session = Chain([Trail()]).open()
        session.consume([Record("t", b"v")])
        counter = TaskCounter(session, pickle.dumps(Heap()))
        session.consume([Record("t", b"v")] * 2)
        counter.begin(("first",))
        counter.begin(("second",))
        counter.counts["records_in"] += 2
        counter.report()
        ((part, found),) = Heap.reported[0].items()
        assert part == ("first",)
        assert found["records_in"] == 2
        assert found["steps"]["trail"]["consumed"] == 2
        assert found["traces"] == []
        assert found["native"] == {native_module()[1]: 1}

    def test_that_nobody_can_name_again_counts_each_time(self) -> None:
        for _ in range(2):
            TaskCounter(Chain([]).open(), pickle.dumps(Heap())).report()
        assert len({part for counts in Heap.reported for part in counts}) == 2

    def test_without_an_accumulator_nobody_is_told(self) -> None:
        counter = TaskCounter(Chain([]).open(), None)
        assert not counter.wants_traces
        counter.report()
        assert Heap.reported == []

    def test_notes_traces_up_to_a_limit(self) -> None:
        counter = TaskCounter(Chain([]).open(), pickle.dumps(Heap()))
        assert counter.wants_traces
        counter.note_traces([trace(number) for number in range(500)])
        assert counter.traces == [str(number) for number in range(TRACES_LIMIT)]
        assert not counter.wants_traces

    @pytest.mark.parametrize("value", [None, b"x" * 65])
    def test_passes_over_what_is_no_trace(self, value: bytes | None) -> None:
        counter = TaskCounter(Chain([]).open(), pickle.dumps(Heap()))
        counter.note_traces([Record("t", headers=Headers([("traceparent", value)]))])
        assert counter.traces == []

    def test_bytes_that_are_no_text_are_noted_as_such(self) -> None:
        counter = TaskCounter(Chain([]).open(), pickle.dumps(Heap()))
        counter.note_traces([Record("t", headers=Headers([("traceparent", b"\xff")]))])
        assert counter.traces == ["\ufffd"]
