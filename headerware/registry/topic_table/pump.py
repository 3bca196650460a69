"""What moves a topic's records into a table's state: whoever waits for them, or a thread that follows."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Lock, Thread, current_thread
from typing import Any, Final

from headerware.core.errors import RegistryError
from headerware.registry.topic_table.clients import UnreachableError, left
from headerware.registry.topic_table.reader import TopicReader
from headerware.registry.topic_table.state import TableState

_log = logging.getLogger("headerware.registry")

_SLICE_S: Final = 0.1
_BEGIN_S: Final = 3.0
_PROBE_S: Final = 3.0
_RETRY_S: Final = 1.0
_READ_ANEW_MS: Final = 12 * 3_600_000
"""Brokers keep a tombstone for a day (delete.retention.ms); who was away for longer may never see it."""


class TopicPump:
    """Move records from a reader to a state, in one thread at a time.

    Args:
        reader: where they come from; closed with the pump.
        state: where they go.
        topic: the topic's name, for messages.
    """

    def __init__(self, reader: TopicReader, state: TableState[Any], topic: str) -> None:
        self._reader = reader
        self._state = state
        self._topic = topic
        self._began_ms = 0.0
        self._moving = Lock()
        """Held by whoever moves records; others may ask meanwhile where the topic ends."""
        self._starting = Lock()
        self._thread: Thread | None = None
        self._stop = Event()
        self._closed = False

    def begin(self, deadline: float) -> None:
        """See to it that the topic is being read.

        Raises:
            UnreachableError: not by the deadline.
            RegistryError: there is no such topic, it has several partitions, access is denied, or the
                pump is closed.
        """
        self.require_open()
        if self._is_begun():
            return
        if self._is_followed():
            began = self._wait(self._is_begun, deadline)
            self.require_open()
            if not began:
                raise UnreachableError(f"topic {self._topic!r} could not be read in time")
        else:
            with self._turn(deadline):
                self._begin(deadline)

    def end(self, deadline: float) -> int:
        """Ask where the topic ends; where that is before what was read already, read it anew.

        Raises:
            UnreachableError: no answer by the deadline.
            RegistryError: as for `begin`.
        """
        self.begin(deadline)
        position = self._state.position
        end = self._reader.end(deadline)
        self.require_reaches(position, end)
        return end

    def require_reaches(self, position: int, end: int) -> None:
        """See to it that the topic is read anew where it ends before what was read already.

        Args:
            position: how far it had been read when the end was asked for.
            end: where it ended then, or the offset that a record got.
        """
        if end < position:
            self._read_anew(f"it was read to {position}, and ends at {end}")

    def read_to(self, end: int, deadline: float) -> None:
        """Return when the state holds all that stands before an offset.

        Raises:
            UnreachableError: not by the deadline.
            RegistryError: as for `begin`.
        """
        while not self._state.has_read_to(end):
            self.require_open()
            if not left(deadline):
                position = max(self._state.position, 0)
                raise UnreachableError(
                    f"topic {self._topic!r} was read to offset {position} of {end} in time"
                )
            if self._is_followed():
                self._wait(lambda: self._state.has_read_to(end), deadline)
            else:
                with self._turn(deadline):
                    self._move(deadline)
        self._state.tell()

    def follow(self, look: Callable[[float], object], failed: Callable[[RegistryError], None]) -> None:
        """Start the thread that follows; nothing if it runs.

        Args:
            look: called by the thread every few seconds with a timeout, in seconds.
            failed: called by it with what keeps it from reading; it tries again.
        """
        with self._starting:
            self.require_open()
            if self._thread is None:
                name = f"headerware-table-{self._topic}"
                self._thread = Thread(target=self._run, args=(look, failed), name=name, daemon=True)
                self._thread.start()

    def close(self) -> bool:
        """End the thread and close the reader; False if that was done before."""
        self._stop.set()
        with self._state.moved:
            self._state.moved.notify_all()
        with self._starting:
            thread = self._thread
        if thread is not None and thread is not current_thread():
            thread.join()
        with self._moving:
            first, self._closed = not self._closed, True
            if first:
                self._reader.close()
        return first

    def require_open(self) -> None:
        """Raise unless the pump is open.

        Raises:
            RegistryError: it is closed.
        """
        if self._stop.is_set():
            raise RegistryError(f"the table of topic {self._topic!r} is closed")

    def _run(self, look: Callable[[float], object], failed: Callable[[RegistryError], None]) -> None:
        pause_s = 0.0
        look_at = 0.0
        while not self._stop.wait(pause_s):
            pause_s = 0.0
            deadline = time.monotonic() + _BEGIN_S
            try:
                with self._turn(deadline):
                    self._move(deadline)
                self._state.tell()
                if self._state.is_whole and time.monotonic() >= look_at:
                    look(_PROBE_S)
                    look_at = time.monotonic() + _PROBE_S
            except RegistryError as error:
                if not self._stop.is_set():
                    failed(error)
                pause_s = _RETRY_S
            except Exception:  # noqa: BLE001 - a thread that nobody sees must not end unseen
                _log.exception("topic %s: following it failed, and is tried again", self._topic)
                pause_s = _RETRY_S

    def _is_followed(self) -> bool:
        return self._thread is not None and self._thread is not current_thread()

    def _wait(self, condition: Callable[[], bool], deadline: float) -> bool:
        """Wait for what the thread that follows brings."""
        with self._state.moved:
            return self._state.moved.wait_for(lambda: condition() or self._stop.is_set(), left(deadline))

    @contextmanager
    def _turn(self, deadline: float) -> Iterator[None]:
        if not self._moving.acquire(timeout=left(deadline)):
            raise UnreachableError(f"topic {self._topic!r}: another thread still waits for the brokers")
        try:
            self.require_open()
            yield
        finally:
            self._moving.release()

    def _begin(self, deadline: float) -> None:
        if not self._is_begun():
            goal = self._reader.begin(deadline)
            self._began_ms = time.time() * 1000
            self._state.begin(goal)

    def _move(self, deadline: float) -> None:
        self._begin(deadline)
        batch = self._reader.poll(min(_SLICE_S, left(deadline)))
        if batch.lost:
            self._read_anew("its position is gone")
        else:
            self._state.take(batch)

    def _read_anew(self, reason: str) -> None:
        _log.warning("topic %s is read from its beginning again: %s", self._topic, reason)
        # Now, and not when reading begins: whoever waits must not take the rows of before for those of now.
        self._state.begin(None)

    def _is_begun(self) -> bool:
        """Return whether reading has begun, and was not interrupted for so long that it must begin anew."""
        known_ms = max(self._state.complete_ms or 0, self._began_ms)
        return self._state.is_begun and time.time() * 1000 - known_ms <= _READ_ANEW_MS
