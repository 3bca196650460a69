"""``headerware registry init``, ``block``, ``register`` and ``retire``: what changes a registry."""

from __future__ import annotations

from datetime import datetime
from ipaddress import IPv4Network
from typing import TYPE_CHECKING, Any, TypeVar, get_args

import click
from rich.table import Table
from rich.text import Text

from headerware.cli.json_output import show_json
from headerware.cli.registry_free import EVERYWHERE, next_id, next_network
from headerware.cli.registry_lookup import entry_row, giver, id_meant
from headerware.cli.registry_options import (
    DAY,
    LOCATION,
    TOPIC,
    day,
    dotted_id,
    json_option,
    load,
    network,
    on_a_registry,
    open_location,
    open_topic,
    show_table,
    size,
)
from headerware.core.errors import RegistryError
from headerware.core.header_ids import HeaderId
from headerware.registry import (
    Allocate,
    Block,
    Encoding,
    Entry,
    Register,
    Registry,
    Retire,
    built_in,
    with_built_in,
)
from headerware.registry.stores import create_store
from headerware.registry.values import to_plain
from headerware.topic_table.topic import UnreachableError

if TYPE_CHECKING:
    from collections.abc import Callable

_Change = TypeVar("_Change", Allocate, Register, Retire)

_description = click.option("--description", required=True, help="What it is for, in one line.")
_since = click.option(
    "--since", type=DAY, metavar="DAY", help="The day from which on; today, in UTC, without it."
)


@click.command()
@click.argument("location", metavar="[LOCATION]", **LOCATION)
@click.option("--registrar", required=True, help="Who allocates the blocks that lie in no other.")
@json_option
def init(location: str, registrar: str, *, as_json: bool) -> None:
    """Make an empty registry; one that is there stays as it is.

    LOCATION is PATH.toml, PATH.db, sqlite:PATH or kafka://HOST:PORT/TOPIC; without it, HEADERWARE_REGISTRY
    or registry.toml.
    """
    _begin(location, with_built_in(registrar=registrar))
    if as_json:
        show_json({"location": location, "registrar": registrar})
    else:
        click.echo(f"made {location}, in which {registrar} allocates blocks")


@click.group()
def block() -> None:
    """Hand blocks of ids to their owners, and list them."""


@block.command()
@click.argument("wanted", metavar="[NETWORK]", type=network, required=False)
@click.option(
    "--size",
    "prefix",
    type=size,
    metavar="/SIZE",
    help="Instead of NETWORK: the next free block of this size, such as /24.",
)
@click.option("--within", type=network, metavar="NETWORK", help="With --size: where it is to lie.")
@click.option("--owner", required=True, help="Who gets the block.")
@click.option("--by", required=True, help="Who hands it over: the owner around it, or the registrar.")
@_description
@_since
@on_a_registry
def allocate(
    wanted: IPv4Network | None,
    prefix: int | None,
    within: IPv4Network | None,
    owner: str,
    by: str,
    description: str,
    since: datetime | None,
    location: str,
    *,
    as_json: bool,
) -> None:
    """Hand the block NETWORK, or the next free one of a --size, to an owner."""
    place, from_day = _place(wanted, prefix, within, by), day(since)

    def change(registry: Registry) -> Allocate:
        given = Block(network=place(registry), owner=owner, description=description, since=from_day)
        return Allocate(given, by)

    made = _changed(location, change)[0].block
    _show(to_plain(made), f"allocated {made.network} to {owner}, by {by}", as_json=as_json)


@block.command("list")
@click.option("--owner", help="Only this owner's.")
@on_a_registry
def list_blocks(owner: str | None, location: str, *, as_json: bool) -> None:
    """List the blocks, with who owns them and from whom."""
    registry = load(location)
    found = [block for block in registry.blocks if owner in {None, block.owner}]
    if as_json:
        show_json([{**to_plain(block), "by": giver(block, registry)} for block in found])
        return
    table = Table("block", "owner", "from", "since", "description", box=None, pad_edge=False)
    for each in found:
        cells = (str(each.network), each.owner, giver(each, registry), each.since, each.description)
        table.add_row(*map(Text, cells))
    show_table(table)


