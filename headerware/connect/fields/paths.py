r"""Names of fields: paths to existing ones, and marked names of new ones.

In the strict mode ``a.b`` is the field b in a, and ``a\.b`` the field whose name is "a.b". In ``kafka_4_3``
the complete text is one name, unless ``field.syntax.version=V2`` is set: then dots lead into structs, and
names with dots are in backticks (KIP-821). A new field may have a mark: ``id!`` is required, ``id?`` is
optional (KIP-66).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headerware.connect.config import refuse_quotes
from headerware.connect.data.schema import Field, Schema, Type
from headerware.connect.data.struct import Struct
from headerware.connect.errors import ArgumentError, ConnectConfigError, ConnectDataError
from headerware.connect.fields.lists import split_escaped, unescaped
from headerware.connect.fields.structs import altered, require_map, require_struct
from headerware.connect.modes import STRICT

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping

    from headerware.connect.modes import Mode

ABSENT: Final = object()
"""The result for a dict without the field, because None would be a value."""
_PURPOSE: Final = "the nested field"


class FieldPath:
    """An immutable path to a field: the names of the structs on the way, then the field's own name."""

    __slots__ = ("steps", "text")

    def __init__(self, steps: tuple[str, ...], text: str) -> None:
        self.steps: Final[tuple[str, ...]] = steps
        self.text: Final[str] = text

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FieldPath):
            return NotImplemented
        return self.steps == other.steps

    def __hash__(self) -> int:
        return hash(self.steps)

    def __repr__(self) -> str:
        return f"FieldPath({self.text!r})"

    def find(self, schema: Schema) -> Field | None:
        """Return the field of a schema, or None if there is none."""
        self._check_steps()
        field = None
        for step in self.steps:
            field = schema.field(step)
            if field is None:
                return None
            schema = field.schema
        return field

    def field(self, schema: Schema) -> Field:
        """Return the field of a schema; the error for a missing field lists the existing fields."""
        return self.fields_along(schema)[-1]

    def fields_along(self, schema: Schema) -> list[Field]:
        """Return the fields of all steps; the last one is the field of the path."""
        root, way = schema, []
        for step in self.steps:
            if schema.type is not Type.STRUCT:
                raise ConnectDataError(
                    f"the path {self.text!r} needs a struct to hold {step!r}, found {schema.type.value}"
                )
            field = schema.by_name.get(step)
            if field is None:
                raise missing_field(schema, step, self.text, self._hint(root.by_name))
            way.append(field)
            schema = field.schema
        return way

    def schema(self, schema: Schema) -> Schema:
        """Return the schema of the field, made optional if a struct on the path may be null."""
        *parents, field = self.fields_along(schema)
        if field.schema.optional or not any(_may_lack(parent.schema) for parent in parents):
            return field.schema
        return altered(field.schema, optional=True)

    def getter(self, schema: Schema, *, with_default: bool = True) -> Callable[[Struct], Any]:
        """Return a function that reads a field of structs of a schema; null if a struct on the path is null.

        ``with_default`` replaces a null field by its default. A null struct on the path is always replaced.
        """
        way = self.fields_along(schema)
        last = way[-1].index
        default = way[-1].schema.default if with_default else None

        def own(struct: Struct) -> Any:
            value = struct.values[last]
            return default if value is None else value

        if len(way) == 1:
            return own
        parents = [(field.index, field.schema.default) for field in way[:-1]]

        def nested(struct: Struct | None) -> Any:
            for index, parent_default in parents:
                found = struct.values[index]  # type: ignore[union-attr]  # None leaves the loop
                struct = parent_default if found is None else found
                if struct is None:
                    return None
            return own(struct)  # type: ignore[arg-type]  # nor is it None here

        return nested

    def from_struct(self, struct: Struct, *, with_default: bool = True) -> Any:
        """Return the value of a struct whose schema is not known beforehand; null if there is none."""
        self._check_steps()
        for step in self.steps[:-1]:
            field = struct.schema.by_name.get(step)
            found = None if field is None else struct.get(field)
            if found is None:
                return None
            struct = require_struct(found, _PURPOSE)
        last = self.steps[-1]
        if last not in struct:
            return None
        return struct[last] if with_default else struct.get_without_default(last)

    def from_dict(self, value: Mapping[str, Any], absent: Any = None) -> Any:
        """Return the value of a dict, or of dicts in it; null if a dict on the path is null."""
        self._check_steps()
        for step in self.steps[:-1]:
            found = value.get(step, absent)
            if found is None or found is absent:
                return found
            value = require_map(found, _PURPOSE)
        return value.get(self.steps[-1], absent)

    def _check_steps(self) -> None:
        if not self.steps:
            raise ArgumentError("the path to a field is empty")

    def refuse_dotted(self, value: Mapping[str, Any]) -> None:
        """Raise ConnectDataError if a dict lacks the field, but has the complete path as a name.

        A null field counts as missing. The error says how to write a name with dots.
        """
        if len(self.steps) == 1 or ".".join(self.steps) not in value:
            return
        found = self.from_dict(value, ABSENT)
        if found is ABSENT or found is None:
            raise ConnectDataError(f"there is no field {self.text!r}{self._hint(value)}")

    def _hint(self, names: Container[str]) -> str:
        dotted = ".".join(self.steps)
        if len(self.steps) == 1 or dotted not in names:
            return ""
        escaped = dotted.replace("\\", "\\\\").replace(".", "\\.")
        return f"; for the field named {dotted!r}, write {escaped!r}"


