"""The partitions of a consumer: how they come, go, pause and begin elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any, Final

import confluent_kafka
from confluent_kafka import TopicPartition

from headerware.clients.consumer_offsets import OffsetsConsumer
from headerware.clients.inbox import Inbox
from headerware.clients.offsets import Place, place_of, positioned
from headerware.clients.raw import unless_chained
from headerware.clients.rebalance import RebalanceCallback, rebalance_callbacks

_C: Final[Any] = confluent_kafka.Consumer


def _c_pause(consumer: confluent_kafka.Consumer, partitions: list[TopicPartition]) -> None:
    # This raises if the consumer is closed, at which confluent-kafka 2.13 ends the process.
    _C.assignment(consumer)
    _C.pause(consumer, partitions)


def _c_resume(consumer: confluent_kafka.Consumer, partitions: list[TopicPartition]) -> None:
    _C.assignment(consumer)  # as above
    _C.resume(consumer, partitions)


class PartitionsConsumer(OffsetsConsumer):
    """A consumer whose chain forgets a partition when it goes."""

    _inbox: Inbox
    _paused: set[Place]
    _next: dict[Place, int]
    """The first offset of each partition that is in neither the inbox nor the application's hands; negative
    is where reading began by a name, such as at the committed offset."""

    @unless_chained(_C.subscribe)
    def subscribe(
        self,
        topics: list[str],
        on_assign: RebalanceCallback | None = None,
        on_revoke: RebalanceCallback | None = None,
        on_lost: RebalanceCallback | None = None,
    ) -> None:
        """Subscribe to topics; the chain forgets revoked partitions after the application's callback."""
        _C.subscribe(self, topics, **rebalance_callbacks(on_assign, on_revoke, on_lost))

    @unless_chained(_C.unsubscribe)
    def unsubscribe(self) -> None:
        """Leave the subscription, and forget what was not delivered."""
        gone = _C.assignment(self)
        self._commit_watermarks()
        _C.unsubscribe(self)
        self._leave(gone, commit=False)

    @unless_chained(_C.assign)
    def assign(self, partitions: list[TopicPartition]) -> None:
        """Assign partitions; those that begin nowhere in particular begin at their committed offset."""
        gone = _C.assignment(self)
        self._commit_watermarks()
        _C.assign(self, partitions)
        self._leave(gone, commit=False)
        self._arrive(partitions)

    @unless_chained(_C.unassign)
    def unassign(self) -> None:
        """Give up all partitions."""
        gone = _C.assignment(self)
        self._commit_watermarks()
        _C.unassign(self)
        self._leave(gone, commit=False)

    @unless_chained(_C.incremental_assign)
    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        """Add partitions to the assignment."""
        _C.incremental_assign(self, partitions)
        self._arrive(partitions)

    @unless_chained(_C.incremental_unassign)
    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        """Remove partitions from the assignment."""
        self._commit_watermarks()
        _C.incremental_unassign(self, partitions)
        self._leave(partitions, commit=False)

    @unless_chained(_c_pause)
    def pause(self, partitions: list[TopicPartition]) -> None:
        """Hold back partitions, with what the chain has made of them already."""
        _c_pause(self, partitions)
        self._paused.update(map(place_of, partitions))

    @unless_chained(_c_resume)
    def resume(self, partitions: list[TopicPartition]) -> None:
        """Let partitions go on."""
        _c_resume(self, partitions)
        self._paused.difference_update(map(place_of, partitions))

    @unless_chained(_C.seek)
    def seek(self, partition: TopicPartition) -> None:
        """Go to an offset; to the first slice of a message that was delivered there in this session."""
        self._go_back(sys._getframe())  # noqa: SLF001 - as inspect does
        if getattr(partition, "offset", -1) < 0:
            _C.seek(self, partition)  # raises for what is no TopicPartition
            self._session.revoke([place_of(partition)])
            begin = partition.offset
        else:
            begin = self._session.seek(partition.topic, partition.partition, partition.offset)
            _C.seek(self, partition if begin == partition.offset else positioned(place_of(partition), begin))
        self._next[place_of(partition)] = begin
        self._inbox.drop({place_of(partition)})
        self._offsets.moved(place_of(partition), begin, partition.offset)

    def _arrive(self, partitions: list[TopicPartition]) -> None:
        self._offsets.assigned(partitions)
        self._next.update({place_of(partition): partition.offset for partition in partitions})

    def _leave(self, partitions: Iterable[TopicPartition], *, commit: bool) -> None:
        """Forget partitions that have gone to another consumer, or begin anew."""
        places = {place_of(partition) for partition in partitions}
        if commit:
            self._commit_watermarks()
        self._session.revoke(places)
        self._inbox.drop(places)
        self._offsets.forget(places)
        self._paused -= places
        for place in places:
            # librdkafka has committed what is stored, where the partition was ours to commit.
            self._refused_offsets.pop(place, None)
            self._next.pop(place, None)
