"""``headerware header-ids``: register header ids, look them up, and check registries.

Exit codes: 0 done; 1 the answer is no, or the registry refuses; 2 the command was used wrongly.
"""

from __future__ import annotations

import csv
import io
import re
import tomllib
from collections.abc import Callable, Mapping, Sized
from datetime import UTC, datetime
from ipaddress import IPv4Address, IPv4Network
from types import MappingProxyType
from typing import IO, TYPE_CHECKING, Any, Final, NamedTuple, TypeVar, cast, get_args

import click
import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from headerware.cli.confirmation import confirm, yes_option
from headerware.cli.free_ids import EVERYWHERE, next_id, next_network
from headerware.cli.json_output import show_json
from headerware.cli.options import json_option
from headerware.core.errors import RegistryError
from headerware.core.header_ids import HeaderId, parse_id
from headerware.core.suggestions import did_you_mean
from headerware.registry import (
    Allocate,
    Block,
    Encoding,
    Entry,
    Problem,
    Register,
    Registry,
    Retire,
    built_in,
    with_built_in,
    without_built_in,
)
from headerware.registry.differences import Difference, diff
from headerware.registry.documents import FORMATS
from headerware.registry.header_names import printable
from headerware.registry.stores import Store, create_store, open_store
from headerware.registry.stores.locations import BUILT_IN
from headerware.registry.stores.store import require_sound
from headerware.registry.stores.toml import TomlStore, find_tables, read_registry
from headerware.registry.values import NO_ID, OWN_NETWORK, OWNER, PRIVATE_NETWORK, to_plain
from headerware.registry.wire.compact_keys import compact_key, id_of_key
from headerware.topic_table.topic import UnreachableError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headerware.registry.stores.topic import TopicStore

_STDIN: Final = "-"
"""The location of TOML on standard input, for reading only, such as from ``git show``."""
_LOCATION: Final[dict[str, Any]] = {"envvar": "HEADERWARE_REGISTRY", "default": "registry.toml"}
"""The default location of the registry."""
_TOPIC: Final = "kafka://"
"""The prefix of the location of a topic."""


_MAX_LINES: Final = 3
_PIPE_COLUMNS: Final = 10_000
_SIZE_PATTERN: Final = re.compile(r"/?([1-9]|[12][0-9]|3[0-2])")
_Command = TypeVar("_Command", bound="Callable[..., Any]")


class _HeaderIdsGroup(click.Group):
    """Show a RegistryError as one line, even if several rules are broken."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; a RegistryError becomes an error of click."""
        try:
            return super().invoke(ctx)
        except RegistryError as error:
            raise click.ClickException(_one_line(str(error))) from error


@click.group("header-ids", cls=_HeaderIdsGroup)
def header_ids() -> None:
    """Register ids for header names, and look them up."""


def _network(text: str) -> IPv4Network:
    """Parse a block's network; only its canonical form is accepted."""
    try:
        found = IPv4Network(text)
    except ValueError as error:
        raise click.BadParameter(f"expected a block such as 0.1.0.0/16: {error}") from None
    if str(found) != text:
        raise click.BadParameter(f"expected a block such as 0.1.0.0/16, found {text!r}")
    return found


def _dotted_id(text: str) -> HeaderId:
    """Parse a header id in its dotted form."""
    header_id = parse_id(text)
    if header_id is None:
        raise click.BadParameter(f"expected an id such as 0.1.0.7, found {text!r}")
    return header_id


def _size(text: str) -> int:
    """Parse a block's size, the length of its prefix."""
    found = _SIZE_PATTERN.fullmatch(text)
    if found is None:
        raise click.BadParameter(f"expected a size such as /24, which is 256 ids, found {text!r}")
    return int(found[1])


_DAY: Final = click.DateTime(formats=["%Y-%m-%d"])

_registry_option: Final = click.option(
    "--registry",
    "location",
    metavar="LOCATION",
    show_default=True,
    show_envvar=True,
    help="PATH.toml, kafka://HOST:PORT/TOPIC, built-in; to read, also - for TOML.",
    **_LOCATION,
)


