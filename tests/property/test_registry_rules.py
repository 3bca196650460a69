"""Whatever is asked of a registry: it stays sound, and its stores agree."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from ipaddress import IPv4Network
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from msgspec.structs import replace

from headerware.core.errors import RegistryError
from headerware.core.header_ids import MAX_ID, HeaderId
from headerware.registry import (
    Allocate,
    Block,
    Change,
    Entry,
    Names,
    Register,
    Registry,
    Retire,
    problems,
    with_built_in,
    without_built_in,
)
from headerware.registry.differences import changes, diff
from headerware.registry.registry import Draft, refusals
from headerware.registry.stores import create_store
from headerware.registry.stores.toml import read_registry, registry_text
from headerware.registry.values import NO_ID, change_from_plain, to_plain

# Few owners, ids and names, so that they meet; and now and then any.
owners = st.sampled_from(["registrar", "a", "b", "headerware"])
common_ids = ["0.0.0.1", "0.1.0.1", "0.1.0.2", "0.1.1.1", "0.1.1.2", "0.2.0.1", "10.0.0.1"]
ids = st.sampled_from(common_ids).map(HeaderId) | st.integers(0, MAX_ID).map(HeaderId) | st.just(NO_ID)
names = st.sampled_from(
    ["x", "X", "y", "\u00fc", "u\u0308", "hw.trail", "hw.x", "traceparent", "~", "1.2.3.4", ""]
)
names |= st.text(max_size=4)
days = st.sampled_from(["2027-01-01", "2027-01-02", "2020-01-01", "never"])
common = [
    "0.0.0.0/0",
    "0.0.0.0/15",
    "0.0.0.0/16",
    "0.1.0.0/16",
    "0.1.0.0/23",
    "0.1.1.0/24",
    "0.1.1.0/31",
    "0.2.0.0/16",
]
networks = st.sampled_from([*common, "10.0.0.0/8"]).map(IPv4Network) | st.builds(
    lambda address, prefix: IPv4Network((address >> (32 - prefix) << (32 - prefix), prefix)),
    st.integers(0, MAX_ID),
    st.integers(0, 32),
)
words = st.sampled_from(["Some.", "", "[[entry]]", '"""', "# \\"]) | st.text(max_size=6)
blocks = st.builds(Block, network=networks, owner=owners, description=words, since=days)
entries = st.builds(
    Entry,
    id=ids,
    name=names,
    owner=owners,
    encoding=st.sampled_from(["bytes", "utf-8"]),
    description=words,
    since=days,
    retired=st.none() | days,
    foreign=st.booleans(),
)
any_changes = st.one_of(
    st.builds(Allocate, blocks, owners),
    st.builds(Register, entries, owners),
    st.builds(Retire, ids, days, owners),
)
# Well-formed ones that may be right: two owners, each with a block, and little room in both.
own_ids = st.sampled_from([f"0.1.{part}.{number}" for part in (0, 1, 2) for number in (1, 2)]).map(HeaderId)
own_networks = [
    *("0.1.0.0/23", "0.1.0.0/31", "0.1.1.0/25", "0.1.2.0/24", "0.1.2.0/31", "0.1.2.2/32"),
    *("0.0.0.0/15", "0.2.0.0/16", "0.2.0.0/15", "0.2.128.0/17"),
]
own_names = st.sampled_from(["x", "X", "y", "z", "\u00fc", "u\u0308", 'w|`"\\', "traceparent"])
own_days = st.sampled_from(["2027-01-02", "2027-01-03"])
likely_changes = st.one_of(
    st.builds(
        lambda network, owner, by, since: Allocate(
            Block(network=IPv4Network(network), owner=owner, description="Some.", since=since), by
        ),
        st.sampled_from(own_networks),
        st.sampled_from("ab"),
        st.sampled_from(["a", "b", "registrar"]),
        own_days,
    ),
    st.builds(
        lambda header_id, name, owner, since: Register(
            Entry(id=header_id, name=name, owner=owner, encoding="bytes", description="One.", since=since),
            owner,
        ),
        own_ids,
        own_names,
        st.sampled_from("ab"),
        own_days,
    ),
    st.builds(Retire, own_ids, own_days, st.sampled_from("ab")),
)
sequences = st.lists(likely_changes, min_size=5, max_size=40)
START = with_built_in(
    Block(network=IPv4Network(network), owner=owner, description="Some.", since="2027-01-01")
    for network, owner in (("0.1.0.0/16", "a"), ("0.1.1.0/24", "b"))
)


def applied(registry: Registry, change: Change) -> Registry:
    """Apply a change, or give the same registry where it is refused."""
    try:
        return registry.apply(change)
    except RegistryError:
        assert refusals(change, registry)
        return registry


@given(st.lists(any_changes | likely_changes, min_size=5, max_size=40))
def test_any_changes_leave_a_sound_registry(wanted: list[Change]) -> None:
    registry = START
    for change in wanted:
        before, parts = registry, (registry.blocks, registry.entries)
        registry = applied(registry, change)
        assert (before.blocks, before.entries) == parts
        assert problems(registry) == []
    assert registry == Registry(registry.blocks, registry.entries)


