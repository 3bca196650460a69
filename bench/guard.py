"""Rows for the guard: its records a second against a plain loop that reads, verifies and writes."""

from __future__ import annotations

import statistics
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import confluent_kafka
from natively import WAYS, in_force
from protection import POLICY
from report import Row

from headerware import Chain, Context, Record
from headerware.core.headers import Headers
from headerware.interceptors import Admission, Sign, Slice
from headerware.kafka.messages import record_of
from headerware.keyring import certify, encode_jwks, public_part, read_keyring, with_new_key
from headerware.keyring.writing import edit_keyring, write_public_keyring
from headerware.ops.guard import Guard, Status
from headerware.testing import KafkaBroker

RECORDS = 20_000
BATCH = 500
INGRESS = "bench-ingress"
BARS = {
    ("hmac-sha256", False): "at least 0.8",
    ("hmac-sha256", True): "",  # one hash is quick in Python, too
    ("ed25519", False): "at least 0.8",
    ("ed25519", True): "at least 0.95",
}


def rows(broker: KafkaBroker, *, pairs: int) -> Iterator[Row]:
    """Measure the guard on one partition, with two algorithms."""
    for algorithm in ("hmac-sha256", "ed25519"):
        with tempfile.TemporaryDirectory() as name:
            chain, records = _signed(Path(name), algorithm)
            ingress = f"{INGRESS}-{algorithm}"
            _fill(broker, ingress, records)
            del records  # no guard has so many objects, through which the garbage collector looks
            for way, natively in WAYS.items():
                ours, reference = [], []
                for index in range(pairs):
                    both = [(ours, _guarded), (reference, _plain)]
                    for rates, run in both if index % 2 else reversed(both):
                        egress = f"bench-{uuid.uuid4().hex[:8]}"
                        broker.create_topic(egress)
                        with in_force(natively):
                            rates.append(run(broker.bootstrap_servers, ingress, egress, chain))
                yield Row(
                    f"guard, {algorithm}{way}",
                    statistics.median(ours),
                    statistics.median(reference),
                    "records/s",
                    statistics.median(one / other for one, other in zip(ours, reference, strict=True)),
                    BARS[algorithm, natively],
                    f"one partition, records of 1,000 bytes, transactions of {BATCH}; the reference reads, "
                    "puts each record through the same chain, and writes what came in, in transactions, too",
                )


def _signed(folder: Path, algorithm: str) -> tuple[Chain, Sequence[Record]]:
    """Return the chain that judges, and the records that a producer sent."""
    keyring = folder / "shop.json"
    ring = edit_keyring(keyring, lambda keys: with_new_key(keys, "shop", algorithm), create=True)
    writing: list[object] = [Sign(keyring=str(keyring), key_id="shop", cluster="c")]
    reading: list[object] = [Slice(), Sign(keyring=str(keyring), cluster="c")]
    if algorithm != "hmac-sha256":
        issuer = edit_keyring(
            folder / "issuer.json",
            lambda keys: with_new_key(keys, "issuer", "ed25519", use=("certify",)),
            create=True,
        )
        (folder / "issuer.jwks.json").write_bytes(encode_jwks(issuer, use="certify"))
        (folder / "policy.toml").write_text(POLICY)
        token = certify(
            issuer.keys[0], ring.keys[0], issuer="bench", subject="shop", audience=["bench"], topics=["*"]
        )
        (folder / "shop.jwt").write_text(token)
        public = folder / "public.json"
        write_public_keyring(public, public_part(read_keyring(keyring))[0])
        writing.insert(0, Admission(certificate=str(folder / "shop.jwt")))
        admission = Admission(policy=str(folder / "policy.toml"))
        reading = [Slice(), admission, Sign(keyring=str(public), cluster="c")]
    topic = f"{INGRESS}-{algorithm}"
    with Chain(writing).open(Context(side="producer")) as session:
        value = bytes(range(250)) * 4
        headers = Headers([("tenant", b"north")])
        sent = session.send(Record(topic, value, b"%d" % at, headers) for at in range(RECORDS))
    return Chain(reading), sent


def _fill(broker: KafkaBroker, topic: str, records: Sequence[Record]) -> None:
    broker.create_topic(topic)
    broker.create_topic(f"{topic}.dead-letter")
    with confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 20}) as client:
        for each in records:
            client.produce(topic, each.value, each.key, 0, headers=list(each.headers))
            client.poll(0)


def _rate(seen: list[tuple[float, int]]) -> float:
    """Return records a second between the first transaction and the last."""
    (began, first), (ended, last) = seen[0], seen[-1]
    return (last - first) / (ended - began)


def _guarded(servers: str, ingress: str, egress: str, chain: Chain) -> float:
    work = Guard({"bootstrap.servers": servers}, {ingress: egress}, chain=chain, group_id=egress)
    seen: list[tuple[float, int]] = []

    def tell(status: Status) -> None:
        if not status.transactions:
            return
        seen.append((time.perf_counter(), sum(status.admitted.values())))
        if seen[-1][1] >= RECORDS:
            work.stop()

    work.run(tell)
    assert seen[-1][1] == RECORDS
    return _rate(seen)


def _plain(servers: str, ingress: str, egress: str, chain: Chain) -> float:
    conf = {"bootstrap.servers": servers, "log_level": 0}
    seen: list[tuple[float, int]] = []
    producer = confluent_kafka.Producer({**conf, "transactional.id": egress, "linger.ms": 5})
    reading = {"group.id": egress, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = confluent_kafka.Consumer({**conf, **reading})
    producer.init_transactions()
    consumer.subscribe([ingress])
    done = 0
    with chain.open(Context(side="consumer", cluster_id=lambda: "c")) as session:
        while done < RECORDS:
            messages = consumer.consume(BATCH, 0.1)
            if not messages:
                continue
            producer.begin_transaction()
            for message in messages:
                outcome: Any = session.consume_outcome(record_of(message))
                if isinstance(outcome, Record):
                    producer.produce(
                        egress,
                        message.value(),
                        message.key(),
                        message.partition() or 0,
                        timestamp=message.timestamp()[1],
                        headers=message.headers(),
                    )
            position = confluent_kafka.TopicPartition(ingress, 0, (messages[-1].offset() or 0) + 1)
            producer.send_offsets_to_transaction([position], consumer.consumer_group_metadata())
            producer.commit_transaction()
            done += len(messages)
            seen.append((time.perf_counter(), done))
    consumer.close()
    return _rate(seen)
