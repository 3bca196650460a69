"""The row for dead letters: a consumer of forged records, each of which becomes a dead letter."""

from __future__ import annotations

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
        for topic in ("forged", "forged.dead-letter", "copied"):
            broker.create_topic(topic)
        servers = {"bootstrap.servers": broker.bootstrap_servers, "queue.buffering.max.messages": 1_000_000}
        with headerware.Producer(servers, chain=Chain([theirs])) as forger:
            for _ in range((pairs + 3) * CHUNK):
                forger.produce("forged", VALUE, b"key", headers={"tenant": "north"})
        consumer = headerware.Consumer(_reading(broker, "ours"), chain=Chain([ours]))
        limit = confluent_kafka.Consumer(_reading(broker, "limit"))
        for each in (consumer, limit):
            each.assign([confluent_kafka.TopicPartition("forged", 0, 0)])
        found = compare(
            _refusing(consumer), _copying(limit, confluent_kafka.Producer(servers)), pairs=pairs, warm_up=1
        )
        consumer.close()
        stored = _committed(broker, "ours")
        dead_letters = _end(broker, "forged.dead-letter")
        assert stored <= dead_letters, f"{stored} records are committed, {dead_letters} dead letters stored"
        limit.close()
    note = (
        "sign (HMAC, on_error = 'dead_letter'), consume(500); the reference is the raw consumer and producer "
        f"that copy the records, a flush for each 20,000; {pairs} pairs of {CHUNK:,}"
    )
    name = "dead letters of forged records"
    yield Row(name, found.ours, found.reference, "records/s", found.ratio, "ours at least 20000", note)


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


def _copying(consumer: confluent_kafka.Consumer, producer: confluent_kafka.Producer) -> Chunk:
    def chunk() -> int:
        seen = 0
        while seen < CHUNK:
            for message in consumer.consume(500, 1):
                producer.produce("copied", message.value(), message.key(), headers=message.headers())
                seen += 1
        producer.flush()
        return seen

    return chunk


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
