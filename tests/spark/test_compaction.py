"""The Spark job keeps what the worker keeps of the same topic, and either goes on where the other ended."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # their stub
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)

from headerware import Chain, ConfigError, Headers, HeaderwareError, Record
from headerware.interceptors import Sign, Slice
from headerware.keyring import with_new_key
from headerware.keyring.writing import edit_keyring
from headerware.ops.compaction import Compaction, CompactionResult, Rule
from headerware.ops.retention.rules import Lifetime, RetentionRule
from headerware.spark_bridge import copy_topic
from tests.unit.clients.test_messages import put_raw

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession

    from headerware.ops.compaction.rules import CopyRule
    from headerware.testing import KafkaBroker
    from tests.spark.conftest import Kafka

pytestmark = [pytest.mark.broker, pytest.mark.timeout(900), pytest.mark.usefixtures("interpreted")]
DEADLINE_S: Final = 60.0
PARTITIONS: Final = 3
RULE: Final = Rule(header="version")
PAST: Final = b"1000000000000"
FUTURE: Final = b"9000000000000"
COUNTED: Final = (
    "records",
    "size_bytes",
    "written",
    "written_bytes",
    "tombstones",
    "unresolved",
    "lost",
    "waiting",
    "missed",
)


class Topics:
    """A source, and two copies of it: one for the worker, and one for the job."""

    def __init__(self, spark: SparkSession, kafka: Kafka, broker: KafkaBroker) -> None:
        self.spark = spark
        self.kafka = kafka
        self.broker = broker
        self.rule: CopyRule = RULE
        self.source = kafka.topic("prices", partitions=PARTITIONS)
        self.copies = self.copy(), self.copy()
        self.wire = confluent_kafka.Producer({"bootstrap.servers": kafka.servers})
        self._began_ms = int(time.time() * 1000) - 1_000_000

    def copy(self, policy: str = "compact") -> tuple[str, str]:
        """Create a target and a side topic."""
        target = f"latest-{self.kafka.topic('side', partitions=PARTITIONS)}"
        self.broker.create_topic(target, partitions=PARTITIONS, config={"cleanup.policy": policy})
        return target, target.removeprefix("latest-")

    def put(
        self,
        key: bytes | None,
        version: Any,
        value: bytes | None = b"v",
        partition: int = 0,
        part: bytes | None = None,
        **more: bytes | None,
    ) -> None:
        headers: list[Any] = [] if version is None else [("version", str(version).encode())]
        headers += [] if part is None else [("hw.slice", part)]
        headers += [(name.replace("_", "."), found) for name, found in more.items()]
        self._began_ms += 1_000
        self.wire.produce(self.source, value, key, partition, timestamp=self._began_ms, headers=headers)

    def flush(self) -> None:
        assert self.wire.flush(DEADLINE_S) == 0

    def by_worker(
        self, copy: int = 0, *, chain: Chain | None = None, execute: bool = True
    ) -> CompactionResult:
        target, side = self.copies[copy]
        conf = {"bootstrap.servers": self.kafka.servers}
        with Compaction(conf, self.source, target, self.rule, side_topic=side, chain=chain) as work:
            return work.execute() if execute else work.preview()

    def by_job(self, *, execute: bool = True, **options: Any) -> CompactionResult:
        target, side = self.copies[1]
        # As a stream's options may have them; all is read none the less.
        later = {"startingTimestamp": str(self._began_ms), "failOnDataLoss": "false"}
        settings = {"kafka.bootstrap.servers": self.kafka.servers, **later}
        options = {"side_topic": side, "execute": execute, **options}
        return copy_topic(self.spark, settings, self.source, target, self.rule, **options)

    def records(self, topic: str) -> dict[int, list[Any]]:
        """Return what is in each partition, but for offsets; slices in a row in any order."""
        found: dict[int, list[Any]] = {number: [] for number in range(PARTITIONS)}
        for each in self.kafka.wire(topic):
            own = found[each.partition or 0]
            record = (each.key, each.value, tuple(each.headers), each.timestamp_ms)
            if "hw.slice" not in each.headers.names() or each.headers.last("hw.slice") == b"odd":
                own.append(record)
            elif own and isinstance(own[-1], set):
                own[-1].add(record)
            else:
                own.append({record})
        return found

    def require_the_same(self) -> None:
        """Compare the copies."""
        for here, there in zip(*self.copies, strict=True):
            assert self.records(there) == self.records(here)


@pytest.fixture
def topics(spark: SparkSession, kafka: Kafka, kafka_broker: KafkaBroker) -> Iterator[Topics]:
    found = Topics(spark, kafka, kafka_broker)
    yield found
    found.wire.close()


def counts(result: CompactionResult) -> Mapping[str, Any]:
    return {name: getattr(result, name) for name in COUNTED}


def send_slices(topics: Topics, *records: Record, drop_last: bool = False) -> None:
    """Send messages in slices, perhaps without the end."""
    chain = Chain([Slice(max_bytes=1_500)])
    pieces = []
    for each in records:
        aside = topics.kafka.topic("aside", partitions=PARTITIONS)
        topics.kafka.send(chain, each.replace(topic=aside))
        pieces += topics.kafka.wire(aside)
    for piece in pieces[:-1] if drop_last else pieces:
        topics.kafka.send(None, piece.replace(topic=topics.source))


def aborted(topics: Topics) -> None:
    """Be a transaction that is aborted."""
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": topics.kafka.servers, "transactional.id": topics.source}
    )
    producer.init_transactions(DEADLINE_S)
    producer.begin_transaction()
    producer.produce(topics.source, b"aborted", b"a", 0, headers=[("version", b"999")])
    assert producer.flush(DEADLINE_S) == 0
    producer.abort_transaction(DEADLINE_S)


class TestCopyTopic:
    def test_keeps_what_the_worker_keeps(self, topics: Topics) -> None:
        topics.copies = topics.copy("delete"), topics.copy("delete")
        for number in range(60):
            key = b"%d" % (number % 7)
            topics.put(key, number * 37 % 11, b"%d" % number, number % PARTITIONS)
        topics.put(b"0", 99, None)
        topics.put(b"1", None, None)
        topics.put(None, 1, b"no key")
        topics.put(b"2", "x", b"malformed")
        topics.put(b"3", 1, b"odd", part=b"odd")
        topics.flush()
        aborted(topics)
        message = Record(topics.source, bytes(4_000), b"whole", Headers([("version", b"5")]), 1)
        send_slices(
            topics, message, message.replace(value=b"1" * 4_000, headers=Headers([("version", b"4")]))
        )
        send_slices(topics, message.replace(key=b"2", headers=Headers([("version", b"77")])), drop_last=True)
        shown = topics.by_job(execute=False)
        assert not any(topics.records(topics.copies[1][0]).values())
        by_worker, by_job = topics.by_worker(), topics.by_job()
        assert counts(by_job) == counts(by_worker) == counts(shown)
        assert (by_job.executed, by_job.problems) == (True, [])
        assert set(by_job.unresolved) == {"no_key", "no_version", "malformed"}
        assert {"older", "tie"} >= set(by_job.lost) >= {"older"}
        assert by_job.waiting > 1
        assert by_job.tombstones == 1
        topics.require_the_same()

        # The worker goes on where the job ended, and the job where the worker did.
        end = topics.kafka.ends(topics.source)[0]
        assert topics.by_worker(1).records == 0
        topics.put(b"0", 98, b"late")
        topics.put(b"0", 99, b"as high, and later")
        topics.put(b"new", 1, b"new", 2)
        topics.flush()
        by_worker = topics.by_worker()
        assert (by_worker.records, by_worker.written) == (3, 2)
        assert counts(topics.by_worker(1)) == counts(by_worker)
        # Also behind what the source has lost.
        admin = AdminClient({"bootstrap.servers": topics.kafka.servers})
        for future in admin.delete_records([TopicPartition(topics.source, 0, end)]).values():
            future.result(DEADLINE_S)
        topics.put(b"0", 97, b"too late")
        topics.put(b"new", 2, b"newer", 2)
        topics.flush()
        assert counts(topics.by_job()) == counts(topics.by_worker())
        topics.require_the_same()

    def test_leaves_what_is_not_verified_and_may_be_run_again(self, topics: Topics, tmp_path: Path) -> None:
        keyring = tmp_path / "keys.json"
        edit_keyring(keyring, lambda keys: with_new_key(keys, "test", "hmac-sha256"), create=True)
        chain = Chain([Sign(keyring=str(keyring), key_id="test", require="enforce")])
        signed = [Record(topics.source, v, b"a", Headers([("version", v)]), 0) for v in (b"1", b"2")]
        topics.kafka.send(chain, *signed)
        topics.put(b"a", 9, b"forged")
        topics.flush()
        by_worker, by_job = topics.by_worker(chain=chain), topics.by_job(chain=chain)
        assert counts(by_job) == counts(by_worker)
        assert (by_job.unresolved, by_job.written) == ({"unverified": 1}, 1)
        topics.require_the_same()
        # The target's own records are verified for the source's name.
        topics.kafka.send(chain, signed[0])
        assert topics.by_job(chain=chain).lost == {"older": 1}
        assert topics.by_worker(1, chain=chain).records == 0

    def test_retains_what_the_worker_retains(self, topics: Topics) -> None:
        topics.copies = topics.copy("delete"), topics.copy("delete")
        topics.rule = RetentionRule(
            hold="hold", lifetimes=(Lifetime(topics=("prices-*",), header="brief", after_ms=1_000),)
        )
        for number in range(30):
            expires = (PAST, FUTURE, b"soon")[number % 3]
            topics.put(b"%d" % (number % 4), None, b"%d" % number, number % PARTITIONS, hw_expires=expires)
        topics.put(b"0", None, b"held", hw_expires=PAST, hold=b"case 7")
        topics.put(b"0", None, b"brief", brief=b"")
        topics.put(b"0", None, None, brief=b"")
        topics.put(None, None, b"for ever")
        topics.put(b"0", None, b"odd", part=b"odd", hw_expires=PAST)
        topics.flush()
        put_raw({"bootstrap.servers": topics.kafka.servers}, topics.source, (b"v", b"n\xffme"))
        aborted(topics)
        message = Record(topics.source, bytes(4_000), b"whole", Headers([("hw.expires", FUTURE)]), 1)
        gone = message.replace(value=b"1" * 4_000, headers=Headers([("hw.expires", PAST)]))
        send_slices(topics, message, gone, gone.replace(headers=gone.headers.put("hold", b"1")))
        send_slices(topics, gone.replace(partition=2), drop_last=True)
        shown, by_worker, by_job = topics.by_job(execute=False), topics.by_worker(), topics.by_job()
        assert counts(by_job) == counts(by_worker) == counts(shown)
        assert by_job.unresolved == {"unreadable": 1}
        assert (by_job.lost["expired"], by_job.tombstones) > (10, 1)
        topics.require_the_same()
        assert not any(topics.records(topics.copies[1][1]).values()), "nothing is unresolved"
        topics.put(b"late", None, b"late", hw_expires=FUTURE)
        topics.flush()
        assert counts(topics.by_worker(1)) == counts(topics.by_worker())
        topics.require_the_same()

    def test_that_fails_says_how_far_it_has_come(self, topics: Topics) -> None:
        target, limit = topics.copies[1][0], "message.timestamp.after.max.ms"
        for partition in range(PARTITIONS):
            topics.put(b"a", 1, b"a", partition)
        topics.flush()
        ahead_ms = int(time.time() * 1000) + 3_600_000
        ahead: Any = {"timestamp": ahead_ms, "headers": {"version": b"1"}}
        topics.wire.produce(topics.source, b"ahead", b"b", 1, **ahead)
        topics.flush()
        configure_topic(topics, target, limit, "60000")
        with pytest.raises(Exception, match=r"refuses the copy of prices-.*\[1\]@1"):
            topics.by_job()
        assert topics.records(target)[1] == [], "all of a transaction, or nothing"
        left = topics.by_worker(1, execute=False)
        assert left.records == PARTITIONS + 1 - sum(map(len, topics.records(target).values()))
        configure_topic(topics, target, limit, str(2**63 - 1))
        topics.by_worker()
        assert topics.by_job().written == left.written
        topics.require_the_same()

    def test_refuses_a_source_that_ends_before_what_is_done(self, topics: Topics) -> None:
        topics.put(b"a", 1)
        topics.flush()
        target, side = topics.copies[1]
        conf = {"bootstrap.servers": topics.kafka.servers}
        with Compaction(conf, topics.source, target, topics.rule, side_topic=side) as work:
            work.copied.begin("job", {0: 5, 1: 0, 2: 0}, lambda _: None)
            work.copied.end("job", lambda _: None)
        with pytest.raises(HeaderwareError, match=r"\[0\] is done up to offset 5, but it ends at 1"):
            topics.by_job()

    def test_refuses_topics_that_do_not_fit(self, topics: Topics) -> None:
        topics.copies = topics.copies[0], (topics.kafka.topic("plain"), topics.copies[1][0])
        shown = topics.by_job(execute=False)
        said = " ".join(shown.problems)
        for part in ("has 1 partition, expected 3 partitions", "is compacted; a side topic needs"):
            assert part in said
        assert shown.records == 0
        with pytest.raises(ConfigError, match="create another topic with 3 partitions"):
            topics.by_job()
        with pytest.raises(ConfigError, match="different topics"):
            topics.by_job(side_topic=topics.source)
        settings = {"kafka.bootstrap.servers": "localhost:9092", "kafka.security.protocol": "SSL"}
        with pytest.raises(ConfigError, match=r"found only kafka\.security\.protocol=SSL"):
            copy_topic(topics.spark, settings, topics.source, "target", RULE)


def configure_topic(topics: Topics, topic: str, name: str, value: str) -> None:
    """Give a topic a setting."""
    admin = AdminClient({"bootstrap.servers": topics.kafka.servers})
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(DEADLINE_S)
