"""A session's moments, offsets and end: everyone is told once, and nobody harms a neighbour."""

from __future__ import annotations

import functools
import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import SimpleNamespace as Hooks
from typing import TYPE_CHECKING, Any

import pytest

from headerware import (
    DROP,
    Chain,
    Context,
    InterceptorError,
    PluginError,
    Record,
    RecordMetadata,
    Role,
    SignatureError,
)
from headerware.core.record import Operation

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SECRET = "hunter2"
RECORD = Record("orders", b"v", partition=1, offset=7)


def same(record: Record) -> Record:
    return record


def appends(name: str, **options: Any) -> Hooks:
    def hook(record: Record) -> Record:
        return record.with_value(record.value + name.encode(), record.headers)

    return Hooks(name=name, on_send=hook, on_consume=hook, **options)


def opening(step: Any, **options: Any) -> Hooks:
    return Hooks(open=lambda _: step, **options)


class Told:
    """An observer that keeps all that it is told."""

    role = Role.OBSERVE

    def __init__(self, topics: tuple[str, ...] = ("*",)) -> None:
        self.told: list[Any] = []
        self.topics = topics

    def on_acknowledgement(self, record: Record, metadata: Any, error: Any) -> None:
        self.told.append(("acknowledged", record, metadata, error))

    def on_processed(self, record: Record, error: Any) -> None:
        self.told.append(("processed", record, error))

    def on_commit(self, offsets: Any) -> None:
        self.told.append(("committed", offsets))


class TestMoments:
    def test_an_acknowledgement_is_told_once_to_each(self) -> None:
        first, second = Told(), Told()
        metadata, error = RecordMetadata("orders", 1, 7), ValueError()
        session = Chain([first, second]).open()
        session.acknowledge(RECORD, metadata, None)
        session.acknowledge(RECORD, None, error)
        expected = [("acknowledged", RECORD, metadata, None), ("acknowledged", RECORD, None, error)]
        assert first.told == second.told == expected

    def test_processing_is_told_once_to_each(self) -> None:
        first, second = Told(), Told()
        error = ValueError()
        session = Chain([first, second]).open()
        session.processed(RECORD)
        session.processed(RECORD, error)
        assert first.told == second.told == [("processed", RECORD, None), ("processed", RECORD, error)]

    def test_a_commit_is_told_once_to_each_whatever_its_topics(self) -> None:
        told = Told(topics=("payments",))
        Chain([told]).open().committed(["offsets"])
        assert told.told == [("committed", ["offsets"])]

    def test_topics_are_minded(self) -> None:
        told = Told(topics=("payments",))
        session = Chain([told]).open()
        session.acknowledge(RECORD, None, None)
        session.processed(RECORD)
        assert told.told == []

    @pytest.mark.parametrize("wrapped", [False, True])
    def test_a_failing_observer_harms_nobody(self, wrapped: bool, caplog: pytest.LogCaptureFixture) -> None:  # noqa: FBT001 - parametrized
        def hook(*_: object) -> None:
            raise ValueError(SECRET)

        failing: Any = functools.partial(hook) if wrapped else hook  # a partial has no __name__
        told = Told()
        bad = Hooks(name="bad", on_acknowledgement=failing, on_processed=failing, on_commit=failing)
        session = Chain([bad, told]).open()
        for _ in range(3):
            session.acknowledge(RECORD, None, None)
            session.processed(RECORD)
            session.committed([])
        assert len(told.told) == 9
        assert session.stats()["bad"]["failed"] == 9
        assert len(caplog.records) == 3
        assert "ValueError at" in caplog.text
        assert SECRET not in caplog.text

    def test_a_failing_observer_does_not_stop_what_ends_the_program(self) -> None:
        def hook(*_: object) -> None:
            raise SystemExit(3)

        with pytest.raises(SystemExit):
            Chain([Hooks(on_commit=hook)]).open().committed([])


