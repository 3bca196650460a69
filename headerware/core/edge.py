"""The edge of a session: what applications pass is normalised and checked here, once, for every path."""

from __future__ import annotations

from typing import Any, Final

from headerware.core.errors import HeaderError, RecordError, TransportHeaderError
from headerware.core.headers import Headers
from headerware.core.record import Record

RESERVED: Final = "hw."
LINEAGE: Final = frozenset({"hw.trail", "hw.owner"})
"""Headers of ours that stay on a record, and so may come back from an application."""
ENCODINGS: Final = frozenset({"hw.compress", "hw.encrypt", "hw.slice", "hw.claim", "hw.ids"})
"""Headers that say that the value is not what the other application sent."""

_WIRE_TYPES: Final = frozenset({bytes, type(None)})


def admit(record: Record) -> Record:
    """Normalise what an application is about to send.

    Raises:
        HeaderError: a header of a wrong type, or one that is Headerware's own.
        RecordError: a topic that is no text.
    """
    headers = record.headers
    if headers.__class__ is not Headers or record.value.__class__ not in _WIRE_TYPES or (
        record.key.__class__ not in _WIRE_TYPES
    ):
        record = normalised(record)
        headers = record.headers
    for pair in headers:
        if pair[0][:3] == RESERVED and pair[0] not in LINEAGE:
            raise HeaderError(
                f"header {pair[0]!r} is Headerware's own and is set by the chain; an application may not "
                f"send it (remove it, or consume through a chain that takes it off)"
            )
    return record


def admit_bytes(record: Record) -> Record:
    """Normalise what an application is about to send where nothing will serialize it.

    Raises:
        HeaderError: as :func:`admit` does.
        RecordError: a topic that is no text, or a value or key that is neither bytes nor text.
    """
    record = admit(record)
    if record.value.__class__ is bytes and record.key.__class__ in _WIRE_TYPES:
        return record
    return require_bytes(record)


def normalised(record: Record) -> Record:
    """Give the record with plain headers, and text and buffers as bytes; objects stay as they are."""
    if not isinstance(record.topic, str):
        raise RecordError(f"a topic is a str, not {type(record.topic).__name__}")
    return record.replace(
        headers=Headers(record.headers), value=_plain(record.value), key=_plain(record.key)
    )


def require_bytes(record: Record) -> Record:
    """Refuse a value or key that is still an object where bytes are due.

    Raises:
        RecordError: what it is instead.
    """
    for name, part in (("value", record.value), ("key", record.key)):
        if part.__class__ not in _WIRE_TYPES:
            raise RecordError(
                f"the {name} of a record for topic {record.topic!r} is bytes, str or None, "
                f"not {type(part).__name__}; serialize it first"
            )
    return record


def refuse_encodings(record: Record) -> Record:
    """Keep encoded bytes from an application that would take them for the real thing.

    Raises:
        TransportHeaderError: which header is left, and what to configure.
    """
    for pair in record.headers:
        if pair[0] in ENCODINGS:
            word = pair[0].removeprefix(RESERVED)
            raise TransportHeaderError(
                f"header {pair[0]!r} says that the value is encoded, and nothing in this chain decodes it; "
                f"add the {word!r} interceptor to the consumer's chain"
            )
    return record


def _plain(part: Any) -> Any:
    if isinstance(part, str):
        return part.encode()
    if isinstance(part, bytearray | memoryview):
        return bytes(part)
    return bytes(part) if isinstance(part, bytes) else part
