"""An application that does not know of the chain sees no headers of it; everybody else still does."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest
from confluent_kafka import Consumer as ImportedConsumer
from confluent_kafka import TopicPartition, aio, cimpl
from confluent_kafka.serialization import StringDeserializer

import headerware
from headerware import Chain, ConfigError, Consumer, Producer, Record
from headerware.interceptors import Sign, Slice, Trail
from headerware.keyring import Keyring, encode_keyring, with_new_key
from tests.unit.clients.conftest import Fill, take

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from headerware.testing import EmbeddedCluster

TRAIL: dict[str, Any] = {"interceptors": "trail"}
OWN = [("tenant", b"north")]
KEY = "headerware.hide_headers"


class EarlyConsumer(ImportedConsumer):
    pass


class Notes:
    """Remember the headers of records, as interceptors see them."""

    name = "notes"

    def __init__(self) -> None:
        self.processed: list[list[str]] = []

    def on_processed(self, record: Record, error: BaseException | None) -> None:
        assert error is None
        self.processed.append([name for name, _ in record.headers])


@pytest.fixture
def keys(tmp_path: Path) -> str:
    path = tmp_path / "keys.json"
    path.write_bytes(encode_keyring(with_new_key(Keyring(), "k", "hmac-sha256")))
    path.chmod(0o600)
    return str(path)


@pytest.fixture
def _instrumented() -> Iterator[None]:
    headerware.instrument()
    yield
    headerware.uninstrument()


@pytest.fixture
def reading(connection: dict[str, Any], topic: str) -> dict[str, Any]:
    return {**connection, "group.id": topic, "auto.offset.reset": "earliest"}


@pytest.fixture
def sent(connection: dict[str, Any], topic: str, keys: str) -> Callable[..., None]:
    """Return a function that sends a record with a header of its own through ``trail`` and ``sign``."""

    def send(value: bytes = b"value", headers: Any = OWN) -> None:
        chain = Chain([Trail(), Slice(max_bytes=9_000), Sign(keyring=keys, key_id="k")])
        with Producer(connection, chain=chain) as producer:
            producer.produce(topic, value, headers=headers, partition=0)

    return send


def one(consumer: Any, topic: str) -> Any:
    consumer.assign([TopicPartition(topic, 0)])
    return take(consumer, 1)[0]


@pytest.mark.usefixtures("_instrumented")
class TestApplicationsThatDoNotKnow:
    @pytest.mark.parametrize("kind", [None, EarlyConsumer])
    def test_see_their_own_headers_alone(
        self, reading: dict[str, Any], topic: str, sent: Callable[..., None], kind: Any
    ) -> None:
        sent()
        consumer = (kind or confluent_kafka.Consumer)({**reading, **TRAIL})
        assert one(consumer, topic).headers() == OWN
        consumer.close()

    def test_see_them_in_batches(
        self, reading: dict[str, Any], topic: str, sent: Callable[..., None]
    ) -> None:
        sent()
        sent(headers=None)
        consumer = confluent_kafka.Consumer({**reading, **TRAIL})
        consumer.assign([TopicPartition(topic, 0)])
        assert [message.headers() for message in consumer.consume(2, 60)] == [OWN, []]
        consumer.close()

    def test_see_them_of_messages_in_slices(
        self, reading: dict[str, Any], topic: str, sent: Callable[..., None]
    ) -> None:
        sent(b"x" * 50_000)
        consumer = confluent_kafka.Consumer({**reading, "interceptors": "trail,slice"})
        message = one(consumer, topic)
        assert (len(message.value()), message.headers()) == (50_000, OWN)
        consumer.close()

    def test_see_none_where_there_are_none(self, reading: dict[str, Any], topic: str, fill: Fill) -> None:
        fill(b"plain")
        consumer = confluent_kafka.Consumer({**reading, "interceptors": "slice"})
        assert one(consumer, topic).headers() is None
        consumer.close()

    def test_see_what_their_own_deserializer_reads(
        self, reading: dict[str, Any], topic: str, fill: Fill
    ) -> None:
        fill(b"value", headers={"hw.schema": "value:md5:0", "hw.owner": "me"})
        consumer: Any = confluent_kafka.DeserializingConsumer(
            {**reading, **TRAIL, "value.deserializer": StringDeserializer()}
        )
        assert [name for name, _ in one(consumer, topic).headers()] == ["hw.schema"]
        consumer.close()

    def test_see_them_in_an_event_loop(
        self, reading: dict[str, Any], topic: str, sent: Callable[..., None]
    ) -> None:
        async def read() -> Any:
            consumer = aio.AIOConsumer({**reading, **TRAIL})
            await consumer.assign([TopicPartition(topic, 0)])
            message = await consumer.poll(60)
            await consumer.close()
            return message

        sent()
        assert asyncio.run(read()).headers() == OWN

    def test_see_all_without_a_chain(
        self, reading: dict[str, Any], topic: str, sent: Callable[..., None]
    ) -> None:
        sent()
        consumer = confluent_kafka.Consumer(reading)
        assert "hw.trail" in dict(one(consumer, topic).headers())
        consumer.close()

    @pytest.mark.parametrize("where", ["configuration", "environment"])
    def test_see_all_if_that_is_said(
        self,
        reading: dict[str, Any],
        topic: str,
        sent: Callable[..., None],
        where: str,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        sent()
        if where == "environment":
            monkeypatch.setenv("HEADERWARE_HIDE_HEADERS", "0")
        conf = {KEY: "false"} if where == "configuration" else {}
        consumer = confluent_kafka.Consumer({**reading, **TRAIL, **conf})
        assert "hw.trail" in dict(one(consumer, topic).headers())
        consumer.close()


class TestApplicationsThatKnow:
    def test_see_all(self, reading: dict[str, Any], topic: str, sent: Callable[..., None]) -> None:
        sent()
        with Consumer({**reading, **TRAIL}) as consumer:
            assert "hw.trail" in dict(one(consumer, topic).headers())

    @pytest.mark.usefixtures("_instrumented")
    def test_see_all_also_under_instrumentation(
        self, reading: dict[str, Any], topic: str, sent: Callable[..., None]
    ) -> None:
        sent()
        deserializer = {"value.deserializer": StringDeserializer()}
        with headerware.DeserializingConsumer({**reading, **TRAIL, **deserializer}) as consumer:
            assert "hw.trail" in dict(one(consumer, topic).headers())

    @pytest.mark.parametrize("where", ["configuration", "environment"])
    def test_may_hide_them(
        self,
        reading: dict[str, Any],
        topic: str,
        sent: Callable[..., None],
        where: str,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        sent()
        if where == "environment":
            monkeypatch.setenv("HEADERWARE_HIDE_HEADERS", "yes")
        conf = {KEY: True} if where == "configuration" else {}
        with Consumer({**reading, **conf}, chain=Chain([Trail()])) as consumer:
            assert one(consumer, topic).headers() == OWN

    def test_hear_of_a_word_that_says_nothing(
        self, reading: dict[str, Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with pytest.raises(ConfigError, match=f"^{KEY}: expected true or false, found 'maybe'"):
            Consumer({**reading, KEY: "maybe"})
        monkeypatch.setenv("HEADERWARE_HIDE_HEADERS", "2")
        with pytest.raises(ConfigError, match=r"^HEADERWARE_HIDE_HEADERS: expected true or false, found '2'"):
            Consumer(reading)

    def test_need_no_chain_for_the_option(self, reading: dict[str, Any]) -> None:
        for made in (Consumer({**reading, KEY: True}), Consumer({**reading, KEY: False})):
            assert not made.chain
            made.close()


class TestWhatIsHidden:
    """It is there for everybody but the application."""

    @pytest.fixture
    def consumer(self, reading: dict[str, Any], keys: str, notes: Notes) -> Iterator[Consumer]:
        chain = Chain([notes, Trail(), Slice(), Sign(keyring=keys)])
        with Consumer({**reading, KEY: True}, chain=chain) as made:
            yield made

    @pytest.fixture
    def notes(self) -> Notes:
        return Notes()

    @pytest.mark.parametrize("size", [5, 50_000])
    def test_what_a_signature_verified(
        self, consumer: Consumer, topic: str, sent: Callable[..., None], size: int
    ) -> None:
        sent(b"x" * size)
        message = one(consumer, topic)
        assert message.headers() == OWN
        verified = consumer.verified(message)
        assert verified is not None
        assert verified.key_id == "k"
        assert consumer.commit(message, asynchronous=False)[0].offset == message.offset() + 1

    def test_what_interceptors_hear_of_the_record_at_work(
        self, consumer: Consumer, topic: str, sent: Callable[..., None], notes: Notes
    ) -> None:
        sent()
        message = one(consumer, topic)
        with consumer.processing(message):
            pass
        assert notes.processed == [["tenant", "hw.trail"]]

    def test_what_a_dead_letter_says(
        self,
        embedded_cluster: EmbeddedCluster,
        reading: dict[str, Any],
        topic: str,
        sent: Callable[..., None],
        keys: str,
    ) -> None:
        embedded_cluster.create_topic(f"{topic}.dead-letter", partitions=1)
        sent()
        seen: list[Any] = []

        def fail(message: Any) -> None:
            seen.append(message.headers())
            consumer.stop()
            raise ValueError

        consumer = Consumer({**reading, KEY: True}, chain=Chain([Trail(), Sign(keyring=keys)]))
        consumer.subscribe([topic])
        consumer.run(fail, on_failure="dead_letter")
        consumer.close()
        assert seen == [OWN]
        raw = cimpl.Consumer({**reading, "group.id": "dead"})
        letter = one(raw, f"{topic}.dead-letter")
        assert {"hw.trail", "hw.sig", "tenant"} <= {name for name, _ in letter.headers()}
        raw.close()
