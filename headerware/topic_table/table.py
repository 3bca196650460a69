"""A compacted Kafka topic as a table of bytes by bytes, which many processes follow live.

The topic has one partition, so that all processes see the same records in the same order. Each process reads
it from its beginning: compaction keeps the last record of each key, and such tables are small. Starting at a
saved position would save little, and would miss records that compaction has removed meanwhile, above all
tombstones. For the same reason, a table that was out of reach for half a day is read anew. Only rows that
need no tombstones, and are too many to be read anew, state a position to resume at.

While the brokers are out of reach, the table serves the rows that it has, or the rows of a snapshot file, and
tells since when they are stale.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from threading import Event, Lock, Thread, current_thread
from types import MappingProxyType
from typing import Any, Final, Generic

from headerware.core.closing import Closing
from headerware.core.errors import HeaderwareError, RegistryError
from headerware.topic_table.rows import AnyRows, Listener, OtherTopicError, TableState
from headerware.topic_table.snapshot import SnapshotFile
from headerware.topic_table.topic import TableReader, TopicWriter, UnreachableError, seconds_left

TIMEOUT_S: Final = 10.0
"""How long to wait for the brokers by default."""
_SLICE_S: Final = 0.1
_BEGIN_S: Final = 3.0
_PROBE_S: Final = 3.0
_RETRY_S: Final = 1.0
READ_ANEW_MS: Final = 12 * 3_600_000
"""Brokers keep a tombstone for a day (delete.retention.ms); a table that was away longer may miss it."""

_log = logging.getLogger("headerware.topic_table")


class TopicTable(Closing, Generic[AnyRows]):
    """Keep the rows of a topic, and add to them.

    Nothing is sent before the first `refresh`, `put` or `follow`. All methods may be called by several
    threads. A forked child must make a table of its own, because librdkafka's threads do not survive a fork.

    Args:
        conf: librdkafka's properties, ``bootstrap.servers`` among them.
        topic: the topic; it has one partition.
        rows: makes empty rows: :class:`~headerware.topic_table.rows.Rows`, or a subclass.
        snapshot: the file in which the rows are saved, or None for none.
        create: whether to create the topic if it does not exist.
        replication_factor: of a created topic; -1 leaves it to the brokers.
        topic_settings: further settings of a created topic, which is compacted.

    Raises:
        RegistryError: librdkafka refuses the configuration.
    """

    def __init__(
        self,
        conf: Mapping[str, Any],
        topic: str,
        *,
        rows: Callable[[], AnyRows],
        snapshot: str | os.PathLike[str] | None = None,
        create: bool = False,
        replication_factor: int = -1,
        topic_settings: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.topic = topic
        reader = TableReader(
            conf,
            topic,
            create=create,
            replication_factor=replication_factor,
            topic_settings=topic_settings,
        )
        self._writer = TopicWriter(conf, topic)
        self._snapshot = SnapshotFile(snapshot, topic)
        self._state: TableState[AnyRows] = TableState(rows)
        saved = self._snapshot.load()
        if saved is not None:
            self._state.restore(saved.records, saved.complete_ms)
        self._pump = _Pump(reader, self._state, topic)
        self._complete = False
        self._warned = False
        self._noting = Lock()
        self._pid = os.getpid()

    @property
    def stale(self) -> datetime | None:
        """When the rows were last known to be complete, or None if they were at the last check.

        1970 stands for never. While the table is followed, it checks every few seconds.
        """
        if self._complete:
            return None
        return datetime.fromtimestamp((self._state.complete_ms or 0) / 1000, UTC)

    @property
    def complete_ms(self) -> int | None:
        """When the rows were last known to be complete, in ms since the epoch; None for never."""
        return self._state.complete_ms

    def get(self, key: bytes) -> bytes | None:
        """Return a row's value as far as the table has read, or None if there is no such row."""
        with self.rows() as rows:
            return rows.get(key)

    def items(self) -> list[tuple[bytes, bytes]]:
        """Return the keys and values as far as the table has read, in the order of writing."""
        with self.rows() as rows:
            found = rows.records()
        return [(key, value) for _, key, value in found if key is not None and value is not None]

    @contextmanager
    def rows(self) -> Iterator[AnyRows]:
        """Yield the rows, which do not change within the block; keep it short."""
        with self._state.moved:
            yield self._state.rows

    def refresh(self, timeout_s: float = TIMEOUT_S) -> bool:
        """Read to the offset at which the topic ends at the time of the call.

        Args:
            timeout_s: how long to wait, in seconds.

        Returns:
            whether it reached that offset; if not, the table keeps serving the rows that it has, which are
            `stale`.

        Raises:
            UnreachableError: the brokers did not answer in time, and there are no rows to serve.
            RegistryError: there is no such topic, it has several partitions, access to it is denied, or
                the table is closed.
        """
        self._require_own_process()
        return self._look(timeout_s)

    def put(self, key: bytes, value: bytes | None, timeout_s: float = TIMEOUT_S) -> int:
        """Write a row, and return its record's offset once this table itself has read it.

        Args:
            key: the row's key.
            value: its value, or None to remove the row.
            timeout_s: how long to wait, in seconds.

        Raises:
            UnreachableError: the brokers did not answer in time. The text says whether the row was written,
                or that this is not known.
            RegistryError: as for `refresh`, or the brokers refuse the record.
        """
        return self.put_many([(key, value)], timeout_s)

    def put_many(self, rows: Sequence[tuple[bytes, bytes | None]], timeout_s: float = TIMEOUT_S) -> int:
        """Write rows together, and return the last one's offset once this table itself has read them all.

        They are written in their order, but not atomically: records of other writers may come between them,
        and after an error some of them may have been written.

        Args:
            rows: keys, each with its value, or with None to remove the row; one or more.
            timeout_s: how long to wait for all of them, in seconds.

        Raises:
            UnreachableError: as for `put`.
            RegistryError: as for `put`.
        """
        self._require_own_process()
        deadline = time.monotonic() + timeout_s
        self._pump.begin(deadline)
        position = self._state.position
        offset = self._writer.put(rows, deadline)
        self._pump.require_reaches(position, offset)
        try:
            self._pump.read_to(offset + 1, deadline)
        except UnreachableError as error:
            raise UnreachableError(f"written at offset {offset}, but not read back: {error}") from error
        return offset

    def on_change(self, listener: Listener) -> None:
        """Call a listener with the key and the value, or None, of each row that changes from now on.

        The calls come in the order of the topic, from any thread that reads. An exception of a listener is
        logged, and the table goes on. A listener may use the table.
        """
        self._state.listen(listener)

    def follow(self) -> None:
        """Follow the topic in the background, from now until `close`; a second call does nothing."""
        self._require_own_process()
        self._pump.follow(self._look, self._note_failure)

    def close(self) -> None:
        """Stop following, disconnect and save the snapshot; a second call does nothing."""
        if os.getpid() == self._pid and self._pump.close():
            self._writer.close()
            self._snapshot.save(self._state)

    def _look(self, timeout_s: float) -> bool:
        """Read to the end, and note success or failure."""
        deadline = time.monotonic() + timeout_s
        try:
            self._pump.read_to(self._pump.end(deadline), deadline)
        except RegistryError as error:
            self._complete = False
            if isinstance(error, UnreachableError) and self._state.complete_ms is not None:
                self._note_failure(error)
                return False
            raise
        self._state.confirm()
        with self._noting:
            if self._warned:
                _log.info("topic %s: the rows are up to date again", self.topic)
            self._complete, self._warned = True, False
        self._snapshot.save_if_due(self._state)
        return True

    def _note_failure(self, error: RegistryError) -> None:
        with self._noting:
            if not self._warned:
                _log.warning("the rows go on as they are: %s", error)
            self._complete, self._warned = False, True

    def _require_own_process(self) -> None:
        if os.getpid() != self._pid:
            raise RegistryError(
                f"the table of topic {self.topic!r} was made before this process was forked; make one here"
            )


