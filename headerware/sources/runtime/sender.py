"""The two ways of delivery: how batches are sent, and when their offsets are stored.

    exactly_once     send, send, ..., offsets into the same transaction, commit
    at_least_once    send, send, ..., store the offsets of the records that the brokers acknowledged

Both treat refused records and outages in the same way.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import groupby
from math import inf
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import KafkaError, KafkaException

from headerware.clients.deliveries import too_large, was_dropped
from headerware.core.batch import Batch as RecordBatch
from headerware.core.boundary import to_wire
from headerware.core.errors import HeaderwareError, HeldBackError, RecordError, SourceError
from headerware.kafka.errors import Kind, kind_of
from headerware.sources.engine.batches import Batch
from headerware.sources.engine.records import refused
from headerware.sources.engine.retries import Retries, StoppedError
from headerware.sources.engine.task import SourceTask
from headerware.sources.runtime.config import queue_halves
from headerware.sources.runtime.producer import NoTopicError, SourceProducer, error_text
from headerware.sources.runtime.stores import SIGN_INTERVAL_S, OffsetsUnavailableError, sign_of_life
from headerware.sources.runtime.topic_offsets import taken_over, transactional_id
from headerware.workers.transactions import Transactions, Verdict, verdict_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headerware.core.record import Record
    from headerware.core.stop_flag import StopFlag
    from headerware.sources.offsets import OffsetEntry, OffsetKey
    from headerware.sources.runtime.config import RunConfig

_CALL_S: Final = 60.0
"""How long the start of transactions may take."""
_STOP_S: Final = 5.0
"""The timeout of a flush or a commit, which a stop must wait for; it is called again after the timeout."""
_ROOM_POLL_S: Final = 0.05
_WHY: Final = {
    KafkaError.INVALID_TIMESTAMP: "its timestamp differs from the brokers' clock by more than the topic's "
    "message.timestamp.after.max.ms or message.timestamp.before.max.ms",
    KafkaError.INVALID_RECORD: "a compacted topic, for instance, refuses a record without a key",
}
"""Reasons of refusals that the brokers' own text does not explain."""


