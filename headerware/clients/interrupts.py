"""Interrupts: an interrupt may end a call of a client between two steps; the next call recovers from that.

An interrupt is Ctrl-C, or any exception that a signal's handler raises. It comes after a call, at the start
of a function or at the end of a loop's round, also in ``try`` and ``with``. So a mark that a call sets and
clears may remain set. The mark is only a hint to look at the stack, which cannot be wrong
(:func:`called_from`).

A signal's handler is not a callback, although it may interrupt one. It may use the client that it
interrupted: to flush, to commit, to abort a transaction, to stop.

confluent-kafka's position is after the last record that it returned, our position after the last record that
arrived here. The records between the two are read again (:meth:`Fetch.recover`). If a callback raises in
``consume``, confluent-kafka throws a batch away, sometimes with one record more than its position says.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from enum import Enum
from threading import Thread, get_ident
from types import CodeType, FrameType
from typing import Any, Final

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    KafkaException,
    Message,
    TopicPartition,
    cimpl,
)

from headerware.clients.delivery import Delivery
from headerware.clients.offsets import topic_partition_of
from headerware.core.interrupts import is_handler_on, pass_on_interrupt
from headerware.core.services import TopicPartitionKey

# Not by the name in confluent_kafka, which instrumentation changes.
_C: Final[Any] = cimpl.Consumer
_c_consume: Final = _C.consume
COMMITTED_TIMEOUT_S: Final = 5.0
"""How long to wait for the broker's answer about committed offsets."""


class CalledFrom(Enum):
    """Where on the stack a call of a client is made."""

    OUTSIDE = "no call into C is under way on this thread"
    IN_HANDLER = "a signal's handler interrupted a call into C"
    IN_CALLBACK = "a call into C called back"
    IN_HANDLER_IN_CALLBACK = "a signal's handler interrupted what a call into C called back"


def called_from(client: Any, calls: Collection[CodeType], frame: FrameType | None) -> CalledFrom:
    """Return where on the stack a frame is; ``calls`` are the client's methods that call into C."""
    inner: FrameType | None = None
    in_handler = False
    while frame is not None:
        interrupts = inner is not None and is_handler_on(frame, inner)
        in_handler = in_handler or interrupts
        if frame.f_code in calls and frame.f_locals.get("self") is client:
            if not in_handler:
                return CalledFrom.IN_CALLBACK
            return CalledFrom.IN_HANDLER if interrupts else CalledFrom.IN_HANDLER_IN_CALLBACK
        inner, frame = frame, frame.f_back
    return CalledFrom.OUTSIDE


def on_another_thread(call: Callable[[], Any]) -> Any:
    """Make a call on a thread of its own, and return what it returns, or raise what it raises.

    It is for a handler that interrupted a call into C on this thread. confluent-kafka remembers one call for
    each thread, and ends the process at the next callback if a second call has replaced the first.
    """
    ended: list[tuple[Any, BaseException | None]] = []

    def run() -> None:
        try:
            ended.append((call(), None))
        except BaseException as raised:  # noqa: BLE001 - it is raised on the thread that waits
            ended.append((None, raised))

    thread = Thread(target=run, name="headerware-handler", daemon=True)
    thread.start()
    thread.join()
    found, error = ended[0]
    if error is not None:
        raise error
    return found


