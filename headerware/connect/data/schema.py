"""Schemas of values (KIP-26), the check of a value against its schema, and the builder of schemas.

A schema is immutable: ``SchemaBuilder.struct().field("id", INT64_SCHEMA).build()`` makes a new one.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal as DecimalNumber
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from headerware.connect.data.equality import alike
from headerware.connect.data.numbers import BigInteger, Float32, Int8, Int16, Int32
from headerware.connect.data.times import Instant
from headerware.connect.errors import ConnectDataError, SchemaBuilderError


class Type(Enum):
    """The types that a schema may have."""

    INT8 = "int8"
    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    FLOAT32 = "float32"
    FLOAT64 = "float64"
    BOOLEAN = "boolean"
    STRING = "string"
    BYTES = "bytes"
    ARRAY = "array"
    MAP = "map"
    STRUCT = "struct"

    if not TYPE_CHECKING:
        # Members are singletons; the hash of an Enum costs a call into Python.
        __hash__ = object.__hash__

    @property
    def is_primitive(self) -> bool:
        """Whether values of this type contain no other values."""
        return self not in {Type.ARRAY, Type.MAP, Type.STRUCT}


class Schema:
    """The description of a value: its type, whether it may be null, and more.

    Args:
        type: the type.
        optional: whether the value may be null.
        default: the value that stands for null; None if there is none.
        name: the name of a struct or a logical type, for example.
        version: the version of the named type.
        doc: a description.
        parameters: further properties of a logical type, such as the scale of a decimal.
        fields: the fields of a struct, in order.
        key_schema: the schema of a map's keys.
        value_schema: the schema of the values of a map or an array.

    Schemas are compared and hashed by content, and safe for use by several threads.
    """

    __slots__ = (
        "_fields",
        "_hash",
        "_key_schema",
        "_value_schema",
        "by_name",
        "default",
        "doc",
        "name",
        "optional",
        "parameters",
        "type",
        "version",
    )

    def __init__(
        self,
        type: Type,  # noqa: A002 - Connect's name for it
        *,
        optional: bool = False,
        default: Any = None,
        name: str | None = None,
        version: int | None = None,
        doc: str | None = None,
        parameters: Mapping[str, str] | None = None,
        fields: tuple[Field, ...] = (),
        key_schema: Schema | None = None,
        value_schema: Schema | None = None,
    ) -> None:
        self.type: Final[Type] = type
        self.optional: Final[bool] = optional
        self.default: Final[Any] = default
        self.name: Final[str | None] = name
        self.version: Final[int | None] = version
        self.doc: Final[str | None] = doc
        self.parameters: Final[Mapping[str, str] | None] = (
            None if parameters is None else MappingProxyType(dict(parameters))
        )
        self._fields: Final = fields
        self.by_name: Final[Mapping[str, Field]] = {field.name: field for field in fields}
        """The fields of a struct by name; read only."""
        self._key_schema: Final = key_schema
        self._value_schema: Final = value_schema
        self._hash: int | None = None

    @property
    def fields(self) -> tuple[Field, ...]:
        """The fields of a struct, in order.

        Raises:
            ConnectDataError: this is not a struct.
        """
        self._only(Type.STRUCT, what="fields")
        return self._fields

    def field(self, name: str) -> Field | None:
        """Return the field of this name, or None.

        Raises:
            ConnectDataError: this is not a struct.
        """
        self._only(Type.STRUCT, what="fields")
        return self.by_name.get(name)

    @property
    def key_schema(self) -> Schema | None:
        """The schema of a map's keys; None if it is not known.

        Raises:
            ConnectDataError: this is not a map.
        """
        self._only(Type.MAP, what="a key schema")
        return self._key_schema

    @property
    def value_schema(self) -> Schema | None:
        """The schema of the values of an array or a map; None if it is not known.

        Raises:
            ConnectDataError: this is neither an array nor a map.
        """
        self._only(Type.MAP, Type.ARRAY, what="a value schema")
        return self._value_schema

    def _only(self, *types: Type, what: str) -> None:
        if self.type not in types:
            expected = " or ".join(kind.value for kind in types)
            raise ConnectDataError(f"expected a schema of type {expected} to read {what} of, found {self}")

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Schema):
            return NotImplemented
        return (
            hash(self) == hash(other)
            and self._facts() == other._facts()
            and self._fields == other._fields
            and alike(self.default, other.default)
        )

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash((self._facts(), self._fields))
        return self._hash

    def _facts(self) -> tuple[Any, ...]:
        parameters = None if self.parameters is None else frozenset(self.parameters.items())
        nested = (self._key_schema, self._value_schema)
        return (self.type, self.optional, self.name, self.version, self.doc, parameters, *nested)

    def __repr__(self) -> str:
        named = f"{self.name}:" if self.name is not None else ""
        return f"Schema{{{named}{self.type.name}}}"

    def __reduce__(self) -> tuple[Any, ...]:
        stored = [getattr(self, slot) for slot in _STORED]
        return _remade, tuple(dict(fact) if isinstance(fact, MappingProxyType) else fact for fact in stored)


class Field:
    """A field of a struct.

    Args:
        name: the name.
        index: the position among the fields, from 0.
        schema: the schema of its values.
    """

    __slots__ = ("index", "name", "schema")

    def __init__(self, name: str, index: int, schema: Schema) -> None:
        self.name: Final[str] = name
        self.index: Final[int] = index
        self.schema: Final[Schema] = schema

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Field):
            return NotImplemented
        return self.index == other.index and self.name == other.name and self.schema == other.schema

    def __hash__(self) -> int:
        return hash((self.name, self.index, self.schema))

    def __repr__(self) -> str:
        return f"Field(name={self.name}, index={self.index}, schema={self.schema})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Field, (self.name, self.index, self.schema)


_STORED: Final = (
    "type",
    "optional",
    "default",
    "name",
    "version",
    "doc",
    "parameters",
    "_fields",
    "_key_schema",
    "_value_schema",
)


def _remade(*stored: Any) -> Schema:
    """Unpickle a schema."""
    names = (slot.removeprefix("_") for slot in _STORED)
    facts = dict(zip(names, stored, strict=True))
    return Schema(facts.pop("type"), **facts)


INT8_SCHEMA: Final = Schema(Type.INT8)
INT16_SCHEMA: Final = Schema(Type.INT16)
INT32_SCHEMA: Final = Schema(Type.INT32)
INT64_SCHEMA: Final = Schema(Type.INT64)
FLOAT32_SCHEMA: Final = Schema(Type.FLOAT32)
FLOAT64_SCHEMA: Final = Schema(Type.FLOAT64)
BOOLEAN_SCHEMA: Final = Schema(Type.BOOLEAN)
STRING_SCHEMA: Final = Schema(Type.STRING)
BYTES_SCHEMA: Final = Schema(Type.BYTES)

OPTIONAL_INT8_SCHEMA: Final = Schema(Type.INT8, optional=True)
OPTIONAL_INT16_SCHEMA: Final = Schema(Type.INT16, optional=True)
OPTIONAL_INT32_SCHEMA: Final = Schema(Type.INT32, optional=True)
OPTIONAL_INT64_SCHEMA: Final = Schema(Type.INT64, optional=True)
OPTIONAL_FLOAT32_SCHEMA: Final = Schema(Type.FLOAT32, optional=True)
OPTIONAL_FLOAT64_SCHEMA: Final = Schema(Type.FLOAT64, optional=True)
OPTIONAL_BOOLEAN_SCHEMA: Final = Schema(Type.BOOLEAN, optional=True)
OPTIONAL_STRING_SCHEMA: Final = Schema(Type.STRING, optional=True)
OPTIONAL_BYTES_SCHEMA: Final = Schema(Type.BYTES, optional=True)


class SchemaAndValue(NamedTuple):
    """A value with its schema.

    Args:
        schema: the schema, or None for a schemaless value.
        value: the value.
    """

    schema: Schema | None
    value: Any

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SchemaAndValue):
            return NotImplemented
        return self.schema == other.schema and alike(self.value, other.value)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self.schema)

    def __repr__(self) -> str:
        """Show the schema and the value's class; a value may be secret."""
        return f"SchemaAndValue({self.schema}, {type(self.value).__name__})"


