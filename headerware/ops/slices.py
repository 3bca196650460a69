"""Which slice of a message a record on the wire is, for tools that read topics without a chain."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headerware.clients.messages import is_readable
from headerware.core.errors import HeaderError, WireFormatError
from headerware.interceptors.slice.header import SLICE_HEADER, SliceHeader
from headerware.registry.names import named_headers

if TYPE_CHECKING:
    from headerware.core.record import Record


def slice_header_of(record: Record) -> SliceHeader | None:
    """Return which slice of a message a record on the wire is; None for others, and for one that lies."""
    if not is_readable(record):
        return None
    try:
        value = named_headers(record).last(SLICE_HEADER)
        return None if value is None else SliceHeader.decode(value)
    except (WireFormatError, HeaderError):
        return None
