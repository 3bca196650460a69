"""Claim checks whose store is S3 as moto has it, through clients, asyncio and a whole chain."""

from __future__ import annotations

import asyncio
import hashlib
import os
import uuid
from contextlib import AbstractContextManager, closing, contextmanager
from typing import TYPE_CHECKING, Any

import boto3
import confluent_kafka
import pytest
from moto.server import ThreadedMotoServer

from headerware import AsyncProducer, Chain, Consumer, Context, HeldBackError, Producer, Record
from headerware.interceptors import ClaimCheck, Compress, Encrypt, Sign, Slice, decode_claim
from headerware.interceptors.claim_check import CLAIM_HEADER, STUB
from headerware.keyring import with_new_key
from headerware.keyring.writing import edit_keyring
from headerware.object_store import ObjectStore, S3Objects
from headerware.testing import EmbeddedCluster, ObjectStoreConformance
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

REGION = "eu-central-1"
BUCKET = "claims"
VALUE = os.urandom(3 << 20)


class Moto:
    """AWS's S3 as moto has it, with one bucket."""

    def __init__(self) -> None:
        self._server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
        self._server.start()
        self.url = f"http://127.0.0.1:{self._server.get_host_and_port()[1]}"
        self.client = boto3.client("s3", region_name=REGION, endpoint_url=self.url)
        self.client.create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": REGION})

    def store(self, **more: Any) -> S3Objects:
        return S3Objects(bucket=BUCKET, region=REGION, endpoint=self.url, **more)

    def keys(self, prefix: str) -> list[str]:
        found = self.client.list_objects_v2(Bucket=BUCKET, Prefix=prefix)
        return [each["Key"] for each in found.get("Contents", ())]

    @contextmanager
    def stopped(self) -> Iterator[None]:
        port = self._server.get_host_and_port()[1]
        self._server.stop()
        yield
        self._server = ThreadedMotoServer("127.0.0.1", port, verbose=False)
        self._server.start()

    def stop(self) -> None:
        self.client.close()
        self._server.stop()


@pytest.fixture(scope="module")
def moto() -> Iterator[Moto]:
    with pytest.MonkeyPatch.context() as environment:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            environment.setenv(name, "tests")
        server = Moto()
        yield server
        server.stop()


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as cluster:
        yield cluster


