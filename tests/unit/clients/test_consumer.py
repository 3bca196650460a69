from __future__ import annotations

import gc
import threading
import time
import weakref
from functools import partial
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest
from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException, TopicPartition

from headerware.clients import Consumer
from headerware.clients.offsets import held_back
from headerware.core.batch import Batch
from headerware.core.chain import Chain
from headerware.core.errors import InterceptorError
from headerware.core.hooks import DROP, Interceptor
from headerware.interceptors import Slice
from tests.committing import commit_stored
from tests.unit.clients.conftest import Fill, MakeConsumer, committed, take, values

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from confluent_kafka import Message

    from headerware.core.record import Operation, Record


class Upper:
    """Change value and headers."""

    def on_consume(self, record: Record) -> Record:
        return record.with_value(record.value.upper(), record.headers.add("upper", "1"))


class Choose:
    """Drop, refuse or multiply by value."""

    def on_consume(self, record: Record) -> Any:
        if record.value.startswith(b"drop"):
            return DROP
        if record.value.startswith(b"bad"):
            raise InterceptorError("no")
        if record.value.startswith(b"twice"):
            return [record, record.replace(value=b"again")]
        return record


class Commits:
    def __init__(self) -> None:
        self.seen: list[list[tuple[int, str | None]]] = []
        self.closed = 0
        self.revoked: list[Any] = []

    def on_commit(self, offsets: list[TopicPartition]) -> None:
        self.seen.append([(offset.offset, offset.metadata) for offset in offsets])

    def revoke(self, partitions: Iterable[Any]) -> None:
        self.revoked.extend(partitions)

    def close(self) -> None:
        self.closed += 1


class TestConsumeChain:
    def test_changes_what_the_application_sees(
        self, make_consumer: MakeConsumer, fill: Fill, topic: str
    ) -> None:
        fill(b"a", headers=[("own", b"1")])
        (message,) = take(make_consumer(Upper(), topic=topic), 1)
        assert type(message) is confluent_kafka.Message
        assert (message.value(), message.headers()) == (b"A", [("own", b"1"), ("upper", b"1")])
        assert (message.topic(), message.partition(), message.offset()) == (topic, 0, 0)

    def test_gives_none_where_no_headers_are_left(
        self, make_consumer: MakeConsumer, fill: Fill, topic: str
    ) -> None:
        class Bare:
            def on_consume(self, record: Record) -> Record:
                return record.with_headers(record.headers.remove("own"))

        fill(b"a", headers=[("own", b"1")])
        assert take(make_consumer(Bare(), topic=topic), 1)[0].headers() is None

    def test_runs_from_right_to_left(self, make_consumer: MakeConsumer, fill: Fill, topic: str) -> None:
        class Left:
            def on_consume(self, record: Record) -> Record:
                return record.with_headers(record.headers.add("left", "1"))

        fill(b"a")
        assert take(make_consumer(Left(), Upper(), topic=topic), 1)[0].headers() == [
            ("upper", b"1"),
            ("left", b"1"),
        ]

    def test_goes_on_with_the_last_good_record_after_a_skipped_failure(
        self, make_consumer: MakeConsumer, fill: Fill, topic: str
    ) -> None:
        class Broken(Interceptor, frozen=True, kw_only=True):
            def on_consume(self, record: Record) -> Record:
                raise ValueError("broken")

        fill(b"a")
        assert values(take(make_consumer(Broken(on_error="skip"), Upper(), topic=topic), 1)) == [b"A"]

    def test_passes_tombstones(self, make_consumer: MakeConsumer, fill: Fill, topic: str) -> None:
        class Same:
            def on_consume(self, record: Record) -> Record:
                return record

        fill(None)
        assert values(take(make_consumer(Same(), topic=topic), 1)) == [None]

    def test_passes_events_as_they_are(self, make_consumer: MakeConsumer, fill: Fill, topic: str) -> None:
        fill(b"a")
        consumer = make_consumer(Upper(), topic=topic, enable_partition_eof=True)
        assert values(take(consumer, 1)) == [b"A"]
        event = consumer.poll(60)
        assert event is not None
        error = event.error()
        assert error is not None
        assert error.code() == KafkaError._PARTITION_EOF

    def test_passes_events_in_a_batch(self, make_consumer: MakeConsumer, fill: Fill, topic: str) -> None:
        fill(b"a", b"b")
        consumer = make_consumer(Upper(), topic=topic, enable_partition_eof=True)
        found: list[Message] = []
        deadline = time.monotonic() + 60
        while len(found) < 3 and time.monotonic() < deadline:
            found.extend(consumer.consume(10, 0.3))
        assert values(found[:2]) == [b"A", b"B"]
        assert found[2].error() is not None


