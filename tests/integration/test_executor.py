"""``Consumer.run`` on a real broker: killed in mid-run, and with a second consumer that joins and leaves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition

from headerware.interceptors import Trail
from tests.waiting import until

if TYPE_CHECKING:
    from confluent_kafka import Message

    from headerware import Consumer
    from tests.integration.conftest import Cluster

pytestmark = pytest.mark.broker

PROGRAM: Final = Path(__file__).parent / "programs" / "workers.py"
DEADLINE_S: Final = 60.0
PARTITIONS: Final = 4
KEYS: Final = 24


class Processed(NamedTuple):
    """A record that a member of the group has processed."""

    member: int
    partition: int
    offset: int
    key: bytes
    value: int


def fill(cluster: Cluster, topic: str, count: int) -> None:
    producer = cluster.producer()
    for number in range(count):
        producer.produce(topic, b"%d" % number, b"key-%d" % (number % KEYS))
    assert producer.flush(DEADLINE_S) == 0


def committed_of(cluster: Cluster, topic: str) -> dict[int, int]:
    """Return the committed offsets of the group that is named after the topic."""
    reader = confluent_kafka.Consumer({"bootstrap.servers": cluster.servers, "group.id": topic})
    try:
        partitions = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
        return {each.partition: max(0, each.offset) for each in reader.committed(partitions, DEADLINE_S)}
    finally:
        reader.close()


def test_a_kill_loses_nothing_and_repeats_only_what_was_not_committed(
    cluster: Cluster, tmp_path: Path
) -> None:
    topic, log, count = cluster.topic("workers", partitions=PARTITIONS), tmp_path / "log", 1_200
    fill(cluster, topic, count)

    def runs() -> list[list[tuple[int, int, str]]]:
        found: list[list[tuple[int, int, str]]] = []
        # What follows the last end of a line is being written.
        whole = log.read_text().rpartition("\n")[0] if log.exists() else ""
        for line in whole.splitlines():
            if line == "started":
                found.append([])
            else:
                partition, offset, key = line.split()
                found[-1].append((int(partition), int(offset), key))
        return found

    command = [sys.executable, str(PROGRAM), cluster.servers, topic, str(log)]
    with subprocess.Popen(command) as first:
        until(lambda: bool(runs()) and len(runs()[0]) > count // 3, "a third is processed")
        os.kill(first.pid, signal.SIGKILL)
    # The last commit of one that was killed may still be under way.
    committed = committed_of(cluster, topic)
    while committed != (later := committed_of(cluster, topic)):
        committed = later

    with subprocess.Popen(command) as second:
        try:
            # What the first had done ahead of its commits comes again, and it too must be done.
            until(
                lambda: len(runs()) > 1 and len(runs()[1]) == count - sum(committed.values()),
                "all that was not committed is processed",
            )
            second.send_signal(signal.SIGTERM)
            assert second.wait(DEADLINE_S) == 0
        finally:
            second.kill()

    before, after = runs()
    assert sum(committed.values()) > 0
    assert {(partition, offset) for partition, offset, _ in [*before, *after]} >= {
        (partition, offset) for partition in committed for offset in range(committed[partition])
    }, "a committed record was not processed"
    assert all(offset >= committed[partition] for partition, offset, _ in after), (
        "a committed record came again"
    )
    for run in (before, after):
        assert len(set(run)) == len(run), "a run processed a record twice"
        by_key: dict[str, list[int]] = defaultdict(list)
        for _, offset, key in run:
            by_key[key].append(offset)
        assert all(offsets == sorted(offsets) for offsets in by_key.values())
    assert sum(committed_of(cluster, topic).values()) == count, (
        "a graceful stop commits all that is processed"
    )


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_rebalance_loses_and_reorders_nothing_and_repeats_what_was_ahead(
    cluster: Cluster, strategy: str
) -> None:
    topic, count = cluster.topic("workers", partitions=PARTITIONS), 1_600
    fill(cluster, topic, count)
    lock, processed = threading.Lock(), list[Processed]()
    both_read = threading.Event()
    errors: list[BaseException] = []

    def join(member: int) -> tuple[Consumer, threading.Thread]:
        consumer = cluster.consumer(
            topic,
            Trail(service="a"),
            group_id=topic,
            partition_assignment_strategy=strategy,
            heartbeat_interval_ms=200,
        )

        def handle(message: Message) -> None:
            if member == 2:
                both_read.set()
            # Slowly, until the second has its share.
            time.sleep(0.01 if both_read.is_set() or share_of(1) <= 50 else 0.2)
            with lock:
                place = message.partition() or 0, message.offset() or 0
                processed.append(Processed(member, *place, message.key() or b"", int(message.value() or b"")))

        def work() -> None:
            try:
                consumer.run(handle, workers=4)
                consumer.close()
            except BaseException as error:  # noqa: BLE001 - the test raises it
                errors.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        return consumer, thread

    def share_of(member: int) -> int:
        with lock:
            return sum(each.member == member for each in processed)

    leader, leading = join(1)
    until(lambda: share_of(1) > 50, "the first works")
    second, second_thread = join(2)
    until(lambda: share_of(2) > 50 or bool(errors), "the second works, too")
    second.stop()
    second_thread.join(DEADLINE_S)
    # Some come twice, so their number says nothing.
    until(lambda: len({each.value for each in list(processed)}) == count or bool(errors), "all is processed")
    leader.stop()
    leading.join(DEADLINE_S)

    assert not errors
    assert {each.value for each in processed} == set(range(count)), "nothing is lost"
    first: dict[tuple[int, int], int] = {}
    for index, each in enumerate(processed):
        first.setdefault((each.partition, each.offset), index)
    for index, each in enumerate(processed):
        earlier = first[each.partition, each.offset]
        # Lanes get ahead of each other: a record before it was left to the new owner, and so it was, too.
        assert earlier == index or any(
            partition == each.partition and offset < each.offset and at > earlier
            for (partition, offset), at in first.items()
        ), "a committed record came again"
    by_key: dict[bytes, list[int]] = defaultdict(list)
    for index in sorted(first.values()):
        by_key[processed[index].key].append(processed[index].value)
    assert all(values == sorted(values) for values in by_key.values())
