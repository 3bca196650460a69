"""HeadersToField: put all values of a header into a field, as an array.

transforms=tags
transforms.tags.type=HeadersToField$Value
transforms.tags.headers=tag
transforms.tags.fields=tags
transforms.tags.operation=move
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from headerware.connect.config import DISTINCT_SOME, ConfigDef, ConfigKey, StrictConfig, one_of
from headerware.connect.data.schema import Field, Schema, SchemaBuilder, Type
from headerware.connect.data.struct import Struct, conformed, plain
from headerware.connect.errors import ConnectDataError
from headerware.connect.fields.lists import items, paired
from headerware.connect.fields.structs import altered, require_map
from headerware.connect.modes import STRICT
from headerware.connect.transforms.base import PartTransform, Plan
from headerware.connect.transforms.keys import OPERATION, PRIMITIVES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headerware.connect.modes import Mode


class HeadersToField(PartTransform):
    """Add fields with all values of headers, in order; an empty array if a record has none.

    In a value with a schema the elements have one ``type``, by default string; a header of another type is
    refused. A field that the value has already is refused. A tombstone keeps its headers.
    """

    CONFIG: ClassVar[ConfigDef] = StrictConfig(
        ConfigKey(
            name="headers", type="LIST", importance="HIGH", check=DISTINCT_SOME, doc="The headers to read."
        ),
        ConfigKey(
            name="fields",
            type="LIST",
            importance="HIGH",
            check=DISTINCT_SOME,
            doc="The names of the fields, one for each header.",
        ),
        OPERATION,
        ConfigKey(
            name="type",
            type="STRING",
            default="string",
            check=one_of(*PRIMITIVES),
            doc="The type of the headers' values.",
        ),
    )

    def __init__(self, config: Mapping[str, Any] | None = None, *, mode: Mode = STRICT) -> None:
        super().__init__(config, mode=mode)
        headers = items(self.options["headers"], STRICT, "headers")
        fields = items(self.options["fields"], STRICT, "fields")
        self._names: Final = paired(headers, fields, "headers", "fields")
        self._moves: Final = self.options["operation"] == "move"
        self._element: Final = Schema(PRIMITIVES[self.options["type"]], optional=True)

    def apply(self, record: Any) -> Any:
        """Return the record with its headers in its key or value.

        Raises:
            ConnectDataError: a header is of another type, or the value has a field of this name.
        """
        made = super().apply(record)
        if self._moves and made is not record:
            for header, _ in self._names:
                made.headers.remove(header)
        return made

    def schemaless(self, value: Any, record: Any) -> Any:
        """Return the dict with the fields.

        Raises:
            ConnectDataError: the value is not a dict, or has a field of this name.
        """
        made = dict(require_map(value, "fields of headers"))
        for header, field in self._names:
            if field in made:
                raise _exists(field)
            made[field] = [found.value for found in record.headers.all_with_name(header)]
        return made

    def plan(self, schema: Schema) -> Plan:
        """Return the plan for the values of a schema.

        Raises:
            ConnectDataError: the schema is not a struct's, or has a field of this name.
        """
        if schema.type is not Type.STRUCT:
            raise ConnectDataError(f"expected a struct for fields of headers, found {schema.type.value}")
        array = SchemaBuilder.array(self._element).build()
        added = []
        for at, (_, field) in enumerate(self._names, len(schema.fields)):
            if field in schema.by_name:
                raise _exists(field)
            added.append(Field(field, at, array))
        made = altered(schema, fields=(*schema.fields, *added), default=None)

        def apply(value: Any, record: Any) -> Struct:
            struct = self._same.struct(value, schema, "fields of headers")
            return Struct.trusted(
                made, [*struct.values, *(self._values(name, record) for name, _ in self._names)]
            )

        return Plan(made, apply)

    def _values(self, header: str, record: Any) -> list[Any]:
        where = f"header {header!r}"
        return [
            conformed(self._element, plain(found.value), where)
            for found in record.headers.all_with_name(header)
        ]


def _exists(field: str) -> ConnectDataError:
    return ConnectDataError(f"the value has a field {field!r} already")
