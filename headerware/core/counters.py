"""The counters of one client, added up over the sessions that have replaced each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from threading import RLock

CountsByName = Callable[[], Mapping[str, Mapping[str, int]]]
"""Returns the counters of one session, by interceptor."""


class Counters:
    """Add up the counters of a client's sessions, by interceptor.

    The counts of a closed session are kept, so that a counter never falls, except its numbers of pending
    things.
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
        """Call ``take_over``, which moves state into a new session, and add the session; readers see both."""
        with self._lock:
            take_over()
            self._open.append(stats)

    def close(self, stats: CountsByName) -> None:
        """Keep the counts of a session, and drop the reference to it."""
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
