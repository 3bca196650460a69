"""Change fields of structs and dicts, nested ones too, and leave the rest as it is.

What is to be done is made a tree once. For a schema the tree gives a function over indices, and a new schema
where something in it changes; a dict is copied along the paths alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar
from unicodedata import normalize

from headerware.connect.data.schema import Field, Schema, SchemaBuilder
from headerware.connect.data.struct import Struct
from headerware.connect.errors import ConnectConfigError, ConnectDataError
from headerware.connect.fields.copying import Copy, copier, may_be_null, null_in_required
from headerware.connect.fields.paths import FieldPath
from headerware.connect.fields.schemas import altered
from headerware.connect.modes import STRICT

if TYPE_CHECKING:
    from headerware.connect.modes import Mode

E = TypeVar("E")
"""What is to be done to a field."""


class Change(NamedTuple):
    """What becomes of a field.

    Args:
        name: its name.
        schema: its schema.
        apply: gives the new value of an old one, null included; None where the value stays.
    """

    name: str
    schema: Schema
    apply: Callable[[Any], Any] | None = None


class Node(Generic[E]):
    """One step of several paths: what is to be done here, or to the fields within."""

    __slots__ = ("children", "edit", "nested", "text")

    def __init__(self, text: str) -> None:
        self.text: str = text
        self.edit: E | None = None
        self.children: dict[str, Node[E]] = {}
        self.nested: dict[str, FieldPath] = {}
        """The paths of several steps that lead on from here, by their text with the dots in it."""


class Edits(Generic[E]):
    """What is to be done to some fields.

    Args:
        edits: the paths of the fields, and what is to be done there.
        path: the configuration's key, for errors.

    Raises:
        ConnectConfigError: a field is named twice, or both it and a field in it.
    """

    def __init__(self, edits: Iterable[tuple[FieldPath, E]], path: str) -> None:
        given = tuple(edits)
        self.paths: tuple[FieldPath, ...] = tuple(place for place, _ in given)
        self.root: Node[E] = Node("")
        for place, edit in given:
            self._add(place, edit, path)

    def _add(self, place: FieldPath, edit: E, path: str) -> None:
        node = self.root
        for at, step in enumerate(place.steps):
            if node.edit is not None:
                raise ConnectConfigError(f"{node.text!r} and {place.text!r} overlap", path=path)
            if at < len(place.steps) - 1:
                node.nested[".".join(place.steps[at:])] = FieldPath(place.steps[at:], place.text)
            node = node.children.setdefault(step, Node(place.text))
        if node.edit is not None or node.children:
            raise ConnectConfigError(f"{node.text!r} and {place.text!r} overlap", path=path)
        node.edit = edit


class Rewrite(NamedTuple):
    """What to do to the structs of one schema.

    Args:
        schema: the schema of what comes out; the same object where the schema does not change.
        apply: gives the new struct of an old one.
    """

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
    """Compile what is to be done to the structs of a schema.

    Args:
        schema: the schema.
        edits: what is to be done.
        change: says what becomes of a field; None drops it.
        mode: strict refuses a path to no field, ``kafka_4_3`` passes over it; see also :func:`assembled`.
        with_default: whether nulls become their field's default.

    Raises:
        ConnectDataError: there is no such field, or something on the way is no struct.
    """
    if mode == STRICT:
        for place in edits.paths:
            place.way(schema)

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
    """Compile what becomes of the fields of a struct.

    Args:
        schema: the struct's schema.
        changes: its fields, and what becomes of each; None drops it.
        mode: where the schema changes, strict keeps whether the whole may be null, and its default;
            ``kafka_4_3`` loses both, as Kafka's transforms do.
        with_default: whether nulls become their field's default.

    Raises:
        SchemaBuilderError: two fields would have one name.
    """
    kept = [(field, made) for field, made in changes if made is not None]
    updated = _updated(schema, kept, mode)
    values = _values(kept, mode, with_default=with_default)
    if mode == STRICT and updated is not schema and schema.default is not None:
        updated = altered(updated, default=Struct.trusted(updated, values(schema.default.values)))
    return Rewrite(updated, lambda struct: Struct.trusted(updated, values(struct.values)))


def _updated(schema: Schema, kept: Sequence[tuple[Field, Change]], mode: Mode) -> Schema:
    """Return the schema of what is kept: the same where nothing changes."""
    if len(kept) == len(schema.fields) and all(
        made.schema is field.schema and made.name == field.name for field, made in kept
    ):
        return schema
    builder = SchemaBuilder.like(schema)
    for _, made in kept:
        builder.field(made.name, made.schema)
    return altered(builder.build(), optional=mode == STRICT and schema.optional)


def _values(kept: Sequence[tuple[Field, Change]], mode: Mode, *, with_default: bool) -> Copy:
    """Return a function that makes the new values of old ones."""
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
    """Return a copy of a dict with some of its fields changed; a field that is not there is not added.

    Args:
        value: the dict.
        node: what is to be done: the root of :class:`Edits`.
        change: gives the new value of an old one.
        path: where in the whole value this dict is, for errors.

    Raises:
        ConnectDataError: something on the way is neither null nor a dict, or a name is not there, but one
            that is no text, or that has the path's dots in it.
    """
    made = dict(value)
    for dotted, place in node.nested.items():
        if dotted in made and dotted not in node.children:
            place.refuse_dotted(made)
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
    """Refuse a dict that lacks a field, but has a name that may have been meant for it.

    Raises:
        ConnectDataError: it has one; see :func:`check_keys` and :meth:`FieldPath.refuse_dotted`.
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
    """Refuse names that may have been meant for one that is looked for and not there.

    Raises:
        ConnectDataError: there is a name that is no text, or the same text in other characters of Unicode.
    """
    for key in value:
        if not isinstance(key, str):
            raise ConnectDataError(
                f"there is no field {name!r}, but one whose name is no text but {type(key).__name__}"
            )
        if not (key.isascii() and name.isascii()) and normalize("NFC", key) == normalize("NFC", name):
            raise ConnectDataError(
                f"there is no field {name!r}, but one whose name is the same text in other characters"
            )
