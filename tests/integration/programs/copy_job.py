"""Be a job that copies all of a topic, in small transactions: ``copy_job.py SERVERS SOURCE TARGET``.

What Spark adds, the rule and the shuffle, is left out; the mark and what writes are the job's.
"""

from __future__ import annotations

import sys
import uuid
from contextlib import closing
from typing import TYPE_CHECKING

from headerware.kafka.messages import record_of
from headerware.kafka.reader import TopicReader
from headerware.ops.compaction import Compaction
from headerware.ops.retention.rules import RetentionRule
from headerware.workers.transactions import TransactionalSender

if TYPE_CHECKING:
    from headerware.ops.compaction.job import Copied, Fence

AT_ONCE = 20


def fence(copied: Copied) -> Fence:
    """Return what ends those who have an id, by having it oneself."""

    def fenced(ids: object) -> None:
        assert isinstance(ids, list)
        for each in ids:
            with closing(TransactionalSender(copied.conf, each, what="fence")):
                pass

    return fenced


def say(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


def copy(servers: str, source: str, target: str) -> None:
    work = Compaction({"bootstrap.servers": servers}, source, target, RetentionRule())
    copied, job = work.copied, uuid.uuid4().hex
    assert work.problems(for_job=True) == []
    say("begins")
    with TopicReader(copied.conf, source, group_id="job") as reader:
        reader.start()
        ends = {number: end for number, (_, end) in reader.bounds.items()}
        copied.begin(job, {number: begin for number, (begin, _) in reader.bounds.items()}, fence(copied))
        found = [record_of(message) for batch in reader.to_end() for message in batch]
    for number in ends:
        own = [record.replace(topic=target) for record in found if record.partition == number]
        with copied.partition(job, number) as writer:
            left = [record for record in own if (record.offset or 0) >= writer.done]
            for at in range(0, len(left), AT_ONCE):
                batch = left[at : at + AT_ONCE]
                writer.send(batch, (batch[-1].offset or 0) + 1)
                say("writes")
    copied.end(job, fence(copied), ends)
    say("ends")


if __name__ == "__main__":
    copy(*sys.argv[1:])
