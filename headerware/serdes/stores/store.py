"""What a schema store is: schemas by their fingerprint, deposited by writers and fetched by readers.

A store keeps the text of schemas under a :class:`Fingerprint`, which is what header ``hw.schema`` carries
(spec/schema.md). Its options are a :class:`Store`, which configuration names by a word.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final, Literal, Protocol, runtime_checkable

import msgspec

from headerware.core.errors import PluginError, SerdeError
from headerware.core.plugins import Catalogue

Algorithm = Literal["md5", "rabin", "sha256"]
"""How a schema is digested: MD5, Avro's 64-bit Rabin fingerprint (CRC-64-AVRO), or SHA-256."""

ALGORITHM_BYTES: Final[dict[Algorithm, int]] = {"md5": 1, "rabin": 2, "sha256": 3}
"""The algorithms as ``hw.schema`` numbers them."""
DIGEST_BYTES: Final[dict[Algorithm, int]] = {"md5": 16, "rabin": 8, "sha256": 32}
"""How long their digests are."""

_FORGED: Final[dict[Algorithm, str]] = {
    "md5": "who deposits schemas can make two with one MD5 digest",
    "rabin": "another schema with the same Rabin fingerprint is made in a moment",
}


def weakness(algorithm: Algorithm) -> str | None:
    """Return why a digest does not bind a signed record to its schema, or None if it does."""
    forged = _FORGED.get(algorithm)
    return forged and f"{forged}, so that signed bytes are read as something else; use sha256"


class Fingerprint(msgspec.Struct, frozen=True):
    """What a schema is known by: the digest of its canonical form.

    Args:
        algorithm: how the digest was made.
        digest: 16 bytes for MD5, 8 for Rabin (big-endian), 32 for SHA-256.
    """

    algorithm: Algorithm
    digest: bytes

    @classmethod
    def of(cls, schema_text: str, algorithm: Algorithm = "sha256") -> Fingerprint:
        """Digest a schema's canonical form (spec/schema.md).

        Args:
            schema_text: the schema as JSON.
            algorithm: the digest to make.

        Raises:
            SerdeError: the text is no Avro schema.
        """
        from headerware.serdes.avro.schema import AvroSchema  # noqa: PLC0415 - it imports fastavro

        return AvroSchema.parsed(schema_text).fingerprint(algorithm)

    @property
    def code(self) -> bytes:
        """The algorithm's byte and the digest: how topics and ``hw.schema`` write it."""
        return bytes((ALGORITHM_BYTES[self.algorithm],)) + self.digest

    def __str__(self) -> str:
        return f"{self.algorithm} {self.digest.hex()}"


def require_strong(fingerprint: Fingerprint, *, signed: bool) -> None:
    """Refuse a fingerprint that does not bind a signed record to its schema.

    Raises:
        SerdeError: the records are signed, and the digest can be forged.
    """
    weak = weakness(fingerprint.algorithm) if signed else None
    if weak:
        raise SerdeError(
            f"the schema is named by its {fingerprint.algorithm} fingerprint, expected sha256 where records "
            f"are signed: {weak}"
        )


class Schema(msgspec.Struct, frozen=True):
    """A schema as a store keeps it.

    Args:
        fingerprint: what it is fetched by.
        text: the schema as JSON; its canonical form has that fingerprint.
        name: the full name of the record, enumeration or fixed, for people; empty for other types.
    """

    fingerprint: Fingerprint
    text: str
    name: str = ""


@runtime_checkable
class SchemaStore(Protocol):
    """Keeps schemas; safe for use by several threads at once."""

    def get(self, fingerprint: Fingerprint) -> str:
        """Fetch a schema's text. Who asks checks that it has the fingerprint.

        Raises:
            UnknownSchemaError: the store was reached, and does not have it.
            SerdeError: the store cannot be reached or read.
        """
        ...

    def put(self, schema: Schema) -> None:
        """Deposit a schema, and return once readers can find it; one that is there already is no error.

        Raises:
            SerdeError: the store cannot be reached or written.
        """
        ...

    def close(self) -> None:
        """Let go of what the store holds; calling it again does nothing."""
        ...


@runtime_checkable
class NumberedStore(Protocol):
    """Keeps schemas under ids and GUIDs as well, as Confluent's Schema Registry does."""

    def by_id(self, schema_id: int) -> str:
        """Fetch the schema of an id that stood in front of a payload.

        Raises:
            UnknownSchemaError: there is none.
            SerdeError: the store cannot be reached.
        """
        ...

    def by_guid(self, guid: bytes) -> str:
        """Fetch the schema of a GUID (16 bytes) that stood in a header.

        Raises:
            UnknownSchemaError: there is none.
            SerdeError: the store cannot be reached.
        """
        ...

    def register(self, subject: str, text: str) -> tuple[int, bytes]:
        """Register a schema under a subject, and give its id and its GUID (empty where it has none).

        Raises:
            SerdeError: the store cannot be reached, or refuses the schema.
        """
        ...


class Store(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of a schema store, which open into the store.

    Args:
        max_schemas: how many schemas are remembered; the least lately used are forgotten first.
        unknown_for_s: how long a schema that the store did not have stays unknown, in seconds.
    """

    type: ClassVar[str] = ""
    """The word for it in configuration."""

    max_schemas: Annotated[int, msgspec.Meta(ge=1)] = 1000
    unknown_for_s: Annotated[float, msgspec.Meta(ge=0)] = 30.0

    def open(self) -> Any:
        """Return the opened :class:`SchemaStore`; a subclass says which.

        Raises:
            PluginError: the subclass does not say it.
        """
        raise PluginError(f"{type(self).__name__} is a schema store without open()")

    def __repr__(self) -> str:
        """Show no option, for addresses and properties may hold passwords."""
        return f"{type(self).__name__}(...)"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """Show no option in rich's tracebacks either."""
        return []


store_type: Final[Catalogue[Store]] = Catalogue(
    "schema store type",
    Store,
    {
        "folder": "headerware.serdes.stores.folder:FolderSchemas",
        "registry": "headerware.serdes.stores.registry:RegistrySchemas",
        "topic": "headerware.serdes.stores.topic:TopicSchemas",
    },
)
"""The schema stores, by word."""
