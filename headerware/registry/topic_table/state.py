"""What a table in a topic knows at one moment: rows that are served, and rows that are being read."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from threading import Condition, Lock
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from headerware.registry.topic_table.rows import Rows

if TYPE_CHECKING:
    from headerware.registry.topic_table.reader import Batch
    from headerware.registry.topic_table.snapshot import Snapshot

Listener = Callable[[bytes, bytes | None], None]
AnyRows = TypeVar("AnyRows", bound=Rows)

_log = logging.getLogger("headerware.registry")


class TableState(Generic[AnyRows]):
    """Hold a table's rows for several threads, and tell listeners of their changes.

    While a topic is read from its beginning, the rows as they were are served; the new ones take their
    place when reading has come to where the topic ended as it began.

    Args:
        make_rows: makes empty rows.
        snapshot: what to serve until the topic is read, or None.
    """

    def __init__(self, make_rows: Callable[[], AnyRows], snapshot: Snapshot | None) -> None:
        self.moved: Final[Condition] = Condition()
        """Guards all that is here, and is notified when it changes."""
        self.rows: AnyRows = make_rows()
        self.position: int = -1
        """Where reading goes on; -1 before it has begun."""
        self.complete_ms: int | None = None
        """When the rows were last known to be all there are, in ms since the epoch; None for never."""
        self.changed: bool = False
        """Whether rows have changed since this was last set to false."""
        self._make_rows = make_rows
        self._coming: AnyRows | None = make_rows()
        self._goal: int | None = None
        self._listeners: list[Listener] = []
        self._untold: deque[tuple[bytes, bytes | None]] = deque()
        self._telling = Lock()
        if snapshot is not None:
            self.rows.fill(snapshot.records)
            self.complete_ms = min(snapshot.complete_ms, _now_ms())  # by a clock that may have been ahead

    def begin(self, goal: int | None) -> None:
        """Begin to read the topic anew; until that is done, the rows are not whole.

        Args:
            goal: the offset at which it ends now, or None where that is not known as yet: then nothing that
                is taken in counts, and this is to be called again.
        """
        with self.moved:
            self._coming, self._goal, self.position = self._make_rows(), goal, -1
            self.moved.notify_all()

    def take(self, batch: Batch) -> None:
        """Take in the next records."""
        with self.moved:
            for record in batch.records:
                if self._coming is not None:
                    self._coming.apply(record)
                elif self.rows.apply(record) and record.key is not None:
                    self._note(record.key, record.value)
            self.position = max(self.position, batch.position)
            if self._coming is not None and self._goal is not None and self.position >= self._goal:
                self._serve(self._coming)
            self.moved.notify_all()

    @property
    def is_begun(self) -> bool:
        """Whether the topic is being read from its beginning, or was."""
        with self.moved:
            return self._coming is None or self._goal is not None

    @property
    def is_whole(self) -> bool:
        """Whether the rows that are served were read from the topic, and from its beginning."""
        return self._coming is None

    def has_read_to(self, end: int) -> bool:
        """Return whether the rows hold all that stands before an offset."""
        with self.moved:  # for these two change together
            return self._coming is None and self.position >= end

    def confirm(self) -> None:
        """Note that the rows are all there are at this moment."""
        with self.moved:
            self.complete_ms = _now_ms()

    def listen(self, listener: Listener) -> None:
        """Call a listener with the key and the value, or None, of each row that changes from now on."""
        with self.moved:
            self._listeners.append(listener)

    def tell(self) -> None:
        """Tell the listeners what has changed: in order, one thread at a time, and without a lock held.

        A listener may use the table: what that brings is told when the listener is done.
        """
        # Checked again after the lock is given back: another thread may have found it taken just then.
        while self._untold and self._telling.acquire(blocking=False):
            try:
                while self._untold:
                    self._tell(*self._untold.popleft())
            finally:
                self._telling.release()

    def _tell(self, key: bytes, value: bytes | None) -> None:
        with self.moved:
            listeners = tuple(self._listeners)
        for listener in listeners:
            try:
                listener(key, value)
            except Exception:  # noqa: BLE001 - a listener may raise what it likes
                _log.exception("a listener failed; the table goes on")

    def _serve(self, coming: AnyRows) -> None:
        for key, value in coming.changes_since(self.rows):
            self._note(key, value)
        self.rows, self._coming, self._goal = coming, None, None
        self.confirm()

    def _note(self, key: bytes, value: bytes | None) -> None:
        self.changed = True
        if self._listeners:
            self._untold.append((key, value))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
