"""Batches by columns, and their way through chains."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest

from headerware import Chain, Context, Headers, InterceptorError, Record
from headerware.core import boundary
from headerware.core.batch import (
    ArrowColumn,
    ArrowKind,
    Batch,
    Deferred,
    HeaderColumns,
    Repeated,
    entry_types,
    header_names,
)
from headerware.interceptors import Metrics, Serialize, Trail
from headerware.serdes.formats.plain import Json, JsonFunctions
from headerware.serdes.serde import SerdeContext

FIXED = (("a", b"1"), ("b", None))


@pytest.fixture(autouse=True)
def checked_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no name be checked yet; when other tests have filled the memory of names, it begins anew in one."""
    for names in ("_admitted", "_writable", "_plain_names"):
        monkeypatch.setattr(boundary, names, set())


def batch_of(
    values: list[Any],
    *,
    begin: int = 1,
    headers: tuple[Any, ...] = FIXED,
    topic: str = "t",
    key: Any = None,
    name: str = "hw.source.record",
) -> Batch:
    count = len(values)
    columns = [(name, Repeated(value, count)) for name, value in headers]
    numbers = [b"%d" % number for number in range(begin, begin + count)]
    return Batch(
        topic,
        values,
        keys=[key] * count,
        headers=HeaderColumns([*columns, (name, numbers)], count),
        timestamps_ms=[1_000 + at for at in range(count)],
    )


def record(number: int, value: Any, at: int) -> Record:
    headers = Headers([*FIXED, ("hw.source.record", b"%d" % number)])
    return Record("t", value, None, headers, None, 1_000 + at)


def rows(*values: Any) -> list[Record]:
    return [
        Record("t", value, b"k", Headers(FIXED), 3, 1_000, 1, at, 7, {"mine": at})
        for at, value in enumerate(values)
    ]


class TestColumns:
    def test_are_a_sequence_of_records(self) -> None:
        batch = batch_of([b"x", b"y"], begin=7)
        assert list(batch) == batch.records() == [record(7, b"x", 0), record(8, b"y", 1)]
        assert (len(batch), batch[1], batch[-2]) == (2, record(8, b"y", 1), record(7, b"x", 0))
        assert all(type(each.headers) is Headers for each in batch)

    @pytest.mark.parametrize("batch", [batch_of([b"x"]), Batch.of(rows(b"x"))], ids=["columns", "records"])
    def test_have_no_record_after_the_last(self, batch: Batch) -> None:
        with pytest.raises(IndexError):
            batch[1]
        with pytest.raises(IndexError):
            batch.partitions[1]

    def test_of_a_slice_keep_their_numbers(self) -> None:
        batch = batch_of([b"x", b"y", b"z"])
        assert list(batch[1:]) == list(batch)[1:]
        assert list(batch[1:][1:]) == list(batch)[2:]
        assert list(batch[3:]) == []
        assert list(batch[::2]) == list(batch)[::2]

    def test_that_are_all_the_same_are_held_once(self) -> None:
        headers = Repeated(Headers(FIXED), 2)
        batch = Batch("t", [b"x", b"y"], headers=headers, partitions=Repeated(3, 2), timestamps_ms=[None, 5])
        assert list(batch) == [
            Record("t", b"x", None, Headers(FIXED), 3, None),
            Record("t", b"y", None, Headers(FIXED), 3, 5),
        ]
        assert list(batch[1:]) == list(batch)[1:]
        assert isinstance(batch[1:].partitions, Repeated)
        assert isinstance(batch.keys, Repeated)

    def test_without_headers(self) -> None:
        batch = Batch("t", [b"x"], keys=[b"k"], headers=HeaderColumns([], 1))
        assert list(batch) == [Record("t", b"x", b"k")]

    def test_of_different_lengths_are_refused(self) -> None:
        with pytest.raises(ValueError, match="expected 2 entries in the column of key, found 1"):
            Batch("t", [b"x", b"y"], keys=[b"k"])
        with pytest.raises(ValueError, match="expected 1 entries in the column of value, found 0"):
            batch_of([b"x"]).replace(values=[])

    def test_join_those_that_follow(self) -> None:
        first, second = batch_of([b"x"]), batch_of([b"y", b"z"], begin=2)
        joined = first.join(second)
        assert list(joined) == [*first, *second]
        assert isinstance(joined.partitions, Repeated)
        assert isinstance(joined.headers, HeaderColumns)

    @pytest.mark.parametrize(
        "other",
        [
            batch_of([b"y"], headers=(("a", b"2"), ("b", None))),
            batch_of([b"y"], headers=FIXED[:1]),
            batch_of([b"y"], headers=()),
            Batch("t", [b"y"], headers=HeaderColumns([], 1)),
            Batch.of(rows(b"y")),
        ],
        ids=["value", "fewer", "none", "no header", "records"],
    )
    def test_join_others(self, other: Batch) -> None:
        first = batch_of([b"x"])
        assert list(first.join(other)) == [*first, *other]

    def test_of_another_topic_do_not_join(self) -> None:
        with pytest.raises(ValueError, match="'other'"):
            batch_of([b"x"]).join(batch_of([b"y"], topic="other"))


