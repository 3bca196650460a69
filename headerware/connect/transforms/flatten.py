"""Flatten: lift the fields of nested structs and dicts to the top, ``a.b`` for b in a (KIP-66).

transforms=flat
transforms.flat.type=org.apache.kafka.connect.transforms.Flatten$Value
transforms.flat.delimiter=_
"""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from headerware.connect.config import ConfigDef, ConfigKey
from headerware.connect.data.numbers import BigInteger
from headerware.connect.data.schema import Field, Schema, SchemaBuilder, Type
from headerware.connect.data.struct import Struct
from headerware.connect.data.times import Instant
from headerware.connect.errors import ConnectDataError, ValueClassError
from headerware.connect.fields.structs import (
    altered,
    another_schema,
    may_be_null,
    null_in_required,
    require_map,
    require_struct,
)
from headerware.connect.modes import STRICT
from headerware.connect.transforms.base import PartTransform, Plan

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headerware.connect.modes import Mode

_PLAIN: Final = (bool, int, float, str, bytes, bytearray, memoryview, list, tuple)
_WITHOUT_SCHEMA_TYPE: Final = (BigInteger, Instant)
_ONLY_STRICT: Final = (Decimal, datetime, BigInteger, Instant)
_PURPOSE: Final = "flattening"
_MAX_NAMES_CHARS: Final = 16 << 20
"""The most characters of all flat names: a long name around many fields is repeated in the name of each."""


class Flatten(PartTransform):
    """Flatten structs and dicts; arrays stay as they are.

    In the strict mode, two fields of a dict that would get one name are refused, an empty dict in a dict
    stays an empty dict, and decimals, points in time and large integers are allowed.
    """

    CONFIG: ClassVar[ConfigDef] = ConfigDef(
        ConfigKey(name="delimiter", type="STRING", default=".", doc="The text between the names.")
    )

    def __init__(self, config: Mapping[str, Any] | None = None, *, mode: Mode = STRICT) -> None:
        super().__init__(config, mode=mode)
        given = self.options["delimiter"]
        # Java writes a null into a text as "null".
        self._delimiter: Final[str] = "null" if given is None else given

    def schemaless(self, value: Any, record: Any) -> dict[Any, Any]:
        """Return a flat dict.

        Raises:
            ConnectDataError: the value is not a dict, or holds a value of an unknown class.
            ValueClassError: a name is not text, in ``kafka_4_3``.
        """
        del record
        made: dict[Any, Any] = {}
        try:
            self._collect(require_map(value, _PURPOSE), "", made, _Names())
        except RecursionError:
            raise ConnectDataError("expected dicts in dicts, found too many levels of them") from None
        return made

    def _collect(self, value: Mapping[Any, Any], prefix: str, made: dict[Any, Any], names: _Names) -> None:
        strict = self.mode == STRICT
        for key, item in value.items():
            name = self._name(prefix, key)
            names.add(name)
            if isinstance(item, dict) and (item or not strict):
                self._collect(item, name, made, names)
                continue
            if item is not None and not isinstance(item, dict):
                self._check_value(item, name)
            if strict and name in made:
                raise ConnectDataError(f"two fields would be called {name!r}; one of them would be lost")
            made[name] = item

    def _name(self, prefix: str, key: Any) -> Any:
        if not isinstance(key, str):
            if self.mode == STRICT:
                raise ConnectDataError(f"expected names that are text, found {type(key).__name__}")
            if key is not None:
                raise ValueClassError(f"expected a name that is text, found {type(key).__name__}")
        return f"{prefix}{self._delimiter}{'null' if key is None else key}" if prefix else key

    def _check_value(self, value: Any, name: str) -> None:
        if isinstance(value, _PLAIN) and not isinstance(value, _WITHOUT_SCHEMA_TYPE):
            return
        if self.mode != STRICT or not isinstance(value, _ONLY_STRICT):
            raise ConnectDataError(f"a value of class {type(value).__name__} cannot stay in field {name!r}")

    def plan(self, schema: Schema) -> Plan:
        """Return the plan for the values of a schema.

        Raises:
            ConnectDataError: the schema contains a map.
            SchemaBuilderError: two fields would get one name.
        """
        leaves = _Leaves(self._delimiter, self.mode)
        optional, default = schema.optional, schema.default
        leaves.collect(schema, _Parent("", (), optional=optional, default=default))
        builder = SchemaBuilder.like(schema)
        for leaf in leaves.found:
            builder.field(leaf.name, leaf.schema)
        updated = builder.build()
        if self.mode == STRICT:
            updated = altered(updated, optional=optional)
        work = [_read(leaf, self.mode) for leaf in leaves.found]
        if self.mode == STRICT and default is not None:
            updated = altered(updated, default=Struct.trusted(updated, [read(default) for read in work]))
        same, strict = self._same, self.mode == STRICT

        def apply(value: Any, _: Any) -> Struct:
            struct = require_struct(value, _PURPOSE)
            if not same(struct.schema, schema):
                if strict:
                    raise another_schema(schema)
                return self._by_names(struct, updated)
            return Struct.trusted(updated, [read(struct) for read in work])

        return Plan(updated, apply)

    def _by_names(self, struct: Struct, updated: Schema) -> Struct:
        """Flatten a struct whose schema differs from its record's schema, as Kafka does."""
        made = Struct(updated)
        self._put(struct, "", made)
        return made

    def _put(self, struct: Struct, prefix: str, made: Struct) -> None:
        for field in struct.schema.fields:
            name = self._name(prefix, field.name)
            if field.schema.type is Type.MAP:
                raise _map_error(name)
            if field.schema.type is not Type.STRUCT:
                made.put(name, struct.get(field))
            elif (nested := struct.values[field.index]) is not None:
                self._put(nested, name, made)


