from __future__ import annotations

import math
from typing import Any

import pytest

from headerware import Chain, Context, Headers, Record
from headerware.core.record_run import RecordRun
from headerware.interceptors import Metrics, Serialize
from headerware.serdes.formats.plain import Json, JsonFunctions
from headerware.serdes.serde import SerdeContext

FIXED = (("a", b"1"), ("b", None))


def run_of(
    values: list[Any], *, begin: int = 1, headers: tuple[Any, ...] = FIXED, topic: str = "t", key: Any = None
) -> RecordRun:
    numbers = [b"%d" % number for number in range(begin, begin + len(values))]
    numbered = ("number", numbers[0])
    return RecordRun(
        topic,
        None,
        Headers.trusted((*headers, numbered)),
        numbered,
        numbers,
        [key] * len(values),
        values,
        [1_000 + at for at in range(len(values))],
    )


def record(number: int, value: Any, at: int) -> Record:
    headers = Headers([*FIXED, ("number", b"%d" % number)])
    return Record("t", value, None, headers, None, 1_000 + at)


class TestRecordRun:
    def test_is_a_sequence_of_its_records(self) -> None:
        run = run_of([b"x", b"y"], begin=7)
        assert list(run) == [record(7, b"x", 0), record(8, b"y", 1)]
        assert (len(run), run[1], run[-2]) == (2, record(8, b"y", 1), record(7, b"x", 0))
        assert all(type(each.headers) is Headers for each in run)

    def test_has_no_record_behind_the_last(self) -> None:
        with pytest.raises(IndexError):
            run_of([b"x"])[1]

    def test_a_part_of_it_keeps_its_numbers(self) -> None:
        run = run_of([b"x", b"y", b"z"])
        assert list(run[1:]) == list(run)[1:]
        assert list(run[1:][1:]) == list(run)[2:]
        assert list(run[3:]) == []

    def test_of_headers_that_are_all_the_same(self) -> None:
        run = RecordRun("t", 3, Headers(FIXED), None, [], [None] * 2, [b"x", b"y"], [None, 5])
        assert list(run) == [
            Record("t", b"x", None, Headers(FIXED), 3, None),
            Record("t", b"y", None, Headers(FIXED), 3, 5),
        ]
        assert list(run[1:]) == list(run)[1:]

    def test_of_no_headers(self) -> None:
        run = RecordRun("t", None, Headers(), None, [], [b"k"], [b"x"], [None])
        assert list(run) == [Record("t", b"x", b"k")]

    def test_joins_the_one_that_follows(self) -> None:
        first, second = run_of([b"x"]), run_of([b"y", b"z"], begin=2)
        assert first.joins(second)
        assert list(first.join(second)) == [*first, *second]

    @pytest.mark.parametrize(
        "other",
        [
            run_of([b"y"], topic="other"),
            run_of([b"y"], headers=(("a", b"2"), ("b", None))),
            run_of([b"y"], headers=FIXED[:1]),
            run_of([b"y"], headers=()),
            RecordRun("t", None, run_of([b"y"]).headers, None, [], [None], [b"y"], [None]),
        ],
        ids=["topic", "value", "fewer", "none", "no number"],
    )
    def test_does_not_join_another(self, other: RecordRun) -> None:
        assert not run_of([b"x"]).joins(other)


class Stamp:
    """A step that knows records only."""

    def on_send(self, record: Record) -> Record:
        return record.with_headers(record.headers.add("stamp", b"1"))


JSON = Serialize(value="json")


