"""Guards at a real broker: what comes through, once and in order, whatever happens to the processes."""

from __future__ import annotations

import json
import random
import re
import signal
import subprocess
import sys
import threading
import time
import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # theirs
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from headerware import Headers, HeaderwareError, Record
from headerware.core.dead_letter import read_reason
from headerware.ops.guard import Guard, Status
from headerware.workers.transactions import Transactions
from tests.ingress import Ingress
from tests.integration.conftest import ends_of
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from confluent_kafka import Message

    from tests.integration.conftest import Cluster

pytestmark = pytest.mark.broker
DEADLINE_S: Final = 60.0


class Topics:
    """An ingress topic, its egress topic and its dead letters."""

    def __init__(self, cluster: Cluster, folder: Path, partitions: int = 3) -> None:
        self.cluster = cluster
        self.ingress = Ingress(folder)
        self.group = f"guard-{uuid.uuid4().hex[:8]}"
        self.egress = f"orders-{uuid.uuid4().hex[:8]}"
        self.name = f"ingress.{self.egress}"
        self.letters = f"{self.name}.dead-letter"
        self.audit = f"{self.egress}-audit"
        for topic in (self.name, self.egress, self.letters):
            cluster.broker.create_topic(topic, partitions=partitions)
        cluster.broker.create_topic(self.audit, partitions=1)
        self.routes = {self.name: self.egress}
        self.chain_file = self.ingress.write_guard_chain()
        self._wire = cluster.plain_producer(linger_ms=5, message_max_bytes=2_000_000)
        self._asks = cluster.plain_consumer()

    def put(self, records: Iterable[Record], partition: int = 0, *, timestamp_ms: int = 0) -> None:
        """Write records; without a timestamp, with the time of now."""
        for each in records:
            while True:
                try:
                    self._wire.produce(
                        self.name,
                        each.value,
                        each.key,
                        partition,
                        timestamp=timestamp_ms,
                        headers=list(each.headers),
                    )
                    break
                except BufferError:
                    self._wire.poll(0.1)

    def flush(self) -> None:
        assert self._wire.flush(DEADLINE_S) == 0

    def sent(self, *values: bytes, **options: Any) -> list[Record]:
        return self.ingress.sent(*values, topic=self.name, **options)

    def guard(self, conf: dict[str, Any] | None = None, **options: Any) -> Guard:
        settings = {
            "bootstrap.servers": self.cluster.servers,
            "headerware.config": self.chain_file,
            "session.timeout.ms": 6_000,
            **(conf or {}),
        }
        return Guard(settings, self.routes, group_id=self.group, audit_topic=self.audit, **options)

    @contextmanager
    def running(self, guard: Guard, tell: Callable[[Status], object] = lambda _: None) -> Iterator[None]:
        failures: list[BaseException] = []

        def run() -> None:
            try:
                guard.run(tell)
            except BaseException as error:  # noqa: BLE001 - it is raised below
                failures.append(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        try:
            yield
        finally:
            guard.stop()
            thread.join(DEADLINE_S)
        assert not thread.is_alive()
        assert failures == []

    def process(self, instance: str | None) -> subprocess.Popen[str]:
        timeouts = ("session.timeout.ms=6000", "transaction.timeout.ms=4000", "delivery.timeout.ms=4000")
        command = [
            *(sys.executable, "-m", "headerware", "guard", "--config", self.chain_file, "--json"),
            *("--bootstrap-servers", self.cluster.servers, "--group", self.group),
            *("--route", f"{self.name}={self.egress}"),
            *(part for each in timeouts for part in ("-X", each)),
            *(() if instance is None else ("--instance", instance)),
        ]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def end(self) -> int:
        """Return where the egress topic ends, in all partitions."""
        return sum(ends_of(self._asks, self.egress).values())

    def count_members(self) -> int:
        """Return how many members the group has now."""
        admin = AdminClient({"bootstrap.servers": self.cluster.servers})
        return len(admin.describe_consumer_groups([self.group])[self.group].result(DEADLINE_S).members)

    def out(self) -> list[Message]:
        return self.cluster.on_the_wire(self.egress)

    def refused(self) -> list[Message]:
        return self.cluster.on_the_wire(self.letters)


@pytest.fixture
def topics(cluster: Cluster, tmp_path: Path) -> Topics:
    return Topics(cluster, tmp_path)


def headers_of(message: Message) -> list[Any]:
    return list(message.headers() or ())


def done(status: Status) -> int:
    refused = sum(count for reasons in status.refused.values() for count in reasons.values())
    return sum(status.admitted.values()) + refused


def measured(reader: InMemoryMetricReader) -> dict[str, dict[frozenset[Any], Any]]:
    """Return the values of each instrument by their attributes."""
    found: Any = reader.get_metrics_data()
    return {
        metric.name: {frozenset(point.attributes.items()): point.value for point in metric.data.data_points}
        for resource in found.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }


class TestAGuard:
    def test_lets_in_what_is_admitted_as_it_came_and_keeps_the_rest(
        self, topics: Topics, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        reader = InMemoryMetricReader()
        monkeypatch.setattr("headerware.ops.guard.worker.get_meter", MeterProvider([reader]).get_meter)
        came = topics.sent(*(b"%d" % number for number in range(30)), headers=[("a", b"1"), ("a", None)])
        for number in range(30):
            topics.put([came[number]], number % 3)
        topics.put([came[0].replace(value=b"forged"), Record(topics.name, b"unsigned", b"k")], 1)
        topics.put(topics.sent(b"thief", who="thief"), 2)
        slices = topics.sent(bytes(5_000), slice_bytes=2_000)
        topics.put(slices, 2)
        topics.flush()
        guard = topics.guard()
        with topics.running(guard):
            until(lambda: done(guard.status()) == 33 + len(slices))
            metrics = measured(reader)
        status = guard.status()
        assert status.refused[topics.name] == {
            "admission: AdmissionError": 1,
            "sign: SignatureError": 2,
        }
        admitted = {"headerware.guard.verdict": "admitted", "messaging.destination.name": topics.name}
        assert metrics["headerware.guard.records"][frozenset(admitted.items())] == 30 + len(slices)
        assert sum(metrics["headerware.guard.records"].values()) == 33 + len(slices)
        assert len(metrics["headerware.guard.lag"]) == 3
        found = topics.out()
        for partition in range(3):
            expected = [each for number, each in enumerate(came) if number % 3 == partition]
            expected += slices if partition == 2 else []
            own = [message for message in found if message.partition() == partition]
            assert [each.value() for each in own] == [each.value for each in expected]
            assert [each.headers() for each in own] == [list(each.headers) for each in expected]
        letters = {each.value(): read_reason(headers_of(each)) for each in topics.refused()}
        assert letters.keys() == {b"forged", b"unsigned", b"thief"}
        reason = letters[b"thief"]
        assert reason is not None
        assert (reason.topic, reason.partition, reason.step) == (topics.name, 2, "admission")
        accounts = [json.loads(each.value() or b"") for each in topics.cluster.on_the_wire(topics.audit)]
        counted = [each for account in accounts for each in account["records"]]
        assert sum(each["count"] for each in counted if each["verdict"] == "admitted") == 30 + len(slices)
        assert sum(each["count"] for each in counted if each["verdict"] == "refused") == 3

    def test_that_comes_later_goes_on_where_the_first_ended(self, topics: Topics) -> None:
        copies = topics.sent(b"1", b"2")
        topics.put(copies)
        topics.flush()
        first, second = (topics.guard(instance="a") for _ in range(2))
        with topics.running(first):
            until(lambda: done(first.status()) == 2)
        # A copy of what the first let in, which only reading back knows.
        topics.put([copies[0], *topics.sent(b"3")])
        topics.flush()
        with topics.running(second):
            until(lambda: done(second.status()) == 2)
        assert [each.value() for each in topics.out()] == [b"1", b"2", b"3"]
        assert [each.value() for each in topics.refused()] == [b"1"]

    def test_keeps_as_a_dead_letter_what_its_egress_topic_refuses_and_takes_it_later(
        self, cluster: Cluster, topics: Topics
    ) -> None:
        small = cluster.topic("small", config={"max.message.bytes": "2000"})
        topics.routes = {topics.name: small}
        came = topics.sent(b"1", bytes(10_000), b"2")
        topics.put(came)
        topics.flush()
        # Settings of other clients do not let it skip what is there.
        guard = topics.guard({"auto.offset.reset": "latest"})
        with topics.running(guard):
            until(lambda: done(guard.status()) == 3)
            assert [each.value() for each in cluster.on_the_wire(small)] == [b"1", b"2"]
            assert guard.status().refused == {topics.name: {"egress: InterceptorError": 1}}
            larger = AlterConfigOpType.SET
            entry = ConfigEntry("max.message.bytes", "20000", incremental_operation=larger)
            resource = ConfigResource(ResourceType.TOPIC, small, incremental_configs=[entry])
            admin = AdminClient({"bootstrap.servers": cluster.servers})
            next(iter(admin.incremental_alter_configs([resource]).values())).result(DEADLINE_S)
            until(lambda: cluster.takes(small, 3_000), "the broker has learned of it")
            topics.put([came[1], came[1]])  # once from the dead letters, and a copy
            topics.flush()
            until(lambda: done(guard.status()) == 5)
        assert [len(each.value() or b"") for each in cluster.on_the_wire(small)] == [1, 1, 3_000, 10_000]
        assert guard.status().refused[topics.name]["sign: SignatureError"] == 1
        assert [len(each.value() or b"") for each in topics.refused()] == [10_000, 10_000]

    def test_keeps_whatever_comes_as_a_dead_letter(self, topics: Topics) -> None:
        came = [
            Record(topics.name, None, None),
            Record(topics.name, b"empty name", None, Headers([("", None), ("", b"")])),
            Record(topics.name, b"long name", b"", Headers([("\u00e9" * 5_000, b"v")])),
            Record(topics.name, b"many", b"k", Headers([(f"h{n}", None) for n in range(1_000)])),
            Record(topics.name, b"large", b"k", Headers([("hw.sig", bytes(900_000))])),
            Record(topics.name, b"reason", b"k", Headers([("headerware.dead_letter.attempts", b"9" * 99)])),
        ]
        # With a reason these are too large for the topic of dead letters, and a stub stands for each.
        most = [Record(topics.name, bytes(1_048_300), b"large") for _ in range(8)]
        topics.put([*came, *most, *topics.sent(b"genuine")])
        topics.flush()
        guard = topics.guard()
        with topics.running(guard):
            until(lambda: done(guard.status()) == len(came) + len(most) + 1)
        assert [each.value() for each in topics.out()] == [b"genuine"]
        letters = [
            each
            for each in topics.refused()
            if (each.key() or b"").partition(b"[")[0] != topics.name.encode()
        ]
        assert sorted(each.value() or b"" for each in letters) == sorted(each.value or b"" for each in came)
        assert len(topics.refused()) == len(came) + len(most)
        by_value = {each.value(): headers_of(each) for each in letters}
        for record in came[:-1]:
            assert by_value[record.value][: len(record.headers)] == list(record.headers)

    def test_shows_how_far_behind_it_is_while_a_partition_is_held(
        self, topics: Topics, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("headerware.ops.guard.worker._ENDS_INTERVAL_S", 0.2)
        monkeypatch.setattr("headerware.ops.guard.worker._STATUS_INTERVAL_S", 0.2)
        topics.routes = {topics.name: f"{topics.egress}-later"}
        came = topics.sent(b"1", b"2", b"3")
        topics.put(came[:1])
        topics.flush()
        guard = topics.guard()
        told: list[Status] = []
        place = f"{topics.name}[0]"
        with topics.running(guard, told.append):
            until(lambda: place in guard.status().held)
            topics.put(came[1:])
            topics.flush()
            until(lambda: told and told[-1].held and told[-1].lag[place] == 3)
            topics.cluster.broker.create_topic(f"{topics.egress}-later")
            until(lambda: done(guard.status()) == 3)
            until(lambda: told[-1].lag[place] == 0 and not told[-1].held)

    def test_refuses_copies_behind_a_restart_in_whatever_partition(self, topics: Topics) -> None:
        """The copy is the first that a guard reads behind a restart, and what it is a copy of the last."""
        came = topics.sent(*(b"%d" % number for number in range(2_000)))
        topics.put(came, 0)
        topics.flush()
        first, second = (topics.guard(instance="a") for _ in range(2))
        with topics.running(first):
            until(lambda: done(first.status()) == 2_000)
        topics.put(came[-100:], 1)
        topics.flush()
        with topics.running(second):
            until(lambda: done(second.status()) == 100)
        assert len(topics.out()) == 2_000
        assert len(topics.refused()) == 100

    def test_refuses_copies_after_an_outage_that_is_longer_than_look_back_s(self, topics: Topics) -> None:
        """It counts from the last record before the outage, and records before that time are not read."""
        now_ms = time.time_ns() // 1_000_000
        old, last = topics.sent(b"old", b"last")
        topics.put([old], timestamp_ms=now_ms - 2_000_000)
        topics.put([last], timestamp_ms=now_ms - 700_000)
        topics.flush()
        first, second = (topics.guard(instance="a", look_back_s=600) for _ in range(2))
        with topics.running(first):
            until(lambda: done(first.status()) == 2)
        topics.put([last, old])
        topics.flush()
        with topics.running(second):
            until(lambda: done(second.status()) == 2)
        assert [each.value() for each in topics.out()] == [b"old", b"last", b"old"]
        assert [each.value() for each in topics.refused()] == [b"last"]

    def test_passes_over_nothing_when_its_topic_is_made_again(self, topics: Topics) -> None:
        topics.put(topics.sent(*(b"%d" % number for number in range(20))))
        topics.flush()
        guard = topics.guard()
        ended: list[BaseException] = []

        def run() -> None:
            try:
                guard.run()
            except (HeaderwareError, KafkaException) as error:
                ended.append(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        try:
            until(lambda: done(guard.status()) == 20)
            admin = AdminClient({"bootstrap.servers": topics.cluster.servers})
            admin.delete_topics([topics.name])[topics.name].result(DEADLINE_S)
            until(lambda: topics.name not in admin.list_topics(timeout=DEADLINE_S).topics)
            topics.cluster.broker.create_topic(topics.name, partitions=3)
            topics.put(topics.sent(b"20"))
            topics.flush()
            until(lambda: ended or done(guard.status()) == 21)
        finally:
            guard.stop()
            thread.join(DEADLINE_S)
        # A broker may delete the group's offsets with the topic, and then it goes on.
        assert "made again" in str(ended[0]) if ended else topics.out()[-1].value() == b"20"

    def test_follows_the_file_of_its_chain_and_refuses_a_bad_one(self, topics: Topics) -> None:
        path = topics.ingress.folder / "guard.toml"
        good = path.read_text()
        guard = topics.guard({"headerware.reload": "watch"})

        def put(text: str) -> None:
            path.with_name("next").write_text(text)
            path.with_name("next").replace(path)

        def in_force() -> Any:
            found = guard.chain_in_force()
            assert found is not None
            return found

        with topics.running(guard):
            first = topics.sent(b"1")
            topics.put(first)
            topics.flush()
            until(lambda: done(guard.status()) == 1)
            put('[[interceptors]]\ntype = "slice"\n')
            until(lambda: in_force().failures == 1)
            assert "expected a chain that verifies records" in in_force().failure
            topics.put(topics.sent(b"2", b"x", who="thief"))
            topics.flush()
            until(lambda: done(guard.status()) == 3)
            put(good.replace("replay_window = 100_000", "replay_window = 50_000"))
            until(lambda: in_force().reloads == 1)
            # The new window is filled before anything is decided.
            topics.put([*first, *topics.sent(b"3")])
            topics.flush()
            until(lambda: done(guard.status()) == 5)
        assert [each.value() for each in topics.out()] == [b"1", b"3"]


class TestARebalance:
    def test_does_not_stop_a_partition_that_was_held(self, topics: Topics) -> None:
        """It is held, and paused, by a process that loses it and gets it again."""
        topics.routes = {topics.name: f"{topics.egress}-later"}
        for partition in range(3):
            topics.put(topics.sent(b"%d" % partition), partition)
        topics.flush()
        first, second = topics.guard(), topics.guard()
        with topics.running(first):
            until(lambda: len(first.status().held) == 3)
            with topics.running(second):
                until(lambda: second.status().held and len(first.status().held) < 3)
            until(lambda: len(first.status().held) == 3)
            topics.cluster.broker.create_topic(f"{topics.egress}-later", partitions=3)
            until(lambda: done(first.status()) == 3)


@pytest.mark.long
class TestABrokerThatIsAway:
    def test_is_waited_for(
        self,
        second_cluster: Cluster,
        tmp_path: Path,
        caplog: pytest.LogCaptureFixture,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        topics = Topics(second_cluster, tmp_path)
        in_the_middle, is_away = threading.Event(), threading.Event()
        commit = Transactions.commit

        def late(transactions: Transactions, deadline: float = 0.0) -> None:
            if topics.end() > 600:
                in_the_middle.set()
                assert is_away.wait(DEADLINE_S)
            commit(transactions, deadline)

        topics.put(topics.sent(b"1", b"2"))
        topics.flush()
        # Impatient, so that it fails while the broker is away.
        timeouts = {"transaction.timeout.ms": 2_000, "delivery.timeout.ms": 2_000}
        guard = topics.guard(timeouts, timeout_s=3.0)
        with topics.running(guard):
            until(lambda: done(guard.status()) == 2)
            monkeypatch.setattr(Transactions, "commit", late)
            topics.put([*topics.sent(*(b"%d" % each for each in range(3, 4_000))), Record(topics.name, b"x")])
            topics.flush()
            assert in_the_middle.wait(DEADLINE_S)
            monkeypatch.undo()
            second_cluster.stop()
            is_away.set()
            until(lambda: "uncommitted records are read again" in caplog.text)
            second_cluster.start()
            topics.put(topics.sent(b"4000"))
            topics.flush()
            until(lambda: topics.end() >= 4_000, meanwhile=lambda: time.sleep(0.5))
            until(lambda: not guard.status().lag.get(f"{topics.name}[0]", 1))
        assert [each.value() for each in topics.out()] == [b"%d" % each for each in range(1, 4_001)]
        assert [each.value() for each in topics.refused()] == [b"x"]


class TestTwoWithOneName:
    def test_the_later_takes_over_and_the_earlier_ends(self, topics: Topics) -> None:
        topics.put(topics.sent(b"1"))
        topics.flush()
        first, second = (topics.guard(instance="a") for _ in range(2))
        ended: list[BaseException] = []

        def run() -> None:
            try:
                first.run()
            except (HeaderwareError, KafkaException) as error:
                ended.append(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        try:
            until(lambda: done(first.status()) == 1)
            with topics.running(second):
                until(lambda: ended)
                topics.put(topics.sent(b"2", b"3"))
                topics.flush()
                until(lambda: done(second.status()) == 2)
        finally:
            first.stop()
            thread.join(DEADLINE_S)
        assert re.search("taken over|fenced", str(ended))
        assert [each.value() for each in topics.out()] == [b"1", b"2", b"3"]


class TestADryRun:
    def test_counts_and_leaves_everything_as_it_was(self, topics: Topics) -> None:
        topics.put([*topics.sent(b"1", b"2"), Record(topics.name, b"unsigned")])
        topics.flush()
        status = topics.guard().dry_run()
        assert status.admitted == {topics.name: 2}
        assert status.refused == {topics.name: {"sign: SignatureError": 1}}
        assert status.lag == {f"{topics.name}[{number}]": 0 for number in range(3)}
        assert (topics.out(), topics.refused()) == ([], [])
        assert topics.cluster.committed(topics.group, topics.name)[0] < 0


@pytest.mark.long
class TestKilledAtAnyMoment:
    MESSAGES: Final = 10_000

    # Without names others wait for the broker to end what the killed ones have left open.
    @pytest.mark.parametrize(("kills", "named"), [(8, True), (2, False)], ids=["named", "unnamed"])
    def test_each_admitted_record_comes_once_and_in_order(
        self, topics: Topics, kills: int, *, named: bool
    ) -> None:
        rest = random.Random(16)
        came, expected, refused = self._traffic(topics)
        total = sum(map(len, expected.values()))
        guards = {name: topics.process(name if named else None) for name in ("a", "b")}
        size = len(came) // (kills + 2)
        try:
            for round_ in range(kills + 2):
                before = topics.end()
                for partition, record in came[round_ * size : (round_ + 1) * size]:
                    topics.put([record], partition)
                topics.flush()
                until(lambda: topics.end() > before)  # noqa: B023 - it is called at once
                if round_ == kills:
                    # It sleeps until the group gives it up, and others go on; then it wakes up.
                    until(lambda: topics.count_members() == 2)
                    guards["a"].send_signal(signal.SIGSTOP)
                    until(lambda: topics.count_members() == 1)
                    guards["a"].send_signal(signal.SIGCONT)
                elif round_ < kills:
                    time.sleep(rest.uniform(0.0, 0.4))
                    name = rest.choice(("a", "b"))
                    guards[name].kill()
                    guards[name].communicate()
                    guards[name] = topics.process(name if named else None)
            for partition, record in came[(kills + 2) * size :]:
                topics.put([record], partition)
            topics.flush()
            until(lambda: len(topics.out()) >= total, meanwhile=lambda: time.sleep(0.5))
            until(lambda: len(topics.refused()) >= len(refused), meanwhile=lambda: time.sleep(0.5))
        finally:
            shown = [self._end(process) for process in guards.values()]
        found = topics.out()
        for partition, own in expected.items():
            assert [each.value() for each in found if each.partition() == partition] == own
        assert sorted(each.value() or b"" for each in topics.refused()) == sorted(refused)
        left = [sum(json.loads(line)["result"]["admitted"].values()) for line in shown if line]
        assert left, "one was still there at the end"
        assert 0 < sum(left) < total, "the killed ones did some of it"

    def _traffic(
        self, topics: Topics
    ) -> tuple[list[tuple[int, Record]], dict[int, list[bytes]], list[bytes]]:
        """Return records with their partitions, what is to come out of each, and what is refused."""
        came: list[tuple[int, Record]] = []
        expected: dict[int, list[bytes]] = {0: [], 1: [], 2: []}
        refused = []
        for number, record in enumerate(topics.sent(*(b"%d" % each for each in range(self.MESSAGES)))):
            partition = number % 3
            if number % 10 == 7:
                forged = record.replace(value=b"forged %d" % number)
                refused.append(forged.value)
                came.append((partition, forged))
            elif number % 50 == 3:
                slices = topics.sent(b"%d:" % number + bytes(4_000), slice_bytes=2_000)
                # Another record stands inside of the message.
                came += [(partition, each) for each in (*slices[:2], record, *slices[2:])]
                expected[partition] += [record.value, *(each.value for each in slices)]
            else:
                came.append((partition, record))
                expected[partition].append(record.value)
        return came, expected, refused

    @staticmethod
    def _end(process: subprocess.Popen[str]) -> str:
        process.terminate()
        try:
            return process.communicate(timeout=DEADLINE_S)[0]
        except subprocess.TimeoutExpired:
            process.kill()
            return ""
