"""A keyring that is rotated and revoked while producer and consumer run: no restart, no refused record."""

from __future__ import annotations

import shutil
import threading
from base64 import b64decode, b64encode
from typing import TYPE_CHECKING, Final

import pytest
from click.testing import CliRunner

from headerware import SignatureError
from headerware.cli import main
from headerware.core.header_text import decode_text
from headerware.interceptors import Encrypt, Sign
from headerware.interceptors.encrypt.envelope import statement_of
from headerware.keyring import with_new_key, with_revocation, with_rotation
from headerware.keyring.services import FileKeys
from headerware.keyring.signature import Statement, decode_statement
from headerware.keyring.writing import edit_keyring
from tests.integration.conftest import Cluster, is_record
from tests.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from confluent_kafka import Message

pytestmark = pytest.mark.broker

DEADLINE_S: Final = 60.0
ROTATIONS: Final = 2
FORGED: Final = 50


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


def test_versions_that_nobody_made_hold_back_their_partition_alone(cluster: Cluster, keyring: str) -> None:
    topic = cluster.topic("forged", partitions=2)
    producer = cluster.producer(Sign(keyring=keyring, key_id="test"))
    for partition in (0, 1):
        producer.produce(topic, b"genuine", partition=partition)
    assert producer.flush(DEADLINE_S) == 0
    genuine = cluster.on_the_wire(topic)[0]
    layout = b64decode(dict(genuine.headers() or [])["hw.sig"] or b"")
    stated, end = decode_statement(layout)
    forged = Statement(stated.key_id, 2, stated.cluster, stated.topic).encode() + layout[end:]
    wire = cluster.plain_producer()
    for _ in range(FORGED):
        wire.produce(topic, b"forged", headers={"hw.sig": b64encode(forged)}, partition=0)
    assert wire.flush(DEADLINE_S) == 0
    for partition in (0, 1):
        producer.produce(topic, b"behind it", partition=partition)
    assert producer.flush(DEADLINE_S) == 0

    consumer = cluster.consumer(topic, Sign(keyring=keyring, await_version_ms=10 * int(DEADLINE_S) * 1000))
    came = [(message.partition(), message.value()) for message in cluster.take(consumer, 3)]
    assert sorted(came) == [(0, b"genuine"), (1, b"behind it"), (1, b"genuine")]
    for _ in range(20):
        message = consumer.poll(0.05)
        assert message is None or not is_record(message), "the application hears of nothing"
    assert consumer.stats()["sign"]["awaited"] > 1, "it is tried again"

    edit_keyring(keyring, lambda keys: with_rotation(keys, "test"))
    refused: list[str] = []
    rest: list[bytes | None] = []

    def poll() -> None:
        try:
            message = consumer.poll(0.2)
        except SignatureError as error:
            refused.append(str(error))
        else:
            rest.extend([message.value()] if message is not None and is_record(message) else [])

    until(lambda: rest, "what is behind the forged ones", meanwhile=poll)
    assert rest == [b"behind it"]
    assert ["does not fit" in text for text in refused] == [True] * FORGED


def test_a_key_encryption_key_is_rotated_with_a_lead(cluster: Cluster, tmp_path: Path) -> None:
    """The readers' copy comes within the lead, so that no record waits for it."""
    topic = cluster.topic("encrypted")
    keys, copy = tmp_path / "keys.json", tmp_path / "copy.json"
    edit_keyring(keys, lambda ring: with_new_key(ring, "cards", "aes-256"), create=True)

    def distribute() -> None:
        beside = tmp_path / "beside.json"
        shutil.copy(keys, beside)
        beside.replace(copy)

    distribute()
    writing, reading = (
        Encrypt(key_service=FileKeys(keyring=str(path)), key_id="cards", data_key_max_uses=4)
        for path in (keys, copy)
    )
    producer, consumer = cluster.producer(writing), cluster.consumer(topic, reading)
    sent: list[bytes] = []
    received: list[bytes | None] = []

    def send() -> None:
        sent.append(b"%d" % len(sent))
        producer.produce(topic, sent[-1])
        producer.poll(0)
        message = consumer.poll(0)
        if message is not None and message.error() is None:
            received.append(message.value())

    def versions() -> set[str]:
        values = [dict(each.headers() or [])["hw.encrypt"] for each in cluster.on_the_wire(topic)]
        layouts = [decode_text(value if isinstance(value, bytes) else None, "hw.encrypt") for value in values]
        return {statement_of(layout, is_null=False)[0].key_version for layout in layouts}

    until(lambda: received, "it is read", meanwhile=send)
    rotate = ["rotate", "--keyring", str(keys), "--id", "cards", "--lead", "3s"]
    assert CliRunner().invoke(main, ["keys", *rotate]).exit_code == 0
    send()
    distribute()
    until(lambda: versions() == {"1", "2"}, "version 2 wraps", meanwhile=send)
    assert producer.flush(DEADLINE_S) == 0
    received += [message.value() for message in cluster.rest_of(consumer, topic)]
    assert received == sent
