"""What a task has counted."""

from __future__ import annotations

import msgspec


class Statistics(msgspec.Struct):
    """What a task has counted since it was started."""

    listed: int = 0
    """Keys that were listed, each time they were."""
    known: int = 0
    """Of these, keys of objects that are complete, or on their way."""
    of_other_tasks: int = 0
    disorder: int = 0
    """Keys that were listed below a key before them."""
    whole_listings: int = 0
    objects: int = 0
    """Objects that were begun."""
    complete: int = 0
    """Objects that were read to their end."""
    failed: int = 0
    """Objects that could not be read, or not to their end."""
    records: int = 0
    """Records that were made of what was read."""
    discarded: int = 0
    """Of these, records that were not sent, because their object started again after a failure."""
    dropped: int = 0
    """Records that transformers left out."""
    bad_records: int = 0
    dead_letters: int = 0
    retries: int = 0
    """Attempts after a failure to list, open or read."""
    acknowledged: int = 0
    """Records whose batch is stored."""
    acknowledged_bytes: int = 0
    """Their bytes, as far as extractors tell them."""

    @property
    def in_flight(self) -> int:
        """Records that were read and are not stored."""
        return self.records - self.discarded - self.acknowledged