class TestPoll:
    def test_goes_on_through_dropped_records(
        self, make_consumer: MakeConsumer, fill: Fill, topic: str
    ) -> None:
        fill(b"drop", b"drop", b"drop", b"a")
        message = make_consumer(Choose(), topic=topic).poll(60)
        assert message is not None
        assert message.value() == b"a"

    def test_gives_none_at_its_deadline(self, make_consumer: MakeConsumer, fill: Fill, topic: str) -> None:
        fill(b"drop")
        started = time.monotonic()
        assert make_consumer(Choose(), topic=topic).poll(1.0) is None
        assert 0.9 < time.monotonic() - started < 30

    def test_raises_once_for_a_refused_record(
        self, make_consumer: MakeConsumer, fill: Fill, topic: str
    ) -> None:
        fill(b"a", b"bad", b"c")
        consumer = make_consumer(Choose(), topic=topic)
        take(consumer, 1)
        with pytest.raises(InterceptorError) as raised:
            consumer.poll(60)
        assert (raised.value.topic, raised.value.partition, raised.value.offset) == (topic, 0, 1)
        assert values(take(consumer, 1)) == [b"c"]

    def test_counts_a_refused_record_as_consumed(
        self, make_consumer: MakeConsumer, fill: Fill, topic: str
    ) -> None:
        fill(b"a", b"bad")
        consumer = make_consumer(Choose(), topic=topic)
        take(consumer, 1)
        with pytest.raises(InterceptorError):
            consumer.poll(60)
        assert committed(consumer, topic)[0] == 2, "at once, for the application may die of it"
        with pytest.raises(KafkaException, match="_NO_OFFSET"):
            consumer.commit(asynchronous=False)

    def test_gives_all_records_of_a_fan_out(
        self, make_consumer: MakeConsumer, fill: Fill, topic: str
    ) -> None:
        fill(b"twice", b"c")
        consumer = make_consumer(Choose(), topic=topic)
        first = take(consumer, 1)
        with pytest.raises(KafkaException):  # one more record of this offset is to come
            consumer.commit(asynchronous=False)
        found = first + take(consumer, 2)
        assert values(found) == [b"twice", b"again", b"c"]
        assert [message.offset() for message in found] == [0, 0, 1]


