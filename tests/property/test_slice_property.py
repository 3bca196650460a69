"""Slices come back whole in any order, and nothing but the message is ever taken for it."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headerware.core.context import Context
from headerware.core.errors import ReassemblyError, WireFormatError
from headerware.core.headers import Headers
from headerware.core.hooks import DROP, FanOut
from headerware.core.record import Record
from headerware.interceptors.slice.header import SLICE_HEADER, SliceHeader
from headerware.interceptors.slice.interceptor import Slice, SliceStep

headers = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=20)), max_size=4)
sizes = st.integers(min_value=1_000, max_value=6_000)


def value_of(size: int, seed: int = 0) -> bytes:
    return bytes((index * 31 + index // 251 + seed) % 256 for index in range(size))


def pieces_of(record: Record) -> list[Record]:
    given_ = Slice(max_bytes=1_000).open(Context()).on_send(record)
    return list(given_) if isinstance(given_, FanOut) else [given_]


def reassembled(records: list[Record]) -> list[Record]:
    step = Slice().open(Context(now_ms=lambda: 0))
    placed = [record.replace(partition=0, offset=offset) for offset, record in enumerate(records)]
    return consumed(step, placed)


def consumed(step: SliceStep, records: list[Record]) -> list[Record]:
    whole: list[Record] = []
    for record in records:
        result = step.on_consume(record)
        assert result is not DROP
        whole.extend([result] if isinstance(result, Record) else result)
    return whole


class TestSliceRoundTrip:
    @given(size=sizes, pairs=headers, key=st.none() | st.binary(max_size=30), data=st.data())
    def test_any_order_gives_the_message(self, size: int, pairs: Any, key: bytes | None, data: Any) -> None:
        record = Record("t", value_of(size), key, Headers(pairs), timestamp_ms=5)
        order = data.draw(st.permutations(pieces_of(record)))
        (whole,) = reassembled(order)
        assert whole == record.replace(partition=0, offset=len(order) - 1)

    @given(size=sizes, data=st.data())
    def test_duplicates_change_nothing(self, size: int, data: Any) -> None:
        pieces = pieces_of(Record("t", value_of(size)))
        doubled = data.draw(st.permutations([*pieces[1:], *pieces[:-1]]))
        (whole,) = reassembled(
            [pieces[0], *(piece for piece in doubled if piece is not pieces[-1]), pieces[-1]]
        )
        assert whole.value == value_of(size)

    @given(sizes_=st.lists(sizes, min_size=2, max_size=4), data=st.data())
    def test_interleaved_messages(self, sizes_: list[int], data: Any) -> None:
        values = [value_of(size, seed) for seed, size in enumerate(sizes_)]
        pieces = [piece for value in values for piece in pieces_of(Record("t", value))]
        whole = reassembled(data.draw(st.permutations(pieces)))
        assert sorted(record.value for record in whole) == sorted(values)

    @given(size=sizes, data=st.data())
    def test_a_missing_slice_gives_nothing(self, size: int, data: Any) -> None:
        pieces = pieces_of(Record("t", value_of(size)))
        del pieces[data.draw(st.integers(0, len(pieces) - 1))]
        assert reassembled(pieces) == []


class TestSliceAttacks:
    @given(size=sizes, data=st.data())
    def test_flipped_bits_never_give_a_wrong_message(self, size: int, data: Any) -> None:
        value = value_of(size)
        pieces = pieces_of(Record("t", value))
        victim = data.draw(st.integers(0, len(pieces) - 1))
        bit = data.draw(st.integers(0, 37 * 8 - 1))
        wire = bytearray(pieces[victim].headers.last(SLICE_HEADER) or b"")
        wire[bit // 8] ^= 1 << bit % 8
        pieces[victim] = pieces[victim].replace(headers=pieces[victim].headers.put(SLICE_HEADER, bytes(wire)))
        step = Slice().open(Context(now_ms=lambda: 0))
        for piece in data.draw(st.permutations(pieces)):
            try:
                assert step.on_consume(piece) == []
            except ReassemblyError:
                continue

    @given(wire=st.binary(max_size=60) | st.binary(min_size=36, max_size=36).map(lambda rest: b"\1" + rest))
    def test_garbage_is_refused_or_makes_sense(self, wire: bytes) -> None:
        try:
            header = SliceHeader.decode(wire)
        except WireFormatError:
            return
        assert header.encode() == wire

    @given(
        message_id=st.binary(min_size=16, max_size=16),
        total=st.integers(1, 2**64 - 1),
        slice_bytes=st.integers(1, 2**32 - 1),
        data=st.data(),
    )
    def test_headers_round_trip(self, message_id: bytes, total: int, slice_bytes: int, data: Any) -> None:
        total = min(total, slice_bytes * 100_000)
        count = -(-total // slice_bytes)
        header = SliceHeader(message_id, data.draw(st.integers(0, count - 1)), count, total, slice_bytes)
        assert SliceHeader.decode(header.encode()) == header


class TestSliceOffsets:
    @given(sizes_=st.lists(sizes, min_size=1, max_size=4), data=st.data())
    def test_a_restart_at_the_safe_offset_loses_nothing(self, sizes_: list[int], data: Any) -> None:
        values = [value_of(size, seed) for seed, size in enumerate(sizes_)]
        log = data.draw(
            st.permutations([piece for value in values for piece in pieces_of(Record("t", value))])
        )
        log = [piece.replace(partition=0, offset=offset) for offset, piece in enumerate(log)]
        read = data.draw(st.integers(0, len(log)))
        position = data.draw(st.integers(0, read))
        step = Slice().open(Context(now_ms=lambda: 0))
        before = consumed(step, log[:read])
        done = {whole.value for whole in before if whole.offset is not None and whole.offset < position}
        safe = step.safe_offset("t", 0, position)
        again = Slice().open(Context(now_ms=lambda: 0))
        after = {whole.value for whole in consumed(again, log[safe:])}
        assert done | after == set(values)
