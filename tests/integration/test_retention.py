"""Retention by header on a real broker: what is removed, what stays, and what comes meanwhile."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pytest
from confluent_kafka.admin import AdminClient

from headerware import HeaderwareError
from headerware.interceptors import Sign, Slice
from headerware.ops.retention import worker
from headerware.ops.retention.rules import Lifetime, RetentionRule
from headerware.ops.retention.worker import RETAINED, Result, Retention
from tests.waiting import until

if TYPE_CHECKING:
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
        self, value: bytes | None, expires: bytes | None, *, key: bytes | None = b"k", **more: bytes
    ) -> None:
        headers: Any = [] if expires is None else [("hw.expires", expires)]
        self._wire.produce(self.name, value, key, 0, headers=[*headers, *more.items()])
        assert self._wire.flush(DEADLINE_S) == 0

    def open(self, rule: RetentionRule | None = None, **options: Any) -> Retention:
        settings = {"bootstrap.servers": self.cluster.servers}
        return Retention(settings, self.name, rule or RetentionRule(hold="hold"), **options)

    def retain(self, rule: RetentionRule | None = None, *, execute: bool = True, **options: Any) -> Result:
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
        assert (shown.fates, shown.held_back) == ({"expired": 3, "alive": 1}, {0: "alive"})
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
        assert result.fates == {"expired": 2, "held": 1, "no_lifetime": 1}
        assert clicks.values() == [b"2", b"3", b"4"]

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

    def test_stay_if_the_topic_was_made_again_meanwhile(
        self, clicks: Topic, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        clicks.put(b"1", PAST)
        delete = Retention._delete

        def late(*arguments: Any) -> None:
            clicks.make_again()
            delete(*arguments)

        monkeypatch.setattr(Retention, "_delete", late)
        with pytest.raises(HeaderwareError, match="made again"):
            clicks.retain()
        assert clicks.values() == [b"another"]

    def test_stay_for_a_hold_that_no_signature_covers(
        self, clicks: Topic, cluster: Cluster, keyring: str
    ) -> None:
        producer = cluster.producer(Sign(keyring=keyring, key_id="test"))
        producer.produce(clicks.name, b"signed", b"a", 0, headers=[("hw.expires", PAST)])
        assert producer.flush(DEADLINE_S) == 0
        assert clicks.retain(execute=False).fates == {"unverified": 1}, (
            "without a chain no moment is believed"
        )
        (signed,) = cluster.on_the_wire(clicks.name)
        headers = [*(signed.headers() or []), ("Hold", b"case 7")]
        wire = cluster.plain_producer()
        wire.produce(clicks.name, signed.value(), signed.key(), 0, headers=headers)
        assert wire.flush(DEADLINE_S) == 0
        result = clicks.retain(chain=producer.chain)
        assert (result.fates, result.deleted) == ({"expired": 1, "held": 1}, 1)

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
        assert clicks.retain(execute=False).delete_before == {0: 1}, "it is not whole"
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
        with pytest.raises(HeaderwareError, match="made again"):
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
        read, batches = [], worker._Behind.batches

        def counted(behind: Any) -> Any:
            for batch in batches(behind):
                read.extend(batch)
                yield batch

        monkeypatch.setattr(worker._Behind, "batches", counted)
        assert latest.retain().tombstones == 100
        assert len(read) == 100

    def test_of_messages_in_slices_are_deleted_with_those_of_the_slices(
        self, latest: Topic, cluster: Cluster
    ) -> None:
        step = Slice(max_bytes=1_500, compacted_topics=("clicks-*",))
        producer = cluster.producer(step)
        producer.produce(latest.name, bytes(5_000), b"key", 0, headers=[("hw.expires", PAST)])
        assert producer.flush(DEADLINE_S) == 0
        before = latest.records()
        result = latest.retain()
        assert (result.tombstones, result.replaced) == (len(before), len(before))
        assert {key for key, _ in latest.records()[len(before) :]} == {key for key, _ in before}
        found = cluster.on_the_wire(latest.name)[len(before) :]
        assert all(dict(message.headers() or []).keys() == {RETAINED} for message in found)

    def test_that_others_have_signed_or_not_stay(self, latest: Topic, cluster: Cluster, keyring: str) -> None:
        producer = cluster.producer(Sign(keyring=keyring, key_id="test"))
        producer.produce(latest.name, b"signed", b"a", 0, headers=[("hw.expires", PAST)])
        assert producer.flush(DEADLINE_S) == 0
        latest.put(b"forged", PAST, key=b"b")
        assert latest.retain(chain=producer.chain).fates == {"signed": 1, "unverified": 1}
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
        assert (result.deleted, result.tombstones, result.fates) == (1, 0, {"signed": 2, "alive": 1})
        assert topic.values() == [b"2", b"3"]


class TestTwoAtOnce:
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
        command = [sys.executable, "-m", "headerware", "retain", latest.name, "--execute", "--json"]
        command += ["--bootstrap-servers", cluster.servers, "--audit", audit]
        try:
            for turn in range(2):
                accounts = cluster.count_committed(audit)
                with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
                    if turn:  # in the middle of its tombstones; else while it starts
                        until(partial(self.has_removed, process, cluster, audit, accounts))
                    time.sleep(rest.uniform(0, 0.3))
                    process.kill()
            done = latest.retain()
        finally:
            stopped.set()
            thread.join(DEADLINE_S)
        latest.retain()
        last = dict(latest.records())
        assert {key for key, value in last.items() if value == b"new"} == renewed
        assert {key for key, value in last.items() if value is None} == set(keys) - renewed
        assert done.fates.get("tombstone", 0) > 0, "the killed ones did some of it"

    @staticmethod
    def has_removed(process: subprocess.Popen[bytes], cluster: Cluster, audit: str, accounts: int) -> bool:
        return process.poll() is not None or cluster.count_committed(audit) > accounts


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
        assert f"held back by records that stay because a legal hold is on them: {clicks.name}[0]" in shown
        assert clicks.values() == [b"1", b"2"]
        code, shown = self.run(clicks, "--rules", str(rules), "--execute", "--json")
        assert (code, json.loads(shown)["result"]["delete_before"]) == (0, {"0": 1})
        assert clicks.values() == [b"2"]
        rules.write_text("[[lifetimes]]\ntopics = []\nafter_ms = 0\n")
        assert self.run(clicks, "--rules", str(rules))[0] == 2
        rules.write_text("holds = 1")
        assert self.run(clicks, "--rules", str(rules))[0] == 2
