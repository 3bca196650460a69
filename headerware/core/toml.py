"""Read the TOML of configuration files, and find the line and the column of what is wrong.

Parsers of TOML in Python do not say where a key is. tomllib reads a file; after an error, this module looks
for the key in the text. It splits the text into tokens, and leaves the meaning of keys to tomllib.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from headerware.core.errors import ConfigError, HeaderwareError
from headerware.core.plain_files import require_path, why_unreadable

KeyPath = tuple[str | int, ...]
"""The keys and indices that lead to a value of a document."""

_POSITION_IN_ERROR: Final = re.compile(
    r"(?P<problem>.*) \(at (?:line (?P<line>\d+), column (?P<column>\d+)|end of document)\)", re.DOTALL
)
_TOKEN: Final = re.compile(
    r'''"""(?:[^\\]|\\.)*?"{3,5}|\'\'\'.*?\'{3,5}|"(?:[^"\\\n]|\\.)*"|'[^'\n]*\''''
    r"""|[\[\]{},=\n]|[^\s\[\]{},=#"']+|[ \t\r]+|#[^\n]*""",
    re.DOTALL,
)
_KEY: Final = re.compile(r"""\s*(?:([\w."'-]+)\s*=|\[+\s*([\w."'-]+)\s*\])""")
_BARE_TEXT: Final = re.compile(r"""\s*([\w."'-]+)\s*=\s*(?:[^\W\d]|[$/~\u201c\u2018]|\.\.?/)""")
_BARE_BOOLEAN: Final = re.compile(r".*=\s*(True|False)\b")
_YAML: Final = re.compile(r"(?:\s*(?:#.*)?\n)*(?:---\s|- |(?:- )?[\w.-]+:(?:\s|$))")
_BYTE_ORDER_MARK: Final = "\ufeff"
_PLAIN_PROBLEMS: Final = {
    "Unclosed array": "a list lacks a comma or its ]",
    "Unclosed inline table": "a table lacks a comma or its }",
}
_TWICE: Final = re.compile(r"Cannot declare (\(.*\)) twice")
_INDEX: Final = re.compile(r"\[(\d+)\]")
_AFTER_KEY: Final = (".", "[", ":", " (")


def read_toml(
    file: Path,
    read: Callable[[Path], str],
    texts: dict[str, str],
    *,
    parse_float: Callable[[str], Any] = float,
) -> dict[str, Any]:
    """Return the document in a file, and keep its text for the lines of errors.

    Args:
        file: the file.
        read: returns its text; raises OSError or UnicodeDecodeError.
        texts: gets the text, by the name of the file (:func:`naming_lines`).
        parse_float: makes a number of the text of a float.

    Raises:
        ConfigError: the file cannot be read, or is not TOML.
    """
    try:
        text = texts[str(file)] = read(file).removeprefix(_BYTE_ORDER_MARK)
    except OSError as error:
        raise ConfigError(f"cannot be read: {why_unreadable(file, error)}", path=str(file)) from error
    except UnicodeDecodeError as error:
        problem = ConfigError("is not TOML: it is not UTF-8", path=str(file))
        before = error.object[: error.start].decode()
        raise problem.located(str(file), *_position(before, len(before))) from error
    return parse_toml(text, str(file), parse_float=parse_float)


def parse_toml(text: str, file: str, *, parse_float: Callable[[str], Any] = float) -> dict[str, Any]:
    """Return the document in a text; ``file`` names it in errors.

    Raises:
        ConfigError: the text is not TOML; the error says where.
    """
    try:
        return tomllib.loads(text, parse_float=parse_float)
    except RecursionError:
        raise ConfigError("is not TOML: it is nested too deeply", path=file) from None
    except ValueError as error:  # also a number with too many digits
        at = _POSITION_IN_ERROR.fullmatch(str(error))
        if at is None:
            raise ConfigError(f"is not TOML: {error}", path=file) from error
        line, column = (int(at["line"]), int(at["column"])) if at["line"] else _position(text, len(text))
        problem = _other_format(text) or _plainer(at["problem"], text.split("\n")[line - 1], column)
        raise ConfigError(f"is not TOML: {problem}", path=file).located(file, line, column) from error


def _other_format(text: str) -> str:
    """Return what a text that is not TOML is, with what to do; empty if this is not known."""
    with suppress(ValueError, RecursionError):
        found = msgspec.json.decode(text)
        if isinstance(found, dict) and "keys" in found:
            return (
                "it is JSON with keys, as a keyring; the option keyring of an interceptor names such a file"
            )
        return "it is JSON; write it as TOML"
    return "it looks like YAML; write it as TOML" if _YAML.match(text) else ""


def _plainer(problem: str, line: str, column: int) -> str:
    """Return tomllib's problem with what to do, if it is a common one; the line's value may be secret."""
    if problem == "Invalid value" and (found := _BARE_BOOLEAN.match(line)):
        return f"{problem}; write {found[1].lower()}"
    if problem == "Invalid value" and (found := _BARE_TEXT.match(line)):
        return f'{problem}; text needs quotes, as in {found[1]} = "..."'
    if problem.startswith("Illegal character '\\n'"):
        return "text without its closing quote"
    if problem == "Invalid hex value" or problem.startswith("Unescaped '\\"):
        return "in \"...\" a backslash begins an escape; write '...' instead, or a path with forward slashes"
    if problem == "Cannot overwrite a value" and (found := _KEY.match(line)):
        return f"{found[1] or found[2]} occurs twice in this table"
    if problem.startswith("Expected '=' after a key") and line[column - 1 : column] == ":":
        return "expected NAME = VALUE, found NAME: VALUE"
    if twice := _TWICE.fullmatch(problem):
        name = ".".join(re.findall(r"'([^']*)'", twice[1]))
        return f"[{name}] occurs twice; each table of a list is written as [[{name}]]"
    return _PLAIN_PROBLEMS.get(problem, problem)


@contextmanager
def within_file(file: str | os.PathLike[str]) -> Iterator[None]:
    """Put the file's name before the path of a ConfigError; without a path, the name is the path."""
    require_path(file)
    try:
        yield
    except ConfigError as error:
        if error.file is not None:
            raise
        name = os.fspath(file)
        raise error.with_path(f"{name}: {error.path}" if error.path else name) from error


@contextmanager
def naming_lines(texts: Mapping[str, str]) -> Iterator[None]:
    """Add the line and the column of the option to a ConfigError, if the option is in one of some files.

    Args:
        texts: the texts of files, by the names with which the paths of errors begin.
    """
    try:
        yield
    except ConfigError as error:
        locate(error, error.path, texts)
        locate_naming(error, texts)
        raise


def locate(error: HeaderwareError, path: str, texts: Mapping[str, str]) -> None:
    """Add the line and the column to an error if a path begins with the name of a file."""
    for file, text in texts.items():
        place = path.removeprefix(f"{file}: ")
        if error.line is None and place != path:
            error.located(file, *position_of(text, place))


def locate_naming(error: HeaderwareError, texts: Mapping[str, str]) -> None:
    """Let an error name the line of the option that names the error's file, if one of some files has it."""
    option = ConfigError("", path=error.named_by)
    locate(option, option.path, texts)
    if option.line is not None:
        error.named_by = f"{option.file}:{option.line}:{option.column}"


def position_of(text: str, place: str) -> tuple[int, int]:
    """Return the line and the column of an option of a document; if the option is missing, of its table.

    Args:
        text: the document.
        place: the option as errors have it, such as ``interceptors[1] (sign).key_id``.
    """
    return find_option(text, place) or (1, 1)


def find_option(text: str, place: str) -> tuple[int, int] | None:
    """Return the line and the column of an option, or else of its table; None if the document has neither."""
    found = positions(text)
    path = _path_of(tomllib.loads(text), place)
    while path and path not in found:
        path = path[:-1]
    return found.get(path)


def positions(text: str) -> dict[KeyPath, tuple[int, int]]:
    """Return the line and the column of each key and each item of a document."""
    return {path: _position(text, offset) for path, offset in _Locator(text).offsets().items()}


def _position(text: str, offset: int) -> tuple[int, int]:
    return text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)


def _path_of(document: Any, place: str) -> KeyPath:
    """Return the longest beginning of a place that exists in the document."""
    path: KeyPath = ()
    while place:
        if isinstance(document, dict):
            place = place.removeprefix(": ").removeprefix(".")
            keys = [each for each in document if place.startswith(each)]
            keys = [each for each in keys if place[len(each) :].startswith(_AFTER_KEY) or place == each]
            if not keys:
                break
            key: str | int = max(keys, key=len)
            place = place.removeprefix(str(key))
        else:
            index = _INDEX.match(place)
            if index is None or not isinstance(document, list) or int(index[1]) >= len(document):
                break
            key, place = int(index[1]), place[index.end() :]
        path, document = (*path, key), document[key]
        if isinstance(document, dict):  # an interceptor's position has its name, too
            place = place.removeprefix(f" ({document.get('name', document.get('type'))})")
    return path


class _Locator:
    """Find where the keys and items of a valid document begin."""

    def __init__(self, text: str) -> None:
        self._text: Final = text
        self._tokens: Final = [
            (found[0], found.start()) for found in _TOKEN.finditer(text) if found[0][0] not in " \t\r#"
        ]
        self._at = 0
        self._offsets: Final[dict[KeyPath, int]] = {}
        self._table_counts: Final[dict[KeyPath, int]] = {}
        """How many tables each array of tables has so far."""

    def offsets(self) -> dict[KeyPath, int]:
        """Return the offset of each path."""
        table: KeyPath = ()
        while self._next():
            if self._next() == "[":
                table = self._header()
            else:
                self._pair(table)
        return self._offsets

    def _next(self) -> str:
        """Return the next token in this or a later line; empty at the end."""
        while self._at < len(self._tokens) and self._tokens[self._at][0] == "\n":
            self._at += 1
        return self._tokens[self._at][0] if self._at < len(self._tokens) else ""

    def _header(self) -> KeyPath:
        """Read the header of a table, and return the path of the table."""
        start = self._tokens[self._at][1]
        brackets = 2 if self._text.startswith("[[", start) else 1
        self._at += brackets
        path: KeyPath = ()
        keys = self._key("]")
        self._at += brackets
        for key in keys:
            if path in self._table_counts:
                path = (*path, self._table_counts[path] - 1)
            path = (*path, key)
            self._offsets.setdefault(path, start)
        if brackets == 2:
            index = self._table_counts.get(path, 0)
            self._table_counts[path] = index + 1
            path = (*path, index)
            self._offsets[path] = start
        return path

    def _pair(self, table: KeyPath) -> None:
        start = self._tokens[self._at][1]
        path = table
        for key in self._key("="):
            path = (*path, key)
            self._offsets.setdefault(path, start)
        self._at += 1
        self._value(path)

    def _key(self, end: str) -> KeyPath:
        """Read the tokens of a key, which may be dotted, up to a token after it."""
        start = self._tokens[self._at][1]
        while self._tokens[self._at][0] != end:
            self._at += 1
        table: Any = tomllib.loads(f"{self._text[start : self._tokens[self._at][1]]}= 0")
        path: KeyPath = ()
        while isinstance(table, dict):
            ((key, table),) = table.items()
            path = (*path, key)
        return path

    def _value(self, path: KeyPath) -> None:
        opening = self._next()
        if opening not in ("[", "{"):
            while self._at < len(self._tokens) and self._tokens[self._at][0] not in ("\n", ",", "]", "}"):
                self._at += 1
            return
        self._at += 1
        index = 0
        while (found := self._next()) not in ("]", "}"):
            if found == ",":
                self._at += 1
            elif opening == "{":
                self._pair(path)
            else:
                self._offsets[*path, index] = self._tokens[self._at][1]
                self._value((*path, index))
                index += 1
        self._at += 1
