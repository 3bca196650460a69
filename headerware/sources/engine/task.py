"""A task: reads one share of a source; its user polls batches and acknowledges them.

task = SourceTask(config, offsets)
task.start()
try:
    while running:
        for batch in task.poll():
            send(batch)                          # then task.acknowledge(batch) when all its records are
            stored
        task.store_offsets()                     # stores the offsets of acknowledged batches
finally:
    task.stop()
"""

from __future__ import annotations

import logging
import time
from threading import RLock, Thread
from typing import TYPE_CHECKING, Final, Self

from headerware.core.context import wall_clock_ms
from headerware.core.errors import SourceError, described
from headerware.core.stop_flag import StopFlag
from headerware.sources.engine.acknowledgement import Acknowledgements
from headerware.sources.engine.batches import Batch, BatchQueue
from headerware.sources.engine.ring_buffer import Known
from headerware.sources.engine.statistics import Statistics
from headerware.sources.engine.worker import Worker
from headerware.sources.source import SourceContext

if TYPE_CHECKING:
    from headerware.sources.config import SourceConfig
    from headerware.sources.engine.worker import ObjectProgress
    from headerware.sources.offsets import OffsetEntry, OffsetKey, Offsets

_log: Final = logging.getLogger("headerware.sources")
_STOP_S: Final = 5.0


class SourceTask:
    """Read one share of a source.

    All methods may be called by several threads, :meth:`poll` by one at a time.

    Args:
        config: the configuration of the source.
        offsets: the stored offsets; the task does not close them.
        task: the number of the task, from 0.
        once: whether to end when all existing objects are read.
    """

    def __init__(self, config: SourceConfig, offsets: Offsets, *, task: int = 0, once: bool = False) -> None:
        if not 0 <= task < config.tasks:
            raise SourceError(f"expected a task from 0 to {config.tasks - 1}, found {task}")
        self.config: Final = config
        self.task: Final = task
        self.statistics: Final = Statistics()
        self._offsets: Final = offsets
        self._stopping = StopFlag()
        self._known = Known(config.ring_buffer)
        self._queue = BatchQueue(config)
        self._acknowledgements = Acknowledgements()
        self._storing = RLock()
        self._taken: dict[OffsetKey, Batch] = {}
        self.stored_at_ms: int | None = None
        """When offsets were last stored, in milliseconds since the epoch; None if they never were."""
        self._moved_at = time.monotonic()
        """When offsets were last stored, or a poll found that there were none to store."""
        self._worker = Worker(
            config,
            SourceContext(name=config.name, task=task, tasks=config.tasks),
            offsets,
            self._known,
            self._queue,
            self.statistics,
            self._stopping,
            once=once,
        )
        self._thread = Thread(
            target=self._worker.run, name=f"headerware-source-{config.name}-{task}", daemon=True
        )
        self._started = False

    def start(self) -> None:
        """Start the worker, which opens the source; errors are raised by :meth:`poll`."""
        self._started = True
        self._thread.start()

    def poll(self) -> list[Batch]:
        """Return batches up to the configured limit, in the order of reading; an empty list after a timeout.

        A poll takes batches from the queue, and never reads the source itself.

        Raises:
            SourceError: the worker has ended with an error, which is the cause. Earlier polls have returned
                all batches that the worker read before.
        """
        config = self.config
        try:
            batches = self._queue.take(config.poll_records, config.poll_bytes, config.poll_wait_s)
        except BaseException as error:
            raise SourceError(
                f"task {self.task} of source {config.name!r} has ended: {described(error)}"
            ) from error
        if not (self._taken or len(self._acknowledgements)):
            self._moved_at = time.monotonic()
        self._acknowledgements.give(batches)
        return batches

    def acknowledge(self, batch: Batch) -> None:
        """Mark all records of a batch as stored or dropped on purpose; batches may come in any order."""
        self.statistics.acknowledged += len(batch.records)
        self.statistics.acknowledged_bytes += batch.size_bytes
        self._acknowledgements.acknowledge(batch)

    def take_offsets(self) -> dict[OffsetKey, OffsetEntry]:
        """Return the entries that may be stored, for a runtime that stores them itself.

        The same entries are returned again until :meth:`stored` is called.
        """
        with self._storing:
            self._taken |= self._acknowledgements.take()
            return {key: batch.entry for key, batch in self._taken.items()}

    def stored(self) -> None:
        """Mark the entries that :meth:`take_offsets` returned as stored."""
        with self._storing:
            for batch in self._taken.values():
                if batch.entry.complete:
                    self._known.add(batch.native_key, batch.entry.version)
                if batch.is_last:
                    self._known.end(batch.native_key)
            if self._taken:
                self.stored_at_ms = wall_clock_ms()
                self._moved_at = time.monotonic()
            self._taken = {}

    def store_offsets(self) -> int:
        """Store the entries that may be stored by now, and return their number.

        Raises:
            SourceError: the entries could not be stored; the next call tries again.
        """
        with self._storing:  # entries are stored in the order in which they were taken
            entries = self.take_offsets()
            if entries:
                self._offsets.put(entries)
            self.stored()
        return len(entries)

    @property
    def is_done(self) -> bool:
        """Whether all batches were read and polled, if the task reads only once."""
        return self._queue.is_drained

    @property
    def progress(self) -> ObjectProgress | None:
        """The progress in the object that is being read; None if no object is."""
        return None if self._worker.reader is None else self._worker.reader.progress

    @property
    def waiting(self) -> int:
        """The number of objects that have failed and will be tried again."""
        return self._worker.waiting

    @property
    def stalled_s(self) -> float:
        """How long offsets to store have not been stored, in seconds."""
        return time.monotonic() - self._moved_at

    @property
    def queued(self) -> int:
        """The number of records in the queue."""
        return len(self._queue)

    @property
    def unacknowledged(self) -> int:
        """The number of batches that were polled and are not acknowledged."""
        return len(self._acknowledgements)

    def stop(self, timeout_s: float = _STOP_S) -> bool:
        """Stop reading; return whether the worker has ended and closed the source in time.

        A second call only waits. A worker that hangs in the source's code ends, and closes the source, when
        that code returns.
        """
        self._stopping.set()
        self._queue.stop()
        if self._started:
            self._thread.join(timeout_s)
            if self._thread.is_alive():
                _log.warning(
                    "the code of source %r has not returned after %.0f s", self.config.name, timeout_s
                )
        return not self._thread.is_alive()

    def __enter__(self) -> Self:
        """Start."""
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        """Stop."""
        self.stop()
