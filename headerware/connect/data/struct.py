"""Structs: values with named fields, converted from plain Python values and back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime, time
from decimal import Decimal as DecimalNumber
from typing import Any, Final, Self

from headerware.connect.data.equality import alike
from headerware.connect.data.numbers import BigInteger, Float32, Int8, Int16, Int32
from headerware.connect.data.schema import (
    LOGICAL_CLASSES,
    NUMBER_CLASSES,
    Field,
    Schema,
    SchemaAndValue,
    Type,
    described,
    fits_scalar,
    validate_value,
)
from headerware.connect.data.times import Instant, from_epoch_ms, to_epoch_ms
from headerware.connect.errors import ConnectDataError


class Struct:  # noqa: PLW1641 - mutable, so not hashable
    """A value with the fields of a struct schema.

    Args:
        schema: a struct's schema; all fields are null at first.

    Raises:
        ConnectDataError: the schema is not of a struct.

    A struct reads like a dict: ``struct["id"]``, ``"id" in struct``, ``dict(struct)``. Not safe for changes
    by several threads at once.
    """

    __slots__ = ("schema", "values")

    def __init__(self, schema: Schema) -> None:
        if schema.type is not Type.STRUCT:
            raise ConnectDataError(f"expected a struct's schema, found {schema}")
        self.schema: Final[Schema] = schema
        self.values: list[Any] = [None] * len(schema.by_name)
        """The values in the order of the fields; None if a field takes its default."""

    @classmethod
    def of(cls, schema: Schema, values: Mapping[str, Any]) -> Self:
        """Make a struct of plain Python values, which take the widths and shapes of the schema.

        Args:
            schema: the struct's schema.
            values: by field: plain ints and floats in the range of their type, dates, times, dicts for
                structs. Fields that are left out are null.

        Raises:
            ConnectDataError: a field is unknown, or a value does not fit.
        """
        made = conformed(schema, values)
        assert isinstance(made, cls)  # noqa: S101 - conformed() returns a struct for a struct's schema
        return made

    @classmethod
    def trusted(cls, schema: Schema, values: list[Any]) -> Self:
        """Make a struct of values in the order of the fields, without checking them."""
        made = cls.__new__(cls)
        made.schema = schema  # type: ignore[misc]  # this is a constructor
        made.values = values
        return made

    def get(self, field: str | Field) -> Any:
        """Return a field's value, or its default if it is null.

        Raises:
            ConnectDataError: there is no such field.
        """
        known = self._field(field) if isinstance(field, str) else field
        value = self.values[known.index]
        return known.schema.default if value is None else value

    def get_without_default(self, name: str) -> Any:
        """Return a field's value without its default: None if the field is null.

        Raises:
            ConnectDataError: there is no such field.
        """
        return self.values[self._field(name).index]

    def put(self, field: str | Field, value: Any) -> Self:
        """Set a field, and return the struct itself.

        Args:
            field: the field, or its name.
            value: a value of exactly the field's type; :meth:`of` takes plain numbers of any width.

        Raises:
            ConnectDataError: there is no such field, or the value does not fit.
        """
        known = self._field(field) if isinstance(field, str) else field
        if known is None:
            raise ConnectDataError("expected a field, found None")
        if not fits_scalar(known.schema, value):
            validate_value(known.schema, value, f"field {known.name!r}")
        self.values[known.index] = value
        return self

    def validate(self) -> None:
        """Check every field; null fits if the field has a default.

        Raises:
            ConnectDataError: a value does not fit its field.
        """
        for field, value in zip(self.schema.fields, self.values, strict=True):
            if value is None and (field.schema.optional or field.schema.default is not None):
                continue
            if not fits_scalar(field.schema, value):
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
        """Return the fields as :func:`plain` Python values, with defaults."""
        made: dict[str, Any] = plain(self)
        return made

    def keys(self) -> list[str]:
        """Return the names of the fields, in order."""
        return list(self.schema.by_name)

    def __getitem__(self, name: str) -> Any:
        """Return a field's value, or its default if it is null; raise KeyError if there is no such field."""
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


