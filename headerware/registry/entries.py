"""What a registry holds: blocks of header ids and the entries in them."""

from __future__ import annotations

from ipaddress import IPv4Network
from typing import Final, Literal

import msgspec
from msgspec.structs import force_setattr

from headerware.core.header_ids import HeaderId

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
"""What a header's value is: numbers are big-endian, a uuid its 16 bytes, a timestamp an int64 since 1970."""

OWNER: Final = "headerware"
"""The owner of the block that comes with Headerware."""
OWN_NETWORK: Final = IPv4Network("0.0.0.0/16")
"""Headerware's own block: what is in it comes with Headerware, and nothing else is ever put there."""
PRIVATE_NETWORK: Final = IPv4Network("10.0.0.0/8")
"""The private block: anyone may use its ids, and so nothing is registered there."""
NO_ID: Final = HeaderId(0)
"""The id that stands for none; wire formats use it as a mark."""


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One registered id and what it stands for.

    Args:
        id: the number; its dotted form or an int will do.
        name: the header's name, exactly as Kafka carries it.
        owner: who registered it: the owner of the block that it lies in.
        encoding: what the header's value is.
        description: what the header says, in one line.
        since: the day of its registration, such as ``2026-01-31``, in UTC.
        retired: the day from which nobody writes it any more; it can be read for ever.
        foreign: the name is other people's, who look for it by that name, so it is only compacted
            where that is asked for.

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
        """Read the id where it was given as text or as a plain number."""
        if type(self.id) is not HeaderId:
            force_setattr(self, "id", HeaderId(self.id))


class Block(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A range of ids and whose it is.

    Args:
        network: the range; text such as ``0.1.0.0/16`` will do.
        owner: who may register ids in it, and hand parts of it to others.
        description: what it is for, in one line.
        since: the day of its allocation, such as ``2026-01-31``, in UTC.

    Raises:
        ValueError: the text is no network, or has bits set behind its prefix.
    """

    network: IPv4Network
    owner: str
    description: str
    since: str

    def __post_init__(self) -> None:
        """Read the network where it was given as text."""
        if type(self.network) is not IPv4Network:
            force_setattr(self, "network", IPv4Network(self.network))

    def __contains__(self, header_id: int) -> bool:
        """Return whether an id lies in the block."""
        first = int(self.network.network_address)
        return first <= header_id < first + self.network.num_addresses
