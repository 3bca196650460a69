"""Change fields of structs and dicts, nested fields included, and keep all other fields.

The paths of the fields are combined into a tree once. For each schema, the tree is compiled to a function
over indices, and to a new schema if the schema changes. Only the dicts on the paths are copied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar
from unicodedata import normalize

from headerware.connect.data.schema import Field, Schema, SchemaBuilder
from headerware.connect.data.struct import Struct
from headerware.connect.errors import ConnectConfigError, ConnectDataError
from headerware.connect.fields.paths import FieldPath
from headerware.connect.fields.structs import (
    Copy,
    altered,
    copier,
    may_be_null,
    null_in_required,
)
from headerware.connect.modes import KAFKA_4_3, STRICT

if TYPE_CHECKING:
    from headerware.connect.modes import Mode

E = TypeVar("E")
"""The edit of a field."""


class Change(NamedTuple):
    """A field's new name and schema; ``apply`` returns its new value, also for null; None keeps the value."""

    name: str
    schema: Schema
    apply: Callable[[Any], Any] | None = None


class Node(Generic[E]):
    """One step of several paths: the edit of this field, or the edits of fields within it."""

    __slots__ = ("children", "edit", "nested", "text")

    def __init__(self, text: str) -> None:
        self.text: str = text
        self.edit: E | None = None
        self.children: dict[str, Node[E]] = {}
        self.nested: dict[str, FieldPath] = {}
        """The remaining paths that have several steps, by their steps joined with dots."""


class Edits(Generic[E]):
    """The edits of fields, as a tree of their paths; a field and a field within it exclude each other."""

    def __init__(self, edits: Iterable[tuple[FieldPath, E]], key: str) -> None:
        given = tuple(edits)
        self.paths: tuple[FieldPath, ...] = tuple(path for path, _ in given)
        self.root: Node[E] = Node("")
        for path, edit in given:
            self._add(path, edit, key)

    def _add(self, path: FieldPath, edit: E, key: str) -> None:
        node = self.root
        for at, step in enumerate(path.steps):
            if node.edit is not None:
                raise ConnectConfigError(f"{node.text!r} and {path.text!r} overlap", path=key)
            if at < len(path.steps) - 1:
                node.nested[".".join(path.steps[at:])] = FieldPath(path.steps[at:], path.text)
            node = node.children.setdefault(step, Node(path.text))
        if node.edit is not None or node.children:
            raise ConnectConfigError(f"{node.text!r} and {path.text!r} overlap", path=key)
        node.edit = edit

    def present_in(self, schema: Schema) -> Edits[E]:
        """Return the edits of the fields that a schema has."""
        kept = []
        for path in self.paths:
            if path.find(schema) is None:
                continue
            node = self.root
            for step in path.steps:
                node = node.children[step]
            assert node.edit is not None  # noqa: S101 - every path ends at an edit
            kept.append((path, node.edit))
        return Edits(kept, "")


class Rewrite(NamedTuple):
    """The compiled edits of one schema's structs; ``schema`` is the same object if it does not change."""

    schema: Schema
    apply: Callable[[Struct], Struct]


def rewrite(
    schema: Schema,
    edits: Edits[E],
    change: Callable[[Field, E], Change | None],
    *,
    mode: Mode,
    with_default: bool = True,
) -> Rewrite:
    """Compile edits for the structs of a schema; a field for which ``change`` returns None is dropped.

    The strict mode refuses a path to a missing field, ``kafka_4_3`` ignores it; see also :func:`assembled`.
    """
    if mode == STRICT:
        for path in edits.paths:
            path.fields_along(schema)

    def level(schema: Schema, node: Node[E]) -> Rewrite:
        def changed(field: Field) -> Change | None:
            child = node.children.get(field.name)
            if child is None:
                return Change(field.name, field.schema)
            if child.edit is not None:
                return change(field, child.edit)
            nested = level(field.schema, child)
            return Change(field.name, nested.schema, unless_null(nested.apply))

        changes = [(field, changed(field)) for field in schema.fields]
        return assembled(schema, changes, mode=mode, with_default=with_default)

    return level(schema, edits.root)


def assembled(
    schema: Schema,
    changes: Iterable[tuple[Field, Change | None]],
    *,
    mode: Mode,
    with_default: bool = True,
) -> Rewrite:
    """Compile the changes of a struct's fields; a field whose change is None is dropped.

    If the schema changes, the strict mode keeps its default and whether it is optional. ``kafka_4_3`` loses
    both, as Kafka's transforms do.
    """
    kept = [(field, made) for field, made in changes if made is not None]
    updated = _updated(schema, kept, mode)
    values = _values(kept, mode, with_default=with_default)
    if mode == STRICT and updated is not schema and schema.default is not None:
        updated = altered(updated, default=Struct.trusted(updated, values(schema.default.values)))
    return Rewrite(updated, lambda struct: Struct.trusted(updated, values(struct.values)))


