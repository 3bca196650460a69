"""Secret headers between clients: what brokers, other applications and workers see of them."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, Final

import confluent_kafka
import pytest

from headerware import Chain, Consumer, Context, DecryptionError, Headers, Producer, Record
from headerware.interceptors import (
    ClaimCheck,
    Compress,
    Contract,
    ContractError,
    Encrypt,
    Expire,
    HeaderIds,
    Sign,
    Slice,
    Trail,
    new_key_secret,
)
from headerware.keyring import with_new_key
from headerware.keyring.services import FileKeys
from headerware.keyring.writing import edit_keyring
from headerware.object_store.folder import FolderObjects
from headerware.ops.redrive import Redrive, Selection
from headerware.testing import EmbeddedCluster
from tests.ingress import POLICY, Gate, Ingress, verdicts
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.integration.conftest import Cluster

DEADLINE_S: Final = 60.0
HEADERS: Final = [
    ("tenant", b"blue"),
    ("customer-id", b"c-4711"),
    ("diagnosis", None),
    ("customer-id", b""),
    ("region", b"north"),
]
WORDS: Final = (b"customer", b"4711", b"diagnosis")
Make = "Callable[..., Encrypt]"


@pytest.fixture
def keyring(tmp_path: Path) -> Path:
    path = tmp_path / "keys.json"
    edit_keyring(path, lambda keys: with_new_key(keys, "cards", "aes-256"), create=True)
    edit_keyring(path, lambda keys: with_new_key(keys, "shop", "ed25519"))
    return path


@pytest.fixture
def encrypt(keyring: Path) -> Callable[..., Encrypt]:
    """Make an interceptor that hides headers, unless told otherwise."""

    def make(**options: Any) -> Encrypt:
        given = {"headers": ("customer-id", "diagnosis"), **options}
        return Encrypt(key_service=FileKeys(keyring=str(keyring)), key_id="cards", **given)

    return make


@pytest.fixture
def embedded() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(topics={"orders": 1, "next": 1, "orders.dead-letter": 1}) as cluster:
        yield cluster


def conf(cluster: Any, **more: Any) -> dict[str, Any]:
    own = {"bootstrap.servers": getattr(cluster, "bootstrap_servers", cluster), "log_level": 0}
    return {**own, **more}


def consumer_of(cluster: Any, topic: str, chain: Chain, **more: Any) -> Consumer:
    consumer = Consumer(conf(cluster, **{"group.id": topic, **more}), chain=chain)
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    return consumer


def taken(consumer: Any, count: int = 1) -> list[Any]:
    """Return so many messages, or the errors of refused ones."""
    found: list[Any] = []
    deadline = time.monotonic() + DEADLINE_S
    while len(found) < count:
        assert time.monotonic() < deadline, f"only {len(found)} of {count} came"
        try:
            message = consumer.poll(0.1)
        except DecryptionError as error:
            found.append(error)
            continue
        if message is not None:
            assert message.error() is None
            found.append(message)
    return found


def on_the_wire(cluster: Any, topic: str, count: int = 1) -> list[Any]:
    consumer = confluent_kafka.Consumer(conf(cluster, **{"group.id": "plain"}))
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    try:
        return taken(consumer, count)
    finally:
        consumer.close()


def _letters(consumer: Consumer) -> int:
    return consumer.stats()["encrypt"]["dead_lettered"]


def all_bytes(message: Any) -> bytes:
    """Return a message's parts, with layouts in base64 decoded as far as that is possible."""
    parts = [message.key(), message.value()]
    for name, value in message.headers():
        parts += [name.encode(), value]
    return b" ".join(part or b"" for part in parts)


