"""A corrupted header of each of our kinds: one clear error that names where, and the stream goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition

from headerware.clients import Consumer
from headerware.core.chain import Chain
from headerware.core.errors import (
    CompressionError,
    HeaderError,
    InterceptorError,
    ReassemblyError,
    SignatureError,
)
from headerware.core.headers import Headers
from headerware.core.record import Record
from headerware.interceptors import Compress, Sign, Slice, Trail, built_in
from headerware.keyring import with_new_key
from headerware.keyring.writing import edit_keyring

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.clients.conftest import MakeProducer


VALUE = b"a value that compresses well, " * 500


@pytest.fixture
def keyring(tmp_path: Path) -> str:
    path = str(tmp_path / "keys.json")
    edit_keyring(path, lambda empty: with_new_key(empty, "orders", "hmac-sha256"), create=True)
    return path


def produce(connection: dict[str, Any], records: list[Record]) -> None:
    producer = confluent_kafka.Producer(connection)
    for record in records:
        producer.produce(record.topic, record.value, record.key, 0, headers=list(record.headers))
    assert producer.flush(60) == 0


def corrupted(record: Record, name: str) -> Record:
    """Return a record whose header of this name holds nonsense of the same length."""
    pairs = [(key, b"\xff" * len(value or b"") if key == name else value) for key, value in record.headers]
    return record.replace(headers=Headers(pairs))


class TestACorruptedHeader:
    @pytest.mark.parametrize(
        ("name", "interceptors", "error"),
        [
            ("hw.compress", [Compress()], CompressionError),
            ("hw.slice", [Slice(max_bytes=5_000)], ReassemblyError),
            ("hw.sig", [], SignatureError),
        ],
    )
    def test_is_refused_once_with_its_place(
        self,
        connection: dict[str, Any],
        topic: str,
        keyring: str,
        name: str,
        interceptors: list[Any],
        error: type[InterceptorError],
    ) -> None:
        chain = Chain(interceptors or [Sign(keyring=keyring, key_id="orders")])
        with chain.open() as session:
            (bad, *_), good = (session.send([Record(topic=topic, value=VALUE)]) for _ in range(2))
        produce(connection, [corrupted(bad, name), *good])
        conf = {**connection, "group.id": topic, "auto.offset.reset": "earliest"}
        with Consumer(conf, chain=chain) as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            with pytest.raises(error) as refused:
                consumer.poll(60)
            assert (refused.value.step, refused.value.topic) == (
                name.removeprefix("hw.").replace("sig", "sign"),
                topic,
            )
            assert (refused.value.partition, refused.value.offset) == (0, 0)
            assert f"{topic}[0]@0" in str(refused.value)
            message = consumer.poll(60)
            assert message is not None
            assert message.value() == VALUE

    def test_of_the_trail_is_logged_and_stays(
        self, connection: dict[str, Any], topic: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        chain = Chain([Trail(service="orders")])
        with chain.open() as session:
            bad, good = session.send([Record(topic=topic, value=value) for value in (b"1", b"2")])
        produce(connection, [corrupted(bad, "hw.trail"), good])
        conf = {**connection, "group.id": topic, "auto.offset.reset": "earliest"}
        with Consumer(conf, chain=chain) as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            first, second = consumer.poll(60), consumer.poll(60)
        assert first is not None
        assert second is not None
        assert (first.value(), second.value()) == (b"1", b"2")
        assert Headers(first.headers()).last("hw.trail") == corrupted(bad, "hw.trail").headers.last(
            "hw.trail"
        )
        assert f"trail at {topic}[0]@0" in caplog.text


class TestAnApplicationThatSendsOurHeaders:
    @pytest.mark.parametrize("name", ["hw.sig", "HW.sig", "Hw.x", "hW.TRAIL", "HW.TRAIL", "hw.Trail", "hw."])
    def test_is_refused_in_any_case_of_letters(
        self, make_producer: MakeProducer, topic: str, name: str
    ) -> None:
        producer = make_producer(Compress())
        with pytest.raises(HeaderError, match=f"header '{name}' is Headerware's own"):
            producer.produce(topic, b"value", headers={name: b"1"})

    def test_may_send_on_what_stays_on_records(self, make_producer: MakeProducer, topic: str) -> None:
        headers = dict.fromkeys(built_in.HEADERS.lineage, b"1")
        producer = make_producer(Compress())
        producer.produce(topic, b"value", headers=headers)
        assert producer.flush(60) == 0
