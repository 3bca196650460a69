"""Reading topics to their ends where offsets hold no record: markers, aborted records, compaction."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from headerware.kafka.reader import Progress, TopicReader
from tests.integration.conftest import DEADLINE_S
from tests.waiting import until

if TYPE_CHECKING:
    from tests.integration.conftest import Cluster

pytestmark = pytest.mark.broker
TIMEOUT_S = 60


def producing(cluster: Cluster, topic: str, **conf: Any) -> Any:
    producer = cluster.plain_producer(transactional_id=topic, **conf)
    producer.init_transactions(TIMEOUT_S)
    return producer


def transaction(producer: Any, topic: str, count: int, end: str) -> None:
    producer.begin_transaction()
    for number in range(count):
        producer.produce(topic, b"%d" % number, b"key", partition=0)
    assert producer.flush(TIMEOUT_S) == 0
    if end != "open":
        getattr(producer, f"{end}_transaction")(TIMEOUT_S)


def read(cluster: Cluster, topic: str, **conf: Any) -> tuple[list[int | None], Progress]:
    settings = {"bootstrap.servers": cluster.servers, **conf}
    with TopicReader(settings, topic, group_id="reads", timeout_s=TIMEOUT_S) as reader:
        reader.start()
        return [message.offset() for batch in reader.to_end() for message in batch], reader.progress


class TestTheEnd:
    @pytest.mark.parametrize(
        ("ends", "offsets", "total"),
        [
            (["commit"], [0, 1, 2], 4),
            (["abort"], [], 4),
            (["commit", "abort"], [0, 1, 2], 8),
            (["abort", "commit"], [4, 5, 6], 8),
        ],
    )
    def test_may_be_a_marker(self, cluster: Cluster, ends: list[str], offsets: list[int], total: int) -> None:
        topic = cluster.topic("marked")
        producer = producing(cluster, topic)
        for end in ends:
            transaction(producer, topic, 3, end)
        # Markers come after the answer to who commits or aborts.
        until(lambda: read(cluster, topic) == (offsets, (total, total)), f"offsets {offsets} of {total}")

    def test_may_be_a_transaction_that_is_still_open(self, cluster: Cluster) -> None:
        topic = cluster.topic("open")
        producer = producing(cluster, topic)
        transaction(producer, topic, 2, "commit")
        transaction(producer, topic, 2, "open")
        offsets, progress = read(cluster, topic)
        assert offsets == [0, 1]
        assert progress.done == progress.total
        assert read(cluster, topic, **{"isolation.level": "read_uncommitted"})[0] == [0, 1, 3, 4]
        producer.abort_transaction(TIMEOUT_S)

    def test_may_be_all_that_is_left(self, cluster: Cluster) -> None:
        topic = cluster.topic("deleted")
        transaction(producing(cluster, topic), topic, 2, "commit")
        admin = AdminClient({"bootstrap.servers": cluster.servers})
        (deleted,) = admin.delete_records([TopicPartition(topic, 0, 3)]).values()
        deleted.result(TIMEOUT_S)
        assert read(cluster, topic) == ([], (0, 0))

    def test_is_found_behind_the_holes_of_compaction(self, second_cluster: Cluster) -> None:
        topic = second_cluster.topic(
            "compacted",
            config={
                "cleanup.policy": "compact",
                "min.cleanable.dirty.ratio": "0.01",
                "segment.ms": "1",
                "delete.retention.ms": "0",
            },
        )
        producer = producing(second_cluster, topic)
        for _ in range(4):
            transaction(producer, topic, 3, "commit")
        deadline = time.monotonic() + DEADLINE_S
        # The marker that ends the last transaction comes after the answer to who commits it.
        while 0 in (offsets := read(second_cluster, topic)[0]) or offsets[-1] != 14:
            assert time.monotonic() < deadline, f"the topic was not compacted: {offsets}"
        assert read(second_cluster, topic)[1].done == 16
