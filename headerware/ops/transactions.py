"""Send records, and the offsets of what they were made of, in one transaction.

A worker that reads a topic and writes others loses nothing and doubles nothing, wherever it is killed, if all
that a batch leads to is one transaction: what it writes, and the offsets that say what was read.
:class:`TransactionalSender` does that, and tells apart what can go wrong:

- A transaction that the broker aborts is sent again.
- A record that its topic refuses, for its size, key or time, does not hold up the others: it is told, nothing
  of the batch is sent, and the worker decides.
- Another process has taken the worker's place (:class:`TakenOverError`), or the group has given its
  partitions to another member (:class:`StaleGroupError`). Nothing of the batch is sent.
"""

from __future__ import annotations

import time
import warnings
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import KafkaError, KafkaException, TopicPartition, cimpl

from headerware.core.backoff import Backoff
from headerware.core.errors import HeaderwareError
from headerware.kafka.batch_size import batch_size
from headerware.kafka.errors import Kind, is_fatal, kind_of, with_text
from headerware.kafka.first_answer import TO_REACH_A_CLUSTER
from headerware.kafka.messages import wire_headers
from headerware.kafka.unfit import only_unfit, unfit_alone

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from confluent_kafka import Message

    from headerware.core.record import Record

TIMEOUT_S: Final = 30.0
TRANSACTION_TIMEOUT_MS: Final = 15_000
"""For so long readers of the topics wait behind a process that was killed, unless it is started again."""
PARTITIONER: Final = "murmur2_random"
"""That of Java's clients, for records that go by their keys; a client's own setting stands first."""
_ATTEMPTS: Final = 5
_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 2.0
_CLOSE_S: Final = 5.0
_HEAR_S: Final = 0.1
_PATIENCE: Final = 2
"""Behind so many time-outs a batch is not tried again."""
_STALE: Final = frozenset({Kind.STALE_GROUP, Kind.MEMBER_FENCED})


class TakenOverError(HeaderwareError):
    """Another process has the same transactional id, or the broker has forgotten this one."""


class StaleGroupError(HeaderwareError):
    """The group has begun a new generation since the records were read: others may have the partitions."""


