"""A keyring that is rotated and revoked while producer and consumer run: no restart, no refused record."""

from __future__ import annotations

import threading
from base64 import b64decode
from typing import TYPE_CHECKING, Final

import pytest

from headerware import SignatureError
from headerware.interceptors import Sign
from headerware.keyring import with_revocation, with_rotation
from headerware.keyring.signature import decode_statement
from headerware.keyring.writing import edit_keyring
from tests.waiting import until

if TYPE_CHECKING:
    from confluent_kafka import Message

    from tests.integration.conftest import Cluster

pytestmark = pytest.mark.broker

DEADLINE_S: Final = 60.0
ROTATIONS: Final = 2


def key_version(message: Message) -> int:
    return decode_statement(b64decode(dict(message.headers() or [])["hw.sig"] or b""))[0].key_version


def test_running_clients_take_up_new_keys_and_refuse_revoked_ones(cluster: Cluster, keyring: str) -> None:
    topic = cluster.topic("rotation")
    sign = Sign(keyring=keyring, key_id="test")
    producer, consumer = cluster.producer(sign), cluster.consumer(topic, sign)
    ended = threading.Event()
    sent: list[bytes] = []

    def produce() -> None:
        while not ended.wait(0.005):
            sent.append(b"%d" % len(sent))
            producer.produce(topic, sent[-1])
            producer.poll(0)

    thread = threading.Thread(target=produce)
    thread.start()
    received: list[bytes | None] = []
    try:
        for version in range(1, ROTATIONS + 2):
            until(
                lambda version=version: [*map(key_version, cluster.on_the_wire(topic)[-1:])] == [version],  # type: ignore[misc]
                f"version {version} signs",
            )
            received += [m.value() for m in cluster.rest_of(consumer, topic)]
            if version <= ROTATIONS:
                edit_keyring(keyring, lambda keys: with_rotation(keys, "test"))
    finally:
        ended.set()
        thread.join()
    assert producer.flush(DEADLINE_S) == 0
    received += [m.value() for m in cluster.rest_of(consumer, topic)]
    assert received == sent, "nothing was refused, and nothing lost"
    on_the_wire = cluster.on_the_wire(topic)
    versions = [key_version(message) for message in on_the_wire]
    assert versions == sorted(versions)
    assert set(versions) == set(range(1, ROTATIONS + 2))

    # Whoever has the key of version 1 can go on signing; the running consumer takes no more of it.
    edit_keyring(keyring, lambda keys: with_revocation(keys, "test", version=1, reason="stolen"))
    old = on_the_wire[0]
    wire = cluster.plain_producer()

    def is_refused() -> bool:
        wire.produce(topic, old.value(), headers=old.headers())
        assert wire.flush(DEADLINE_S) == 0
        try:
            cluster.take(consumer, 1)
        except SignatureError as error:
            return "revoked" in str(error)
        return False

    until(is_refused, "the revoked key is refused")
