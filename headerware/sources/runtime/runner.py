"""The runner: it polls the tasks of a source, produces their records, and stores offsets.

    exactly_once     poll, produce, ..., offsets into the same transaction, commit
    at_least_once    poll, produce, ..., store the offsets of what the brokers have reported

Each task has a thread, a producer and, with transactions, a transactional id of its own, which ends what an
earlier process of the same name had open. The tasks share the offsets, which are read when all of them have
done so.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, closing
from copy import copy
from functools import partial
from itertools import groupby
from math import inf
from operator import attrgetter
from threading import Barrier, BrokenBarrierError, Event, Lock, Thread
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import KafkaError, KafkaException, cimpl

from headerware.clients.dead_letters import UNFIT
from headerware.clients.deliveries import too_large, was_dropped
from headerware.clients.producer import Producer
from headerware.clients.topic_settings import batch_size
from headerware.clients.unfit import unfit_alone
from headerware.core.batch import Batch as RecordBatch
from headerware.core.boundary import to_wire
from headerware.core.errors import (
    HeaderwareError,
    HeldBackError,
    RecordError,
    SourceError,
    described,
)
from headerware.sources.engine.batches import Batch
from headerware.sources.engine.records import refused
from headerware.sources.engine.retries import Retries, StoppedError
from headerware.sources.engine.task import SourceTask
from headerware.sources.runtime.config import queue_halves
from headerware.sources.runtime.metrics import instruments
from headerware.sources.runtime.stores import (
    SIGN_INTERVAL_S,
    TakenOverError,
    sharings_entry,
    sharings_in,
    sign_of_life,
)
from headerware.sources.runtime.topic_offsets import (
    client_settings,
    is_fenced,
    require_reachable,
    taken_over,
    transactional_id,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headerware.core.record import Record
    from headerware.sources.engine.statistics import Statistics
    from headerware.sources.engine.worker import Progress
    from headerware.sources.offsets import OffsetEntry, OffsetKey
    from headerware.sources.runtime.config import RunConfig

_log: Final = logging.getLogger("headerware.sources")
_CALL_S: Final = 60.0
"""How long a call to the brokers may take: for metadata, the start of transactions."""
_STOP_S: Final = 5.0
"""How long a call may take that a stop waits for: a flush, a commit. A longer one is tried again."""
_OUTAGE_S: Final = 60.0
"""How often an outage is told."""
_HEAR_S: Final = 0.1
_ROOM_POLL_S: Final = 0.05
_STALLED_S: Final = 60.0
"""A task is not ready if there is something to store, and nothing was stored for so long after it was due."""
_REFUSED: Final = UNFIT | {KafkaError._UNKNOWN_PARTITION}  # noqa: SLF001 - librdkafka's own name for it
"""Errors of one record; the others can be sent."""
_REFUSED_WITH_ANOTHER: Final = KafkaError._INVALID_DIFFERENT_RECORD  # noqa: SLF001 - in the same way
_WHY: Final = {
    KafkaError.INVALID_TIMESTAMP: "its time is further from the brokers' clock than the topic's "
    "message.timestamp.after.max.ms or message.timestamp.before.max.ms says",
    KafkaError.INVALID_RECORD: "a compacted topic, for instance, takes no record without a key",
}
"""Why brokers refuse a record, where their own text does not say it."""


class SourceRunner:
    """Run the tasks of a source in this process, each on a thread of its own.

    Args:
        config: what is read, and how it goes to Kafka.
        tasks: the numbers of the tasks to run here; None is all of them.
        once: whether to read what is there, and end.

    A runner runs once.
    """

    def __init__(self, config: RunConfig, *, tasks: Iterable[int] | None = None, once: bool = False) -> None:
        self.config: Final = config
        self._stopping = Event()
        self._ended = Event()
        self._lock = Lock()
        self._failures: list[BaseException] = []
        numbers = range(config.tasks) if tasks is None else tasks
        self._runs: Final = [_TaskRun(config, number, self._stopping, once=once) for number in numbers]
        if not self._runs:
            raise SourceError(f"no task of source {config.name!r} is to run; leave tasks out for all of them")
        self._left = len(self._runs)
        self._begun: Final = Barrier(self._left, self._read_offsets)
        self._resources: Final = ExitStack()

    def run(self) -> None:
        """Run until :meth:`stop` is called, everything is read (``once``), or a task fails.

        An outage of the brokers is waited for later, but not at the start.

        Raises:
            SourceError: no broker can be reached at the start; or the first failure of a task; the others are
                stopped, and store their offsets.
        """
        try:
            require_reachable(client_settings(self.config.kafka), self.config.name)
        except KafkaException as refusal:
            error = SourceError(f"source {self.config.name!r} cannot start: {_shown(refusal)}")
            self._failures.append(error)
            raise error from refusal
        with self._resources:
            self._run_tasks()
        if self._failures:
            failure = self._failures[0]
            if isinstance(failure, HeaderwareError):
                raise failure
            raise SourceError(f"source {self.config.name!r} stopped: {_shown(failure)}") from failure

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
        """Stop reading, store the offsets of what was sent, and let :meth:`run` return; safe in a handler."""
        self._stopping.set()

    @property
    def statistics(self) -> dict[int, Statistics]:
        """What each task that has begun has counted so far, by its number; copies."""
        return {run.number: copy(run.task.statistics) for run in self._runs if run.task is not None}

    @property
    def progress(self) -> dict[int, Progress]:
        """How far each task is in the object that it reads now, by its number."""
        found = {run.number: run.task.progress for run in self._runs if run.task is not None}
        return {number: progress for number, progress in found.items() if progress is not None}

    @property
    def is_live(self) -> bool:
        """Whether it works: no task has failed, and not all have ended."""
        return not self._failures and self._left > 0

    @property
    def is_ready(self) -> bool:
        """Whether each task has begun to read, and none has failed to store anything for a minute."""
        config, tasks = self.config, [run.task for run in self._runs]
        limit_s = _STALLED_S + config.poll_wait_s + config.commit_interval_s
        return (
            self.is_live
            and not self.is_stopping
            and all(task is not None and task.stalled_s < limit_s for task in tasks)
        )

    @property
    def is_stopping(self) -> bool:
        """Whether it was stopped, or a task has failed."""
        return self._stopping.is_set()

    def _read_offsets(self) -> None:
        """Read the offsets, once all tasks here are the only ones of their names, and no others are left."""
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
        """End those that share the source in another way: more or fewer of them, or by something else.

        What is to be ended is written down before, and taken out behind it: so one of those that begins
        meanwhile finds that it is out of date, and a process that is killed here leaves it to the next.
        """
        config, name = self.config, self.config.name

        def opened(*writers: str) -> Any:
            return closing(config.offsets.open(config.kafka, source=name, writers=writers, settled=True))

        writer = f"{name}-sharing"
        try:
            with opened(writer) as offsets:
                former = [each for each in sharings_in(offsets, name) if each != config.sharing]
                if former:
                    offsets.put(sharings_entry(name, [config.sharing, *former]))
                for each in former:
                    with opened(*each.writers(name)):  # only one process can be a writer
                        pass
                offsets.put(sharings_entry(name, [config.sharing]))
        except TakenOverError as error:
            if error.writer != writer or time.monotonic() >= deadline:
                raise
            time.sleep(random.uniform(0.1, 0.5))  # noqa: S311 - no secret; another process begins, too

    def _run_task(self, run: _TaskRun) -> None:
        try:
            run.run(self._begun.wait)
        except (StoppedError, BrokenBarrierError):
            pass  # it tried something again, which comes after a restart; or another task has failed
        except BaseException as error:  # noqa: BLE001 - run() raises it
            with self._lock:
                self._failures.append(error)
            self._stopping.set()
            self._begun.abort()  # nobody waits for this one
        finally:
            with self._lock:
                self._left -= 1
                if not self._left:
                    self._ended.set()


class _TaskRun:
    """One task from its start to its end."""

    def __init__(self, config: RunConfig, number: int, stopping: Event, *, once: bool) -> None:
        self.number: Final = number
        self.writer: Final = config.sharing.writer(config.name, number)
        self._config: Final = config
        self._stopping: Final = stopping
        self._once: Final = once
        self.offsets: Any = None
        """Those of all tasks here."""
        self.task: SourceTask | None = None

    def run(self, begin: Callable[[], object]) -> None:
        """Run; ``begin`` waits for the other tasks, and gives all of them their offsets."""
        config = self._config
        with ExitStack() as resources:
            sender = _sender(config, self.writer, self._stopping)
            resources.callback(sender.close)
            begin()
            task = self.task = SourceTask(config, self.offsets, task=self.number, once=self._once)
            sender.begin(task, self.offsets)
            resources.callback(instruments().remove, task)
            instruments().add(task)
            resources.callback(task.stop)
            task.start()
            self._send_on(task, sender)

    def _send_on(self, task: SourceTask, sender: _Sender) -> None:
        try:
            while not self._stopping.is_set() and not task.is_done:
                sender.send(task.poll())
        except (SourceError, StoppedError):
            sender.finish()  # what came before is good
            raise
        sender.finish()


class _SourceProducer(Producer):
    """A producer that sends to no topic that is not there, and creates none by asking.

    Args:
        config: has the settings.
        settings: others, which have precedence.
    """

    def __init__(self, config: RunConfig, settings: dict[str, Any]) -> None:
        self._source: Final = config.name
        self._known: Final[set[str]] = set()
        self._queued_batch: RecordBatch | None = None
        super().__init__(
            {
                "enable.idempotence": True,
                "log_level": 0,  # its log has a line for each attempt to connect
                "error_cb": _Outages(config.name),
                "batch.size": batch_size(config.kafka, _fixed_topics(config)),
                **config.kafka,
                **settings,
                "allow.auto.create.topics": False,
            }
        )

    @property
    def is_chained(self) -> bool:
        """Whether a chain sees the records."""
        return self._hw_chained

    def require(self, topic: str) -> None:
        """Raise _NoTopicError if there is no such topic."""
        if topic in self._known:
            return
        try:
            found = self.list_topics(topic, timeout=_CALL_S).topics[topic].error
        except KafkaException as error:
            raise _NoTopicError(
                f"the brokers do not say whether there is a topic {topic!r}: {_shown(error)}"
            ) from error
        if found is not None:
            missing = found.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
            problem = "there is no such topic; create it" if missing else found.str()
            raise _NoTopicError(f"source {self._source!r} sends to topic {topic!r}: {problem}")
        self._known.add(topic)

    def require_fixed(self, config: RunConfig) -> None:
        """Require the topics that depend neither on the object nor on the chain, which may send elsewhere."""
        for topic in _fixed_topics(config):
            if topic != config.topic or not self._hw_chained:
                self.require(topic)

    def produce_many(self, topic: str, *arguments: Any, **options: Any) -> list[Exception | None]:
        """Send records of one topic; a chain may still change it."""
        if not self._hw_chained:
            self.require(topic)
        return super().produce_many(topic, *arguments, **options)

    def _hw_queue_batch(self, batch: RecordBatch, report: Any) -> list[Exception | None]:
        self.require(batch.topic)
        self._queued_batch = batch
        return super()._hw_queue_batch(batch, report)

    def taken_batch(self) -> RecordBatch | None:
        """Return, once, the batch that was sent by columns, as the chain has made it.

        None is also for a chain that may be replaced, for what is sent again goes through the one of then.
        """
        found, self._queued_batch = self._queued_batch, None
        return None if self._hw_live is not None and self._hw_live.follows else found

    def produce_batch_past_chain(
        self, batch: RecordBatch, report: Callable[..., Any] | None
    ) -> list[Exception | None]:
        """Send a batch as it is."""
        self.require(batch.topic)
        return super()._hw_queue_batch(batch, report)

    def produce_past_chain(self, record: Record, report: Callable[..., Any] | None) -> None:
        """Send a record as it is."""
        self._hw_produce_wire_record(record, report)

    def _hw_produce_wire_record(self, record: Record, report: Any) -> None:
        self.require(record.topic)
        super()._hw_produce_wire_record(record, report)


class _Outages:
    """Say now and then that no broker can be reached; the client's ``error_cb``."""

    def __init__(self, source: str) -> None:
        self._source: Final = source
        self._reason = "no broker answers"
        self._next = 0.0

    def __call__(self, error: KafkaError) -> None:
        if error.code() != KafkaError._ALL_BROKERS_DOWN:  # noqa: SLF001 - its name; it does not say why
            self._reason = error.str().partition(" (after ")[0]
        elif (now := time.monotonic()) >= self._next:
            self._next = now + _OUTAGE_S
            _log.warning("source %r waits for the brokers: %s", self._source, self._reason)


