"""Many writers, one registry: the order of the log decides.

Nobody locks a topic. Between a writer's look at the registry and its record, another's may come first. So a
record is a claim, and what it comes to is decided by all readers alike: they go through the log in the
order of offsets, and the first change that the rules admit counts. One that they refuse by then (the id,
the name or the block is taken, the block is another's) changes nothing; it is kept as a conflict, and its
writer, who reads it back before it says a word, learns that it lost.

Compaction would keep the last record of each key, that is, the loser where writers contend for the same
key. So no two changes share one: the key is 16 random bytes, drawn for each, and compaction takes nothing
away. Nothing is lost by that: a registry forgets nothing, it retires.

A record without its value, without a proper key, under a key that was there before, or whose value is no
change is damage: it is reported, and all others count as if it were not there.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import msgspec

from headerware.core.errors import HeaderwareError, RegistryError, WireFormatError
from headerware.registry.built_in import built_in, with_built_in
from headerware.registry.changes import Change
from headerware.registry.stores.topic.changes import Found, decode_change
from headerware.registry.topic_table.rows import Rows

if TYPE_CHECKING:
    from headerware.registry.registry import Registry
    from headerware.registry.topic_table.rows import TableRecord

KEY_BYTES: Final = 16

_log = logging.getLogger("headerware.registry")


class Conflict(msgspec.Struct, frozen=True):
    """A record that changed nothing.

    Args:
        offset: where it stands in the topic.
        change: what it wanted, or None for damage, which is no change at all.
        reason: why it was refused.
    """

    offset: int
    change: Change | Found | None
    reason: str

    def __str__(self) -> str:
        """Say it in one line."""
        what = "damage" if self.change is None else type(self.change).__name__.lower()
        return f"offset {self.offset}: {what}: {self.reason}"


class Ledger(Rows):
    """Fold the records of a topic into a registry; equal logs give equal ledgers.

    Each row is a change, and the first record under a key is the one that counts.
    """

    def __init__(self) -> None:
        super().__init__()
        self.registry: Registry = built_in()
        """What the changes so far come to."""
        self.conflicts: list[Conflict] = []
        """The records that changed nothing, in the order of the topic."""
        self.is_new: bool = True
        """Whether no change has counted as yet."""
        self._refusals: dict[bytes, str] = {}

    def apply(self, record: TableRecord) -> bool:
        """Take in the next record; whatever it holds, the next one can follow."""
        damage = self._damage(record)
        if damage is not None or record.key is None or record.value is None:
            self._note(record, None, damage or "")
            return False
        self._records[record.key] = record
        try:
            change = decode_change(record.value)
        except WireFormatError as error:
            self._refuse(record, record.key, None, str(error))
        else:
            self._fold(record, record.key, change)
        return True

    def refusal(self, key: bytes) -> str | None:
        """Say why the change under a key was refused; None where it was not."""
        return self._refusals.get(key)

    def _damage(self, record: TableRecord) -> str | None:
        if record.key is None or len(record.key) != KEY_BYTES:
            return f"its key is not {KEY_BYTES} bytes long"
        if record.value is None:
            return "a tombstone, and changes are never taken back"
        if record.key in self._records:
            return f"its key is that of offset {self._records[record.key].offset}, and each is used once"
        return None

    def _fold(self, record: TableRecord, key: bytes, change: Change | Found) -> None:
        try:
            self.registry = self._found(change) if isinstance(change, Found) else self.registry.apply(change)
        except HeaderwareError as error:
            self._refuse(record, key, change, str(error))
        except Exception as error:  # noqa: BLE001 - whatever a record holds, the others count
            self._refuse(record, key, change, f"it cannot be applied ({type(error).__name__})")
        else:
            self.is_new = False

    def _found(self, change: Found) -> Registry:
        if not self.is_new:
            raise RegistryError("a registry is founded before all else, and once")
        return with_built_in(registrar=change.registrar)

    def _refuse(self, record: TableRecord, key: bytes, change: Change | Found | None, reason: str) -> None:
        self._refusals[key] = reason
        self._note(record, change, reason)

    def _note(self, record: TableRecord, change: Change | Found | None, reason: str) -> None:
        conflict = Conflict(record.offset, change, reason)
        self.conflicts.append(conflict)
        _log.debug("%s", conflict)
