"""ReplaceField: drop, keep or rename fields (KIP-66, KIP-629).

transforms=tidy
transforms.tidy.type=org.apache.kafka.connect.transforms.ReplaceField$Value
transforms.tidy.exclude=password,address.street
transforms.tidy.renames=id:customer_id
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

from headerware.connect.config import DISTINCT, Check, ConfigDef, ConfigKey
from headerware.connect.data.schema import SchemaBuilder, validate_value
from headerware.connect.data.struct import Struct
from headerware.connect.errors import ConnectConfigError, ConnectDataError, NullValueError, ValueClassError
from headerware.connect.fields.lists import java_split, pairs
from headerware.connect.fields.paths import FieldPath, NewField, missing_field, new_field, parse_path
from headerware.connect.fields.rewrites import Change, Rewrite, assembled, check_keys, unless_null
from headerware.connect.fields.structs import copier, null_in_required, require_map
from headerware.connect.modes import KAFKA_4_3, STRICT
from headerware.connect.transforms.base import Plan, StructTransform
from headerware.connect.transforms.keys import REPLACE_NULL_WITH_DEFAULT, KeysByMode

if TYPE_CHECKING:
    from headerware.connect.data.schema import Field, Schema
    from headerware.connect.modes import Mode

_PAIR: Final = 2
_PAIRS: Final = "list of colon-delimited pairs, e.g. <code>foo:bar,abc:xyz</code>"


def _refuse_renames(value: Any) -> str | None:
    if value is None:
        raise NullValueError("expected a list of renames, found null")
    wrong = next((pair for pair in value if len(java_split(pair, ":")) != _PAIR), None)
    return None if wrong is None else f"expected pairs like a:b, found {wrong!r}"


_OLD_NAMES: Final = {"blacklist": "exclude", "whitelist": "include"}


def _refuse_old_names(config: Mapping[str, Any]) -> None:
    for name, now in _OLD_NAMES.items():
        if name in config:
            raise ConnectConfigError(f"this is called {now!r} now, and Kafka ignores the old name", path=name)


def _renames(check: Check | None) -> ConfigKey:
    return ConfigKey(
        name="renames", type="LIST", default=[], check=check, doc="Old and new names of fields: old:new."
    )


class ReplaceField(StructTransform):
    """Drop the fields in ``exclude``, keep only those in ``include`` if there are any, and rename fields.

    In the strict mode ``a.b`` is the field b in a, which stays in a when it is renamed (``a.b:c``); ``c!``
    makes it required, ``c?`` optional; a field that a schema lacks is refused: its name may be misspelt.
    """

    CONFIG: ClassVar[ConfigDef] = KeysByMode(
        ConfigKey(name="exclude", type="LIST", default=[], check=DISTINCT, doc="The fields to drop."),
        ConfigKey(
            name="include", type="LIST", default=[], check=DISTINCT, doc="The fields to keep; by default all."
        ),
        _renames(Check(_PAIRS, _refuse_renames)),
        REPLACE_NULL_WITH_DEFAULT,
        strict=[_renames(None)],
    )

    def __init__(self, config: Mapping[str, Any] | None = None, *, mode: Mode = STRICT) -> None:
        if mode == STRICT:
            _refuse_old_names(config or {})
        super().__init__(config, mode=mode)
        options = self.options
        kind = _StrictMode if mode == STRICT else _KafkaMode
        self._choice: Final = kind(
            options["exclude"],
            options["include"],
            pairs(options["renames"], mode, "renames"),
            with_default=options[REPLACE_NULL_WITH_DEFAULT.name],
        )

    def schemaless(self, value: Any, record: Any) -> dict[Any, Any]:
        """Return a dict of the fields that are left.

        Raises:
            ConnectDataError: the value is not a dict, or two fields would get one name.
            ValueClassError: a name is not text, in ``kafka_4_3``.
        """
        del record
        return self._choice.of_dict(require_map(value, "the choice of fields"))

    def plan(self, schema: Schema) -> Plan:
        """Return the plan for the values of a schema.

        Raises:
            ConnectDataError: there is no such field.
            SchemaBuilderError: two fields would get one name.
        """
        updated, apply = self._choice.of_schema(schema)
        return Plan(updated, lambda struct, _: apply(struct))


class _Node:
    """One step of the paths: the edits of this field, and of the fields within it."""

    __slots__ = ("children", "excluded", "included", "nested", "renamed", "selects", "text")

    def __init__(self, text: str) -> None:
        self.text: str = text
        self.children: dict[str, _Node] = {}
        self.nested: dict[str, FieldPath] = {}
        """The remaining paths that have several steps, by their steps joined with dots."""
        self.excluded: bool = False
        self.included: bool = False
        self.selects: bool = False
        """Whether only some of the fields in it are included."""
        self.renamed: NewField | None = None


class _StrictMode:
    """Drop, keep and rename fields by their paths; an empty ``include`` keeps all."""

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
        *parents, node = self._nodes_along(text, "include")
        if node.children or any(parent.included for parent in parents):
            raise ConnectConfigError(f"{text!r} overlaps with another field to keep", path="include")
        node.included = True
        for parent in parents:
            parent.selects = True

    def _exclude(self, text: str) -> None:
        *parents, node = self._nodes_along(text, "exclude")
        if node.children or node.included or any(parent.excluded for parent in parents):
            raise ConnectConfigError(
                f"{text!r} overlaps with another field to drop, or with a field to keep", path="exclude"
            )
        node.excluded = True

    def _rename(self, old: str, new: str) -> None:
        *parents, node = self._nodes_along(old, "renames")
        field = new_field(new, STRICT, "renames")
        if node.renamed is not None:
            raise ConnectConfigError(f"{old!r} is renamed twice", path="renames")
        if node.excluded or any(parent.excluded for parent in parents) or not _kept(parents, node):
            raise ConnectConfigError(f"{old!r} is renamed, but not kept", path="renames")
        if any(other.renamed and other.renamed.name == field.name for other in parents[-1].children.values()):
            raise ConnectConfigError(f"two fields are renamed to {field.name!r}", path="renames")
        node.renamed = field

    def _nodes_along(self, text: str, path: str) -> list[_Node]:
        field_path = parse_path(text, STRICT, path)
        self._paths.append(field_path)
        way = [self._root]
        for at, step in enumerate(field_path.steps):
            if at < len(field_path.steps) - 1:
                way[-1].nested[".".join(field_path.steps[at:])] = FieldPath(field_path.steps[at:], text)
            way.append(way[-1].children.setdefault(step, _Node(text)))
        return way

    def of_dict(self, value: Mapping[Any, Any]) -> dict[Any, Any]:
        return _dict_of(value, self._root, "")

    def of_schema(self, schema: Schema) -> Rewrite:
        for field_path in self._paths:
            field_path.fields_along(schema)
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
    """Return whether a named field is kept if its parents keep only some of their fields."""
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
    for dotted, field_path in parent.nested.items():
        if dotted in value and dotted not in parent.children:
            field_path.refuse_dotted(value)
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


_BUCKETS: Final = 16
_LOAD: Final = 0.75


class _KafkaMode:
    """Drop, keep and rename fields by their names, as Kafka does.

    Kafka looks up the old name of every field by its new name, also for a field that was not renamed. If such
    a field has the new name of another field, Kafka takes the other field's value, or fails if it is missing.
    """

    def __init__(
        self,
        exclude: Sequence[str],
        include: Sequence[str],
        renames: Sequence[tuple[str, str]],
        *,
        with_default: bool,
    ) -> None:
        self._exclude: Final = frozenset(exclude)
        self._include: Final = frozenset(include)
        self._renames: Final = dict(renames)
        self._old: Final = {self._renames[name]: name for name in in_hash_order(self._renames)}
        self._with_default: Final = with_default

    def _keeps(self, name: str | None) -> bool:
        return name not in self._exclude and (not self._include or name in self._include)

    def of_dict(self, value: Mapping[Any, Any]) -> dict[Any, Any]:
        """Return a dict of the fields that are left; the last one of two fields with one name counts."""
        made: dict[Any, Any] = {}
        for name, item in value.items():
            if name is not None and not isinstance(name, str):
                raise ValueClassError(f"expected names that are text, found {type(name).__name__}")
            if self._keeps(name):
                made[name if name is None else self._renames.get(name, name)] = item
        return made

    def of_schema(self, schema: Schema) -> Rewrite:
        builder = SchemaBuilder.like(schema)
        for field in schema.fields:
            if self._keeps(field.name):
                builder.field(self._renames.get(field.name, field.name), field.schema)
        updated = builder.build()
        sources = [self._source(schema, field.name) for field in updated.fields]
        copy = copier(
            sources,
            [field.schema for field in updated.fields],
            mode=KAFKA_4_3,
            with_default=self._with_default,
        )
        both = zip(updated.fields, sources, strict=True)
        others = [field for field, source in both if field.schema != source.schema]

        def apply(struct: Struct) -> Struct:
            values = copy(struct.values)
            for field in others:
                validate_value(field.schema, values[field.index], f"field {field.name!r}")
            return Struct.trusted(updated, values)

        return Rewrite(updated, apply)

    def _source(self, schema: Schema, name: str) -> Field:
        old = self._old.get(name, name)
        field = schema.by_name.get(old)
        if field is None:
            raise missing_field(schema, old, name)
        return field


def in_hash_order(names: Mapping[str, Any]) -> list[str]:
    """Return names in the order in which Java's ``HashMap`` yields them."""
    buckets = _BUCKETS
    while len(names) > buckets * _LOAD:
        buckets *= 2
    return sorted(names, key=lambda name: _spread(name) & (buckets - 1))


def _spread(name: str) -> int:
    code = 0
    units = name.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(units), 2):
        code = (31 * code + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    return code ^ code >> 16
