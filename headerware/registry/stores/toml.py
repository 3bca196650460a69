"""A registry in a TOML file: for a git repository, where changes are reviewed before they take effect.

Each block or entry is one table, in the order of ids; built-in entries are not in the file. A change adds or
extends its own table. The rest of the text stays as people wrote it: comments, order and all.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import tomllib
from contextlib import contextmanager
from ipaddress import IPv4Network
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeVar

from msgspec.structs import replace

from headerware.core.atomic_files import created_file, replace_file
from headerware.core.errors import ConfigError, RegistryError
from headerware.core.header_ids import HeaderId
from headerware.core.plain_files import read_plain
from headerware.core.suggestions import did_you_mean
from headerware.core.toml import find_option, parse_toml
from headerware.registry.header_names import printable
from headerware.registry.registry import Problem, problems, with_built_in, without_built_in
from headerware.registry.stores.store import Store, own_part, require_sound
from headerware.registry.values import Allocate, Block, Change, Entry, Register, Retire, from_plain, to_plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from headerware.registry.registry import Registry

VERSION: Final = 1
_HEAD: Final = """\
# Integer ids for the names of Kafka headers, and who owns which block of ids.
#
# An id is registered once and for good: it may be retired, but it is never removed, renumbered, renamed or
# given to anything else. `headerware header-ids` changes this file, and `headerware header-ids check` checks
# what people change by hand.
"""
_TOP: Final = ("version", "registrar", "block", "entry")
_DAYS: Final = frozenset({"since", "retired"})
_KEYS: Final = {"block": "network", "entry": "id"}
_MAX_BYTES: Final = 64 << 20
_Value = TypeVar("_Value", Block, Entry)
_TableKind = Literal["block", "entry"]

_HEADER: Final = re.compile(r"[ \t]*\[\[[ \t]*(block|entry)[ \t]*\]\][ \t]*(#.*)?\r?")
_COMMENT: Final = re.compile(r"[ \t]*#")
_KEY: Final[dict[str, Callable[[Any], Any]]] = {
    "block": lambda table: _network_order(table["network"]),
    "entry": lambda table: HeaderId(table["id"]),
}
"""The sort key of each kind of table."""


class _Reading(NamedTuple):
    registry: Registry
    """The readable part of the text, and the built-in entries."""
    problems: list[Problem]


class _TablePosition(NamedTuple):
    kind: str
    start: int
    """The first line, counted from 0; a comment right above the table belongs to it."""
    header: int
    """The line with the kind."""


class TomlStore(Store):
    """A registry in a TOML file.

    It is read anew each time. A change locks the file against other writers, checks it, and replaces it by a
    new file. So no reader sees half a file, and no writer loses another's change. Safe for use by several
    threads and processes.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)

    @classmethod
    def create(cls, path: str | os.PathLike[str], registry: Registry) -> TomlStore:
        store, text = cls(path), registry_text(own_part(registry))
        with store._file_errors(), created_file(Path(path)) as temporary:
            temporary.write_bytes(text.encode())
        return store

    def load(self) -> Registry:
        return _sound(self._read(self._path))

    def problems(self) -> list[Problem]:
        """Return all problems, each with its line."""
        return self._read(self._path).problems

    def apply(self, change: Change) -> Registry:
        """Write a change into the file; only the lines of its own table change."""
        with self._file_errors(), _locked(self._path) as target:
            text = self._text(target)
            after = _sound(read_registry(text, str(self._path))).apply(change)
            changed = _changed_text(text, change)
            if read_registry(changed, str(self._path)) != _Reading(after, []):
                raise RegistryError(
                    f"{self._path}: {change!r} cannot be added to the text of the file; write the tables "
                    "plainly, one [[block]] or [[entry]] after another"
                )
            replace_file(target, changed.encode())
        return after

    def close(self) -> None:
        """Do nothing: the file is open only while it is read or written."""

    def _read(self, path: Path) -> _Reading:
        with self._file_errors():
            return read_registry(self._text(path), str(self._path))

    def _text(self, path: Path) -> str:
        try:
            return read_plain(path, _MAX_BYTES)[0].decode()
        except UnicodeDecodeError as error:
            raise RegistryError(
                f"{self._path}: expected UTF-8, as in TOML; byte {error.start} is invalid"
            ) from None

    @contextmanager
    def _file_errors(self) -> Iterator[None]:
        try:
            yield
        except FileExistsError:
            raise RegistryError(f"{self._path}: the file exists, and is not overwritten") from None
        except FileNotFoundError:
            raise _no_such_file(self._path) from None
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise RegistryError(f"{self._path}: {reason}") from error