def _on_a_registry(command: _Command) -> _Command:
    """Add the options ``--registry`` and ``--json`` to a command."""
    return _registry_option(json_option(command))


def _day(given: datetime | None) -> str:
    """Return a day as a registry writes it; None is today, in UTC."""
    return (given or datetime.now(UTC)).date().isoformat()


def _load(location: str) -> Registry:
    """Read a registry; warn if it comes from a snapshot because its brokers are out of reach."""
    if location == _STDIN:
        reading = read_registry(*_read_toml(location))
        require_sound(reading.problems)
        return reading.registry
    with _open_location(location) as store:
        registry = store.load()
        _warn_of_age(store, location)
    return registry


def _read_toml(location: str) -> tuple[str, str]:
    """Return the text of a registry's TOML, and its name in messages."""
    source = "standard input" if location == _STDIN else location
    try:
        with click.open_file(location, "rb") as file:
            text = file.read().decode()
    except OSError as error:
        raise RegistryError(f"{source}: {error.strerror or type(error).__name__}") from error
    except UnicodeDecodeError as error:
        raise RegistryError(
            f"{source}: expected UTF-8, found another encoding at byte {error.start}"
        ) from None
    if not text.strip():
        raise RegistryError(f"{source}: expected a registry's TOML, found nothing")
    return text, source


def _open_location(location: str) -> Store:
    """Open the store at a location."""
    return _open_topic(location, create=False) if location.startswith(_TOPIC) else open_store(location)


def _open_topic(location: str, *, create: bool) -> TopicStore:
    """Open the store in a topic; its clients log nothing, because errors are shown once."""
    from headerware.registry.stores.topic import TopicStore, read_location  # noqa: PLC0415 - loaded for topics only

    conf, topic, snapshot = read_location(location)
    return TopicStore({"log_level": 0, **conf}, topic, snapshot=snapshot, create=create)


def _as_topic(store: Store, location: str) -> TopicStore | None:
    """Return a store as a TopicStore if it is one, else None."""
    return cast("TopicStore", store) if location.startswith(_TOPIC) else None


def _warn_of_age(store: Store, location: str) -> None:
    """Warn on standard error if a topic's registry may have changed since it was read."""
    topic = _as_topic(store, location)
    if topic is not None and topic.stale is not None:
        read_at = f"{topic.stale:%Y-%m-%d %H:%M:%S} UTC"
        click.echo(f"Warning: the brokers are out of reach; this registry was read at {read_at}", err=True)


def _show_table(table: Table) -> None:
    """Print a table; without a terminal, lines are neither cut nor padded."""
    console = Console(highlight=False)
    if console.is_terminal:
        console.print(table)
        return
    console.width = _PIPE_COLUMNS
    with console.capture() as capture:
        console.print(table)
    for line in capture.get().splitlines():
        click.echo(line.rstrip())


def _one_line(text: str) -> str:
    lines = text.splitlines()
    shown = "; ".join(lines[:_MAX_LINES])
    more = len(lines) - _MAX_LINES
    return f"{shown}; and {more} more, which `headerware header-ids check` shows" if more > 0 else shown


_HEX: Final = re.compile(r"0[xX]([0-9a-fA-F]{1,8})")


@header_ids.command()
@click.argument("name_or_id", metavar="NAME|ID")
@_on_a_registry
def lookup(name_or_id: str, location: str, *, as_json: bool) -> None:
    """Show what a header's name or id stands for, and who owns it.

    An id may be in dotted form, in hexadecimal (0x00010001), or a compact key as it stands on the wire
    (~Kq; quote it for the shell). The exit code is 1 if the id is not registered.
    """
    registry = _load(location)
    header_id = _id_meant(name_or_id, registry)
    entry = registry.by_id(header_id)
    if as_json:
        show_json(_answer(header_id, registry), ok=entry is not None)
    elif entry is None:
        click.echo(_unregistered(header_id, registry))
        if registry.block_of(header_id) is not None:
            _show_table(_grid(_block_lines(header_id, registry)))
    else:
        _show_table(_grid(_entry_lines(entry, registry)))
    if entry is None:
        raise click.exceptions.Exit(1)


