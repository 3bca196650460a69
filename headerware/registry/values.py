"""The values of a registry: blocks, entries, and all changes that can be made.

:func:`to_plain` and :func:`from_plain` convert them to dicts and back, for files, tables and messages. A dict
has ids in dotted form and networks in prefix form.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime
from ipaddress import IPv4Network
from typing import Any, Final, Literal, TypeVar

import msgspec
from msgspec.structs import force_setattr

from headerware.core.errors import RegistryError
from headerware.core.header_ids import HeaderId, parse_id
from headerware.core.options import refused
from headerware.registry.header_names import printable

Encoding = Literal[
    "bytes",
    "utf-8",
    "json",
    "uuid",
    "boolean",
    "int8",
    "int16",
    "int32",
    "int64",
    "float64",
    "timestamp-ms",
]
"""The encoding of a header's value. Numbers are big-endian, a uuid has 16 bytes, a timestamp is an int64."""

OWNER: Final = "headerware"
"""The owner of the block that comes with Headerware."""
OWN_NETWORK: Final = IPv4Network("0.0.0.0/16")
"""Headerware's own block, which has built-in entries only."""
PRIVATE_NETWORK: Final = IPv4Network("10.0.0.0/8")
"""The private block: anyone may use its ids, so none is registered."""
NO_ID: Final = HeaderId(0)
"""The id that is never registered; wire formats use it as a mark."""


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One registered id and its meaning.

    Args:
        id: the number; its dotted form or an int is accepted.
        name: the header's name, exactly as Kafka carries it.
        owner: the owner of the block around the id, who registered it.
        encoding: the encoding of the header's value.
        description: the header's meaning, in one line.
        since: the day of its registration, such as ``2026-01-31``, in UTC.
        retired: the day from which the id is no longer written; it can be read for ever.
        foreign: whether other software defines the name and looks for it; such a name is only compacted on
            demand.

    Raises:
        HeaderError: the id is no header id.
    """

    id: HeaderId
    name: str
    owner: str
    encoding: Encoding
    description: str
    since: str
    retired: str | None = None
    foreign: bool = False

    def __post_init__(self) -> None:
        """Convert an id that was given as text or as a plain number."""
        if type(self.id) is not HeaderId:
            force_setattr(self, "id", HeaderId(self.id))


class Block(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A range of ids and its owner.

    Args:
        network: the range; text such as ``0.1.0.0/16`` is accepted.
        owner: the owner, who may register ids in it and allocate parts of it to others.
        description: its purpose, in one line.
        since: the day of its allocation, such as ``2026-01-31``, in UTC.

    Raises:
        ValueError: the text is not a network, or has bits set after its prefix.
    """

    network: IPv4Network
    owner: str
    description: str
    since: str

    def __post_init__(self) -> None:
        """Convert a network that was given as text."""
        if type(self.network) is not IPv4Network:
            force_setattr(self, "network", IPv4Network(self.network))

    def __contains__(self, header_id: int) -> bool:
        """Return whether an id lies in the block."""
        first = int(self.network.network_address)
        return first <= header_id < first + self.network.num_addresses


class Allocate(msgspec.Struct, frozen=True, tag_field="change", tag="allocate", forbid_unknown_fields=True):
    """Allocate a block to an owner.

    Args:
        block: the block, with its new owner.
        by: the author: the owner of the block around it, or the registrar if there is none.
    """

    block: Block
    by: str


class Register(msgspec.Struct, frozen=True, tag_field="change", tag="register", forbid_unknown_fields=True):
    """Register an id.

    Args:
        entry: the id and its meaning.
        by: the author: the owner of the block around the id.
    """

    entry: Entry
    by: str


class Retire(msgspec.Struct, frozen=True, tag_field="change", tag="retire", forbid_unknown_fields=True):
    """Retire an id: it can be read for ever, but is no longer written.

    Args:
        id: the id; its dotted form or an int is accepted.
        retired: the day, such as ``2026-01-31``, in UTC.
        by: the author: the owner of the id.

    Raises:
        HeaderError: the id is no header id.
    """

    id: HeaderId
    retired: str
    by: str

    def __post_init__(self) -> None:
        """Convert an id that was given as text or as a plain number."""
        if type(self.id) is not HeaderId:
            force_setattr(self, "id", HeaderId(self.id))


Change = Allocate | Register | Retire


_Kind = TypeVar("_Kind", Entry, Block)


def to_plain(value: Entry | Block | Change) -> dict[str, Any]:
    """Return an entry, a block or a change as a dict of text, numbers and booleans; defaults are left out."""
    plain: dict[str, Any] = msgspec.to_builtins(value, enc_hook=_written)
    return plain


def from_plain(values: Mapping[str, Any], kind: type[_Kind]) -> _Kind:
    """Make an entry or a block of plain values; only their types are checked.

    Dates may also be :class:`datetime.date`, as TOML has them.
    """
    dated = {key: _dated(value) for key, value in values.items()}
    made: _Kind = _converted(dated, kind)
    return made


def change_from_plain(values: Mapping[str, Any]) -> Change:
    change: Change = _converted(values, Change)
    return change


def _converted(values: Mapping[str, Any], kind: Any) -> Any:
    try:
        return msgspec.convert(values, kind, dec_hook=_read)
    except msgspec.ValidationError as error:
        raise RegistryError(printable(str(refused(error, "", kind)))) from None  # the cause quotes the value


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
