"""confluent-kafka's own Schema Registry serdes, by name: Avro, JSON Schema and Protobuf.

They do all the work. We add configuration, a shared client, and ids that cannot go stale. Writing replaces
``__key_schema_id`` or ``__value_schema_id``, or removes it if the id goes into the payload. Reading removes
it, like other headers for transport.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, NamedTuple

import msgspec

from headerware.core.errors import ConfigError, SerdeError, of_file
from headerware.core.options import path_unless
from headerware.core.plain_files import require_json, require_path, why_unreadable
from headerware.core.printable import without_secrets
from headerware.serdes.confluent.client import (
    SharedClient,
    registry_module,
    shared_client,
)
from headerware.serdes.confluent.framing import ID_HEADERS, decode_id_header
from headerware.serdes.confluent.settings import flat, for_reading, serde_settings
from headerware.serdes.formats.protobuf import message_class, require_message
from headerware.serdes.serde import Serde, SerdeContext

if TYPE_CHECKING:
    from collections.abc import Callable

    from headerware.core.headers import Headers
    from headerware.serdes.serde import SerdeContext

_JSON_BEGINS: Final = ("{", "[", '"')
_SCHEMA_FROM_REGISTRY: Final = ("use.latest.version", "use.latest.with.metadata", "use.schema.id")
"""Settings by which the registry chooses the schema to write by."""


def _is_json(text: str) -> bool:
    return text.lstrip().startswith(_JSON_BEGINS)


class Format(NamedTuple):
    """confluent-kafka's classes for a format, each with the name of its argument for a schema or a class."""

    module: str
    serializer: tuple[str, str]
    deserializer: tuple[str, str]
    min_bytes: int = 0
    """The shortest payload that the deserializer accepts, even without a prefix."""


class Confluent(Serde, frozen=True, kw_only=True):
    """Hold the options that the three serdes have in common.

    Args:
        url: the Schema Registry's address; ``mock://name`` is confluent-kafka's mock, in memory.
        registry: further settings of confluent-kafka's ``SchemaRegistryClient``, such as
            ``basic.auth.user.info`` or ``ssl.ca.location``. Serdes with equal settings share one client.
        id_in: where the schema's id is written: in front of the payload, or as a GUID in the header
            ``__key_schema_id`` or ``__value_schema_id``. Both are read.
        settings: settings of confluent-kafka's serializer and deserializer, such as
            ``auto.register.schemas`` or ``use.latest.version``; ``subject.name.strategy`` is a word:
            ``topic``, ``record``, ``topic_record``, or ``associated`` if confluent-kafka supports it.

    Raises:
        ConfigError: a setting has a wrong type. If confluent-kafka refuses one, :meth:`open` raises it.
    """

    format: ClassVar[Format]

    url: str
    registry: dict[str, Any] = msgspec.field(default_factory=dict)
    id_in: Literal["prefix", "header"] = "prefix"
    settings: dict[str, Any] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse wrong options, as far as they can be checked without confluent-kafka's parts."""
        if not self.url.strip():
            raise ConfigError("expected the address of a Schema Registry", path="url")
        flat(self.registry, path="registry")
        flat(self.settings, path="settings")

    def __repr__(self) -> str:
        """Show neither the registry's address nor its settings, because they may hold passwords."""
        return f"{type(self).__name__}(id_in={self.id_in!r}, settings={without_secrets(self.settings)!r})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """Show as little in rich's output and tracebacks."""
        return [("id_in", self.id_in), ("settings", without_secrets(self.settings))]

    def _opened(self, context: SerdeContext, subject: Any) -> OpenConfluent:
        """Return the functions that write and read by a schema or class."""
        registry_module("")  # its error names the package to install, before the settings need its functions
        settings = serde_settings(self.settings, path="settings")
        has_schema = subject is not None or any(settings.get(name) for name in _SCHEMA_FROM_REGISTRY)
        if context.side == "producer" and not has_schema:
            problem = "expected a schema to write by, or use.latest.version in settings"
            raise ConfigError(problem, path="schema")
        writes, reads = has_schema and context.side != "consumer", context.side != "producer"
        shared = shared_client(self.url, self.registry)
        try:
            serializer = self._serializer(shared, settings, subject) if writes else None
            deserializer = self._deserializer(shared, settings, subject) if reads else None
            return OpenConfluent(
                context,
                serializer,
                deserializer,
                min_bytes=self.format.min_bytes,
                on_close=shared.close,
            )
        except BaseException:
            shared.close()
            raise

    def _serializer(self, shared: SharedClient, settings: dict[str, Any], subject: Any) -> Any:
        ids = getattr(registry_module(""), f"{self.id_in}_schema_id_serializer")
        writing = {**settings, "schema.id.serializer": ids}
        return _made(self.format.module, self.format.serializer, shared, writing, subject)

    def _deserializer(self, shared: SharedClient, settings: dict[str, Any], subject: Any) -> Any:
        reading = for_reading(settings)
        return _made(self.format.module, self.format.deserializer, shared, reading, subject)


class ConfluentText(Confluent, frozen=True, kw_only=True):
    """Hold the schema of a serde whose schemas are texts."""

    schema: Annotated[Any, path_unless(_is_json)] = None

    def check_files(self) -> None:
        """Read the schema's file."""
        _schema(self.schema)

    def open(self, context: SerdeContext) -> OpenConfluent:
        """Return the functions for one client; the registry is reached with the first record.

        Raises:
            ConfigError: confluent-kafka's parts are not installed, or refuse the schema or the settings.
        """
        return self._opened(context, _schema(self.schema))


