"""Follow objects that continue under another key, such as rotated logs.

The offset of a log is stored under its path. After a rotation, another file has this path, and the former
file has a new path. The former file is read first, from its last stored record on, and its offset is stored
under the new path. Otherwise the offset of the new file would replace the offset of the former file. Files
tell with :meth:`~headerware.sources.NativeItem.continues` which file they were.
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


class _Progress(NamedTuple):
    """How far an object was read under a key."""

    native_key: Any
    entry: OffsetEntry


class Moves:
    """Find the former key of an object; for one thread.

    Args:
        config: the configuration of the source.
        offsets: the stored offsets.
    """

    def __init__(self, config: SourceConfig, offsets: Offsets) -> None:
        self._config: Final = config
        self._offsets: Final = offsets
        self._found: dict[OffsetKey, _Progress] | None = None
        """The progress of all objects: the offsets stored at the first use, and those of later readings."""
        self._alike: Final[defaultdict[str, dict[OffsetKey, _Progress]]] = defaultdict(dict)
        """The same, by the beginnings of the objects' versions."""
        self._former: Final[deque[_Progress]] = deque(maxlen=_FORMER)
        """The latest progress of objects whose keys now belong to other objects, as during a rename."""
        self._lengths: Final[set[str]] = set()
        """The lengths in the beginnings of these versions."""
        self.happen: bool = False
        """Whether objects may move; then each listing is complete, as new keys may be before known keys."""

    def note(self, item: NativeItem, key: OffsetKey, entry: OffsetEntry) -> None:
        """Remember how far an object was read."""
        if not _follows(item):
            return
        if (before := self._progress().pop(key, None)) is not None:
            self._alike[_beginning(before)].pop(key, None)
            if self.is_other(item, before.entry):
                self._former.append(before)
        self._put(key, _Progress(item.context.key, entry))

    def is_other(self, item: NativeItem, entry: OffsetEntry | None) -> bool:
        """Return whether an object is not the object of an offset, as far as its version tells."""
        if not _follows(item):
            return False
        self.happen = True
        version = None if entry is None else entry.version
        return version is None or not (version == item.context.version or item.extends(version))

    def to_read_first(
        self, item: NativeItem, listing: Callable[[], Generator[NativeItem, None, None]]
    ) -> list[NativeItem]:
        """Return the objects that must be read before an object, in order, or their offsets would be lost.

        The former owner of the object's key has a new key. If a third object had that key, the third object
        must be read before it, and so on; the last one found is read first. Objects that have swapped keys
        end the search.
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
        """Return the object that had an object's key before and has another key now, or None."""
        key = item.context.key
        try:
            entry = self._offsets.get(offset_key(self._config, key))
        except SourceError:  # the offset cannot be stored
            return None
        version = None if entry is None else entry.version
        if version is None or not self.is_other(item, entry):
            return None
        with closing(listing()) as listed:
            return next(
                (each for each in listed if each.context.key != key and each.continues(key, version)), None
            )

    def decide(self, item: NativeItem, entry: OffsetEntry | None) -> Decision:
        """Return the decision about an object; an object that has moved continues from its former offset."""
        moved = self._moved(item) if self.is_other(item, entry) else None
        return decide(self._config, item, entry) if moved is None else moved

    def _moved(self, item: NativeItem) -> Decision | None:
        """Return the decision about an object that was read under another key; None if it was not."""
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
        # Read it, so that its offset is stored under the new key.
        return Decision("read", f"{found.why}, under another key", entry.record_number, entry.properties)

    def _candidates(self, item: NativeItem) -> Iterator[_Progress]:
        """Yield the progress of objects whose versions have the same beginning; only these can match."""
        self._progress()
        for beginning in item.beginnings(self._lengths):
            yield from self._alike.get(beginning, {}).values()

    def _put(self, key: OffsetKey, progress: _Progress) -> None:
        self._progress()[key] = progress
        beginning = _beginning(progress)
        self._alike[beginning][key] = progress
        self._lengths.add(beginning.partition(":")[0])

    def _progress(self) -> dict[OffsetKey, _Progress]:
        if self._found is None:
            keys, self._found = self._config.source.keys, {}
            for key, entry in self._offsets.items():
                text = key.partition.get("object", {}).get("key")
                if isinstance(text, str) and keys is not None:
                    self._put(key, _Progress(keys.from_text(text), entry))
        return self._found


def _beginning(progress: _Progress) -> str:
    return (progress.entry.version or "").partition(".")[0]


def _follows(item: NativeItem) -> bool:
    """Return whether an object can tell its former key."""
    return type(item).continues is not NativeItem.continues
