"""Tables in topics on real brokers: creation, compaction, transactions, restarts."""

from __future__ import annotations

import contextlib
import json
import time
import uuid
from ipaddress import IPv4Network
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, ConfigResource  # type: ignore[attr-defined]  # its stub

from headerware.core.errors import RegistryError
from headerware.core.header_ids import HeaderId
from headerware.registry import Allocate, Block, Entry, Register
from headerware.registry.stores.topic import TopicStore
from headerware.serdes.avro.schema import Fingerprint, Schema
from headerware.serdes.stores.topic import TopicSchemas
from headerware.topic_table import TopicTable
from headerware.topic_table.rows import Rows
from tests.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.conftest import Cluster

pytestmark = pytest.mark.broker

DEADLINE_S = 60.0
DAY = "2026-01-31"
AT_ONCE = {
    "cleanup.policy": "compact",
    "segment.ms": "100",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "100",
}
BLOCK = Allocate(
    Block(network=IPv4Network("0.1.0.0/16"), owner="shop", description="a block", since=DAY), "registrar"
)


def register(header_id: str, name: str) -> Register:
    return Register(
        Entry(
            id=HeaderId(header_id),
            name=name,
            owner="shop",
            encoding="utf-8",
            description="a header",
            since=DAY,
        ),
        "shop",
    )


def conf_of(cluster: Cluster) -> dict[str, Any]:
    return {"bootstrap.servers": cluster.servers, "log_level": 0}


def offsets(cluster: Cluster, topic: str) -> list[int | None]:
    return [message.offset() for message in cluster.on_the_wire(topic)]


