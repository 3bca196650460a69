"""A transform of structs and dicts: what most transforms of keys and values are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headerware.connect.data.struct import Struct
from headerware.connect.errors import ConnectDataError
from headerware.connect.fields.requirements import require_struct
from headerware.connect.fields.schemas import SameSchemas
from headerware.connect.modes import STRICT
from headerware.connect.transforms.base import PartTransform

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headerware.connect.data.schema import Schema
    from headerware.connect.modes import Mode


class StructTransform(PartTransform):
    """Turn structs into others; plans are made for the schemas that the structs themselves have, as in Kafka.

    In the strict mode a struct of another schema than its record says is refused.
    """

    def __init__(self, config: Mapping[str, Any] | None = None, *, mode: Mode = STRICT) -> None:
        super().__init__(config, mode=mode)
        self._same: Final = SameSchemas()

    def apply(self, record: Any) -> Any:
        """Return the record with its key or value transformed."""
        part = self.part
        if part == "value":
            schema, value = record.value_schema, record.value
        else:
            part, schema, value = "key", record.key_schema, record.key
        if value is None:
            return self.null(record, schema)
        if schema is None:
            return record.with_part(part, None, self.schemaless(value, record))
        struct = value if value.__class__ is Struct else require_struct(value, type(self).__qualname__)
        own: Schema = struct.schema
        if own is not schema and self.mode == STRICT and not self._same(own, schema):
            raise ConnectDataError(f"the record says {schema}, but the {part} is a struct of another schema")
        planned = self._plans.get(id(own))
        plan = planned[1] if planned is not None else self.planned(own)
        return record.with_part(part, plan.schema, plan.apply(struct, record))
