"""A registry's change as the value of a record in a topic (spec/registry-topic.md): JSON in UTF-8.

{"version": 1, "change": "found",    "registrar": ...}
{"version": 1, "change": "allocate", "block": {...}, "by": ...}
{"version": 1, "change": "register", "entry": {...}, "by": ...}
{"version": 1, "change": "retire",   "id": ..., "retired": ..., "by": ...}
"""

from __future__ import annotations

from typing import Final

import msgspec

from headerware.core.errors import RegistryError, WireFormatError
from headerware.registry.changes import Change
from headerware.registry.plain import change_from_plain, to_plain

VERSION: Final = 1
MAX_CHANGE_BYTES: Final = 65_536
"""The largest value that is read; a change has some hundred bytes."""


class Found(msgspec.Struct, frozen=True, tag_field="change", tag="found", forbid_unknown_fields=True):
    """Begin a registry whose registrar is not the default one; it comes before all else.

    Args:
        registrar: who allocates the blocks that lie in no other.
    """

    registrar: str


def encode_change(change: Change | Found) -> bytes:
    """Write a change."""
    return msgspec.json.encode({"version": VERSION, **_plain(change)})


def decode_change(value: bytes) -> Change | Found:
    """Read a change; of members that stand there twice, the last counts.

    Raises:
        WireFormatError: too large, no JSON, of another version, or not one of the changes.
    """
    if len(value) > MAX_CHANGE_BYTES:
        raise WireFormatError(f"the value has {len(value)} bytes, a change at most {MAX_CHANGE_BYTES}")
    plain = _object(value)
    version = plain.pop("version", None)
    if type(version) is not int or version != VERSION:
        raise WireFormatError(f"the change is not of version {VERSION}")
    try:
        change = msgspec.convert(plain, Found) if plain.get("change") == "found" else change_from_plain(plain)
    except (RegistryError, msgspec.ValidationError, ValueError) as error:
        raise WireFormatError(f"the value is no change: {error}") from error
    if _plain(change) != plain:
        # Readers in other languages see the members only, and all are to come to the same registry.
        raise WireFormatError("the value says what goes without saying: a member is false or null")
    return change


def _plain(change: Change | Found) -> dict[str, object]:
    plain: dict[str, object] = msgspec.to_builtins(change) if isinstance(change, Found) else to_plain(change)
    return plain


def _object(value: bytes) -> dict[str, object]:
    try:
        return msgspec.json.decode(value, type=dict[str, object])
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        # What the parser says may quote the value.
        raise WireFormatError("the value is no JSON object") from error
