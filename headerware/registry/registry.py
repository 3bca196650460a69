"""A registry of header ids as a value: look-ups, and the registry that a change makes of it."""

from __future__ import annotations

from bisect import bisect_left
from ipaddress import IPv4Network
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from headerware.core.errors import RegistryError
from headerware.registry.change_rules import refusals
from headerware.registry.changes import Allocate, Change, Register, Retire
from headerware.registry.entries import Block, Entry
from headerware.registry.header_names import look
from headerware.registry.rules import gives_way

if TYPE_CHECKING:
    from collections.abc import Iterable

REGISTRAR: Final = "registrar"
"""Who allocates the blocks that lie in no other, where a registry does not say who."""

_BlockKey = tuple[int, int]


class Registry:
    """Blocks and entries, which never change: a change gives another registry.

    Anything can be put together, so that it can be looked at: :func:`headerware.registry.problems` says
    what is wrong with it. Of several blocks or entries of the same number, look-ups find the first.

    Args:
        blocks: in any order.
        entries: in any order.
        registrar: who allocates the blocks that lie in no other.
    """

    __slots__ = ("_blocks", "_entries", "_ids", "_looks", "_networks", "_prefixes", "_registrar")

    def __init__(
        self, blocks: Iterable[Block] = (), entries: Iterable[Entry] = (), *, registrar: str = REGISTRAR
    ) -> None:
        self._registrar = registrar
        self._entries = tuple(sorted(entries, key=_entry_order))
        self._ids: dict[int, Entry] = {}
        self._looks: dict[str, Entry] = {}
        for entry in self._entries:
            self._ids.setdefault(entry.id, entry)
            held = self._looks.setdefault(look(entry.name), entry)
            if gives_way(held, entry):
                self._looks[look(entry.name)] = entry
        self._blocks, self._networks, self._prefixes = _placed(blocks)

    @property
    def registrar(self) -> str:
        """Who allocates the blocks that lie in no other."""
        return self._registrar

    @property
    def blocks(self) -> tuple[Block, ...]:
        """All blocks, by their first id, the largest first."""
        return self._blocks

    @property
    def entries(self) -> tuple[Entry, ...]:
        """All entries, by their ids; retired ones are among them."""
        return self._entries

    def by_id(self, header_id: int) -> Entry | None:
        """Return the entry of an id, retired or not; None for an id that is not registered."""
        return self._ids.get(header_id)

    def by_name(self, name: str) -> Entry | None:
        """Return the entry of a name, retired or not; names are exact."""
        entry = self.named_like(name)
        return entry if entry is not None and entry.name == name else None

    def named_like(self, name: str) -> Entry | None:
        """Return the entry whose name differs by case or Unicode form at most."""
        return self._looks.get(look(name))

    def block(self, network: IPv4Network) -> Block | None:
        """Return the block that is exactly this network."""
        return self._networks.get(_block_key(network))

    def block_of(self, header_id: int) -> Block | None:
        """Return the block that decides about an id: the most specific one that it lies in."""
        return self._nearest(int(header_id), 32)

    def around(self, network: IPv4Network) -> Block | None:
        """Return the nearest block around a network, other than itself."""
        return self._nearest(int(network.network_address), network.prefixlen - 1)

    def blocks_in(self, network: IPv4Network) -> tuple[Block, ...]:
        """Return the blocks that lie inside a network, without itself."""
        first = int(network.network_address)
        start = bisect_left(self._blocks, (first, network.prefixlen + 1), key=_block_order)
        end = bisect_left(self._blocks, (first + network.num_addresses, 0), key=_block_order)
        return self._blocks[start:end]

    def entries_in(self, network: IPv4Network) -> tuple[Entry, ...]:
        """Return the entries whose ids lie in a network."""
        first = int(network.network_address)
        start = bisect_left(self._entries, first, key=_entry_order)
        end = bisect_left(self._entries, first + network.num_addresses, key=_entry_order)
        return self._entries[start:end]

    def apply(self, change: Change) -> Registry:
        """Return the registry that a change makes of this one.

        Args:
            change: what is to change, and who does it.

        Raises:
            RegistryError: a rule speaks against it; the message says which, and who was first.
        """
        against = refusals(change, self)
        if against:
            raise RegistryError("\n".join(map(str, against)))
        match change:
            case Allocate(block):
                return self._with_block(block)
            case Register(entry):
                return self._with_entry(entry)
            case Retire(header_id, retired):
                return self._with_entry(replace(self._ids[header_id], retired=retired))

    def __len__(self) -> int:
        return len(self._entries)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Registry):
            return NotImplemented
        return self._parts() == other._parts()

    def __hash__(self) -> int:
        return hash(self._parts())

    def __repr__(self) -> str:
        return f"<Registry of {self._registrar!r}: {len(self._blocks)} blocks, {len(self._entries)} entries>"

    def _parts(self) -> tuple[Any, ...]:
        return self._registrar, self._blocks, self._entries

    def _nearest(self, address: int, longest: int) -> Block | None:
        for prefix in self._prefixes:
            if prefix <= longest:
                block = self._networks.get((address >> (32 - prefix), prefix))
                if block is not None:
                    return block
        return None

    def _with_block(self, block: Block) -> Registry:
        blocks, networks, prefixes = _placed((*self._blocks, block))
        return self._changed(_blocks=blocks, _networks=networks, _prefixes=prefixes)

    def _with_entry(self, entry: Entry) -> Registry:
        # The indexes are copied, for building them anew is dear: many changes are folded one by one.
        at = bisect_left(self._entries, int(entry.id), key=_entry_order)
        behind = at + (entry.id in self._ids)
        return self._changed(
            _entries=(*self._entries[:at], entry, *self._entries[behind:]),
            _ids={**self._ids, entry.id: entry},
            _looks={**self._looks, look(entry.name): entry},
        )

    def _changed(self, **changed: Any) -> Registry:
        copy = Registry.__new__(Registry)
        for slot in Registry.__slots__:
            setattr(copy, slot, changed[slot] if slot in changed else getattr(self, slot))
        return copy


def _placed(blocks: Iterable[Block]) -> tuple[tuple[Block, ...], dict[_BlockKey, Block], list[int]]:
    """Return blocks in their order, by their networks, and the lengths of their prefixes, longest first."""
    ordered = tuple(sorted(blocks, key=_block_order))
    networks: dict[_BlockKey, Block] = {}
    for block in ordered:
        networks.setdefault(_block_key(block.network), block)
    return ordered, networks, sorted({prefix for _, prefix in networks}, reverse=True)


def _entry_order(entry: Entry) -> int:
    return int(entry.id)


def _block_order(block: Block) -> tuple[int, int]:
    return int(block.network.network_address), block.network.prefixlen


def _block_key(network: IPv4Network) -> _BlockKey:
    prefix = network.prefixlen
    return int(network.network_address) >> (32 - prefix), prefix