def _fixed_topics(config: RunConfig) -> list[str]:
    """Return the topics of records and of dead letters, as far as they do not depend on the object."""
    if "{" in config.topic:
        return []
    letters = "dead_letter" in (config.on_record_error, config.on_object_error)
    letter_topics = [config.dead_letter_topic.replace("{topic}", config.topic)] if letters else []
    return [config.topic, *letter_topics]


class _NoTopicError(SourceError):
    """There is no such topic, which is no error of a record."""


class _Sender:
    """Send batches, and store offsets; the two ways of delivery differ in the second."""

    def __init__(self, config: RunConfig, writer: str, stopping: Event, settings: dict[str, Any]) -> None:
        self._config: Final = config
        self._writer: Final = writer
        self._stopping: Final = stopping
        self._producer: Final = _SourceProducer(config, settings)
        # Half of the queue is left for slices, and for what interceptors send.
        self._room, self._room_bytes = queue_halves(config.kafka)
        self._queued_bytes = 0
        """What was queued since the queue was empty."""
        self._signed_at = -inf
        self._task: SourceTask
        self._offsets: Any
        try:
            self._producer.require_fixed(config)
        except BaseException:
            self._producer.close()
            raise

    def begin(self, task: SourceTask, offsets: Any) -> None:
        """Take the task whose batches will come."""
        self._task, self._offsets = task, offsets

    def send(self, batches: list[Batch]) -> None:
        raise NotImplementedError

    def finish(self) -> None:
        raise NotImplementedError

    @property
    def _is_sign_due(self) -> bool:
        """Whether it is time to say that the task is at work. An idle task learns so that it was fenced."""
        return time.monotonic() - self._signed_at >= SIGN_INTERVAL_S

    def _sign(self) -> dict[OffsetKey, OffsetEntry]:
        """Return the entry that says that the task is at work."""
        self._signed_at = time.monotonic()
        return sign_of_life(self._config.name, self._writer, self._task.statistics)

    def close(self) -> None:
        """Close the producer; what it has not sent is sent again after a restart."""
        self._producer.purge()
        self._producer.close()

    def _produce(self, batch: Batch, report: Callable[..., Any] | None) -> int:
        """Queue a batch, and return how many reports will come if there is a callback for them.

        Raises:
            _PassingError: it may be possible later.
            StoppedError: the task stops before there is room; nothing was queued.
            SourceError: a record was refused, and the configuration says to stop; or there is no such topic.
            KafkaException: the producer cannot go on.
        """
        self._wait_for_room(batch)
        reports = 0
        for at, error in self._produced(batch, report):
            if error is None:
                reports += 1
            else:
                self._refused(batch, at, error)
        for letter in batch.dead_letters:
            self._producer.produce_past_chain(letter, report)
            reports += 1
        return reports

    def _produced(
        self, batch: Batch, report: Callable[..., Any] | None
    ) -> Iterable[tuple[int, Exception | None]]:
        """Queue the records of a batch that were not refused, and yield a result for each."""
        if batch.refused or batch.goes_alone:
            return self._produced_alone(batch, report)
        return enumerate(self._produced_together(batch, report))

    def _produced_alone(
        self, batch: Batch, report: Callable[..., Any] | None
    ) -> Iterator[tuple[int, Exception | None]]:
        if batch.goes_alone:
            self._producer.flush(_STOP_S)
        for at in _left(batch):
            yield at, self._produce_one(batch, at, report)
            if batch.goes_alone:  # behind the last one, too, or the next batch would join it
                self._producer.flush(_STOP_S)

    def _produce_one(self, batch: Batch, at: int, report: Callable[..., Any] | None) -> Exception | None:
        """Queue one record of a batch, and return why that cannot be done, if so."""
        record = batch.records[at]
        if not batch.is_serialized:
            return self._producer.produce_many(record.topic, [record], on_delivery=report)[0]
        try:
            self._producer.produce_past_chain(record, report)
        except KafkaException as error:
            return error
        return None

    def _attempt(self, batch: Batch, at: int, failed: dict[int, KafkaError]) -> Exception | None:
        """Send one record of a batch; if it cannot be stored, note the error, now or later.

        Return the error if it is not one of the client or of a broker, but of the chain.
        """

        def hear(error: KafkaError | None, _: Any) -> None:
            if error is not None and not was_dropped(error):
                failed[at] = error

        error = self._produce_one(batch, at, hear)
        if isinstance(error, KafkaException) and isinstance(error.args[0], KafkaError):
            failed[at] = error.args[0]
            return None
        return error

    def _produced_together(
        self, batch: Batch, report: Callable[..., Any] | None
    ) -> Iterator[Exception | None]:
        producer, records = self._producer, batch.records
        if not isinstance(records, RecordBatch):
            for topic, own in groupby(records, _TOPIC_OF):
                yield from producer.produce_many(topic, own, on_delivery=report)
        elif batch.is_serialized:
            yield from producer.produce_batch_past_chain(records, report)
        else:
            errors = producer.produce_many(records.topic, records, on_delivery=report)
            if (sent := producer.taken_batch()) is not None:
                # In place of the objects, which take far more memory, should the batch be sent again.
                batch.records, batch.is_serialized = sent, True
            yield from errors

    def _wait_for_room(self, batch: Batch) -> None:
        """Wait until the client's queue has room for a batch: a full one would take its records in part."""
        self._queued_bytes += batch.size_bytes
        while len(self._producer) > self._room or self._queued_bytes > self._room_bytes:
            if not len(self._producer):
                self._queued_bytes = batch.size_bytes
                return
            if self._stopping.is_set():
                raise StoppedError
            self._producer.poll(_ROOM_POLL_S)

    def _refused(self, batch: Batch, at: int, error: Exception) -> None:
        """Do with a record that the chain, the client or a broker refuses what the configuration says."""
        if isinstance(error, _NoTopicError):
            raise error
        if isinstance(error, BufferError | HeldBackError):
            raise _PassingError(f"source {self._config.name!r} cannot send: {_shown(error)}") from error
        cause = error.args[0] if error.args else None
        is_clients = isinstance(error, KafkaException) and not isinstance(error, HeaderwareError)
        if is_clients and isinstance(cause, KafkaError) and cause.code() not in _REFUSED:
            raise error
        if isinstance(error, TypeError):
            error = _type_error(batch.records[at]) or error
        letters = refused(self._config, batch, at, error, self._told(batch.records[at], error))
        self._task.statistics.bad_records += 1
        self._task.statistics.dead_letters += len(letters)
        batch.dead_letters += letters
        batch.refused.add(at)

    def _told(self, record: Record, error: Exception) -> str:
        """Return why a record is refused, and what helps."""
        failure = error.args[0] if error.args else None
        if not isinstance(failure, KafkaError) or isinstance(error, HeaderwareError):
            return _shown(error)
        if failure.code() == KafkaError.MSG_SIZE_TOO_LARGE and not self._producer.is_chained:
            limit = "the topic's max.message.bytes, or message.max.bytes of [kafka]"
            return too_large(record, limit, failure).str()
        why = _WHY.get(failure.code())
        return failure.str() if why is None else f"{failure.str()} ({why})"


