"""Let a job of many tasks write the worker's copy, while the worker refuses to start.

The worker stores its progress as the offsets of its group. The tasks of a job cannot share the worker's
transactional id, so a job marks the copy: it commits the group's offsets again, with the job's name in their
metadata, in a transaction under the worker's transactional id. This transaction fences a running worker, and
a worker that finds the mark does not start. Each task copies one partition after another, with a
transactional id for each partition, and commits its progress to a group of the job in the same transaction as
the records. When the job ends, also by an error, it commits the progress to the worker's group without the
mark. The job does not know which slices are pending; the worker finds them in the topic.

A job that was killed leaves its mark, and the next job continues. Tasks of the killed job may still run then,
so the order of the steps matters. The next job first commits its own mark, then fences all tasks by their
transactional ids, and then reads their progress. A task first opens its transactional id and then checks the
mark. A task that opened its id before the fencing is therefore fenced, and a task that opens it afterwards
finds another job's mark.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

import msgspec
from confluent_kafka import TopicPartition

from headerware.core.closing import Closing
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
"""The offset up to which each partition is done, and the metadata that the group committed with it."""


class Copied(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of a copy, which is stored as offsets of a group. An instance can be pickled.

    Args:
        conf: the settings of a client of confluent-kafka.
        source: the topic that is read.
        group: the group whose offsets are the progress; also the worker's transactional id.
        purpose: a digest of the rule, the source and the target, which identifies the copy.
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
        """The metadata of the offsets that a job commits when it ends."""
        return self._mark("")

    def is_marked(self, offsets: Offsets) -> bool:
        """Return whether a job has marked the offsets of the group."""
        return any(metadata not in (self.metadata, self.ended) for _, metadata in offsets.values())

    def offsets(self, number: int | None = None) -> Offsets:
        """Return the group's offsets, marked or not, of all partitions or of one.

        Raises:
            HeaderwareError: the offsets belong to another copy.
        """
        with self._reader(self.group, number) as reader:
            return self.read(reader.committed())

    def read(self, committed: Mapping[int, tuple[int, str]]) -> Offsets:
        """Decode the group's offsets and metadata as the broker returns them.

        Raises:
            HeaderwareError: the offsets belong to another copy.
        """
        found: Offsets = {}
        for number, (offset, text) in committed.items():
            position, _, own = decode_metadata(offset, text)
            metadata = own or ""
            found[number] = offset if position is None else position, metadata
            if metadata != self.metadata and not metadata.startswith(f"{self.metadata}:"):
                raise HeaderwareError(
                    f"the offsets of group {self.group} in {self.source} belong to another copy: the rule "
                    "differs, or the source or the target was recreated; name another group (--group) and a "
                    f"new target, or delete the group and the target"
                )
        return found

    def positions(self) -> dict[int, int]:
        """Return the offset up to which each partition is done; a job that runs may be further.

        Raises:
            HeaderwareError: the group's offsets belong to another copy.
        """
        found = self.offsets()
        return self._progress(found)[0] if self.is_marked(found) else _done(found)

    def begin(self, job: str, begins: Mapping[int, int], fence: Fence) -> dict[int, int]:
        """Mark the copy for a job, end the worker and other jobs, and return the progress.

        Args:
            job: the unique name of the job.
            begins: the first offset of each partition, used where the group has no offset.
            fence: ends all producers that use one of the given transactional ids.

        Raises:
            HeaderwareError: the group's offsets belong to another copy.
            confluent_kafka.KafkaException: the cluster refuses a request.
        """
        with closing(self._sender(self.group)) as sender:
            found = self.offsets()
            done = {**begins, **_done(found)}
            known = found if self.is_marked(found) else {}
            begun = {each: at for each, at in done.items() if each not in known}
            self._commit(sender, self._job_group, begun, self.metadata)
            return self._take(sender, done, job, fence)

    def end(self, job: str, fence: Fence, ends: Mapping[int, int] | None = None) -> None:
        """End a job's tasks and remove its mark; ``ends`` has the offsets of partitions that are complete.

        Raises:
            HeaderwareError: another job has taken over.
            confluent_kafka.KafkaException: the cluster refuses a request.
        """
        with closing(self._sender(self.group)) as sender:
            done = self._take(sender, self._marked(job), f"{job}-ended", fence)
            done = {each: max(at, (ends or {}).get(each, at)) for each, at in done.items()}
            self._commit(sender, self.group, done, self.ended)

    def partition(self, job: str, number: int) -> PartitionCopy:
        """Begin to copy a partition in a task of a job; end any other task that copies it.

        Raises:
            HeaderwareError: another job has taken over the copy.
            confluent_kafka.KafkaException: the cluster refuses a request.
        """
        sender = self._sender(self._task_id(number))
        try:
            # After the sender's start, no other task can commit for this partition.
            self._marked(job, number)
            progress, member = self._progress([number], number)
        except BaseException:
            sender.close()
            raise
        return PartitionCopy(self, number, progress[number], sender, member)

    def _take(
        self, sender: TransactionalSender, done: Mapping[int, int], job: str, fence: Fence
    ) -> dict[int, int]:
        """Mark the copy, end all tasks, and return their progress; in this order."""
        self._commit(sender, self.group, done, self._mark(job))
        fence([self._task_id(number) for number in done])
        return self._progress(done)[0]

    def _marked(self, job: str, number: int | None = None) -> dict[int, int]:
        """Return the group's offsets, of all partitions or one; HeaderwareError without the job's mark."""
        found = self.offsets(number)
        if not found or any(metadata != self._mark(job) for _, metadata in found.values()):
            raise HeaderwareError(
                f"another job has taken over the copy of {self.source}, or the offsets of group {self.group} "
                f"have changed or expired; the transactions that this job had not committed are aborted"
            )
        return _done(found)

    def _progress(self, wanted: Iterable[int], number: int | None = None) -> tuple[dict[int, int], Any]:
        """Return the progress of tasks in the wanted partitions, and the job group's member metadata."""
        with self._reader(self._job_group, number) as reader:
            committed = reader.committed()
            member = reader.group_metadata()
        if any(each not in committed for each in wanted):
            raise HeaderwareError(
                f"the progress of a job that copied {self.source} is lost: the offsets of group "
                f"{self._job_group} have expired or were deleted; start again with another group and target"
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
        conf = {**self.conf, "isolation.level": "read_committed"}  # waits for pending commits
        return TopicReader(conf, self.source, group_id=group, partition=number, timeout_s=self.timeout_s)

    def _sender(self, transactional_id: str) -> TransactionalSender:
        what = f"copy of {self.source}"
        return TransactionalSender(self.conf, transactional_id, what=what, timeout_s=self.timeout_s)


class PartitionCopy(Closing):
    """The copy of one partition by a task; for one caller at a time.

    Args:
        copied: the whole copy.
        number: the partition.
        done: the offset up to which the partition was copied before.
        sender: sends; it is closed here.
        member: the metadata of the job's group.
    """

    def __init__(
        self, copied: Copied, number: int, done: int, sender: TransactionalSender, member: Any
    ) -> None:
        self._copied: Final = copied
        self._number: Final = number
        self.done: Final = done
        """The offset up to which the partition was copied before."""
        self._sender: Final = sender
        self._member: Final = member

    def send(self, records: Sequence[Record], done: int) -> None:
        """Write records, and commit in the same transaction that the partition is done up to an offset.

        Raises:
            HeaderwareError: a topic refuses a record, or another task has taken over.
            confluent_kafka.KafkaException: the cluster refuses a request.
        """
        done_to = TopicPartition(self._copied.source, self._number, done, self._copied.metadata)
        for index, error in self._sender.send(records, [done_to], self._member).items():
            text = refusal(self._copied.source, records[index], error)
            raise HeaderwareError(f"{text}; the transaction is aborted")

    def close(self) -> None:
        """Close the producer; abort an open transaction."""
        self._sender.close()


def refusal(source: str, record: Record, error: KafkaError) -> str:
    """Return a message that a topic refuses the copy of a source's record, and why."""
    return (
        f"{record.topic} refuses the copy of {position(source, record.partition, record.offset)}: "
        f"{error.str()} (set its max.message.bytes and message.timestamp.* as for {source})"
    )


def _done(offsets: Offsets) -> dict[int, int]:
    return {each: offset for each, (offset, _) in offsets.items()}
