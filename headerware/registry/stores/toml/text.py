"""A registry as TOML that suits a git repository: one table a block or entry, in the order of their ids.

What comes with Headerware is not in it. A change touches the lines of its own table only.
"""

from __future__ import annotations

import json
import tomllib
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from msgspec.structs import replace

from headerware.core.errors import RegistryError
from headerware.registry.built_in import with_built_in, without_built_in
from headerware.registry.changes import Allocate, Change, Register, Retire
from headerware.registry.entries import Block, Entry
from headerware.registry.header_names import printable
from headerware.registry.plain import from_plain, to_plain
from headerware.registry.rules import Problem, problems
from headerware.registry.stores.toml.edit import places, with_line, with_table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headerware.registry.registry import Registry
    from headerware.registry.stores.toml.edit import TableKind

VERSION: Final = 1
_HEAD: Final = """\
# Integer ids for the names of Kafka headers, and who owns which block of ids.
#
# An id is registered once and for good: it may be retired, but it is never removed, renumbered, renamed or
# given to anything else. `headerware registry` changes this file, and `headerware registry check` checks what
# people change by hand.
"""
_TOP: Final = ("version", "registrar", "block", "entry")
_DAYS: Final = frozenset({"since", "retired"})
_KEYS: Final = {"block": "network", "entry": "id"}
_Value = TypeVar("_Value", Block, Entry)


class Reading(NamedTuple):
    """What a text says.

    Attributes:
        registry: what could be read of it, beside what comes with Headerware.
        problems: all that is wrong with it, each with its file and line.
    """

    registry: Registry
    problems: list[Problem]


def registry_text(registry: Registry) -> str:
    """Write a registry, without what comes with Headerware."""
    own = without_built_in(registry)
    top = f"{_HEAD}\nversion = {VERSION}\nregistrar = {_quoted(own.registrar)}\n"
    tables = [*(_table("block", block) for block in own.blocks), *(_table("entry", e) for e in own.entries)]
    return "\n".join([top, *("\n".join([*table, ""]) for table in tables)])


def changed_text(text: str, change: Change) -> str:
    """Write a change into a text, which otherwise stays as it is, with the line ends that it has.

    Args:
        text: what :func:`read_registry` found no problems with.
        change: what the registry in it has taken.
    """
    if "\r\n" in text and text.count("\r\n") == text.count("\n"):
        return changed_text(text.replace("\r\n", "\n"), change).replace("\n", "\r\n")
    match change:
        case Allocate(block):
            return with_table(text, "block", _table("block", block))
        case Register(entry):
            return with_table(text, "entry", _table("entry", entry))
        case Retire(header_id, retired):
            return with_line(text, header_id, f"retired = {retired}")


def read_registry(text: str, source: str) -> Reading:
    """Read a text, and check it by every rule.

    Args:
        text: the TOML.
        source: the file's name, for what is wrong.
    """
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # numbers and nestings beyond what Python takes
        return Reading(with_built_in(), [Problem("TOML", "syntax", printable(str(error)), source)])
    return _Reader(document, text, source).read()


class _Reader:
    """Reads one document."""

    def __init__(self, document: dict[str, Any], text: str, source: str) -> None:
        self._document = document
        self._places = places(text)
        self._source = source
        self._lines: dict[str, int] = {}
        self._problems: list[Problem] = []

    def read(self) -> Reading:
        self._check_top()
        if not self._tables_stand_apart():
            return Reading(with_built_in(), self._problems)
        blocks, entries = self._read_all("block", Block), self._read_all("entry", Entry)
        registrar = self._document.get("registrar")
        named = {"registrar": registrar} if isinstance(registrar, str) else {}
        registry = with_built_in(blocks, entries, **named)
        self._problems += [self._placed(problem) for problem in problems(registry)]
        return Reading(registry, self._problems)

    def _check_top(self) -> None:
        for key in self._document.keys() - set(_TOP):
            near = get_close_matches(key, _TOP, n=1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            self._refuse(key, f"unknown; {hint}known: {', '.join(_TOP)}")
        if self._document.get("version") != VERSION or self._document.get("version") is True:
            self._refuse("version", f"expected version = {VERSION}, the layout that this Headerware reads")
        if not isinstance(self._document.get("registrar"), str):
            self._refuse("registrar", 'expected registrar = "...", who allocates blocks')

    def _tables_stand_apart(self) -> bool:
        """Whether each block and entry is a table with a header of its own, so that it can be edited."""
        found = [place.kind for place in self._places]
        apart = all(_are_tables(self._tables(kind), found.count(kind)) for kind in ("block", "entry"))
        if not apart:
            self._refuse("TOML", "expected each block and entry as a [[block]] or [[entry]] of its own")
        return apart

    def _tables(self, kind: str) -> Any:
        return self._document.get(kind, [])

    def _read_all(self, kind: TableKind, of: type[_Value]) -> list[_Value]:
        lines = [place.header + 1 for place in self._places if place.kind == kind]
        read = (
            self._read_one(table, line, kind, of)
            for table, line in zip(self._tables(kind), lines, strict=True)
        )
        return [value for value in read if value is not None]

    def _read_one(self, table: Any, line: int, kind: TableKind, of: type[_Value]) -> _Value | None:
        try:
            value = from_plain(table, of)
        except RegistryError as error:
            self._problems.append(Problem(f"[[{kind}]]", "type", str(error), f"{self._source}:{line}"))
            return None
        self._lines[table[_KEYS[kind]]] = line  # as it is written, which is the only form that is read
        return value

    def _placed(self, problem: Problem) -> Problem:
        line = self._lines.get(problem.about)
        return replace(problem, where=self._source if line is None else f"{self._source}:{line}")

    def _refuse(self, about: str, message: str) -> None:
        self._problems.append(Problem(printable(about), "layout", message, self._source))


def _are_tables(value: Any, count: int) -> bool:
    return isinstance(value, list) and len(value) == count and all(isinstance(each, dict) for each in value)


def _table(kind: TableKind, value: Block | Entry) -> list[str]:
    return [f"[[{kind}]]", *_lines(to_plain(value).items())]


def _lines(values: Iterable[tuple[str, Any]]) -> list[str]:
    return [f"{key} = {value if key in _DAYS else _quoted(value)}" for key, value in values]


def _quoted(value: str | bool) -> str:  # noqa: FBT001 - what a table holds
    """Write text or a boolean: JSON's form of either is TOML's."""
    return json.dumps(value, ensure_ascii=False)