class TestDeferred:
    def test_entries_are_made_once_when_somebody_looks(self) -> None:
        made: list[int] = []

        def make() -> list[bytes]:
            made.append(1)
            return [b"x", b"y"]

        batch = Batch("t", Deferred(make, 2))
        assert (len(batch), made) == (2, [])
        assert list(batch) == [Record("t", b"x"), Record("t", b"y")]
        assert list(batch.select([1])) == [Record("t", b"y")]
        assert batch.values[1:] == [b"y"]
        assert made == [1]


class TestArrowColumn:
    LISTED = ArrowKind(lambda array: array.to_pylist(), frozenset({bytes, type(None)}))

    def column(self) -> ArrowColumn[bytes | None]:
        return ArrowColumn(pa.array([b"x", None, b"z"]), self.LISTED)

    def test_entries_are_those_of_the_array(self) -> None:
        assert list(self.column()) == [b"x", None, b"z"]
        assert list(Batch("t", self.column()).select([2, 0])) == [Record("t", b"z"), Record("t", b"x")]

    def test_an_entry_is_made_alone(self) -> None:
        sizes: list[int] = []

        def noted(array: pa.Array) -> list[bytes | None]:
            sizes.append(len(array))
            found: list[bytes | None] = array.to_pylist()
            return found

        column: ArrowColumn[bytes | None] = ArrowColumn(
            pa.array([b"x", None, b"z"]), self.LISTED._replace(entries=noted)
        )
        assert (column[-1], column[0], column[1]) == (b"z", b"x", None)
        with pytest.raises(IndexError):
            column[3]
        assert [*column] == [b"x", None, b"z"]
        assert column[2] == b"z"
        assert sizes == [1, 1, 1, 3]

    def test_a_slice_is_an_array_too(self) -> None:
        batch = Batch("t", self.column())[1:]
        assert isinstance(batch.values, ArrowColumn)
        assert list(batch) == [Record("t"), Record("t", b"z")]

    def test_types_and_names_need_no_entries(self) -> None:
        kind = ArrowKind(lambda _: [], frozenset({Headers}), lambda array: array.to_pylist())
        headers: ArrowColumn[Headers] = ArrowColumn(pa.array(["a", "b", "a"]), kind)
        assert (entry_types(headers), header_names(headers)) == ({Headers}, {"a", "b"})
        assert boundary.is_normalised(Batch("t", self.column(), headers=headers))


class TestRecords:
    def test_are_those_that_were_given_as_long_as_nothing_changes(self) -> None:
        given = rows(b"x", b"y")
        assert Batch.of(given).records() is given

    @pytest.mark.parametrize(
        ("changes", "field", "entry"),
        [
            ({"values": [b"1", b"2"]}, "value", b"2"),
            ({"keys": [b"1", b"2"]}, "key", b"2"),
            ({"headers": Repeated(Headers(), 2)}, "headers", Headers()),
            ({"partitions": Repeated(9, 2)}, "partition", 9),
            ({"timestamps_ms": [1, 2]}, "timestamp_ms", 2),
            ({"locals": Repeated(None, 2)}, "local", None),
        ],
    )
    def test_have_changed_columns(self, changes: dict[str, Any], field: str, entry: Any) -> None:
        given = rows(b"x", b"y")
        for changed in (Batch.of(given).replace(**changes), batch_like(given).replace(**changes)):
            assert changed[1] == given[1].replace(**{field: entry})
            assert [*changed] == changed.records()
            assert changed.records()[1] == changed[1]
        assert Batch.of(given)[1] == given[1]

    def test_that_are_selected(self) -> None:
        given = rows(b"x", b"y", b"z")
        batch = Batch.of(given).replace(values=[b"1", b"2", b"3"])
        assert [each.value for each in batch.select([2, 0])] == [b"3", b"1"]
        assert list(batch_like(given).select([1])) == given[1:2]
        assert isinstance(batch_of([b"x", b"y"]).select([1]).headers, HeaderColumns)

    @pytest.mark.parametrize("values", [Repeated(b"9", 2), [b"9", b"9"]], ids=["repeated", "a list"])
    def test_get_one_more_header(self, values: Any) -> None:
        for batch in (Batch.of(rows(b"x", b"y")), batch_of([b"x", b"y"])):
            found = batch.append_header("c", values)
            assert [each.headers for each in found] == [own.add("c", b"9") for own in batch.headers]

    def test_are_made_anew_by_a_function_that_may_refuse_some(self) -> None:
        def shout(value: bytes) -> tuple[bytes] | None:
            if value == b"bad":
                raise InterceptorError("no")
            return None if value == b"loud" else (value.upper(),)

        batch = Batch.of(rows(b"x", b"bad", b"loud"))
        found = batch.remake(("value",), shout, batch.values)
        assert [found.values[0], found.values[2]] == [b"X", b"loud"]
        assert {at: str(error) for at, error in found.failures.items()} == {1: "no"}
        assert batch.remake(("value",), lambda _: None, batch.values) is batch


