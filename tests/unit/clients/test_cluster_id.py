from __future__ import annotations

import asyncio
import threading
import time
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest

from headerware import Chain, Consumer, Context, Headers, Interceptor, Producer, Record, SignatureError
from headerware.clients import cluster_id
from headerware.clients.aio import AIOConsumer, AIOProducer
from headerware.clients.cluster_id import ClusterIdPort, cluster_id_port
from headerware.core.header_text import decode_text
from headerware.interceptors import Compress, Sign, Trail
from headerware.interceptors.trail import read_trail
from headerware.keyring import with_new_key
from headerware.keyring.signature import SIGNATURE_HEADER, decode_statement
from headerware.keyring.writing import edit_keyring
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class Old:
    """A client of confluent-kafka before 2.16, which does not know its cluster's id."""


class TestAnOldClient:
    def test_has_a_thread_that_asks(self, connection: dict[str, Any]) -> None:
        ask, deadline = cluster_id_port(Old(), connection, lambda _: False), time.monotonic() + 10
        while ask() is None:
            assert time.monotonic() < deadline
        assert isinstance(ask(), str)

    def test_calls_no_callback_of_the_applications_in_it(self, connection: dict[str, Any]) -> None:
        def token(_: str) -> tuple[str, float]:
            called.append(threading.current_thread())
            return "token", time.time() + 300

        called: list[threading.Thread] = []
        oauth = {"security.protocol": "sasl_plaintext", "sasl.mechanisms": "OAUTHBEARER", "oauth_cb": token}
        ask = cluster_id_port(Old(), {**connection, **oauth}, lambda _: False)
        before = set(threading.enumerate())
        assert ask() is None
        assert set(threading.enumerate()) <= before
        assert not called

    def test_knows_it_once_it_was_waited_for(self, connection: dict[str, Any]) -> None:
        port = cluster_id_port(Old(), connection, lambda _: False)
        port.wait()
        assert (port() or "").startswith("mockCluster")


class Asking(Interceptor, frozen=True, kw_only=True):
    """A step that lets a test ask its port."""

    ports: Any = None

    def open(self, context: Context) -> object:
        self.ports.append(context)
        return self

    def on_consume(self, record: Record) -> Record:
        return record


class TestAConsumer:
    """A call to a consumer waits for the poll of another thread, and perhaps for many of them."""

    @pytest.fixture
    def conf(self, connection: dict[str, Any], topic: str) -> dict[str, Any]:
        return {**connection, "group.id": topic, "auto.offset.reset": "earliest"}

    @pytest.fixture
    def asking(self, monkeypatch: pytest.MonkeyPatch) -> set[threading.Thread]:
        """The threads that asked a client."""
        threads: set[threading.Thread] = set()
        asked = cluster_id._asked

        def noted(client: Any, timeout_s: float) -> str | None:
            threads.add(threading.current_thread())
            return asked(client, timeout_s)

        monkeypatch.setattr(cluster_id, "_asked", noted)
        return threads

    def test_is_asked_by_the_thread_that_polls(
        self, conf: dict[str, Any], topic: str, asking: set[threading.Thread]
    ) -> None:
        opened: list[Context] = []
        found: list[str | None] = []
        produce_one(conf, topic)
        asking.clear()  # of the producer's

        def handle(_: object) -> None:
            assert threading.current_thread() is not threading.main_thread()
            until(lambda: look() is not None)
            consumer.stop()

        def look() -> str | None:
            found.append(opened[0].cluster_id())
            return found[-1]

        with Consumer(conf, chain=Chain([Asking(ports=opened)])) as consumer:
            consumer.subscribe([topic])
            consumer.run(handle)
        assert (found[-1] or "").startswith("mockCluster")
        assert asking <= {threading.main_thread()}

    def test_of_asyncio_is_asked_by_its_own_thread(
        self, conf: dict[str, Any], topic: str, asking: set[threading.Thread]
    ) -> None:
        opened: list[Context] = []

        async def poll() -> None:
            async with AIOConsumer(conf, chain=Chain([Asking(ports=opened)])) as consumer:
                await consumer.subscribe([topic])
                polling = asyncio.create_task(consumer.poll(60))
                await asyncio.sleep(0)
                deadline = time.monotonic() + 60
                while opened[0].cluster_id() is None:
                    assert time.monotonic() < deadline
                    await asyncio.sleep(0.01)
                polling.cancel()

        asyncio.run(poll())
        assert threading.main_thread() not in asking

    def test_is_not_asked_in_a_callback(self, conf: dict[str, Any], topic: str) -> None:
        opened: list[Context] = []
        found: list[str | None] = []

        def assigned(_: object, __: object) -> None:
            found.append(opened[0].cluster_id())
            found.append(opened[0].awaited_cluster_id())

        with Consumer(conf, chain=Chain([Asking(ports=opened)])) as consumer:
            consumer.subscribe([topic], on_assign=assigned)
            until(lambda: (consumer.poll(0.1), found)[1])
            assert len(found) == 2
            # An older client is asked on a thread of our own, for which a callback may wait.
            if hasattr(confluent_kafka.Consumer, "cluster_id"):
                assert found == [None, None]
            assert (opened[0].awaited_cluster_id() or "").startswith("mockCluster")


