"""Offsets: the offset that may be committed for each partition, and which records after it were delivered.

An offset is held back, in stores, commits and transactions alike, while records before it have not reached
the application: slices that wait for the rest of their message, and entries of the inbox.

The metadata of a commit (:mod:`headerware.core.commit_metadata`) has the watermark: the offset below which
everything was delivered, except records that a worker of the same group has left pending. Other text in the
metadata is the application's own.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Iterable
from typing import Any, Final

from confluent_kafka import OFFSET_INVALID, OFFSET_STORED, TopicPartition

from headerware.core.commit_metadata import decode_metadata, encode_metadata
from headerware.core.services import TopicPartitionKey
from headerware.core.session import Session

_AS_COMMITTED: Final = frozenset({OFFSET_STORED, OFFSET_INVALID})
"""With these offsets reading begins at the committed offset; the application chooses other offsets."""
_log: Final = logging.getLogger("headerware")


def topic_partition_of(partition: TopicPartition) -> TopicPartitionKey:
    """Return the topic and the number of a partition."""
    return partition.topic, partition.partition


def at_offset(
    topic_partition: TopicPartitionKey,
    offset: int,
    metadata: str | None = None,
    leader_epoch: int | None = None,
) -> TopicPartition:
    """Return a TopicPartition; its constructor refuses None for absent values."""
    topic, partition = topic_partition
    given = {"metadata": metadata, "leader_epoch": leader_epoch}
    known: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    return TopicPartition(topic, partition, offset, **known)


def with_own_metadata(partition: TopicPartition) -> TopicPartition:
    """Return a committed offset with the application's own metadata only."""
    own = decode_metadata(partition.offset, partition.metadata).own
    if own == partition.metadata or partition.error is not None:
        return partition
    return at_offset(topic_partition_of(partition), partition.offset, own, partition.leader_epoch)


