"""Offsets: what was delivered, what of it is safe to commit, and the watermark in between.

The metadata of a commit, as text (spec/commit-metadata.md):

    hw1:<watermark>:<the application's own metadata>

where the watermark is the decimal offset below which everything was delivered; it is absent where that
is the committed offset itself. Other text is the application's own.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any, Final

from confluent_kafka import OFFSET_INVALID, OFFSET_STORED, TopicPartition

from headerware.core.session import Session

Place = tuple[str, int]
PREFIX: Final = "hw1:"
_DIGITS: Final = 19
_LAST_OFFSET: Final = 2**63 - 1
_AS_COMMITTED: Final = frozenset({OFFSET_STORED, OFFSET_INVALID})
"""Where reading begins at the committed offset; everything else is the application's own choice."""
_log: Final = logging.getLogger("headerware")


def wrapped(watermark: int | None, own: str | None) -> str | None:
    """Return the metadata to commit; the application's own, unless there is a watermark to keep."""
    if watermark is None and not (own or "").startswith(PREFIX):
        return own
    return f"{PREFIX}{'' if watermark is None else watermark}:{own or ''}"


def unwrapped(metadata: str | None) -> tuple[int | None, str | None]:
    """Return the watermark and the application's own metadata; foreign text is the latter."""
    if metadata is None or not metadata.startswith(PREFIX):
        return None, metadata
    number, colon, own = metadata.removeprefix(PREFIX).partition(":")
    if not colon or (number and not (number.isascii() and number.isdecimal() and len(number) <= _DIGITS)):
        return None, metadata
    watermark = int(number) if number else None
    # No offset is that large: whoever wrote this, it would keep the partition silent for ever.
    return (
        (None, metadata) if watermark is not None and watermark > _LAST_OFFSET else (watermark, own or None)
    )


def place_of(partition: TopicPartition) -> Place:
    """Return the topic and number of a partition."""
    return partition.topic, partition.partition


def positioned(
    place: Place, offset: int, metadata: str | None = None, leader_epoch: int | None = None
) -> TopicPartition:
    """Make a TopicPartition; its constructor refuses None for what is absent."""
    topic, partition = place
    given = {"metadata": metadata, "leader_epoch": leader_epoch}
    known: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    return TopicPartition(topic, partition, offset, **known)


def as_committed(partition: TopicPartition) -> TopicPartition:
    """Return a result of confluent-kafka's with the application's own metadata in it."""
    _, own = unwrapped(partition.metadata)
    if own == partition.metadata or partition.error is not None:
        return partition
    return positioned(place_of(partition), partition.offset, own, partition.leader_epoch)


