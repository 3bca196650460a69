"""Build a schema step by step (KIP-26): ``SchemaBuilder.struct().field("id", INT64_SCHEMA).build()``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from headerware.connect.data.schema import Field, Schema, Type
from headerware.connect.data.validation import validate_value
from headerware.connect.errors import ConnectDataError, SchemaBuilderError

if TYPE_CHECKING:
    from collections.abc import Mapping


class SchemaBuilder:
    """Collect what a schema says; each method gives the builder itself, and may set a thing once.

    Args:
        type: the schema's type.

    Raises:
        SchemaBuilderError: no type. Each method raises it for what was set before to something else.

    Not safe for use by several threads at once.
    """

    __slots__ = ("_facts", "_fields", "_key_schema", "_parameters", "_type", "_value_schema")

    def __init__(self, type: Type | None) -> None:  # noqa: A002 - what Connect calls it
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
        """Open a schema of 8-bit integers."""
        return cls(Type.INT8)

    @classmethod
    def int16(cls) -> Self:
        """Open a schema of 16-bit integers."""
        return cls(Type.INT16)

    @classmethod
    def int32(cls) -> Self:
        """Open a schema of 32-bit integers."""
        return cls(Type.INT32)

    @classmethod
    def int64(cls) -> Self:
        """Open a schema of 64-bit integers."""
        return cls(Type.INT64)

    @classmethod
    def float32(cls) -> Self:
        """Open a schema of 32-bit floating-point numbers."""
        return cls(Type.FLOAT32)

    @classmethod
    def float64(cls) -> Self:
        """Open a schema of 64-bit floating-point numbers."""
        return cls(Type.FLOAT64)

    @classmethod
    def boolean(cls) -> Self:
        """Open a schema of booleans."""
        return cls(Type.BOOLEAN)

    @classmethod
    def string(cls) -> Self:
        """Open a schema of text."""
        return cls(Type.STRING)

    @classmethod
    def bytes(cls) -> Self:
        """Open a schema of bytes."""
        return cls(Type.BYTES)

    @classmethod
    def struct(cls) -> Self:
        """Open a schema of structs; :meth:`field` adds their fields."""
        return cls(Type.STRUCT)

    @classmethod
    def array(cls, value_schema: Schema | SchemaBuilder | None) -> Self:
        """Open a schema of lists.

        Args:
            value_schema: what the lists hold.
        """
        builder = cls(Type.ARRAY)
        builder._value_schema = _required(value_schema, "value_schema")
        return builder

    @classmethod
    def map(
        cls, key_schema: Schema | SchemaBuilder | None, value_schema: Schema | SchemaBuilder | None
    ) -> Self:
        """Open a schema of dicts.

        Args:
            key_schema: what their keys are.
            value_schema: what their values are.
        """
        builder = cls(Type.MAP)
        builder._key_schema = _required(key_schema, "key_schema")
        builder._value_schema = _required(value_schema, "value_schema")
        return builder

    @classmethod
    def like(cls, schema: Schema, *, fields: bool = False) -> Self:
        """Open a schema with the type, name, version, doc and parameters of another (transforms do that).

        Args:
            schema: the other one.
            fields: whether to take its fields, too.
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
        """Let null be a value."""
        return self._set("optional", value=True)

    def required(self) -> Self:
        """Let null be no value."""
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
        """Set what stands for null.

        Raises:
            SchemaBuilderError: there is another default, or the schema does not admit this value.
        """
        if self._facts.get("default") is not None and self._facts["default"] is not value:
            raise SchemaBuilderError("the default has been set before")
        try:
            validate_value(self.build(), value)
        except ConnectDataError as error:
            raise SchemaBuilderError(f"the default does not fit the schema: {error}") from error
        return self._set("default", value)

    def parameter(self, name: str, value: str) -> Self:
        """Set a parameter; the last one of a name counts."""
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
            SchemaBuilderError: this is no struct, the name is empty or taken, or there is no schema.
        """
        if self._type is not Type.STRUCT:
            raise SchemaBuilderError(f"only a struct has fields; this is of type {self._type.value}")
        if not name:
            raise SchemaBuilderError("expected a field's name, found none")
        if schema is None:
            raise SchemaBuilderError(f"expected a schema for field {name!r}, found None")
        if name in self._fields:
            raise SchemaBuilderError(f"field {name!r} is there already")
        self._fields[name] = Field(name, len(self._fields), built(schema))
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
            raise SchemaBuilderError(f"{fact} has been set before, to something else")
        self._facts[fact] = value
        return self

    def __repr__(self) -> str:
        return f"SchemaBuilder({self.build()})"


def built(schema: Schema | SchemaBuilder) -> Schema:
    """Return a schema, of a builder too."""
    if isinstance(schema, Schema | SchemaBuilder):
        return schema if isinstance(schema, Schema) else schema.build()
    raise SchemaBuilderError(f"expected a schema, such as INT64_SCHEMA, found {type(schema).__name__}")


def _required(schema: Schema | SchemaBuilder | None, what: str) -> Schema:
    if schema is None:
        raise SchemaBuilderError(f"expected a {what}, found None")
    return built(schema)
