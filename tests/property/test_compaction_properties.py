"""Compaction by header: what is kept of any history, however it is read, killed and learned again."""

from __future__ import annotations

import random
import tempfile
from collections import defaultdict
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headerware.core.headers import Headers
from headerware.core.record import Record
from headerware.interceptors.slice.header import SLICE_HEADER, SliceHeader
from headerware.ops.compaction.rules import OLDEST, Judged, Rule, judge, judged_message
from headerware.ops.compaction.winners import Winners
from headerware.workers.done import Done
from headerware.workers.units import Unit, Units

Version = int | str | None
VERSIONS = st.integers(-2, 2) | st.sampled_from(["bad", None])
KEYS = st.sampled_from([b"a", b"b", None])
COUNT = 2
KEY = ("orders", 0)


class Event(NamedTuple):
    """A record, or one of the two slices of a message."""

    key: bytes | None
    version: Version
    message: int | None = None
    number: int = 0


MESSAGES = st.lists(st.tuples(KEYS, VERSIONS), min_size=3, max_size=3)
SINGLES = st.tuples(KEYS, VERSIONS).map(lambda pair: Event(*pair))
SLICES = st.tuples(st.integers(0, 2), st.integers(0, COUNT - 1)).map(lambda pair: Event(None, None, *pair))
HISTORIES = st.lists(SINGLES | SLICES, max_size=24)


def history(events: list[Event], messages: list[tuple[bytes | None, Version]]) -> list[Event]:
    """Give the slices of a message its key and version."""
    return [e if e.message is None else Event(*messages[e.message], e.message, e.number) for e in events]


def model(events: list[Event], *, missing: int | None) -> tuple[dict[bytes, Any], list[tuple[int, ...]]]:
    """Return the winner of each key as (version, offset, its slices), and what is left unresolved."""
    best: dict[bytes, Any] = {}
    unresolved: list[tuple[int, ...]] = []
    parts: defaultdict[int, dict[int, int]] = defaultdict(dict)
    for offset, (key, stated, message, number) in enumerate(events):
        of = {0: offset} if message is None else parts[message]
        of.setdefault(number, offset)
        if (message is not None and len(of) < COUNT) or offset not in of.values():
            continue
        offsets = tuple(of[each] for each in sorted(of))
        of.clear()
        version = missing if stated is None else stated
        if key is None or not isinstance(version, int):
            unresolved.append(offsets)
        else:
            best[key] = max(best.get(key, (version, offset, offsets)), (version, offset, offsets))
    return best, unresolved


def record(event: Event, offset: int) -> Record:
    headers = []
    if event.version is not None and event.number == 0:
        headers.append(("version", str(event.version).encode()))
    if event.message is not None:
        header = SliceHeader(event.message.to_bytes(16), event.number, COUNT, 2 * COUNT, 2)
        headers.append((SLICE_HEADER, header.encode()))
    return Record("orders", b"v", event.key, Headers(headers), 0, offset=offset)


class Worker:
    """The worker without its clients: what it knows, what it has committed, and what it has written."""

    def __init__(self, path: str, records: list[Record], rule: Rule) -> None:
        self.path = path
        self.records = records
        self.rule = rule
        self.winners = Winners(path, "p")
        self.commit: tuple[int, str] | None = None
        self.written: list[tuple[int, ...]] = []
        self.unresolved: list[tuple[int, ...]] = []
        self.begin()

    def begin(self) -> None:
        """Begin where the group is done, with the slices that are pending there."""
        self.done = Done("p")
        self.read = self.done.begin(KEY, 0, len(self.records), self.commit)
        self.units = self.new_units()

    def new_units(self) -> Units:
        return Units(lambda _topic, _partition, offset: self.records[offset])

    @property
    def position(self) -> int:
        return self.done.position(KEY)

    def close(self) -> None:
        self.winners.close()

    def learn(self, end: int) -> None:
        units, learned = self.new_units(), list[Judged]()
        for each in self.records[self.winners.resume.get(0, 0) : end]:
            unit = units.add(each)
            if unit is not None and unit.problem is None:
                learned.append(self.judged(unit))
        self.winners.learn(learned)
        incomplete = [message.first for message in units.incomplete().get(KEY, [])]
        self.winners.learned_to({0: end}, {0: min(incomplete)} if incomplete else {})

    def judged(self, unit: Unit) -> Judged:
        found = [judge(each, self.rule) for each in unit.records]
        return found[0] if found[0].part is None else judged_message(found)

    def write(self, end: int, *, commits: bool) -> None:
        units: list[Unit] = []
        for each in self.records[self.read : end]:
            if not self.done.was_done(KEY, each.offset or 0):
                self.done.note(KEY, each.offset or 0, is_pending=True)
                units += [] if (unit := self.units.add(each)) is None else [unit]
        self.read = max(self.read, end)
        complete = [unit for unit in units if unit.problem is None]
        assert {unit.problem for unit in units} <= {None, "repeated"}
        judged = [self.judged(unit) for unit in complete]
        self.winners.learn(judged)
        verdicts = self.winners.verdicts(judged)
        if not commits:
            return
        for unit, verdict in zip(complete, verdicts, strict=True):
            self.written += [unit.offsets] if verdict.outcome == "wins" else []
            self.unresolved += [unit.offsets] if verdict.outcome == "unresolved" else []
        for unit in units:
            for offset in unit.offsets:
                self.done.note(KEY, offset)
        commit = self.done.commit_of(KEY)
        self.commit = commit.offset, commit.metadata or ""
        self.winners.written({0: self.position}, {0: commit.offset}, {})

    def restart(self, *, loses_store: bool) -> None:
        self.winners.close()
        if loses_store:
            Path(self.path).unlink()
        self.winners = Winners(self.path, "p")
        self.begin()
        if loses_store:
            copies = [
                judge(self.records[offset], self.rule) for offsets in self.written for offset in offsets
            ]
            self.winners.learn_copy(copies)
            self.learn(self.position)


