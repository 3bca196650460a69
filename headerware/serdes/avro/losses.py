"""Find what fastavro would write without a word, and as something else.

It cuts 5.5 to 5 where the schema says int, writes nothing for a value where the schema says null, takes
any object for a boolean and a record's text "1.5" for a double, and writes an int of 40 bits that no other
reader takes. What stands in a union it checks itself, to choose the branch; so the check here goes only where
it does not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from fastavro.validation import validate

from headerware.serdes.avro.limits import PRIMITIVE_BYTES

Check = Callable[[Any], None]
_RANGES: Final = {"int": (-(1 << 31), (1 << 31) - 1), "long": (-(1 << 63), (1 << 63) - 1)}


class LossError(ValueError):
    """A value that would be written as another."""


def loss_check(tree: Any, named: Mapping[str, Any]) -> Check | None:
    """Make the check of a schema's values, or None where nothing can be lost.

    Args:
        tree: the schema with full names.
        named: its named types.
    """
    return _Checks(named).of(tree)


class _Checks:
    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named: Final = named
        self._made: dict[str, Check | None] = {}

    def of(self, node: Any) -> Check | None:
        if isinstance(node, list):
            return None
        kind = node if isinstance(node, str) else node["type"]
        if kind in PRIMITIVE_BYTES:
            return _SCALARS.get(kind) if isinstance(node, str) or "logicalType" not in node else None
        if kind in {"array", "map"}:
            return self._repeated(node, kind)
        name = node if isinstance(node, str) else node.get("name")
        return self._record(name) if isinstance(name, str) and name in self._named else None

    def _repeated(self, node: Any, kind: str) -> Check | None:
        items = node["items"] if kind == "array" else node["values"]
        inner = None if items in ("float", "double") else self.of(items)  # only in records is text a number
        if inner is None:
            return None

        def check_array(value: Any) -> None:
            if value.__class__ is list:  # what else there may be, fastavro refuses or takes as it is
                for item in value:
                    inner(item)

        def check_map(value: Any) -> None:
            if value.__class__ is dict:
                for item in value.values():
                    inner(item)

        return check_array if kind == "array" else check_map

    def _record(self, name: str) -> Check | None:
        """Make a record's check once; one that holds itself finds it by name."""
        if name in self._made:
            return self._made[name]
        numbers: list[tuple[str, str, int, int]] = []
        floats: list[tuple[str, str]] = []
        others: list[tuple[str, Check]] = []
        every: list[tuple[str, Check]] = []

        def check(value: Any) -> None:
            if value.__class__ is not dict:
                return
            try:
                for (
                    field,
                    kind,
                    low,
                    high,
                ) in numbers:  # most of what there is, and so without a call for each
                    found = value[field]
                    if found.__class__ is not int or found < low or found > high:
                        _ask(found, kind)
                for field, kind in floats:
                    if value[field].__class__ is not float:
                        _ask(value[field], kind)
                for field, inner in others:
                    inner(value[field])
            except KeyError:  # a field that has a default, if it is right
                for field, inner in every:
                    if field in value:
                        inner(value[field])

        self._made[name] = check
        for field in self._named[name].get("fields", ()):
            kind, inner = field["type"], self.of(field["type"])
            if inner is None:
                continue
            every.append((field["name"], inner))
            if isinstance(kind, str) and kind in _RANGES:
                numbers.append((field["name"], kind, *_RANGES[kind]))
            elif kind in ("float", "double"):
                floats.append((field["name"], kind))
            else:
                others.append((field["name"], inner))
        if not every:
            self._made[name] = None
        return self._made[name]


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
        raise LossError


def _boolean(value: Any) -> None:
    if value is not True and value is not False:
        _ask(value, "boolean")


def _ask(value: Any, kind: str) -> None:
    """Let fastavro's own validation decide on what is not plainly right: numpy's integers, enumerations."""
    if not validate(value, kind, raise_errors=False):
        raise LossError


_SCALARS: Final[dict[str, Check]] = {
    "boolean": _boolean,
    "double": _floating("double"),
    "float": _floating("float"),
    "int": _number("int"),
    "long": _number("long"),
    "null": _null,
}
