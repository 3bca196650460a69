"""Slice on consume: whole messages, lies, limits and offsets."""

from __future__ import annotations

import logging
import tracemalloc
from base64 import b64encode
from typing import Any

import pytest

from headerware.core.chain import Chain
from headerware.core.context import Context
from headerware.core.errors import ReassemblyError
from headerware.core.headers import Headers
from headerware.core.hooks import DROP, FanOut
from headerware.core.record import Record
from headerware.interceptors.slice.header import SLICE_HEADER, SliceHeader
from headerware.interceptors.slice.interceptor import Slice, SliceStep
from headerware.interceptors.slice.reassembly import MAX_CLOSED, MAX_SPANS

SIZE = 10
TOPIC = "orders"


def identity(number: int) -> bytes:
    return number.to_bytes(16, "big")


def message(number: int, count: int = 3, *, headers: Headers | None = None) -> list[Record]:
    """Split a message by hand: full slices of ten bytes, a last one of four."""
    value = bytes([65 + number % 26]) * (SIZE * (count - 1) + 4)
    return [
        Record(
            TOPIC,
            value[index * SIZE : (index + 1) * SIZE],
            b"key",
            Headers(
                [
                    *(headers or ()),
                    (SLICE_HEADER, SliceHeader(identity(number), index, count, len(value), SIZE).encode()),
                ]
            ),
            timestamp_ms=1_000 + index,
            timestamp_type=1,
        )
        for index in range(count)
    ]


def at(record: Record, offset: int, partition: int = 0) -> Record:
    return record.replace(partition=partition, offset=offset, leader_epoch=offset + 100)


def plain(offset: int, partition: int = 0) -> Record:
    return Record(TOPIC, b"plain", partition=partition, offset=offset)


def lying(record: Record, **changes: Any) -> Record:
    """Rewrite fields of a slice's header, false ones too."""
    header = SliceHeader.decode(record.headers.last(SLICE_HEADER))
    fields = {name: changes.get(name, getattr(header, name)) for name in header.__struct_fields__}
    wire = b"\1" + fields["message_id"]
    for name, width in (("index", 4), ("count", 4), ("total_bytes", 8), ("slice_bytes", 4)):
        wire += fields[name].to_bytes(width, "big")
    return record.replace(headers=record.headers.put(SLICE_HEADER, b64encode(wire)))


def opened(now: list[int] | None = None, **options: Any) -> SliceStep:
    clock = now or [0]
    return Slice(**options).open(Context(now_ms=lambda: clock[0]))


def feed(step: SliceStep, *records: Record) -> list[Record]:
    given: list[Record] = []
    for record in records:
        result = step.on_consume(record)
        if result is not DROP:
            given.extend([result] if isinstance(result, Record) else result)
    return given