class Offsets:
    """Hold offsets back to where a restart loses nothing, and remember which later records were delivered.

    ``first_waiting`` returns the smallest offset of a partition that waits in the inbox, or None.
    """

    def __init__(self, session: Session, first_waiting: Callable[[TopicPartitionKey], int | None]) -> None:
        self.session: Session = session
        self._first_waiting = first_waiting
        self.reassembles: bool = session.reassembles
        """Whether the chain, or an earlier chain of this client, makes one record of several."""
        self._unread_metadata: set[TopicPartitionKey] = set()
        self._watermarks: dict[TopicPartitionKey, int] = {}
        self._undelivered: dict[TopicPartitionKey, frozenset[int]] = {}
        self._read_again: dict[TopicPartitionKey, int] = {}
        """The position of reading since it went back; the chain does not know what waits after it."""
        self._positions: dict[TopicPartitionKey, tuple[int, str | None]] = {}
        self._held: dict[TopicPartitionKey, TopicPartition] = {}
        self._uncommitted: set[TopicPartitionKey] = set()

    def follow(self, session: Session) -> None:
        """Go on with the session of another chain; offsets that were held back remain held back."""
        self.session = session
        self.reassembles = self.reassembles or session.reassembles

    # What may be committed

    def safe_offset(
        self,
        topic_partition: TopicPartitionKey,
        position: int,
        own: str | None = None,
        leader_epoch: int | None = None,
    ) -> TopicPartition:
        """Return the offset to commit for a position."""
        waiting = self._first_waiting(topic_partition)
        if waiting is not None and waiting < position:
            position, leader_epoch = waiting, None
        if not self.reassembles or position < 0:
            return at_offset(topic_partition, position, encode_metadata(None, own), leader_epoch)
        known = min(position, self._read_again.get(topic_partition, position))
        safe = self.session.safe_offset(*topic_partition, known)
        delivered = max(position, self._watermarks.get(topic_partition, 0))
        if safe >= delivered:
            return at_offset(topic_partition, position, encode_metadata(None, own), leader_epoch)
        # The epoch belongs to the position, and says nothing about an earlier offset.
        leader_epoch = leader_epoch if safe == position else None
        # A watermark would say that the record at the safe offset was delivered.
        watermark = None if self.session.reorders else delivered
        return at_offset(topic_partition, safe, encode_metadata(watermark, own), leader_epoch)

    def offset_to_store(
        self,
        topic_partition: TopicPartitionKey,
        position: int,
        own: str | None = None,
        leader_epoch: int | None = None,
    ) -> TopicPartition:
        """Note that everything before a position is delivered, and return the offset to store for it."""
        safe = self.safe_offset(topic_partition, position, own, leader_epoch)
        if not self.reassembles or position < 0:
            return safe
        self._positions[topic_partition] = position, own
        if safe.offset < position or topic_partition in self._watermarks:
            known = self._held.get(topic_partition)
            if known is None or (known.offset, known.metadata) != (safe.offset, safe.metadata):
                self._held[topic_partition] = safe
                self._uncommitted.add(topic_partition)
        elif self._held.pop(topic_partition, None) is not None:
            self._uncommitted.discard(topic_partition)
        return safe

    def refreshed(self) -> list[TopicPartition]:
        """Return the offsets to store for partitions that are held back; slices may have expired."""
        held = [each for each in self._held if each in self._positions]
        return [self.offset_to_store(each, *self._positions[each]) for each in held]

    def take_watermarked(self, *, everything: bool = False) -> list[TopicPartition]:
        """Return the offsets that only an explicit commit brings to the broker, and count them as committed.

        librdkafka commits a stored offset only when it is larger than the committed one, and so misses a
        watermark that rose above the same safe offset.
        """
        wanted = [each for each in self._held if everything or each in self._uncommitted]
        self._uncommitted.clear()
        return [self._held[each] for each in wanted]

    # What was delivered before

    def note_assigned(self, partitions: Iterable[TopicPartition]) -> set[TopicPartitionKey]:
        """Note assigned partitions; return the partitions for which the application has chosen an offset.

        The others begin at the committed offset, where an earlier consumer may have left a watermark.
        """
        chosen: set[TopicPartitionKey] = set()
        for partition in partitions:
            topic_partition = topic_partition_of(partition)
            self.forget([topic_partition])
            if partition.offset not in _AS_COMMITTED:
                chosen.add(topic_partition)
            elif self.reassembles:
                self._unread_metadata.add(topic_partition)
        return chosen

    def take_unread_metadata(self, topic_partition: TopicPartitionKey) -> bool:
        """Return whether the caller has to read a partition's committed metadata now."""
        if topic_partition not in self._unread_metadata:
            return False
        self._unread_metadata.discard(topic_partition)
        return True

    def recall_watermark(
        self,
        topic_partition: TopicPartitionKey,
        committed: TopicPartition,
        offset: int,
        end: Callable[[], int],
    ) -> None:
        """Take over the watermark of an earlier consumer, if reading began at its committed offset.

        ``end`` returns the end of the partition. No record after the end can have been delivered, so a
        watermark after the end is false, and would keep new records from the application.
        """
        watermark, pending, _ = decode_metadata(committed.offset, committed.metadata)
        if watermark is None or not committed.offset <= offset < watermark:
            return
        if watermark <= (last := end()):
            self._watermarks[topic_partition] = watermark
            if pending:
                self._undelivered[topic_partition] = pending
            return
        _log.warning(
            "the committed watermark %d of %s[%d] is beyond the partition's end %d, so it is ignored and "
            "records may repeat: somebody in the group wrote it, or the topic lost records",
            *(watermark, *topic_partition, last),
        )

    def note_seek(self, topic_partition: TopicPartitionKey, begin: int, wanted: int) -> None:
        """Note a seek. Reading begins at ``begin``; records from ``wanted`` on are delivered again.

        Records between the two are not delivered. The offset to commit does not change until a record is
        delivered, as without a chain.
        """
        held, is_uncommitted = self._held.get(topic_partition), topic_partition in self._uncommitted
        self.forget([topic_partition])
        if held is not None:
            self._held[topic_partition] = held
            self._uncommitted.update([topic_partition] if is_uncommitted else ())
        if begin < wanted:
            self._watermarks[topic_partition] = wanted
            self._read_again[topic_partition] = begin

    def read_up_to(self, topic_partition: TopicPartitionKey, otherwise: int) -> int:
        """Return the position of reading since it went back; return ``otherwise`` if it did not go back."""
        return self._read_again.get(topic_partition, otherwise)

    def note_resumed(
        self, topic_partition: TopicPartitionKey, begin: int, wanted: int, undelivered: Iterable[int] = ()
    ) -> None:
        """Note that reading goes on at ``begin``; records before ``wanted`` are not delivered again.

        ``undelivered`` are the offsets between the two whose records have not been delivered.
        """
        if begin < wanted:
            self._watermarks[topic_partition] = max(wanted, self._watermarks.get(topic_partition, 0))
            earlier = self._undelivered.get(topic_partition, frozenset())
            self._undelivered[topic_partition] = earlier.union(undelivered)
            self._read_again[topic_partition] = begin
        elif self.session.reorders:  # later records may have been delivered
            self._read_again[topic_partition] = begin

    def note_read(self, topic_partition: TopicPartitionKey, position: int) -> None:
        """Note that the chain has seen everything before a position."""
        if topic_partition not in self._read_again:
            return
        if position < self._watermarks.get(topic_partition, 0):
            self._read_again[topic_partition] = position
        else:
            del self._read_again[topic_partition]

    def first_incomplete(self, topic_partition: TopicPartitionKey, position: int) -> int:
        """Return the first offset of the oldest incomplete message, or the position."""
        held = self._held.get(topic_partition)
        return position if held is None else min(position, held.offset)

    def was_delivered(self, topic_partition: TopicPartitionKey, offset: int) -> bool:
        """Return whether a record was delivered before; forget the watermark once it is passed."""
        watermark = self._watermarks.get(topic_partition)
        if watermark is None:
            return False
        if offset < watermark:
            return offset not in self._undelivered.get(topic_partition, ())
        del self._watermarks[topic_partition]
        self._undelivered.pop(topic_partition, None)
        return False

    def forget(self, topic_partitions: Iterable[TopicPartitionKey]) -> None:
        """Forget partitions that were removed or begin anew."""
        for topic_partition in topic_partitions:
            self._unread_metadata.discard(topic_partition)
            self._watermarks.pop(topic_partition, None)
            self._undelivered.pop(topic_partition, None)
            self._read_again.pop(topic_partition, None)
            self._positions.pop(topic_partition, None)
            self._held.pop(topic_partition, None)
            self._uncommitted.discard(topic_partition)


