"""Process records on several threads, for ``Consumer.run``.

The thread that calls ``run`` polls, and only this thread, the poller, uses the client (:class:`Client`). The
workers are threads that take jobs from :class:`~headerware.clients.progress.WorkInProgress` under one lock,
and process each job without the lock:

1. The poller adds each message as a job. If too many jobs of a partition wait, the poller waits a moment for
   room, because a pause throws away what librdkafka has fetched; then it pauses the partition.
2. A worker starts the oldest job that may begin, surrounds the handler with the chain's processing, and ends
   the job as the options say: processed, tried again later, skipped, kept as a dead letter, or ``run`` ends.
3. The poller stores the position up to which each partition is processed: five times a second, before a
   partition goes, and at the end.

A dead letter that cannot be stored is tried again, with pauses that grow. Its record is not passed over.

If the application seeks, all jobs of the partition are forgotten at once. A forgotten job at work goes on,
but no longer moves an offset. If another thread than the poller calls ``seek``, the poller does the seek.

In asyncio the workers are tasks instead of threads (``aio/task_executor.py``); the rest is the same.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from inspect import iscoroutine
from math import inf
from threading import Condition, Lock, Thread, get_ident
from typing import Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from headerware.clients.delivery import Commit, Delivery, new_backoff
from headerware.clients.messages import record_with_local, wire_topic_and_local
from headerware.clients.offsets import topic_partition_of
from headerware.clients.processing import tell_received
from headerware.clients.progress import Job, Receipt, UnstoredDeadLetter, WorkInProgress
from headerware.clients.raw import NO_OFFSET, STATE
from headerware.clients.refused_records import RefusedRecordError, raisable
from headerware.clients.run_options import RunOptions
from headerware.core.backoff import Backoff
from headerware.core.dead_letter import PROCESSING, PROCESSING_STAGE
from headerware.core.errors import (
    DeadLetterError,
    HeaderwareError,
    HeldBackError,
    InterceptorError,
    position,
    raised_at,
)
from headerware.core.interrupts import pass_on_interrupt
from headerware.core.record import ORIGINAL, Record
from headerware.core.services import TopicPartitionKey
from headerware.core.session import Session
from headerware.core.step import LoggedReasons
from headerware.kafka.errors import Kind, kind_of
from headerware.kafka.messages import record_of

Handler = Callable[[Message], object]
OUTCOMES: Final = ("processed", "retried", "skipped", "dead_lettered")
"""What ``run`` counts."""
_Failure = tuple[Record, Exception, float | None]
"""The record on which the handler failed, its exception, and the seconds until the next attempt or None."""
_POLL_S: Final = 0.1
_LET_OTHERS_IN_S: Final = 0.002
"""From confluent-kafka 2.16 on, one thread at a time may call a consumer; others look once a millisecond."""
_STORE_S: Final = 0.2
_ROOM_S: Final = 0.2
"""How long the poller waits for room before it pauses a partition."""
_ALIVE_S: Final = 0.5
"""How often the poller tells the group that it is alive while it waits for the end."""
_PASSING: Final = frozenset(
    {Kind.POLLED_TOO_LATE, Kind.UNKNOWN_TOPIC, Kind.LEADER_MOVED, Kind.COORDINATOR_MOVED}
)
"""Errors that end by themselves, so ``run`` logs them and goes on."""
_log: Final = logging.getLogger("headerware")


class Client(NamedTuple):
    """The calls that an executor makes to its consumer, on the thread that polls."""

    poll: Callable[[float], Message | None]
    pause: Callable[[list[TopicPartition]], object]
    resume: Callable[[list[TopicPartition]], object]
    seek: Callable[[TopicPartition], object]
    commit: Callable[..., object]
    """Commits the stored offsets; ``waits`` says whether to wait for the broker's answer."""
    stay_in_the_group: Callable[[], object]
    """Polls without reading records."""
    is_stopping: Callable[[], bool]
    """Whether ``stop`` was called."""
    commit_interval_s: float | None
    """How often to commit; None if the client commits by itself."""


