from __future__ import annotations

import tracemalloc
from contextlib import closing
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headerware.clients.messages import message_of
from headerware.core.errors import ConfigError
from headerware.core.headers import Headers
from headerware.core.record import Record
from headerware.interceptors.slice.header import SliceHeader
from headerware.ops.retention.keys import Choice, Keys, Tombstone
from headerware.ops.retention.plan import Partition, PartitionPlan, Tombstones
from headerware.ops.retention.rules import Judge, Lifetime, RetentionDisposition, RetentionRule
from headerware.registry.names import default_names
from headerware.registry.wire.compact_keys import compact_key
from headerware.workers.units import Room

if TYPE_CHECKING:
    from collections.abc import Iterator

NOW_MS = 1_700_000_000_000
DAY_MS = 86_400_000


def record(*headers: tuple[str, bytes | None], **parts: Any) -> Record:
    return Record(
        "clicks-eu", **{"value": b"v", "timestamp_ms": NOW_MS - DAY_MS, **parts}, headers=Headers(headers)
    )


class TestUnverified:
    def test_go_no_sooner_than_what_is_verified(self) -> None:
        lifetimes = tuple(Lifetime(topics=("*",), after_ms=days * DAY_MS) for days in (1, 30, 7))
        with pytest.raises(ConfigError, match=r"longest lifetime of the rules, 2,592,000,000 ms, found"):
            RetentionRule(lifetimes=lifetimes, unverified_after_ms=30 * DAY_MS)
        rule = RetentionRule(lifetimes=lifetimes, unverified_after_ms=30 * DAY_MS + 1)
        with pytest.raises(ConfigError):
            msgspec.structs.replace(rule, unverified_after_ms=DAY_MS)

    @pytest.mark.parametrize("age_ms", [-1, 0, DAY_MS + 5_000, DAY_MS + 5_001])
    def test_go_at_their_age_alone(self, age_ms: int) -> None:
        rule = RetentionRule(unverified_after_ms=DAY_MS)
        expected = "stale" if age_ms > DAY_MS + 5_000 else "unverified"
        assert rule.unless_stale("unverified", NOW_MS - age_ms, NOW_MS) == expected
        assert rule.unless_stale("unverified", None, NOW_MS) == "unverified"
        assert RetentionRule().unless_stale("unverified", 0, NOW_MS) == "unverified"
        for disposition in ("held", "alive", "no_lifetime", "tombstone", "unknown_id"):
            assert rule.unless_stale(disposition, 0, NOW_MS) == disposition

    def test_stay_for_a_hold_beside_what_cannot_be_read(self) -> None:
        found = record(("legal-hold", b""), ("hw.ids", b"\xff\xff"))
        assert RetentionRule().disposition_on_the_wire(found, NOW_MS)[0] == "held"


