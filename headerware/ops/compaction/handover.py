"""Let a job of many tasks do the worker's copy, and let the worker go on where the job has ended.

The worker's offsets are those of its group, and a job's tasks cannot share its transactional id. So a job
claims the copy: in a transaction under the worker's id, which ends a worker that runs, it commits the offsets
again, with a name of its own in their metadata. A worker that finds a claim does not begin. Each task copies
partitions, each under an id of that partition; how far it has come is committed to a group of the job, in the
transaction of what it writes. At its end the job commits the worker's offsets without a claim.

A job that was killed leaves its claim, and the next one takes it over. Then a task of the killed one may
still run, so the order counts. The next job commits its own claim; then it ends all tasks by their ids; then
it reads how far they have come. A task opens its id, and then looks for the claim: either it did that before,
and is ended, or it finds that the claim is another's.

Claims that take over from one another are a series, named by the first. What tasks have committed counts in
their series alone: where nobody has a claim, the worker's offsets say it all, also if the group was deleted.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec
from confluent_kafka import TopicPartition

from headerware.core.errors import HeaderwareError, position
from headerware.kafka.reader import TopicReader
from headerware.ops.transactions import TransactionalSender

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from confluent_kafka import KafkaError

    from headerware.core.record import Record

    Fence = Callable[[Sequence[str]], object]

_METADATA: Final = "hwc1:"
Offsets = dict[int, tuple[int, str]]
"""Committed offsets with their metadata, by partition."""


class Copied(msgspec.Struct, frozen=True, kw_only=True):
    """Up to where a copy is done, as its group has it; it may be pickled.

    Args:
        conf: the settings of a client of confluent-kafka.
        source: the topic that is read.
        group: the group whose offsets say what is done, and the worker's transactional id.
        purpose: says which copy it is: by which rule, from which topic into which.
        timeout_s: how long the cluster may take to answer, in seconds.
    """

    conf: dict[str, Any]
    source: str
    group: str
    purpose: str
    timeout_s: float

    @property
    def metadata(self) -> str:
        """The metadata of the worker's offsets."""
        return _METADATA + self.purpose

    def is_claimed(self, metadata: str) -> bool:
        """Return whether a job has claimed an offset with this metadata."""
        return metadata.startswith(f"{self.metadata}:")

    def offsets(self, number: int | None = None) -> Offsets:
        """Return what the group has committed, also by a claim, of all partitions or of one.

        Raises:
            HeaderwareError: it has done something else.
        """
        with self._reader(self.group, number) as reader:
            committed = reader.committed()
        for metadata in {metadata for _, metadata in committed.values()}:
            if metadata != self.metadata and not self.is_claimed(metadata):
                raise HeaderwareError(
                    f"group {self.group} has read {self.source} for something else: by another rule, or "
                    f"from or into a topic that was made again; name another group (--group) and a new "
                    f"target, or delete the group and what it has written"
                )
        return committed

    def positions(self) -> dict[int, int]:
        """Return up to where the worker and jobs are done; no job runs, or they may be further.

        Raises:
            HeaderwareError: the group has done something else.
        """
        found = self.offsets()
        done = {each: offset for each, (offset, _) in found.items()}
        series = self._series(found)
        return done if series is None else self._with_progress(done, series)

    def claim(self, job: str, begins: Mapping[int, int], fence: Fence) -> dict[int, int]:
        """Claim the copy for a job, and return up to where it is done. The worker and other jobs end.

        Args:
            job: its name, which no other has.
            begins: where the partitions begin, for those that are not begun.
            fence: ends all that has one of some transactional ids.

        Raises:
            HeaderwareError: the group has done something else.
            confluent_kafka.KafkaException: the cluster refuses what it is asked.
        """
        with closing(self._sender(self.group)) as sender:
            found = self.offsets()
            done = {each: offset for each, (offset, _) in found.items()}
            return self._take(sender, {**begins, **done}, self._series(found) or job, job, fence)

    def release(self, job: str, ends: Mapping[int, int]) -> None:
        """Say where a job has ended that has done all; the worker goes on from there.

        Raises:
            HeaderwareError: another job has taken over.
            confluent_kafka.KafkaException: the cluster refuses what it is asked.
        """
        with closing(self._sender(self.group)) as sender:
            claimed, _ = self._claimed(job)
            self._commit(sender, {each: max(at, ends.get(each, at)) for each, at in claimed.items()})

    def give_up(self, job: str, fence: Fence) -> None:
        """Say how far a job has come that has failed; its tasks end, and the worker may do the rest.

        Raises:
            HeaderwareError: another job has taken over.
            confluent_kafka.KafkaException: the cluster refuses what it is asked.
        """
        with closing(self._sender(self.group)) as sender:
            claimed, series = self._claimed(job)
            self._commit(sender, self._take(sender, claimed, series, f"{job}-failed", fence))

    def partition(self, job: str, number: int) -> PartitionCopy:
        """Begin to copy a partition in a task of a job; whoever copies it is ended."""
        return PartitionCopy(self, job, number)

    def _take(
        self, sender: TransactionalSender, done: Mapping[int, int], series: str, job: str, fence: Fence
    ) -> dict[int, int]:
        self._commit(sender, done, series, job)
        fence([self._task_id(number) for number in done])
        return self._with_progress(done, series)

    def _with_progress(self, done: Mapping[int, int], series: str) -> dict[int, int]:
        progress, _ = self._progress(series)
        return {each: max(offset, progress.get(each, 0)) for each, offset in done.items()}

    def _series(self, found: Offsets) -> str | None:
        """Return which series of claims offsets belong to; None if no job has claimed them."""
        claims = [metadata for _, metadata in found.values() if self.is_claimed(metadata)]
        return claims[0].removeprefix(f"{self.metadata}:").partition(":")[0] if claims else None

    def _claimed(self, job: str, number: int | None = None) -> tuple[dict[int, int], str]:
        """Return the offsets that a job has claimed, all of them or that of one partition, and its series.

        Raises:
            HeaderwareError: another has.
        """
        found = self.offsets(number)
        series = self._series(found)
        if series is None or any(metadata != self._claim(series, job) for _, metadata in found.values()):
            raise HeaderwareError(
                f"another job has taken over the copy of {self.source}, or the offsets of group {self.group} "
                f"have changed or expired; what this job had not finished is undone"
            )
        return {each: offset for each, (offset, _) in found.items()}, series

    def _claim(self, *names: str) -> str:
        return ":".join((self.metadata, *names))

    def _progress(self, series: str, number: int | None = None) -> tuple[dict[int, int], Any]:
        """Return how far tasks have come in a series, and the metadata of their group."""
        with self._reader(self._job_group, number) as reader:
            committed = reader.committed()
            member = reader.group_metadata()
        own = self._claim(series)
        return {each: offset for each, (offset, metadata) in committed.items() if metadata == own}, member

    def _commit(self, sender: TransactionalSender, offsets: Mapping[int, int], *claim: str) -> None:
        with self._reader(self.group) as reader:
            metadata = self._claim(*claim)
            places = [TopicPartition(self.source, each, at, metadata) for each, at in offsets.items()]
            sender.send([], places, reader.group_metadata())

    @property
    def _job_group(self) -> str:
        return f"{self.group}-job"

    def _task_id(self, number: int) -> str:
        return f"{self._job_group}-{number}"

    def _reader(self, group: str, number: int | None = None) -> TopicReader:
        conf = {**self.conf, "isolation.level": "read_committed"}  # it waits for commits under way
        return TopicReader(conf, self.source, group_id=group, partition=number, timeout_s=self.timeout_s)

    def _sender(self, transactional_id: str) -> TransactionalSender:
        what = f"copy of {self.source}"
        return TransactionalSender(self.conf, transactional_id, what=what, timeout_s=self.timeout_s)