_FLOATS: Final = frozenset({Type.FLOAT32, Type.FLOAT64})
_INT64: Final = range(-(1 << 63), 1 << 63)
_TOO_DEEP: Final = "the value is nested too deeply"


def conformed(schema: Schema, value: Any, where: str = "value") -> Any:
    """Return a plain Python value in the form of the schema: numbers of its widths, structs for mappings.

    Args:
        schema: the schema.
        value: the value: ints and floats within the range of their type, dates, times and datetimes, a
            mapping for a struct, a list or tuple for an array.
        where: the name of the value in errors.

    Raises:
        ConnectDataError: the value does not fit (the message says where), or is nested too deeply.
    """
    try:
        return _conformed(schema, value, where)
    except RecursionError:
        raise ConnectDataError(_TOO_DEEP) from None


def _conformed(schema: Schema, value: Any, where: str) -> Any:
    if value is not None:
        convert = _converters.get(schema.type)
        if schema.name in LOGICAL_CLASSES:
            value = _as_time(value)
        elif convert is not None:
            value = convert(schema, value, where)
    elif schema.default is not None:
        return None
    validate_value(schema, value, where)
    return value


def _as_time(value: Any) -> Any:
    if isinstance(value, datetime | date | time):
        return from_epoch_ms(to_epoch_ms(value))
    return value


def _number(schema: Schema, value: Any, where: str) -> Any:
    width = NUMBER_CLASSES[schema.type]
    plain = type(value) is int or (type(value) is float and schema.type in _FLOATS)
    if not plain:
        return value
    if width is int and value not in _INT64:
        raise ConnectDataError(f"expected an integer of 64 bits for {where}")
    try:
        return width(value)
    except ConnectDataError as error:
        raise ConnectDataError(f"{where}: {error}") from error


def _array(schema: Schema, value: Any, where: str) -> Any:
    element = schema.value_schema
    if not isinstance(value, list | tuple) or element is None:
        return value
    return [_conformed(element, item, f"element of array {where}") for item in value]


def _map(schema: Schema, value: Any, where: str) -> Any:
    of_key, of_value = schema.key_schema, schema.value_schema
    if not isinstance(value, Mapping) or of_key is None or of_value is None:
        return value
    return {
        _conformed(of_key, key, f"key of map {where}"): _conformed(of_value, item, f"value of map {where}")
        for key, item in value.items()
    }


def _struct(schema: Schema, value: Any, where: str) -> Any:
    if not isinstance(value, Mapping):
        return value
    if unknown := [name for name in value if name not in schema.by_name]:
        known = ", ".join(schema.by_name)
        raise ConnectDataError(f"{described(schema)} at {where} has no field {unknown[0]!r}; it has: {known}")
    return Struct.trusted(
        schema,
        [_conformed(field.schema, value.get(field.name), f"field {field.name!r}") for field in schema.fields],
    )


_converters: Final[dict[Type, Callable[[Schema, Any, str], Any]]] = {
    **dict.fromkeys(NUMBER_CLASSES, _number),
    Type.ARRAY: _array,
    Type.MAP: _map,
    Type.STRUCT: _struct,
}


def plain(value: Any) -> Any:
    """Return a value as plain Python: structs as dicts, with defaults, and numbers without a width.

    A :class:`SchemaAndValue` becomes its value. Bytes become ``bytes``; points in time stay datetimes.

    Raises:
        ConnectDataError: the value is nested too deeply.
    """
    try:
        return _plain(value)
    except RecursionError:
        raise ConnectDataError(_TOO_DEEP) from None


def _plain(value: Any) -> Any:
    if isinstance(value, Struct):
        return {name: _plain(value[name]) for name in value}
    if isinstance(value, SchemaAndValue):
        return _plain(value.value)
    if isinstance(value, dict):
        return {_plain_key(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Int8 | Int16 | Int32 | BigInteger | Instant):
        return int(value)
    if isinstance(value, Float32):
        return float(value)
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    return value


def _plain_key(key: Any) -> Any:
    # A list that is a key is stored as a tuple, and stays a tuple.
    return tuple(map(_plain_key, key)) if isinstance(key, tuple) else _plain(key)
