"""Rename the fields of structs and dicts, and of nested ones if configured."""

from __future__ import annotations

from abc import abstractmethod
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Final

from headerware.connect.config import ConfigKey
from headerware.connect.data.schema import Field, Schema, Type
from headerware.connect.data.struct import Struct
from headerware.connect.errors import ConnectDataError
from headerware.connect.fields.structs import altered, require_map
from headerware.connect.modes import STRICT
from headerware.connect.transforms.base import PartTransform, Plan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from headerware.connect.modes import Mode
    from headerware.connect.records import Part

_NAMES: Final = 1024
"""The number of cached names; a flood of them must not fill the memory."""
_DEPTH: Final = 64
NESTED: Final = ConfigKey(
    name="nested",
    type="BOOLEAN",
    default=False,
    doc="Whether to rename the fields of nested structs and maps, too, also in arrays.",
)
"""The key that says whether to rename nested fields."""


class Rename(PartTransform):
    """The base class of transforms that rename fields."""

    part: ClassVar[Part | None] = None

    def __init__(self, config: Mapping[str, Any] | None = None, *, mode: Mode = STRICT) -> None:
        super().__init__(config, mode=mode)
        self._rename: Final = lru_cache(_NAMES)(self.renaming())
        self._nested: Final[bool] = self.options[NESTED.name]

    @abstractmethod
    def renaming(self) -> Callable[[str], str]:
        """Return the function that returns the new name for an old name."""

    def schemaless(self, value: Any, record: Any) -> Any:
        del record
        return self._renamed_dict(require_map(value, "renaming fields"), _DEPTH)

    def plan(self, schema: Schema) -> Plan:
        if schema.type is not Type.STRUCT:
            raise ConnectDataError(f"expected a struct for renaming fields, found {schema.type.value}")
        made, convert = self._struct(schema)
        return Plan(made, lambda value, _: convert(self._same.struct(value, schema, "renaming fields")))

    def _renamed_dict(self, value: dict[Any, Any], depth: int) -> dict[Any, Any]:
        if depth <= 0:
            raise ConnectDataError(f"the value nests deeper than {_DEPTH}")
        names = [self._rename(name) if isinstance(name, str) else name for name in value]
        _check_names(names)
        nested = self._nested
        items = (self._renamed_item(item, depth) if nested else item for item in value.values())
        return dict(zip(names, items, strict=True))

    def _renamed_item(self, value: Any, depth: int) -> Any:
        if isinstance(value, dict):
            return self._renamed_dict(value, depth - 1)
        if isinstance(value, list | tuple):
            if depth <= 0:
                raise ConnectDataError(f"the value nests deeper than {_DEPTH}")
            return [self._renamed_item(item, depth - 1) for item in value]
        return value

    def _struct(self, schema: Schema) -> tuple[Schema, Callable[[Struct], Struct]]:
        names = [self._rename(field.name) for field in schema.fields]
        _check_names(names)
        parts = [
            self._part(field.schema) if self._nested else (field.schema, None) for field in schema.fields
        ]
        fields = tuple(
            Field(name, at, part[0]) for at, (name, part) in enumerate(zip(names, parts, strict=True))
        )
        made = altered(schema, fields=fields, default=None)
        work = [(at, convert) for at, (_, convert) in enumerate(parts) if convert is not None]

        def convert(struct: Struct) -> Struct:
            values = list(struct.values)
            for at, function in work:
                if values[at] is not None:
                    values[at] = function(values[at])
            return Struct.trusted(made, values)

        if schema.default is not None:
            default = convert(schema.default)
            made = altered(made, default=default)
        return made, convert

    def _part(self, schema: Schema) -> tuple[Schema, Callable[[Any], Any] | None]:
        """Return the new schema of a field, and the function for its values; None if the values stay."""
        if schema.type is Type.STRUCT:
            return self._struct(schema)
        if schema.type in _HOLDERS and schema.value_schema is not None:
            made, convert = self._part(schema.value_schema)
            if convert is not None:
                return _holder(schema, made, convert)
        return schema, None


_HOLDERS: Final = frozenset({Type.ARRAY, Type.MAP})


def _holder(
    schema: Schema, made: Schema, convert: Callable[[Any], Any]
) -> tuple[Schema, Callable[[Any], Any]]:
    """Return the new schema of an array or map, and the function for its values; a map's keys stay."""

    def each(value: Any) -> Any:
        return None if value is None else convert(value)

    def array(values: Any) -> Any:
        return [each(value) for value in values]

    def entries(values: Any) -> Any:
        return {key: each(value) for key, value in values.items()}

    change = array if schema.type is Type.ARRAY else entries
    default = None if schema.default is None else change(schema.default)
    return altered(schema, value_schema=made, default=default), change


def _check_names(names: Iterable[Any]) -> None:
    names = list(names)
    if len(set(names)) < len(names):
        raise ConnectDataError("two fields would have one name, and one of them would be lost")
    if "" in names:
        raise ConnectDataError("a field would have no name")