@header_ids.command("list")
@click.option("--owner", help="Only what this owner registered.")
@click.option("--block", "within", type=_network, metavar="NETWORK", help="Only ids in this network.")
@click.option("--retired", is_flag=True, help="Also show retired ids.")
@click.option("--built-in", is_flag=True, help="Also show the ids that come with Headerware.")
@_on_a_registry
def list_entries(
    owner: str | None,
    within: IPv4Network | None,
    location: str,
    *,
    retired: bool,
    built_in: bool,
    as_json: bool,
) -> None:
    """List the registered names by their ids.

    The ids that come with Headerware are left out, unless --built-in is given.
    """
    registry = _load(location)
    asked_for = built_in or location == BUILT_IN or owner == OWNER or within is not None
    registry = registry if asked_for else without_built_in(registry)
    found = [
        entry
        for entry in (registry.entries if within is None else registry.entries_in(within))
        if owner in {None, entry.owner} and (retired or entry.retired is None)
    ]
    if as_json:
        show_json([_entry_row(entry) for entry in found])
    else:
        _show_table(_entry_table(found))


def _id_meant(text: str, registry: Registry) -> HeaderId:
    """Return the id that a name, or an id in any of its forms, stands for."""
    entry = registry.by_name(text)
    if entry is not None:
        return entry.id
    for read in (parse_id, id_of_key, _hexadecimal):
        header_id = read(text)
        if header_id is not None:
            return HeaderId(header_id)
    similar = registry.named_like(text)
    hint = did_you_mean(similar.name if similar else text, (entry.name for entry in registry.entries))
    raise RegistryError(f"no header named {text!r} is registered{hint}")


def _entry_row(entry: Entry) -> dict[str, Any]:
    """Return an entry for JSON."""
    return {**to_plain(entry), "compact_key": compact_key(entry.id)}


def _allocator(block: Block, registry: Registry) -> str:
    """Return the owner who allocated a block: the owner of the block around it, or the registrar."""
    around = registry.around(block.network)
    if around is not None:
        return around.owner
    return OWNER if block.network == OWN_NETWORK else registry.registrar


def _hexadecimal(text: str) -> int | None:
    found = _HEX.fullmatch(text)
    return None if found is None else int(found[1], 16)


def _block_chain(header_id: HeaderId, registry: Registry) -> list[Block]:
    """Return the blocks around an id, innermost first."""
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
            {**to_plain(block), "by": _allocator(block, registry)}
            for block in _block_chain(header_id, registry)
        ],
    }


def _status(header_id: HeaderId, entry: Entry | None) -> str:
    if entry is not None:
        return "registered" if entry.retired is None else "retired"
    if header_id == NO_ID:
        return "reserved"
    return "private" if IPv4Address(header_id) in PRIVATE_NETWORK else "unregistered"


def _unregistered(header_id: HeaderId, registry: Registry) -> str:
    """Return a line about an id that is not registered: whose block it is in."""
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
        yield "foreign", "other software defines this name; it is an id only if header_ids has it in also"
    yield "description", entry.description
    yield from _block_lines(entry.id, registry)


def _block_lines(header_id: HeaderId, registry: Registry) -> Iterable[tuple[str, str]]:
    for outside, block in enumerate(_block_chain(header_id, registry)):
        given = f"{block.owner}, from {_allocator(block, registry)}, since {block.since}"
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


_Change = TypeVar("_Change", Allocate, Register, Retire)

_description = click.option("--description", required=True, help="The purpose, in one line.")
_since = click.option("--since", type=_DAY, metavar="DAY", help="The first day; without it, today in UTC.")