class _PassingError(SourceError):
    """What cannot be sent now, and may be later: the queue is full, or an interceptor cannot judge it yet."""


class _AtLeastOnce(_Sender):
    """Store offsets behind the reports of the brokers."""

    def __init__(self, config: RunConfig, writer: str, stopping: Event) -> None:
        super().__init__(config, writer, stopping, {})
        self._failure: KafkaError | None = None
        self._again: list[Batch] = []
        """Batches with a record that a topic has refused."""
        self._next_store = 0.0
        self._looked_at = time.monotonic()
        """When it was last known that the brokers answer, though there was nothing to send."""
        self._records = 0

    def send(self, batches: list[Batch]) -> None:
        for batch in batches:
            self._queue(batch)
        self._producer.poll(0)
        self._send_again()
        self._require_sound()
        now = time.monotonic()
        if now >= self._next_store or self._records >= self._config.commit_records:
            self._store()
            self._next_store, self._records = now + self._config.commit_interval_s, 0

    def _queue(self, batch: Batch) -> None:
        retries = Retries(self._config, self._stopping, f"sending to the topics of {self._config.name!r}")
        while True:
            waiting = _Reports(self, batch)
            try:
                waiting.expect(self._produce(batch, waiting))
            except _PassingError as error:  # those of its records that were queued come twice
                self._producer.poll(0)
                retries.pause(error)
            else:
                self._records += len(batch.records)
                return

    def finish(self) -> None:
        """Wait for the reports of what was sent, if told to stop for a while only, and store the offsets."""
        self._flush()
        try:
            self._send_again()
        finally:
            self._store()
        self._require_sound()

    def _flush(self) -> bool:
        """Wait for the reports of what was sent; return whether all of them came before the task stops."""
        while self._producer.flush(_STOP_S):  # delivery.timeout.ms ends it
            if self._stopping.is_set():
                return False
        return True

    def _send_again(self) -> None:
        """Send each record of some batches in a request of its own, so that it is known which are refused."""
        while self._again:
            if not self._flush():  # what is queued would join the first of them
                return
            batch, failed = self._again.pop(0), dict[int, KafkaError]()
            for at in _left(batch):
                self._send_alone(batch, at, failed)
                if not self._flush():
                    return  # nobody knows what became of it, so it is read again
            for at, error in sorted(failed.items()):
                if error.code() not in UNFIT:
                    self.failed(error)
                    return
                self._refused(batch, at, KafkaException(error))
            waiting = _Reports(self, batch, heeds_refusals=False)
            for letter in batch.dead_letters:
                self._producer.produce_past_chain(letter, waiting)
            waiting.expect(len(batch.dead_letters))
            self._flush()

    def _send_alone(self, batch: Batch, at: int, failed: dict[int, KafkaError]) -> None:
        """Send one record of a batch; the chain may refuse it this time, or hold it back."""
        retries = Retries(self._config, self._stopping, f"sending to the topics of {self._config.name!r}")
        while (error := self._attempt(batch, at, failed)) is not None:
            try:
                self._refused(batch, at, error)
            except _PassingError as passing:
                retries.pause(passing)
            else:
                return

    def _may_sign_alone(self) -> bool:
        """Return whether to sign without an offset to store. An idle source does not end by an outage."""
        if self._stopping.is_set() or self._task.unacknowledged:
            return False
        if time.monotonic() - self._looked_at < SIGN_INTERVAL_S:
            return False
        self._looked_at = time.monotonic()
        if self._config.offsets.transactional:
            try:
                self._producer.list_topics(timeout=_STOP_S)
            except KafkaException:
                return False
        return True

    def _store(self) -> None:
        entries = self._task.take_offsets()
        if self._is_sign_due and (entries or self._may_sign_alone()):
            entries |= self._sign()
        if entries:
            self._offsets.put(entries, self._writer)
        self._task.stored()

    def stored(self, batch: Batch) -> None:
        """Note that all of a batch is stored."""
        self._task.acknowledge(batch)

    def send_again(self, batch: Batch) -> None:
        """Note that a topic has refused a record of a batch, and with it the whole request."""
        self._again.append(batch)

    def failed(self, error: KafkaError) -> None:
        """Note that a record was not stored; the first error counts."""
        self._failure = self._failure or error

    def _require_sound(self) -> None:
        if self._failure is not None:
            raise SourceError(
                f"source {self._config.name!r} stopped: a record was not delivered: {self._failure.str()}"
            )