@pytest.mark.parametrize("missing", ["unresolved", "oldest"])
@given(events=HISTORIES, messages=MESSAGES, rest=st.randoms(use_true_random=False))
def test_the_last_record_of_each_key_is_its_winner(
    missing: Any, events: list[Event], messages: list[tuple[bytes | None, Version]], rest: random.Random
) -> None:
    events = history(events, messages)
    rule = Rule(header="version", missing=missing)
    records = [record(event, offset) for offset, event in enumerate(events)]
    best, unresolved = model(events, missing=OLDEST if missing == "oldest" else None)
    with tempfile.TemporaryDirectory() as folder, closing(Worker(f"{folder}/store", records, rule)) as worker:
        while worker.position < len(events):
            end = rest.randint(worker.position, len(events))
            action = rest.choice(["learn", "write", "write", "kill", "lose"])
            if action == "learn":
                worker.learn(end)
            else:
                worker.write(end, commits=action == "write")
            if action in ("kill", "lose"):
                worker.restart(loses_store=action == "lose")
    last = {}
    for offsets in worker.written:
        last[events[offsets[0]].key] = offsets
    assert last == {key: offsets for key, (_, _, offsets) in best.items()}
    assert worker.unresolved == unresolved, "each once, in order"
    assert len(set(worker.written)) == len(worker.written), "nothing comes twice"


@given(events=HISTORIES, messages=MESSAGES)
def test_what_is_learned_first_is_written_once(
    events: list[Event], messages: list[tuple[bytes | None, Version]]
) -> None:
    events = history(events, messages)
    records = [record(event, offset) for offset, event in enumerate(events)]
    best, _ = model(events, missing=None)
    rule = Rule(header="version")
    with tempfile.TemporaryDirectory() as folder, closing(Worker(f"{folder}/store", records, rule)) as worker:
        worker.learn(len(records))
        worker.write(len(records), commits=True)
    assert worker.written == [offsets for _, _, offsets in sorted(best.values(), key=lambda found: found[1])]


@given(earlier=st.lists(SINGLES, min_size=1, max_size=8), later=st.lists(SINGLES, max_size=8))
def test_what_only_the_target_still_has_is_not_beaten_by_less(
    earlier: list[Event], later: list[Event]
) -> None:
    rule, events = Rule(header="version"), earlier + later
    judged = [judge(record(event, offset), rule) for offset, event in enumerate(events)]
    best, _ = model(events, missing=None)
    before, _ = model(earlier, missing=None)
    with Winners(None, "p") as winners:
        # The source has lost its beginning, and the file is lost, too.
        winners.learn_copy([judged[offset] for _, offset, _ in before.values()])
        winners.learn(judged[len(earlier) :])
        verdicts = winners.verdicts(judged[len(earlier) :])
    later_offsets = range(len(earlier), len(events))
    won = {at for at, each in zip(later_offsets, verdicts, strict=True) if each.outcome == "wins"}
    assert won == {offset for _, offset, _ in best.values() if offset >= len(earlier)}
