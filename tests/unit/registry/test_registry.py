from __future__ import annotations

from ipaddress import IPv4Network

import pytest

from headerware.core.errors import RegistryError
from headerware.core.header_ids import HeaderId
from headerware.registry import Allocate, Entry, Register, Registry, Retire, with_built_in
from headerware.registry.registry import Draft
from tests.unit.registry.conftest import DAY, block, entry

BLOCKS = (
    block("0.1.0.0/16", "a"),
    block("0.1.2.0/24", "b"),
    block("0.1.2.8/29", "c"),
    block("7.0.0.0/8", "d"),
)


@pytest.fixture
def registry() -> Registry:
    return Registry(BLOCKS, [entry("0.1.0.9", "late"), entry("0.1.0.1", "early")])


class TestValues:
    def test_an_id_may_be_given_as_text_or_number(self) -> None:
        given = [
            Entry(id=value, name="n", owner="a", encoding="bytes", description="d", since=DAY)  # type: ignore[arg-type]
            for value in ("0.1.0.1", 65537)
        ]
        assert [type(each.id) for each in given] == [HeaderId, HeaderId]
        assert [str(each.id) for each in given] == ["0.1.0.1"] * 2

    def test_an_id_to_be_retired_may_be_given_so_too(self) -> None:
        given = [Retire(value, DAY, "a") for value in ("0.1.0.1", 65537)]  # type: ignore[arg-type]
        assert given == [Retire(HeaderId("0.1.0.1"), DAY, "a")] * 2
        assert [str(each.id) for each in given] == ["0.1.0.1"] * 2

    def test_a_block_contains_its_ids_only(self) -> None:
        held = block("0.1.2.0/24", "a")
        assert HeaderId("0.1.2.0") in held
        assert HeaderId("0.1.2.255") in held
        assert HeaderId("0.1.1.255") not in held
        assert HeaderId("0.1.3.0") not in held


class TestRegistry:
    def test_sorts_what_it_holds(self, registry: Registry) -> None:
        assert [each.name for each in registry.entries] == ["early", "late"]
        assert Registry(reversed(BLOCKS)).blocks == BLOCKS

    @pytest.mark.parametrize(
        ("header_id", "owner"),
        [
            ("0.1.0.0", "a"),
            ("0.1.1.255", "a"),
            ("0.1.2.0", "b"),
            ("0.1.2.7", "b"),
            ("0.1.2.8", "c"),
            ("0.1.2.15", "c"),
            ("0.1.2.16", "b"),
            ("0.1.255.255", "a"),
            ("7.255.255.255", "d"),
        ],
    )
    def test_the_most_specific_block_decides(self, registry: Registry, header_id: str, owner: str) -> None:
        found = registry.block_of(HeaderId(header_id))
        assert found is not None
        assert found.owner == owner

    @pytest.mark.parametrize("header_id", ["0.0.255.255", "0.2.0.0", "8.0.0.0", "255.255.255.255"])
    def test_an_id_may_lie_in_no_block(self, registry: Registry, header_id: str) -> None:
        assert registry.block_of(HeaderId(header_id)) is None

    def test_the_whole_range_can_be_one_block(self) -> None:
        everything = block("0.0.0.0/0", "all")
        found = Registry([everything, block("9.0.0.1/32", "one")])
        assert found.block_of(HeaderId("255.255.255.255")) == everything
        assert found.block_of(HeaderId("9.0.0.1")) == found.block(IPv4Network("9.0.0.1/32"))
        assert found.around(IPv4Network("0.0.0.0/0")) is None

    def test_gives_the_nearest_block_around_a_network(self, registry: Registry) -> None:
        assert registry.around(IPv4Network("0.1.2.8/29")) == BLOCKS[1]
        assert registry.around(IPv4Network("0.1.2.0/25")) == BLOCKS[1]
        assert registry.around(IPv4Network("0.1.0.0/16")) is None

    def test_gives_the_blocks_inside_a_network(self, registry: Registry) -> None:
        assert registry.blocks_in(IPv4Network("0.1.0.0/16")) == BLOCKS[1:3]
        assert registry.blocks_in(IPv4Network("0.0.0.0/0")) == BLOCKS
        assert registry.blocks_in(IPv4Network("0.1.2.0/25")) == BLOCKS[2:3]
        assert registry.blocks_in(IPv4Network("0.2.0.0/16")) == ()

    def test_gives_the_entries_inside_a_network(self, registry: Registry) -> None:
        assert [each.name for each in registry.entries_in(IPv4Network("0.1.0.0/29"))] == ["early"]
        assert [each.name for each in registry.entries_in(IPv4Network("0.1.0.9/32"))] == ["late"]

    def test_names_are_exact(self, registry: Registry) -> None:
        assert registry.by_name("early") is registry.by_id(HeaderId("0.1.0.1"))
        assert registry.by_name("Early") is None
        assert registry.named_like("EARLY") is registry.by_name("early")

    def test_unicode_forms_of_a_name_look_alike(self) -> None:
        composed = Registry(entries=[entry("0.1.0.1", "caf\u00e9")])
        assert composed.named_like("CAFE\u0301") is not None
        assert composed.by_name("cafe\u0301") is None

    def test_counts_its_entries(self, registry: Registry) -> None:
        assert len(registry) == 2
        assert repr(registry) == "<Registry of 'registrar': 4 blocks, 2 entries>"

    def test_equal_registries_hold_the_same(self, registry: Registry) -> None:
        again = Registry(reversed(BLOCKS), registry.entries)
        assert again == registry
        assert hash(again) == hash(registry)
        assert again != Registry(BLOCKS, registry.entries, registrar="other")
        assert again != Registry(BLOCKS[1:], registry.entries)
        assert again != "a registry"