@given(st.lists(any_changes | likely_changes, min_size=5, max_size=40), st.sets(st.integers(0, 39)))
def test_a_draft_comes_to_what_changes_one_by_one_come_to(wanted: list[Change], looks: set[int]) -> None:
    draft, registry = Draft(START), START
    for number, change in enumerate(wanted):
        assert refusals(change, draft) == refusals(change, registry)
        with suppress(RegistryError):
            draft.apply(change)
        registry = applied(registry, change)
        if number in looks:
            assert draft.registry() == registry
    found = draft.registry()
    assert found == registry == Registry(registry.blocks, registry.entries)
    for entry in registry.entries:
        assert found.by_id(entry.id) == found.named_like(entry.name) == entry
        assert found.block_of(entry.id) == registry.block_of(entry.id)


@given(sequences)
def test_ids_and_names_are_for_good(wanted: list[Change]) -> None:
    registry = START
    for change in wanted:
        after = applied(registry, change)
        for old in registry.entries:
            new = after.by_id(old.id)
            assert new is not None
            assert replace(new, retired=None) == replace(old, retired=None)
            assert new.retired == old.retired or old.retired is None
            assert after.by_name(old.name) == new
        assert set(registry.blocks) <= set(after.blocks)
        registry = after


@given(sequences, st.integers(0, 40))
def test_what_changes_did_is_no_violation_and_what_undoes_them_is(wanted: list[Change], cut: int) -> None:
    states = [START]
    for change in wanted:
        states.append(applied(states[-1], change))
    before, after = states[min(cut, len(wanted))], states[-1]
    assert [difference for difference in diff(before, after) if difference.kind == "forbidden"] == []
    assert (before == after) == (diff(before, after) == [])
    if before != after:
        assert diff(after, before)[0].kind == "forbidden"
    replayed = before
    for change in changes(before, after):
        replayed = replayed.apply(change)
    assert replayed == after


@given(st.lists(blocks, max_size=6), st.lists(entries, max_size=6))
def test_an_entry_of_a_sound_registry_lies_in_a_block_of_its_owner(
    some_blocks: list[Block], some_entries: list[Entry]
) -> None:
    registry = with_built_in(some_blocks, some_entries)
    if problems(registry):
        return
    assert len({entry.id for entry in registry.entries}) == len(registry)
    for entry in registry.entries:
        around = [block for block in registry.blocks if entry.id in block]
        nearest = max(around, key=lambda block: block.network.prefixlen)
        assert nearest == registry.block_of(entry.id)
        assert nearest.owner == entry.owner
        assert entry.id >> 24 != 10
        assert entry.id != 0


@given(sequences)
def test_text_gives_the_registry_again(wanted: list[Change]) -> None:
    registry = START
    for change in wanted:
        registry = applied(registry, change)
    reading = read_registry(registry_text(registry), "there")
    assert reading.problems == []
    assert reading.registry == registry
    own = without_built_in(registry)
    assert with_built_in(own.blocks, own.entries) == registry


@given(st.text() | st.builds("version = 1\nregistrar = 'p'\n[[entry]]\n{}".format, st.text()))
def test_any_text_is_read_or_its_problems_told(text: str) -> None:
    reading = read_registry(text, "there")
    assert reading.problems or problems(reading.registry) == []


@given(any_changes)
def test_changes_go_there_and_back_as_plain_values(change: Change) -> None:
    assert change_from_plain(to_plain(change)) == change


@given(sequences)
def test_names_and_ids_agree(wanted: list[Change]) -> None:
    registry = START
    for change in wanted:
        registry = applied(registry, change)
    found = Names(registry)
    for entry in registry.entries:
        assert found.name_of(entry.id) == entry.name
        assert found.id_of(entry.name) == (entry.id if entry.retired is None else None)


class StoreAgainstRegistry(RuleBasedStateMachine):
    """Do the same to a registry and to its store, and compare what they say and what they hold."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.registry = START
        self.store = create_store(str(Path(self.folder.name) / "r.toml"), self.registry)

    def ask(self, change: Change) -> None:
        against = "\n".join(map(str, refusals(change, self.registry)))
        self.registry = applied(self.registry, change)
        try:
            assert self.store.apply(change) == self.registry
            assert not against
        except RegistryError as error:
            assert str(error) == against  # noqa: PT017 - both outcomes are right, each in its case

    @rule(change=likely_changes)
    def change(self, change: Change) -> None:
        self.ask(change)

    @rule(change=any_changes)
    def try_anything(self, change: Change) -> None:
        self.ask(change)

    @invariant()
    def both_hold_the_same(self) -> None:
        assert self.store.load() == self.registry

    def teardown(self) -> None:
        self.store.close()
        self.folder.cleanup()


TestStoreAgainstRegistry = StoreAgainstRegistry.TestCase
TestStoreAgainstRegistry.settings = settings(
    stateful_step_count=25, max_examples=settings().max_examples // 4 + 1
)
