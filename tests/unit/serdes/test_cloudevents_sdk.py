"""The official Python SDK as the other side, in both directions and both modes."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest
from cloudevents.core.bindings import kafka
from cloudevents.core.v03.event import CloudEvent as OldSdk
from cloudevents.core.v1.event import CloudEvent as Sdk

from headerware import Chain, Headers, SerdeError
from headerware.clients import Consumer, Producer
from headerware.interceptors import Serialize
from headerware.serdes import CloudEvent, CloudEvents, SerdeContext

if TYPE_CHECKING:
    from collections.abc import Callable

    from headerware.testing import EmbeddedCluster

MODES = pytest.mark.parametrize("mode", ["binary", "structured"])
WRITES = {"binary": kafka.to_binary_event, "structured": kafka.to_structured_event}
ATTRIBUTES: dict[str, Any] = {
    "specversion": "1.0",
    "id": "7",
    "source": "/shop",
    "type": "placed",
    "time": datetime(2026, 1, 2, 12, 0, 0, 123456, UTC),
    "subject": "é",
    "dataschema": "urn:x",
    "partitionkey": "k",
    "trace": "1",
}
DATA = pytest.mark.parametrize(
    ("data", "content_type", "theirs"),
    [
        ({"a": [1, 2.5, None, "é"]}, "application/json", {"a": [1, 2.5, None, "é"]}),
        ({"a": 1}, "application/vnd.orders+json", {"a": 1}),
        ("é", "text/plain", "é"),
        (b"\xff\x00", "image/png", b"\xff\x00"),
        (None, None, None),
    ],
)


def opened(**options: Any) -> Any:
    return CloudEvents(**options).open(SerdeContext())


def attributes(content_type: str | None) -> dict[str, Any]:
    return dict(ATTRIBUTES) if content_type is None else {**ATTRIBUTES, "datacontenttype": content_type}


def message(payload: bytes | None, headers: Headers, key: str | None = None) -> Any:
    return kafka.KafkaMessage(dict(headers), key, b"" if payload is None else payload)


class TestTheSdkReadsOurs:
    @MODES
    @DATA
    def test_event(self, mode: str, data: Any, content_type: str | None, theirs: Any) -> None:
        ours = CloudEvent.of(attributes(content_type), data)
        payload, headers = opened(mode=mode).serialize("t", Headers(), ours)
        read = kafka.from_kafka_event(message(payload, headers))
        assert read.get_attributes() == attributes(content_type)
        assert read.get_data() == theirs

    @MODES
    @DATA
    def test_an_event_of_its_own_that_we_sent(
        self, mode: str, data: Any, content_type: str | None, theirs: Any
    ) -> None:
        payload, headers = opened(mode=mode).serialize("t", Headers(), Sdk(attributes(content_type), data))
        read = kafka.from_kafka_event(message(payload, headers))
        assert read.get_attributes() == attributes(content_type)
        assert read.get_data() == theirs

    def test_text_of_another_kind_is_sent_as_it_is(self) -> None:
        sent = opened().serialize("t", Headers(), Sdk(attributes("application/xml"), "<é/>"))
        assert sent[0] == "<é/>".encode()
        with pytest.raises(SerdeError, match="its charset does not have"):
            opened().serialize("t", Headers(), Sdk(attributes("application/xml"), "\ud800"))

    def test_makes_its_own_event_of_ours(self) -> None:
        ours = CloudEvent.of(attributes("application/json"), {"a": 1})
        theirs = Sdk(ours.attributes(), ours.data)
        assert (theirs.get_attributes(), theirs.get_data()) == (attributes("application/json"), {"a": 1})


class TestWeReadTheSdks:
    @MODES
    @DATA
    def test_event(self, mode: str, data: Any, content_type: str | None, theirs: Any) -> None:
        sent = WRITES[mode](Sdk(attributes(content_type), data))
        assert sent.key == "k"
        read, after = opened().deserialize("t", Headers(sent.headers), sent.value)
        assert read == CloudEvent.of(attributes(content_type), data)
        assert read.key == "k"
        assert not [name for name in after.names() if name.startswith("ce_")]

    def test_version_0_3_is_refused(self) -> None:
        sent = kafka.to_binary_event(OldSdk({**attributes(None), "specversion": "0.3", "dataschema": None}))
        with pytest.raises(SerdeError, match="specversion"):
            opened().deserialize("t", Headers(sent.headers), sent.value)


class TestThroughKafka:
    @MODES
    def test_both_directions(
        self, mode: str, embedded_cluster: EmbeddedCluster, unique_topic: Callable[[str], str]
    ) -> None:
        topic, servers = unique_topic("sdk"), {"bootstrap.servers": embedded_cluster.bootstrap_servers}
        embedded_cluster.create_topic(topic)
        chain = Chain([Serialize(value=CloudEvents(mode=mode))])  # type: ignore[arg-type]  # parametrized
        theirs = WRITES[mode](Sdk(attributes("application/json"), {"a": 1}))
        raw = confluent_kafka.Producer(servers)
        raw.produce(topic, theirs.value, theirs.key, headers=list(theirs.headers.items()))
        raw.flush(60)
        ours = CloudEvent.of(attributes("application/json"), {"a": 1})
        producer = Producer(servers, chain=chain)
        producer.produce(topic, ours, key=ours.key)
        producer.flush(60)
        settings = {**servers, "group.id": topic, "auto.offset.reset": "earliest"}
        with Consumer(settings, chain=chain) as consumer:
            consumer.subscribe([topic])
            assert [one.value() for one in _taken(consumer, 2)] == [ours, ours]
        reader = confluent_kafka.Consumer({**settings, "group.id": f"{topic}-raw"})
        reader.subscribe([topic])
        for one in _taken(reader, 2):
            read = kafka.from_kafka_event(kafka.KafkaMessage(dict(one.headers()), one.key(), one.value()))
            assert (read.get_attributes(), read.get_data()) == (attributes("application/json"), {"a": 1})
        reader.close()


def _taken(consumer: Any, count: int) -> list[Any]:
    taken: list[Any] = []
    deadline = time.monotonic() + 60
    while len(taken) < count and time.monotonic() < deadline:
        taken += consumer.consume(count, 0.5)
    return taken