class TestConsume:
    def test_gives_the_good_ones_before_a_refused_record_and_raises_next(
        self, make_consumer: MakeConsumer, fill: Fill, topic: str
    ) -> None:
        fill(b"a", b"b", b"bad", b"d", b"e")
        consumer = make_consumer(Choose(), topic=topic)
        found: list[Any] = []
        deadline = time.monotonic() + 60
        while len(found) < 5 and time.monotonic() < deadline:
            try:
                found.extend(values(consumer.consume(5, 0.3)))
            except InterceptorError as error:
                found.append(error.offset)
        assert found == [b"a", b"b", 2, b"d", b"e"]

    def test_holds_back_what_was_not_taken(self, make_consumer: MakeConsumer, fill: Fill, topic: str) -> None:
        fill(b"a", b"bad", b"c")
        consumer = make_consumer(Choose(), topic=topic)
        first: list[Message] = []
        deadline = time.monotonic() + 60
        while not first and time.monotonic() < deadline:
            first = consumer.consume(3, 1.0)
        assert values(first) == [b"a"]
        commit_stored(consumer)
        assert committed(consumer, topic)[0] == 1
        with pytest.raises(InterceptorError):
            consumer.consume(3, 5)
        assert committed(consumer, topic)[0] == 2

    def test_commits_no_position_beyond_what_was_not_taken(
        self, make_consumer: MakeConsumer, fill: Fill, topic: str
    ) -> None:
        fill(b"a", b"bad", b"c")
        consumer = make_consumer(Choose(), topic=topic, enable_auto_commit=False)
        first: list[Message] = []
        deadline = time.monotonic() + 60
        while not first and time.monotonic() < deadline:
            first = consumer.consume(3, 1.0)
        position = consumer.position([TopicPartition(topic, 0)])
        assert position[0].offset == 3
        consumer.commit(offsets=position, asynchronous=False)
        assert committed(consumer, topic)[0] == 1
        assert held_back(consumer.consumer_group_metadata(), position)[0].offset == 1
        with pytest.raises(InterceptorError):
            consumer.consume(3, 5)
        assert values(consumer.consume(3, 5)) == [b"c"]
        consumer.commit(offsets=position, asynchronous=False)
        assert committed(consumer, topic)[0] == 3

    def test_commits_no_message_beyond_siblings_that_were_not_taken(
        self, make_consumer: MakeConsumer, fill: Fill, topic: str
    ) -> None:
        fill(b"twice")
        consumer = make_consumer(Choose(), topic=topic, enable_auto_commit=False)
        (first,) = take(consumer, 1)
        consumer.commit(message=first, asynchronous=False)
        assert committed(consumer, topic)[0] == 0
        (second,) = take(consumer, 1)
        consumer.commit(message=second, asynchronous=False)
        assert committed(consumer, topic)[0] == 1

    def test_refuses_a_number_that_confluent_kafka_refuses(
        self, make_consumer: MakeConsumer, topic: str
    ) -> None:
        with pytest.raises(ValueError, match="num_messages"):
            make_consumer(Choose(), topic=topic).consume(2_000_000, 0.1)

    def test_uses_batch_hooks(self, make_consumer: MakeConsumer, fill: Fill, topic: str) -> None:
        sizes: list[int] = []

        class Sizes:
            def on_consume_batch(self, batch: Batch) -> Batch:
                sizes.append(len(batch))
                return batch

        fill(b"a", b"b", b"c")
        consumer = make_consumer(Sizes(), topic=topic)
        found: list[Message] = []
        deadline = time.monotonic() + 60
        while len(found) < 3 and time.monotonic() < deadline:
            found.extend(consumer.consume(3, 0.3))
        assert sum(sizes) == 3
        assert len(sizes) < 3


class TestInbox:
    def test_forgets_what_a_seek_leaves_behind(
        self, make_consumer: MakeConsumer, fill: Fill, topic: str
    ) -> None:
        fill(b"a", b"twice", b"c")
        consumer = make_consumer(Choose(), topic=topic)
        assert values(take(consumer, 2)) == [b"a", b"twice"]
        consumer.seek(TopicPartition(topic, 0, 0))
        assert values(take(consumer, 4)) == [b"a", b"twice", b"again", b"c"]

    def test_keeps_what_a_pause_holds(self, make_consumer: MakeConsumer, fill: Fill, topic: str) -> None:
        fill(b"twice")
        consumer = make_consumer(Choose(), topic=topic)
        take(consumer, 1)
        consumer.pause([TopicPartition(topic, 0)])
        assert consumer.poll(0.3) is None
        consumer.resume([TopicPartition(topic, 0)])
        assert values(take(consumer, 1)) == [b"again"]

    def test_forgets_what_belonged_to_a_partition_that_went(
        self, make_consumer: MakeConsumer, fill: Fill, topic: str
    ) -> None:
        commits = Commits()
        fill(b"twice")
        consumer = make_consumer(Choose(), commits, topic=topic)
        take(consumer, 1)
        consumer.unassign()
        assert consumer.poll(0.2) is None
        assert (topic, 0) in commits.revoked


