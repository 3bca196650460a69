"""The converters of one primitive value, in the bytes that Kafka's own serializers write.

BooleanConverter     1 byte, 0 for false or 1 for true
ShortConverter       2 bytes, big-endian, signed
IntegerConverter     4 bytes, big-endian, signed
LongConverter        8 bytes, big-endian, signed
FloatConverter       4 bytes, big-endian, IEEE 754
DoubleConverter      8 bytes, big-endian, IEEE 754
ByteArrayConverter   the bytes as they are
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from typing import Any, ClassVar, Final

from headerware.connect.converters.base import DualConverter
from headerware.connect.data.numbers import Float32, Int16, Int32
from headerware.connect.data.schema import (
    OPTIONAL_BOOLEAN_SCHEMA,
    OPTIONAL_BYTES_SCHEMA,
    OPTIONAL_FLOAT32_SCHEMA,
    OPTIONAL_FLOAT64_SCHEMA,
    OPTIONAL_INT16_SCHEMA,
    OPTIONAL_INT32_SCHEMA,
    OPTIONAL_INT64_SCHEMA,
    Schema,
    SchemaAndValue,
    Type,
    classes_of,
    is_instance,
)
from headerware.connect.errors import ConnectDataError
from headerware.connect.modes import KAFKA_4_3, STRICT, Mode

_BOOLEANS: Final = {
    data: SchemaAndValue(OPTIONAL_BOOLEAN_SCHEMA, value)
    for data, value in ((None, None), (b"\0", False), (b"\1", True))
}
_BYTES: Final = (bytes, bytearray, memoryview)


class BooleanConverter(DualConverter):
    """Convert booleans."""

    def from_connect_data(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:  # noqa: ARG002 - the same for all topics
        """Return the byte of a boolean.

        Raises:
            ConnectDataError: the schema is of another type, or the value is.
        """
        if schema is not None and schema.type is not Type.BOOLEAN:
            raise ConnectDataError(f"BooleanConverter expected a schema of type boolean, found {schema}")
        if value is None:
            return None
        if not isinstance(value, bool):
            raise ConnectDataError(f"BooleanConverter expected a boolean, found {type(value).__name__}")
        return b"\1" if value else b"\0"

    def to_connect_data(self, topic: str, data: bytes | None) -> SchemaAndValue:  # noqa: ARG002 - the same for all topics
        """Return the boolean of a byte, with the schema of optional booleans.

        Raises:
            ConnectDataError: the data is not one byte, 0 or 1.
        """
        found = _BOOLEANS.get(data)
        if found is None:
            raise ConnectDataError(
                f"expected one byte, 0 or 1, found {len(data or b'')} bytes of another kind"
            )
        return found


class NumberConverter(DualConverter):
    """The base class of the number converters.

    The ``strict`` mode refuses a schema of another type, which Kafka ignores, and accepts a plain Python
    number without a schema if the converter's type can hold it exactly.
    """

    SCHEMA: ClassVar[Schema]
    """The schema of the values that are read; optional, because null is read as null."""
    WIDTH: ClassVar[type]
    """The class of the values."""
    FORMAT: ClassVar[struct.Struct]
    """The byte format."""

    def from_connect_data(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:  # noqa: ARG002 - the same for all topics
        """Return the bytes of a number."""
        if self.mode == STRICT:
            value = self._checked(schema, value)
        if value is None:
            return None
        if not is_instance(value, classes_of(self.SCHEMA)):
            raise ConnectDataError(f"{self._shown()}, found {type(value).__name__}")
        try:
            return self.FORMAT.pack(value)
        except (struct.error, OverflowError):
            raise ConnectDataError(f"{self._shown()}, found a number that is out of range") from None

    def to_connect_data(self, topic: str, data: bytes | None) -> SchemaAndValue:  # noqa: ARG002 - the same for all topics
        """Return the number of the bytes, with the schema of optional numbers."""
        if data is None:
            return SchemaAndValue(self.SCHEMA, None)
        if len(data) != self.FORMAT.size:
            raise ConnectDataError(
                f"{type(self).__name__} expected {self.FORMAT.size} bytes, found {len(data)}"
            )
        return SchemaAndValue(self.SCHEMA, self.WIDTH(self.FORMAT.unpack(data)[0]))

    def _shown(self) -> str:
        return f"{type(self).__name__} expected an {self.SCHEMA.type.value}"

    def _checked(self, schema: Schema | None, value: Any) -> Any:
        if schema is not None:
            if schema.type is not self.SCHEMA.type:
                raise ConnectDataError(f"{self._shown()}, found a value of {schema}")
            return value
        if value.__class__ is int or (value.__class__ is float and issubclass(self.WIDTH, float)):
            return self._widened(value)
        return value

    def _widened(self, value: float) -> Any:
        try:
            made = self.WIDTH(value)
        except (ConnectDataError, OverflowError):
            raise ConnectDataError(f"{self._shown()}, found a number that is out of range") from None
        if made != value and value == value:  # noqa: PLR0124 - NaN alone is not itself
            raise ConnectDataError(f"{self._shown()}, found a number that it cannot hold exactly")
        return made


class ShortConverter(NumberConverter):
    """Convert 16-bit integers."""

    SCHEMA: ClassVar[Schema] = OPTIONAL_INT16_SCHEMA
    WIDTH: ClassVar[type] = Int16
    FORMAT: ClassVar[struct.Struct] = struct.Struct(">h")


class IntegerConverter(NumberConverter):
    """Convert 32-bit integers."""

    SCHEMA: ClassVar[Schema] = OPTIONAL_INT32_SCHEMA
    WIDTH: ClassVar[type] = Int32
    FORMAT: ClassVar[struct.Struct] = struct.Struct(">i")


class LongConverter(NumberConverter):
    """Convert 64-bit integers."""

    SCHEMA: ClassVar[Schema] = OPTIONAL_INT64_SCHEMA
    WIDTH: ClassVar[type] = int
    FORMAT: ClassVar[struct.Struct] = struct.Struct(">q")


class FloatConverter(NumberConverter):
    """Convert 32-bit floating-point numbers."""

    SCHEMA: ClassVar[Schema] = OPTIONAL_FLOAT32_SCHEMA
    WIDTH: ClassVar[type] = Float32
    FORMAT: ClassVar[struct.Struct] = struct.Struct(">f")


class DoubleConverter(NumberConverter):
    """Convert 64-bit floating-point numbers."""

    SCHEMA: ClassVar[Schema] = OPTIONAL_FLOAT64_SCHEMA
    WIDTH: ClassVar[type] = float
    FORMAT: ClassVar[struct.Struct] = struct.Struct(">d")

    def from_connect_data(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        """Return the bytes of a number; as in Java, every NaN of 64 bits has the same bytes.

        Raises:
            ConnectDataError: the value is of another class, or, in the strict mode, the schema is of another
                type.
        """
        is_nan = isinstance(value, float) and not isinstance(value, Float32) and math.isnan(value)
        return super().from_connect_data(topic, schema, math.nan if is_nan else value)


class ByteArrayConverter(DualConverter):
    """Pass bytes through.

    Args:
        config: ``converter.type`` at most; the ``kafka_4_3`` mode ignores all keys.
        mode: ``strict`` or ``kafka_4_3``.

    Raises:
        ConnectConfigError: an unknown key.
    """

    def __init__(self, config: Mapping[str, Any] | None = None, *, mode: Mode = STRICT) -> None:
        super().__init__(None if mode == KAFKA_4_3 else config, mode=mode)

    def from_connect_data(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:  # noqa: ARG002 - the same for all topics
        """Return the bytes.

        Raises:
            ConnectDataError: the schema is of another type, or the value is.
        """
        if schema is not None and schema.type is not Type.BYTES:
            raise ConnectDataError(f"ByteArrayConverter expected a schema of type bytes, found {schema}")
        if value is None or value.__class__ is bytes:
            return value
        if not isinstance(value, _BYTES):
            raise ConnectDataError(f"ByteArrayConverter expected bytes, found {type(value).__name__}")
        return bytes(value)

    def to_connect_data(self, topic: str, data: bytes | None) -> SchemaAndValue:  # noqa: ARG002 - the same for all topics
        """Return the bytes with the schema of optional bytes."""
        return SchemaAndValue(OPTIONAL_BYTES_SCHEMA, data)
