"""The interface of serdes: serializers and deserializers that see a record's headers (KIP-82).

Java's extended interface passes mutable headers, and confluent-kafka's serializers append to the caller's
list, which then grows with every record that is sent with it. Here a serializer returns the headers, with its
own header replaced, and never changes the caller's:

    serialize(topic, headers, value)      -> (bytes | None, headers)
    deserialize(topic, headers, payload)  -> (value, headers)

A serializer may also have the first one for many values, of records whose headers differ in one of ours only:

    serialize_many(topic, headers, values) -> (list of bytes, headers)

It gets the first record's headers, and returns those. It raises if it cannot say so for all: if a value does
not fit, or is null and that makes other headers. Then ``serialize`` is called for each.

Both are also called for a null key or value (a tombstone), which stays None unless a format gives it a
meaning. Both may be called by several threads at once. They refuse by raising
:class:`~headerware.SerdeError`, whose text never quotes a payload.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, runtime_checkable

import msgspec

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
    """Turn an object into bytes, and add headers that say how."""

    def serialize(self, topic: str, headers: Headers, value: Any) -> tuple[bytes | None, Headers]:
        """Return the bytes of a value, and the headers with those that describe the bytes.

        Args:
            topic: the topic that the record goes to.
            headers: the record's headers so far; those of the key's serializer are among them.
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
        """Return the object that bytes stand for, and the headers without those for transport.

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


class SerdeContext(msgspec.Struct, frozen=True, kw_only=True):
    """Describe the client and the part for which a serde is opened.

    Args:
        part: whether the serde is for keys or for values.
        side: the side that will be used, or None for both.
        signed: whether the records are signed; what a header says of them must then be hard to forge.
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
        """Why it cannot be used where records are signed, or None if it can."""
        return None

    def open(self, context: SerdeContext) -> Any:  # noqa: ARG002 - a stateless serde needs no context
        """Return the object with the functions for one client; the serde itself if it has no state."""
        return self
