"""The interface of schema stores: writers deposit schemas by fingerprint, and readers fetch them.

A store keeps the text of schemas under the :class:`~headerware.serdes.stores.Fingerprint` that the header
``hw.schema`` carries (spec/schema.md). Its options are a :class:`Store`, which configuration names by a word.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final, Protocol, runtime_checkable

import msgspec

from headerware.core.errors import PluginError
from headerware.core.plugins import Catalogue
from headerware.core.typed_options import SecretOptions

if TYPE_CHECKING:
    from headerware.serdes.avro.schema import Fingerprint, Schema


@runtime_checkable
class SchemaStore(Protocol):
    """Keep schemas; safe for use by several threads at once."""

    def get(self, fingerprint: Fingerprint) -> str:
        """Fetch a schema's text; the caller checks its fingerprint.

        Raises:
            UnknownSchemaError: the store answered, and does not have the schema.
            HeldBackError: the store cannot be reached or read now; records wait for it.
            SerdeError: the store has something other than an Avro schema under this fingerprint.
        """
        ...

    def put(self, schema: Schema) -> None:
        """Deposit a schema, and return once readers can find it; an existing one is no error.

        Raises:
            SerdeError: the store cannot be reached or written.
        """
        ...

    def close(self) -> None:
        """Release the store's resources; a second call does nothing."""
        ...


@runtime_checkable
class NumberedStore(Protocol):
    """Keep schemas under ids and GUIDs as well, as Confluent's Schema Registry does."""

    def by_id(self, schema_id: int) -> str:
        """Fetch the schema with an id, or raise UnknownSchemaError."""
        ...

    def by_guid(self, guid: bytes) -> str:
        """Fetch the schema with a GUID (16 bytes), or raise UnknownSchemaError."""
        ...

    def register(self, subject: str, text: str) -> tuple[int, bytes]:
        """Register a schema under a subject, and return its id and its GUID (empty if it has none)."""
        ...


class Store(SecretOptions, frozen=True, kw_only=True):
    """Hold the options of a schema store, and open the store.

    Args:
        max_schemas: how many schemas are remembered; the least recently used are forgotten first.
        unknown_for_s: how long a schema that the store does not have counts as unknown, in seconds.
    """

    max_schemas: Annotated[int, msgspec.Meta(ge=1)] = 1000
    unknown_for_s: Annotated[float, msgspec.Meta(ge=0)] = 30.0

    def open(self) -> Any:
        """Return the opened :class:`SchemaStore`; each subclass implements this.

        Raises:
            PluginError: the subclass does not implement it.
        """
        raise PluginError(f"{type(self).__name__} is a schema store without open()")


store_type: Final[Catalogue[Store]] = Catalogue(
    "schema store type",
    Store,
    {
        "folder": "headerware.serdes.stores.folder:FolderSchemas",
        "registry": "headerware.serdes.stores.schema_registry:RegistrySchemas",
        "topic": "headerware.serdes.stores.topic:TopicSchemas",
    },
)
"""The schema stores, by word."""