def produce_one(conf: dict[str, Any], topic: str) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": conf["bootstrap.servers"]})
    producer.produce(topic, b"value")
    assert producer.flush(60) == 0


class TestTheFirstRecord:
    def test_states_the_cluster(self, connection: dict[str, Any], topic: str) -> None:
        with Producer(connection, chain=Chain([Trail()])) as producer:
            producer.produce(topic, b"value")
        (entry,) = read_trail(wire(connection, topic))
        assert (entry.produced_into_cluster or "").startswith("mockCluster")

    def test_states_it_also_if_a_callback_sends_it(
        self, connection: dict[str, Any], topic: str, unique_topic: Callable[[str], str]
    ) -> None:
        with Producer(connection, chain=Chain([Trail(topics=(topic,))])) as producer:
            producer.produce(unique_topic("other"), on_delivery=lambda *_: producer.produce(topic, b"value"))
            producer.flush(60)
        (entry,) = read_trail(wire(connection, topic))
        assert (entry.produced_into_cluster or "").startswith("mockCluster")

    def test_of_the_asyncio_producer_states_it_too(self, connection: dict[str, Any], topic: str) -> None:
        async def send() -> None:
            async with AIOProducer(connection, chain=Chain([Trail()])) as producer:
                await (await producer.produce(topic, b"value"))

        asyncio.run(send())
        (entry,) = read_trail(wire(connection, topic))
        assert (entry.produced_into_cluster or "").startswith("mockCluster")

    def test_is_signed_for_the_cluster(self, connection: dict[str, Any], topic: str, tmp_path: Path) -> None:
        keyring = str(tmp_path / "keys.json")
        edit_keyring(keyring, lambda keys: with_new_key(keys, "test", "hmac-sha256"), create=True)
        chain = Chain([Sign(keyring=keyring, key_id="test")])
        with Producer(connection, chain=chain) as producer:
            producer.produce(topic, b"value")
            assert producer.stats()["sign"]["unbound"] == 0
        layout = decode_text(wire(connection, topic).last(SIGNATURE_HEADER), SIGNATURE_HEADER)
        assert decode_statement(layout)[0].cluster.startswith("mockCluster")

    def test_that_is_read_is_compared_with_it(
        self, connection: dict[str, Any], topic: str, tmp_path: Path
    ) -> None:
        keyring = str(tmp_path / "keys.json")
        edit_keyring(keyring, lambda keys: with_new_key(keys, "test", "hmac-sha256"), create=True)
        elsewhere = Chain([Sign(keyring=keyring, key_id="test", cluster="another")])
        with Producer(connection, chain=elsewhere) as producer:
            producer.produce(topic, b"value")
        conf = {**connection, "group.id": topic, "auto.offset.reset": "earliest"}
        with Consumer(conf, chain=Chain([Sign(keyring=keyring)])) as consumer:
            consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
            with pytest.raises(SignatureError, match="another"):
                consumer.poll(60)


