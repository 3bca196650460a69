"""The registry that comes with Headerware, and what others put beside it."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from headerware.registry.built_in_tables import built_in_tables
from headerware.registry.registry import REGISTRAR, Registry

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headerware.registry.entries import Block, Entry


@cache
def built_in() -> Registry:
    """Return the registry that comes with Headerware: its own headers, and well-known names of others."""
    return with_built_in()


def with_built_in(
    blocks: Iterable[Block] = (), entries: Iterable[Entry] = (), *, registrar: str = REGISTRAR
) -> Registry:
    """Put an organisation's blocks and entries beside those that come with Headerware.

    Stores hold the former only, so that a newer Headerware brings its own.

    Args:
        blocks: the organisation's blocks.
        entries: its entries.
        registrar: who allocates its blocks.
    """
    ours = built_in_tables()
    return Registry((*ours.blocks, *blocks), (*ours.entries, *entries), registrar=registrar)


def without_built_in(registry: Registry) -> Registry:
    """Return what stores hold of a registry: all but what comes with Headerware."""
    blocks, entries = map(frozenset, built_in_tables())
    return Registry(
        (block for block in registry.blocks if block not in blocks),
        (entry for entry in registry.entries if entry not in entries),
        registrar=registry.registrar,
    )
