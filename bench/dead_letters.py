"""The row for dead letters: a consumer of forged records, each of which becomes a dead letter."""

from __future__ import annotations

import hmac
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
from pairing import Chunk, compare
from report import Row

import headerware
from headerware import Chain
from headerware.interceptors import Sign
from headerware.keyring import with_new_key
from headerware.keyring.writing import edit_keyring
from headerware.testing import KafkaBroker

CHUNK = 20_000
VALUE = b'{"order": 1, "customer": "somebody", "total": "12.50", "currency": "EUR"}'


def rows(broker: KafkaBroker, *, pairs: int) -> Iterator[Row]:
    """Measure how many dead letters a consumer stores in a second."""
    with tempfile.TemporaryDirectory() as folder:
        theirs, ours = (_sign(Path(folder) / name) for name in ("theirs.json", "ours.json"))
        for topic in ("forged", "forged.dead-letter", "by-hand"):
            broker.create_topic(topic)
        servers = {"bootstrap.servers": broker.bootstrap_servers, "queue.buffering.max.messages": 1_000_000}
        with headerware.Producer(servers, chain=Chain([theirs])) as forger:
            for _ in range((pairs + 3) * CHUNK):
                forger.produce("forged", VALUE, b"key", headers={"tenant": "north"})
        consumer = headerware.Consumer(_reading(broker, "ours"), chain=Chain([ours]))
        hand = confluent_kafka.Consumer({**_reading(broker, "by-hand"), "enable.auto.offset.store": False})
        for each in (consumer, hand):
            each.assign([confluent_kafka.TopicPartition("forged", 0, 0)])
        cpu: tuple[list[float], list[float]] = [], []
        found = compare(
            _timed(_refusing(consumer), cpu[0]),
            _timed(_by_hand(hand, confluent_kafka.Producer(servers)), cpu[1]),
            pairs=pairs,
            warm_up=1,
        )
        consumer.close()
        stored = _committed(broker, "ours")
        dead_letters = _end(broker, "forged.dead-letter")
        assert stored <= dead_letters, f"{stored} records are committed, {dead_letters} dead letters stored"
        hand.close()
    note = (
        "sign (HMAC, on_error = 'dead_letter'), consume(500); by hand is the raw consumer, one HMAC, the raw "
        f"producer and a flush after each; {pairs} pairs of {CHUNK:,}; CPU with librdkafka's threads"
    )
    yield Row(
        "dead letters of forged records",
        found.ours,
        found.reference,
        "records/s",
        found.ratio,
        "ours at least 20000",
        note,
        (statistics.median(cpu[0][1:]), statistics.median(cpu[1][1:])),
    )


def _sign(path: Path) -> Sign:
    edit_keyring(str(path), lambda empty: with_new_key(empty, "bench", "hmac-sha256"), create=True)
    return Sign(keyring=str(path), key_id="bench", require="enforce", on_error="dead_letter")


def _reading(broker: KafkaBroker, group: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": broker.bootstrap_servers,
        "group.id": f"dead-letters-{group}",
        "auto.offset.reset": "earliest",
        "queued.min.messages": 1_000_000,
    }


def _refusing(consumer: headerware.Consumer) -> Chunk:
    """Read until a chunk more of dead letters is stored."""
    stored: Callable[[], int] = lambda: consumer.stats()["sign"]["dead_lettered"]  # noqa: E731 - of this consumer

    def chunk() -> int:
        before, deadline = stored(), time.monotonic() + 60
        while (count := stored() - before) < CHUNK:
            assert not consumer.consume(500, 0.05), "a forged record was given"
            assert time.monotonic() < deadline, f"only {count} dead letters"
        return count

    return chunk


def _by_hand(consumer: confluent_kafka.Consumer, producer: confluent_kafka.Producer) -> Chunk:
    """Verify each record, send its dead letter, and store offsets once a batch of dead letters is stored."""
    secret = bytes(32)

    def chunk() -> int:
        seen = 0
        while seen < CHUNK:
            messages = consumer.consume(500, 1)
            for message in messages:
                value, key, headers = message.value(), message.key(), message.headers()
                proof = hmac.digest(secret, key + value, "sha256")
                assert not hmac.compare_digest(proof, headers[-1][1][-len(proof) :]), "a forged record fits"
                reason = [
                    ("__connect.errors.topic", message.topic().encode()),
                    ("__connect.errors.partition", str(message.partition()).encode()),
                    ("__connect.errors.offset", str(message.offset()).encode()),
                    ("__connect.errors.exception.message", b"the signature does not fit"),
                ]
                producer.produce("by-hand", value, key, headers=headers + reason)
            producer.flush()
            if messages:
                consumer.store_offsets(messages[-1])
            seen += len(messages)
        return seen

    return chunk


def _timed(chunk: Chunk, cpu_us: list[float]) -> Chunk:
    """Note the CPU microseconds a record of each chunk."""

    def timed() -> int:
        began = time.process_time()
        count = chunk()
        cpu_us.append((time.process_time() - began) / count * 1e6)
        return count

    return timed


def _committed(broker: KafkaBroker, group: str) -> int:
    reader = confluent_kafka.Consumer(_reading(broker, group))
    found = reader.committed([confluent_kafka.TopicPartition("forged", 0)], 30)[0].offset
    reader.close()
    return found


def _end(broker: KafkaBroker, topic: str) -> int:
    reader = confluent_kafka.Consumer(_reading(broker, "end"))
    end = reader.get_watermark_offsets(confluent_kafka.TopicPartition(topic, 0), 30)[1]
    reader.close()
    return end