@click.command()
@click.argument("name")
@click.option("--id", "header_id", type=dotted_id, metavar="ID", help="The id; without it the next free one.")
@click.option(
    "--in",
    "within",
    type=network,
    metavar="NETWORK",
    help="Where to look for the next free id; all of the owner's blocks without it.",
)
@click.option("--owner", required=True, help="Who registers it: the owner of the block that it lies in.")
@click.option(
    "--encoding", required=True, type=click.Choice(get_args(Encoding)), help="What the header's value is."
)
@click.option(
    "--foreign", is_flag=True, help="The name is other people's: compact it only where that is asked for."
)
@_description
@_since
@on_a_registry
def register(
    name: str,
    header_id: HeaderId | None,
    within: IPv4Network | None,
    owner: str,
    encoding: Encoding,
    description: str,
    since: datetime | None,
    location: str,
    *,
    foreign: bool,
    as_json: bool,
) -> None:
    """Register an id for the header NAME, for good."""
    if header_id is not None and within is not None:
        raise click.UsageError("give either --id or --in")
    from_day = day(since)

    def change(registry: Registry) -> Register:
        entry = Entry(
            id=next_id(registry, owner, within or EVERYWHERE) if header_id is None else header_id,
            name=name,
            owner=owner,
            encoding=encoding,
            description=description,
            since=from_day,
            foreign=foreign,
        )
        return Register(entry, owner)

    made = _changed(location, change)[0].entry
    _show(entry_row(made), f"registered {made.id} for {name}, by {owner}", as_json=as_json)


@click.command()
@click.argument("name_or_id", metavar="NAME|ID")
@click.option("--by", required=True, help="Who retires it: its owner.")
@click.option("--date", type=DAY, metavar="DAY", help="The day from which on; today, in UTC, without it.")
@on_a_registry
def retire(name_or_id: str, by: str, date: datetime | None, location: str, *, as_json: bool) -> None:
    """Retire an id, for good: it can still be read, and is not written any more."""
    retired = day(date)
    made, after = _changed(location, lambda registry: Retire(id_meant(name_or_id, registry), retired, by))
    (entry,) = after.entries_in(IPv4Network(int(made.id)))
    _show(entry_row(entry), f"retired {entry.id}, {entry.name}, from {retired}, by {by}", as_json=as_json)


def _begin(location: str, registry: Registry) -> None:
    if not location.startswith(TOPIC):
        create_store(location, registry).close()
        return
    with open_topic(location, create=True) as store:
        present = store.load()
        if present != built_in():
            raise RegistryError(f"the topic has a registry, in which {present.registrar!r} allocates blocks")
        store.fill(registry)


def _place(
    wanted: IPv4Network | None, prefix: int | None, within: IPv4Network | None, by: str
) -> Callable[[Registry], IPv4Network]:
    """Return a function that says which network of a registry is meant."""
    if wanted is not None and prefix is None and within is None:
        return lambda _: wanted
    if wanted is None and prefix is not None:
        return lambda registry: next_network(registry, by, prefix, within or EVERYWHERE)
    raise click.UsageError("give either NETWORK, such as 0.1.0.0/16, or --size and perhaps --within")


def _changed(location: str, make: Callable[[Registry], _Change]) -> tuple[_Change, Registry]:
    """Make a change of the registry as it stands, keep it, and give it with the registry after it.

    Where another writer was first, and with what is free now it comes to another change, that one is tried.
    """
    with open_location(location) as store:
        change = make(store.load())
        while True:
            try:
                return change, store.apply(change)
            except UnreachableError:
                raise  # it may have been kept for all that, and must not be kept twice
            except RegistryError:
                refused, change = change, make(store.load())
                if change == refused:
                    raise


def _show(plain: dict[str, Any], text: str, *, as_json: bool) -> None:
    if as_json:
        show_json(plain)
    else:
        click.echo(text)
