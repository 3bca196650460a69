"""Configuration in TOML: ``[[interceptors]]`` tables, named stacks, and files that include others.

    include = ["platform.toml"]            # read first, in this order
    carry = ["tenant"]                     # headers that are carried on, or false

    [[interceptors]]
    type = "trail"
    service = "orders"

    [[interceptors]]
    stack = "secure"                       # stands for the interceptors of [stacks.secure]

    [[stacks.secure.interceptors]]
    type = "sign"
    keyring = "keys.json"

A file that begins with ``last_line = "# end"`` must end with that line, so that a file that was cut off is
refused.

Later sources override options of the same name, and replace ``carry``; interceptors keep the position of
their first declaration. Sources are the included files in their order, then the file itself, then the flat
keys of a client.

A configuration has at most 256 files of 1 MiB, which include each other 32 deep, and 1,000 interceptors,
those of its stacks included.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from headerware.core.carry import carry_option
from headerware.core.errors import ConfigError, below
from headerware.core.file_versions import LAST_LINE, require_whole
from headerware.core.options import Declared, Setting, from_home, setting
from headerware.core.plain_files import read_plain, why_unreadable
from headerware.core.suggestions import did_you_mean
from headerware.core.toml import naming_lines, position_of, read_toml

_TOP: Final = ("include", "carry", "interceptors", "stacks", LAST_LINE)

_MAX_FILE_BYTES: Final = 1 << 20
_MAX_FILES: Final = 256
_MAX_DEPTH: Final = 32
_MAX_TABLES: Final = 1_000

Read = Callable[[Path], str]
"""Returns a file's text; raises OSError or UnicodeDecodeError."""


class Source(NamedTuple):
    """The declarations of one source of a configuration, which is a file or a client's own keys."""

    declared: list[Declared]
    carry: Setting | None = None
    """The headers that are carried on; None if the source has no such option."""
    carry_path: str = ""
    file: str | None = None
    text: str = ""
    """The text of the file, for the lines of errors."""


def texts_of(sources: Iterable[Source]) -> dict[str, str]:
    """Return the texts of files by their names."""
    return {source.file: source.text for source in sources if source.file is not None}


def read_text(path: Path) -> str:
    """Return the text of a configuration file, which is UTF-8, a plain file and not too large."""
    return read_plain(path, _MAX_FILE_BYTES)[0].decode()


def read_sources(path: str | os.PathLike[str], read: Read = read_text) -> list[Source]:
    """Read a TOML file and its includes, each as a source of its own."""
    reader = _Reader(read)
    with naming_lines(reader.texts):
        return reader.sources(Path(from_home(os.fspath(path))))


