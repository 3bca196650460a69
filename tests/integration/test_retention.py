"""Retention by header on a real broker: what is removed, what stays, and what comes meanwhile."""

from __future__ import annotations

import itertools
import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from headerware import Chain, ConfigError, HeaderwareError, Producer, load_chain
from headerware.interceptors import ClaimCheck, Sign, Slice
from headerware.kafka.admin import Admin
from headerware.kafka.reader import Progress, TopicReader
from headerware.object_store import FolderObjects
from headerware.ops.compaction import Compaction, CompactionResult
from headerware.ops.retention import worker
from headerware.ops.retention.rules import Lifetime, RetentionRule
from headerware.ops.retention.worker import RETAINED, HeldBack, Retention, RetentionResult
from headerware.workers.ownership import Lease, LeaseHeldError, LeaseLostError
from tests.unit.clients.test_messages import put_raw
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.integration.conftest import Cluster

pytestmark = pytest.mark.broker
DEADLINE_S: Final = 60.0
PAST: Final = b"1000000000000"
FUTURE: Final = b"9000000000000"


class Topic:
    """A topic that a test fills."""

    def __init__(self, cluster: Cluster, **config: str) -> None:
        self.cluster = cluster
        settings = {name.replace("_", "."): value for name, value in config.items()}
        self.config = {"retention.ms": "-1", **settings}
        self.name = cluster.topic("clicks", config=self.config)
        self._wire = cluster.plain_producer()

    def put(
        self, value: bytes | None, expires: bytes | None, *, key: bytes | None = b"k", **more: Any
    ) -> None:
        timestamp_ms, flush = more.pop("timestamp_ms", 0), more.pop("flush", True)
        headers: Any = [] if expires is None else [("hw.expires", expires)]
        headers += more.items()
        self._wire.produce(self.name, value, key, 0, timestamp=timestamp_ms, headers=headers)
        if flush:
            self.flush()

    def flush(self) -> None:
        assert self._wire.flush(DEADLINE_S) == 0

    def open(self, rule: RetentionRule | None = None, **options: Any) -> Retention:
        settings = {"bootstrap.servers": self.cluster.servers}
        return Retention(settings, self.name, rule or RetentionRule(hold="hold"), **options)

    def retain(
        self, rule: RetentionRule | None = None, *, execute: bool = True, **options: Any
    ) -> RetentionResult:
        self.cluster.wait_until_stable(self.name)
        with self.open(rule, **options) as work:
            result = work.execute() if execute else work.preview()
        self.cluster.wait_until_stable(self.name)
        return result

    def records(self) -> list[tuple[bytes | None, bytes | None]]:
        return [(message.key(), message.value()) for message in self.cluster.on_the_wire(self.name)]

    def values(self) -> list[bytes | None]:
        return [value for _, value in self.records()]

    def make_again(self) -> None:
        """Delete the topic, and make one with its name that has a record which stays."""
        admin = AdminClient({"bootstrap.servers": self.cluster.servers})
        admin.delete_topics([self.name])[self.name].result()
        until(lambda: self.name not in admin.list_topics(timeout=DEADLINE_S).topics)
        self.cluster.broker.create_topic(self.name, config=self.config)
        self._wire = self.cluster.plain_producer()
        self.put(b"another", FUTURE)


@pytest.fixture
def clicks(cluster: Cluster) -> Topic:
    return Topic(cluster)


@pytest.fixture
def latest(cluster: Cluster) -> Topic:
    return Topic(cluster, cleanup_policy="compact")


