"""The offsets of a consumer: what it stores and commits, held back to where a restart loses nothing."""

from __future__ import annotations

import logging
import sys
from collections import OrderedDict
from collections.abc import Mapping
from types import FrameType
from typing import Any, Final

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from headerware.clients.codes import INVALID_ARG, NO_OFFSET
from headerware.clients.groups import register
from headerware.clients.offsets import Offsets, Place, as_committed, place_of, positioned
from headerware.clients.raw import unless_chained
from headerware.clients.rebalance import tell_committed
from headerware.core.session import Session

_C: Final[Any] = confluent_kafka.Consumer
_c_commit, _c_store = _C.commit, _C.store_offsets
_log: Final = logging.getLogger("headerware")


class OffsetsConsumer(confluent_kafka.Consumer):
    """A consumer whose every commit goes through the chain's view of what is safe."""

    _session: Session
    _chained: bool = False
    """Whether a chain is at work; else confluent-kafka's own methods answer."""
    _offsets: Offsets
    _commits_s: float
    _stores: bool
    _taking: int = 0
    """The thread that is between the wire and the application, or that an interrupt took away from there."""
    _remembered: OrderedDict[tuple[str, int, int], tuple[str, Mapping[str, Any] | None]]

    def store_offsets(
        self, message: Message | None = None, offsets: list[TopicPartition] | None = None
    ) -> None:
        """Store the offset behind a message, or offsets, held back to where a restart loses nothing.

        Raises:
            KafkaException: the partition is not assigned; or the client stores offsets itself, unless
                ``enable.auto.offset.store`` is false.
        """
        unclear = (message is None) == (offsets is None) or (message is not None and not _is_good(message))
        if not self._chained or unclear:
            _c_store(self, message, offsets)  # raises what is unclear
            return
        if self._stores:
            reason = "StoreOffsets failed: Local: Invalid argument or configuration"
            raise KafkaException(KafkaError(INVALID_ARG, f"{reason} (set enable.auto.offset.store=false)"))
        wanted = [self._behind(message)] if message is not None else offsets or []
        _c_store(self, offsets=[self._to_store(partition) for partition in wanted])

    @unless_chained(_c_commit)
    def commit(
        self,
        message: Message | None = None,
        offsets: list[TopicPartition] | None = None,
        asynchronous: bool = True,  # noqa: FBT001, FBT002 - confluent-kafka's signature
        *more: Any,
        **keywords: Any,
    ) -> Any:
        """Commit the offset behind a message, offsets, or what is stored, held back as stores are.

        Returns:
            None, or the committed offsets where it is not asynchronous.
        """
        self._go_back(sys._getframe())  # noqa: SLF001 - as inspect does
        waits = not (more[0] if more else keywords.pop("async", asynchronous))
        unclear = message is not None and (offsets is not None or not _is_good(message))
        if keywords or len(more) > 1 or unclear:
            return _c_commit(self, message, offsets, asynchronous, *more, **keywords)
        if message is None and offsets is None:
            return self._commit_stored(waits=waits)
        wanted = [self._behind(message)] if message is not None else offsets
        return self._commit_offsets(self.clamped(wanted or []), waits=waits)

    @unless_chained(_C.committed)
    def committed(self, partitions: list[TopicPartition], timeout: float = -1) -> list[TopicPartition]:
        """Give the group's committed offsets, with the application's own metadata."""
        return [as_committed(found) for found in _C.committed(self, partitions, timeout)]

    def clamped(self, positions: list[TopicPartition]) -> list[TopicPartition]:
        """Give positions held back to where a restart loses nothing, with watermarks in their metadata."""
        if not self._chained:
            return positions
        self._go_back(sys._getframe())  # noqa: SLF001
        return [self._safe(partition) for partition in positions]

    @unless_chained(_C.consumer_group_metadata)
    def consumer_group_metadata(self) -> Any:
        """Give the group metadata, by which a transaction's offsets find this consumer again."""
        metadata = _C.consumer_group_metadata(self)
        register(metadata, self)
        return metadata

    def _go_back(self, caller: FrameType | None) -> None:
        """Take up what an interrupt, or a callback that raised, left between wire and application."""

    def _safe(self, partition: TopicPartition) -> TopicPartition:
        return self._offsets.safe(
            place_of(partition), partition.offset, partition.metadata, partition.leader_epoch
        )

    def _to_store(self, partition: TopicPartition) -> TopicPartition:
        return self._offsets.stored(
            place_of(partition), partition.offset, partition.metadata, partition.leader_epoch
        )

    def _behind(self, message: Message) -> TopicPartition:
        place = (self._found(message)[0], message.partition() or 0)
        return positioned(place, (message.offset() or 0) + 1, None, message.leader_epoch())

    def _pass(self, positions: Mapping[Place, tuple[int, int | None]]) -> None:
        """Store positions that have been passed, one a partition."""
        for place, (position, leader_epoch) in positions.items():
            self._store_offset(self._offsets.stored(place, position, None, leader_epoch))

    def _store_offset(self, offset: TopicPartition) -> None:
        try:
            _c_store(self, offsets=[offset])
        except KafkaException as error:
            _log.debug("%s is not assigned any more: %s", offset, error)

    def _store_message(self, message: Message) -> None:
        """Store by message, which costs a third of storing by partition."""
        try:
            _c_store(self, message)
        except KafkaException as error:
            _log.debug("%s is not assigned any more: %s", message.topic(), error)

    def _commit_stored(self, *, waits: bool) -> Any:
        held = self._offsets.watermarked()
        if not held:
            return self._told(_c_commit(self, asynchronous=not waits))
        try:
            done = _c_commit(self, asynchronous=not waits) or []
        except KafkaException as error:
            if error.args[0].code() != NO_OFFSET:
                raise
            done = []
        ours = _c_commit(self, offsets=held, asynchronous=not waits)
        if ours is None:
            return None
        newer = {place_of(partition) for partition in ours}
        return self._told([*(p for p in done if place_of(p) not in newer), *ours])

    def _commit_offsets(self, offsets: list[TopicPartition], *, waits: bool) -> Any:
        return self._told(_c_commit(self, offsets=offsets, asynchronous=not waits))

    def _told(self, partitions: list[TopicPartition] | None) -> list[TopicPartition] | None:
        """Tell interceptors of a synchronous commit, of which confluent-kafka calls nobody back."""
        if partitions is None:
            return None
        own = [as_committed(partition) for partition in partitions]
        tell_committed(self._session, own)
        return own

    def _commit_quietly(self, offsets: list[TopicPartition], *, asynchronous: bool) -> None:
        try:
            self._told(_c_commit(self, offsets=offsets, asynchronous=asynchronous))
        except KafkaException as error:
            _log.warning("a watermark was not committed, so records may repeat after a restart: %s", error)

    def _commit_watermarks(self) -> None:
        """Bring the last watermarks to the broker, where the client commits by itself."""
        self._go_back(sys._getframe())  # noqa: SLF001
        if self._commits_s and (held := self._offsets.watermarked(everything=True)):
            self._commit_quietly(held, asynchronous=False)

    def _found(self, message: Message) -> tuple[str, Mapping[str, Any] | None]:
        """Give the topic on the wire, and the interceptors' state, of a message that was delivered."""
        key = (message.topic() or "", message.partition() or 0, message.offset() or 0)
        return self._remembered.get(key) or (key[0], None)


def _is_good(message: Any) -> bool:
    """Whether confluent-kafka would take the message for a position."""
    return type(message) is Message and message.error() is None