class TestApply:
    def test_gives_another_registry_and_leaves_this_one(self) -> None:
        before = with_built_in()
        allocated = before.apply(Allocate(block("0.1.0.0/16", "a"), "registrar"))
        registered = allocated.apply(Register(entry("0.1.0.1", "early"), "a"))
        retired = registered.apply(Retire(HeaderId("0.1.0.1"), "2027-02-01", "a"))
        assert before == with_built_in()
        assert (len(before.blocks), len(allocated.blocks)) == (1, 2)
        assert allocated.by_id(HeaderId("0.1.0.1")) is None
        found = [state.by_name("early") for state in (registered, retired)]
        assert [each and each.retired for each in found] == [None, "2027-02-01"]

    def test_keeps_look_ups_as_if_built_at_once(self) -> None:
        state = with_built_in().apply(Allocate(block("0.1.0.0/16", "a"), "registrar"))
        for number in (5, 1, 9, 3):
            state = state.apply(Register(entry(f"0.1.0.{number}", f"n{number}"), "a"))
        state = state.apply(Allocate(block("0.1.3.0/24", "b"), "a"))
        state = state.apply(Retire(HeaderId("0.1.0.3"), "2027-02-01", "a"))
        again = Registry(state.blocks, state.entries)
        assert state == again
        for number in range(11):
            wanted = HeaderId(f"0.1.0.{number}")
            assert state.by_id(wanted) == again.by_id(wanted)
            assert state.by_name(f"n{number}") == again.by_name(f"n{number}")
        assert state.block_of(HeaderId("0.1.3.1")) == again.block_of(HeaderId("0.1.3.1"))


class TestDraft:
    def test_what_was_taken_from_it_does_not_change_with_it(self) -> None:
        draft = Draft(with_built_in())
        taken = [draft.registry()]
        for change in (
            Allocate(block("0.1.0.0/16", "a"), "registrar"),
            Register(entry("0.1.0.5", "five"), "a"),
            Register(entry("0.1.0.1", "one"), "a"),
            Allocate(block("0.1.3.0/24", "b"), "a"),
            Retire(HeaderId("0.1.0.5"), "2027-02-01", "a"),
        ):
            draft.apply(change)
            taken.append(draft.registry())
        one_by_one = [(len(each.blocks), len(each.entries)) for each in taken]
        blocks, entries = one_by_one[0]
        assert one_by_one == [
            (blocks + more, entries + new) for more, new in [(0, 0), (1, 0), (1, 1), (1, 2), (2, 2), (2, 2)]
        ]
        found = [each.by_name("five") for each in taken]
        assert [each and each.retired for each in found] == [None, None, None, None, None, "2027-02-01"]
        assert taken[-1] == Registry(taken[-1].blocks, taken[-1].entries)

    def test_gives_the_same_registry_until_it_changes(self) -> None:
        registry = with_built_in()
        draft = Draft(registry)
        assert draft.registry() is registry
        with pytest.raises(RegistryError, match="may not allocate"):
            draft.apply(Allocate(block("0.1.0.0/16", "a"), "stranger"))
        assert draft.registry() is registry
        draft.apply(Allocate(block("0.1.0.0/16", "a"), "registrar"))
        assert draft.registry() is draft.registry()
        assert draft.registry() is not registry

    def test_copies_no_index_between_two_registries(self) -> None:
        draft = Draft(with_built_in())
        draft.apply(Allocate(block("0.1.0.0/16", "a"), "registrar"))
        draft.apply(Register(entry("0.1.0.1", "n1"), "a"))
        kept = draft._ids, draft._looks, draft._entries, draft._blocks, draft._networks
        for number in range(2, 9):
            draft.apply(Register(entry(f"0.1.0.{number}", f"n{number}"), "a"))
            draft.apply(Allocate(block(f"0.1.{number}.0/24", "b"), "a"))
        now = draft._ids, draft._looks, draft._entries, draft._blocks, draft._networks
        assert all(one is other for one, other in zip(kept, now, strict=True))