class Sender:
    """Send batches, and store offsets; the two subclasses store offsets in different ways."""

    def __init__(self, config: RunConfig, writer: str, stopping: StopFlag, settings: dict[str, Any]) -> None:
        self._config: Final = config
        self._writer: Final = writer
        self._stopping: Final = stopping
        self._producer: Final = SourceProducer(config, settings)
        # Half of the queue is left for slices, and for records that interceptors send.
        self._room, self._room_bytes = queue_halves(config.kafka)
        self._queued_bytes = 0
        """The bytes that were queued since the queue was last empty."""
        self._signed_at = -inf
        self._task: SourceTask
        self._offsets: Any
        try:
            self._producer.require_fixed(config)
        except BaseException:
            self._producer.close()
            raise

    def begin(self, task: SourceTask, offsets: Any) -> None:
        """Set the task whose batches are sent, and its offsets."""
        self._task, self._offsets = task, offsets

    def send(self, batches: list[Batch]) -> None:
        """Send batches, if any, and store the offsets that are due."""
        raise NotImplementedError

    def finish(self) -> None:
        """Store the offsets of the sent records."""
        raise NotImplementedError

    @property
    def _is_sign_due(self) -> bool:
        """Return whether a sign of life is due. Storing it also tells an idle task that it was fenced."""
        return time.monotonic() - self._signed_at >= SIGN_INTERVAL_S

    def _sign(self) -> dict[OffsetKey, OffsetEntry]:
        """Return the task's sign of life."""
        self._signed_at = time.monotonic()
        return sign_of_life(self._config.name, self._writer, self._task.statistics)

    def _retries(self, what: str, *, is_idle: bool = False) -> Retries:
        """Return retries with the configured deadline; an idle task retries without a deadline."""
        return Retries(self._config, self._stopping, what, deadline_s=inf if is_idle else None)

    def close(self) -> None:
        """Close the producer; records that it has not sent are sent after a restart."""
        self._producer.purge()
        self._producer.close()

    def _produce(self, batch: Batch, report: Callable[..., Any] | None) -> int:
        """Queue a batch, and return how many delivery reports will come if there is a callback.

        Raises:
            _PassingError: the batch may succeed later.
            StoppedError: the task stopped before the queue had room; no record was queued.
            SourceError: a record was refused, and the configuration says to stop; or a topic is missing.
            KafkaException: the producer failed.
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
        """Queue the batch's records that were not refused, and yield the error or None of each record."""
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
            if batch.goes_alone:  # also after the last record, or the next batch would join its request
                self._producer.flush(_STOP_S)

    def _produce_one(self, batch: Batch, at: int, report: Callable[..., Any] | None) -> Exception | None:
        """Queue one record of a batch; return the error if the record is refused."""
        record = batch.records[at]
        if not batch.is_serialized:
            return self._producer.produce_many(record.topic, [record], on_delivery=report)[0]
        try:
            self._producer.produce_past_chain(record, report)
        except KafkaException as error:
            return error
        return None

    def _attempt(self, batch: Batch, at: int, failed: dict[int, KafkaError]) -> Exception | None:
        """Send one record of a batch, and return an error of the chain.

        Errors of the client or of a broker go into ``failed``, some of them after this has returned.
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
                # If the batch is sent again, these columns take far less memory than the records.
                batch.records, batch.is_serialized = sent, True
            yield from errors

    def _wait_for_room(self, batch: Batch) -> None:
        """Wait until the client's queue has room; a full queue would take only a part of the batch."""
        self._queued_bytes += batch.size_bytes
        while len(self._producer) > self._room or self._queued_bytes > self._room_bytes:
            if not len(self._producer):
                self._queued_bytes = batch.size_bytes
                return
            if self._stopping.is_set():
                raise StoppedError
            self._producer.poll(_ROOM_POLL_S)

    def _refused(self, batch: Batch, at: int, error: Exception) -> None:
        """Treat a record that the chain, the client or a broker refuses as ``on_record_error`` says."""
        if isinstance(error, NoTopicError):
            raise error
        if isinstance(error, BufferError | HeldBackError):
            raise _PassingError(f"source {self._config.name!r} cannot send: {error_text(error)}") from error
        cause = error.args[0] if error.args else None
        is_clients = isinstance(error, KafkaException) and not isinstance(error, HeaderwareError)
        is_of_one_record = kind_of(cause) in {Kind.UNFIT, Kind.UNKNOWN_PARTITION}
        if is_clients and isinstance(cause, KafkaError) and not is_of_one_record:
            raise error
        if isinstance(error, TypeError):
            error = _type_error(batch.records[at]) or error
        letters = refused(self._config, batch, at, error, self._told(batch.records[at], error))
        self._task.statistics.bad_records += 1
        self._task.statistics.dead_letters += len(letters)
        batch.dead_letters += letters
        batch.refused.add(at)

    def _told(self, record: Record, error: Exception) -> str:
        """Return why a record is refused, and what to change."""
        failure = error.args[0] if error.args else None
        if not isinstance(failure, KafkaError) or isinstance(error, HeaderwareError):
            return error_text(error)
        if failure.code() == KafkaError.MSG_SIZE_TOO_LARGE and not self._producer.is_chained:
            limit = "the topic's max.message.bytes, or message.max.bytes of [kafka]"
            return too_large(record, limit, failure).str()
        why = _WHY.get(failure.code())
        return failure.str() if why is None else f"{failure.str()} ({why})"


class _PassingError(SourceError):
    """The queue is full, or an interceptor cannot decide yet; the same batch may be sent later."""


class AtLeastOnce(Sender):
    """Store offsets after the brokers have acknowledged the records."""

    def __init__(self, config: RunConfig, writer: str, stopping: StopFlag) -> None:
        super().__init__(config, writer, stopping, {})
        self._failure: KafkaError | None = None
        self._again: list[Batch] = []
        """Batches with a record that a topic has refused."""
        self._next_store = 0.0
        self._looked_at = time.monotonic()
        """When the brokers were last asked whether they answer, while the task was idle."""
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
        retries = self._retries(f"sending to the topics of {self._config.name!r}")
        while True:
            waiting = _Reports(self, batch)
            try:
                waiting.expect(self._produce(batch, waiting))
            except _PassingError as error:  # the records that were already queued are sent twice
                self._producer.poll(0)
                retries.pause(error)
            else:
                self._records += len(batch.records)
                return

    def finish(self) -> None:
        """Wait for delivery reports, after a stop only briefly, and store the offsets."""
        self._flush()
        try:
            self._send_again()
        finally:
            self._store()
        self._require_sound()

    def _flush(self) -> bool:
        """Wait for delivery reports; return whether all came before the task stopped."""
        while self._producer.flush(_STOP_S):  # delivery.timeout.ms ends it
            if self._stopping.is_set():
                return False
        return True

    def _send_again(self) -> None:
        """Send each record of the refused batches in its own request, to find which records are refused."""
        while self._again:
            if not self._flush():  # queued records would join the first request
                return
            batch, failed = self._again.pop(0), dict[int, KafkaError]()
            for at in _left(batch):
                self._send_alone(batch, at, failed)
                if not self._flush():
                    return  # the record's delivery is unknown, so it is read again
            for at, error in sorted(failed.items()):
                if kind_of(error) is not Kind.UNFIT:
                    self.failed(error)
                    return
                self._refused(batch, at, KafkaException(error))
            waiting = _Reports(self, batch, heeds_refusals=False)
            for letter in batch.dead_letters:
                self._producer.produce_past_chain(letter, waiting)
            waiting.expect(len(batch.dead_letters))
            self._flush()

    def _send_alone(self, batch: Batch, at: int, failed: dict[int, KafkaError]) -> None:
        """Send one record of a batch; this time the chain may refuse the record or hold it back."""
        retries = self._retries(f"sending to the topics of {self._config.name!r}")
        while (error := self._attempt(batch, at, failed)) is not None:
            try:
                self._refused(batch, at, error)
            except _PassingError as passing:
                retries.pause(passing)
            else:
                return

    def _may_sign_alone(self) -> bool:
        """Return whether to store a sign of life without offsets: not during a stop, nor during an outage."""
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
        is_idle = not entries
        if self._is_sign_due and (entries or self._may_sign_alone()):
            entries |= self._sign()
        retries = self._retries(f"storing the offsets of source {self._config.name!r}", is_idle=is_idle)
        while entries:
            try:
                self._offsets.put(entries, self._writer)
            except OffsetsUnavailableError as error:
                retries.pause(error)
            else:
                break
        self._task.stored()

    def stored(self, batch: Batch) -> None:
        """Note that every record of a batch is stored."""
        self._task.acknowledge(batch)

    def send_again(self, batch: Batch) -> None:
        """Note that a topic refused a record of a batch, and so the complete request."""
        self._again.append(batch)

    def failed(self, error: KafkaError) -> None:
        """Note that a record was not stored; the first error is raised."""
        self._failure = self._failure or error

    def _require_sound(self) -> None:
        if self._failure is not None:
            raise SourceError(
                f"source {self._config.name!r} stopped: a record was not delivered: {self._failure.str()}"
            )


