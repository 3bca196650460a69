"""``headerware registry check``, ``diff`` and ``export``: what a registry comes to, for reviews and CI."""

from __future__ import annotations

import csv
import io
import tomllib
from collections.abc import Callable, Mapping, Sized
from types import MappingProxyType
from typing import IO, TYPE_CHECKING, Final, NamedTuple

import click
import msgspec

from headerware.cli.json_output import show_json
from headerware.cli.registry_options import (
    LOCATION,
    STDIN,
    as_topic,
    json_option,
    load,
    on_a_registry,
    open_location,
    read_toml,
    warn_of_age,
)
from headerware.core.errors import RegistryError
from headerware.registry import Entry, Problem, without_built_in
from headerware.registry.differences import Difference, diff
from headerware.registry.documents import FORMATS
from headerware.registry.header_names import printable
from headerware.registry.stores.toml import TomlStore, find_tables, read_registry
from headerware.registry.values import to_plain

if TYPE_CHECKING:
    from headerware.registry import Registry

_KEYS: Final = {"block": "network", "entry": "id"}


class _Seen(NamedTuple):
    """A registry as it was found, with all that is wrong in it.

    Attributes:
        registry: what could be read of it; None where that says nothing.
        problems: all there are.
        places: for TOML, where the tables of ids and blocks stand.
        conflicts: in a topic, the records that changed nothing.
    """

    registry: Registry | None
    problems: list[Problem]
    places: Mapping[str, str] = MappingProxyType({})
    conflicts: tuple[str, ...] = ()


@click.command()
@click.argument("location", metavar="[LOCATION]", **LOCATION)
@click.option(
    "--against", metavar="LOCATION", help="The registry as it was; - reads TOML from another program."
)
@json_option
def check(location: str, against: str | None, *, as_json: bool) -> None:
    """Check a registry by every rule, for CI.

    With --against, also for what must never happen to one: ids that are gone, renamed or given to another.
    Everything is told at once; the exit code is 1 where there is anything. LOCATION is HEADERWARE_REGISTRY
    or registry.toml where it is left out.
    """
    now = _seen(location)
    found = [] if against is None or now.registry is None else diff(_before(against), now.registry)
    problems = [*now.problems, *_forbidden(found, now)]
    changes = [difference for difference in found if difference.kind != "forbidden"]
    if as_json:
        told = {"problems": problems, "changes": changes, "conflicts": now.conflicts}
        show_json(told, ok=not problems)
    else:
        _tell(location, now, problems, changes)
    if problems:
        raise click.exceptions.Exit(1)


@click.command("diff")
@click.argument("before")
@click.argument("after")
@json_option
def diff_registries(before: str, after: str, *, as_json: bool) -> None:
    """Tell what happened from one registry to another.

    BEFORE and AFTER are locations; one of them may be - for TOML from another program. The exit code is 1
    where something is forbidden: ids that are gone, renamed or given to another.
    """
    if before == after == STDIN:
        raise click.UsageError("only one of BEFORE and AFTER comes from standard input")
    found = diff(load(before), load(after))
    forbidden = any(difference.kind == "forbidden" for difference in found)
    if as_json:
        show_json(found, ok=not forbidden)
    else:
        click.echo("\n".join(map(str, found)) or "no difference")
    if forbidden:
        raise click.exceptions.Exit(1)


@click.command()
@click.option("--format", "kind", type=click.Choice([*FORMATS, "csv"]), help="toml without it.")
@click.option(
    "--output",
    type=click.File("w", encoding="utf-8", lazy=True, atomic=True),
    default="-",
    help="The file to write; standard output without it.",
)
@on_a_registry
def export(kind: str | None, output: IO[str], location: str, *, as_json: bool) -> None:
    """Write a snapshot of a registry.

    TOML is a registry again, and so is without what comes with Headerware; CSV has the entries only.
    """
    if as_json and kind not in {None, "json"}:
        raise click.UsageError("--json is --format json")
    text = _FORMATS["json" if as_json else kind or "toml"](load(location))
    if as_json and output.name == "-":
        show_json(msgspec.json.decode(text))
        return
    output.write(text)  # which opens the file: what is refused leaves an older one as it was
    if as_json:
        show_json({"output": output.name})


def _seen(location: str) -> _Seen:
    """Look at a registry, problems and all.

    Raises:
        RegistryError: it is out of reach.
    """
    if location == STDIN:
        return _seen_in_toml(location)
    with open_location(location) as store:
        if isinstance(store, TomlStore):
            return _seen_in_toml(location)
        problems = store.problems()
        warn_of_age(store, location)
        topic = as_topic(store, location)
        conflicts = () if topic is None else tuple(printable(str(conflict)) for conflict in topic.conflicts)
        return _Seen(None if problems else store.load(), problems, conflicts=conflicts)


def _seen_in_toml(location: str) -> _Seen:
    text, source = read_toml(location)
    registry, problems = read_registry(text, source)
    if any(problem.about == "TOML" for problem in problems):
        return _Seen(None, problems)
    return _Seen(registry, problems, _places(text, source))


def _before(location: str) -> Registry:
    """Return an earlier registry; what is wrong within it is not asked any more.

    Raises:
        RegistryError: it is out of reach, or cannot be read to its end.
    """
    seen = _seen(location)
    if seen.registry is None:
        raise RegistryError("\n".join(map(str, seen.problems)))
    return seen.registry


def _places(text: str, source: str) -> dict[str, str]:
    """Return the file and line of each table, by its id or network."""
    document = tomllib.loads(text)
    tables = {kind: iter(document.get(kind, ())) for kind in _KEYS}
    return {
        str(next(tables[place.kind]).get(_KEYS[place.kind])): f"{source}:{place.header + 1}"
        for place in find_tables(text)
    }


def _forbidden(found: list[Difference], now: _Seen) -> list[Problem]:
    """Return what is forbidden between two registries, other than what is wrong with the later one anyway."""
    told = {(problem.about, problem.message) for problem in now.problems}
    unread = {problem.where for problem in now.problems if problem.rule == "type"}
    forbidden = (
        Problem(
            difference.about,
            "history",
            printable(difference.message),  # it may tell of an earlier registry that was never sound
            now.places.get(difference.about, ""),
        )
        for difference in found
        if difference.kind == "forbidden"
    )
    return [
        problem
        for problem in forbidden
        if (problem.about, problem.message) not in told and problem.where not in unread
    ]


def _tell(location: str, now: _Seen, problems: list[Problem], changes: list[Difference]) -> None:
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
