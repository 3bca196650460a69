"""What a transform is (KIP-66): one record in, one or none out.

A transform that works on keys or values is written once, and has the two as classes of its own, ``Key`` and
``Value``, named ``MaskField$Key`` and ``MaskField$Value`` in configuration, as in Connect. It says what it
does to schemaless values, and compiles a plan for each schema that it meets:

    class Upper(PartTransform):
        def schemaless(self, value, record): ...             -> the new value
        def plan(self, schema): ...                          -> Plan(new schema, function of value and record)

Configuration is read once, when the transform is made; nothing is parsed per record.
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
"""How many plans are kept; a stream has few schemas, and a flood of them must not fill the memory."""


class Transform(Configured, ABC):
    """Turn one record into another, or into none.

    A transform of your own extends this, describes its keys in ``CONFIG``, and is named in configuration by
    an entry point of the group ``headerware.transforms``. It must be safe for use by several threads at once.

    Args:
        config: the values of its keys, without the prefix of an alias.
        mode: ``strict`` or ``kafka_4_3``.

    Raises:
        ConnectConfigError: a key is missing, not known, or has a value that it cannot have.
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
    """What a transform does to the values of one schema.

    Args:
        schema: the schema of the new values.
        apply: returns the new value of an old one; the record is there for a transform that reads more of it.
    """

    schema: Schema | None
    apply: Callable[[Any, ConnectRecord], Any]


class PartTransform(Transform):
    """Turn a record's key or value into another; ``Key`` and ``Value`` are the classes to use."""

    part: ClassVar[Part | None] = None
    """Which of the two; None for the class that has both."""
    Key: ClassVar[type[PartTransform]]
    """The transform of keys."""
    Value: ClassVar[type[PartTransform]]
    """The transform of values."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Give a transform its two classes."""
        super().__init_subclass__(**options)
        if cls.part is None:
            for name, part in (("Key", "key"), ("Value", "value")):
                facts = {
                    "part": part,
                    "__module__": cls.__module__,
                    "__qualname__": f"{cls.__qualname__}.{name}",
                }
                setattr(cls, name, type(name, (cls,), facts))

    def __init__(self, config: Mapping[str, Any] | None = None, *, mode: Mode = "strict") -> None:
        if self.part is None:
            kind = type(self).__name__
            problem = f"{kind} works on keys or on values: use {kind}.Key or {kind}.Value"
            raise TypeError(problem)
        super().__init__(config, mode=mode)
        self._same: Final = SameSchemas()
        # By the identity of the schema; the schema is kept, so that no other gets that identity.
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
        """Return the record for one whose key or value is null: by default the same.

        Args:
            record: the record.
            schema: the null's schema, or None.
        """
        del schema
        return record

    def schemaless(self, value: Any, record: Any) -> Any:
        """Return the new value of one without a schema; by default it is refused.

        Raises:
            ConnectError: the value cannot be transformed.
        """
        del value, record
        raise ConnectDataError(f"{self.__class__.__qualname__} works on values with a schema only")

    def plan(self, schema: Schema) -> Plan:
        """Return the plan for the values of a schema; called once for each schema. By default it is refused.

        Raises:
            ConnectError: values of this schema cannot be transformed.
        """
        raise ConnectDataError(
            f"{self.__class__.__qualname__} works on values without a schema only, not on {schema}"
        )

    def planned(self, schema: Schema) -> Plan:
        """Return the plan for a schema, made when the schema is first met."""
        # Found by identity first, and by content if a stream makes new schema objects. Equal schemas share a
        # plan, so that what comes out has one schema, which the next transform finds by identity.
        try:
            return self._plans[id(schema)][1]
        except KeyError:
            pass
        plan = self._by_schema[schema]
        self._plans[id(schema)] = (schema, plan)
        return plan


class SchemaNamingTransform(PartTransform):
    """The base of transforms that name a schema; for a name with ``${topic}``, each topic has a transform."""

    _by_topic: BoundedCache[str | None, PartTransform] | None = None

    def _constant_name(self, name: str | None) -> str | None:
        """Return the name; None if there is none, or if it depends on the topic."""
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
    """Turn structs into others; plans are made for the schemas that the structs themselves have, as in Kafka.

    In the strict mode a struct of another schema than its record says is refused.
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
