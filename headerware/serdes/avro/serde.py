"""Avro with the schema in headers: the payload is bare Avro, and a header names the schema.

The option ``write_as`` chooses how a record names its schema. All of these ways are read:

    fingerprint       hw.schema           the schema's fingerprint; the schema itself is in a store
    schema            avro.schema         the schema's text; no store is needed
    prefix            in the payload      Confluent's 5 bytes with an id of a Schema Registry
    confluent-header  __value_schema_id   Confluent's header with a GUID of a Schema Registry

confluent-kafka's own deserializer refuses payloads below 6 bytes even if the header names the schema.
Layouts and the fingerprint are in spec/schema.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, NamedTuple

import msgspec

from headerware.core.bounded_cache import BoundedCache
from headerware.core.errors import ConfigError, SerdeError, UnknownSchemaError
from headerware.core.headers import Headers
from headerware.core.options import kinds, path_unless
from headerware.serdes.avro.binary import format_hint, reader, writer
from headerware.serdes.avro.limits import Limits
from headerware.serdes.avro.schema import (
    Algorithm,
    AvroSchema,
    Fingerprint,
    is_json,
    require_strong,
    schema_option,
    weakness,
)
from headerware.serdes.confluent.framing import (
    ID_HEADERS,
    PREFIX_BYTES,
    SINGLE_OBJECT_BYTES,
    decode_id_header,
    encode_guid,
    encode_id,
    prefix_of,
    single_object_digest,
)
from headerware.serdes.content_types import (
    ContentTypeHeader,
    content_type_of,
    header_for,
    last_stated,
    require_content_type,
    spellings,
)
from headerware.serdes.schema_header import (
    SCHEMA_HEADER,
    TEXT_HEADERS,
    decode_mark,
    encode_mark,
    is_mark_of_part,
    without_mark,
)
from headerware.serdes.serde import Serde, SerdeContext
from headerware.serdes.stores.cache import CachedStore, open_shared
from headerware.serdes.stores.store import SchemaStore, Store, store_type

if TYPE_CHECKING:
    from headerware.core.headers import HeaderValue, Pair

WriteAs = Literal["fingerprint", "schema", "prefix", "confluent-header"]
Serialize = Callable[[str, Headers, Any], tuple[bytes | None, Headers]]
Deserialize = Callable[[str, Headers, bytes | None], tuple[Any, Headers]]
_NUMBERED: Final = frozenset({"prefix", "confluent-header"})
_MAX_KINDS: Final = 256
_MAX_SUBJECTS: Final = 4096
_MAX_READERS: Final = 512
_MAX_TEXT: Final = 4 << 20
"""The size of the cached readers' schemas as text, all together; the readers are several times larger."""
_new_headers: Final = tuple.__new__


