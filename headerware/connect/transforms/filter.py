"""Filter: drop every record that reaches it (KIP-585).

transforms=tombstones
transforms.tombstones.type=org.apache.kafka.connect.transforms.Filter
transforms.tombstones.predicate=isTombstone
"""

from __future__ import annotations

from typing import Any

from headerware.connect.transforms.base import Transform


class Filter(Transform):
    """Drop every record; in the strict mode, a pipeline requires a predicate that chooses the records."""

    def apply(self, record: Any) -> None:
        """Return None."""