class TestUnmatchedPatterns:
    """A pattern with a slip in it protects nothing, and nothing else tells."""

    STEPS = (
        Hooks(name="a", on_send=same, topics=("orders", "paymnets.*", "!orders.raw")),
        Hooks(name="b", on_consume=same, topics=("orders-*",)),
        Hooks(name="c", on_send=same),
    )

    def test_are_told_once_at_the_end(self, caplog: pytest.LogCaptureFixture) -> None:
        session = Chain(self.STEPS).open()
        session.send([Record("orders", b""), Record("orders", b"")])
        assert caplog.text == ""
        session.close()
        session.close()
        assert caplog.messages == [
            "patterns of topics that matched no topic of this client: a (paymnets.*); b (orders-*)"
        ]

    def test_are_counted(self) -> None:
        session = Chain(self.STEPS).open()
        assert all("patterns_unmatched" not in counts for counts in session.stats().values())
        session.send([Record("orders", b"")])
        assert [counts.get("patterns_unmatched") for counts in session.stats().values()] == [1, 1, None]
        session.consume([Record("orders-1", b"")])
        session.send([Record("paymnets.eu", b"")])
        assert all("patterns_unmatched" not in counts for counts in session.stats().values())

    def test_are_not_told_where_no_record_came(self, caplog: pytest.LogCaptureFixture) -> None:
        Chain(self.STEPS).open().close()
        assert caplog.text == ""


class TestProtectionThatFitsNoTopic:
    """A typo in the topics of a step that protects would let records pass without it."""

    @staticmethod
    def warned(caplog: pytest.LogCaptureFixture, *topics: str, role: Role = Role.PROTECT) -> list[str]:
        seal = Hooks(name="seal", on_send=same, topics=topics, role=role)
        with Chain([Hooks(name="a", on_send=same), seal]).open() as session:
            for topic in ("orders", "orders", "clicks"):
                session.send([Record(topic, b"")])
            return caplog.messages.copy()

    def test_is_told_at_the_first_record_of_each_topic(self, caplog: pytest.LogCaptureFixture) -> None:
        assert self.warned(caplog, "order") == [
            f"records of topic {topic!r} pass without seal (seal is for 'order', and no topic has fitted yet)"
            f"{near}; if that is meant, add '!{topic}' to these topics"
            for topic, near in (("orders", "; did you mean 'orders' where 'order' is?"), ("clicks", ""))
        ]

    def test_is_not_told_of_topics_that_are_excluded(self, caplog: pytest.LogCaptureFixture) -> None:
        assert self.warned(caplog, "order", "!orders", "!clicks") == []

    def test_is_not_told_once_a_topic_has_fitted(self, caplog: pytest.LogCaptureFixture) -> None:
        assert self.warned(caplog, "orders") == []

    def test_is_not_told_of_steps_that_do_not_protect(self, caplog: pytest.LogCaptureFixture) -> None:
        assert self.warned(caplog, "order", role=Role.TRANSFORM) == []


