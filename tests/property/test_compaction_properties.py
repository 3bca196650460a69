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
from headerware.ops.compaction.rules import OLDEST, Judged, Rule, judge
from headerware.ops.compaction.winners import Winners

Version = int | str | None
VERSIONS = st.integers(-2, 2) | st.sampled_from(["bad", None])
KEYS = st.sampled_from([b"a", b"b", None])
COUNT = 2


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
    """Return the winner of each key as (version, offset, its slices), and what is left untouched."""
    best: dict[bytes, Any] = {}
    untouched: list[tuple[int, ...]] = []
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
            untouched.append(offsets)
        else:
            best[key] = max(best.get(key, (version, offset, offsets)), (version, offset, offsets))
    return best, untouched


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

    def __init__(self, path: str, judged: list[Judged]) -> None:
        self.path = path
        self.judged = judged
        self.winners = Winners(path, "p")
        self.position = 0
        self.written: list[tuple[int, ...]] = []
        self.untouched: list[tuple[int, ...]] = []

    def close(self) -> None:
        self.winners.close()

    def learn(self, end: int) -> None:
        self.winners.learn(self.judged[:end])

    def write(self, end: int, *, commits: bool) -> None:
        batch = self.judged[self.position : end]
        self.winners.learn(batch)
        verdicts = self.winners.verdicts(batch)
        if commits:
            self.written += [tuple(v.offsets) for v in verdicts if v.outcome == "wins"]
            self.untouched += [tuple(v.offsets) for v in verdicts if v.outcome == "untouched"]
            self.position = max(self.position, end)
            self.winners.written({0: self.position}, {})

    def restart(self, *, loses_store: bool) -> None:
        self.winners.close()
        if loses_store:
            Path(self.path).unlink()
        self.winners = Winners(self.path, "p")
        if loses_store:
            copies = [self.judged[offset] for offsets in self.written for offset in offsets]
            self.winners.learn_copy(copies)
            self.learn(self.position)


@pytest.mark.parametrize("missing", ["untouched", "oldest"])
@given(events=HISTORIES, messages=MESSAGES, rest=st.randoms(use_true_random=False))
def test_the_last_record_of_each_key_is_its_winner(
    missing: Any, events: list[Event], messages: list[tuple[bytes | None, Version]], rest: random.Random
) -> None:
    events = history(events, messages)
    rule = Rule(header="version", missing=missing)
    judged = [judge(record(event, offset), rule) for offset, event in enumerate(events)]
    best, untouched = model(events, missing=OLDEST if missing == "oldest" else None)
    with tempfile.TemporaryDirectory() as folder, closing(Worker(f"{folder}/store", judged)) as worker:
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
    assert worker.untouched == untouched, "each once, in order"
    assert len(set(worker.written)) == len(worker.written), "nothing comes twice"


@given(events=HISTORIES, messages=MESSAGES)
def test_what_is_learned_first_is_written_once(
    events: list[Event], messages: list[tuple[bytes | None, Version]]
) -> None:
    events = history(events, messages)
    judged = [judge(record(e, offset), Rule(header="version")) for offset, e in enumerate(events)]
    best, _ = model(events, missing=None)
    with Winners(None, "p") as winners:
        winners.learn(judged)
        verdicts = winners.verdicts(judged)
    won = [tuple(each.offsets) for each in verdicts if each.outcome == "wins"]
    assert won == [offsets for _, _, offsets in sorted(best.values(), key=lambda found: found[1])]


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
    won = {offset for each in verdicts if each.outcome == "wins" for offset in each.offsets}
    assert won == {offset for _, offset, _ in best.values() if offset >= len(earlier)}
