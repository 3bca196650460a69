"""Delivery without a client: the test has the chain, the dead letters and the clock in its hands."""

from __future__ import annotations

import ast
import inspect
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Message, TopicPartition

from headerware.clients import delivery as module
from headerware.clients import progress as progress_module
from headerware.clients.delivery import (
    MAX_WAITING,
    CommitRefused,
    Delivery,
    Entry,
    Pause,
    Resume,
    Seek,
    Store,
)
from headerware.clients.progress import WorkInProgress
from headerware.clients.record_states import ACTIONS, STATES, TRANSITIONS, table
from headerware.core.chain import Chain
from headerware.core.context import Context
from headerware.core.errors import (
    DeadLetterError,
    DelayedError,
    HeldBackError,
    InterceptorError,
    ReassemblyError,
)
from headerware.core.hooks import DROP, FanOut, Interceptor
from headerware.core.record import Record
from headerware.kafka.messages import record_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PARTITION = ("orders", 0)


class Sent:
    """A dead letter on its way."""

    def __init__(self, record: Record) -> None:
        self.record = record
        self.is_done = False
        self.error: Exception | None = None

    def done(self) -> bool:
        return self.is_done

    def result(self) -> None:
        assert self.is_done, "Delivery waits for nothing"
        if self.error is not None:
            raise self.error

    def settle(self, error: Exception | None = None) -> None:
        self.is_done, self.error = True, error


class Judge(Interceptor, frozen=True, kw_only=True):
    """Does with a record what its value says; ``judge`` of the world decides anew."""

    world: Any

    def on_consume(self, record: Record) -> Any:
        return self.world.judge(record)


class World:
    """A Delivery and what surrounds it."""

    def __init__(self, **options: Any) -> None:
        self.sent: list[Sent] = []
        self.now = 100.0
        self.now_ms = 1_000
        self.answers: dict[bytes, Any] = {}
        context = Context(
            side="consumer",
            bootstrap_servers="nowhere",
            publish=self.publish,
            now_ms=lambda: self.now_ms,
        )
        chain = Chain([Judge(world=self, on_error="dead_letter", **options)])
        self.delivery = Delivery(chain.open(context), clock=lambda: self.now)
        self.delivery.begin([TopicPartition(*PARTITION, 0), TopicPartition("orders", 1, 0)])
        self.next_offset = Counter[int]()

    def publish(self, record: Record) -> Sent:
        self.sent.append(Sent(record))
        return self.sent[-1]

    def judge(self, record: Record) -> Any:
        answer = self.answers.get(record.value, record)
        if isinstance(answer, Exception):
            raise answer
        return answer(record) if callable(answer) else answer

    def read(self, value: bytes, answer: Any = None, *, partition: int = 0) -> Entry:
        """Let a record through the chain, and return its last entry."""
        if answer is not None:
            self.answers[value] = answer
        offset = self.next_offset[partition]
        self.next_offset[partition] += 1
        message = Message("orders", partition, offset, b"key", value, timestamp=(1, 1), leader_epoch=7)
        record = record_of(message)
        self.delivery.add(message, record, self.delivery.consume(record))
        return self.delivery.entries[-1]

    def given(self, limit: int = 10) -> list[bytes | None]:
        """Return what the application gets, which it then has."""
        assert self.delivery.give(limit) is None
        found, self.delivery.given = self.delivery.given, []
        return [message.value() for message in found]

    def commands(self) -> list[Any]:
        found = list(self.delivery.commands)
        self.delivery.commands.clear()
        return found

    def stored(self) -> int | None:
        """Return the offset that is to be stored last."""
        offsets = [each.offset.offset for each in self.commands() if isinstance(each, Store)]
        return offsets[-1] if offsets else None


BAD = InterceptorError("no")
HELD = HeldBackError("not now")


def later(until_ms: int) -> DelayedError:
    return DelayedError("not yet", until_ms=until_ms)


# One story for each row of the table: it brings a record into the state, lets the event happen, and looks
# what becomes of the record.


def read_accepted() -> None:
    world = World()
    assert world.read(b"a").state == "ready"
    assert world.given() == [b"a"]


def read_dropped() -> None:
    world = World()
    assert world.read(b"a", DROP).state == "passed"
    assert world.given() == []
    assert world.stored() == 1


