"""The consuming half of :class:`headerware.serdes.Avro`: find a payload's schema, and read it by that.

In this order: ``hw.schema`` of the part; ``avro.schema``; Confluent's header; Confluent's prefix; Avro's
single-object encoding; and then the serde's own schema.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headerware.core.errors import SerdeError, UnknownSchemaError
from headerware.core.headers import Headers
from headerware.serdes.avro.binary import reader, what_it_looks_like
from headerware.serdes.avro.schema import AvroSchema
from headerware.serdes.confluent.framing import (
    ID_HEADERS,
    PREFIX_BYTES,
    SINGLE_OBJECT_BYTES,
    decode_id_header,
    prefix_of,
    single_object_of,
)
from headerware.serdes.content.headers import header_for, last_stated, spellings
from headerware.serdes.content.types import content_type_of
from headerware.serdes.lately_used import LatelyUsed
from headerware.serdes.schema_header import (
    SCHEMA_HEADER,
    TEXT_HEADERS,
    decode_mark,
    is_mark_of_part,
)
from headerware.serdes.stores.store import require_strong

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from headerware.core.headers import HeaderValue, Pair
    from headerware.serdes.avro.serde import Avro
    from headerware.serdes.serde import SerdeContext
    from headerware.serdes.stores.cache import CachedStore

_MAX_READERS: Final = 512
_MAX_TEXT: Final = 4 << 20
"""How much text the schemas of the remembered readers have together; what was parsed is some times larger."""
_new_headers: Final = tuple.__new__


class AvroReading:
    """Reads one part's payloads; safe for use by several threads at once.

    Args:
        options: the serde's options.
        context: the part.
        schema: the writer's schema of payloads that name none.
        wanted: the reader's schema, or None for the writer's.
        store: where schemas are fetched, or None.
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
        self._readers: LatelyUsed[Hashable, Callable[..., Any]] = LatelyUsed(_MAX_READERS, 2 * _MAX_TEXT)

    def deserialize(self, topic: str, headers: Headers, payload: bytes | None) -> tuple[Any, Headers]:  # noqa: ARG002
        """Read a payload; see :class:`headerware.serdes.serde.Deserializer`."""
        carriers = self._carriers
        for pair in headers:
            if pair[0] in carriers:
                return self._by_headers(headers, payload)
        return None if payload is None else self._bare(headers, payload), headers

    def _by_headers(self, headers: Headers, payload: bytes | None) -> tuple[Any, Headers]:
        """Read by a header that names the schema, and take off those of this part."""
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
        read = self._readers.get(carrier) or self._reader_of(carrier)
        return read(payload), rest

    def _deciding(self, found: list[Pair]) -> Pair:
        """Choose among several headers: ours, then the last text, then the last of Confluent's."""
        marks = [pair for pair in found if pair[0] == SCHEMA_HEADER]
        if len(marks) > 1:
            raise SerdeError(f"{SCHEMA_HEADER} of the {self._part} stands {len(marks)} times, expected once")
        texts = [pair for pair in found if pair[0] == self._text_header]
        return (marks or texts or found)[-1]

    def _reader_of(self, carrier: Pair) -> Callable[..., Any]:
        name, value = carrier
        schema = self._SOURCES[name](self, value)
        return self._remembered(carrier, schema, len(value or b""))

    def _remembered(self, key: Hashable, schema: AvroSchema, key_bytes: int = 0) -> Callable[..., Any]:
        made = reader(schema, self._wanted)
        self._readers.put(key, made, max(key_bytes, len(schema.text)))
        return made

    def _by_mark(self, value: HeaderValue) -> AvroSchema:
        part, fingerprint = decode_mark(value)
        if part != self._part:
            raise SerdeError(f"{SCHEMA_HEADER} is for the {part}, expected the {self._part}")
        require_strong(fingerprint, signed=self._signed)
        known = next(
            (own for own in self._known if own.fingerprint(fingerprint.algorithm) == fingerprint), None
        )
        if known is not None:
            return known
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
                read = self._readers.get(schema_id) or self._remembered(
                    schema_id, AvroSchema.parsed(store.by_id(schema_id), self._limits)
                )
                return read(payload, PREFIX_BYTES)
        read_object = self._single_object(payload) if payload[:1] == b"\xc3" else None
        if read_object is not None:
            return read_object(payload, SINGLE_OBJECT_BYTES)
        if self._own is None:
            hint = what_it_looks_like(payload)
            raise UnknownSchemaError(
                f"no header names the {self._part}'s schema, and the serde has none of its own"
                + (f"; {hint}" if hint else "")
            )
        return self._own(payload)

    def _single_object(self, payload: bytes) -> Callable[..., Any] | None:
        """Return the reader for a payload in single-object encoding, where its schema can be found."""
        fingerprint = single_object_of(payload)
        if fingerprint is None:
            return None
        found = self._readers.get(fingerprint)
        if found is not None:
            return found
        known = next((own for own in self._known if own.fingerprint("rabin") == fingerprint), None)
        if known is None and self._store is not None:
            try:
                known = AvroSchema.fetched(self._store, fingerprint, self._limits)
            except UnknownSchemaError:
                return None  # then these two bytes are the beginning of a bare payload
            require_strong(fingerprint, signed=self._signed)
        return None if known is None else self._remembered(fingerprint, known)

    def _says_avro(self, headers: Headers) -> bool:
        """Return whether the content type states bare Avro."""
        stated = last_stated(headers, self._content_headers)
        if stated is None:
            return False
        try:
            return content_type_of(stated).format == "avro"
        except SerdeError:
            return False
