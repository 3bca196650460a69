"""When a table in a topic writes its snapshot: now and then while it changes, and when it is closed."""

from __future__ import annotations

import logging
import os
import time
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

from headerware.registry.topic_table.snapshot import Snapshot, read_snapshot, write_snapshot

if TYPE_CHECKING:
    from headerware.registry.topic_table.state import TableState

_log = logging.getLogger("headerware.registry")

_CHANGED_S: Final = 30.0
_UNCHANGED_S: Final = 3600.0
"""So that a table whose process is killed does not look older than it is."""


class Saving:
    """Keep a table's snapshot file; safe for use by several threads.

    Args:
        path: the file, or None for none.
        topic: the topic.
    """

    def __init__(self, path: str | os.PathLike[str] | None, topic: str) -> None:
        self._path = path
        self._topic = topic
        self._lock = Lock()
        self._saved_at = -_UNCHANGED_S
        self._warned = False

    def load(self) -> Snapshot | None:
        """Read the snapshot, or give None where there is none that can be used."""
        return None if self._path is None else read_snapshot(self._path, self._topic)

    def save_if_due(self, state: TableState[Any]) -> None:
        """Write the snapshot if the rows have changed for a while, or nothing was written for long."""
        age_s = time.monotonic() - self._saved_at
        if age_s >= (_CHANGED_S if state.changed else _UNCHANGED_S):
            self.save(state)

    def save(self, state: TableState[Any]) -> None:
        """Write the snapshot; what fails is reported once, for the table works without."""
        if self._path is None or not state.is_whole:
            return
        with self._lock:
            with state.moved:
                snapshot = Snapshot(self._topic, state.complete_ms or 0, state.rows.records())
                state.changed = False
            self._saved_at = time.monotonic()
            try:
                write_snapshot(self._path, snapshot)
            except OSError as error:
                if not self._warned:
                    _log.warning("snapshot %s cannot be written: %s", self._path, error.strerror or error)
                self._warned = True
