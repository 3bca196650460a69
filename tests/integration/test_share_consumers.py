"""Share consumers with a chain, on a real broker."""

from __future__ import annotations

import time
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaError
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource

from headerware import Chain, ConfigError, InterceptorError, Producer
from headerware.clients import share
from headerware.clients.refused_records import RefusedRecordError
from headerware.core.errors import HeldBackError
from headerware.core.hooks import DROP
from headerware.interceptors import Slice, Trail
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from confluent_kafka import Message

    from headerware import Record
    from headerware.testing import KafkaBroker

pytest.importorskip("confluent_kafka", minversion="2.16")
from headerware import ShareConsumer

pytestmark = pytest.mark.broker
DEADLINE_S = 60.0


class Sorts:
    """Refuses some values, drops others, and makes the rest large."""

    def on_consume(self, record: Record) -> Any:
        if record.value == b"refused":
            raise InterceptorError("no")
        return DROP if record.value == b"dropped" else record.with_value(record.value.upper())


class Hears:
    """Hears which records were processed."""

    def __init__(self) -> None:
        self.processed: list[bytes] = []

    def on_processed(self, record: Record, error: BaseException | None) -> None:
        assert error is None
        self.processed.append(record.value)


@pytest.fixture
def make(
    kafka_broker: KafkaBroker, unique_topic: Callable[[str], str]
) -> Iterator[Callable[..., tuple[ShareConsumer, str]]]:
    """Return a function that fills a topic, and makes members of a share group of its own."""
    conf = {"bootstrap.servers": kafka_broker.bootstrap_servers}
    topic, group = unique_topic("shared"), unique_topic("group")
    earliest = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.GROUP, group, incremental_configs=[earliest])
    admin = AdminClient({**conf})
    for done in admin.incremental_alter_configs([resource]).values():
        done.result(DEADLINE_S)
    # Behind it: brokers learn of changes in their order, and who sees the topic has the group's settings.
    kafka_broker.create_topic(topic, partitions=1)
    made: list[ShareConsumer] = []

    def member(
        *interceptors: object, values: tuple[bytes, ...] = (), from_file: bool = False, **more: Any
    ) -> tuple[ShareConsumer, str]:
        with Producer(conf) as producer:
            for value in values:
                producer.produce(topic, value)
        consumer = ShareConsumer(
            {**conf, "group.id": group, "log_level": 0, **more},
            chain=None if from_file else Chain(interceptors),
        )
        made.append(consumer)
        consumer.subscribe([topic])
        return consumer, topic

    yield member
    for consumer in made:
        consumer.close()


def take(consumer: ShareConsumer, count: int, *, timeout_s: float = DEADLINE_S) -> list[Message]:
    found: list[Message] = []
    deadline = time.monotonic() + timeout_s
    while len(found) < count and time.monotonic() < deadline:
        found.extend(consumer.poll(0.5))
    return found


EXPLICIT = {"share.acknowledgement.mode": "explicit"}


class Judge:
    """Holds records back until it may judge, and notes when it was asked."""

    def __init__(self) -> None:
        self.may_judge = False
        self.asked: list[tuple[bytes, float]] = []

    def on_consume(self, record: Record) -> Record:
        self.asked.append((record.value, time.monotonic()))
        if record.value == b"hard" and not self.may_judge:
            raise HeldBackError("no keys yet")
        return record


def test_headers_of_the_chain_can_be_hidden(make: Callable[..., tuple[ShareConsumer, str]]) -> None:
    class Marks:
        def on_consume(self, record: Record) -> Record:
            return record.with_headers(record.headers.add("hw.trail", "1").add("tenant", "north"))

    consumer, _ = make(Marks(), values=(b"value",), **{"headerware.hide_headers": True})
    (message,) = take(consumer, 1)
    assert message.headers() == [("tenant", b"north")]


