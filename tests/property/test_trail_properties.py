from __future__ import annotations

from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from headerware.core.context import Context
from headerware.core.errors import WireFormatError
from headerware.core.headers import Headers
from headerware.core.record import Record
from headerware.interceptors.trail import (
    TRAIL_HEADER,
    Trail,
    TrailEntry,
    TrailReading,
    decode_trail,
    encode_trail,
    read_trail,
)
from headerware.interceptors.trail_timeline import timeline

texts = st.none() | st.text(st.characters(codec="utf-8"), max_size=20)
entries = st.builds(
    TrailEntry,
    by_whom=texts,
    produced_into_cluster=texts,
    produced_into_topic=texts,
    when_ms=st.integers(-(2**63), 2**63 - 1),
    read_from_cluster=texts,
    read_from_topic=texts,
)
readings = st.builds(TrailReading, st.lists(entries, max_size=6).map(tuple), st.integers(0, 65_535))


class TestTrailProperties:
    @given(readings)
    def test_any_trail_comes_back(self, reading: TrailReading) -> None:
        assert decode_trail(encode_trail(reading)) == reading

    @given(readings)
    def test_any_trail_is_text_that_prints(self, reading: TrailReading) -> None:
        assert encode_trail(reading).decode("ascii").isprintable()

    @given(
        st.binary(max_size=200)
        | st.from_regex(rb"1(,at=[a-z0-9%;=/?,]{0,20}){0,4}")
        | readings.map(encode_trail),
        st.binary(max_size=4),
        st.integers(0, 60),
    )
    def test_garbage_is_refused_or_read_and_told(self, value: bytes, junk: bytes, cut: int) -> None:
        with suppress(WireFormatError):
            reading = decode_trail(value[: max(0, len(value) - cut)] + junk)
            assert encode_trail(reading) == value[: max(0, len(value) - cut)] + junk, "it has one spelling"
            assert all(str(step).isprintable() for step in timeline(reading))

    @given(st.lists(st.booleans(), max_size=40), st.integers(2, 6))
    def test_no_walk_passes_the_bounds_or_loses_the_count(self, walk: list[bool], max_entries: int) -> None:
        step = Trail(service="s", max_entries=max_entries).open(Context())
        record, made, read_last = Record("t", b""), 0, False
        for sends in walk:
            record = step.on_send(record) if sends else step.on_consume(record)
            made += not (sends and read_last)
            read_last = not sends
            trail = read_trail(record.headers)
            assert len(trail) == min(made, max_entries)
            assert trail.left_out == made - len(trail)

    @given(readings, st.booleans())
    def test_hooks_keep_what_they_find(self, reading: TrailReading, sends: bool) -> None:  # noqa: FBT001 - drawn
        record = Record("t", b"", headers=Headers([(TRAIL_HEADER, encode_trail(reading))]))
        step = Trail(service="s", max_bytes=65_535).open(Context())
        found = read_trail((step.on_send(record) if sends else step.on_consume(record)).headers)
        kept = len(reading) - (len(found) == len(reading))
        assert found.entries[:kept] == reading.entries[:kept]
        assert len(found) in ({len(reading), len(reading) + 1} if sends else {len(reading) + 1})