class PartitionCopy:
    """The copy of one partition by a task; for one caller at a time.

    Raises:
        HeaderwareError: the copy is another job's.
        confluent_kafka.KafkaException: the cluster refuses what it is asked.
    """

    def __init__(self, copied: Copied, job: str, number: int) -> None:
        self._copied: Final = copied
        self._number: Final = number
        self._sender: Final = copied._sender(copied._task_id(number))  # noqa: SLF001 - one thing in two classes
        try:
            # Only behind the sender's start: then nobody else goes on with this partition.
            claimed, series = copied._claimed(job, number)  # noqa: SLF001 - as above
            progress, self._member = copied._progress(series, number)  # noqa: SLF001 - as above
        except BaseException:
            self._sender.close()
            raise
        self._metadata: Final = copied._claim(series)  # noqa: SLF001 - as above
        self.done: Final = max(claimed[number], progress.get(number, 0))
        """Up to which offset it was copied before."""

    def send(self, records: Sequence[Record], done: int) -> None:
        """Write records, and that the partition is done up to an offset.

        Raises:
            HeaderwareError: a topic refuses a record, or another task has taken over.
            confluent_kafka.KafkaException: the cluster refuses what it is asked.
        """
        place = TopicPartition(self._copied.source, self._number, done, self._metadata)
        for index, error in self._sender.send(records, [place], self._member).items():
            text = refusal(self._copied.source, records[index], error)
            raise HeaderwareError(f"{text}; nothing of its transaction is written")

    def close(self) -> None:
        """End it; what is not committed is undone."""
        self._sender.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def refusal(source: str, record: Record, error: KafkaError) -> str:
    """Return which record of a source its new topic refuses, and why."""
    return (
        f"{record.topic} refuses the record that stands at "
        f"{position(source, record.partition, record.offset)}: {error.str()} (let it take what {source} "
        f"takes: max.message.bytes, message.timestamp.*)"
    )