class TestHeldBackRecords:
    @pytest.mark.parametrize("mode", ["implicit", "explicit"])
    def test_are_tried_again_after_pauses_that_grow_without_another_delivery(
        self, make: Any, mode: str
    ) -> None:
        judge = Judge()
        consumer, _ = make(judge, values=(b"a", b"hard", b"b"), **{"share.acknowledgement.mode": mode})
        first, held, last = take(consumer, 3)
        assert [first.value(), last.value()] == [b"a", b"b"]
        error = held.error()
        assert error is not None
        assert error.code() == KafkaError._RETRY
        if mode == "explicit":
            with pytest.raises(confluent_kafka.IllegalStateException):
                consumer.poll(0.1)
            consumer.acknowledge(first)
            consumer.acknowledge(last)
        asked: list[float] = []

        def hear() -> None:
            assert take(consumer, 1, timeout_s=0.1) == []
            asked[:] = [when for value, when in judge.asked if value == b"hard"]

        until(lambda: len(asked) > 4, meanwhile=hear)
        assert consumer.stats()["client"] == {"refused": 1, "held_back": 1}
        pauses = [after - before for before, after in pairwise(asked)]
        assert all(pause >= 0.99 * 0.1 * 2**at for at, pause in enumerate(pauses)), pauses
        judge.may_judge = True
        (judged,) = take(consumer, 1)
        assert (judged.value(), judged.delivery_count()) == (b"hard", 1)
        if mode == "explicit":
            consumer.acknowledge(judged)
        assert list(consumer.commit_sync(DEADLINE_S).values()) == [None]
        assert consumer.stats()["client"]["held_back"] == 0

    def test_are_released_at_last(self, make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(share, "_HOLD_S", 0.5)
        judge = Judge()
        consumer, _ = make(judge, values=(b"hard",))
        first, second = take(consumer, 2)
        assert first.error() is not None
        assert second.error() is not None  # it has come again, and was told again
        judge.may_judge = True
        (judged,) = take(consumer, 1)
        assert (judged.value(), judged.delivery_count()) == (b"hard", 2)


class TestReload:
    def test_takes_the_new_chain_for_the_next_records(self, make: Any, tmp_path: Path) -> None:
        file = tmp_path / "chain.toml"

        def write(lines: str) -> None:
            file.with_name("next").write_text(f"[[interceptors]]\n{lines}\n")
            file.with_name("next").replace(file)

        write('type = "trail"\nservice = "a"')
        conf = {"headerware.config": str(file), "headerware.reload": "watch"}
        consumer, _ = make(values=(b"a",), from_file=True, **conf)
        assert [message.value() for message in take(consumer, 1)] == [b"a"]
        first = consumer.chain
        write('type = "trail"\nservice = "b"')
        until(lambda: consumer.chain != first, meanwhile=lambda: consumer.poll(0.1))
        assert consumer.chain_in_force().reloads == 1
        make(values=(b"b",))
        assert [message.value() for message in take(consumer, 1)] == [b"b"]

        write('type = "slice"')
        with pytest.raises(ConfigError, match="waits for other records"):
            consumer.reload()
        assert consumer.stats()["client"]["reload_failures"] >= 1
        write('type = "trail"\nservice = "c"')
        assert consumer.reload()
        make(values=(b"c",))
        assert [message.value() for message in take(consumer, 1)] == [b"c"]


class TestShareConsumer:
    def test_implicit_mode_accepts_what_was_given_and_rejects_what_was_refused(self, make: Any) -> None:
        hears = Hears()
        consumer, topic = make(Sorts(), hears, values=(b"a", b"refused", b"dropped", b"b"))
        first, refused, last = take(consumer, 3)
        assert (first.value(), last.value()) == (b"A", b"B")
        error = refused.error()
        assert isinstance(error, RefusedRecordError)
        assert isinstance(error.cause, InterceptorError)
        assert (refused.topic(), refused.offset(), refused.value()) == (topic, 1, None)
        assert refused  # as an error event is
        with pytest.raises(confluent_kafka.IllegalStateException, match="explicit"):
            consumer.acknowledge(first)
        with consumer.processing(first):
            pass
        assert hears.processed == [b"A"]
        assert list(consumer.commit_sync(DEADLINE_S).values()) == [None]
        consumer.close()

        again, _ = make(Sorts(), values=(b"c",))
        assert [message.value() for message in take(again, 1)] == [b"C"]

    def test_explicit_mode_leaves_the_answer_to_the_application(self, make: Any) -> None:
        consumer, _ = make(Sorts(), values=(b"a", b"refused", b"b"), **EXPLICIT)
        first, _, last = take(consumer, 3)
        consumer.acknowledge(first)
        with pytest.raises(confluent_kafka.IllegalStateException, match="1 records"):
            consumer.poll(0.1)
        consumer.acknowledge(last, confluent_kafka.AcknowledgeType.RELEASE)
        (again,) = take(consumer, 1)
        assert (again.value(), again.delivery_count()) == (b"B", 2)
        consumer.acknowledge(again, confluent_kafka.AcknowledgeType.REJECT)
        assert list(consumer.commit_sync(DEADLINE_S).values()) == [None]

    def test_what_is_not_answered_for_goes_to_another_member(self, make: Any) -> None:
        consumer, _ = make(Sorts(), values=(b"a",))
        assert len(take(consumer, 1)) == 1
        consumer.close()
        other, _ = make(Sorts())
        (again,) = take(other, 1)
        assert (again.value(), again.delivery_count()) == (b"A", 2)

    def test_without_a_chain_is_the_raw_client(self, make: Any) -> None:
        consumer, _ = make(values=(b"a",))
        assert [message.value() for message in take(consumer, 1)] == [b"a"]
        assert consumer.stats() == {"client": {}}

    def test_refuses_what_waits_for_other_records(self, kafka_broker: KafkaBroker) -> None:
        conf = {"bootstrap.servers": kafka_broker.bootstrap_servers, "group.id": "g"}
        with pytest.raises(ConfigError, match="chain: slice waits for other records"):
            ShareConsumer(conf, chain=Chain([Trail(service="a"), Slice()]))