def read_dead_letter_sent() -> None:
    world = World()
    assert world.read(b"a", BAD).state == "pending"
    world.read(b"b")
    assert world.given() == [], "nothing goes past it"
    assert world.delivery.awaits_dead_letter
    assert world.stored() is None
    assert world.delivery.offsets.safe_offset(PARTITION, 2).offset == 0, (
        "nor does a commit of the application"
    )


def read_delayed() -> None:
    world = World()
    assert world.read(b"a", later(5_000)).state == "delayed"
    world.read(b"b", partition=1)
    assert world.given() == [b"b"], "other partitions go on"
    assert Pause(PARTITION) in world.commands()


def read_held_back() -> None:
    world = World()
    assert world.read(b"a", HELD).state == "held back"
    assert world.stored() is None


def read_refused() -> None:
    world = World(dead_letter_topic="orders")  # a record of that topic gets no dead letter
    assert world.read(b"a", BAD).state == "refused"
    world.read(b"b")
    assert world.stored() is None


def pending_stored() -> None:
    world = World()
    entry = world.read(b"a", BAD)
    world.sent[0].settle()
    assert world.given() == []
    assert entry.state == "passed"
    assert world.stored() == 1


def pending_held_back() -> None:
    world = World()
    entry = world.read(b"a", BAD)
    world.sent[0].settle(DeadLetterError("no topic"))
    told = world.delivery.give(10)
    assert told is entry
    assert isinstance(entry.error, DeadLetterError)
    assert world.stored() is None


def pending_refused() -> None:
    world = World(dead_letter_unavailable="refuse")
    entry = world.read(b"a", BAD)
    world.sent[0].settle(DeadLetterError("no topic"))
    assert world.delivery.give(10) is entry
    assert isinstance(entry.error, InterceptorError)
    assert world.commands()[-1] == CommitRefused(TopicPartition(*PARTITION, 1))


def delayed_due() -> None:
    world = World()
    world.read(b"a", later(5_000))
    assert world.given() == []
    world.now, world.now_ms = world.now + 5, 5_000
    assert world.delivery.end_delays()
    assert Resume(PARTITION) in world.commands()
    world.answers.clear()
    assert world.given() == [b"a"]


def held_back_taken() -> None:
    world = World()
    entry = world.read(b"a", HELD)
    assert world.delivery.give(10) is entry
    assert entry.state == "waiting"
    assert world.delivery.give(10) is None, "once for each attempt"
    assert world.delivery.retry_at > world.now
    assert world.stored() is None


def held_back_due() -> None:
    world = World()
    for value in (b"a", b"b"):
        world.read(value, HELD)
    world.delivery.give(10)
    world.now += 1
    world.answers.clear()
    assert world.given() == [b"a"]
    assert world.given() == [b"b"], "it was tried before anybody heard of it"


def waiting_due() -> None:
    world = World()
    entry = world.read(b"a", HELD)
    world.delivery.give(10)
    world.now += 0.05
    assert world.given() == []
    world.now += 0.1
    assert world.delivery.give(10) is entry, "it was tried again"
    world.now += 1
    world.answers.clear()
    assert world.given() == [b"a"]
    assert world.stored() == 1


def ready_taken() -> None:
    world = World()
    entry = world.read(b"a")
    assert world.given() == [b"a"]
    assert entry.state == "given"
    assert world.stored() == 1


def refused_taken() -> None:
    world = World(dead_letter_topic="orders")
    entry = world.read(b"a", BAD)
    world.read(b"b")
    assert world.delivery.give(10) is entry, "it comes alone"
    assert entry.state == "told"
    assert world.delivery.refused == 1
    assert world.commands()[-1] == CommitRefused(TopicPartition(*PARTITION, 1))
    world.delivery.leaving = []
    assert world.given() == [b"b"]


def passed_taken() -> None:
    world = World()
    for value in (b"a", b"b"):
        world.read(value, DROP)
    assert world.given() == []
    assert world.stored() == 2


def given_interrupted() -> None:
    world = World()
    entry = world.read(b"a")
    world.delivery.leaving = [world.delivery.entries.popleft()]  # as an interrupt in give leaves it
    entry.happens("taken")
    world.delivery.restore()
    assert entry.state == "ready"
    assert world.given() == [b"a"]


