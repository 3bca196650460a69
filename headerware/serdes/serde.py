"""What a serde is: serializers and deserializers that see a record's headers (KIP-82).

Java's extended interface passes mutable headers; here a serializer gives the headers back, so that what
a caller passed in never changes:

    serialize(topic, headers, value)      -> (bytes | None, headers)
    deserialize(topic, headers, payload)  -> (value, headers)

A null key or value (a tombstone) comes to both, and goes through as None unless a format gives it a
meaning. Both may be called by several threads at once. What they refuse they refuse with
:class:`~headerware.SerdeError`; its text never quotes a payload.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, Protocol, runtime_checkable

import msgspec

if TYPE_CHECKING:
    from headerware.core.headers import Headers

Part = Literal["key", "value"]
"""Which part of a record a serde is for."""

PARTS: Final[tuple[Part, ...]] = ("key", "value")
"""The parts, in the order in which they are serialized and deserialized."""

Side = Literal["producer", "consumer"]


@runtime_checkable
class Serializer(Protocol):
    """Turns an object into bytes, and may add headers that say how."""

    def serialize(self, topic: str, headers: Headers, value: Any) -> tuple[bytes | None, Headers]:
        """Return the bytes of a value, and the headers with what belongs to them.

        Args:
            topic: the topic that the record goes to.
            headers: the record's headers so far; those of the key's serializer are among them.
            value: the object; None is a tombstone.

        Returns:
            the bytes, and the very same headers where nothing was added.

        Raises:
            SerdeError: the value does not fit the format.
        """
        ...


@runtime_checkable
class Deserializer(Protocol):
    """Turns bytes into an object, by what the headers say."""

    def deserialize(self, topic: str, headers: Headers, payload: bytes | None) -> tuple[Any, Headers]:
        """Return the object that bytes stand for, and the headers without what was there for transport.

        Args:
            topic: the topic that the record came from.
            headers: the record's headers.
            payload: the bytes; None is a tombstone.

        Returns:
            the object, and the very same headers where nothing was taken off.

        Raises:
            SerdeError: the bytes are not what they should be.
        """
        ...


class SerdeContext(msgspec.Struct, frozen=True, kw_only=True):
    """What a serde knows of its surroundings.

    Args:
        part: whether it is for keys or for values.
        side: which half will be used, or None for both.
        signed: whether the records are signed; what a header says of them must then be hard to forge.
    """

    part: Part = "value"
    side: Side | None = None
    signed: bool = False


class Serde(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of a serde, which open into its two functions.

    A subclass adds its options as fields, and either has ``serialize`` and ``deserialize`` itself or
    returns an object that has one or both from :meth:`open`; that object may have ``close()``.
    """

    type: ClassVar[str] = ""
    """The word for it in configuration."""

    @property
    def unsignable(self) -> str | None:
        """Why it cannot be used where records are signed, or None if it can."""
        return None

    def open(self, context: SerdeContext) -> Any:  # noqa: ARG002 - a stateless serde needs no context
        """Return the object with the functions for one client; itself where there is no state."""
        return self