class TestFiltering:
    """Filtering advances: what was dropped is consumed."""

    def run(self, consumer: Consumer, wanted: int) -> None:
        if wanted:
            take(consumer, wanted)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            assert consumer.poll(0.1) is None
            position = consumer.position(consumer.assignment())[0].offset
            if position == 4:
                return
        raise AssertionError(position)

    @pytest.mark.parametrize(
        "sent",
        [(b"a", b"drop", b"c", b"d"), (b"drop", b"drop", b"drop", b"drop"), (b"a", b"b", b"drop", b"drop")],
        ids=["a record", "a batch", "the tail"],
    )
    @pytest.mark.parametrize("how", ["automatic", "manual"])
    def test_advances_the_offset(
        self, make_consumer: MakeConsumer, fill: Fill, topic: str, sent: Any, how: str
    ) -> None:
        fill(*sent)
        consumer = make_consumer(
            Choose(), topic=topic, auto_commit_interval_ms=50, enable_auto_commit=how == "automatic"
        )
        self.run(consumer, sum(value != b"drop" for value in sent))
        if how == "manual":
            consumer.commit(asynchronous=False)
        deadline = time.monotonic() + 60
        while committed(consumer, topic)[0] != 4:
            assert time.monotonic() < deadline, committed(consumer, topic)
            consumer.poll(0.05)

    def test_in_a_batch_advances_too(self, make_consumer: MakeConsumer, fill: Fill, topic: str) -> None:
        fill(b"a", b"drop", b"c", b"drop")
        consumer = make_consumer(Choose(), topic=topic)
        found: list[Message] = []
        deadline = time.monotonic() + 60
        while consumer.position(consumer.assignment())[0].offset != 4 and time.monotonic() < deadline:
            found.extend(consumer.consume(10, 0.3))
        commit_stored(consumer)
        assert values(found) == [b"a", b"c"]
        assert committed(consumer, topic)[0] == 4

    def test_is_the_applications_to_store_where_it_says_so(
        self, make_consumer: MakeConsumer, fill: Fill, topic: str
    ) -> None:
        fill(b"a", b"drop", b"c")
        consumer = make_consumer(Choose(), topic=topic, enable_auto_offset_store="false")
        first, second = take(consumer, 2)
        with pytest.raises(KafkaException):
            consumer.commit(asynchronous=False)
        consumer.store_offsets(message=first)
        commit_stored(consumer)
        assert committed(consumer, topic)[0] == 1
        consumer.store_offsets(second)
        commit_stored(consumer)
        assert committed(consumer, topic)[0] == 3


