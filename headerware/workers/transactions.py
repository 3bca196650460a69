"""Transactions: begin them, end them, and act on their errors.

A worker that reads a topic and writes others loses nothing and duplicates nothing, wherever it is killed, if
one transaction has both the records that it writes for a batch and the offsets of the batch.
:class:`TransactionalSender` sends one batch after another in this way. :class:`Transactions` is for callers
that fill transactions themselves, with a producer of their own.

The :class:`Verdict` about an error says what to do:

    AGAIN        the transaction is aborted, and the same may be sent again
    REFUSED      a topic refuses a record for its size, key or time, or lacks the partition that the record
                 names; the others may be sent without it
    STALE        the group has given the partitions that were read to another member
    TAKEN_OVER   another process has the transactional id, or the broker has forgotten this one
    FINAL        sending again would not help
"""

from __future__ import annotations

import time
from collections import deque
from contextlib import suppress
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import KafkaException, cimpl

from headerware.core.backoff import Backoff
from headerware.core.errors import HeaderwareError
from headerware.kafka.batch_size import batch_size
from headerware.kafka.errors import Kind, is_fatal, kind_of, with_text
from headerware.kafka.first_answer import TO_REACH_A_CLUSTER
from headerware.kafka.messages import wire_headers
from headerware.kafka.wrong_properties import explaining_properties

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from confluent_kafka import KafkaError, Message, TopicPartition

    from headerware.core.record import Record

    Report = Callable[[KafkaError | None, Message], object]

TIMEOUT_S: Final = 30.0
TRANSACTION_TIMEOUT_MS: Final = 15_000
"""How long readers of the topics wait after a process was killed, unless it is started again."""
PARTITIONER: Final = "murmur2_random"
"""The partitioner of Java's clients, for records with keys; a client's own setting takes precedence."""
_AGAIN: Final = 5
"""How often a batch is tried again."""
_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 2.0
_PATIENCE: Final = 2
"""A batch is not tried again after this many timeouts."""
_CLOSE_S: Final = 5.0
_HEAR_S: Final = 0.1
_ROOM_S: Final = 0.1


class Verdict(Enum):
    """What to do after an error of a transaction."""

    AGAIN = "again"
    REFUSED = "refused"
    STALE = "stale"
    TAKEN_OVER = "taken over"
    FINAL = "final"


_VERDICTS: Final[Mapping[Kind, Verdict]] = {
    Kind.UNFIT: Verdict.REFUSED,
    Kind.UNKNOWN_PARTITION: Verdict.REFUSED,
    Kind.STALE_GROUP: Verdict.STALE,
    Kind.MEMBER_FENCED: Verdict.STALE,
    Kind.FENCED: Verdict.TAKEN_OVER,
    Kind.PRODUCER_FORGOTTEN: Verdict.TAKEN_OVER,
    Kind.WRONG_STATE: Verdict.AGAIN,  # the client takes nothing more after a refusal, or after a failed abort
    Kind.FATAL: Verdict.FINAL,
}


def verdict_of(error: KafkaError) -> Verdict:
    """Return the verdict about an error of a transaction.

    The next call reports the cause of a fatal error: see :meth:`Transactions.judge`.
    """
    found = _VERDICTS.get(kind_of(error))
    if found is Verdict.TAKEN_OVER and error.txn_requires_abort():
        # The transaction may have timed out. The abort asks for a new epoch, and fails if another process has
        # the id.
        return Verdict.AGAIN
    if found is not None:
        return found
    if error.fatal() or not (error.txn_requires_abort() or error.retriable()):
        return Verdict.FINAL
    return Verdict.AGAIN


def refusals_in(failed: Mapping[int, KafkaError]) -> dict[int, KafkaError]:
    """Return the errors that mean that a topic refuses the record."""
    return {index: error for index, error in failed.items() if verdict_of(error) is Verdict.REFUSED}


class TakenOverError(HeaderwareError):
    """Another process has the same transactional id, or the broker has forgotten this one."""


