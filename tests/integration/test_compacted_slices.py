"""Messages in slices on compacted topics: what compaction keeps, and what is left of replaced messages."""

from __future__ import annotations

import json
import random
import time
from typing import TYPE_CHECKING, Any, Final

import pytest
from click.testing import CliRunner

from headerware import Chain, Headers, HeaderwareError
from headerware.cli.main import main
from headerware.interceptors import Sign, Slice
from headerware.interceptors.slice.header import SliceHeader
from headerware.ops.slices import orphaned_slices
from tests.integration.conftest import DEADLINE_S

if TYPE_CHECKING:
    from tests.integration.conftest import Cluster

pytestmark = pytest.mark.broker

SMALL: Final = {"max.message.bytes": "1500"}
PARTITIONS: Final = 3
COMPACTED: Final = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "segment.ms": "1",
    "delete.retention.ms": "0",
}
SLICE: Final = Slice(max_bytes=2_000, compacted_topics=("customers-*",))


def large(number: int, size_bytes: int = 10_000) -> bytes:
    return random.Random(number).randbytes(size_bytes)


def write(cluster: Cluster, topic: str, *records: tuple[bytes, bytes | None], steps: Any = ()) -> None:
    producer = cluster.producer(SLICE, *steps)
    for key, value in records:
        producer.produce(topic, value, key, headers={"own": "1"})
        assert producer.flush(DEADLINE_S) == 0


def keys(cluster: Cluster, topic: str) -> list[tuple[bytes | None, bool]]:
    """Return the key of each record of a topic, and whether it is a tombstone."""
    return [(each.key(), each.value() is None) for each in cluster.on_the_wire(topic)]


def wait_for_compaction(cluster: Cluster, topic: str, gone: set[bytes]) -> None:
    """Wait until compaction has left one record of each key, and none of some; a last record moves it on."""
    deadline = time.monotonic() + DEADLINE_S
    producer = cluster.plain_producer()
    while time.monotonic() < deadline:
        # Compaction never touches the segment that is being written.
        for partition in range(PARTITIONS):
            producer.produce(topic, b"t", b"tick", partition)
        assert producer.flush(DEADLINE_S) == 0
        found = [key for key, _ in keys(cluster, topic) if key != b"tick"]
        if len(found) == len(set(found)) and not gone & set(found):
            return
        time.sleep(0.2)
    pytest.fail(f"{topic} was not compacted")


def slice_keys(cluster: Cluster, topic: str) -> list[bytes]:
    """Return the keys of slices that have one of their own, in order."""
    found = [key for key, gone in keys(cluster, topic) if key is not None and not gone]
    return [key for key in found if key.startswith(b"hw.slice:")]


class TestCompaction:
    def test_keeps_the_last_message_of_a_key_whole(self, second_cluster: Cluster, keyring: str) -> None:
        cluster, topic = (
            second_cluster,
            second_cluster.topic("customers", partitions=PARTITIONS, config=COMPACTED),
        )
        sign = Sign(keyring=keyring, key_id="test")
        write(
            cluster,
            topic,
            (b"replaced", large(1)),
            (b"kept", large(2)),
            (b"became small", large(3)),
            (b"deleted", large(4)),
            (b"replaced", large(5, 6_000)),
            (b"became small", b"small"),
            (b"deleted", None),
            steps=[sign],
        )
        replaced = slice_keys(cluster, topic)
        assert len(replaced) > 20
        wait_for_compaction(cluster, topic, gone={b"deleted"})
        assert len(slice_keys(cluster, topic)) == len(replaced), "compaction takes none of them away"

        reader = cluster.consumer(topic, SLICE, Sign(keyring=keyring, require="off"))
        whole = [
            (message.key(), message.value(), Headers(message.headers()))
            for message in cluster.rest_of(reader, topic)
            if message.key() != b"tick"
        ]
        own = Headers([("own", b"1")])
        assert sorted(whole) == [
            (b"became small", b"small", own),
            (b"kept", large(2), own),
            (b"replaced", large(5, 6_000), own),
        ]
        stats = reader.stats()["slice"]
        assert stats["failed"] == 0

        # What nobody needs any more is found, and deleted by its own keys only.
        chain = Chain([SLICE, sign])
        settings = {"bootstrap.servers": cluster.servers}
        found = orphaned_slices(settings, topic, chain=chain, grace_s=0)
        assert (found.messages, found.orphans, found.deleted) == (2, 3, 0)
        alive = len(replaced) - found.slices
        words = f"slices orphans {topic} --delete --grace 0 --json --bootstrap-servers {cluster.servers}"
        result = CliRunner().invoke(main, words.split())
        assert result.exit_code == 0, result.output
        assert json.loads(result.output)["result"]["deleted"] == found.slices
        assert orphaned_slices(settings, topic, grace_s=0).slices == 0
        again = cluster.consumer(topic, SLICE, Sign(keyring=keyring, require="off"), group_id=f"{topic}-2")
        given = [(message.key(), message.value()) for message in cluster.rest_of(again, topic)]
        assert sorted(each for each in given if each[0] != b"tick") == [each[:2] for each in sorted(whole)]
        wait_for_compaction(cluster, topic, gone={key for key, gone in keys(cluster, topic) if gone and key})
        assert len(slice_keys(cluster, topic)) == alive


