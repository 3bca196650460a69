"""The reporter: which events it sends when, and what it does while none can be sent."""

from __future__ import annotations

import os
import signal
import weakref
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

import pytest

from headerware.interceptors.lineage import reporter as module
from headerware.interceptors.lineage.jobs import Job
from headerware.interceptors.lineage.reporter import _MAX_ENDED, Reporter
from tests.openlineage_events import DEADLINE_S, told
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.openlineage_events import Events

JOB = Job("sales", "shop")
FOREVER_S = 3600.0


class Receiver:
    """Take events, and fail or wait if it is told to."""

    def __init__(self) -> None:
        self.events: list[Any] = []
        self.fails = False
        self.is_asked = Event()
        self.may_go_on = Event()
        self.may_go_on.set()

    def __call__(self, event: Any) -> None:
        self.is_asked.set()
        assert self.may_go_on.wait(DEADLINE_S)
        if self.fails:
            raise OSError
        self.events.append(event)

    def kinds(self) -> list[str]:
        return [told(event).kind for event in self.events]


@pytest.fixture
def receiver() -> Receiver:
    return Receiver()


@pytest.fixture
def reporter(receiver: Receiver) -> Iterator[Reporter]:
    reporter = Reporter(receiver, settle_s=0.0)
    yield reporter
    receiver.may_go_on.set()
    assert reporter.close(DEADLINE_S)