class StaleGroupError(HeaderwareError):
    """The group has begun a new generation since the records were read: others may have the partitions."""


class Transactions:
    """Begin and end the transactions of one producer; for one caller at a time.

    Args:
        producer: a transactional producer; :meth:`close` closes it. It may have a chain, which only
            :meth:`produce` bypasses.
        timeout_s: how long the cluster may take to answer, in seconds.
    """

    def __init__(self, producer: Any, timeout_s: float) -> None:
        self.producer: Any = producer
        self.is_open: bool = False
        """Whether a transaction is open; one that has failed stays open until it is aborted."""
        self._timeout_s: Final = timeout_s
        self._is_ready = False
        self._is_committing = False
        """Whether a commit was requested whose outcome is not known; librdkafka then permits no abort."""
        self._has_ended = False
        """Whether the producer has met a fatal error."""

    def init(self, timeout_s: float) -> None:
        """Take the transactional id, and end a transaction that an earlier process has left open."""
        self.producer.init_transactions(timeout_s)
        self._is_ready = True

    def begin(self) -> None:
        """Begin a transaction; first abort an open one, or commit it if its commit was requested."""
        if self._is_committing:
            self.commit()
        elif self.is_open:
            self.abort()
        self.producer.begin_transaction()
        self.is_open = True

    def abort(self) -> None:
        """Abort the open transaction."""
        self.producer.abort_transaction(self._timeout_s)
        self.is_open = False

    def commit(self, deadline: float = 0.0) -> None:
        """Commit; a timeout leaves the outcome unknown, so the commit is requested again until a deadline.

        The deadline is a moment of ``time.monotonic()``; without it the commit is requested once. Another
        call requests the same commit again.
        """
        self._is_committing = True
        while True:
            try:
                self.producer.commit_transaction(self._timeout_s)
            except KafkaException as error:
                self._is_committing = error.args[0].retriable()
                if not self._is_committing or time.monotonic() >= deadline:
                    raise
            else:
                self.is_open = self._is_committing = False
                return

    def produce(self, record: Record, report: Report | None = None) -> None:
        """Queue a record without the chain, once there is room for it."""
        partition = -1 if record.partition is None else record.partition
        headers = wire_headers(record.headers)
        while True:
            try:
                _C_PRODUCE(
                    self.producer,
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
                self.producer.poll(_ROOM_S)
            else:
                return

    def flush(self) -> None:
        """Wait until all queued records are stored or have failed, as long as the cluster may take."""
        self.producer.flush(self._timeout_s)

    def drain(self, refused: Collection[object]) -> None:
        """Wait until all queued records are stored, or until reports have noted a refusal.

        After a refusal the client sends nothing more, so only reports that follow at once are waited for.
        """
        until, known = time.monotonic() + self._timeout_s, 0
        while self.producer.flush(_HEAR_S) and not refused and time.monotonic() < until:
            pass
        while known != len(refused):
            known = len(refused)
            if not self.producer.flush(_HEAR_S):
                return

    def refused_alone(
        self, indexes: Iterable[int], attempt: Callable[[int, dict[int, KafkaError]], object]
    ) -> dict[int, KafkaError]:
        """Send each record in a request of its own, abort, and return the errors of refused records.

        A broker refuses a complete request, and reports the error for each record in it.

        Args:
            indexes: the records.
            attempt: sends the record of an index, and notes an error under the index, now or later.
        """
        refused: dict[int, KafkaError] = {}
        left = deque(indexes)
        while left:
            self.begin()
            failed: dict[int, KafkaError] = {}
            while left and not failed:  # a transaction takes nothing more after a refusal
                attempt(left.popleft(), failed)
                self.flush()
            self.abort()
            refused |= refusals_in(failed)
        return refused

    def judge(self, error: KafkaException) -> tuple[Verdict, KafkaError]:
        """Return the verdict about an error that the producer has raised, and the error's cause."""
        cause: KafkaError = error.args[0]
        if kind_of(cause) is Kind.FATAL:
            try:
                self.abort()
            except KafkaException as told:
                cause = told.args[0]
        verdict = verdict_of(cause)
        if is_fatal(cause) or verdict is Verdict.TAKEN_OVER:
            self._has_ended = True
        return verdict, cause

    def close(self) -> None:
        """Close the producer; an open transaction is aborted, or times out if its broker is away."""
        self.producer.purge()
        if self._can_close():
            self.producer.close()
        else:
            # Closing would try to abort: it waits for a broker that is away, or warns that it cannot. The
            # client ends with its last reference.
            del self.producer

    def _can_close(self) -> bool:
        if not self._is_ready or self._has_ended:
            return False
        if self.is_open:
            try:
                self.producer.abort_transaction(min(self._timeout_s, _CLOSE_S))
            except KafkaException:
                return False
        return True


class TransactionalSender:
    """Send batches, each in one transaction; for one caller at a time.

    Making it ends a transaction that an earlier process with the same id has left open. So offsets that are
    read afterwards are the offsets of the last transaction.

    Args:
        conf: the settings of a client of confluent-kafka; they take precedence over the ones here.
        transactional_id: a later process with the same id ends this one.
        what: the worker, for messages, such as ``redrive of orders.dead-letter``.
        topics: the topics that it writes, as far as they are known; batches stay within their limits.
        timeout_s: how long the cluster may take to answer, in seconds.
        reports: whether :meth:`send` returns delivery reports; if not, librdkafka makes none.

    Raises:
        TakenOverError: another process has taken over meanwhile.
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
        with explaining_properties(conf):
            producer = cimpl.Producer(
                {
                    "message.max.bytes": 1_000_000_000,  # the topics decide
                    "partitioner": PARTITIONER,
                    "linger.ms": 5,
                    "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,  # and with it delivery.timeout.ms
                    "batch.size": batch_size(conf, topics),
                    **conf,
                    "transactional.id": transactional_id,
                    "delivery.report.only.error": not reports,  # a commit means success of all
                }
            )
        self._transactions: Final = Transactions(producer, timeout_s)
        try:
            self._transactions.init(timeout_s)
        except KafkaException as error:
            verdict, cause = self._transactions.judge(error)
            self.close()
            if verdict is Verdict.TAKEN_OVER:
                raise self._taken_over(cause) from error
            if kind_of(cause) is not Kind.TIMED_OUT:
                raise
            servers = conf.get("bootstrap.servers")
            text = f"{servers} did not answer for {timeout_s:g} s; {TO_REACH_A_CLUSTER}"
            raise with_text(cause, text) from error
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

        If topics refuse some of the records, nothing is committed, and the errors of these records are
        returned by their indexes. Topics may refuse more records: call this again without the refused ones.

        Args:
            records: the records, in the order in which they are sent; None for one that is not sent.
            offsets: the offsets to commit, with their metadata.
            group_metadata: the metadata of the consumer that has read up to these offsets
                (``consumer_group_metadata()``), from before it polled again.
            check: called when all records are stored and none can be read yet; an exception of it aborts the
                transaction, and is raised here.
            delivered: gets the reports of the records that are committed, by their indexes.

        Raises:
            TakenOverError: another process has taken over.
            StaleGroupError: the group no longer accepts offsets from this member.
            confluent_kafka.KafkaException: the cluster refuses a request, or does not answer.
        """
        if not offsets and all(record is None for record in records):
            return {}
        deadline = time.monotonic() + _PATIENCE * self._timeout_s
        backoff = Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)
        pauses = (backoff.next_s() for _ in range(_AGAIN))
        suspects: set[int] = set()
        while True:
            try:
                refused = self._store(records, suspects, delivered)
            except KafkaException as error:
                self._undo(error, pauses, deadline)
                continue
            if refused:
                return refused
            if check is not None:
                self._check(check)
            try:
                if offsets:
                    self._transactions.producer.send_offsets_to_transaction(
                        list(offsets), group_metadata, self._timeout_s
                    )
                self._transactions.commit(deadline)
            except KafkaException as error:
                self._undo(error, pauses, deadline)
            else:
                return {}

    def _store(
        self, records: Sequence[Record | None], suspects: set[int], delivered: dict[int, Message] | None
    ) -> dict[int, KafkaError]:
        """Send records until all are stored in an open transaction, or return the errors of refused records.

        Records that are accepted alone, though a request with them was refused, are noted as suspects, and
        are sent alone.
        """
        while True:
            refused = self._store_once(records, suspects, delivered)
            if refused:
                self._transactions.abort()
            if not refused.keys() - suspects:
                return refused
            # All are tried alone now, so that the other records are not sent again for each of them.
            suspects |= refused.keys()
            if refused := self._refused_alone(records, sorted(refused)):
                return refused

    def _store_once(
        self, records: Sequence[Record | None], suspects: set[int], delivered: dict[int, Message] | None
    ) -> dict[int, KafkaError]:
        failed: dict[int, KafkaError] = {}
        if delivered is not None:
            delivered.clear()  # a failed attempt was aborted
        self._transactions.begin()
        for index, record in enumerate(records):
            if record is None:
                continue
            if index in suspects:
                self._transactions.flush()
            self._try(record, index, failed, delivered)
            if index in suspects:
                self._transactions.flush()
            if failed:
                break
        self._transactions.drain(failed)
        return refusals_in(failed)

    def _refused_alone(
        self, records: Sequence[Record | None], indexes: Sequence[int]
    ) -> dict[int, KafkaError]:
        def attempt(index: int, failed: dict[int, KafkaError]) -> None:
            record = records[index]
            assert record is not None  # noqa: S101 - it was sent before
            self._try(record, index, failed)

        return self._transactions.refused_alone(indexes, attempt)

    def _try(
        self,
        record: Record,
        index: int,
        failed: dict[int, KafkaError],
        delivered: dict[int, Message] | None = None,
    ) -> None:
        """Send a record; if it fails, now or later, note the error under its index."""

        def hear(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                failed[index] = error
            elif delivered is not None:
                delivered[index] = message

        try:
            self._transactions.produce(record, hear)
        except KafkaException as error:
            if verdict_of(error.args[0]) is Verdict.REFUSED:
                failed[index] = error.args[0]
                return
            # After a refusal the client takes nothing more, and only the reports say which record was
            # refused.
            self._transactions.drain(failed)
            if not failed:
                raise

    def _check(self, check: Callable[[], object]) -> None:
        try:
            check()
        except BaseException:
            self._transactions.abort()
            raise

    def _undo(self, error: KafkaException, pauses: Iterator[float], deadline: float) -> None:
        """Abort a failed transaction, and wait for the next attempt; raise an error if there is none."""
        verdict, cause = self._transactions.judge(error)
        if verdict is Verdict.TAKEN_OVER:
            raise self._taken_over(cause) from error
        # An open transaction would keep readers of the topics waiting until it times out.
        with suppress(KafkaException):
            self._transactions.abort()
        if verdict is Verdict.STALE:
            raise StaleGroupError(
                f"{cause.str()}; the group has given partitions of the {self._what} to another "
                f"member: uncommitted work is undone here, and is done there"
            ) from error
        pause_s = next(pauses, None)
        if verdict is Verdict.FINAL or pause_s is None or time.monotonic() > deadline:
            raise KafkaException(cause) from error
        time.sleep(pause_s)

    def _taken_over(self, cause: KafkaError) -> TakenOverError:
        return TakenOverError(
            f"{cause.str()}; another {self._what} has taken over, or the broker has forgotten "
            f"this one: its unfinished work is undone; start it again to go on"
        )

    def close(self) -> None:
        """Close the producer; an open transaction is aborted, or times out if its broker is away."""
        self._transactions.close()


_C_PRODUCE: Final[Any] = cimpl.Producer.produce
"""The method without a chain: records that a worker writes itself do not pass a chain."""
