"""FieldToHeaders: make headers from a field, one for each element of an array.

transforms=tags
transforms.tags.type=FieldToHeaders$Value
transforms.tags.fields=tags
transforms.tags.headers=tag
transforms.tags.operation=copy
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from headerware.connect.config import DISTINCT_SOME, ConfigDef, ConfigKey, StrictConfig
from headerware.connect.data.schema import Schema, Type
from headerware.connect.errors import ConnectDataError
from headerware.connect.fields.lists import items, paired
from headerware.connect.fields.paths import FieldPath, parse_path
from headerware.connect.fields.rewrites import Edits, check_absent, rewrite
from headerware.connect.fields.structs import require_map
from headerware.connect.headers import ConnectHeader
from headerware.connect.modes import STRICT
from headerware.connect.transforms.base import PartTransform, Plan
from headerware.connect.transforms.keys import OPERATION

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headerware.connect.modes import Mode

_PURPOSE: Final = "headers of fields"


class _Read(NamedTuple):
    """How to make headers from one field."""

    get: Callable[[Any], Any]
    schema: Schema
    header: str
    text: str


class FieldToHeaders(PartTransform):
    """Add headers with the values of fields: one for each element of an array, one for any other value.

    ``fields`` are paths such as ``a.b``. A field that is missing or null is refused, or skipped with
    ``skip.missing.or.null=true``. Moved fields leave the value. A tombstone stays as it is.
    """

    CONFIG: ClassVar[ConfigDef] = StrictConfig(
        ConfigKey(
            name="fields",
            type="LIST",
            importance="HIGH",
            check=DISTINCT_SOME,
            doc="The fields to read, as a.b.",
        ),
        ConfigKey(
            name="headers",
            type="LIST",
            importance="HIGH",
            check=DISTINCT_SOME,
            doc="The names of the headers, one for each field.",
        ),
        OPERATION,
        ConfigKey(
            name="skip.missing.or.null",
            type="BOOLEAN",
            default=False,
            doc="Whether to skip a missing or null field; otherwise it is refused.",
        ),
    )

    def __init__(self, config: Mapping[str, Any] | None = None, *, mode: Mode = STRICT) -> None:
        super().__init__(config, mode=mode)
        paths = [parse_path(text, STRICT, "fields") for text in self.options["fields"]]
        headers = items(self.options["headers"], STRICT, "headers")
        self._headers: Final = paired(paths, headers, "fields", "headers")
        self._edits: Final = Edits(self._headers, "fields")
        self._moves: Final = self.options["operation"] == "move"
        self._skips: Final[bool] = self.options["skip.missing.or.null"]

    def apply(self, record: Any) -> Any:
        """Return the record with headers from its key or value.

        Raises:
            ConnectDataError: a field is missing or null, and not to be skipped.
        """
        key = self.part == "key"
        schema, value = (record.key_schema, record.key) if key else (record.value_schema, record.value)
        if value is None:
            return record
        if schema is None:
            value, headers = self.schemaless(value, record)
        else:
            plan = self.planned(schema)
            schema = plan.schema
            value, headers = plan.apply(value, record)
        made = record.with_part("key" if key else "value", schema, value)
        for header in headers:
            made.headers.add_header(header)
        return made

    def schemaless(self, value: Any, record: Any) -> Any:
        """Return the dict, without the fields if they move, and the headers.

        Raises:
            ConnectDataError: the value is not a dict, or a field is missing or null and not to be skipped.
        """
        del record
        made, headers = require_map(value, _PURPOSE), []
        for path, header in self._headers:
            found = path.from_dict(value)
            if found is None:
                self._check_skipped(path.text)
                check_absent(made, path)
                continue
            elements = found if isinstance(found, list | tuple) else (found,)
            headers += [ConnectHeader(header, None, element) for element in elements]
        if self._moves:
            for path, _ in self._headers:
                made = _without(made, path.steps)
        return made, headers

    def plan(self, schema: Schema) -> Plan:
        """Return the plan for the values of a schema; its function returns the struct and the headers.

        Raises:
            ConnectDataError: the schema is not a struct's, or has no such field.
        """
        if schema.type is not Type.STRUCT:
            raise ConnectDataError(f"expected a struct for {_PURPOSE}, found {schema.type.value}")
        edits = self._edits.present_in(schema) if self._skips else self._edits
        reads = [self._read(schema, path, header) for path, header in self._headers if path in edits.paths]
        work = rewrite(schema, edits, lambda _field, _header: None, mode=STRICT) if self._moves else None

        def apply(value: Any, _record: Any) -> tuple[Any, list[ConnectHeader]]:
            struct = self._same.struct(value, schema, _PURPOSE)
            headers: list[ConnectHeader] = []
            for get, own, header, text in reads:
                found = get(struct)
                if found is None:
                    self._check_skipped(text)
                elif own.type is Type.ARRAY:
                    headers += [ConnectHeader(header, own.value_schema, element) for element in found]
                else:
                    headers.append(ConnectHeader(header, own, found))
            return (struct if work is None else work.apply(struct)), headers

        return Plan(schema if work is None else work.schema, apply)

    def _read(self, schema: Schema, path: FieldPath, header: str) -> _Read:
        return _Read(path.getter(schema), path.field(schema).schema, header, path.text)

    def _check_skipped(self, text: str) -> None:
        if not self._skips:
            raise ConnectDataError(
                f"the field {text!r} is missing or null; set skip.missing.or.null=true to skip it"
            )


def _without(value: dict[str, Any], steps: tuple[str, ...]) -> dict[str, Any]:
    """Return a copy of a dict without a field, which may be nested."""
    name, *rest = steps
    if name not in value or (rest and value[name] is None):
        return value
    made = dict(value)
    if rest:
        made[name] = _without(require_map(made[name], _PURPOSE), tuple(rest))
    else:
        del made[name]
    return made
