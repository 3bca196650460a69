"""``headerware chargeback`` on a real broker: killed, twice at once, with reads, behind retention."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient

from headerware.ops.chargeback import KeptUsage, count_usage, record_bytes
from tests.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.conftest import Cluster

pytestmark = [pytest.mark.broker]

RECORDS = 250_000
"""Enough for a run to keep its sums several times."""

SENT: list[tuple[str, bytes | None]] = [("hw.owner", b"shop"), ("hw.trail", b"1,at=5;by=checkout")]
HEADERS: list[tuple[str, str | bytes | None]] = [*SENT]
DEADLINE_S = 120.0


def fill(cluster: Cluster, topic: str, count: int) -> int:
    """Produce records, and return their size."""
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.servers, "linger.ms": 50})
    size = 0
    for number in range(count):
        value = b"v" * (number % 40)
        while True:
            try:
                producer.produce(topic, value, headers=HEADERS)
                break
            except BufferError:
                producer.poll(0.1)
        size += record_bytes(None, value, SENT)
    assert producer.flush(DEADLINE_S) == 0
    return size


def begin(cluster: Cluster, topic: str, path: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "headerware", "chargeback", topic, "--usage", str(path), "--no-reads"]
    return subprocess.Popen(
        [*command, "--bootstrap-servers", cluster.servers, "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )


def has_kept(process: subprocess.Popen[bytes], path: Path, before: int) -> bool:
    return process.poll() is not None or (path.exists() and total(path)[0] > before)


def total(path: Path) -> tuple[int, int]:
    with KeptUsage(path) as kept:
        rows = kept.usage()
    return sum(row.records or 0 for row in rows), sum(row.bytes or 0 for row in rows)


@pytest.fixture(scope="module")
def topic(shared_cluster: Cluster) -> tuple[str, int]:
    """Return a topic that is filled, and the size of its records."""
    topic = shared_cluster.topic("chargeback", partitions=3)
    return topic, fill(shared_cluster, topic, RECORDS)


class TestChargeback:
    def test_killed_anywhere_it_loses_and_doubles_nothing(
        self, cluster: Cluster, topic: tuple[str, int], tmp_path: Path
    ) -> None:
        path, dice = tmp_path / "usage.db", random.Random(7)
        partly = []
        for turn in range(8):
            before = total(path)[0] if path.exists() else 0
            with begin(cluster, topic[0], path) as process:
                if turn % 2:  # when it has kept something; else while it starts
                    until(partial(has_kept, process, path, before))
                time.sleep(dice.random() * 0.3)
                process.kill()
            if path.exists():
                partly.append(total(path)[0])
        assert any(0 < count < RECORDS for count in partly), "no run was cut off in the middle"
        with begin(cluster, topic[0], path) as process:
            process.wait(DEADLINE_S)
        assert process.returncode == 0
        assert total(path) == (RECORDS, topic[1])

    def test_two_at_once_double_nothing(
        self, cluster: Cluster, topic: tuple[str, int], tmp_path: Path
    ) -> None:
        path = tmp_path / "usage.db"
        both = [begin(cluster, topic[0], path) for _ in range(2)]
        said = [json.loads(process.communicate(timeout=DEADLINE_S)[0]) for process in both]
        assert sorted(process.returncode for process in both) in ([0, 0], [0, 1])
        for each in said:
            assert each["ok"] or "another process has counted" in each["error"]["message"]
        with begin(cluster, topic[0], path) as process:
            process.wait(DEADLINE_S)
        assert total(path) == (RECORDS, topic[1])

    def test_counts_what_groups_read_between_two_runs(self, cluster: Cluster, tmp_path: Path) -> None:
        topic = cluster.topic("read")
        fill(cluster, topic, 60)
        group = f"billing-{topic}"
        conf: dict[str, Any] = {"bootstrap.servers": cluster.servers}
        found: list[dict[str | None, int]] = []
        for count in (10, 30, 20):  # the second begins behind what came in, the third has nothing new
            consumer = cluster.consumer(topic, settings={"group.id": group, "enable.auto.commit": False})
            cluster.take(consumer, count)
            cluster.commit(consumer)
            consumer.close()
            with KeptUsage(tmp_path / "usage.db") as kept:
                count_usage(conf, [topic], kept, groups=["billing-*"])
                rows = kept.usage()
            out: dict[str | None, int] = {}
            for row in rows:
                if row.direction == "out":
                    assert (row.owner, row.producer, row.source) == ("shop", "checkout", "offsets")
                    out[row.group] = out.get(row.group, 0) + (row.records or 0)
            found.append(out)
            assert sum(row.records or 0 for row in rows if row.direction == "in") == 60
        assert found == [{}, {group: 30}, {group: 50}]

    def test_tells_of_records_that_were_deleted_uncounted(self, cluster: Cluster, tmp_path: Path) -> None:
        topic = cluster.topic("short", partitions=1)
        conf: dict[str, Any] = {"bootstrap.servers": cluster.servers}
        with KeptUsage(tmp_path / "usage.db") as kept:
            fill(cluster, topic, 10)
            count_usage(conf, [topic], kept, groups=None)
            fill(cluster, topic, 20)
            admin = AdminClient(conf)
            (deleted,) = admin.delete_records([confluent_kafka.TopicPartition(topic, 0, 17)]).values()
            deleted.result(DEADLINE_S)
            counted = count_usage(conf, [topic], kept, groups=None)
            assert (counted.records, counted.missed) == (13, {topic: 7})
            assert sum(row.records or 0 for row in kept.usage()) == 23

    def test_counts_beside_a_topic_that_grows(self, cluster: Cluster, tmp_path: Path) -> None:
        topic = cluster.topic("grows", partitions=2)
        conf: dict[str, Any] = {"bootstrap.servers": cluster.servers}
        producer = confluent_kafka.Producer({**conf, "linger.ms": 5})
        sent = 0
        with KeptUsage(tmp_path / "usage.db") as kept:
            counted = 0
            for _ in range(10):
                for _ in range(500):
                    producer.produce(topic, b"v", headers=HEADERS)
                    sent += 1
                producer.poll(0)
                counted += count_usage(conf, [topic], kept, groups=None).records
            assert producer.flush(DEADLINE_S) == 0
            counted += count_usage(conf, [topic], kept, groups=None).records
        assert counted == sent
        assert total(tmp_path / "usage.db")[0] == sent
