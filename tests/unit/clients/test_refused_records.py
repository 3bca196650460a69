"""What an application hears of refused records, by where its chain comes from; and dead letters that wait."""

from __future__ import annotations

import gc
import logging
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.error import ConsumeError

from headerware import (
    Chain,
    Consumer,
    DeserializingConsumer,
    ReassemblyError,
    Record,
    SerdeError,
    SerializingProducer,
    TransportHeaderError,
)
from headerware.clients import refused_records
from headerware.clients.dead_letters import DeadLetters
from headerware.core.context import Context
from headerware.core.errors import DeadLetterError, HeldBackError, KeyringError
from headerware.core.hooks import Interceptor
from headerware.interceptors import Slice
from tests.committing import commit_stored
from tests.unit.clients.conftest import Fill, MakeConsumer, committed, take, values
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from confluent_kafka import Message

    from headerware.testing import EmbeddedCluster

DEADLINE_S = 60.0
SECRET = b"hunter2"
EXPIRE_S = 1.0
CLAIM: Any = [("hw.slice", b"hunter2")]
"""A record with it is refused by ``slice``."""


@pytest.fixture
def configured(connection: dict[str, Any], topic: str) -> Iterator[Callable[..., Any]]:
    """Return a function that makes a consumer of a chain from configuration, assigned to the topic."""
    made: list[Consumer] = []

    def make(kind: type[Consumer] = Consumer, *, chain: Chain | None = None, **conf: Any) -> Consumer:
        own = {} if chain is not None else {"interceptors": "slice"}
        own |= {_key(name): value for name, value in conf.items()}
        base = {"group.id": topic, "auto.offset.reset": "earliest", "fetch.wait.max.ms": 20}
        consumer = kind({**connection, **base, **own}, chain=chain)
        consumer.assign([TopicPartition(topic, 0)])
        made.append(consumer)
        return consumer

    yield make
    for consumer in made:
        consumer.close()


def _key(name: str) -> str:
    """Return a configuration's key: a dot for each underscore, an underscore for two."""
    return "_".join(part.replace("_", ".") for part in name.split("__"))


@pytest.fixture
def put_records(connection: dict[str, Any], topic: str) -> Callable[..., None]:
    """Return a function that produces a record for each letter: capitals are refused."""

    def put(letters: str) -> None:
        producer = confluent_kafka.Producer(connection)
        for letter in letters:
            headers: Any = CLAIM if letter.isupper() else None
            producer.produce(topic, SECRET if headers else letter, SECRET, 0, headers=headers)
        assert producer.flush(DEADLINE_S) == 0

    return put


def seen(take: Callable[[], list[Message | None]] | Callable[[], list[Message]], count: int) -> list[Message]:
    found: list[Message] = []
    deadline = time.monotonic() + DEADLINE_S
    while len(found) < count:
        assert time.monotonic() < deadline, f"only {len(found)} of {count} came"
        found.extend(message for message in take() if message is not None)
    return found


def polled(consumer: Consumer, count: int) -> list[Message]:
    return seen(lambda: [consumer.poll(0.2)], count)


def told(messages: list[Message]) -> list[Any]:
    return [message.offset() if message.error() else message.value() for message in messages]


