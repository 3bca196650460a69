"""The interface of serdes: serializers and deserializers that see a record's headers (KIP-82).

Java's extended interface passes mutable headers. confluent-kafka's serializers append to the caller's list,
so a list that is used again grows with every record. Here a serializer returns the headers, with its own
header replaced, and never changes the caller's headers:

    serialize(topic, headers, value)      -> (bytes | None, headers)
    deserialize(topic, headers, payload)  -> (value, headers)

A serializer may also have a function for many values, for records whose headers differ only in one header
that Headerware itself adds:

    serialize_many(topic, headers, values) -> (list of bytes, headers)

This function gets the headers of the first record, and returns them as ``serialize`` does. It raises an error
if the result does not hold for all records: if a value does not fit, or if a value is null and null has other
headers. Then ``serialize`` is called for each record.

All functions are also called for a null key or value (a tombstone), which stays None unless a format gives it
a meaning. They may be called by several threads at once. They refuse by raising
:class:`~headerware.SerdeError`, whose text never quotes a payload.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, runtime_checkable

import msgspec

from headerware.core.plugins import has_methods
from headerware.core.typed_options import TypedOptions

if TYPE_CHECKING:
    from headerware.core.headers import Headers

Part = Literal["key", "value"]
"""The part of a record that a serde is for."""

PARTS: Final[tuple[Part, ...]] = ("key", "value")
"""The parts, in the order in which they are serialized and deserialized."""

Side = Literal["producer", "consumer"]


@runtime_checkable
class Serializer(Protocol):
    """Turn an object into bytes, and add headers that describe the bytes."""

    def serialize(self, topic: str, headers: Headers, value: Any) -> tuple[bytes | None, Headers]:
        """Return the bytes of a value, and the headers together with headers that describe the bytes.

        Args:
            topic: the topic that the record goes to.
            headers: the record's headers so far, including headers from the key's serializer.
            value: the object; None is a tombstone.

        Returns:
            the bytes, and the headers: the same object if none was added.

        Raises:
            SerdeError: the value does not fit the format.
        """
        ...


@runtime_checkable
class Deserializer(Protocol):
    """Turn bytes into an object, as the headers describe them."""

    def deserialize(self, topic: str, headers: Headers, payload: bytes | None) -> tuple[Any, Headers]:
        """Return the object that bytes stand for, and the headers without headers for transport.

        Args:
            topic: the topic that the record came from.
            headers: the record's headers.
            payload: the bytes; None is a tombstone.

        Returns:
            the object, and the headers: the same object if none was removed.

        Raises:
            SerdeError: the bytes do not follow the format.
        """
        ...


def is_serializer_or_deserializer(found: Any) -> bool:
    """Return whether an object has the method of a serializer or of a deserializer."""
    return has_methods(found, ("serialize",)) or has_methods(found, ("deserialize",))


class SerdeContext(msgspec.Struct, frozen=True, kw_only=True):
    """Describe the client and the part for which a serde is opened.

    Args:
        part: whether the serde is for keys or for values.
        side: the side that will be used, or None for both.
        signed: whether the records are signed; headers that describe them must then be hard to forge.
    """

    part: Part = "value"
    side: Side | None = None
    signed: bool = False


class Serde(TypedOptions, frozen=True, kw_only=True):
    """Hold the options of a serde, and open its two functions.

    A subclass adds its options as fields. It either has ``serialize`` and ``deserialize`` itself, or returns
    an object with one or both from :meth:`open`; that object may have ``close()``.
    """

    @property
    def unsignable(self) -> str | None:
        """The reason why the serde cannot be used for signed records, or None if it can."""
        return None

    def open(self, context: SerdeContext) -> Any:  # noqa: ARG002 - a stateless serde needs no context
        """Return the object with the functions for one client; the serde itself if it has no state."""
        return self
