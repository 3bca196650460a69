from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headerware.core.context import Context
from headerware.core.errors import InterceptorError, WireFormatError
from headerware.core.headers import Headers
from headerware.core.hooks import DROP
from headerware.core.record import Record
from headerware.interceptors.dedup.identity import ID_HEADER, Identity
from headerware.interceptors.dedup.interceptor import Dedup, DedupStep
from tests.batches import accepted_together

sixteen = st.binary(min_size=16, max_size=16)
identities = st.builds(Identity.numbered, sixteen, st.integers(0, 2**64 - 1)) | st.builds(
    Identity, sixteen, st.none(), sixteen
)
places = st.tuples(st.sampled_from(["orders", "mirror"]), st.integers(0, 2), st.integers(0, 8))
few = st.integers(0, 4)
readings = st.lists(st.tuples(few, places), max_size=40)
"""(sequence, place): what a consumer reads, in any order, with rewinds."""


def come(sequence: int, place: tuple[str, int, int]) -> Record:
    topic, partition, offset = place
    value = Identity.numbered(bytes(16), sequence).encode()
    return Record(topic, b"v", headers=Headers([(ID_HEADER, value)]), partition=partition, offset=offset)


def expected(reading: list[tuple[int, tuple[str, int, int]]]) -> list[bool]:
    """Say of each record whether it is a copy: the first place of an identity is the one that counts."""
    first: dict[int, tuple[str, int, int]] = {}
    return [first.setdefault(sequence, place) != place for sequence, place in reading]


def took(step: DedupStep, record: Record) -> Any:
    """Return what becomes of a record that no other step refuses."""
    outcome: Any = step.on_consume(record)
    on_accepted = getattr(step, "on_accepted", None)
    return on_accepted(outcome) if on_accepted is not None and outcome is not DROP else outcome


def took_all(step: DedupStep, records: list[Record]) -> list[Any]:
    return accepted_together(step, [step.on_consume(record) for record in records])  # type: ignore[misc]  # none is dropped before


class TestDedupProperties:
    @given(identities)
    def test_any_identity_comes_back(self, identity: Identity) -> None:
        assert Identity.decode(identity.encode()) == identity

    @given(
        st.binary(max_size=60) | identities.map(Identity.encode), st.binary(max_size=3), st.integers(0, 40)
    )
    def test_garbage_is_refused_or_read_and_told(self, value: bytes, junk: bytes, cut: int) -> None:
        value = value[: max(0, len(value) - cut)] + junk
        step = Dedup().open(Context())
        record = Record("orders", b"v", headers=Headers([(ID_HEADER, value)]))
        with contextlib.suppress(WireFormatError):
            assert Identity.decode(value).encode() == value
            assert took(step, record).replace(local=None) == Record("orders", b"v")
            return
        with pytest.raises(InterceptorError):
            step.on_consume(record)

    @given(readings)
    def test_memory_drops_what_stood_first_elsewhere(
        self, reading: list[tuple[int, tuple[str, int, int]]]
    ) -> None:
        step = Dedup().open(Context())
        found = [took(step, come(*item)) is DROP for item in reading]
        assert found == expected(reading)

    @given(readings, st.integers(1, 40), st.integers(0, 40))
    def test_a_store_does_the_same_in_batches_and_across_restarts(
        self, reading: list[tuple[int, tuple[str, int, int]]], size: int, singles: int
    ) -> None:
        found: list[bool] = []
        with tempfile.TemporaryDirectory() as folder:
            options = Dedup(store=str(Path(folder) / "ids.db"))
            with contextlib.closing(options.open(Context())) as step:
                found += [took(step, come(*item)) is DROP for item in reading[:singles]]
            for start in range(singles, len(reading), size):
                with contextlib.closing(options.open(Context())) as step:
                    batch = [come(*item) for item in reading[start : start + size]]
                    found += [outcome is DROP for outcome in took_all(step, batch)]
        assert found == expected(reading)

    @given(st.lists(st.tuples(st.integers(0, 30), places), max_size=80), st.integers(1, 5))
    def test_a_small_window_never_drops_what_a_large_one_delivers(
        self, reading: list[tuple[int, tuple[str, int, int]]], window: int
    ) -> None:
        # Forgetting may only let copies pass: one that is dropped stood elsewhere before.
        step = Dedup(window=window, max_identities=2 * window).open(Context())
        stood: dict[int, set[tuple[str, int, int]]] = {}
        for sequence, place in reading:
            dropped = took(step, come(sequence, place)) is DROP
            assert not dropped or stood.get(sequence, set()) - {place}
            stood.setdefault(sequence, set()).add(place)
