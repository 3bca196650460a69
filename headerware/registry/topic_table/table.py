"""A compacted Kafka topic as a table of bytes by bytes, which many processes follow live.

The topic has one partition, so that all see the same records in the same order. It is read from its
beginning each time: compaction keeps the last record of each key, and such tables are small. To go on from
a saved position would save little, and would miss what compaction has taken away meanwhile, tombstones
above all; so a table that was out of reach for half a day is read anew as well.

While the brokers are out of reach, the table goes on with the rows that it has, or with those of a snapshot
file, and says since when they are stale.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, Generic, Self

from headerware.core.errors import RegistryError
from headerware.registry.topic_table.clients import UnreachableError
from headerware.registry.topic_table.pump import TopicPump
from headerware.registry.topic_table.reader import TopicReader
from headerware.registry.topic_table.saving import Saving
from headerware.registry.topic_table.state import AnyRows, Listener, TableState
from headerware.registry.topic_table.writer import TopicWriter

if TYPE_CHECKING:
    from types import TracebackType

TIMEOUT_S: Final = 10.0
"""How long the brokers are waited for, unless the caller says."""

_log = logging.getLogger("headerware.registry")


class TopicTable(Generic[AnyRows]):
    """Keep the rows of a topic, and add to them.

    Nothing is sent before the first `refresh`, `put` or `follow`. All methods may be called by several
    threads. A forked child must make a table of its own, for librdkafka's threads do not survive a fork.

    Args:
        conf: librdkafka's properties, ``bootstrap.servers`` among them.
        topic: the topic; it has one partition.
        rows: makes empty rows: :class:`~headerware.registry.topic_table.rows.Rows`, or a subclass.
        snapshot: the file for the rows of last time, or None for none.
        create: whether to create the topic where there is none.
        replication_factor: of a topic that is created; -1 leaves it to the brokers.

    Raises:
        RegistryError: the configuration is none that librdkafka takes.
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
    ) -> None:
        self.topic = topic
        reader = TopicReader(conf, topic, create=create, replication_factor=replication_factor)
        self._writer = TopicWriter(conf, topic)
        self._saving = Saving(snapshot, topic)
        self._state: TableState[AnyRows] = TableState(rows, self._saving.load())
        self._pump = TopicPump(reader, self._state, topic)
        self._failure: RegistryError | None = UnreachableError(f"topic {topic!r} was not read as yet")
        self._warned = False
        self._noting = Lock()
        self._pid = os.getpid()

    @property
    def stale(self) -> datetime | None:
        """When the rows were last known to be all there are, or None where they were at the last look.

        1970 stands for never. While the table is followed, a look is taken every few seconds.
        """
        if self._failure is None:
            return None
        return datetime.fromtimestamp((self._state.complete_ms or 0) / 1000, UTC)

    def get(self, key: bytes) -> bytes | None:
        """Return a row's value as far as the table has read, or None where there is no such row."""
        with self.rows() as rows:
            return rows.get(key)

    def items(self) -> list[tuple[bytes, bytes]]:
        """Give the keys and values as far as the table has read, in the order in which they were written."""
        with self.rows() as rows:
            found = rows.records()
        return [(key, value) for _, key, value in found if key is not None and value is not None]

    @contextmanager
    def rows(self) -> Iterator[AnyRows]:
        """Return the rows, which do not change within the block; it is to be short."""
        with self._state.moved:
            yield self._state.rows

    def refresh(self, timeout_s: float = TIMEOUT_S) -> bool:
        """Read up to where the topic ends at the time of the call.

        Args:
            timeout_s: how long to wait, in seconds.

        Returns:
            whether it came so far; if not, the table goes on with the rows that it has, which are `stale`.

        Raises:
            UnreachableError: the brokers did not answer in time, and there are no rows to go on with.
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
            UnreachableError: the brokers did not answer in time. The text says whether the row was written
                or nobody knows.
            RegistryError: as for `refresh`, or the brokers refuse the record.
        """
        self._require_own_process()
        deadline = time.monotonic() + timeout_s
        self._pump.begin(deadline)
        position = self._state.position
        offset = self._writer.put(key, value, deadline)
        self._pump.require_reaches(position, offset)
        try:
            self._pump.read_to(offset + 1, deadline)
        except UnreachableError as error:
            raise UnreachableError(f"written at offset {offset}, but not read back: {error}") from error
        return offset

    def on_change(self, listener: Listener) -> None:
        """Call a listener with the key and the value, or None, of each row that changes from now on.

        The calls come in the order of the topic, from whichever thread has read; what a listener raises is
        logged, and the table goes on. A listener may use the table.
        """
        self._state.listen(listener)

    def follow(self) -> None:
        """Read on in the background, from now until `close`; a second call does nothing."""
        self._require_own_process()
        self._pump.follow(self._look, self._note_failure)

    def close(self) -> None:
        """End following, leave the brokers and save the snapshot; a second call does nothing."""
        if os.getpid() == self._pid and self._pump.close():
            self._writer.close()
            self._saving.save(self._state)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _look(self, timeout_s: float) -> bool:
        """Read to the end, and note whether that went well."""
        deadline = time.monotonic() + timeout_s
        try:
            self._pump.read_to(self._pump.end(deadline), deadline)
        except RegistryError as error:
            self._failure = error
            if isinstance(error, UnreachableError) and self._state.complete_ms is not None:
                self._note_failure(error)
                return False
            raise
        self._state.confirm()
        with self._noting:
            if self._warned:
                _log.info("topic %s: the rows are up to date again", self.topic)
            self._failure, self._warned = None, False
        self._saving.save_if_due(self._state)
        return True

    def _note_failure(self, error: RegistryError) -> None:
        with self._noting:
            if not self._warned:
                _log.warning("the rows go on as they are: %s", error)
            self._failure, self._warned = error, True

    def _require_own_process(self) -> None:
        if os.getpid() != self._pid:
            raise RegistryError(
                f"the table of topic {self.topic!r} was made before this process was forked; make one here"
            )
