"""Connect's headers (KIP-145): an ordered multimap of names to values with schemas.

The core's :class:`~headerware.core.headers.Headers` are immutable and hold bytes. Connect's headers can be
changed in place, as in Java, until their record leaves the transforms; then they are frozen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from decimal import Decimal as DecimalNumber
from typing import Any, Self

from headerware.connect.data.equality import alike
from headerware.connect.data.logical import Date, Decimal, Time, Timestamp, scale_of
from headerware.connect.data.numbers import Float32, Int8, Int16, Int32
from headerware.connect.data.schema import (
    BOOLEAN_SCHEMA,
    BYTES_SCHEMA,
    CLASSES,
    FLOAT32_SCHEMA,
    FLOAT64_SCHEMA,
    INT8_SCHEMA,
    INT16_SCHEMA,
    INT32_SCHEMA,
    INT64_SCHEMA,
    LOGICAL_CLASSES,
    OPTIONAL_BYTES_SCHEMA,
    OPTIONAL_STRING_SCHEMA,
    STRING_SCHEMA,
    Schema,
    SchemaAndValue,
    Type,
    described,
    is_instance,
)
from headerware.connect.data.struct import Struct
from headerware.connect.data.times import Instant
from headerware.connect.errors import ConnectDataError, NullValueError
from headerware.core.errors import HeaderError

HeaderTransform = Callable[["ConnectHeader"], "ConnectHeader | None"]
"""Returns a replacement of a header, the same header, or None to remove it."""


class ConnectHeader:
    """One header; it never changes.

    Args:
        key: its name.
        schema: the schema of its value; None for a schemaless value.
        value: its value.

    Raises:
        NullValueError: there is no name.
    """

    __slots__ = ("_key", "_schema", "_value")

    def __init__(self, key: str, schema: Schema | None, value: Any) -> None:
        if key is None:
            raise NullValueError("expected a header's name, found None")
        self._key = key
        self._schema = schema
        self._value = value

    @property
    def key(self) -> str:
        """The name."""
        return self._key

    @property
    def schema(self) -> Schema | None:
        """The schema of the value; by default a struct's own schema."""
        if self._schema is None and isinstance(self._value, Struct):
            return self._value.schema
        return self._schema

    @property
    def value(self) -> Any:
        """The value."""
        return self._value

    def with_value(self, schema: Schema | None, value: Any) -> ConnectHeader:
        """Return a header of the same name with another value (Connect's ``with``)."""
        return ConnectHeader(self._key, schema, value)

    def rename(self, key: str) -> ConnectHeader:
        """Return a header of another name with the same value."""
        return self if key == self._key else ConnectHeader(key, self._schema, self._value)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ConnectHeader):
            return NotImplemented
        return self.key == other.key and self.schema == other.schema and alike(self.value, other.value)

    def __hash__(self) -> int:
        return hash((self.key, self.schema))

    def __repr__(self) -> str:
        """Show the name and the schema; a value may be secret."""
        return f"ConnectHeader(key={self.key}, schema={self.schema})"


