"""The base classes of transforms, which return one record or none for each record (KIP-66).

A transform of keys and values is written once, and has two subclasses, ``Key`` and ``Value``. As in Connect,
configuration names them ``MaskField$Key`` and ``MaskField$Value``. The transform converts schemaless values,
and compiles a plan for each schema:

    class Upper(PartTransform):
        def schemaless(self, value, record): ...             -> the new value
        def plan(self, schema): ...                          -> Plan(new schema, function of value and record)

Configuration is read once, when the transform is created; nothing is parsed per record.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from headerware.connect.config import Configured
from headerware.connect.data.struct import Struct
from headerware.connect.errors import ConnectDataError
from headerware.connect.fields.structs import SameSchemas, another_schema, require_struct
from headerware.connect.fields.topics import TopicTemplate, by_topic, literal
from headerware.connect.modes import STRICT
from headerware.core.bounded_cache import BoundedCache

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headerware.connect.data.schema import Schema
    from headerware.connect.modes import Mode
    from headerware.connect.records import ConnectRecord, Part

MAX_PLANS: Final = 128
"""The number of cached plans; a stream has few schemas, and a flood of them must not fill the memory."""


class Transform(Configured, ABC):
    """Turn one record into another, or into none.

    A transform of your own extends this class, describes its keys in ``CONFIG``, and has an entry point in
    the group ``headerware.transforms``. It must be safe for use by several threads at once.

    Args:
        config: the values of its keys, without the prefix of an alias.
        mode: ``strict`` or ``kafka_4_3``.

    Raises:
        ConnectConfigError: a key is missing or unknown, or its value is not valid.
    """

    @abstractmethod
    def apply(self, record: Any) -> Any:
        """Return the record that replaces this one, the same record, or None to drop it.

        Args:
            record: a :class:`~headerware.connect.records.ConnectRecord`.

        Raises:
            ConnectError: the record cannot be transformed.
        """


class Plan(NamedTuple):
    """A transform of the values of one schema.

    Args:
        schema: the schema of the new values.
        apply: returns the new value for an old value and its record.
    """

    schema: Schema | None
    apply: Callable[[Any, ConnectRecord], Any]


class PartTransform(Transform):
    """Turn a record's key or value into another; ``Key`` and ``Value`` are the classes to use."""

    part: ClassVar[Part | None] = None
    """``key`` or ``value``; None in the base class of the two."""
    Key: ClassVar[type[PartTransform]]
    """The transform of keys."""
    Value: ClassVar[type[PartTransform]]
    """The transform of values."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Create the classes ``Key`` and ``Value`` of a transform."""
        super().__init_subclass__(**options)
        if cls.part is None:
            for name, part in (("Key", "key"), ("Value", "value")):
                attributes = {
                    "part": part,
                    "__module__": cls.__module__,
                    "__qualname__": f"{cls.__qualname__}.{name}",
                }
                setattr(cls, name, type(name, (cls,), attributes))

    def __init__(self, config: Mapping[str, Any] | None = None, *, mode: Mode = "strict") -> None:
        if self.part is None:
            kind = type(self).__name__
            problem = f"{kind} works on keys or on values: use {kind}.Key or {kind}.Value"
            raise TypeError(problem)
        super().__init__(config, mode=mode)
        self._same: Final = SameSchemas()
        # By the identity of the schema. The schema is kept, so that no other schema gets this identity.
        self._plans: Final[BoundedCache[int, tuple[Schema, Plan]]] = BoundedCache(MAX_PLANS)
        self._by_schema: Final[BoundedCache[Schema, Plan]] = BoundedCache(MAX_PLANS, self.plan)

    def apply(self, record: Any) -> Any:
        """Return the record with its key or value transformed."""
        part = self.part
        if part == "value":
            schema, value = record.value_schema, record.value
        else:
            part, schema, value = "key", record.key_schema, record.key
        if schema is None:
            if value is None:
                return self.null(record, None)
            return record.with_part(part, None, self.schemaless(value, record))
        if value is None:
            return self.null(record, schema)
        try:
            plan = self._plans[id(schema)][1]
        except KeyError:
            plan = None
        if plan is None:
            plan = self.planned(schema)
        return record.with_part(part, plan.schema, plan.apply(value, record))

    def null(self, record: Any, schema: Schema | None) -> Any:
        """Return the new record for a record whose key or value is null; by default the same record.

        Args:
            record: the record.
            schema: the null's schema, or None.
        """
        del schema
        return record

    def schemaless(self, value: Any, record: Any) -> Any:
        """Return the new value for a value without a schema; by default refuse it.

        Raises:
            ConnectError: the value cannot be transformed.
        """
        del value, record
        raise ConnectDataError(f"{self.__class__.__qualname__} works on values with a schema only")

    def plan(self, schema: Schema) -> Plan:
        """Return the plan for the values of a schema; called once for each schema. By default refuse it.

        Raises:
            ConnectError: values of this schema cannot be transformed.
        """
        raise ConnectDataError(
            f"{self.__class__.__qualname__} works on values without a schema only, not on {schema}"
        )

    def planned(self, schema: Schema) -> Plan:
        """Return the plan for a schema, made when the schema is first met."""
        # Found by identity first, and by content if a stream makes new schema objects. Equal schemas share a
        # plan, so that the new values have one schema object, which the next transform finds by identity.
        try:
            return self._plans[id(schema)][1]
        except KeyError:
            pass
        plan = self._by_schema[schema]
        self._plans[id(schema)] = (schema, plan)
        return plan


class SchemaNamingTransform(PartTransform):
    """The base class of transforms that name a schema; a name with ``${topic}`` needs one per topic."""

    _by_topic: BoundedCache[str | None, PartTransform] | None = None

    def _constant_name(self, name: str | None) -> str | None:
        """Return the name; None if there is no name, or if it depends on the topic."""
        if name is None:
            return None
        template = TopicTemplate(name, self.mode, "schema.name")
        if template.constant is None:
            self._by_topic = by_topic(template, self._named)
        return template.constant

    def _named(self, name: str) -> PartTransform:
        return type(self)({**self.options, "schema.name": literal(name)}, mode=self.mode)

    def apply(self, record: Any) -> Any:
        """Return the record with its key or value transformed."""
        if self._by_topic is None:
            return super().apply(record)
        return self._by_topic[record.topic].apply(record)


class StructTransform(PartTransform):
    """Turn structs into others; as in Kafka, plans are made for the structs' own schemas.

    The strict mode refuses a struct whose schema differs from its record's schema.
    """

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
            raise another_schema(schema)
        try:
            plan = self._plans[id(own)][1]
        except KeyError:
            plan = None
        if plan is None:
            plan = self.planned(own)
        return record.with_part(part, plan.schema, plan.apply(struct, record))
