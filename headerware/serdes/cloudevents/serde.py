"""CloudEvents: the Kafka protocol binding 1.0.2, in both of its content modes.

    binary      the data is the value, each attribute a header ``ce_<name>``, and ``datacontenttype`` the
                header ``content-type``; an event without data is a null value
    structured  the event itself is the value, as JSON; ``content-type: application/cloudevents+json``

Both modes are read; an option chooses the mode to write. The binding has no batches. In the JSON event format
the data is in ``data``, as JSON or as text, or in ``data_base64``, depending on its own content type.
"""

from __future__ import annotations

import binascii
import json
import re
from base64 import b64decode
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, NamedTuple

import msgspec

from headerware.core.errors import ConfigError, SerdeError
from headerware.core.headers import Headers
from headerware.core.options import from_option, kinds
from headerware.serdes.cloudevents.event import CloudEvent, attribute_text
from headerware.serdes.content_types import (
    codec_of,
    content_type_of,
    header_for,
    last_stated,
    parse_content_type,
    spellings,
)
from headerware.serdes.formats.refusals import REFUSALS, cannot_read, cannot_write
from headerware.serdes.plugins import first_unsignable, open_serde, require_serde, serde_type
from headerware.serdes.polyglot import Polyglot
from headerware.serdes.serde import Serde, SerdeContext

if TYPE_CHECKING:
    from collections.abc import Callable

    from headerware.core.headers import Pair
    from headerware.serdes.content_types import ContentType

PREFIX: Final = "ce_"
_STRUCTURED: Final = b"application/cloudevents"
"""The beginning of each structured event's content type."""
JSON_EVENT: Final = "application/cloudevents+json"
_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder().decode
_members: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_syntax: Final = msgspec.json.Decoder(msgspec.Raw).decode


_NON_ASCII: Final = re.compile(r"[^\x00-\x7f]")
_BATCH: Final = "application/cloudevents-batch"
_BYTES: Final = (bytes, bytearray, memoryview)


class _JsonData(NamedTuple):
    """The JSON of the ``data`` member."""

    raw: bytes


class CloudEvents(Serde, frozen=True, kw_only=True):
    """Write events, ours or the official SDK's, and read them as :class:`CloudEvent`.

    The ``datacontenttype`` chooses the serde for an event's data. Bytes with a ``datacontenttype`` are
    already encoded, and stay as they are. Headers that do not begin with ``ce_`` stay, except for
    ``content-type``, which the event decides. The application passes the record's key, as ``key=event.key``.
    Safe for use by several threads at once if the data's serde is, like the built-in serdes.

    Args:
        mode: how events are written.
        data: the serde for the data; None is a polyglot that returns the bytes of unknown content types.

    Raises:
        ConfigError: the mode is unknown. :meth:`open` raises it for keys, which are not events.
    """

    type: ClassVar[str] = "cloudevents"

    mode: Literal["binary", "structured"] = "binary"
    data: Annotated[Any, kinds(serde_type)] = None

    def __post_init__(self) -> None:
        """Refuse an unknown mode, and make the data's serde if a word names it."""
        if self.mode not in {"binary", "structured"}:  # a value from code is not checked yet
            raise ConfigError("expected one of 'binary', 'structured'", path="mode")
        data = from_option(self.data, serde_type, path="data")
        require_serde(data, path="data")
        msgspec.structs.force_setattr(self, "data", data)

    @property
    def unsignable(self) -> str | None:
        """The reason why the serde cannot be used for signed records, or None if it can."""
        return first_unsignable([self.data])

    def open(self, context: SerdeContext) -> CloudEventsFunctions:
        """Return the functions for one client.

        Raises:
            ConfigError: the context is for keys.
        """
        if context.part == "key":
            raise ConfigError("CloudEvents are values; pass an event's key as key=event.key")
        return CloudEventsFunctions(self, context)