@header_ids.command()
@click.argument("location", metavar="[LOCATION]", **_LOCATION)
@click.option("--registrar", required=True, help="Who allocates blocks that are not part of another block.")
@json_option
def init(location: str, registrar: str, *, as_json: bool) -> None:
    """Create an empty registry; an existing registry is not changed.

    LOCATION is PATH.toml or kafka://HOST:PORT/TOPIC; without it, HEADERWARE_REGISTRY or registry.toml.
    """
    _create(location, with_built_in(registrar=registrar))
    if as_json:
        show_json({"location": location, "registrar": registrar})
    else:
        click.echo(f"made {location}, in which {registrar} allocates blocks")


@header_ids.group()
def block() -> None:
    """Allocate blocks of ids to owners, and list them."""


@block.command()
@click.argument("wanted", metavar="[NETWORK]", type=_network, required=False)
@click.option(
    "--size",
    "prefix",
    type=_size,
    metavar="/SIZE",
    help="Instead of NETWORK: the next free block of this size, such as /24.",
)
@click.option(
    "--within",
    type=_network,
    metavar="NETWORK",
    help="With --size: the network in which to look for the block.",
)
@click.option("--owner", required=True, help="Who gets the block.")
@click.option(
    "--by", required=True, help="Who allocates the block: the owner of the block around it, or the registrar."
)
@_description
@_since
@_on_a_registry
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
    """Allocate the block NETWORK, or the next free block of a --size, to an owner."""
    choose, from_day = _network_chooser(wanted, prefix, within, by), _day(since)

    def change(registry: Registry) -> Allocate:
        given = Block(network=choose(registry), owner=owner, description=description, since=from_day)
        return Allocate(given, by)

    made = _changed(location, change)[0].block
    _show(to_plain(made), f"allocated {made.network} to {owner}, by {by}", as_json=as_json)


@block.command("list")
@click.option("--owner", help="Only blocks of this owner.")
@_on_a_registry
def list_blocks(owner: str | None, location: str, *, as_json: bool) -> None:
    """List the blocks, with their owners, and who allocated them."""
    registry = _load(location)
    found = [block for block in registry.blocks if owner in {None, block.owner}]
    if as_json:
        show_json([{**to_plain(block), "by": _allocator(block, registry)} for block in found])
        return
    table = Table("block", "owner", "from", "since", "description", box=None, pad_edge=False)
    for each in found:
        cells = (str(each.network), each.owner, _allocator(each, registry), each.since, each.description)
        table.add_row(*map(Text, cells))
    _show_table(table)


@header_ids.command()
@click.argument("name")
@click.option(
    "--id", "header_id", type=_dotted_id, metavar="ID", help="The id; without it the next free one."
)
@click.option(
    "--in",
    "within",
    type=_network,
    metavar="NETWORK",
    help="Where to look for the next free id; without it, in all blocks of the owner.",
)
@click.option("--owner", required=True, help="Who registers the id: the owner of its block.")
@click.option(
    "--encoding",
    required=True,
    type=click.Choice(get_args(Encoding)),
    help="The encoding of the header's value.",
)
@click.option(
    "--foreign",
    is_flag=True,
    help="Other software defines the name: write it as an id only if header_ids has it in also.",
)
@_description
@_since
@_on_a_registry
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
    from_day = _day(since)

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
    _show(_entry_row(made), f"registered {made.id} for {name}, by {owner}", as_json=as_json)


@header_ids.command()
@click.argument("name_or_id", metavar="NAME|ID")
@click.option("--by", required=True, help="Who retires the id: its owner.")
@click.option("--date", type=_DAY, metavar="DAY", help="The first day; without it, today in UTC.")
@yes_option
@_on_a_registry
def retire(
    name_or_id: str, by: str, date: datetime | None, location: str, *, yes: bool, as_json: bool
) -> None:
    """Retire an id, for good: it can be read, but is not written."""
    retired = _day(date)
    confirm(f"Retire {printable(name_or_id)} from {retired}? Its name never gets another id", yes=yes)
    made, after = _changed(location, lambda registry: Retire(_id_meant(name_or_id, registry), retired, by))
    (entry,) = after.entries_in(IPv4Network(int(made.id)))
    _show(_entry_row(entry), f"retired {entry.id}, {entry.name}, from {retired}, by {by}", as_json=as_json)


