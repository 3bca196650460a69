"""The partitions of a consumer that are paused, and for whose sake.

The application pauses partitions; a record whose moment has not come pauses its own; and a poll whose only
purpose is to stay in the group pauses all for that moment. librdkafka knows one pause a partition, so it is
resumed when none of the three asks for it any more.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Final

from confluent_kafka import KafkaException, TopicPartition, cimpl

from headerware.clients.offsets import topic_partition_of
from headerware.core.services import TopicPartitionKey

# Not by the name in confluent_kafka, which instrumentation changes.
_C: Final[Any] = cimpl.Consumer
_LOOK_AT_CLOCK_S: Final = 1.0
"""How long a record waits before the clock is asked again whether its moment has come."""


def pause(consumer: Any, partitions: list[TopicPartition]) -> None:
    """Pause partitions for the application."""
    # This raises if the consumer is closed, at which confluent-kafka 2.13 ends the process.
    _C.assignment(consumer)
    _C.pause(consumer, partitions)


def resume(consumer: Any, partitions: list[TopicPartition]) -> None:
    """Resume partitions for the application."""
    _C.assignment(consumer)  # as above
    _C.resume(consumer, partitions)


class Pauses:
    """Say which partitions are paused; the consumer is an argument, because to hold it would be a cycle."""

    __slots__ = ("_briefly", "_now_ms", "application", "delayed")

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self.application: set[TopicPartitionKey] = set()
        """Those that the application paused."""
        self.delayed: dict[TopicPartitionKey, tuple[int, float]] = {}
        """Those whose first record waits: for which moment by the session's clock, and when to look at this
        clock again, by ``time.monotonic()``."""
        self._briefly: list[TopicPartition] = []
        self._now_ms = now_ms

    def held(self) -> set[TopicPartitionKey]:
        """Return the partitions of which the application gets no record now."""
        return self.application | self.delayed.keys()

    def pause(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        """Pause partitions for the application."""
        pause(consumer, partitions)
        self.application.update(map(topic_partition_of, partitions))

    def resume(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        """Resume partitions for the application; one whose record waits goes on when its moment comes."""
        resume(consumer, [each for each in partitions if topic_partition_of(each) not in self.delayed])
        self.application.difference_update(map(topic_partition_of, partitions))

    def delay(self, consumer: Any, topic_partition: TopicPartitionKey, until_ms: int) -> bool:
        """Pause the partition of a record whose moment has not come; return whether it has not."""
        if not self._wait(topic_partition, until_ms):
            return False
        with suppress(KafkaException):  # it has gone meanwhile
            _C.pause(consumer, [TopicPartition(*topic_partition)])
        return True

    def _wait(self, topic_partition: TopicPartitionKey, until_ms: int) -> bool:
        left_ms = until_ms - self._now_ms()
        if left_ms > 0:
            # The clock may be set meanwhile, so it is asked now and then.
            look = time.monotonic() + min(left_ms / 1000, _LOOK_AT_CLOCK_S)
            self.delayed[topic_partition] = until_ms, look
        return left_ms > 0

    def until_next_look(self) -> float:
        """Return how many seconds remain until the clock has to be asked for a delayed record."""
        return max(0.0, min(look for _, look in self.delayed.values()) - time.monotonic())

    def end_delays(self, consumer: Any, first_offset: Callable[[TopicPartitionKey], int | None]) -> bool:
        """Resume partitions whose moment has come, or whose record is gone; return whether there are any.

        Args:
            consumer: the consumer.
            first_offset: gives the offset of a partition's first record that waits, None if none does.
        """
        now = time.monotonic()
        ended = [
            topic_partition
            for topic_partition, (until_ms, look) in list(self.delayed.items())
            if first_offset(topic_partition) is None
            or (now >= look and not self._wait(topic_partition, until_ms))
        ]
        for topic_partition in ended:
            if topic_partition not in self.application:
                with suppress(KafkaException):
                    _C.resume(consumer, [TopicPartition(*topic_partition)])
            self.delayed.pop(topic_partition, None)
        return bool(ended)

    def pause_briefly(self, consumer: Any) -> None:
        """Pause what is not paused, until :meth:`resume_briefly_paused`."""
        held = self.held()
        self._briefly = [each for each in _C.assignment(consumer) if topic_partition_of(each) not in held]
        _C.pause(consumer, self._briefly)

    def resume_briefly_paused(self, consumer: Any) -> None:
        """Resume what :meth:`pause_briefly` paused."""
        # Also those that were lost meanwhile: a partition that comes back would still be paused.
        for partition in self._briefly:
            if topic_partition_of(partition) in self.held():
                continue  # by a callback, or after an interrupt
            with suppress(KafkaException):
                _C.resume(consumer, [partition])
        self._briefly = []

    def forget(self, topic_partitions: Iterable[TopicPartitionKey]) -> None:
        """Forget what the application paused of partitions that have gone; their delays end by themselves."""
        self.application.difference_update(topic_partitions)
