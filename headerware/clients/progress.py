"""Work in progress: the jobs of each partition, and its position. No threads, I/O or clock.

Both ``run`` methods, with threads and with tasks, use it in the same way:

1. ``add`` takes a message that the consumer read, in the order of the wire.
2. ``start`` returns the oldest job that may begin, ``finish`` ends it, and ``postpone`` keeps it for another
   attempt. If jobs must keep an order, each begins after the one before it has ended.
3. ``take_changed_positions`` returns the offsets that may be committed: everything before them is processed.
   ``advance`` moves a position past records that did not become jobs.
4. ``to_pause`` returns the partitions to pause, because too many of their jobs wait, and ``to_resume`` the
   partitions to resume.
5. ``hold`` starts no more jobs of partitions that are about to go.
6. ``forget`` drops partitions that have gone. A job of a forgotten partition may finish, but moves no offset,
   even if the partition is assigned again.
7. ``unprocessed`` returns the offsets to read from again when ``run`` ends.

It is not thread-safe; its caller has a lock, or an event loop.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Hashable, Iterable
from heapq import heappop, heappush
from itertools import count
from typing import Any, Final, NamedTuple

from headerware.clients.record_states import TRANSITIONS, Event, State
from headerware.clients.run_options import Order
from headerware.clients.sessions import InUse
from headerware.core.backoff import Backoff
from headerware.core.errors import InterceptorError
from headerware.core.record import Record
from headerware.core.services import TopicPartitionKey


class Receipt(NamedTuple):
    """How the consumer received a message."""

    in_use: InUse
    """The session that the message came through; the receipt keeps it open."""
    began_ns: int
    ended_ns: int


class UnstoredDeadLetter(NamedTuple):
    """A dead letter that could not be stored yet."""

    reason: InterceptorError
    original: Record
    backoff: Backoff


class Job:
    """One message to process."""

    __slots__ = (
        "attempts",
        "key",
        "leader_epoch",
        "message",
        "number",
        "offset",
        "partition",
        "pending_dead_letter",
        "queue",
        "receipt",
        "state",
    )

    def __init__(
        self,
        message: Any,
        partition: _Partition,
        number: int,
        offset: int,
        key: Hashable,
        leader_epoch: int | None,
    ) -> None:
        self.message: Final = message
        self.partition: Final = partition
        self.number: Final = number
        self.offset: Final = offset
        self.key: Final = key
        self.leader_epoch: Final = leader_epoch
        self.queue: deque[Job] | None = None
        """The jobs that go one after the other, with this job; None if the job need not wait for others."""
        self.receipt: Receipt
        """How the consumer received the message; the caller of ``add`` sets it."""
        self.pending_dead_letter: UnstoredDeadLetter | None = None
        """The dead letter to store; None before the job is given up."""
        self.attempts: int = 0
        """How often it was started."""
        self.state: State = "given"

    def happens(self, event: Event) -> None:
        """Take the state that follows an event."""
        self.state, _ = TRANSITIONS[self.state, event]

    @property
    def is_gone(self) -> bool:
        """Whether the partition has gone, so the job no longer moves an offset."""
        return self.partition.is_gone


class _Partition:
    """The jobs of one partition, in the order of their offsets."""

    __slots__ = (
        "at_work",
        "end",
        "is_gone",
        "is_held",
        "jobs",
        "last_returned",
        "leader_epoch",
        "pending",
        "queues",
    )

    def __init__(self) -> None:
        self.jobs: Final[deque[Job]] = deque()
        """The first job that is not processed, and all jobs after it."""
        self.queues: Final[dict[Hashable, deque[Job]]] = {}
        self.pending: int = 0
        self.at_work: int = 0
        self.end: int | None = None
        """The offset after the last job that was taken out, or after a record that did not become a job."""
        self.leader_epoch: int | None = None
        """The leader epoch of ``end``, if it is known."""
        self.last_returned: int | None = None
        """The last position that ``take_changed_positions`` returned."""
        self.is_held: bool = False
        self.is_gone: bool = False

    def position(self) -> int | None:
        """Return the offset before which everything is processed; None if it is not known yet."""
        if self.jobs:
            return self.jobs[0].offset
        return self.end

    def insert(self, job: Job) -> None:
        """Add a job after the jobs with smaller offsets; this is nearly always the end."""
        at = len(self.jobs)
        while at and self.jobs[at - 1].offset > job.offset:
            at -= 1
        self.jobs.insert(at, job)

    def take_out_processed(self) -> None:
        """Take out the processed jobs before the first job that is not processed."""
        while self.jobs and self.jobs[0].state == "processed":
            job = self.jobs.popleft()
            self.advance(job.offset + 1, job.leader_epoch)

    def advance(self, position: int, leader_epoch: int | None) -> None:
        if self.end is None or position > self.end:
            self.end, self.leader_epoch = position, leader_epoch


class WorkInProgress:
    """Say which jobs may begin now, and which positions may be committed.

    Args:
        workers: how many jobs may be at work at once.
        order: which jobs go one after the other.
        max_pending: how many jobs may wait or be at work, shared equally by the assigned partitions.
    """

    def __init__(self, *, workers: int, order: Order = "key", max_pending: int = 1_000) -> None:
        self._workers: Final = workers
        self._order: Final = order
        self._max_pending: Final = max_pending
        self._partitions: Final[dict[TopicPartitionKey, _Partition]] = {}
        self._ready: list[tuple[int, Job]] = []
        self._postponed: list[tuple[float, int, Job]] = []
        self._numbers: Final = count()
        self.at_work: int = 0
        """How many jobs are at work now, those of forgotten partitions included."""

    @property
    def pending(self) -> int:
        """How many jobs of assigned partitions are not processed yet."""
        return sum(partition.pending for partition in self._partitions.values())

    def pending_of(self, topic_partitions: Iterable[TopicPartitionKey]) -> int:
        """Return how many jobs of these partitions are not processed yet."""
        return sum(self._partitions[each].pending for each in topic_partitions if each in self._partitions)

    def at_work_of(self, topic_partitions: Iterable[TopicPartitionKey]) -> int:
        """Return how many jobs of these partitions are at work now."""
        return sum(self._partitions[each].at_work for each in topic_partitions if each in self._partitions)

    # Jobs

    def add(
        self,
        message: Any,
        topic_partition: TopicPartitionKey,
        offset: int,
        key: Hashable = None,
        leader_epoch: int | None = None,
    ) -> Job:
        """Add a job for a message. A job with a negative offset does not delay a commit."""
        partition = self._partition(topic_partition)
        own_key = key if self._order == "key" else None  # records without a key have None, too
        job = Job(message, partition, next(self._numbers), offset, own_key, leader_epoch)
        if offset >= 0:
            partition.insert(job)
        partition.pending += 1
        if self._order == "none":
            self._make_ready(job)
            return job
        job.queue = partition.queues.setdefault(job.key, deque())
        job.queue.append(job)
        if job.queue[0] is job:
            self._make_ready(job)
        return job

    def start(self, now: float) -> Job | None:
        """Start the oldest job that may begin now, and return it; return None if there is none.

        ``now`` is by the clock of :meth:`postpone`.
        """
        while self._postponed and self._postponed[0][0] <= now:
            job = heappop(self._postponed)[2]
            job.happens("due")
            self._make_ready(job)
        if self.at_work >= self._workers:
            return None
        while self._ready:
            job = heappop(self._ready)[1]
            if job.is_gone or job.partition.is_held or job.state != "given":
                continue
            job.happens("started")
            job.attempts += 1
            job.partition.at_work += 1
            self.at_work += 1
            return job
        return None

    def due(self) -> float | None:
        """Return when the next postponed job may begin, or None if there is none."""
        while self._postponed and self._postponed[0][2].is_gone:
            heappop(self._postponed)
        return self._postponed[0][0] if self._postponed else None

    def finish(self, job: Job) -> None:
        """End a job at work: it is processed, or given up."""
        self._leave_work(job)
        job.happens("ended")
        partition, queue = job.partition, job.queue
        if partition.is_gone:
            return
        partition.pending -= 1
        partition.take_out_processed()
        if queue is None:
            return
        queue.popleft()  # only the first job of a queue is started
        if queue:
            self._make_ready(queue[0])
        else:
            del partition.queues[job.key]

    def postpone(self, job: Job, until: float) -> None:
        """Keep a job at work for another attempt; the jobs that follow in its order wait, too."""
        self._leave_work(job)
        job.happens("failed")
        if not job.is_gone:
            heappush(self._postponed, (until, job.number, job))

    def _make_ready(self, job: Job) -> None:
        heappush(self._ready, (job.number, job))

    def _leave_work(self, job: Job) -> None:
        assert job.state == "at work", job.state  # noqa: S101 - each job ends once
        self.at_work -= 1
        job.partition.at_work -= 1

    # Offsets

    def advance(self, topic_partition: TopicPartitionKey, position: int) -> None:
        """Note that everything before a position was read, also records that did not become jobs."""
        partition = self._partition(topic_partition)
        if not partition.jobs:
            partition.advance(position, None)

    def take_changed_positions(self) -> dict[TopicPartitionKey, tuple[int, int | None]]:
        """Return the positions, with leader epochs, that have changed since the last call.

        Everything before a position is processed. A position goes back only if the chain released an older
        record that it had held back.
        """
        found: dict[TopicPartitionKey, tuple[int, int | None]] = {}
        for key, partition in self._partitions.items():
            position = partition.position()
            if position is not None and position != partition.last_returned:
                partition.last_returned = position
                found[key] = position, partition.leader_epoch if position == partition.end else None
        return found

    def unprocessed(self) -> dict[TopicPartitionKey, int]:
        """Return, for each partition with jobs that are not processed, the offset to read from again."""
        return {key: each.jobs[0].offset for key, each in self._partitions.items() if each.jobs}

    # Partitions

    def forget(self, topic_partitions: Iterable[TopicPartitionKey]) -> None:
        """Drop partitions that have gone; their waiting jobs will not be started."""
        for topic_partition in topic_partitions:
            partition = self._partitions.pop(topic_partition, None)
            if partition is not None:
                partition.is_gone = True

    def hold(self, topic_partitions: Iterable[TopicPartitionKey]) -> None:
        """Start no more jobs of partitions that are about to go; jobs at work still move offsets.

        This lasts until :meth:`forget`, and cannot be undone.
        """
        for topic_partition in topic_partitions:
            if topic_partition in self._partitions:
                self._partitions[topic_partition].is_held = True

    @property
    def partitions(self) -> set[TopicPartitionKey]:
        """The partitions that are known now."""
        return set(self._partitions)

    def to_pause(self, among: Iterable[TopicPartitionKey] | None = None) -> set[TopicPartitionKey]:
        """Return the partitions that have so many waiting jobs that no more should be read."""
        share = self._share()
        wanted = self._partitions if among is None else among
        return {each for each in wanted if self.pending_of((each,)) >= share}

    def to_resume(self, paused: Collection[TopicPartitionKey]) -> set[TopicPartitionKey]:
        """Return the paused partitions whose backlog has been halved, so that more may be read."""
        half = self._share() // 2
        return {key for key in paused if key not in self._partitions or self.pending_of((key,)) <= half}

    def _share(self) -> int:
        return max(1, self._max_pending // max(1, len(self._partitions)))

    def _partition(self, topic_partition: TopicPartitionKey) -> _Partition:
        partition = self._partitions.get(topic_partition)
        if partition is None:
            partition = self._partitions[topic_partition] = _Partition()
        return partition
