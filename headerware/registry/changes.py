"""The changes that a registry can undergo; there are no others."""

from __future__ import annotations

import msgspec
from msgspec.structs import force_setattr

from headerware.core.header_ids import HeaderId
from headerware.registry.entries import Block, Entry


class Allocate(msgspec.Struct, frozen=True, tag_field="change", tag="allocate", forbid_unknown_fields=True):
    """Hand a block to an owner.

    Args:
        block: what is handed over, and to whom.
        by: who hands it over: the owner of the block around it, or the registrar where there is none.
    """

    block: Block
    by: str


class Register(msgspec.Struct, frozen=True, tag_field="change", tag="register", forbid_unknown_fields=True):
    """Register an id.

    Args:
        entry: the id and what it stands for.
        by: who registers it: the owner of the block that it lies in.
    """

    entry: Entry
    by: str


class Retire(msgspec.Struct, frozen=True, tag_field="change", tag="retire", forbid_unknown_fields=True):
    """Retire an id: it can be read for ever, and is not written any more.

    Args:
        id: the id; its dotted form or an int will do.
        retired: the day, such as ``2026-01-31``, in UTC.
        by: who retires it: its owner.

    Raises:
        HeaderError: the id is no header id.
    """

    id: HeaderId
    retired: str
    by: str

    def __post_init__(self) -> None:
        """Read the id where it was given as text or as a plain number."""
        if type(self.id) is not HeaderId:
            force_setattr(self, "id", HeaderId(self.id))


Change = Allocate | Register | Retire