@contextmanager
def errors_as(kind: type[HeaderwareError]) -> Iterator[None]:
    """Raise the RegistryErrors of a table as errors of another kind."""
    try:
        yield
    except RegistryError as error:
        raise kind(str(error)) from error


class _Pump:
    """Move records from a reader to a state, in one thread at a time."""

    def __init__(self, reader: TableReader, state: TableState[Any], topic: str) -> None:
        self._reader = reader
        self._state = state
        self._topic = topic
        self._began_ms = 0.0
        self._moving = Lock()
        """Held by the thread that moves records; meanwhile others may ask for the end of the topic."""
        self._starting = Lock()
        self._thread: Thread | None = None
        self._stop = Event()
        self._closed = False

    def begin(self, deadline: float) -> None:
        """Begin to read the topic, unless that has begun."""
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
        """Return the offset at which the topic ends; if more was read before, read the topic anew."""
        self.begin(deadline)
        position = self._state.position
        end = self._reader.end(deadline)
        self.require_reaches(position, end)
        return end

    def require_reaches(self, position: int, end: int) -> None:
        """Read the topic anew if it ends before the position that was read when its end was requested."""
        if end < position:
            self._read_anew(f"it was read to {position}, and ends at {end}")

    def read_to(self, end: int, deadline: float) -> None:
        """Return once the state holds all records before an offset."""
        while not self._state.has_read_to(end):
            self.require_open()
            if not seconds_left(deadline):
                position = max(self._state.position, 0)
                raise UnreachableError(
                    f"topic {self._topic!r} was read to offset {position} of {end} in time"
                )
            if self._is_followed():
                self._wait(lambda: self._state.has_read_to(end), deadline)
            else:
                with self._turn(deadline):
                    self._move(deadline)
        self._state.notify()

    def follow(self, look: Callable[[float], object], failed: Callable[[RegistryError], None]) -> None:
        """Start the thread that follows the topic, unless it runs.

        It calls ``look`` every few seconds with a timeout in seconds, and ``failed`` with each error; then it
        tries again.
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
                self._state.notify()
                if self._state.is_complete and time.monotonic() >= look_at:
                    look(_PROBE_S)
                    look_at = time.monotonic() + _PROBE_S
            except RegistryError as error:
                if not self._stop.is_set():
                    failed(error)
                pause_s = _RETRY_S
            except Exception:  # noqa: BLE001 - a background thread must not end silently
                _log.exception("topic %s: following it failed, and is tried again", self._topic)
                pause_s = _RETRY_S

    def _is_followed(self) -> bool:
        return self._thread is not None and self._thread is not current_thread()

    def _wait(self, condition: Callable[[], bool], deadline: float) -> bool:
        """Wait until the following thread has made a condition true."""
        with self._state.moved:
            return self._state.moved.wait_for(
                lambda: condition() or self._stop.is_set(), seconds_left(deadline)
            )

    @contextmanager
    def _turn(self, deadline: float) -> Iterator[None]:
        if not self._moving.acquire(timeout=seconds_left(deadline)):
            raise UnreachableError(f"topic {self._topic!r}: another thread still waits for the brokers")
        try:
            self.require_open()
            yield
        finally:
            self._moving.release()

    def _begin(self, deadline: float) -> None:
        if not self._is_begun():
            resume_at = self._state.resume_at
            goal = self._reader.begin(deadline, resume_at)
            self._began_ms = time.time() * 1000
            if goal is None:
                self._read_anew(f"it no longer has offset {resume_at}, to which it was read")
                self._begin(deadline)
            else:
                self._state.begin(goal, resume_at)

    def _move(self, deadline: float) -> None:
        self._begin(deadline)
        batch = self._reader.poll(min(_SLICE_S, seconds_left(deadline)))
        if batch.lost:
            self._read_anew("its position is gone")
        else:
            try:
                self._state.take(batch.records, batch.position)
            except OtherTopicError as error:
                self._read_anew(str(error))

    def _read_anew(self, reason: str) -> None:
        _log.warning("topic %s is read from its beginning again: %s", self._topic, reason)
        # Now, and not when reading begins: a waiting thread must not take the old rows for the new ones.
        self._state.begin(None)

    def _is_begun(self) -> bool:
        """Return whether reading has begun, and was not interrupted for so long that it must begin anew."""
        known_ms = max(self._state.complete_ms or 0, self._began_ms)
        return self._state.is_begun and time.time() * 1000 - known_ms <= READ_ANEW_MS
