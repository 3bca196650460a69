"""The rows of a table: the last value of each key, in the order in which it was written.

:class:`TableState` has two sets of rows while the topic is read: one that is served, and one that grows.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from threading import Condition, Lock
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Listener = Callable[[bytes, bytes | None], None]

_log = logging.getLogger("headerware.topic_table")


class TableRecord(NamedTuple):
    """One record of the topic; a record without a key is no row, and one without a value removes the row."""

    offset: int
    key: bytes | None
    value: bytes | None


class OtherTopicError(Exception):
    """The first record after a resumption shows that the rows were read from another topic of this name."""


class Rows:
    """Build rows from records, which are applied once each, in the order of offsets.

    A subclass may build something else besides, as the registry's ledger does. The table makes and fills a
    new object whenever it reads the topic from its beginning, and calls it under a lock.
    """

    resume_at: int = -1
    """The offset at which reading may go on, for rows that an earlier process has saved with it; -1 for none.

    Such rows must be right although they miss tombstones that compaction has removed meanwhile. To notice
    that the topic was replaced, they may resume at their last record, and raise OtherTopicError in `apply`.
    """

    def __init__(self) -> None:
        # By key, in the order of offsets.
        self._records: dict[bytes, TableRecord] = {}

    def apply(self, record: TableRecord) -> bool:
        """Apply the next record, and return whether a row has changed."""
        if record.key is None:
            return False
        before = self._records.pop(record.key, None)
        if record.value is not None:
            self._records[record.key] = record
        return record.value != (None if before is None else before.value)

    def moved_to(self, position: int) -> None:
        """Note the position after the records that were applied so far; for rows that are kept in a file."""

    def begin_serving(self, position: int) -> None:
        """Note that these rows replace the former ones, at a position; for rows that are kept in a file."""

    def fill(self, records: Iterable[TableRecord]) -> None:
        """Apply saved records, in the order of their offsets."""
        for record in records:
            self.apply(record)

    def get(self, key: bytes) -> bytes | None:
        """Return a row's value, or None if there is no such row."""
        record = self._records.get(key)
        return None if record is None else record.value

    def records(self) -> list[TableRecord]:
        """Return the record of each row, in the order of offsets."""
        return list(self._records.values())

    def changes_since(self, earlier: Rows) -> Iterator[tuple[bytes, bytes | None]]:
        """Yield the key and the present value, or None, of each row that differs from another state's."""
        for key in earlier._records.keys() - self._records.keys():
            yield key, None
        for key, record in self._records.items():
            if record.value != earlier.get(key):
                yield key, record.value


AnyRows = TypeVar("AnyRows", bound=Rows)


class TableState(Generic[AnyRows]):
    """Hold a table's rows for several threads, and tell listeners of their changes.

    While a topic is read from its beginning, the old rows are served. The new ones replace them once they
    reach the offset at which the topic ended when reading began.
    """

    def __init__(self, make_rows: Callable[[], AnyRows]) -> None:
        self.moved: Final[Condition] = Condition()
        """Guards all attributes, and is notified when they change."""
        self.rows: AnyRows = make_rows()
        self.position: int = -1
        """The offset at which reading goes on; -1 before it has begun."""
        self.complete_ms: int | None = None
        """When the rows were last known to be complete, in ms since the epoch; None for never."""
        self.changed: bool = False
        """Whether rows have changed since this was last set to false."""
        self._make_rows = make_rows
        self._coming: AnyRows | None = make_rows()
        self._goal: int | None = None
        self._has_begun = False
        self._listeners: list[Listener] = []
        self._unreported: deque[tuple[bytes, bytes | None]] = deque()
        self._notifying = Lock()

    def restore(self, records: Iterable[TableRecord], complete_ms: int) -> None:
        """Serve the rows of a snapshot until the topic is read."""
        self.rows.fill(records)
        self.complete_ms = min(complete_ms, _now_ms())  # by a clock that may have been ahead

    def begin(self, goal: int | None, resume_at: int = -1) -> None:
        """Begin to read the topic anew, up to a goal; until then, the rows are not complete.

        Args:
            goal: the offset at which the topic ends now. If it is None, that is not known yet: no record
                counts until this is called again with a goal.
            resume_at: the offset from which on records are added to the rows that are there; -1 for new rows.
        """
        with self.moved:
            self._has_begun = True
            self._coming = self._make_rows() if resume_at < 0 else self.rows
            self._goal, self.position = goal, resume_at
            self.moved.notify_all()

    @property
    def resume_at(self) -> int:
        """The offset at which the first reading may go on, or -1."""
        return -1 if self._has_begun else self.rows.resume_at

    def take(self, records: Iterable[TableRecord], position: int) -> None:
        """Apply the next records, and note the position after them."""
        with self.moved:
            for record in records:
                if self._coming is not None:
                    self._coming.apply(record)
                elif self.rows.apply(record) and record.key is not None:
                    self._note(record.key, record.value)
            self.position = max(self.position, position)
            (self.rows if self._coming is None else self._coming).moved_to(self.position)
            if self._coming is not None and self._goal is not None and self.position >= self._goal:
                self._serve(self._coming)
            self.moved.notify_all()

    @property
    def is_begun(self) -> bool:
        """Whether reading the topic from its beginning has begun or is done."""
        with self.moved:
            return self._coming is None or self._goal is not None

    @property
    def is_complete(self) -> bool:
        """Whether the rows that are served were read from the topic, and from its beginning."""
        return self._coming is None

    def has_read_to(self, end: int) -> bool:
        """Return whether the rows hold all records before an offset."""
        with self.moved:  # the two change together
            return self._coming is None and self.position >= end

    def confirm(self) -> None:
        with self.moved:
            self.complete_ms = _now_ms()

    def listen(self, listener: Listener) -> None:
        """Call a listener with the key and the value, or None, of each row that changes from now on."""
        with self.moved:
            self._listeners.append(listener)

    def notify(self) -> None:
        """Call the listeners for all changes: in order, in one thread at a time, without the state's lock.

        A listener may use the table; the changes that it makes are reported when it is done.
        """
        # The loop checks again after releasing the lock: another thread may have found it taken just then.
        while self._unreported and self._notifying.acquire(blocking=False):
            try:
                while self._unreported:
                    self._notify(*self._unreported.popleft())
            finally:
                self._notifying.release()

    def _notify(self, key: bytes, value: bytes | None) -> None:
        with self.moved:
            listeners = tuple(self._listeners)
        for listener in listeners:
            try:
                listener(key, value)
            except Exception:  # noqa: BLE001 - a listener may raise anything
                _log.exception("a listener failed; the table goes on")

    def _serve(self, coming: AnyRows) -> None:
        if coming is not self.rows:
            for key, value in coming.changes_since(self.rows):
                self._note(key, value)
            coming.begin_serving(self.position)
        self.rows, self._coming, self._goal = coming, None, None
        self.confirm()

    def _note(self, key: bytes, value: bytes | None) -> None:
        self.changed = True
        if self._listeners:
            self._unreported.append((key, value))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
