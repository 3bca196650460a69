from __future__ import annotations

from typing import Any

import pytest

from headerware.core.errors import ConfigError
from headerware.core.headers import Headers
from headerware.core.record import Record
from headerware.interceptors.slice.header import SliceHeader
from headerware.ops.retention.rules import Fate, Lifetime, Partition, RetentionRule, Tombstone

NOW_MS = 1_700_000_000_000
DAY_MS = 86_400_000


def record(*headers: tuple[str, bytes | None], **parts: Any) -> Record:
    return Record(
        "clicks-eu", **{"value": b"v", "timestamp_ms": NOW_MS - DAY_MS, **parts}, headers=Headers(headers)
    )


class TestLifetimes:
    @pytest.mark.parametrize(
        ("expires_ms", "fate"),
        [(NOW_MS - 5_001, "expired"), (NOW_MS - 5_000, "alive"), (NOW_MS + 1, "alive")],
    )
    def test_of_their_own(self, expires_ms: int, fate: Fate) -> None:
        found = record(("hw.expires", b"%d" % expires_ms))
        assert RetentionRule().fate_of(found, NOW_MS) == fate

    def test_of_their_own_count_before_rules(self) -> None:
        rule = RetentionRule(lifetimes=(Lifetime(topics=("*",), after_ms=0),))
        assert rule.fate_of(record(("hw.expires", b"%d" % (NOW_MS + 1))), NOW_MS) == "alive"

    @pytest.mark.parametrize("value", [b"", b"soon", b"-1", b"01", None])
    def test_that_are_malformed_keep_the_record(self, value: bytes | None) -> None:
        rule = RetentionRule(lifetimes=(Lifetime(topics=("*",), after_ms=0),))
        assert rule.fate_of(record(("hw.expires", value)), NOW_MS) == "malformed"

    def test_that_stand_twice_keep_the_record(self) -> None:
        assert (
            RetentionRule().fate_of(record(("hw.expires", b"1"), ("hw.expires", b"1")), NOW_MS) == "malformed"
        )

    def test_that_are_missing_keep_the_record(self) -> None:
        assert RetentionRule().fate_of(record(), NOW_MS) == "no_lifetime"
        rule = RetentionRule(lifetimes=(Lifetime(topics=("*",), after_ms=0),))
        assert rule.fate_of(record(timestamp_ms=None), NOW_MS) == "no_lifetime"

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
        assert rule.fate_of(record(("class", b"gold")), NOW_MS) == "alive"
        assert rule.fate_of(record(("class", b"gold"), ("class", b"tin")), NOW_MS) == "expired"
        assert rule.fate_of(record(), NOW_MS) == "alive"
        assert rule.fate_of(record(), NOW_MS + 3 * DAY_MS) == "expired"

    def test_do_not_count_for_tombstones(self) -> None:
        assert RetentionRule().fate_of(record(("hw.expires", b"1"), value=None), NOW_MS) == "tombstone"

    @pytest.mark.parametrize("value", [b"case 7", b"", None])
    def test_do_not_count_under_a_legal_hold(self, value: bytes | None) -> None:
        found = record(("hw.expires", b"1"), ("case", value))
        assert RetentionRule(hold="case").fate_of(found, NOW_MS) == "held"
        assert RetentionRule().fate_of(found, NOW_MS) == "expired"


class TestFatesOnTheWire:
    """Of records as they are read; any doubt keeps them."""

    def test_of_headers_that_cannot_be_read(self) -> None:
        rule = RetentionRule()
        assert (
            rule.fate_on_the_wire(record(("hw.expires", b"1"), ("hw.slice", b"x")), NOW_MS)[0] == "malformed"
        )
        unnamed = record(("hw.expires", b"1")).replace(headers=[(b"\xff", b"")])
        assert rule.fate_on_the_wire(unnamed, NOW_MS) == ("malformed", None)

    def test_of_what_a_chain_does_not_verify(self) -> None:
        expired = record(("hw.expires", b"1"))
        rule = RetentionRule()
        assert rule.fate_on_the_wire(expired, NOW_MS, lambda _: None) == ("unverified", None)
        assert rule.fate_on_the_wire(expired, NOW_MS, lambda found: found) == ("expired", None)

    def test_of_headers_that_a_chain_takes_away_do_not_count(self) -> None:
        expired = record(("hw.expires", b"1"))
        fate, _ = RetentionRule().fate_on_the_wire(
            expired, NOW_MS, lambda found: found.with_headers(Headers())
        )
        assert fate == "no_lifetime"


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