class _Reports:
    """Count the delivery reports of a batch."""

    __slots__ = ("_batch", "_came", "_expected", "_heeds_refusals", "_is_refused", "_sender")

    def __init__(self, sender: AtLeastOnce, batch: Batch, *, heeds_refusals: bool = True) -> None:
        self._sender = sender
        self._batch = batch
        self._heeds_refusals = heeds_refusals
        self._is_refused = False
        self._came = 0
        self._expected = -1

    def __call__(self, error: KafkaError | None, _: Any) -> None:
        if error is not None and not was_dropped(error):
            is_refusal = kind_of(error) in {Kind.UNFIT, Kind.UNFIT_OTHER}
            if not (self._heeds_refusals and is_refusal):
                self._sender.failed(error)
                return
            self._is_refused = True
        self._came += 1
        self._end_if_all_came()

    def expect(self, count: int) -> None:
        """Set how many reports will come; some or all may have come already."""
        self._expected = count
        self._end_if_all_came()

    def _end_if_all_came(self) -> None:
        if self._came != self._expected:
            return
        if self._is_refused:
            self._sender.send_again(self._batch)
        else:
            self._sender.stored(self._batch)


class ExactlyOnce(Sender):
    """Put records and their offsets into transactions, one after the other.

    Batches are kept until they are committed, so the batches of a failed transaction are sent again without
    a restart. If a refused record stops the source, the batches before its batch are still committed.
    """

    def __init__(self, config: RunConfig, writer: str, stopping: StopFlag) -> None:
        super().__init__(config, writer, stopping, {"transactional.id": transactional_id(writer)})
        self._transactions: Final = Transactions(self._producer, _STOP_S)
        self._open: list[Batch] = []
        self._records = 0
        self._began = 0.0
        self._is_broken = False
        """Whether the open batches must be sent again, in another transaction."""
        self._gave_up = False
        """Whether the open batches can no longer be committed."""
        self._watches = False
        """Whether batches are sent with callbacks, because a refused record may have caused a failure."""
        self._has_refused = False
        """Whether a topic has refused a record before; more refusals are then likely."""
        self._suspects: list[Batch] = []
        """Batches with a record that a topic has refused."""
        try:
            self._transactions.init(_CALL_S)
        except BaseException:
            self.close()
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
                # Part of the batch may be in the transaction. The earlier batches are sent again without it.
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
        """Commit the open batches."""
        if self._open and not self._gave_up:
            self._commit()

    def close(self) -> None:
        """Abort the open transaction; its records are read again after a restart."""
        self._transactions.close()

    def _try(self, batch: Batch) -> None:
        """Queue a batch; if the transaction fails, the next commit aborts it and sends its batches again."""
        try:
            if not self._transactions.is_open:
                self._transactions.begin()
            self._produce(batch, self._report_of(batch))
        except (KafkaException, _PassingError) as error:
            self._require_passing(error)
            self._is_broken = True
            if isinstance(error, KafkaException):
                self._may_be_refusal()

    def _require_passing(self, error: Exception) -> None:
        """Raise the error unless the same transaction or a new transaction may succeed."""
        if isinstance(error, _PassingError):
            return
        if not isinstance(error, KafkaException) or isinstance(error, HeaderwareError):
            raise error
        verdict, cause = self._transactions.judge(error)
        self._gave_up = self._gave_up or cause.fatal()
        if verdict is Verdict.TAKEN_OVER:
            raise taken_over(self._writer) from error
        if verdict is not Verdict.AGAIN and not cause.txn_requires_abort():
            raise SourceError(f"source {self._config.name!r} stopped: {cause.str()}") from error

    def _commit(self) -> None:
        """Commit the open batches with their offsets; after a failure, abort and send them again."""
        what = f"the transaction of source {self._config.name!r}"
        retries = self._retries(what, is_idle=not self._open)
        for batch in self._open:
            self._task.acknowledge(batch)
        entries = self._task.take_offsets()
        if self._is_sign_due:
            entries |= self._sign()
        refusal: SourceError | None = None
        is_complete = False  # whether the offsets are in the transaction, too
        self._gave_up = True  # until the commit succeeds
        while True:
            try:
                if self._is_broken:
                    is_complete = False
                    if self._transactions.is_open:
                        self._transactions.abort()
                    try:
                        self._take_out_refused()
                    except SourceError as error:  # the batches before it are good
                        refusal, entries = error, {batch.key: batch.entry for batch in self._open}
                        if not self._open:
                            raise
                    self._transactions.begin()
                    for batch in self._open:
                        self._produce(batch, self._report_of(batch))
                    self._is_broken = False
                elif not self._transactions.is_open:
                    self._transactions.begin()
                if not is_complete:
                    self._transactions.drain(self._suspects)  # also records that interceptors hold back
                    for record in self._offsets.records(entries):
                        self._transactions.produce(record)
                    is_complete = True
                self._transactions.commit()
            except (KafkaException, _PassingError) as error:
                self._require_passing(error)
                # Only a failed commit can be tried again; other failures need a new transaction.
                if not is_complete or isinstance(error, _PassingError) or not error.args[0].retriable():
                    self._is_broken = True
                    if isinstance(error, KafkaException) and self._may_be_refusal():
                        continue
                retries.pause(error, error_text(error))
            else:
                break
        self._offsets.committed(entries)
        self._task.stored()
        self._open, self._records, self._gave_up = [], 0, False
        self._watches = self._has_refused
        if refusal is not None:
            raise refusal

    def _may_be_refusal(self) -> bool:
        """Return whether to send the open batches again at once, to find the records that topics refuse."""
        if self._watches:
            self._transactions.drain(self._suspects)
            return bool(self._suspects)
        self._watches = True
        return True

    def _report_of(self, batch: Batch) -> Callable[..., Any] | None:
        """Return the callback for a batch's reports, or None, which is faster, unless a refusal is likely."""
        return partial(self._hear, batch) if self._watches else None

    def _hear(self, batch: Batch, error: KafkaError | None, _: Any) -> None:
        """Note that a topic refused a record of a batch, and so the complete request."""
        if error is not None and kind_of(error) is Kind.UNFIT and batch not in self._suspects:
            self._suspects.append(batch)

    def _take_out_refused(self) -> None:
        """Find the records that topics refuse, and treat them as ``on_record_error`` says.

        Raises:
            SourceError: the configuration says to stop; the batches before the record's batch stay open.
        """
        suspects, self._suspects = self._suspects, []
        for batch in suspects:
            found = self._transactions.refused_alone(_left(batch), partial(self._attempt, batch))
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
        batch.goes_alone = not found  # each record is accepted alone, but not all in one request


def sender_of(config: RunConfig, writer: str, stopping: StopFlag) -> Sender:
    """Return the sender of a task; with ``exactly_once`` it ends an earlier process of the same name."""
    way = AtLeastOnce if config.delivery == "at_least_once" else ExactlyOnce
    try:
        return way(config, writer, stopping)
    except KafkaException as error:
        if verdict_of(error.args[0]) is Verdict.TAKEN_OVER:
            raise taken_over(writer) from error
        raise SourceError(f"source {config.name!r} cannot send: {error_text(error)}") from error


def _left(batch: Batch) -> list[int]:
    """Return the indexes, from 0, of a batch's records that were not refused."""
    return [at for at in range(len(batch.records)) if at not in batch.refused]


_TOPIC_OF: Final = attrgetter("topic")


def _type_error(record: Record) -> RecordError | None:
    """Return a RecordError that names the type if the client does not take the type of a value or key."""
    try:
        to_wire(record)
    except RecordError as error:
        return error
    return None
