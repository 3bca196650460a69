"""Logs that are rotated, as logrotate and others do it: nothing is lost, and nothing comes twice."""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Consumer, TopicPartition

from headerware.sources.engine.plan import plan
from headerware.sources.ready import Files
from headerware.sources.ready.files import GrowingFile
from headerware.sources.runtime import RunConfig, SourceRunner, SqliteOffsets
from headerware.testing import EmbeddedCluster
from tests.waiting import until

TOPICS: Final = [f"rotated-{number}" for number in range(40)]
_unused: Final = iter(TOPICS)
SHORT, LONG = 3, 300
"""Lines: 60 bytes, and 6,000, which is more than what a fingerprint takes."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(topics=dict.fromkeys(TOPICS, 1)) as made:
        yield made


class Logs:
    """A folder of logs, a writer of numbered lines, and a source that goes on where it was."""

    def __init__(self, cluster: EmbeddedCluster, folder: Path) -> None:
        self.servers = cluster.bootstrap_servers
        self.topic = next(_unused)
        self.folder = folder / "in"
        self.folder.mkdir()
        self.log = self.folder / "a.log"
        self.written = 0
        self._offsets = SqliteOffsets(path=str(folder / "offsets.db"))

    def write(self, count: int, path: Path | None = None) -> None:
        with (path or self.log).open("a") as file:
            for number in range(self.written + 1, self.written + count + 1):
                file.write(f'"line {number:012}"\n')
        self.written += count

    def runner(self, *, once: bool = True, **options: Any) -> SourceRunner:
        source = Files(folder=str(self.folder), grows=True, include=["a.log*"], **options)
        chain = {"interceptors": "serialize", "interceptors.serialize.value": "json"}
        config = RunConfig(
            name=self.topic,
            topic=self.topic,
            source=source,
            extractor="jsonl",
            offsets=self._offsets,
            delivery="at_least_once",
            kafka={"bootstrap.servers": self.servers, **chain},
            poll_wait_s=0.02,
            listing_pause_s=0.02,
            commit_interval_s=0.05,
        )
        return SourceRunner(config, once=once)

    def run(self) -> None:
        self.runner().run()

    def found(self) -> list[int]:
        consumer = Consumer({"bootstrap.servers": self.servers, "group.id": "test"})
        with closing(consumer):
            end = consumer.get_watermark_offsets(TopicPartition(self.topic, 0), timeout=60)[1]
            consumer.assign([TopicPartition(self.topic, 0, 0)])
            found: list[Any] = []
            until(lambda: len(found) >= end, meanwhile=lambda: found.extend(consumer.consume(500, 0.1)))
        return [int(json.loads(message.value()).split()[1]) for message in found]

    def each_came_once(self) -> bool:
        return sorted(self.found()) == list(range(1, self.written + 1))

    def rename(self) -> None:
        """Give each log the next number, as logrotate does at first."""
        for number in range(8, 0, -1):
            if (path := self.folder / f"a.log.{number}").exists():
                path.rename(self.folder / f"a.log.{number + 1}")
        self.log.rename(self.folder / "a.log.1")

    def copy_and_truncate(self) -> None:
        shutil.copyfile(self.log, self.folder / "a.log.1")
        os.truncate(self.log, 0)


@pytest.fixture
def logs(cluster: EmbeddedCluster, tmp_path: Path) -> Logs:
    return Logs(cluster, tmp_path)


@pytest.mark.parametrize("count", [SHORT, LONG])
class TestRenamed:
    def test_log_goes_on_under_its_new_name(self, logs: Logs, count: int) -> None:
        logs.write(count)
        logs.run()
        logs.write(count)  # which nobody has read when it is renamed
        logs.rename()
        logs.write(count)
        logs.run()
        assert logs.each_came_once()
        logs.run()
        assert logs.each_came_once()

    def test_log_is_known_before_there_is_a_new_one(self, logs: Logs, count: int) -> None:
        logs.write(count)
        logs.run()
        logs.rename()
        logs.run()
        logs.write(count)
        logs.run()
        assert logs.each_came_once()

    def test_logs_are_told_apart_after_many_rotations(self, logs: Logs, count: int) -> None:
        for rotations in (1, 1, 3, 2):
            for _ in range(rotations):
                logs.write(count)
                logs.rename()
            logs.write(count)
            logs.run()
            logs.write(count)
        logs.run()
        assert logs.each_came_once()

    def test_log_is_still_written_to(self, logs: Logs, count: int) -> None:
        logs.write(count)
        logs.run()
        logs.rename()
        logs.write(count)
        logs.run()
        logs.write(count, logs.folder / "a.log.1")  # by a process that has not heard of it
        logs.run()
        assert logs.each_came_once()


@pytest.mark.parametrize("count", [SHORT, LONG])
class TestCopied:
    def test_log_that_is_truncated_loses_nothing(self, logs: Logs, count: int) -> None:
        logs.write(count)
        logs.run()
        logs.write(count)
        logs.copy_and_truncate()
        logs.write(2 * count)
        logs.run()
        assert logs.each_came_once()
        logs.write(count)
        logs.run()
        assert logs.each_came_once()

    def test_log_that_was_empty_at_the_look_loses_nothing(self, logs: Logs, count: int) -> None:
        logs.write(count)
        logs.run()
        logs.write(count)
        logs.copy_and_truncate()
        logs.run()
        logs.write(count)
        logs.run()
        assert logs.each_came_once()

    def test_log_that_grows_beyond_its_former_size_starts_again(self, logs: Logs, count: int) -> None:
        logs.write(count)
        logs.run()
        os.truncate(logs.log, 0)
        logs.write(3 * count)
        logs.run()
        assert logs.each_came_once()


def test_copy_that_is_seen_before_the_log_is_truncated_comes_once(logs: Logs) -> None:
    logs.write(LONG)
    logs.run()
    logs.write(LONG)
    shutil.copyfile(logs.log, logs.folder / "a.log.1")
    logs.run()
    os.truncate(logs.log, 0)
    logs.write(LONG)
    logs.run()
    assert logs.each_came_once()


def test_log_that_is_shorter_than_a_fingerprint_may_grow(logs: Logs) -> None:
    for _ in range(90):  # 1,800 bytes, and a look after each twentieth
        logs.write(1)
        if not logs.written % 9:
            logs.run()
    logs.run()
    assert logs.each_came_once()


def test_short_logs_with_the_same_lines_are_two(logs: Logs) -> None:
    for name in ("a.log", "a.log.x"):
        (logs.folder / name).write_text('"line 1"\n')
    logs.run()
    assert logs.found() == [1, 1]


def test_logs_with_the_same_beginning_are_two(logs: Logs) -> None:
    banner = '"line 0 ' + "x" * 3_000 + '"\n'
    for number, name in enumerate(("a.log", "a.log.x"), 1):
        (logs.folder / name).write_text(banner + f'"line {number}"\n')
        logs.run()
    assert logs.found() == [0, 1, 0, 2]


def test_plan_knows_a_log_by_its_former_name(logs: Logs) -> None:
    logs.write(LONG)
    logs.run()
    logs.rename()
    logs.write(SHORT)
    config = logs.runner().config
    with closing(config.offsets.open(config.kafka, source=config.name)) as offsets:
        found = {each.key: each.known_records for each in plan(config, offsets)}
    assert found == {"a.log": 0, "a.log.1": LONG}


def test_logs_that_swap_their_names_go_on(logs: Logs) -> None:
    other = logs.folder / "a.log.1"
    logs.write(LONG)
    logs.write(LONG, other)
    logs.run()
    aside = logs.log.rename(logs.folder / "aside")
    other.rename(logs.log)
    aside.rename(other)
    logs.write(SHORT)
    logs.write(SHORT, other)
    logs.run()
    assert logs.each_came_once()


def test_each_of_very_many_logs_may_get_a_new_name(logs: Logs) -> None:
    paths = [logs.folder / f"a.log.{number:03}" for number in range(600)]
    for path in paths[:-1]:
        logs.write(SHORT, path)
    logs.run()
    for path, new in zip(paths[-2::-1], paths[:0:-1], strict=True):
        path.rename(new)
    logs.write(SHORT, paths[0])
    logs.run()
    assert logs.each_came_once()


def test_another_inode_sends_nothing_again(logs: Logs) -> None:
    logs.write(LONG)
    logs.run()
    shutil.copyfile(logs.log, logs.folder / "beside")
    (logs.folder / "beside").rename(logs.log)
    logs.write(SHORT)
    logs.run()
    assert logs.each_came_once()


@pytest.mark.parametrize("line", ["x" * 10, "x" * 2_000])
def test_many_new_logs_are_not_compared_with_each_other(
    logs: Logs, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    asked: list[str] = []

    def continues(_: GrowingFile, key: str, __: str) -> bool:
        asked.append(key)
        return False

    monkeypatch.setattr(GrowingFile, "continues", continues)
    for number in range(300):
        (logs.folder / f"a.log.{number}").write_text(f'"line {number:04} {line}"\n')
    logs.run()
    assert len(logs.found()) == 300
    assert len(asked) == 0


def test_rotation_while_a_source_runs_loses_nothing(logs: Logs) -> None:
    runner = logs.runner(once=False)
    thread = threading.Thread(target=runner.run)
    thread.start()
    try:
        for _ in range(25):
            logs.write(40)
            logs.rename()
            for path in logs.folder.glob("a.log.[89]"):
                until(lambda: len(logs.found()) >= logs.written - 240)
                path.unlink()
        logs.write(40)
        until(lambda: len(logs.found()) >= logs.written)
    finally:
        runner.stop()
        thread.join()
    assert logs.each_came_once()
