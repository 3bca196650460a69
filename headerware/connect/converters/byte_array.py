"""ByteArrayConverter: bytes as they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from headerware.connect.converters.dual import DualConverter
from headerware.connect.data.schema import OPTIONAL_BYTES_SCHEMA, Schema, SchemaAndValue, Type
from headerware.connect.errors import ConnectDataError
from headerware.connect.modes import KAFKA_4_3, STRICT, Mode

_BYTES: Final = (bytes, bytearray, memoryview)


class ByteArrayConverter(DualConverter):
    """Pass bytes through.

    Args:
        config: ``converter.type`` at most; ``kafka_4_3`` looks at nothing.
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
