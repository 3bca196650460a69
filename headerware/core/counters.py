"""The counters of one client, over all sessions that have taken each other's place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from threading import RLock

CountsByName = Callable[[], Mapping[str, Mapping[str, int]]]
"""Returns the counters of one session, by interceptor."""


class Counters:
    """Return the counters of a client by interceptor, whichever sessions have taken each other's place.

    What a closed session has counted stays, so that a counter never falls; what was pending there does not.
    """

    __slots__ = ("__weakref__", "_closed", "_lock", "_open")

    def __init__(self) -> None:
        self._lock = RLock()
        self._open: list[CountsByName] = []
        self._closed: dict[str, dict[str, int]] = {}

    def __call__(self) -> Mapping[str, Mapping[str, int]]:
        with self._lock:
            found = {name: dict(counts) for name, counts in self._closed.items()}
            for stats in self._open:
                _add_counts(found, stats())
        return found

    def add(self, stats: CountsByName, take_over: Callable[[], None]) -> None:
        """Count a session, too, once it has taken over what goes on in it; nobody sees what is between."""
        with self._lock:
            take_over()
            self._open.append(stats)

    def close(self, stats: CountsByName) -> None:
        """Keep what a session has counted, and let go of it."""
        with self._lock:
            lasting = {
                name: {what: count for what, count in counts.items() if not what.startswith("pending")}
                for name, counts in stats().items()
            }
            _add_counts(self._closed, lasting)
            self._open.remove(stats)


def _add_counts(found: dict[str, dict[str, int]], more: Mapping[str, Mapping[str, int]]) -> None:
    for name, counts in more.items():
        own = found.setdefault(name, {})
        for what, count in counts.items():
            own[what] = own.get(what, 0) + count