NULL: Final = SchemaAndValue(None, None)

DECIMAL: Final = "org.apache.kafka.connect.data.Decimal"
DATE: Final = "org.apache.kafka.connect.data.Date"
TIME: Final = "org.apache.kafka.connect.data.Time"
TIMESTAMP: Final = "org.apache.kafka.connect.data.Timestamp"

NUMBER_CLASSES: Final[dict[Type, type]] = {
    Type.INT8: Int8,
    Type.INT16: Int16,
    Type.INT32: Int32,
    Type.INT64: int,
    Type.FLOAT32: Float32,
    Type.FLOAT64: float,
}
"""The class of each numeric type, from the narrowest to the widest."""
CLASSES: Final[dict[Type, tuple[type, ...]]] = {
    **{kind: (number,) for kind, number in NUMBER_CLASSES.items()},
    Type.BOOLEAN: (bool,),
    Type.STRING: (str,),
    Type.BYTES: (bytes, bytearray, memoryview),
    Type.ARRAY: (list, tuple),
    Type.MAP: (dict,),
    Type.STRUCT: (),
}
"""The classes of each type's values; a struct's is :class:`~headerware.connect.data.struct.Struct`."""
LOGICAL_CLASSES: Final[dict[str, tuple[type, ...]]] = {
    DECIMAL: (DecimalNumber,),
    DATE: (datetime, Instant),
    TIME: (datetime, Instant),
    TIMESTAMP: (datetime, Instant),
}
"""The classes of the logical types' values, by the schema's name."""
_NESTED: Final = frozenset({Type.ARRAY, Type.MAP, Type.STRUCT})
_SCALARS: Final = {kind: classes for kind, classes in CLASSES.items() if kind not in _NESTED}
_NO_INT64: Final = (bool, Int8, Int16, Int32, BigInteger, Instant)


