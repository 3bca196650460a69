from __future__ import annotations

from ipaddress import IPv4Network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headerware.cli.free_ids import next_id, next_network
from headerware.core.errors import RegistryError
from headerware.core.header_ids import HeaderId
from headerware.registry import Allocate, Block, Entry, Register, Registry, built_in, problems, with_built_in

DAY = "2027-01-01"


def network(text: str) -> IPv4Network:
    return IPv4Network(text)


def block(text: str, owner: str) -> Block:
    return Block(network=network(text), owner=owner, description="Some.", since=DAY)


def entry(header_id: str | HeaderId, owner: str = "a", retired: str | None = None) -> Entry:
    return Entry(
        id=HeaderId(header_id),
        name=f"n{header_id!s}",
        owner=owner,
        encoding="bytes",
        description="One.",
        since=DAY,
        retired=retired,
    )


class TestNextId:
    def test_passes_what_was_ever_registered(self) -> None:
        registry = with_built_in(
            [block("0.1.0.0/16", "a")], [entry("0.1.0.1"), entry("0.1.0.2", retired=DAY), entry("0.1.0.4")]
        )
        assert str(next_id(registry, "a")) == "0.1.0.3"

    def test_takes_a_blocks_first_id_last(self) -> None:
        blocks = [block("0.1.0.0/31", "a"), block("0.2.0.0/32", "a")]
        registry = with_built_in(blocks)
        taken = []
        for _ in range(3):
            taken.append(next_id(registry, "a"))
            registry = registry.apply(Register(entry(taken[-1]), "a"))
        assert list(map(str, taken)) == ["0.1.0.1", "0.1.0.0", "0.2.0.0"]
        with pytest.raises(RegistryError, match="'a' has no free id: have another block allocated"):
            next_id(registry, "a")

    def test_passes_blocks_of_others(self) -> None:
        blocks = [block("0.1.0.0/16", "a"), block("0.1.0.0/17", "b"), block("0.1.0.128/25", "a")]
        assert str(next_id(with_built_in(blocks), "a")) == "0.1.128.0"
        assert str(next_id(with_built_in(blocks), "b")) == "0.1.0.1"
        assert str(next_id(with_built_in(blocks), "a", network("0.1.0.0/24"))) == "0.1.0.129"

    def test_stays_within(self) -> None:
        registry = with_built_in([block("0.1.0.0/16", "a"), block("0.1.2.0/24", "b")])
        assert str(next_id(registry, "a", network("0.1.9.0/24"))) == "0.1.9.1"
        with pytest.raises(RegistryError, match=r"'a' has no free id in 0\.1\.2\.0/25"):
            next_id(registry, "a", network("0.1.2.0/25"))

    @pytest.mark.parametrize(("owner", "within"), [("c", "0.0.0.0/0"), ("a", "0.2.0.0/16")])
    def test_needs_a_block(self, owner: str, within: str) -> None:
        registry = with_built_in([block("0.1.0.0/16", "a")])
        with pytest.raises(RegistryError, match=f"'{owner}' owns no block"):
            next_id(registry, owner, network(within))

    def test_does_not_walk_through_large_blocks(self) -> None:
        registry = with_built_in([block("128.0.0.0/1", "a"), block("128.0.0.0/2", "b")])
        assert str(next_id(registry, "a")) == "192.0.0.0"


class TestNextNetwork:
    def test_of_the_registrar_passes_what_is_reserved(self) -> None:
        assert str(next_network(built_in(), "registrar", 16)) == "0.1.0.0/16"
        assert str(next_network(built_in(), "registrar", 8)) == "1.0.0.0/8"
        assert str(next_network(built_in(), "registrar", 16, network("8.0.0.0/6"))) == "8.0.0.0/16"
        full = with_built_in([block("8.0.0.0/7", "a")])
        assert str(next_network(full, "registrar", 16, network("8.0.0.0/6"))) == "11.0.0.0/16"

    def test_passes_what_holds_blocks_or_ids(self) -> None:
        blocks = [block("0.1.0.0/16", "a"), block("0.1.1.128/25", "b"), block("0.1.2.0/23", "c")]
        registry = with_built_in(blocks, [entry("0.1.0.7")])
        assert str(next_network(registry, "a", 24)) == "0.1.4.0/24"
        assert str(next_network(registry, "a", 25)) == "0.1.0.128/25"
        assert str(next_network(registry, "c", 24)) == "0.1.2.0/24"

    def test_of_a_registrar_that_owns_blocks_is_outside_them_first(self) -> None:
        registry = with_built_in([block("0.1.0.0/16", "p")], registrar="p")
        assert str(next_network(registry, "p", 24)) == "0.2.0.0/24"
        assert str(next_network(registry, "p", 24, network("0.1.0.0/16"))) == "0.1.0.0/24"

    @pytest.mark.parametrize(
        ("by", "prefix", "within"),
        [
            ("nobody", 24, "0.0.0.0/0"),
            ("a", 16, "0.0.0.0/0"),
            ("a", 8, "0.0.0.0/0"),
            ("a", 24, "0.2.0.0/16"),
            ("registrar", 24, "10.0.0.0/8"),
            ("registrar", 24, "0.0.0.0/16"),
            ("registrar", 24, "0.1.0.0/16"),
            ("registrar", 1, "0.0.0.0/1"),
        ],
    )
    def test_needs_room_that_is_ones_own(self, by: str, prefix: int, within: str) -> None:
        registry = with_built_in([block("0.1.0.0/16", "a")])
        with pytest.raises(
            RegistryError, match=f"'{by}' (owns no block|has no room for a block of size /{prefix})"
        ):
            next_network(registry, by, prefix, network(within))

    def test_does_not_walk_through_large_blocks(self) -> None:
        registry = with_built_in([block("128.0.0.0/1", "a"), block("128.0.0.0/2", "b")])
        assert str(next_network(registry, "a", 32)) == "192.0.0.0/32"
        with pytest.raises(RegistryError, match="no room"):
            next_network(registry, "registrar", 32, network("160.0.0.0/3"))


class TestWhatIsFree:
    @given(
        st.lists(
            st.tuples(
                st.sampled_from(["registrar", "a", "b"]),
                st.sampled_from(["a", "b", "registrar"]),
                st.one_of(st.none(), st.integers(16, 32)),
            ),
            max_size=12,
        )
    )
    def test_is_what_the_rules_admit(self, steps: list[tuple[str, str, int | None]]) -> None:
        registry: Registry = with_built_in([block("0.1.0.0/28", "a")])
        for step in steps:
            try:
                change = self.proposed(registry, *step)
            except RegistryError:
                continue  # nothing is free
            registry = registry.apply(change)
        assert problems(registry) == []

    def proposed(self, registry: Registry, by: str, owner: str, prefix: int | None) -> Register | Allocate:
        if prefix is None:
            return Register(entry(next_id(registry, owner), owner), owner)
        return Allocate(block(str(next_network(registry, by, prefix)), owner), by)
