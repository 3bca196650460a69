from __future__ import annotations

import json
from ipaddress import IPv4Network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headerware.core.errors import WireFormatError
from headerware.core.header_ids import HeaderId
from headerware.registry import Allocate, Block, Change, Entry, Register, Retire, built_in, problems
from headerware.registry.stores.topic import MAX_CHANGE_BYTES, Found, Ledger, decode_change, encode_change
from headerware.topic_table.rows import TableRecord

DAY = "2026-01-31"


def allocate(network: str, owner: str, by: str = "registrar") -> Allocate:
    return Allocate(Block(network=IPv4Network(network), owner=owner, description="a block", since=DAY), by)


def register(header_id: str, name: str, owner: str = "shop") -> Register:
    entry = Entry(
        id=HeaderId(header_id), name=name, owner=owner, encoding="utf-8", description="a header", since=DAY
    )
    return Register(entry, owner)


BLOCK = allocate("0.1.0.0/16", "shop")
FIRST = register("0.1.0.1", "first")


def key(number: int) -> bytes:
    return number.to_bytes(16, "big")


def ledger_of(*changes: Change | Found) -> Ledger:
    ledger = Ledger()
    ledger.fill(TableRecord(index, key(index), encode_change(change)) for index, change in enumerate(changes))
    return ledger


class TestChanges:
    @pytest.mark.parametrize(
        "change", [BLOCK, FIRST, Retire(HeaderId("0.1.0.1"), DAY, "shop"), Found("platform")], ids=repr
    )
    def test_come_back_as_they_were(self, change: Change | Found) -> None:
        assert decode_change(encode_change(change)) == change

    @pytest.mark.parametrize(
        "value",
        [
            b"",
            b"garbage",
            b"\xff\xfe",
            b"[]",
            b"1",
            b"{}",
            b"null",
            b'{"version": 2, "change": "found", "registrar": "x"}',
            b'{"version": true, "change": "found", "registrar": "x"}',
            b'{"version": 1.0, "change": "found", "registrar": "x"}',
            b'{"version": 1, "change": "found"}',
            b'{"version": 1, "change": "found", "registrar": "x", "more": 1}',
            b'{"version": 1, "change": "forget", "id": "0.1.0.1"}',
            b'{"version": 1, "change": "retire", "id": "0.1.0.256", "retired": "2026-01-31", "by": "x"}',
            b'{"version": 1, "change": "retire", "id": 65537, "retired": "2026-01-31", "by": "x"}',
            b"[" * 60_000,
            b'{"a":' * 12_000,
            b" " * (MAX_CHANGE_BYTES + 1),
        ],
        ids=lambda value: repr(value[:60]),
    )
    def test_garbage_is_refused_without_being_quoted(self, value: bytes) -> None:
        with pytest.raises(WireFormatError) as caught:
            decode_change(value)
        assert "garbage" not in str(caught.value)

    def test_an_unknown_encoding_is_refused_with_its_place(self) -> None:
        plain = json.loads(encode_change(FIRST))
        plain["entry"] |= {"encoding": "int65"}
        with pytest.raises(WireFormatError, match=r"entry\.encoding: expected one of 'bytes', 'utf-8'"):
            decode_change(json.dumps(plain).encode())

    def test_of_members_that_stand_twice_the_last_counts(self) -> None:
        assert decode_change(b'{"version":1,"change":"found","registrar":"a","registrar":"b"}') == Found("b")

    @pytest.mark.parametrize("member", [{"retired": None}, {"foreign": False}], ids=str)
    def test_members_that_say_nothing_are_damage_to_every_reader(self, member: dict[str, object]) -> None:
        plain = json.loads(encode_change(FIRST))
        plain["entry"] |= member
        with pytest.raises(WireFormatError, match="a member is false or null"):
            decode_change(json.dumps(plain).encode())