class Avro(Serde, frozen=True, kw_only=True):
    """Write and read Avro by the schema that headers name.

    Objects are dicts, or dataclasses, Structs and attrs classes, which msgspec converts to dicts. A class
    with an attribute ``__avro_schema__`` (JSON text, a dict or a list) has a schema of its own, so that
    records may have different schemas. Payloads are read as dicts, lists and scalars. Logical types are
    ``Decimal``, ``date``, ``time``, ``datetime`` and ``UUID``, both ways. A timestamp's ``datetime`` without
    a zone is in the machine's local zone.

    Args:
        schema: the schema of objects without a schema of their own, and of payloads whose headers name none.
            Text that begins with ``{``, ``[`` or a quote is the schema as JSON; other text is the path of a
            file with the schema. A dict or list, such as a table in a TOML file, is the schema itself.
        reader_schema: the schema to which payloads are resolved, in the same forms; without it they are
            read as they were written.
        store: where schemas are deposited and fetched; by type: ``folder``, ``topic`` or ``registry``.
        fingerprint: the digest of schemas on send: ``sha256``, ``md5`` or ``rabin``. All three are read, but
            only ``sha256`` if records are signed.
        write_as: how a record names its schema: ``fingerprint``, ``schema``, ``prefix`` or
            ``confluent-header``. None is ``fingerprint`` with a store, else ``schema``.
        subject: the subject under which ``prefix`` and ``confluent-header`` register a schema, with
            ``{topic}``, ``{part}`` and ``{name}``, the schema's full name.
        content_type: the value of the header ``content-type`` (a key's: ``key-content-type``); an existing
            header that means Avro stays. ``prefix`` states none, because its payload is not bare Avro.
        strict: refuse objects with a field that the schema does not have, and objects without a field that
            has no default, even if this field may be null. Otherwise the first are written without the field,
            and a warning names it once.
        max_schema_bytes: the largest size of a schema's text.
        max_depth: how deep a schema or a value may nest: records, unions, arrays and maps count. Each level
            takes 2 KiB of stack; do not raise it if threads have small stacks.
        max_values: how many values a payload may hold; a few bytes may stand for many.
        max_named_types: how many named types a schema may define, and how many branches a union may have;
            each costs time with every record.

    Raises:
        ConfigError: an option is not a valid schema, or a way of writing lacks its store.
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
        """Check the options, so that they do not fail with the first record."""
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
        """The limits of schemas and payloads."""
        return Limits(self.max_schema_bytes, self.max_depth, self.max_values, self.max_named_types)

    @property
    def way(self) -> WriteAs:
        """How a record names its schema."""
        return self.write_as or ("schema" if self.store is None else "fingerprint")

    @property
    def unsignable(self) -> str | None:
        """The reason why the serde cannot be used for signed records, or None if it can."""
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
        store: the shared store, or None; :meth:`close` releases it.
    """

    def __init__(self, options: Avro, context: SerdeContext, store: CachedStore | None) -> None:
        schema = schema_option(options.schema, options.limits, path="schema")
        wanted = schema_option(options.reader_schema, options.limits, path="reader_schema")
        self._store = store
        self.serialize: Final[Serialize] = _Writing(options, context, schema, store).serialize
        """Writes an object; see :class:`headerware.serdes.serde.Serializer`."""
        self.deserialize: Final[Deserialize] = _Reading(options, context, schema, wanted, store).deserialize
        """Reads a payload; see :class:`headerware.serdes.serde.Deserializer`."""

    def close(self) -> None:
        """Release the store; calling it again does nothing."""
        store, self._store = self._store, None
        if store is not None:
            store.close()


class _Framing(NamedTuple):
    """How a record names its schema."""

    prefix: bytes
    """The bytes in front of Avro's."""
    pairs: tuple[Pair, ...]
    """The headers to add, content type included."""
    named: tuple[Pair, ...]
    """The added headers that name the schema."""


class _Kind(NamedTuple):
    """How objects of a type are written; ``framing`` is None if it depends on the topic."""

    schema: AvroSchema
    write: Callable[[Any], bytes]
    framing: _Framing | None