class TestCommits:
    def test_tell_interceptors_once_of_a_synchronous_one(
        self, make_consumer: MakeConsumer, fill: Fill, topic: str
    ) -> None:
        commits = Commits()
        fill(b"a")
        consumer = make_consumer(commits, topic=topic)
        (message,) = take(consumer, 1)
        done = consumer.commit(message, asynchronous=False)
        assert [offset.offset for offset in done] == [1]
        consumer.poll(0.2)
        assert commits.seen == [[(1, None)]]

    def test_tell_interceptors_once_of_an_asynchronous_one(
        self, make_consumer: MakeConsumer, fill: Fill, topic: str
    ) -> None:
        commits = Commits()
        fill(b"a")
        consumer = make_consumer(commits, topic=topic)
        (message,) = take(consumer, 1)
        assert consumer.commit(message) is None
        deadline = time.monotonic() + 60
        while not commits.seen and time.monotonic() < deadline:
            consumer.poll(0.1)
        consumer.poll(0.2)
        assert commits.seen == [[(1, None)]]

    def test_tell_interceptors_of_automatic_ones_without_empty_entries(
        self, connection: dict[str, Any], fill: Fill, topic: str
    ) -> None:
        commits = Commits()
        own: list[Any] = []
        fill(b"a")
        consumer = Consumer(
            {
                **connection,
                "group.id": f"{topic}-auto",
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": 50,
                "on_commit": lambda error, offsets: own.append((error, offsets)),
            },
            chain=Chain([commits]),
        )
        consumer.assign([TopicPartition(topic, 0)])
        take(consumer, 1)
        deadline = time.monotonic() + 60
        while not commits.seen and time.monotonic() < deadline:
            consumer.poll(0.1)
        assert commits.seen == [[(1, None)]]
        assert [(error, [offset.offset for offset in offsets]) for error, offsets in own] == [(None, [1])]
        consumer.close()

    def test_tell_interceptors_of_the_one_on_close(
        self, make_consumer: MakeConsumer, fill: Fill, topic: str
    ) -> None:
        commits = Commits()
        fill(b"a")
        consumer = make_consumer(commits, topic=topic, auto_commit_interval_ms=60_000)
        take(consumer, 1)
        consumer.close()
        assert commits.seen == [[(1, None)]]
        assert commits.closed == 1

    def test_that_fail_tell_interceptors_nothing(self, make_consumer: MakeConsumer, topic: str) -> None:
        commits = Commits()
        consumer = make_consumer(commits, topic=topic)
        with pytest.raises(KafkaException):
            consumer.commit(asynchronous=False)
        consumer.commit()
        consumer.poll(0.3)
        assert commits.seen == []

    def test_keep_the_applications_metadata(self, make_consumer: MakeConsumer, topic: str) -> None:
        consumer = make_consumer(Commits(), topic=topic)
        for own in ("mine", "hw1:7:pretended", "hw1:"):
            done = consumer.commit(offsets=[TopicPartition(topic, 0, 1, own)], asynchronous=False)
            assert done[0].metadata == own
            assert committed(consumer, topic) == (1, own)

    @pytest.mark.parametrize(
        ("arguments", "keywords"),
        [((None, None, False), {}), ((), {"asynchronous": False}), ((), {"async": False})],
    )
    def test_take_every_form_of_the_call(
        self, make_consumer: MakeConsumer, fill: Fill, topic: str, arguments: Any, keywords: Any
    ) -> None:
        fill(b"a")
        consumer = make_consumer(Commits(), topic=topic)
        take(consumer, 1)
        assert [offset.offset for offset in consumer.commit(*arguments, **keywords)] == [1]

    def test_refuse_what_confluent_kafka_refuses(
        self, make_consumer: MakeConsumer, fill: Fill, topic: str
    ) -> None:
        fill(b"a")
        consumer = make_consumer(Commits(), topic=topic)
        (message,) = take(consumer, 1)
        with pytest.raises(ValueError, match="mutually exclusive"):
            consumer.commit(message, [TopicPartition(topic, 0, 1)])
        with pytest.raises(ValueError, match="mutually exclusive"):
            consumer.store_offsets(message, [TopicPartition(topic, 0, 1)])
        with pytest.raises(ValueError, match="either"):
            consumer.store_offsets()
        with pytest.raises(TypeError):
            consumer.commit(nope=1)


class TestTimeout:
    def test_of_consume_lasts_for_the_whole_timeout_beside_a_chain_that_is_polled(
        self, make_consumer: MakeConsumer, fill: Fill, topic: str
    ) -> None:
        fill(b"a", b"b")
        consumer = make_consumer(Slice(), topic=topic)
        late = threading.Timer(1.2, fill, (b"c",))  # more than one poll of the client waits for the wire
        late.start()
        assert values(consumer.consume(3, 60)) == [b"a", b"b", b"c"]
        late.join()

    def test_of_consume_ends_with_the_timeout(
        self, make_consumer: MakeConsumer, fill: Fill, topic: str
    ) -> None:
        fill(b"a")
        consumer = make_consumer(Slice(), topic=topic)
        assert values(take(consumer, 1)) == [b"a"]
        began = time.monotonic()
        assert consumer.consume(3, 0.8) == []
        assert 0.7 < time.monotonic() - began < 30


