"""Header ``hw.schema``: the fingerprint of the schema by which a part was written (spec/schema.md).

    value:sha256:3f2b87a9fe7cc9b13835598c3981cd45e3e355309e5090aa0933d7becb6fba45

    part       key | value
    algorithm  md5 | rabin | sha256
    digest     32, 16 or 64 hexadecimal digits in lower case

Without a store, a header carries the schema's text instead: ``avro.schema``, the name in the metadata of
Avro's container files, or ``avro.schema.key`` for a key.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from headerware.core.errors import SerdeError
from headerware.serdes.avro.schema import DIGEST_BYTES, Fingerprint

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headerware.core.headers import HeaderValue, Pair
    from headerware.serdes.serde import Part

SCHEMA_HEADER: Final = "hw.schema"
TEXT_HEADERS: Final[dict[Part, str]] = {"key": "avro.schema.key", "value": "avro.schema"}
"""The headers that carry a schema's text."""

_PARTS: Final[tuple[Part, ...]] = ("key", "value")
_HEADS: Final = {f"{part}:{name}": (part, name) for part in _PARTS for name in DIGEST_BYTES}
_digits: Final = re.compile(r"[0-9a-f]*")
_KEYS: Final = b"key:"


def encode_mark(part: Part, fingerprint: Fingerprint) -> bytes:
    """Write the value of ``hw.schema`` for one part."""
    return f"{part}:{fingerprint.algorithm}:{fingerprint.digest.hex()}".encode()


def decode_mark(value: HeaderValue) -> tuple[Part, Fingerprint]:
    """Read the value of ``hw.schema``."""
    head, _, digits = ("" if value is None else value.decode("utf-8", "replace")).rpartition(":")
    found = _HEADS.get(head)
    if found is None or not _digits.fullmatch(digits):
        raise SerdeError(
            f"{SCHEMA_HEADER}: expected 'key' or 'value', 'md5', 'rabin' or 'sha256', and a digest in "
            f"hexadecimal, with colons between; found {'null' if value is None else 'another form'}"
        )
    part, algorithm = found
    expected = 2 * DIGEST_BYTES[algorithm]
    if len(digits) != expected:
        raise SerdeError(
            f"{SCHEMA_HEADER} has a digest of {len(digits)} digits, expected {expected} for {algorithm}"
        )
    return part, Fingerprint(algorithm, bytes.fromhex(digits))


def is_mark_of_part(part: Part, pair: Pair) -> bool:
    """Return whether a header is the ``hw.schema`` of a part; a malformed one counts as the value's."""
    name, value = pair
    if name != SCHEMA_HEADER:
        return False
    return (value is not None and value.startswith(_KEYS)) == (part == "key")


def without_mark(part: Part, headers: Iterable[Pair]) -> list[Pair]:
    """Return the headers without the ``hw.schema`` of a part."""
    return [pair for pair in headers if not is_mark_of_part(part, pair)]
