"""Checks of values before they are written: fastavro would write some as other values, without an error.

For an int it truncates 5.5 to 5, and writes integers of 40 bits, which no other reader accepts. For a null it
writes nothing, for any value. It accepts any object as a boolean, text such as "1.5" in a record as a double,
text as an array of its characters, and a datetime as a date. It checks the values of unions itself, to choose
a branch. So the checks here look into a union only for what fastavro does not check: a branch that is named
by a tuple, and the logical types in :data:`_UNSEEN` if null is the only other branch.
"""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final

from fastavro.validation import validate
from fastavro.write import LOGICAL_WRITERS

from headerware.serdes.avro.limits import PRIMITIVE_BYTES

Check = Callable[[Any], None]
_RANGES: Final = {"int": (-(1 << 31), (1 << 31) - 1), "long": (-(1 << 63), (1 << 63) - 1)}
_MIDNIGHT: Final = dt.time()
_BRANCH: Final = 2
"""The length of a tuple that names a union's branch: the name and the value."""


class LossyValueError(ValueError):
    """A value that would be written as another value."""


def value_check(tree: Any, named: Mapping[str, Any]) -> Check | None:
    """Return the check of a schema's values, or None if no check is needed."""
    return _Checks(named, _has_unseen(tree)).of(tree)


class _Checks:
    def __init__(self, named: Mapping[str, Any], has_unseen: bool) -> None:  # noqa: FBT001 - private
        self._named: Final = named
        self._has_unseen: Final = has_unseen
        self._made: dict[str, Check | None] = {}

    def of(self, node: Any) -> Check | None:
        if isinstance(node, list):
            return self._union(node)
        kind = node if isinstance(node, str) else node["type"]
        if kind in PRIMITIVE_BYTES:
            return _logical(node, kind) if _is_logical(node) else _SCALARS.get(kind)
        if kind in {"array", "map"}:
            return self._repeated(node, kind)
        name = node if isinstance(node, str) else node.get("name")
        return self._record(name) if isinstance(name, str) and name in self._named else None

    def _union(self, branches: list[Any]) -> Check:
        """Return the check of a union's values, most of which fastavro checks itself."""
        by_name = {_branch_name(branch): self.of(branch) for branch in branches}
        only = by_name[_branch_name(_single_non_null(branches))] if self._needs_look(branches) else None

        def check(value: Any) -> None:
            if isinstance(value, tuple):
                inner = by_name.get(value[0]) if len(value) == _BRANCH else None
                if inner is not None:
                    inner(value[1])
            elif only is not None and value is not None:
                only(value)

        return check

    def _needs_look(self, branches: list[Any]) -> bool:
        """Return whether wrong values of a union may pass fastavro's own validation."""
        branch = _single_non_null(branches)
        if not self._has_unseen or branch is None:
            return False
        kind = branch if isinstance(branch, str) else branch["type"]
        return kind not in PRIMITIVE_BYTES or _has_unseen(branch)

    def _repeated(self, node: Any, kind: str) -> Check | None:
        items = node["items"] if kind == "array" else node["values"]
        # Text passes as a float only in records, so the items of floats need no check.
        inner = None if items in ("float", "double") else self.of(items)

        def check_array(value: Any) -> None:
            if value.__class__ is not list:
                _refuse_no_array(value)
            if inner is not None:
                for item in value:
                    inner(item)

        def check_map(value: Any) -> None:
            if value.__class__ is not dict and not isinstance(value, Mapping):
                raise LossyValueError
            if inner is not None:
                for item in value.values():
                    inner(item)

        return check_array if kind == "array" else check_map

    def _record(self, name: str) -> Check | None:
        """Return a record's check, made once; a recursive record finds it by name."""
        if name in self._made:
            return self._made[name]
        numbers: list[tuple[str, str, int, int]] = []
        floats: list[tuple[str, str]] = []
        unions: list[tuple[str, Check]] = []
        others: list[tuple[str, Check]] = []
        every: list[tuple[str, Check]] = []

        def check(value: Any) -> None:
            if value.__class__ is not dict:
                if not isinstance(value, Mapping):
                    raise LossyValueError
                value = dict(value)
            try:
                # Most fields are numbers, so there is no call for each of them.
                for field, kind, low, high in numbers:
                    found = value[field]
                    if found.__class__ is not int or found < low or found > high:
                        _ask(found, kind)
                for field, kind in floats:
                    if value[field].__class__ is not float:
                        _ask(value[field], kind)
                for field, inner in unions:
                    if isinstance(value.get(field), tuple):
                        inner(value[field])
                for field, inner in others:
                    inner(value[field])
            except KeyError:  # a missing field, which is right if it has a default
                for field, inner in every:
                    if field in value:
                        inner(value[field])

        self._made[name] = check
        fields = self._named[name].get("fields", ())
        for field in fields:
            kind, inner = field["type"], self.of(field["type"])
            if inner is None:
                continue
            every.append((field["name"], inner))
            if isinstance(kind, str) and kind in _RANGES:
                numbers.append((field["name"], kind, *_RANGES[kind]))
            elif kind in ("float", "double"):
                floats.append((field["name"], kind))
            elif isinstance(kind, list) and not self._needs_look(kind):
                unions.append((field["name"], inner))
            else:
                others.append((field["name"], inner))
        if not every and (fields or self._named[name]["type"] not in {"record", "error"}):
            self._made[name] = None  # fastavro accepts any object for a record without fields
        return self._made[name]


