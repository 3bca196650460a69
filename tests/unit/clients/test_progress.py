from __future__ import annotations

from typing import Any

from headerware.clients.progress import Job, WorkInProgress

P0, P1 = ("orders", 0), ("orders", 1)


def started(progress: WorkInProgress, now: float = 0.0) -> list[Any]:
    """Start all that may start, and return their messages."""
    return [job.message for job in jobs(progress, now)]


def jobs(progress: WorkInProgress, now: float = 0.0) -> list[Job]:
    return list(iter(lambda: progress.start(now), None))


class TestOrder:
    def test_keeps_the_order_of_a_key_and_lets_others_pass(self) -> None:
        progress = WorkInProgress(workers=4)
        for offset, key in enumerate([b"a", b"a", b"b", b"a"]):
            progress.add(offset, P0, offset, key)

        first = jobs(progress)
        assert [job.message for job in first] == [0, 2]
        progress.finish(first[0])
        assert started(progress) == [1]

    def test_keeps_records_without_a_key_in_the_order_of_their_partition(self) -> None:
        progress = WorkInProgress(workers=4)
        for offset in range(2):
            progress.add(("p0", offset), P0, offset)
            progress.add(("p1", offset), P1, offset)

        assert started(progress) == [("p0", 0), ("p1", 0)]

    def test_keeps_the_order_of_a_partition_whatever_the_keys(self) -> None:
        progress = WorkInProgress(workers=4, order="partition")
        for offset, key in enumerate([b"a", b"b"]):
            progress.add(offset, P0, offset, key)

        assert started(progress) == [0]

    def test_has_no_more_at_work_than_workers(self) -> None:
        progress = WorkInProgress(workers=2, order="none")
        for offset in range(3):
            progress.add(offset, P0, offset)

        assert started(progress) == [0, 1]

    def test_lets_the_oldest_go_first(self) -> None:
        progress = WorkInProgress(workers=1)
        for offset, key in enumerate([b"a", b"a", b"b"]):
            progress.add(offset, P0, offset, key)

        progress.finish(jobs(progress)[0])
        assert started(progress) == [1]


class TestPostpone:
    def test_keeps_what_follows_waiting_and_leaves_the_worker(self) -> None:
        progress = WorkInProgress(workers=1)
        for offset, key in enumerate([b"a", b"a", b"b"]):
            progress.add(offset, P0, offset, key)

        progress.postpone(jobs(progress)[0], until=5.0)
        assert progress.due() == 5.0
        (other,) = jobs(progress, now=4.9)
        assert other.message == 2
        progress.finish(other)
        (again,) = jobs(progress, now=5.0)
        assert (again.message, again.attempts) == (0, 2)

    def test_forgets_a_postponed_job_of_a_partition_that_has_gone(self) -> None:
        progress = WorkInProgress(workers=1)
        progress.add(0, P0, 0)
        progress.postpone(jobs(progress)[0], until=5.0)
        progress.forget([P0])

        assert progress.due() is None
        assert started(progress, now=9.0) == []


class TestOffsets:
    def test_moves_only_as_far_as_all_before_is_processed(self) -> None:
        progress = WorkInProgress(workers=4, order="none")
        for offset in (10, 11, 15):
            progress.add(offset, P0, offset, leader_epoch=7)
        first, second, third = jobs(progress)
        assert progress.take_changed_positions() == {P0: (10, None)}

        progress.finish(second)
        assert progress.take_changed_positions() == {}
        progress.finish(first)
        assert progress.take_changed_positions() == {P0: (15, None)}
        progress.finish(third)
        assert progress.take_changed_positions() == {P0: (16, 7)}

    def test_holds_an_offset_until_all_records_of_it_are_processed(self) -> None:
        progress = WorkInProgress(workers=4, order="none")
        for name in "ab":
            progress.add(name, P0, 3)
        first, second = jobs(progress)
        progress.finish(first)
        assert progress.take_changed_positions() == {P0: (3, None)}
        progress.finish(second)
        assert progress.take_changed_positions() == {P0: (4, None)}

    def test_moves_past_what_was_read_and_did_not_become_a_job(self) -> None:
        progress = WorkInProgress(workers=1)
        progress.advance(P0, 5)
        assert progress.take_changed_positions() == {P0: (5, None)}
        progress.add(6, P0, 6)
        progress.advance(P0, 9)
        assert progress.take_changed_positions() == {P0: (6, None)}
        progress.finish(jobs(progress)[0])
        progress.advance(P0, 9)
        assert progress.take_changed_positions() == {P0: (9, None)}

    def test_goes_back_for_an_older_record_that_was_released(self) -> None:
        progress = WorkInProgress(workers=2, order="none")
        progress.add(8, P0, 8)
        progress.add(2, P0, 2)

        assert progress.take_changed_positions() == {P0: (2, None)}


class TestPartitions:
    def test_an_old_job_does_not_count_when_its_partition_has_come_back(self) -> None:
        progress = WorkInProgress(workers=2)
        progress.add("old", P0, 4)
        (old,) = jobs(progress)
        progress.forget([P0])
        progress.add("again", P0, 4)
        progress.take_changed_positions()

        progress.finish(old)
        assert old.is_gone
        assert progress.take_changed_positions() == {}
        assert started(progress) == ["again"]

    def test_starts_nothing_more_of_a_held_partition(self) -> None:
        progress = WorkInProgress(workers=1)
        for offset in range(2):
            progress.add(offset, P0, offset)
        (job,) = jobs(progress)
        progress.hold([P0])
        assert progress.at_work_of([P0]) == 1
        progress.finish(job)

        assert started(progress) == []
        assert progress.take_changed_positions() == {P0: (1, None)}

    def test_shares_the_room_among_the_partitions(self) -> None:
        progress = WorkInProgress(workers=1, max_pending=8)
        for each in (P0, P1):
            progress.advance(each, 0)
        for offset in range(4):
            assert progress.to_pause() == set()
            progress.add(offset, P0, offset)
        assert progress.to_pause() == {P0}

        assert progress.to_resume({P0}) == set()
        for _ in range(2):
            progress.finish(jobs(progress)[0])
        assert progress.to_resume({P0}) == {P0}
