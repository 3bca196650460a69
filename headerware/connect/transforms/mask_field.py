"""MaskField: hide the values of fields (KIP-66, KIP-437).

transforms=mask
transforms.mask.type=org.apache.kafka.connect.transforms.MaskField$Value
transforms.mask.fields=password,customer.iban
transforms.mask.clobber.fields=name:xxx,age:0
transforms.mask.randomize.fields=phone

In the strict mode no value that was to be hidden comes through: what cannot be masked is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from headerware.connect.config import DISTINCT, DISTINCT_SOME, NOT_EMPTY_TEXT, ConfigDef, ConfigKey
from headerware.connect.data.struct import Struct
from headerware.connect.errors import ConnectConfigError
from headerware.connect.fields.copying import copier
from headerware.connect.fields.keys import REPLACE_NULL_WITH_DEFAULT, KeysByMode
from headerware.connect.fields.lists import pairs, unescaped
from headerware.connect.fields.paths import FieldPath, parse_path
from headerware.connect.fields.requirements import require_map, require_struct
from headerware.connect.fields.rewrites import Change, Edits, rewrite, rewrite_dict
from headerware.connect.modes import STRICT
from headerware.connect.transforms.base import Plan
from headerware.connect.transforms.mask_field_kafka import KafkaMask
from headerware.connect.transforms.mask_field_random import RandomMask
from headerware.connect.transforms.mask_field_values import BlankMask, Mask, TextMask
from headerware.connect.transforms.structs import StructTransform

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from headerware.connect.data.schema import Field, Schema
    from headerware.connect.modes import Mode

_PURPOSE: Final = "the masking of fields"


def _fields(*, required: bool) -> ConfigKey:
    given = {"check": DISTINCT_SOME} if required else {"check": DISTINCT, "default": []}
    return ConfigKey(name="fields", type="LIST", importance="HIGH", doc="The fields to mask.", **given)


class MaskField(StructTransform):
    """Replace fields by a value that says nothing: zero, an empty text, or a replacement.

    In the strict mode ``a.b`` is the field b in a; ``clobber.fields`` gives fields replacements of their own,
    and ``randomize.fields`` makes others random, of the same type and shape: texts keep their length and
    separators, numbers their count of digits. A field that a schema does not have is refused, one that a dict
    does not have stays away; bytes can be masked, and null keys and values have nothing to mask.

    Raises:
        ConnectConfigError: no field is named, or one is named twice.
    """

    CONFIG: ClassVar[ConfigDef] = KeysByMode(
        _fields(required=True),
        ConfigKey(
            name="replacement",
            type="STRING",
            default=None,
            importance="LOW",
            check=NOT_EMPTY_TEXT,
            doc="What the fields become, converted to their types.",
        ),
        REPLACE_NULL_WITH_DEFAULT,
        ConfigKey(
            name="clobber.fields",
            type="LIST",
            default=[],
            strict_only=True,
            doc="Fields with replacements of their own: field:replacement.",
        ),
        ConfigKey(
            name="randomize.fields",
            type="LIST",
            default=[],
            strict_only=True,
            check=DISTINCT,
            doc="Fields that become random values of the same type and shape.",
        ),
        strict=[_fields(required=False)],
    )

    def __init__(self, config: Mapping[str, Any] | None = None, *, mode: Mode = STRICT) -> None:
        super().__init__(config, mode=mode)
        self._with_default: Final = self.options[REPLACE_NULL_WITH_DEFAULT.name]
        self._kafka: KafkaMask | None = None
        self._masks: Edits[Mask] = Edits((), "fields")
        if mode != STRICT:
            self._kafka = KafkaMask(self.options["replacement"])
            return
        self._masks = Edits(self._named(), "fields")
        if not self._masks.paths:
            raise ConnectConfigError("expected fields, clobber.fields or randomize.fields; found none")

    def _named(self) -> Iterator[tuple[FieldPath, Mask]]:
        options, replacement = self.options, self.options["replacement"]
        if replacement is not None and not options["fields"]:
            raise ConnectConfigError("a replacement without fields goes nowhere", path="replacement")
        mask = BlankMask() if replacement is None else TextMask(replacement)
        for text in options["fields"]:
            yield parse_path(text, STRICT, "fields"), mask
        for text, replacement in pairs(options["clobber.fields"], STRICT, "clobber.fields"):
            own = TextMask(unescaped(replacement, "clobber.fields"))
            yield parse_path(text, STRICT, "clobber.fields"), own
        for text in options["randomize.fields"]:
            yield parse_path(text, STRICT, "randomize.fields"), RandomMask()

    def apply(self, record: Any) -> Any:
        """Return the record with the fields masked; its schema stays, even where its struct has another."""
        made = super().apply(record)
        if self._kafka is not None:
            made.key_schema, made.value_schema = record.key_schema, record.value_schema
        return made

    def null(self, record: Any, schema: Schema | None) -> Any:
        """Return a null as it is, for it holds nothing.

        Raises:
            ConnectDataError: always in ``kafka_4_3``.
        """
        if self.mode == STRICT:
            return record
        return require_map(None, _PURPOSE) if schema is None else require_struct(None, _PURPOSE)

    def schemaless(self, value: Any, record: Any) -> dict[Any, Any]:
        """Return a dict with the fields masked.

        Raises:
            ConnectDataError: this is no dict, or a value cannot be masked.
        """
        del record
        given = require_map(value, _PURPOSE)
        if self._kafka is None:
            return rewrite_dict(given, self._masks.root, _masked)
        made, mask = dict(given), self._kafka.of
        for name in self.options["fields"]:
            made[name] = mask(given.get(name))
        return made

    def plan(self, schema: Schema) -> Plan:
        """Say how to mask structs of a schema.

        Raises:
            ConnectDataError: there is no such field, or its values cannot be masked.
        """
        if self._kafka is not None:
            return self._kafka_plan(schema, self._kafka)
        updated, apply = rewrite(schema, self._masks, _change, mode=STRICT, with_default=self._with_default)
        return Plan(updated, lambda struct, _: apply(struct))

    def _kafka_plan(self, schema: Schema, kafka: KafkaMask) -> Plan:
        fields, schemas, mask = schema.fields, [field.schema for field in schema.fields], kafka.of
        copy = copier(fields, schemas, mode=self.mode, with_default=self._with_default)
        names = self.options["fields"]
        masked = [schema.by_name[name].index for name in names if name in schema.by_name]

        def apply(struct: Struct, _: Any) -> Struct:
            values = copy(struct.values)
            for at in masked:
                values[at] = mask(values[at])
            return Struct.trusted(schema, values)

        return Plan(schema, apply)


def _masked(value: Any, mask: Mask) -> Any:
    return mask.of_value(value)


def _change(field: Field, mask: Mask) -> Change:
    return Change(field.name, field.schema, mask.for_schema(field.schema, field.name))
