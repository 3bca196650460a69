"""Compaction by header on a real broker: what is kept, under kills, by two at once, and while it grows."""

from __future__ import annotations

import itertools
import json
import os
import random
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import confluent_kafka
import pytest
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # their stub
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)

from headerware import Chain, ConfigError, Headers, HeaderwareError
from headerware.interceptors import Sign, Slice
from headerware.interceptors.slice.header import SLICE_HEADER, SliceHeader
from headerware.kafka.reader import TopicReader
from headerware.ops.compaction import Compaction, CompactionResult, Rule, worker
from headerware.workers import loop
from headerware.workers.pace import Pace
from headerware.workers.transactions import TransactionalSender
from tests.unit.clients.test_messages import put_raw
from tests.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from confluent_kafka import Message

    from tests.integration.conftest import Cluster

pytestmark = pytest.mark.broker
DEADLINE_S: Final = 60.0
TIMESTAMP_MS: Final = 1_700_000_000_000
FOREVER: Final = {"retention.ms": "-1"}
COMPACTED: Final = {"cleanup.policy": "compact"}


class Topics:
    """A source, a target that the broker compacts, and a side topic."""

    def __init__(self, cluster: Cluster, *, partitions: int = 1, compacted: bool = True) -> None:
        self.cluster = cluster
        self.partitions = partitions
        self.source = cluster.topic("orders", partitions=partitions, config=FOREVER)
        self.target = cluster.topic(
            "latest", partitions=partitions, config=COMPACTED if compacted else FOREVER
        )
        self.side_topic = cluster.topic("side", partitions=partitions, config=FOREVER) if compacted else None
        self._wire = cluster.plain_producer()

    def put(self, key: bytes | None, version: object, value: bytes | None = b"v", **parts: Any) -> None:
        headers: list[Any] = [] if version is None else [("version", str(version).encode())]
        parts = {"partition": 0, "timestamp": TIMESTAMP_MS, "headers": headers, **parts}
        self._wire.produce(parts.pop("topic", self.source), value, key, **parts)
        self._wire.poll(0)

    def flush(self) -> None:
        assert self._wire.flush(DEADLINE_S) == 0

    def open(self, **options: Any) -> Compaction:
        settings = {"bootstrap.servers": self.cluster.servers}
        rule = Rule(header="version", missing=options.pop("missing", "unresolved"))
        return Compaction(settings, self.source, self.target, rule, side_topic=self.side_topic, **options)

    def compact(self, **options: Any) -> CompactionResult:
        self.flush()
        with self.open(**options) as work:
            return work.execute()

    def read(self, topic: str | None) -> list[Message]:
        assert topic is not None
        self.cluster.wait_until_stable(topic)
        return self.cluster.on_the_wire(topic)

    def values(self, topic: str | None = None) -> list[bytes | None]:
        return [message.value() for message in self.read(topic or self.target)]


@pytest.fixture
def topics(cluster: Cluster) -> Topics:
    return Topics(cluster)