def classes_of(schema: Schema) -> tuple[type, ...]:
    """Return the classes that a schema's values have."""
    return LOGICAL_CLASSES.get(schema.name or "") or CLASSES[schema.type]


def is_instance(value: Any, classes: tuple[type, ...]) -> bool:
    """Return whether a value is of one of these classes; as in Connect, an Int8 is not an int64."""
    if value.__class__ in classes:
        return True
    if not isinstance(value, classes):
        return False
    if isinstance(value, int) and int in classes:
        return not isinstance(value, _NO_INT64)
    return not (isinstance(value, Float32) and float in classes)


def fits_scalar(schema: Schema, value: Any) -> bool:
    """Return whether a value certainly fits: a scalar of exactly the class of a schema without a name.

    For most values this saves a call of :func:`validate_value`.
    """
    return schema.name is None and value.__class__ in _SCALARS.get(schema.type, ())


def validate_value(schema: Schema, value: Any, where: str = "value") -> None:
    """Raise an error if a value does not fit its schema.

    Args:
        schema: the schema.
        value: the value; a plain int is an int64, see :class:`~headerware.connect.data.numbers.Int32`.
        where: the name of the value in the error.

    Raises:
        ConnectDataError: the value does not fit; the message says where, and which class was found.
    """
    if value is None:
        if not schema.optional:
            raise ConnectDataError(f"expected {described(schema)} for required {where}, found null")
        return
    kind = schema.type
    if kind is Type.STRUCT and (schema.name is None or schema.name not in LOGICAL_CLASSES):
        value_schema = getattr(value, "schema", None)
        if not isinstance(value_schema, Schema):
            raise _mismatch(schema, value, where)
        if value_schema != schema:
            raise ConnectDataError(
                f"{where} is a struct of another schema, {value_schema}; expected {schema}"
            )
        value.validate()
        return
    if not is_instance(value, classes_of(schema)):
        raise _mismatch(schema, value, where)
    if kind is Type.ARRAY:
        _validate_array(schema, value, where)
    elif kind is Type.MAP:
        _validate_map(schema, value, where)


