"""``HEADERWARE_DISABLED=send``: what is sent goes as it is, and what was sent before is still decoded."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.serialization import StringDeserializer, StringSerializer

import headerware
from headerware import Chain, Consumer, Producer
from headerware.clients.aio import AsyncConsumer, AsyncProducer
from headerware.clients.serializing import DeserializingConsumer, SerializingProducer
from headerware.interceptors import Slice, Trail

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

LARGE = random.Random(1).randbytes(20_000).hex().encode()
FLAT = {"interceptors": "trail,slice", "interceptors.slice.max_bytes": 9_000}
TOML = '[[interceptors]]\ntype = "trail"\n\n[[interceptors]]\ntype = "slice"\nmax_bytes = 9_000\n'


def in_code() -> Chain:
    return Chain([Trail(), Slice(max_bytes=9_000)])


def settings(way: str, file: str) -> dict[str, Any]:
    """Return the settings of a client whose chain comes in this way; with ``code`` it is passed."""
    settings: dict[str, dict[str, Any]] = {
        "code": {},
        "flat": FLAT,
        "file": {"headerware.config": file},
        "reloaded": {"headerware.config": file, "headerware.reload": "watch"},
    }
    return settings[way]


def next_value(consumer: Any) -> Any:
    message = consumer.poll(60)
    assert message is not None
    return message.value()


@pytest.fixture(autouse=True)
def switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADERWARE_DISABLED", "send")


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "headerware.toml"
    path.write_text(TOML)
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
def raw(reading: dict[str, Any], topic: str) -> Callable[[], list[Any]]:
    """Return a function that reads the one record that was sent, as it is on the wire."""

    def read() -> list[Any]:
        consumer = confluent_kafka.cimpl.Consumer(reading)
        try:
            consumer.assign([TopicPartition(topic, 0)])
            message = consumer.poll(60)
            assert message is not None
            return [message.value(), message.headers()]
        finally:
            consumer.close()

    return read


@pytest.fixture
def _sliced(connection: dict[str, Any], topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as earlier:
        earlier.delenv("HEADERWARE_DISABLED")
        with Producer(connection, chain=in_code()) as producer:
            producer.produce(topic, LARGE)


class TestSending:
    @pytest.mark.parametrize("way", ["code", "flat", "file", "reloaded"])
    def test_goes_as_the_raw_client_sends(
        self, way: str, connection: dict[str, Any], topic: str, file: str, raw: Callable[[], list[Any]]
    ) -> None:
        conf = settings(way, file)
        with Producer({**connection, **conf}, chain=in_code() if way == "code" else None) as producer:
            producer.produce(topic, LARGE)
        assert raw() == [LARGE, None]

    def test_of_objects_still_serializes(
        self, connection: dict[str, Any], topic: str, raw: Callable[[], list[Any]]
    ) -> None:
        serializer = {"value.serializer": StringSerializer()}
        with SerializingProducer({**connection, **FLAT, **serializer}) as producer:
            producer.produce(topic, value="text")
        assert raw() == [b"text", None]

    @pytest.mark.usefixtures("_instrumented")
    def test_of_an_instrumented_client(
        self, connection: dict[str, Any], topic: str, raw: Callable[[], list[Any]]
    ) -> None:
        with confluent_kafka.Producer({**connection, **FLAT}) as producer:
            producer.produce(topic, LARGE)
        assert raw() == [LARGE, None]

    def test_in_an_event_loop(
        self, connection: dict[str, Any], topic: str, raw: Callable[[], list[Any]]
    ) -> None:
        async def send() -> None:
            async with AsyncProducer(connection, chain=in_code()) as producer:
                await (await producer.produce(topic, LARGE))

        asyncio.run(send())
        assert raw() == [LARGE, None]


@pytest.mark.usefixtures("_sliced")
class TestReading:
    @pytest.mark.parametrize("way", ["code", "flat", "file", "reloaded"])
    def test_decodes_what_was_sent_before(
        self, way: str, reading: dict[str, Any], topic: str, file: str
    ) -> None:
        conf = settings(way, file)
        chain = in_code() if way == "code" else None
        with Consumer({**reading, **conf}, chain=chain) as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            assert next_value(consumer) == LARGE

    def test_passes_on_what_is_sent_now(self, reading: dict[str, Any], topic: str) -> None:
        with Producer({"bootstrap.servers": reading["bootstrap.servers"]}, chain=in_code()) as producer:
            producer.produce(topic, b"plain")
        with Consumer(reading, chain=in_code()) as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            assert [next_value(consumer) for _ in range(2)] == [LARGE, b"plain"]

    def test_deserializes(self, reading: dict[str, Any], topic: str) -> None:
        conf = {**reading, **FLAT, "value.deserializer": StringDeserializer()}
        with DeserializingConsumer(conf) as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            assert next_value(consumer) == LARGE.decode()

    @pytest.mark.usefixtures("_instrumented")
    def test_with_an_instrumented_client(self, reading: dict[str, Any], topic: str) -> None:
        consumer = confluent_kafka.Consumer({**reading, **FLAT})
        consumer.assign([TopicPartition(topic, 0)])
        assert next_value(consumer) == LARGE
        consumer.close()

    def test_in_an_event_loop(self, reading: dict[str, Any], topic: str) -> None:
        async def read() -> Any:
            async with AsyncConsumer(reading, chain=in_code()) as consumer:
                await consumer.assign([TopicPartition(topic, 0)])
                return await consumer.poll(60)

        assert asyncio.run(read()).value() == LARGE


def test_share_consumers_keep_their_chain(connection: dict[str, Any]) -> None:
    pytest.importorskip("confluent_kafka", minversion="2.16")
    consumer = headerware.ShareConsumer({**connection, "group.id": "g"}, chain=Chain([Trail()]))
    assert consumer.chain.names == ("trail",)
    consumer.close()


def test_under_headerware_run(connection: dict[str, Any], file: str) -> None:
    program = (
        "import confluent_kafka as k; s = {'bootstrap.servers': 'localhost:1', 'log_level': 0}; "
        "print(k.Producer(s).chain.names, k.Consumer({**s, 'group.id': 'g'}).chain.names)"
    )
    command = [sys.executable, "-m", "headerware", "run", "--config", file, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.stdout == "() ('trail', 'slice')\n", done.stderr
