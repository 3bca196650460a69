"""KeyToValue: copy the key itself, or fields of it, into the value.

transforms=key
transforms.key.type=KeyToValue
transforms.key.key.fields=id,*
transforms.key.value.fields=customer_id,whole_key
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from headerware.connect.config import DISTINCT_SOME, ConfigDef, ConfigKey, StrictConfig
from headerware.connect.data.numbers import Float32, Int8, Int16, Int32
from headerware.connect.data.schema import (
    OPTIONAL_BOOLEAN_SCHEMA,
    OPTIONAL_BYTES_SCHEMA,
    OPTIONAL_FLOAT32_SCHEMA,
    OPTIONAL_FLOAT64_SCHEMA,
    OPTIONAL_INT8_SCHEMA,
    OPTIONAL_INT16_SCHEMA,
    OPTIONAL_INT32_SCHEMA,
    OPTIONAL_INT64_SCHEMA,
    OPTIONAL_STRING_SCHEMA,
    Field,
    Schema,
    Type,
)
from headerware.connect.data.struct import Struct, plain
from headerware.connect.errors import ConnectConfigError, ConnectDataError
from headerware.connect.fields.lists import items
from headerware.connect.fields.paths import ABSENT, FieldPath, missing_field, parse_path
from headerware.connect.fields.structs import altered, require_map, require_struct
from headerware.connect.modes import STRICT
from headerware.connect.transforms.base import MAX_PLANS, Transform
from headerware.core.bounded_cache import BoundedCache

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headerware.connect.modes import Mode

_KEY_ITSELF: Final = "*"
_KEY_NAME: Final = "_key"
_SCHEMAS: Final[dict[type, Schema]] = {
    str: OPTIONAL_STRING_SCHEMA,
    bytes: OPTIONAL_BYTES_SCHEMA,
    bool: OPTIONAL_BOOLEAN_SCHEMA,
    Int8: OPTIONAL_INT8_SCHEMA,
    Int16: OPTIONAL_INT16_SCHEMA,
    Int32: OPTIONAL_INT32_SCHEMA,
    int: OPTIONAL_INT64_SCHEMA,
    Float32: OPTIONAL_FLOAT32_SCHEMA,
    float: OPTIONAL_FLOAT64_SCHEMA,
}
"""The schemas of schemaless keys, for values with a schema."""


class _Copied(NamedTuple):
    """A part of the key, and its name in the value; without a path, the part is the key itself."""

    path: FieldPath | None
    name: str


class _Plan(NamedTuple):
    """The plan for one schema of keys and one schema of values."""

    schema: Schema
    apply: Callable[[Any, Struct], Struct]


class KeyToValue(Transform):
    """Add the key itself, or fields of it, to the value.

    ``key.fields`` are paths such as ``a.b``, or ``*`` for the key itself; ``value.fields`` are the names in
    the value, one for each. By default, fields keep their names, and the key itself is called ``_key``. A
    name that the value has already is refused, or replaced with ``replace.existing=true``. A tombstone stays
    a tombstone.
    """

    CONFIG: ClassVar[ConfigDef] = StrictConfig(
        ConfigKey(
            name="key.fields",
            type="LIST",
            importance="HIGH",
            check=DISTINCT_SOME,
            doc="The fields of the key to copy; * is the key itself.",
        ),
        ConfigKey(
            name="value.fields",
            type="LIST",
            default=[],
            importance="HIGH",
            doc="The names in the value; by default the same names.",
        ),
        ConfigKey(
            name="replace.existing",
            type="BOOLEAN",
            default=False,
            doc="Whether to replace a field that the value has already; otherwise it is refused.",
        ),
        ConfigKey(
            name="skip.missing.or.null",
            type="BOOLEAN",
            default=False,
            doc="Whether to skip a field that the key lacks; otherwise it is refused.",
        ),
    )

    def __init__(self, config: Mapping[str, Any] | None = None, *, mode: Mode = STRICT) -> None:
        super().__init__(config, mode=mode)
        self._copied: Final = _copied(self.options["key.fields"], self.options["value.fields"])
        self._replaces: Final[bool] = self.options["replace.existing"]
        self._skips: Final[bool] = self.options["skip.missing.or.null"]
        # By the identity of both schemas, which are kept, so that no other schema gets this identity.
        self._plans: Final[BoundedCache[tuple[int, int], tuple[Schema | None, Schema, _Plan]]] = BoundedCache(
            MAX_PLANS
        )

    def apply(self, record: Any) -> Any:
        """Return the record with the key in its value.

        Raises:
            ConnectDataError: the key has no such field, or the value has a field of this name already.
        """
        value = record.value
        if value is None:
            return record
        if record.value_schema is None:
            return record.with_part(
                "value", None, self._to_dict(record.key, require_map(value, "the key's fields"))
            )
        struct = require_struct(value, "the key's fields")
        plan = self._planned(_schema_of(record), struct.schema)
        return record.with_part("value", plan.schema, plan.apply(record.key, struct))

    def _to_dict(self, key: Any, value: dict[str, Any]) -> dict[str, Any]:
        made = dict(value)
        for path, name in self._copied:
            found = self._read(key, path)
            if found is ABSENT:
                continue
            if name in value and not self._replaces:
                raise _exists(name)
            made[name] = plain(found) if isinstance(found, Struct) else found
        return made

    def _read(self, key: Any, path: FieldPath | None) -> Any:
        """Return a part of a key that has no schema, or whose value has none."""
        found = key
        if path is not None and key is not None:
            if isinstance(key, Struct):
                found = path.from_struct(key)
            else:
                found = path.from_dict(require_map(key, f"the key's field {path.text!r}"), ABSENT)
        if found is None or found is ABSENT:
            if not self._skips:
                raise _missing(path)
            return ABSENT
        return found

    def _planned(self, key_schema: Schema | None, value_schema: Schema) -> _Plan:
        known = self._plans.get((id(key_schema), id(value_schema)))
        if known is not None:
            return known[2]
        plan = self._plan(key_schema, value_schema)
        self._plans[id(key_schema), id(value_schema)] = (key_schema, value_schema, plan)
        return plan

    def _plan(self, key_schema: Schema | None, value_schema: Schema) -> _Plan:
        fields = {field.name: field.schema for field in value_schema.fields}
        reads: dict[str, tuple[Callable[[Any], Any], FieldPath | None]] = {}
        for path, name in self._copied:
            own, get = self._part(key_schema, path)
            if own is None:
                continue
            if name in fields and not self._replaces:
                raise _exists(name)
            fields[name], reads[name] = own, (get, path)
        order = [(name, value_schema.by_name.get(name), reads.get(name)) for name in fields]
        made = [Field(name, at, schema) for at, (name, schema) in enumerate(fields.items())]
        schema = altered(value_schema, fields=tuple(made), default=None)
        return _Plan(schema, self._filling(schema, order))

    def _part(
        self, key_schema: Schema | None, path: FieldPath | None
    ) -> tuple[Schema | None, Callable[[Any], Any]]:
        """Return the schema of a part of the key, None to skip it, and the function that reads it."""
        if key_schema is None or (path is not None and key_schema.type is not Type.STRUCT):
            if key_schema is None and self._skips:
                return None, _itself
            raise _missing(path)
        if path is None:
            return altered(key_schema, optional=True) if self._skips else key_schema, _itself
        field = path.find(key_schema)
        if field is None:
            if self._skips:
                return None, _itself
            raise missing_field(key_schema, path.steps[-1], path.text)
        optional = self._skips or any(step.schema.optional for step in path.fields_along(key_schema))
        own = altered(field.schema, optional=True) if optional and not field.schema.optional else field.schema
        return own, path.getter(key_schema)

    def _filling(
        self,
        schema: Schema,
        order: list[tuple[str, Field | None, tuple[Callable[[Any], Any], FieldPath | None] | None]],
    ) -> Callable[[Any, Struct], Struct]:
        skips = self._skips

        def apply(key: Any, struct: Struct) -> Struct:
            values = []
            for _, old, read in order:
                if read is None:
                    values.append(struct.values[old.index] if old is not None else None)
                    continue
                get, path = read
                found = None if key is None else get(key)
                if found is None and not skips:
                    raise _missing(path)
                values.append(found)
            return Struct.trusted(schema, values)

        return apply


def _itself(key: Any) -> Any:
    return key


def _schema_of(record: Any) -> Schema | None:
    """Return the schema of a record's key, if necessary inferred from its class; None for a null."""
    key = record.key
    if isinstance(key, Struct):
        return key.schema
    if record.key_schema is not None or key is None:
        schema: Schema | None = record.key_schema
        if key is not None and schema is not None and schema.type is Type.STRUCT:
            require_struct(key, "the key's fields")
        return schema
    found = _SCHEMAS.get(type(key))
    if found is None:
        raise ConnectDataError(
            f"expected a key with a schema, like the value's, found a key of class {type(key).__name__}"
        )
    return found


def _copied(paths: list[str], names: list[str]) -> list[_Copied]:
    names = items(names, STRICT, "value.fields")
    if names and len(names) != len(paths):
        raise ConnectConfigError(
            f"expected as many value.fields as key.fields, found {len(names)} and {len(paths)}",
            path="value.fields",
        )
    parsed = [None if text == _KEY_ITSELF else parse_path(text, STRICT, "key.fields") for text in paths]
    names = names or [_KEY_NAME if path is None else path.steps[-1] for path in parsed]
    if len(set(names)) < len(names):
        raise ConnectConfigError("two parts of the key would have one name in the value", path="value.fields")
    return [_Copied(path, name) for path, name in zip(parsed, names, strict=True)]


def _missing(path: FieldPath | None) -> ConnectDataError:
    what = "the key is" if path is None else f"the key's field {path.text!r} is"
    return ConnectDataError(f"{what} missing or null; set skip.missing.or.null=true to skip it")


def _exists(name: str) -> ConnectDataError:
    return ConnectDataError(
        f"the value has a field {name!r} already; set replace.existing=true to replace it"
    )