class TestReporter:
    def test_sends_one_event_for_many_records(self, reporter: Reporter, receiver: Receiver) -> None:
        member = reporter.join(JOB, "kafka://b:1", interval_s=FOREVER_S)
        for _ in range(1000):
            member.read("orders")
        until(lambda: receiver.kinds() == ["START"])
        member.leave()
        until(lambda: reporter.is_idle)
        assert receiver.kinds() == ["START", "COMPLETE"]
        assert told(receiver.events[-1]).inputs == {"kafka://b:1/orders": 1000}

    def test_tells_of_another_topic_at_once(self, reporter: Reporter, receiver: Receiver) -> None:
        member = reporter.join(JOB, "kafka://b:1", interval_s=FOREVER_S)
        member.read("orders")
        until(lambda: receiver.kinds() == ["START"])
        member.wrote("bills")
        until(lambda: receiver.kinds() == ["START", "RUNNING"])
        assert told(receiver.events[-1]).outputs == {"kafka://b:1/bills": 1}

    def test_tells_of_a_run_every_interval(self, reporter: Reporter, receiver: Receiver) -> None:
        member = reporter.join(JOB, "kafka://b:1", interval_s=0.05)
        member.read("orders")
        until(lambda: receiver.kinds()[:3] == ["START", "RUNNING", "RUNNING"])

    def test_has_one_run_for_all_members_of_a_job(self, reporter: Reporter, receiver: Receiver) -> None:
        reading, writing = (reporter.join(JOB, "kafka://b:1", interval_s=FOREVER_S) for _ in range(2))
        reading.read("orders")
        writing.wrote("bills")
        reading.leave()
        assert not reporter.is_idle
        writing.leave()
        until(lambda: reporter.is_idle)
        assert len({event.run.runId for event in receiver.events}) == 1
        last = told(receiver.events[-1])
        assert (last.kind, last.inputs, last.outputs) == (
            "COMPLETE",
            {"kafka://b:1/orders": 1},
            {"kafka://b:1/bills": 1},
        )

    def test_keeps_the_counts_of_members_that_left_and_not_the_members(
        self, reporter: Reporter, receiver: Receiver
    ) -> None:
        stays = reporter.join(JOB, "kafka://b:1", interval_s=FOREVER_S)
        left = []
        for _ in range(10):
            member = reporter.join(JOB, "kafka://b:1", interval_s=FOREVER_S)
            member.wrote("bills", 2)
            member.leave()
            member.leave()
            left.append(weakref.ref(member))
            del member
        until(lambda: all(reference() is None for reference in left))
        stays.wrote("bills", 3)
        stays.leave()
        until(lambda: reporter.is_idle)
        assert told(receiver.events[-1]).outputs == {"kafka://b:1/bills": 23}

    def test_begins_another_run_after_the_end(self, reporter: Reporter, receiver: Receiver) -> None:
        for _ in range(2):
            member = reporter.join(JOB, "kafka://b:1", interval_s=FOREVER_S)
            member.read("orders")
            member.leave()
            member.leave()
        until(lambda: reporter.is_idle)
        assert receiver.kinds() == ["START", "COMPLETE"] * 2
        assert len({event.run.runId for event in receiver.events}) == 2

    def test_says_nothing_of_a_run_without_records(self, reporter: Reporter, receiver: Receiver) -> None:
        reporter.join(JOB, "kafka://b:1", interval_s=FOREVER_S).leave()
        until(lambda: reporter.is_idle)
        assert not receiver.events

    def test_tells_a_receiver_that_failed_everything_later(
        self, reporter: Reporter, receiver: Receiver, caplog: pytest.LogCaptureFixture
    ) -> None:
        receiver.fails = True
        member = reporter.join(JOB, "kafka://b:1", interval_s=0.05)
        member.read("orders")
        until(lambda: reporter.stats()["events_failed"] > 2)
        receiver.fails = False
        until(lambda: receiver.kinds()[:1] == ["START"])
        assert told(receiver.events[0]).inputs == {"kafka://b:1/orders": 1}
        assert [record.getMessage() for record in caplog.records] == [
            "an event of lineage could not be sent: OSError (further failures are only counted)"
        ]

    def test_holds_nobody_up_while_the_receiver_does(self, reporter: Reporter, receiver: Receiver) -> None:
        receiver.may_go_on.clear()
        member = reporter.join(JOB, "kafka://b:1", interval_s=FOREVER_S)

        def work() -> None:
            member.read("orders")
            member.wrote("bills")
            member.leave()

        working = Thread(target=work)
        working.start()
        working.join(DEADLINE_S)
        assert not working.is_alive()
        assert not receiver.events
        receiver.may_go_on.set()
        until(lambda: receiver.kinds()[-1:] == ["COMPLETE"])

    def test_drops_the_oldest_ends_and_counts_them(self, reporter: Reporter, receiver: Receiver) -> None:
        receiver.may_go_on.clear()
        for number in range(1 + _MAX_ENDED + 10):
            member = reporter.join(Job("sales", f"job-{number}"), "kafka://b:1", interval_s=FOREVER_S)
            member.read("orders")
            member.leave()
            assert receiver.is_asked.wait(DEADLINE_S)
        receiver.may_go_on.set()
        until(lambda: reporter.is_idle)
        ends = [event for event in receiver.events if told(event).kind == "COMPLETE"]
        # The first end is under way, unless its start still was when the others came.
        assert len(ends) in {_MAX_ENDED, 1 + _MAX_ENDED}
        assert len(ends) + reporter.stats()["events_dropped"] == 1 + _MAX_ENDED + 10

    def test_ends_runs_that_are_left_when_it_is_closed(self, reporter: Reporter, receiver: Receiver) -> None:
        reporter.join(JOB, "kafka://b:1", interval_s=FOREVER_S).read("orders")
        assert reporter.close(DEADLINE_S)
        assert receiver.kinds()[-1] == "COMPLETE"

    def test_leaves_a_count_out_that_is_not_known(self, reporter: Reporter, receiver: Receiver) -> None:
        member = reporter.join(JOB, "kafka://b:1", interval_s=FOREVER_S)
        member.read("orders", None)
        member.read("orders", 3)
        member.leave()
        until(lambda: reporter.is_idle)
        assert told(receiver.events[-1]).inputs == {"kafka://b:1/orders": None}


def test_a_child_of_a_fork_has_runs_of_its_own(events: Events) -> None:
    """Members that came along do not end the parent's run, nor hang at a lock of its thread."""
    parents = module.reporter()
    member = parents.join(JOB, "kafka://b:1", interval_s=FOREVER_S)
    with parents._changed:  # as if its thread were at work
        child = os.fork()
        if not child:
            signal.alarm(int(DEADLINE_S))
            member.wrote("orders")
            member.leave()
            own = module.reporter()
            other = own.join(JOB, "kafka://b:1", interval_s=FOREVER_S)
            other.wrote("bills")
            other.leave()
            os._exit(0 if own.close(DEADLINE_S) else 1)
    assert os.waitpid(child, 0)[1] == 0
    member.wrote("orders")
    member.leave()
    assert parents.close(DEADLINE_S)
    ends = [event for event in events.read() if told(event).kind == "COMPLETE"]
    assert [told(event).outputs for event in ends] == [{"kafka://b:1/bills": 1}, {"kafka://b:1/orders": 1}]
    assert len({event.run.runId for event in ends}) == 2