class TestLifecycle:
    def test_tells_when_a_message_has_been_processed(
        self, make_consumer: MakeConsumer, fill: Fill, topic: str
    ) -> None:
        seen: list[tuple[Any, Any]] = []

        class Span:
            def on_consume(self, record: Record) -> Record:
                return record.with_local("span", record.offset)

            def on_processed(self, record: Record, error: BaseException | None) -> None:
                seen.append((record.local, error))

        fill(b"a", b"b")
        consumer = make_consumer(Span(), topic=topic)
        first, second = take(consumer, 2)
        assert consumer.local(first) == {"span": 0}
        with consumer.processing(first) as message:
            assert message is first
        failure = ValueError("failed")
        with pytest.raises(ValueError, match="failed"), consumer.processing(second):
            raise failure
        assert seen == [({"span": 0}, None), ({"span": 1}, failure)]

    @pytest.mark.parametrize("batches", [False, True])
    def test_tells_of_each_receive(
        self,
        make_consumer: MakeConsumer,
        fill: Fill,
        topic: str,
        batches: bool,  # noqa: FBT001 - parametrized
    ) -> None:
        seen: list[Operation] = []

        class Hears(Upper):
            def on_operation(self, operation: Operation) -> None:
                seen.append(operation)

        fill(b"a", b"b")
        consumer = make_consumer(Hears(), topic=topic)
        began_ns = time.time_ns()
        if batches:
            while sum(len(operation.records) for operation in seen) < 2:
                consumer.consume(2, 1)
        else:
            take(consumer, 2)
        assert [record.value for operation in seen for record in operation.records] == [b"A", b"B"]
        assert all(began_ns <= each.began_ns <= each.ended_ns <= time.time_ns() for each in seen)
        assert {operation.name for operation in seen} == {"receive"}

    def test_gives_no_state_where_there_is_none(
        self, make_consumer: MakeConsumer, fill: Fill, topic: str
    ) -> None:
        fill(b"a")
        consumer = make_consumer(Upper(), topic=topic)
        assert consumer.local(take(consumer, 1)[0]) == {}

    def test_closes_interceptors_once(self, make_consumer: MakeConsumer) -> None:
        commits = Commits()
        with make_consumer(commits) as consumer:
            pass
        consumer.close()
        assert commits.closed == 1
        with pytest.raises(RuntimeError, match="closed"):
            consumer.poll(0)

    def test_gives_nothing_any_more_once_it_is_closed(
        self, make_consumer: MakeConsumer, fill: Fill, topic: str
    ) -> None:
        fill(b"twice")
        consumer = make_consumer(Choose(), topic=topic, enable_auto_offset_store=False)
        take(consumer, 1)
        consumer.close()
        with pytest.raises(RuntimeError, match="closed"):
            consumer.poll(0)

    def test_closes_everything_once_when_the_constructor_throws(self, connection: dict[str, Any]) -> None:
        commits = Commits()
        with pytest.raises(ValueError, match=r"group\.id"):
            Consumer(connection, chain=Chain([commits]))
        assert commits.closed == 1

    def test_goes_without_the_cycle_collector(
        self, connection: dict[str, Any], fill: Fill, topic: str
    ) -> None:
        commits = Commits()
        fill(b"a")
        gc.disable()
        try:
            consumer = Consumer(
                {**connection, "group.id": topic, "auto.offset.reset": "earliest"},
                chain=Chain([Choose(), commits]),
            )
            consumer.subscribe([topic], on_assign=lambda *_: None)
            consumer.assign([TopicPartition(topic, 0)])
            take(consumer, 1)
            reference = weakref.ref(consumer)
            del consumer
            assert reference() is None
        finally:
            gc.enable()
        assert commits.closed == 1

    def test_counts(self, make_consumer: MakeConsumer, fill: Fill, topic: str) -> None:
        fill(b"a")
        consumer = make_consumer(Upper(), topic=topic)
        take(consumer, 1)
        assert consumer.stats()["upper"]["consumed"] == 1
        assert consumer.stats()["client"] == {
            "pending": 0,
            "repeated": 0,
            "refused": 0,
            "processed": 0,
            "retried": 0,
            "skipped": 0,
            "dead_lettered": 0,
        }


