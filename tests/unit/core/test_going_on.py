"""A session that takes the place of another: which interceptors go on, and who closes which."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from headerware import Chain, ConfigError, Context, Headers, Interceptor, Place, Record
from headerware.interceptors import Compress, Dedup, Slice, Trail

if TYPE_CHECKING:
    from headerware.core.session import Session

RECORD = Record("orders", b"v", partition=0, offset=0)
LARGE = Record("orders", b"x" * 3_000)


class Counter(Interceptor, frozen=True, kw_only=True):
    """Appends its letter; its opened object counts, and remembers that it was closed."""

    letter: str = "a"
    fails: bool = False

    def open(self, context: Context) -> Any:
        if self.fails:
            raise ConfigError("cannot be opened")
        return Opened(self.letter, context)


class Opened:
    def __init__(self, letter: str, context: Context) -> None:
        self.letter = letter.encode()
        self.context = context
        self.seen = 0
        self.closed = 0

    def on_send(self, record: Record) -> Record:
        self.seen += 1
        return record.with_value(record.value + self.letter)

    def overhead_bytes(self, record: Record) -> int:
        return len(self.letter)

    def stats(self) -> dict[str, int]:
        return {"seen": self.seen}

    def close(self) -> None:
        self.closed += 1


class Signer(Counter, frozen=True, kw_only=True):
    """Stands where signatures are made."""

    place: ClassVar[Place | None] = Place.SIGN
    verifies: ClassVar[bool] = True


def opened(session: Session, name: str) -> Any:
    return next(step.opened for step in session.steps if step.name == name)


def pair(before: list[object], after: list[object]) -> tuple[Session, Session]:
    first = Chain(before).open(Context())
    return first, Chain(after).open(first.context, previous=first)


class TestGoingOn:
    def test_equal_options_keep_the_opened_object(self) -> None:
        first, second = pair([Counter(name="a")], [Counter(name="new"), Counter(name="a")])
        assert opened(first, "a") is opened(second, "a")

    @pytest.mark.parametrize("after", [Counter(name="a", letter="b"), Trail(name="a", service="s")])
    def test_other_options_or_another_type_open_anew(self, after: Interceptor) -> None:
        first, second = pair([Counter(name="a")], [after])
        assert opened(first, "a") is not opened(second, "a")

    def test_another_statement_about_signatures_opens_anew(self) -> None:
        first, second = pair([Counter(name="a")], [Counter(name="a"), Signer(name="signer")])
        assert [opened(each, "a").context.signed for each in (first, second)] == [False, True]

    def test_counters_go_on_also_while_the_earlier_session_works(self) -> None:
        first, second = pair([Counter(name="a")], [Counter(name="a"), Counter(name="b")])
        first.send([RECORD])
        second.send([RECORD])
        assert second.stats()["a"]["sent"] == 2
        first.close()
        assert [second.stats()[name]["sent"] for name in "ab"] == [2, 1]
        assert second.stats()["a"]["seen"] == 2

    def test_counters_go_on_through_many_sessions(self) -> None:
        session = Chain([Counter(name="a")]).open(Context())
        for letter in "bcd":
            session.send([RECORD])
            following = Chain([Counter(name="a"), Counter(name="x", letter=letter)]).open(
                session.context, previous=session
            )
            session.close()
            session = following
        assert session.stats()["a"]["sent"] == 3
        assert session.stats()["x"]["sent"] == 0

    def test_a_new_neighbour_counts_towards_the_size_that_it_adds(self) -> None:
        first, second = pair([Counter(name="a")], [Counter(name="a"), Counter(name="b", letter="bbb")])
        overhead = opened(second, "a").context.overhead_bytes
        assert overhead(RECORD) == 3
        first.close()
        assert overhead(RECORD) == 3

    def test_a_former_neighbour_counts_as_long_as_its_session_may_send(self) -> None:
        first, second = pair([Counter(name="a"), Counter(name="b", letter="bbb")], [Counter(name="a")])
        overhead = opened(second, "a").context.overhead_bytes
        assert overhead(RECORD) == 3
        first.close()
        assert overhead(RECORD) == 0


class TestReassembly:
    """What makes one record of several goes on only if what its parts come through is the same."""

    @pytest.mark.parametrize(
        ("before", "after", "keeps"),
        [
            ([Slice(max_bytes=2_000)], [Slice(max_bytes=2_000)], True),
            ([Slice(max_bytes=2_000)], [Compress(), Slice(max_bytes=2_000)], True),
            ([Slice(max_bytes=2_000)], [Slice(max_bytes=2_000), Counter()], False),
            ([Slice(max_bytes=2_000), Counter()], [Slice(max_bytes=2_000)], False),
            ([Slice(max_bytes=2_000)], [Slice(max_bytes=2_000, expire_ms=1)], False),
            ([Slice(max_bytes=2_000)], [], False),
            ([Trail(service="s")], [], True),
        ],
    )
    def test_goes_on_if_it_and_all_to_its_right_are_equal(
        self, before: list[object], after: list[object], *, keeps: bool
    ) -> None:
        first, second = pair(before, after)
        assert second.keeps_waiting(first) is keeps

    def test_a_message_comes_together_across_the_change(self) -> None:
        slices = Chain([Slice(max_bytes=2_000)]).open(Context()).send([LARGE])
        arriving = [piece.replace(partition=0, offset=at) for at, piece in enumerate(slices)]
        first, second = pair([Slice(max_bytes=2_000)], [Compress(), Slice(max_bytes=2_000)])
        assert first.consume(arriving[:1]) == []
        first.close()
        (whole,) = second.consume(arriving[1:])
        assert whole.value == LARGE.value

    def test_a_window_remembers_across_the_change(self) -> None:
        sent = Chain([Dedup()]).open(Context()).send([RECORD.replace(partition=None, offset=None)])[0]
        first, second = pair([Dedup()], [Trail(service="s"), Dedup()])
        assert len(first.consume([sent.replace(partition=0, offset=0)])) == 1
        first.close()
        assert second.consume([sent.replace(partition=0, offset=9)]) == []


class TestTheEnd:
    def test_each_closes_its_own(self) -> None:
        first, second = pair([Counter(name="a"), Counter(name="b")], [Counter(name="a"), Counter(name="c")])
        objects = [opened(first, "a"), opened(first, "b"), opened(second, "c")]
        first.close()
        assert [each.closed for each in objects] == [0, 1, 0]
        second.close()
        assert [each.closed for each in objects] == [1, 1, 1]

    def test_a_failed_opening_leaves_the_earlier_session_as_it_was(self) -> None:
        first = Chain([Counter(name="a")]).open(Context())
        kept = opened(first, "a")
        with pytest.raises(ConfigError, match="cannot be opened"):
            Chain([Counter(name="new"), Counter(name="a"), Counter(name="bad", fails=True)]).open(
                first.context, previous=first
            )
        assert kept.closed == 0
        assert first.send([RECORD])[0].value == b"va"
        first.close()
        assert kept.closed == 1

    def test_a_session_that_fails_its_check_leaves_the_earlier_session_as_it_was(self) -> None:
        first = Chain([Counter(name="a")]).open(Context())
        overhead = opened(first, "a").context.overhead_bytes
        refused: list[Session] = []

        def check(session: Session) -> None:
            refused.append(session)
            raise ConfigError("refused")

        with pytest.raises(ConfigError, match="refused"):
            Chain([Counter(name="a"), Counter(name="b", letter="bbb")]).open(
                first.context, previous=first, check=check
            )
        assert [opened(refused[0], name).closed for name in "ab"] == [0, 1]
        assert overhead(RECORD) == 0
        first.send([RECORD])
        assert first.stats()["a"]["sent"] == 1
        first.close()
        assert opened(first, "a").closed == 1

    def test_a_closed_session_acknowledges_nothing(self) -> None:
        told: list[Record] = []

        class Hears:
            def on_acknowledgement(self, record: Record, metadata: Any, error: Any) -> None:
                told.append(record)

        session = Chain([Hears()]).open(Context())
        session.acknowledge(RECORD, None, None)
        session.close()
        session.acknowledge(RECORD, None, None)
        assert told == [RECORD]


def test_headers_of_a_record_are_those_of_one_chain() -> None:
    first, second = pair([Trail(service="old")], [Trail(service="new")])
    for session, service in ((first, b"old"), (second, b"new")):
        (sent,) = session.send([Record("orders", b"v", headers=Headers())])
        assert service in (sent.headers.last("hw.trail") or b"")