class CloudEventsFunctions:
    __slots__ = ("_data", "_name", "_names", "_structured", "close")

    def __init__(self, options: CloudEvents, context: SerdeContext) -> None:
        serde = Polyglot(unknown="bytes") if options.data is None else options.data
        self._data: Final = open_serde(serde, context)
        self._name: Final = header_for(context)
        self._names: Final = spellings(self._name)
        self._structured: Final = options.mode == "structured"
        self.close: Final[Callable[[], None]] = (
            getattr(self._data, "close", _nothing) if self._data is not serde else _nothing
        )

    def serialize(self, topic: str, headers: Headers, value: Any) -> tuple[bytes | None, Headers]:
        """Write an event; None is a tombstone."""
        if value is None:
            return None, headers
        event = _event(value)
        payload, stated = self._written(topic, self._untyped(headers), event)
        if self._structured:
            return _write_event(event, payload, stated.last(self._name)), stated.put(self._name, JSON_EVENT)
        attributes = event.attributes()
        attributes.pop("datacontenttype", None)
        pairs = [(PREFIX + name, attribute_text(own).encode()) for name, own in attributes.items()]
        return payload, Headers.trusted((*stated, *pairs))

    def deserialize(self, topic: str, headers: Headers, payload: bytes | None) -> tuple[Any, Headers]:
        """Read an event in either mode, and remove its ``ce_`` headers. A tombstone is None."""
        stated = last_stated(headers, self._names)
        if stated is None or stated[: len(_STRUCTURED)].lower() != _STRUCTURED:
            return self._read_binary(topic, headers, stated, payload)
        if payload is None:
            return None, headers
        return self._read_structured(topic, headers, content_type_of(stated), payload)

    def _untyped(self, headers: Headers) -> Headers:
        """Return the headers without the event's attributes and the content type."""
        names = self._names
        return Headers.trusted([pair for pair in _others(headers) if pair[0] not in names])

    def _written(self, topic: str, headers: Headers, event: CloudEvent) -> tuple[bytes | None, Headers]:
        """Write an event's data, and state its content type."""
        data, content_type = event.data, event.datacontenttype
        stated = headers if content_type is None else headers.append((self._name, content_type.encode()))
        if content_type is not None and isinstance(data, _BYTES):
            return bytes(data), stated
        written: tuple[bytes | None, Headers] = self._data.serialize(topic, stated, data)
        return written

    def _read_binary(
        self, topic: str, headers: Headers, stated: bytes | None, payload: bytes | None
    ) -> tuple[CloudEvent | None, Headers]:
        attributes = _attributes(headers)
        if not attributes and payload is None:
            return None, headers
        if "datacontenttype" in attributes:
            raise SerdeError(
                f"expected the data's content type in {self._name}, found {PREFIX}datacontenttype"
            )
        if stated is not None:
            attributes["datacontenttype"] = _text(stated)
        event, kept = CloudEvent.of(attributes), Headers.trusted(_others(headers))
        if not payload and (stated is None or content_type_of(stated).format == "json"):
            return event, kept  # null, or empty as the official SDK writes an event without data
        data, kept = self._data.deserialize(topic, kept, payload)
        msgspec.structs.force_setattr(event, "data", data)
        return event, kept

    def _read_structured(
        self, topic: str, headers: Headers, content_type: ContentType, payload: bytes
    ) -> tuple[CloudEvent, Headers]:
        if content_type.essence.startswith(_BATCH):
            raise SerdeError("expected one CloudEvent, found a batch, which Kafka's binding does not have")
        if content_type.essence != JSON_EVENT:
            raise SerdeError("expected a CloudEvent in JSON, found another event format")
        attributes, data = _read_event(payload, codec_of(content_type.charset or "utf-8"))
        event = CloudEvent.of(attributes)
        kept = self._untyped(headers)
        stated = event.datacontenttype or ("application/json" if isinstance(data, _JsonData) else None)
        if stated is not None:
            kept = kept.append((self._name, stated.encode()))
        encoded = _encoded_data(data, stated)
        if isinstance(encoded, bytes):
            encoded, kept = self._data.deserialize(topic, kept, encoded)
        msgspec.structs.force_setattr(event, "data", encoded)
        return event, kept


def _event(value: Any) -> CloudEvent:
    """Return an event of ours, or convert one of the official SDK."""
    if isinstance(value, CloudEvent):
        return value
    if not hasattr(value, "get_attributes") or not hasattr(value, "get_data"):
        raise SerdeError(f"expected a CloudEvent, found {type(value).__qualname__}")
    event = CloudEvent.of(value.get_attributes(), value.get_data())
    msgspec.structs.force_setattr(event, "data", _encoded_text(event))
    return event


def _encoded_text(event: CloudEvent) -> Any:
    """Return the SDK's data; text of an unknown format, such as XML, is encoded."""
    data, content_type = event.data, event.datacontenttype
    if (
        not isinstance(data, str)
        or content_type is None
        or parse_content_type(content_type).format is not None
    ):
        return data
    try:
        return data.encode()
    except UnicodeEncodeError as error:
        raise cannot_write("text", data, error) from None