class TestLedger:
    def test_is_the_built_in_registry_before_the_first_change(self) -> None:
        assert Ledger().registry == built_in()

    def test_takes_changes_in_their_order(self) -> None:
        ledger = ledger_of(BLOCK, FIRST, Retire(HeaderId("0.1.0.1"), DAY, "shop"))
        entry = ledger.registry.by_id(HeaderId("0.1.0.1"))
        assert entry is not None
        assert entry.retired == DAY
        assert ledger.conflicts == []

    @pytest.mark.parametrize(
        "late",
        [
            register("0.1.0.1", "other"),
            register("0.1.0.2", "first"),
            register("0.2.0.1", "outside"),
            register("0.1.0.3", "squat", owner="stranger"),
            allocate("0.1.0.0/16", "stranger"),
            allocate("0.1.0.0/24", "stranger", by="stranger"),
            Retire(HeaderId("0.1.0.9"), DAY, "shop"),
            Found("platform"),
        ],
        ids=["id", "name", "outside", "owner", "block", "sub-block", "unknown id", "founded late"],
    )
    def test_the_later_of_two_that_exclude_each_other_changes_nothing(self, late: Change | Found) -> None:
        before = ledger_of(BLOCK, FIRST)
        ledger = ledger_of(BLOCK, FIRST, late)
        assert ledger.registry == before.registry
        assert [(conflict.offset, conflict.change) for conflict in ledger.conflicts] == [(2, late)]
        assert ledger.refusal(key(2)) == ledger.conflicts[0].reason
        assert ledger.refusal(key(1)) is None

    def test_who_came_too_early_is_not_taken_later(self) -> None:
        """A change counts where it stands, or never: whoever wants it writes it again."""
        ledger = ledger_of(FIRST, BLOCK)
        assert ledger.registry.by_id(HeaderId("0.1.0.1")) is None
        assert [conflict.offset for conflict in ledger.conflicts] == [0]

    def test_a_founded_registry_has_its_registrar(self) -> None:
        ledger = ledger_of(Found("platform"), allocate("0.1.0.0/16", "shop", by="platform"), BLOCK)
        assert ledger.registry.registrar == "platform"
        assert [conflict.offset for conflict in ledger.conflicts] == [2]

    @pytest.mark.parametrize(
        "damage",
        [
            TableRecord(7, None, encode_change(FIRST)),
            TableRecord(7, b"short", encode_change(FIRST)),
            TableRecord(7, key(0), encode_change(FIRST)),
            TableRecord(7, key(0), None),
            TableRecord(7, key(7), None),
            TableRecord(7, key(7), b"garbage"),
            TableRecord(7, key(7), bytes(1_000_000)),
        ],
        ids=["no key", "short key", "key again", "tombstone", "tombstone of none", "garbage", "too large"],
    )
    def test_damage_is_reported_and_the_rest_counts(self, damage: TableRecord) -> None:
        ledger = ledger_of(BLOCK)
        ledger.apply(damage)
        ledger.apply(TableRecord(8, key(8), encode_change(FIRST)))
        assert ledger.registry == ledger_of(BLOCK, FIRST).registry
        assert [(conflict.offset, conflict.change) for conflict in ledger.conflicts] == [(7, None)]
        assert str(ledger.conflicts[0]).startswith("offset 7: damage: ")

    def test_the_same_log_gives_the_same_ledger_from_a_snapshot(self) -> None:
        ledger = ledger_of(BLOCK, FIRST, register("0.1.0.1", "other"), register("0.1.0.2", "second"))
        again = Ledger()
        again.fill(ledger.records())
        assert again.registry == ledger.registry
        assert again.conflicts == ledger.conflicts

    @given(
        st.lists(
            st.one_of(
                st.builds(
                    register, st.sampled_from(["0.1.0.1", "0.1.0.2", "0.9.0.1"]), st.sampled_from("abc")
                ),
                st.builds(
                    allocate, st.sampled_from(["0.1.0.0/16", "0.1.0.0/24"]), st.sampled_from(["shop", "x"])
                ),
                st.builds(Found, st.sampled_from(["registrar", "platform"])),
            ),
            max_size=12,
        )
    )
    def test_leaving_out_the_losers_changes_nothing(self, changes: list[Change | Found]) -> None:
        ledger = ledger_of(*changes)
        losers = {conflict.offset for conflict in ledger.conflicts}
        winners = [change for offset, change in enumerate(changes) if offset not in losers]
        assert ledger_of(*winners).registry == ledger.registry
        assert ledger_of(*winners).conflicts == []
        assert problems(ledger.registry) == []

    @given(
        st.lists(st.tuples(st.one_of(st.none(), st.binary(max_size=20)), st.one_of(st.none(), st.binary())))
    )
    def test_no_garbage_stops_what_follows(self, records: list[tuple[bytes | None, bytes | None]]) -> None:
        ledger = Ledger()
        for offset, (record_key, value) in enumerate(records):
            ledger.apply(TableRecord(offset, record_key, value))
        ledger.apply(TableRecord(1000, b"k" * 16, encode_change(BLOCK)))
        assert ledger.registry.block(IPv4Network("0.1.0.0/16")) is not None
        assert len(ledger.conflicts) == len(records)


def test_values_are_json_that_people_can_read() -> None:
    assert json.loads(encode_change(BLOCK)) == {
        "version": 1,
        "change": "allocate",
        "block": {"network": "0.1.0.0/16", "owner": "shop", "description": "a block", "since": DAY},
        "by": "registrar",
    }