class TestS3Objects(ObjectStoreConformance):
    @pytest.fixture(autouse=True)
    def _store(self, moto: Moto) -> None:
        self.moto = moto

    def open_store(self) -> ObjectStore:
        return self.moto.store(prefix="conformance").open()

    def outage(self) -> AbstractContextManager[None]:
        return self.moto.stopped()

    def test_keeps_objects_under_its_prefix(self, moto: Moto) -> None:
        with closing(moto.store(prefix="listed/eu").open()) as store:
            for number in range(3):
                store.put(f"orders/{number}", VALUE, hashlib.sha256(VALUE).digest(), 30)
            store.delete("orders/1")
        assert moto.keys("listed/") == ["listed/eu/orders/0", "listed/eu/orders/2"]

    def test_lists_more_than_a_page(self, moto: Moto, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("MOTO_S3_DEFAULT_MAX_KEYS", "2")
        for number in range(5):
            moto.client.put_object(Bucket=BUCKET, Key=f"many/{number}", Body=b"")
        assert moto.client.list_objects_v2(Bucket=BUCKET, Prefix="many/")["IsTruncated"]
        with closing(moto.store().open()) as store:
            assert len(list(store.objects("many"))) == 5


class TestClients:
    def test_carry_a_value_through_the_store(self, moto: Moto, cluster: EmbeddedCluster) -> None:
        chain = Chain([ClaimCheck(stores={"archive": moto.store(prefix="clients")})])
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers}, chain=chain)
        reports: list[Any] = []
        producer.produce(
            "scans", VALUE, b"k", headers={"a": b"1"}, on_delivery=lambda *told: reports.append(told)
        )
        producer.flush(30)
        ((error, told),) = reports
        assert error is None
        assert told.value() == VALUE
        (key,) = moto.keys("clients/scans/")
        assert moto.client.get_object(Bucket=BUCKET, Key=key)["Body"].read() == VALUE
        settings = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": uuid.uuid4().hex}
        with closing(Consumer({**settings, "auto.offset.reset": "earliest"}, chain=chain)) as consumer:
            consumer.subscribe(["scans"])
            found: list[Any] = []
            until(lambda: found, meanwhile=lambda: found.extend(consumer.consume(1, 0.2)))
        assert (found[0].value(), found[0].key(), found[0].headers()) == (VALUE, b"k", [("a", b"1")])

    def test_of_others_see_the_stub_and_a_header_of_text(self, moto: Moto, cluster: EmbeddedCluster) -> None:
        chain = Chain([ClaimCheck(stores={"archive": moto.store(prefix="others")})])
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers}, chain=chain)
        producer.produce("scans-for-others", VALUE, headers={"a": b"1"})
        producer.flush(30)
        settings = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": uuid.uuid4().hex}
        found: list[Any] = []
        with closing(confluent_kafka.Consumer({**settings, "auto.offset.reset": "earliest"})) as consumer:
            consumer.subscribe(["scans-for-others"])
            until(lambda: found, meanwhile=lambda: found.extend(consumer.consume(1, 0.2)))
        own, claim = found[0].headers()
        assert (found[0].value(), own, claim[0]) == (STUB, ("a", b"1"), CLAIM_HEADER)
        assert claim[1].isascii()

    def test_of_asyncio_do_not_stop_the_loop(self, moto: Moto, cluster: EmbeddedCluster) -> None:
        async def send() -> None:
            chain = Chain([ClaimCheck(stores={"archive": moto.store(prefix="asyncio")})])
            producer = AsyncProducer({"bootstrap.servers": cluster.bootstrap_servers}, chain=chain)
            turns = 0

            async def count() -> None:
                nonlocal turns
                while True:
                    turns += 1
                    await asyncio.sleep(0.001)

            counting = asyncio.create_task(count())
            message = await (await producer.produce("scans-of-tasks", VALUE))
            counting.cancel()
            assert message.value() == VALUE
            assert turns > 3
            await producer.close()

        asyncio.run(send())
        assert len(moto.keys("asyncio/scans-of-tasks/")) == 1


class TestWholeChain:
    def test_stores_what_is_encrypted_and_signs_the_claim(self, moto: Moto, tmp_path: Path) -> None:
        keyring = tmp_path / "keys.json"
        edit_keyring(keyring, lambda held: with_new_key(held, "kek", "aes-256"), create=True)
        edit_keyring(keyring, lambda held: with_new_key(held, "signing", "ed25519"))
        chain = Chain(
            [
                Compress(),
                Encrypt(key_service={"type": "file", "keyring": str(keyring)}, key_id="kek", cluster="c"),
                ClaimCheck(stores={"archive": moto.store(prefix="whole")}, min_bytes=1 << 20),
                Slice(max_bytes=10_000),
                Sign(keyring=str(keyring), key_id="signing", cluster="c"),
            ]
        )
        with closing(chain.open(Context())) as session:
            (sent,) = session.send([Record("orders", VALUE)])
            claim = decode_claim(sent.headers.last(CLAIM_HEADER))
            stored = moto.client.get_object(Bucket=BUCKET, Key=f"whole/{claim.name}")["Body"].read()
            assert VALUE[:100] not in stored
            assert len(stored) == claim.length
            assert [record.value for record in session.consume([sent])] == [VALUE]

    def test_waits_for_the_bucket(self, moto: Moto) -> None:
        chain = Chain([ClaimCheck(stores={"archive": moto.store(prefix="wait")}, min_bytes=10)])
        other = S3Objects(bucket="not-made-yet", region=REGION, endpoint=moto.url)
        with (
            closing(Chain([ClaimCheck(stores={"archive": other}, min_bytes=10)]).open()) as session,
            pytest.raises(HeldBackError, match="NoSuchBucket"),
        ):
            session.send([Record("orders", VALUE)])
        with closing(chain.open()) as session:
            assert len(session.send([Record("orders", VALUE)])) == 1