class TestFromConfiguration:
    def test_a_refused_record_is_an_error_event(
        self, configured: Callable[..., Any], put_records: Callable[..., None], topic: str
    ) -> None:
        put_records("aBc")
        consumer = configured()
        _, refused, _ = found = polled(consumer, 3)
        assert told(found) == [b"a", 1, b"c"]
        assert isinstance(refused, confluent_kafka.Message)
        assert (refused.topic(), refused.partition(), refused.offset()) == (topic, 0, 1)
        assert (refused.value(), refused.key(), refused.headers()) == (None, None, None)
        error: Any = refused.error()
        assert isinstance(refused.error(), KafkaError)
        assert (error.name(), error.fatal(), error.retriable()) == ("_BAD_MSG", False, False)
        assert error.str().startswith(f"slice at {topic}[0]@1: ")
        assert error.str().endswith("(on_error = 'dead_letter' of 'slice' keeps such records)")
        assert SECRET.decode() not in str(error)
        assert isinstance(error.cause, ReassemblyError)
        assert consumer.stats()["client"]["refused"] == 1

    def test_is_true_as_an_error_event_is(
        self, configured: Callable[..., Any], put_records: Callable[..., None]
    ) -> None:
        put_records("BC")
        consumer = configured()
        # The usual loop is: if not message: continue.
        for message in (polled(consumer, 1)[0], *seen(lambda: consumer.consume(1, 0.3), 1)):
            error: Any = message.error()
            assert message
            assert len(message) == len(error.str())
            with pytest.raises(KafkaException, match="Cannot commit offsets for message with error"):
                consumer.commit(message)

    def test_of_a_batch_it_comes_alone_and_in_its_place(
        self, configured: Callable[..., Any], put_records: Callable[..., None]
    ) -> None:
        put_records("abCDeF")
        consumer = configured()
        batches: list[list[Message]] = []

        def take() -> list[Message]:
            batches.append(consumer.consume(10, 0.3))
            return batches[-1]

        assert told(seen(take, 6)) == [b"a", b"b", 2, 3, b"e", 5]
        with_errors = [batch for batch in batches if any(message.error() for message in batch)]
        assert [len(batch) for batch in with_errors] == [1, 1, 1]

    def test_its_offset_is_committed_at_once_and_nothing_behind_it(
        self, configured: Callable[..., Any], put_records: Callable[..., None], topic: str
    ) -> None:
        put_records("aBcc")
        consumer = configured()
        seen(lambda: consumer.consume(10, 0.3), 2)
        assert committed(consumer, topic)[0] == 2

    def test_without_automatic_commits_the_application_decides(
        self, configured: Callable[..., Any], put_records: Callable[..., None], topic: str
    ) -> None:
        put_records("aB")
        consumer = configured(enable_auto_commit=False)
        polled(consumer, 2)
        assert committed(consumer, topic)[0] < 0
        consumer.commit(asynchronous=False)
        assert committed(consumer, topic)[0] == 2

    def test_a_flood_costs_few_commits_and_is_committed_in_the_end(
        self, connection: dict[str, Any], put_records: Callable[..., None], topic: str
    ) -> None:
        put_records("B" * 500)
        commits: list[int] = []
        conf = {
            **connection,
            "group.id": topic,
            "auto.offset.reset": "earliest",
            "interceptors": "slice",
            "on_commit": lambda _, offsets: commits.append(offsets[0].offset),
        }
        consumer = Consumer(conf)
        consumer.assign([TopicPartition(topic, 0)])
        started = time.monotonic()
        polled(consumer, 500)
        most = 2 + (time.monotonic() - started) / 0.1
        consumer.poll(0)
        assert len(commits) <= most
        del consumer  # which closes nothing
        gc.collect()  # an error's frames know the consumer
        reader = confluent_kafka.Consumer({**connection, "group.id": topic})
        assert reader.committed([TopicPartition(topic, 0)], DEADLINE_S)[0].offset == 500
        reader.close()

    def test_each_cause_is_logged_once(
        self,
        configured: Callable[..., Any],
        put_records: Callable[..., None],
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        put_records("BBB")
        with caplog.at_level(logging.WARNING, logger="headerware"):
            polled(configured(), 3)
        lines = [line for line in caplog.messages if "refused" in line]
        assert len(lines) == 1
        assert SECRET.decode() not in lines[0]

    def test_what_no_step_decodes_is_an_event_too(self, configured: Callable[..., Any], fill: Fill) -> None:
        fill(SECRET, headers=[("hw.compress", b"zstd")])
        error: Any = polled(configured(), 1)[0].error()
        assert isinstance(error.cause, TransportHeaderError)
        assert "needs, in this order: 'compress'" in error.str()
        assert "dead_letter" not in error.str(), "no step has such an option here"

    @pytest.mark.parametrize("call", ["poll", "consume"])
    def test_slices_that_are_given_up_are_an_event_at_the_first(
        self, configured: Callable[..., Any], connection: dict[str, Any], topic: str, call: str
    ) -> None:
        step = Slice(max_bytes=1_000).open(Context(pick_partition=lambda _: 0))
        first: Any = next(iter(step.on_send(Record(topic, bytes(1_500), partition=0))))  # type: ignore[arg-type]
        wire = confluent_kafka.Producer(connection)
        wire.produce(topic, first.value, None, 0, headers=list(first.headers))
        wire.produce(topic, b"b", partition=0)
        assert wire.flush(DEADLINE_S) == 0
        consumer = configured(interceptors_slice_expire__ms=1)
        takes = {"poll": lambda: [consumer.poll(0.2)], "consume": lambda: consumer.consume(5, 0.2)}
        good, given_up = seen(takes[call], 2)
        assert good.value() == b"b"
        assert (given_up.topic(), given_up.partition(), given_up.offset()) == (topic, 0, 0)
        error: Any = given_up.error()
        assert isinstance(error.cause, ReassemblyError)
        assert committed(consumer, topic)[0] == 2, "nor does a restart wait for them again"
        assert consumer.stats()["client"]["refused"] == 1


class TestFromCode:
    def test_a_refused_record_is_raised_once_and_committed_at_once(
        self, configured: Callable[..., Any], put_records: Callable[..., None], topic: str
    ) -> None:
        put_records("aB")
        consumer = configured(chain=Chain([Slice()]))
        polled(consumer, 1)
        with pytest.raises(ReassemblyError):
            polled(consumer, 1)
        assert committed(consumer, topic)[0] == 2
        assert consumer.stats()["client"]["refused"] == 1


class TestDeserializing:
    @pytest.fixture
    def records(self, connection: dict[str, Any], topic: str) -> None:
        """Lay what ``slice`` refuses, what is no JSON, and a good one."""
        with SerializingProducer(connection) as producer:
            producer.produce(topic, value=b"no json", partition=0)
            producer.produce(topic, value=b"1", partition=0)
        wire = confluent_kafka.Producer(connection)
        wire.produce(topic, SECRET, partition=0, headers=CLAIM)
        assert wire.flush(DEADLINE_S) == 0

    def test_poll_raises_confluent_kafkas_own_errors(
        self, configured: Callable[..., Any], records: None, topic: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        consumer = configured(DeserializingConsumer, value_deserializer="json")
        with pytest.raises(SerdeError) as unreadable:
            polled(consumer, 1)
        assert isinstance(unreadable.value, ConsumeError)
        assert told(polled(consumer, 1)) == [1]
        with pytest.raises(ConsumeError) as refused:
            polled(consumer, 1)
        assert refused.value.name == "_BAD_MSG"
        assert isinstance(refused.value.exception, ReassemblyError)
        assert refused.value.kafka_message is not None
        assert refused.value.kafka_message.offset() == 2
        assert caplog.messages == [], "what is raised needs no line in the log"
        deadline = time.monotonic() + DEADLINE_S
        while committed(consumer, topic)[0] != 3:  # the second so soon is committed by a later call
            assert time.monotonic() < deadline
            assert consumer.poll(0.1) is None

    def test_consume_gives_messages(self, configured: Callable[..., Any], records: None) -> None:
        consumer = configured(DeserializingConsumer, value_deserializer="json")
        found = seen(lambda: consumer.consume(5, 0.3), 3)
        errors: list[Any] = [message.error() for message in found]
        assert [error and error.name() for error in errors] == ["_VALUE_DESERIALIZATION", None, "_BAD_MSG"]


class TestBlocked:
    """Dead letters that cannot be stored: ``hold`` with dead letters that are always too large."""

    @pytest.fixture
    def settings(self) -> dict[str, Any]:
        return {"headerware_dead__letter_message_max_bytes": 1_000}

    @pytest.fixture
    def chain(self) -> Chain:
        return Chain([Slice(on_error="dead_letter", dead_letter_too_large="hold")])

    @pytest.fixture(autouse=True)
    def large(self, connection: dict[str, Any], topic: str) -> None:
        producer = confluent_kafka.Producer(connection)
        producer.produce(topic, bytes(1_000), partition=0, headers=CLAIM)
        producer.produce(topic, b"b", partition=0)
        assert producer.flush(DEADLINE_S) == 0

    def test_the_pause_between_attempts_grows(
        self, configured: Callable[..., Any], chain: Chain, settings: dict[str, Any], topic: str
    ) -> None:
        consumer = configured(chain=chain, **settings)
        errors = nothing = 0
        deadline = time.monotonic() + DEADLINE_S
        while not errors:  # the first comes as soon as the record does
            assert time.monotonic() < deadline
            try:
                consumer.poll(0.1)
            except DeadLetterError:
                errors += 1
        started = time.monotonic()
        while errors < 4:
            assert time.monotonic() < deadline
            try:
                assert consumer.poll(0) is None
                nothing += 1
            except DeadLetterError:
                errors += 1
        assert time.monotonic() - started >= 0.1 + 0.2 + 0.4
        assert nothing
        assert consumer.stats()["slice"]["failed"] == 4
        assert committed(consumer, topic)[0] < 0

    @pytest.mark.parametrize("call", ["poll", "consume"])
    def test_a_call_waits_for_the_next_attempt_until_its_deadline(
        self, configured: Callable[..., Any], chain: Chain, settings: dict[str, Any], call: str
    ) -> None:
        consumer = configured(chain=chain, **settings)
        takes = {"poll": consumer.poll, "consume": lambda left: consumer.consume(5, left)}
        for _ in range(3):
            with pytest.raises(DeadLetterError, match="dead_letter_too_large = 'stub'"):
                takes[call](DEADLINE_S)
        assert consumer.stats()["slice"]["failed"] == 3, "one error for each attempt"

        def waited() -> bool:
            started = time.monotonic()
            try:
                assert not takes[call](0.05), "the pause has grown to 0.4 s"
            except DeadLetterError:  # a busy machine has let the pause pass; the next one is longer
                return False
            return time.monotonic() - started >= 0.05

        until(waited)

    def test_it_is_an_error_that_may_pass_where_the_chain_is_configured(
        self, configured: Callable[..., Any], settings: dict[str, Any], topic: str
    ) -> None:
        own = {"interceptors_slice_on__error": "dead_letter"}
        own["interceptors_slice_dead__letter__too__large"] = "hold"
        consumer = configured(**settings, **own)
        first, second = polled(consumer, 2)
        for message in (first, second):
            error: Any = message.error()
            assert (error.name(), error.retriable(), error.fatal()) == ("_RETRY", True, False)
            assert (message.topic(), message.offset()) == (topic, 0)
        assert committed(consumer, topic)[0] < 0
        assert consumer.stats()["client"]["refused"] == 0

    def test_a_stub_lets_the_stream_go_on(
        self, configured: Callable[..., Any], settings: dict[str, Any], topic: str
    ) -> None:
        consumer = configured(**settings, interceptors_slice_on__error="dead_letter")
        assert told(polled(consumer, 1)) == [b"b"]
        assert consumer.stats()["slice"]["stubs"] == 1


class TestACommitOfARefusedRecord:
    """The second in 100 ms is left to a later call, which finds that the application has gone on."""

    def test_takes_back_no_later_commit(
        self, configured: Callable[..., Any], put_records: Callable[..., None], topic: str
    ) -> None:
        put_records("BBccc")
        consumer = configured()
        polled(consumer, 5)
        commit_stored(consumer)
        deadline = time.monotonic() + DEADLINE_S
        while consumer._hw_refused_offsets:
            assert time.monotonic() < deadline
            assert consumer.poll(0.05) is None
        assert committed(consumer, topic)[0] == 5

    def test_takes_back_none_when_the_process_ends(
        self, configured: Callable[..., Any], put_records: Callable[..., None], topic: str
    ) -> None:
        put_records("BBccc")
        consumer = configured()
        polled(consumer, 5)
        commit_stored(consumer)
        refused_records._commit_at_exit()
        assert committed(consumer, topic)[0] == 5


class TestManyThatAreHeld:
    """A batch of records that nobody could judge, or whose dead letters were not stored."""

    def test_are_tried_again_before_anybody_hears_of_them(
        self, configured: Callable[..., Any], put_records: Callable[..., None]
    ) -> None:
        class Judge:
            in_order = False

            def on_consume(self, record: Record) -> Record:
                if not self.in_order:
                    raise HeldBackError("no keyring")
                return record

        put_records("abcdefgh")
        judge = Judge()
        consumer = configured(chain=Chain([judge]))
        with pytest.raises(HeldBackError):
            seen(lambda: consumer.consume(8, DEADLINE_S), 1)
        judge.in_order = True
        assert told(seen(lambda: consumer.consume(8, 1), 8)) == [bytes([each]) for each in b"abcdefgh"]

    def test_wait_for_one_attempt_and_not_for_one_each(self) -> None:
        own = {"bootstrap.servers": "127.0.0.1:1", "message.timeout.ms": 200, "log_level": 0}
        dead_letters = DeadLetters({f"headerware.dead_letter.{key}": value for key, value in own.items()})
        causes: list[Any] = []
        for topic in ("a", "a", "b"):
            with pytest.raises(DeadLetterError) as unstored:
                dead_letters.store(Record(topic, b"letter"))
            causes.append(unstored.value.__cause__)
        dead_letters.close()
        first, alike, other = (cause.args[0] for cause in causes)
        assert alike is first, "known from the first, without a timeout of its own"
        assert other is not first

    def test_a_pause_in_a_callback_meanwhile_holds(
        self,
        connection: dict[str, Any],
        put_records: Callable[..., None],
        topic: str,
        embedded_cluster: EmbeddedCluster,
        unique_topic: Callable[[str], str],
    ) -> None:
        class Judge:
            def on_consume(self, record: Record) -> Record:
                if record.topic == topic and not paused:
                    raise HeldBackError("no keyring")
                return record

        def on_statistics(_: str) -> None:
            if not paused and consumer.stats()["client"]["pending"]:
                consumer.pause([TopicPartition(other, 0)])
                paused.append(True)

        paused: list[bool] = []
        other = unique_topic("other")
        embedded_cluster.create_topic(other, partitions=1)
        put_records("a")
        conf = {"group.id": topic, "auto.offset.reset": "earliest", "fetch.wait.max.ms": 20}
        own = {"statistics.interval.ms": 50, "stats_cb": on_statistics}
        consumer = Consumer({**connection, **conf, **own}, chain=Chain([Judge()]))
        consumer.assign([TopicPartition(topic, 0), TopicPartition(other, 0)])
        deadline = time.monotonic() + DEADLINE_S
        found: list[Message | None] = []
        while not paused:
            assert time.monotonic() < deadline
            with suppress(HeldBackError):
                found.append(consumer.poll(0.3))
        wire = confluent_kafka.Producer(connection)
        wire.produce(other, b"x", partition=0)
        assert wire.flush(DEADLINE_S) == 0
        found += [consumer.poll(0.5) for _ in range(3)]
        assert told([message for message in found if message is not None]) == [b"a"]
        consumer.resume([TopicPartition(other, 0)])
        assert told(polled(consumer, 1)) == [b"x"]
        consumer.close()


class TestHeldBack:
    def test_a_record_waits_until_it_can_be_judged(
        self, make_consumer: MakeConsumer, fill: Fill, topic: str
    ) -> None:
        broken = [True]

        class Guard(Interceptor, frozen=True, kw_only=True):
            def on_consume(self, record: Record) -> Record:
                if broken:
                    raise KeyringError("keyring keys.json is older than 300 s")
                return record

        fill(b"a", b"b")
        consumer = make_consumer(Guard(on_error="drop"), topic=topic)
        for _ in range(3):
            with pytest.raises(HeldBackError, match=r"\[0\]@0: keyring keys.json is older than 300 s"):
                consumer.poll(60)
        with pytest.raises(KafkaException, match="No offset stored"):
            consumer.commit(asynchronous=False)
        broken.clear()
        assert values(take(consumer, 2)) == [b"a", b"b"]

    def test_is_tried_again_at_once_if_it_becomes_due_while_poll_decides_how_long_to_wait(
        self, make_consumer: MakeConsumer, fill: Fill, topic: str
    ) -> None:
        """Otherwise poll waits for another record for its whole timeout, or for ever."""

        class Guard(Interceptor, frozen=True, kw_only=True):
            def on_consume(self, record: Record) -> Record:
                raise KeyringError("keyring keys.json is older than 300 s")

        fill(b"a")
        consumer = make_consumer(Guard(on_error="drop"), topic=topic)
        # For this long, the record is not due when it is looked at, and due when poll decides.
        consumer._hw_delivery._retries._clock = lambda: time.monotonic() - 0.02
        began = time.monotonic()
        for _ in range(2):
            with pytest.raises(HeldBackError):
                consumer.poll(DEADLINE_S)
        assert time.monotonic() - began < DEADLINE_S


class TestASlicedMessage:
    """While the stream stands still, messages in slices do not expire: the rest of them cannot come."""

    class Judge:
        """Cannot judge a record for longer than messages wait for their slices."""

        def __init__(self) -> None:
            self.attempts = 0
            self.until = 0.0

        def on_consume(self, record: Record) -> Record:
            if record.value == b"judged":
                self.attempts += 1
                self.until = self.until or time.monotonic() + 2 * EXPIRE_S
                if time.monotonic() < self.until:
                    raise HeldBackError("it cannot be judged now")
            return record

    def test_outlives_what_holds_its_stream(
        self, connection: dict[str, Any], topic: str, make_consumer: MakeConsumer
    ) -> None:
        whole = Record(topic, bytes(3_000), partition=0)
        first, *rest = Chain([Slice(max_bytes=1_500)]).open(Context(side="producer")).send([whole])
        producer = confluent_kafka.Producer(connection)
        for record in (first, Record(topic, b"judged"), *rest):
            producer.produce(topic, record.value, None, 0, headers=list(record.headers))
        assert producer.flush(DEADLINE_S) == 0

        judge = self.Judge()
        consumer = make_consumer(Slice(expire_ms=int(EXPIRE_S * 1000)), judge, topic=topic)
        found: list[Any] = []
        deadline = time.monotonic() + DEADLINE_S
        while len(found) < 2:
            assert time.monotonic() < deadline, f"only {found} came"
            try:
                message = consumer.poll(0.1)
            except HeldBackError:
                continue
            if message is not None:
                found.append(message.value())
        assert found == [b"judged", whole.value]
        assert judge.attempts > 2
        assert consumer.stats()["slice"]["expired"] == 0


class TestAFloodOfSlices:
    """Messages that never become whole, faster than their dead letters are stored."""

    def test_is_kept_and_lets_the_stream_go_on(
        self,
        connection: dict[str, Any],
        topic: str,
        make_consumer: MakeConsumer,
        unique_topic: Callable[[str], str],
    ) -> None:
        with Chain([Slice(max_bytes=1_500)]).open(Context(side="producer")) as session:
            flood = [session.send([Record(topic, bytes(3_000))])[0] for _ in range(45)]
        producer = confluent_kafka.Producer(connection)
        for record in (*flood, Record(topic, b"behind it")):
            producer.produce(topic, record.value, None, 0, headers=list(record.headers))
        assert producer.flush(DEADLINE_S) == 0

        letters = unique_topic("letters")
        step = Slice(max_pending_messages=10, on_error="dead_letter", dead_letter_topic=letters)
        consumer = make_consumer(step, topic=topic)
        assert [message.value() for message in take(consumer, 1)] == [b"behind it"]
        assert consumer.stats()["slice"]["pending_messages"] == 10
        consumer.poll(1.0)
        assert consumer.stats()["slice"]["dead_lettered"] == 35