class TestWholeMessages:
    def test_waits_until_the_last_slice(self) -> None:
        step = opened()
        first, second, third = message(1)
        assert step.on_consume(first) == []
        assert step.on_consume(second) == []
        assert [whole.value for whole in feed(step, third)] == [b"B" * 24]

    def test_takes_the_start_of_the_first_and_the_position_of_the_last(self) -> None:
        sent = message(1, headers=Headers([("a", b"1"), ("b", None)]))
        local = {"verified": True}
        sent[0] = sent[0].replace(local=local)
        (whole,) = feed(opened(), *(at(piece, 7 + index) for index, piece in enumerate(sent)))
        assert whole == Record(
            TOPIC, b"B" * 24, b"key", Headers([("a", b"1"), ("b", None)]), 0, 1_000, 1, 9, 109, local
        )

    def test_a_plain_record_is_the_very_same(self) -> None:
        step = opened()
        record = plain(5)
        assert step.on_consume(record) is record
        feed(step, at(message(1)[0], 6))
        assert step.on_consume(record) is record

    def test_out_of_order(self) -> None:
        sent = message(1, 5)
        (whole,) = feed(opened(), *(at(sent[index], 20 + n) for n, index in enumerate((3, 1, 4, 0, 2))))
        assert (whole.value, whole.offset, whole.timestamp_ms) == (b"B" * 44, 24, 1_000)

    def test_interleaved(self) -> None:
        one, two = message(1), message(2)
        given = feed(opened(), one[0], two[0], one[1], two[1], two[2], one[2])
        assert [whole.value for whole in given] == [b"C" * 24, b"B" * 24]

    def test_one_slice(self) -> None:
        assert [whole.value for whole in feed(opened(), *message(1, 1))] == [b"BBBB"]

    def test_partitions_do_not_mix(self) -> None:
        step = opened()
        sent = message(1)
        assert feed(step, at(sent[0], 1, 0), at(sent[1], 1, 1), at(sent[2], 2, 1)) == []
        (whole,) = feed(step, at(sent[0], 3, 1))
        assert (whole.partition, whole.value) == (1, b"B" * 24)
        assert step.safe_offsets() == {(TOPIC, 0): 1}

    def test_topics_do_not_mix(self) -> None:
        sent = message(1)
        assert feed(opened(), sent[0], sent[1].replace(topic="other"), sent[2]) == []

    def test_duplicates_are_ignored_and_counted(self) -> None:
        step = opened()
        one, two, three = message(1)
        given = feed(step, one, one, three, three, two)
        assert [whole.value for whole in given] == [b"B" * 24]
        assert step.stats()["duplicates"] == 2

    def test_a_set_that_comes_twice_is_delivered_twice(self) -> None:
        assert len(feed(opened(), *message(1), *message(1))) == 2

    def test_strays_of_a_delivered_message_are_no_error(self) -> None:
        now = [0]
        step = opened(now)
        feed(step, *message(1), *message(1)[:2])
        assert step.poll(300_000) == []
        stats = step.stats()
        assert (stats["duplicates"], stats["orphans"], stats["pending_messages"]) == (2, 0, 0)

    def test_works_in_a_chain(self) -> None:
        with Chain([Slice()]).open() as session:
            first, second, last = session.consume_outcomes(message(1))
        assert (first, second) == ([], [])
        assert isinstance(last, list)
        assert last[0].value == b"B" * 24


class TestLies:
    @pytest.mark.parametrize(
        ("changes", "match"),
        [
            ({"index": 3}, "index 3 of 3"),
            ({"index": 2**32 - 1}, "index"),
            ({"count": 2}, "count of 2"),
            ({"count": 2**32 - 1}, "count of 4294967295"),
            ({"total_bytes": 0}, "neither may be 0"),
            ({"slice_bytes": 0}, "neither may be 0"),
            ({"total_bytes": 25}, "earlier slices stated 3 slices, 24 bytes"),
            ({"count": 4, "total_bytes": 34}, "earlier slices stated 3 slices, 24 bytes"),
            ({"slice_bytes": 9}, "has 10 bytes"),
            ({"count": 2, "slice_bytes": 14}, "earlier slices stated 3 slices, 24 bytes"),
            ({"total_bytes": 2**64 - 1}, "make"),
        ],
        ids=str,
    )
    def test_takes_the_message_with_it(self, changes: dict[str, int], match: str) -> None:
        step = opened()
        one, two, three = message(1)
        feed(step, at(one, 1))
        with pytest.raises(ReassemblyError, match=match):
            step.on_consume(at(lying(two, **changes), 2))
        assert step.safe_offsets() == {}
        assert feed(step, at(two, 3), at(three, 4), at(one, 5)) == []
        stats = step.stats()
        assert (stats["late"], stats["pending_messages"], stats["pending_bytes"]) == (3, 0, 0)

    @pytest.mark.parametrize(
        "value", [b"", None, b"x" * 9, b"x" * 11], ids=["empty", "null", "short", "long"]
    )
    @pytest.mark.parametrize("index", [0, 1, 2])
    def test_wrong_length(self, value: bytes | None, index: int) -> None:
        with pytest.raises(ReassemblyError, match=f"slice {index} has {len(value or b'')} bytes"):
            opened().on_consume(message(1)[index].replace(value=value))

    def test_another_slice_length_that_makes_the_same_count(self) -> None:
        step = opened()
        feed(step, message(1)[0])
        liar = lying(message(1)[1], slice_bytes=9).replace(value=b"x" * 9)
        with pytest.raises(
            ReassemblyError, match=r"in slices of 9; earlier slices stated 3 slices, 24 bytes in slices of 10"
        ):
            step.on_consume(liar)

    def test_a_duplicate_of_another_length(self) -> None:
        step = opened()
        feed(step, message(1)[0])
        with pytest.raises(ReassemblyError, match="slice 0 has 3 bytes"):
            step.on_consume(message(1)[0].replace(value=b"abc"))

    def test_totals_above_the_limit(self) -> None:
        record = lying(message(1)[0], count=100_000, total_bytes=10**14, slice_bytes=10**9)
        with pytest.raises(ReassemblyError, match="max_message_bytes is 268435456"):
            opened().on_consume(record)

    @pytest.mark.parametrize(
        "wire", [None, b"", b"\1", b64encode(b"\2" + bytes(36)), b64encode(b"\1" + bytes(37))]
    )
    def test_no_header_at_all(self, wire: bytes | None) -> None:
        with pytest.raises(ReassemblyError):
            opened().on_consume(Record(TOPIC, b"x", headers=Headers([(SLICE_HEADER, wire)])))

    def test_two_headers(self) -> None:
        record = message(1)[0]
        twice = record.replace(headers=record.headers.append(record.headers[-1]))
        with pytest.raises(ReassemblyError, match=r"one hw\.slice header, found 2"):
            opened().on_consume(twice)

    def test_leaves_other_messages_alone(self) -> None:
        step = opened()
        feed(step, *message(2)[:2], message(1)[0])
        with pytest.raises(ReassemblyError):
            step.on_consume(lying(message(1)[1], index=9))
        assert len(feed(step, message(2)[2])) == 1

    def test_the_session_tells_where(self) -> None:
        with Chain([Slice()]).open() as session:
            error = session.consume_outcome(at(lying(message(1)[1], index=9), 77, 3))
        assert isinstance(error, ReassemblyError)
        assert (error.step, error.topic, error.partition, error.offset) == ("slice", TOPIC, 3, 77)