class Offsets:
    """Hold offsets back to where a restart loses nothing, and remember what was delivered beyond.

    Args:
        session: knows which records are incomplete.
        first_waiting: gives the smallest offset of a partition that the application has not taken yet, or
            None where it has taken everything.
    """

    def __init__(self, session: Session, first_waiting: Callable[[Place], int | None]) -> None:
        self._session = session
        self._first_waiting = first_waiting
        self.gathers: Final = session.reassembles
        self._fresh: set[Place] = set()
        self._watermarks: dict[Place, int] = {}
        self._positions: dict[Place, tuple[int, str | None]] = {}
        self._held: dict[Place, TopicPartition] = {}
        self._uncommitted: set[Place] = set()

    # What may be committed

    def safe(
        self, place: Place, position: int, own: str | None = None, leader_epoch: int | None = None
    ) -> TopicPartition:
        """Return what to commit for a position."""
        waiting = self._first_waiting(place)
        if waiting is not None and waiting < position:
            position, leader_epoch = waiting, None
        if not self.gathers or position < 0:
            return positioned(place, position, wrapped(None, own), leader_epoch)
        safe = self._session.safe_offset(*place, position)
        delivered = max(position, self._watermarks.get(place, 0))
        if safe >= delivered:
            return positioned(place, position, wrapped(None, own), leader_epoch)
        # The epoch is that of the position, so it says nothing about an earlier offset.
        return positioned(place, safe, wrapped(delivered, own), leader_epoch if safe == position else None)

    def stored(
        self, place: Place, position: int, own: str | None = None, leader_epoch: int | None = None
    ) -> TopicPartition:
        """Note that everything before a position is delivered, and give what to store for it."""
        safe = self.safe(place, position, own, leader_epoch)
        if not self.gathers or position < 0:
            return safe
        self._positions[place] = position, own
        if safe.offset < position or place in self._watermarks:
            known = self._held.get(place)
            if known is None or (known.offset, known.metadata) != (safe.offset, safe.metadata):
                self._held[place] = safe
                self._uncommitted.add(place)
        elif self._held.pop(place, None) is not None:
            self._uncommitted.discard(place)
        return safe

    def refreshed(self) -> list[TopicPartition]:
        """Return what to store for held partitions, now that something may have expired."""
        return [self.stored(place, *self._positions[place]) for place in list(self._held)]

    def watermarked(self, *, everything: bool = False) -> list[TopicPartition]:
        """Return what only an explicit commit can bring to the broker, and take it for committed.

        librdkafka commits a stored offset only when it is larger than the committed one, and so misses a
        watermark that rose above the same safe offset.
        """
        places = [place for place in self._held if everything or place in self._uncommitted]
        self._uncommitted.clear()
        return [self._held[place] for place in places]

    # What was delivered before

    def assigned(self, partitions: Iterable[TopicPartition]) -> None:
        """Note partitions whose reading begins where a consumer before this one may have left a watermark."""
        for partition in partitions:
            place = place_of(partition)
            self.forget([place])
            if self.gathers and partition.offset in _AS_COMMITTED:
                self._fresh.add(place)

    def take_fresh(self, place: Place) -> bool:
        """Return whether a partition's committed metadata is still to be read, which the caller now does."""
        if place not in self._fresh:
            return False
        self._fresh.discard(place)
        return True

    def recall(self, place: Place, committed: TopicPartition, offset: int, end: Callable[[], int]) -> None:
        """Take over the watermark of an earlier consumer, if reading began at its committed offset.

        ``end`` asks for the partition's end. Nobody can have been given a record beyond it, so a watermark
        beyond it is false and would keep new records from the application.
        """
        watermark, _ = unwrapped(committed.metadata)
        if watermark is None or not committed.offset <= offset < watermark:
            return
        if watermark <= (last := end()):
            self._watermarks[place] = watermark
            return
        _log.warning(
            "the committed watermark %d of %s[%d] is beyond the partition's end %d, so it is ignored and "
            "records may repeat: somebody in the group wrote it, or the topic lost records",
            *(watermark, *place, last),
        )

    def moved(self, place: Place, begin: int, wanted: int) -> None:
        """Note a seek that begins before what was wanted, so that what lies between is not delivered."""
        self.forget([place])
        if begin < wanted:
            self._watermarks[place] = wanted

    def resumed(self, place: Place, begin: int, wanted: int) -> None:
        """Note that reading goes on before what is wanted, after an interrupt."""
        if begin < wanted:
            self._watermarks[place] = max(wanted, self._watermarks.get(place, 0))

    def held(self, place: Place, position: int) -> int:
        """Return where the oldest message began that was not whole, or the position."""
        held = self._held.get(place)
        return position if held is None else min(position, held.offset)

    def was_delivered(self, place: Place, offset: int) -> bool:
        """Whether a record at this offset was delivered before; the watermark goes once it is passed."""
        watermark = self._watermarks.get(place)
        if watermark is None:
            return False
        if offset < watermark:
            return True
        del self._watermarks[place]
        return False

    def forget(self, places: Iterable[Place]) -> None:
        """Forget partitions that have gone or begin anew."""
        for place in places:
            self._fresh.discard(place)
            self._watermarks.pop(place, None)
            self._positions.pop(place, None)
            self._held.pop(place, None)
            self._uncommitted.discard(place)