class TestChains:
    """Whatever way a run takes through a chain, its records come out as they would one by one."""

    def sent(self, run: RecordRun, *steps: Any) -> tuple[Any, list[Any]]:
        with Chain(list(steps)).open(Context(side="producer")) as session:
            one_by_one = [session.send_outcome(each) for each in run]
        with Chain(list(steps)).open(Context(side="producer")) as session:
            return session.send_outcomes(run), one_by_one

    @pytest.mark.parametrize(
        "headers",
        [
            (),
            (("content-type", b"application/vnd.orders+json"),),
            (("Content-Type", b"text/plain"), ("a", b"1")),
        ],
        ids=["none", "true", "untrue"],
    )
    def test_a_serializer_takes_it_by_columns(self, headers: tuple[Any, ...]) -> None:
        found, expected = self.sent(run_of([{"n": 1}, {"n": None}, [2]], headers=headers), JSON)
        assert type(found) is RecordRun
        assert list(found) == expected

    def test_of_keys_too(self) -> None:
        run = run_of([{"n": 1}], key={"id": 5})
        found, expected = self.sent(run, Serialize(key="json", value="msgpack"))
        assert type(found) is RecordRun
        assert list(found) == expected

    @pytest.mark.parametrize("bad", [math.nan, object(), None], ids=["NaN", "an object", "a null"])
    def test_what_does_not_fit_is_one_by_one(self, bad: Any) -> None:
        found, expected = self.sent(run_of([{"n": 1}, bad, {"n": 3}]), JSON)
        assert type(found) is list
        assert [str(each) if isinstance(each, Exception) else each for each in found] == [
            str(each) if isinstance(each, Exception) else each for each in expected
        ]
        assert found[0] == expected[0]

    @pytest.mark.parametrize("part", ["key", "value"])
    @pytest.mark.parametrize("fault", ["one less", "other pairs"])
    def test_a_serializer_that_breaks_its_contract_gets_records(self, part: str, fault: str) -> None:
        class Ours:
            def serialize(self, topic: str, headers: Headers, value: Any) -> tuple[bytes, Headers]:
                return b"%d" % value, headers

            def serialize_many(
                self,
                topic: str,
                headers: Headers,
                values: list[Any],
            ) -> tuple[list[bytes], Headers]:
                made = [b"%d" % value for value in values]
                if fault == "one less":
                    return made[1:], headers
                return made, Headers.trusted((name, value) for name, value in headers)

        run = run_of([b"1", b"2"], key=5) if part == "key" else run_of([1, 2])
        step = Serialize(key=Ours()) if part == "key" else Serialize(value=Ours())
        found, expected = self.sent(run, step)
        assert list(found) == expected

    @pytest.mark.parametrize("way", ["overrides", "delegates"])
    def test_a_serializer_over_another_has_its_own_say(self, way: str) -> None:
        inner = Json().open(SerdeContext())

        class Overrides(JsonFunctions):
            def serialize(self, topic: str, headers: Headers, value: Any) -> tuple[bytes | None, Headers]:
                return b"own", headers

        class Delegates:
            def serialize(self, topic: str, headers: Headers, value: Any) -> tuple[bytes | None, Headers]:
                return b"own", headers

            def __getattr__(self, name: str) -> Any:
                return getattr(inner, name)

        own: Any = Delegates()
        if way == "overrides":
            own = Overrides("JSON", inner._header, inner._encode_any, inner._decode)
        found, expected = self.sent(run_of([{"n": 1}, {"n": 2}]), Serialize(value=own))
        assert list(found) == expected
        assert found[0].value == b"own"

    def test_a_step_that_knows_records_only_gets_records(self) -> None:
        found, expected = self.sent(run_of([{"n": 1}, {"n": 2}]), JSON, Stamp())
        assert found == expected
        assert found[1].headers.last("stamp") == b"1"

    @pytest.mark.parametrize("value", ["text", {"n": 1}], ids=["text", "an object"])
    def test_without_a_serializer_other_values_are_one_by_one(self, value: Any) -> None:
        found, expected = self.sent(run_of([b"bytes", value]), Stamp())
        assert list(map(str, found)) == list(map(str, expected))

    def test_a_name_that_is_reserved_is_refused(self) -> None:
        found, expected = self.sent(run_of([{"n": 1}], headers=(("hw.sig", b"1"),)), JSON)
        assert str(found[0]) == str(expected[0])
        assert "hw.sig" in str(found[0])

    def test_who_wraps_hooks_sees_each_record(self) -> None:
        with Chain([JSON, Metrics()]).open(Context(side="producer")) as session:
            assert type(session.send_outcomes(run_of([{"n": 1}]))) is list

    def test_steps_count_its_records(self) -> None:
        with Chain([JSON]).open(Context(side="producer")) as session:
            session.send_outcomes(run_of([{"n": 1}, {"n": 2}]))
            session.send_outcomes(run_of([{"n": 1}, object()]))
            assert session.stats()["serialize"]["sent"] == 4
            assert session.stats()["serialize"]["failed"] == 1

    def test_without_steps_it_stays(self) -> None:
        run = run_of([b"x"])
        with Chain([]).open(Context(side="producer")) as session:
            assert session.send_outcomes(run) is run