class _Reader:
    """Read a file and its includes; a stack is known to all files that are read after it."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self.texts: Final[dict[str, str]] = {}
        self._stacks: dict[str, tuple[list[Any], Path]] = {}
        self._open: list[Path] = []
        self._known: set[Path] = set()
        self._tables = 0

    def sources(self, path: Path) -> list[Source]:
        try:
            resolved = path.resolve()
        except (OSError, RuntimeError):  # which Python raises depends on its version
            raise ConfigError("is a link that leads back to itself", path=str(path)) from None
        except ValueError as error:
            raise ConfigError(f"cannot be read: {why_unreadable(path, error)}", path=str(path)) from None
        chain = " -> ".join(str(step.name) for step in [*self._open, resolved])
        if resolved in self._open:
            raise ConfigError(f"files include one another: {chain}", path=str(path))
        if len(self._open) >= _MAX_DEPTH:
            raise ConfigError(
                f"files include one another {_MAX_DEPTH} deep, the limit: {chain}", path=str(path)
            )
        if len(self._known) >= _MAX_FILES and resolved not in self._known:
            raise ConfigError(
                f"more than {_MAX_FILES} files are included, the limit: {chain}", path=str(path)
            )
        if resolved in self._known:  # two files may include a third, which counts the first time
            return []
        self._known.add(resolved)
        self._open.append(resolved)
        table = self._parsed(path)
        sources: list[Source] = []
        for index, name in enumerate(_texts(table.get("include", []), f"{path}: include")):
            with below(f"{path}: include[{index}]"):
                named = from_home(name)
            sources.extend(self._included(path.parent / named, path, f"include[{index}]"))
        for name, stack in _table(table.get("stacks", {}), f"{path}: stacks").items():
            self._define(name, stack, path)
        declared = self._declared(table.get("interceptors", []), path, str(path))
        sources.append(Source(declared, *_carried(table, path), file=str(path), text=self.texts[str(path)]))
        self._open.pop()
        return sources

    def _included(self, path: Path, by: Path, place: str) -> list[Source]:
        """Read an included file; an error about the whole file has the line that includes the file."""
        try:
            return self.sources(path)
        except ConfigError as error:
            if error.path == str(path) and error.file is None:
                error.located(str(by), *position_of(self.texts[str(by)], place))
            raise

    def _parsed(self, path: Path) -> dict[str, Any]:
        table = read_toml(path, self._read, self.texts)
        if "source" in table:
            raise ConfigError(
                "it configures a source, not a chain; `headerware source plan` explains it", path=str(path)
            )
        _require_known(table, _TOP, str(path))
        require_whole(table, self.texts[str(path)], str(path))
        return table

    def _define(self, name: str, stack: Any, path: Path) -> None:
        if name in self._stacks:
            raise ConfigError(
                f"{self._stacks[name][1]} defines this stack already; give it a name of its own",
                path=f"{path}: stacks.{name}",
            )
        table = _table(stack, f"{path}: stacks.{name}")
        _require_known(table, ("interceptors",), f"{path}: stacks.{name}")
        self._stacks[name] = (table.get("interceptors", []), path)

    def _declared(self, tables: Any, path: Path, where: str, within: tuple[str, ...] = ()) -> list[Declared]:
        if not isinstance(tables, list):
            raise ConfigError("expected [[interceptors]] tables", path=f"{where}: interceptors")
        found: list[Declared] = []
        for index, item in enumerate(tables):
            place = f"{where}: interceptors[{index}]"
            self._tables += 1
            if self._tables > _MAX_TABLES or len(within) > _MAX_DEPTH:
                raise ConfigError(
                    f"stacks are nested {_MAX_DEPTH} deep or splice {_MAX_TABLES} interceptors, the limits: "
                    f"{' -> '.join(within) or 'no stack'}",
                    path=place,
                )
            table = _table(item, place)
            if "stack" in table:
                found.extend(self._spliced(table, place, within))
            else:
                found.append(_declaration(table, path, place))
        return found

    def _spliced(self, table: Mapping[str, Any], place: str, within: tuple[str, ...]) -> list[Declared]:
        _require_known(table, ("stack",), place)
        name = table["stack"]
        if not isinstance(name, str):
            raise ConfigError(f"expected a stack's name, found {type(name).__name__}", path=f"{place}.stack")
        if name in within:
            raise ConfigError(f"stack {name!r} contains itself: {' -> '.join([*within, name])}", path=place)
        if name not in self._stacks:
            defined = f"defined: {', '.join(sorted(self._stacks)) or 'none'}"
            hint = did_you_mean(name, self._stacks, then=defined)
            raise ConfigError(f"there is no stack {name!r}{hint}", path=place)
        tables, path = self._stacks[name]
        return self._declared(tables, path, f"{path}: stacks.{name}", (*within, name))


def _carried(table: Mapping[str, Any], path: Path) -> tuple[Setting | None, str]:
    place = f"{path}: carry"
    if "carry" not in table:
        return None, place
    carry = setting(table["carry"], str(path), path=place)
    carry_option(carry.value, path=place)  # refused even if a later source overrides it
    return carry, place


def _declaration(table: Mapping[str, Any], path: Path, place: str) -> Declared:
    kind = table.get("type")
    if not isinstance(kind, str):
        raise ConfigError('expected type = "..." (or stack = "...")', path=place)
    name = table.get("name", kind)
    if not isinstance(name, str):
        raise ConfigError(f"expected text, found {type(name).__name__}", path=f"{place}.name")
    where = f"{place} ({name})"
    settings = {
        option: setting(value, str(path), path=f"{where}.{option}", folder=str(path.parent))
        for option, value in table.items()
        if option not in ("type", "name")
    }
    return Declared(name, kind, where, settings)


def _require_known(table: Mapping[str, Any], known: tuple[str, ...], place: str) -> None:
    for key in table:
        if key not in known:
            hint = did_you_mean(key, known, then=f"known: {', '.join(known)}")
            raise ConfigError(f"unknown key{hint}", path=f"{place}: {key}")


def _table(value: Any, place: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ConfigError(f"expected a table, found {type(value).__name__}", path=place)
    return value


def _texts(value: Any, place: str) -> list[str]:
    found = [value] if isinstance(value, str) else value
    if not isinstance(found, list) or not all(isinstance(item, str) for item in found):
        raise ConfigError("expected a file name or a list of them", path=place)
    return found
