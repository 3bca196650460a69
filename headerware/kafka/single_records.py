"""Read single records of topics by their positions."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import KafkaException, TopicPartition, cimpl

from headerware.core.errors import HeaderwareError, position
from headerware.kafka.errors import NO_ANSWER, Kind, kind_of
from headerware.kafka.messages import record_of
from headerware.kafka.reader import assign_anew

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headerware.core.record import Record


class SingleRecords:
    """Read single records; records close after the last one are read on from there. For one caller at a time.

    Args:
        conf: the settings of a client of confluent-kafka.
        group_id: a group's name, because librdkafka requires one; the group is not joined.
        timeout_s: how long the cluster may take to answer, in seconds.
    """

    _NEAR: Final = 1_000

    def __init__(self, conf: Mapping[str, Any], group_id: str, timeout_s: float) -> None:
        self._conf = conf
        self._group_id = group_id
        self._timeout_s = timeout_s
        self._consumer: Any = None
        self._at: tuple[str, int, int] | None = None
        self._end = 0

    def get(self, topic: str, partition: int, offset: int, *, seen: bool = False) -> Record | None:
        """Return a record; None if it is no longer there, or not yet.

        Args:
            topic: the topic.
            partition: the partition.
            offset: the offset.
            seen: whether the record was read before. If its partition now ends before it, a leader was just
                elected and does not know the end yet, so the leader is asked again.

        Raises:
            HeaderwareError: the cluster does not answer in time.
            confluent_kafka.KafkaException: the topic cannot be read.
        """
        if self._consumer is None:
            settings = {
                "isolation.level": "read_committed",
                "queued.max.messages.kbytes": 16_384,
                "fetch.wait.max.ms": 10,
                **self._conf,
                "group.id": self._group_id,
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
            }
            self._consumer = cimpl.Consumer(settings)
        deadline = time.monotonic() + self._timeout_s
        at = self._at
        is_near = at is not None and at[:2] == (topic, partition) and at[2] <= offset < at[2] + self._NEAR
        if not is_near or offset >= self._end:
            low, self._end = self._ends(topic, partition, offset)
            self._at = None
            while seen and offset >= self._end and time.monotonic() < deadline:
                time.sleep(0.1)
                low, self._end = self._ends(topic, partition, offset)
            if seen and offset >= self._end:
                raise self._too_late(topic, partition, offset)
            if not low <= offset < self._end:
                return None
            assign_anew(self._consumer, [TopicPartition(topic, partition, offset)])
            self._at = topic, partition, offset
        while time.monotonic() < deadline:
            message = self._consumer.poll(0.5)
            if message is None:
                continue
            error = message.error()
            if error is None:
                found = record_of(message)
                if (found.offset or 0) < offset:
                    continue
                # After a hole comes another record, so the next call begins anew.
                is_it = found.offset == offset
                self._at = (topic, partition, offset + 1) if is_it else None
                return found if is_it else None
            self._at = None
            kind = kind_of(error)
            if kind is Kind.END_OF_PARTITION and seen and (message.offset() or 0) <= offset:
                continue
            if kind in (Kind.END_OF_PARTITION, Kind.OFFSET_GONE):
                return None
            if not error.retriable():
                raise KafkaException(error)
            assign_anew(self._consumer, [TopicPartition(topic, partition, offset)])
        self._at = None
        raise self._too_late(topic, partition, offset)

    def _ends(self, topic: str, partition: int, offset: int) -> tuple[int, int]:
        asked_for = TopicPartition(topic, partition)
        try:
            found: tuple[int, int] = self._consumer.get_watermark_offsets(asked_for, timeout=self._timeout_s)
        except KafkaException as error:
            if kind_of(error) in NO_ANSWER:
                raise self._too_late(topic, partition, offset) from error
            raise
        return found

    def _too_late(self, topic: str, partition: int, offset: int) -> HeaderwareError:
        where = position(topic, partition, offset)
        return HeaderwareError(f"{where} could not be read within {self._timeout_s:g} s")

    def close(self) -> None:
        """Close the consumer, if there is one."""
        if self._consumer is not None:
            self._consumer.close()
