"""ReplaceField's choice of fields in the strict mode: nested ones too, and nothing lost unasked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from headerware.connect.errors import ConnectConfigError, ConnectDataError
from headerware.connect.fields.copying import null_in_required
from headerware.connect.fields.markers import NewField, new_field
from headerware.connect.fields.paths import FieldPath, parse_path
from headerware.connect.fields.rewrites import Change, Rewrite, assembled, check_keys, unless_null
from headerware.connect.modes import STRICT

if TYPE_CHECKING:
    from headerware.connect.data.schema import Field, Schema


class _Node:
    """One step of the paths: what is said of the field here, and of those in it."""

    __slots__ = ("children", "excluded", "included", "nested", "renamed", "selects", "text")

    def __init__(self, text: str) -> None:
        self.text: str = text
        self.children: dict[str, _Node] = {}
        self.nested: dict[str, FieldPath] = {}
        """The paths of several steps that lead on from here, by their text with the dots in it."""
        self.excluded: bool = False
        self.included: bool = False
        self.selects: bool = False
        """Whether fields in it are included, so that the others are not."""
        self.renamed: NewField | None = None


class Choice:
    """Hold what to drop, keep and rename.

    Args:
        exclude: the paths of the fields to drop.
        include: the paths of those to keep; all where there are none.
        renames: paths and new names.
        with_default: whether nulls become their field's default.

    Raises:
        ConnectConfigError: a field is both kept and dropped, dropped and renamed, or renamed twice; two
            fields get one name.
    """

    def __init__(
        self,
        exclude: Sequence[str],
        include: Sequence[str],
        renames: Sequence[tuple[str, str]],
        *,
        with_default: bool,
    ) -> None:
        self._root: Final = _Node("")
        self._paths: Final[list[FieldPath]] = []
        self._with_default: Final = with_default
        for text in include:
            self._include(text)
        for text in exclude:
            self._exclude(text)
        for old, new in renames:
            self._rename(old, new)

    def _include(self, text: str) -> None:
        *parents, node = self._way(text, "include")
        if node.children or any(parent.included for parent in parents):
            raise ConnectConfigError(f"{text!r} overlaps with another field to keep", path="include")
        node.included = True
        for parent in parents:
            parent.selects = True

    def _exclude(self, text: str) -> None:
        *parents, node = self._way(text, "exclude")
        if node.children or node.included or any(parent.excluded for parent in parents):
            raise ConnectConfigError(
                f"{text!r} overlaps with another field to drop, or one to keep", path="exclude"
            )
        node.excluded = True

    def _rename(self, old: str, new: str) -> None:
        *parents, node = self._way(old, "renames")
        field = new_field(new, STRICT, "renames")
        if node.renamed is not None:
            raise ConnectConfigError(f"{old!r} is renamed twice", path="renames")
        if node.excluded or any(parent.excluded for parent in parents) or not _kept(parents, node):
            raise ConnectConfigError(f"{old!r} is renamed, but not kept", path="renames")
        if any(other.renamed and other.renamed.name == field.name for other in parents[-1].children.values()):
            raise ConnectConfigError(f"two fields are renamed to {field.name!r}", path="renames")
        node.renamed = field

    def _way(self, text: str, path: str) -> list[_Node]:
        place = parse_path(text, STRICT, path)
        self._paths.append(place)
        way = [self._root]
        for at, step in enumerate(place.steps):
            if at < len(place.steps) - 1:
                way[-1].nested[".".join(place.steps[at:])] = FieldPath(place.steps[at:], text)
            way.append(way[-1].children.setdefault(step, _Node(text)))
        return way

    def of_dict(self, value: Mapping[Any, Any]) -> dict[Any, Any]:
        """Return a dict of what is left.

        Raises:
            ConnectDataError: two fields would get one name, a required one is null, or something on the way
                is no dict.
        """
        return _dict_of(value, self._root, "")

    def of_schema(self, schema: Schema) -> Rewrite:
        """Say what is left of structs of a schema.

        Raises:
            ConnectDataError: there is no such field, or something on the way is no struct.
            SchemaBuilderError: two fields would get one name.
        """
        for place in self._paths:
            place.way(schema)
        return self._level(schema, self._root)

    def _level(self, schema: Schema, node: _Node) -> Rewrite:
        changes = [(field, self._change(field, node)) for field in schema.fields]
        return assembled(schema, changes, mode=STRICT, with_default=self._with_default)

    def _change(self, field: Field, parent: _Node) -> Change | None:
        node = parent.children.get(field.name)
        if _dropped(parent, node):
            return None
        change = Change(field.name, field.schema)
        if node is None:
            return change
        if node.children:
            nested = self._level(field.schema, node)
            change = Change(field.name, nested.schema, unless_null(nested.apply))
        if node.renamed is not None:
            change = Change(node.renamed.name, node.renamed.marked(change.schema), change.apply)
        return change


def _kept(parents: Sequence[_Node], node: _Node) -> bool:
    """Return whether a field that is named is not left out because others are to be kept."""
    way = [*parents, node]
    for at, parent in enumerate(parents):
        if parent.included:
            return True
        if parent.selects and not (way[at + 1].included or way[at + 1].selects):
            return False
    return True


def _dropped(parent: _Node, node: _Node | None) -> bool:
    if node is None:
        return parent.selects
    return node.excluded or (parent.selects and not (node.included or node.selects))


def _dict_of(value: Mapping[Any, Any], parent: _Node, path: str) -> dict[Any, Any]:
    made: dict[Any, Any] = {}
    for name, item in value.items():
        node = parent.children.get(name)
        if _dropped(parent, node):
            continue
        made_name, made_item = name, item
        if node is not None:
            if node.children and item is not None:
                made_item = _nested(item, node, f"{path}{name}")
            if node.renamed is not None:
                made_name = _renamed(node.renamed, made_item)
        if made_name in made:
            raise ConnectDataError(f"two fields would be called {made_name!r}; one of them would be lost")
        made[made_name] = made_item
    for name in parent.children:
        if name not in value:
            check_keys(value, name)
    for dotted, place in parent.nested.items():
        if dotted in value and dotted not in parent.children:
            place.refuse_dotted(value)
    return made


def _renamed(field: NewField, value: Any) -> str:
    if value is None and field.optional is False:
        raise null_in_required(field.name)
    return field.name


def _nested(value: Any, node: _Node, path: str) -> dict[Any, Any]:
    if not isinstance(value, dict):
        raise ConnectDataError(
            f"the path {node.text!r} needs a dict at {path!r}, found {type(value).__name__}"
        )
    return _dict_of(value, node, f"{path}.")
