"""A value beside its schema."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from headerware.connect.data.equality import alike
from headerware.connect.data.schema import Schema


class SchemaAndValue(NamedTuple):
    """Hold a value and what describes it.

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
