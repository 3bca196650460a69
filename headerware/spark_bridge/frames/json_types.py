"""JSON Schemas as Spark types, for the objects that JSON serdes return (draft 7 and 2020-12).

    JSON Schema                                      Spark
    string, with any format                          string
    boolean, null                                    boolean, void
    integer, number                                  bigint, double
    object with properties                           struct, in their order; others are left out
    object with additionalProperties alone           map of string and their type
    array with items                                 array
    enum, const                                      the type of their values
    a type list with null, anyOf/oneOf with null     the other type, nullable
    anyOf/oneOf of one Spark type                    that type
    allOf                                            the type of all members together
    $ref within the document                         its target, with the keywords next to it

A property that is not in ``required`` may be missing, and so null. JSON has neither dates nor bytes: their
text stays text. A whole number in a column of doubles becomes a double: 5 comes back as 5.0. Keywords that
only restrict values (minimum, pattern, if, not, ...) are ignored, and so are anyOf and oneOf next to a type.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import unquote

import msgspec
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DoubleType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
)

from headerware.core.errors import ConfigError
from headerware.core.plain_files import why_unreadable
from headerware.spark_bridge.frames.column_limits import MAX_COLUMNS, MAX_DEPTH
from headerware.spark_bridge.frames.unions import named_as_union

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


_NUMBERS: Final = {"integer", "number"}
_NAMES: Final[dict[type, str]] = {
    type(None): "null",
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    dict: "object",
    list: "array",
}
_KNOWN: Final = frozenset(_NAMES.values())
_IMPLIED: Final = {"properties": "object", "additionalProperties": "object", "items": "array"}
_MAX_SCHEMA_BYTES: Final = 1 << 20
_LIST: Final = (list, "a list")
_KEYWORDS: Final[dict[str, tuple[type, str]]] = {
    "properties": (dict, "an object"),
    **dict.fromkeys(("allOf", "anyOf", "enum", "oneOf", "required"), _LIST),
}


class _Type(NamedTuple):
    """A Spark type, and whether it is nullable."""

    kind: DataType
    nullable: bool


class _Schema(NamedTuple):
    """A schema inside of a document, at a JSON pointer in a URI's fragment (RFC 6901).

    ``references`` led to it from the root, to detect a schema that contains itself.
    """

    node: Any
    pointer: str
    references: frozenset[str] = frozenset({"#"})

    def below(self, *steps: str | int) -> _Schema:
        """Return a schema inside this one."""
        found = self
        for step in steps:
            escaped = str(step).replace("~", "~0").replace("/", "~1")
            found = _Schema(found.node[step], f"{found.pointer}/{escaped}", found.references)
        return found


def json_type(schema: str | dict[str, Any] | Path) -> DataType:
    """Return the Spark type of the objects of a JSON Schema (draft 7, 2020-12).

    Args:
        schema: JSON text that begins with ``{``; the path of a file with it, as a Path or as any other text;
            or the decoded JSON.

    Raises:
        ConfigError: there is no such file, no schema in it, or something in it has no Spark type; the
            message says where, as a JSON pointer (RFC 6901).
    """
    root = _load(schema)
    return _Types(root.node).of([root], 0).kind


class _Types:
    """The types of one document."""

    def __init__(self, root: Any) -> None:
        self._root: Final = root
        self._columns = 0

    def of(self, parts: list[_Schema], depth: int) -> _Type:
        """Return the type of a value for which all parts hold."""
        pointer = parts[0].pointer
        self._columns += 1
        if self._columns > MAX_COLUMNS or depth > MAX_DEPTH:
            problem = (
                f"a schema that nests more than {MAX_DEPTH} deep, or has more than {MAX_COLUMNS} columns,"
            )
            raise _refused(pointer, problem)
        parts = _conjuncts(self._root, parts)
        names = _names(parts)
        if names is None:
            return self._alternatives(parts, pointer, depth)
        others = names - {"null"}
        if not others and names:
            return _Type(NullType(), nullable=True)
        name = "number" if others == _NUMBERS else others.pop() if len(others) == 1 else ""
        made = _BUILDERS.get(name)
        if made is None:
            raise _refused(pointer, f"a value that may be {' or '.join(sorted(others)) or 'nothing at all'}")
        return _Type(made(self, parts, depth), "null" in names)

    def _alternatives(self, parts: list[_Schema], pointer: str, depth: int) -> _Type:
        """Return the one type of anyOf or oneOf besides null."""
        branches = [self.of([branch], depth + 1) for branch in _below(parts, ("anyOf", "oneOf"))]
        kinds: list[DataType] = []
        for kind, _ in branches:
            if not isinstance(kind, NullType) and kind not in kinds:
                kinds.append(kind)
        nullable = any(branch.nullable for branch in branches)
        if not kinds and branches:
            return _Type(NullType(), nullable=True)
        if len(kinds) == 2 and DoubleType() in kinds and LongType() in kinds:
            kinds = [DoubleType()]
        if len(kinds) != 1:
            raise _refused(pointer, "a value of several types" if kinds else "a schema that names no type")
        return _Type(kinds[0], nullable)

    def object(self, parts: list[_Schema], depth: int) -> DataType:
        """Return the type of an object: a struct if its properties are named, else a map."""
        properties: dict[str, list[_Schema]] = {}
        for part in parts:
            for name in part.node.get("properties", {}):
                properties.setdefault(name, []).append(part.below("properties", name))
        if not properties:
            return self._map(parts, depth)
        if named_as_union(list(properties)):
            raise _refused(parts[0].pointer, "an object whose properties have the names of union members")
        required = {name for part in parts for name in part.node.get("required", ())}
        fields = []
        for name, schemas in properties.items():
            kind, nullable = self.of(schemas, depth + 1)
            fields.append(StructField(name, kind, nullable or name not in required))
        return StructType(fields)

    def _map(self, parts: list[_Schema], depth: int) -> DataType:
        named = "additionalProperties"
        inner = [part.below(named) for part in parts if isinstance(part.node.get(named), dict)]
        if not inner:
            raise _refused(
                parts[0].pointer, "an object with neither properties nor a schema for additional ones"
            )
        return MapType(StringType(), *self.of(inner, depth + 1))

    def array(self, parts: list[_Schema], depth: int) -> DataType:
        """Return the type of an array."""
        items = [part.below("items") for part in parts if isinstance(part.node.get("items"), dict)]
        if not items or any("prefixItems" in part.node for part in parts):
            raise _refused(parts[0].pointer, "an array without one schema for all its items")
        return ArrayType(*self.of(items, depth + 1))


def _names(parts: list[_Schema]) -> set[str] | None:
    """Return JSON's names of the types that a value may have, or None if the parts do not tell."""
    said = [names for part in parts for names in _stated_types(part)]
    if said:
        return set.intersection(*said)
    for keyword, name in _IMPLIED.items():
        if any(keyword in part.node for part in parts):
            return {name}
    return None


def _stated_types(part: _Schema) -> Iterator[set[str]]:
    node = part.node
    if "type" in node:
        names = node["type"] if isinstance(node["type"], list) else [node["type"]]
        if not all(isinstance(name, str) and name in _KNOWN for name in names):
            raise _refused(f"{part.pointer}/type", "a name that is no type of JSON Schema")
        yield {*names, *(_NUMBERS if "number" in names else ())}
    for values in [[node["const"]] if "const" in node else None, node.get("enum")]:
        if values is not None:
            yield {_NAMES[type(value)] for value in values}


def _load(schema: str | dict[str, Any] | Path) -> _Schema:
    """Return a JSON Schema as plain values."""
    if isinstance(schema, str) and not schema.lstrip().startswith("{"):
        schema = Path(schema)
    try:
        text = _read_file(schema) if isinstance(schema, Path) else schema
        if isinstance(text, str | bytes) and len(text) > _MAX_SCHEMA_BYTES:
            raise _refused("#", f"more than {_MAX_SCHEMA_BYTES} bytes, the limit")
        # Python values may hold tuples, or themselves; JSON does not.
        return _Schema(
            msgspec.json.decode(text if isinstance(text, str | bytes) else msgspec.json.encode(text)), "#"
        )
    except (msgspec.DecodeError, UnicodeError, TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"is not JSON ({type(error).__name__}: {error})", path="schema") from None


def _conjuncts(root: Any, parts: list[_Schema]) -> list[_Schema]:
    """Return all schemas that must hold: the parts, what they refer to, and the members of their allOf."""
    found: dict[str, _Schema] = {}
    waiting = parts[::-1]
    while waiting:
        part = waiting.pop()
        if part.node is True or part.pointer in found:
            continue
        if not isinstance(part.node, dict):
            raise _refused(part.pointer, "a schema that is false, or no object")
        _check_keywords(part)
        found[part.pointer] = part
        members = part.node.get("allOf", [])
        waiting += reversed([part.below("allOf", index) for index in range(len(members))])
        if "$ref" in part.node:
            waiting.append(_referred(root, part))
    return list(found.values())


def _refused(pointer: str, problem: str) -> ConfigError:
    """Return the error for a schema without a Spark type."""
    return ConfigError(f"{problem} has no Spark type", path=f"schema: {pointer}")


def _check_keywords(part: _Schema) -> None:
    for keyword, (kind, words) in _KEYWORDS.items():
        if not isinstance(part.node.get(keyword, kind()), kind):
            raise _refused(f"{part.pointer}/{keyword}", f"a keyword whose value is not {words}")
    if not all(isinstance(name, str) for name in part.node.get("required", [])):
        raise _refused(f"{part.pointer}/required", "a required property whose name is no text")


def _read_file(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_MAX_SCHEMA_BYTES + 1)
    except OSError as error:
        raise ConfigError(
            f"cannot read {path}: {why_unreadable(path, error)}; "
            "expected a file with a schema, or the schema as JSON",
            path="schema",
        ) from error


def _referred(root: Any, part: _Schema) -> _Schema:
    reference = part.node["$ref"]
    pointer = unquote(reference) if isinstance(reference, str) else ""
    if pointer != "#" and not pointer.startswith("#/"):
        raise _refused(part.pointer, "a reference that is no JSON pointer within the document (#/...)")
    if pointer in part.references:
        raise _refused(part.pointer, "a schema that contains itself")
    node = root
    for step in pointer.split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        try:
            node = node[int(name)] if isinstance(node, list) else node[name]
        except (KeyError, IndexError, ValueError, TypeError):
            raise _refused(part.pointer, "a reference to a missing part of the document") from None
    return _Schema(node, pointer, part.references | {pointer})


def _below(parts: list[_Schema], keywords: tuple[str, ...]) -> Iterator[_Schema]:
    for part in parts:
        for keyword in keywords:
            for index in range(len(part.node.get(keyword, ()))):
                yield part.below(keyword, index)


_BUILDERS: Final[dict[str, Callable[[_Types, list[_Schema], int], DataType]]] = {
    "boolean": lambda *_: BooleanType(),
    "integer": lambda *_: LongType(),
    "number": lambda *_: DoubleType(),
    "string": lambda *_: StringType(),
    "object": _Types.object,
    "array": _Types.array,
}
