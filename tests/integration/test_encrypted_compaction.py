"""A compacted topic with encrypted keys on a real broker: each key's latest record stays over rotations."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from headerware import Chain, Context, Headers, HeaderwareError
from headerware.core.header_text import decode_text
from headerware.interceptors import Encrypt, new_key_secret
from headerware.interceptors.encrypt.envelope import Statement, statement_of
from headerware.keyring import with_new_key, with_rotation
from headerware.keyring.services import FileKeys
from headerware.keyring.writing import edit_keyring
from tests.waiting import until

if TYPE_CHECKING:
    from confluent_kafka import Message

    from tests.integration.conftest import Cluster

pytestmark = pytest.mark.broker

AT_ONCE = {
    "cleanup.policy": "compact",
    "segment.ms": "100",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "100",
}
CUSTOMERS = [b"customer-%d" % number for number in range(6)]
DELETED = b"customer-5"
TICK = b"tick"


def stated(message: Message) -> Statement:
    layout = decode_text(Headers(message.headers()).last("hw.encrypt"), "hw.encrypt")
    return statement_of(layout, is_null=message.value() is None)[0]


def test_keeps_the_latest_record_of_each_key(second_cluster: Cluster, keyring: str) -> None:
    edit_keyring(keyring, lambda keys: with_new_key(keys, "cards", "aes-256"))
    service = FileKeys(keyring=keyring)
    secret = new_key_secret(service.open(Context()), "cards")
    options: dict[str, Any] = {"key_service": service, "key_id": "cards", "data_key_max_uses": 4}
    step = Encrypt(key="deterministic", key_secret=secret, **options)
    topic = second_cluster.topic("encrypted", config=AT_ONCE)

    def write(version: int) -> None:
        with_chain = second_cluster.producer(chain=Chain([step]))
        for customer in CUSTOMERS:
            with_chain.produce(topic, b"%s is at %d" % (customer, version), customer, partition=0)
        assert with_chain.flush(60) == 0

    write(1)
    edit_keyring(keyring, lambda keys: with_rotation(keys, "cards"))
    write(2)
    rewritten = second_cluster.on_the_wire(topic)
    producer = second_cluster.producer(chain=Chain([step]))
    producer.produce(topic, None, DELETED, partition=0)
    assert producer.flush(60) == 0
    assert {stated(message).key_version for message in rewritten} == {"1", "2"}
    assert len({stated(message).wrapped for message in rewritten}) >= 4
    assert len({message.key() for message in rewritten}) == len(CUSTOMERS)
    assert not any(b"customer" in (message.key() or b"") for message in rewritten)

    kept = {message.key(): message for message in rewritten}  # the last of each key
    kept.pop(rewritten[-1].key())  # the one that is deleted

    def compacted() -> bool:
        time.sleep(0.15)  # a segment is closed by the first record after segment.ms
        producer.produce(topic, b"now", TICK, partition=0)
        producer.flush(60)
        left = {message.offset() for message in second_cluster.on_the_wire(topic)}
        return left.isdisjoint(range(len(CUSTOMERS))) and len(rewritten) not in left

    until(compacted, "compaction, of the tombstone as well")
    wire = [
        message for message in second_cluster.on_the_wire(topic) if (message.offset() or 0) < len(rewritten)
    ]
    assert {message.key(): message.offset() for message in wire} == {
        key: message.offset() for key, message in kept.items()
    }
    refused: list[HeaderwareError] = []
    read = second_cluster.rest_of(second_cluster.consumer(topic, step), topic, refused)
    assert refused == []
    assert {message.key(): message.value() for message in read if message.key() != TICK} == {
        customer: b"%s is at 2" % customer for customer in CUSTOMERS if customer != DELETED
    }
