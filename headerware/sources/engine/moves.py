"""Objects that go on under another key, such as logs that are rotated.

The offset of a log is stored by its path. After a rotation another file has that path, and the former file
has a new one. The former file is read first, from its last known record on, and its offset is stored under
the new path. The offset of the new file replaces the old one, and the place with it.
Files say by :meth:`~headerware.sources.NativeItem.continues` which file they were.
"""

from __future__ import annotations

from collections import defaultdict, deque
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headerware.core.errors import SourceError
from headerware.sources.engine.decision import Decision, decide, offset_key
from headerware.sources.source import NativeItem

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from headerware.sources.config import SourceConfig
    from headerware.sources.offsets import OffsetEntry, OffsetKey, Offsets

_FORMER: Final = 1_000


class _Place(NamedTuple):
    """How far an object was read under a key."""

    native_key: Any
    entry: OffsetEntry


class Moves:
    """Find the object that another one continues; for one thread.

    Args:
        config: what is read.
        offsets: how far objects were read.
    """

    def __init__(self, config: SourceConfig, offsets: Offsets) -> None:
        self._config: Final = config
        self._offsets: Final = offsets
        self._found: dict[OffsetKey, _Place] | None = None
        """The places that were stored at the first look, and those of objects that were read since."""
        self._alike: Final[defaultdict[str, dict[OffsetKey, _Place]]] = defaultdict(dict)
        """The same places, by the beginnings of their versions."""
        self._former: Final[deque[_Place]] = deque(maxlen=_FORMER)
        """The latest places whose keys other objects have taken, such as in the middle of a rename."""
        self._lengths: Final[set[str]] = set()
        """The lengths that the beginnings of these versions state."""
        self.happen: bool = False
        """Whether objects may move. They may come before known keys, so each listing is whole then."""

    def note(self, item: NativeItem, key: OffsetKey, entry: OffsetEntry) -> None:
        """Note how far an object was read."""
        if not _follows(item):
            return
        if (before := self._places().pop(key, None)) is not None:
            self._alike[_beginning(before)].pop(key, None)
            if self.is_other(item, before.entry):
                self._former.append(before)
        self._put(key, _Place(item.context.key, entry))

    def is_other(self, item: NativeItem, entry: OffsetEntry | None) -> bool:
        """Return whether an object is not the one of an offset, as far as objects can tell."""
        if not _follows(item):
            return False
        self.happen = True
        version = None if entry is None else entry.version
        return version is None or not (version == item.context.version or item.extends(version))

    def to_read_first(
        self, item: NativeItem, listing: Callable[[], Generator[NativeItem, None, None]]
    ) -> list[NativeItem]:
        """Return the objects whose offsets would be lost if an object were read before them, in order.

        One continues what had the object's key. If that one has taken the key of another object, there is a
        second one, and so on: the last one comes first. Objects that have swapped keys end the search.
        """
        found = {item.context.key: item}
        while (successor := self._successor(item, listing)) is not None:
            if successor.context.key in found:
                break
            found[successor.context.key] = item = successor
        return list(found.values())[:0:-1]

    def _successor(
        self, item: NativeItem, listing: Callable[[], Generator[NativeItem, None, None]]
    ) -> NativeItem | None:
        """Return the object that continues the one that had an object's key before, if there is one."""
        key = item.context.key
        try:
            entry = self._offsets.get(offset_key(self._config, key))
        except SourceError:  # no store can keep its offset
            return None
        version = None if entry is None else entry.version
        if version is None or not self.is_other(item, entry):
            return None
        with closing(listing()) as listed:
            return next(
                (each for each in listed if each.context.key != key and each.continues(key, version)), None
            )

    def decide(self, item: NativeItem, entry: OffsetEntry | None) -> Decision:
        """Return what is done with an object; one that was read under another key goes on where it was."""
        moved = self._moved(item) if self.is_other(item, entry) else None
        return decide(self._config, item, entry) if moved is None else moved

    def _moved(self, item: NativeItem) -> Decision | None:
        """Return where an object goes on that was read under another key, or None if it was not."""
        former = [
            each.entry
            for each in (*self._candidates(item), *self._former)
            if each.native_key != item.context.key
            and each.entry.version is not None
            and item.continues(each.native_key, each.entry.version)
        ]
        if not former:
            return None
        entry = max(former, key=lambda each: each.record_number)
        found = decide(self._config, item, entry)
        if found.action == "read":
            return found
        # Its offset is stored under the new key, too.
        return Decision("read", f"{found.why}, under another key", entry.record_number, entry.properties)

    def _candidates(self, item: NativeItem) -> Iterator[_Place]:
        """Yield the places whose versions begin as an object does; only these need a comparison."""
        self._places()
        for beginning in item.beginnings(self._lengths):
            yield from self._alike.get(beginning, {}).values()

    def _put(self, key: OffsetKey, place: _Place) -> None:
        self._places()[key] = place
        beginning = _beginning(place)
        self._alike[beginning][key] = place
        self._lengths.add(beginning.partition(":")[0])

    def _places(self) -> dict[OffsetKey, _Place]:
        if self._found is None:
            keys, self._found = self._config.source.keys, {}
            for key, entry in self._offsets.items():
                text = key.partition.get("object", {}).get("key")
                if isinstance(text, str) and keys is not None:
                    self._put(key, _Place(keys.from_text(text), entry))
        return self._found


def _beginning(place: _Place) -> str:
    return (place.entry.version or "").partition(".")[0]


def _follows(item: NativeItem) -> bool:
    """Return whether an object can tell which one it continues."""
    return type(item).continues is not NativeItem.continues
