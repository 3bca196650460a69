"""Retention by header: what may be removed of any partition, against a search through all that could be."""

from __future__ import annotations

from collections import defaultdict
from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

from confluent_kafka import Message
from hypothesis import given
from hypothesis import strategies as st

from headerware.core.headers import Headers
from headerware.core.record import Record
from headerware.interceptors.slice.header import SLICE_HEADER, SliceHeader
from headerware.kafka.messages import record_of
from headerware.ops.compaction.rules import Verdict, judged_message, verdict_alone
from headerware.ops.retention.keys import Choice, Keys
from headerware.ops.retention.plan import Partition, PartitionPlan, Tombstones
from headerware.ops.retention.rules import Judge, Lifetime, RetentionDisposition, RetentionRule
from headerware.workers.units import Room, Unit, Units

if TYPE_CHECKING:
    from collections.abc import Callable

COUNT = 2
DISPOSITIONS: st.SearchStrategy[RetentionDisposition] = st.sampled_from(
    ["expired", "expired", "expired", "alive", "held", "tombstone"]
)
KEYS = st.sampled_from([b"a", b"b", None])


class Event(NamedTuple):
    """A record, or one of the two slices of a message."""

    key: bytes | None
    disposition: RetentionDisposition
    message: int | None = None
    number: int = 0


SINGLES = st.tuples(KEYS, DISPOSITIONS).map(lambda pair: Event(*pair))
SLICES = st.tuples(
    st.sampled_from([b"a", b"b"]), DISPOSITIONS, st.integers(0, 2), st.integers(0, COUNT - 1)
).map(lambda parts: Event(*parts))
HISTORIES = st.lists(SINGLES | SLICES, max_size=20)


def model(events: list[Event]) -> list[tuple[list[int], RetentionDisposition]]:
    """Return records and messages as their offsets and dispositions."""
    messages: defaultdict[int, list[int]] = defaultdict(list)
    units: list[tuple[list[int], RetentionDisposition]] = []
    for offset, event in enumerate(events):
        if event.message is None:
            units.append(([offset], event.disposition))
        else:
            messages[event.message].append(offset)
    for offsets in messages.values():
        slices = [events[offset] for offset in offsets]
        heads = {each.disposition for each in slices if each.number == 0}
        is_complete = len({each.number for each in slices}) == COUNT
        is_held = any(each.disposition == "held" for each in slices)
        expires = is_complete and not is_held and heads == {"expired"}
        units.append((offsets, "expired" if expires else "held" if is_held else "alive"))
    return units


def part_of(event: Event) -> SliceHeader | None:
    if event.message is None:
        return None
    return SliceHeader(event.message.to_bytes(16), event.number, COUNT, 2 * COUNT, 2)


def planned(
    events: list[Event], *, deletes: bool, keys: Keys | None = None, room: Room | None = None
) -> PartitionPlan:
    partition = Partition(0, 0, deletes=deletes, keys=keys, room=room)
    for offset, event in enumerate(events):
        partition.take(offset, event.key, event.disposition, part_of(event))
    return partition.plan(len(events))


@given(events=HISTORIES)
def test_the_beginning_that_is_deleted_is_the_longest_that_may_be(events: list[Event]) -> None:
    units = model(events)

    def may_be_deleted(before: int) -> bool:
        touched = [(offsets, disposition) for offsets, disposition in units if offsets[0] < before]
        return all(disposition == "expired" and offsets[-1] < before for offsets, disposition in touched)

    plan = planned(events, deletes=True)
    longest = max(before for before in range(len(events) + 1) if may_be_deleted(before))
    assert plan.delete_before == longest
    assert plan.deleted == longest
    assert (plan.first_kept is None) == all(disposition == "expired" for _, disposition in units)
    expired = sum(len(offsets) for offsets, disposition in units if disposition == "expired")
    if all(len(offsets) <= COUNT for offsets, _ in units):  # else what comes twice may count as not complete
        assert plan.dispositions.get("expired", 0) == expired
    assert sum(plan.dispositions.values()) == len(events)


@given(events=HISTORIES)
def test_a_key_is_deleted_only_if_its_latest_record_has_expired_and_none_is_held(events: list[Event]) -> None:
    units = model(events)
    of_key: defaultdict[bytes, list[tuple[int, RetentionDisposition]]] = defaultdict(list)
    for offsets, disposition in units:
        for offset in offsets:
            if (key := events[offset].key) is not None:
                of_key[key].append((offset, disposition))
    expected = {
        key: max(found)[0]
        for key, found in of_key.items()
        if max(found)[1] == "expired" and all(disposition != "held" for _, disposition in found)
    }
    with closing(Keys()) as keys:
        plan = planned(events, deletes=False, keys=keys)
        assert (plan.delete_before, plan.deleted) == (0, 0)
        choice = keys.choose({0: 0})[0]
        found = keys.chosen(0, most=100, most_bytes=1_000)
    assert [each.key for each in found] == sorted(expected, key=lambda key: expected[key])
    assert choice == Choice(len(found), sum(each.replaced for each in found), choice.left)


