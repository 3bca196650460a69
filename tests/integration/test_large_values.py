"""Messages in slices on the real broker that are given up with what arrived."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any, Final

import pytest
from confluent_kafka import admin

from headerware import Chain, Context, Headers, Record
from headerware.interceptors import Sign, Slice
from headerware.ops.redrive import Redrive, Selection
from tests.integration.conftest import DEADLINE_S

if TYPE_CHECKING:
    from headerware import Consumer
    from tests.integration.conftest import Cluster

pytestmark = pytest.mark.broker

EXPIRE_MS: Final = 500


class TestDeadLettersOfIncompleteMessages:
    def test_are_sent_back_and_complete_the_message(self, cluster: Cluster, keyring: str) -> None:
        topic, value = cluster.topic("orders"), os.urandom(20_000)
        sign = Sign(keyring=keyring, key_id="test", cluster="here")
        with Chain([Slice(max_bytes=3_000), sign]).open(Context(side="producer")) as session:
            pieces = session.send([Record(topic, value, b"k", Headers([("own", b"1")]))])
        send(cluster, pieces[:-1])
        reader = cluster.consumer(topic, Slice(expire_ms=EXPIRE_MS, on_error="dead_letter"), sign)
        letters = f"{topic}.dead-letter"
        poll_until(reader, lambda: count(cluster, letters) == len(pieces) - 1)
        send(cluster, pieces[-1:])
        poll_until(reader, lambda: count(cluster, letters) == len(pieces))
        cluster.commit(reader)
        assert cluster.committed(topic, topic)[0] == len(pieces)

        with Redrive({"bootstrap.servers": cluster.servers}, letters, Selection()) as redrive:
            assert redrive.execute().sent == {topic: len(pieces)}
        deadline = time.monotonic() + DEADLINE_S
        while not (found := cluster.rest_of(reader, topic)):
            assert time.monotonic() < deadline
        (message,) = found
        assert message.value() == value
        assert Headers(message.headers()).last("own") == b"1"

    def test_wait_for_a_topic_that_is_not_available(self, cluster: Cluster) -> None:
        topic = cluster.topic("orders")
        letters = cluster.topic("letters", config={"max.message.bytes": "100"})
        with Chain([Slice(max_bytes=3_000)]).open(Context(side="producer")) as session:
            pieces = session.send([Record(topic, os.urandom(5_000), b"k")])
        send(cluster, pieces[:-1])
        reader = cluster.consumer(
            topic,
            Slice(
                expire_ms=EXPIRE_MS,
                on_error="dead_letter",
                dead_letter_topic=letters,
                dead_letter_too_large="hold",
            ),
        )
        errors: list[Exception] = []
        poll_until(reader, lambda: bool(errors), errors)
        assert cluster.committed(topic, topic)[0] < 1, "a restart reads it again"
        set_config(cluster, letters, "max.message.bytes", "1000000")
        poll_until(reader, lambda: count(cluster, letters) >= len(pieces) - 1, errors)
        values = {each.value() for each in cluster.on_the_wire(letters)}
        assert values == {piece.value for piece in pieces[:-1]}


def send(cluster: Cluster, records: list[Record]) -> None:
    """Send records as they are."""
    producer = cluster.plain_producer()
    for record in records:
        producer.produce(record.topic, record.value, record.key, 0, headers=list(record.headers))
    assert producer.flush(DEADLINE_S) == 0


def count(cluster: Cluster, topic: str) -> int:
    return len(cluster.on_the_wire(topic))


def poll_until(reader: Consumer, reached: Any, errors: list[Exception] | None = None) -> None:
    """Poll, which gives no message, until something is reached."""
    deadline = time.monotonic() + DEADLINE_S
    while not reached():
        assert time.monotonic() < deadline
        try:
            message = reader.poll(0.2)
        except Exception as error:
            if errors is None:
                raise
            errors.append(error)
        else:
            assert message is None or message.error() is not None


def set_config(cluster: Cluster, topic: str, name: str, value: str) -> None:
    kafka: Any = admin  # its stub exports little
    client = kafka.AdminClient({"bootstrap.servers": cluster.servers})
    entry = kafka.ConfigEntry(name, value, incremental_operation=kafka.AlterConfigOpType.SET)
    resource = kafka.ConfigResource(kafka.ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    for future in client.incremental_alter_configs([resource]).values():
        future.result(DEADLINE_S)
