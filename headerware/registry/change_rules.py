"""What a registry refuses as a change, and why: what shows only then, who makes it and what was first.

Whoever makes a change is taken at his word; who may write to a store is the store's to guard.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headerware.registry.changes import Allocate, Change, Register, Retire
from headerware.registry.entries import OWN_NETWORK
from headerware.registry.rules import (
    BLOCK_RULES,
    ENTRY_RULES,
    Problem,
    Rules,
    broken,
    is_ours,
    retired_problem,
    whose,
)

if TYPE_CHECKING:
    from headerware.registry.registry import Registry


def _allocates_its_own(change: Allocate, registry: Registry) -> str | None:
    around = registry.around(change.block.network)
    if around is None:
        rightful, why = registry.registrar, "the registrar"
    else:
        rightful, why = around.owner, f"the owner of {around.network} around it"
    return None if change.by == rightful else f"{change.by!r} may not allocate it: {rightful!r} may, as {why}"


def _lays_nothing_over_blocks_of_others(change: Allocate, registry: Registry) -> str | None:
    network = change.block.network
    around = registry.around(network)
    for inner in registry.blocks_in(network):
        if inner.owner != change.block.owner and registry.around(inner.network) is around:
            return f"the block would lie over {inner.network}, which is {inner.owner}'s since {inner.since}"
    return None


def _takes_no_ids_along(change: Allocate, registry: Registry) -> str | None:
    around = registry.around(change.block.network)
    for entry in registry.entries_in(change.block.network):
        if entry.owner != change.block.owner and registry.block_of(entry.id) is around:
            return f"the block would take {entry.id} along, which is {entry.name!r}, {whose(entry)}"
    return None


_ALLOCATE_RULES: Final[Rules[Allocate]] = (
    ("by", _allocates_its_own),
    ("overlap", _lays_nothing_over_blocks_of_others),
    ("takes-along", _takes_no_ids_along),
)


def _registers_for_himself(change: Register, _: Registry) -> str | None:
    entry = change.entry
    if is_ours(entry.id):
        return f"ids in {OWN_NETWORK} come with Headerware"
    if change.by != entry.owner:
        return f"{change.by!r} may not register it for {entry.owner!r}: owners register their ids themselves"
    return None


def _is_in_use(change: Register, _: Registry) -> str | None:
    return None if change.entry.retired is None else "an id is registered first and retired later"


_REGISTER_RULES: Final[Rules[Register]] = (("by", _registers_for_himself), ("retired", _is_in_use))


def _retires_its_own(change: Retire, registry: Registry) -> str | None:
    entry = registry.by_id(change.id)
    if entry is None:
        return "the id is not registered, and so cannot be retired"
    if is_ours(entry.id):
        return f"ids in {OWN_NETWORK} come with Headerware, and are retired by it"
    return None if change.by == entry.owner else f"{change.by!r} may not retire it: {entry.owner!r} may"


def _retires_once(change: Retire, registry: Registry) -> str | None:
    entry = registry.by_id(change.id)
    if entry is None:
        return None
    if entry.retired is not None:
        return f"the id is retired since {entry.retired}, for good"
    return retired_problem(change.retired, entry)


_RETIRE_RULES: Final[Rules[Retire]] = (("by", _retires_its_own), ("retired", _retires_once))


def refusals(change: Change, registry: Registry) -> list[Problem]:
    """Check a change against the registry that it is meant for, and give all that speaks against it."""
    match change:
        case Allocate():
            rules = broken(_ALLOCATE_RULES, change, registry, change.block.network)
            return [*rules, *broken(BLOCK_RULES, change.block, registry, change.block.network)]
        case Register():
            rules = broken(_REGISTER_RULES, change, registry, change.entry.id)
            return [*rules, *broken(ENTRY_RULES, change.entry, registry, change.entry.id)]
        case Retire():
            return broken(_RETIRE_RULES, change, registry, change.id)