class Executor:
    """Poll on the calling thread, and process on other threads.

    Args:
        client: the consumer.
        delivery: the consumer's delivery, through which the poller stores positions.
        handler: processes a message.
        options: the options of ``run``.
        counts: the counters of outcomes.
    """

    def __init__(
        self,
        client: Client,
        delivery: Delivery,
        handler: Handler,
        options: RunOptions,
        counts: dict[str, int],
    ) -> None:
        if not callable(handler):
            raise TypeError(f"expected a function as handler, found {type(handler).__name__}")
        self._client: Final = client
        self._delivery: Final = delivery
        self._handler: Final = handler
        self._counts: Final = counts
        self.options: Final = options
        self.has_begun: bool = False
        """Whether :meth:`run` was called."""
        self._progress: Final = WorkInProgress(
            workers=options.workers, order=options.order, max_pending=options.max_pending
        )
        lock = Lock()
        self._lock: Final = lock
        self._may_start: Final = Condition(lock)
        """Tells the workers that a job may begin."""
        self._ended: Final = Condition(lock)
        """Tells the poller that a job has ended."""
        self._threads: Final[list[Thread]] = []
        self._failure: BaseException | None = None
        self._closing = False
        self._paused: set[TopicPartitionKey] = set()
        self._poller = 0
        self._seeks: dict[TopicPartitionKey, TopicPartition] = {}
        """The seeks that other threads have asked the poller for."""
        self._sought: set[TopicPartitionKey] = set()
        """Partitions whose position may have gone back, and is committed as soon as it is known."""
        self._next_store = self._next_commit = 0.0
        self._logged: set[object] = set()
        self._reasons: Final = LoggedReasons()

    def run(self) -> None:
        """Process until ``stop``, or until a failure ends ``run``; then raise the failure."""
        self._poller, self.has_begun = get_ident(), True
        try:
            self._start_workers()
            while self._failure is None and not self._client.is_stopping():
                self._seek_where_asked()
                began_ns = time.time_ns()
                message = self._client.poll(_POLL_S)
                if message is not None:
                    self._take(message, began_ns)
                else:
                    time.sleep(_LET_OTHERS_IN_S)  # handlers that call the consumer would wait for ever
                self._store_now_and_then()
        finally:
            self._finish()
        if self._failure is not None:
            raise self._failure

    # Messages that were read

    def _take(self, message: Message, began_ns: int) -> None:
        """Make a job of a message; log or raise an event."""
        error = message.error()
        if error is not None and not isinstance(error, RefusedRecordError):
            self._pass_event(error)
            return
        if error is not None and isinstance(error.cause, HeldBackError):
            return  # the consumer tries it again, and gives no later record until then
        topic_partition, original = self._original(message)
        offset = message.offset()
        in_use = self._delivery.in_use
        assert in_use is not None  # noqa: S101 - a consumer's Delivery has one
        receipt = Receipt(in_use, began_ns, time.time_ns())
        with self._lock:
            if topic_partition in self._seeks:
                return  # it was read before the application called seek
            job = self._progress.add(
                message,
                topic_partition,
                -1 if offset is None else offset,
                message.key() if original is None else original.key,
                message.leader_epoch(),
            )
            job.receipt = receipt
            self._wake_workers()
            to_pause = self._progress.to_pause([topic_partition])
            if to_pause:
                self._wait(lambda: not self._progress.to_pause([topic_partition]), _ROOM_S)
                to_pause = self._progress.to_pause([topic_partition])
        self._pause(to_pause)

    def _original(self, message: Message) -> tuple[TopicPartitionKey, Record | None]:
        """Return the partition that a message was read from, and its original record if that is kept."""
        error = message.error()
        if isinstance(error, RefusedRecordError):
            last = getattr(error.cause, "last_record", None)
            kept = None if last is None else (last.local or {}).get(ORIGINAL)
            return (message.topic() or "", message.partition() or 0), kept
        topic, local = wire_topic_and_local(message)
        return (topic, message.partition() or 0), (local or {}).get(ORIGINAL)

    def _pass_event(self, error: KafkaError) -> None:
        """Log an event if ``run`` can go on; else raise it."""
        if kind_of(error) is Kind.END_OF_PARTITION:
            return
        if error.fatal() or not (error.retriable() or kind_of(error) in _PASSING):
            raise KafkaException(error)
        if error.code() not in self._logged:
            self._logged.add(error.code())
            _log.warning("%s (run goes on; further ones of this kind are not logged)", error.str())

    def _pause(self, topic_partitions: Collection[TopicPartitionKey]) -> None:
        for topic_partition in set(topic_partitions) - self._delivery.application_paused:
            with suppress(KafkaException):  # it has gone meanwhile
                self._client.pause([TopicPartition(*topic_partition)])
                self._paused.add(topic_partition)

    def _resume(self, topic_partitions: Collection[TopicPartitionKey]) -> None:
        for topic_partition in topic_partitions:
            self._paused.discard(topic_partition)
            with suppress(KafkaException):
                self._client.resume([TopicPartition(*topic_partition)])

    # Offsets

    def _store_now_and_then(self) -> None:
        if self._paused:
            with self._lock:
                to_resume = self._progress.to_resume(self._paused)
            self._resume(to_resume)
        now = time.monotonic()
        if now < self._next_store:
            return
        self._next_store = now + _STORE_S
        with self._lock:
            # Positions advance past records that did not become a job.
            for topic_partition, next_offset in self._delivery.positions.items():
                if next_offset >= 0 and topic_partition not in self._seeks:
                    self._progress.advance(topic_partition, next_offset)
        self._store()
        if self._client.commit_interval_s is not None and now >= self._next_commit:
            self._next_commit = now + self._client.commit_interval_s
            self._commit(waits=False)

    def _store(self) -> None:
        with self._lock:
            changed = self._progress.take_changed_positions()
        back: list[TopicPartition] = []
        for topic_partition, (offset, leader_epoch) in changed.items():
            stored = self._delivery.store_processed(topic_partition, offset, leader_epoch)
            if topic_partition in self._sought:
                self._sought.discard(topic_partition)
                back.append(stored)
        self._delivery.store_refreshed()
        if back:
            # librdkafka commits no stored offset that is smaller than the committed one.
            self._delivery.commands.append(Commit(back))

    def _commit(self, *, waits: bool) -> None:
        try:
            self._client.commit(waits=waits)
        except KafkaException as error:
            if error.args[0].code() != NO_OFFSET:
                _log.warning("offsets were not committed, so records may repeat: %s", error)

    # Partitions that go, or begin anew

    def is_poller(self) -> bool:
        """Return whether this thread is the one that polls."""
        return get_ident() == self._poller

    def seek(self, partition: TopicPartition) -> None:
        """Go to an offset; jobs that were read before no longer start, and no longer move an offset."""
        if self.is_poller():
            self._seek(partition)
            return
        topic_partition = topic_partition_of(partition)
        if topic_partition not in self._delivery.positions:
            raise KafkaException(
                KafkaError(STATE, f"seek: {position(*topic_partition, None)} is not assigned")
            )
        with self._lock:
            self._seeks[topic_partition] = partition
            self._progress.forget([topic_partition])

    def _seek_where_asked(self) -> None:
        """Do the seeks that other threads have asked for."""
        while self._seeks:
            with self._lock:
                topic_partition, partition = next(iter(self._seeks.items()))
            try:
                self._seek(partition)
            finally:
                with self._lock:
                    if self._seeks.get(topic_partition) is partition:
                        del self._seeks[topic_partition]

    def _seek(self, partition: TopicPartition) -> None:
        self._client.seek(partition)
        topic_partition = topic_partition_of(partition)
        with self._lock:
            self._progress.forget([topic_partition])
            if partition.offset >= 0:
                self._progress.advance(topic_partition, partition.offset)
        self._sought.add(topic_partition)
        self._store()

    def revoke(self, topic_partitions: Collection[TopicPartitionKey], *, lost: bool) -> None:
        """Wait for the jobs at work of partitions that go, commit, and forget the other jobs.

        Lost partitions have another owner already, so there is nothing to wait for.
        """
        with self._lock:
            self._progress.hold(topic_partitions)
            if not lost:
                ended = self._wait(
                    lambda: not self._progress.at_work_of(topic_partitions), self.options.revoke_timeout_s
                )
                if not ended:
                    _log.warning(
                        "%d records at work were not finished within %s s before their partitions were "
                        "revoked, so they will be processed again (revoke_timeout_s)",
                        self._progress.at_work_of(topic_partitions),
                        self.options.revoke_timeout_s,
                    )
        if not lost:
            self._store()
            self._commit(waits=True)
        self.forget(topic_partitions)

    def commit_processed(self, topic_partitions: Collection[TopicPartitionKey]) -> None:
        """Commit processed records before the application gives partitions up.

        This does not wait for jobs at work, because the caller may be such a job.
        """
        with self._lock:
            is_known = not self._progress.partitions.isdisjoint(topic_partitions)
        if is_known:
            self._store()
            self._commit(waits=True)

    def begin(self, topic_partitions: Collection[TopicPartitionKey]) -> None:
        """Commit where partitions begin if the application has chosen the offset, which may be earlier."""
        self._sought.update(topic_partitions)

    def forget(self, topic_partitions: Collection[TopicPartitionKey]) -> None:
        """Forget partitions that have gone: start no job of them, and commit no offset of them."""
        self._sought.difference_update(topic_partitions)
        with self._lock:
            self._progress.forget(topic_partitions)
            for topic_partition in topic_partitions:
                self._seeks.pop(topic_partition, None)
        # librdkafka remembers a pause: a partition that comes back would still be paused.
        self._resume(self._paused.intersection(topic_partitions))

    # The end

    def _finish(self) -> None:
        """Wait a limited time for records at work, commit processed records, and end the workers."""
        with self._lock:
            self._closing = True
            self._wake_workers(everyone=True)
        try:
            ended = self._wait_for_work()
        finally:  # also after an interrupt
            self._leave_the_rest()
        if ended:
            for thread in self._threads:
                thread.join()

    def _wait_for_work(self) -> bool:
        deadline = time.monotonic() + self.options.stop_timeout_s
        while True:
            with self._lock:
                wait_s = min(_ALIVE_S, max(0.0, deadline - time.monotonic()))
                if self._wait(lambda: not self._progress.at_work, wait_s):
                    return True
            if time.monotonic() >= deadline:
                break
            try:
                self._client.stay_in_the_group()
            except KafkaException:
                pass
            except Exception as raised:  # noqa: BLE001 - a callback raised it, and run raises it at its end
                pass_on_interrupt(raised)
                self._failure = self._failure or raised
        _log.warning(
            "%d records at work were not finished within %s s, so they will be processed again "
            "(stop_timeout_s)",
            self._progress.at_work,
            self.options.stop_timeout_s,
        )
        return False

    def _leave_the_rest(self) -> None:
        """Commit processed records, and go back to the first record that is not processed."""
        while self._seeks:
            try:
                self._seek_where_asked()
            except KafkaException as raised:
                self._failure = self._failure or raised
        self._store()
        self._commit(waits=True)
        with self._lock:
            again = self._progress.unprocessed()
            # A worker that is still at work must not move an offset any more.
            self._progress.forget(self._progress.partitions)
        # The next poll returns the records that are not processed, before an offset after them is committed.
        for topic_partition, offset in again.items():
            with suppress(KafkaException):  # it has gone meanwhile
                self._client.seek(TopicPartition(*topic_partition, offset))
        self._resume(set(self._paused))

    # The workers

    def _start_workers(self) -> None:
        for number in range(self.options.workers):
            thread = Thread(target=self._work, name=f"headerware-worker-{number}", daemon=True)
            thread.start()
            self._threads.append(thread)

    def _wake_workers(self, *, everyone: bool = False) -> None:
        """Wake workers so that they look for a job; the caller has the lock."""
        self._may_start.notify(self.options.workers if everyone else 1)

    def _wait(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Wait until a condition holds, and return whether it does; the caller has the lock."""
        return self._ended.wait_for(condition, seconds)

    def _work(self) -> None:
        while (job := self._next_job()) is not None:
            try:
                ends: Callable[[], object] = self._process(job)
            except BaseException as error:  # noqa: BLE001 - any exception ends run on the other thread
                ends = partial(self._fail, error, job)
            with self._lock:
                ends()
                self._ended.notify_all()

    def _next_job(self) -> Job | None:
        """Wait for the next job and return it; return None at the end of ``run``."""
        with self._lock:
            while not self._closing:
                now = time.monotonic()
                job = self._progress.start(now)
                if job is not None:
                    return job
                due = self._progress.due()
                self._may_start.wait(None if due is None else max(0.0, due - now))
            return None

    def _process(self, job: Job) -> Callable[[], object]:
        """Process a job without the lock; return the function that ends the job under the lock."""
        if not self._is_for_the_handler(job):
            return self._answer_unprocessed(job)
        failures: list[_Failure] = []
        answer: object = None
        with self._attempt(job, failures):
            answer = self._handler(job.message)
        if iscoroutine(answer):
            answer.close()
            raise TypeError(
                "expected a function as handler, found one that returns a coroutine, which nobody awaits "
                "(see AsyncConsumer)"
            )
        return self._answer_failed(job, *failures) if failures else partial(self._end, job, "processed")

    def _is_for_the_handler(self, job: Job) -> bool:
        return job.pending_dead_letter is None and job.message.error() is None

    def _answer_unprocessed(self, job: Job) -> Callable[[], object]:
        """Answer for a job that the handler does not get, or does not get again."""
        if job.pending_dead_letter is not None:
            return self._keep(job, *job.pending_dead_letter)
        cause = job.message.error().cause
        return self._give_up(job, cause, raisable(cause))

    @contextmanager
    def _attempt(self, job: Job, failures: list[_Failure]) -> Iterator[None]:
        """Surround the handler with the chain's processing; an exception of the handler becomes a failure."""
        record = record_with_local(job.message)
        receipt = job.receipt
        session = receipt.in_use.session
        if job.attempts == 1:
            tell_received(session, [record], receipt.began_ns, receipt.ended_ns)
        pause_s: float | None = None
        try:
            with session.processing([record]) as told:
                try:
                    yield
                except Exception as raised:
                    pause_s = self.options.pause_s(job.attempts, raised)
                    if pause_s is not None:
                        told.clear()  # the processing is not over
                    raise
        except Exception as raised:  # noqa: BLE001 - the options say what follows
            failures.append((record, raised, pause_s))

    def _answer_failed(self, job: Job, failure: _Failure) -> Callable[[], object]:
        """Answer for a job on which the handler failed."""
        record, raised, pause_s = failure
        if pause_s is not None:
            return partial(self._retry, job, pause_s)
        reason = InterceptorError(f"the handler raised {type(raised).__name__}{raised_at(raised)}")
        reason.__cause__ = raised
        return self._give_up(job, reason.at(PROCESSING, record).with_traceback(raised.__traceback__), raised)

    def _give_up(self, job: Job, reason: HeaderwareError, raised: BaseException) -> Callable[[], object]:
        """Answer for a record that gets no further attempt."""
        if self.options.on_failure == "raise":
            if self._is_for_the_handler(job):  # a refusal of the chain says where itself
                raised.add_note(f"while {where(job.message)} was processed")
            return partial(self._fail, raised, job)
        _, original = self._original(job.message)
        if original is None:  # no step has changed the record, or there is no record
            original = record_of(job.message) if self._is_for_the_handler(job) else _placeholder(job.message)
        if self.options.on_failure == "skip":
            return self._pass_over(job, reason, original, "skipped")
        if not original.topic:
            return partial(
                self._fail, raised, job
            )  # the error belongs to no record, so no record can be passed over
        if not isinstance(reason, InterceptorError):
            reason = InterceptorError(str(reason)).at(PROCESSING, original)
        return self._keep(job, reason, original)

    def _keep(
        self, job: Job, reason: InterceptorError, original: Record, backoff: Backoff | None = None
    ) -> Callable[[], object]:
        """Store the dead letter of a record; if that fails, try again later."""
        try:
            stored = _session_of(job).dead_letter(
                original,
                reason,
                topic=self.options.dead_letter_topic,
                names=self.options.dead_letter_headers,
                stage=PROCESSING_STAGE if job.message.error() is None else "ON_CONSUME",
            )
        except DeadLetterError as error:
            refuses = self.options.dead_letter_unavailable == "refuse"
            if "unstored" not in self._logged:
                self._logged.add("unstored")
                then = "the record is passed over" if refuses else "it is tried again"
                _log.warning("%s; %s (further failures are not logged)", str(error), then)
            if refuses:
                return self._pass_over(job, reason, original, "skipped", is_lost=True)
            backoff = backoff or new_backoff()
            job.pending_dead_letter = UnstoredDeadLetter(reason, original, backoff)
            return partial(self._retry, job, backoff.next_s(), count=None)
        # A dead letter that fails gets no dead letter.
        return self._pass_over(job, reason, original, "dead_lettered" if stored else "skipped")

    def _pass_over(
        self, job: Job, reason: HeaderwareError, original: Record, outcome: str, *, is_lost: bool = False
    ) -> Callable[[], object]:
        """End the job of a record that counts as processed although it failed.

        Interceptors are told unless the chain refused the record; then they have been told already.
        """
        if job.message.error() is None:
            _session_of(job).stopped(original, outcome, reason)
        if self._reasons.is_new_error(reason):
            _log.warning("%s (%s; further ones for this reason are only counted)", str(reason), outcome)
        return partial(self._end, job, outcome, "dead_letters_lost" if is_lost else None)

    # Under the lock

    def _end(self, job: Job, count: str, also: str | None = None) -> None:
        self._progress.finish(job)
        counts = self._counts
        counts[count] += 1
        if also is not None:
            counts[also] = counts.get(also, 0) + 1

    def _retry(self, job: Job, pause_s: float, count: str | None = "retried") -> None:
        self._progress.postpone(job, time.monotonic() + pause_s)
        if count is not None:
            self._counts[count] += 1

    def _fail(self, error: BaseException, job: Job) -> None:
        """End ``run``. The job does not end, so its offset is not passed."""
        self._progress.postpone(job, inf)
        if not job.is_gone and self._failure is None:
            self._failure = error
            self._closing = True
            self._wake_workers(everyone=True)


def _session_of(job: Job) -> Session:
    """Return the session that a record came through; the job keeps the session open."""
    return job.receipt.in_use.session


def where(message: Message) -> str:
    """Return a message's position as text."""
    return position(message.topic() or "", message.partition(), message.offset())


def _placeholder(message: Message) -> Record:
    """Return a record that stands for a message without a record, such as slices that were given up."""
    topic, partition, offset = message.topic() or "", message.partition(), message.offset()
    partition = None if partition is None or partition < 0 else partition
    offset = None if offset is None or offset < 0 else offset
    key = position(topic, partition, offset).encode()
    return Record(topic, None, key, partition=partition, offset=offset)
