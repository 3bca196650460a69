"""Counts of an audit, and the reports of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import TopicPartition

from headerware import DROP, Chain, Consumer, Context, Producer, Record, RecordMetadata, WireFormatError
from headerware.core.record import Operation
from headerware.interceptors import Audit, AuditCount, AuditReport, Dedup, Slice, decode_report
from headerware.interceptors import audit as audit_module

if TYPE_CHECKING:
    from headerware.core.session import Session
    from headerware.testing import EmbeddedCluster

BUCKET = 1_767_225_600_000
TOPIC = "headerware-audit"
HEAD = (
    b'{"v":1,"session":"0123456789abcdef","sequence":0,"side":"producer","service":"a","at":1,'
    b'"interval_ms":1,"bucket_ms":1'
)


class World:
    """A clock, and a topic for reports that may be out of order."""

    def __init__(self) -> None:
        self.now = BUCKET + 1_000
        self.posted: list[Record] = []
        self.full = False
        self.error: Exception | None = None

    def post(self, record: Record, done: Callable[[BaseException | None], None]) -> None:
        if self.full:
            raise BufferError
        if self.error is None:
            self.posted.append(record)
        done(self.error)

    def open(
        self, *steps: object, side: Any = "producer", transactional: bool = False, **options: Any
    ) -> Session:
        context = Context(
            side=side,
            client_id="shop",
            group_id="billing" if side == "consumer" else None,
            now_ms=lambda: self.now,
            post=self.post,
            transactional=transactional,
        )
        return Chain([Audit(**options), *steps]).open(context)

    @property
    def reports(self) -> list[AuditReport]:
        return [decode_report(record.value) for record in self.posted]

    @property
    def counts(self) -> list[AuditCount]:
        return [count for report in self.reports for count in report.counts]


@pytest.fixture
def world() -> World:
    return World()


def send(session: Session, value: bytes, offset: int = 0, *, error: Exception | None = None) -> None:
    """Send a record and acknowledge it, as a producer does."""
    (record,) = session.send([Record("orders", value)])
    session.acknowledge(record, RecordMetadata("orders", 0, offset, record.timestamp_ms), error)


def read(session: Session, *offsets: int, at: int = BUCKET) -> None:
    """Consume records, and give those that come through to the application."""
    for offset in offsets:
        record = Record("orders", b"12345", partition=0, offset=offset, timestamp_ms=at)
        records = session.consume([record])
        session.operation(Operation(name="receive", began_ns=0, ended_ns=1, records=records))


class TestProducers:
    def test_count_what_was_delivered_with_offsets(self, world: World) -> None:
        session = world.open()
        for offset in (0, 1, 4, 3):
            send(session, b"123", offset)
        session.close()
        (count,) = world.counts
        assert count == AuditCount(
            topic="orders",
            partition=0,
            bucket=BUCKET,
            outcome="delivered",
            records=4,
            bytes=12,
            offsets=((0, 1), (3, 4)),
        )

    def test_count_what_failed_by_cause(self, world: World) -> None:
        session = world.open()
        send(session, b"1", error=TimeoutError())
        session.close()
        (count,) = world.counts
        assert (count.outcome, count.cause, count.offsets) == ("failed", "TimeoutError", None)

    def test_use_the_time_that_the_broker_set(self, world: World) -> None:
        session = world.open()
        (record,) = session.send([Record("orders", b"1")])
        session.acknowledge(record, RecordMetadata("orders", 0, 7, BUCKET + 120_000), None)
        session.close()
        assert [count.bucket for count in world.counts] == [BUCKET + 120_000]

    def test_count_bytes_before_they_are_compressed_or_signed(self, world: World) -> None:
        class Smaller:
            def on_send(self, record: Record) -> Record:
                return record.with_value(b"")

        session = world.open(Smaller())
        send(session, b"123")
        session.close()
        assert [count.bytes for count in world.counts] == [3]

    def test_give_all_slices_one_time(self, world: World) -> None:
        session = world.open(Slice(max_bytes=1_000))
        slices = session.send([Record("orders", bytes(3_000))])
        assert len(slices) > 1
        assert {record.timestamp_ms for record in slices} == {world.now}

    def test_keep_the_applications_time(self, world: World) -> None:
        (record,) = world.open().send([Record("orders", b"1", timestamp_ms=5)])
        assert record.timestamp_ms == 5

    def test_do_not_count_the_reports_themselves(self, world: World) -> None:
        session = world.open()
        (record,) = session.send([Record(TOPIC, b"1")])
        assert record.local is None
        session.acknowledge(record, RecordMetadata(TOPIC, 0, 1), None)
        session.close()
        assert world.counts == []


def end(session: Session, name: Any, error: Exception | None = None) -> None:
    """Tell of the begin or the end of a transaction."""
    session.operation(Operation(name=name, began_ns=0, ended_ns=1, error=error))


class TestTransactions:
    @pytest.mark.parametrize(
        ("name", "outcome"), [("commit_transaction", "delivered"), ("abort_transaction", "aborted")]
    )
    def test_decide_what_was_delivered_in_them(self, world: World, name: str, outcome: str) -> None:
        session = world.open(transactional=True)
        end(session, "begin_transaction")
        send(session, b"123", 0)
        send(session, b"123", 1)
        session.tick()
        assert [(count.outcome, count.offsets) for count in world.counts] == [("undecided", ((0, 1),))]
        end(session, name)
        session.close()
        (count,) = world.reports[-1].counts
        assert (count.outcome, count.records, count.bytes, count.offsets) == (outcome, 2, 6, ((0, 1),))

    def test_are_counted_one_by_one(self, world: World) -> None:
        session = world.open(transactional=True)
        for offset, name in ((0, "commit"), (2, "abort"), (4, "commit")):
            end(session, "begin_transaction")
            send(session, b"1", offset)
            end(session, f"{name}_transaction")
        session.close()
        assert {count.outcome: count.offsets for count in world.counts} == {
            "delivered": ((0, 0), (4, 4)),
            "aborted": ((2, 2),),
        }

    def test_that_cannot_be_ended_are_undecided_until_the_next_try(self, world: World) -> None:
        session = world.open(transactional=True, interval_s=1)
        end(session, "begin_transaction")
        send(session, b"1")
        end(session, "commit_transaction", TimeoutError())
        session.tick()
        end(session, "commit_transaction")
        session.close()
        assert [count.outcome for count in world.counts] == ["undecided", "delivered"]

    def test_that_never_end_stay_undecided(self, world: World) -> None:
        session = world.open(transactional=True)
        end(session, "begin_transaction")
        send(session, b"1")
        end(session, "abort_transaction", RuntimeError())
        session.close()
        (count,) = world.counts
        assert (count.outcome, count.records, count.offsets) == ("undecided", 1, ((0, 0),))

    def test_before_the_next_of_which_nobody_knows_are_undecided(self, world: World) -> None:
        session = world.open(transactional=True)
        for offset, error in ((0, KeyError()), (2, None)):
            end(session, "begin_transaction")
            send(session, b"1", offset)
            end(session, "commit_transaction", error)
        session.close()
        assert {count.outcome: count.offsets for count in world.counts} == {
            "undecided": ((0, 0),),
            "delivered": ((2, 2),),
        }

    def test_do_not_change_what_failed(self, world: World) -> None:
        session = world.open(transactional=True)
        send(session, b"1", error=TimeoutError())
        end(session, "abort_transaction")
        session.close()
        assert [count.outcome for count in world.counts] == ["failed"]

    def test_with_a_flood_of_ranges_are_bounded(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(audit_module, "_MAX_RANGES", 10)
        session = world.open(transactional=True)
        for offset in range(0, 40, 2):
            send(session, b"1", offset)
            end(session, "commit_transaction")
        session.close()
        (count,) = world.counts
        assert (count.outcome, count.records, count.offsets) == ("delivered", 20, None)

    def test_over_the_limit_are_left_out(self, world: World) -> None:
        session = world.open(transactional=True, max_counts=1)
        for name in ("commit_transaction", "abort_transaction"):
            send(session, b"1")
            send(session, b"2")
            end(session, name)
        session.close()
        assert [count.records for count in world.counts] == [2]
        assert sum(report.left_out for report in world.reports) == 2


class TestConsumers:
    def test_count_what_the_application_gets(self, world: World) -> None:
        session = world.open(side="consumer")
        read(session, 0, 1, 1)
        session.close()
        (count,) = world.counts
        assert (count.outcome, count.records, count.bytes, count.offsets) == ("consumed", 3, 15, ((0, 1),))
        assert {report.group for report in world.reports} == {"billing"}

    def test_do_not_count_what_waits_and_was_not_given(self, world: World) -> None:
        session = world.open(side="consumer")
        session.consume([Record("orders", b"1", partition=0, offset=0, timestamp_ms=BUCKET)])
        session.close()
        assert world.counts == []

    def test_count_what_another_step_refuses_drops_and_passes_over(self, world: World) -> None:
        class Picky:
            def on_consume(self, record: Record) -> Any:
                if record.offset == 1:
                    raise ValueError
                return DROP if record.offset == 2 else record

        session = world.open(Picky(), side="consumer")
        for offset in range(3):
            if offset == 1:
                with pytest.raises(Exception, match="ValueError"):
                    read(session, offset)
            else:
                read(session, offset)
        session.close()
        found = {(count.outcome, count.cause): count.offsets for count in world.counts}
        assert found == {
            ("consumed", None): ((0, 0),),
            ("refused", "ValueError"): ((1, 1),),
            ("dropped", None): ((2, 2),),
        }

    def test_count_a_copy_that_dedup_drops_last(self, world: World) -> None:
        (record,) = Chain([Dedup()]).open().send([Record("orders", b"1", partition=0)])
        session = world.open(Dedup(), side="consumer")
        for offset in (1, 2):
            records = session.consume([record.replace(offset=offset, timestamp_ms=BUCKET)])
            session.operation(Operation(name="receive", began_ns=0, ended_ns=1, records=records))
        session.close()
        assert {count.outcome: count.offsets for count in world.counts} == {
            "consumed": ((1, 1),),
            "dropped": ((2, 2),),
        }

    def test_count_a_record_once_that_a_step_made_several_of(self, world: World) -> None:
        session = world.open(side="consumer")
        record = Record("orders", b"1", partition=0, offset=0, timestamp_ms=BUCKET)
        records = session.consume([record]) * 3
        session.operation(Operation(name="receive", began_ns=0, ended_ns=1, records=records))
        session.close()
        assert [count.records for count in world.counts] == [1]

    @pytest.mark.parametrize("outcome", ["skipped", "dead_lettered"])
    @pytest.mark.parametrize("keeps_local", [True, False], ids=["as given", "as on the wire"])
    def test_count_what_run_gives_up_beside_what_was_consumed(
        self,
        world: World,
        outcome: str,
        keeps_local: bool,  # noqa: FBT001 - pytest passes it by name
    ) -> None:
        session = world.open(side="consumer")
        wire = Record("orders", b"12345", partition=0, offset=3, timestamp_ms=BUCKET)
        (record,) = session.consume([wire])
        session.operation(Operation(name="receive", began_ns=0, ended_ns=1, records=[record]))
        told = record if keeps_local else wire
        session.stopped(told, outcome, KeyError())
        session.close()
        found = [(count.outcome, count.given, count.cause, count.records) for count in world.counts]
        assert found == [("consumed", False, None, 1), (outcome, True, "KeyError", 1)]
        assert {count.offsets for count in world.counts} == {((3, 3),)}

    def test_do_not_count_what_a_step_passes_over(self, world: World) -> None:
        class Fails:
            name, on_error = "fails", "skip"

            def on_consume(self, record: Record) -> Record:
                raise ValueError

        session = world.open(Fails(), side="consumer")
        read(session, 0)
        session.close()
        assert [count.outcome for count in world.counts] == ["consumed"]

    def test_tell_what_is_late(self, world: World) -> None:
        session = world.open(side="consumer", late_after_s=10)
        read(session, 0, at=world.now - 10_000)
        read(session, 1, at=world.now - 10_001)
        session.close()
        assert sum(count.late for count in world.counts) == 1
        assert {count.bucket for count in world.counts} == {BUCKET - 60_000}


class TestReports:
    def test_are_numbered_and_end(self, world: World) -> None:
        session = world.open(interval_s=10)
        session.tick()
        world.now += 9_999
        session.tick()
        world.now += 1
        session.tick()
        session.close()
        assert [(report.sequence, report.last) for report in world.reports] == [
            (0, False),
            (1, False),
            (2, True),
        ]
        assert len({report.session for report in world.reports}) == 1
        assert {record.key.decode() for record in world.posted} == {world.reports[0].session}

    def test_that_find_no_room_are_sent_later(self, world: World) -> None:
        session = world.open(interval_s=1)
        world.full = True
        send(session, b"1")
        session.tick()
        assert session.stats()["audit"]["pending_reports"] == 1
        world.full, world.now = False, world.now + 1_000
        session.tick()
        assert sorted(report.sequence for report in world.reports) == [0, 1]
        assert sum(count.records for count in world.counts) == 1
        assert session.stats()["audit"]["reports_failed"] == 1

    def test_that_fail_again_and_again_are_given_up_over_a_limit(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(audit_module, "_MAX_WAITING", 3)
        session = world.open(interval_s=1)
        world.full = True
        for _ in range(5):
            session.tick()
            world.now += 1_000
        assert session.stats()["audit"]["reports_given_up"] == 2
        world.full = False
        session.close()
        assert sorted(report.sequence for report in world.reports) == [2, 3, 4, 5]

    def test_of_a_flood_of_topics_are_bounded(self, world: World) -> None:
        session = world.open(max_counts=2)
        for number in range(5):
            (record,) = session.send([Record(f"orders-{number}", b"1")])
            session.acknowledge(record, RecordMetadata(record.topic, 0, 1), None)
        session.close()
        assert len(world.counts) == 2
        assert sum(report.left_out for report in world.reports) == 3
        assert session.stats()["audit"]["left_out"] == 3

    def test_of_a_flood_of_ranges_say_that_offsets_are_not_known(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(audit_module, "_MAX_RANGES", 10)
        session = world.open(side="consumer")
        read(session, *range(0, 40, 2))
        session.close()
        (count,) = world.counts
        assert (count.records, count.offsets) == (20, None)

    def test_merge_ranges_that_come_in_any_order(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(audit_module, "_MAX_RANGES", 10)
        session = world.open(side="consumer")
        read(session, *reversed(range(40)))
        session.close()
        assert [count.offsets for count in world.counts] == [((0, 39),)]

    def test_that_are_large_are_several(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(audit_module, "_REPORT_WEIGHT", 20)
        session = world.open(bucket_s=1)
        for number in range(9):
            world.now = BUCKET + number * 1_000
            send(session, b"1", number)
        session.close()
        assert [report.last for report in world.reports] == [False, False, False, False, True]
        assert sum(count.records for count in world.counts) == 9

    @pytest.mark.parametrize(
        "value",
        [
            None,
            b"",
            b"\xff",
            b"{}",
            b"[]",
            HEAD.replace(b'"v":1', b'"v":3') + b"}",
            HEAD.replace(b"0123456789abcdef", b"nobody") + b"}",
            HEAD + b',"more":' + b"[" * 10_000 + b"]" * 10_000 + b"}",
        ],
    )
    def test_that_are_none_are_refused(self, value: bytes | None) -> None:
        with pytest.raises(WireFormatError, match="expected a report of an audit"):
            decode_report(value)

    def test_that_are_none_are_not_quoted(self) -> None:
        with pytest.raises(WireFormatError, match="Invalid enum value, at side") as raised:
            decode_report(HEAD.replace(b'"producer"', b'"4111 1111"') + b"}")
        assert "4111" not in str(raised.value)

    @pytest.mark.parametrize("offsets", ["[[2,1]]", "[[-1,1]]", "[[1,5],[5,6]]", "[[4,5],[1,2]]"])
    def test_with_ranges_out_of_order_are_refused(self, offsets: str) -> None:
        count = f'{{"topic":"o","bucket":1,"outcome":"consumed","records":1,"bytes":1,"offsets":{offsets}}}'
        with pytest.raises(WireFormatError, match="ranges of offsets"):
            decode_report(HEAD + f',"counts":[{count}]}}'.encode())


class TestClients:
    def test_report_beside_the_applications_records(
        self, embedded_cluster: EmbeddedCluster, unique_topic: Callable[[str], str]
    ) -> None:
        topic, audit_topic = unique_topic("orders"), unique_topic("audit")
        for name in (topic, audit_topic):
            embedded_cluster.create_topic(name, partitions=1)
        conf = {"bootstrap.servers": embedded_cluster.bootstrap_servers, "log_level": 0}
        chain = Chain([Audit(audit_topic=audit_topic, service="shop")])
        with Producer(conf, chain=chain) as producer:
            for _ in range(3):
                producer.produce(topic, b"1", partition=0)
            producer.flush(60)
            assert len(producer) == 0
        group = {"group.id": topic, "auto.offset.reset": "earliest", "fetch.wait.max.ms": 20}
        with Consumer({**conf, **group}, chain=chain) as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            self.take(consumer, 3)
        with Consumer({**conf, **group}, chain=Chain()) as reader:
            reader.assign([TopicPartition(audit_topic, 0, 0)])
            found: list[AuditReport] = []
            while sum(report.last for report in found) < 2:
                found += [decode_report(message.value()) for message in self.take(reader, 1)]
        totals = {
            (report.side, count.outcome): (count.records, count.offsets)
            for report in found
            for count in report.counts
        }
        assert totals == {
            ("producer", "delivered"): (3, ((0, 2),)),
            ("consumer", "consumed"): (3, ((0, 2),)),
        }

    def test_tell_what_run_gave_up(
        self, embedded_cluster: EmbeddedCluster, unique_topic: Callable[[str], str], world: World
    ) -> None:
        topic = unique_topic("orders")
        embedded_cluster.create_topic(topic, partitions=1)
        conf = {"bootstrap.servers": embedded_cluster.bootstrap_servers, "log_level": 0}
        with Producer(conf, chain=Chain()) as producer:
            for value in (b"good", b"bad", b"last"):
                producer.produce(topic, value, partition=0)

        class Posts:
            """Takes the reports of a real consumer, so that they need not be read back."""

            name = "audit"

            def open(self, context: Context) -> Any:
                return Audit().open(Context(side=context.side, group_id=context.group_id, post=world.post))

        def handle(message: Any) -> None:
            if message.value() == b"bad":
                raise KeyError
            if message.value() == b"last":
                consumer.stop()

        group = {"group.id": topic, "auto.offset.reset": "earliest", "fetch.wait.max.ms": 20}
        own = {**conf, **group, "enable.auto.commit": False, "headerware.processing": "explicit"}
        with Consumer(own, chain=Chain([Posts()])) as consumer:
            consumer.subscribe([topic])
            consumer.run(handle, on_failure="skip")
        found = [(count.outcome, count.given, count.cause, count.offsets) for count in world.counts]
        assert found == [
            ("consumed", False, None, ((0, 2),)),
            ("skipped", True, "KeyError", ((1, 1),)),
        ]

    def take(self, consumer: Any, count: int) -> list[Any]:
        found: list[Any] = []
        deadline = time.monotonic() + 60
        while len(found) < count:
            assert time.monotonic() < deadline
            message = consumer.poll(0.2)
            if message is not None:
                assert message.error() is None
                found.append(message)
        return found