class TransactionalSender:
    """Send batches, each in one transaction; for one caller at a time.

    Making it ends what an earlier process with the same id has left open, so offsets that are read behind
    that are those of the last transaction.

    Args:
        conf: the settings of a client of confluent-kafka; they stand before the ones here.
        transactional_id: of whoever starts later, those before are fenced.
        what: the worker, for messages, such as ``redrive of orders.dead-letter``.
        topics: the topics that it writes, as far as they are known; batches stay within the limits of these.
        timeout_s: how long the cluster may take to answer, in seconds.
        reports: whether :meth:`send` is asked for the delivery reports; without, librdkafka makes none.

    Raises:
        confluent_kafka.KafkaException: the settings are wrong, or the cluster does not answer.
    """

    def __init__(
        self,
        conf: Mapping[str, Any],
        transactional_id: str,
        *,
        what: str,
        topics: Iterable[str] = (),
        timeout_s: float = TIMEOUT_S,
        reports: bool = False,
    ) -> None:
        self._what: Final = what
        self._timeout_s: Final = timeout_s
        self._deadline = 0.0
        self._producer = cimpl.Producer(
            {
                "message.max.bytes": 1_000_000_000,  # the topics decide
                "partitioner": PARTITIONER,
                "linger.ms": 5,
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "delivery.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "batch.size": batch_size(conf, topics),
                **conf,
                "transactional.id": transactional_id,
                "delivery.report.only.error": not reports,  # of the others the commit tells
            }
        )
        try:
            self._producer.init_transactions(timeout_s)
        except KafkaException as error:
            self.close()
            failure = error.args[0]
            if kind_of(failure) is not Kind.TIMED_OUT:
                raise
            servers = conf.get("bootstrap.servers")
            text = f"{servers} did not answer for {timeout_s:g} s; {TO_REACH_A_CLUSTER}"
            raise with_text(failure, text) from error
        except BaseException:
            self.close()
            raise

    def send(
        self,
        records: Sequence[Record | None],
        offsets: Sequence[TopicPartition] = (),
        group_metadata: Any = None,
        *,
        check: Callable[[], object] | None = None,
        delivered: dict[int, Message] | None = None,
    ) -> Mapping[int, KafkaError]:
        """Send records and offsets in one transaction, and return an empty mapping once it is committed.

        If topics refuse some of the records, nothing is sent or committed, and the errors of these are
        returned by their indexes. There may be more of them: call it again without those.

        Args:
            records: the records, in the order in which they go; None stands for one that is not sent.
            offsets: the offsets to commit, with their metadata.
            group_metadata: of the consumer that has read up to these offsets
                (``consumer_group_metadata()``), from before it polled again.
            check: called when all is stored and nothing can be seen yet; what it raises undoes the
                transaction, and comes out of here.
            delivered: gets the reports of the records that are committed, by their indexes.

        Raises:
            TakenOverError: another process has taken over.
            StaleGroupError: the group does not take the offsets from this member any more.
            confluent_kafka.KafkaException: the cluster refuses what it is asked, or does not answer.
        """
        if not offsets and all(record is None for record in records):
            return {}
        suspects: frozenset[int] = frozenset()
        attempt, backoff = 0, Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)
        self._deadline = time.monotonic() + _PATIENCE * self._timeout_s
        while True:
            try:
                unfit = self._transaction(records, offsets, group_metadata, suspects, check, delivered)
                if unfit.keys() - suspects:
                    # The broker refuses a request as a whole, so each is tried alone, and the others are not
                    # sent once more for every one. Those that fit go alone the next time.
                    suspects |= unfit.keys()
                    unfit = self._unfit_alone(records, sorted(unfit))
                    if not unfit:
                        continue
            except KafkaException as error:
                cause = error.args[0]
                if is_fatal(cause) or kind_of(cause) is Kind.FENCED:
                    raise TakenOverError(
                        f"{cause.str()}; another {self._what} has taken over, or the broker has forgotten "
                        f"this one: what it had not finished is undone; start it again to go on"
                    ) from error
                # An open transaction would keep readers of the topics waiting until it times out.
                with suppress(KafkaException):
                    self._producer.abort_transaction(self._timeout_s)
                if kind_of(cause) in _STALE:
                    raise StaleGroupError(
                        f"{cause.str()}; the group has given partitions of the {self._what} to another "
                        f"member: what had not been committed is undone, and is done there"
                    ) from error
                if not cause.txn_requires_abort() or attempt >= _ATTEMPTS or self._is_late():
                    raise
                time.sleep(backoff.next_s())
                attempt += 1
                continue
            return unfit

    def _unfit_alone(self, records: Sequence[Record | None], indexes: Sequence[int]) -> dict[int, KafkaError]:
        """Send some records, each in a request of its own, undo that, and return which a topic refuses."""

        def attempt(index: int, failed: dict[int, KafkaError]) -> None:
            record = records[index]
            assert record is not None  # noqa: S101 - it was sent before
            self._try(record, index, failed)

        return unfit_alone(self._producer, indexes, attempt, self._timeout_s)

    def _transaction(
        self,
        records: Sequence[Record | None],
        offsets: Sequence[TopicPartition],
        group_metadata: Any,
        suspects: frozenset[int],
        check: Callable[[], object] | None,
        delivered: dict[int, Message] | None,
    ) -> dict[int, KafkaError]:
        """Send a batch; if a topic refuses some of the records, return why, and nothing is sent.

        ``suspects`` are the indexes of records that go in requests of their own.
        """
        producer = self._producer
        failed: dict[int, KafkaError] = {}
        if delivered is not None:
            delivered.clear()  # what an attempt has sent that failed is undone
        producer.begin_transaction()
        for index, record in enumerate(records):
            if record is None:
                continue
            if index in suspects:
                producer.flush(self._timeout_s)
            self._try(record, index, failed, delivered)
            if index in suspects:
                producer.flush(self._timeout_s)
            if failed:
                break
        self._drain(failed)
        if unfit := only_unfit(failed):
            producer.abort_transaction(self._timeout_s)
            return unfit
        if check is not None:
            try:
                check()
            except BaseException:
                producer.abort_transaction(self._timeout_s)
                raise
        if offsets:
            producer.send_offsets_to_transaction(list(offsets), group_metadata, self._timeout_s)
        self._commit()
        return {}

    def _drain(self, failed: Mapping[int, KafkaError]) -> None:
        """Wait until all is stored, or a refusal is known: what waits behind it is not sent any more."""
        until, known = time.monotonic() + self._timeout_s, -1
        while len(self._producer) and not failed and time.monotonic() < until:
            self._producer.poll(_HEAR_S)
        while len(self._producer) and known != len(failed):
            known = len(failed)
            self._producer.poll(_HEAR_S)

    def _try(
        self,
        record: Record,
        index: int,
        failed: dict[int, KafkaError],
        delivered: dict[int, Message] | None = None,
    ) -> None:
        """Send a record; if its topic refuses it, now or later, note the error under its index."""

        def hear(error: Any, message: Any) -> None:
            if error is not None:
                failed[index] = error
            elif delivered is not None:
                delivered[index] = message

        try:
            self._produce(record, hear)
        except KafkaException as error:
            if kind_of(error) is Kind.UNFIT:
                failed[index] = error.args[0]
                return
            # After a refusal the client takes nothing more, and only the reports tell of which record it was.
            self._drain(failed)
            if not failed:
                raise

    def _produce(self, record: Record, report: Callable[[Any, Any], None]) -> None:
        partition = -1 if record.partition is None else record.partition
        headers = wire_headers(record.headers)
        while True:
            try:
                self._producer.produce(
                    record.topic,
                    record.value,
                    record.key,
                    partition,
                    report,
                    None,
                    record.timestamp_ms or 0,
                    headers,
                )
            except BufferError:
                self._producer.poll(0.1)
            else:
                return

    def _commit(self) -> None:
        """Commit; a time-out says nothing about the outcome, so it is asked again."""
        for attempt in range(_ATTEMPTS):
            try:
                self._producer.commit_transaction(self._timeout_s)
            except KafkaException as error:
                if not error.args[0].retriable() or attempt == _ATTEMPTS - 1 or self._is_late():
                    raise
            else:
                return

    def _is_late(self) -> bool:
        return time.monotonic() > self._deadline

    def close(self) -> None:
        """Close the producer; what is not committed is undone, by the broker itself if it is away."""
        self._producer.purge()
        try:
            self._producer.abort_transaction(min(self._timeout_s, _CLOSE_S))
        except KafkaException as error:
            if error.args[0].retriable():
                # Closing would wait for the broker without an end; letting go of it does not.
                del self._producer
                return
        # One that was fenced cannot abort any more, and has nothing to abort; it warns of that, or raises.
        with warnings.catch_warnings(), suppress(KafkaException):
            warnings.simplefilter("ignore", RuntimeWarning)
            self._producer.close()
