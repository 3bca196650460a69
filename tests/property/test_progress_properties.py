"""Drive the engine of ``run`` with any interleaving, and compare it with a plain list of what happened."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headerware.clients.progress import Job, WorkInProgress

WORKERS = 3
PARTITIONS = [("orders", 0), ("orders", 1)]
partitions = st.sampled_from(PARTITIONS)
keys = st.sampled_from([None, b"a", b"b"])


class ProgressMachine(RuleBasedStateMachine):
    """Records come, are processed in any order, fail, and lose their partitions."""

    @initialize(order=st.sampled_from(["key", "partition", "none"]))
    def begin(self, order: Any) -> None:
        self.order = order
        self.progress = WorkInProgress(workers=WORKERS, order=order, max_pending=10)
        self.now = 0.0
        self.next_offset = dict.fromkeys(PARTITIONS, 0)
        # Of each partition as it is assigned now: offset, key and whether it is processed.
        self.records: dict[Any, list[list[Any]]] = {each: [] for each in PARTITIONS}
        self.at_work: list[tuple[Job, Any, list[Any]]] = []
        self.committed: dict[Any, int] = {}

    @rule(partition=partitions, key=keys, gap=st.integers(0, 2), siblings=st.integers(1, 2))
    def read(self, partition: Any, key: Any, gap: int, siblings: int) -> None:
        offset = self.next_offset[partition] + gap
        self.next_offset[partition] = offset + 1
        for _ in range(siblings):
            entry = [offset, key, False]
            self.records[partition].append(entry)
            self.progress.add((partition, entry), partition, offset, key)

    @rule()
    def start(self) -> None:
        job = self.progress.start(self.now)
        if job is None:
            return
        partition, entry = job.message
        mine = self.records[partition]
        assert any(entry is each for each in mine), "of a partition that has gone"
        before = mine[: next(at for at, each in enumerate(mine) if each is entry)]
        if self.order == "partition":
            assert all(done for _, _, done in before)
        if self.order == "key":
            assert all(done for _, key, done in before if key == entry[1])
        self.at_work.append((job, partition, entry))

    @precondition(lambda self: self.at_work)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        job, _, entry = self.at_work.pop(data.draw(st.integers(0, len(self.at_work) - 1)))
        self.progress.finish(job)
        entry[2] = True

    @precondition(lambda self: self.at_work)
    @rule(data=st.data(), pause=st.floats(0, 3))
    def postpone(self, data: st.DataObject, pause: float) -> None:
        job, _, _ = self.at_work.pop(data.draw(st.integers(0, len(self.at_work) - 1)))
        self.progress.postpone(job, self.now + pause)

    @rule(seconds=st.floats(0, 3))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule(partition=partitions)
    def revoke(self, partition: Any) -> None:
        self.progress.forget([partition])
        self.records[partition] = []
        # The next owner began where this one had committed, and it comes back.
        self.next_offset[partition] = self.committed.pop(partition, 0)

    @rule()
    def commit(self) -> None:
        for partition, (offset, _) in self.progress.take_changed_positions().items():
            self.committed[partition] = offset
            assert all(done for at, _, done in self.records[partition] if at < offset), "a record is lost"

    @rule()
    def everything_is_processed_in_the_end(self) -> None:
        for job, _, entry in self.at_work:
            self.progress.finish(job)
            entry[2] = True
        self.at_work = []
        for each in iter(lambda: self.progress.start(self.now + 1_000), None):
            self.progress.finish(each)
            each.message[1][2] = True
        assert all(done for entries in self.records.values() for _, _, done in entries)
        self.commit()
        for partition, entries in self.records.items():
            if entries:
                assert self.committed[partition] == self.next_offset[partition]

    @invariant()
    def has_bounds(self) -> None:
        if hasattr(self, "progress"):
            assert self.progress.at_work == len(self.at_work) <= WORKERS
            left = sum(not done for entries in self.records.values() for _, _, done in entries)
            assert self.progress.pending == left


TestProgress = ProgressMachine.TestCase
