"""Schemas: what a value is made of (KIP-26). They never change; a ``SchemaBuilder`` makes them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from headerware.connect.data.equality import alike
from headerware.connect.errors import ConnectDataError


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
        """Whether values of this type hold no others."""
        return self not in {Type.ARRAY, Type.MAP, Type.STRUCT}


class Schema:
    """Describe a value: its type, and whether it may be null.

    Args:
        type: the type.
        optional: whether null is a value.
        default: what stands for null; None means that nothing does.
        name: the name, such as a struct's or a logical type's.
        version: the version of what the name says.
        doc: a description.
        parameters: further facts of a logical type, such as a decimal's scale.
        fields: a struct's fields, in order.
        key_schema: what a map's keys are.
        value_schema: what a map's or an array's values are.

    Compared and hashed by content; safe for use by several threads.
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
        type: Type,  # noqa: A002 - what Connect calls it
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
        """A struct's fields by name; to be read only."""
        self._key_schema: Final = key_schema
        self._value_schema: Final = value_schema
        self._hash: int | None = None

    @property
    def fields(self) -> tuple[Field, ...]:
        """A struct's fields, in order.

        Raises:
            ConnectDataError: this is no struct.
        """
        self._only(Type.STRUCT, what="fields")
        return self._fields

    def field(self, name: str) -> Field | None:
        """Return a struct's field of this name, or None.

        Raises:
            ConnectDataError: this is no struct.
        """
        self._only(Type.STRUCT, what="fields")
        return self.by_name.get(name)

    @property
    def key_schema(self) -> Schema | None:
        """What a map's keys are; None for a map whose keys are all null.

        Raises:
            ConnectDataError: this is no map.
        """
        self._only(Type.MAP, what="a key schema")
        return self._key_schema

    @property
    def value_schema(self) -> Schema | None:
        """What an array's or a map's values are; None where they are all null.

        Raises:
            ConnectDataError: this is neither.
        """
        self._only(Type.MAP, Type.ARRAY, what="a value schema")
        return self._value_schema

    def _only(self, *types: Type, what: str) -> None:
        if self.type not in types:
            expected = " or ".join(kind.value for kind in types)
            raise ConnectDataError(f"{what} are of a schema of type {expected}; this one is {self}")

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
    """Name one part of a struct.

    Args:
        name: its name.
        index: its place, from 0.
        schema: what it holds.
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
    """Make a schema again when it is unpickled."""
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