def _sound(reading: _Reading) -> Registry:
    require_sound(reading.problems)
    return reading.registry


def registry_text(registry: Registry) -> str:
    """Write a registry, without the built-in entries."""
    own = without_built_in(registry)
    top = f"{_HEAD}\nversion = {VERSION}\nregistrar = {_quoted(own.registrar)}\n"
    tables = [*(_table("block", block) for block in own.blocks), *(_table("entry", e) for e in own.entries)]
    return "\n".join([top, *("\n".join([*table, ""]) for table in tables)])


def _changed_text(text: str, change: Change) -> str:
    """Write a change into a text, and keep the rest of it, line ends included."""
    if "\r\n" in text and text.count("\r\n") == text.count("\n"):
        return _changed_text(text.replace("\r\n", "\n"), change).replace("\n", "\r\n")
    match change:
        case Allocate(block):
            return _with_table(text, "block", _table("block", block))
        case Register(entry):
            return _with_table(text, "entry", _table("entry", entry))
        case Retire(header_id, retired):
            return _with_line(text, header_id, f"retired = {retired}")


def read_registry(text: str, source: str) -> _Reading:
    """Read a text, and check it by every rule; ``source`` names the file in problems."""
    try:
        document = parse_toml(text, source)
    except ConfigError as error:
        where = source if error.line is None else f"{source}:{error.line}"
        return _Reading(with_built_in(), [Problem("TOML", "syntax", printable(error.message), where)])
    return _Reader(document, text, source).read()


class _Reader:
    def __init__(self, document: dict[str, Any], text: str, source: str) -> None:
        self._document = document
        self._text = text
        self._positions = find_tables(text)
        self._source = source
        self._lines: dict[str, int] = {}
        self._problems: list[Problem] = []

    def read(self) -> _Reading:
        self._check_top()
        if not self._tables_stand_apart():
            return _Reading(with_built_in(), self._problems)
        blocks, entries = self._read_all("block", Block), self._read_all("entry", Entry)
        registrar = self._document.get("registrar")
        named = {"registrar": registrar} if isinstance(registrar, str) else {}
        registry = with_built_in(blocks, entries, **named)
        self._problems += [self._placed(problem) for problem in problems(registry)]
        return _Reading(registry, self._problems)

    def _check_top(self) -> None:
        for key in [key for key in self._document if key not in _TOP]:  # in the order of the file
            known = f"known: {', '.join(_TOP)}"
            self._refuse(key, f"unknown key{did_you_mean(key, _TOP, then=known)}")
        if self._document.get("version") != VERSION or self._document.get("version") is True:
            self._refuse("version", f"expected version = {VERSION}, the layout that this Headerware reads")
        if not isinstance(self._document.get("registrar"), str):
            self._refuse("registrar", 'expected registrar = "...", the owner who allocates blocks')

    def _tables_stand_apart(self) -> bool:
        """Return whether each block and entry is a table with a header of its own, and so can be edited."""
        found = [position.kind for position in self._positions]
        apart = all(_are_tables(self._tables(kind), found.count(kind)) for kind in ("block", "entry"))
        if not apart:
            self._refuse("TOML", "expected each block and entry as a [[block]] or [[entry]] of its own")
        return apart

    def _tables(self, kind: str) -> Any:
        return self._document.get(kind, [])

    def _read_all(self, kind: _TableKind, of: type[_Value]) -> list[_Value]:
        lines = [position.header + 1 for position in self._positions if position.kind == kind]
        read = (
            self._read_one(table, line, kind, of)
            for table, line in zip(self._tables(kind), lines, strict=True)
        )
        return [value for value in read if value is not None]

    def _read_one(self, table: Any, line: int, kind: _TableKind, of: type[_Value]) -> _Value | None:
        try:
            value = from_plain(table, of)
        except RegistryError as error:
            self._problems.append(Problem(f"[[{kind}]]", "type", str(error), f"{self._source}:{line}"))
            return None
        self._lines[table[_KEYS[kind]]] = line  # the written form is the only one that is read
        return value

    def _placed(self, problem: Problem) -> Problem:
        line = self._lines.get(problem.about)
        return replace(problem, where=self._source if line is None else f"{self._source}:{line}")

    def _refuse(self, about: str, message: str) -> None:
        found = find_option(self._text, about)
        where = self._source if found is None else f"{self._source}:{found[0]}"
        self._problems.append(Problem(printable(about), "layout", message, where))


