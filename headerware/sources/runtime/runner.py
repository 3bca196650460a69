"""The runner: it polls the tasks of a source, sends their batches, and ends former tasks.

Each task has its own thread and producer and, with ``exactly_once``, its own transactional id. The
transactional id ends the open transaction of an earlier process of the same name. The tasks share the
offsets, which are read after every task has done this.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, closing
from copy import copy
from threading import Barrier, BrokenBarrierError, Event, Lock, Thread
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import KafkaException

from headerware.core.backoff import jittered
from headerware.core.errors import HeaderwareError, SourceError
from headerware.core.stop_flag import StopFlag
from headerware.kafka.admin import require_reachable
from headerware.sources.engine.retries import StoppedError
from headerware.sources.engine.task import SourceTask
from headerware.sources.runtime.metrics import instruments
from headerware.sources.runtime.producer import error_text
from headerware.sources.runtime.sender import sender_of
from headerware.sources.runtime.stores import OtherWriterError, Sharing, sharings_entry, sharings_in
from headerware.sources.runtime.topic_offsets import client_settings
from headerware.workers.ownership import succeed

if TYPE_CHECKING:
    from headerware.sources.engine.statistics import Statistics
    from headerware.sources.engine.worker import ObjectProgress
    from headerware.sources.runtime.config import RunConfig
    from headerware.sources.runtime.sender import Sender

_CALL_S: Final = 60.0
"""How long processes that start at the same time try to end former tasks."""
_STALLED_S: Final = 60.0
"""A task is not ready if its offsets are overdue by this long."""


class SourceRunner:
    """Run the tasks of a source in this process, each on its own thread.

    Args:
        config: the options of the source and of its delivery.
        tasks: the numbers of the tasks to run in this process; None for all tasks.
        once: whether to read the objects that exist now, and end.

    A runner runs once.
    """

    def __init__(self, config: RunConfig, *, tasks: Iterable[int] | None = None, once: bool = False) -> None:
        self.config: Final = config
        self._stopping = StopFlag()
        self._ended = Event()
        self._lock = Lock()
        self._failures: list[BaseException] = []
        numbers = range(config.tasks) if tasks is None else tasks
        self._runs: Final = [_TaskRun(config, number, self._stopping, once=once) for number in numbers]
        if not self._runs:
            raise SourceError(
                f"expected tasks of source {config.name!r} to run, found none; omit tasks to run all"
            )
        self._left = len(self._runs)
        self._begun: Final = Barrier(self._left, self._read_offsets)
        self._resources: Final = ExitStack()

    def run(self) -> None:
        """Run until :meth:`stop` is called, everything is read (``once``), or a task fails.

        The brokers must answer at the start; later the runner waits for the end of an outage.

        Raises:
            SourceError: no broker can be reached at the start, or a task failed; the other tasks then store
                their offsets and stop.
        """
        try:
            require_reachable(client_settings(self.config.kafka), self.config.name)
        except KafkaException as refusal:
            error = SourceError(f"source {self.config.name!r} cannot start: {error_text(refusal)}")
            self._failures.append(error)
            raise error from refusal
        with self._resources:
            self._run_tasks()
        if self._failures:
            failure = self._failures[0]
            if isinstance(failure, HeaderwareError):
                raise failure
            raise SourceError(f"source {self.config.name!r} stopped: {error_text(failure)}") from failure

    def _run_tasks(self) -> None:
        threads = [
            Thread(target=self._run_task, args=(run,), name=f"headerware-run-{run.number}", daemon=True)
            for run in self._runs
        ]
        for thread in threads:
            thread.start()
        self._ended.wait()
        for thread in threads:
            thread.join()

    def stop(self) -> None:
        """Stop reading, store the offsets of sent records, and end :meth:`run`; safe in a signal handler."""
        self._stopping.set()

    @property
    def statistics(self) -> dict[int, Statistics]:
        """Return a copy of the statistics of each task that has begun, by its number."""
        return {run.number: copy(run.task.statistics) for run in self._runs if run.task is not None}

    @property
    def progress(self) -> dict[int, ObjectProgress]:
        """Return how far each task has read in its current object, by the task's number."""
        found = {run.number: run.task.progress for run in self._runs if run.task is not None}
        return {number: progress for number, progress in found.items() if progress is not None}

    @property
    def is_live(self) -> bool:
        """Return whether no task has failed, and at least one has not ended."""
        return not self._failures and self._left > 0

    @property
    def is_ready(self) -> bool:
        """Return whether each task has begun to read, and no offsets are overdue by a minute."""
        config, tasks = self.config, [run.task for run in self._runs]
        limit_s = _STALLED_S + config.poll_wait_s + config.commit_interval_s
        return (
            self.is_live
            and not self.is_stopping
            and all(task is not None and task.stalled_s < limit_s for task in tasks)
        )

    @property
    def is_stopping(self) -> bool:
        """Return whether the runner was stopped, or a task has failed."""
        return self._stopping.is_set()

    def _read_offsets(self) -> None:
        """Read the offsets, and end former tasks first, if the source was shared in another way.

        All tasks of this process have initialized their transactions by now, which ends the transactions of
        an earlier process. Without this, a commit of the earlier process could arrive after the offsets were
        read.
        """
        config = self.config
        writers = [each.writer for each in self._runs] if config.delivery == "at_least_once" else []
        deadline = time.monotonic() + _CALL_S
        while True:
            offsets = config.offsets.open(config.kafka, source=config.name, writers=writers, settled=True)
            if sharings_in(offsets, config.name) == [config.sharing]:
                break
            offsets.close()
            self._end_former_tasks(deadline)
        self._resources.callback(offsets.close)
        for run in self._runs:
            run.offsets = offsets

    def _end_former_tasks(self, deadline: float) -> None:
        """End the tasks that share the source by another number of tasks or another distribution.

        The transactional id of a task contains the sharing, so this cannot end a task of the new sharing.
        Each process reads the stored sharing after its own tasks have started: if two processes with
        different sharings overlap, one is ended by the other or sees the sharing of the other.
        """
        config, name = self.config, self.config.name

        def opened(*writers: str) -> Any:
            return closing(config.offsets.open(config.kafka, source=name, writers=writers, settled=True))

        def recorded() -> list[Sharing]:
            return sharings_in(offsets, name)

        def record(sharings: Sequence[Sharing]) -> None:
            offsets.put(sharings_entry(name, sharings))

        def end(former: Sharing) -> None:
            with opened(*former.writers(name)):  # opening as a writer ends the former writer
                pass

        writer = f"{name}-sharing"
        try:
            with opened(writer) as offsets:
                succeed(config.sharing, recorded, record, end)
        except OtherWriterError as error:
            if error.writer != writer or time.monotonic() >= deadline:
                raise
            time.sleep(jittered(0.5))

    def _run_task(self, run: _TaskRun) -> None:
        try:
            run.run(self._begun.wait)
        except (StoppedError, BrokenBarrierError):
            pass  # stopped during a retry, which a restart repeats; or another task failed
        except BaseException as error:  # noqa: BLE001 - run() raises it
            with self._lock:
                self._failures.append(error)
            self._stopping.set()
            self._begun.abort()  # the other tasks must not wait for this one
        finally:
            with self._lock:
                self._left -= 1
                if not self._left:
                    self._ended.set()