class TestRebalance:
    def test_forgets_partitions_after_the_applications_callback(
        self, make_consumer: MakeConsumer, fill: Fill, topic: str
    ) -> None:
        order: list[str] = []

        class Revoked:
            def on_consume(self, record: Record) -> Record:
                return record

            def revoke(self, partitions: Iterable[Any]) -> None:
                if (topic, 0) in partitions:
                    order.append("interceptor")

        fill(b"a")
        consumer = make_consumer(Revoked())
        consumer.subscribe(
            [topic],
            lambda client, _: order.append(f"assign {client is consumer}"),
            lambda *_: order.append("application"),
        )
        take(consumer, 1)
        consumer.close()
        assert order == ["assign True", "application", "interceptor"]

    def test_refuses_a_callback_that_cannot_be_called(self, make_consumer: MakeConsumer, topic: str) -> None:
        with pytest.raises(TypeError, match="on_revoke expects a callable"):
            make_consumer(Upper()).subscribe([topic], on_revoke=5)  # type: ignore[arg-type]

    def test_begins_where_the_application_says(
        self, make_consumer: MakeConsumer, fill: Fill, topic: str
    ) -> None:
        fill(b"a", b"b")
        consumer = make_consumer(Upper())
        consumer.assign([TopicPartition(topic, 0, 1)])
        assert values(take(consumer, 1)) == [b"B"]
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        assert values(take(consumer, 1)) == [b"A"]


class TestRaw:
    def test_is_of_the_class_that_was_called(self, connection: dict[str, Any]) -> None:
        class Own(Consumer):
            pass

        for kind in (Consumer, Own):
            consumer = kind({**connection, "group.id": "group"}, chain=Chain())
            assert type(consumer) is kind
            consumer.close()

    def test_that_was_never_initialised_answers_as_confluent_kafkas_does(self) -> None:
        class Proxied(Consumer):
            def __init__(self) -> None:
                pass

        proxy, partition = Proxied(), TopicPartition("orders", 0, 0)
        calls: list[Callable[[], Any]] = [
            partial(proxy.poll, 0),
            partial(proxy.consume, 1, 0),
            partial(proxy.subscribe, ["orders"]),
            proxy.unsubscribe,
            partial(proxy.assign, [partition]),
            proxy.unassign,
            partial(proxy.incremental_assign, [partition]),
            partial(proxy.incremental_unassign, [partition]),
            partial(proxy.pause, [partition]),
            partial(proxy.resume, [partition]),
            partial(proxy.seek, partition),
            proxy.commit,
            partial(proxy.committed, [partition]),
            partial(proxy.store_offsets, offsets=[partition]),
            proxy.consumer_group_metadata,
        ]
        for call in calls:
            with pytest.raises(RuntimeError, match="closed"):
                call()
        assert "Chain()" in repr(proxy)
        proxy.close()

    def test_stores_offsets_as_confluent_kafka_does(
        self, make_consumer: MakeConsumer, fill: Fill, topic: str
    ) -> None:
        fill(b"a")
        consumer = make_consumer(topic=topic)
        (message,) = take(consumer, 1)
        commit_stored(consumer)
        assert committed(consumer, topic)[0] == 1
        with consumer.processing(message):
            assert consumer.local(message) == {}
        assert consumer.stats() == {"client": {}}