class TestPolling:
    def test_what_is_released_goes_through_the_rest_of_the_consuming_chain(self) -> None:
        waiting = opening(
            Hooks(on_consume=lambda _: [], poll=lambda now: [Record("orders", str(now).encode())])
        )
        session = Chain([appends("a"), waiting, appends("z")]).open()
        (outcome,) = session.poll(5)
        assert isinstance(outcome, Record)
        assert outcome.value == b"5a"

    def test_the_time_is_the_contexts_unless_it_is_given(self) -> None:
        asked: list[int] = []
        step = Hooks(on_consume=same, poll=asked.append)
        session = Chain([opening(step)]).open(Context(now_ms=lambda: 1234))
        assert session.poll() == []
        assert session.poll(0) == []
        assert asked == [1234, 0]

    def test_an_error_goes_to_the_application_with_its_step(self) -> None:
        error = InterceptorError("expired", topic="orders", partition=1, offset=7)
        step = Hooks(on_consume=same, poll=lambda _: [error, RECORD])
        session = Chain([opening(step, name="slice")]).open()
        assert session.poll(0) == [error, RECORD]
        assert str(error) == "slice at orders[1]@7: expired"
        assert session.stats()["slice"]["failed"] == 1

    @pytest.mark.parametrize(
        ("policy", "left", "count"),
        [
            ("raise", 1, "failed"),
            ("drop", 1, "dropped"),
            ("skip", 0, "skipped"),
            ("dead_letter", 1, "failed"),
        ],
    )
    def test_an_error_is_answered_by_on_error(self, policy: str, left: int, count: str) -> None:
        step = Hooks(on_consume=same, poll=lambda _: [InterceptorError("expired")])
        session = Chain([opening(step, name="slice", on_error=policy)]).open(Context(publish=lambda _: None))
        outcomes = session.poll(0)
        assert len(outcomes) == left
        assert all((outcome is DROP) == (policy == "drop") for outcome in outcomes)
        assert session.stats()["slice"][count] == 1

    def test_a_failing_poll_keeps_what_was_released_before_and_harms_no_other(self) -> None:
        def poll(_: int) -> Iterator[Record]:
            yield RECORD
            raise ValueError(SECRET)

        bad = opening(Hooks(on_consume=same, poll=poll), name="bad")
        good = opening(Hooks(on_consume=same, poll=lambda _: [RECORD]))
        first, error, last = Chain([bad, good]).open().poll(0)
        assert first == last == RECORD
        assert isinstance(error, InterceptorError)
        assert str(error).startswith("bad: raised ValueError at test_session.py:")
        assert str(error).endswith(" in poll; the cause says more")

    def test_what_is_no_record_is_an_error(self) -> None:
        bad = opening(Hooks(on_consume=same, poll=lambda _: [5]), name="bad")
        (outcome,) = Chain([bad]).open().poll(0)
        assert isinstance(outcome, InterceptorError)
        assert "released a int" in str(outcome)

    def test_a_failure_further_on_has_that_steps_name(self) -> None:
        def refuse(record: Record) -> Record:
            raise SignatureError("bad")

        waiting = opening(Hooks(on_consume=lambda _: [], poll=lambda _: [RECORD]))
        (outcome,) = Chain([Hooks(name="left", on_consume=refuse), waiting]).open().poll(0)
        assert str(outcome) == "left at orders[1]@7: bad"

    def test_flush_goes_through_the_rest_of_the_sending_chain(self) -> None:
        lingering = opening(Hooks(on_send=lambda _: [], flush=lambda: iter([Record("orders", b"f")])))
        (outcome,) = Chain([appends("a"), lingering, appends("z")]).open().flush()
        assert isinstance(outcome, Record)
        assert outcome.value == b"fz"


OFFSETS: dict[str, Any] = {
    "is_due": lambda: False,
    "reached": lambda *_: None,
    "seek": lambda *_: None,
    "safe_offset": lambda *place: place[2],
    "safe_offsets": dict,
    "waiting_offsets": dict,
}
REASSEMBLES: dict[str, Any] = {**OFFSETS, "poll": lambda _: None, "revoke": lambda _: None}


