"""How a guard deals with a cluster: topics that cannot work, answers with errors, and one that goes away."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
    cimpl,
)
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from headerware import Chain, ConfigError, Context, HeaderwareError, Interceptor, Record
from headerware.core.context import wall_clock_ms
from headerware.ops.guard import Guard
from headerware.testing import EmbeddedCluster
from headerware.workers.transactions import TransactionalSender
from tests.ingress import INGRESS, LETTERS, ROUTES, Ingress
from tests.scripted import Scripted
from tests.waiting import DEADLINE_S, until


@pytest.fixture
def ingress(tmp_path: Path) -> Ingress:
    return Ingress(tmp_path)


def guard_of(ingress: Ingress, servers: str = "nowhere:1", **options: Any) -> Guard:
    options = {"chain": ingress.guard_chain(), **options}
    return Guard({"bootstrap.servers": servers}, ROUTES, **options)


def message_of(record: Record, **fields: Any) -> Message:
    headers: Any = list(record.headers)
    return Message(INGRESS, 0, value=record.value, key=record.key, headers=headers, **fields)


class TestOptions:
    def test_look_back_s_replaces_a_missing_max_age_ms(self, ingress: Ingress) -> None:
        chain = ingress.guard_chain(max_age_ms=None)
        guard_of(ingress, chain=chain, look_back_s=60)
        with pytest.raises(ConfigError, match="set max_age_ms or look_back_s"):
            guard_of(ingress, chain=chain)

    @pytest.mark.parametrize(
        ("option", "value"),
        [("look_back_s", -60), ("look_back_s", float("inf")), ("timeout_s", 0), ("timeout_s", float("nan"))],
    )
    def test_that_are_no_duration_are_refused(self, ingress: Ingress, option: str, value: float) -> None:
        with pytest.raises(ConfigError, match=f"{option}: expected .* seconds, found {value}"):
            guard_of(ingress, **{option: value})  # type: ignore[arg-type]  # the name is not known here


class TestAGuard:
    def test_runs_once(self, ingress: Ingress) -> None:
        """A second run would use closed chains, and after a dry run a judge that does not wait."""
        guard = guard_of(ingress)
        guard.stop()
        guard.run()
        with pytest.raises(HeaderwareError, match="make a new Guard"):
            guard.run()

    def test_does_not_run_after_its_dry_run(self, ingress: Ingress) -> None:
        with EmbeddedCluster(topics={INGRESS: 1}) as embedded:
            guard = guard_of(ingress, embedded.bootstrap_servers)
            guard.dry_run()
            with pytest.raises(HeaderwareError, match="make a new Guard"):
                guard.run()
            with pytest.raises(HeaderwareError, match="make a new Guard"):
                guard.dry_run()

    def test_does_not_live_as_long_as_its_meter(
        self, ingress: Ingress, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        reader = InMemoryMetricReader()
        meters = MeterProvider([reader])
        monkeypatch.setattr("headerware.ops.guard.worker.get_meter", meters.get_meter)
        guard = weakref.ref(guard_of(ingress))
        gc.collect()
        assert guard() is None
        assert reader.get_metrics_data() is None
        meters.shutdown()

    def test_leaves_its_group_also_if_its_producer_cannot_be_closed(
        self, ingress: Ingress, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        closed: list[object] = []

        class Consumer(cimpl.Consumer):
            def close(self) -> None:
                super().close()
                closed.append(self)

        def fail(sender: TransactionalSender) -> None:
            close(sender)
            raise HeaderwareError("the producer cannot be closed")

        close = TransactionalSender.close
        monkeypatch.setattr("headerware.ops.guard.worker.cimpl", SimpleNamespace(Consumer=Consumer))
        monkeypatch.setattr(TransactionalSender, "close", fail)
        with EmbeddedCluster(topics={INGRESS: 1}) as embedded:
            guard = guard_of(ingress, embedded.bootstrap_servers)
            with pytest.raises(HeaderwareError, match="the producer cannot be closed"):
                guard.run(lambda _: guard.stop())
        assert len(closed) == 1


class TestTopics:
    def test_that_cannot_work_leave_the_others_alone(
        self, ingress: Ingress, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Whoever may create a topic may not end the guard of all others."""
        guard = guard_of(ingress, audit_topic="guard-audit")
        guard._topics = dict.fromkeys((INGRESS, "ingress.ingress.x", "ingress.guard-audit", "other"), 1)
        assert [guard._ingress() for _ in range(2)] == [[INGRESS]] * 2
        told = [each.getMessage() for each in caplog.records if each.name == "headerware.ops.guard"]
        assert len(told) == 2
        assert "ingress.guard-audit is not guarded" in told[0]
        assert "ingress.ingress.x is not guarded" in told[1]

    def test_that_a_route_does_not_find_are_told_once(
        self, ingress: Ingress, caplog: pytest.LogCaptureFixture
    ) -> None:
        """A name that is misspelled would be waited for in silence."""
        guard = guard_of(ingress)
        guard._topics = {"orders": 1}
        assert [guard._ingress() for _ in range(2)] == [[], []]
        assert [each.getMessage() for each in caplog.records if each.name == "headerware.ops.guard"] == [
            f"no topic fits the route from {route} yet; the guard will look again" for route in ROUTES
        ]


