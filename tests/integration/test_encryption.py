"""Clients whose chain encrypts, against an embedded cluster."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from headerware import (
    AsyncProducer,
    Chain,
    Consumer,
    Context,
    DecryptionError,
    Headers,
    HeldBackError,
    Producer,
)
from headerware.core.errors import KeyServiceUnavailableError
from headerware.dictionaries import FolderDictionaries
from headerware.dictionaries.dictionary import encode_mark
from headerware.dictionaries.store import publish
from headerware.interceptors import Compress, Encrypt, Sign, Slice, new_key_secret
from headerware.keyring import with_deletion, with_new_key
from headerware.keyring.services import FileKeys, KeyService, Wrapped
from headerware.keyring.writing import edit_keyring
from headerware.testing import EmbeddedCluster
from tests.airports import airports, trained
from tests.waiting import until

DEADLINE_S = 30


class Switched:
    """A key service that can be switched off, as if it could not be reached."""

    def __init__(self, service: KeyService) -> None:
        self._service = service
        self.is_down = False

    def wrap(self, key_id: str, data_key: bytes, context: bytes) -> Wrapped:
        self._answer()
        return self._service.wrap(key_id, data_key, context)

    def unwrap(self, key_id: str, wrapped: bytes, context: bytes) -> bytes:
        self._answer()
        return self._service.unwrap(key_id, wrapped, context)

    def close(self) -> None:
        self._service.close()

    def _answer(self) -> None:
        if self.is_down:
            raise KeyServiceUnavailableError("switched off")


@pytest.fixture
def keyring(tmp_path: Path) -> Path:
    path = tmp_path / "keys.json"
    edit_keyring(path, lambda keys: with_new_key(keys, "cards", "aes-256"), create=True)
    edit_keyring(path, lambda keys: with_new_key(keys, "shop", "hmac-sha256"))
    return path


@pytest.fixture
def service(keyring: Path) -> Switched:
    return Switched(FileKeys(keyring=str(keyring)).open(Context()))


def conf(cluster: EmbeddedCluster, group: str | None = None) -> dict[str, Any]:
    own = {"bootstrap.servers": cluster.bootstrap_servers}
    return own if group is None else {**own, "group.id": group, "auto.offset.reset": "earliest"}


def read(
    consumer: Any, topic: str, count: int, meanwhile: Callable[[], None] | None = None
) -> list[confluent_kafka.Message]:
    found: list[confluent_kafka.Message] = []
    consumer.subscribe([topic])
    deadline = time.monotonic() + DEADLINE_S
    while len(found) < count and time.monotonic() < deadline:
        try:
            message = consumer.poll(0.2)
        except HeldBackError:  # the next call begins with the same record
            if meanwhile is None:
                raise
            meanwhile()
            continue
        if message is not None and message.error() is None:
            found.append(message)
    consumer.close()
    return found


@pytest.fixture
def cluster() -> Any:
    with EmbeddedCluster(topics={"cards": 4, "cards.dead-letter": 1}) as cluster:
        yield cluster


def test_the_whole_chain_from_asyncio_to_a_consumer(
    cluster: EmbeddedCluster, keyring: Path, service: Switched
) -> None:
    steps = (
        Compress(),
        Encrypt(key_service=service, key_id="cards"),
        Slice(max_bytes=2_000),
        Sign(keyring=str(keyring), key_id="shop"),
    )
    values = [bytes(str(number), "ascii") * 400 + b"4111" for number in range(20)]

    async def produce() -> None:
        async with AsyncProducer(conf(cluster), chain=Chain(steps)) as producer:
            sent = [await producer.produce("cards", value, key=b"k") for value in values]
            await asyncio.gather(*sent)

    asyncio.run(produce())
    plain = read(confluent_kafka.Consumer(conf(cluster, "plain")), "cards", len(values))
    assert all(b"4111" not in (message.value() or b"") for message in plain)
    assert [
        message.value() for message in read(Consumer(conf(cluster, "g"), chain=Chain(steps)), "cards", 20)
    ] == values


class TestWithADictionary:
    """Compress with a trained dictionary, then encrypt, in one chain."""

    @pytest.fixture
    def chain(self, keyring: Path, service: Switched) -> Callable[..., Chain]:
        store = FolderDictionaries(path=str(keyring.parent / "dictionaries"))
        for size_bytes in (8 << 10, 16 << 10):  # the second takes over
            publish(store.open(), trained(size_bytes), "cards")
        encrypt = Encrypt(key_service=service, key_id="cards")
        sign = Sign(keyring=str(keyring), key_id="shop")

        def chain_of(*, dictionaries: bool = True) -> Chain:
            return Chain([Compress(dictionaries=store if dictionaries else None), encrypt, sign])

        return chain_of

    def test_both_ends_have_both(self, cluster: EmbeddedCluster, chain: Callable[..., Chain]) -> None:
        values = airports()[:50]
        sizes: dict[bytes, int] = {}
        for dictionaries in (True, False):
            with Producer(conf(cluster), chain=chain(dictionaries=dictionaries)) as producer:
                for value in values:
                    producer.produce("cards", value, key=b"%d" % dictionaries, partition=0)
        for message in read(confluent_kafka.Consumer(conf(cluster, "plain")), "cards", 100):
            key, value = message.key() or b"", message.value() or b""
            sizes[key] = sizes.get(key, 0) + len(value)
            if key == b"1":
                mark = Headers(message.headers()).last("hw.compress")
                assert mark == encode_mark(trained().id)
        assert sizes[b"1"] < sizes[b"0"] / 1.5, "encrypted bytes would not shrink, so it compressed before"
        found = read(Consumer(conf(cluster, "g"), chain=chain()), "cards", 100)
        assert [message.value() for message in found] == values * 2
        assert {Headers(message.headers()).names() for message in found} == {()}

    def test_the_dictionary_is_bound_to_the_ciphertext(
        self, cluster: EmbeddedCluster, keyring: Path, chain: Callable[..., Chain]
    ) -> None:
        """Another dictionary of the store would give another plaintext, if any."""
        unsigned = Chain(list(chain())[:2])
        with Producer(conf(cluster), chain=unsigned) as producer:
            producer.produce("cards", airports()[0], partition=0)
        [wire] = read(confluent_kafka.Consumer(conf(cluster, "plain")), "cards", 1)
        headers = Headers(wire.headers()).put("hw.compress", encode_mark(trained(8 << 10).id))
        forger = confluent_kafka.Producer(conf(cluster))
        forger.produce("cards", wire.value(), partition=1, headers=list(headers))
        assert forger.flush(DEADLINE_S) == 0
        consumer = Consumer(conf(cluster, "g"), chain=unsigned)
        consumer.assign([confluent_kafka.TopicPartition("cards", 1, 0)])
        refused: list[DecryptionError] = []

        def is_refused() -> bool:
            try:
                assert consumer.poll(0.1) is None
            except DecryptionError as error:
                refused.append(error)
            return bool(refused)

        until(is_refused, "the record is refused")
        consumer.close()
        assert "its tag does not fit" in str(refused[0])


def test_a_stream_waits_for_its_key_service_and_loses_nothing(
    cluster: EmbeddedCluster, keyring: Path, service: Switched
) -> None:
    writing = Chain([Encrypt(key_service=FileKeys(keyring=str(keyring)), key_id="cards")])
    with Producer(conf(cluster), chain=writing) as producer:
        for number in range(10):
            producer.produce("cards", b"%d" % number, partition=0)
    service.is_down = True
    polled = 0

    def meanwhile() -> None:
        nonlocal polled
        polled += 1
        service.is_down = polled < 5

    step = Encrypt(key_service=service, key_id="cards", key_service_timeout_ms=200)
    found = read(Consumer(conf(cluster, "g"), chain=Chain([step])), "cards", 10, meanwhile)
    assert polled >= 5
    assert [message.value() for message in found] == [b"%d" % number for number in range(10)]


def test_nothing_is_sent_while_there_is_no_key(cluster: EmbeddedCluster, service: Switched) -> None:
    service.is_down = True
    step = Encrypt(key_service=service, key_id="cards", key_service_timeout_ms=200)
    with Producer(conf(cluster), chain=Chain([step])) as producer:
        with pytest.raises(HeldBackError, match="cannot encrypt, so nothing was sent"):
            producer.produce("cards", b"4111", partition=0)
        service.is_down = False
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline:
            try:
                producer.produce("cards", b"second", partition=0)
                break
            except HeldBackError:
                time.sleep(0.05)
    [only] = read(confluent_kafka.Consumer(conf(cluster, "plain")), "cards", 1)
    assert only.offset() == 0
    assert only.value() not in (b"4111", b"second")


def test_encrypted_keys_choose_the_partition(cluster: EmbeddedCluster, service: Switched) -> None:
    secret = new_key_secret(service, "cards")
    step = Encrypt(key_service=service, key_id="cards", key="deterministic", key_secret=secret)
    for _ in range(2):  # two producers, so that no state of one decides
        with Producer(conf(cluster), chain=Chain([step])) as producer:
            for number in range(20):
                producer.produce("cards", b"v", key=b"customer-%d" % number)
            producer.produce("cards", None, key=b"customer-0")
    found = read(Consumer(conf(cluster, "g"), chain=Chain([step])), "cards", 42)
    places: dict[bytes | None, set[int | None]] = {}
    for message in found:
        places.setdefault(message.key(), set()).add(message.partition())
    assert len(places) == 20
    assert all(len(partitions) == 1 for partitions in places.values())
    assert len(set().union(*places.values())) > 1
    wire = read(confluent_kafka.Consumer(conf(cluster, "plain")), "cards", 42)
    assert len({message.key() for message in wire}) == 20
    assert all(b"customer" not in (message.key() or b"") for message in wire)
    assert sum(message.value() is None for message in wire) == 2


def test_shredded_records_become_dead_letters(cluster: EmbeddedCluster, keyring: Path) -> None:
    def chain(**options: Any) -> Chain:
        return Chain([Encrypt(key_service=FileKeys(keyring=str(keyring)), key_id="cards", **options)])

    with Producer(conf(cluster), chain=chain()) as producer:
        producer.produce("cards", b"4111", key=b"k", partition=0)
    edit_keyring(keyring, lambda keys: with_deletion(keys, "cards"))
    consumer = Consumer(conf(cluster, "g"), chain=chain(on_error="dead_letter"))
    consumer.subscribe(["cards"])
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline and not consumer.stats()["encrypt"]["dead_lettered"]:
        consumer.poll(0.1)
    consumer.close()
    [letter] = read(confluent_kafka.Consumer(conf(cluster, "letters")), "cards.dead-letter", 1)
    reason = Headers(letter.headers()).last("__connect.errors.exception.message") or b""
    assert b"can no longer be read" in reason
    assert b"4111" not in (letter.value() or b"")