class TestOffsets:
    def chain(self, *services: dict[str, Any]) -> Any:
        complete = [{**REASSEMBLES, **each} if OFFSETS.keys() & each else each for each in services]
        return Chain([opening(Hooks(on_consume=same, **service)) for service in complete]).open()

    def test_an_interceptor_that_reassembles_has_all_methods_of_it(self) -> None:
        with pytest.raises(PluginError, match="has the method 'seek'; expected 'is_due', 'reached', 'safe"):
            Chain([opening(Hooks(on_consume=same, seek=lambda *_: 0))]).open()

    @pytest.mark.parametrize("method", ["poll", "revoke"])
    def test_an_interceptor_that_reassembles_gives_messages_up_and_forgets_them(self, method: str) -> None:
        with pytest.raises(PluginError, match=f"expected '{method}', too"):
            Chain([opening(Hooks(on_consume=same, **REASSEMBLES | {method: None}))]).open()

    def test_seek_begins_at_the_earliest_that_any_asks_for(self) -> None:
        session = self.chain({"seek": lambda *_: 40}, {"seek": lambda *_: None}, {"seek": lambda *_: 38}, {})
        assert session.seek("orders", 1, 42) == 38

    def test_seek_is_never_later_than_asked(self) -> None:
        assert self.chain({"seek": lambda *_: 50}).seek("orders", 1, 42) == 42
        assert self.chain({}).seek("orders", 1, 42) == 42

    def test_seek_to_offset_zero_counts(self) -> None:
        assert self.chain({"seek": lambda *_: 0}).seek("orders", 1, 42) == 0

    def test_safe_offset_is_the_smallest(self) -> None:
        session = self.chain({"safe_offset": lambda *a: a[2] - 2}, {"safe_offset": lambda *a: a[2] - 5}, {})
        assert session.safe_offset("orders", 1, 42) == 37
        assert session.reassembles

    def test_safe_offset_is_the_position_where_nobody_gathers(self) -> None:
        session = self.chain({})
        assert session.safe_offset("orders", 1, 42) == 42
        assert not session.reassembles

    def test_safe_offsets_are_merged_by_partition(self) -> None:
        session = self.chain(
            {"safe_offsets": lambda: {("a", 0): 5, ("b", 0): 9, ("c", 0): 1}},
            {"safe_offsets": lambda: {("a", 0): 3, ("a", 1): 0, ("c", 0): 2}},
        )
        assert session.safe_offsets() == {("a", 0): 3, ("b", 0): 9, ("a", 1): 0, ("c", 0): 1}

    def test_revoke_tells_each_all_partitions_even_from_a_generator(self) -> None:
        gone: list[Any] = []
        session = self.chain({"revoke": gone.append}, {"revoke": gone.append})
        session.revoke((topic, 0) for topic in ("a", "b"))
        assert gone == [[("a", 0), ("b", 0)]] * 2

    def test_says_which_services_any_interceptor_offers(self) -> None:
        session = self.chain({"poll": lambda _: None, "on_commit": lambda _: None})
        assert (session.polls, session.hears_commits, session.acknowledges) == (True, True, False)

    @pytest.mark.parametrize(
        ("idle", "awaited"), [([], False), ([True], False), ([True, False], True), ([None], True)]
    )
    def test_awaits_operations_unless_all_who_hear_of_them_are_idle(
        self,
        idle: list[bool | None],
        awaited: bool,  # noqa: FBT001 - a parameter of the test
    ) -> None:
        hearing: dict[str, Any] = {"on_operation": lambda _: None}
        session = self.chain(
            {"poll": lambda _: None},
            *(hearing if each is None else hearing | {"is_idle": lambda each=each: each} for each in idle),
        )
        assert session.awaits_operations() is awaited

    def test_says_whether_acknowledgements_are_for_records_with_state_only(self) -> None:
        own = Hooks(name="own", on_acknowledgement=lambda *_: None, acknowledges_own=True)
        every = Hooks(name="every", on_acknowledgement=lambda *_: None)
        found = [Chain(chain).open() for chain in ([], [own], [own, every])]
        assert [session.acknowledges for session in found] == [False, True, True]
        assert [session.acknowledges_all for session in found] == [False, False, True]

    def test_keeps_the_state_of_one_who_acknowledges_its_own(self) -> None:
        leaves = Hooks(
            name="leaves",
            on_send=lambda record: record.with_local("mine", 1),
            on_acknowledgement=lambda *_: None,
            acknowledges_own=True,
        )
        anew = Hooks(name="anew", on_send=lambda record: Record(record.topic, record.value))
        (sent,) = Chain([leaves, anew]).open().send([RECORD])
        assert sent.local == {"mine": 1}

    def test_a_service_that_is_none_is_not_offered(self) -> None:
        assert not self.chain({"poll": None}).polls


class Opened:
    def __init__(self, log: list[str], name: str, *, fails: bool = False) -> None:
        self.log, self.name, self.fails = log, name, fails

    def on_send(self, record: Record) -> Record:
        return record

    def close(self) -> None:
        self.log.append(self.name)
        if self.fails:
            raise ValueError(SECRET)