class TestClients:
    def test_an_application_gets_what_was_sent_and_nobody_else(
        self, embedded: EmbeddedCluster, encrypt: Callable[..., Encrypt]
    ) -> None:
        reports: list[Any] = []
        with Producer(conf(embedded), chain=Chain([encrypt()])) as producer:
            for value in (b"v", None):
                producer.produce(
                    "orders",
                    value,
                    b"k",
                    headers=HEADERS,
                    callback=lambda _, message: reports.append(message),
                )
        assert [report.headers() for report in reports] == [HEADERS, HEADERS]
        for wire in on_the_wire(embedded, "orders", 2):
            names = [name for name, _ in wire.headers()]
            assert names == ["tenant", "region", "hw.secret", "hw.encrypt"]
            assert not any(word in all_bytes(wire) for word in WORDS)
            assert all((value or b"").decode("ascii") is not None for _, value in wire.headers())
        with consumer_of(embedded, "orders", Chain([encrypt(headers=())])) as consumer:
            messages = taken(consumer, 2)
        assert [message.headers() for message in messages] == [HEADERS, HEADERS]
        assert all(isinstance(message, confluent_kafka.Message) for message in messages)

    def test_in_batches(self, embedded: EmbeddedCluster, encrypt: Callable[..., Encrypt]) -> None:
        with Producer(conf(embedded), chain=Chain([encrypt()])) as producer:
            records = [Record("orders", b"%d" % at, b"k", Headers(HEADERS)) for at in range(40)]
            assert producer.produce_many("orders", records) == [None] * 40
        with consumer_of(embedded, "orders", Chain([encrypt()])) as consumer:
            found: list[Any] = []
            while len(found) < 40:
                found += consumer.consume(40, 5)
        assert [(m.value(), m.headers()) for m in found] == [(b"%d" % at, HEADERS) for at in range(40)]

    def test_a_service_carries_on_the_clear_names(
        self, embedded: EmbeddedCluster, encrypt: Callable[..., Encrypt]
    ) -> None:
        chain = Chain([Trail(service="middle"), encrypt()], carry=["customer-id", "tenant"])
        with Producer(conf(embedded), chain=chain) as producer:
            producer.produce("orders", b"v", b"k", headers=HEADERS)
        with (
            consumer_of(embedded, "orders", chain) as consumer,
            Producer(conf(embedded), chain=chain) as producer,
        ):
            [message] = taken(consumer)
            with consumer.processing(message):
                producer.produce("next", b"w")
        [wire] = on_the_wire(embedded, "next")
        assert not any(word in all_bytes(wire) for word in WORDS)
        with consumer_of(embedded, "next", Chain([encrypt()])) as consumer:
            [message] = taken(consumer)
        carried = [pair for pair in message.headers() if pair[0] != "hw.trail"]
        assert carried == [HEADERS[0], HEADERS[1], HEADERS[3]]

    def test_a_refused_record_is_a_dead_letter_as_it_was(
        self, embedded: EmbeddedCluster, encrypt: Callable[..., Encrypt]
    ) -> None:
        with Producer(conf(embedded), chain=Chain([encrypt()])) as producer:
            producer.produce("orders", b"v", b"k", headers=HEADERS)
        [wire] = on_the_wire(embedded, "orders")
        forger = confluent_kafka.Producer(conf(embedded))
        headers = [*wire.headers(), ("customer-id", b"c-0")]
        forger.produce("orders", wire.value(), wire.key(), headers=headers)
        assert forger.flush(DEADLINE_S) == 0
        chain = Chain([encrypt(on_error="dead_letter")])
        with consumer_of(embedded, "orders", chain) as consumer:
            [good] = taken(consumer)
            until(lambda: consumer.poll(0.1) is None and _letters(consumer) == 1, "it is a dead letter")
        assert good.headers() == HEADERS
        [letter] = on_the_wire(embedded, "orders.dead-letter")
        assert letter.headers()[: len(headers)] == headers
        reason = letter.headers()[len(headers) :]
        assert b"so it was added" in dict(reason)["__connect.errors.exception.message"]
        assert not any(word in name.encode() + value for name, value in reason for word in WORDS)

    def test_a_mirror_that_copies_bytes(
        self, embedded: EmbeddedCluster, encrypt: Callable[..., Encrypt]
    ) -> None:
        with Producer(conf(embedded), chain=Chain([encrypt()])) as producer:
            producer.produce("orders", b"v", b"k", headers=HEADERS)
        [wire] = on_the_wire(embedded, "orders")
        mirror = confluent_kafka.Producer(conf(embedded))
        # in another order, as a transform of a connector that removes and inserts headers leaves them
        moved = [
            *[pair for pair in wire.headers() if pair[0] != "tenant"],
            ("tenant", b"blue"),
            ("from", b"a"),
        ]
        for headers in (wire.headers(), moved):
            mirror.produce("next", wire.value(), wire.key(), headers=headers)
        assert mirror.flush(DEADLINE_S) == 0
        reader = encrypt(accept_origins=("*/orders",))
        with consumer_of(embedded, "next", Chain([reader])) as consumer:
            same, other = taken(consumer, 2)
        assert same.headers() == HEADERS
        assert [name for name, _ in other.headers()] == [
            *("region", "customer-id", "diagnosis", "customer-id", "tenant", "from"),
        ]


