"""Every header of ours is text, for applications that decode all headers of a record as UTF-8."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition

from headerware import Chain, Consumer, Producer
from headerware.interceptors import Compress, Dedup, HeaderIds, Schema, Sign, Slice, Trail
from headerware.serdes import FolderSchemas

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from headerware.testing import EmbeddedCluster

SCHEMA = b'{"type":"record","name":"Order","fields":[{"name":"id","type":"long"}]}'
VALUE = b"an order that repeats itself; " * 400
HEADERS = [("tenant", b"north"), ("avro.schema", SCHEMA)]
WIRE = {"tenant", "hw.trail", "hw.id", "hw.schema", "hw.compress"}


def decoded(message: Any) -> dict[str, str]:
    """Decode all headers as text, as FastStream's broker for confluent-kafka does."""
    return {name: value.decode() for name, value in message.headers()}


@pytest.fixture
def connection(embedded_cluster: EmbeddedCluster) -> dict[str, Any]:
    return {"bootstrap.servers": embedded_cluster.bootstrap_servers}


@pytest.fixture
def topic(embedded_cluster: EmbeddedCluster, unique_topic: Callable[[str], str]) -> str:
    name = unique_topic("text")
    embedded_cluster.create_topic(name)
    return name


@pytest.fixture
def chain(tmp_path: Path) -> Callable[..., Chain]:
    """Return a maker of a whole chain, with steps to its right."""

    def make(*more: Any) -> Chain:
        schema = Schema(store=FolderSchemas(path=str(tmp_path / "schemas")))
        return Chain([schema, Trail(service="shop" * 40), Dedup(), Compress(), *more])

    return make


@pytest.fixture
def protecting(keyring: str) -> list[Any]:
    return [Slice(max_bytes=4_000), Sign(keyring=keyring, key_id="test")]


class TestTextHeaders:
    def sent(self, connection: dict[str, Any], topic: str, chain: Chain, value: bytes = VALUE) -> None:
        with Producer(connection, chain=chain) as producer:
            producer.produce(topic, value, headers=HEADERS)
            assert producer.flush(10) == 0

    def first(self, consumer: Any, topic: str) -> Any:
        try:
            consumer.assign([TopicPartition(topic, 0, 0)])
            message = consumer.poll(10)
        finally:
            consumer.close()
        assert message is not None
        assert message.error() is None
        return message

    def plain(self, connection: dict[str, Any], topic: str) -> Any:
        return self.first(confluent_kafka.Consumer({**connection, "group.id": topic}), topic)

    def test_a_consumer_with_the_chain_decodes_what_stays(
        self, connection: dict[str, Any], topic: str, chain: Callable[..., Chain]
    ) -> None:
        self.sent(connection, topic, chain())
        message = self.first(Consumer({**connection, "group.id": topic}, chain=chain()), topic)
        assert message.value() == VALUE
        assert decoded(message)["hw.trail"].startswith("1,at=")

    def test_a_consumer_without_it_decodes_what_is_on_the_wire(
        self, connection: dict[str, Any], topic: str, chain: Callable[..., Chain]
    ) -> None:
        self.sent(connection, topic, chain())
        found = decoded(self.plain(connection, topic))
        assert set(found) == WIRE
        assert found["hw.compress"] == "zstd"
        assert found["hw.schema"].startswith("value:")

    def test_slices_and_signatures_are_text_too(
        self, connection: dict[str, Any], topic: str, chain: Callable[..., Chain], protecting: list[Any]
    ) -> None:
        noise = random.Random(7).randbytes(10_000)
        self.sent(connection, topic, chain(*protecting), noise)
        assert {"hw.slice", "hw.sig"} < set(decoded(self.plain(connection, topic)))

    def test_compact_keys_hold_the_same_text(
        self, connection: dict[str, Any], topic: str, chain: Callable[..., Chain]
    ) -> None:
        self.sent(connection, topic, chain(HeaderIds(form="keys")))
        assert {"~B", "~C", "~G", "~I"} < set(decoded(self.plain(connection, topic)))

    @pytest.mark.parametrize("form", ["packed"])
    def test_a_packed_block_of_texts_is_text(
        self, connection: dict[str, Any], topic: str, chain: Callable[..., Chain], form: Any
    ) -> None:
        self.sent(connection, topic, chain(HeaderIds(form=form)))
        assert "hw.ids" in decoded(self.plain(connection, topic))
