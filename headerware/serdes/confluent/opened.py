"""confluent-kafka's serdes for one part of the records, with their schema ids kept straight."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headerware.core.errors import SerdeError
from headerware.serdes.confluent.framing import ID_HEADERS, decode_id_header

if TYPE_CHECKING:
    from collections.abc import Callable

    from headerware.core.headers import Headers
    from headerware.serdes.serde import SerdeContext


class OpenedConfluent:
    """A serializer and a deserializer of confluent-kafka's; safe for use by several threads at once.

    Args:
        context: for which part of the records they are.
        serializer: confluent-kafka's, or None where nothing is to be written.
        deserializer: likewise.
        min_bytes: how long the deserializer wants a payload to be.
        on_close: called once, by ``close``.
    """

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
        from headerware.serdes.confluent.adapters import from_confluent  # noqa: PLC0415 - it imports confluent_kafka

        self._part: Final = context.part
        self._header: Final = ID_HEADERS[context.part]
        self._writer: Final = None if serializer is None else from_confluent(serializer, context)
        self._reader: Final = None if deserializer is None else from_confluent(deserializer, context)
        self._min_bytes: Final = min_bytes
        self._on_close: Callable[[], None] | None = on_close

    def serialize(self, topic: str, headers: Headers, value: Any) -> tuple[bytes | None, Headers]:
        """Write an object, and the id of its schema.

        Raises:
            SerdeError: confluent-kafka's serializer or the registry refuses it, or there is no schema.
        """
        if self._writer is None:
            raise SerdeError(f"the {self._part}'s serde was opened without a schema, or for reading only")
        return self._writer.serialize(topic, headers, value)

    def deserialize(self, topic: str, headers: Headers, payload: bytes | None) -> tuple[Any, Headers]:
        """Read a payload, and take off the header with the id of its schema.

        Raises:
            SerdeError: confluent-kafka's deserializer or the registry refuses it.
        """
        if self._reader is None:
            raise SerdeError(f"the {self._part}'s serde was opened for writing only")
        ids = headers.all(self._header)
        if not ids:
            return self._reader.deserialize(topic, headers, payload)
        # The last is right: confluent-kafka's serializer adds its own to what stands in the caller's list,
        # though its deserializer takes the first.
        schema_id, rest = ids[-1], headers.remove(self._header)
        if payload is not None and schema_id is not None and len(payload) < self._min_bytes:
            # Shorter than a prefix and a byte, which confluent-kafka refuses; it reads the id there, too.
            decode_id_header(self._header, schema_id)
            return self._reader.deserialize(topic, rest, schema_id + payload)[0], rest
        framed = rest.append((self._header, schema_id))
        return self._reader.deserialize(topic, framed, payload)[0], rest

    def close(self) -> None:
        """Give up the registry's client; calling it again does nothing."""
        close, self._on_close = self._on_close, None
        if close is not None:
            close()
