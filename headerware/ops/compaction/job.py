"""Let a job of many tasks make the worker's copy, while the worker refuses to begin.

The worker's offsets are those of its group, and a job's tasks cannot share its transactional id. So a job
marks the copy: in a transaction under the worker's id, which ends a worker that runs, it commits the offsets
of the group again, with its name in their metadata. A worker that finds the mark does not begin. Each task
copies partitions, each under an id of that partition; how far it has come is committed to a group of the job,
in the transaction of what it writes. A job that ends, also by an error, commits how far it has come without
the mark, and that it does not know which slices are pending: the worker finds them in the topic.

A job that was killed leaves its mark, and the next one goes on. Then a task of the killed one may still run,
so the order counts. The next job commits its own mark; then it ends all tasks by their ids; then it reads how
far they have come. A task opens its id, and then looks for the mark: either it did that before, and is ended,
or it finds that the mark is another's.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec
from confluent_kafka import TopicPartition

from headerware.core.commit_metadata import decode_metadata
from headerware.core.errors import HeaderwareError, position
from headerware.kafka.reader import TopicReader
from headerware.workers.transactions import TransactionalSender

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from confluent_kafka import KafkaError

    from headerware.core.record import Record

    Fence = Callable[[Sequence[str]], object]

_METADATA: Final = "hwc1:"
Offsets = dict[int, tuple[int, str]]
"""Up to where each partition is done, and the metadata that the group has committed with that."""


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

    @property
    def ended(self) -> str:
        """The metadata of the offsets that a job has committed when it has ended."""
        return self._mark("")

    def is_marked(self, offsets: Offsets) -> bool:
        """Return whether a job has marked the offsets of the group."""
        return any(metadata not in (self.metadata, self.ended) for _, metadata in offsets.values())

    def offsets(self, number: int | None = None) -> Offsets:
        """Return what the group has committed, also by a mark, of all partitions or of one.

        Raises:
            HeaderwareError: it has done something else.
        """
        with self._reader(self.group, number) as reader:
            return self.read(reader.committed())

    def read(self, committed: Mapping[int, tuple[int, str]]) -> Offsets:
        """Return what the group has committed, of offsets and metadata as the broker has them.

        Raises:
            HeaderwareError: it has done something else.
        """
        found: Offsets = {}
        for number, (offset, text) in committed.items():
            position, _, own = decode_metadata(offset, text)
            metadata = own or ""
            found[number] = offset if position is None else position, metadata
            if metadata != self.metadata and not metadata.startswith(f"{self.metadata}:"):
                raise HeaderwareError(
                    f"group {self.group} has read {self.source} for something else: by another rule, or "
                    f"from or into a topic that was made again; name another group (--group) and a new "
                    f"target, or delete the group and what it has written"
                )
        return found

    def positions(self) -> dict[int, int]:
        """Return up to where the worker and jobs are done; no job runs, or they may be further.

        Raises:
            HeaderwareError: the group has done something else.
        """
        found = self.offsets()
        return self._progress(found)[0] if self.is_marked(found) else _done(found)

    def begin(self, job: str, begins: Mapping[int, int], fence: Fence) -> dict[int, int]:
        """Mark the copy for a job, and return up to where it is done. The worker and other jobs end.

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
            done = {**begins, **_done(found)}
            known = found if self.is_marked(found) else {}
            begun = {each: at for each, at in done.items() if each not in known}
            self._commit(sender, self._job_group, begun, self.metadata)
            return self._take(sender, done, job, fence)

    def end(self, job: str, fence: Fence, ends: Mapping[int, int] | None = None) -> None:
        """End a job's tasks and remove its mark; ``ends`` says up to where all is done, if it is.

        Raises:
            HeaderwareError: another job has taken over.
            confluent_kafka.KafkaException: the cluster refuses what it is asked.
        """
        with closing(self._sender(self.group)) as sender:
            done = self._take(sender, self._marked(job), f"{job}-ended", fence)
            done = {each: max(at, (ends or {}).get(each, at)) for each, at in done.items()}
            self._commit(sender, self.group, done, self.ended)

    def partition(self, job: str, number: int) -> PartitionCopy:
        """Begin to copy a partition in a task of a job; whoever copies it is ended.

        Raises:
            HeaderwareError: the copy is another job's.
            confluent_kafka.KafkaException: the cluster refuses what it is asked.
        """
        sender = self._sender(self._task_id(number))
        try:
            # Only after the sender's start: then nobody else goes on with this partition.
            self._marked(job, number)
            progress, member = self._progress([number], number)
        except BaseException:
            sender.close()
            raise
        return PartitionCopy(self, number, progress[number], sender, member)

    def _take(
        self, sender: TransactionalSender, done: Mapping[int, int], job: str, fence: Fence
    ) -> dict[int, int]:
        """Mark the copy, end all tasks, and return how far they have come; in this order."""
        self._commit(sender, self.group, done, self._mark(job))
        fence([self._task_id(number) for number in done])
        return self._progress(done)[0]

    def _marked(self, job: str, number: int | None = None) -> dict[int, int]:
        """Return the offsets that a job has marked, all of them or that of one partition.

        Raises:
            HeaderwareError: another has.
        """
        found = self.offsets(number)
        if not found or any(metadata != self._mark(job) for _, metadata in found.values()):
            raise HeaderwareError(
                f"another job has taken over the copy of {self.source}, or the offsets of group {self.group} "
                f"have changed or expired; what this job had not finished is undone"
            )
        return _done(found)

    def _progress(self, wanted: Iterable[int], number: int | None = None) -> tuple[dict[int, int], Any]:
        """Return how far tasks have come with some partitions, and the metadata of their group.

        Raises:
            HeaderwareError: nobody knows how far.
        """
        with self._reader(self._job_group, number) as reader:
            committed = reader.committed()
            member = reader.group_metadata()
        if any(each not in committed for each in wanted):
            raise HeaderwareError(
                f"nobody knows any more how far a job has copied {self.source}: the offsets of group "
                f"{self._job_group} have expired or were deleted; begin anew, with another group and target"
            )
        return {each: committed[each][0] for each in wanted}, member

    def _mark(self, job: str) -> str:
        return f"{self.metadata}:{job}"

    def _commit(
        self, sender: TransactionalSender, group: str, offsets: Mapping[int, int], metadata: str
    ) -> None:
        with self._reader(group) as reader:
            committed = [TopicPartition(self.source, each, at, metadata) for each, at in offsets.items()]
            sender.send([], committed, reader.group_metadata())

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

    Args:
        copied: the whole copy.
        number: the partition.
        done: up to which offset it was copied before.
        sender: sends; it is closed here.
        member: the metadata of the job's group.
    """

    def __init__(
        self, copied: Copied, number: int, done: int, sender: TransactionalSender, member: Any
    ) -> None:
        self._copied: Final = copied
        self._number: Final = number
        self.done: Final = done
        """Up to which offset it was copied before."""
        self._sender: Final = sender
        self._member: Final = member

    def send(self, records: Sequence[Record], done: int) -> None:
        """Write records, and that the partition is done up to an offset.

        Raises:
            HeaderwareError: a topic refuses a record, or another task has taken over.
            confluent_kafka.KafkaException: the cluster refuses what it is asked.
        """
        done_to = TopicPartition(self._copied.source, self._number, done, self._copied.metadata)
        for index, error in self._sender.send(records, [done_to], self._member).items():
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


def _done(offsets: Offsets) -> dict[int, int]:
    return {each: offset for each, (offset, _) in offsets.items()}
