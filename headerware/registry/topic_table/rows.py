"""What a table in a topic holds: the last value of each key, in the order in which it was written."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class TableRecord(NamedTuple):
    """One record of the topic.

    Attributes:
        offset: where it stands; of two records, the one with the lower offset was first.
        key: the row's key, or None, which names no row.
        value: the row's value, or None, which removes the row.
    """

    offset: int
    key: bytes | None
    value: bytes | None


class Rows:
    """Fold records, each taken in once and in the order of their offsets, into rows.

    A subclass may fold them into something else besides, as the registry's ledger does; it is filled anew
    whenever the topic is read again from its beginning. The table calls it under a lock of its own.
    """

    def __init__(self) -> None:
        # By key, in the order of offsets.
        self._records: dict[bytes, TableRecord] = {}

    def apply(self, record: TableRecord) -> bool:
        """Take in the next record, and tell whether a row has changed."""
        if record.key is None:
            return False
        before = self._records.pop(record.key, None)
        if record.value is not None:
            self._records[record.key] = record
        return record.value != (None if before is None else before.value)

    def fill(self, records: Iterable[TableRecord]) -> None:
        """Take in records that were saved, in the order of their offsets."""
        for record in records:
            self.apply(record)

    def get(self, key: bytes) -> bytes | None:
        """Return a row's value, or None where there is no such row."""
        record = self._records.get(key)
        return None if record is None else record.value

    def records(self) -> list[TableRecord]:
        """Return the record behind each row, in the order of offsets."""
        return list(self._records.values())

    def changes_since(self, earlier: Rows) -> Iterator[tuple[bytes, bytes | None]]:
        """Return the key and the present value, or None, of each row in which this differs from another."""
        for key in earlier._records.keys() - self._records.keys():
            yield key, None
        for key, record in self._records.items():
            if record.value != earlier.get(key):
                yield key, record.value
