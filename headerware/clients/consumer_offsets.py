"""The offsets of a consumer: what it stores and commits, held back to where a restart loses nothing."""

from __future__ import annotations

import atexit
import logging
import os
import sys
import time
from collections.abc import Mapping
from types import FrameType
from typing import Any, Final
from weakref import WeakSet

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from headerware.clients.codes import INVALID_ARG, NO_OFFSET
from headerware.clients.groups import register
from headerware.clients.messages import MessageHeaders
from headerware.clients.offsets import Offsets, Place, as_committed, place_of, positioned, unwrapped
from headerware.clients.raw import unless_chained
from headerware.clients.rebalance import tell_committed
from headerware.core.session import Session

_C: Final[Any] = confluent_kafka.Consumer
_c_commit, _c_store = _C.commit, _C.store_offsets
_BETWEEN_COMMITS_S: Final = 0.1
_COMMIT_TIMEOUT_S: Final = 2.0
_AFTER_A_FAILURE_S: Final = 5.0
_log: Final = logging.getLogger("headerware")
_uncommitted: Final[WeakSet[Any]] = WeakSet()
"""Consumers that have given out refused records whose offsets are not committed yet."""


class OffsetsConsumer(confluent_kafka.Consumer):
    """A consumer whose every commit goes through the chain's view of what is safe."""

    _session: Session
    _chained: bool = False
    """Whether a chain is at work; else confluent-kafka's own methods answer."""
    _offsets: Offsets
    _commits_s: float
    _stores: bool
    _refused_offsets: dict[Place, TopicPartition]
    _next_refused_commit: float
    _taking: int = 0
    """The thread that is between the wire and the application, or that an interrupt took away from there."""

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
        if self._taking:
            self._go_back(sys._getframe())  # noqa: SLF001 - as inspect does
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
        """Return the group's committed offsets, with the application's own metadata."""
        return [as_committed(found) for found in _C.committed(self, partitions, timeout)]

    def clamped(self, positions: list[TopicPartition]) -> list[TopicPartition]:
        """Return positions held back to where a restart loses nothing, with watermarks in their metadata."""
        if not self._chained:
            return positions
        self._go_back(sys._getframe())  # noqa: SLF001
        return [self._safe(partition) for partition in positions]

    @unless_chained(_C.consumer_group_metadata)
    def consumer_group_metadata(self) -> Any:
        """Return the group metadata, by which a transaction's offsets find this consumer again."""
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
        for place, (position, leader_epoch) in positions.items() if self._stores else ():
            self._store_offset(self._offsets.stored(place, position, None, leader_epoch))

    def _note_refused(self, offset: TopicPartition) -> None:
        """Have the offset behind a refused record committed, for the application may die of it at once."""
        if not self._commits_s:
            return
        if time.monotonic() >= self._next_refused_commit:
            self._refused_offsets.pop(place_of(offset), None)
            self._commit_at_once([offset])
            return
        self._refused_offsets[place_of(offset)] = offset
        _uncommitted.add(self)

    def _commit_refused(self) -> None:
        """Commit the offsets behind refused records, but not in each call where there is a flood of them.

        What is left then is committed by a later call, or when the consumer or the process ends.
        """
        if time.monotonic() >= self._next_refused_commit:
            self._commit_refused_now()

    def _commit_refused_now(self) -> None:
        """Commit what is left, but never back to where a commit since has gone on from."""
        left = list(self._refused_offsets.values())
        if not left:
            return
        try:
            known = {place_of(found): _reach(found) for found in _C.committed(self, left, _COMMIT_TIMEOUT_S)}
        except (KafkaException, RuntimeError) as error:
            self._not_committed(error)
            return
        self._commit_at_once([offset for offset in left if _reach(offset) > known[place_of(offset)]])
        self._refused_offsets.clear()
        _uncommitted.discard(self)

    def _commit_at_once(self, offsets: list[TopicPartition]) -> None:
        self._next_refused_commit = time.monotonic() + _BETWEEN_COMMITS_S
        if not offsets:
            return
        try:
            _c_commit(self, offsets=offsets, asynchronous=True)
            # A synchronous commit has no timeout. The coordinator answers in order, so the commit is done.
            _C.committed(self, offsets, _COMMIT_TIMEOUT_S)
        except (KafkaException, RuntimeError) as error:
            self._not_committed(error)

    def _not_committed(self, error: Exception) -> None:
        _log.warning("the offset behind a refused record was not committed at once: %s", str(error))
        # Not in each call, for each waits for an answer that does not come.
        self._next_refused_commit = time.monotonic() + _AFTER_A_FAILURE_S

    def __del__(self) -> None:
        # Not by the set: the cycle collector has taken the consumer out of it by now.
        if getattr(self, "_refused_offsets", None):
            self._commit_refused_now()

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
        """Return the topic on the wire, and the interceptors' state, of a message that was delivered."""
        headers = message.headers()
        if headers.__class__ is MessageHeaders:
            return headers.topic, headers.local
        return message.topic() or "", None


def _commit_at_exit() -> None:
    for consumer in list(_uncommitted):
        consumer._commit_refused_now()  # noqa: SLF001 - the client itself


def _forget_in_child() -> None:
    """Leave it to the parent, for a forked child has neither its threads nor its membership."""
    for consumer in list(_uncommitted):
        consumer._refused_offsets.clear()  # noqa: SLF001 - as above
    _uncommitted.clear()


atexit.register(_commit_at_exit)
os.register_at_fork(after_in_child=_forget_in_child)


def _reach(partition: TopicPartition) -> tuple[int, int]:
    """Return how far a commit goes: its offset, then what was delivered beyond it."""
    return partition.offset, unwrapped(partition.metadata)[0] or 0


def _is_good(message: Any) -> bool:
    """Return whether confluent-kafka would take the message for a position."""
    return type(message) is Message and message.error() is None
