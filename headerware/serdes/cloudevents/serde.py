"""CloudEvents: the Kafka protocol binding 1.0.2, in both of its content modes.

    binary      the data is the value, each attribute a header ``ce_<name>``, and ``datacontenttype`` the
                header ``content-type``; an event without data is a null value
    structured  the whole event is the value, as JSON; ``content-type: application/cloudevents+json``

Both are read, one is written. The binding has no batches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal

import msgspec

from headerware.core.errors import ConfigError, SerdeError
from headerware.core.headers import Headers
from headerware.core.options import from_option, kinds
from headerware.serdes.cloudevents.event import CloudEvent, attribute_text
from headerware.serdes.cloudevents.json_format import JsonData, encoded_data, read_event, write_event
from headerware.serdes.content.headers import header_for, last_stated, spellings
from headerware.serdes.content.types import codec_of, content_type_of, parse_content_type
from headerware.serdes.formats.refusals import cannot_write
from headerware.serdes.plugins import first_unsignable, opened, require_serde, serde_type
from headerware.serdes.polyglot.serde import Polyglot
from headerware.serdes.serde import Serde, SerdeContext

if TYPE_CHECKING:
    from collections.abc import Callable

    from headerware.core.headers import Pair
    from headerware.serdes.content.types import ContentType

PREFIX: Final = "ce_"
STRUCTURED: Final = b"application/cloudevents"
"""What the content type of each structured event begins with."""
JSON_EVENT: Final = "application/cloudevents+json"
_BATCH: Final = "application/cloudevents-batch"
_BYTES: Final = (bytes, bytearray, memoryview)


class CloudEvents(Serde, frozen=True, kw_only=True):
    """Write events, ours or those of the official SDK, and read them as :class:`CloudEvent`.

    An event's data goes through a serde chosen by its ``datacontenttype``. Bytes with a
    ``datacontenttype`` have been encoded already, and go as they are. Headers that do not begin with
    ``ce_`` stay, ``content-type`` aside, which the event decides.

    Args:
        mode: how events are written.
        data: the serde for their data; None is a polyglot that gives the bytes of unknown content types.

    Raises:
        ConfigError: another mode. :meth:`open` raises it for keys, which are no events.

    The record's key is the application's to pass, as ``key=event.key``. Safe for use by several threads
    at once where the data's serde is; ours are.
    """

    type: ClassVar[str] = "cloudevents"

    mode: Literal["binary", "structured"] = "binary"
    data: Annotated[Any, kinds(serde_type)] = None

    def __post_init__(self) -> None:
        """Refuse an unknown mode, and make the data's serde where a word names it."""
        if self.mode not in {"binary", "structured"}:  # in code nothing has checked it yet
            raise ConfigError("expected one of 'binary', 'structured'", path="mode")
        data = from_option(self.data, serde_type, path="data")
        require_serde(data, path="data")
        msgspec.structs.force_setattr(self, "data", data)

    @property
    def unsignable(self) -> str | None:
        """Why it cannot be used where records are signed; None where it can."""
        return first_unsignable([self.data])

    def open(self, context: SerdeContext) -> CloudEventsFunctions:
        """Return the functions for one client.

        Raises:
            ConfigError: it is for keys.
        """
        if context.part == "key":
            raise ConfigError("CloudEvents are values; pass an event's key as key=event.key")
        return CloudEventsFunctions(self, context)


class CloudEventsFunctions:
    """The two functions for one client.

    Args:
        options: the mode, and the data's serde.
        context: the client's surroundings.
    """

    __slots__ = ("_data", "_name", "_names", "_structured", "close")

    def __init__(self, options: CloudEvents, context: SerdeContext) -> None:
        serde = Polyglot(unknown="bytes") if options.data is None else options.data
        self._data: Final = opened(serde, context)
        self._name: Final = header_for(context)
        self._names: Final = spellings(self._name)
        self._structured: Final = options.mode == "structured"
        self.close: Final[Callable[[], None]] = (
            getattr(self._data, "close", _nothing) if self._data is not serde else _nothing
        )

    def serialize(self, topic: str, headers: Headers, value: Any) -> tuple[bytes | None, Headers]:
        """Write an event; None is a tombstone.

        Raises:
            SerdeError: it is no event, or its data cannot be written.
        """
        if value is None:
            return None, headers
        event = _event(value)
        payload, stated = self._written(topic, self._untyped(headers), event)
        if self._structured:
            return write_event(event, payload, stated.last(self._name)), stated.put(self._name, JSON_EVENT)
        attributes = event.attributes()
        attributes.pop("datacontenttype", None)
        pairs = [(PREFIX + name, attribute_text(own).encode()) for name, own in attributes.items()]
        return payload, Headers.trusted((*stated, *pairs))

    def deserialize(self, topic: str, headers: Headers, payload: bytes | None) -> tuple[Any, Headers]:
        """Read an event in either mode; its ``ce_`` headers are taken off. A tombstone is None.

        Raises:
            SerdeError: it is no event or a batch, an attribute is missing, twice, or not allowed, or the
                data cannot be read.
        """
        stated = last_stated(headers, self._names)
        if stated is None or stated[: len(STRUCTURED)].lower() != STRUCTURED:
            return self._read_binary(topic, headers, stated, payload)
        if payload is None:
            return None, headers
        return self._read_structured(topic, headers, content_type_of(stated), payload)

    def _untyped(self, headers: Headers) -> Headers:
        """Return the headers that are no event's, and state no content type."""
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
        attributes, data = read_event(payload, codec_of(content_type.charset or "utf-8"))
        event = CloudEvent.of(attributes)
        kept = self._untyped(headers)
        stated = event.datacontenttype or ("application/json" if isinstance(data, JsonData) else None)
        if stated is not None:
            kept = kept.append((self._name, stated.encode()))
        encoded = encoded_data(data, stated)
        if isinstance(encoded, bytes):
            encoded, kept = self._data.deserialize(topic, kept, encoded)
        msgspec.structs.force_setattr(event, "data", encoded)
        return event, kept


def _event(value: Any) -> CloudEvent:
    """Take an event of ours, or one of the official SDK by its ``get_attributes`` and ``get_data``."""
    if isinstance(value, CloudEvent):
        return value
    if not hasattr(value, "get_attributes") or not hasattr(value, "get_data"):
        raise SerdeError(f"expected a CloudEvent, found {type(value).__qualname__}")
    event = CloudEvent.of(value.get_attributes(), value.get_data())
    msgspec.structs.force_setattr(event, "data", _encoded_text(event))
    return event


def _encoded_text(event: CloudEvent) -> Any:
    """Return the SDK's data, encoded where it is text of no format that is known here, such as XML."""
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
    """Return the attributes that stand in headers."""
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