class TestExpiry:
    def test_by_time_since_the_last_slice(self) -> None:
        now = [0]
        step = opened(now, expire_ms=1_000)
        feed(step, at(message(1)[0], 5))
        now[0] = 900
        feed(step, plain(6), at(message(1)[1], 7))
        assert step.poll(1_899) == []
        (error,) = step.poll(1_900)
        assert (error.topic, error.partition, error.offset) == (TOPIC, 0, 5)
        assert "2 of 3 slices came" in str(error)
        assert "1000 ms" in str(error)
        assert step.poll(9_999) == []
        assert step.stats()["expired"] == 1

    def test_messages_expire_one_by_one(self) -> None:
        now = [0]
        step = opened(now, expire_ms=1_000)
        feed(step, at(message(1)[0], 1))
        now[0] = 500
        feed(step, at(message(2)[0], 2))
        assert [error.offset for error in step.poll(1_000)] == [1]
        assert [error.offset for error in step.poll(1_500)] == [2]

    @pytest.mark.parametrize("passing", [plain, lambda offset: at(message(2)[0], offset)])
    def test_by_gap(self, passing: Any) -> None:
        step = opened(max_gap=100)
        feed(step, at(message(1)[0], 5), at(message(1)[1], 8), passing(108))
        assert step.poll(0) == []
        feed(step, passing(109))
        (error,) = step.poll(0)
        assert (error.offset, "2 of 3" in str(error), "max_gap" in str(error)) == (5, True, True)

    def test_gap_of_another_partition_does_not_count(self) -> None:
        step = opened(max_gap=100)
        feed(step, at(message(1)[0], 5), plain(5_000, 1))
        assert step.poll(0) == []

    def test_a_slice_behind_the_gap_comes_late(self) -> None:
        step = opened(max_gap=100)
        assert feed(step, at(message(1, 2)[0], 5), at(message(1, 2)[1], 106)) == []
        assert len(step.poll(0)) == 1
        assert step.stats()["late"] == 1

    def test_orphans_are_counted_and_logged_once(self, caplog: pytest.LogCaptureFixture) -> None:
        step = opened(expire_ms=1_000)
        with caplog.at_level(logging.WARNING, "headerware"):
            feed(step, at(message(1)[1], 1), at(message(1)[2], 2), at(message(2)[2], 3))
            assert step.poll(1_000) == []
        assert step.stats()["orphans"] == 2
        assert [log.getMessage()[:33] for log in caplog.records] == ["slices of a message in orders[0] "]

    def test_the_session_gives_the_error(self) -> None:
        with Chain([Slice(expire_ms=10)]).open(Context(now_ms=lambda: 0)) as session:
            session.consume([at(message(1)[0], 5)])
            (error,) = session.poll(10)
        assert isinstance(error, ReassemblyError)
        assert str(error).startswith("slice at orders[0]@5: 1 of 3")


