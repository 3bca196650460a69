"""Struct: a value with named fields, as its schema says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Self

from headerware.connect.data.equality import alike
from headerware.connect.data.schema import Field, Schema, Type
from headerware.connect.data.validation import is_plain, validate_value
from headerware.connect.errors import ConnectDataError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime
    from decimal import Decimal as DecimalNumber

    from headerware.connect.data.numbers import Float32, Int8, Int16, Int32
    from headerware.connect.data.times import Instant


class Struct:  # noqa: PLW1641 - it changes, so nothing can be found by it
    """Hold the values of a struct schema's fields.

    Args:
        schema: the schema; a new struct's fields are all null.

    Raises:
        ConnectDataError: this is no struct schema.

    It can be read like a dict: ``struct["id"]``, ``"id" in struct``, ``dict(struct)``. Not safe for changes
    by several threads at once.
    """

    __slots__ = ("schema", "values")

    def __init__(self, schema: Schema) -> None:
        if schema.type is not Type.STRUCT:
            raise ConnectDataError(f"expected a struct's schema, found {schema}")
        self.schema: Final[Schema] = schema
        self.values: list[Any] = [None] * len(schema.by_name)
        """The values in the order of the fields, null where a default stands for it."""

    @classmethod
    def of(cls, schema: Schema, values: Mapping[str, Any]) -> Self:
        """Make a struct of plain Python values, which take the widths and shapes of the schema.

        Args:
            schema: the struct's schema.
            values: by field: plain ints and floats in the range of their type, dates, times, dicts for
                structs; what is left out is null.

        Raises:
            ConnectDataError: an unknown field, or a value that does not fit.
        """
        from headerware.connect.data.conforming import conformed  # noqa: PLC0415 - it makes structs itself

        made = conformed(schema, values)
        assert isinstance(made, cls)  # noqa: S101 - that is what a struct's schema gives
        return made

    @classmethod
    def trusted(cls, schema: Schema, values: list[Any]) -> Self:
        """Take values that are known to fit, in the order of the fields, without looking at them."""
        made = cls.__new__(cls)
        made.schema = schema  # type: ignore[misc]  # this is a constructor
        made.values = values
        return made

    def get(self, field: str | Field) -> Any:
        """Return a field's value, or its default where that is null.

        Raises:
            ConnectDataError: there is no such field.
        """
        known = self._field(field) if isinstance(field, str) else field
        value = self.values[known.index]
        return known.schema.default if value is None else value

    def get_without_default(self, name: str) -> Any:
        """Return a field's value as it is, null too.

        Raises:
            ConnectDataError: there is no such field.
        """
        return self.values[self._field(name).index]

    def put(self, field: str | Field, value: Any) -> Self:
        """Set a field, and give the struct itself.

        Args:
            field: the field, or its name.
            value: a value of exactly the field's type; :meth:`of` takes plain numbers of any width.

        Raises:
            ConnectDataError: there is no such field, or the value does not fit.
        """
        known = self._field(field) if isinstance(field, str) else field
        if known is None:
            raise ConnectDataError("expected a field, found None")
        if not is_plain(known.schema, value):
            validate_value(known.schema, value, f"field {known.name!r}")
        self.values[known.index] = value
        return self

    def validate(self) -> None:
        """Refuse a field whose value does not fit; a null that has a default does.

        Raises:
            ConnectDataError: the first one that does not.
        """
        for field, value in zip(self.schema.fields, self.values, strict=True):
            if value is None and (field.schema.optional or field.schema.default is not None):
                continue
            if not is_plain(field.schema, value):
                validate_value(field.schema, value, f"field {field.name!r}")

    def get_int8(self, name: str) -> Int8 | None:
        """Return an int8 field."""
        found: Int8 | None = self._typed(name, Type.INT8)
        return found

    def get_int16(self, name: str) -> Int16 | None:
        """Return an int16 field."""
        found: Int16 | None = self._typed(name, Type.INT16)
        return found

    def get_int32(self, name: str) -> Int32 | datetime | Instant | None:
        """Return an int32 field."""
        found: Int32 | datetime | Instant | None = self._typed(name, Type.INT32)
        return found

    def get_int64(self, name: str) -> int | datetime | Instant | None:
        """Return an int64 field."""
        found: int | datetime | Instant | None = self._typed(name, Type.INT64)
        return found

    def get_float32(self, name: str) -> Float32 | None:
        """Return a float32 field."""
        found: Float32 | None = self._typed(name, Type.FLOAT32)
        return found

    def get_float64(self, name: str) -> float | None:
        """Return a float64 field."""
        found: float | None = self._typed(name, Type.FLOAT64)
        return found

    def get_boolean(self, name: str) -> bool | None:
        """Return a boolean field."""
        found: bool | None = self._typed(name, Type.BOOLEAN)
        return found

    def get_string(self, name: str) -> str | None:
        """Return a string field."""
        found: str | None = self._typed(name, Type.STRING)
        return found

    def get_bytes(self, name: str) -> bytes | DecimalNumber | None:
        """Return a bytes field."""
        found: Any = self._typed(name, Type.BYTES)
        value: bytes | DecimalNumber | None = (
            bytes(found) if isinstance(found, bytearray | memoryview) else found
        )
        return value

    def get_array(self, name: str) -> list[Any] | None:
        """Return an array field."""
        found: list[Any] | None = self._typed(name, Type.ARRAY)
        return found

    def get_map(self, name: str) -> dict[Any, Any] | None:
        """Return a map field."""
        found: dict[Any, Any] | None = self._typed(name, Type.MAP)
        return found

    def get_struct(self, name: str) -> Struct | None:
        """Return a struct field."""
        found: Struct | None = self._typed(name, Type.STRUCT)
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return plain Python values by field: with defaults, structs as dicts, numbers without a width."""
        from headerware.connect.data.conforming import plain  # noqa: PLC0415 - it reads structs itself

        made: dict[str, Any] = plain(self)
        return made

    def keys(self) -> list[str]:
        """Return the names of the fields, in order."""
        return list(self.schema.by_name)

    def __getitem__(self, name: str) -> Any:
        """Return a field's value, as :meth:`get` does; a KeyError where there is no such field."""
        field = self.schema.by_name[name]
        value = self.values[field.index]
        return field.schema.default if value is None else value

    def __setitem__(self, name: str, value: Any) -> None:
        self.put(name, value)

    def __contains__(self, name: object) -> bool:
        return name in self.schema.by_name

    def __iter__(self) -> Iterator[str]:
        return iter(self.schema.by_name)

    def __len__(self) -> int:
        return len(self.values)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Struct):
            return NotImplemented
        return self.schema == other.schema and alike(self.values, other.values)

    def __repr__(self) -> str:
        """Show the fields that are set, without their values, which may be secret."""
        names = (
            name for name, value in zip(self.schema.by_name, self.values, strict=True) if value is not None
        )
        return f"Struct({self.schema}: {', '.join(names)})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Struct.trusted, (self.schema, self.values)

    def _field(self, name: str) -> Field:
        field = self.schema.by_name.get(name)
        if field is None:
            raise ConnectDataError(
                f"{self.schema} has no field {name!r}; it has: {', '.join(self.schema.by_name)}"
            )
        return field

    def _typed(self, name: str, kind: Type) -> Any:
        field = self._field(name)
        if field.schema.type is not kind:
            raise ConnectDataError(f"field {name!r} is of type {field.schema.type.value}, not {kind.value}")
        return self.values[field.index]
