"""Expressions in the Common Expression Language, over a record.

    topic          string                    key, value    anything; fields as ``value.a.b``
    partition      int or null               headers       map of names to their last value
    offset         int or null               all_headers   map of names to lists of all their values
    timestamp      int or null, milliseconds since the epoch

The language has loops only over the values that it is given, and no access to files, the network or the
host's code. The library stops an expression after a fixed number of steps, and its regular expressions (RE2)
take linear time. Before an expression is evaluated, :mod:`.analysis` computes how many bytes it may build and
read for the record; above a limit, the record is refused.

Records are evaluated one by one, because this is fastest: to evaluate a list of records as one value costs
five times as much per record, and one failure would fail all records.
"""

from __future__ import annotations

import re
from enum import Enum
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from headerware.connect.errors import ConnectConfigError, ConnectDataError
from headerware.connect.expressions.analysis import SizeLimits, Tree, field_references
from headerware.connect.expressions.values import Reader, as_record_value, checked_text
from headerware.core.extras import install_command

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from headerware.connect.records import ConnectRecord

_LIBRARY: Final = "cel_expr_python"
_EXTENSIONS: Final = (
    ("ext_strings", "ExtStrings"),
    ("ext_optional", "ExtOptional"),
    ("ext_math", "ExtMath"),
    ("ext_encoders", "ExtEncoders"),
)
VARIABLES: Final[dict[str, str]] = {
    "topic": "string",
    "partition": "dyn",
    "offset": "dyn",
    "timestamp": "dyn",
    "key": "dyn",
    "value": "dyn",
    "headers": "map<string, dyn>",
    "all_headers": "map<string, list<dyn>>",
}
"""The variables of all expressions, with their types in the language."""


class Result(Enum):
    """The type that an expression has to return, by its name in the language."""

    BOOLEAN = "BOOL"
    STRING = "STRING"
    ANY = "DYN"


class AbsentValueError(ConnectDataError):
    """An expression reads something that a record does not have, or that is null there."""


class CompiledExpression:
    """Evaluate an expression on records; safe for use by several threads."""

    def __init__(self, text: str, *, result: Result = Result.ANY, path: str = "expression") -> None:
        self._path: Final = path
        try:
            self._program: Final = _environment().compile(text)
        except (RuntimeError, TypeError) as error:
            problem = _NOISE.sub("", str(error)).partition("\n")[0]  # with the line and column
            raise ConnectConfigError(f"expected an expression: {problem}", path=path) from error
        self.result_type: Final[str] = self._program.return_type().name()
        """The type that it returns, by its name in the language; ``DYN`` if that depends on the record."""
        if result is not Result.ANY and self.result_type not in {result.value, Result.ANY.value}:
            raise ConnectConfigError(
                f"expected an expression that returns {result.value}, this one returns {self.result_type}",
                path=path,
            )
        self._result: Final = result
        serialized = self._program.serialize()
        self._tree: Final = field_references(serialized, VARIABLES)
        self.reads: Final = frozenset(self._tree)
        """The variables that it reads."""
        self._limits: Final = SizeLimits(serialized)
        if any("\0" in name for name in _names(self._tree)):
            raise ConnectConfigError("expressions cannot hold text with a zero character", path=path)
        self._reads: Final = [(name, _READERS[name](inner)) for name, inner in self._tree.items()]

    def evaluate(self, record: ConnectRecord) -> Any:
        """Return the value for a record; raise AbsentValueError if a part that is read is absent or null."""
        given = {name: read(record) for name, read in self._reads}
        if not self._limits.is_bounded and (problem := self._limits.refusal(given)):
            raise ConnectDataError(f"{self._path} {problem}")
        try:
            found = self._program.eval(data=given)
            value = found.plain_value()
        except RuntimeError as error:
            raise self._failure(error, given) from None
        except (TypeError, MemoryError):
            raise ConnectDataError(f"{self._path} returns a value that no record can hold") from None
        if value is True or value is False:
            name = Result.BOOLEAN.value
        elif (name := found.type().name()) == "ERROR":
            raise self._failure(value, given)
        if self._result is not Result.ANY and name != self._result.value:
            raise ConnectDataError(
                f"{self._path} must return {self._result.value}, but returns {name} for this record"
            )
        return value if name in _SINGLE else as_record_value(value)

    def _failure(self, reason: Any, given: dict[str, Any]) -> ConnectDataError:
        # The library's message may quote the record, so that it cannot be part of ours.
        text = str(reason)
        missing = sorted(_missing(self._tree, given, ""))
        if missing and any(sign in text for sign in _ABSENCE):
            return AbsentValueError(
                f"{self._path} reads parts that are missing or null in this record: {', '.join(missing)}"
            )
        problem = next((words for sign, words in _PROBLEMS if sign in text), "it cannot be evaluated")
        return ConnectDataError(f"{self._path} fails on this record: {problem}")


