"""Every rule, by what breaks it: alone, so that no other rule hides it."""

from __future__ import annotations

from functools import partial
from ipaddress import IPv4Network

import pytest
from msgspec.structs import replace

from headerware.core.errors import RegistryError
from headerware.core.header_ids import HeaderId
from headerware.registry import (
    Allocate,
    Block,
    Change,
    Entry,
    Register,
    Registry,
    Retire,
    built_in,
    problems,
    with_built_in,
)
from headerware.registry.registry import refusals
from headerware.registry.values import NO_ID
from tests.unit.registry import conftest
from tests.unit.registry.conftest import DAY

NEXT_DAY = "2027-01-02"
block = partial(conftest.block, since=NEXT_DAY)
entry = partial(conftest.entry, since=NEXT_DAY)


@pytest.fixture
def registry() -> Registry:
    """Return a: 0.1/16 with one id in use and one retired; b: 0.1.2/24 in it; d: 7/8."""
    blocks = [
        block("0.1.0.0/16", "a", since=DAY),
        block("0.1.2.0/24", "b"),
        block("7.0.0.0/8", "d", since=DAY),
    ]
    entries = [
        entry("0.1.0.1", "tenant", since=DAY),
        entry("0.1.0.2", "gone", since=DAY, retired=NEXT_DAY),
        entry("0.1.2.1", "shard", "b"),
    ]
    return with_built_in(blocks, entries)


def rules(change: Change, registry: Registry) -> list[str]:
    return [problem.rule for problem in refusals(change, registry)]


class TestTheStart:
    def test_has_no_problems(self, registry: Registry) -> None:
        assert problems(registry) == []
        assert problems(built_in()) == []


