"""The differences between two states of a registry: changes, and differences that no change can make.

This is for reviews: the earlier state was released, the later one is proposed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

import msgspec
from msgspec.structs import replace

from headerware.registry.registry import Draft, Registry, refusals
from headerware.registry.values import Allocate, Change, Register, Retire

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headerware.registry.values import Block, Entry

Kind = Literal["allocated", "registered", "retired", "reworded", "handed-over", "forbidden"]
"""``reworded`` is a new description, which is allowed at any time; its subject may not change."""

_MEANING: Final = ("name", "encoding", "owner", "since", "foreign")
"""The fields that an entry's id stands for; they never change."""


class Difference(msgspec.Struct, frozen=True):
    """One difference between two states of a registry.

    Args:
        kind: what happened; ``forbidden`` for a difference that no change can make.
        about: the id, the block or the setting, as it is written.
        message: the new value, or why it is forbidden.
    """

    kind: Kind
    about: str
    message: str

    def __str__(self) -> str:
        """Describe it in one line."""
        return f"{self.kind}: {self.about}: {self.message}"


def diff(before: Registry, after: Registry) -> list[Difference]:
    """Return the differences between two states: first those that no change can make, then the changes.

    Args:
        before: the earlier state.
        after: the later state; :func:`headerware.registry.problems` checks it by itself.
    """
    found = [*_registrars(before, after), *_blocks(before, after), *_entries(before, after)]
    state = Draft(Registry(before.blocks, before.entries, registrar=after.registrar))
    for change in changes(before, after):
        against = refusals(change, state)
        found += [Difference("forbidden", problem.about, problem.message) for problem in against]
        if not against:
            state.apply(change)
            found.append(_described(change, state))
    return sorted(found, key=lambda difference: difference.kind != "forbidden")


def changes(before: Registry, after: Registry) -> list[Change]:
    """Return the changes that turn one state into the other, in an order in which they can be applied.

    Each has an author who may make it. Removed and rewritten entries are not included: no change does that.
    """
    new_blocks = [block for block in after.blocks if before.block(block.network) is None]
    return [
        *(
            Allocate(block, _allocator(block, after))
            for block in sorted(new_blocks, key=lambda block: block.network.prefixlen)
        ),
        *(
            Register(replace(entry, retired=None), entry.owner)
            for entry in after.entries
            if before.by_id(entry.id) is None
        ),
        *(
            Retire(entry.id, entry.retired, entry.owner)
            for entry in after.entries
            if entry.retired is not None and not _is_retired(before.by_id(entry.id))
        ),
    ]


def _allocator(block: Block, registry: Registry) -> str:
    around = registry.around(block.network)
    return registry.registrar if around is None else around.owner


def _is_retired(entry: Entry | None) -> bool:
    return entry is not None and entry.retired is not None


def _registrars(before: Registry, after: Registry) -> Iterator[Difference]:
    if before.registrar != after.registrar:
        yield Difference("handed-over", "registrar", f"from {before.registrar!r} to {after.registrar!r}")


def _blocks(before: Registry, after: Registry) -> Iterator[Difference]:
    for old in before.blocks:
        new = after.block(old.network)
        if new is None:
            yield Difference("forbidden", str(old.network), f"removed, but it is {old.owner}'s for good")
        else:
            yield from _rewritten(str(old.network), old, new, ("owner", "since"))


def _entries(before: Registry, after: Registry) -> Iterator[Difference]:
    for old in before.entries:
        new = after.by_id(old.id)
        about = str(old.id)
        if new is None:
            yield Difference("forbidden", about, f"removed, but it is {old.name!r} for good: retire it")
            continue
        yield from _rewritten(about, old, new, _MEANING)
        if old.retired is not None and new.retired != old.retired:
            yield Difference("forbidden", about, f"retired since {old.retired}, which cannot be undone")


def _rewritten(
    about: str, old: Block | Entry, new: Block | Entry, fields: tuple[str, ...]
) -> Iterator[Difference]:
    for field in fields:
        was, now = getattr(old, field), getattr(new, field)
        if was != now:
            message = f"{field} was {was!r} and is now {now!r}; it must stay as it was at first"
            yield Difference("forbidden", about, message)
    if old.description != new.description:
        yield Difference("reworded", about, f"now described as {new.description!r}")


def _described(change: Change, after: Draft) -> Difference:
    match change:
        case Allocate(block):
            return Difference("allocated", str(block.network), f"to {block.owner}, by {change.by}")
        case Register(entry):
            return Difference("registered", str(entry.id), f"{entry.name!r}, by {change.by}")
        case Retire(header_id):
            retired = after.by_id(header_id)
            name = f"{retired.name!r}, " if retired is not None else ""
            return Difference("retired", str(header_id), f"{name}from {change.retired}, by {change.by}")
