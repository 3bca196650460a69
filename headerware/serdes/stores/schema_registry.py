"""Confluent's Schema Registry as a schema store, through confluent-kafka's own client.

The registry finds schemas by id, by GUID and by subject, but not by fingerprint. So a deposit registers the
schema under a subject that contains its fingerprint, such as ``headerware-sha256-`` and 64 hexadecimal
digits. The registry stores a schema with several subjects only once, under one id.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec

from headerware.core.errors import (
    ConfigError,
    HeldBackError,
    InterceptorError,
    SerdeError,
    UnknownSchemaError,
)
from headerware.serdes.confluent.client import named_registry, shared_client
from headerware.serdes.stores.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable

    from confluent_kafka.schema_registry import SchemaRegistryClient

    from headerware.serdes.avro.schema import Fingerprint, Schema

_NOT_FOUND: Final = 404
_SERVER_ERROR: Final = 500
_CLIENT_REFUSALS: Final = frozenset({401, 403, 408, 429})
"""Refusals of the client, not of the schema: unauthorized, forbidden, timed out, too many requests."""


class RegistrySchemas(Store, frozen=True, kw_only=True):
    """Keep schemas in Confluent's Schema Registry.

    Args:
        url: the registry's address, such as ``http://localhost:8081``; ``mock://`` is confluent-kafka's mock,
            in memory.
        config: further settings of confluent-kafka's client, such as ``basic.auth.user.info``,
            ``ssl.ca.location`` or ``timeout``.
        subject: the subject of a deposit, with ``{algorithm}`` and ``{digest}`` (in hexadecimal).

    Raises:
        ConfigError: the subject lacks the digest, or has other fields.
    """

    type: ClassVar[str] = "registry"

    url: str
    config: dict[str, Any] = msgspec.field(default_factory=dict)
    subject: str = "headerware-{algorithm}-{digest}"

    def __post_init__(self) -> None:
        """Refuse a subject that is the same for different schemas."""
        try:
            first, second = (
                self.subject.format(algorithm="sha256", digest=digest) for digest in ("0" * 64, "1" * 64)
            )
        except (KeyError, IndexError, ValueError, AttributeError):
            first = second = ""
        if first == second:
            raise ConfigError("expected text with {digest}, and {algorithm} if wanted", path="subject")

    def open(self) -> RegistryStore:
        """Return the store; it connects to the registry with the first request.

        Raises:
            ConfigError: confluent-kafka's registry client is not installed, or refuses the settings.
        """
        try:
            shared = shared_client(self.url, self.config)
        except ConfigError as error:
            raise error.with_path(f"config{error.path.removeprefix('registry')}") from error
        return RegistryStore(shared.client, subject=self.subject, on_close=shared.close)


class RegistryStore:
    """The schemas of a Schema Registry, by fingerprint, id and GUID; safe for use by several threads."""

    def __init__(
        self,
        client: SchemaRegistryClient,
        *,
        subject: str = "headerware-{algorithm}-{digest}",
        on_close: Callable[[], None] | None = None,
    ) -> None:
        self._client: Final = client
        self._subject: Final = subject
        self._on_close = on_close
        self._name: Final = named_registry(client)

    def get(self, fingerprint: Fingerprint) -> str:
        """Return a schema's text; see :class:`SchemaStore`."""
        subject = self._subject_of(fingerprint)
        found = self._asked(f"subject {subject!r}", lambda: self._client.get_latest_version(subject))
        return self._text(found.schema, f"subject {subject!r}")

    def put(self, schema: Schema) -> None:
        """Register a schema under the subject of its fingerprint; see :class:`SchemaStore`."""
        self.register(self._subject_of(schema.fingerprint), schema.text)

    def by_id(self, schema_id: int) -> str:
        """Return the schema of an id; see :class:`NumberedStore`."""
        found = self._asked(f"id {schema_id}", lambda: self._client.get_schema(schema_id))
        return self._text(found, f"id {schema_id}")

    def by_guid(self, guid: bytes) -> str:
        """Return the schema of a GUID; see :class:`NumberedStore`."""
        shown = str(uuid.UUID(bytes=guid))
        found = self._asked(f"GUID {shown}", lambda: self._client.get_schema_by_guid(shown))
        return self._text(found, f"GUID {shown}")

    def register(self, subject: str, text: str) -> tuple[int, bytes]:
        """Register a schema under a subject; see :class:`NumberedStore`."""
        from confluent_kafka.schema_registry import Schema as ConfluentSchema  # noqa: PLC0415 - heavy, and an extra

        schema = ConfluentSchema(text, "AVRO")
        found = self._asked(
            f"subject {subject!r}",
            lambda: self._client.register_schema_full_response(subject, schema),
            if_unavailable=SerdeError,
        )
        if found.schema_id is None:
            raise SerdeError(f"the {self._name} gave no id for subject {subject!r}")
        return found.schema_id, uuid.UUID(found.guid).bytes if found.guid else b""

    def close(self) -> None:
        """Release the client; a second call does nothing."""
        on_close, self._on_close = self._on_close, None
        if on_close is not None:
            on_close()

    def _subject_of(self, fingerprint: Fingerprint) -> str:
        return self._subject.format(algorithm=fingerprint.algorithm, digest=fingerprint.digest.hex())

    def _asked(
        self, what: str, ask: Callable[[], Any], *, if_unavailable: type[InterceptorError] = HeldBackError
    ) -> Any:
        """Ask the registry; raise UnknownSchemaError if it answers that it has no such schema."""
        from confluent_kafka.schema_registry import SchemaRegistryError  # noqa: PLC0415 - heavy, and an extra

        try:
            found = ask()
        except SchemaRegistryError as error:
            if error.http_status_code == _NOT_FOUND:
                raise UnknownSchemaError(f"the {self._name} has no schema under {what}") from error
            kind = if_unavailable if is_temporary(error.http_status_code) else SerdeError
            raise kind(
                f"the {self._name} refused {what}: HTTP status {error.http_status_code}, "
                f"code {error.error_code}"
            ) from error
        except Exception as error:
            raise if_unavailable(f"the {self._name} cannot be reached ({type(error).__name__})") from error
        if found is None:  # confluent-kafka's mock returns None for an unknown schema
            raise UnknownSchemaError(f"the {self._name} has no schema under {what}")
        return found

    def _text(self, schema: Any, what: str) -> str:
        kind = schema.schema_type or "AVRO"
        if kind.upper() != "AVRO":
            raise SerdeError(f"the {self._name} has a schema of type {kind} under {what}, expected Avro")
        if schema.references:
            raise SerdeError(
                f"the schema that the {self._name} has under {what} refers to other schemas; register one "
                "schema that contains them"
            )
        text: str = schema.schema_str
        return text


def is_temporary(http_status_code: int) -> bool:
    """Return whether a refusal with this HTTP status says nothing about the schema, so that records wait."""
    return http_status_code >= _SERVER_ERROR or http_status_code in _CLIENT_REFUSALS