class TestCaps:
    def test_the_oldest_message_gives_way(self) -> None:
        step = opened(max_pending_messages=2)
        feed(step, *(at(message(n)[0], n) for n in (1, 2, 3)))
        (error,) = step.poll(0)
        assert (error.offset, "evicted" in str(error)) == (1, True)
        assert step.stats()["evicted"] == 1
        assert len(feed(step, *(at(piece, 9) for piece in message(2)[1:]))) == 1

    def test_what_comes_of_an_evicted_message_is_late(self) -> None:
        step = opened(max_pending_messages=1)
        feed(step, at(message(1)[0], 1), at(message(2)[0], 2), at(message(1)[1], 3))
        assert (step.stats()["late"], step.stats()["pending_messages"]) == (1, 1)

    def test_bytes_give_way_but_not_to_themselves(self) -> None:
        step = opened(max_message_bytes=30, max_pending_bytes=3_648)
        feed(step, at(message(1)[0], 1), at(message(2)[0], 2))
        assert step.stats()["evicted"] == 0
        given = feed(step, *(at(piece, 3) for piece in message(1)[1:]))
        assert len(given) == 1
        assert [error.offset for error in step.poll(0)] == [2]

    def test_headers_of_the_first_slice_count(self) -> None:
        step = opened(max_pending_bytes=50_000, max_message_bytes=100)
        large = Headers([("h", b"x" * 20_000)])
        feed(step, *(at(message(n, headers=large)[0], n) for n in range(3)))
        assert [error.offset for error in step.poll(0)] == [0]
        assert step.stats()["pending_bytes"] <= 50_000

    def test_a_message_that_never_fits_is_refused(self) -> None:
        step = opened(max_pending_bytes=2_000, max_message_bytes=100)
        with pytest.raises(ReassemblyError, match=r"max_pending_bytes \(2000\)"):
            step.on_consume(message(1, headers=Headers([("h", b"x" * 3_000)]))[0])
        assert step.stats()["pending_bytes"] == 0

    def test_errors_that_nobody_polls_are_bounded(self) -> None:
        step = opened(max_pending_messages=2)
        feed(step, *(at(message(n)[0], n) for n in range(4)))
        with pytest.raises(ReassemblyError, match=r"2 errors .* wait for poll"):
            step.on_consume(at(message(4)[0], 4))
        assert len(step.poll(0)) == 2
        assert step.on_consume(at(message(5)[0], 5)) == []

    def test_a_flood_of_orphans_holds_to_the_caps(self) -> None:
        step = opened(max_pending_bytes=2_000_000, max_message_bytes=1_000, max_pending_messages=10_000)
        # 99 slices of one byte each, of which only the second comes.
        flood = (
            Record(
                TOPIC,
                b"x",
                None,
                Headers([(SLICE_HEADER, SliceHeader(identity(n), 1, 99, 99, 1).encode())]),
                0,
                offset=n,
            )
            for n in range(MAX_CLOSED)
        )
        tracemalloc.start()
        for record in flood:
            step.on_consume(record)
            assert step.stats()["pending_bytes"] <= 2_000_000
        all_held, _ = tracemalloc.get_traced_memory()
        step._reassembler._closed.clear()
        pending, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert pending < 2_000_000
        assert all_held - pending < MAX_CLOSED * 400
        assert step.poll(0) == []
        assert step.stats()["orphans"] == MAX_CLOSED - step.stats()["pending_messages"]

    def test_declared_totals_allocate_nothing(self) -> None:
        step = opened()
        header = SliceHeader(identity(1), 0, 90_000, 2_000 * 90_000, 2_000)
        record = Record(TOPIC, b"x" * 2_000, headers=Headers([(SLICE_HEADER, header.encode())]))
        tracemalloc.start()
        step.on_consume(record)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 20_000