def _are_tables(value: Any, count: int) -> bool:
    return isinstance(value, list) and len(value) == count and all(isinstance(each, dict) for each in value)


def _table(kind: _TableKind, value: Block | Entry) -> list[str]:
    return [f"[[{kind}]]", *_lines(to_plain(value).items())]


def _lines(values: Iterable[tuple[str, Any]]) -> list[str]:
    return [f"{key} = {value if key in _DAYS else _quoted(value)}" for key, value in values]


def _quoted(value: str | bool) -> str:  # noqa: FBT001 - what a table holds
    """Write text or a boolean; TOML writes both as JSON does."""
    return json.dumps(value, ensure_ascii=False)


def find_tables(text: str) -> list[_TablePosition]:
    """Find the tables that are written as ``[[block]]`` or ``[[entry]]``, in the order of the text."""
    lines = text.split("\n")
    found = ((number, _HEADER.fullmatch(line)) for number, line in enumerate(lines))
    return [_TablePosition(match[1], _start(lines, number), number) for number, match in found if match]


def _with_table(text: str, kind: _TableKind, table: list[str]) -> str:
    """Insert a table before the first table of its kind that sorts after it."""
    here = find_tables(text)
    at = _index(tomllib.loads(text), here, kind, tomllib.loads("\n".join(table))[kind][0])
    if at == len(here):
        return "\n".join([text.rstrip(), "", *table, ""])
    lines = text.split("\n")
    lines[here[at].start : here[at].start] = [*table, ""]
    return "\n".join(lines)


def _with_line(text: str, header_id: HeaderId, line: str) -> str:
    """Insert a line at the end of an entry's table."""
    here = find_tables(text)
    lines = text.split("\n")
    entries = [index for index, position in enumerate(here) if position.kind == "entry"]
    ids = [table["id"] for table in tomllib.loads(text)["entry"]]
    index = entries[ids.index(str(header_id))]
    last = here[index + 1].start if index + 1 < len(here) else len(lines)
    while not lines[last - 1].strip() or _COMMENT.match(lines[last - 1]):
        last -= 1
    lines.insert(last, line)
    return "\n".join(lines)


def _start(lines: list[str], header: int) -> int:
    start = header
    while start > 0 and _COMMENT.match(lines[start - 1]):
        start -= 1
    return start


def _index(
    document: dict[str, Any], here: list[_TablePosition], kind: _TableKind, table: dict[str, Any]
) -> int:
    """Return the index of the table before which a new table belongs."""
    key = _KEY[kind]
    wanted = key(table)
    own = [index for index, position in enumerate(here) if position.kind == kind]
    for index, other in zip(own, document.get(kind, ()), strict=True):
        if key(other) > wanted:
            return index
    if own:
        return own[-1] + 1
    return 0 if kind == "block" else len(here)


def _no_such_file(path: Path) -> RegistryError:
    """Return the error for a registry's file or folder that does not exist."""
    if not path.parent.is_dir():
        return RegistryError(f"{path}: there is no folder {path.parent}")
    return RegistryError(f"{path}: there is no such file; `headerware header-ids init` makes a registry")


def _network_order(text: str) -> tuple[int, int]:
    network = IPv4Network(text)
    return int(network.network_address), network.prefixlen


@contextmanager
def _locked(path: Path) -> Iterator[Path]:
    """Lock a file, or the target of a link, against other writers, and yield its path.

    The lock is on the file itself, so that no lock file is left in a repository. Writers replace the file, so
    a writer that has waited checks that its lock is on the file that is there now.
    """
    while True:
        target = Path(os.path.realpath(path))  # unlike resolve, it leaves loops of links to os.open
        descriptor = os.open(target, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if _is_at(descriptor, target):
                yield target
                return
        finally:
            os.close(descriptor)


def _is_at(descriptor: int, target: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), target.stat())
    except FileNotFoundError:
        return False
