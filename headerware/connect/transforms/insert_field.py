"""InsertField: put the topic, partition, offset or timestamp, or a fixed text, into keys or values (KIP-66).

transforms=where
transforms.where.type=org.apache.kafka.connect.transforms.InsertField$Value
transforms.where.topic.field=topic!
transforms.where.offset.field=offset
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from headerware.connect.config import ConfigDef, ConfigKey
from headerware.connect.data.logical import Timestamp
from headerware.connect.data.numbers import Int32
from headerware.connect.data.schema import INT32_SCHEMA, INT64_SCHEMA, STRING_SCHEMA, Schema, SchemaBuilder
from headerware.connect.data.struct import Struct
from headerware.connect.data.times import from_epoch_ms
from headerware.connect.errors import ConnectConfigError, ConnectDataError
from headerware.connect.fields.paths import NewField, new_field
from headerware.connect.fields.structs import Copy, altered, copier, null_in_required, require_map
from headerware.connect.fields.topics import TopicTemplate
from headerware.connect.modes import STRICT
from headerware.connect.records import SinkRecord
from headerware.connect.transforms.base import Plan, StructTransform
from headerware.connect.transforms.keys import REPLACE_NULL_WITH_DEFAULT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headerware.connect.modes import Mode

_partition = lru_cache(maxsize=4096)(Int32)


def _topic(record: Any) -> Any:
    return record.topic


def _partition_of(record: Any) -> Any:
    partition = record.kafka_partition
    return None if partition is None else _partition(partition)


def _offset(record: Any) -> Any:
    if not isinstance(record, SinkRecord):
        raise ConnectDataError(f"only a sink record has an offset; this is a {type(record).__name__}")
    return record.kafka_offset


def _timestamp(record: Any) -> Any:
    return None if record.timestamp is None else from_epoch_ms(record.timestamp)


def _timestamp_ms(record: Any) -> Any:
    return record.timestamp


class _Insertion(NamedTuple):
    """A field to insert: its schema, and its value with and without a schema."""

    field: NewField
    schema: Schema
    read: Callable[[Any], Any]
    read_plain: Callable[[Any], Any]
    checks_null: bool


_FACTS: Final[dict[str, tuple[Schema, Callable[[Any], Any], Callable[[Any], Any]]]] = {
    "topic.field": (STRING_SCHEMA, _topic, _topic),
    "partition.field": (INT32_SCHEMA, _partition_of, _partition_of),
    "offset.field": (INT64_SCHEMA, _offset, _offset),
    "timestamp.field": (Timestamp.SCHEMA, _timestamp, _timestamp_ms),
}
_MARK: Final = "A ! after the name makes the field required, a ? optional, which is the default."


class InsertField(StructTransform):
    """Insert facts about the record, or a fixed text, as fields of a struct or dict.

    The strict mode refuses a field that exists already, and a required field (``name!``) whose value is null.
    It replaces ``${topic}`` in the text by the record's topic.

    Raises:
        ConnectConfigError: no field is named, or ``static.field`` without its text.
    """

    CONFIG: ClassVar[ConfigDef] = ConfigDef(
        ConfigKey(name="topic.field", type="STRING", default=None, doc=f"The field for the topic. {_MARK}"),
        ConfigKey(
            name="partition.field", type="STRING", default=None, doc=f"The field for the partition. {_MARK}"
        ),
        ConfigKey(
            name="offset.field",
            type="STRING",
            default=None,
            doc=f"The field for the offset, which sink records have. {_MARK}",
        ),
        ConfigKey(
            name="timestamp.field", type="STRING", default=None, doc=f"The field for the timestamp. {_MARK}"
        ),
        ConfigKey(
            name="static.field", type="STRING", default=None, doc=f"The field for a fixed text. {_MARK}"
        ),
        ConfigKey(name="static.value", type="STRING", default=None, doc="The text of static.field."),
        REPLACE_NULL_WITH_DEFAULT,
    )

    def __init__(self, config: Mapping[str, Any] | None = None, *, mode: Mode = STRICT) -> None:
        super().__init__(config, mode=mode)
        self._insertions: Final = [*self._facts(), *self._static()]
        if not self._insertions:
            raise ConnectConfigError(f"expected one of {', '.join(_FACTS)} or static.field; found none")
        if mode == STRICT:
            _check_distinct(self._insertions)

    def _facts(self) -> list[_Insertion]:
        return [
            _Insertion(
                new_field(self.options[key], self.mode, key),
                schema,
                read,
                read_plain,
                checks_null=self.mode == STRICT or key == "topic.field",
            )
            for key, (schema, read, read_plain) in _FACTS.items()
            if self.options[key] is not None
        ]

    def _static(self) -> list[_Insertion]:
        name, text = self.options["static.field"], self.options["static.value"]
        if name is None:
            if text is not None and self.mode == STRICT:
                raise ConnectConfigError(
                    "expected static.field for this text, found none", path="static.value"
                )
            return []
        if text is None:
            raise ConnectConfigError("expected the text of static.field, found none", path="static.value")
        template = TopicTemplate(text, self.mode, "static.value")

        def read(record: Any) -> str:
            return template.of(record.topic)

        field = new_field(name, self.mode, "static.field")
        return [_Insertion(field, STRING_SCHEMA, read, read, checks_null=True)]

    def schemaless(self, value: Any, record: Any) -> dict[Any, Any]:
        """Return a copy of a dict with the fields; a field whose value is null is left out.

        Raises:
            ConnectDataError: the value is not a dict; in the strict mode, a field exists already.
        """
        made = dict(require_map(value, "the insertion of fields"))
        strict = self.mode == STRICT
        for field, _, _, read, checks_null in self._insertions:
            fact = read(record)
            if strict:
                if field.name in made:
                    raise ConnectDataError(f"field {field.name!r} exists already; its value would be lost")
                if fact is None and field.optional is False:
                    raise null_in_required(field.name)
            if fact is not None or (checks_null and not strict):
                made[field.name] = fact
        return made

    def plan(self, schema: Schema) -> Plan:
        """Return the plan for the values of a schema.

        Raises:
            SchemaBuilderError: a field exists already, or has no name.
        """
        copy = copier(
            schema.fields,
            [field.schema for field in schema.fields],
            mode=self.mode,
            with_default=self.options[REPLACE_NULL_WITH_DEFAULT.name],
        )
        updated = self._updated(schema, copy)
        reads = [
            (read, field.name if checks_null and field.optional is False else None)
            for field, _, read, _, checks_null in self._insertions
        ]

        def apply(struct: Struct, record: Any) -> Struct:
            values = copy(struct.values)
            for read, required in reads:
                fact = read(record)
                if fact is None and required is not None:
                    raise null_in_required(required)
                values.append(fact)
            return Struct.trusted(updated, values)

        return Plan(updated, apply)

    def _updated(self, schema: Schema, copy: Copy) -> Schema:
        """Return the schema with the fields; its default has nulls for them, or none if one is required."""
        builder, inserted = SchemaBuilder.like(schema, fields=True), self._insertions
        for field, own, *_ in inserted:
            builder.field(field.name, altered(own, optional=field.optional is not False))
        updated = builder.build()
        if self.mode != STRICT:
            return updated
        updated = altered(updated, optional=schema.optional)
        if schema.default is None or any(each.field.optional is False for each in inserted):
            return updated
        values = [*copy(schema.default.values), *(None for _ in inserted)]
        return altered(updated, default=Struct.trusted(updated, values))


def _check_distinct(insertions: list[_Insertion]) -> None:
    names = [insertion.field.name for insertion in insertions]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ConnectConfigError(f"two values would be inserted as field {twice!r}")
