"""Units: records, and the slices of messages, gathered within bounds."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from headerware.core.headers import Headers
from headerware.core.record import Record
from headerware.interceptors.slice.header import SLICE_HEADER, SliceHeader
from headerware.workers.units import Room, SlicedMessage, Unit, Units


def part(number: int, index: int, count: int) -> SliceHeader:
    return SliceHeader(number.to_bytes(16), index, count, count * 10, 10)


def slice_of(number: int, index: int, count: int, offset: int, partition: int = 0) -> Record:
    headers = Headers([(SLICE_HEADER, part(number, index, count).encode())])
    return Record("orders", b"x" * 10, None, headers, partition, offset=offset)


def nothing(_topic: str, _partition: int, _offset: int) -> Record | None:
    return None


class TestUnits:
    def test_a_record_is_a_unit(self) -> None:
        record = Record("orders", b"value", b"key", Headers(), 3, offset=7)
        unit = Units(nothing).add(record)
        assert unit == Unit((record,), (7,))
        assert unit.topic_partition == ("orders", 3)

    @given(st.integers(1, 30), st.randoms(use_true_random=False))
    def test_a_message_is_complete_with_its_last_slice_in_whichever_order(
        self, count: int, chance: random.Random
    ) -> None:
        order = list(range(count))
        chance.shuffle(order)
        units = Units(nothing)
        records = [slice_of(1, index, count, offset) for offset, index in enumerate(order)]
        *before, last = [units.add(record) for record in records]
        assert before == [None] * (count - 1)
        assert last is not None
        assert [record.offset for record in last.records] == [order.index(index) for index in range(count)]
        assert last.problem is None
        assert not units.incomplete()

    def test_a_slice_that_has_come_before_stands_alone(self) -> None:
        units = Units(nothing)
        assert units.add(slice_of(1, 0, 2, 0)) is None
        again = units.add(slice_of(1, 0, 2, 1))
        assert again is not None
        assert (again.offsets, again.problem) == ((1,), "repeated")
        complete = units.add(slice_of(1, 1, 2, 2))
        assert complete is not None
        assert complete.offsets == (0, 2)

    def test_a_slice_that_says_other_things_of_its_message_stands_alone(self) -> None:
        units = Units(nothing)
        assert units.add(slice_of(1, 0, 2, 0)) is None
        other = units.add(slice_of(1, 1, 3, 1))
        assert other is not None
        assert other.problem == "stray"
        assert [message.first for message in units.incomplete()["orders", 0]] == [0]

    def test_one_id_in_two_partitions_is_two_messages(self) -> None:
        units = Units(nothing)
        assert units.add(slice_of(1, 0, 2, 0, partition=0)) is None
        assert units.add(slice_of(1, 1, 2, 0, partition=1)) is None
        assert set(units.incomplete()) == {("orders", 0), ("orders", 1)}
        units.forget([("orders", 1)])
        assert set(units.incomplete()) == {("orders", 0)}

    def test_slices_that_did_not_fit_into_memory_are_fetched_again(self) -> None:
        records = [slice_of(1, index, 50, index) for index in range(50)]
        fetched: list[int] = []

        def fetch(_topic: str, _partition: int, offset: int) -> Record | None:
            fetched.append(offset)
            return records[offset]

        units = Units(fetch, max_bytes=1_000)
        found = [units.add(record) for record in records][-1]
        assert found is not None
        assert found.records == tuple(records)
        assert fetched
        assert len(fetched) < 50

    def test_a_message_whose_slices_are_gone_says_so(self) -> None:
        units = Units(nothing, max_bytes=0)
        assert units.add(slice_of(1, 0, 2, 4)) is None
        found = units.add(slice_of(1, 1, 2, 5))
        assert found is not None
        assert (found.problem, found.offsets, len(found.records)) == ("gone", (4, 5), 1)

    def test_a_flood_of_messages_that_never_end_is_bounded(self) -> None:
        units = Units(nothing, max_remembered=100)
        for number in range(1_000):
            assert units.add(slice_of(number, 0, 2, number)) is None
        assert sum(map(len, units.incomplete().values())) <= 100
        complete = units.add(slice_of(999, 1, 2, 2_000))
        assert complete is not None
        assert complete.offsets == (999, 2_000)

    def test_messages_that_came_first_are_given_up_first(self) -> None:
        units = Units(nothing)
        for number in range(4):
            assert units.add(slice_of(number, 0, 2, number)) is None
        assert [unit.offsets for unit in units.give_up(2)] == [(0,), (1,)]
        assert len(units) == 2
        complete = units.add(slice_of(3, 1, 2, 4))
        assert complete is not None
        assert complete.offsets == (3, 4)

    def test_a_message_that_is_given_up_and_is_gone_tells_its_offsets(self) -> None:
        units = Units(nothing, max_bytes=0)
        for offset in (4, 6):
            assert units.add(slice_of(1, offset, 10, offset)) is None
        lost: list[tuple[tuple[str, int], int]] = []
        assert [*units.give_up(lost=lambda *where: lost.append(where))] == []
        assert lost == [(("orders", 0), 4), (("orders", 0), 6)]

    def test_a_slice_is_what_whoever_makes_units_says(self) -> None:
        units = Units(nothing, part_of=lambda _: None)
        assert [units.add(slice_of(1, 0, 2, 0)) is None, len(units)] == [False, 0]

    def test_one_message_of_more_slices_than_there_is_room_for_is_never_complete(self) -> None:
        units = Units(nothing, max_remembered=10)
        found = [units.add(slice_of(1, index, 20, index)) for index in range(20)]
        assert {unit.problem for unit in found if unit is not None} == {"stray"}


class TestRoom:
    @given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 4)), max_size=80))
    def test_is_all_given_back(self, arrivals: list[tuple[int, int]]) -> None:
        room, messages = Room(200), dict[int, SlicedMessage]()
        for offset, (number, index) in enumerate(arrivals):
            if number not in messages:
                assert room.take()
                messages[number] = SlicedMessage(part(number, index, 5), offset, room)
            messages[number].add(part(number, index, 5), offset)
        for message in messages.values():
            message.forget()
        assert room.left == 200