def batch_like(records: list[Record]) -> Batch:
    """Return the same records by columns."""
    given = Batch.of(records)
    return Batch(
        "t",
        given.values,
        keys=given.keys,
        headers=given.headers,
        partitions=given.partitions,
        timestamps_ms=given.timestamps_ms,
        timestamp_types=given.timestamp_types,
        offsets=given.offsets,
        leader_epochs=given.leader_epochs,
        locals=given.locals,
    )


class Stamp:
    """A step that knows records only."""

    def on_send(self, record: Record) -> Record:
        return record.with_headers(record.headers.add("stamp", b"1"))


JSON = Serialize(value="json")


class TestChains:
    """Whatever way a batch takes through a chain, its records come out as they would one by one."""

    def sent(self, batch: Batch, *steps: Any) -> tuple[Any, list[Any]]:
        with Chain(list(steps)).open(Context(side="producer")) as session:
            one_by_one = [session.send_outcome(each) for each in batch]
        with Chain(list(steps)).open(Context(side="producer")) as session:
            return session.send_outcomes(batch), one_by_one

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
        found, expected = self.sent(batch_of([{"n": 1}, {"n": None}, [2]], headers=headers), JSON)
        assert type(found) is Batch
        assert list(found) == expected

    def test_of_keys_too(self) -> None:
        batch = batch_of([{"n": 1}], key={"id": 5})
        found, expected = self.sent(batch, Serialize(key="json", value="msgpack"))
        assert type(found) is Batch
        assert list(found) == expected

    @pytest.mark.parametrize("bad", [math.nan, object(), None], ids=["NaN", "an object", "a null"])
    def test_what_does_not_fit_is_one_by_one(self, bad: Any) -> None:
        found, expected = self.sent(batch_of([{"n": 1}, bad, {"n": 3}]), JSON)
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

        batch = batch_of([b"1", b"2"], key=5) if part == "key" else batch_of([1, 2])
        step = Serialize(key=Ours()) if part == "key" else Serialize(value=Ours())
        found, expected = self.sent(batch, step)
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
        found, expected = self.sent(batch_of([{"n": 1}, {"n": 2}]), Serialize(value=own))
        assert list(found) == expected
        assert found[0].value == b"own"

    def test_a_step_that_knows_records_only_gets_records(self) -> None:
        found, expected = self.sent(batch_of([{"n": 1}, {"n": 2}]), JSON, Stamp())
        assert list(found) == expected
        assert found[1].headers.last("stamp") == b"1"

    @pytest.mark.parametrize("value", ["text", {"n": 1}], ids=["text", "an object"])
    def test_without_a_serializer_other_values_are_one_by_one(self, value: Any) -> None:
        found, expected = self.sent(batch_of([b"bytes", value]), Stamp())
        assert list(map(str, found)) == list(map(str, expected))

    def test_a_name_that_is_reserved_is_refused(self) -> None:
        found, expected = self.sent(batch_of([{"n": 1}], headers=(("hw.sig", b"1"),)), JSON)
        assert str(found[0]) == str(expected[0])
        assert "hw.sig" in str(found[0])

    def test_who_wraps_hooks_changes_nothing(self) -> None:
        found, expected = self.sent(batch_of([{"n": 1}, {"n": 2}]), JSON, Metrics())
        assert list(found) == expected

    def test_a_trail_is_one_more_column(self) -> None:
        found, expected = self.sent(batch_of([{"n": 1}, {"n": 2}]), JSON, Trail(service="s"))
        assert isinstance(found.headers, HeaderColumns)
        assert isinstance(dict(found.headers.columns)["hw.trail"], Repeated)
        assert [each.headers.names() for each in found] == [each.headers.names() for each in expected]

    def test_a_serializer_is_not_asked_once_for_headers_that_differ(self) -> None:
        batch = batch_of([{"n": 1}, {"n": 2}], name="tenant")
        found, expected = self.sent(batch, JSON)
        assert list(found) == expected
        assert not isinstance(found.headers, HeaderColumns)

    def test_a_serializer_takes_records_without_headers_together(self) -> None:
        batch = Batch.of([Record("t", {"n": 1}, b"k"), Record("t", {"n": 2})])
        found, expected = self.sent(batch, JSON)
        assert list(found) == expected
        assert isinstance(found.headers, HeaderColumns)

    def test_steps_count_its_records(self) -> None:
        with Chain([JSON]).open(Context(side="producer")) as session:
            session.send_outcomes(batch_of([{"n": 1}, {"n": 2}]))
            session.send_outcomes(batch_of([{"n": 1}, object()]))
            assert session.stats()["serialize"]["sent"] == 4
            assert session.stats()["serialize"]["failed"] == 1

    def test_without_steps_it_stays(self) -> None:
        batch = batch_of([b"x"])
        with Chain([]).open(Context(side="producer")) as session:
            assert session.send_outcomes(batch) is batch
