"""How other software names a payload's schema: Confluent's prefix and headers, Avro's single-object encoding.

Confluent's prefix, in front of the payload, and its headers ``__key_schema_id`` and ``__value_schema_id``:

    magic  u8   0                      magic  u8        1
    id     u32  big-endian             guid   16 bytes  as RFC 9562 writes a UUID

Both are defined by Confluent's clients only; a header may also hold the form with an id. Avro's single-object
encoding is defined in the Avro specification:

    marker       C3 01
    fingerprint  u64  CRC-64-AVRO of the schema's canonical form, little-endian
    payload
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headerware.core.errors import SerdeError

if TYPE_CHECKING:
    from headerware.core.headers import HeaderValue
    from headerware.serdes.avro.schema import Fingerprint
    from headerware.serdes.serde import Part

ID_HEADERS: Final[dict[Part, str]] = {"key": "__key_schema_id", "value": "__value_schema_id"}
"""Confluent's header for each part."""
PREFIX_BYTES: Final = 5
SINGLE_OBJECT_BYTES: Final = 10

_ID_MAGIC: Final = 0
_GUID_MAGIC: Final = 1
_GUID_BYTES: Final = 16
_SINGLE_OBJECT: Final = b"\xc3\x01"


def encode_id(schema_id: int) -> bytes:
    """Write Confluent's 5 bytes for a schema's id."""
    return bytes((_ID_MAGIC,)) + schema_id.to_bytes(4, "big")


def encode_guid(guid: bytes) -> bytes:
    """Write the header's value for a schema's GUID (16 bytes)."""
    if len(guid) != _GUID_BYTES:
        raise SerdeError(f"a schema's GUID has 16 bytes, found {len(guid)}")
    return bytes((_GUID_MAGIC,)) + guid


def prefix_of(payload: bytes) -> int | None:
    """Return the id in front of a payload, or None if there is no prefix."""
    if len(payload) < PREFIX_BYTES or payload[0] != _ID_MAGIC:
        return None
    return int.from_bytes(payload[1:PREFIX_BYTES], "big")


def decode_id_header(name: str, value: HeaderValue) -> int | bytes:
    """Read one of Confluent's headers: an id, or a GUID of 16 bytes."""
    if value is not None and len(value) == PREFIX_BYTES and value[0] == _ID_MAGIC:
        return int.from_bytes(value[1:], "big")
    if value is not None and len(value) == 1 + _GUID_BYTES and value[0] == _GUID_MAGIC:
        return value[1:]
    found = "null" if value is None else f"{len(value)} bytes"
    raise SerdeError(f"{name} is {found}, expected 0 and an id of 4 bytes, or 1 and a GUID of 16 bytes")


def encode_single_object(fingerprint: Fingerprint) -> bytes:
    """Write the prefix of Avro's single-object encoding; the fingerprint's digest must be Rabin's."""
    return _SINGLE_OBJECT + fingerprint.digest[::-1]


def single_object_digest(payload: bytes) -> bytes | None:
    """Return the Rabin digest in front of a payload in single-object encoding, or None if there is none."""
    if len(payload) < SINGLE_OBJECT_BYTES or not payload.startswith(_SINGLE_OBJECT):
        return None
    return payload[SINGLE_OBJECT_BYTES - 1 : 1 : -1]
