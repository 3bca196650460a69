"""A transform: one class, with the names ``Truncate$Key`` and ``Truncate$Value`` in configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from headerware.connect import Check, ConfigDef, ConfigKey, ConnectDataError
from headerware.connect.data import Struct, Type
from headerware.connect.transforms import PartTransform, Plan

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headerware.connect import Mode
    from headerware.connect.data import Schema


class Truncate(PartTransform):
    """Shorten a field of text.

    transforms=short
    transforms.short.type=Truncate$Value
    transforms.short.field=comment
    transforms.short.length=80
    """

    CONFIG: ClassVar[ConfigDef] = ConfigDef(
        ConfigKey(name="field", type="STRING", importance="HIGH", doc="The field to shorten."),
        ConfigKey(
            name="length",
            type="INT",
            default=100,
            check=Check("[1,...]", lambda length: None if length > 0 else "expected a number above 0"),
            doc="The characters that are kept.",
        ),
    )

    def __init__(self, config: Mapping[str, Any] | None = None, *, mode: Mode = "strict") -> None:
        super().__init__(config, mode=mode)
        # Read the options once: nothing is parsed per record.
        self._field: str = self.options["field"]
        self._length: int = self.options["length"]

    def schemaless(self, value: Any, record: Any) -> Any:  # noqa: ARG002 - this transform needs only the value
        """Return a dict with the shorter text; the passed dict does not change."""
        text = value.get(self._field) if isinstance(value, dict) else None
        if text is None:
            return value
        if not isinstance(text, str):
            # Name the value's class. Never quote the value: it may be secret.
            raise ConnectDataError(f"field {self._field!r} is no text but {type(text).__name__}")
        return {**value, self._field: text[: self._length]}

    def plan(self, schema: Schema) -> Plan:
        """Return the plan for structs of a schema; it is called once for each schema, the plan per record."""
        field = schema.field(self._field)
        if field is None or field.schema.type is not Type.STRING:
            raise ConnectDataError(f"expected a text field {self._field!r} in {schema}")
        index, length = field.index, self._length

        def shorten(struct: Struct, _record: Any) -> Struct:
            text = struct.values[index]
            if text is None or len(text) <= length:
                return struct
            values = list(struct.values)
            values[index] = text[:length]
            return Struct.trusted(schema, values)

        return Plan(schema, shorten)