class TestClosing:
    def test_closes_each_once_however_often_it_is_called(self) -> None:
        log: list[str] = []
        session = Chain([opening(Opened(log, "a")), opening(Opened(log, "b"))]).open()
        session.close()
        session.close()
        assert sorted(log) == ["a", "b"]

    def test_leaving_a_with_block_closes(self) -> None:
        log: list[str] = []
        with Chain([opening(Opened(log, "a"))]).open() as session:
            assert session.send([RECORD]) == [RECORD]
            assert log == []
        assert log == ["a"]

    def test_one_that_fails_harms_no_other(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.DEBUG)
        log: list[str] = []
        session = Chain([opening(Opened(log, "a", fails=True)), opening(Opened(log, "b"))]).open()
        session.close()
        assert sorted(log) == ["a", "b"]
        assert SECRET not in caplog.text

    def test_what_was_opened_is_closed_once_when_a_later_open_fails(self) -> None:
        def fails(_: Context) -> Any:
            raise OSError("no keyring")

        log: list[str] = []
        chain = Chain([opening(Opened(log, "a")), opening(Opened(log, "b")), Hooks(open=fails)])
        with pytest.raises(OSError, match="no keyring"):
            chain.open()
        assert sorted(log) == ["a", "b"]

    def test_an_open_that_gives_no_hooks_is_refused(self) -> None:
        log: list[str] = []
        chain = Chain([opening(Opened(log, "a")), opening(object(), name="empty")])
        with pytest.raises(PluginError, match=r"interceptors\.empty: open\(\) of 'empty' returned a object"):
            chain.open()
        assert log == ["a"]

    def test_sessions_of_one_chain_have_steps_of_their_own(self) -> None:
        log: list[str] = []
        chain = Chain([Hooks(open=lambda context: Opened(log, str(context.client_id)))])
        first, second = chain.open(Context(client_id="one")), chain.open(Context(client_id="two"))
        first.close()
        assert log == ["one"]
        second.close()
        assert log == ["one", "two"]


class TestOverhead:
    def test_sums_what_stands_right_and_works_on_the_topic(self) -> None:
        contexts: dict[str, Context] = {}

        def step(name: str, overhead: int, topics: tuple[str, ...] = ("*",)) -> Hooks:
            def opened(context: Context) -> Hooks:
                contexts[name] = context
                return Hooks(on_send=same, overhead_bytes=lambda record: overhead + len(record.value))

            return Hooks(name=name, open=opened, topics=topics)

        Chain(
            [step("a", 1), step("b", 10), Hooks(on_send=same), step("c", 100), step("d", 1000, ("x",))]
        ).open()
        overheads = {name: context.overhead_bytes(RECORD) for name, context in contexts.items()}
        assert overheads == {"a": 112, "b": 101, "c": 0, "d": 0}
        assert contexts["c"].overhead_bytes(RECORD.replace(topic="x")) == 1001


class TestStats:
    def test_hold_the_sessions_counts_and_the_steps_own(self) -> None:
        step = Hooks(on_send=same, stats=lambda: {"slices": 3})
        session = Chain([opening(step, name="slice")]).open()
        session.send([RECORD, RECORD])
        assert session.stats() == {
            "slice": {
                "sent": 2,
                "consumed": 0,
                "dropped": 0,
                "failed": 0,
                "skipped": 0,
                "dead_lettered": 0,
                "slices": 3,
            }
        }


class TestThreads:
    def test_sending_from_eight_at_once_loses_and_mixes_nothing(self) -> None:
        count, threads = 500, 8
        barrier = threading.Barrier(threads)

        def fan(record: Record) -> list[Record]:
            return [record, record.replace(partition=1)]

        def fails_on_odd(record: Record) -> Record:
            if int(record.key) % 2:
                raise SignatureError("odd")
            return record

        session = Chain([appends("a"), Hooks(on_send=fan), Hooks(name="odd", on_send=fails_on_odd)]).open()

        def work(thread: int) -> list[Any]:
            barrier.wait()
            topics = [f"t{thread}-{number % 300}" for number in range(count)]
            records = [Record(topic, topic.encode(), b"%d" % number) for number, topic in enumerate(topics)]
            return [(record, session.send_outcome(record)) for record in records]

        with ThreadPoolExecutor(threads) as pool:
            for pairs in pool.map(work, range(threads)):
                for record, outcome in pairs:
                    if int(record.key) % 2:
                        assert str(outcome) == f"odd at {record.topic}: odd"
                    else:
                        assert [piece.value for piece in outcome] == [record.value + b"a"] * 2
        assert session.stats()["odd"]["failed"] == threads * count // 2


