"""spec/vectors/registry.json: the rules of a registry of header ids."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headerware.core.errors import RegistryError
from headerware.core.header_ids import HeaderId
from headerware.registry import Block, Entry, Registry, problems, with_built_in
from headerware.registry.differences import diff
from headerware.registry.header_names import look
from headerware.registry.registry import refusals
from headerware.registry.values import change_from_plain, from_plain

VECTORS: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "spec" / "vectors" / "registry.json").read_text(encoding="utf-8")
)


def by_name(kind: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", VECTORS[kind], ids=lambda case: case["name"])


def registry_of(given: dict[str, Any] | str) -> Registry:
    plain = VECTORS["known"][given] if isinstance(given, str) else given
    return with_built_in(
        [from_plain(block, Block) for block in plain["blocks"]],
        [from_plain(entry, Entry) for entry in plain["entries"]],
        registrar=plain.get("registrar", "registrar"),
    )


class TestRegistryVectors:
    def test_changes_break_every_rule(self) -> None:
        broken = {rule for case in VECTORS["changes"] for rule in case["breaks"]}
        named = {rule for case in VECTORS["registries"] for _, rule in case["problems"]}
        # What is not possible in a change is in a registry that was written past the rules; another encoding
        # is not possible in either.
        assert broken | named == {
            *("by", "overlap", "takes-along", "retired"),
            *("own", "private", "owner", "description", "since", "taken"),
            *("reserved", "name", "name-taken", "block"),
        }

    @by_name("changes")
    def test_judges_a_change(self, case: dict[str, Any]) -> None:
        registry = registry_of(case["registry"])
        change = change_from_plain(case["change"])
        assert [problem.rule for problem in refusals(change, registry)] == case["breaks"]
        if case["breaks"]:
            with pytest.raises(RegistryError):
                registry.apply(change)
        else:
            assert problems(registry.apply(change)) == []

    @by_name("registries")
    def test_finds_what_is_wrong(self, case: dict[str, Any]) -> None:
        found = [[problem.about, problem.rule] for problem in problems(registry_of(case["registry"]))]
        assert found == case["problems"]

    @by_name("look_ups")
    def test_looks_up(self, case: dict[str, Any]) -> None:
        registry = registry_of(VECTORS["look_ups_in"])
        block, entry = registry.block_of(HeaderId(case["id"])), registry.by_id(HeaderId(case["id"]))
        assert (block and str(block.network), block and block.owner) == (case["block"], case["owner"])
        assert (entry and entry.name) == case["means"]

    @pytest.mark.parametrize(("one", "other"), VECTORS["alike"])
    def test_names_look_alike(self, one: str, other: str) -> None:
        assert look(one) == look(other)

    @pytest.mark.parametrize(("one", "other"), VECTORS["different"])
    def test_names_look_different(self, one: str, other: str) -> None:
        assert look(one) != look(other)

    @by_name("differences")
    def test_tells_two_states_apart(self, case: dict[str, Any]) -> None:
        found = diff(registry_of(case["before"]), registry_of(case["after"]))
        assert [[difference.kind, difference.about] for difference in found] == case["differences"]