def _has_unseen(node: Any) -> bool:
    """Return whether a type that is defined here has a logical type that fastavro does not validate."""
    if isinstance(node, str):
        return False
    if isinstance(node, list):
        return any(map(_has_unseen, node))
    if node["type"] in {"array", "map"}:
        return _has_unseen(node["items" if node["type"] == "array" else "values"])
    fields = node["fields"] if node["type"] in {"record", "error"} else ()
    return any(_has_unseen(field["type"]) for field in fields) or (
        _is_logical(node) and _logical_name(node) in _UNSEEN
    )


def _single_non_null(branches: list[Any]) -> Any:
    """Return the only branch of a union that is not null, or None if there are several."""
    others = [branch for branch in branches if branch != "null"]
    return others[0] if len(others) == 1 else None


def _branch_name(branch: Any) -> str:
    """Return the name by which a tuple names a union's branch."""
    return branch if isinstance(branch, str) else str(branch.get("name", branch["type"]))


def _is_logical(node: Any) -> bool:
    return not isinstance(node, str) and "logicalType" in node


def _logical_name(node: Any) -> str:
    """Name a logical type as fastavro's tables do."""
    return f"{node['type']}-{node['logicalType']}"


def _logical(node: Any, kind: str) -> Check | None:
    """Return the check of a logical type, or None if fastavro converts all its values correctly."""
    name, plainly = _logical_name(node), _SCALARS.get(kind)
    unseen, own = _UNSEEN.get(name), _OWN_CLASS.get(name)
    if unseen is None and plainly is None:
        return None

    def check(value: Any) -> None:
        if value.__class__ is own:
            return
        if unseen is not None:
            unseen(value)
        if plainly is not None:
            prepare = LOGICAL_WRITERS.get(name)
            plainly(value if prepare is None else prepare(value, node))

    return check


def _number(kind: str) -> Check:
    low, high = _RANGES[kind]

    def check(value: Any) -> None:
        if value.__class__ is not int or value < low or value > high:
            _ask(value, kind)

    return check


def _floating(kind: str) -> Check:
    def check(value: Any) -> None:
        if value.__class__ is not float:
            _ask(value, kind)

    return check


def _null(value: Any) -> None:
    if value is not None:
        raise LossyValueError


def _boolean(value: Any) -> None:
    if value is not True and value is not False:
        _ask(value, "boolean")


def _date(value: Any) -> None:
    if isinstance(value, dt.datetime) and value.time() != _MIDNIGHT:
        raise LossyValueError("a datetime has a time of day, which a date would lose")


def _uuid(value: Any) -> None:
    if isinstance(value, str):
        try:
            uuid.UUID(value)
        except ValueError:
            raise LossyValueError("a text for a UUID is not a UUID, so no reader would accept it") from None


def _refuse_no_array(value: Any) -> None:
    """Refuse text and mappings, which fastavro would write as an array, and iterators, which end."""
    if isinstance(value, str | Mapping) or not hasattr(value, "__len__"):
        raise LossyValueError


def _ask(value: Any, kind: str) -> None:
    """Let fastavro's own validation decide about values of other classes, such as numpy's integers."""
    if not validate(value, kind, raise_errors=False):
        raise LossyValueError


_SCALARS: Final[dict[str, Check]] = {
    "boolean": _boolean,
    "double": _floating("double"),
    "float": _floating("float"),
    "int": _number("int"),
    "long": _number("long"),
    "null": _null,
}
_UNSEEN: Final[dict[str, Check]] = {"int-date": _date, "string-uuid": _uuid}
"""The logical types for which fastavro accepts values that are lost or cannot be read, in unions too."""
_OWN_CLASS: Final[dict[str, type]] = {
    "int-date": dt.date,
    "int-time-millis": dt.time,
    "long-local-timestamp-micros": dt.datetime,
    "long-local-timestamp-millis": dt.datetime,
    "long-time-micros": dt.time,
    "long-timestamp-micros": dt.datetime,
    "long-timestamp-millis": dt.datetime,
    "string-uuid": uuid.UUID,
}
"""Python's classes for logical types; their values need no check."""