class ConfluentAvro(ConfluentText, frozen=True, kw_only=True):
    """Write and read Avro with confluent-kafka's serdes.

    Args:
        schema: the schema to write by, and to which payloads are resolved: a file; in code also the schema
            itself as JSON, or confluent-kafka's ``Schema`` with its references. Without it, payloads are
            read as they were written.
    """

    type: ClassVar[str] = "confluent-avro"
    format: ClassVar[Format] = Format(
        "avro", ("AvroSerializer", "schema_str"), ("AvroDeserializer", "schema_str"), min_bytes=6
    )


class ConfluentJson(ConfluentText, frozen=True, kw_only=True):
    """Write and read JSON with a JSON Schema, with confluent-kafka's serdes; both validate.

    Args:
        schema: the schema by which to write, and to validate payloads: a file; in code also the schema
            itself as JSON, or confluent-kafka's ``Schema`` with its references. Without it, payloads are
            validated by the schema that they were written by.
    """

    type: ClassVar[str] = "confluent-json"
    format: ClassVar[Format] = Format(
        "json_schema", ("JSONSerializer", "schema_str"), ("JSONDeserializer", "schema_str")
    )


class ConfluentProtobuf(Confluent, frozen=True, kw_only=True):
    """Write and read Protobuf messages of one type with confluent-kafka's serdes.

    Args:
        message: the generated class, as ``package.module_pb2:Message``; in code also the class itself.

    Raises:
        ConfigError: ``message`` has another form.
    """

    type: ClassVar[str] = "confluent-protobuf"
    format: ClassVar[Format] = Format(
        "protobuf", ("ProtobufSerializer", "msg_type"), ("ProtobufDeserializer", "message_type")
    )

    message: Any

    def __post_init__(self) -> None:
        """Also refuse what is no name of a class."""
        super().__post_init__()
        require_message(self.message)

    def open(self, context: SerdeContext) -> OpenConfluent:
        """Return the functions for one client; the registry is reached with the first record.

        Raises:
            ConfigError: the class cannot be imported, or confluent-kafka's parts are not installed or
                refuse the settings.
        """
        return self._opened(context, message_class(self.message))


def _made(
    module: str, names: tuple[str, str], shared: SharedClient, settings: dict[str, Any], subject: Any
) -> Any:
    name, argument = names
    kind = getattr(registry_module(module), name)
    try:
        return kind(schema_registry_client=shared.client, conf=settings, **{argument: subject})
    except Exception as error:  # of many kinds: the schema's parser, the settings, the registry
        raise ConfigError(
            f"confluent-kafka's {name} refuses its options: {type(error).__name__}: {error}"
        ) from error


def _schema(given: Any) -> Any:
    """Return a schema in a form that confluent-kafka accepts."""
    if isinstance(given, dict | list):
        return msgspec.json.encode(given).decode()
    if not isinstance(given, str) or _is_json(given):
        return given
    require_path(given, "schema")
    try:
        text = Path(given).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"cannot read {given}: {why_unreadable(given, error)}; expected a file with a schema",
            path="schema",
        ) from error
    with of_file("schema"):
        require_json(text, given)
    return text


class OpenConfluent:
    """A serializer and a deserializer of confluent-kafka's; safe for use by several threads at once."""

    __slots__ = ("_header", "_min_bytes", "_on_close", "_part", "_reader", "_writer")

    def __init__(
        self,
        context: SerdeContext,
        serializer: Any,
        deserializer: Any,
        *,
        min_bytes: int,
        on_close: Callable[[], None],
    ) -> None:
        from headerware.serdes.confluent.functions import from_confluent  # noqa: PLC0415 - it imports confluent_kafka

        self._part: Final = context.part
        self._header: Final = ID_HEADERS[context.part]
        self._writer, self._reader = (
            None if function is None else from_confluent(function, context)
            for function in (serializer, deserializer)
        )
        self._min_bytes: Final = min_bytes
        self._on_close: Callable[[], None] | None = on_close

    def serialize(self, topic: str, headers: Headers, value: Any) -> tuple[bytes | None, Headers]:
        if self._writer is None:
            raise SerdeError(f"the {self._part}'s serde was opened without a schema, or for reading only")
        return self._writer.serialize(topic, headers, value)

    def deserialize(self, topic: str, headers: Headers, payload: bytes | None) -> tuple[Any, Headers]:
        """Read a payload, and remove the header with the id of its schema."""
        if self._reader is None:
            raise SerdeError(f"the {self._part}'s serde was opened for writing only")
        ids = headers.all(self._header)
        if not ids:
            return self._reader.deserialize(topic, headers, payload)
        # The last id is right: confluent-kafka's serializer appends its id to the caller's list, though its
        # deserializer takes the first id.
        schema_id, rest = ids[-1], headers.remove(self._header)
        if payload is not None and schema_id is not None and len(payload) < self._min_bytes:
            # confluent-kafka refuses payloads shorter than a prefix and a byte, so put the id in front.
            decode_id_header(self._header, schema_id)
            return self._reader.deserialize(topic, rest, schema_id + payload)[0], rest
        framed = rest.append((self._header, schema_id))
        return self._reader.deserialize(topic, framed, payload)[0], rest

    def close(self) -> None:
        """Release the registry's client; a second call does nothing."""
        close, self._on_close = self._on_close, None
        if close is not None:
            close()