class TestMemory:
    def test_gluing_copies_the_value_once(self) -> None:
        size, step_bytes = 16 * 1024 * 1024, 512 * 1024
        count = size // step_bytes
        piece = bytes(step_bytes)
        records = [
            Record(
                TOPIC,
                piece,
                headers=Headers(
                    [(SLICE_HEADER, SliceHeader(identity(1), n, count, size, step_bytes).encode())]
                ),
            )
            for n in range(count)
        ]
        step = opened()
        tracemalloc.start()
        given = feed(step, *records)
        held, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert len(given[0].value) == size
        assert held < size * 1.01
        # The buffer grows by an eighth more than it needs.
        assert peak < size * 1.2

    def test_splitting_holds_one_slice_at_a_time(self) -> None:
        step = Slice(max_bytes=500_000).open(Context())
        record = Record(TOPIC, bytes(16 * 1024 * 1024))
        pieces = step.on_send(record)
        assert isinstance(pieces, FanOut)
        tracemalloc.start()
        for piece in pieces:
            del piece
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 1_100_000


class TestOffsets:
    def test_safe_offset_is_the_position_where_nothing_is_pending(self) -> None:
        step = opened()
        feed(step, plain(5))
        assert step.safe_offset(TOPIC, 0, 6) == 6
        assert step.safe_offsets() == {}

    def test_safe_offset_is_the_oldest_incomplete_start(self) -> None:
        step = opened()
        feed(step, at(message(1)[0], 10), at(message(2)[0], 11), at(message(1)[1], 12))
        assert [step.safe_offset(TOPIC, 0, position) for position in (9, 10, 11, 13)] == [9, 10, 10, 10]
        assert step.safe_offsets() == {(TOPIC, 0): 10}
        feed(step, at(message(1)[2], 13))
        assert step.safe_offset(TOPIC, 0, 14) == 11
        assert step.safe_offsets() == {(TOPIC, 0): 11}

    def test_a_position_inside_a_delivered_message_is_not_safe(self) -> None:
        step = opened()
        feed(step, *(at(piece, offset) for piece, offset in zip(message(1), (10, 12, 14), strict=True)))
        assert [step.safe_offset(TOPIC, 0, position) for position in (10, 11, 14, 15)] == [10, 10, 10, 15]

    def test_overlapping_messages(self) -> None:
        step = opened()
        one, two = message(1), message(2)
        order = (one[0], two[0], one[1], one[2], two[1], two[2])
        feed(step, *(at(piece, 10 + index) for index, piece in enumerate(order)))
        safe = [step.safe_offset(TOPIC, 0, position) for position in range(10, 17)]
        assert safe == [10, 10, 10, 10, 11, 11, 16]

    def test_other_partitions_are_not_held(self) -> None:
        step = opened()
        feed(step, at(message(1)[0], 10))
        assert step.safe_offset(TOPIC, 1, 50) == 50
        assert step.safe_offset("other", 0, 50) == 50

    def test_an_error_that_waits_for_poll_holds(self) -> None:
        step = opened(max_gap=100)
        feed(step, at(message(1)[0], 10), plain(200))
        assert step.safe_offset(TOPIC, 0, 201) == 10
        assert step.safe_offsets() == {(TOPIC, 0): 10}
        step.poll(0)
        assert step.safe_offset(TOPIC, 0, 201) == 201
        assert step.safe_offsets() == {}

    def test_without_offsets_nothing_is_kept(self) -> None:
        step = opened()
        assert len(feed(step, *message(1), message(2)[0])) == 1
        assert step.safe_offsets() == {}

    def test_spans_are_bounded(self) -> None:
        step = opened()
        for number in range(MAX_SPANS + 5):
            feed(step, *(at(piece, number * 2 + index) for index, piece in enumerate(message(number, 2))))
        offsets = step._reassembler._partitions[TOPIC, 0]
        assert len(offsets._spans) <= MAX_SPANS
        assert step.seek(TOPIC, 0, (MAX_SPANS + 4) * 2 + 1) == (MAX_SPANS + 4) * 2