def told_interrupted() -> None:
    world = World(dead_letter_topic="orders")
    entry = world.read(b"a", BAD)
    assert world.delivery.give(10) is entry
    world.delivery.restore()
    assert entry.state == "refused"
    assert world.delivery.give(10) is entry, "the application has not heard of it"


def delivered_before(bring: Callable[[World], Entry]) -> Callable[[], None]:
    def story() -> None:
        world = World(dead_letter_topic="orders")
        world.read(b"before")
        entry = bring(world)
        world.delivery.offsets.note_resumed(PARTITION, 0, 2)
        assert world.given() == []
        assert entry.state == "passed"
        assert world.delivery.repeated == 2
        assert world.stored() == 2

    return story


def told_to_wait(world: World) -> Entry:
    world.given()
    entry = world.read(b"a", HELD)
    world.delivery.give(10)
    world.delivery.repeated += 1  # the one before was given
    return entry


# Of run


def job() -> tuple[WorkInProgress, Any]:
    progress = WorkInProgress(workers=2)
    return progress, progress.add("message", PARTITION, 0)


def given_started() -> None:
    progress, added = job()
    progress.start(0)
    assert added.state == "at work"
    assert progress.take_changed_positions() == {PARTITION: (0, None)}


def at_work_ended() -> None:
    progress, added = job()
    progress.start(0)
    progress.finish(added)
    assert added.state == "processed"
    assert progress.take_changed_positions() == {PARTITION: (1, None)}


def at_work_failed() -> None:
    progress, added = job()
    progress.start(0)
    progress.postpone(added, until=10)
    assert added.state == "postponed"
    assert progress.start(9) is None
    assert progress.take_changed_positions() == {PARTITION: (0, None)}


def postponed_due() -> None:
    progress, added = job()
    progress.start(0)
    progress.postpone(added, until=10)
    started: Any = progress.start(11)
    assert (started.number, started.attempts) == (0, 2)


STORIES: dict[tuple[str, str], Callable[[], None]] = {
    ("read", "accepted"): read_accepted,
    ("read", "dropped"): read_dropped,
    ("read", "dead letter sent"): read_dead_letter_sent,
    ("read", "delayed"): read_delayed,
    ("read", "held back"): read_held_back,
    ("read", "refused"): read_refused,
    ("pending", "dead letter stored"): pending_stored,
    ("pending", "held back"): pending_held_back,
    ("pending", "refused"): pending_refused,
    ("delayed", "due"): delayed_due,
    ("held back", "taken"): held_back_taken,
    ("held back", "due"): held_back_due,
    ("waiting", "due"): waiting_due,
    ("ready", "taken"): ready_taken,
    ("refused", "taken"): refused_taken,
    ("passed", "taken"): passed_taken,
    ("given", "interrupted"): given_interrupted,
    ("told", "interrupted"): told_interrupted,
    ("ready", "delivered before"): delivered_before(lambda world: world.read(b"a")),
    ("delayed", "delivered before"): delivered_before(lambda world: world.read(b"a", later(5_000))),
    ("held back", "delivered before"): delivered_before(lambda world: world.read(b"a", HELD)),
    ("waiting", "delivered before"): delivered_before(told_to_wait),
    ("refused", "delivered before"): delivered_before(lambda world: world.read(b"a", BAD)),
    ("given", "started"): given_started,
    ("at work", "ended"): at_work_ended,
    ("at work", "failed"): at_work_failed,
    ("postponed", "due"): postponed_due,
}


class Walked(dict[Any, Any]):
    """The table, which writes down what is looked up in it."""

    def __init__(self) -> None:
        super().__init__(TRANSITIONS)
        self.seen: set[tuple[str, str]] = set()

    def __getitem__(self, key: Any) -> Any:
        self.seen.add(key)
        return super().__getitem__(key)


