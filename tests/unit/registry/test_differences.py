from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from headerware.registry import Block, Entry, Registry, with_built_in
from headerware.registry.differences import changes, diff
from tests.unit.registry.conftest import DAY, block, entry

BLOCKS = [block("0.1.0.0/16", "a"), block("0.1.2.0/24", "b")]
TENANT, GONE = entry("0.1.0.1", "tenant"), entry("0.1.0.2", "gone", retired=DAY)


@pytest.fixture
def before() -> Registry:
    return with_built_in(BLOCKS, [TENANT, GONE])


def told(before: Registry, after: Registry) -> list[tuple[str, str]]:
    return [(difference.kind, difference.about) for difference in diff(before, after)]


class TestDiff:
    def test_of_the_same_is_nothing(self, before: Registry) -> None:
        assert diff(before, before) == []

    def test_tells_what_changes_did(self, before: Registry) -> None:
        after = with_built_in(
            [*BLOCKS, block("0.1.2.128/25", "c"), block("0.2.0.0/16", "d")],
            [
                replace(TENANT, retired=DAY),
                GONE,
                entry("0.1.2.1", "b's", "b"),
                entry("0.1.2.129", "c's", "c"),
            ],
        )
        assert told(before, after) == [
            ("allocated", "0.2.0.0/16"),
            ("allocated", "0.1.2.128/25"),
            ("registered", "0.1.2.1"),
            ("registered", "0.1.2.129"),
            ("retired", "0.1.0.1"),
        ]
        assert str(diff(before, after)[-1]) == "retired: 0.1.0.1: 'tenant', from 2027-01-01, by a"

    @pytest.mark.parametrize(
        "changed",
        [
            {"name": "tenants"},
            {"encoding": "utf-8"},
            {"owner": "z"},
            {"since": "2026-01-01"},
            {"foreign": True},
        ],
        ids=str,
    )
    def test_forbids_another_meaning(self, before: Registry, changed: dict[str, Any]) -> None:
        after = with_built_in(BLOCKS, [replace(TENANT, **changed), GONE])
        (difference,) = diff(before, after)
        assert (difference.kind, difference.about) == ("forbidden", "0.1.0.1")
        assert difference.message.startswith(f"{next(iter(changed))} was ")

    def test_allows_better_words(self, before: Registry) -> None:
        reworded = replace(TENANT, description="Whose it is.")
        assert told(before, with_built_in(BLOCKS, [reworded, GONE])) == [("reworded", "0.1.0.1")]

    @pytest.mark.parametrize(
        ("entries", "about"),
        [
            ([GONE], "0.1.0.1"),
            ([TENANT], "0.1.0.2"),
            ([TENANT, replace(GONE, retired=None)], "0.1.0.2"),
            ([TENANT, replace(GONE, retired="2027-01-02")], "0.1.0.2"),
        ],
        ids=["removed", "removed-retired", "in-use-again", "retired-later"],
    )
    def test_forbids_what_undoes(self, before: Registry, entries: list[Entry], about: str) -> None:
        assert told(before, with_built_in(BLOCKS, entries)) == [("forbidden", about)]

    def test_forbids_a_name_used_again(self, before: Registry) -> None:
        after = with_built_in(BLOCKS, [TENANT, GONE, entry("0.1.0.3", "gone")])
        assert told(before, after) == [("forbidden", "0.1.0.3")]

    def test_forbids_another_name_for_an_id_and_the_name_elsewhere(self, before: Registry) -> None:
        moved = [replace(TENANT, name="other"), GONE, entry("0.1.0.3", "tenant")]
        assert told(before, with_built_in(BLOCKS, moved)) == [
            ("forbidden", "0.1.0.1"),
            ("forbidden", "0.1.0.3"),
        ]

    @pytest.mark.parametrize(
        ("blocks", "forbidden"),
        [
            (BLOCKS[:1], ["0.1.2.0/24"]),
            ([BLOCKS[0], block("0.1.2.0/24", "c")], ["0.1.2.0/24"]),
            ([BLOCKS[0], block("0.1.2.0/24", "b", since="2027-01-02")], ["0.1.2.0/24"]),
            ([*BLOCKS, block("0.0.0.0/15", "z")], ["0.0.0.0/15", "0.0.0.0/15"]),
            ([*BLOCKS, block("0.1.2.0/23", "c")], ["0.1.2.0/23"]),
            ([*BLOCKS, block("0.1.0.0/30", "c")], ["0.1.0.0/30", "0.1.0.0/30"]),
        ],
        ids=["removed", "another-owner", "another-day", "over-ours", "over-others", "over-ids"],
    )
    def test_forbids_for_blocks(self, before: Registry, blocks: list[Block], forbidden: list[str]) -> None:
        found = diff(before, with_built_in(blocks, [TENANT, GONE]))
        assert {difference.about for difference in found} == set(forbidden)
        assert {difference.kind for difference in found} == {"forbidden"}

    def test_tells_of_another_registrar(self, before: Registry) -> None:
        after = with_built_in(BLOCKS, [TENANT, GONE], registrar="platform")
        assert [str(each) for each in diff(before, after)] == [
            "handed-over: registrar: from 'registrar' to 'platform'"
        ]

    def test_another_registrar_allocates_at_once(self, before: Registry) -> None:
        after = with_built_in([*BLOCKS, block("0.2.0.0/16", "d")], [TENANT, GONE], registrar="platform")
        assert told(before, after) == [("handed-over", "registrar"), ("allocated", "0.2.0.0/16")]

    def test_puts_what_is_forbidden_first(self, before: Registry) -> None:
        after = with_built_in(BLOCKS, [GONE, entry("0.1.2.1", "new", "b")])
        assert told(before, after) == [("forbidden", "0.1.0.1"), ("registered", "0.1.2.1")]


class TestChanges:
    def test_make_one_registry_of_another(self, before: Registry) -> None:
        state = with_built_in()
        for change in changes(state, before):
            state = state.apply(change)
        assert state == before