class KeepsBack(Interceptor, frozen=True, kw_only=True):
    """Keep all records, and release them later."""

    type: ClassVar[str] = "keeps-back"

    def open(self, context: Context) -> Any:
        """Return hooks that keep records."""
        kept: list[Record] = []

        def on_consume(record: Record) -> Any:
            kept.append(record)
            return []

        return SimpleNamespace(on_consume=on_consume, poll=lambda _: kept)


class Tells(Interceptor, frozen=True, kw_only=True):
    """Tell which brokers it got."""

    type: ClassVar[str] = "tells"
    told: list[str | None]

    def open(self, context: Context) -> Any:
        """Return a hook that changes nothing."""
        self.told.append(context.bootstrap_servers)
        return SimpleNamespace(on_consume=lambda record: record)


class TestAChain:
    def test_gets_the_brokers_under_either_name_of_the_property(self, ingress: Ingress) -> None:
        told: list[str | None] = []
        chain = Chain([Tells(told=told), *ingress.guard_chain()])
        guard = Guard({"metadata.broker.list": "nowhere:1"}, ROUTES, chain=chain)
        guard._open_judge(Answers(), dry_run=True)
        guard._close()
        assert told == ["nowhere:1"]

    def test_that_keeps_records_back_is_refused(self, ingress: Ingress) -> None:
        """What it releases has no position, so it would neither go on nor become a dead letter."""
        chain = Chain([KeepsBack(), *ingress.guard_chain()])
        with EmbeddedCluster() as embedded:
            guard = Guard({"bootstrap.servers": embedded.bootstrap_servers}, ROUTES, chain=chain)
            with pytest.raises(ConfigError, match="keeps-back of the guard's chain keeps records back"):
                guard.run()

    def test_that_keeps_records_back_does_not_replace_another(self, ingress: Ingress) -> None:
        """The chain in force goes on, with its windows."""
        guard, answers = guard_of(ingress), Answers()
        judge = guard._open_judge(answers, dry_run=False)
        judge.begin((INGRESS, 0))
        (record,) = ingress.sent(b"v")
        guard._topics = dict.fromkeys((INGRESS, "orders", LETTERS), 1)
        copies = [record.replace(topic=INGRESS, partition=0, offset=offset) for offset in range(2)]
        judge.add(copies[0])
        assert [each.disposition for each in judge.decide()] == ["sent"]
        in_force = guard.chain
        with pytest.raises(ConfigError, match="keeps-back of the guard's chain keeps records back"):
            guard._hw_use_chain(Chain([KeepsBack(), *ingress.guard_chain()]))
        assert guard.chain is in_force
        judge.add(copies[1])
        assert [each.why for each in judge.decide()] == ["sign: SignatureError"]
        guard._close()

    def test_that_is_refused_as_the_second_leaves_the_first_closed(self, ingress: Ingress) -> None:
        closed: list[Any] = []

        class Closes(Interceptor, frozen=True, kw_only=True):
            type: ClassVar[str] = "closes"

            def open(self, context: Context) -> Any:
                return SimpleNamespace(
                    on_consume=lambda record: record, close=lambda: closed.append(context.side)
                )

        class Flushes(Interceptor, frozen=True, kw_only=True):
            type: ClassVar[str] = "flushes"

            def open(self, _: Context) -> Any:
                return SimpleNamespace(on_send=lambda _: [], flush=list)

        chain = Chain([Closes(), *ingress.guard_chain()])
        with EmbeddedCluster() as embedded:
            guard = guard_of(ingress, embedded.bootstrap_servers, chain=chain, second=Chain([Flushes()]))
            with pytest.raises(ConfigError, match="flushes of the guard's second chain keeps records back"):
                guard.run()
        assert closed == ["consumer"]


