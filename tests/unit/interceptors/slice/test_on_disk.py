"""Every step that says it takes values on disk does, up to the application."""

from __future__ import annotations

import pkgutil
from typing import Any

import pytest

from headerware import Chain, Context, Record, StoredBytes
from headerware.interceptors import (
    Audit,
    Dedup,
    Delay,
    Expire,
    Lineage,
    Metrics,
    Slice,
    Trace,
    Trail,
)
from headerware.interceptors.built_in import INTERCEPTORS

STEPS: list[Any] = [Audit(), Dedup(), Delay(), Expire(), Lineage(), Metrics(), Trace(), Trail()]
VALUE = bytes(range(256)) * 20


class TestStepsThatTakeValuesOnDisk:
    @pytest.mark.parametrize("step", STEPS, ids=lambda step: step.type)
    def test_give_them_on(self, step: Any) -> None:
        with Chain([step, Slice(max_bytes=2_000)]).open(Context(side="producer")) as session:
            pieces = session.send([Record("orders", VALUE, b"k")])
        chain = Chain([step, Slice(stream_above_bytes=2_000)])
        with chain.open(Context(side="consumer", publish=lambda _: None)) as session:
            placed = [piece.replace(partition=0, offset=at) for at, piece in enumerate(pieces)]
            (record,) = session.consume(placed)
            assert isinstance(record.value, StoredBytes)
            assert bytes(record.value) == VALUE
            with session.processing([record]):
                pass

    def test_are_all_that_say_so(self) -> None:
        classes = {word: pkgutil.resolve_name(place) for word, place in INTERCEPTORS.items()}
        assert {word for word, found in classes.items() if found.streams} == {step.type for step in STEPS}