class ConnectHeaders:  # noqa: PLW1641 - mutable, so not hashable
    """Hold a record's headers, in order; a name may occur more than once.

    Args:
        headers: the first headers.

    Methods that change headers return the headers themselves, and raise
    :class:`~headerware.core.errors.HeaderError` after :meth:`freeze`. Not safe for changes by several threads
    at once.
    """

    __slots__ = ("_frozen", "_headers")

    def __init__(self, headers: Iterable[ConnectHeader] | None = None) -> None:
        self._headers: list[ConnectHeader] = list(headers) if headers is not None else []
        self._frozen = False

    def add(self, key: str, value: Any, schema: Schema | None = None) -> Self:
        """Add a header with a value and its schema.

        Args:
            key: the name.
            value: the value; or a :class:`~headerware.connect.data.SchemaAndValue`, which has its schema.
            schema: the schema of the value; None for a schemaless value.

        Raises:
            ConnectDataError: the value is of another type than the schema's, or a SchemaAndValue is given
                with another schema.
        """
        if isinstance(value, SchemaAndValue):
            if schema is not None:
                raise ConnectDataError(
                    "this SchemaAndValue has its schema already; leave out the argument schema"
                )
            schema, value = value
        if schema is not None:
            _check_type(schema, value)
        return self.add_header(ConnectHeader(key, schema, value))

    def add_header(self, header: ConnectHeader | None) -> Self:
        """Add a header as it is.

        Raises:
            NullValueError: the header is None.
        """
        if header is None:
            raise NullValueError("expected a header, found None")
        self._changeable().append(header)
        return self

    def add_string(self, key: str, value: str | None) -> Self:
        """Add text, or null with the schema of optional text."""
        return self._add(key, OPTIONAL_STRING_SCHEMA if value is None else STRING_SCHEMA, value)

    def add_bytes(self, key: str, value: bytes | None) -> Self:
        """Add bytes, or null with the schema of optional bytes."""
        return self._add(key, OPTIONAL_BYTES_SCHEMA if value is None else BYTES_SCHEMA, value)

    def add_boolean(self, key: str, value: bool) -> Self:  # noqa: FBT001 - the header's value, not a flag
        """Add a boolean."""
        return self._add(key, BOOLEAN_SCHEMA, value)

    def add_byte(self, key: str, value: int) -> Self:
        """Add an integer of 8 bits."""
        return self._add(key, INT8_SCHEMA, Int8(value))

    def add_short(self, key: str, value: int) -> Self:
        """Add an integer of 16 bits."""
        return self._add(key, INT16_SCHEMA, Int16(value))

    def add_int(self, key: str, value: int) -> Self:
        """Add an integer of 32 bits."""
        return self._add(key, INT32_SCHEMA, Int32(value))

    def add_long(self, key: str, value: int) -> Self:
        """Add an integer of 64 bits."""
        return self._add(key, INT64_SCHEMA, value)

    def add_float(self, key: str, value: float) -> Self:
        """Add a floating-point number of 32 bits."""
        return self._add(key, FLOAT32_SCHEMA, Float32(value))

    def add_double(self, key: str, value: float) -> Self:
        """Add a floating-point number of 64 bits."""
        return self._add(key, FLOAT64_SCHEMA, float(value))

    def add_list(self, key: str, value: list[Any] | None, schema: Schema) -> Self:
        """Add a list, or a null without a schema.

        Raises:
            ConnectDataError: the schema is not of an array.
        """
        return self._add_nested(key, value, schema, Type.ARRAY)

    def add_map(self, key: str, value: dict[Any, Any] | None, schema: Schema) -> Self:
        """Add a dict, or a null without a schema.

        Raises:
            ConnectDataError: the schema is not of a map.
        """
        return self._add_nested(key, value, schema, Type.MAP)

    def add_struct(self, key: str, value: Struct | None) -> Self:
        """Add a struct, or a null without a schema."""
        return self._add(key, None if value is None else value.schema, value)

    def add_decimal(self, key: str, value: DecimalNumber | None) -> Self:
        """Add a decimal with its own scale, or a null without a schema."""
        return self._add(key, None if value is None else Decimal.schema(scale_of(value)), value)

    def add_date(self, key: str, value: datetime | Instant | None) -> Self:
        """Add a date.

        Raises:
            ConnectDataError: the value is not at midnight in UTC.
        """
        if value is not None:
            Date.from_logical(Date.SCHEMA, value)
        return self._add(key, Date.SCHEMA, value)

    def add_time(self, key: str, value: datetime | Instant | None) -> Self:
        """Add a time of day.

        Raises:
            ConnectDataError: the value is not on the first day of the epoch.
        """
        if value is not None:
            Time.from_logical(Time.SCHEMA, value)
        return self._add(key, Time.SCHEMA, value)

    def add_timestamp(self, key: str, value: datetime | Instant | None) -> Self:
        """Add a point in time."""
        return self._add(key, Timestamp.SCHEMA, value)

    def last_with_name(self, key: str) -> ConnectHeader | None:
        """Return the last header of this name, or None."""
        _check_key(key)
        return next((header for header in reversed(self._headers) if header.key == key), None)

    def all_with_name(self, key: str) -> Iterator[ConnectHeader]:
        """Return the headers of this name, in order."""
        return iter([header for header in self._headers if header.key == key])

    def remove(self, key: str) -> Self:
        """Remove all headers of this name."""
        _check_key(key)
        headers = self._changeable()
        headers[:] = [header for header in headers if header.key != key]
        return self

    def retain_latest(self, key: str | None = None) -> Self:
        """Keep only the last header of each name, or of the given name, in its position."""
        seen: set[str] = set()
        kept: list[ConnectHeader] = []
        headers = self._changeable()
        for header in reversed(headers):
            if (key is not None and header.key != key) or header.key not in seen:
                seen.add(header.key)
                kept.append(header)
        headers[:] = kept[::-1]
        return self

    def apply(self, transform: HeaderTransform, key: str | None = None) -> Self:
        """Replace every header, or every header of one name, by a function's result; None removes it.

        If the function raises, the headers before the failing one have already been changed, as in Connect.
        """
        headers = self._changeable()
        at = 0
        while at < len(headers):
            header = headers[at]
            updated = transform(header) if key is None or header.key == key else header
            if updated is None:
                del headers[at]
            else:
                headers[at] = updated
                at += 1
        return self

    def clear(self) -> Self:
        """Remove all headers."""
        self._changeable().clear()
        return self

    def duplicate(self) -> ConnectHeaders:
        """Return a copy that can be changed."""
        return ConnectHeaders(self._headers)

    def freeze(self) -> Self:
        """Refuse every later change, because the record has left the transforms."""
        self._frozen = True
        return self

    def __iter__(self) -> Iterator[ConnectHeader]:
        return iter(self._headers)

    def __len__(self) -> int:
        return len(self._headers)

    def __contains__(self, key: object) -> bool:
        return any(header.key == key for header in self._headers)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ConnectHeaders):
            return NotImplemented
        return self._headers == other._headers

    def __repr__(self) -> str:
        """Show the names; values may be secret."""
        return f"ConnectHeaders({', '.join(header.key for header in self._headers)})"

    def _add(self, key: str, schema: Schema | None, value: Any) -> Self:
        if schema is not None and value is not None:
            _check_type(schema, value)
        return self.add_header(ConnectHeader(key, schema, value))

    def _add_nested(self, key: str, value: Any, schema: Schema, kind: Type) -> Self:
        if value is None:
            return self._add(key, None, None)
        if schema is None:
            raise NullValueError(f"expected a schema of type {kind.value}, found None")
        if schema.type is not kind:
            raise ConnectDataError(f"expected a schema of type {kind.value}, found {schema}")
        return self._add(key, schema, value)

    def _changeable(self) -> list[ConnectHeader]:
        if self._frozen:
            raise HeaderError(
                "these headers are frozen, because their record has left the transforms; change a duplicate()"
            )
        return self._headers


def _check_key(key: str) -> None:
    if key is None:
        raise NullValueError("expected a header's name, found None")


def _check_type(schema: Schema, value: Any) -> None:
    """Refuse a value of another type than its schema's; nested values are not checked, as in Connect."""
    if value is None:
        if not schema.optional:
            raise ConnectDataError(f"a null header needs an optional schema; this one is {schema}")
        return
    if schema.type is Type.STRUCT:
        fits = isinstance(value, Struct)
    else:
        fits = is_instance(value, CLASSES[schema.type] + LOGICAL_CLASSES.get(schema.name or "", ()))
    if not fits:
        found = type(value).__name__
        raise ConnectDataError(f"expected {described(schema)} for a header, found a value of class {found}")
