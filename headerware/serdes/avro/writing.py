"""The sending half of :class:`headerware.serdes.Avro`: Avro bytes, and what names their schema."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headerware.core.errors import SerdeError
from headerware.core.headers import Headers
from headerware.serdes.avro.binary import writer
from headerware.serdes.avro.objects import own_schema
from headerware.serdes.avro.schema import AvroSchema
from headerware.serdes.confluent.framing import ID_HEADERS, encode_guid, encode_id
from headerware.serdes.content.headers import ContentTypeHeader
from headerware.serdes.lately_used import LatelyUsed
from headerware.serdes.schema_header import SCHEMA_HEADER, TEXT_HEADERS, encode_mark, without_mark

if TYPE_CHECKING:
    from collections.abc import Callable

    from headerware.core.headers import Pair
    from headerware.serdes.avro.limits import Limits
    from headerware.serdes.avro.serde import Avro
    from headerware.serdes.serde import SerdeContext
    from headerware.serdes.stores.cache import CachedStore

_MAX_KINDS: Final = 256
_MAX_SUBJECTS: Final = 4096
_new_headers: Final = tuple.__new__


class Framing(NamedTuple):
    """How a record says which schema it has.

    Attributes:
        prefix: what stands in front of the Avro bytes.
        pairs: the headers to add, content type included.
        named: those of them that name the schema.
    """

    prefix: bytes
    pairs: tuple[Pair, ...]
    named: tuple[Pair, ...]


class _Kind(NamedTuple):
    """What is known of a type of objects; ``framing`` is None where it depends on the topic."""

    schema: AvroSchema
    write: Callable[[Any], bytes]
    framing: Framing | None


class AvroWriting:
    """Writes one part's objects; safe for use by several threads at once.

    Args:
        options: the serde's options.
        context: the part.
        schema: the schema of objects that bring none of their own.
        store: where schemas are deposited, or None.
    """

    def __init__(
        self, options: Avro, context: SerdeContext, schema: AvroSchema | None, store: CachedStore | None
    ) -> None:
        self._options: Final = options
        self._part: Final = context.part
        self._schema: Final = schema
        self._store: Final = store
        self._limits: Final[Limits] = options.limits
        self._way: Final = options.way
        # Confluent's prefix is no bare Avro, and has no content type that anyone knows.
        self._content: Final = ContentTypeHeader(
            context, "" if self._way == "prefix" else options.content_type, frozenset({"avro"})
        )
        self._carriers: Final = frozenset({TEXT_HEADERS[self._part], ID_HEADERS[self._part]})
        self._ours: Final = self._carriers | {SCHEMA_HEADER} | self._content.names
        self._kinds: dict[type, _Kind] = {}
        self._framings: LatelyUsed[tuple[str, AvroSchema], Framing] = LatelyUsed(_MAX_SUBJECTS, _MAX_SUBJECTS)

    def serialize(self, topic: str, headers: Headers, value: Any) -> tuple[bytes | None, Headers]:
        """Write an object; see :class:`headerware.serdes.serde.Serializer`."""
        if value is None:
            return None, self._cleared(headers)
        kind = value.__class__
        known = self._kinds.get(kind) or self._known(kind)
        framing = known.framing or self._framing(topic, known.schema)
        payload = known.write(value)
        if framing.prefix:
            payload = framing.prefix + payload
        ours = self._ours
        for pair in headers:
            if pair[0] in ours:
                return payload, self._replaced(headers, framing)
        return payload, _new_headers(Headers, (*headers, *framing.pairs)) if framing.pairs else headers

    def _known(self, kind: type) -> _Kind:
        """Find out which schema a type's objects follow, and deposit it."""
        own = own_schema(kind)
        schema = self._schema if own is None else AvroSchema.of(own, self._limits)
        if schema is None:
            raise SerdeError(
                f"there is no schema to write {kind.__name__} by: the serde has no option schema, and the "
                f"type no __avro_schema__"
            )
        made = _Kind(schema, writer(schema, strict=self._options.strict), self._lasting(schema))
        if len(self._kinds) >= _MAX_KINDS:
            self._kinds.clear()
        self._kinds[kind] = made
        return made

    def _lasting(self, schema: AvroSchema) -> Framing | None:
        """Return the framing where it is the same for every topic."""
        if self._way == "schema":
            return self._framed((TEXT_HEADERS[self._part], schema.text.encode()))
        if self._way != "fingerprint":
            return None
        algorithm = self._options.fingerprint
        self._opened().put(schema.deposit(algorithm))
        return self._framed((SCHEMA_HEADER, encode_mark(self._part, schema.fingerprint(algorithm))))

    def _framing(self, topic: str, schema: AvroSchema) -> Framing:
        """Return the framing for a topic, with the id that the registry gave the schema there."""
        key = (topic, schema)
        found = self._framings.get(key)
        if found is None:
            subject = self._options.subject.format(topic=topic, part=self._part, name=schema.name)
            found = self._registered(subject, schema)
            self._framings.put(key, found, 1)
        return found

    def _registered(self, subject: str, schema: AvroSchema) -> Framing:
        schema_id, guid = self._opened().register(subject, schema.text)
        if self._way == "prefix":
            return Framing(encode_id(schema_id), (), ())
        if not guid:
            raise SerdeError(
                f"the schema registry gave no GUID for subject {subject!r}: it is too old for "
                f"write_as = 'confluent-header'; write the prefix instead"
            )
        return self._framed((ID_HEADERS[self._part], encode_guid(guid)))

    def _framed(self, pair: Pair) -> Framing:
        return Framing(b"", tuple(self._content.state(Headers.trusted((pair,)))), (pair,))

    def _opened(self) -> CachedStore:
        if self._store is None:  # the options have been checked
            raise SerdeError(f"write_as = {self._way!r} needs a store")
        return self._store

    def _replaced(self, headers: Headers, framing: Framing) -> Headers:
        """Put the headers in the place of what an earlier pass left there."""
        kept = self._cleared(headers)
        return self._content.state(Headers.trusted((*kept, *framing.named)))

    def _cleared(self, headers: Headers) -> Headers:
        """Take off what names the schema of this part; the very same headers where nothing does."""
        carriers = self._carriers
        kept = [pair for pair in without_mark(self._part, headers) if pair[0] not in carriers]
        return headers if len(kept) == len(headers) else Headers.trusted(kept)
