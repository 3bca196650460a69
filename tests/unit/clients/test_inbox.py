from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headerware.clients.inbox import Entry, Inbox
from headerware.core.errors import DeadLetterError, ReassemblyError
from headerware.core.hooks import FanOut
from headerware.core.record import Record

if TYPE_CHECKING:
    from collections.abc import Iterator

TOPIC_PARTITION = ("orders", 0)
ORIGINAL = Record("orders", b"a,b", partition=0, offset=5)


def blocked() -> Entry:
    return Entry(TOPIC_PARTITION, offset=5, position=6, error=DeadLetterError("no"), original=ORIGINAL)


def popped(inbox: Inbox) -> list[Entry]:
    found: list[Entry] = []
    while (entry := inbox.pop(())) is not None:
        found.append(entry)
    return found


class TestRetried:
    def test_gives_an_error_of_a_lazy_cut_and_passes_it(self) -> None:
        def pieces() -> Iterator[Record]:
            yield ORIGINAL
            raise ReassemblyError("no room")

        inbox = Inbox(lambda _: FanOut(2, pieces))
        assert inbox.retry(blocked())
        (entry,) = popped(inbox)
        assert isinstance(entry.error, ReassemblyError)
        assert (entry.topic_partition, entry.offset, entry.position) == (TOPIC_PARTITION, 5, 6)

    def test_keeps_records_that_moved_to_another_topic_at_their_place_on_the_wire(self) -> None:
        inbox = Inbox(lambda record: record.replace(topic="elsewhere"))
        assert inbox.retry(blocked())
        assert [entry.topic_partition for entry in popped(inbox)] == [TOPIC_PARTITION, TOPIC_PARTITION]


class TestFirstOffset:
    def released(self, *offsets: int) -> Inbox:
        inbox = Inbox(lambda record: record)
        inbox.put_back(Entry(TOPIC_PARTITION, offset=9, position=10))
        for offset in offsets:
            inbox.add_released(ReassemblyError("late", topic="orders", partition=0, offset=offset))
        return inbox

    def test_is_none_where_nothing_waits(self) -> None:
        assert self.released().first_offset(("orders", 1)) is None

    def test_is_that_of_the_next_entry(self) -> None:
        assert self.released().first_offset(TOPIC_PARTITION) == 9

    def test_is_that_of_what_was_given_up_before_it(self) -> None:
        assert self.released(4, 2).first_offset(TOPIC_PARTITION) == 2

    def test_is_the_one_passed_where_an_entry_has_none(self) -> None:
        inbox = Inbox(lambda record: record)
        inbox.put_back(Entry(TOPIC_PARTITION, position=8))
        assert inbox.first_offset(TOPIC_PARTITION) == 7

    def test_of_siblings_is_their_records(self) -> None:
        inbox = Inbox(lambda _: [ORIGINAL, ORIGINAL])
        inbox.retry(blocked())
        inbox.pop(())
        assert inbox.first_offset(TOPIC_PARTITION) == 5


def values(entries: list[Entry]) -> list[Any]:
    return [entry.message.value() for entry in entries if entry.message is not None]


class TestReleased:
    def test_goes_before_what_waits_in_its_own_order(self) -> None:
        inbox = Inbox(lambda record: record)
        inbox.put_back(Entry(TOPIC_PARTITION, offset=9, position=10))
        inbox.add_released([ORIGINAL.replace(value=b"a"), ORIGINAL.replace(value=b"b")])
        entries = popped(inbox)
        assert values(entries) == [b"a", b"b"]
        assert entries[-1].position == 10

    def test_may_fail_late(self) -> None:
        def pieces() -> Iterator[Record]:
            yield ORIGINAL
            raise ReassemblyError("no room", topic="orders", partition=0, offset=5)

        inbox = Inbox(lambda record: record)
        inbox.add_released(FanOut(2, pieces))
        (entry,) = popped(inbox)
        assert isinstance(entry.error, ReassemblyError)
        assert (entry.topic_partition, entry.offset) == (TOPIC_PARTITION, 5)