def test_records_may_come_from_any_iterable() -> None:
    session = Chain([appends("a")]).open()

    def records() -> Iterable[Record]:
        yield RECORD

    assert session.send(records()) == session.consume(records()) == [RECORD.replace(value=b"va")]


def test_an_opened_interceptor_that_is_empty_keeps_its_services() -> None:
    class Window:
        def __init__(self) -> None:
            self.seen: list[Record] = []

        def __len__(self) -> int:
            return len(self.seen)

        def on_consume(self, record: Record) -> Record:
            return record

        def on_accepted(self, record: Record) -> Record:
            self.seen.append(record)
            return record

        def stats(self) -> dict[str, int]:
            return {"seen": len(self)}

        def overhead_bytes(self, record: Record) -> int:
            return 7

    class Before:
        name = "before"

        def open(self, context: Context) -> Any:
            self.context = context
            return Hooks(on_send=lambda record: record)

    before = Before()
    window = Hooks(name="window", open=lambda _: Window())
    with Chain([before, window]).open(Context()) as session:
        assert before.context.overhead_bytes(Record("t", b"v")) == 7
        assert session.stats()["window"]["seen"] == 0
        assert [record.value for record in session.consume([Record("t", b"v")])] == [b"v"]
        assert session.stats()["window"]["seen"] == 1


def test_an_interceptor_that_hears_statistics_says_how_often_it_wants_them() -> None:
    chain = Chain([Hooks(on_send=lambda record: record, on_statistics=lambda text: None)])
    with pytest.raises(PluginError, match="'on_statistics'; expected 'statistics_interval_ms', too"):
        chain.open(Context())
    chain = Chain(
        [Hooks(on_send=lambda record: record, on_statistics=lambda text: None, statistics_interval_ms=None)]
    )
    with chain.open(Context()) as session:
        assert session.statistics_interval_ms is None


class TestProcessing:
    def test_surrounds_the_block_and_tells_of_each_record(self) -> None:
        seen: list[Any] = []

        class Around(Told):
            @contextmanager
            def processing(self, records: Any) -> Iterator[None]:
                seen.append(("begins", list(records)))
                try:
                    yield
                except ValueError as error:
                    seen.append(("fails", error))
                    raise
                seen.append("ends")

        around = Around()
        session = Chain([around]).open()
        with session.processing([RECORD, RECORD]):
            assert seen == [("begins", [RECORD, RECORD])]
            assert around.told == []
        assert seen[1:] == ["ends"]
        assert around.told == [("processed", RECORD, None)] * 2
        error = ValueError("boom")
        with pytest.raises(ValueError, match="boom"), session.processing([RECORD]):
            raise error
        assert seen[2:] == [("begins", [RECORD]), ("fails", error)]
        assert around.told[2:] == [("processed", RECORD, error)]

    def test_a_failing_one_harms_nobody(self, caplog: pytest.LogCaptureFixture) -> None:
        class Failing(Told):
            def processing(self, records: Any) -> Any:
                raise ValueError(SECRET)

        class Leaving(Told):
            @contextmanager
            def processing(self, records: Any) -> Iterator[None]:
                yield
                raise ValueError(SECRET)

        session = Chain([Failing(), Leaving(), told := Told()]).open()
        done = False
        with session.processing([RECORD]):
            done = True
        assert done
        assert told.told == [("processed", RECORD, None)]
        assert SECRET not in caplog.text
        assert [record.levelname for record in caplog.records] == ["WARNING"] * 2

    def test_operations_are_told_with_the_records_of_matching_topics(self) -> None:
        class Hears(Told):
            def on_operation(self, operation: Operation) -> None:
                self.told.append(operation)

        every, other = Hears(), Hears(topics=("payments",))
        session = Chain([every, other]).open()
        payment = RECORD.replace(topic="payments")
        receive = Operation(name="receive", began_ns=1, ended_ns=2, records=[RECORD, payment])
        session.operation(receive)
        assert every.told == [receive]
        assert [operation.records for operation in other.told] == [[payment]]
        session.operation(Operation(name="receive", began_ns=1, ended_ns=2, records=[RECORD]))
        assert len(other.told) == 1
