"""The counters of a task."""

from __future__ import annotations

import msgspec


class Statistics(msgspec.Struct):
    """The counters of a task since its start."""

    listed: int = 0
    """Listed keys; a key counts each time it is listed."""
    known: int = 0
    """Listed keys of objects that are complete or in flight."""
    of_other_tasks: int = 0
    disorder: int = 0
    """Keys that were listed after a higher key."""
    whole_listings: int = 0
    objects: int = 0
    """Objects whose reading was begun."""
    complete: int = 0
    """Objects that were read to their end."""
    failed: int = 0
    """Objects that could not be read to their end."""
    records: int = 0
    """Records that were made."""
    discarded: int = 0
    """Records that were made but not sent, because their object was started again after a failure."""
    dropped: int = 0
    """Records that transformers dropped."""
    bad_records: int = 0
    dead_letters: int = 0
    retries: int = 0
    """Attempts after failures to list, open or read."""
    acknowledged: int = 0
    """Records of batches that are stored."""
    acknowledged_bytes: int = 0
    """The size of these records, as far as extractors tell it."""

    @property
    def in_flight(self) -> int:
        """Records that are not stored yet."""
        return self.records - self.discarded - self.acknowledged