class TestRegister:
    @pytest.mark.parametrize(
        ("header_id", "name", "owner"),
        [
            ("0.1.0.3", "x", "a"),
            ("0.1.255.255", "\u00fcber", "a"),
            ("0.1.2.0", "x" * 249, "b"),
            ("0.1.3.0", 'a b|`"\\', "a"),
            ("7.7.7.7", "hw", "d"),
            ("7.7.7.7", "1.2.3", "d"),
            ("7.7.7.7", "x~", "d"),
        ],
    )
    def test_takes_a_new_id_in_a_block_of_its_owner(
        self, registry: Registry, header_id: str, name: str, owner: str
    ) -> None:
        after = registry.apply(Register(entry(header_id, name, owner), owner))
        assert after.by_name(name) is after.by_id(HeaderId(header_id))
        assert problems(after) == []

    @pytest.mark.parametrize(
        ("refused", "by", "rule"),
        [
            (entry("0.1.0.3", ""), "a", "name"),
            (entry("0.1.0.3", "x" * 250), "a", "name"),
            (entry("0.1.0.3", "~x"), "a", "name"),
            (entry("0.1.0.3", "10.0.0.7"), "a", "name"),
            (entry("0.1.0.3", "300.1.1.01"), "a", "name"),
            (entry("0.1.0.3", "hw.mine"), "a", "name"),
            (entry("0.1.0.3", "HW.mine"), "a", "name"),
            (entry("0.1.0.3", "hw.ids"), "a", "name"),
            (entry("0.1.0.3", "a\nb"), "a", "name"),
            (entry("0.1.0.3", "a\u202eb"), "a", "name"),
            (entry("0.1.0.3", "\ud800"), "a", "name"),
            (entry("0.1.0.3", "hw\ufe0f.sig"), "a", "name"),
            (entry("0.1.0.3", "traceparent\u034f"), "a", "name"),
            (entry("0.1.0.3", "tenant\U000e0100"), "a", "name"),
            (entry("0.1.0.3", "\u3164"), "a", "name"),
            (entry("0.1.0.3", "\uff5ex"), "a", "name"),
            (entry("0.1.0.3", "\uff11\uff10.0.0.7"), "a", "name"),
            (entry("0.1.0.3", " x"), "a", "name"),
            (entry("0.1.0.3", "tenant"), "a", "name-taken"),
            (entry("0.1.0.3", "TENANT"), "a", "name-taken"),
            (entry("0.1.0.3", "gone"), "a", "name-taken"),
            (entry("0.1.0.3", "shard"), "a", "name-taken"),
            (entry("0.1.0.3", "traceparent"), "a", "name-taken"),
            (entry("0.1.0.3", "Traceparent"), "a", "name-taken"),
            (entry("0.1.0.1", "other"), "a", "taken"),
            (entry("0.1.0.2", "other"), "a", "taken"),
            (entry("0.1.2.9", "x"), "a", "block"),
            (entry("0.1.0.3", "x", "b"), "b", "block"),
            (entry("9.0.0.1", "x"), "a", "block"),
            (entry("10.0.0.1", "x"), "a", "private"),
            (entry("10.255.255.255", "x"), "a", "private"),
            (entry("0.1.0.3", "x"), "b", "by"),
            (entry("0.1.0.3", "x"), "registrar", "by"),
            (entry("0.1.0.3", "x", retired=NEXT_DAY), "a", "retired"),
            (entry("0.1.0.3", "x", encoding="float16"), "a", "encoding"),
            (entry("0.1.0.3", "x", description=""), "a", "description"),
            (entry("0.1.0.3", "x", description="two\nlines"), "a", "description"),
            (entry("0.1.0.3", "x", description="x" * 1001), "a", "description"),
            (entry("0.1.0.3", "x", since="2027-02-30"), "a", "since"),
            (entry("0.1.0.3", "x", since="20270101"), "a", "since"),
            (entry("0.1.0.3", "x", since="2027-W01-1"), "a", "since"),
            (entry("0.1.0.3", "x", since=""), "a", "since"),
        ],
        ids=lambda value: f"{value.id} {value.name!a:.20}" if isinstance(value, Entry) else str(value),
    )
    def test_refuses_for_one_reason(self, registry: Registry, refused: Entry, by: str, rule: str) -> None:
        assert rules(Register(refused, by), registry) == [rule]

    def test_refuses_the_id_that_stands_for_none(self, registry: Registry) -> None:
        assert "reserved" in rules(Register(entry(str(NO_ID), "x", "headerware"), "headerware"), registry)

    @pytest.mark.parametrize("header_id", ["0.0.0.1", "0.0.0.200", "0.0.1.1", "0.0.255.255"])
    def test_refuses_ids_of_headerware_from_everyone(self, registry: Registry, header_id: str) -> None:
        for owner in ("headerware", "registrar", "a"):
            assert "own" in rules(Register(entry(header_id, "x", owner), owner), registry)

    def test_refuses_what_comes_with_headerware_even_where_it_is_missing(self) -> None:
        ours = built_in().entries[0]
        assert rules(Register(ours, "headerware"), Registry(built_in().blocks)) == ["by"]

    def test_says_who_was_first(self, registry: Registry) -> None:
        with pytest.raises(RegistryError, match=r"^0\.1\.0\.1: the id is 'tenant', a's since 2027-01-01; "):
            registry.apply(Register(entry("0.1.0.1", "other"), "a"))
        with pytest.raises(
            RegistryError, match=r"'gone' is 0\.1\.0\.2's, a's since .*, retired since 2027-01-02"
        ):
            registry.apply(Register(entry("0.1.0.3", "gone"), "a"))
        with pytest.raises(RegistryError, match=r"'Shard' looks like 'shard', 0\.1\.2\.1, b's"):
            registry.apply(Register(entry("0.1.0.3", "Shard"), "a"))

    def test_says_everything_that_is_wrong(self, registry: Registry) -> None:
        with pytest.raises(RegistryError) as caught:
            registry.apply(Register(entry("0.1.0.1", "shard", "a", since="soon"), "b"))
        assert str(caught.value).count("\n") == 3


