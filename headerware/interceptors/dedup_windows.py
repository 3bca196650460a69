"""Identities that were seen, in memory: bounded for each producer, and in all."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from headerware.interceptors.dedup_wire import MARK_AT

if TYPE_CHECKING:
    from headerware.core.record import Record

PRODUCERS_MAX: Final = 10_000

_Generations = list[dict[bytes, int]]
"""Two: what came lately, and what came before that."""


class MemoryWindows:
    """Remember where each identity stood first.

    The same identity in the same place is a record read again, as after a seek or a restart; anywhere else
    it is a copy. What has left its window is not known any more, so that an old copy passes. Each source (a
    producer, or the scope of digests) has a window of its own, so that none pushes out another's; those not
    heard of for longest go first and whole. Not safe for use by several threads at once.

    Args:
        window: how many identities of one source to remember at least; at most twice as many are.
        max_identities: how many to remember in all.
    """

    __slots__ = ("_generations", "_held", "_latest", "_max_identities", "_sources", "_window")

    def __init__(self, window: int, max_identities: int) -> None:
        self._window = window
        self._max_identities = max_identities
        self._sources: OrderedDict[bytes, _Generations] = OrderedDict()
        self._held = 0
        self._latest = b""
        self._generations: _Generations = [{}, {}]

    def __len__(self) -> int:
        """Count the identities that are remembered."""
        return self._held

    def is_duplicate(self, identity: bytes, record: Record) -> bool:
        """Remember a record, or tell that it has come before from another place.

        Args:
            identity: what the record is known by.
            record: the record, for its place. One without an offset is never a record read again.
        """
        source = identity[:MARK_AT]
        recent, earlier = self._generations if source == self._latest else self._turn_to(source)
        mark = identity[MARK_AT:]
        offset = record.offset
        # A place is kept by its hash. Where two places have the same one, a copy passes, and nothing is lost.
        place = hash((record.topic, record.partition, offset))
        seen = recent.get(mark)
        if seen is None:
            seen = earlier.get(mark)
            if seen is None:
                recent[mark] = place
                self._held += 1
                if len(recent) >= self._window or self._held > self._max_identities:
                    self._make_room()
                return False
        return seen != place or offset is None

    def _turn_to(self, source: bytes) -> _Generations:
        sources = self._sources
        generations = sources.get(source)
        if generations is None:
            generations = sources[source] = [{}, {}]
            if len(sources) > PRODUCERS_MAX:
                self._forget_oldest()
        else:
            sources.move_to_end(source)
        self._latest, self._generations = source, generations
        return generations

    def _make_room(self) -> None:
        # Generations rather than one queue: dropping the oldest of a dict one by one takes ever longer.
        recent, earlier = self._generations
        if len(recent) >= self._window:
            self._held -= len(earlier)
            self._generations[:] = {}, recent
        while self._held > self._max_identities and len(self._sources) > 1:
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        _, forgotten = self._sources.popitem(last=False)
        self._held -= sum(map(len, forgotten))