def _may_lack(schema: Schema) -> bool:
    return schema.optional and schema.default is None


def missing_field(schema: Schema, name: str, path: str, hint: str = "") -> ConnectDataError:
    """Return the error for a field that a schema does not have; ``path`` is the complete configured path."""
    on_way = f" (in {path!r})" if path != name else ""
    known = ", ".join(schema.by_name) or "no fields"
    return ConnectDataError(f"{schema} has no field {name!r}{on_way}; it has: {known}{hint}")


def parse_path(text: str, mode: Mode, path: str) -> FieldPath:
    """Read the path to a field; dots and escapes have a meaning in the strict mode only."""
    if mode != STRICT:
        return FieldPath((text,), text)
    written = split_escaped(text, ".")
    refuse_quotes([text, *written], path)
    steps = tuple(unescaped(step, path) for step in written)
    if "" in steps:
        raise ConnectConfigError(f"expected the path to a field, found an empty name in {text!r}", path=path)
    return FieldPath(steps, text)


def parse_versioned_path(text: str, version: str, path: str) -> FieldPath:
    """Read the path to a field as ``field.syntax.version`` says (KIP-821).

    ``V1`` is one name, ``V2`` a path with backticks around names that hold dots.
    """
    if version.upper() == "V1":
        return FieldPath((text,), text)
    steps, at = [], 0
    while at < len(text):
        step, at = _quoted(text, at, path) if text[at] == "`" else _bare(text, at)
        steps.append(step)
    if text.endswith("."):
        steps.append("")
    return FieldPath(tuple(steps), text)


def _bare(text: str, start: int) -> tuple[str, int]:
    """Return the name up to the next dot, and the index of the next name."""
    dot = text.find(".", start)
    end = len(text) if dot < 0 else dot
    return text[start:end], end + 1


def _quoted(text: str, opening: int, path: str) -> tuple[str, int]:
    """Return the name up to the closing backtick, and the index of the next name.

    The closing backtick is the next one before a dot or the end. A backslash before such a backtick makes it
    part of the name; any other backtick is part of the name anyway.
    """
    name, start, at = "", opening + 1, opening
    while (at := text.find("`", at + 1)) >= 0:
        ends = at == len(text) - 1
        if not ends and text[at + 1] != ".":
            continue
        if text[at - 1] != "\\":
            return name + text[start:at], at + 2
        if ends:
            break
        name, start = name + text[start : at - 1] + "`", at + 1
    raise ConnectConfigError(
        f"the backtick at {opening} of {text!r} is not closed; a backslash before a backtick makes it part "
        "of the name",
        path=path,
    )


_MARKS: Final = {"?": True, "!": False}


class NewField(NamedTuple):
    """The name of a field to create, and whether it may be null; ``optional`` is None without a mark."""

    name: str
    optional: bool | None

    def marked(self, schema: Schema) -> Schema:
        """Return a schema that is as optional as the mark says."""
        if self.optional is None or self.optional == schema.optional:
            return schema
        return altered(schema, optional=self.optional)


def new_field(text: str, mode: Mode, path: str) -> NewField:
    r"""Read the name of a field to create, with or without a mark after the name.

    In the strict mode ``\!``, ``\?`` and ``\.`` are characters of the name. The strict mode refuses a plain
    dot, because in a path it leads into a struct.
    """
    if mode != STRICT:
        return NewField(text[:-1], _MARKS[text[-1]]) if text.endswith(("?", "!")) else NewField(text, None)
    name, optional = split_mark(text, path)
    if len(split_escaped(name, ".")) > 1:
        raise ConnectConfigError(
            f"expected the name of one field, found {name!r}: write \\. for a dot in a name; fields cannot "
            "be created in nested structs",
            path=path,
        )
    name = unescaped(name, path)
    if not name:
        raise ConnectConfigError("expected the name of a field, found none", path=path)
    return NewField(name, optional)


def split_mark(text: str, path: str) -> tuple[str, bool | None]:
    """Return a name or path, still with escapes, and whether its mark makes it optional; None if unmarked."""
    if len(text) > 1 and text.startswith(("!", "?")):
        mark, rest = text[0], text[1:]
        raise ConnectConfigError(
            f"{text!r} begins with a mark, as in the draft of KIP-66; write the mark after the name: "
            f"'{rest}{mark}'. If the name begins with this character, write '\\{text}'",
            path=path,
        )
    name = text[:-1]
    escaped = (len(name) - len(name.rstrip("\\"))) % 2 == 1
    return (name, _MARKS[text[-1]]) if text.endswith(("?", "!")) and not escaped else (text, None)
