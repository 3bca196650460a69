"""Header ``hw.schema``: the fingerprint of the schema that a part was written by (spec/schema.md).

    version    u8  1
    part       u8  0 key, 1 value
    algorithm  u8  1 MD5, 2 CRC-64-AVRO (Rabin), 3 SHA-256
    digest     16, 8 or 32 bytes

Where there is no store, the schema's text travels instead, as ``avro.schema``: the name that it has in the
metadata of Avro's container files. A key's is ``avro.schema.key``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headerware.core.errors import SerdeError
from headerware.serdes.stores.store import ALGORITHM_BYTES, DIGEST_BYTES, Fingerprint

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headerware.core.headers import HeaderValue, Pair
    from headerware.serdes.serde import Part

SCHEMA_HEADER: Final = "hw.schema"
VERSION: Final = 1
PART_BYTES: Final[dict[Part, int]] = {"key": 0, "value": 1}
TEXT_HEADERS: Final[dict[Part, str]] = {"key": "avro.schema.key", "value": "avro.schema"}
"""The headers that carry a schema's text."""

_ALGORITHMS: Final = {number: algorithm for algorithm, number in ALGORITHM_BYTES.items()}
_PARTS: Final[dict[int | None, Part]] = {number: part for part, number in PART_BYTES.items()}
_HEAD_BYTES: Final = 3


def encode_mark(part: Part, fingerprint: Fingerprint) -> bytes:
    """Write the value of ``hw.schema`` for one part."""
    return bytes((VERSION, PART_BYTES[part])) + fingerprint.code


def decode_mark(value: HeaderValue) -> tuple[Part, Fingerprint]:
    """Read the value of ``hw.schema``.

    Raises:
        SerdeError: it does not follow the layout.
    """
    if value is None or len(value) < _HEAD_BYTES:
        found = "null" if value is None else f"{len(value)} bytes"
        raise SerdeError(f"{SCHEMA_HEADER} is {found}, expected 11, 19 or 35 bytes")
    version, part, algorithm = value[:_HEAD_BYTES]
    if version != VERSION:
        raise SerdeError(f"{SCHEMA_HEADER} has version {version}, expected {VERSION}")
    if part not in _PARTS:
        raise SerdeError(f"{SCHEMA_HEADER} is for part {part}, expected 0 (key) or 1 (value)")
    if algorithm not in _ALGORITHMS:
        raise SerdeError(
            f"{SCHEMA_HEADER} names algorithm {algorithm}, expected 1 (MD5), 2 (Rabin) or 3 (SHA-256)"
        )
    name = _ALGORITHMS[algorithm]
    if len(value) - _HEAD_BYTES != DIGEST_BYTES[name]:
        raise SerdeError(
            f"{SCHEMA_HEADER} has a digest of {len(value) - _HEAD_BYTES} bytes, "
            f"expected {DIGEST_BYTES[name]} for {name}"
        )
    return _PARTS[part], Fingerprint(name, value[_HEAD_BYTES:])


def is_mark_of_part(part: Part, pair: Pair) -> bool:
    """Whether a header is the ``hw.schema`` of a part; one that does not tell is taken for the value's."""
    name, value = pair
    if name != SCHEMA_HEADER:
        return False
    number = None if value is None or len(value) < _HEAD_BYTES else value[1]
    return _PARTS.get(number, "value") == part


def without_mark(part: Part, headers: Iterable[Pair]) -> list[Pair]:
    """Give the headers without the ``hw.schema`` of a part."""
    return [pair for pair in headers if not is_mark_of_part(part, pair)]
