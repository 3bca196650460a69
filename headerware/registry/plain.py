"""Entries, blocks and changes as plain values, and back: what files, tables and messages hold.

An id is its dotted form and a network its prefix form, in all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime
from ipaddress import IPv4Network
from typing import Any, TypeVar

import msgspec

from headerware.core.errors import RegistryError
from headerware.core.header_ids import HeaderId, parse_id
from headerware.registry.changes import Change
from headerware.registry.entries import Block, Entry
from headerware.registry.header_names import printable

_Kind = TypeVar("_Kind", Entry, Block)


def to_plain(value: Entry | Block | Change) -> dict[str, Any]:
    """Return an entry, a block or a change as a dict of text, numbers and booleans; defaults are left out."""
    plain: dict[str, Any] = msgspec.to_builtins(value, enc_hook=_written)
    return plain


def from_plain(values: Mapping[str, Any], kind: type[_Kind]) -> _Kind:
    """Make an entry or a block of plain values.

    Dates may also be :class:`datetime.date`, as TOML has them. Only types are checked here: the rules are
    the registry's.

    Raises:
        RegistryError: a value is missing, unknown or of a wrong type.
    """
    dated = {key: _dated(value) for key, value in values.items()}
    made: _Kind = _converted(dated, kind)
    return made


def change_from_plain(values: Mapping[str, Any]) -> Change:
    """Make a change of plain values, as :func:`to_plain` gave them.

    Raises:
        RegistryError: a value is missing, unknown or of a wrong type.
    """
    change: Change = _converted(values, Change)
    return change


def _converted(values: Mapping[str, Any], kind: Any) -> Any:
    try:
        return msgspec.convert(values, kind, dec_hook=_read)
    except msgspec.ValidationError as error:
        raise RegistryError(printable(str(error).replace("`", "'"))) from None  # it quotes what it found


def _dated(value: Any) -> Any:
    is_a_day = isinstance(value, date) and not isinstance(value, datetime)
    return value.isoformat() if is_a_day else value


def _written(value: Any) -> str:
    if isinstance(value, HeaderId | IPv4Network):
        return str(value)
    raise TypeError(f"a {type(value).__name__} has no plain form")


def _read(kind: type, value: Any) -> Any:
    if kind is HeaderId:
        header_id = parse_id(value) if isinstance(value, str) else None
        if header_id is None:
            raise ValueError(f"Expected an id such as 0.1.0.7, found {_shown(value)}")
        return header_id
    if kind is IPv4Network:
        return _network(value)
    raise TypeError(f"a {kind.__name__} has no plain form")


def _network(value: Any) -> IPv4Network:
    try:
        network = IPv4Network(value) if isinstance(value, str) else None
    except ValueError as error:
        raise ValueError(f"Expected a block such as 0.1.0.0/16: {error}") from None
    if network is None or str(network) != value:
        raise ValueError(f"Expected a block such as 0.1.0.0/16, found {_shown(value)}")
    return network


def _shown(value: Any) -> str:
    return repr(value[:60]) if isinstance(value, str) else type(value).__name__
