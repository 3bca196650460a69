"""BooleanConverter: one byte, 0 for false or 1 for true."""

from __future__ import annotations

from typing import Any, Final

from headerware.connect.converters.dual import DualConverter
from headerware.connect.data.schema import OPTIONAL_BOOLEAN_SCHEMA, Schema, SchemaAndValue, Type
from headerware.connect.errors import ConnectDataError

_READ: Final = {
    data: SchemaAndValue(OPTIONAL_BOOLEAN_SCHEMA, value)
    for data, value in ((None, None), (b"\0", False), (b"\1", True))
}


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
            ConnectDataError: it is not one byte, or neither 0 nor 1.
        """
        found = _READ.get(data)
        if found is None:
            raise ConnectDataError(
                f"expected one byte, 0 or 1, found {len(data or b'')} bytes of another kind"
            )
        return found
