"""A whole chain with a key service behind it, while the service's key is rotated and the service fails."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import confluent_kafka
import pytest

from headerware import Chain, Consumer, Headers, HeldBackError, Producer
from headerware.core.header_text import decode_text
from headerware.interceptors import Compress, Encrypt, Sign, Trail
from headerware.interceptors.encrypt.envelope import Statement, statement_of
from headerware.keyring.services import AwsKms, KeyServiceOptions, Vault
from headerware.testing import EmbeddedCluster
from tests.kms_server import REGION, KmsServer, set_credentials
from tests.vault_server import TOKEN, VaultServer
from tests.waiting import DEADLINE_S, until

TOPIC = "cards"
VALUE = b'{"card": "4111 1111 1111 1111", "number": %d}'


class Service(Protocol):
    """A key service that a test starts and stops."""

    def options(self) -> KeyServiceOptions: ...
    def rotate(self) -> None: ...
    def stop(self) -> None: ...
    def start(self) -> None: ...


class InKms:
    """AWS KMS; its key keeps its ARN when it is rotated, and no answer tells a version."""

    def __init__(self) -> None:
        self._server = KmsServer()
        self._arn = self._server.new_key()
        self.start, self.stop = self._server.start, self._server.stop

    def options(self) -> KeyServiceOptions:
        return AwsKms(region=REGION, endpoint=self._server.url, keys={"cards": self._arn}, timeout_ms=20_000)

    def rotate(self) -> None:
        self._server.rotate(self._arn)

    def close(self) -> None:
        self._server.client.close()
        self.stop()


class InVault:
    def __init__(self) -> None:
        self._server = VaultServer()
        self.start = self._server.start
        self.stop = self.close = self._server.stop

    def options(self) -> KeyServiceOptions:
        return Vault(url=self._server.url, token=TOKEN, keys={"cards": "orders"}, timeout_ms=20_000)

    def rotate(self) -> None:
        self._server.rotate("orders")


@pytest.fixture(params=[InKms, InVault])
def service(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    set_credentials(monkeypatch)
    service = request.param()
    yield service
    service.close()


def test_a_stream_outlasts_rotation_and_outage(service: Service, keyring: str) -> None:
    """Each data key encrypts four records here, so the service is asked again and again."""
    chain = Chain(
        [
            Trail(service="shop"),
            Compress(),
            Encrypt(
                key_service=service.options(),
                key_id="cards",
                data_key_max_uses=4,
                key_service_timeout_ms=20_000,
            ),
            Sign(keyring=keyring, key_id="test"),
        ]
    )
    numbers = iter(range(10_000))
    sent: list[bytes] = []
    with EmbeddedCluster(topics={TOPIC: 1}) as cluster:
        conf = {"bootstrap.servers": cluster.bootstrap_servers}
        reading = {**conf, "auto.offset.reset": "earliest"}
        with Producer(conf, chain=chain) as producer:

            def send(count: int) -> None:
                for _ in range(count):
                    value = VALUE % next(numbers)
                    producer.produce(TOPIC, value, key=b"customer-7")
                    sent.append(value)

            send(10)
            service.rotate()
            send(10)
            service.stop()
            with pytest.raises(HeldBackError, match="cannot encrypt, so nothing was sent"):
                send(10)
            producer.flush()
            consumer = Consumer({**reading, "group.id": "readers"}, chain=chain)
            consumer.subscribe([TOPIC])
            with pytest.raises(HeldBackError, match="its data key is not available now"):
                take(consumer, 1)
            service.start()
            retried(lambda: send(5))
            producer.flush()
        assert take(consumer, len(sent), waits=True) == sent
        consumer.close()
        wire = confluent_kafka.Consumer({**reading, "group.id": "plain"})
        wire.subscribe([TOPIC])
        records = messages(wire, len(sent))
        wire.close()
    assert all(b"4111" not in record.value() for record in records)
    statements = [stated(record) for record in records]
    assert len({statement.wrapped for statement in statements}) >= len(sent) // 4
    if isinstance(service, InVault):
        assert [statements[0].key_version, statements[-1].key_version] == ["1", "2"]


def messages(consumer: Any, count: int, *, waits: bool = False) -> list[Any]:
    """Read so many messages; a record that is held back is waited for, or fails the test."""
    found: list[Any] = []
    deadline = time.monotonic() + DEADLINE_S
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} messages came"
        try:
            message = consumer.poll(0.2)
        except HeldBackError:
            if not waits:
                raise
            continue
        if message is not None and message.error() is None:
            found.append(message)
    return found


def take(consumer: Any, count: int, *, waits: bool = False) -> list[bytes]:
    return [message.value() for message in messages(consumer, count, waits=waits)]


def retried(send: Callable[[], None]) -> None:
    """Send as an application does that was told to try again."""

    def again() -> bool:
        try:
            send()
        except HeldBackError:
            return False
        return True

    until(again, "the service is back")


def stated(message: Any) -> Statement:
    layout = decode_text(Headers(message.headers()).last("hw.encrypt"), "hw.encrypt")
    return statement_of(layout, is_null=False)[0]