class TestSteps:
    def test_of_a_whole_chain(self, encrypt: Callable[..., Encrypt], keyring: Path, tmp_path: Path) -> None:
        secret = new_key_secret(FileKeys(keyring=str(keyring)).open(Context()), "cards")
        (tmp_path / "objects").mkdir()
        stores = {"archive": FolderObjects(path=str(tmp_path / "objects"))}
        chain = Chain(
            [
                Trail(service="shop"),
                Compress(),
                encrypt(deterministic_headers=("region",), key_secret=secret),
                ClaimCheck(stores=stores, min_bytes=10_000),
                Expire(after_ms=60_000),
                Slice(max_bytes=4_000),
                Sign(keyring=str(keyring), key_id="shop", require="enforce"),
                HeaderIds(),
            ]
        )
        opened = [chain.open(Context(side=side)) for side in ("producer", "consumer")]
        noise = bytes(range(256)) * 3
        for value in (b"v", None, noise, b"".join(b"%d" % (at * at) for at in range(9_000))):
            wires = opened[0].send([Record("orders", value, b"k", Headers(HEADERS))])
            for wire in wires:
                assert not any(word in name.encode() for name, _ in wire.headers for word in WORDS)
            read = opened[1].consume([wire.replace(partition=0, offset=at) for at, wire in enumerate(wires)])
            [record] = read
            assert record.value == value
            assert [pair for pair in record.headers if not pair[0].startswith("hw.")] == HEADERS

    def test_a_contract_sees_the_clear_names(self, encrypt: Callable[..., Encrypt], tmp_path: Path) -> None:
        message = {
            "contentType": "application/json",
            "headers": {"type": "object", "required": ["customer-id"]},
            "payload": {"type": "object"},
        }
        channels = {"orders": {"address": "orders", "messages": {"Order": message}}}
        document = tmp_path / "contract.json"
        document.write_text(json.dumps({"asyncapi": "3.0.0", "channels": channels}))
        chain = Chain([Contract(file=str(document)), encrypt()])
        with chain.open() as session:
            good = Record("orders", b"{}", b"k", Headers([("customer-id", b"c-1")]))
            [wire] = session.send([good])
            [read] = session.consume([wire])
            assert read.headers == good.headers
            with pytest.raises(ContractError):
                session.send([good.replace(headers=Headers())])
        with Chain([encrypt(headers=())]).open() as writer, chain.open() as session:
            [wire] = writer.send([good.replace(headers=Headers())])
            with pytest.raises(ContractError):
                session.consume([wire])

    def test_a_guard_passes_the_block_on(self, encrypt: Callable[..., Encrypt], tmp_path: Path) -> None:
        ingress = Ingress(tmp_path)
        sending = Chain([encrypt(cluster="c"), *ingress.producer_chain("shop")])
        context = Context(side="producer", now_ms=lambda: ingress.now_ms, cluster_id=lambda: "c")
        record = Record("ingress.orders", b"v", b"k", Headers(HEADERS))
        with sending.open(context) as session:
            wires = session.send([record, record])
        gate = Gate(ingress, Chain([encrypt(cluster="c"), *ingress.guard_chain()]))
        [decision] = gate.take(wires[:1])
        [sent] = decision.records
        assert (sent.value, sent.headers) == (wires[0].value, wires[0].headers)
        stripped = wires[1].with_headers(wires[1].headers.remove("hw.secret"))
        assert verdicts(gate.take([stripped])) == ["refused sign: SignatureError"]
        gate.close()

    def test_a_rule_about_a_secret_header_does_not_see_it(
        self, encrypt: Callable[..., Encrypt], tmp_path: Path
    ) -> None:
        """A policy judges a record as it is on the wire; it can deny blocks as such."""
        ingress = Ingress(tmp_path)
        sending = Chain([encrypt(headers=("class",), cluster="c"), *ingress.producer_chain("shop")])
        context = Context(side="producer", now_ms=lambda: ingress.now_ms, cluster_id=lambda: "c")
        with sending.open(context) as session:
            wires = session.send([Record("ingress.orders", b"v", b"k", Headers([("class", b"secret")]))])
        chain = Chain([encrypt(headers=("class",), cluster="c"), *ingress.guard_chain()])
        for policy, verdict in (
            (POLICY, "admitted"),
            (f'{POLICY}[[rules]]\neffect = "deny"\nheaders = {{ "hw.secret" = "*" }}\n', "refused admission"),
        ):
            ingress.policy(policy)
            gate = Gate(ingress, chain)
            [found] = verdicts(gate.take(wires))
            assert found.startswith(verdict)
            gate.close()


@pytest.mark.broker
def test_a_dead_letter_that_is_sent_back_is_read(cluster: Cluster, encrypt: Callable[..., Encrypt]) -> None:
    topic = cluster.topic("orders")
    letters = f"{topic}.dead-letter"
    cluster.broker.create_topic(letters)
    producer = cluster.producer(encrypt(headers=("customer-id",)))
    producer.produce(topic, b"v", b"k", headers=HEADERS)
    assert producer.flush(DEADLINE_S) == 0
    strict = Chain([encrypt(headers=("tenant",), on_error="dead_letter")])
    with consumer_of(cluster.servers, topic, strict) as consumer:
        until(lambda: consumer.poll(0.1) is None and _letters(consumer) == 1, "it is a dead letter")
    with Redrive({"bootstrap.servers": cluster.servers}, letters, Selection()) as redrive:
        assert redrive.execute().sent == {topic: 1}
    cluster.wait_until_stable(topic)
    with consumer_of(cluster.servers, topic, Chain([encrypt(headers=("customer-id",))])) as consumer:
        first, again = taken(consumer, 2)
    assert again.headers() == [*HEADERS, ("headerware.redriven", b"1")]
    assert first.headers() == HEADERS
