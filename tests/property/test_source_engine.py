"""The engine against a model: whatever happens, no record is lost, and transactions bring each one once."""

from __future__ import annotations

import io
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, BinaryIO, ClassVar

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headerware.core.errors import SourceError
from headerware.core.record import Record
from headerware.sources import ItemContext, MemoryOffsets, NativeItem, Source, SourceConfig
from headerware.sources.engine.batches import Batch
from headerware.sources.engine.task import SourceTask
from tests.spool import Lines
from tests.waiting import until

OBJECTS = st.dictionaries(
    st.sampled_from("abcdefgh"), st.lists(st.sampled_from(["x", "!"]), max_size=6), min_size=1, max_size=6
)
STEPS = st.lists(
    st.sampled_from(["poll", "poll", "acknowledge", "acknowledge any", "store", "kill", "fail"]), max_size=25
)
TOGETHER = st.sampled_from([1, 2, 3])
"""How many records an extractor gives at once."""
HELD: dict[str, list[str]] = {}
FAILS: list[OSError] = []


class Held(Source[str], frozen=True, kw_only=True):
    type: ClassVar[str] = "held"

    def items(self, start: str | None) -> Iterator[NativeItem]:
        for key in sorted(HELD):
            if start is None or key >= start:
                yield HeldItem(ItemContext(key=key, version="1"))


class HeldItem(NativeItem):
    def open_stream(self) -> BinaryIO:
        if FAILS:
            raise FAILS.pop()
        lines = [
            f"{line}{self.context.key}{number}\n" for number, line in enumerate(HELD[self.context.key], 1)
        ]
        return io.BytesIO("".join(lines).encode())


CONFIG = SourceConfig(
    name="held",
    source=Held(),
    extractor=Lines(),
    topic="t",
    on_record_error="drop",
    poll_records=2,
    queue_records=3,
    ring_buffer=2,
    poll_wait_s=0.002,
    listing_pause_s=0.01,
    retry_pause_s=0.001,
)


def expected() -> dict[str, list[str]]:
    """Return what must come out: the whole model."""
    return {
        key: [f"x{key}{number}" for number, line in enumerate(lines, 1) if line == "x"]
        for key, lines in HELD.items()
    }


def by_key(log: list[Record]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for record in log:
        found[(record.headers.last("hw.source.key") or b"").decode()].append(record.value.decode())
    return {key: found[key] for key in HELD}


class Process:
    """A process that may be killed at any point; the broker and the offsets outlive it."""

    def __init__(self, together: int) -> None:
        self.config = msgspec.structs.replace(CONFIG, extractor=Lines(together=together))
        self.offsets = MemoryOffsets()
        self.log: list[Record] = []
        self.task = self._started()

    def _started(self) -> SourceTask:
        self.sent: list[Batch] = []
        task = SourceTask(self.config, self.offsets)
        task.start()
        return task

    def kill(self) -> None:
        self.task.stop()
        self.task = self._started()

    def at_least_once(self, step: str, choose: Any) -> None:
        if step == "poll":
            self.sent += self.task.poll()
        elif step.startswith("acknowledge") and self.sent:
            at = choose(len(self.sent)) if step.endswith("any") else 0
            batch = self.sent.pop(at)
            self.log += batch.records  # the broker has it before the acknowledgement
            if choose(4):
                self.task.acknowledge(batch)
        elif step == "store":
            self.task.store_offsets()

    def exactly_once(self, step: str) -> None:
        if step == "poll":
            self.sent += self.task.poll()
        elif step == "store":  # one transaction
            for batch in self.sent:
                self.log += batch.records
                self.task.acknowledge(batch)
            self.sent = []
            self.task.store_offsets()

    def finish(self) -> None:
        self.kill()

        def transact() -> None:
            self.exactly_once("poll")
            self.exactly_once("store")

        until(self._is_complete, "every object complete", meanwhile=transact)
        self.task.stop()

    def _is_complete(self) -> bool:
        entries = [entry for _, entry in self.offsets.items()]
        return len(entries) == len(HELD) and all(entry.complete for entry in entries)


def run(objects: dict[str, list[str]], together: int = 1) -> Process:
    HELD.clear()
    FAILS.clear()
    HELD.update(objects)
    return Process(together)


@settings(max_examples=40)
@given(OBJECTS, STEPS, TOGETHER)
def test_transactions_bring_every_record_once_and_in_order(
    objects: dict[str, list[str]], steps: list[str], together: int
) -> None:
    process = run(objects, together)
    for step in steps:
        if step == "kill":
            process.kill()
        elif step == "fail":
            FAILS.append(OSError("as this test wants it"))
        else:
            process.exactly_once(step)
    process.finish()
    assert by_key(process.log) == expected()


@settings(max_examples=40)
@given(OBJECTS, STEPS, TOGETHER, st.data())
def test_without_transactions_nothing_is_lost(
    objects: dict[str, list[str]], steps: list[str], together: int, data: st.DataObject
) -> None:
    process = run(objects, together)
    for step in steps:
        if step == "kill":
            process.kill()
        elif step == "fail":
            FAILS.append(OSError("as this test wants it"))
        else:
            process.at_least_once(step, lambda count: data.draw(st.integers(0, count - 1)))
    process.finish()
    found = by_key(process.log)
    assert {key: sorted(set(values)) for key, values in found.items()} == {
        key: sorted(values) for key, values in expected().items()
    }


def test_a_store_that_fails_ends_nothing() -> None:
    process = run({"a": ["x"]})
    until(
        lambda: any(batch.is_last for batch in process.sent), meanwhile=lambda: process.exactly_once("poll")
    )
    put = process.offsets.put
    process.offsets.put = _refused  # type: ignore[method-assign]  # as if the disk were full
    with pytest.raises(SourceError):
        process.exactly_once("store")
    process.offsets.put = put  # type: ignore[method-assign]
    process.task.store_offsets()
    assert process._is_complete()


def _refused(entries: object) -> None:
    raise SourceError("as this test wants it")