class _Reports:
    """Count the reports of a batch."""

    __slots__ = ("_batch", "_came", "_expected", "_heeds_refusals", "_is_refused", "_sender")

    def __init__(self, sender: _AtLeastOnce, batch: Batch, *, heeds_refusals: bool = True) -> None:
        self._sender = sender
        self._batch = batch
        self._heeds_refusals = heeds_refusals
        self._is_refused = False
        self._came = 0
        self._expected = -1

    def __call__(self, error: KafkaError | None, _: Any) -> None:
        if error is not None and not was_dropped(error):
            is_refusal = error.code() in UNFIT or error.code() == _REFUSED_WITH_ANOTHER
            if not (self._heeds_refusals and is_refusal):
                self._sender.failed(error)
                return
            self._is_refused = True
        self._came += 1
        self._end_if_all_came()

    def expect(self, count: int) -> None:
        """Say how many reports there will be; they may have come already."""
        self._expected = count
        self._end_if_all_came()

    def _end_if_all_came(self) -> None:
        if self._came != self._expected:
            return
        if self._is_refused:
            self._sender.send_again(self._batch)
        else:
            self._sender.stored(self._batch)


class _ExactlyOnce(_Sender):
    """Put records and offsets into one transaction after the other."""

    def __init__(self, config: RunConfig, writer: str, stopping: Event) -> None:
        super().__init__(config, writer, stopping, {"transactional.id": transactional_id(writer)})
        self._open: list[Batch] = []
        self._records = 0
        self._began = 0.0
        self._has_begun = False
        """Whether a transaction is open."""
        self._is_broken = False
        self._gave_up = False
        """Whether the open batches are not all in the transaction, and will not be."""
        self._watches = False
        """Whether the transaction broke, perhaps for a refused record, and reports are asked for."""
        self._has_refused = False
        """Whether topics have refused a record at all: then there may be more of them."""
        self._suspects: list[Batch] = []
        """Batches with a record that a topic has refused."""
        try:
            self._producer.init_transactions(_CALL_S)
        except BaseException:
            self._producer.close()
            raise

    def send(self, batches: list[Batch]) -> None:
        if batches and not self._open:
            self._began = time.monotonic()
        for batch in batches:
            self._open.append(batch)
            self._records += len(batch.records)
            if self._is_broken:
                continue
            try:
                self._try(batch)
            except SourceError:
                # It may be in the transaction in part. Those before it are sent without it.
                self._open.pop()
                self._is_broken = True
                raise
            except StoppedError:
                self._open.pop()
                raise
        age = time.monotonic() - self._began
        is_due = (
            self._is_broken
            or age >= self._config.commit_interval_s
            or self._records >= self._config.commit_records
        )
        if is_due if self._open else self._is_sign_due:
            self._commit()

    def finish(self) -> None:
        """Commit what is open."""
        if self._open and not self._gave_up:
            self._commit()

    def close(self) -> None:
        """Abort what is open; it is read again after a restart."""
        # The client itself would try that again, and warn that it cannot; it goes with its last reference.
        if not self._has_begun or self._abort() is None:
            super().close()

    def _begin(self) -> None:
        self._producer.begin_transaction()
        self._has_begun = True

    def _abort(self) -> KafkaError | None:
        """Abort the transaction, and return why that cannot be done, if so."""
        try:
            self._producer.abort_transaction(_STOP_S)
        except KafkaException as error:
            return error.args[0]  # type: ignore[no-any-return]
        self._has_begun = False
        return None

    def _try(self, batch: Batch) -> None:
        """Queue a batch; a transaction that breaks is aborted, and sent again, by the commit."""
        try:
            if not self._has_begun:
                self._begin()
            self._produce(batch, self._report_of(batch))
        except (KafkaException, _PassingError) as error:
            self._require_passing(error)
            self._is_broken = True
            if isinstance(error, KafkaException):
                self._may_be_refusal()

    def _require_passing(self, error: Exception) -> None:
        """Raise an error unless the same transaction, or a new one, may succeed."""
        failure = error.args[0] if error.args else None
        if isinstance(error, _PassingError):
            return
        if isinstance(error, HeaderwareError) or not isinstance(failure, KafkaError):
            raise error
        if failure.code() == KafkaError._FATAL:  # noqa: SLF001 - its name; what it was is told by the next call
            failure = self._abort() or failure
        self._gave_up = self._gave_up or failure.fatal()
        if is_fenced(failure):
            raise taken_over(self._writer) from error
        is_broken = failure.code() == KafkaError._STATE or failure.txn_requires_abort()  # noqa: SLF001 - as above
        if failure.fatal() or not (is_broken or failure.retriable()):
            raise SourceError(f"source {self._config.name!r} stopped: {failure.str()}") from error

    def _commit(self) -> None:
        """Commit the open batches with their offsets; abort and send them again if need be."""
        retries = Retries(self._config, self._stopping, f"the transaction of source {self._config.name!r}")
        for batch in self._open:
            self._task.acknowledge(batch)
        entries = self._task.take_offsets()
        if self._is_sign_due:
            entries |= self._sign()
        refusal: SourceError | None = None
        is_complete = False  # whether the offsets are in it, too
        self._gave_up = True  # unless all of it is committed
        while True:
            try:
                if self._is_broken:
                    is_complete = False
                    self._producer.abort_transaction(_STOP_S)
                    try:
                        self._take_out_refused()
                    except SourceError as error:  # what came before is good
                        refusal, entries = error, {batch.key: batch.entry for batch in self._open}
                        if not self._open:
                            self._has_begun = False
                            raise
                    self._begin()
                    for batch in self._open:
                        self._produce(batch, self._report_of(batch))
                    self._is_broken = False
                elif not self._has_begun:
                    self._begin()
                if not is_complete:
                    self._drain()  # also what interceptors hold back
                    for topic, key, value in self._offsets.records(entries):
                        _C_PRODUCE(self._producer, topic, value, key, 0)
                    is_complete = True
                self._producer.commit_transaction(_STOP_S)
            except (KafkaException, _PassingError) as error:
                self._require_passing(error)
                # Only a commit goes on where it was; what failed before is aborted.
                if not is_complete or isinstance(error, _PassingError) or not error.args[0].retriable():
                    self._is_broken = True
                    if isinstance(error, KafkaException) and self._may_be_refusal():
                        continue
                retries.pause(error, _shown(error))
            else:
                break
        self._offsets.committed(entries)
        self._task.stored()
        self._open, self._records, self._has_begun, self._gave_up = [], 0, False, False
        self._watches = self._has_refused
        if refusal is not None:
            raise refusal

    def _drain(self) -> None:
        """Wait until everything is stored or a refusal is known, after which nothing more is sent."""
        until = time.monotonic() + _STOP_S
        while self._producer.flush(_HEAR_S) and not self._suspects and time.monotonic() < until:
            pass

    def _may_be_refusal(self) -> bool:
        """Return whether to send the open batches again at once, to find which records topics refuse."""
        if self._watches:
            self._drain()
            return bool(self._suspects)
        self._watches = True
        return True

    def _report_of(self, batch: Batch) -> Callable[..., Any] | None:
        """Return the callback for reports of a batch. They take time, so None unless a refusal is likely."""
        return partial(self._hear, batch) if self._watches else None

    def _hear(self, batch: Batch, error: KafkaError | None, _: Any) -> None:
        """Note that a topic has refused a record of a batch, and with it the whole request."""
        if error is not None and error.code() in UNFIT and batch not in self._suspects:
            self._suspects.append(batch)

    def _take_out_refused(self) -> None:
        """Find the records that topics refuse, and do with them what the configuration says.

        Raises:
            SourceError: it says to stop; the open batches are then those before the record's.
        """
        suspects, self._suspects = self._suspects, []
        for batch in suspects:
            left = _left(batch)
            found = unfit_alone(self._producer, left, partial(self._attempt, batch), _STOP_S)
            try:
                self._judge(batch, found)
            except SourceError:
                self._open = self._open[: self._open.index(batch)]
                raise

    def _judge(self, batch: Batch, found: Mapping[int, KafkaError]) -> None:
        self._has_refused = True
        for at, error in sorted(found.items()):
            self._refused(batch, at, KafkaException(error))
        if not found and batch.goes_alone:
            raise SourceError(f"source {self._config.name!r} stopped: a topic refuses a dead letter")
        batch.goes_alone = not found  # each fits, and all of them together do not


def _sender(config: RunConfig, writer: str, stopping: Event) -> _Sender:
    try:
        if config.delivery == "at_least_once":
            return _AtLeastOnce(config, writer, stopping)
        return _ExactlyOnce(config, writer, stopping)
    except KafkaException as error:
        if is_fenced(error.args[0]):
            raise taken_over(writer) from error
        raise SourceError(f"source {config.name!r} cannot send: {_shown(error)}") from error


def _left(batch: Batch) -> list[int]:
    """Return which of a batch's records were not refused, from 0."""
    return [at for at in range(len(batch.records)) if at not in batch.refused]


_C_PRODUCE: Final[Any] = cimpl.Producer.produce
"""Past the chain, which has no part in offsets."""
_TOPIC_OF: Final = attrgetter("topic")


def _type_error(record: Record) -> RecordError | None:
    """Return what the client meant if a value or key is of a type that it does not take."""
    try:
        to_wire(record)
    except RecordError as error:
        return error
    return None


def _shown(error: BaseException) -> str:
    """Return the text of an error of the client or of ours, and of others only where they were raised."""
    failure = error.args[0] if isinstance(error, KafkaException) and error.args else None
    return failure.str() if isinstance(failure, KafkaError) else described(error)