class TestBeginnings:
    def test_are_deleted_up_to_the_first_record_that_stays(self, clicks: Topic, cluster: Cluster) -> None:
        audit = cluster.topic("audit")
        for value, expires in ((b"1", PAST), (b"2", PAST), (b"3", FUTURE), (b"4", PAST)):
            clicks.put(value, expires)
        shown = clicks.retain(execute=False)
        assert (shown.deleted, shown.delete_before, shown.rest) == (2, {0: 2}, 1)
        assert (shown.dispositions, shown.held_back) == (
            {"expired": 3, "alive": 1},
            {0: HeldBack(disposition="alive", offset=2, expired=1)},
        )
        assert clicks.values() == [b"1", b"2", b"3", b"4"], "it only shows"
        done = clicks.retain(audit=audit)
        assert (done.deleted, done.executed) == (2, True)
        assert clicks.values() == [b"3", b"4"]
        (account,) = (json.loads(m.value() or b"") for m in cluster.on_the_wire(audit))
        assert (account["removed"], account["count"], account["before"]) == ("records", 2, 2)
        assert clicks.retain().deleted == 0

    def test_stay_for_a_legal_hold_and_for_what_has_no_lifetime(self, clicks: Topic) -> None:
        clicks.put(b"1", PAST)
        clicks.put(b"2", PAST, hold=b"case 7")
        clicks.put(b"3", PAST)
        clicks.put(b"4", None)
        result = clicks.retain()
        assert result.dispositions == {"expired": 2, "held": 1, "no_lifetime": 1}
        assert clicks.values() == [b"2", b"3", b"4"]

    def test_stay_for_headers_that_cannot_be_read(self, clicks: Topic) -> None:
        clicks.put(b"1", PAST)
        put_raw({"bootstrap.servers": clicks.cluster.servers}, clicks.name, (b"odd", b"\xff\xfe"))
        assert clicks.retain().dispositions == {"expired": 1, "malformed": 1}

    def test_expire_by_a_rule_for_topic_and_header(self, clicks: Topic) -> None:
        rule = RetentionRule(
            lifetimes=(Lifetime(topics=("clicks-*",), after_ms=0, header="class", value="temporary"),),
            clock_skew_ms=0,
        )
        clicks.put(b"1", None, **{"class": b"temporary"})
        clicks.put(b"2", None, **{"class": b"gold"})
        with clicks.open(rule, now_ms=lambda: int(FUTURE)) as work:
            assert work.execute().deleted == 1
        assert clicks.values() == [b"2"]

    def test_stay_for_records_from_the_future(self, clicks: Topic) -> None:
        now_ms = int(time.time() * 1_000)
        rule = RetentionRule(lifetimes=(Lifetime(topics=("*",), after_ms=60_000),))
        for value, age_ms in ((b"1", 66_000), (b"2", 64_000), (b"3", -3_600_000), (b"4", 66_000)):
            clicks.put(value, None, timestamp_ms=now_ms - age_ms)
        with clicks.open(rule, now_ms=lambda: now_ms - 7_200_000) as late:
            assert late.execute().deleted == 0, "a clock that is late removes nothing"
        with clicks.open(rule, now_ms=lambda: now_ms) as work:
            assert work.execute().dispositions == {"expired": 2, "alive": 2}, "within the skew it is alive"
        assert clicks.values() == [b"2", b"3", b"4"]

    def test_of_an_empty_topic_are_not_deleted(self, clicks: Topic, cluster: Cluster) -> None:
        assert clicks.retain() == RetentionResult(topic=clicks.name, executed=True)
        clicks.put(b"1", PAST)
        assert clicks.retain().deleted == 1
        assert clicks.retain() == RetentionResult(topic=clicks.name, executed=True), (
            "it begins behind all records"
        )
        assert cluster.ends(clicks.name) == [1]

    def test_are_those_that_were_read_though_the_topic_grows(
        self, clicks: Topic, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        clicks.put(b"1", PAST)
        delete = Retention._delete

        def late(*arguments: Any) -> None:
            clicks.put(b"2", FUTURE)
            clicks.put(b"3", PAST)
            delete(*arguments)

        monkeypatch.setattr(Retention, "_delete", late)
        assert clicks.retain().deleted == 1
        assert clicks.values() == [b"2", b"3"]

    def test_are_read_with_progress(self, clicks: Topic) -> None:
        for value in (b"1", b"2"):
            clicks.put(value, PAST)
        told: list[Progress] = []
        with clicks.open() as work:
            work.preview(told.append)
            work.execute(told.append)
        assert told[-1] == (2, 2)
        assert told.count(Progress(2, 2)) == 2

    def test_can_be_all_that_is_read(self, cluster: Cluster) -> None:
        clicks = Topic(cluster)
        for number in range(3_000):
            clicks.put(b"%d" % number, PAST if number < 10 else FUTURE, flush=number == 2_999)
        result = clicks.retain(beginnings=True)
        assert (result.deleted, result.beginnings) == (10, True)
        assert 10 < result.records < 3_000
        assert clicks.values()[0] == b"10"
        with pytest.raises(ConfigError, match="it must be read to its end"):
            Topic(cluster, cleanup_policy="compact").retain(beginnings=True)

    def test_stay_if_the_topic_was_made_again_meanwhile(
        self, clicks: Topic, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        clicks.put(b"1", PAST)
        delete = Retention._delete

        def late(*arguments: Any) -> None:
            clicks.make_again()
            delete(*arguments)

        monkeypatch.setattr(Retention, "_delete", late)
        with pytest.raises(HeaderwareError, match="was deleted and recreated"):
            clicks.retain()
        assert clicks.values() == [b"another"]

    def test_stay_for_a_hold_that_no_signature_covers(
        self, clicks: Topic, cluster: Cluster, keyring: str
    ) -> None:
        producer = cluster.producer(Sign(keyring=keyring, key_id="test"))
        producer.produce(clicks.name, b"signed", b"a", 0, headers=[("hw.expires", PAST)])
        assert producer.flush(DEADLINE_S) == 0
        assert clicks.retain(execute=False).dispositions == {"unverified": 1}, (
            "without a chain no moment is believed"
        )
        (signed,) = cluster.on_the_wire(clicks.name)
        headers = [*(signed.headers() or []), ("Hold", b"case 7")]
        wire = cluster.plain_producer()
        wire.produce(clicks.name, signed.value(), signed.key(), 0, headers=headers)
        assert wire.flush(DEADLINE_S) == 0
        result = clicks.retain(chain=producer.chain)
        assert (result.dispositions, result.deleted) == ({"expired": 1, "held": 1}, 1)

    def test_do_not_cut_a_message_in_slices(self, clicks: Topic, cluster: Cluster, cut: Any) -> None:
        pieces = cut(clicks.name, bytes(5_000))
        wire = cluster.plain_producer()

        def send(number: int) -> None:
            headers = [*pieces[number].headers, *([("hw.expires", PAST)] if number == 0 else [])]
            wire.produce(clicks.name, pieces[number].value, b"key", 0, headers=headers)
            assert wire.flush(DEADLINE_S) == 0

        clicks.put(b"1", PAST)
        for number in range(len(pieces) - 1):
            send(number)
        assert clicks.retain(execute=False).delete_before == {0: 1}, "it is not complete"
        clicks.put(b"2", FUTURE)
        send(len(pieces) - 1)
        assert clicks.retain(execute=False).delete_before == {0: 1}, "it ends behind one that stays"
        clicks.retain()
        found = cluster.rest_of(cluster.consumer(clicks.name, Slice()), clicks.name)
        assert [message.value() for message in found] == [b"2", bytes(5_000)]


class TestKeys:
    def test_get_tombstones_if_their_latest_record_has_expired(self, latest: Topic, cluster: Cluster) -> None:
        audit = cluster.topic("audit")
        latest.put(b"1", FUTURE, key=b"a")
        latest.put(b"2", PAST, key=b"a")
        latest.put(b"3", PAST, key=b"b")
        latest.put(b"4", FUTURE, key=b"b")
        latest.put(b"5", PAST, key=b"c", hold=b"")
        latest.put(b"6", PAST, key=b"c")
        before = latest.records()
        assert latest.retain(execute=False).tombstones == 1
        result = latest.retain(audit=audit)
        assert (result.tombstones, result.replaced, result.rest, result.deleted) == (1, 1, 1, 0)
        assert latest.records() == [*before, (b"a", None)]
        (account,) = (json.loads(m.value() or b"") for m in cluster.on_the_wire(audit))
        assert (account["removed"], account["count"]) == ("keys", 1)
        assert latest.retain().tombstones == 0, "the tombstone is there"

    def test_that_have_a_newer_record_meanwhile_keep_it(
        self, latest: Topic, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for key in (b"a", b"b"):
            latest.put(b"old", PAST, key=key)
        write = Retention._write_tombstones

        def late(work: Any, *arguments: Any) -> None:
            forged = {RETAINED: work._token + b".1"}
            latest.put(b"new", FUTURE, key=b"a", **forged)
            write(work, *arguments)

        monkeypatch.setattr(Retention, "_write_tombstones", late)
        result = latest.retain()
        assert (result.tombstones, result.newer) == (1, 1)
        assert latest.records()[2:] == [(b"a", b"new"), (b"b", None)]

    def test_stay_if_the_topic_was_made_again_meanwhile(
        self, latest: Topic, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        latest.put(b"1", PAST)
        delete = Retention._delete_keys

        def late(*arguments: Any) -> None:
            latest.make_again()
            delete(*arguments)

        monkeypatch.setattr(Retention, "_delete_keys", late)
        with pytest.raises(HeaderwareError, match="was deleted and recreated"):
            latest.retain()
        assert latest.values() == [b"another"]

    def test_are_looked_at_again_if_the_transaction_is_done_again(
        self, latest: Topic, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for key in (b"a", b"b"):
            latest.put(b"old", PAST, key=key)
        send = Retention._send
        turns: list[int] = []

        def undone(sender: Any, records: Any, check: Any) -> None:
            if check is None or turns:
                return send(sender, records, check)
            turns.append(1)

            def undo() -> None:
                check()
                latest.put(b"new", FUTURE, key=b"a")
                raise ConnectionAbortedError

            with pytest.raises(ConnectionAbortedError):
                sender.send(records, check=undo)
            return send(sender, records, check)  # the same records, and the same check, as the sender does

        monkeypatch.setattr(Retention, "_send", staticmethod(undone))
        result = latest.retain()
        assert (result.tombstones, result.newer) == (1, 1)
        assert latest.records()[2:] == [(b"a", b"new"), (b"b", None)]

    def test_that_are_many_are_read_again_once(self, latest: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(worker, "_TOMBSTONES", 10)
        for number in range(100):
            latest.put(b"old", PAST, key=b"%d" % number)
        read, batches = [], worker._Since.batches

        def counted(behind: Any) -> Any:
            for batch in batches(behind):
                read.extend(batch)
                yield batch

        monkeypatch.setattr(worker._Since, "batches", counted)
        assert latest.retain().tombstones == 100
        assert len(read) == 100

    def test_of_messages_in_slices_are_deleted(self, latest: Topic, cluster: Cluster, cut: Any) -> None:
        wire = cluster.plain_producer()
        pieces = cut(latest.name, bytes(5_000))
        for each in pieces:
            headers = [*each.headers, *([("hw.expires", PAST)] if each is pieces[0] else [])]
            wire.produce(latest.name, each.value, b"key", 0, headers=headers)
        assert wire.flush(DEADLINE_S) == 0
        result = latest.retain()
        assert (result.tombstones, result.replaced) == (1, len(pieces))
        assert latest.records()[len(pieces) :] == [(b"key", None)]
        (found,) = cluster.on_the_wire(latest.name)[len(pieces) :]
        assert dict(found.headers() or []).keys() == {RETAINED}

    def test_that_others_have_signed_or_not_stay(self, latest: Topic, cluster: Cluster, keyring: str) -> None:
        producer = cluster.producer(Sign(keyring=keyring, key_id="test"))
        producer.produce(latest.name, b"signed", b"a", 0, headers=[("hw.expires", PAST)])
        assert producer.flush(DEADLINE_S) == 0
        latest.put(b"forged", PAST, key=b"b")
        assert latest.retain(chain=producer.chain).dispositions == {"signed": 1, "unverified": 1}
        assert latest.values() == [b"signed", b"forged"]

    def test_that_are_signed_get_no_tombstone_where_beginnings_are_deleted_either(
        self, cluster: Cluster, keyring: str
    ) -> None:
        topic = Topic(cluster, cleanup_policy="compact,delete")
        producer = cluster.producer(Sign(keyring=keyring, key_id="test"))
        for value, expires in ((b"1", PAST), (b"2", FUTURE), (b"3", PAST)):
            producer.produce(topic.name, value, value, 0, headers=[("hw.expires", expires)])
            assert producer.flush(DEADLINE_S) == 0
        result = topic.retain(chain=producer.chain)
        assert (result.deleted, result.tombstones, result.dispositions) == (1, 0, {"signed": 2, "alive": 1})
        assert topic.values() == [b"2", b"3"]


class TestWhatIsInTheWay:
    """One record that anybody may write stopped retain behind it for ever, and nothing said so."""

    DAY_MS: Final = 86_400_000
    RULE: Final = RetentionRule(hold="hold", unverified_after_ms=90 * DAY_MS)

    def put_signed(self, topic: Topic, producer: Producer, value: bytes, key: bytes = b"k") -> None:
        producer.produce(topic.name, value, key, 0, headers=[("hw.expires", PAST)])
        assert producer.flush(DEADLINE_S) == 0

    @pytest.fixture
    def signing(self, cluster: Cluster, keyring: str) -> Producer:
        return cluster.producer(Sign(keyring=keyring, key_id="test"))

    def test_is_said_with_place_reason_and_time(self, clicks: Topic, signing: Producer) -> None:
        self.put_signed(clicks, signing, b"1")
        clicks.put(b"unsigned", PAST, timestamp_ms=1_600_000_000_000)
        self.put_signed(clicks, signing, b"2")
        for _ in range(2):
            result = clicks.retain(chain=signing.chain)
            held = HeldBack(
                disposition="unverified",
                offset=1,
                expired=1,
                reason="the record is not signed",
                timestamp_ms=1_600_000_000_000,
            )
            assert (result.held_back, result.in_the_way, result.ok) == ({0: held}, {0: held}, False)

    def test_is_said_with_what_a_forgery_claims(self, clicks: Topic, signing: Producer) -> None:
        self.put_signed(clicks, signing, b"1")
        (signed,) = clicks.cluster.on_the_wire(clicks.name)
        wire = clicks.cluster.plain_producer()
        wire.produce(clicks.name, b"forged", b"k", 0, headers=signed.headers())
        wire.flush(DEADLINE_S)
        self.put_signed(clicks, signing, b"2")
        held = clicks.retain(chain=signing.chain).in_the_way[0]
        assert (held.disposition, held.key_id) == ("unverified", "test")
        assert "signature" in (held.reason or "")

    def test_is_only_what_keeps_something_there(self, clicks: Topic) -> None:
        clicks.put(b"1", b"soon")
        result = clicks.retain()
        assert (result.held_back[0].disposition, result.ok) == ("malformed", True)
        assert not clicks.retain(beginnings=True).ok, "nobody has looked at what is behind"

    def test_goes_when_it_is_older_than_was_said(self, clicks: Topic, signing: Producer) -> None:
        long_ago_ms = time.time_ns() // 1_000_000 - 91 * self.DAY_MS
        clicks.put(b"unsigned", None, timestamp_ms=long_ago_ms)
        clicks.put(b"no moment", b"soon", timestamp_ms=long_ago_ms)
        clicks.put(b"held", None, timestamp_ms=long_ago_ms, hold=b"case 7")
        clicks.put(b"young", None)
        clicks.put(b"latest", PAST, timestamp_ms=long_ago_ms)
        result = clicks.retain(self.RULE, chain=signing.chain)
        assert result.dispositions == {"stale": 3, "held": 1, "unverified": 1}
        assert clicks.values() == [b"held", b"young", b"latest"]
        assert result.in_the_way == {}, "who has put a hold there means it"

    def test_goes_if_nobody_can_read_its_headers(self, clicks: Topic) -> None:
        put_raw({"bootstrap.servers": clicks.cluster.servers}, clicks.name, (b"v", b"\xff"))
        assert clicks.retain(self.RULE).dispositions == {"malformed": 1}
        later_ms = time.time_ns() // 1_000_000 + 91 * self.DAY_MS
        assert clicks.retain(self.RULE, now_ms=lambda: later_ms).deleted == 1

    def test_gets_no_tombstone_which_would_delete_a_genuine_record(
        self, latest: Topic, signing: Producer
    ) -> None:
        signing.produce(latest.name, b"genuine", b"a", 0)
        assert signing.flush(DEADLINE_S) == 0
        latest.put(b"forged", PAST, key=b"a", timestamp_ms=1_600_000_000_000)
        result = latest.retain(self.RULE, chain=signing.chain)
        assert (result.dispositions, result.tombstones) == ({"no_lifetime": 1, "stale": 1}, 0)
        assert latest.values() == [b"genuine", b"forged"]

    def test_is_left_out_of_a_copy(self, clicks: Topic, signing: Producer) -> None:
        copy = Topic(clicks.cluster)
        clicks.put(b"unsigned", None, timestamp_ms=1_600_000_000_000)
        clicks.put(b"young", None)
        settings = {"bootstrap.servers": clicks.cluster.servers}
        with Compaction(settings, clicks.name, copy.name, self.RULE, chain=signing.chain) as work:
            assert work.execute().lost == {"expired": 1}
        clicks.cluster.wait_until_stable(copy.name)
        assert copy.values() == [b"young"]


class TestCopies:
    """What stands behind a record that stays is left out of a copy."""

    @pytest.fixture
    def copy(self, cluster: Cluster) -> Topic:
        return Topic(cluster)

    def copy_from(
        self, source: Topic, copy: Topic, *, execute: bool = True, **options: Any
    ) -> CompactionResult:
        settings, rule = {"bootstrap.servers": copy.cluster.servers}, RetentionRule(hold="hold")
        with Compaction(settings, source.name, copy.name, rule, **options) as work:
            result = work.execute() if execute else work.preview()
        copy.cluster.wait_until_stable(copy.name)
        return result

    def test_have_all_that_has_not_expired_as_it_was(
        self, clicks: Topic, copy: Topic, cluster: Cluster
    ) -> None:
        audit = cluster.topic("audit")
        clicks.put(b"1", FUTURE, timestamp_ms=1_700_000_000_000, more=b"1")
        clicks.put(b"2", PAST)
        clicks.put(b"3", PAST, hold=b"case 7")
        clicks.put(b"4", b"soon")
        clicks.put(None, None, key=b"gone")
        clicks.put(b"5", PAST, key=None)
        shown = self.copy_from(clicks, copy, execute=False)
        assert (shown.written, shown.lost, copy.records()) == (4, {"expired": 2}, [])
        done = self.copy_from(clicks, copy, audit=audit)
        assert (done.written, done.lost, done.ok, done.tombstones) == (4, {"expired": 2}, True, 1)
        assert copy.records() == [(b"k", b"1"), (b"k", b"3"), (b"k", b"4"), (b"gone", None)]
        first = cluster.on_the_wire(copy.name)[0]
        assert first.timestamp()[1] == 1_700_000_000_000
        assert first.headers() == [("hw.expires", FUTURE), ("more", b"1")]
        assert len(clicks.records()) == 6, "nothing is removed"
        (account,) = (json.loads(m.value() or b"") for m in cluster.on_the_wire(audit))
        assert (account["worker"], account["partitions"]["0"]["loses: expired"]) == ("retain", 2)

    def test_go_on_while_a_pass_removes_records_of_the_copy(self, clicks: Topic, copy: Topic) -> None:
        settings = {"bootstrap.servers": clicks.cluster.servers}
        removed: list[int] = []

        def remove(_: object) -> None:
            copy.cluster.wait_until_stable(copy.name)
            with copy.open(now_ms=lambda: 2 * int(FUTURE)) as work:
                removed.append(work.execute().deleted)

        for number in range(4):
            clicks.put(b"%d" % number, FUTURE)
        with Compaction(settings, clicks.name, copy.name, RetentionRule(), rate=3) as copying:
            assert copying.execute(tell=remove).written == 4
        assert len(removed) > 1
        assert sum(removed) == 4

    def test_go_on_where_they_ended(self, clicks: Topic, copy: Topic) -> None:
        clicks.put(b"1", FUTURE)
        self.copy_from(clicks, copy)
        assert self.copy_from(clicks, copy).records == 0
        clicks.put(b"2", PAST)
        clicks.put(b"3", FUTURE)
        result = self.copy_from(clicks, copy)
        assert (result.records, copy.values()) == (2, [b"1", b"3"])

    @pytest.mark.parametrize("store", [None, "store"])
    def test_have_messages_in_slices_whole_or_not_at_all(
        self, clicks: Topic, copy: Topic, cluster: Cluster, cut: Any, tmp_path: Path, store: str | None
    ) -> None:
        options: dict[str, Any] = {} if store is None else {"store": str(tmp_path / store)}
        wire = cluster.plain_producer()
        messages = [(cut(clicks.name, bytes([n]) * 5_000), end) for n, end in enumerate((PAST, FUTURE))]

        def send(numbers: slice) -> None:
            for pieces, end in messages:
                for number in range(len(pieces))[numbers]:
                    headers = [*pieces[number].headers, *([("hw.expires", end)] if number == 0 else [])]
                    wire.produce(clicks.name, pieces[number].value, b"key", 0, headers=headers)
            assert wire.flush(DEADLINE_S) == 0

        send(slice(-1))
        result = self.copy_from(clicks, copy, **options)
        assert (result.waiting, result.written, copy.records()) == (result.records, 0, [])
        send(slice(-1, None))  # to another process, which has to learn what the first has read
        result = self.copy_from(clicks, copy, **options)
        count = len(messages[0][0])
        assert (result.records, result.written, result.lost) == (2, count, {"expired": count})
        found = cluster.rest_of(cluster.consumer(copy.name, Slice()), copy.name)
        assert [message.value() for message in found] == [bytes([1]) * 5_000]

    def test_of_compacted_topics_are_refused(self, latest: Topic, copy: Topic) -> None:
        (problem,) = self.copy_from(latest, copy, execute=False).problems
        assert "would bring back an older record" in problem
        with pytest.raises(ConfigError, match="would bring back an older record"):
            self.copy_from(latest, copy)


class TestObjects:
    @pytest.fixture
    def chain(self, tmp_path: Path) -> Chain:
        return Chain([ClaimCheck(stores={"archive": FolderObjects(path=str(tmp_path))}, min_bytes=1)])

    @staticmethod
    def of(folder: Path) -> list[Path]:
        return [path for path in folder.rglob("*") if path.is_file()]

    def test_go_behind_their_records(
        self, clicks: Topic, cluster: Cluster, chain: Chain, tmp_path: Path
    ) -> None:
        audit, mirror = cluster.topic("audit"), cluster.topic("mirror")
        producer = cluster.producer(chain=chain)
        for number, end in enumerate((PAST, PAST, FUTURE)):
            producer.produce(clicks.name, b"value %d" % number, b"k", 0, headers=[("hw.expires", end)])
        assert producer.flush(DEADLINE_S) == 0
        copied = cluster.on_the_wire(clicks.name)[1]
        wire = cluster.plain_producer()
        wire.produce(mirror, copied.value(), copied.key(), headers=copied.headers())
        assert wire.flush(DEADLINE_S) == 0
        with clicks.open(audit=audit) as work:
            assert work.execute().deleted == 2
            young = work.objects(chain, copies=[mirror], execute=True)
            assert (young.count, young.deleted) == (0, 0), "their records may be on their way"
            then = time.time() - 7_200
            for path in self.of(tmp_path):
                os.utime(path, (then, then))
            shown = work.objects(chain, copies=[mirror])
            assert (shown.count, shown.deleted, len(self.of(tmp_path))) == (1, 0, 3)
            done = work.objects(chain, copies=[mirror], execute=True)
            assert (done.count, done.deleted, done.unreadable) == (1, 1, 0)
        assert len(self.of(tmp_path)) == 2, "that of the mirror, and that of the record that stays"
        cluster.wait_until_stable(audit)
        accounts = [json.loads(message.value() or b"") for message in cluster.on_the_wire(audit)]
        assert [(each["removed"], each["count"]) for each in accounts] == [("records", 2), ("objects", 1)]

    def test_stay_if_a_claim_cannot_be_read(
        self, clicks: Topic, cluster: Cluster, chain: Chain, tmp_path: Path
    ) -> None:
        producer = cluster.producer(chain=chain)
        producer.produce(clicks.name, b"value", b"k", 0, headers=[("hw.expires", PAST)])
        assert producer.flush(DEADLINE_S) == 0
        clicks.put(b"1", FUTURE, **{"hw.claim": b"broken"})
        (path,) = self.of(tmp_path)
        os.utime(path, (0, 0))
        with clicks.open() as work:
            assert work.execute().deleted == 1
            found = work.objects(chain, execute=True)
        assert (found.count, found.deleted, found.unreadable, path.exists()) == (1, 0, 1, True)


class TestLease:
    """Of two passes at once one is at work; what two do that are, is in ``TestTwoAtOnce``."""

    # Soon over, but not before a busy machine has looked.
    QUICK: Final = {"session.timeout.ms": "6000", "heartbeat.interval.ms": "500"}

    @classmethod
    def command(cls, topic: Topic, *options: str) -> list[str]:
        settings = {"bootstrap.servers": topic.cluster.servers, **cls.QUICK}
        properties = [part for name, value in settings.items() for part in ("-X", f"{name}={value}")]
        return [sys.executable, "-m", "headerware", "retain", topic.name, "--execute", *properties, *options]

    @classmethod
    def lease(cls, topic: Topic, client_id: str = "another") -> Lease:
        """Take the lease as another process would: processes have different client ids."""
        settings = {"bootstrap.servers": topic.cluster.servers, "client.id": client_id, **cls.QUICK}
        group = f"headerware-retain-{topic.name}"
        return Lease(settings, topic.name, group, what="test", timeout_s=DEADLINE_S)

    @staticmethod
    def holders(topic: Topic) -> list[str]:
        """Return the members of the lease's group; those that have nothing yet with an empty id."""
        group = f"headerware-retain-{topic.name}"
        admin = Admin({"bootstrap.servers": topic.cluster.servers}, timeout_s=DEADLINE_S)
        members = admin.describe_group(group).members
        return [each.member_id if each.assignment.topic_partitions else "" for each in members]

    @contextmanager
    def at_work(self, topic: Topic, *options: str) -> Iterator[subprocess.Popen[bytes]]:
        """Let a process have the lease, and wait until it does."""
        with subprocess.Popen(self.command(topic, *options), stderr=subprocess.PIPE) as process:
            try:
                until(lambda: any(self.holders(topic)))
                yield process
            finally:
                process.kill()

    def test_lets_one_work_until_it_is_killed_and_its_session_ends(self, clicks: Topic) -> None:
        for number in range(5):
            clicks.put(b"%d" % number, PAST)
        with self.at_work(clicks, "--rate", "0.01") as first:
            other = subprocess.run(self.command(clicks, "--json"), capture_output=True, check=False)
            shown = json.loads(other.stdout)
            assert (other.returncode, shown["ok"], shown["error"]["type"]) == (3, False, "LeaseHeldError")
            assert re.search(rf"client \S+-{first.pid} on 127.0.0.1 has the lease", shown["error"]["message"])
            assert clicks.retain(execute=False).deleted == 5, "who removes nothing needs none"
        with pytest.raises(LeaseHeldError):
            clicks.retain()
        until(lambda: not self.holders(clicks))
        assert clicks.retain().deleted == 5

    @pytest.mark.parametrize(("taken", "code"), [(True, 3), (False, 1)])
    def test_stops_one_that_stood_still_for_too_long(self, clicks: Topic, *, taken: bool, code: int) -> None:
        clicks.put(b"1", PAST)
        with self.at_work(clicks, "--rate", "0.1") as first:
            first.send_signal(signal.SIGSTOP)
            until(lambda: not self.holders(clicks))
            with self.lease(clicks) if taken else nullcontext():
                first.send_signal(signal.SIGCONT)
                assert first.wait(DEADLINE_S) == code
            assert first.stderr is not None
            assert (b"has the lease" if taken else b"has lost its lease") in first.stderr.read()
        assert clicks.values() == [b"1"]

    def test_is_lost_rather_than_held_if_its_own_client_has_joined_again(self, clicks: Topic) -> None:
        lease = self.lease(clicks)
        lease.close()
        with self.lease(clicks), pytest.raises(LeaseLostError, match="has lost its lease"):
            lease.require()

    @pytest.mark.parametrize("protocol", ["classic", "consumer"])
    def test_is_free_at_once_when_a_static_member_gives_it_back(self, clicks: Topic, protocol: str) -> None:
        settings = {"bootstrap.servers": clicks.cluster.servers, "group.protocol": protocol}
        settings |= {"group.instance.id": "nightly"}
        Lease(settings, clicks.name, clicks.name, what="test", timeout_s=DEADLINE_S).close()
        admin = Admin({"bootstrap.servers": clicks.cluster.servers}, timeout_s=DEADLINE_S)
        assert admin.describe_group(clicks.name).members == []

    def test_is_given_to_one_of_those_that_begin_at_once(
        self, clicks: Topic, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        together, members = threading.Barrier(3), Lease._members
        leases: list[Lease] = []
        others: list[LeaseHeldError] = []

        def look(lease: Lease) -> Any:
            found = members(lease)
            if not hasattr(lease, "_consumer"):
                together.wait(DEADLINE_S)  # all have asked before one of them has joined
            return found

        def take(client_id: str) -> None:
            try:
                leases.append(self.lease(clicks, client_id))
            except LeaseHeldError as error:
                others.append(error)

        monkeypatch.setattr(Lease, "_members", look)
        threads = [threading.Thread(target=take, args=(client_id,)) for client_id in "abc"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(DEADLINE_S)
        assert len(leases) + len(others) == 3
        for lease in leases:  # one that came a moment later may have taken it from an earlier one
            try:
                lease.require()
            except LeaseHeldError as error:
                others.append(error)
        assert len(others) == 2
        for lease in leases:
            lease.close()

    @pytest.mark.parametrize("policy", ["delete", "compact"])
    @pytest.mark.parametrize("error", [LeaseHeldError, LeaseLostError])
    def test_that_is_lost_removes_nothing_more(
        self, policy: str, error: type[HeaderwareError], cluster: Cluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        clicks = Topic(cluster, cleanup_policy=policy)
        clicks.put(b"1", PAST)
        name = "_delete" if policy == "delete" else "_delete_keys"
        remove = getattr(Retention, name)

        def late(work: Retention, *arguments: Any) -> None:
            assert work._lease is not None
            work._lease.close()
            with self.lease(clicks) if error is LeaseHeldError else nullcontext():
                remove(work, *arguments)

        monkeypatch.setattr(Retention, name, late)
        with pytest.raises(error):
            clicks.retain()
        cluster.wait_until_stable(clicks.name)
        assert clicks.values() == [b"1"]


class TestTwoAtOnce:
    """What two passes do that are at work both, for one does not know that its lease is lost."""

    @pytest.fixture(autouse=True)
    def _both_have_a_lease(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Retention, "_require_lease", lambda _: None)

    def test_do_not_stop_one_another_while_they_read(
        self, clicks: Topic, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # Else passes that last longer than the time between their starts would never come to an end.
        audit = cluster.topic("audit")
        clicks.put(b"1", PAST)
        clicks.put(b"2", FUTURE)
        plans, others = Retention._plans, list[RetentionResult]()

        def read(work: Retention, *arguments: Any) -> Any:
            found = plans(work, *arguments)
            monkeypatch.setattr(Retention, "_plans", plans)
            with clicks.open(audit=audit) as other:
                others.append(other.execute())
            return found

        monkeypatch.setattr(Retention, "_plans", read)
        assert clicks.retain(audit=audit).deleted == 1
        assert [other.deleted for other in others] == [1]
        assert clicks.values() == [b"2"]

    def test_say_so_if_one_deletes_what_the_other_is_about_to_read(
        self, clicks: Topic, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        class Late(TopicReader):
            def start(self, *arguments: Any, **options: Any) -> None:
                super().start(*arguments, **options)
                monkeypatch.setattr(worker, "TopicReader", TopicReader)
                assert clicks.retain().deleted == 1
                self._consumer.seek(TopicPartition(clicks.name, 0, 0))

        clicks.put(b"1", PAST)
        clicks.put(b"2", FUTURE)
        work = clicks.open()
        monkeypatch.setattr(worker, "TopicReader", Late)
        with work, pytest.raises(HeaderwareError, match="deleted before they were read"):
            work.execute()
        assert clicks.values() == [b"2"]

    def test_leave_a_key_to_the_other_that_has_written_its_tombstone(
        self, latest: Topic, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        latest.put(b"old", PAST, key=b"a")
        plans = Retention._plans

        def read(work: Retention, *arguments: Any) -> Any:
            found = plans(work, *arguments)
            monkeypatch.setattr(Retention, "_plans", plans)
            latest.retain()
            return found

        monkeypatch.setattr(Retention, "_plans", read)
        result = latest.retain()
        assert (result.tombstones, result.newer) == (0, 1)
        assert latest.records() == [(b"a", b"old"), (b"a", None)]

    def test_do_no_harm(self, latest: Topic) -> None:
        for number in range(40):
            latest.put(b"old", PAST, key=b"%d" % number)
        failures: list[HeaderwareError] = []

        def run() -> None:
            try:
                with latest.open() as work:
                    work.execute()
            except HeaderwareError as error:
                failures.append(error)

        threads = [threading.Thread(target=run) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(DEADLINE_S)
        assert len(failures) <= 1
        latest.retain()
        last = dict(latest.records())
        assert last == {b"%d" % number: None for number in range(40)}


@pytest.mark.long
class TestKilledWhileTheTopicGrows:
    KEYS: Final = 1_200

    def test_no_newer_record_goes_and_all_else_that_has_expired_does(
        self, latest: Topic, cluster: Cluster
    ) -> None:
        wire, rest = cluster.plain_producer(), random.Random(7)
        renewed: set[bytes] = set()
        audit = cluster.topic("audit")
        keys = [b"%d" % number for number in range(self.KEYS)]
        for key in keys:
            wire.produce(latest.name, b"old", key, 0, headers=[("hw.expires", PAST)])
        assert wire.flush(DEADLINE_S) == 0
        stopped = threading.Event()

        def grow() -> None:
            while not stopped.wait(0.05):
                key = rest.choice(keys)
                renewed.add(key)
                wire.produce(latest.name, b"new", key, 0, headers=[("hw.expires", FUTURE)])
                wire.flush(DEADLINE_S)

        thread = threading.Thread(target=grow)
        thread.start()
        command = TestLease.command(latest, "--json", "--audit", audit)
        try:
            for turn in range(2):
                accounts = cluster.count_committed(audit)
                with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
                    if turn:  # in the middle of its tombstones; else while it starts
                        until(partial(self.has_removed, process, cluster, audit, accounts))
                    time.sleep(rest.uniform(0, 0.3))
                    process.kill()
                until(lambda: not TestLease.holders(latest))
            done = latest.retain()
        finally:
            stopped.set()
            thread.join(DEADLINE_S)
        latest.retain()
        last = dict(latest.records())
        assert {key for key, value in last.items() if value == b"new"} == renewed
        assert {key for key, value in last.items() if value is None} == set(keys) - renewed
        assert done.dispositions.get("tombstone", 0) > 0, "the killed ones did some of it"

    @staticmethod
    def has_removed(process: subprocess.Popen[bytes], cluster: Cluster, audit: str, accounts: int) -> bool:
        return process.poll() is not None or cluster.count_committed(audit) > accounts


class TestCopyKilledAtAnyMoment:
    RECORDS: Final = 4_000
    KILLS: Final = 3

    def test_has_each_record_once_and_in_order(self, clicks: Topic, cluster: Cluster) -> None:
        copy, rest = Topic(cluster), random.Random(7)
        command = [sys.executable, "-m", "headerware", "retain", clicks.name, "--into", copy.name]
        command += ["--bootstrap-servers", cluster.servers, "--execute", "--json"]
        share, alive, numbers = self.RECORDS // (self.KILLS + 1), list[bytes](), itertools.count()

        def grow() -> None:
            for _ in range(share):
                value = b"%d" % next(numbers)
                expires = rest.choice((PAST, FUTURE, None))
                alive.extend([] if expires == PAST else [value])
                clicks.put(value, expires, flush=False)
            clicks.flush()

        def has_grown(process: subprocess.Popen[bytes], copied: int) -> bool:
            return process.poll() is not None or cluster.count_committed(copy.name) > copied

        for turn in range(self.KILLS):
            grow()
            copied = cluster.count_committed(copy.name)
            with subprocess.Popen([*command, "--rate", "1000"], stdout=subprocess.DEVNULL) as process:
                if turn:  # in the middle of its work; else while it starts
                    until(partial(has_grown, process, copied))
                time.sleep(rest.uniform(0, 0.3))
                process.kill()
        grow()
        done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=True)
        read = json.loads(done.stdout)["result"]["records"]
        assert 0 < read < self.RECORDS, "the killed ones did some of it"
        cluster.wait_until_stable(copy.name)
        assert copy.values() == alive


class TestCommand:
    def run(self, clicks: Topic, *options: str) -> tuple[int, str]:
        command = [sys.executable, "-m", "headerware", "retain", clicks.name]
        command += ["--bootstrap-servers", clicks.cluster.servers, *options]
        done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
        return done.returncode, done.stdout + done.stderr

    def test_shows_first_then_does_it(self, clicks: Topic, tmp_path: Path) -> None:
        rules = tmp_path / "retention.toml"
        rules.write_text(
            'hold = "case"\n[[lifetimes]]\ntopics = ["clicks-*"]\nafter_ms = 0\nheader = "class"\n'
        )
        clicks.put(b"1", PAST)
        clicks.put(b"2", PAST, case=b"7")
        code, shown = self.run(clicks, "--rules", str(rules))
        assert code == 0
        assert "all before offset 1 would be deleted" in shown
        assert self.run(clicks, "--beginnings")[0] == 0
        assert (
            "held back by records that are kept because they are under a legal hold: "
            f"{clicks.name}[0]" in shown
        )
        assert clicks.values() == [b"1", b"2"]
        code, shown = self.run(clicks, "--rules", str(rules), "--execute", "--json")
        assert (code, json.loads(shown)["result"]["delete_before"]) == (0, {"0": 1})
        assert clicks.values() == [b"2"]
        copy = Topic(clicks.cluster)
        clicks.put(b"3", PAST)
        into = ("--rules", str(rules), "--into", copy.name)
        code, shown = self.run(clicks, *into)
        assert (code, copy.values()) == (0, [])
        assert re.search(r"would be left out +1 +they have expired", shown), shown
        code, shown = self.run(clicks, *into, "--execute", "--json")
        assert (code, json.loads(shown)["result"]["lost"]) == (0, {"expired": 1})
        assert copy.values() == [b"2"]
        rules.write_text("[[lifetimes]]\ntopics = []\nafter_ms = 0\n")
        assert self.run(clicks, "--rules", str(rules))[0] == 2
        rules.write_text("holds = 1")
        assert self.run(clicks, "--rules", str(rules))[0] == 2

    def test_says_loudly_what_is_in_the_way(self, clicks: Topic) -> None:
        clicks.put(b"1", b"soon", timestamp_ms=1_600_000_000_000)
        clicks.put(b"2", PAST)
        code, shown = self.run(clicks)
        assert code == 1
        assert (
            f"IN THE WAY since 2020-09-13 12:26:40.000Z: {clicks.name}[0] at offset 0 is kept (malformed), "
            f"because their lifetime or hw.slice cannot be read\n"
            f"  1 expired record after it cannot be deleted as long as this record is there\n"
        ) in shown
        assert "\nheld back" not in shown
        code, shown = self.run(clicks, "--json")
        found = json.loads(shown)
        assert (code, found["ok"], found["result"]["held_back"]["0"]["offset"]) == (1, False, 0)
        code, _ = self.run(clicks, "--unverified-after", "90d", "--execute")
        assert (code, clicks.values()) == (0, [])

    def test_deletes_objects_and_places_groups(self, clicks: Topic, cluster: Cluster, tmp_path: Path) -> None:
        config, folder = tmp_path / "headerware.toml", tmp_path / "objects"
        folder.mkdir()
        config.write_text(
            '[[interceptors]]\ntype = "claim_check"\nmin_bytes = 1\n'
            f'[interceptors.stores]\narchive = {{ type = "folder", path = "{folder}" }}\n'
        )
        producer = cluster.producer(chain=load_chain(str(config)))
        producer.produce(clicks.name, b"value", b"k", 0, headers=[("hw.expires", PAST)])
        assert producer.flush(DEADLINE_S) == 0
        (path,) = TestObjects.of(folder)
        os.utime(path, (0, 0))
        objects = ("--config", str(config), "--objects", "--execute")
        code, shown = self.run(clicks, *objects, "--copies", "missing")
        assert (code, "missing: " in shown) == (1, True)
        assert len(clicks.records()) == 1, "what is in the way is told before anything is removed"
        code, shown = self.run(clicks, *objects[:-1])
        assert "would be deleted, and then the objects that only the records above claim" in shown
        code, shown = self.run(clicks, *objects)
        assert (code, path.exists()) == (0, False)
        assert "1 object of " in shown and " bytes that no record claims, 1 deleted" in shown  # noqa: PT018
        code, shown = self.run(clicks, *objects, "--json")
        assert (code, json.loads(shown)["result"]["objects"]["count"]) == (0, 0)

        clicks.put(b"1", FUTURE)
        copy, group = Topic(cluster), f"{clicks.name}-group"
        assert self.run(clicks, "--into", copy.name, "--execute")[0] == 0
        consumer = cluster.consumer(clicks.name, group_id=group)
        cluster.take(consumer, 1)
        cluster.commit(consumer)
        consumer.close()
        code, shown = self.run(clicks, "--into", copy.name, "--translate-group", group, "--json")
        (place,) = json.loads(shown)["result"]["partitions"]
        assert (code, place["source"], place["lag"], place["exact"]) == (0, 2, 0, True)
