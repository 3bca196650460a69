"""Keyrings as text: the JSON of files and snapshots (spec/keyring.md), or a JWKS."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, Literal

import msgspec

from headerware.core.errors import KeyringError
from headerware.core.options import refused
from headerware.core.printable import without_values
from headerware.core.strict_json import decode_json
from headerware.keyring.jwks import decode_jwks
from headerware.keyring.keyring import Key, Keyring

FORMAT: Final = "headerware-keyring"
SNAPSHOT_FORMAT: Final = "headerware-keyring-snapshot"
VERSION: Final = 2


def decode_keyring(text: bytes, *, source: str = "keyring", jwks: bool = True) -> Keyring:
    """Read a keyring from its JSON (spec/keyring.md).

    Args:
        text: the JSON.
        source: the keyring's name in errors, such as its path.
        jwks: whether the text may also be a JWKS (RFC 7517), whose keys only verify.

    Raises:
        KeyringError: the text is not JSON, or not a keyring.
    """
    try:
        head = msgspec.json.decode(text, type=_Head)
        if jwks and head.is_jwks:
            return decode_jwks(text)
        _require_version(head)
        return Keyring(keys=decode_json(text, _File).keys)
    except (RecursionError, ValueError) as error:
        # The error and its cause may quote a value, and this value may be a secret in the wrong field.
        raise KeyringError(f"{source} is no keyring: {_problem(error, text)}") from None


def _problem(error: Exception, text: bytes) -> str:
    if isinstance(error, msgspec.ValidationError) and str(error).startswith("Invalid enum value"):
        plain = refused(error, "", _File, msgspec.json.decode(text))
        return f"{plain.message}, at {plain.path}"
    if not text.strip():
        return (
            "it is empty, as a file is that is just being written; restore it, or delete it and create keys "
            "with `headerware keys generate`"
        )
    with suppress(ValueError, RecursionError):
        if tomllib.loads(text.decode()):
            return "it is TOML, as a chain's file; a keyring is JSON (`headerware keys generate`)"
    return without_values(error)


def is_jwks(text: bytes) -> bool:
    """Return whether the text of a valid keyring is a JWKS."""
    return msgspec.json.decode(text, type=_Head).is_jwks


def encode_keyring(keyring: Keyring) -> bytes:
    """Return a keyring as JSON, indented for people."""
    fields: Mapping[str, object] = {"format": FORMAT, "version": VERSION, "keys": keyring.keys}
    return msgspec.json.format(msgspec.json.encode(fields), indent=2) + b"\n"


class _Head(msgspec.Struct):
    """The fields that all versions have, so that an error can name another version."""

    format: Any = msgspec.UNSET
    version: Any = msgspec.UNSET
    keys: Any = msgspec.UNSET

    @property
    def is_jwks(self) -> bool:
        """Whether the text has the field of a JWKS and no other field of a keyring."""
        return self.format is self.version is msgspec.UNSET and self.keys is not msgspec.UNSET


class _File(msgspec.Struct, forbid_unknown_fields=True):
    format: Literal["headerware-keyring"]
    version: int
    keys: tuple[Key, ...]


def _require_version(head: _Head) -> None:
    if head.format == SNAPSHOT_FORMAT:
        raise ValueError(
            "it is a snapshot of a keyring, which can only be used with the public half of its root"
        )
    if head.format != FORMAT:
        raise ValueError(f'its format is not "{FORMAT}"')
    if head.version is msgspec.UNSET:
        raise ValueError(f"it has no version, expected {VERSION}")
    if type(head.version) is not int:
        raise ValueError(f"its version is of type {type(head.version).__name__}, expected {VERSION}")
    if head.version < VERSION:
        raise ValueError(
            f"its version is {head.version}, expected {VERSION}: write {VERSION} there, because the rest of "
            "the file means the same"
        )
    if head.version > VERSION:
        raise ValueError(f"its version is {head.version}, expected {VERSION}: it needs a later Headerware")
