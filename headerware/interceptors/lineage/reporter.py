"""The reporter: one thread in a process that reports to OpenLineage what the jobs there read and write.

Sessions only count records, and notify the thread of new topics. The thread waits a moment, so that the first
topics of a job go into one event, and sends the totals of the run: START first, RUNNING for a new topic and
after every interval, and COMPLETE when the last session of the job is closed. There is no queue of records
that could fill up, however slow the receiver is: a later event contains the totals of an event that failed.
Final events are kept until they are sent, up to a bound; above it they are dropped and counted.

The thread ends when no session is left. When the process ends, the thread has a few seconds to send the
remaining events. The child of a fork has runs of its own.
"""

from __future__ import annotations

import atexit
import logging
import os
import time
from collections import deque
from functools import partial
from threading import Condition, Lock, Thread
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID, uuid4

import msgspec

from headerware.core.context import wall_clock_ms
from headerware.interceptors.lineage.events import open_client, run_event
from headerware.interceptors.lineage.jobs import Dataset, Job, JobRun

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from headerware.interceptors.lineage.events import Kind

_log: Final = logging.getLogger("headerware")
_SETTLE_S: Final = 1.0
"""How long to wait for further topics after a new one."""
_EXIT_S: Final = 5.0
_MAX_ENDED: Final = 256


_Key = tuple[Job, UUID | None]
"""A job, and the id of its run if the caller has chosen it."""


class Member:
    """One session's share in a run: the counts of records that it reads and writes, by topic.

    A topic's count is None if the number of records is unknown. ``wrote`` may be called by several threads at
    once, ``read`` by one at a time.
    """

    __slots__ = ("__weakref__", "_leave", "_lock", "_news", "inputs", "namespace", "outputs")

    def __init__(
        self, namespace: str, news: Callable[[], None], leave: Callable[[Member, Kind], None]
    ) -> None:
        self.namespace: str = namespace
        self.inputs: dict[str, int | None] = {}
        self.outputs: dict[str, int | None] = {}
        self._news = news
        self._leave = leave
        self._lock = Lock()

    def read(self, topic: str, count: int | None = 1) -> None:
        """Count records that were read from a topic."""
        self._count(self.inputs, topic, count)

    def wrote(self, topic: str, count: int | None = 1) -> None:
        """Count records that were stored in a topic."""
        with self._lock:
            self._count(self.outputs, topic, count)

    def leave(self, kind: Kind = "COMPLETE") -> None:
        """Leave the run, which ends with its last member."""
        self._leave(self, kind)

    def _count(self, counts: dict[str, int | None], topic: str, count: int | None) -> None:
        before = counts.get(topic, 0)
        is_new = topic not in counts
        counts[topic] = None if count is None or before is None else before + count
        if is_new:
            self._news()


class _Run(msgspec.Struct, kw_only=True, eq=False):
    """A current run: its members, the counts of former members, and the monotonic time of its next event."""

    key: _Key
    job: Job
    run_id: UUID
    processing: str
    interval_s: float
    due_s: float
    began_ms: int
    members: set[Member] = set()
    left_inputs: dict[Dataset, int | None] = {}
    left_outputs: dict[Dataset, int | None] = {}
    is_started: bool = False

    def totals(self) -> JobRun:
        """Return the run with the counts of all members, former members included."""
        run = JobRun(
            job=self.job,
            run_id=self.run_id,
            began_ms=self.began_ms,
            latest_ms=wall_clock_ms(),
            processing=self.processing,
        )
        run.inputs.update(self.left_inputs)
        run.outputs.update(self.left_outputs)
        for member in self.members:
            _add(run.inputs, member.namespace, member.inputs)
            _add(run.outputs, member.namespace, member.outputs)
        return run

    def leave(self, member: Member) -> bool:
        """Remove a member, and keep its counts; return False if it had left before."""
        if member not in self.members:
            return False
        self.members.discard(member)
        _add(self.left_inputs, member.namespace, member.inputs)
        _add(self.left_outputs, member.namespace, member.outputs)
        return True


class _Report(NamedTuple):
    """The next event of a run."""

    run: _Run
    totals: JobRun
    end: Kind | None = None