class _Writing:
    """Writes one part's objects; safe for use by several threads at once."""

    def __init__(
        self, options: Avro, context: SerdeContext, schema: AvroSchema | None, store: CachedStore | None
    ) -> None:
        self._options: Final = options
        self._part: Final = context.part
        self._schema: Final = schema
        self._store: Final = store
        self._limits: Final[Limits] = options.limits
        self._way: Final = options.way
        # A payload with Confluent's prefix is not bare Avro, and has no known content type.
        self._content: Final = ContentTypeHeader(
            context, "" if self._way == "prefix" else options.content_type, frozenset({"avro"})
        )
        self._carriers: Final = frozenset({TEXT_HEADERS[self._part], ID_HEADERS[self._part]})
        self._ours: Final = self._carriers | {SCHEMA_HEADER} | self._content.names
        self._kinds: Final[BoundedCache[type, _Kind]] = BoundedCache(_MAX_KINDS, self._kind)
        self._framings: Final[BoundedCache[tuple[str, AvroSchema], _Framing]] = BoundedCache(
            _MAX_SUBJECTS, self._registered
        )

    def serialize(self, topic: str, headers: Headers, value: Any) -> tuple[bytes | None, Headers]:
        """Write an object; see :class:`headerware.serdes.serde.Serializer`."""
        if value is None:
            return None, self._cleared(headers)
        known = self._kinds[value.__class__]
        framing = known.framing or self._framings[topic, known.schema]
        payload = known.write(value)
        if framing.prefix:
            payload = framing.prefix + payload
        ours = self._ours
        for pair in headers:
            if pair[0] in ours:
                return payload, self._replaced(headers, framing)
        return payload, _new_headers(Headers, (*headers, *framing.pairs)) if framing.pairs else headers

    def _kind(self, kind: type) -> _Kind:
        """Find the schema of a type's objects, and deposit it."""
        own = getattr(kind, "__avro_schema__", None)
        schema = self._schema if own is None else AvroSchema.of(own, self._limits)
        if schema is None:
            raise SerdeError(
                f"there is no schema to write {kind.__name__} by: the serde has no option schema, and the "
                f"type has no __avro_schema__"
            )
        return _Kind(schema, writer(schema, strict=self._options.strict), self._lasting(schema))

    def _lasting(self, schema: AvroSchema) -> _Framing | None:
        """Return the framing, or None if it depends on the topic."""
        if self._way == "schema":
            return self._framed((TEXT_HEADERS[self._part], schema.text.encode()))
        if self._way != "fingerprint":
            return None
        algorithm = self._options.fingerprint
        self._opened().put(schema.deposit(algorithm))
        return self._framed((SCHEMA_HEADER, encode_mark(self._part, schema.fingerprint(algorithm))))

    def _registered(self, key: tuple[str, AvroSchema]) -> _Framing:
        """Return the framing for a topic, with the id that the registry gave the schema there."""
        topic, schema = key
        subject = self._options.subject.format(topic=topic, part=self._part, name=schema.name)
        schema_id, guid = self._opened().register(subject, schema.text)
        if self._way == "prefix":
            return _Framing(encode_id(schema_id), (), ())
        if not guid:
            raise SerdeError(
                f"the schema registry gave no GUID for subject {subject!r}: it is too old for "
                f"write_as = 'confluent-header'; write the prefix instead"
            )
        return self._framed((ID_HEADERS[self._part], encode_guid(guid)))

    def _framed(self, pair: Pair) -> _Framing:
        return _Framing(b"", tuple(self._content.state(Headers.trusted((pair,)))), (pair,))

    def _opened(self) -> CachedStore:
        if self._store is None:  # the options have been checked
            raise SerdeError(f"write_as = {self._way!r} needs a store")
        return self._store

    def _replaced(self, headers: Headers, framing: _Framing) -> Headers:
        """Replace the headers that an earlier serialization has left."""
        kept = self._cleared(headers)
        return self._content.state(Headers.trusted((*kept, *framing.named)))

    def _cleared(self, headers: Headers) -> Headers:
        """Remove the headers that name this part's schema; return the same object if there are none."""
        carriers = self._carriers
        kept = [pair for pair in without_mark(self._part, headers) if pair[0] not in carriers]
        return headers if len(kept) == len(headers) else Headers.trusted(kept)


class _Reader(NamedTuple):
    """The function that reads payloads of one schema; ``cost`` is the size of its text."""

    read: Callable[..., Any]
    cost: int


def _cost(_carrier: object, kept: _Reader) -> int:
    return kept.cost


_Carrier = tuple[str, bytes | None] | int | Fingerprint
"""The name of a payload's schema: a header, an id in Confluent's prefix, or the digest of a single object."""


