"""The Spark job keeps what the worker keeps of the same topic: the same records, in the same order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from headerware import Chain, ConfigError, Headers, Record
from headerware.interceptors import Sign, Slice
from headerware.keyring import with_new_key
from headerware.keyring.writing import edit_keyring
from headerware.ops.compaction import Compaction, Result, Rule
from headerware.spark_bridge import CompactedTopic, compact_topic

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession

    from headerware.testing import KafkaBroker
    from tests.spark.conftest import Kafka

pytestmark = [
    pytest.mark.broker,
    pytest.mark.timeout(900),
    pytest.mark.usefixtures("interpreted", "few_tasks"),
]
DEADLINE_S: Final = 60.0
PARTITIONS: Final = 3
RULE: Final = Rule(header="version")
COUNTED: Final = (
    "records",
    "size_bytes",
    "written",
    "written_bytes",
    "tombstones",
    "untouched",
    "lost",
    "waiting",
)


class Topics:
    """A source, and two copies of it: one for the worker, and one for the job."""

    def __init__(self, spark: SparkSession, kafka: Kafka, broker: KafkaBroker) -> None:
        self.spark = spark
        self.kafka = kafka
        self.broker = broker
        self.source = kafka.topic("prices", partitions=PARTITIONS)
        self.copies = self.copy(), self.copy()
        self._wire = confluent_kafka.Producer({"bootstrap.servers": kafka.servers})

    def copy(self) -> tuple[str, str]:
        """Create a target and a topic beside it."""
        target = f"latest-{self.kafka.topic('beside', partitions=PARTITIONS)}"
        self.broker.create_topic(target, partitions=PARTITIONS, config={"cleanup.policy": "compact"})
        return target, target.removeprefix("latest-")

    def put(
        self,
        key: bytes | None,
        version: Any,
        value: bytes | None = b"v",
        partition: int = 0,
        part: bytes | None = None,
    ) -> None:
        headers: list[Any] = [] if version is None else [("version", str(version).encode())]
        headers += [] if part is None else [("hw.slice", part)]
        self._wire.produce(self.source, value, key, partition, headers=headers)

    def flush(self) -> None:
        assert self._wire.flush(DEADLINE_S) == 0

    def by_worker(self, *, chain: Chain | None = None) -> Result:
        target, beside = self.copies[0]
        conf = {"bootstrap.servers": self.kafka.servers}
        with Compaction(conf, self.source, target, RULE, beside=beside, chain=chain) as work:
            return work.execute()

    def by_job(self, *, execute: bool = True, **options: Any) -> CompactedTopic:
        target, beside = self.copies[1]
        settings = {"kafka.bootstrap.servers": self.kafka.servers}
        options = {"beside": beside, "execute": execute, **options}
        return compact_topic(self.spark, settings, self.source, target, RULE, **options)

    def records(self, topic: str) -> dict[int, list[Any]]:
        """Return what is in each partition, but for offsets and times; slices in a row in any order."""
        found: dict[int, list[Any]] = {number: [] for number in range(PARTITIONS)}
        for each in self.kafka.wire(topic):
            own, record = found[each.partition or 0], (each.key, each.value, tuple(each.headers))
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


@pytest.fixture(scope="module")
def few_tasks(spark: SparkSession) -> Iterator[None]:
    """Shuffle into as many tasks as there are partitions: 200 of them take a minute for sixty records."""
    name = "spark.sql.shuffle.partitions"
    before = str(spark.conf.get(name))
    spark.conf.set(name, str(PARTITIONS))
    yield
    spark.conf.set(name, before)


@pytest.fixture
def topics(spark: SparkSession, kafka: Kafka, kafka_broker: KafkaBroker) -> Topics:
    return Topics(spark, kafka, kafka_broker)


def counts(result: Result) -> Mapping[str, Any]:
    return {name: getattr(result, name) for name in COUNTED}


def send_slices(topics: Topics, *records: Record, drop_last: bool = False) -> None:
    """Send messages in slices, with keys of their own but for the first, perhaps without the end."""
    chain = Chain([Slice(max_bytes=1_500, compacted_topics=("*",))])
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


class TestCompactTopic:
    def test_keeps_what_the_worker_keeps(self, topics: Topics) -> None:
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
        assert (by_job.executed, by_job.problems, by_job.missed) == (True, [], 0)
        assert set(by_job.untouched) == {"no_key", "no_version", "malformed"}
        assert {"older", "tie"} >= set(by_job.lost) >= {"older"}
        assert by_job.waiting > 1
        assert by_job.tombstones == 1
        topics.require_the_same()

        # What comes later is added, also behind what the source has lost.
        admin = AdminClient({"bootstrap.servers": topics.kafka.servers})
        for future in admin.delete_records([TopicPartition(topics.source, 0, by_job.ends[0])]).values():
            future.result(DEADLINE_S)
        topics.put(b"0", 98, b"late")
        topics.put(b"0", 99, b"as high, and later")
        topics.put(b"new", 1, b"new", 2)
        topics.flush()
        topics.by_worker()
        again = topics.by_job(since=by_job.ends)
        assert (again.records, again.written, again.missed) == (3, 2, 0)
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
        assert (by_job.untouched, by_job.written) == ({"unverified": 1}, 1)
        topics.require_the_same()
        # As one does whose job has failed; the target's own records are verified for the source's name.
        assert counts(topics.by_job(chain=chain)) == counts(by_job)
        (target, beside) = (topics.records(topic)[0] for topic in topics.copies[1])
        assert [value for _, value, _ in target] == [b"2", b"2"], "the winner is the last of its key"
        assert [value for _, value, _ in beside] == [b"forged", b"forged"]

    def test_refuses_topics_that_do_not_fit(self, topics: Topics) -> None:
        topics.copies = topics.copies[0], (topics.kafka.topic("plain"), topics.copies[1][0])
        shown = topics.by_job(execute=False)
        said = " ".join(shown.problems)
        for part in (
            "needs 3 partitions, but it has 1",
            "cleanup.policy=compact",
            "is compacted; what is left",
        ):
            assert part in said
        assert (shown.records, shown.ends) == (0, dict.fromkeys(range(PARTITIONS), 0))
        with pytest.raises(ConfigError, match=r"cleanup\.policy=compact"):
            topics.by_job()
        with pytest.raises(ConfigError, match="different topics"):
            topics.by_job(beside=topics.source)