class Reporter:
    """Follow the runs of this process, and emit their events.

    Args:
        emit: a function that sends one event; it may be slow, and may raise.
        settle_s: how long to wait for further topics after a new one.
    """

    def __init__(self, emit: Callable[[Any], object], *, settle_s: float = _SETTLE_S) -> None:
        self._emit = emit
        self._settle_s = settle_s
        self._changed = Condition()
        self._runs: dict[_Key, _Run] = {}
        self._ended: deque[_Report] = deque()
        self._thread: Thread | None = None
        self._counts = {"events": 0, "events_failed": 0, "events_dropped": 0}
        self._has_warned = False

    @property
    def is_idle(self) -> bool:
        """Whether there is no run, and nothing left to send."""
        with self._changed:
            return self._thread is None

    def join(
        self,
        job: Job,
        namespace: str,
        *,
        interval_s: float,
        run_id: UUID | None = None,
        processing: str = "STREAMING",
    ) -> Member:
        """Join the run of a job, or begin one, and return the new member.

        Args:
            job: the job.
            namespace: the namespace of the datasets that this member will name.
            interval_s: the longest time between two events of the run, in seconds.
            run_id: the id of the run if the caller has one, as Spark has for a query.
            processing: OpenLineage's processing type of the job.
        """
        with self._changed:
            key = (job, run_id)
            run = self._runs.get(key)
            if run is None:
                run = self._runs[key] = _Run(
                    key=key,
                    job=job,
                    run_id=run_id or uuid4(),
                    processing=processing,
                    interval_s=interval_s,
                    due_s=time.monotonic() + interval_s,
                    began_ms=wall_clock_ms(),
                )
            member = Member(namespace, partial(self._hasten, run), partial(self._leave, run))
            run.members.add(member)
            if self._thread is None:
                self._thread = Thread(target=self._work, name="headerware-lineage", daemon=True)
                self._thread.start()
            return member

    def stats(self) -> dict[str, int]:
        """Return how many events were sent, how many failed, and how many were dropped unsent."""
        return dict(self._counts)

    def close(self, timeout_s: float = _EXIT_S) -> bool:
        """End all runs, and return whether their events were sent in time."""
        with self._changed:
            for run in list(self._runs.values()):
                self._end(run, "COMPLETE")
            thread = self._thread
        if thread is not None:
            thread.join(timeout_s)
        return self.is_idle

    def forget(self) -> None:
        """Drop all runs in the child of a fork: the parent reports them; inherited members have no run."""
        self._changed = Condition()  # the parent's thread may have held it
        self._runs.clear()
        self._ended.clear()
        self._thread = None

    def _hasten(self, run: _Run) -> None:
        with self._changed:
            run.due_s = min(run.due_s, time.monotonic() + self._settle_s)
            self._changed.notify_all()

    def _leave(self, run: _Run, member: Member, kind: Kind) -> None:
        with self._changed:
            if self._runs.get(run.key) is not run or not run.leave(member):
                return
            if not run.members:
                self._end(run, kind)

    def _end(self, run: _Run, kind: Kind) -> None:
        del self._runs[run.key]
        totals = run.totals()
        if totals.inputs or totals.outputs:
            if len(self._ended) >= _MAX_ENDED:
                self._ended.popleft()
                self._counts["events_dropped"] += 1
            self._ended.append(_Report(run, totals, kind))
        self._changed.notify_all()

    def _work(self) -> None:
        while True:
            with self._changed:
                while not (reports := self._due()) and self._runs:
                    self._changed.wait(min(run.due_s for run in self._runs.values()) - time.monotonic())
                if not reports:
                    self._thread = None
                    return
            for report in reports:
                self._send(report)

    def _due(self) -> list[_Report]:
        """Return the reports that are due now, final reports first."""
        now_s = time.monotonic()
        reports = list(self._ended)
        self._ended.clear()
        for run in self._runs.values():
            if run.due_s <= now_s:
                run.due_s = now_s + run.interval_s
                totals = run.totals()
                if totals.inputs or totals.outputs:
                    reports.append(_Report(run, totals))
        return reports

    def _send(self, report: _Report) -> None:
        run, totals = report.run, report.totals
        if not run.is_started:
            run.is_started = self._sent(totals, "START", totals.began_ms)
        elif report.end is None:
            self._sent(totals, "RUNNING", totals.latest_ms)
        if report.end is not None:
            self._sent(totals, report.end, totals.latest_ms)

    def _sent(self, totals: JobRun, kind: Kind, when_ms: int) -> bool:
        try:
            self._emit(run_event(totals, kind, when_ms))
        except Exception as error:  # noqa: BLE001 - a transport may raise anything; the next event has the totals
            self._counts["events_failed"] += 1
            if not self._has_warned:
                self._has_warned = True
                _log.warning(
                    "an event of lineage could not be sent: %s (further failures are only counted)",
                    type(error).__name__,
                )
            return False
        self._counts["events"] += 1
        return True


_lock = Lock()
_current: Reporter | None = None


def reporter() -> Reporter:
    """Return the reporter of this process; an idle one is replaced, to read the configuration again."""
    global _current  # noqa: PLW0603 - one reporter in a process, so that a job has one run
    with _lock:
        if _current is None or _current.is_idle:
            if _current is None:
                atexit.register(_close)
            _current = Reporter(open_client().emit)
        return _current


def _begin_in_child() -> None:
    global _lock  # noqa: PLW0603 - the parent may have held it
    _lock = Lock()
    if _current is not None:
        _current.forget()


os.register_at_fork(after_in_child=_begin_in_child)


def _close() -> None:
    if _current is not None:
        _current.close()


def _add(sums: dict[Dataset, int | None], namespace: str, counts: dict[str, int | None]) -> None:
    for topic, count in counts.copy().items():
        dataset = Dataset(namespace, topic)
        before = sums.get(dataset, 0)
        sums[dataset] = None if count is None or before is None else before + count