class TestTable:
    def test_makes_its_topic_compacted_with_one_partition(self, second_cluster: Cluster) -> None:
        name = f"made-{uuid.uuid4().hex}"
        with (
            TopicTable(conf_of(second_cluster), name, rows=Rows) as without,
            pytest.raises(RegistryError, match="there is no topic"),
        ):
            without.put(b"k", b"v")
        made = [TopicTable(conf_of(second_cluster), name, rows=Rows, create=True) for _ in range(2)]
        with made[0] as one, made[1] as two:
            one.put(b"k", b"v", DEADLINE_S)
            two.refresh(DEADLINE_S)
            assert two.get(b"k") == b"v"
        admin = AdminClient(conf_of(second_cluster))
        resource = ConfigResource(ConfigResource.Type.TOPIC, name)
        config = admin.describe_configs([resource])[resource].result(DEADLINE_S)
        assert config["cleanup.policy"].value == "compact"
        assert len(admin.list_topics(name, timeout=DEADLINE_S).topics[name].partitions) == 1

    @pytest.mark.parametrize("followed", [False, True])
    def test_a_topic_that_was_made_anew_is_read_anew(
        self,
        second_cluster: Cluster,
        followed: bool,  # noqa: FBT001
    ) -> None:
        topic = second_cluster.topic("anew", config={"cleanup.policy": "compact"})
        admin = AdminClient(conf_of(second_cluster))
        with TopicTable(conf_of(second_cluster), topic, rows=Rows) as table:
            for index in range(5):
                table.put(b"old-%d" % index, b"v", DEADLINE_S)
            if followed:
                table.follow()
            admin.delete_topics([topic])[topic].result(DEADLINE_S)
            until(lambda: topic not in admin.list_topics(timeout=DEADLINE_S).topics, "the deletion")
            second_cluster.broker.create_topic(topic, config={"cleanup.policy": "compact"})
            producer = second_cluster.plain_producer()
            producer.produce(topic, b"v", b"new", partition=0)
            assert producer.flush(DEADLINE_S) == 0

            def is_anew() -> bool:
                if not followed:
                    table.refresh(1)
                return table.items() == [(b"new", b"v")]

            until(is_anew, "the new rows, and none of the old ones")
            until(lambda: table.refresh(1) and table.stale is None, "up to date")

    def test_warns_of_a_topic_that_forgets(self, cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
        for config, warnings in (
            ({"retention.ms": "604800000"}, 1),
            ({"cleanup.policy": "compact"}, 0),
            ({"retention.ms": "-1"}, 0),
        ):
            caplog.clear()
            with TopicTable(conf_of(cluster), cluster.topic("policy", config=config), rows=Rows) as table:
                assert table.refresh(DEADLINE_S)
            assert caplog.text.count("are deleted by their age") == warnings, config

    def test_a_transaction_counts_when_it_is_committed(self, cluster: Cluster) -> None:
        topic = cluster.topic("transactions", config={"cleanup.policy": "compact"})
        producer = Producer({**conf_of(cluster), "transactional.id": topic})
        producer.init_transactions(DEADLINE_S)
        with TopicTable(conf_of(cluster), topic, rows=Rows) as table:
            for end in (producer.abort_transaction, producer.commit_transaction):
                producer.begin_transaction()
                producer.produce(topic, end.__name__.encode(), b"k", partition=0)
                producer.flush(DEADLINE_S)
                assert table.refresh(DEADLINE_S), "an open transaction holds nobody up"
                assert table.get(b"k") is None
                end(DEADLINE_S)
            # The marks that end a transaction come after the answer to who commits it.
            until(lambda: table.refresh(DEADLINE_S) and table.get(b"k") is not None, "what was committed")
            assert table.get(b"k") == b"commit_transaction"
            assert table.refresh(DEADLINE_S), "nor do the marks behind the last record"

    def test_what_compaction_took_away_is_gone_for_newcomers_as_well(self, second_cluster: Cluster) -> None:
        topic = second_cluster.topic("compacted", config=AT_ONCE)
        with TopicTable(conf_of(second_cluster), topic, rows=Rows) as early:
            for value in (b"1", b"2", None):
                early.put(b"gone", value, DEADLINE_S)
                early.put(b"kept", value or b"3", DEADLINE_S)
            numbers = iter(range(10_000))

            def compacted() -> bool:
                time.sleep(0.15)  # a segment is closed by the first record after segment.ms
                early.put(b"kept", b"%d" % next(numbers), DEADLINE_S)
                return min(offset or 0 for offset in offsets(second_cluster, topic)) > 5

            until(compacted, "compaction")
            with TopicTable(conf_of(second_cluster), topic, rows=Rows) as late:
                early.refresh(DEADLINE_S)
                late.refresh(DEADLINE_S)
                assert late.items() == early.items() == [(b"kept", b"%d" % (next(numbers) - 1))]


class TestRegistry:
    def test_compaction_loses_no_winner(self, second_cluster: Cluster) -> None:
        """Whoever comes after compaction sees the same registry and the same conflicts."""
        topic = second_cluster.topic("ids", config=AT_ONCE)
        with TopicStore(conf_of(second_cluster), topic) as early:
            early.apply(BLOCK)
            early.apply(register("0.1.0.1", "winner"))
            with contextlib.suppress(RegistryError):
                early._write(register("0.1.0.1", "loser"))
            # Rows of another kind in the same topic, so that something can be seen to be compacted.
            marks = second_cluster.plain_producer()
            count = 0

            def compacted() -> bool:
                nonlocal count
                time.sleep(0.15)  # a segment is closed by the first record after segment.ms
                marks.produce(topic, b"%d" % count, b"mark", partition=0)
                assert marks.flush(DEADLINE_S) == 0
                count += 1
                left = offsets(second_cluster, topic)
                return 3 not in left

            until(compacted, "compaction")
            early.apply(register("0.1.0.2", "afterwards"))
            with TopicStore(conf_of(second_cluster), topic) as late:
                assert late.load() == early.load()
                entry = late.load().by_id(HeaderId("0.1.0.1"))
                assert entry is not None
                assert entry.name == "winner"
                assert late.conflicts[0] == early.conflicts[0]
                assert late.conflicts[0].offset == 2

    def test_is_made_where_there_is_none(
        self, second_cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        location = f"kafka://{second_cluster.servers}/ids-{uuid.uuid4().hex}"
        with (
            TopicStore.from_location(location) as store,
            pytest.raises(RegistryError, match="there is no topic"),
        ):
            store.load()
        source_topic = second_cluster.topic("source", config=AT_ONCE)
        with TopicStore(conf_of(second_cluster), source_topic) as source:
            source.apply(BLOCK)
            wanted = source.apply(register("0.1.0.1", "first"))
        with TopicStore.create(location, wanted) as made:
            assert made.load() == wanted
        with TopicStore.create(location, wanted) as again:
            assert again.load() == wanted
            assert again.conflicts == []

    def test_goes_on_through_a_restart(self, second_cluster: Cluster, tmp_path: Path) -> None:
        topic = second_cluster.topic("restart", config={"cleanup.policy": "compact"})
        heard: list[int] = []
        with (
            TopicStore(conf_of(second_cluster), topic) as writer,
            TopicStore(conf_of(second_cluster), topic, snapshot=tmp_path / "s", timeout_s=1) as follower,
        ):
            writer.apply(BLOCK)
            follower.follow(lambda registry: heard.append(len(registry)))
            until(lambda: heard and follower.stale is None, "followed")
            second_cluster.stop()
            try:
                until(lambda: follower.stale is not None, "stale")
                assert follower.load().block(BLOCK.block.network) == BLOCK.block
                with pytest.raises(RegistryError, match="out of reach"):
                    follower.apply(register("0.1.0.1", "offline"))
            finally:
                second_cluster.start()
            until(lambda: follower.stale is None, "up to date again")
            until(lambda: applies(writer, register("0.1.0.1", "afterwards")), "in reach of the writer, too")
            until(lambda: follower.load().by_name("afterwards"), "the change")
            assert follower.load() == writer.load()
            assert follower.conflicts == []


def applies(store: TopicStore, change: Any) -> bool:
    """Return whether a change gets through: a broker that has just begun does not know all partitions yet."""
    try:
        store.apply(change)
    except RegistryError:
        return False
    return True


class TestSchemas:
    def test_survive_compaction_and_double_deposits(self, second_cluster: Cluster) -> None:
        topic = second_cluster.topic("schemas", config=AT_ONCE)
        text = json.dumps({"type": "record", "name": "Order", "fields": []})
        schema = Schema(Fingerprint.of(text), text, "Order")
        options = TopicSchemas(servers=second_cluster.servers, topic=topic, config={"log_level": 0})
        store = options.open()
        with contextlib.closing(store):
            store.put(schema)
            producer = second_cluster.plain_producer()

            def compacted() -> bool:
                time.sleep(0.15)  # a segment is closed by the first record after segment.ms
                producer.produce(topic, text, schema.fingerprint.code, partition=0)
                assert producer.flush(DEADLINE_S) == 0
                return 0 not in offsets(second_cluster, topic)

            until(compacted, "compaction")
            with contextlib.closing(options.open()) as late:
                assert late.get(schema.fingerprint) == text