class TestMessagesOfCompactedTopics:
    """There the first slice comes last, and the others have keys of their own."""

    def plan(self, fate: Fate, *later: tuple[bytes, Fate], held_slice: bool = False) -> Any:
        partition = Partition(0, deletes=False, compacts=True)
        head, second, third = slices(3)
        offset = 0
        for part in (second, third, head):
            key = b"key" if part is head else part.own_key
            own = fate if part is head else "held" if held_slice and part is second else "no_lifetime"
            partition.take(Record("orders", b"v", key, offset=offset), own, part)
            offset += 1
        for key, other in later:
            partition.take(Record("orders", b"v", key, offset=offset), other)
            offset += 1
        return partition.plan(offset)

    def test_are_deleted_with_all_keys(self) -> None:
        _, second, third = slices(3)
        plan = self.plan("expired")
        assert plan.tombstones == tuple(Tombstone(key, 2) for key in (b"key", second.own_key, third.own_key))
        assert (plan.replaced, plan.fates) == (3, {"expired": 3})

    def test_that_were_replaced_are_left_to_the_broker(self) -> None:
        plan = self.plan("expired", (b"key", "alive"))
        assert (plan.tombstones, plan.rest) == ((), 0)

    def test_that_are_held_keep_their_key(self) -> None:
        plan = self.plan("expired", (b"key", "expired"), held_slice=True)
        assert plan.tombstones == ()
        assert (plan.rest, plan.fates) == (1, {"held": 3, "expired": 1})


class TestPartitions:
    def test_with_both_policies_delete_no_key_that_the_beginning_had(self) -> None:
        partition = Partition(5, deletes=True, compacts=True)
        for offset, (key, fate) in enumerate([(b"a", "expired"), (b"b", "alive"), (b"c", "expired")], 5):
            partition.take(Record("orders", b"v", key, offset=offset), fate)  # type: ignore[arg-type]  # fates
        plan = partition.plan(8)
        assert (plan.delete_before, plan.deleted, plan.tombstones) == (6, 1, (Tombstone(b"c", 7),))

    def test_that_are_empty_have_nothing_to_remove(self) -> None:
        plan = Partition(7, deletes=True, compacts=False).plan(7)
        assert (plan.delete_before, plan.deleted, plan.rest, plan.fates) == (7, 0, 0, {})

    def test_go_past_holes(self) -> None:
        partition = Partition(0, deletes=True, compacts=False)
        partition.take(Record("orders", b"v", b"a", offset=3), "expired")
        assert partition.plan(9).delete_before == 9
        assert partition.plan(9).deleted == 1

    def test_have_a_beginning_that_is_known_once_a_record_stays(self) -> None:
        partition = Partition(0, deletes=True, compacts=False)
        known = []
        fates: list[tuple[Fate, SliceHeader | None]] = [("expired", None), ("alive", None)]
        for offset, (fate, part) in enumerate([*fates, ("alive", slices(2)[0])]):
            partition.take(Record("orders", b"v", b"a", offset=offset), fate, part)
            known.append(partition.beginning_is_known)
        assert known == [False, True, True], "the message begins behind"

    def test_have_no_such_beginning_if_a_message_may_go_on(self) -> None:
        partition = Partition(0, deletes=True, compacts=False)
        partition.take(Record("orders", b"v", b"a", offset=0), "expired", slices(2)[0])
        partition.take(Record("orders", b"v", b"a", offset=1), "alive")
        assert not partition.beginning_is_known

    def test_keep_messages_whose_slices_contradict_one_another(self) -> None:
        partition = Partition(0, deletes=True, compacts=False)
        (head, _), (_, other) = slices(2), [SliceHeader(bytes(16), number, 2, 3, 2) for number in range(2)]
        partition.take(Record("orders", b"v", b"a", offset=0), "expired", head)
        partition.take(Record("orders", b"v", b"a", offset=1), "no_lifetime", other)
        assert partition.plan(2).fates == {"malformed": 2}