class TestOneWriterBeforeTheOther:
    def test_the_first_slice_is_sent_once_the_others_are_stored(self, second_cluster: Cluster) -> None:
        cluster, topic = (
            second_cluster,
            second_cluster.topic("customers", config=SMALL),
        )
        producer = cluster.producer(SLICE)
        errors: list[Any] = []
        with pytest.raises(Exception, match="TOO_LARGE"):
            producer.produce(topic, large(1), b"k", on_delivery=lambda error, _: errors.append(error))
        producer.flush(DEADLINE_S)
        assert keys(cluster, topic) == [], "nothing took the place of an earlier record"

    def test_an_unfinished_message_is_an_orphan(self, second_cluster: Cluster) -> None:
        cluster, topic = second_cluster, second_cluster.topic("customers", config=COMPACTED)
        write(cluster, topic, (b"k", large(1)))
        wire = cluster.plain_producer()
        header = SliceHeader(bytes(16), 1, 3, 3_000, 1_000)
        wire.produce(topic, bytes(1_000), header.own_key, 0, headers=[("hw.slice", header.encode())])
        wire.produce(topic, b"an application's", b"hw.slice:its own key", 0)
        assert wire.flush(DEADLINE_S) == 0
        found = orphaned_slices({"bootstrap.servers": cluster.servers}, topic, delete=True, grace_s=0)
        assert (found.messages, found.orphans, found.slices, found.deleted) == (1, 1, 1, 1)
        assert {key for key, gone in keys(cluster, topic) if gone} == {header.own_key}

    def test_slices_of_producers_that_do_not_know_the_topic_are_told(self, second_cluster: Cluster) -> None:
        cluster, topic = second_cluster, second_cluster.topic("customers", config=COMPACTED)
        write(cluster, topic, (b"k", large(1)))
        assert orphaned_slices({"bootstrap.servers": cluster.servers}, topic, grace_s=0).exposed == 0
        unaware = cluster.producer(Slice(max_bytes=2_000))
        unaware.produce(topic, large(2), b"l", 0)
        assert unaware.flush(DEADLINE_S) == 0
        words = f"slices orphans {topic} --grace 0 --bootstrap-servers {cluster.servers}"
        result = CliRunner().invoke(main, words.split())
        assert " with the key of the message, so compaction breaks such messages" in result.stdout

    def test_a_message_that_is_under_way_is_no_orphan(self, second_cluster: Cluster) -> None:
        cluster, topic = second_cluster, second_cluster.topic("customers", config=COMPACTED)
        wire = cluster.plain_producer()

        def send(index: int, key: bytes | None = None) -> None:
            header = SliceHeader(bytes(16), index, 2, 2_000, 1_000)
            slice_header: Any = [("hw.slice", header.encode())]
            wire.produce(topic, bytes(1_000), key or header.own_key, 0, headers=slice_header)
            assert wire.flush(DEADLINE_S) == 0

        send(1)
        found = orphaned_slices(
            {"bootstrap.servers": cluster.servers},
            topic,
            delete=True,
            grace_s=0,
            on_progress=lambda _: send(0, b"k"),  # once the first look is over, and before the second
        )
        assert (found.orphans, found.deleted) == (0, 0)

    def test_a_first_slice_behind_an_open_transaction_is_not_missing(self, second_cluster: Cluster) -> None:
        cluster, topic = second_cluster, second_cluster.topic("customers", config=COMPACTED)
        wire = cluster.plain_producer()
        headers = [SliceHeader(bytes(16), index, 2, 2_000, 1_000) for index in range(2)]
        hanging = cluster.plain_producer(**{"transactional.id": topic})
        hanging.init_transactions(DEADLINE_S)
        wire.produce(topic, bytes(1_000), headers[1].own_key, 0, headers=[("hw.slice", headers[1].encode())])
        assert wire.flush(DEADLINE_S) == 0
        hanging.begin_transaction()
        hanging.produce(topic, b"open", b"another", 0)
        assert hanging.flush(DEADLINE_S) == 0
        wire.produce(topic, bytes(1_000), b"k", 0, headers=[("hw.slice", headers[0].encode())])
        assert wire.flush(DEADLINE_S) == 0
        settings = {"bootstrap.servers": cluster.servers}
        with pytest.raises(HeaderwareError, match="a transaction that is open"):
            orphaned_slices(settings, topic, delete=True, grace_s=0, timeout_s=6)
        assert not any(gone for _, gone in keys(cluster, topic))
        hanging.commit_transaction(DEADLINE_S)
        found = orphaned_slices(settings, topic, delete=True, grace_s=0)
        assert (found.messages, found.orphans) == (1, 0)
