"""An audit on a real broker: two producers, two consumers, and what is lost and comes twice on the way."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from headerware import Chain
from headerware.cli import main
from headerware.interceptors import Audit, Compress, Dedup, Sign, Slice, Trace, Trail
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
        "aborted",
        "undecided",
        "uncommitted",
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
        consumers = [cluster.consumer(topic, chain=chain, partition=number) for number in range(2)]
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

    def test_has_the_same_bytes_on_both_ends_of_a_whole_chain(self, cluster: Cluster, keyring: str) -> None:
        topic, audit_topic = cluster.topic("orders"), cluster.topic("audit")
        chain = Chain(
            [
                Audit(audit_topic=audit_topic),
                Trail(service="shop"),
                Trace(),
                Dedup(),
                Compress(min_bytes=1),
                Slice(max_bytes=10_000),
                Sign(keyring=keyring, key_id="test"),
            ]
        )
        payloads = [os.urandom(50_000), b"a" * 50_000, b"{}", "über".encode(), None]
        with cluster.producer(chain=chain) as producer:
            for value in payloads:
                producer.produce(topic, value, "schlüssel", headers=[("tenant", b"north")])
            assert producer.flush(DEADLINE_S) == 0
        with cluster.consumer(topic, chain=chain) as consumer:
            take(consumer, len(payloads))
        _, found = compared(cluster, audit_topic, topic)
        expected = sum(len(value or b"") + len("schlüssel".encode()) for value in payloads)
        assert total(found["rows"]) == {"produced": 5, "consumed": 5}
        for name in ("produced_bytes", "consumed_bytes"):
            assert sum(row[name] for row in found["rows"]) == expected, name

    def test_does_not_hold_up_a_client_without_its_topic(self, cluster: Cluster) -> None:
        topic = cluster.topic("orders")
        chain = Chain([Audit(audit_topic="no such topic")])
        began = time.monotonic()
        with cluster.producer(chain=chain) as producer:
            producer.produce(topic, b"1")
            assert producer.flush(DEADLINE_S) == 0
            assert time.monotonic() - began < DEADLINE_S / 2
        assert producer.stats()["audit"]["reports_published"] == 0


class TestTransactions:
    """Three records are committed, then two aborted, then one committed."""

    SENT = (("commit_transaction", 3), ("abort_transaction", 2), ("commit_transaction", 1))

    @pytest.fixture
    def audit_topic(self, cluster: Cluster) -> str:
        return cluster.topic("audit")

    @pytest.fixture
    def chain(self, audit_topic: str) -> Chain:
        return Chain([Audit(audit_topic=audit_topic), Slice(max_bytes=10_000)])

    @pytest.fixture
    def topic(self, cluster: Cluster, chain: Chain) -> str:
        topic = cluster.topic("orders")
        with cluster.producer(chain=chain, transactional_id=topic) as producer:
            producer.init_transactions(DEADLINE_S)
            for end, count in self.SENT:
                producer.begin_transaction()
                for number in range(count):
                    producer.produce(topic, os.urandom(30_000) if number else b"small")
                assert producer.flush(DEADLINE_S) == 0
                getattr(producer, end)(DEADLINE_S)
        return topic

    @pytest.mark.parametrize(
        ("isolation", "expected"),
        [
            ("read_committed", {"produced": 4, "consumed": 4, "aborted": 2}),
            ("read_uncommitted", {"produced": 4, "consumed": 6, "aborted": 2, "uncommitted": 2}),
        ],
    )
    def test_a_group_has_lost_nothing_whatever_it_reads(
        self,
        cluster: Cluster,
        chain: Chain,
        topic: str,
        audit_topic: str,
        isolation: str,
        expected: dict[str, int],
    ) -> None:
        with cluster.consumer(topic, chain=chain, isolation_level=isolation) as consumer:
            take(consumer, expected["consumed"])
        code, found = compared(cluster, audit_topic, topic, "--fail-on", "lost", "--fail-on", "unreported")
        assert (code, total(found["rows"]), found["incomplete"]) == (0, expected, {})

    def test_what_a_fenced_producer_had_sent_is_undecided(
        self, cluster: Cluster, chain: Chain, audit_topic: str
    ) -> None:
        topic = cluster.topic("orders")
        fenced = cluster.producer(chain=chain, transactional_id=topic)
        fenced.init_transactions(DEADLINE_S)
        fenced.begin_transaction()
        fenced.produce(topic, b"lost with its transaction")
        assert fenced.flush(DEADLINE_S) == 0
        with cluster.producer(chain=chain, transactional_id=topic) as following:
            following.init_transactions(DEADLINE_S)  # which aborts the transaction of the other
            following.begin_transaction()
            following.produce(topic, b"kept")
            following.commit_transaction(DEADLINE_S)
        with pytest.raises(KafkaException) as raised:
            fenced.commit_transaction(DEADLINE_S)
        assert raised.value.args[0].fatal()
        with pytest.raises(KafkaException, match="_FENCED"):
            fenced.close()
        with cluster.consumer(topic, chain=chain, isolation_level="read_committed") as consumer:
            take(consumer, 1)
        code, found = compared(cluster, audit_topic, topic)
        assert (code, total(found["rows"])) == (0, {"produced": 1, "consumed": 1, "undecided": 1})
        code, _ = compared(cluster, audit_topic, topic, "--fail-on", "undecided")
        assert code == 1

    def test_a_process_that_dies_within_one_leaves_it_undecided_and_is_named(
        self, cluster: Cluster, audit_topic: str
    ) -> None:
        topic = cluster.topic("orders")
        options = {
            "bootstrap.servers": cluster.servers,
            "transactional.id": topic,
            "interceptors": "audit",
            "interceptors.audit.audit_topic": audit_topic,
            "interceptors.audit.interval_s": 1,
        }
        script = f"""
import os, time
from headerware import Producer
producer = Producer({options!r})
producer.init_transactions(60)
producer.begin_transaction()
producer.produce({topic!r}, b"1")
assert producer.flush(60) == 0
deadline = time.monotonic() + 60
# The first report may be of before the delivery; the second is not.
while producer.stats()["audit"]["reports_published"] < 2:
    assert time.monotonic() < deadline
    producer.poll(0.05)
os._exit(0)
"""
        subprocess.run([sys.executable, "-c", script], check=True, timeout=2 * DEADLINE_S)
        deadline = time.monotonic() + DEADLINE_S
        while True:
            _, found = compared(cluster, audit_topic, topic)
            if found["incomplete"]:
                break
            assert time.monotonic() < deadline
        assert total(found["rows"]) == {"undecided": 1}
        assert [reason.startswith("no report since") for reason in found["incomplete"].values()] == [True]