class TestAllocate:
    @pytest.mark.parametrize(
        ("network", "owner", "by"),
        [
            ("0.2.0.0/16", "e", "registrar"),
            ("0.1.3.0/24", "e", "a"),
            ("0.1.3.0/24", "a", "a"),
            ("0.1.2.128/25", "e", "b"),
            ("0.1.3.4/32", "e", "a"),
            ("11.0.0.0/8", "e", "registrar"),
            ("9.0.0.0/8", "e", "registrar"),
            ("128.0.0.0/1", "e", "registrar"),
            ("6.0.0.0/7", "d", "registrar"),  # around his own block
        ],
    )
    def test_takes_a_free_block_from_whose_it_is(
        self, registry: Registry, network: str, owner: str, by: str
    ) -> None:
        after = registry.apply(Allocate(block(network, owner), by))
        assert after.block(IPv4Network(network)) == block(network, owner)
        assert problems(after) == []

    @pytest.mark.parametrize(
        ("network", "owner", "by", "rule"),
        [
            ("0.1.3.0/24", "e", "registrar", "by"),
            ("0.1.3.0/24", "e", "e", "by"),
            ("0.1.2.128/25", "e", "a", "by"),
            ("0.2.0.0/16", "e", "a", "by"),
            ("0.2.0.0/16", "a", "a", "by"),
            ("0.1.2.0/24", "e", "a", "taken"),
            ("0.1.2.0/24", "b", "a", "taken"),
            ("7.0.0.0/8", "d", "registrar", "taken"),
            ("6.0.0.0/7", "e", "registrar", "overlap"),
            ("0.1.2.0/23", "e", "a", "overlap"),
            ("0.1.0.0/24", "e", "a", "takes-along"),
            ("0.1.0.2/32", "e", "a", "takes-along"),
            ("0.1.2.0/30", "a", "b", "takes-along"),
            ("10.0.0.0/8", "e", "registrar", "private"),
            ("10.1.0.0/16", "e", "registrar", "private"),
            ("10.1.2.3/32", "e", "registrar", "private"),
            ("10.0.0.0/7", "e", "registrar", "private"),
        ],
    )
    def test_refuses_for_one_reason(
        self, registry: Registry, network: str, owner: str, by: str, rule: str
    ) -> None:
        assert rules(Allocate(block(network, owner), by), registry) == [rule]

    @pytest.mark.parametrize("network", ["0.0.0.0/16", "0.0.5.0/24", "0.0.0.1/32", "0.0.0.0/8", "0.0.0.0/0"])
    @pytest.mark.parametrize("by", ["registrar", "headerware"])
    def test_refuses_the_block_of_headerware_and_all_around_it(
        self, registry: Registry, network: str, by: str
    ) -> None:
        assert "own" in rules(Allocate(block(network, "e"), by), registry)

    @pytest.mark.parametrize(
        ("fields", "rule"),
        [
            ({"owner": ""}, "owner"),
            ({"owner": "x" * 101}, "owner"),
            ({"owner": "a\x1b[2J"}, "owner"),
            ({"owner": "a\u2800"}, "owner"),
            ({"description": ""}, "description"),
            ({"since": "2027-13-01"}, "since"),
        ],
    )
    def test_refuses_bad_values(self, registry: Registry, fields: dict[str, str], rule: str) -> None:
        bad = replace(block("0.2.0.0/16", "e"), **fields)
        assert rules(Allocate(bad, "registrar"), registry) == [rule]

    def test_refuses_a_block_that_is_older_than_the_one_around_it(self, registry: Registry) -> None:
        older = block("0.1.3.0/24", "e", since="2026-12-31")
        assert rules(Allocate(older, "a"), registry) == ["overlap"]

    def test_takes_a_block_around_one_of_its_own_that_others_have_parts_of(self, registry: Registry) -> None:
        parted = registry.apply(Allocate(block("7.1.0.0/16", "e"), "d"))
        assert problems(parted.apply(Allocate(block("6.0.0.0/7", "d"), "registrar"))) == []

    def test_only_the_nearest_owner_hands_out(self, registry: Registry) -> None:
        after = registry.apply(Allocate(block("0.1.2.128/25", "c"), "b"))
        for by in ("registrar", "a", "b"):
            with pytest.raises(RegistryError, match=r"'c' may, as the owner of 0\.1\.2\.128/25 around it"):
                after.apply(Allocate(block("0.1.2.192/26", "e"), by))
        assert problems(after.apply(Allocate(block("0.1.2.192/26", "e"), "c"))) == []


class TestRetire:
    def test_retires_an_id_of_his_own_once(self, registry: Registry) -> None:
        after = registry.apply(Retire(HeaderId("0.1.0.1"), NEXT_DAY, "a"))
        assert problems(after) == []
        with pytest.raises(RegistryError, match="retired since 2027-01-02, for good"):
            after.apply(Retire(HeaderId("0.1.0.1"), "2028-01-01", "a"))

    @pytest.mark.parametrize(
        ("header_id", "day", "by", "rule"),
        [
            ("0.1.0.1", NEXT_DAY, "b", "by"),
            ("0.1.2.1", NEXT_DAY, "a", "by"),  # the owner of the block around it
            ("0.1.0.1", NEXT_DAY, "registrar", "by"),
            ("0.1.0.9", NEXT_DAY, "a", "by"),
            ("0.0.0.1", NEXT_DAY, "headerware", "by"),
            ("0.1.0.2", NEXT_DAY, "a", "retired"),
            ("0.1.0.1", "2026-12-31", "a", "retired"),
            ("0.1.0.1", "tomorrow", "a", "retired"),
        ],
    )
    def test_refuses_for_one_reason(
        self, registry: Registry, header_id: str, day: str, by: str, rule: str
    ) -> None:
        assert rules(Retire(HeaderId(header_id), day, by), registry) == [rule]