def _create(location: str, registry: Registry) -> None:
    if not location.startswith(_TOPIC):
        create_store(location, registry).close()
        return
    with _open_topic(location, create=True) as store:
        present = store.load()
        if present != built_in():
            raise RegistryError(f"the topic has a registry, in which {present.registrar!r} allocates blocks")
        store.fill(registry)


def _network_chooser(
    wanted: IPv4Network | None, prefix: int | None, within: IPv4Network | None, by: str
) -> Callable[[Registry], IPv4Network]:
    """Return a function that chooses the block's network in a registry."""
    if wanted is not None and prefix is None and within is None:
        return lambda _: wanted
    if wanted is None and prefix is not None:
        return lambda registry: next_network(registry, by, prefix, within or EVERYWHERE)
    raise click.UsageError("give either NETWORK, such as 0.1.0.0/16, or --size and perhaps --within")


def _changed(location: str, make: Callable[[Registry], _Change]) -> tuple[_Change, Registry]:
    """Store the change that ``make`` returns for a registry; return the change and the changed registry.

    If the registry refuses the change, another writer may have been first. So ``make`` is called again, and
    a different change is tried.
    """
    with _open_location(location) as store:
        change = make(store.load())
        while True:
            try:
                return change, store.apply(change)
            except UnreachableError:
                raise  # the change may be stored all the same, and must not be stored twice
            except RegistryError:
                refused, change = change, make(store.load())
                if change == refused:
                    raise


def _show(plain: dict[str, Any], text: str, *, as_json: bool) -> None:
    if as_json:
        show_json(plain)
    else:
        click.echo(text)


_KEYS: Final = {"block": "network", "entry": "id"}


class _Inspected(NamedTuple):
    """A registry and its problems.

    ``registry`` is None if nothing could be read. ``lines`` has the file and line of each id's or block's
    table in TOML; ``conflicts`` are the records of a topic that changed nothing.
    """

    registry: Registry | None
    problems: list[Problem]
    lines: Mapping[str, str] = MappingProxyType({})
    conflicts: tuple[str, ...] = ()


@header_ids.command()
@click.argument("location", metavar="[LOCATION]", **_LOCATION)
@click.option("--against", metavar="LOCATION", help="The earlier registry; - reads TOML from standard input.")
@json_option
def check(location: str, against: str | None, *, as_json: bool) -> None:
    """Check a registry by every rule, for CI.

    With --against, also check for forbidden changes: ids that are gone, renamed or given to another owner.
    All problems are shown at once, and the exit code is 1 if there are any. Without LOCATION, the command
    checks HEADERWARE_REGISTRY or registry.toml.
    """
    now = _inspect(location)
    found = [] if against is None or now.registry is None else diff(_earlier(against), now.registry)
    problems = [*now.problems, *_forbidden(found, now)]
    changes = [difference for difference in found if difference.kind != "forbidden"]
    if as_json:
        told = {"problems": problems, "changes": changes, "conflicts": now.conflicts}
        show_json(told, ok=not problems)
    else:
        _report(location, now, problems, changes)
    if problems:
        raise click.exceptions.Exit(1)


@header_ids.command("diff")
@click.argument("before")
@click.argument("after")
@json_option
def diff_registries(before: str, after: str, *, as_json: bool) -> None:
    """Show the changes from one registry to another.

    BEFORE and AFTER are locations; one of them may be - for TOML from standard input. The exit code is 1 if
    there are forbidden changes: ids that are gone, renamed or given to another owner.
    """
    if before == after == _STDIN:
        raise click.UsageError("only one of BEFORE and AFTER comes from standard input")
    found = diff(_load(before), _load(after))
    forbidden = any(difference.kind == "forbidden" for difference in found)
    if as_json:
        show_json(found, ok=not forbidden)
    else:
        click.echo("\n".join(map(str, found)) or "no difference")
    if forbidden:
        raise click.exceptions.Exit(1)


