"""A worker's progress in each partition: the position below which records are done, and the pending offsets.

The progress is the committed offset of a group, with its metadata (:mod:`headerware.core.commit_metadata`),
so no state is kept outside of the topics: a worker that starts later, or gets a partition, goes on from
there.
"""

from __future__ import annotations

from bisect import bisect_left
from operator import neg
from typing import TYPE_CHECKING, Final, NamedTuple

from confluent_kafka import TopicPartition

from headerware.core.commit_metadata import PendingOffsets, decode_metadata
from headerware.core.errors import HeaderwareError, position

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headerware.core.services import TopicPartitionKey


class Commit(NamedTuple):
    """The offset and the metadata to commit for a partition."""

    offset: int
    metadata: str | None


class _Partition:
    __slots__ = ("begin", "committed", "pending", "position", "unread")

    def __init__(self, begin: int, pending: frozenset[int], committed: Commit | None) -> None:
        self.begin: Final = begin
        self.unread = sorted(pending, reverse=True)
        """The pending offsets that were not read again yet, the first of them at the end."""
        self.position = begin
        self.pending: Final = PendingOffsets(pending)
        self.committed = committed


class Done:
    """Note the progress in each partition, and return the offsets to commit; for one caller at a time.

    Args:
        group_id: the group, for messages.
        own: the own metadata of this worker's commits, which identifies its task; a group with other metadata
            has another task.
    """

    def __init__(self, group_id: str, *, own: str | None = None) -> None:
        self._group: Final = group_id
        self._own: Final = own
        self._partitions: Final[dict[TopicPartitionKey, _Partition]] = {}
        self._changed: Final[set[TopicPartitionKey]] = set()
        self.deleted: int = 0
        """How many offsets the topics have lost before they were done."""

    def begin(self, key: TopicPartitionKey, low: int, high: int, committed: tuple[int, str] | None) -> int:
        """Begin with a partition, and return the offset at which to begin to read.

        Args:
            key: the partition.
            low: its first offset.
            high: the offset at which it ends.
            committed: the offset and the metadata that the group has committed, or None.

        Raises:
            HeaderwareError: the group has another task, or its progress is beyond the end of the partition.
        """
        if committed is None:
            self._partitions[key] = _Partition(low, frozenset(), None)
            return low
        offset, metadata = committed
        found = decode_metadata(offset, metadata)
        done = offset if found.position is None else found.position
        if found.own != self._own:
            raise HeaderwareError(
                f"group {self._group} has committed offsets of {key[0]} for something else; name another "
                f"group, or delete its offsets"
            )
        if done > high:
            raise HeaderwareError(
                f"group {self._group} is done with {position(*key, None)} up to offset {done}, but it ends "
                f"at {high}: the topic was made again; delete the offsets of the group, or name another group"
            )
        pending = frozenset(each for each in found.pending if each >= low)
        gone = len(found.pending) - len(pending) + max(0, low - done)
        self.deleted += gone
        self._partitions[key] = _Partition(max(low, done), pending, Commit(offset, metadata or None))
        if gone:
            self._changed.add(key)
        return min(pending, default=max(low, done))

    def forget(self, keys: Iterable[TopicPartitionKey]) -> None:
        """Forget partitions that others may have now; records without a commit are processed again."""
        for key in keys:
            self._partitions.pop(key, None)
            self._changed.discard(key)

    @property
    def partitions(self) -> list[TopicPartitionKey]:
        """The partitions that were begun."""
        return [*self._partitions]

    def position(self, key: TopicPartitionKey) -> int:
        """Return the offset below which all records except pending ones are done."""
        return self._partitions[key].position

    def pending(self, key: TopicPartitionKey) -> PendingOffsets:
        """Return the pending offsets below the position."""
        return self._partitions[key].pending

    def was_done(self, key: TopicPartitionKey, offset: int) -> bool:
        """Return whether a record was done before this worker began with its partition."""
        partition = self._partitions[key]
        if offset >= partition.begin:
            return False
        unread = partition.unread
        at = bisect_left(unread, -offset, key=neg)
        return unread[at : at + 1] != [offset]

    def read(self, key: TopicPartitionKey, offset: int) -> None:
        """Note that a record was read; earlier pending records that did not come before it are gone."""
        self._pass(key, offset)
        unread = self._partitions[key].unread
        if unread and unread[-1] == offset:
            unread.pop()

    def _pass(self, key: TopicPartitionKey, offset: int) -> None:
        """Note that pending records below an offset are gone: compaction by the broker removes some."""
        partition = self._partitions[key]
        while partition.unread and partition.unread[-1] < offset:
            if (gone := partition.unread.pop()) in partition.pending:
                self.note(key, gone)
                self.deleted += 1

    def read_again(self, key: TopicPartitionKey, offsets: Iterable[int]) -> None:
        """Note that pending records, which were read, will come once more."""
        partition = self._partitions[key]
        partition.unread = sorted({*partition.unread, *offsets}, reverse=True)

    def note(self, key: TopicPartitionKey, offset: int, *, is_pending: bool = False) -> None:
        """Note that a record is done, or that it is pending; the same record may come again."""
        partition = self._partitions[key]
        (partition.pending.add if is_pending else partition.pending.discard)(offset)
        partition.position = max(partition.position, offset + 1)
        self._changed.add(key)

    def reached(self, key: TopicPartitionKey, offset: int) -> None:
        """Note that nothing is left below an offset: markers of transactions may follow the last record."""
        self._pass(key, offset)
        partition = self._partitions[key]
        if partition.position < offset:
            partition.position = offset
            self._changed.add(key)

    def commits(self, *, everything: bool = False) -> dict[TopicPartitionKey, Commit]:
        """Return the commits of the partitions that have changed, or of all partitions.

        Raises:
            WireFormatError: there are more pending offsets than a commit can note.
        """
        found = {key: self.commit_of(key) for key in (self._partitions if everything else self._changed)}
        return {key: each for key, each in sorted(found.items()) if everything or self._is_new(key, each)}

    def commit_of(self, key: TopicPartitionKey) -> Commit:
        """Return the commit of a partition.

        Raises:
            WireFormatError: there are more pending offsets than a commit can note.
        """
        partition = self._partitions[key]
        return Commit(*partition.pending.encode(partition.position, self._own))

    def _is_new(self, key: TopicPartitionKey, commit: Commit) -> bool:
        return commit != self._partitions[key].committed

    def committed(self, commits: dict[TopicPartitionKey, Commit]) -> None:
        """Note that these commits were made."""
        for key, commit in commits.items():
            if (partition := self._partitions.get(key)) is not None:
                partition.committed = commit
        self._changed.clear()


def topic_partitions(commits: dict[TopicPartitionKey, Commit]) -> list[TopicPartition]:
    """Return commits as confluent-kafka takes them."""
    return [
        TopicPartition(*key, offset) if metadata is None else TopicPartition(*key, offset, metadata)
        for key, (offset, metadata) in commits.items()
    ]