@given(events=HISTORIES, entries=st.integers(0, 3), deletes=st.booleans())
def test_with_less_room_for_messages_nothing_goes_that_would_have_stayed(
    events: list[Event], entries: int, *, deletes: bool
) -> None:
    removed: list[tuple[int, set[bytes]]] = []
    for room in (Room(), Room(entries)):
        with closing(Keys()) as keys:
            plan = planned(events, deletes=deletes, keys=keys, room=room)
            keys.choose({0: plan.delete_before})
            found = keys.chosen(0, most=100, most_bytes=1_000)
        assert sum(plan.dispositions.values()) == len(events)
        removed.append((plan.delete_before, {each.key for each in found}))
    (before, chosen), (before_with_less, chosen_with_less) = removed
    assert before_with_less <= before
    # A key whose record would have gone with the beginning may get a tombstone instead.
    assert chosen_with_less <= chosen | {event.key for event in events[:before] if event.key is not None}
    if not deletes:
        assert chosen_with_less <= chosen


NAMES = st.sampled_from(
    ["hw.expires", "class", "Legal-Hold", "~Kq", "hw.ids", "hw.sig", SLICE_HEADER, "0.0.77.5", "~", ""]
)
VALUES = st.sampled_from([b"1", b"999999990000", b"999999994999", b"01", b"gold", b"", None])
LIFETIMES = st.builds(
    Lifetime,
    topics=st.just(("*",)),
    after_ms=st.sampled_from([0, 5_000]),
    header=st.just("class"),
    value=st.sampled_from([None, "gold"]),
) | st.builds(Lifetime, topics=st.just(("*",)), after_ms=st.just(100))


@given(
    wire=st.lists(
        st.tuples(
            st.lists(st.tuples(NAMES, VALUES), max_size=3),
            st.sampled_from([b"v", None]),
            st.sampled_from([(0, 0), (1, 999_999_990_000), (2, 1)]),
        ),
        max_size=6,
    ),
    lifetimes=st.lists(LIFETIMES, max_size=2),
    verified=st.sampled_from([None, lambda record: record]),
)
def test_what_is_judged_by_the_names_of_headers_is_what_the_rule_says(
    wire: list[tuple[list[tuple[str, bytes | None]], bytes | None, tuple[int, int]]],
    lifetimes: list[Lifetime],
    verified: Callable[[Record], Record | None] | None,
) -> None:
    rule = RetentionRule(lifetimes=tuple(lifetimes))
    judge = Judge(rule, 10**12, verified)
    for headers, value, timestamp in wire:
        message = Message("orders", 0, 0, b"k", value, [*headers], None, timestamp)
        expected = rule.disposition_on_the_wire(record_of(message), 10**12, verified)
        assert judge.disposition_of(message) == expected


STEPS = st.lists(st.sampled_from(["tombstone", "record", "other", "look", "again"]), max_size=30)


@given(steps=STEPS)
def test_a_tombstone_counts_only_if_all_that_came_before_it_is_older(steps: list[str]) -> None:
    """The transaction is done again at any moment, and what has come is looked at at any."""
    log: list[str] = ["tombstone"]
    batch, read = Tombstones([b"a"]), 0
    for step in [*steps, "look"]:
        if step == "look":
            batch.begin()
            for each in log[read:]:
                batch.see(b"b" if each == "other" else b"a", own=each == "tombstone")
            read = len(log)
        else:
            log.append("tombstone" if step == "again" else step)
    last = len(log) - 1 - log[::-1].index("tombstone")
    assert batch.safe == ("record" not in log[:last])


@given(events=HISTORIES)
def test_a_beginning_that_is_known_does_not_change(events: list[Event]) -> None:
    partition = Partition(0, 0, deletes=True, keys=None)
    longest = planned(events, deletes=True).delete_before
    for offset, event in enumerate(events):
        partition.take(offset, event.key, event.disposition, part_of(event))
        if partition.beginning_is_known:
            assert partition.plan(offset + 1).delete_before == longest


def record(offset: int, event: Event) -> Record:
    headers = {"expired": [("hw.expires", b"1")], "held": [("hw.expires", b"1"), ("legal-hold", b"")]}
    found = [*headers.get(event.disposition, [])]
    if (part := part_of(event)) is not None:
        found.append((SLICE_HEADER, part.encode()))
    value = None if event.disposition == "tombstone" else b"v"
    return Record("orders", value, event.key, Headers(found), 0, offset=offset)


def verdict_of(unit: Unit) -> Verdict:
    found = [RetentionRule().judged(each, now_ms=10**12) for each in unit.records]
    judged = found[0] if found[0].part is None else judged_message(found)
    return verdict_alone(judged.why, "expired")


@given(events=HISTORIES, killed_at=st.integers(0, 20))
def test_a_copy_has_all_that_has_not_expired_also_after_a_kill(events: list[Event], killed_at: int) -> None:
    kept: list[tuple[int, ...]] = []
    parts: defaultdict[int, dict[int, int]] = defaultdict(dict)
    for offset, event in enumerate(events):
        of = {0: offset} if event.message is None else parts[event.message]
        of.setdefault(event.number, offset)
        if (event.message is not None and len(of) < COUNT) or offset not in of.values():
            continue
        message = [events[of[number]].disposition for number in sorted(of)]
        if message[0] != "expired" or "held" in message:
            kept.append(tuple(of[number] for number in sorted(of)))
        of.clear()

    records = [record(offset, event) for offset, event in enumerate(events)]
    copied: list[tuple[int, ...]] = []
    pending: set[int] = set()
    for begin, end in ((0, killed_at), (killed_at, len(events))):
        units = Units(lambda _topic, _partition, offset: records[offset])
        for each in [*(records[offset] for offset in sorted(pending)), *records[begin:end]]:
            pending.add(each.offset or 0)
            unit = units.add(each)
            if unit is None:
                continue
            pending.difference_update(unit.offsets)
            if unit.problem is None and verdict_of(unit).outcome == "wins":
                copied.append(unit.offsets)
    assert copied == kept