class TestAClusterOutOfReach:
    def test_delays_the_first_record_and_no_other(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(cluster_id, "_WAIT_S", 0.3)
        cluster_id._waits.clear()
        keyring = str(tmp_path / "keys.json")
        edit_keyring(keyring, lambda keys: with_new_key(keys, "test", "hmac-sha256"), create=True)
        chain = Chain([Trail(), Sign(keyring=keyring, key_id="test")])
        producer = Producer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0}, chain=chain)
        times = [time.monotonic()]
        for _ in range(3):
            producer.produce("orders", b"value")
            times.append(time.monotonic())
        first, *others = (after - before for before, after in pairwise(times))
        assert first > 0.29, "librdkafka rounds down to milliseconds"
        assert min(others) < 0.29
        assert producer.stats()["sign"]["unbound"] == 3
        assert len([record for record in caplog.records if "any cluster" in record.message]) == 1
        producer.purge()

    def test_is_waited_for_together(self) -> None:
        asked: list[float] = []
        release = threading.Event()

        def ask(timeout_s: float) -> str | None:
            asked.append(timeout_s)
            return "lkc" if timeout_s and release.wait(60) else None

        port = ClusterIdPort(ask)
        found: list[str | None] = []

        def wait() -> None:
            port.wait()
            found.append(port())

        threads = [threading.Thread(target=wait) for _ in range(3)]
        for thread in threads:
            thread.start()
        release.set()
        for thread in threads:
            thread.join(60)
        assert found == ["lkc"] * 3
        assert len(asked) == 1

    def test_is_waited_for_by_all_clients_of_the_process_together(
        self, waits: list[float], tmp_path: Path
    ) -> None:
        keyring = str(tmp_path / "keys.json")
        edit_keyring(keyring, lambda keys: with_new_key(keys, "test", "hmac-sha256"), create=True)
        for chain in (Chain([Trail()]), Chain([Sign(keyring=keyring, key_id="test")]), Chain([Trail()])):
            producer = Producer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0}, chain=chain)
            producer.produce("orders", b"value")
            producer.purge()
        assert waits == [pytest.approx(0.3), 0.05, 0.05]

    def test_is_waited_for_in_the_rest_of_another_clients_time(self, waits: list[float]) -> None:
        cluster_id._waits["a:1"] = time.monotonic() + 0.2
        ClusterIdPort(lambda _: None, servers="a:1").wait()
        assert 0.05 <= waits[0] <= 0.2

    def test_is_waited_for_anew_once_it_was_reached(
        self, waits: list[float], connection: dict[str, Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        servers = connection["bootstrap.servers"]
        ClusterIdPort(lambda _: None, servers=servers).wait()
        reaches = cluster_id_port(Old(), connection)
        until(lambda: reaches() is not None)
        ClusterIdPort(lambda _: None, servers=servers).wait()
        ClusterIdPort(lambda _: None, servers="another:1").wait()
        assert waits == [pytest.approx(0.3)] * 3

    @pytest.fixture
    def waits(self, monkeypatch: pytest.MonkeyPatch) -> list[float]:
        """How long clients waited for an id at most, in seconds."""
        found: list[float] = []
        allowed = cluster_id._wait_s

        def noted(servers: str | None) -> float:
            found.append(allowed(servers))
            return found[-1]

        monkeypatch.setattr(cluster_id, "_WAIT_S", 0.3)
        monkeypatch.setattr(cluster_id, "_wait_s", noted)
        cluster_id._waits.clear()
        return found

    def test_is_not_waited_for_by_a_chain_that_does_not_name_it(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(cluster_id, "_WAIT_S", 60.0)
        producer = Producer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0}, chain=Chain([Compress()]))
        began = time.monotonic()
        producer.produce("orders", b"value")
        assert time.monotonic() - began < 30
        producer.purge()


def wire(connection: dict[str, Any], topic: str) -> Headers:
    """Return the headers of a topic's only record, as a plain client reads them."""
    conf = {**connection, "group.id": "wire", "auto.offset.reset": "earliest"}
    consumer = confluent_kafka.Consumer(conf)
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    try:
        message = consumer.poll(60)
        assert message is not None
        assert message.error() is None
        return Headers(message.headers() or [])
    finally:
        consumer.close()