def _attributes(headers: Headers) -> dict[str, Any]:
    attributes: dict[str, Any] = {}
    for name, value in headers:
        if name.startswith(PREFIX):
            attribute = name[len(PREFIX) :]
            if attribute in attributes:
                raise SerdeError(
                    f"expected each header of a CloudEvent once, found a second {PREFIX} of one name"
                )
            attributes[attribute] = _text(value)
    return attributes


def _others(headers: Headers) -> list[Pair]:
    return [pair for pair in headers if not pair[0].startswith(PREFIX)]


def _text(value: bytes | None) -> str:
    if value is None:
        raise SerdeError("expected text in the headers of a CloudEvent, found a null header")
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise SerdeError("expected UTF-8 in the headers of a CloudEvent, found other bytes") from None


def _nothing() -> None:
    """Close nothing: the data's serde is the application's."""


def _write_event(event: CloudEvent, payload: bytes | None, content_type: bytes | None) -> bytes:
    members = event.attributes()
    members.pop("datacontenttype", None)
    for name, value in members.items():
        members[name] = value if isinstance(value, bool | int) else attribute_text(value)
    if content_type is not None:
        members["datacontenttype"] = content_type.decode()
    if payload is not None:
        members.update(_data_member(event, payload, content_type))
    return _encode(members)


def _read_event(payload: bytes, codec: str) -> tuple[dict[str, Any], _JsonData | bytes | None]:
    """Read an event, and return its attributes and its data."""
    try:
        members = _members(payload if codec == "utf-8" else payload.decode(codec))
        data, base64 = members.pop("data", None), members.pop("data_base64", None)
        attributes = {name: _decode(raw) for name, raw in members.items()}
        encoded = None if base64 is None else _decode(base64)
    except REFUSALS as error:
        raise cannot_read("a CloudEvent as a JSON object", payload, error) from None
    if any(isinstance(value, dict | list | float) for value in attributes.values()):
        raise SerdeError(
            "expected attributes of text, whole numbers and booleans in a CloudEvent, found another"
        )
    if encoded is None:
        return attributes, None if data is None or bytes(data) == b"null" else _JsonData(bytes(data))
    if data is not None:
        raise SerdeError("expected data or data_base64 in a CloudEvent, found both")
    return attributes, _base64(encoded)


def _encoded_data(data: _JsonData | bytes | None, content_type: str | None) -> Any:
    """Return data as bytes for its own serde, or as an object if JSON holds the object itself."""
    if not isinstance(data, _JsonData) or content_type is None:
        return data
    read = parse_content_type(content_type)
    try:
        if read.format == "json":
            return _in_charset(data.raw, codec_of(read.charset or "utf-8"))
        value = _decode(data.raw)
        return value.encode(codec_of(read.charset or "utf-8")) if isinstance(value, str) else value
    except REFUSALS as error:
        raise cannot_read("a CloudEvent's data", data.raw, error) from None


def _in_charset(raw: bytes, codec: str) -> bytes:
    """Return JSON in the charset that its content type states, with escapes for all but ASCII."""
    if codec == "utf-8":
        return raw
    return _NON_ASCII.sub(lambda found: json.dumps(found[0])[1:-1], raw.decode()).encode(codec)


def _data_member(event: CloudEvent, payload: bytes, content_type: bytes | None) -> dict[str, Any]:
    """Return data as the member for its content type; the application's bytes stay bytes."""
    read = None if content_type is None else content_type_of(content_type)
    if read is None or isinstance(event.data, bytes | bytearray | memoryview):
        return {"data_base64": payload}
    try:
        if read.format == "json":
            payload.decode()  # the check of the syntax does not look into strings
            return {"data": _syntax(payload)}
        if read.format == "text":
            return {"data": payload.decode(codec_of(read.charset or "utf-8"))}
    except (*REFUSALS, SerdeError):  # not of its content type, such as a payload with a registry's prefix
        pass
    return {"data_base64": payload}


def _base64(encoded: object) -> bytes:
    try:
        return b64decode(encoded, validate=True)  # type: ignore[arg-type]  # of another type: TypeError
    except (binascii.Error, ValueError, TypeError):
        raise SerdeError("expected Base64 as data_base64 of a CloudEvent, found something else") from None
