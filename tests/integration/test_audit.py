"""An audit on a real broker: two producers, two consumers, and what is lost and comes twice on the way."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from headerware import Chain
from headerware.cli import main
from headerware.interceptors import Audit, Compress, Slice
from tests.integration.conftest import DEADLINE_S

if TYPE_CHECKING:
    from confluent_kafka import Message

    from headerware import Consumer
    from tests.integration.conftest import Cluster

pytestmark = pytest.mark.broker


def take(consumer: Consumer, count: int) -> list[Message]:
    found: list[Message] = []
    deadline = time.monotonic() + DEADLINE_S
    while len(found) < count:
        assert time.monotonic() < deadline, f"only {len(found)} of {count} records came"
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            found.append(message)
    return found


def compared(cluster: Cluster, audit_topic: str, *arguments: str) -> tuple[int, dict[str, Any]]:
    where = ["--bootstrap-servers", cluster.servers, "--audit-topic", audit_topic, "--json"]
    result = CliRunner().invoke(main, ["audit", "compare", *where, *arguments])
    answer = json.loads(result.stdout)
    assert answer["error"] is None, answer
    return result.exit_code, answer["result"]


def total(rows: list[dict[str, Any]]) -> dict[str, int]:
    """Return what is there in all buckets together; a test may run over the end of one."""
    names = (
        "produced",
        "consumed",
        "lost",
        "unknown",
        "pending",
        "duplicated",
        "unreported",
        "late",
        "stopped",
    )
    return {name: value for name in names if (value := sum(row[name] for row in rows))}


class TestAudit:
    @pytest.mark.parametrize("time_of", ["CreateTime", "LogAppendTime"])
    def test_tells_exactly_what_was_lost_and_what_came_twice(self, cluster: Cluster, time_of: str) -> None:
        topic = cluster.topic("orders", partitions=2, config={"message.timestamp.type": time_of})
        audit_topic = cluster.topic("audit")
        chain = Chain([Audit(audit_topic=audit_topic), Compress(min_bytes=1), Slice(max_bytes=10_000)])
        for name in ("shop", "web"):
            with cluster.producer(chain=chain, **{"client.id": name}) as producer:
                for number in range(20):
                    # One message in slices on each partition.
                    value = os.urandom(50_000) if number in {4, 5} else f"{name}-{number}".encode()
                    producer.produce(topic, value, partition=number % 2)
        # Lost on purpose: the first record of partition 0, before anybody has read it.
        admin = AdminClient({"bootstrap.servers": cluster.servers})
        ((_, deleted),) = admin.delete_records([TopicPartition(topic, 0, 1)]).items()
        assert deleted.result(DEADLINE_S).low_watermark == 1
        # Written past the audit, such as a second copy of a producer without idempotence.
        plain = cluster.plain_producer()
        plain.produce(topic, b"copy", partition=1)
        assert plain.flush(DEADLINE_S) == 0
        consumers = [cluster.consumer(topic, chain=chain) for _ in range(2)]
        for partition, consumer in enumerate(consumers):
            consumer.unsubscribe()
            consumer.assign([TopicPartition(topic, partition, 0)])
        first = take(consumers[0], 19)
        take(consumers[1], 21)
        # Twice on purpose: the application goes back by one record.
        last = first[-1]
        consumers[0].seek(TopicPartition(topic, 0, last.offset() or 0))
        take(consumers[0], 1)
        for consumer in consumers:
            consumer.close()

        code, found = compared(cluster, audit_topic, topic)
        assert code == 1
        assert total(found["rows"]) == {
            "produced": 40,
            "consumed": 41,
            "lost": 1,
            "duplicated": 1,
            "unreported": 1,
        }
        assert all(row["exact"] for row in found["rows"])
        assert (found["sessions"], found["incomplete"], found["malformed"]) == (4, {}, 0)
        code, _ = compared(cluster, audit_topic, topic, "--fail-on", "late", "--from", "2020-01-01")
        assert code == 0

    def test_does_not_hold_up_a_client_without_its_topic(self, cluster: Cluster) -> None:
        topic = cluster.topic("orders")
        chain = Chain([Audit(audit_topic="no such topic")])
        began = time.monotonic()
        with cluster.producer(chain=chain) as producer:
            producer.produce(topic, b"1")
            assert producer.flush(DEADLINE_S) == 0
            assert time.monotonic() - began < 5
        assert producer.stats()["audit"]["reports_published"] == 0