class _Reading:
    """Reads one part's payloads; safe for use by several threads at once.

    A payload's schema is looked for in this order: ``hw.schema`` of the part; ``avro.schema``; Confluent's
    header; Confluent's prefix; Avro's single-object encoding; and then the serde's own schema.
    """

    def __init__(
        self,
        options: Avro,
        context: SerdeContext,
        schema: AvroSchema | None,
        wanted: AvroSchema | None,
        store: CachedStore | None,
    ) -> None:
        self._limits: Final = options.limits
        self._part: Final = context.part
        self._signed: Final = context.signed
        self._text_header: Final = TEXT_HEADERS[context.part]
        self._id_header: Final = ID_HEADERS[context.part]
        self._content_headers: Final = spellings(header_for(context))
        self._carriers: Final = frozenset({SCHEMA_HEADER, self._text_header, self._id_header})
        self._writes_prefix: Final = options.way == "prefix"
        self._wanted: Final = wanted
        self._store: Final = store
        self._known: Final = [known for known in (schema, wanted) if known is not None]
        self._own: Final = None if schema is None else reader(schema, wanted)
        self._readers: Final[BoundedCache[_Carrier, _Reader]] = BoundedCache(
            _MAX_READERS, self._reader_of, max_cost=2 * _MAX_TEXT, cost=_cost
        )

    def deserialize(self, topic: str, headers: Headers, payload: bytes | None) -> tuple[Any, Headers]:  # noqa: ARG002
        """Read a payload; see :class:`headerware.serdes.serde.Deserializer`."""
        carriers = self._carriers
        for pair in headers:
            if pair[0] in carriers:
                return self._by_headers(headers, payload)
        return None if payload is None else self._bare(headers, payload), headers

    def _by_headers(self, headers: Headers, payload: bytes | None) -> tuple[Any, Headers]:
        """Read by the header that names the schema, and remove all such headers of this part."""
        carriers, part = self._carriers, self._part
        kept: list[Pair] = []
        found: list[Pair] = []
        for pair in headers:
            name = pair[0]
            mine = name in carriers and (name != SCHEMA_HEADER or is_mark_of_part(part, pair))
            (found if mine else kept).append(pair)
        if not found:
            return None if payload is None else self._bare(headers, payload), headers
        rest = _new_headers(Headers, kept)
        if payload is None:
            return None, rest
        carrier = found[0] if len(found) == 1 else self._deciding(found)
        return self._readers[carrier].read(payload), rest

    def _deciding(self, found: list[Pair]) -> Pair:
        """Choose among several headers: ``hw.schema``, then the last schema text, then Confluent's last."""
        marks = [pair for pair in found if pair[0] == SCHEMA_HEADER]
        if len(marks) > 1:
            raise SerdeError(f"{SCHEMA_HEADER} of the {self._part} occurs {len(marks)} times, expected once")
        texts = [pair for pair in found if pair[0] == self._text_header]
        return (marks or texts or found)[-1]

    def _reader_of(self, carrier: _Carrier) -> _Reader:
        if isinstance(carrier, tuple):
            name, value = carrier
            schema, carrier_bytes = self._SOURCES[name](self, value), len(value or b"")
        elif isinstance(carrier, Fingerprint):
            schema, carrier_bytes = self._by_single_object(carrier), 0
        else:
            schema, carrier_bytes = self._by_prefix(carrier), 0
        return _Reader(reader(schema, self._wanted), max(carrier_bytes, len(schema.text)))

    def _by_mark(self, value: HeaderValue) -> AvroSchema:
        part, fingerprint = decode_mark(value)
        if part != self._part:
            raise SerdeError(f"{SCHEMA_HEADER} is for the {part}, expected the {self._part}")
        require_strong(fingerprint, signed=self._signed)
        return self._known_by(fingerprint) or self._fetched(fingerprint)

    def _known_by(self, fingerprint: Fingerprint) -> AvroSchema | None:
        known = (own for own in self._known if own.fingerprint(fingerprint.algorithm) == fingerprint)
        return next(known, None)

    def _fetched(self, fingerprint: Fingerprint) -> AvroSchema:
        if self._store is None:
            raise UnknownSchemaError(
                f"the {self._part} was written by the schema with fingerprint {fingerprint}, and the "
                f"serde has no store to fetch it from; give it the option store"
            )
        return AvroSchema.fetched(self._store, fingerprint, self._limits)

    def _by_text(self, value: HeaderValue) -> AvroSchema:
        if value is None:
            raise SerdeError(f"{self._text_header} is null, expected a schema")
        return AvroSchema.parsed(value, self._limits)

    def _by_id_header(self, value: HeaderValue) -> AvroSchema:
        found = decode_id_header(self._id_header, value)
        if self._store is None:
            raise UnknownSchemaError(
                f"the {self._part} names its schema in {self._id_header}; reading that needs the option "
                f"store, of type 'registry'"
            )
        text = self._store.by_guid(found) if isinstance(found, bytes) else self._store.by_id(found)
        return AvroSchema.parsed(text, self._limits)

    def _by_prefix(self, schema_id: int) -> AvroSchema:
        if self._store is None:
            raise UnknownSchemaError(f"the {self._part} has Confluent's prefix, and the serde has no store")
        return AvroSchema.parsed(self._store.by_id(schema_id), self._limits)

    def _by_single_object(self, fingerprint: Fingerprint) -> AvroSchema:
        known = self._known_by(fingerprint)
        if known is not None:
            return known
        fetched = self._fetched(fingerprint)
        require_strong(fingerprint, signed=self._signed)
        return fetched

    _SOURCES: Final = {
        SCHEMA_HEADER: _by_mark,
        **dict.fromkeys(TEXT_HEADERS.values(), _by_text),
        **dict.fromkeys(ID_HEADERS.values(), _by_id_header),
    }

    def _bare(self, headers: Headers, payload: bytes) -> Any:
        """Read a payload whose headers name no schema."""
        store = self._store
        if store is not None and store.is_numbered and payload[:1] == b"\x00":
            schema_id = prefix_of(payload)
            if schema_id is not None and (self._writes_prefix or not self._says_avro(headers)):
                return self._readers[schema_id].read(payload, PREFIX_BYTES)
        read_object = self._single_object(payload) if payload[:1] == b"\xc3" else None
        if read_object is not None:
            return read_object(payload, SINGLE_OBJECT_BYTES)
        if self._own is None:
            hint = self._other_format(headers) or format_hint(payload)
            raise UnknownSchemaError(
                f"no header names the {self._part}'s schema, and the serde has none of its own"
                + (f"; {hint}" if hint else "")
            )
        # Bare Avro has no mark of its own: small JSON objects are numbers, too.
        if (other := self._other_format(headers)) is not None:
            raise SerdeError(f"expected Avro, but {other}")
        return self._own(payload)

    def _single_object(self, payload: bytes) -> Callable[..., Any] | None:
        """Return the reader for a payload in single-object encoding, or None if its schema is not found."""
        digest = single_object_digest(payload)
        if digest is None:
            return None
        try:
            return self._readers[Fingerprint("rabin", digest)].read
        except UnknownSchemaError:
            return None  # then these two bytes are the beginning of a bare payload

    def _other_format(self, headers: Headers) -> str | None:
        """Return advice if the content type states another format, or None."""
        stated = last_stated(headers, self._content_headers)
        if stated is None:
            return None
        try:
            found = content_type_of(stated)
        except SerdeError:
            return None
        if found.format in {None, "avro", "bytes"}:
            return None
        form = found.format
        return f"its content type is one of {form}: read it with the {form} serde, or with polyglot"

    def _says_avro(self, headers: Headers) -> bool:
        """Return whether the content type states bare Avro."""
        stated = last_stated(headers, self._content_headers)
        if stated is None:
            return False
        try:
            return content_type_of(stated).format == "avro"
        except SerdeError:
            return False
