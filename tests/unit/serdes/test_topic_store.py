from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from headerware.core.errors import HeldBackError, SerdeError, UnknownSchemaError
from headerware.serdes.avro.limits import Limits
from headerware.serdes.avro.schema import ALGORITHM_BYTES, Algorithm, AvroSchema, Fingerprint, Schema
from headerware.serdes.stores.cache import CachedStore
from headerware.serdes.stores.store import store_type
from headerware.serdes.stores.topic import TopicSchemas, TopicSchemaStore
from headerware.testing import EmbeddedCluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

DEADLINE_S = 60.0
FAST = {"fetch.wait.max.ms": 20, "log_level": 0}


def schema(name: str, algorithm: Algorithm = "md5") -> Schema:
    text = json.dumps({"type": "record", "name": name, "fields": [{"name": "id", "type": "long"}]})
    return Schema(Fingerprint.of(text, algorithm), text, name)


@pytest.fixture
def topic(embedded_cluster: EmbeddedCluster, unique_topic: Callable[[str], str]) -> str:
    name = unique_topic("schemas")
    embedded_cluster.create_topic(name)
    return name


@pytest.fixture
def make(embedded_cluster: EmbeddedCluster, topic: str) -> Iterator[Callable[..., TopicSchemaStore]]:
    made: list[TopicSchemaStore] = []

    def store(cluster: EmbeddedCluster = embedded_cluster, **options: Any) -> TopicSchemaStore:
        made.append(
            TopicSchemas(servers=cluster.bootstrap_servers, topic=topic, config=FAST, **options).open()
        )
        return made[-1]

    yield store
    for one in made:
        one.close()


def on_the_wire(cluster: EmbeddedCluster, topic: str, count: int) -> list[tuple[bytes | None, bytes | None]]:
    """Read so many records, and what may come behind them."""
    conf = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
    consumer = Consumer({**conf, **FAST, "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[Any] = []
    try:
        while (message := consumer.poll(DEADLINE_S)) is not None and message.error() is None:
            found.append((message.key(), message.value()))
    finally:
        consumer.close()
    assert len(found) >= count
    return found


def write(cluster: EmbeddedCluster, topic: str, key: bytes, value: bytes | None) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    producer.produce(topic, value, key, partition=0)
    assert producer.flush(DEADLINE_S) == 0


class TestTopicSchemas:
    def test_is_found_by_its_word(self) -> None:
        assert store_type("topic") is TopicSchemas

    @pytest.mark.parametrize("algorithm", list(ALGORITHM_BYTES))
    def test_what_one_deposits_another_finds(
        self, make: Callable[..., TopicSchemaStore], algorithm: Algorithm
    ) -> None:
        deposited = schema("Order", algorithm)
        reader = make()
        with pytest.raises(UnknownSchemaError, match=f"fingerprint {algorithm}"):
            reader.get(deposited.fingerprint)
        make().put(deposited)
        assert reader.get(deposited.fingerprint) == deposited.text

    def test_key_and_value_are_as_the_specification_says(
        self, make: Callable[..., TopicSchemaStore], embedded_cluster: EmbeddedCluster, topic: str
    ) -> None:
        deposited = schema("Order", "sha256")
        make().put(deposited)
        found = on_the_wire(embedded_cluster, topic, 1)
        assert found == [(b"\x03" + deposited.fingerprint.digest, deposited.text.encode())]

    def test_is_deposited_once_however_many_threads(
        self, make: Callable[..., TopicSchemaStore], embedded_cluster: EmbeddedCluster, topic: str
    ) -> None:
        deposited = schema("Order")
        store = make()
        errors: list[Exception] = []

        def use() -> None:
            try:
                store.put(deposited)
                assert store.get(deposited.fingerprint) == deposited.text
            except Exception as error:  # noqa: BLE001 - told to the test's own thread
                errors.append(error)

        threads = [threading.Thread(target=use) for _ in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        make().put(deposited)
        assert errors == []
        assert len(on_the_wire(embedded_cluster, topic, 1)) == 1

    def test_five_threads_share_one_read(self, make: Callable[..., TopicSchemaStore]) -> None:
        store = make()
        looks: list[float] = []
        refresh = store._table.refresh

        def counted(timeout_s: float = DEADLINE_S) -> bool:
            looks.append(timeout_s)
            return refresh(timeout_s)

        store._table.refresh = counted  # type: ignore[method-assign]
        cached = CachedStore(store)
        unknown: list[UnknownSchemaError] = []

        def ask() -> None:
            try:
                cached.get(schema("Order").fingerprint)
            except UnknownSchemaError as error:
                unknown.append(error)

        threads = [threading.Thread(target=ask) for _ in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(unknown) == 5
        assert len(looks) == 1

    def test_takes_what_any_serde_may(self, make: Callable[..., TopicSchemaStore]) -> None:
        deep = AvroSchema.parsed(
            '{"type":"array","items":' * 200 + '"long"' + "}" * 200, Limits(max_depth=300)
        ).deposit("md5")
        make().put(deep)
        assert make().get(deep.fingerprint) == deep.text

    @pytest.mark.parametrize("damage", [b"garbage", b"\xff", b'"string"', b"", b"[" * 50_000])
    def test_damage_is_as_good_as_none_and_is_repaired(
        self,
        make: Callable[..., TopicSchemaStore],
        embedded_cluster: EmbeddedCluster,
        topic: str,
        damage: bytes,
    ) -> None:
        deposited = schema("Order")
        other = schema("Other")
        reader = make()
        make().put(other)
        write(embedded_cluster, topic, deposited.fingerprint.code, damage)
        with pytest.raises(UnknownSchemaError) as caught:
            reader.get(deposited.fingerprint)
        assert "garbage" not in str(caught.value)
        assert reader.get(other.fingerprint) == other.text
        make().put(deposited)
        assert reader.get(deposited.fingerprint) == deposited.text

    def test_what_it_knows_needs_no_brokers(
        self, make: Callable[..., TopicSchemaStore], topic: str, tmp_path: Path
    ) -> None:
        deposited = schema("Order")
        with EmbeddedCluster(topics={topic: 1}) as cluster:
            store = make(cluster, snapshot=str(tmp_path / "snapshot"))
            store.put(deposited)
            store.close()
        store = make(cluster, snapshot=str(tmp_path / "snapshot"), timeout_s=0.3)
        assert store.get(deposited.fingerprint) == deposited.text
        with pytest.raises(HeldBackError, match="is out of reach"):
            store.get(schema("Other").fingerprint)
        with pytest.raises(SerdeError):
            store.put(schema("Other"))
        with pytest.raises(HeldBackError):
            make(cluster, timeout_s=0.3).get(deposited.fingerprint)

    def test_refuses_properties_that_are_none(self) -> None:
        with pytest.raises(SerdeError, match="refuses its configuration"):
            TopicSchemas(servers="a:1", topic="t", config={"no.such": 1}).open()
