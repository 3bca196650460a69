"""Orphans on Apache Kafka, where transactions hang, and dead letters keep what their topics have lost."""

from __future__ import annotations

import os
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient

from headerware import Chain, Consumer
from headerware.interceptors import ClaimCheck
from headerware.object_store import FolderObjects
from headerware.ops.claims import OrphanReport, delete_orphans, find_orphans
from tests.integration.conftest import DEADLINE_S
from tests.waiting import until

if TYPE_CHECKING:
    from tests.integration.conftest import Cluster

pytestmark = pytest.mark.broker
VALUE = b"a value of some size"


@pytest.fixture
def check(tmp_path: Path) -> ClaimCheck:
    return ClaimCheck(stores={"archive": FolderObjects(path=str(tmp_path))}, min_bytes=10)


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def found_old(cluster: Cluster, check: ClaimCheck, folder: Path, *topics: str) -> OrphanReport:
    """Return what is found once all objects are two days old."""
    then = time.time() - 2 * 86_400
    for path in files(folder):
        os.utime(path, (then, then))
    settings = {"bootstrap.servers": cluster.servers}
    return find_orphans(settings, topics, Chain([check]), before_ms=int((time.time() - 86_400) * 1000))


class TestTransactions:
    def test_that_hang_or_are_aborted_make_no_orphans(
        self, cluster: Cluster, check: ClaimCheck, tmp_path: Path
    ) -> None:
        topic = cluster.topic("hanging")
        for end in ("abort", "hang"):
            producer = cluster.producer(check, transactional_id=f"{topic}-{end}")
            producer.init_transactions(DEADLINE_S)
            producer.begin_transaction()
            producer.produce(topic, VALUE, partition=0)
            assert producer.flush(DEADLINE_S) == 0
            if end == "abort":
                producer.abort_transaction(DEADLINE_S)
        behind = cluster.producer(check)
        behind.produce(topic, VALUE, partition=0)
        assert behind.flush(DEADLINE_S) == 0
        report = found_old(cluster, check, tmp_path, topic)
        assert (report.records, report.claimed, report.orphans) == (3, 3, ())


class TestDeadLetters:
    def test_keep_the_objects_of_records_that_their_topic_has_lost(
        self, cluster: Cluster, check: ClaimCheck, tmp_path: Path
    ) -> None:
        topic = cluster.topic("scans")
        letters = f"{topic}.dead-letter"
        cluster.broker.create_topic(letters)
        with cluster.producer(check) as producer:
            for _ in range(2):
                producer.produce(topic, VALUE, partition=0)
        broken = files(tmp_path)[0]
        content = broken.read_bytes()
        broken.chmod(0o600)
        broken.write_bytes(bytes(len(content)))
        strict = ClaimCheck(stores=check.stores, min_bytes=10, on_error="dead_letter")
        consumer = cluster.consumer(topic, strict)
        received: list[Any] = []
        until(
            lambda: received and len(cluster.on_the_wire(letters)) == 1,
            meanwhile=lambda: received.extend(consumer.consume(1, 0.1)),
        )
        assert [message.value() for message in received if message.error() is None] == [VALUE]

        admin = AdminClient({"bootstrap.servers": cluster.servers})
        end = confluent_kafka.TopicPartition(topic, 0, 2)
        for done in admin.delete_records([end]).values():
            done.result(DEADLINE_S)
        report = found_old(cluster, check, tmp_path, topic)
        assert report.topics == (topic, letters)
        assert (report.claimed, len(report.orphans)) == (1, 1)
        assert delete_orphans(report, Chain([check])) == 1

        broken.write_bytes(content)
        reader = ClaimCheck(stores=check.stores, accept_topics=(topic,))
        settings: dict[str, Any] = {"bootstrap.servers": cluster.servers, "group.id": letters}
        with closing(
            Consumer({**settings, "auto.offset.reset": "earliest"}, chain=Chain([reader]))
        ) as mended:
            mended.subscribe([letters])
            assert [message.value() for message in cluster.take(mended, 1)] == [VALUE]
