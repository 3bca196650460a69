"""Avro with the schema in headers (seed 004): the payload is bare Avro, and a header says by which schema.

How the header says it is the option ``write_as``; reading understands all of them, and what others write:

    fingerprint       hw.schema           the schema's fingerprint; the schema itself is in a store
    schema            avro.schema         the schema's text; no store at all
    prefix            in the payload      Confluent's 5 bytes with an id of a Schema Registry
    confluent-header  __value_schema_id   Confluent's header with a GUID of a Schema Registry

confluent-kafka's own deserializer refuses payloads below 6 bytes even where the header names the schema.
Layouts and the fingerprint are in spec/schema.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Final, Literal

import msgspec

from headerware.core.errors import ConfigError
from headerware.core.headers import Headers
from headerware.core.options import kinds, path_unless
from headerware.serdes.avro.limits import Limits
from headerware.serdes.avro.options import is_json, schema_option
from headerware.serdes.avro.reading import AvroReading
from headerware.serdes.avro.writing import AvroWriting
from headerware.serdes.content.headers import require_content_type
from headerware.serdes.serde import Serde, SerdeContext
from headerware.serdes.stores.cache import CachedStore, open_shared
from headerware.serdes.stores.store import Algorithm, SchemaStore, Store, store_type, weakness

WriteAs = Literal["fingerprint", "schema", "prefix", "confluent-header"]
Serialize = Callable[[str, Headers, Any], tuple[bytes | None, Headers]]
Deserialize = Callable[[str, Headers, bytes | None], tuple[Any, Headers]]
_NUMBERED: Final = frozenset({"prefix", "confluent-header"})


class Avro(Serde, frozen=True, kw_only=True):
    """Write and read Avro, by the schema that headers name.

    Objects are dicts, or what msgspec makes dicts of: dataclasses, Structs, attrs classes. A class that has
    an attribute ``__avro_schema__`` (JSON text, a dict or a list) brings its own schema, so that each record
    may have another. What is read is dicts, lists and scalars; logical types are ``Decimal``, ``date``,
    ``time``, ``datetime`` and ``UUID``, both ways; a timestamp's ``datetime`` without a zone is taken in the
    machine's own.

    Args:
        schema: the schema of objects that bring none, and of payloads that name none. Text that begins
            with ``{``, ``[`` or a quote is the schema as JSON; other text is the path of a file with it.
            A dict or list, and so a table in a TOML file, is the schema, too.
        reader_schema: the schema that payloads are resolved to, given likewise; without it they come as they
            were written.
        store: where schemas are deposited and fetched; by type: ``folder``, ``topic`` or ``registry``.
        fingerprint: how schemas are digested on send: ``sha256``, ``md5`` or ``rabin``. Reading understands
            all three, but where records are signed only ``sha256``.
        write_as: how a record says which schema it has. Without it ``fingerprint`` where there is a
            store, else ``schema``.
        subject: under which subject ``prefix`` and ``confluent-header`` register a schema, with
            ``{topic}``, ``{part}`` and ``{name}``, the schema's full name.
        content_type: what the header ``content-type`` (a key's: ``key-content-type``) says; one that
            stands there already and means Avro stays. ``prefix`` states none, for that is no bare Avro.
        strict: refuse objects with a field that the schema does not have, and those that lack a field that
            has no default, even where that may be null.
        max_schema_bytes: the size of a schema's text.
        max_depth: how deep a schema, or a value, may nest: records, unions, arrays and maps count. Deep
            nesting takes stack, 2 KiB a level: leave it where threads have little of that.
        max_values: how many values a payload may hold, as bytes may stand for many.
        max_named_types: how many named types a schema may define, and how many branches a union may have;
            each costs time with every record.

    Raises:
        ConfigError: a schema that is none, or a way of writing that lacks its store.
    """

    type: ClassVar[str] = "avro"

    schema: Annotated[Any, path_unless(is_json)] = None
    reader_schema: Annotated[Any, path_unless(is_json)] = None
    store: Annotated[Any, kinds(store_type)] = None
    fingerprint: Algorithm = "sha256"
    write_as: WriteAs | None = None
    subject: str = "{topic}-{part}"
    content_type: str = "application/avro-binary"
    strict: bool = False
    max_schema_bytes: Annotated[int, msgspec.Meta(ge=2)] = 1 << 20
    max_depth: Annotated[int, msgspec.Meta(ge=1, le=300)] = 128
    max_values: Annotated[int, msgspec.Meta(ge=1)] = 1_000_000
    max_named_types: Annotated[int, msgspec.Meta(ge=1)] = 4_096

    def __post_init__(self) -> None:
        """Refuse what could not work with the first record."""
        schema_option(self.schema, self.limits, path="schema")
        schema_option(self.reader_schema, self.limits, path="reader_schema")
        require_content_type(self.content_type)
        if self.store is not None and not isinstance(self.store, Store | SchemaStore):
            message = f"expected a schema store, found {type(self.store).__name__}"
            raise ConfigError(message, path="store")
        if self.store is None and self.way != "schema":
            raise ConfigError(f"{self.way!r} needs the option store", path="write_as")
        try:
            self.subject.format(topic="orders", part="value", name="Order")
        except (KeyError, IndexError, ValueError, AttributeError):
            message = "expected text with {topic}, {part} or {name} in it"
            raise ConfigError(message, path="subject") from None

    @property
    def limits(self) -> Limits:
        """How much schemas and payloads may ask for."""
        return Limits(self.max_schema_bytes, self.max_depth, self.max_values, self.max_named_types)

    @property
    def way(self) -> WriteAs:
        """How a record says which schema it has."""
        return self.write_as or ("schema" if self.store is None else "fingerprint")

    @property
    def unsignable(self) -> str | None:
        """Why it cannot be used where records are signed; None where it can."""
        return weakness(self.fingerprint) if self.way == "fingerprint" else None

    def open(self, context: SerdeContext) -> OpenedAvro:
        """Return the two functions for one part.

        Raises:
            ConfigError: the store cannot be opened, or keeps no ids and ``write_as`` needs them.
        """
        store = None if self.store is None else open_shared(self.store)
        if store is not None and self.way in _NUMBERED and not store.is_numbered:
            store.close()
            raise ConfigError(f"{self.way!r} needs a store of type 'registry'", path="write_as")
        return OpenedAvro(self, context, store)


class OpenedAvro:
    """Avro for one part of the records; safe for use by several threads at once.

    Args:
        options: the serde's options.
        context: the part.
        store: the shared store, or None; given up with :meth:`close`.
    """

    def __init__(self, options: Avro, context: SerdeContext, store: CachedStore | None) -> None:
        schema = schema_option(options.schema, options.limits, path="schema")
        wanted = schema_option(options.reader_schema, options.limits, path="reader_schema")
        self._store = store
        self.serialize: Final[Serialize] = AvroWriting(options, context, schema, store).serialize
        """Writes an object; see :class:`headerware.serdes.serde.Serializer`."""
        self.deserialize: Final[Deserialize] = AvroReading(
            options, context, schema, wanted, store
        ).deserialize
        """Reads a payload; see :class:`headerware.serdes.serde.Deserializer`."""

    def close(self) -> None:
        """Give up the store; calling it again does nothing."""
        store, self._store = self._store, None
        if store is not None:
            store.close()