# A producer commits the offsets of a transaction; the consumer that read the records holds them back.


HoldBack = Callable[[Any, list[TopicPartition]], list[TopicPartition]]
"""Returns the offsets to commit for positions of a consumer."""
_consumers: Final[dict[bytes, weakref.WeakKeyDictionary[Any, HoldBack]]] = {}
"""Consumers by the group metadata that they returned."""
_latest: Final[weakref.WeakKeyDictionary[Any, bytes]] = weakref.WeakKeyDictionary()
_MAX_GROUPS: Final = 1_000


def register_consumer(metadata: Any, consumer: Any, hold_back: HoldBack) -> None:
    """Remember, weakly, which consumer returned group metadata, and how it holds offsets back.

    The bytes name group, member and generation. Consumers that assign partitions themselves have no member's
    name, so several consumers may return the same bytes; each knows its own partitions. Earlier generations
    of a consumer are forgotten, because the broker refuses them.
    """
    earlier = _latest.get(consumer)
    if earlier == metadata:
        return
    _latest[consumer] = metadata
    if earlier is not None:
        _forget(earlier, consumer)
    if metadata not in _consumers and len(_consumers) >= _MAX_GROUPS:
        for stale in [known for known, living in _consumers.items() if not living]:
            del _consumers[stale]
    _consumers.setdefault(metadata, weakref.WeakKeyDictionary())[consumer] = hold_back


def held_back(metadata: Any, positions: list[TopicPartition]) -> list[TopicPartition]:
    """Hold positions back by the consumers that returned this metadata; do nothing without any."""
    consumers = list(_consumers.get(metadata, {}).items()) if isinstance(metadata, bytes) else []
    if not consumers or not isinstance(positions, list):
        return positions
    return [_lowest(consumers, position) for position in positions]


def _forget(metadata: bytes, consumer: Any) -> None:
    living = _consumers.get(metadata)
    if living is not None:
        living.pop(consumer, None)
        if not living:
            del _consumers[metadata]


def _lowest(consumers: list[tuple[Any, HoldBack]], position: TopicPartition) -> TopicPartition:
    """Return the offset to commit for a position, from the consumer that reads its partition."""
    held: TopicPartition
    for consumer, hold_back in consumers:
        held = hold_back(consumer, [position])[0]
        if held.offset != position.offset:
            break
    return held