def _validate_array(schema: Schema, values: Any, where: str) -> None:
    where = f"element of array {where}"
    element = _present(schema.value_schema, where)
    for value in values:
        validate_value(element, value, where)


def _validate_map(schema: Schema, entries: Any, where: str) -> None:
    of_key, of_value = f"key of map {where}", f"value of map {where}"
    key_schema, value_schema = _present(schema.key_schema, of_key), _present(schema.value_schema, of_value)
    for key, value in entries.items():
        validate_value(key_schema, key, of_key)
        validate_value(value_schema, value, of_value)


def _present(schema: Schema | None, where: str) -> Schema:
    if schema is None:
        raise ConnectDataError(f"there is no schema for {where}")
    return schema


def _mismatch(schema: Schema, value: Any, where: str) -> ConnectDataError:
    found = type(value).__name__
    return ConnectDataError(f"expected {described(schema)} for {where}, found a value of class {found}")


def described(schema: Schema) -> str:
    """Return a schema's type and name for an error: ``int32``, or ``int32 (org.apache...Date)``."""
    return schema.type.value if schema.name is None else f"{schema.type.value} ({schema.name})"


class SchemaBuilder:
    """Build a schema step by step; each method returns the builder itself.

    Args:
        type: the schema's type.

    Raises:
        SchemaBuilderError: there is no type. Each method raises it if it is called again with another value.

    Not safe for use by several threads at once.
    """

    __slots__ = ("_facts", "_fields", "_key_schema", "_parameters", "_type", "_value_schema")

    def __init__(self, type: Type | None) -> None:  # noqa: A002 - Connect's name for it
        if type is None:
            raise SchemaBuilderError("expected a type, found None")
        self._type = type
        self._facts: dict[str, Any] = {}
        self._fields: dict[str, Field] = {}
        self._parameters: dict[str, str] | None = None
        self._key_schema: Schema | None = None
        self._value_schema: Schema | None = None

    @classmethod
    def int8(cls) -> Self:
        """Return a builder for a schema of 8-bit integers."""
        return cls(Type.INT8)

    @classmethod
    def int16(cls) -> Self:
        """Return a builder for a schema of 16-bit integers."""
        return cls(Type.INT16)

    @classmethod
    def int32(cls) -> Self:
        """Return a builder for a schema of 32-bit integers."""
        return cls(Type.INT32)

    @classmethod
    def int64(cls) -> Self:
        """Return a builder for a schema of 64-bit integers."""
        return cls(Type.INT64)

    @classmethod
    def float32(cls) -> Self:
        """Return a builder for a schema of 32-bit floating-point numbers."""
        return cls(Type.FLOAT32)

    @classmethod
    def float64(cls) -> Self:
        """Return a builder for a schema of 64-bit floating-point numbers."""
        return cls(Type.FLOAT64)

    @classmethod
    def boolean(cls) -> Self:
        """Return a builder for a schema of booleans."""
        return cls(Type.BOOLEAN)

    @classmethod
    def string(cls) -> Self:
        """Return a builder for a schema of text."""
        return cls(Type.STRING)

    @classmethod
    def bytes(cls) -> Self:
        """Return a builder for a schema of bytes."""
        return cls(Type.BYTES)

    @classmethod
    def struct(cls) -> Self:
        """Return a builder for a schema of structs; :meth:`field` adds their fields."""
        return cls(Type.STRUCT)

    @classmethod
    def array(cls, value_schema: Schema | SchemaBuilder | None) -> Self:
        """Return a builder for a schema of lists.

        Args:
            value_schema: the schema of their elements.
        """
        builder = cls(Type.ARRAY)
        builder._value_schema = _required(value_schema, "value_schema")
        return builder

    @classmethod
    def map(
        cls, key_schema: Schema | SchemaBuilder | None, value_schema: Schema | SchemaBuilder | None
    ) -> Self:
        """Return a builder for a schema of dicts.

        Args:
            key_schema: the schema of the keys.
            value_schema: the schema of the values.
        """
        builder = cls(Type.MAP)
        builder._key_schema = _required(key_schema, "key_schema")
        builder._value_schema = _required(value_schema, "value_schema")
        return builder

    @classmethod
    def like(cls, schema: Schema, *, fields: bool = False) -> Self:
        """Return a builder for a schema with the type, name, version, doc and parameters of another schema.

        Args:
            schema: the other schema.
            fields: whether to take its fields as well.
        """
        builder = cls(schema.type)
        if schema.type is Type.ARRAY or schema.type is Type.MAP:
            builder._value_schema = schema.value_schema
        if schema.type is Type.MAP:
            builder._key_schema = schema.key_schema
        given = {"name": schema.name, "version": schema.version, "doc": schema.doc}
        builder._facts = {fact: value for fact, value in given.items() if value is not None}
        if schema.parameters:
            builder._parameters = dict(schema.parameters)
        if fields and schema.type is Type.STRUCT:
            builder._fields = {field.name: field for field in schema.fields}
        return builder

    def optional(self) -> Self:
        """Allow null."""
        return self._set("optional", value=True)

    def required(self) -> Self:
        """Forbid null."""
        return self._set("optional", value=False)

    def name(self, name: str | None) -> Self:
        """Set the name."""
        return self._set("name", name)

    def version(self, version: int | None) -> Self:
        """Set the version."""
        return self._set("version", version)

    def doc(self, doc: str | None) -> Self:
        """Set the description."""
        return self._set("doc", doc)

    def default(self, value: Any) -> Self:
        """Set the default, which stands for null.

        Raises:
            SchemaBuilderError: there is another default, or the value does not fit the schema.
        """
        if self._facts.get("default") is not None and self._facts["default"] is not value:
            raise SchemaBuilderError("the default has been set before")
        try:
            validate_value(self.build(), value)
        except ConnectDataError as error:
            raise SchemaBuilderError(f"the default does not fit the schema: {error}") from error
        return self._set("default", value)

    def parameter(self, name: str, value: str) -> Self:
        """Set a parameter; the last value counts."""
        self._parameters = {**(self._parameters or {}), name: value}
        return self

    def parameters(self, parameters: Mapping[str, str]) -> Self:
        """Set several parameters."""
        if parameters:
            self._parameters = {**(self._parameters or {}), **parameters}
        return self

    def field(self, name: str, schema: Schema | SchemaBuilder | None) -> Self:
        """Add a field to a struct.

        Raises:
            SchemaBuilderError: this is not a struct, the name is empty or taken, or there is no schema.
        """
        if self._type is not Type.STRUCT:
            raise SchemaBuilderError(f"only a struct has fields; this is of type {self._type.value}")
        if not name:
            raise SchemaBuilderError("expected a field's name, found none")
        if schema is None:
            raise SchemaBuilderError(f"expected a schema for field {name!r}, found None")
        if name in self._fields:
            raise SchemaBuilderError(f"field {name!r} exists already")
        self._fields[name] = Field(name, len(self._fields), _built(schema))
        return self

    def build(self) -> Schema:
        """Return the schema."""
        return Schema(
            self._type,
            **self._facts,
            parameters=self._parameters,
            fields=tuple(self._fields.values()),
            key_schema=self._key_schema,
            value_schema=self._value_schema,
        )

    def _set(self, fact: str, value: Any) -> Self:
        before = self._facts.get(fact)
        if before is not None and before != value:
            raise SchemaBuilderError(f"{fact} has been set before, to another value")
        self._facts[fact] = value
        return self

    def __repr__(self) -> str:
        return f"SchemaBuilder({self.build()})"


def _built(schema: Schema | SchemaBuilder) -> Schema:
    if isinstance(schema, Schema | SchemaBuilder):
        return schema if isinstance(schema, Schema) else schema.build()
    raise SchemaBuilderError(f"expected a schema, such as INT64_SCHEMA, found {type(schema).__name__}")


def _required(schema: Schema | SchemaBuilder | None, what: str) -> Schema:
    if schema is None:
        raise SchemaBuilderError(f"expected a {what}, found None")
    return _built(schema)