def _map_error(name: str) -> ConnectDataError:
    return ConnectDataError(f"field {name!r} is a map; maps with a schema cannot be flattened")


class _Names:
    """The total length of the names of one value, which is limited."""

    def __init__(self) -> None:
        self._left = _MAX_NAMES_CHARS

    def add(self, name: str | None) -> None:
        """Count a name; refuse it if the names become longer than the limit."""
        self._left -= len(name or "")
        if self._left < 0:
            raise ConnectDataError(
                f"the names of the flattened fields have more than {_MAX_NAMES_CHARS} characters, the limit"
            )


class _Parent(NamedTuple):
    """A struct on the path to a field: its flat name, its position, and the facts that its fields inherit."""

    name: str
    way: tuple[int, ...]
    optional: bool
    default: Struct | None


class _Leaf(NamedTuple):
    """A field of the flat struct, and its former position."""

    name: str
    schema: Schema
    way: tuple[int, ...]
    default: Any


class _Leaves:
    """Collect the fields that are not structs."""

    def __init__(self, delimiter: str, mode: Mode) -> None:
        self.found: Final[list[_Leaf]] = []
        self._delimiter = delimiter
        self._mode: Mode = mode
        self._names = _Names()

    def collect(self, schema: Schema, parent: _Parent) -> None:
        """Collect the fields of a struct's schema."""
        for field in schema.fields:
            name = f"{parent.name}{self._delimiter}{field.name}" if parent.name else field.name
            self._names.add(name)
            self._add(field, name, parent)

    def _add(self, field: Field, name: str, parent: _Parent) -> None:
        schema, way = field.schema, (*parent.way, field.index)
        optional = parent.optional or schema.optional
        default = schema.default
        if default is None and parent.default is not None:
            default = parent.default.get(field)
        if schema.type is Type.STRUCT:
            self.collect(schema, _Parent(name, way, optional, default))
        elif schema.type is Type.MAP:
            raise _map_error(name)
        else:
            flat = altered(schema, optional=optional, default=default)
            self.found.append(_Leaf(name, flat, way, schema.default))


def _read(leaf: _Leaf, mode: Mode) -> Callable[[Struct], Any]:
    """Return a function that reads a leaf: null if a struct above it is null, which Kafka does not check."""
    *parents, last = leaf.way
    default, name = leaf.default, leaf.name
    required = not may_be_null(leaf.schema, mode)
    unchecked = not required or mode != STRICT

    def read(struct: Struct) -> Any:
        values = struct.values
        for index in parents:
            nested = values[index]
            if nested is None:
                if unchecked:
                    return None
                raise null_in_required(name)
            values = nested.values
        value = values[last]
        if value is None:
            value = default
            if value is None and required:
                raise null_in_required(name)
        return value

    return read
