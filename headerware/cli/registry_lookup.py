"""``headerware registry lookup`` and ``list``: what ids and names stand for, and whose they are."""

from __future__ import annotations

import re
from difflib import get_close_matches
from ipaddress import IPv4Address, IPv4Network
from typing import TYPE_CHECKING, Any, Final

import click
from rich.table import Table
from rich.text import Text

from headerware.cli.json_output import show_json
from headerware.cli.registry_options import load, network, on_a_registry, show_table
from headerware.core.errors import RegistryError
from headerware.core.header_ids import HeaderId, parse_id
from headerware.registry import Registry, without_built_in
from headerware.registry.stores.store import BUILT_IN
from headerware.registry.values import NO_ID, OWN_NETWORK, OWNER, PRIVATE_NETWORK, Block, Entry, to_plain
from headerware.registry.wire.compact_keys import compact_key, id_of_key

if TYPE_CHECKING:
    from collections.abc import Iterable

_HEX: Final = re.compile(r"0[xX]([0-9a-fA-F]{1,8})")


@click.command()
@click.argument("name_or_id", metavar="NAME|ID")
@on_a_registry
def lookup(name_or_id: str, location: str, *, as_json: bool) -> None:
    """Show what a header's name or id stands for, and whose it is.

    An id may be in dotted form, in hexadecimal (0x00010001), or a compact key as it stands on the wire
    (~Kq; quote it for the shell). The exit code is 1 for what is not registered.
    """
    registry = load(location)
    header_id = id_meant(name_or_id, registry)
    entry = registry.by_id(header_id)
    if as_json:
        show_json(_answer(header_id, registry), ok=entry is not None)
    elif entry is None:
        click.echo(_unregistered(header_id, registry))
        if registry.block_of(header_id) is not None:
            show_table(_grid(_block_lines(header_id, registry)))
    else:
        show_table(_grid(_entry_lines(entry, registry)))
    if entry is None:
        raise click.exceptions.Exit(1)


@click.command("list")
@click.option("--owner", help="Only what this owner registered.")
@click.option("--block", "within", type=network, metavar="NETWORK", help="Only ids in this network.")
@click.option("--retired", is_flag=True, help="Also what is retired.")
@click.option("--built-in", is_flag=True, help="Also what comes with Headerware.")
@on_a_registry
def list_entries(
    owner: str | None,
    within: IPv4Network | None,
    location: str,
    *,
    retired: bool,
    built_in: bool,
    as_json: bool,
) -> None:
    """List what is registered, by ids.

    What comes with Headerware is left out, unless it is asked for.
    """
    registry = load(location)
    asked_for = built_in or location == BUILT_IN or owner == OWNER or within is not None
    registry = registry if asked_for else without_built_in(registry)
    found = [
        entry
        for entry in (registry.entries if within is None else registry.entries_in(within))
        if owner in {None, entry.owner} and (retired or entry.retired is None)
    ]
    if as_json:
        show_json([entry_row(entry) for entry in found])
    else:
        show_table(_entry_table(found))


def id_meant(text: str, registry: Registry) -> HeaderId:
    """Return the id that a name, or an id in any of its forms, stands for.

    Raises:
        RegistryError: it is no id, and no name that is registered.
    """
    entry = registry.by_name(text)
    if entry is not None:
        return entry.id
    for read in (parse_id, id_of_key, _hexadecimal):
        header_id = read(text)
        if header_id is not None:
            return HeaderId(header_id)
    similar = registry.named_like(text)
    near = [similar.name] if similar else get_close_matches(text, [e.name for e in registry.entries], n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise RegistryError(f"no header named {text!r} is registered{hint}")


def entry_row(entry: Entry) -> dict[str, Any]:
    """Return an entry for JSON."""
    return {**to_plain(entry), "compact_key": compact_key(entry.id)}


def giver(block: Block, registry: Registry) -> str:
    """Return who allocated a block: the owner of the one around it, or the registrar."""
    around = registry.around(block.network)
    if around is not None:
        return around.owner
    return OWNER if block.network == OWN_NETWORK else registry.registrar


def _hexadecimal(text: str) -> int | None:
    found = _HEX.fullmatch(text)
    return None if found is None else int(found[1], 16)


def _block_chain(header_id: HeaderId, registry: Registry) -> list[Block]:
    """Return the blocks that an id lies in, the one that decides first."""
    chain = []
    block = registry.block_of(header_id)
    while block is not None:
        chain.append(block)
        block = registry.around(block.network)
    return chain


def _answer(header_id: HeaderId, registry: Registry) -> dict[str, Any]:
    entry = registry.by_id(header_id)
    return {
        "id": str(header_id),
        "compact_key": None if header_id == NO_ID else compact_key(header_id),
        "status": _status(header_id, entry),
        "entry": None if entry is None else to_plain(entry),
        "blocks": [
            {**to_plain(block), "by": giver(block, registry)} for block in _block_chain(header_id, registry)
        ],
    }


def _status(header_id: HeaderId, entry: Entry | None) -> str:
    if entry is not None:
        return "registered" if entry.retired is None else "retired"
    if header_id == NO_ID:
        return "reserved"
    return "private" if IPv4Address(header_id) in PRIVATE_NETWORK else "unregistered"


def _unregistered(header_id: HeaderId, registry: Registry) -> str:
    """Say whose an id is that is not registered."""
    match _status(header_id, None):
        case "reserved":
            return f"{header_id} stands for no id, and is never registered"
        case "private":
            return (
                f"{header_id} is private: anyone may use it, and nothing is registered in {PRIVATE_NETWORK}"
            )
    block = registry.block_of(header_id)
    if block is None:
        return f"{header_id} is not registered, and lies in no block; {registry.registrar} allocates them"
    return f"{header_id} is not registered; it lies in {block.network} of {block.owner}"


def _entry_lines(entry: Entry, registry: Registry) -> Iterable[tuple[str, str]]:
    number = int(entry.id)
    yield "name", entry.name
    yield "id", f"{entry.id} (0x{number:08x}, {compact_key(number)} as a compact key)"
    yield "value", entry.encoding
    yield "owner", entry.owner
    yield "since", entry.since
    if entry.retired is not None:
        yield "retired", f"{entry.retired}: it can be read, and is not written any more"
    if entry.foreign:
        yield "foreign", "a name of other people's: compacted only where that is asked for"
    yield "description", entry.description
    yield from _block_lines(entry.id, registry)


def _block_lines(header_id: HeaderId, registry: Registry) -> Iterable[tuple[str, str]]:
    for outside, block in enumerate(_block_chain(header_id, registry)):
        given = f"{block.owner}, from {giver(block, registry)}, since {block.since}"
        yield "within" if outside else "block", f"{block.network} ({given}): {block.description}"


def _grid(lines: Iterable[tuple[str, str]]) -> Table:
    """Lay out labels and values."""
    grid = Table.grid(padding=(0, 2))
    for label, value in lines:
        grid.add_row(Text(label, style="dim"), Text(value))
    return grid


def _entry_table(entries: list[Entry]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in ("id", "name", "value", "owner", "since", "description"):
        table.add_column(column, overflow="fold", no_wrap=column == "id")
    for entry in entries:
        since = entry.since if entry.retired is None else f"{entry.since}, retired {entry.retired}"
        cells = (str(entry.id), entry.name, entry.encoding, entry.owner, since, entry.description)
        table.add_row(*map(Text, cells), style="dim" if entry.retired else None)
    return table
