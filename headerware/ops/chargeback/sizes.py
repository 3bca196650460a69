"""Estimate the size of a record on the wire, closely enough to charge for it.

    key + value + 10 for the record + for each header: name + value + 2

In Kafka's record format v2, the lengths, deltas and attributes of a record take 7 to 19 bytes besides its
contents, and the lengths of a header take 2 to 8: one byte for a length up to 63, two up to 8,191. All
records of a batch share its 61 bytes. The size is the size before a producer compresses the batch, so it does
not depend on the other records of the batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

RECORD_BYTES: Final = 10
HEADER_BYTES: Final = 2

FORMULA: Final = (
    f"key + value + {RECORD_BYTES} bytes a record + (name + value + {HEADER_BYTES} bytes) for each header"
)
"""The formula as the report states it."""


def record_bytes(
    key: bytes | None, value: bytes | None, headers: Iterable[tuple[str, bytes | None]] = ()
) -> int:
    """Return a record's size on the wire, in bytes, before any compression of whole batches.

    Args:
        key: the key.
        value: the value as it is on the wire.
        headers: the headers as they are on the wire.
    """
    size = RECORD_BYTES + len(key or b"") + len(value or b"")
    for name, data in headers:
        size += HEADER_BYTES + (len(name) if name.isascii() else len(name.encode())) + len(data or b"")
    return size
