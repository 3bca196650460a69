"""Schema: texts of schemas swapped for fingerprints on send, and back on consume (seed 004).

The serializer knows no registry: it puts the schema's text into header ``avro.schema`` (a key's:
``avro.schema.key``), as :class:`headerware.serdes.Avro` does without a store, and any serializer of any
library could. This interceptor knows the store: it deposits the schema once, and puts the fingerprint where
the text was. On consume it fetches the text and puts it back, for a deserializer that knows no registry
either.

Header ``hw.schema``, one for each part (spec/schema.md):

    version    u8  1
    part       u8  0 key, 1 value
    algorithm  u8  1 MD5, 2 CRC-64-AVRO (Rabin), 3 SHA-256
    digest     16, 8 or 32 bytes
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final

import msgspec

from headerware.core.errors import ConfigError, SerdeError
from headerware.core.headers import Headers
from headerware.core.hooks import Interceptor, Place, Role
from headerware.core.options import kinds
from headerware.serdes.avro.limits import STORED
from headerware.serdes.avro.schema import Algorithm, AvroSchema, require_strong, weakness
from headerware.serdes.lately_used import LatelyUsed
from headerware.serdes.schema_header import (
    SCHEMA_HEADER,
    TEXT_HEADERS,
    decode_mark,
    encode_mark,
    is_mark_of_part,
)
from headerware.serdes.stores.cache import CachedStore, open_shared
from headerware.serdes.stores.store import SchemaStore, Store, store_type

if TYPE_CHECKING:
    from headerware.core.context import Context
    from headerware.core.headers import HeaderValue, Pair
    from headerware.core.record import Record
    from headerware.serdes.serde import Part

_PART_OF: Final[dict[str, Part]] = {name: part for part, name in TEXT_HEADERS.items()}
_MAX_SCHEMAS: Final = 512
_MAX_TEXT: Final = 8 << 20
_new_headers: Final = tuple.__new__


class Schema(Interceptor, frozen=True, kw_only=True):
    """Deposit the schemas that serializers put into headers, and send their fingerprints instead.

    It stands behind the serializer: right of ``serialize``, where the chain has that step. Records without
    a schema's text on send, and without ``hw.schema`` on consume, pass as they are.

    Args:
        store: where schemas are deposited and fetched; by type: ``folder``, ``topic`` or ``registry``.
        fingerprint: how schemas are digested on send: ``sha256``, ``md5`` or ``rabin``. All three are
            understood on consume, but where records are signed only ``sha256``.
        max_schema_bytes: the size of a schema's text.

    Raises:
        ConfigError: there is no store.

    Safe for use by several threads at once.
    """

    type: ClassVar[str] = "schema"
    role: ClassVar[Role] = Role.TRANSFORM
    place: ClassVar[Place | None] = Place.SCHEMA
    decodes: ClassVar[tuple[str, ...]] = (SCHEMA_HEADER,)

    store: Annotated[Any, kinds(store_type)]
    fingerprint: Algorithm = "sha256"
    max_schema_bytes: Annotated[int, msgspec.Meta(ge=2)] = 1 << 20

    def __post_init__(self) -> None:
        """Refuse what is no store."""
        if not isinstance(self.store, Store | SchemaStore):
            message = f"expected a schema store, found {type(self.store).__name__}"
            raise ConfigError(message, path="store")

    @property
    def unsignable(self) -> str | None:
        """Why it cannot stand in a chain that signs; None where it can."""
        return weakness(self.fingerprint)

    def open(self, context: Context) -> _SchemaStep:
        """Return the hooks for one session."""
        return _SchemaStep(self, open_shared(self.store), signed=context.signed)


class _SchemaStep:
    """The hooks of one session."""

    __slots__ = ("_algorithm", "_limits", "_marks", "_signed", "_store", "_texts")

    def __init__(self, options: Schema, store: CachedStore, *, signed: bool) -> None:
        self._signed: Final = signed
        self._algorithm: Final = options.fingerprint
        self._limits: Final = STORED._replace(max_schema_bytes=options.max_schema_bytes)
        self._store: CachedStore | None = store
        self._marks: Final[LatelyUsed[Pair, Pair]] = LatelyUsed(_MAX_SCHEMAS, _MAX_TEXT)
        self._texts: Final[LatelyUsed[HeaderValue, Pair]] = LatelyUsed(_MAX_SCHEMAS, _MAX_TEXT)

    def on_send(self, record: Record) -> Record:
        """Put a fingerprint where a schema's text stands, once the schema is in the store."""
        headers = record.headers
        for pair in headers:
            if pair[0] in _PART_OF:
                return record.with_headers(self._marked(headers))
        return record

    def on_consume(self, record: Record) -> Record:
        """Put a schema's text where its fingerprint stands."""
        headers = record.headers
        for pair in headers:
            if pair[0] == SCHEMA_HEADER:
                return record.with_headers(self._texted(headers))
        return record

    def close(self) -> None:
        """Give up the store; calling it again does nothing."""
        store, self._store = self._store, None
        if store is not None:
            store.close()

    def _marked(self, headers: Headers) -> Headers:
        """Replace the texts in their places; a fingerprint that an earlier pass left is taken off."""
        parts = {_PART_OF[name]: None for name, _ in headers if name in _PART_OF}
        if len(parts) != sum(name in _PART_OF for name, _ in headers):
            raise SerdeError("a schema's text stands in two headers of one name, expected one")
        kept: list[Pair] = []
        for pair in headers:
            if pair[0] in _PART_OF:
                kept.append(self._marks.get(pair) or self._mark(pair))
            elif not any(is_mark_of_part(part, pair) for part in parts):
                kept.append(pair)
        return _new_headers(Headers, kept)

    def _mark(self, pair: Pair) -> Pair:
        name, text = pair
        if text is None:
            raise SerdeError(f"{name} is null, expected a schema")
        schema = AvroSchema.parsed(text, self._limits)
        self._opened().put(schema.deposit(self._algorithm))
        mark = (SCHEMA_HEADER, encode_mark(_PART_OF[name], schema.fingerprint(self._algorithm)))
        self._marks.put(pair, mark, len(text))
        return mark

    def _texted(self, headers: Headers) -> Headers:
        """Replace the fingerprints in their places; texts that came beside them are taken off."""
        marks = [value for name, value in headers if name == SCHEMA_HEADER]
        texts = [self._texts.get(value) or self._text(value) for value in marks]
        names = {name for name, _ in texts}
        if len(names) != len(texts):
            raise SerdeError(f"{SCHEMA_HEADER} stands twice for one part, expected once")
        following = iter(texts)
        return _new_headers(
            Headers,
            [
                next(following) if pair[0] == SCHEMA_HEADER else pair
                for pair in headers
                if pair[0] not in names
            ],
        )

    def _text(self, value: HeaderValue) -> Pair:
        part, fingerprint = decode_mark(value)
        require_strong(fingerprint, signed=self._signed)
        schema = AvroSchema.fetched(self._opened(), fingerprint, self._limits)
        pair = (TEXT_HEADERS[part], schema.text.encode())
        self._texts.put(value, pair, len(pair[1]))
        return pair

    def _opened(self) -> CachedStore:
        if self._store is None:
            raise SerdeError("the schema step is closed")
        return self._store
