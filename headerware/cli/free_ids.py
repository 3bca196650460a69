"""Find the next free id of an owner, or the next free block of a size, in a registry."""

from __future__ import annotations

from ipaddress import IPv4Network
from typing import TYPE_CHECKING, Final

from headerware.core.errors import RegistryError
from headerware.core.header_ids import HeaderId
from headerware.registry.values import OWN_NETWORK, PRIVATE_NETWORK, Block

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headerware.registry import Registry

EVERYWHERE: Final = IPv4Network("0.0.0.0/0")


def next_id(registry: Registry, owner: str, within: IPv4Network = EVERYWHERE) -> HeaderId:
    """Return the lowest id that an owner may register; retired ids are never free again.

    The first id of a block is taken last, because it reads like the name of the block.
    """
    regions = [_common(block.network, within) for block in _blocks_of(registry, owner, within)]
    if not regions:
        raise RegistryError(f"{owner!r} owns no block{_where(within)}: have one allocated first")
    for takes_first in (False, True):
        for region in regions:
            for header_id in _free_ids(registry, owner, region):
                if takes_first or header_id != _first(region):
                    return header_id
    raise RegistryError(f"{owner!r} has no free id{_where(within)}: have another block allocated")


def next_network(registry: Registry, by: str, prefix: int, within: IPv4Network = EVERYWHERE) -> IPv4Network:
    """Return the lowest empty network of a size in the blocks that an owner may allocate from."""
    parents: list[Block | None] = [*_blocks_of(registry, by, within)]
    if by == registry.registrar:
        parents.insert(0, None)
    for parent in parents:
        region = within if parent is None else _common(parent.network, within)
        for network in _free_networks(registry, parent, region, prefix):
            return network
    if not parents:
        raise RegistryError(
            f"{by!r} owns no block{_where(within)} to allocate from; the registrar is {registry.registrar!r}"
        )
    raise RegistryError(f"{by!r} has no room for a block of size /{prefix}{_where(within)}")


def _where(within: IPv4Network) -> str:
    return "" if within == EVERYWHERE else f" in {within}"


def _blocks_of(registry: Registry, owner: str, within: IPv4Network) -> list[Block]:
    return [block for block in registry.blocks if block.owner == owner and block.network.overlaps(within)]


def _common(one: IPv4Network, other: IPv4Network) -> IPv4Network:
    """Return the intersection of two networks that overlap: the smaller one."""
    return max(one, other, key=lambda network: network.prefixlen)


def _free_ids(registry: Registry, owner: str, region: IPv4Network) -> Iterator[HeaderId]:
    """Yield the free ids of a region in an owner's block, except ids in blocks of other owners."""
    at = _first(region)
    while at < _end(region):
        block = registry.block_of(at)
        if block is not None and block.owner != owner:
            at = _end(block.network)
            continue
        if registry.by_id(at) is None:
            yield HeaderId(at)
        at += 1


def _free_networks(
    registry: Registry, parent: Block | None, region: IPv4Network, prefix: int
) -> Iterator[IPv4Network]:
    """Yield the free networks of a region that have this parent block, or no parent."""
    size = 1 << (32 - prefix)
    at = _first(region)
    while at + size <= _end(region):
        network = IPv4Network((at, prefix))
        obstacle = _obstacle(registry, parent, network)
        if obstacle is None:
            yield network
        at = max(at + size, 0 if obstacle is None else _end(obstacle))


def _obstacle(registry: Registry, parent: Block | None, network: IPv4Network) -> IPv4Network | None:
    """Return the network after which to look on because it overlaps; None if the network is free."""
    for reserved in (OWN_NETWORK, PRIVATE_NETWORK):
        if network.overlaps(reserved):
            return reserved
    around = registry.around(network)
    if around is not None and around != parent:
        return around.network
    is_used = registry.block(network) or registry.blocks_in(network) or registry.entries_in(network)
    return network if is_used else None


def _first(network: IPv4Network) -> int:
    return int(network.network_address)


def _end(network: IPv4Network) -> int:
    return _first(network) + network.num_addresses