def _updated(schema: Schema, kept: Sequence[tuple[Field, Change]], mode: Mode) -> Schema:
    """Return the schema of the fields that are kept: the same object if nothing changes."""
    if len(kept) == len(schema.fields) and all(
        made.schema is field.schema and made.name == field.name for field, made in kept
    ):
        return schema
    builder = SchemaBuilder.like(schema)
    for _, made in kept:
        builder.field(made.name, made.schema)
    return altered(builder.build(), optional=mode == STRICT and schema.optional)


def _values(kept: Sequence[tuple[Field, Change]], mode: Mode, *, with_default: bool) -> Copy:
    """Return a function from old values to new ones."""
    work = [
        (at, made.apply, not may_be_null(made.schema, mode), made.name)
        for at, (_, made) in enumerate(kept)
        if made.apply is not None
    ]
    copy = copier(
        [field for field, _ in kept],
        [made.schema for _, made in kept],
        mode=mode,
        with_default=with_default,
        unchecked={at for at, *_ in work},
    )

    def values(old: list[Any]) -> list[Any]:
        new = copy(old)
        for at, function, required, name in work:
            value = new[at] = function(new[at])
            if value is None and required:
                raise null_in_required(name)
        return new

    return values if work else copy


def unless_null(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a function that leaves null as it is."""
    return lambda value: None if value is None else function(value)


def rewrite_dict(
    value: Mapping[str, Any], node: Node[E], change: Callable[[Any, E], Any], path: str = ""
) -> dict[str, Any]:
    """Return a copy of a dict with some of its fields changed; missing fields are not added."""
    made = dict(value)
    for dotted, nested in node.nested.items():
        if dotted in made and dotted not in node.children:
            nested.refuse_dotted(made)
    for name, child in node.children.items():
        item = made.get(name, made)
        if item is made:
            check_keys(made, name)
        elif child.edit is not None:
            made[name] = change(item, child.edit)
        elif item is not None:
            if not isinstance(item, dict):
                raise ConnectDataError(
                    f"the path {child.text!r} needs a dict at {path + name!r}, found {type(item).__name__}"
                )
            made[name] = rewrite_dict(item, child, change, f"{path}{name}.")
    return made


def check_absent(value: Mapping[Any, Any], path: FieldPath) -> None:
    """Raise ConnectDataError if a dict lacks a field, but has a name that may have been meant for it.

    See :func:`check_keys` and :meth:`FieldPath.refuse_dotted`.
    """
    path.refuse_dotted(value)
    for step in path.steps:
        if step not in value:
            check_keys(value, step)
            return
        value = value[step]
        if not isinstance(value, dict):
            return


def check_keys(value: Mapping[Any, Any], name: str) -> None:
    """Raise ConnectDataError if a dict lacks a name, but has a similar one that may have been meant.

    Similar names are names that are not text, and the same text in other characters of Unicode.
    """
    for key in value:
        if not isinstance(key, str):
            raise ConnectDataError(
                f"there is no field {name!r}; another name is not text, but of class {type(key).__name__}"
            )
        if not (key.isascii() and name.isascii()) and normalize("NFC", key) == normalize("NFC", name):
            raise ConnectDataError(
                f"there is no field {name!r}; another name is the same text in other Unicode characters"
            )


def kafka_rewrite(
    schema: Schema,
    change: Callable[[Field], Change],
    *,
    with_default: bool,
    of_default: Callable[[Any], Any] | None = None,
) -> Rewrite:
    """Compile the changes of a struct's fields by Kafka's Cast and TimestampConverter.

    The struct stays optional or required, and keeps its default unless ``of_default`` is given.
    """
    fields = schema.fields
    changes = [change(field) for field in fields]
    builder = SchemaBuilder.like(schema)
    for made in changes:
        builder.field(made.name, made.schema)
    if schema.optional:
        builder.optional()
    updated = builder.build()
    convert = _kafka_converter(fields, changes, with_default=with_default)
    if schema.default is not None:
        default = of_default(schema.default) if of_default else convert(updated, schema.default)
        updated = builder.default(default).build()
    return Rewrite(updated, lambda struct: convert(updated, struct))


def _kafka_converter(
    fields: tuple[Field, ...], changes: list[Change], *, with_default: bool
) -> Callable[[Schema, Struct], Struct]:
    copy = copier(
        fields,
        [made.schema for made in changes],
        mode=KAFKA_4_3,
        with_default=with_default,
        unchecked=range(len(fields)),
    )
    work = [(at, made.apply) for at, made in enumerate(changes) if made.apply is not None]
    required = {at for at, made in enumerate(changes) if not may_be_null(made.schema, KAFKA_4_3)}

    def convert(schema: Schema, struct: Struct) -> Struct:
        values = copy(struct.values)
        if None in values:
            # Field by field, so that the error names the first wrong one.
            for at, value in enumerate(values):
                function = changes[at].apply
                made = values[at] = value if function is None else function(value)
                if made is None and at in required:
                    raise null_in_required(changes[at].name)
        else:
            for at, function in work:
                values[at] = function(values[at])
        return Struct.trusted(schema, values)

    return convert