class TestLifetimes:
    @pytest.mark.parametrize(
        ("expires_ms", "disposition"),
        [(NOW_MS - 5_001, "expired"), (NOW_MS - 5_000, "alive"), (NOW_MS + 1, "alive")],
    )
    def test_of_their_own(self, expires_ms: int, disposition: RetentionDisposition) -> None:
        found = record(("hw.expires", b"%d" % expires_ms))
        assert RetentionRule().disposition_of(found, NOW_MS) == disposition

    def test_of_their_own_count_before_rules(self) -> None:
        rule = RetentionRule(lifetimes=(Lifetime(topics=("*",), after_ms=0),))
        assert rule.disposition_of(record(("hw.expires", b"%d" % (NOW_MS + 1))), NOW_MS) == "alive"

    @pytest.mark.parametrize("value", [b"", b"soon", b"-1", b"01", None])
    def test_that_are_malformed_keep_the_record(self, value: bytes | None) -> None:
        rule = RetentionRule(lifetimes=(Lifetime(topics=("*",), after_ms=0),))
        assert rule.disposition_of(record(("hw.expires", value)), NOW_MS) == "malformed"

    def test_that_stand_twice_keep_the_record(self) -> None:
        assert (
            RetentionRule().disposition_of(record(("hw.expires", b"1"), ("hw.expires", b"1")), NOW_MS)
            == "malformed"
        )

    def test_that_are_missing_keep_the_record(self) -> None:
        assert RetentionRule().disposition_of(record(), NOW_MS) == "no_lifetime"
        rule = RetentionRule(lifetimes=(Lifetime(topics=("*",), after_ms=0),))
        assert rule.disposition_of(record(timestamp_ms=None), NOW_MS) == "no_lifetime"

    def test_of_rules_are_those_of_the_first_that_fits(self) -> None:
        rule = RetentionRule(
            lifetimes=(
                Lifetime(topics=("orders",), after_ms=0),
                Lifetime(topics=("clicks-*",), after_ms=2 * DAY_MS, header="class", value="gold"),
                Lifetime(topics=("clicks-*",), after_ms=DAY_MS // 2, header="class"),
                Lifetime(topics=("*", "!clicks-us"), after_ms=3 * DAY_MS),
            )
        ).for_topic("clicks-eu")
        assert len(rule.lifetimes) == 3
        assert rule.disposition_of(record(("class", b"gold")), NOW_MS) == "alive"
        assert rule.disposition_of(record(("class", b"gold"), ("class", b"tin")), NOW_MS) == "expired"
        assert rule.disposition_of(record(), NOW_MS) == "alive"
        assert rule.disposition_of(record(), NOW_MS + 3 * DAY_MS) == "expired"

    def test_do_not_count_for_tombstones(self) -> None:
        assert RetentionRule().disposition_of(record(("hw.expires", b"1"), value=None), NOW_MS) == "tombstone"

    @pytest.mark.parametrize("value", [b"case 7", b"", None])
    def test_do_not_count_under_a_legal_hold(self, value: bytes | None) -> None:
        found = record(("hw.expires", b"1"), ("case", value))
        assert RetentionRule(hold="case").disposition_of(found, NOW_MS) == "held"
        assert RetentionRule().disposition_of(found, NOW_MS) == "expired"

    @pytest.mark.parametrize("name", ["Legal-Hold", "LEGAL-HOLD", "legal-hold"])
    def test_do_not_count_under_a_hold_in_other_capitals(self, name: str) -> None:
        assert RetentionRule().disposition_of(record(("hw.expires", b"1"), (name, b"7")), NOW_MS) == "held"
        assert RetentionRule(hold=name).disposition_of(record(("legal-hold", b"7")), NOW_MS) == "held"

    def test_do_not_count_if_a_header_that_may_be_the_hold_has_an_id_without_a_name(self) -> None:
        found = record(("hw.expires", b"1"), ("0.0.77.5", b"7"))
        assert RetentionRule().disposition_of(found, NOW_MS) == "unknown_id"
        assert RetentionRule(hold="0.0.77.5").disposition_of(found, NOW_MS) == "held"


class TestFatesOnTheWire:
    """Of records as they are read; any doubt keeps them."""

    def test_of_headers_that_cannot_be_read(self) -> None:
        rule = RetentionRule()
        assert (
            rule.disposition_on_the_wire(record(("hw.expires", b"1"), ("hw.slice", b"x")), NOW_MS)[0]
            == "malformed"
        )
        unnamed = record(("hw.expires", b"1")).replace(headers=[(b"\xff", b"")])
        assert rule.disposition_on_the_wire(unnamed, NOW_MS) == ("malformed", None)

    def test_of_what_a_chain_does_not_verify(self) -> None:
        expired = record(("hw.expires", b"1"))
        rule = RetentionRule()
        assert rule.disposition_on_the_wire(expired, NOW_MS, lambda _: None) == ("unverified", None)
        assert rule.disposition_on_the_wire(expired, NOW_MS, lambda found: found) == ("expired", None)

    def test_of_headers_that_a_chain_takes_away_do_not_count(self) -> None:
        expired = record(("hw.expires", b"1"))
        disposition, _ = RetentionRule().disposition_on_the_wire(
            expired, NOW_MS, lambda found: found.with_headers(Headers())
        )
        assert disposition == "no_lifetime"


class TestAJudge:
    """It looks at names first; what it says of a record is what the rule says."""

    NAMES = st.sampled_from(
        [
            *("hw.expires", "hw.sig", "hw.slice", "hw.ids", "legal-hold", "Legal-Hold", "class", "", "x"),
            *("~", "~~", "~~legal-hold", "~A", "~zzzzzz", "0.0.77.5", "HW.EXPIRES", "STRASSE", "\u0663"),
            *(compact_key(default_names().id_of("hw.expires") or 0), compact_key(77)),
        ]
    )
    VALUES = st.sampled_from(
        [
            *(None, b"", b"1", b"01", b"%d" % (NOW_MS - 5_001), b"%d" % (NOW_MS - 5_000), b"gold"),
            SliceHeader(bytes(16), 0, 2, 4, 2).encode(),
        ]
    )
    LIFETIMES = st.builds(
        Lifetime,
        topics=st.just(("*",)),
        after_ms=st.sampled_from([0, 5_000, 5_001, 2 * DAY_MS]),
        header=st.sampled_from(["class", "", "~", "hw.expires", "0.0.77.5"]),
        value=st.sampled_from([None, "gold", ""]),
    ) | st.builds(Lifetime, topics=st.just(("*",)), after_ms=st.sampled_from([0, 2 * DAY_MS]))

    @given(
        headers=st.lists(st.tuples(NAMES, VALUES), max_size=3),
        value=st.sampled_from([b"v", b"", None]),
        timestamp=st.sampled_from([(0, None), (1, NOW_MS - 5_001), (2, NOW_MS - 5_000), (1, 0)]),
        lifetimes=st.lists(LIFETIMES, max_size=3),
        hold=st.sampled_from(["legal-hold", "LEGAL-HOLD", "stra\xdfe", "~legal-hold", "0.0.77.5"]),
    )
    def test_says_what_the_rule_says(
        self,
        headers: list[tuple[str, bytes | None]],
        value: bytes | None,
        timestamp: tuple[int, int | None],
        lifetimes: list[Lifetime],
        hold: str,
    ) -> None:
        kind, timestamp_ms = timestamp
        found = record(
            *headers, value=value, timestamp_ms=timestamp_ms, timestamp_type=kind, partition=0, offset=3
        )
        rule = RetentionRule(lifetimes=tuple(lifetimes), hold=hold)
        disposition, part = rule.disposition_on_the_wire(found, NOW_MS)
        judge = Judge(rule, NOW_MS)
        said = [judge.disposition_of(message_of(found)) for _ in range(2)]
        assert said == [(disposition, part)] * 2

    def test_remembers_no_more_names_than_it_has_memory_for(self) -> None:
        """Names may be empty, and a record may have 100,000 of them."""
        judge = Judge(RetentionRule(), NOW_MS)
        floods = [message_of(record(*[("", None)] * (20_000 + more))) for more in range(40)]
        tracemalloc.start()
        try:
            assert {judge.disposition_of(each) for each in floods} == {("no_lifetime", None)}
            floods.clear()
            assert tracemalloc.get_traced_memory()[0] < 2 << 20
        finally:
            tracemalloc.stop()


class TestCopies:
    def kept(self, *headers: tuple[str, bytes | None], **parts: Any) -> bool:
        judged = RetentionRule().judged(record(*headers, **parts), now_ms=NOW_MS)
        return judged.why == "kept"

    def test_keep_all_but_what_has_expired(self) -> None:
        assert not self.kept(("hw.expires", b"1"))
        assert self.kept()
        assert self.kept(("hw.expires", b"1"), ("legal-hold", None))
        assert self.kept(("hw.expires", b"1"), value=None)

    def test_leave_untouched_what_cannot_be_written(self) -> None:
        unnamed = record().replace(headers=[(b"\xff", b"")])
        assert RetentionRule().judged(unnamed, now_ms=NOW_MS).why == "unreadable"

    def test_keep_a_message_for_any_slice_that_is_held(self) -> None:
        head, later = slices(2)
        assert not self.kept(("hw.expires", b"1"), ("hw.slice", head.encode()))
        assert not self.kept(("hw.slice", later.encode())), "the first slice decides"
        assert self.kept(("hw.slice", later.encode()), ("legal-hold", b""))


class TestRules:
    @pytest.mark.parametrize(
        "make",
        [
            lambda: Lifetime(topics=(), after_ms=1),
            lambda: Lifetime(topics=("orders.*+",), after_ms=1),
            lambda: Lifetime(topics=("*",), after_ms=1, value="gold"),
            lambda: RetentionRule(hold=""),
            lambda: RetentionRule(clock_skew_ms=-1),
        ],
    )
    def test_that_are_for_nothing_are_refused(self, make: Any) -> None:
        with pytest.raises(ConfigError):
            make()


def slices(count: int, message: int = 0) -> list[SliceHeader]:
    return [SliceHeader(message.to_bytes(16), number, count, count * 2, 2) for number in range(count)]


@pytest.fixture
def keys() -> Iterator[Keys]:
    with closing(Keys()) as made:
        yield made


def chosen(keys: Keys, plan: PartitionPlan, partition: int = 0) -> tuple[Choice, list[Tombstone]]:
    choice = keys.choose({partition: plan.delete_before})[partition]
    return choice, keys.chosen(partition, most=100, most_bytes=1_000)


class TestMessagesOfCompactedTopics:
    """All slices have the message's key."""

    @pytest.fixture(autouse=True)
    def _setting(self, keys: Keys) -> None:
        self.keys = keys

    def plan(
        self,
        disposition: RetentionDisposition,
        *later: tuple[bytes, RetentionDisposition],
        held_slice: bool = False,
        lying: bool = False,
    ) -> tuple[PartitionPlan, Choice, list[Tombstone]]:
        partition = Partition(0, 0, deletes=False, keys=self.keys)
        head, second, third = slices(3)
        offset = 0
        for part in (second, third, head):
            own = disposition if part is head else "held" if held_slice and part is second else "no_lifetime"
            stated = msgspec.structs.replace(part, total_bytes=5) if lying and part is third else part
            partition.take(offset, b"key", own, stated)
            offset += 1
        for key, other in later:
            partition.take(offset, key, other)
            offset += 1
        plan = partition.plan(offset)
        return plan, *chosen(self.keys, plan)

    def test_are_deleted_by_one_tombstone(self) -> None:
        plan, choice, found = self.plan("expired")
        assert found == [Tombstone(b"key", 3)]
        assert (choice, plan.dispositions) == (Choice(1, 3, 0), {"expired": 3})

    def test_that_were_replaced_are_left_to_the_broker(self) -> None:
        _, choice, found = self.plan("expired", (b"key", "alive"))
        assert (choice, found) == (Choice(0, 0, 0), [])

    def test_that_are_held_keep_their_key(self) -> None:
        plan, choice, found = self.plan("expired", (b"key", "expired"), held_slice=True)
        assert found == []
        assert (choice.left, plan.dispositions) == (1, {"held": 3, "expired": 1})

    def test_that_contradict_themselves_stay(self) -> None:
        plan, _, found = self.plan("expired", lying=True)
        assert (found, plan.dispositions) == ([], {"malformed": 3})


class TestKeys:
    """Keys of compacted topics."""

    def taken(self, keys: Keys, *records: tuple[int, bytes, RetentionDisposition]) -> dict[int, Choice]:
        numbers = {number for number, _, _ in records}
        partitions = {number: Partition(number, 0, deletes=False, keys=keys) for number in numbers}
        for offset, (number, key, disposition) in enumerate(records):
            partitions[number].take(offset, key, disposition)
        return keys.choose({number: each.plan(100).delete_before for number, each in partitions.items()})

    @pytest.mark.parametrize(
        ("other", "goes"), [("expired", True), ("tombstone", True), ("alive", False), ("held", False)]
    )
    def test_stay_where_another_partition_has_what_stays(
        self, keys: Keys, other: RetentionDisposition, *, goes: bool
    ) -> None:
        # It got more partitions: readers of the table would take the tombstone for the end of the other.
        choices = self.taken(keys, (0, b"a", "expired"), (1, b"a", other), (0, b"b", "expired"))
        assert choices[0] == (Choice(2, 2, 0) if goes else Choice(1, 1, 1))

    @pytest.mark.parametrize("latest", ["expired", "tombstone", "alive"])
    def test_stay_where_another_partition_has_a_held_record_that_is_not_the_latest(
        self, keys: Keys, latest: RetentionDisposition
    ) -> None:
        choices = self.taken(
            keys, (0, b"a", "expired"), (1, b"a", "held"), (1, b"a", latest), (0, b"b", "expired")
        )
        assert choices[0] == Choice(1, 1, 1)
        assert [each.key for each in keys.chosen(0, most=9, most_bytes=99)] == [b"b"]

    def test_stay_where_another_partition_has_a_held_message_in_slices(self, keys: Keys) -> None:
        head, second = slices(2)
        held = Partition(1, 0, deletes=False, keys=keys)
        held.take(0, b"a", "held", second)
        held.take(1, b"a", "expired", head)
        held.take(2, b"a", "expired")
        other = Partition(0, 0, deletes=False, keys=keys)
        other.take(0, b"a", "expired")
        choices = keys.choose(
            {number: each.plan(9).delete_before for number, each in ((0, other), (1, held))}
        )
        assert choices[0] == Choice(0, 0, 1)

    def test_wait_for_their_turn_by_number_and_size(self, keys: Keys) -> None:
        self.taken(keys, *((0, b"%d" % number * 400, "expired") for number in range(5)))
        sizes = []
        while found := keys.chosen(0, most=3, most_bytes=1_000):
            sizes.append(len(found))
            assert keys.drop(0, [each.key for each in found]) == len(found)
        assert sizes == [2, 2, 1]
        assert keys.drop(0, [b"1" * 400]) == 0

    def test_are_more_than_wait_in_memory(self, keys: Keys, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("headerware.ops.retention.keys._WAITING", 2)
        names = [b"a", b"b", b"a", b"c", b"d", b"b"]
        dispositions: list[RetentionDisposition] = [
            "held",
            "alive",
            "expired",
            "expired",
            "expired",
            "expired",
        ]
        choices = self.taken(keys, *((0, *pair) for pair in zip(names, dispositions, strict=True)))
        assert choices[0] == Choice(3, 3, 1), "a has a record that is held"
        assert [each.key for each in keys.chosen(0, most=9, most_bytes=99)] == [b"c", b"d", b"b"]


class TestTombstones:
    def test_stand_behind_what_has_come(self) -> None:
        batch = Tombstones([b"a", b"b"])
        batch.begin()
        for key, own in ((b"c", False), (b"a", True), (b"a", False), (b"b", True)):
            batch.see(key, own=own)
        assert batch.complete
        assert batch.safe, "what comes behind a tombstone is newer, and stays"

    def test_that_were_not_read_do_not_count(self) -> None:
        batch = Tombstones([b"a", b"b"])
        batch.begin()
        batch.see(b"a", own=True)
        assert not batch.complete
        batch.begin()
        batch.see(b"b", own=True)
        assert not batch.complete

    def test_with_a_record_before_them_delete_it(self) -> None:
        batch = Tombstones([b"a"])
        batch.begin()
        batch.see(b"a", own=False)
        batch.see(b"a", own=True)
        assert not batch.safe

    @pytest.mark.parametrize("seen_at_once", [True, False])
    def test_of_a_transaction_that_is_done_again_stand_behind_what_came_between(
        self, *, seen_at_once: bool
    ) -> None:
        batch = Tombstones([b"a"])
        batch.begin()
        batch.see(b"a", own=True)
        batch.see(b"a", own=False)
        assert batch.safe
        if not seen_at_once:
            batch.begin()
        batch.see(b"a", own=True)
        assert not batch.safe


class TestPartitions:
    def test_with_both_policies_delete_no_key_that_the_beginning_had(self, keys: Keys) -> None:
        partition = Partition(0, 5, deletes=True, keys=keys)
        for offset, (key, disposition) in enumerate(
            [(b"a", "expired"), (b"b", "alive"), (b"c", "expired")], 5
        ):
            partition.take(offset, key, disposition)  # type: ignore[arg-type]  # dispositions
        plan = partition.plan(8)
        assert (plan.delete_before, plan.deleted) == (6, 1)
        assert chosen(keys, plan)[1] == [Tombstone(b"c", 1)]

    def test_with_both_policies_write_no_tombstones_for_what_is_signed(self, keys: Keys) -> None:
        partition = Partition(0, 0, deletes=True, keys=keys)
        for offset, (key, disposition) in enumerate([(b"a", "signed"), (b"b", "alive"), (b"c", "signed")]):
            partition.take(offset, key, disposition)  # type: ignore[arg-type]  # dispositions
        plan = partition.plan(3)
        assert (plan.delete_before, plan.deleted, plan.dispositions) == (1, 1, {"signed": 2, "alive": 1})
        assert chosen(keys, plan)[1] == []

    def test_that_are_empty_have_nothing_to_remove(self) -> None:
        plan = Partition(0, 7, deletes=True, keys=None).plan(7)
        assert (plan.delete_before, plan.deleted, plan.first_kept, plan.dispositions) == (7, 0, None, {})

    def test_go_past_holes(self) -> None:
        partition = Partition(0, 0, deletes=True, keys=None)
        partition.take(3, b"a", "expired")
        assert partition.plan(9).delete_before == 9
        assert partition.plan(9).deleted == 1

    def test_have_a_beginning_that_is_known_once_a_record_stays(self) -> None:
        partition = Partition(0, 0, deletes=True, keys=None)
        known = []
        dispositions: list[tuple[RetentionDisposition, SliceHeader | None]] = [
            ("expired", None),
            ("alive", None),
        ]
        for offset, (disposition, part) in enumerate([*dispositions, ("alive", slices(2)[0])]):
            partition.take(offset, b"a", disposition, part)
            known.append(partition.beginning_is_known)
        assert known == [False, True, True], "the message begins behind"

    def test_have_no_such_beginning_if_a_message_may_go_on(self) -> None:
        partition = Partition(0, 0, deletes=True, keys=None)
        partition.take(0, b"a", "expired", slices(2)[0])
        partition.take(1, b"a", "alive")
        assert not partition.beginning_is_known

    @pytest.mark.parametrize("order", [(0, 1, 2, 3), (1, 2, 3, 0), (3, 1, 1, 0, 2), (2, 0, 3, 3, 1)])
    def test_take_slices_in_any_order_and_give_their_room_back(self, order: tuple[int, ...]) -> None:
        room = Room(3)
        partition = Partition(0, 0, deletes=True, keys=None, room=room)
        partition.take(0, b"a", "alive")
        for offset, number in enumerate(order, 1):
            partition.take(offset, b"a", "expired" if number == 0 else "no_lifetime", slices(4)[number])
            assert (room.left == 3) == (offset == len(order))
        assert partition.plan(9).dispositions == {"alive": 1, "expired": len(order)}

    def test_remember_no_more_messages_than_there_is_room_for(self, keys: Keys) -> None:
        partition = Partition(0, 0, deletes=True, keys=keys, room=Room(1))
        for offset, message in enumerate((0, 0, 1, 1)):
            (head, later) = slices(2, message)
            part, disposition = (later, "no_lifetime") if offset % 2 else (head, "expired")
            partition.take(offset, b"%d" % message, disposition, part)  # type: ignore[arg-type]  # dispositions
        partition.take(4, b"1", "expired")
        plan = partition.plan(5)
        assert (plan.delete_before, plan.first_kept) == (2, "not_remembered")
        assert plan.dispositions == {"expired": 3, "not_remembered": 2}
        assert chosen(keys, plan)[1] == [], "what has the key of a message that stays, stays"

    def test_keep_messages_whose_slices_contradict_one_another(self) -> None:
        partition = Partition(0, 0, deletes=True, keys=None)
        (head, _), (_, other) = slices(2), [SliceHeader(bytes(16), number, 2, 3, 2) for number in range(2)]
        partition.take(0, b"a", "expired", head)
        partition.take(1, b"a", "no_lifetime", other)
        plan = partition.plan(2)
        assert (plan.first_kept, plan.dispositions) == ("malformed", {"malformed": 2})