class Answers:
    """What a cluster of which one broker is away answers: the second partition has no leader."""

    def __init__(self) -> None:
        self.leaders = [1, -1]
        self.assigned: list[tuple[int, int]] = []
        self.paused: list[int] = []

    def list_topics(self, timeout: float) -> Any:
        partitions = {n: SimpleNamespace(leader=leader) for n, leader in enumerate(self.leaders)}
        return SimpleNamespace(cluster_id="c", topics={INGRESS: SimpleNamespace(partitions=partitions)})

    def committed(self, asked: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        return [TopicPartition(each.topic, each.partition, 5) for each in asked]

    def consumer_group_metadata(self) -> object:
        return object()

    def get_watermark_offsets(
        self, place: TopicPartition, timeout: float = 0, *, cached: bool = False
    ) -> tuple[int, int]:
        if self.leaders[place.partition] < 0:
            raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))
        return 0, 9

    def offsets_for_times(self, asked: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        return [TopicPartition(each.topic, each.partition, 5) for each in asked]

    def assign(self, begins: list[TopicPartition]) -> None:
        self.assigned = [(each.partition, each.offset) for each in begins]

    def resume(self, places: list[TopicPartition]) -> None:
        self.paused = []

    def pause(self, places: list[TopicPartition]) -> None:
        self.paused = [each.partition for each in places]


class TestAPartitionWithoutALeader:
    @pytest.mark.parametrize("look_back_s", [0, None])
    def test_leaves_the_others_alone(self, ingress: Ingress, look_back_s: int | None) -> None:
        """Unless they may have copies of its records, which only reading it again would tell."""
        guard, answers = guard_of(ingress, look_back_s=look_back_s), Answers()
        judge = guard._open_judge(answers, dry_run=False)
        guard._on_assign(answers, [TopicPartition(INGRESS, number) for number in range(2)])
        assert answers.assigned == [(0, 5), (1, OFFSET_BEGINNING)]
        assert (answers.paused, judge.assigned) == ([1], [(INGRESS, 0)])
        assert guard.status().held == {f"{INGRESS}[1]": "the partition has no leader"}
        assert judge.is_blind == (look_back_s is None)
        answers.leaders[1] = 2
        guard._refresh_topics(answers)
        assert guard._assignment.unreadable - guard._leaderless == {(INGRESS, 1)}
        guard._on_revoke(answers, [TopicPartition(INGRESS, number) for number in range(2)])
        assert guard.status().held == {}
        assert not judge.is_blind
        guard._close()


class TestTimeLookUps:
    def test_begin_at_the_first_millisecond_that_counts(self, ingress: Ingress) -> None:
        asked: list[TopicPartition] = []

        def note(given: list[TopicPartition], timeout: float) -> list[TopicPartition]:
            asked.extend(given)
            return []

        answers = SimpleNamespace(offsets_for_times=note)
        # As a float, 1.001 seconds are a little less than 1,001 ms.
        guard = guard_of(ingress, chain=ingress.guard_chain(max_age_ms=1_001, clock_skew_ms=0))
        before_ms = wall_clock_ms()
        guard._look_back_offsets(answers, [TopicPartition(INGRESS, 0, 5)])
        assert before_ms - 1_001 <= asked[0].offset <= wall_clock_ms() - 1_001

    def test_that_fail_do_not_leave_a_gap(self, ingress: Ingress) -> None:
        """A partition without an answer would begin at its commit, and copies would pass."""
        failed = SimpleNamespace(
            topic=INGRESS, partition=0, offset=-1, error=KafkaError(KafkaError.LEADER_NOT_AVAILABLE)
        )
        answers = SimpleNamespace(offsets_for_times=lambda _asked, timeout: [failed])
        with pytest.raises(KafkaException, match="LEADER_NOT_AVAILABLE"):
            guard_of(ingress)._look_back_offsets(answers, [TopicPartition(INGRESS, 0, 5)])


class TestACluster:
    def test_that_goes_is_waited_for_also_if_nothing_has_come_yet(
        self, ingress: Ingress, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("headerware.ops.guard.worker._TOPICS_INTERVAL_S", 0.2)
        told: list[Any] = []
        with EmbeddedCluster(topics={INGRESS: 1, "orders": 1, LETTERS: 1}) as embedded:
            guard = guard_of(ingress, embedded.bootstrap_servers, timeout_s=4.0, look_back_s=0)
            thread = threading.Thread(target=guard.run, args=[told.append], daemon=True)
            thread.start()
            until(lambda: told, "that it tells of its work, though there is none")
        try:
            until(lambda: "uncommitted records are read again" in caplog.text)
            assert thread.is_alive()
        finally:
            guard.stop()
            thread.join(DEADLINE_S)
        assert not thread.is_alive()


class TestADryRun:
    def test_names_all_topics_that_are_missing(
        self, ingress: Ingress, caplog: pytest.LogCaptureFixture
    ) -> None:
        guard = guard_of(ingress, audit_topic="guard-audit")
        guard._topics = {INGRESS: 1}
        for _ in range(2):
            guard._warn_of_missing_topics([INGRESS])
        (told,) = (each.getMessage() for each in caplog.records if each.name == "headerware.ops.guard")
        missing = sorted({"guard-audit", f"{INGRESS}.dead-letter", str(guard._routes.egress(INGRESS))})
        assert told == f"records are held back until these topics exist: {', '.join(missing)}; create them"

    def test_ends_if_the_cluster_goes(self, ingress: Ingress, monkeypatch: pytest.MonkeyPatch) -> None:
        begin = Guard._begin_partitions

        def begin_and_lose(guard: Guard, *arguments: Any) -> Any:
            begins = begin(guard, *arguments)
            embedded.close()
            return begins

        monkeypatch.setattr(Guard, "_begin_partitions", begin_and_lose)
        with EmbeddedCluster(topics={INGRESS: 2}) as embedded:
            guard = guard_of(ingress, embedded.bootstrap_servers, timeout_s=2.0)
            expected = rf"nor the end of 2 partitions, such as {INGRESS}\[0\], came within 2 s"
            with pytest.raises(KafkaException, match=expected):
                guard.dry_run()

    def test_does_not_count_the_time_of_its_decisions_as_waiting(self, ingress: Ingress) -> None:
        timeout_s = 1.0
        guard, answers = guard_of(ingress, look_back_s=0, timeout_s=timeout_s), Answers()
        (record,) = ingress.sent(b"1")
        end = KafkaError(KafkaError._PARTITION_EOF)
        messages = [
            message_of(record, offset=5),
            None,
            None,
            None,
            message_of(record, offset=6, error=end),
            None,
        ]
        answers.poll = lambda _: messages.pop(0)  # type: ignore[attr-defined]
        guard._judge_to_ends(answers, lambda _: time.sleep(timeout_s + 0.1))
        assert not messages
        guard._close()

    @pytest.mark.parametrize("code", [KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_PARTITION])
    def test_ends_without_a_topic_that_is_deleted_meanwhile(self, ingress: Ingress, code: int) -> None:
        guard, answers = guard_of(ingress, look_back_s=0), Answers()
        (record,) = ingress.sent(b"1")
        scripted = Scripted(INGRESS, KafkaError(code))
        scripted._messages.insert(0, message_of(record, offset=5))
        answers.poll = scripted.poll  # type: ignore[attr-defined]
        told: list[Any] = []
        guard._judge_to_ends(answers, told.append)
        assert told[-1].admitted == {INGRESS: 1}
        guard._close()


class TestTimestamps:
    def warnings(
        self, ingress: Ingress, caplog: pytest.LogCaptureFixture, kind: int, **options: Any
    ) -> list[str]:
        guard, answers = guard_of(ingress, **options), Answers()
        judge = guard._open_judge(answers, dry_run=True)
        judge.begin((INGRESS, 0))
        scripted = Scripted(INGRESS)
        scripted._messages = [
            message_of(record, offset=offset, timestamp=(kind, ingress.now_ms))
            for offset, record in enumerate(ingress.sent(b"1", b"2"))
        ]
        guard._read(scripted, judge)
        guard._close()
        texts = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
        return [text for text in texts if "message.timestamp.type" in text]

    def test_of_producers_are_warned_of_once(
        self, ingress: Ingress, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Records are read again by their timestamps, and a copy may have any."""
        (warning,) = self.warnings(ingress, caplog, TIMESTAMP_CREATE_TIME)
        assert warning.startswith(f"the topic {INGRESS} has message.timestamp.type=CreateTime")

    @pytest.mark.parametrize(
        ("kind", "options"), [(TIMESTAMP_LOG_APPEND_TIME, {}), (TIMESTAMP_CREATE_TIME, {"look_back_s": 0})]
    )
    def test_of_brokers_or_without_a_window_are_not(
        self, ingress: Ingress, caplog: pytest.LogCaptureFixture, kind: int, options: dict[str, Any]
    ) -> None:
        assert self.warnings(ingress, caplog, kind, **options) == []


class TestAnAuditTopic:
    def test_that_takes_no_accounts_leaves_nothing_unheard(self, ingress: Ingress) -> None:
        """The second chain's steps have something open for each record that goes through them."""
        told: list[Any] = []

        class Hears(Interceptor, frozen=True, kw_only=True):
            type: ClassVar[str] = "hears-all"

            def open(self, context: Context) -> Any:
                return SimpleNamespace(
                    on_send=lambda record: record.with_local("seen", record.value),
                    on_acknowledgement=lambda record, _, error: told.append((record.value, type(error))),
                )

        guard = guard_of(ingress, second=Chain([Hears()]), audit_topic="accounts")
        topics = (INGRESS, "orders", LETTERS, "accounts")
        answers = Answers()
        judge = guard._open_judge(answers, dry_run=False)
        guard._topics = dict.fromkeys(topics, 1)
        judge.begin((INGRESS, 0))
        (record,) = ingress.sent(b"v")
        judge.add(record.replace(topic=INGRESS, partition=0, offset=0))
        refusal = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)
        refuses = SimpleNamespace(send=lambda records, *_, **__: {len(records) - 1: refusal})
        with pytest.raises(HeaderwareError, match="accounts takes no accounts"):
            guard._send(answers, refuses, judge, judge.decide())  # type: ignore[arg-type]
        assert told == [(b"v", HeaderwareError)]
        guard._close()
