"""The clients give batches to native code, also where an application or a source has a list of records."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from headerware import Chain, Record
from headerware.clients import Consumer, Producer
from headerware.clients.aio import AsyncConsumer
from headerware.core.batch import Batch
from headerware.interceptors import Compress, Encrypt, Sign, Trail
from headerware.keyring.services import FileKeys
from headerware.sources.runtime import RunConfig, SourceRunner
from headerware.testing import EmbeddedCluster
from tests.airports import airports
from tests.native.test_equal import Watched
from tests.spool import Lines, Spool

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path


VALUES = airports()[:400]


def chain(keyring: str) -> Chain:
    encrypt = Encrypt(key_service=FileKeys(keyring=keyring), key_id="aes")
    return Chain([Trail(service="s"), Compress(), encrypt, Sign(keyring=keyring, key_id="hmac")])


def conf(cluster: EmbeddedCluster, topic: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": cluster.bootstrap_servers,
        "group.id": topic,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }


def produced(cluster: EmbeddedCluster, topic: str, keyring: str, records: Sequence[Record]) -> Watched:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers}, chain=chain(keyring))
    watched = Watched()
    with watched.watching():
        assert not any(producer.produce_many(topic, records))
    producer.flush()
    producer.close()
    return watched


def consumed(cluster: EmbeddedCluster, topic: str, keyring: str) -> tuple[list[bytes], Watched]:
    consumer = Consumer(conf(cluster, topic), chain=chain(keyring))
    consumer.subscribe([topic])
    watched = Watched()
    found: list[bytes] = []
    with watched.watching():
        while len(found) < len(VALUES):
            found += [message.value() or b"" for message in consumer.consume(100, 10)]
    consumer.close()
    return found, watched


@pytest.fixture
def topic(unique_topic: Callable[[str], str]) -> str:
    return unique_topic("natively")


@pytest.mark.parametrize("kind", [list, Batch.of])
def test_many_records(embedded_cluster: EmbeddedCluster, topic: str, keyring: str, kind: Any) -> None:
    sent = produced(embedded_cluster, topic, keyring, kind([Record(topic, value) for value in VALUES]))
    assert sent.taken == len(VALUES)
    found, read = consumed(embedded_cluster, topic, keyring)
    assert sorted(found) == sorted(VALUES)
    # The first records of a signer and of a data key are Python's.
    assert read.taken > len(VALUES) // 2


def test_asyncio(embedded_cluster: EmbeddedCluster, topic: str, keyring: str) -> None:
    produced(embedded_cluster, topic, keyring, [Record(topic, value) for value in VALUES])
    watched = Watched()
    found: list[bytes] = []

    async def read() -> None:
        async with AsyncConsumer(conf(embedded_cluster, topic), chain=chain(keyring)) as consumer:
            await consumer.subscribe([topic])
            while len(found) < len(VALUES):
                found.extend([message.value() or b"" for message in await consumer.consume(100, 10)])

    with watched.watching():
        asyncio.run(read())
    assert sorted(found) == sorted(VALUES)
    assert watched.taken > len(VALUES) // 2


@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
def test_a_source(keyring: str, tmp_path: Path, delivery: Any) -> None:
    (folder := tmp_path / "in").mkdir()
    (folder / "a").write_bytes(b"".join(value + b"\n" for value in VALUES))
    steps = {
        "interceptors": "trail,sign",
        "interceptors.sign.keyring": keyring,
        "interceptors.sign.key_id": "hmac",
    }
    watched = Watched()
    with EmbeddedCluster(topics={"orders": 1, "headerware-offsets": 1}) as cluster, watched.watching():
        config = RunConfig(
            name="orders",
            source=Spool(folder=str(folder)),
            extractor=Lines(together=100),
            topic="orders",
            kafka={"bootstrap.servers": cluster.bootstrap_servers, **steps},
            delivery=delivery,
            poll_wait_s=0.02,
            listing_pause_s=0.02,
            commit_interval_s=0.05,
        )
        SourceRunner(config, once=True).run()
    assert watched.taken == len(VALUES)