class TestProblems:
    """A whole registry, as people may have written it."""

    @pytest.mark.parametrize(
        ("extra", "rule"),
        [
            (entry("0.1.0.1", "again"), "taken"),
            (entry("0.1.0.3", "tenant"), "name-taken"),
            (entry("0.1.0.3", "Tenant"), "name-taken"),
            (entry("0.1.0.3", "x", retired="2026-01-01"), "retired"),
            (entry("0.1.0.3", "x", retired="never"), "retired"),
            (entry("0.1.2.3", "x"), "block"),
            (entry("10.0.0.3", "x"), "private"),
            (entry("0.0.0.99", "hw.new", "headerware"), "own"),
            (replace(built_in().entries[0], id=HeaderId("0.0.0.98"), name="hw.other"), "own"),
        ],
        ids=lambda value: f"{value.id} {value.name}" if isinstance(value, Entry) else str(value),
    )
    def test_of_one_entry_too_many(self, registry: Registry, extra: Entry, rule: str) -> None:
        found = problems(Registry(registry.blocks, [*registry.entries, extra]))
        assert [(problem.about, problem.rule) for problem in found] == [(str(extra.id), rule)]

    @pytest.mark.parametrize(
        ("extra", "rule"),
        [
            (block("7.0.0.0/8", "e"), "taken"),
            (block("6.0.0.0/7", "e"), "overlap"),
            (block("10.2.0.0/16", "e"), "private"),
            (block("0.0.7.0/24", "headerware"), "own"),
        ],
        ids=str,
    )
    def test_of_one_block_too_many(self, registry: Registry, extra: Block, rule: str) -> None:
        found = problems(Registry([*registry.blocks, extra], registry.entries))
        assert [problem.rule for problem in found] == [rule]

    def test_of_a_registrar_without_a_name(self) -> None:
        (found,) = problems(with_built_in(registrar=""))
        assert str(found) == "registrar: the registrar's name is not empty"

    def test_of_a_block_over_the_ids_of_another(self, registry: Registry) -> None:
        found = problems(Registry([*registry.blocks, block("0.1.0.0/24", "e")], registry.entries))
        assert [(problem.about, problem.rule) for problem in found] == [
            ("0.1.0.1", "block"),
            ("0.1.0.2", "block"),
        ]


class TestMessages:
    """What is told may have been written by anyone, and is read on a terminal."""

    @pytest.mark.parametrize("owner", ["\x1b[2Ja", "a\u202eb", "a" * 100_000, "\ud800"])
    def test_are_printable_and_short(self, registry: Registry, owner: str) -> None:
        hostile = [entry("0.1.0.1", "x", owner, since="2020-01-01"), entry("0.1.0.9", "TENANT", owner)]
        found = problems(Registry(registry.blocks, [*hostile, *registry.entries]))
        assert {problem.rule for problem in found} == {"taken", "owner", "name-taken", "block"}
        assert all(problem.message.isprintable() and len(problem.message) < 1100 for problem in found)


class TestNewerHeaderware:
    """A name of others that Headerware came to know after somebody had registered it."""

    def test_leaves_the_name_to_who_was_first(self, registry: Registry) -> None:
        first = entry("0.1.0.3", "traceparent", since="2026-11-20")
        after = with_built_in([each for each in registry.blocks if each.owner != "headerware"], [first])
        assert problems(after) == []
        assert after.by_name("traceparent") == first

    def test_never_leaves_a_name_of_its_own(self, registry: Registry) -> None:
        first = entry("0.1.0.3", "hw.trail", since="2020-01-01")
        found = problems(Registry(registry.blocks, [*registry.entries, first]))
        assert [problem.rule for problem in found] == ["name", "name-taken"]