class TestTheTable:
    @pytest.mark.parametrize("row", STORIES, ids=" ".join)
    def test_is_followed(self, row: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
        walked = Walked()
        monkeypatch.setattr(module, "TRANSITIONS", walked)
        monkeypatch.setattr(progress_module, "TRANSITIONS", walked)
        STORIES[row]()
        assert row in walked.seen

    def test_has_a_story_for_each_row(self) -> None:
        assert set(STORIES) == {(state, event) for state, event, _, _ in table()}

    def test_explains_each_of_its_states_and_actions(self) -> None:
        rows = list(table())
        assert {state for state, *_ in rows} | {following for _, _, following, _ in rows} == set(STATES)
        assert {action for *_, action in rows} == set(ACTIONS)

    def test_is_in_the_documents(self) -> None:
        text = (Path(__file__).parents[3] / "docs" / "reliability.md").read_text()
        states = [f"| {state} | {meaning} |" for state, meaning in STATES.items()]
        rows = [
            f"| {state} | {event} | {then} | {ACTIONS[action]} |" for state, event, then, action in table()
        ]
        for lines in (states, rows):
            assert f"| --- |\n{chr(10).join(lines)}\n\n" in text

    def test_leads_from_each_state_to_one_whose_offset_is_stored(self) -> None:
        reaches: set[str] = {"given", "told", "passed", "processed"}
        while more := {state for state, _, following, _ in table() if following in reaches} - reaches:
            reaches |= more
        assert reaches == set(STATES)

    def test_refuses_what_cannot_happen(self) -> None:
        with pytest.raises(KeyError):
            World().read(b"a").happens("ended")


class TestDelivery:
    def test_knows_no_client(self) -> None:
        tree = ast.parse(inspect.getsource(module))
        imported = {
            name.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and node.module == "confluent_kafka"
            for name in node.names
        }
        assert imported == {"OFFSET_END", "Message", "TopicPartition"}

    def test_gives_a_plain_record_at_once(self) -> None:
        delivery, message = World().delivery, Message("orders", 0, 7, None, b"a")
        delivery.give_at_once(message, record_of(message), record_of(message))
        assert [message.value() for message in delivery.given] == [b"a"]
        assert delivery.positions[PARTITION] == 8
        assert not delivery.entries

    def test_names_the_last_message_of_each_partition_of_a_batch(self) -> None:
        delivery = World().delivery
        batch = [Message("orders", number % 2, number // 2, None, b"%d" % number) for number in range(5)]
        last = delivery.take_batch(batch)
        assert {message.value() for message in last} == {b"3", b"4"}
        delivery.give_batch()
        assert [message.value() for message in delivery.given] == [b"%d" % number for number in range(5)]
        assert delivery.positions == {PARTITION: 3, ("orders", 1): 2}

    def test_forgets_what_it_wanted_of_a_partition_that_has_gone(self) -> None:
        world = World()
        world.read(b"a")
        world.read(b"b", partition=1)
        world.given()
        world.delivery.forget({PARTITION})
        assert [each.offset.partition for each in world.commands()] == [1]

    def test_goes_to_the_offset_of_a_record_that_was_made_of_several(self) -> None:
        world = World()
        entry = world.read(b"a", HELD)
        entry.original = None  # type: ignore[misc]  # as of a message in slices
        world.delivery.give(10)
        world.now += 1
        assert world.given() == []
        assert world.commands()[-1] == Seek(PARTITION, 0)
        assert not world.delivery.entries

    def test_tells_of_a_record_that_waits_for_its_moment_and_then_cannot_be_judged(self) -> None:
        world = World()
        entry = world.read(b"a", later(5_000))
        assert world.given() == []
        world.answers[b"a"] = HELD
        world.now, world.now_ms = world.now + 5, 5_000
        world.delivery.end_delays()
        assert world.delivery.give(10) is entry
        assert entry.state == "waiting"


class TestDeadLetters:
    def test_are_sent_in_a_batch_and_in_order(self) -> None:
        world = World()
        for value in (b"a", b"b", b"c"):
            world.read(value, BAD)
        assert [sent.record.value for sent in world.sent] == [b"a", b"b", b"c"]
        assert world.delivery.pending() == 3

    def test_hold_every_offset_until_they_are_stored(self) -> None:
        world = World()
        world.read(b"a")
        for value in (b"b", b"c"):
            world.read(value, BAD)
        world.read(b"d")
        assert world.given() == [b"a"]
        assert world.stored() == 1
        world.sent[1].settle()
        assert world.given() == [], "the first of them is not stored"
        assert world.stored() is None
        world.sent[0].settle()
        assert world.given() == [b"d"]
        assert world.stored() == 4

    def test_that_their_topic_refuses_are_followed_by_a_smaller_one(self) -> None:
        world = World()
        world.read(b"a", BAD)
        tries = 0
        while not world.sent[-1].record.key or b"@" not in world.sent[-1].record.key:
            world.sent[-1].settle(DeadLetterError("too large", unfit=True))
            assert world.given() == []
            assert len(world.sent) == (tries := tries + 1) + 1
        assert world.sent[-1].record.value is None
        assert world.stored() is None
        world.sent[-1].settle()
        assert world.given() == []
        assert world.stored() == 1
        assert world.delivery.session.stats()["judge"]["stubs"] == 1

    def test_are_tried_again_after_a_pause(self) -> None:
        world = World()
        entry = world.read(b"a", BAD)
        for attempt in range(1, 4):
            assert len(world.sent) == attempt
            world.sent[-1].settle(DeadLetterError("no topic"))
            assert world.delivery.give(10) is entry, "the application hears of each attempt once"
            assert world.delivery.give(10) is None
            world.now += 5
            assert world.delivery.give(10) is None
            assert entry.state == "pending"
        world.sent[-1].settle()
        assert world.given() == []
        assert world.stored() == 1

    def test_are_counted_when_they_are_stored(self) -> None:
        world = World()
        world.read(b"a", BAD)
        counts = world.delivery.session.stats()
        assert (counts["judge"]["dead_lettered"], counts["judge"]["failed"]) == (0, 0)
        world.sent[0].settle()
        world.given()
        assert world.delivery.session.stats()["judge"]["dead_lettered"] == 1

    def test_of_a_record_that_became_several_are_waited_for(self) -> None:
        """What is left of it could not be held back alone."""

        class Pieces:
            def on_consume(self, record: Record) -> list[Record]:
                return [record.with_value(b"bad"), record.with_value(b"good")]

        stored: list[Record] = []

        class Stored(Sent):
            def result(self) -> None:
                stored.append(self.record)

        world = World()
        world.answers[b"bad"] = BAD
        context = Context(side="consumer", publish=Stored)
        session = Chain([Judge(world=world, on_error="dead_letter"), Pieces()]).open(context)
        outcome: Any = session.consume_outcome(Record("orders", b"a", partition=0, offset=0))
        assert [record.value for record in outcome] == [b"good"]
        assert [record.value for record in stored] == [b"bad"]

    def test_that_are_stored_are_passed_in_each_partition(self) -> None:
        world = World()
        world.read(b"bad", BAD)
        world.read(b"good", partition=1)
        world.read(b"dropped", DROP)
        world.read(b"bad 2", BAD)
        world.read(b"after")
        for sent in world.sent:
            sent.settle()
        world.delivery.pass_stored()
        assert world.stored() == 3, "of partition 0; what is to be given of partition 1 does not hold it up"
        assert [entry.offset for entry in world.delivery.entries] == [0, 3]

    def test_let_no_more_than_a_bounded_number_of_records_wait(self) -> None:
        world = World()
        world.read(b"bad", BAD)
        while not world.delivery.is_full:
            world.read(b"good")
            assert len(world.delivery.entries) <= MAX_WAITING
        assert len(world.delivery.entries) == MAX_WAITING

    def test_let_no_more_than_a_bounded_size_wait(self) -> None:
        world = World()
        world.read(b"bad", BAD)
        while not world.delivery.is_full:
            world.read(bytes(1_000_000))
            assert len(world.delivery.entries) < 100

    def test_that_have_not_been_stored_when_partitions_go_are_read_again(self) -> None:
        world = World()
        world.read(b"a", BAD)
        world.delivery.pass_stored()
        assert world.stored() is None
        world.delivery.forget({PARTITION})
        world.sent[0].settle()
        world.delivery.pass_stored()
        assert world.stored() is None


class Counted(str):
    """A topic that counts how often a partition of it is looked up."""

    __slots__ = ()

    lookups = 0

    def __hash__(self) -> int:
        Counted.lookups += 1
        return super().__hash__()


class TestPausedPartitions:
    def test_are_passed_in_one_go_however_much_of_them_waits(self) -> None:
        delivery, count = World().delivery, 500
        topic = Counted("orders")
        for number in range(2 * count):
            message = Message("orders", number // count, number % count, None, b"%d" % number)
            record = record_of(message).replace(topic=topic)
            delivery.add(message, record, [record])
        delivery.application_paused.add((topic, 0))
        Counted.lookups = 0
        assert delivery.give(2 * count) is None
        assert [message.value() for message in delivery.given] == [
            b"%d" % number for number in range(count, 2 * count)
        ]
        assert Counted.lookups < 20 * count
        delivery.given = []
        delivery.application_paused.clear()
        assert delivery.give(2 * count) is None
        assert [message.value() for message in delivery.given] == [b"%d" % number for number in range(count)]


class TestRetried:
    def test_stores_the_leader_epoch_of_the_record(self) -> None:
        world = World()
        world.read(b"a", HELD)
        world.delivery.give(10)
        world.now, world.answers[b"a"] = world.now + 1, None
        world.answers.pop(b"a")
        assert world.given() == [b"a"]
        (stored,) = (each.offset for each in world.commands() if isinstance(each, Store))
        assert (stored.offset, stored.leader_epoch) == (1, 7)

    def test_begins_anew_with_short_pauses_when_its_partition_comes_back(self) -> None:
        world = World()
        world.read(b"a", HELD)
        for _ in range(5):
            assert world.delivery.give(10) is not None
            assert world.delivery.give(10) is None
            pause_s = world.delivery.retry_at - world.now
            world.now = world.delivery.retry_at
        assert pause_s > 1
        world.delivery.forget({PARTITION})
        world.delivery.begin([TopicPartition(*PARTITION, 0)])
        world.next_offset.clear()
        world.read(b"a", HELD)
        assert world.delivery.give(10) is not None
        assert world.delivery.give(10) is None
        assert 0 < world.delivery.retry_at - world.now < 0.2

    def test_gives_an_error_of_a_lazy_cut_and_passes_it(self) -> None:
        def pieces(record: Record) -> FanOut:
            def made() -> Iterator[Record]:
                yield record
                raise ReassemblyError("no room")

            return FanOut(2, made)

        world = World()
        world.read(b"a", HELD)
        world.delivery.give(10)
        world.answers[b"a"] = pieces
        world.now += 1
        told = world.delivery.give(10)
        assert told is not None
        assert isinstance(told.error, InterceptorError)
        assert (told.topic_partition, told.offset, told.position, told.state) == (PARTITION, 0, 1, "told")


class TestFirstOffset:
    def released(self, *offsets: int) -> Delivery:
        delivery = World().delivery
        delivery.entries.append(Entry(PARTITION, offset=9, position=10))
        for offset in offsets:
            delivery.add_released(ReassemblyError("late", topic="orders", partition=0, offset=offset))
        return delivery

    def test_is_none_where_nothing_waits(self) -> None:
        assert self.released().first_offset(("orders", 1)) is None

    def test_is_that_of_the_next_entry(self) -> None:
        assert self.released().first_offset(PARTITION) == 9

    def test_is_that_of_what_was_given_up_before_it(self) -> None:
        assert self.released(4, 2).first_offset(PARTITION) == 2

    def test_is_the_one_passed_where_an_entry_has_none(self) -> None:
        delivery = World().delivery
        delivery.entries.append(Entry(PARTITION, position=8))
        assert delivery.first_offset(PARTITION) == 7

    def test_of_siblings_is_their_records(self) -> None:
        world = World()
        world.read(b"a", lambda record: [record, record])
        assert world.given(1) == [b"a"]
        assert world.delivery.first_offset(PARTITION) == 0
        assert world.stored() is None, "only the last sibling moves the offset"
        assert world.given(1) == [b"a"]
        assert world.stored() == 1


class TestReleased:
    def test_goes_before_what_waits_in_its_own_order(self) -> None:
        world = World()
        world.read(b"c")
        older = Record("orders", b"a", partition=0, offset=0)
        world.delivery.add_released([older, older.replace(value=b"b")])
        assert world.given() == [b"a", b"b", b"c"]

    def test_may_fail_late(self) -> None:
        def pieces() -> Iterator[Record]:
            yield Record("orders", b"a", partition=0, offset=5)
            raise ReassemblyError("no room", topic="orders", partition=0, offset=5)

        delivery = World().delivery
        delivery.add_released(FanOut(2, pieces))
        (entry,) = delivery.entries
        assert isinstance(entry.error, ReassemblyError)
        assert (entry.topic_partition, entry.offset) == (PARTITION, 5)

    def test_keeps_records_that_moved_to_another_topic_at_their_place_on_the_wire(self) -> None:
        world = World()
        world.read(b"a", lambda record: [record.replace(offset=7), record])
        assert [entry.topic_partition for entry in world.delivery.entries] == [PARTITION, PARTITION]
