"""Decode the values of headers by the encoding that a registry states for their names (spec/registry.md).

    utf-8                     text          boolean            true or false; one byte, 0 or 1
    json                      as JSON says  int8 to int64      whole number, big-endian
    uuid                      text, as in   float64            number, big-endian
                              RFC 9562      timestamp-ms       whole number, milliseconds since the epoch
    bytes                     text, base64

The results are values of JSON, for JSON Schemas and expressions.
"""

from __future__ import annotations

from base64 import b64encode
from functools import partial
from struct import Struct
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import msgspec

from headerware.registry.values import Encoding

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Decoder = Callable[[bytes], Any]


def decoder_of(encoding: Encoding) -> Decoder:
    """Return the function that decodes the values of an encoding; it raises ValueError for other values."""
    return _DECODERS[encoding]


def read_json(value: bytes) -> Any:
    """Return the value of a JSON text; raise ValueError if it is none."""
    try:
        return msgspec.json.decode(value)
    except RecursionError:
        raise ValueError("it nests too deeply") from None


def _boolean(value: bytes) -> bool:
    if value not in {b"\0", b"\1"}:
        raise ValueError("expected one byte, 0 or 1")
    return value == b"\1"


def _number(layout: Struct, value: bytes) -> Any:
    if len(value) != layout.size:
        raise ValueError(f"expected {layout.size} bytes, found {len(value)}")
    return layout.unpack(value)[0]


_DECODERS: Final[Mapping[Encoding, Decoder]] = {
    "bytes": lambda value: b64encode(value).decode(),
    "utf-8": bytes.decode,
    "json": read_json,
    "uuid": lambda value: str(UUID(bytes=value)),
    "boolean": _boolean,
    "int8": partial(_number, Struct(">b")),
    "int16": partial(_number, Struct(">h")),
    "int32": partial(_number, Struct(">i")),
    "int64": partial(_number, Struct(">q")),
    "float64": partial(_number, Struct(">d")),
    "timestamp-ms": partial(_number, Struct(">q")),
}
