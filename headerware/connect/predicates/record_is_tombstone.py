"""RecordIsTombstone: whether a record's value is null (KIP-585).

predicates=isTombstone
predicates.isTombstone.type=org.apache.kafka.connect.transforms.predicates.RecordIsTombstone
"""

from __future__ import annotations

from typing import Any

from headerware.connect.predicates.base import Predicate


class RecordIsTombstone(Predicate):
    """Hold for records without a value."""

    def test(self, record: Any) -> bool:
        """Return whether the value is null."""
        return record.value is None