@contextmanager
def following(work: Compaction, **options: Any) -> Iterator[list[BaseException]]:
    """Let a compaction follow its source in a thread, and stop it."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            work.execute(follow=True, **options)
        except HeaderwareError as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield failures
    finally:
        work.stop()
        thread.join(DEADLINE_S)
        assert not thread.is_alive()


class TestWhatIsKept:
    def test_is_the_record_with_the_highest_version_as_it_was(self, cluster: Cluster) -> None:
        topics = Topics(cluster, partitions=2)
        for partition in (0, 1):
            for number, (key, version) in enumerate(
                [(b"a", 3), (b"b", 1), (b"a", 2), (b"b", 1), (b"c", 7), (b"a", 1)]
            ):
                value = b"%d.%d" % (partition, number)
                topics.put(key, version, value, partition=partition, timestamp=TIMESTAMP_MS + number)
        result = topics.compact()
        found = topics.read(topics.target)
        for partition in (0, 1):
            own = [message for message in found if message.partition() == partition]
            numbers = [int((message.value() or b"").split(b".")[1]) for message in own]
            assert numbers == [0, 3, 4], "in the order of the source"
            assert [message.timestamp()[1] - TIMESTAMP_MS for message in own] == numbers
            assert [message.key() for message in own] == [b"a", b"b", b"c"]
            assert [Headers(m.headers()).last("version") for m in own] == [b"3", b"1", b"7"]
        assert (result.records, result.written, result.lost) == (12, 6, {"older": 4, "tie": 2})
        assert result.ok
        assert topics.compact().records == 0

    def test_a_tombstone_deletes_only_what_is_older(self, topics: Topics) -> None:
        topics.put(b"a", 5, b"newer")
        topics.put(b"a", 4, None)
        topics.put(b"b", 1, b"older")
        topics.put(b"b", 2, None)
        topics.put(b"c", 1, b"kept")
        topics.put(b"c", None, None)
        result = topics.compact()
        assert [(m.key(), m.value()) for m in topics.read(topics.target)] == [
            (b"a", b"newer"),
            (b"b", None),
            (b"c", b"kept"),
        ]
        assert (result.tombstones, result.unresolved) == (1, {"no_version": 1})
        assert [(m.key(), m.value()) for m in topics.read(topics.side_topic)] == [(b"c", None)]

    @pytest.mark.parametrize("missing", ["unresolved", "oldest", "timestamp"])
    def test_records_without_a_version(self, topics: Topics, missing: str) -> None:
        topics.put(b"a", TIMESTAMP_MS, b"1")
        topics.put(b"a", None, b"2", timestamp=TIMESTAMP_MS + 1)
        topics.put(b"b", None, b"3")
        topics.put(b"b", None, b"4")
        topics.compact(missing=missing)
        kept = {"unresolved": [b"1"], "oldest": [b"1", b"4"], "timestamp": [b"2", b"4"]}
        assert topics.values() == kept[missing]
        assert topics.values(topics.side_topic) == ([b"2", b"3", b"4"] if missing == "unresolved" else [])

    def test_what_cannot_be_judged_stays_in_its_order_without_a_side_topic(self, cluster: Cluster) -> None:
        topics = Topics(cluster, compacted=False)
        topics.put(b"a", 1, b"1")
        topics.put(None, 1, b"no key")
        topics.put(b"a", "x", b"malformed")
        topics.put(b"a", 2, b"2")
        result = topics.compact()
        assert topics.values() == [b"no key", b"malformed", b"2"]
        assert (result.unresolved, result.ok) == ({"no_key": 1, "malformed": 1}, False)

    def test_the_broker_s_compaction_keeps_the_winner(self, topics: Topics) -> None:
        # What Kafka's own compaction keeps is the last by offset.
        with topics.open() as work, following(work):
            for version in (3, 1, 5, 4, 2):
                topics.put(b"a", version, b"%d" % version)
                topics.flush()
            until(lambda: topics.values()[-1:] == [b"5"])
        assert topics.compact().records == 0
        assert topics.values()[-1] == b"5"

    def test_a_record_that_nobody_can_read_stays_in_the_source_and_stops_nothing(
        self, topics: Topics
    ) -> None:
        put_raw({"bootstrap.servers": topics.cluster.servers}, topics.source, (b"odd", b"\xff\xfe"))
        topics.put(b"a", 1, b"1")
        result = topics.compact()
        assert (result.unresolved, result.ok) == ({"unreadable": 1}, False)
        assert topics.values() == [b"1"]
        assert topics.compact().records == 0

    def test_a_kill_between_two_transactions_of_a_batch_loses_nothing_that_is_known(
        self, topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(loop, "_MAX_TRANSACTION_BYTES", 1)
        store, audit = str(tmp_path / "store"), topics.cluster.topic("accounts")
        topics.put(b"a", 1, b"1")
        topics.put(b"b", "x", b"malformed")
        topics.put(b"c", 1, b"2")
        topics.flush()
        with topics.open(store=store, audit=audit) as work:
            told = work.committed

            def killed(outcomes: Any) -> None:
                told(outcomes)
                if outcomes:
                    raise KeyboardInterrupt

            monkeypatch.setattr(work, "committed", killed)
            with pytest.raises(KeyboardInterrupt):
                work.execute()
            (translated,) = work.translate(work.worker.group_id)
        assert (translated.source, translated.exact) == (1, True)
        result = topics.compact(store=store, audit=audit)
        assert (result.records, result.unresolved) == (2, {"malformed": 1})
        assert (topics.values(), topics.values(topics.side_topic)) == ([b"1", b"2"], [b"malformed"])
        accounts = [json.loads(value or b"")["partitions"]["0"] for value in topics.values(audit)]
        assert [(each["from"], each["to"]) for each in accounts] == [(0, 1), (1, 2), (2, 3)]


class TestMessagesInSlices:
    def test_are_kept_or_left_out_whole(self, cluster: Cluster) -> None:
        topics = Topics(cluster, compacted=False)
        step = Slice(max_bytes=1_500)
        producer = cluster.producer(step)
        values = [b"%d" % number * 5_000 for number in range(4)]
        for key, version, value in zip(b"aaab", (1, 3, 2, 1), values, strict=True):
            headers = [("version", b"%d" % version)]
            producer.produce(topics.source, value, bytes([key]), 0, headers=headers)
            assert producer.flush(DEADLINE_S) == 0
        topics.put(b"b", 0, b"less")
        result = topics.compact()
        assert result.ok
        assert result.lost.keys() == {"older"}
        assert (result.waiting, result.records) == (0, result.written + result.lost["older"])
        cluster.wait_until_stable(topics.target)
        found = cluster.rest_of(cluster.consumer(topics.target, step), topics.target)
        assert [message.value() for message in found] == [values[1], values[3]]

    def test_that_are_not_whole_wait(self, topics: Topics, cluster: Cluster, cut: Any) -> None:
        topics = Topics(cluster, compacted=False)
        pieces = cut(topics.source, bytes(5_000))
        wire = cluster.plain_producer()

        def send(*records: Any) -> None:
            for each in records:
                headers = [*each.headers, *([("version", b"9")] if each is pieces[0] else [])]
                wire.produce(topics.source, each.value, each.key, 0, headers=headers)
            assert wire.flush(DEADLINE_S) == 0

        topics.put(b"key", 1, b"whole")
        topics.flush()
        send(*pieces[:-1])
        assert topics.compact().waiting == len(pieces) - 1
        assert topics.values() == [b"whole"]
        send(pieces[-1])
        topics.put(b"key", 8, b"less")
        assert topics.compact().written == len(pieces)
        cluster.wait_until_stable(topics.target)
        found = cluster.rest_of(cluster.consumer(topics.target, Slice()), topics.target)
        assert [message.value() for message in found] == [b"whole", bytes(5_000)]

    def test_that_are_not_complete_are_unresolved_if_more_wait_than_a_commit_can_note(
        self, cluster: Cluster
    ) -> None:
        topics, rest = Topics(cluster, compacted=False), random.Random(7)
        slices = 0
        for number in range(40_000):
            if rest.random() < 0.5:
                topics.put(b"%d" % number, 1, b"alone")
                continue
            slices += 1
            part = SliceHeader(number.to_bytes(16), 0, 2, 10, 5).encode()
            topics.put(b"%d" % number, None, b"slice", headers=[("version", b"1"), (SLICE_HEADER, part)])
        result = topics.compact()
        given_up = result.unresolved["incomplete"]
        assert 0 < given_up < slices
        assert (result.written, result.waiting) == (40_000 - slices, slices - given_up)
        assert Counter(topics.values()) == {b"alone": 40_000 - slices, b"slice": given_up}
        again = topics.compact()
        assert (again.records, again.written, again.unresolved) == (0, 0, {})

    def test_do_not_go_into_a_compacted_target(self, topics: Topics, cluster: Cluster) -> None:
        producer = cluster.producer(Slice(max_bytes=1_500))
        producer.produce(topics.source, bytes(5_000), b"a", 0, headers=[("version", b"2")])
        assert producer.flush(DEADLINE_S) == 0
        topics.put(b"a", 1, b"small")
        result = topics.compact()
        assert list(result.unresolved) == ["exposed_slices"]
        assert topics.values() == [b"small"]
        assert len(topics.read(topics.side_topic)) == result.unresolved["exposed_slices"]


class TestUnverified:
    def test_records_win_nothing_and_go_to_the_side_topic(
        self, topics: Topics, cluster: Cluster, keyring: str
    ) -> None:
        sign = Sign(keyring=keyring, key_id="test", require="enforce")
        producer = cluster.producer(sign)
        for version in (1, 2):
            headers = [("version", b"%d" % version)]
            producer.produce(topics.source, b"%d" % version, b"a", 0, headers=headers)
        assert producer.flush(DEADLINE_S) == 0
        topics.put(b"a", 9, b"forged")
        topics.put(b"a", 9, None)
        result = topics.compact(chain=producer.chain)
        assert (result.unresolved, result.written) == ({"unverified": 2}, 1)
        assert topics.values(topics.side_topic) == [b"forged", None]
        # The copies are signed for the topic that they come from.
        reader = Sign(
            keyring=keyring, key_id="test", require="enforce", accept_origins=(f"*/{topics.source}",)
        )
        cluster.wait_until_stable(topics.target)
        found = cluster.rest_of(cluster.consumer(topics.target, reader), topics.target)
        assert [message.value() for message in found] == [b"2"]

    def test_slices_do_not_take_the_place_of_genuine_ones(self, cluster: Cluster, keyring: str) -> None:
        topics = Topics(cluster, partitions=2, compacted=False)
        chain = Chain([Slice(max_bytes=1_500), Sign(keyring=keyring, key_id="test", require="enforce")])
        producer = cluster.producer(chain=chain)
        producer.produce(topics.source, bytes(5_000), b"a", 0, headers=[("version", b"1")])
        assert producer.flush(DEADLINE_S) == 0
        slices = cluster.on_the_wire(topics.source)
        assert len(slices) > 2
        wire = cluster.plain_producer()
        forged: list[Any] = [pair for pair in Headers(slices[0].headers() or []) if pair[0] != "hw.sig"]
        wire.produce(topics.source, b"forged", b"a", 1, headers=forged)
        for each in slices:
            wire.produce(topics.source, each.value(), each.key(), 1, headers=each.headers())
        assert wire.flush(DEADLINE_S) == 0
        result = topics.compact(chain=chain)
        assert (result.unresolved, result.written) == ({"unverified": 1}, 2 * len(slices))
        assert result.waiting == 0


class TestWhatIsKnown:
    def test_survives_the_loss_of_the_store_and_of_the_source_s_beginning(
        self, topics: Topics, cluster: Cluster, tmp_path: Path
    ) -> None:
        store = tmp_path / "store"
        topics.put(b"a", 9, b"9")
        topics.compact(store=str(store))
        store.unlink()
        admin = AdminClient({"bootstrap.servers": cluster.servers})
        for future in admin.delete_records([TopicPartition(topics.source, 0, 1)]).values():
            future.result()
        topics.put(b"a", 8, b"8")
        assert topics.compact(store=str(store)).lost == {"older": 1}
        assert topics.values() == [b"9"]

    def test_is_for_one_rule_and_for_topics_that_stay_the_same(
        self, topics: Topics, cluster: Cluster
    ) -> None:
        topics.put(b"a", 1)
        topics.compact()
        with pytest.raises(HeaderwareError, match="belong to another copy: the rule differs"):
            topics.compact(missing="oldest")
        with pytest.raises(ConfigError, match="start the copy with an empty target"):
            topics.compact(group_id="another")
        admin = AdminClient({"bootstrap.servers": cluster.servers})
        admin.delete_topics([topics.target])[topics.target].result()
        until(lambda: topics.target not in admin.list_topics(timeout=DEADLINE_S).topics)
        cluster.broker.create_topic(topics.target, config=COMPACTED)
        with pytest.raises(HeaderwareError, match="or the source or the target was recreated"):
            topics.compact()

    def test_is_committed_of_all_partitions_at_each_start(
        self, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        topics = Topics(cluster, partitions=2)
        for partition in (0, 1):
            topics.put(b"a", 1, partition=partition)
        topics.compact()
        sent: list[dict[int, int]] = []
        send = TransactionalSender.send

        def seen(sender: Any, records: Any, offsets: Any, *rest: Any, **options: Any) -> Any:
            if offsets:
                sent.append({each.partition: each.offset for each in offsets})
            return send(sender, records, offsets, *rest, **options)

        monkeypatch.setattr(TransactionalSender, "send", seen)
        topics.put(b"a", 2, partition=0)
        topics.compact()
        assert sent == [{0: 1, 1: 1}, {0: 2}], "the broker forgets what stands still"

    def test_is_not_copied_once_more_if_the_broker_has_forgotten_a_partition(self, cluster: Cluster) -> None:
        topics = Topics(cluster, partitions=2)
        group = f"headerware-compact-{topics.target}"
        for partition in (0, 1):
            topics.put(b"a", 1, partition=partition)
        topics.compact()
        offset, metadata = cluster.committed(group, topics.source, 0)
        admin = AdminClient({"bootstrap.servers": cluster.servers})
        admin.delete_consumer_groups([group])[group].result(DEADLINE_S)
        consumer = confluent_kafka.Consumer({"bootstrap.servers": cluster.servers, "group.id": group})
        kept = TopicPartition(topics.source, 0, offset, metadata=metadata)
        consumer.commit(offsets=[kept], asynchronous=False)
        consumer.close()
        with pytest.raises(ConfigError, match=rf"{topics.target}\[1\] has records .* have expired"):
            topics.compact()
        assert len(topics.values()) == 2

    def test_waits_for_a_new_leader_that_does_not_know_the_end(
        self, topics: Topics, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        topics.put(b"a", 1, b"1")
        topics.compact()
        start, lies = TopicReader.start, [0, 0]

        def late(reader: Any, *rest: Any, offsets: Any = None) -> None:
            start(reader, *rest, offsets=offsets)
            if reader._topic == topics.source and offsets is None and lies:
                reader._ends = {0: lies.pop()}

        monkeypatch.setattr(TopicReader, "start", late)
        topics.put(b"a", 2, b"2")
        assert topics.compact().written == 1
        assert (topics.values(), lies) == ([b"1", b"2"], [])

    def test_is_learned_as_slowly_as_was_asked(self, topics: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
        kept: list[int] = []
        monkeypatch.setattr(Pace, "keep", lambda _, count: kept.append(count))
        topics.put(b"a", 1)
        topics.put(b"a", 2)
        topics.compact(rate=1.0)
        assert kept == [1, 1, 1, 1], "once to learn, once to write"

    def test_offsets_that_were_deleted_unread_are_told(self, topics: Topics, cluster: Cluster) -> None:
        topics.put(b"a", 1)
        topics.compact()
        topics.put(b"a", 2)
        topics.put(b"a", 0)
        topics.flush()
        admin = AdminClient({"bootstrap.servers": cluster.servers})
        for future in admin.delete_records([TopicPartition(topics.source, 0, 2)]).values():
            future.result()
        result = topics.compact()
        assert (result.missed, result.ok, result.lost) == (1, False, {"older": 1})


class TestWhatTheBrokerRefuses:
    """Inside a transaction the client says "Erroneous state" only, and each start ended in it."""

    FAR_AHEAD_MS: Final = time.time_ns() // 1_000_000 + 48 * 3_600_000

    def fill(self, topics: Topics) -> None:
        """Put records that the source takes, and the others do not: one too large, and one too far ahead."""
        set_config(topics, topics.source, {"message.timestamp.after.max.ms": str(2**62)})
        for at in range(3_000):
            topics.put(b"%d" % at, 1)
        topics.put(b"1", 2, bytes(200_000))
        topics.put(b"2", 2, b"early", timestamp=self.FAR_AHEAD_MS)
        topics.put(b"3", 2, b"last")
        topics.flush()
        for topic in (topics.source, topics.target, topics.side_topic):
            if topic is not None:
                set_config(topics, topic, {"max.message.bytes": "100000"})

    def test_is_left_alone_and_told_and_the_rest_goes_on(self, topics: Topics) -> None:
        self.fill(topics)
        result = topics.compact()
        assert (result.written, result.unresolved, result.is_done) == (2_998, {"refused": 2}, True)
        causes = "Message size too large", "Invalid timestamp"
        expected = [
            rf"{topic} refuses the copy of {topics.source}\[0\]@{at}: Broker: {cause} .*; {left}"
            for topic, left in (
                (topics.target, f"it is written to {topics.side_topic}"),
                (topics.side_topic, "it is not copied"),
            )
            for at, cause in zip((3_000, 3_001), causes, strict=True)
        ]
        assert len(result.refused) == len(expected)
        # How many of them share a transaction decides on the order.
        for found, pattern in zip(sorted(result.refused), sorted(expected), strict=True):
            assert re.fullmatch(pattern, found)
        assert topics.values()[-1] == b"last"
        again = topics.compact()
        assert (again.written, again.unresolved) == (0, {})

    def test_is_no_failure_of_the_command(self, cluster: Cluster) -> None:
        topics = Topics(cluster, compacted=False)
        self.fill(topics)
        code, shown = Command(topics).run("--execute")
        assert (code, shown["ok"], shown["result"]["unresolved"]) == (3, False, {"refused": 2})

    def test_fails_the_command_if_it_is_an_account(self, topics: Topics) -> None:
        topics.put(b"a", 1)
        audit = topics.cluster.topic("audit", config={"max.message.bytes": "100"})
        with pytest.raises(HeaderwareError, match=rf"{audit} takes no accounts: .*large"):
            topics.compact(audit=audit)
        assert topics.values() == []


def set_config(topics: Topics, topic: str, values: Mapping[str, str]) -> None:
    """Set some configuration of a topic, and let the rest be."""
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in values.items()
    ]
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": topics.cluster.servers})
    for asked in admin.incremental_alter_configs([resource]).values():
        asked.result(DEADLINE_S)


class TestTopicsThatDoNotFit:
    def test_are_told_and_nothing_is_done(self, cluster: Cluster) -> None:
        topics = Topics(cluster)
        topics.put(b"a", 1)
        topics.flush()
        topics.side_topic = None
        topics.target = cluster.topic(
            "latest",
            partitions=2,
            config={"message.timestamp.type": "LogAppendTime"},
        )
        with topics.open() as work:
            assert work.preview().problems[0] == (
                f"topic {topics.target} has 2 partitions, expected 1 partition, as {topics.source} has; "
                "create another topic with 1 partition"
            )
        topics.target = cluster.topic(
            "latest",
            config={
                "message.timestamp.type": "LogAppendTime",
                "retention.ms": "1000",
                "max.message.bytes": "1000",
            },
        )
        with topics.open() as work:
            problems = " ".join(work.preview().problems)
            for part in ("CreateTime", "retention.ms", "max.message.bytes"):
                assert part in problems
            with pytest.raises(ConfigError, match="CreateTime"):
                work.execute()
        topics.target = cluster.topic("latest", config=COMPACTED)
        with topics.open() as work:
            assert "--side-topic" in " ".join(work.preview().problems)
        topics.target = "missing"
        with topics.open() as work:
            result = work.preview()
            assert "does not exist" in " ".join(result.problems)
            assert (result.written, result.executed) == (1, False), "what it would do is told all the same"

    def test_are_named_where_the_cluster_refuses_to_tell_of_them(self, topics: Topics) -> None:
        topics.target = "no topic's name"
        with pytest.raises(KafkaException) as raised:
            topics.open()
        assert raised.value.args[0].str().startswith("no topic's name: ")

    def test_are_named_before_anything_is_read(self, topics: Topics) -> None:
        topics.put(b"a", 1)
        topics.flush()
        topics.target = "missing"
        told: list[tuple[int, list[str]]] = []
        with topics.open() as work:
            work.preview(lambda result: told.append((result.records, list(result.problems))))
        assert told[0] == (0, ["topic missing does not exist; create it with 1 partition"])
        code, shown = Command(topics).run("--translate-group", "billing")
        assert (code, shown["error"]["message"]) == (
            1,
            f"topic missing does not exist; copy {topics.source} into it first",
        )

    def test_are_different_ones(self, topics: Topics) -> None:
        topics.target = topics.source
        with pytest.raises(ConfigError, match="different topics"):
            topics.open()


class TestFollowing:
    def test_adds_what_wins_later_and_accounts_for_it(self, topics: Topics, cluster: Cluster) -> None:
        audit = cluster.topic("audit")
        topics.put(b"a", 5, b"5")
        topics.flush()
        with topics.open(audit=audit) as work, following(work) as failures:
            until(lambda: topics.values() == [b"5"])
            for version in (4, 6, 5, 7):
                topics.put(b"a", version, b"%d" % version)
            topics.flush()
            until(lambda: topics.values()[-1] == b"7")
        assert failures == []
        accounts = [json.loads(message.value() or b"") for message in topics.read(audit)]
        assert accounts[0]["partitions"] == {"0": {"from": 0, "to": 1, "wins": 1}}
        assert [each["partitions"]["0"]["to"] for each in accounts][-1] == 5
        assert sum(each["partitions"]["0"].get("loses: older", 0) for each in accounts) >= 1

    def test_the_later_of_two_takes_over(self, topics: Topics) -> None:
        with topics.open() as first, following(first) as failures:
            topics.put(b"a", 1, b"1")
            topics.flush()
            until(lambda: topics.values() == [b"1"])
            with topics.open() as second, following(second) as others:
                versions = itertools.count(2)

                def grow() -> None:
                    topics.put(b"a", version := next(versions), b"%d" % version)
                    topics.flush()
                    time.sleep(0.05)

                # One that is idle learns of it with the next record.
                until(lambda: failures, meanwhile=grow)
                last = b"%d" % (next(versions) - 1)
                until(lambda: topics.values()[-1] == last)
            assert others == []
        values = [int(value or b"") for value in topics.values()]
        assert values == sorted(set(values)), "in order, and nothing comes twice"
        assert "has taken over" in str(failures[0])

    def test_one_that_is_idle_keeps_its_offsets_and_learns_that_another_has_taken_over(
        self, topics: Topics, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(loop, "_RENEW_S", 0.1)
        group = f"headerware-compact-{topics.target}"
        with topics.open() as first, following(first) as failures:
            until(lambda: topics.cluster.committed(group, topics.source)[0] == 0)
            with topics.open() as second, following(second) as others:
                until(lambda: failures)
            assert others == []
        assert "has taken over" in str(failures[0])

    def test_ends_if_the_target_was_made_again(
        self, topics: Topics, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(loop, "_RENEW_S", 0.1)
        admin = AdminClient({"bootstrap.servers": cluster.servers})
        with topics.open() as work, following(work) as failures:
            until(lambda: cluster.committed(f"headerware-compact-{topics.target}", topics.source)[0] == 0)
            admin.delete_topics([topics.target])[topics.target].result()
            until(lambda: failures)
        assert "was deleted or recreated" in str(failures[0])


class TestTranslatedGroups:
    def group(self, topics: Topics, name: str, offset: int) -> None:
        consumer = topics.cluster.consumer(topics.source, group_id=name)
        topics.cluster.take(consumer, offset)
        topics.cluster.commit(consumer)
        consumer.close()

    def test_go_on_where_nothing_is_missing(self, topics: Topics, tmp_path: Path) -> None:
        for number in range(3_000):
            topics.put(b"%d" % number, 1, b"%d" % number)
        store = str(tmp_path / "store")
        with topics.open(store=store, rate=1e9) as work:
            topics.flush()
            work.execute()
        for number in range(3_000, 3_100):
            topics.put(b"%d" % number, 1, b"%d" % number)
        topics.compact(store=store)
        groups = {f"{topics.source}-{kind}": offset for kind, offset in [("all", 3_100), ("some", 3_050)]}
        for name, offset in groups.items():
            self.group(topics, name, offset)
        with topics.open(store=store) as work:
            (done,), (behind,) = (work.translate(name) for name in groups)
            assert (done.exact, done.lag, behind.exact, behind.lag) == (True, 0, False, 50)
            for name in groups:
                work.commit_translated(name, work.translate(name))
            with pytest.raises(HeaderwareError, match="already"):
                work.commit_translated(name, [done])
        reader = topics.cluster.consumer(topics.target, group_id=f"{topics.source}-all")
        assert topics.cluster.rest_of(reader, topics.target) == []
        reader = topics.cluster.consumer(topics.target, group_id=f"{topics.source}-some")
        first = int(topics.cluster.take(reader, 1)[0].value() or b"")
        assert 2_000 < first <= 3_050, "not from the beginning, and nothing is left out"

    def test_do_not_go_on_behind_what_is_not_committed_yet(
        self, topics: Topics, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # The worker is at 1, the group at 2, and the worker writes the records from 1 to 4.
        monkeypatch.setattr(worker, "_SETTLED_S", 0.1)
        topics.put(b"a", 1)
        topics.compact()
        for version in (2, 3, 4):
            topics.put(b"a", version)
        topics.flush()
        self.group(topics, f"{topics.source}-group", 2)
        cluster.wait_until_stable(topics.target)
        (end,) = cluster.ends(topics.target)
        wire = cluster.plain_producer(**{"transactional.id": f"{topics.target}-worker"})
        wire.init_transactions(DEADLINE_S)
        wire.begin_transaction()
        wire.produce(topics.target, b"v", b"a", 0)
        assert wire.flush(DEADLINE_S) == 0
        with topics.open() as work:
            (found,) = work.translate(f"{topics.source}-group")
        wire.abort_transaction(DEADLINE_S)
        assert (found.source, found.target, found.exact) == (2, end, False)

    def test_do_not_go_by_the_file_of_another_compaction(self, topics: Topics, tmp_path: Path) -> None:
        topics.put(b"a", 1)
        topics.compact(store=str(tmp_path / "store"))
        topics.put(b"a", 2)
        topics.compact()
        self.group(topics, f"{topics.source}-group", 1)
        with topics.open(store=str(tmp_path / "store"), missing="oldest", group_id="other") as work:
            other = work._known_offset
            with pytest.raises(ConfigError, match="of other topics"):
                other(0, 1)
        with topics.open(store=str(tmp_path / "missing")) as work, pytest.raises(ConfigError, match="used"):
            work.translate(f"{topics.source}-group")

    def test_with_members_are_left_alone(self, topics: Topics) -> None:
        topics.put(b"a", 1)
        topics.compact()
        name = f"{topics.source}-alive"
        consumer = topics.cluster.consumer(topics.source, group_id=name)
        topics.cluster.take(consumer, 1)
        topics.cluster.commit(consumer)
        with topics.open() as work, pytest.raises(KafkaException):
            work.commit_translated(name, work.translate(name))


class Command:
    """``headerware compact`` as a process."""

    def __init__(self, topics: Topics) -> None:
        self._command = [
            *(sys.executable, "-m", "headerware", "compact", topics.source, topics.target),
            *("--bootstrap-servers", topics.cluster.servers, "--header", "version", "--json"),
            *(() if topics.side_topic is None else ("--side-topic", topics.side_topic)),
        ]

    def start(self, *options: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*self._command, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def run(self, *options: str) -> tuple[int, Mapping[str, Any]]:
        with self.start(*options) as process:
            shown, said = process.communicate(timeout=DEADLINE_S)
        assert said == ""
        return process.returncode, json.loads(shown)


class TestCommand:
    def test_shows_first_then_does_it(self, topics: Topics) -> None:
        for version in (2, 1):
            topics.put(b"a", version, b"%d" % version)
        topics.flush()
        command = Command(topics)
        code, shown = command.run()
        assert (code, shown["result"]["written"], shown["result"]["executed"]) == (0, 1, False)
        assert topics.read(topics.target) == []
        code, shown = command.run("--execute")
        assert (code, shown["result"]["lost"]) == (0, {"older": 1})
        assert topics.values() == [b"2"]
        assert command.run("--follow")[0] == 2
        code, shown = command.run("--translate-group", "nobody")
        assert (code, shown["result"]["partitions"]) == (0, [])

    def test_says_it_in_words(self, topics: Topics) -> None:
        for key, version in ((b"a", 2), (b"a", 1), (None, 1)):
            topics.put(key, version, b"v")
        topics.flush()
        group = f"{topics.source}-group"
        consumer = topics.cluster.consumer(topics.source, group_id=group)
        topics.cluster.take(consumer, 2)
        topics.cluster.commit(consumer)
        consumer.close()

        def said(*options: str) -> str:
            command = [sys.executable, "-m", "headerware", "compact", topics.source, topics.target]
            command += ["--bootstrap-servers", topics.cluster.servers, "--header", "version", *options]
            return subprocess.run(
                command, capture_output=True, text=True, timeout=DEADLINE_S, check=False
            ).stdout

        shown = said()
        for part in (
            r"in the way: .*--side-topic",
            r"would be written +1 +\d+ bytes, 0 tombstones",
            r"would be left out +1 +their key has a record with a higher version",
            r"\n *unresolved +1 +they have no key",
            "nothing was written; --execute writes it",
        ):
            assert re.search(part, shown), shown
        side = ("--side-topic", str(topics.side_topic))
        assert re.search(r"\n +written +1 |\nwritten +1 ", said("--execute", *side))
        shown = said("--translate-group", group, *side)
        assert re.search(r"\n *0 +2 +1 +0 +some records come again", shown), shown
        assert "nothing was committed" in shown
        assert "committed" in said("--translate-group", group, "--execute", *side)
        assert topics.cluster.committed(group, topics.target)[0] == 0

    def test_a_signal_stops_one_that_follows(self, topics: Topics) -> None:
        topics.put(b"a", 1)
        topics.flush()
        process = Command(topics).start("--execute", "--follow")
        until(lambda: topics.read(topics.target))
        process.terminate()
        shown, _ = process.communicate(timeout=DEADLINE_S)
        assert (process.returncode, json.loads(shown)["ok"]) == (0, True)


@pytest.mark.long
class TestKilledAtAnyMoment:
    # `HEADERWARE_COMPACT_RECORDS=1000000 pytest ...` is the long form.
    RECORDS: Final = int(os.environ.get("HEADERWARE_COMPACT_RECORDS", "12000"))

    def test_each_key_ends_with_its_winner_and_nothing_comes_twice(
        self, cluster: Cluster, tmp_path: Path
    ) -> None:
        topics, rest, kills = Topics(cluster, partitions=2), random.Random(7), 6
        best: dict[tuple[int, bytes], tuple[int, int]] = {}
        strays: list[int] = []

        def grow(first: int, count: int) -> None:
            for number in range(first, first + count):
                key, version = b"%d" % rest.randrange(self.RECORDS // 6), rest.randrange(1_000)
                if not number % 50:
                    strays.append(number)
                    topics.put(key, None, b"%d" % number, partition=number % 2)
                    continue
                place = number % 2, key
                best[place] = max(best.get(place, (version, number)), (version, number))
                topics.put(key, version, b"%d" % number, partition=number % 2)
            topics.flush()

        def has_grown(written: int) -> bool:
            return cluster.count_committed(topics.target) > written

        share = self.RECORDS // (kills + 1)
        command, store = Command(topics), ("--store", str(tmp_path / "store"))
        for turn in range(kills):
            grow(turn * share, share)
            written = cluster.count_committed(topics.target)
            # The topic grows while it works, and half of the time nothing is known of what was before.
            process = command.start(
                "--execute", "--follow", "--rate", str(share * 2), *store[: 2 * (turn % 2)]
            )
            if turn % 3:  # it has written something, and dies in the middle; else it dies while it starts
                until(partial(has_grown, written))
            time.sleep(rest.uniform(0.0, 0.8))
            with suppress(ProcessLookupError):
                process.kill()
            process.communicate()
        grow(kills * share, share)
        code, shown = command.run("--execute", *store)
        assert (code, shown["error"]) == (3, None), "strays are unresolved"
        assert 0 < shown["result"]["records"] < kills * share + share, "the killed ones did some of it"
        found = topics.read(topics.target)
        numbers = [int(message.value() or b"") for message in found]
        assert len(set(numbers)) == len(numbers), "nothing comes twice"
        last = {(m.partition(), m.key()): int(m.value() or b"") for m in found}
        assert last == {place: number for place, (_, number) in best.items()}
        for parity in (0, 1):
            own = [number for number in numbers if number % 2 == parity]
            assert own == sorted(own), "in order"
        assert sorted(int(value or b"") for value in topics.values(topics.side_topic)) == strays
