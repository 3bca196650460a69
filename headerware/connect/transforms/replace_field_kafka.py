"""ReplaceField's choice of fields as Kafka makes it, by names at the top alone.

Kafka finds the old name of a field by looking up the new one, even for a field that was not renamed but has
that name: then it takes the value of the other field, or stumbles where there is none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from headerware.connect.data.schema import SchemaBuilder, validate_value
from headerware.connect.data.struct import Struct
from headerware.connect.errors import ValueClassError
from headerware.connect.fields.copying import copier
from headerware.connect.fields.paths import missing_field
from headerware.connect.fields.rewrites import Rewrite
from headerware.connect.modes import KAFKA_4_3

if TYPE_CHECKING:
    from headerware.connect.data.schema import Field, Schema

_BUCKETS: Final = 16
_LOAD: Final = 0.75


class KafkaChoice:
    """Hold what to drop, keep and rename.

    Args:
        exclude: the fields to drop.
        include: the fields to keep; all where there are none.
        renames: old and new names; the last one of an old name counts.
        with_default: whether nulls become their field's default.
    """

    def __init__(
        self,
        exclude: Sequence[str],
        include: Sequence[str],
        renames: Sequence[tuple[str, str]],
        *,
        with_default: bool,
    ) -> None:
        self._exclude: Final = frozenset(exclude)
        self._include: Final = frozenset(include)
        self._renames: Final = dict(renames)
        self._old: Final = {self._renames[name]: name for name in in_hash_order(self._renames)}
        self._with_default: Final = with_default

    def _keeps(self, name: str | None) -> bool:
        return name not in self._exclude and (not self._include or name in self._include)

    def of_dict(self, value: Mapping[Any, Any]) -> dict[Any, Any]:
        """Return a dict of what is left; the last one of two fields with one name counts.

        Raises:
            ValueClassError: a name is no text.
        """
        made: dict[Any, Any] = {}
        for name, item in value.items():
            if name is not None and not isinstance(name, str):
                raise ValueClassError(f"expected names that are text, found {type(name).__name__}")
            if self._keeps(name):
                made[name if name is None else self._renames.get(name, name)] = item
        return made

    def of_schema(self, schema: Schema) -> Rewrite:
        """Say what is left of structs of a schema.

        Raises:
            SchemaBuilderError: two fields would get one name.
            ConnectDataError: the old name of a field is none of the schema's.
        """
        builder = SchemaBuilder.like(schema)
        for field in schema.fields:
            if self._keeps(field.name):
                builder.field(self._renames.get(field.name, field.name), field.schema)
        updated = builder.build()
        sources = [self._source(schema, field.name) for field in updated.fields]
        copy = copier(
            sources,
            [field.schema for field in updated.fields],
            mode=KAFKA_4_3,
            with_default=self._with_default,
        )
        both = zip(updated.fields, sources, strict=True)
        others = [field for field, source in both if field.schema != source.schema]

        def apply(struct: Struct) -> Struct:
            values = copy(struct.values)
            for field in others:
                validate_value(field.schema, values[field.index], f"field {field.name!r}")
            return Struct.trusted(updated, values)

        return Rewrite(updated, apply)

    def _source(self, schema: Schema, name: str) -> Field:
        old = self._old.get(name, name)
        field = schema.by_name.get(old)
        if field is None:
            raise missing_field(schema, old, name)
        return field


def in_hash_order(names: Mapping[str, Any]) -> list[str]:
    """Return names in the order in which Java's ``HashMap`` yields them."""
    buckets = _BUCKETS
    while len(names) > buckets * _LOAD:
        buckets *= 2
    return sorted(names, key=lambda name: _spread(name) & (buckets - 1))


def _spread(name: str) -> int:
    code = 0
    units = name.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(units), 2):
        code = (31 * code + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    return code ^ code >> 16