_SINGLE: Final = frozenset({"BOOL", "INT", "DOUBLE", "STRING"})
_ABSENCE: Final = ("NOT_FOUND", "null_type", "SELECT to non-message")
_PROBLEMS: Final = (
    ("NOT_FOUND", "a map has no such key"),
    ("No matching overload", "an operation does not take values of these types"),
    ("SELECT to non-message", "a field is read of a value that has none"),
    ("Index error", "a list is shorter than the index"),
    ("OUT_OF_RANGE", "a number leaves its range"),
    ("by zero", "a number is divided by zero"),
    ("modulus", "a number is divided by zero"),
    ("cannot convert", "a value cannot be converted"),
    ("regular expression", "a regular expression is not valid"),
    ("budget", "it takes more steps than are allowed"),
    ("construction from null", "a text is not valid Unicode"),
)
"""What the library's messages mean."""


def _names(tree: Tree) -> Iterator[str]:
    for name, inner in tree.items():
        yield name
        yield from _names(inner or {})


def _missing(tree: Tree, given: dict[str, Any], path: str) -> list[str]:
    """Return the paths of a tree that are missing or null."""
    found = []
    for name, inner in tree.items():
        field = f"{path}{name}"
        value = given.get(name)
        if value is None:
            found.append(field)
        elif inner and isinstance(value, dict):
            found += _missing(inner, value, f"{field}.")
    return found


_NOISE: Final = re.compile(r"\A(?:[A-Z_]+: )*(?:ERROR: )?<input>:")


@cache
def _environment() -> Any:
    """Return the environment that all expressions share."""
    try:
        cel = import_module(f"{_LIBRARY}.cel")
        extensions = [
            getattr(import_module(f"{_LIBRARY}.ext.{module}"), name)() for module, name in _EXTENSIONS
        ]
    except ImportError as error:
        raise ConnectConfigError(
            f"expressions need the package cel-expr-python: {install_command('connect')}"
        ) from error
    variables = {name: cel.Type(kind) for name, kind in VARIABLES.items()}
    return cel.NewEnv(variables=variables, extensions=extensions)


def _part(part: str) -> Callable[[Tree | None], Callable[[Any], Any]]:
    def make(tree: Tree | None) -> Callable[[Any], Any]:
        reader = Reader(tree)
        if part == "key":
            return lambda record: reader(record.key)
        return lambda record: reader(record.value)

    return make


def _topic(_tree: Tree | None) -> Callable[[Any], Any]:
    def read(record: ConnectRecord) -> str:
        if record.topic is None:
            raise AbsentValueError("an expression reads the topic of a record that has none")
        return checked_text(record.topic)

    return read


def _attribute(name: str) -> Callable[[Tree | None], Callable[[Any], Any]]:
    return lambda _tree: lambda record: getattr(record, name, None)


def _headers(tree: Tree | None) -> Callable[[Any], Any]:
    readers = {name: Reader(inner) for name, inner in (tree or {}).items()}
    read_all = Reader(None)

    def read(record: ConnectRecord) -> dict[str, Any]:
        last = {header.key: header for header in record.headers if tree is None or header.key in readers}
        return {checked_text(key): readers.get(key, read_all)(header.value) for key, header in last.items()}

    return read


def _all_headers(tree: Tree | None) -> Callable[[Any], Any]:
    read_all = Reader(None)

    def read(record: ConnectRecord) -> dict[str, list[Any]]:
        made: dict[str, list[Any]] = {}
        for header in record.headers:
            if tree is None or header.key in tree:
                made.setdefault(checked_text(header.key), []).append(read_all(header.value))
        return made

    return read


_READERS: Final[dict[str, Callable[[Tree | None], Callable[[Any], Any]]]] = {
    "topic": _topic,
    "partition": _attribute("kafka_partition"),
    "offset": _attribute("kafka_offset"),
    "timestamp": _attribute("timestamp"),
    "key": _part("key"),
    "value": _part("value"),
    "headers": _headers,
    "all_headers": _all_headers,
}
"""For each variable, makes the function that reads it from a record, given the parts that are needed."""