@header_ids.command()
@click.option("--format", "kind", type=click.Choice([*FORMATS, "csv"]), help="The form; without it, toml.")
@click.option(
    "--output",
    type=click.File("w", encoding="utf-8", lazy=True, atomic=True),
    default="-",
    help="The file to write; without it, standard output.",
)
@_on_a_registry
def export(kind: str | None, output: IO[str], location: str, *, as_json: bool) -> None:
    """Write a snapshot of a registry.

    The form toml can be used as a registry, and lacks the ids that come with Headerware; csv has the entries
    only.
    """
    if as_json and kind not in {None, "json"}:
        raise click.UsageError("--json is --format json")
    text = _FORMATS["json" if as_json else kind or "toml"](_load(location))
    if as_json and output.name == "-":
        show_json(msgspec.json.decode(text))
        return
    output.write(text)  # this opens the file, so an error above does not change an older file
    if as_json:
        show_json({"output": output.name})


def _inspect(location: str) -> _Inspected:
    """Return a registry with its problems."""
    if location == _STDIN:
        return _inspect_toml(location)
    with _open_location(location) as store:
        if isinstance(store, TomlStore):
            return _inspect_toml(location)
        problems = store.problems()
        _warn_of_age(store, location)
        topic = _as_topic(store, location)
        conflicts = () if topic is None else tuple(printable(str(conflict)) for conflict in topic.conflicts)
        return _Inspected(None if problems else store.load(), problems, conflicts=conflicts)


def _inspect_toml(location: str) -> _Inspected:
    text, source = _read_toml(location)
    registry, problems = read_registry(text, source)
    if any(problem.about == "TOML" for problem in problems):
        return _Inspected(None, problems)
    return _Inspected(registry, problems, _table_lines(text, source))


def _earlier(location: str) -> Registry:
    """Return an earlier registry, whether or not it has problems."""
    seen = _inspect(location)
    if seen.registry is None:
        raise RegistryError("\n".join(map(str, seen.problems)))
    return seen.registry


def _table_lines(text: str, source: str) -> dict[str, str]:
    """Return the file and line of each table, by its id or network."""
    document = tomllib.loads(text)
    tables = {kind: iter(document.get(kind, ())) for kind in _KEYS}
    return {
        str(next(tables[table.kind]).get(_KEYS[table.kind])): f"{source}:{table.header + 1}"
        for table in find_tables(text)
    }


def _forbidden(found: list[Difference], now: _Inspected) -> list[Problem]:
    """Return the forbidden changes between two registries as problems, except those that ``now`` shows."""
    told = {(problem.about, problem.message) for problem in now.problems}
    unread = {problem.where for problem in now.problems if problem.rule == "type"}
    forbidden = (
        Problem(
            difference.about,
            "history",
            printable(difference.message),  # it may quote an earlier registry that was never checked
            now.lines.get(difference.about, ""),
        )
        for difference in found
        if difference.kind == "forbidden"
    )
    return [
        problem
        for problem in forbidden
        if (problem.about, problem.message) not in told and problem.where not in unread
    ]


def _report(location: str, now: _Inspected, problems: list[Problem], changes: list[Difference]) -> None:
    for problem in problems:
        click.echo(problem)
    if problems or now.registry is None:
        click.echo(f"Error: {location}: {_count(problems, 'problem', 'problems')}", err=True)
        return
    own = without_built_in(now.registry)
    counts = _count(own.blocks, "block", "blocks"), _count(own.entries, "entry", "entries")
    click.echo(f"{location}: ok ({', '.join(counts)})")
    for line in [*changes, *(f"conflict: {conflict}" for conflict in now.conflicts)]:
        click.echo(f"  {line}")


def _count(things: Sized, one: str, many: str) -> str:
    return f"{len(things)} {one if len(things) == 1 else many}"


def _as_csv(registry: Registry) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, Entry.__struct_fields__, lineterminator="\n")
    writer.writeheader()
    writer.writerows(to_plain(entry) for entry in registry.entries)
    return text.getvalue()


_FORMATS: Final[Mapping[str, Callable[[Registry], str]]] = MappingProxyType({**FORMATS, "csv": _as_csv})