class Fetch:
    """A consumer's call that takes records from the wire to the application.

    Args:
        starts_at_beginning: whether a partition without a committed offset is read from its beginning.
    """

    __slots__ = ("batches", "deferred_error", "lost_a_batch", "paused", "starts_at_beginning", "thread")

    def __init__(self, *, starts_at_beginning: bool) -> None:
        self.starts_at_beginning: Final = starts_at_beginning
        self.thread: int = 0
        """The thread whose call is between the wire and the application, or was interrupted there; or 0."""
        self.batches: list[list[Message]] | None = None
        """The batch that ``consume`` got from the wire; an empty list if C raised; None during ``poll``."""
        self.lost_a_batch: bool = False
        """Whether the last batch was thrown away."""
        self.deferred_error: Exception | None = None
        """The error of a callback, to be raised by the next call."""
        self.paused: list[TopicPartition] = []
        """The partitions that are paused for one poll whose only purpose is to remain in the group."""

    def consume(self, client: Any, count: int, timeout: float, *, may_raise: bool) -> list[Message]:
        """Fetch a batch; without ``may_raise``, keep an error of a callback for the next call."""
        try:
            batches = self.batches = []
            batches.extend(map(_c_consume, (client,), (count,), (timeout,)))  # in C: nothing is lost
            return batches[0]
        except Exception as raised:
            pass_on_interrupt(raised)
            if may_raise:
                raise
            self.deferred_error = raised
            return []

    def was_interrupted(
        self, client: Any, calls: Collection[CodeType], caller: FrameType | None, *, ends: bool = False
    ) -> bool:
        """Return whether a call on this thread was interrupted and will not go on.

        Args:
            client: the consumer.
            calls: its methods that fetch.
            caller: the frame at which the search for these methods begins; a callback that commits was called
                by one of them, and so is not an interrupt.
            ends: whether a call that a signal's handler interrupted will not go on, because the handler
                closes the consumer.
        """
        if self.thread != get_ident():
            return False
        place = called_from(client, calls, caller)
        return place is CalledFrom.OUTSIDE or (ends and place is not CalledFrom.IN_CALLBACK)

    def pause_briefly(self, client: Any, held: Collection[TopicPartitionKey]) -> None:
        """Pause all partitions that are not paused, until :meth:`resume_briefly_paused`."""
        self.paused = [each for each in _C.assignment(client) if topic_partition_of(each) not in held]
        _C.pause(client, self.paused)

    def resume_briefly_paused(self, client: Any, delivery: Delivery) -> None:
        """Resume the partitions that :meth:`pause_briefly` paused."""
        # Also partitions that have gone: they would still be paused after they come back.
        for partition in self.paused:
            if topic_partition_of(partition) in delivery.held():
                continue  # a callback has paused it, or an interrupt came
            with suppress(KafkaException):
                _C.resume(client, [partition])
        self.paused = []

    def recover(
        self,
        client: Any,
        delivery: Delivery,
        *,
        begin: Callable[[list[TopicPartition]], object],
        remove: Callable[[list[TopicPartition]], object],
    ) -> None:
        """Put back the records that were between the wire and the application, and read lost records again.

        ``begin`` and ``remove`` do the work of an assignment and a revocation whose callback was interrupted.
        """
        self.resume_briefly_paused(client, delivery)
        delivery.restore()
        found = _C.position(client, _C.assignment(client))
        positions = {topic_partition_of(each): each.offset for each in found}
        remove([TopicPartition(*each) for each in delivery.positions if each not in positions])
        threw_away = self.lost_a_batch = self.batches == []
        for topic_partition, position in positions.items():
            if topic_partition not in delivery.positions:
                begin([TopicPartition(*topic_partition)])
            taken = delivery.positions[topic_partition] = max(
                delivery.positions[topic_partition],
                delivery.inbox_position(topic_partition) or OFFSET_INVALID,
            )
            if taken < 0:
                taken = self._first_fetched(client, topic_partition, taken, position)
            if taken != OFFSET_INVALID and (taken < position or threw_away):
                delivery.read_again(topic_partition, taken)
            if taken >= 0 and delivery.stores:
                delivery.store_position(topic_partition)

    def _first_fetched(
        self, client: Any, topic_partition: TopicPartitionKey, began: int, position: int
    ) -> int:
        """Return the offset at which to read a partition again if no record of it has arrived here."""
        fetched = [message for batch in self.batches or () for message in batch]
        offsets = [message.offset() or 0 for message in fetched if _is_of(message, topic_partition)]
        if offsets:
            return min(offsets)
        if self.lost_a_batch and began == OFFSET_BEGINNING:
            return began
        if self.lost_a_batch and began != OFFSET_END and self.starts_at_beginning:
            with suppress(KafkaException):  # the broker does not answer now
                found = _C.committed(client, [TopicPartition(*topic_partition)], COMMITTED_TIMEOUT_S)
                committed: int = found[0].offset
                return committed if committed >= 0 else OFFSET_BEGINNING
        return OFFSET_INVALID if position < 0 else position - 1


def _is_of(message: Message, topic_partition: TopicPartitionKey) -> bool:
    return message.error() is None and (message.topic(), message.partition()) == topic_partition
