"""Schema: schemas in headers become fingerprints on send, and schemas again on consume (spec/schema.md).

The serializer needs no registry: it puts the schema's text into header ``avro.schema`` (for a key:
``avro.schema.key``), as :class:`headerware.serdes.Avro` does without a store, and as a serializer of any
library can. This interceptor has the store: it deposits the schema once, and replaces the text by the
fingerprint. On consume it fetches the text and puts it back, so the deserializer needs no registry either.

Header ``hw.schema``, one for each part, is text: ``value:sha256:`` and the digest in hexadecimal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final

import msgspec

from headerware.core.bounded_cache import BoundedCache
from headerware.core.errors import ConfigError, SerdeError
from headerware.core.headers import Headers
from headerware.core.hooks import Interceptor, Place, Role
from headerware.core.options import kinds
from headerware.serdes.avro.limits import STORED
from headerware.serdes.avro.schema import Algorithm, AvroSchema, require_strong, weakness
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
_MAX_BYTES: Final = 8 << 20
_new_headers: Final = tuple.__new__


class Schema(Interceptor, frozen=True, kw_only=True):
    """Deposit the schemas that serializers put into headers, and send their fingerprints instead.

    This step is to the right of the serializer. Records without a schema's text on send, and without
    ``hw.schema`` on consume, pass unchanged.

    Args:
        store: where schemas are deposited and fetched; by type: ``folder``, ``topic`` or ``registry``.
        fingerprint: the digest of schemas on send: ``sha256``, ``md5`` or ``rabin``. On consume all three are
            accepted, or only ``sha256`` if records are signed.
        max_schema_bytes: the maximum size of a schema's text, in bytes.

    Raises:
        ConfigError: there is no store.

    Safe for use by several threads at once.
    """

    type: ClassVar[str] = "schema"
    role: ClassVar[Role] = Role.TRANSFORM
    place: ClassVar[Place | None] = Place.SCHEMA
    blocks: ClassVar[bool] = True
    decodes: ClassVar[tuple[str, ...]] = (SCHEMA_HEADER,)

    store: Annotated[Any, kinds(store_type)]
    fingerprint: Algorithm = "sha256"
    max_schema_bytes: Annotated[int, msgspec.Meta(ge=2)] = 1 << 20

    def __post_init__(self) -> None:
        """Refuse a store of a wrong type."""
        if not isinstance(self.store, Store | SchemaStore):
            message = f"expected a schema store, found {type(self.store).__name__}"
            raise ConfigError(message, path="store")

    @property
    def unsignable(self) -> str | None:
        """The reason why a chain that signs cannot have this step, or None if it can."""
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
        self._marks: Final[BoundedCache[Pair, Pair]] = BoundedCache(
            _MAX_SCHEMAS,
            self._mark,
            max_cost=_MAX_BYTES,
            cost=lambda text, _mark: len(text[1] or b""),
        )
        self._texts: Final[BoundedCache[HeaderValue, Pair]] = BoundedCache(
            _MAX_SCHEMAS,
            self._text,
            max_cost=_MAX_BYTES,
            cost=lambda _mark, text: len(text[1] or b""),
        )

    def on_send(self, record: Record) -> Record:
        """Replace the texts of schemas by their fingerprints, after putting the schemas into the store."""
        headers = record.headers
        for pair in headers:
            if pair[0] in _PART_OF:
                return record.with_headers(self._with_marks(headers))
        return record

    def on_consume(self, record: Record) -> Record:
        """Replace the fingerprints by the texts of their schemas."""
        headers = record.headers
        for pair in headers:
            if pair[0] == SCHEMA_HEADER:
                return record.with_headers(self._with_texts(headers))
        return record

    def close(self) -> None:
        """Release the store; calling it again does nothing."""
        store, self._store = self._store, None
        if store is not None:
            store.close()

    def _with_marks(self, headers: Headers) -> Headers:
        """Replace each text by its mark; a mark that an earlier pass left for the same part is removed."""
        parts = {_PART_OF[name]: None for name, _ in headers if name in _PART_OF}
        if len(parts) != sum(name in _PART_OF for name, _ in headers):
            raise SerdeError("expected one header with a schema's text for each part, found two of one name")
        kept: list[Pair] = []
        for pair in headers:
            if pair[0] in _PART_OF:
                kept.append(self._marks[pair])
            elif not any(is_mark_of_part(part, pair) for part in parts):
                kept.append(pair)
        return _new_headers(Headers, kept)

    def _mark(self, pair: Pair) -> Pair:
        name, text = pair
        if text is None:
            raise SerdeError(f"{name} is null, expected a schema")
        schema = AvroSchema.parsed(text, self._limits)
        self._opened().put(schema.deposit(self._algorithm))
        return SCHEMA_HEADER, encode_mark(_PART_OF[name], schema.fingerprint(self._algorithm))

    def _with_texts(self, headers: Headers) -> Headers:
        """Replace each mark by its text; a text that the record already had for the part is removed."""
        marks = [value for name, value in headers if name == SCHEMA_HEADER]
        texts = [self._texts[value] for value in marks]
        names = {name for name, _ in texts}
        if len(names) != len(texts):
            raise SerdeError(f"expected one {SCHEMA_HEADER} header for each part, found two for one part")
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
        return TEXT_HEADERS[part], schema.text.encode()

    def _opened(self) -> CachedStore:
        if self._store is None:
            raise SerdeError("the schema step is closed")
        return self._store