class TestSeek:
    @pytest.mark.parametrize(("offset", "begin"), [(9, 9), (10, 10), (11, 10), (14, 10), (15, 15)])
    def test_begins_at_the_first_slice(self, offset: int, begin: int) -> None:
        step = opened()
        feed(step, *(at(piece, offset) for piece, offset in zip(message(1), (10, 12, 14), strict=True)))
        assert step.seek(TOPIC, 0, offset) == begin

    def test_the_message_comes_again(self) -> None:
        step = opened()
        sent = [at(piece, 10 + index) for index, piece in enumerate(message(1))]
        first = feed(step, *sent)
        assert step.seek(TOPIC, 0, 12) == 10
        assert feed(step, *sent) == first

    def test_unknown_partitions_begin_where_asked(self) -> None:
        assert opened().seek(TOPIC, 0, 12) == 12

    def test_forgets_what_is_read_again(self) -> None:
        step = opened()
        feed(step, at(message(1)[0], 10), at(message(2)[0], 10, 1))
        step.seek(TOPIC, 0, 10)
        assert step.safe_offsets() == {(TOPIC, 1): 10}
        assert len(feed(step, *(at(piece, 10) for piece in message(1)))) == 1

    def test_keeps_what_began_before(self) -> None:
        step = opened()
        feed(step, at(message(1)[0], 10), plain(11), at(message(1)[1], 12))
        assert step.seek(TOPIC, 0, 11) == 11
        given = feed(step, plain(11), at(message(1)[1], 12), at(message(1)[2], 13))
        assert [record.value for record in given] == [b"plain", b"B" * 24]

    def test_forgets_what_is_skipped_by_far(self) -> None:
        step = opened(max_gap=100)
        feed(step, at(message(1)[0], 10))
        step.seek(TOPIC, 0, 111)
        feed(step, plain(111))
        assert step.poll(0) == []
        assert step.safe_offsets() == {}

    def test_a_refused_message_may_come_again(self) -> None:
        step = opened()
        with pytest.raises(ReassemblyError):
            step.on_consume(at(lying(message(1)[0], index=5), 10))
        step.seek(TOPIC, 0, 5)
        assert len(feed(step, *(at(piece, 11) for piece in message(1)))) == 1


class TestRevoke:
    def test_forgets_the_partition(self) -> None:
        step = opened()
        feed(step, *(at(piece, 1 + index) for index, piece in enumerate(message(1))))
        feed(step, at(message(2)[0], 4), at(message(2)[0], 4, 1))
        step.revoke([(TOPIC, 0)])
        assert step.safe_offsets() == {(TOPIC, 1): 4}
        assert step.safe_offset(TOPIC, 0, 2) == 2
        assert step.seek(TOPIC, 0, 3) == 3
        assert step.stats()["pending_messages"] == 1

    def test_forgets_its_errors(self) -> None:
        step = opened(max_gap=10)
        feed(step, at(message(1)[0], 1), plain(50), at(message(1)[0], 1, 1), plain(50, 1))
        step.revoke([(TOPIC, 0)])
        assert [error.partition for error in step.poll(0)] == [1]

    def test_close_forgets_all(self) -> None:
        step = opened()
        feed(step, at(message(1)[0], 1))
        step.close()
        assert (step.safe_offsets(), step.poll(10**9), step.stats()["pending_bytes"]) == ({}, [], 0)


class TestAFirstSliceThatComesLate:
    @pytest.mark.parametrize("dead_letters", [False, True])
    def test_is_not_dropped_in_silence(self, dead_letters: bool) -> None:  # noqa: FBT001 - a parameter
        step = opened(max_gap=10, on_error="dead_letter" if dead_letters else "raise")
        first, second, third = message(1)
        feed(step, at(second, 0), at(third, 1), plain(20), at(first, 21), plain(40))
        (error,) = step.poll(0)
        assert "1 of 3 slices came" in str(error)
        assert error.offset == 21

    def test_makes_the_message_if_the_others_come_again(self) -> None:
        step = opened(max_gap=10)
        first, second, third = message(1)
        given = feed(step, at(third, 1), plain(20), at(first, 21), at(second, 22), at(third, 23))
        assert [len(record.value) for record in given] == [5, 24]
        assert step.poll(0) == []