class _TaskRun:
    """One task from its start to its end."""

    def __init__(self, config: RunConfig, number: int, stopping: StopFlag, *, once: bool) -> None:
        self.number: Final = number
        self.writer: Final = config.sharing.writer(config.name, number)
        self._config: Final = config
        self._stopping: Final = stopping
        self._once: Final = once
        self.offsets: Any = None
        """The offsets that all tasks of this process share."""
        self.task: SourceTask | None = None

    def run(self, begin: Callable[[], object]) -> None:
        """Run; ``begin`` waits until all tasks have a sender, and sets their offsets."""
        config = self._config
        with ExitStack() as resources:
            sender = sender_of(config, self.writer, self._stopping)
            resources.callback(sender.close)
            begin()
            task = self.task = SourceTask(config, self.offsets, task=self.number, once=self._once)
            sender.begin(task, self.offsets)
            resources.callback(instruments().remove, task)
            instruments().add(task)
            resources.callback(task.stop)
            task.start()
            self._send_on(task, sender)

    def _send_on(self, task: SourceTask, sender: Sender) -> None:
        try:
            while not self._stopping.is_set() and not task.is_done:
                sender.send(task.poll())
        except (SourceError, StoppedError):
            sender.finish()  # the batches before the failure are good
            raise
        sender.finish()
