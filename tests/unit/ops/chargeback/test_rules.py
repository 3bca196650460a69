from __future__ import annotations

from datetime import UTC, datetime
from random import Random
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headerware import Headers
from headerware.ops.chargeback.rules import (
    Line,
    Named,
    Sum,
    added,
    hour_begin,
    hour_number,
    named_reader,
    usage_of,
)
from headerware.registry.names import default_names
from headerware.registry.wire.codec import HeaderIdCodec

NAMES = default_names()
READ = named_reader(NAMES)
TRAIL = b"1,at=1767225600000;by=checkout;in=east"


class TestHourNumber:
    @pytest.mark.parametrize(
        ("timestamp_ms", "hour"),
        [(-1, None), (0, 0), (3_599_999, 0), (3_600_000, 1), (253_370_764_799_999, 70_380_767)],
    )
    def test_is_that_of_the_epoch(self, timestamp_ms: int, hour: int | None) -> None:
        assert hour_number(timestamp_ms) == hour

    @pytest.mark.parametrize("timestamp_ms", [253_370_764_800_000, 2**62])
    def test_is_none_where_no_calendar_reaches(self, timestamp_ms: int) -> None:
        assert hour_number(timestamp_ms) is None
        assert hour_begin(None) is None

    def test_begins_in_utc(self) -> None:
        assert hour_begin(1) == datetime(1970, 1, 1, 1, tzinfo=UTC)


class TestNamedReader:
    def test_reads_the_last_of_each(self) -> None:
        headers = [("hw.owner", b"old"), ("x", b"y"), ("hw.owner", b"shop"), ("hw.trail", TRAIL)]
        assert READ(headers) == Named(b"shop", b"1,at=0;by=checkout", None)

    @pytest.mark.parametrize("form", ["keys", "packed"])
    def test_reads_ids_of_both_forms(self, form: Literal["keys", "packed"]) -> None:
        sent = Headers([("hw.owner", b"shop"), ("hw.slice", b"s"), ("hw.trail", TRAIL), ("q", None)])
        wire = HeaderIdCodec(NAMES.id_of, NAMES.name_of, form=form).encode(sent)
        assert list(wire) != list(sent)
        assert READ(list(wire)) == READ(list(sent)) == Named(b"shop", b"1,at=0;by=checkout", b"s")

    def test_says_that_a_block_cannot_be_read(self) -> None:
        assert READ([("hw.owner", b"shop"), ("hw.ids", b"1~~")]) == Named(broken=True)


def line(owner: str | None, *, first: bool = False, message: bytes | None = b"m", partition: int = 0) -> Line:
    return Line(1, "orders", owner, None, "in", None, "records", partition, message, first)


class TestUsageOf:
    def test_gives_slices_the_names_of_the_first(self) -> None:
        (row,) = usage_of([(line("relay"), Sum(3, 30)), (line("shop", first=True), Sum(1, 10))])
        assert (row.owner, row.records, row.bytes) == ("shop", 4, 40)

    def test_leaves_slices_without_a_first_their_own(self) -> None:
        rows = usage_of([(line("relay"), Sum(3, 30)), (line("shop", first=True, message=b"n"), Sum(1, 10))])
        assert {(row.owner, row.records) for row in rows} == {("relay", 3), ("shop", 1)}

    def test_a_message_is_one_of_its_partition(self) -> None:
        rows = usage_of([(line(None), Sum(3, 30)), (line("shop", first=True, partition=1), Sum(1, 10))])
        assert {(row.owner, row.records) for row in rows} == {(None, 3), ("shop", 1)}

    def test_of_several_first_slices_the_least_counts(self) -> None:
        lines = [(line(name, first=True), Sum(1, 1)) for name in ("b", "a")] + [(line(None), Sum(2, 2))]
        assert {(row.owner, row.records) for row in usage_of(lines)} == {("a", 3), ("b", 1)}

    def test_what_is_not_known_of_one_is_not_known_of_both(self) -> None:
        assert added(Sum(1, None), Sum(2, 5, 1)) == Sum(3, None, 1)
        assert added(Sum(None, 1), Sum(2, 5)) == Sum(None, 6)

    @given(
        st.lists(
            st.tuples(
                st.sampled_from(["a", "b", None]),
                st.sampled_from([None, b"m", b"n"]),
                st.booleans(),
                st.integers(0, 5),
            ),
            max_size=30,
        ),
        st.randoms(use_true_random=False),
    )
    def test_neither_order_nor_pieces_matter(
        self, records: list[tuple[str | None, bytes | None, bool, int]], random: Random
    ) -> None:
        lines = [
            (line(owner, message=message, first=first and message is not None), Sum(1, size))
            for owner, message, first, size in records
        ]
        pieces: dict[Line, Sum] = {}
        for each, own in random.sample(lines, len(lines)):
            pieces[each] = added(pieces[each], own) if each in pieces else own
        assert sorted(map(repr, usage_of(pieces.items()))) == sorted(map(repr, usage_of(lines)))
