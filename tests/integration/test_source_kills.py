"""A source that is killed at random points on a real broker, and comes back: nothing lost, nothing twice."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, Final

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, Producer, TopicPartition

from headerware.cli import main
from headerware.core.errors import SourceError
from headerware.sources.extractor import extractor_type
from headerware.sources.runtime import RunConfig, SourceRunner, SqliteOffsets, TopicOffsets
from headerware.sources.source import source_type
from tests.spool import Lines, Spool
from tests.waiting import until

if TYPE_CHECKING:
    from tests.integration.conftest import Cluster

pytestmark = [pytest.mark.broker, pytest.mark.long]

PROGRAM: Final = Path(__file__).parent / "programs" / "run_source.py"
KILLS: Final = int(os.environ.get("SOURCE_KILLS", "5"))
FILES: Final = max(40, KILLS)
RECORDS: Final = 500
PHASES: Final = ("started", "reads", "sent")
"""What a process says before it is killed."""


class Source:
    """A folder of files, and the process that brings it into a topic."""

    def __init__(self, cluster: Cluster, folder: Path, delivery: str) -> None:
        self.cluster = cluster
        self.folder = folder / "in"
        self.folder.mkdir()
        self.topic = cluster.topic("spool", partitions=3)
        store = cluster.topic("offsets", config={"cleanup.policy": "compact"})
        self.options: dict[str, Any] = {
            "name": self.topic,
            "topic": self.topic,
            "folder": str(self.folder),
            "kafka": {"bootstrap.servers": cluster.servers, "log_level": 0},
            "delivery": delivery,
            "store": store if delivery == "exactly_once" else str(folder / "offsets.db"),
            "poll_wait_s": 0.05,
            "poll_records": 50,
            "commit_interval_s": 0.02,
            "commit_records": 100,
            "listing_pause_s": 0.05,
        }

    def write(self, number: int) -> None:
        """Write a file, whole at once."""
        text = "".join(f"{number}.{line}\n" for line in range(RECORDS))
        beside = self.folder.parent / "unfinished"
        beside.write_text(text)
        beside.rename(self.folder / f"{number:03}")

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, str(PROGRAM), json.dumps(self.options), *arguments]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def finish(self) -> None:
        process = self.start("once")
        output, _ = process.communicate(timeout=120)
        assert process.returncode == 0, output

    def end_of_offsets(self) -> int:
        """Return the end of the topic of offsets."""
        place = TopicPartition(self.options["store"], 0)
        consumer = Consumer({"bootstrap.servers": self.cluster.servers, "group.id": "test"})
        try:
            _, end = consumer.get_watermark_offsets(place, timeout=60)
        finally:
            consumer.close()
        return int(end)

    def read(self) -> Counter[str]:
        """Return how often each committed record is in the topic."""
        consumer = Consumer({"bootstrap.servers": self.cluster.servers, "group.id": "test"})
        found: Counter[str] = Counter()
        ends = {}
        for partition in range(3):
            end = consumer.get_watermark_offsets(TopicPartition(self.topic, partition), timeout=60)
            assert end is not None
            ends[partition] = end[1]
        consumer.assign([TopicPartition(self.topic, partition, 0) for partition in ends])

        def take() -> None:
            for message in consumer.consume(1_000, 0.2):
                assert message.error() is None, message.error()
                found[(message.value() or b"").decode()] += 1

        def is_read() -> bool:
            positions = consumer.position([TopicPartition(self.topic, each) for each in ends])
            return all(each.offset >= ends[each.partition] or not ends[each.partition] for each in positions)

        until(is_read, meanwhile=take)
        consumer.close()
        return found


def killed(source: Source) -> None:
    """Run it again and again, and kill it at random; meanwhile files arrive, some of them late."""
    chosen = random.Random(source.topic)
    numbers = list(range(FILES))
    chosen.shuffle(numbers)
    left = iter(numbers)
    for kill in range(KILLS):
        for _ in range(FILES // KILLS):
            source.write(next(left))
        process = source.start()
        assert process.stdout is not None
        # From before the first transaction to behind the last one.
        phase = PHASES[kill % len(PHASES)]
        assert any(line.startswith(phase) for line in process.stdout), f"it ended before it {phase}"
        time.sleep(chosen.uniform(0.0, 0.2))
        process.kill()
        process.wait()
        process.stdout.close()
    assert source.read(), "nothing was sent by those that were killed"
    for number in left:
        source.write(number)
    source.finish()


def expected() -> set[str]:
    return {f"{number}.{line}" for number in range(FILES) for line in range(RECORDS)}


def test_transactions_bring_each_record_once(cluster: Cluster, tmp_path: Path) -> None:
    source = Source(cluster, tmp_path, "exactly_once")
    killed(source)
    found = source.read()
    assert set(found) == expected()
    assert set(found.values()) == {1}


def test_without_transactions_nothing_is_lost(cluster: Cluster, tmp_path: Path) -> None:
    source = Source(cluster, tmp_path, "at_least_once")
    killed(source)
    assert set(source.read()) == expected()


def test_a_later_process_ends_an_earlier_one(cluster: Cluster, tmp_path: Path) -> None:
    source = Source(cluster, tmp_path, "exactly_once")
    options = dict(source.options)
    config = RunConfig(
        source=Spool(folder=options.pop("folder")),
        extractor=Lines(),
        offsets=TopicOffsets(topic=options.pop("store")),
        **options,
    )
    source.write(0)
    errors: list[SourceError] = []

    def run() -> None:
        try:
            earlier.run()
        except SourceError as error:
            errors.append(error)

    earlier = SourceRunner(config)
    thread = Thread(target=run, daemon=True)
    thread.start()
    until(lambda: source.read().total() == RECORDS)
    later = SourceRunner(config)
    second = Thread(target=later.run, daemon=True)
    second.start()
    until(lambda: 0 in later.statistics and later.statistics[0].listed)
    source.write(1)
    until(lambda: errors)
    assert "another process has started as" in str(errors[0])
    until(lambda: source.read().total() == 2 * RECORDS)
    later.stop()
    second.join(60)
    assert set(source.read().values()) == {1}


def test_offsets_behind_an_open_transaction_are_waited_for(
    cluster: Cluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Another task was killed in mid-transaction: what was committed behind it is there, but not yet seen."""
    source = Source(cluster, tmp_path, "exactly_once")
    options = dict(source.options)
    config = RunConfig(
        source=Spool(folder=options.pop("folder")),
        extractor=Lines(),
        offsets=TopicOffsets(topic=options.pop("store")),
        **options,
    )
    runner = SourceRunner(config)
    thread = Thread(target=runner.run, daemon=True)
    thread.start()
    until(lambda: 0 in runner.statistics)
    killed = Producer({"bootstrap.servers": cluster.servers, "transactional.id": source.topic + "-killed"})
    killed.init_transactions(60)
    killed.begin_transaction()
    killed.produce(config.offsets.topic, b"entry", b"key", partition=0)
    killed.flush(60)
    source.write(0)
    until(lambda: runner.statistics[0].acknowledged == RECORDS)
    runner.stop()
    thread.join(60)
    thread = Thread(target=SourceRunner(config, once=True).run, daemon=True)
    thread.start()
    until(lambda: "s for its end, to read the offsets after it" in caplog.text or not thread.is_alive())
    killed.abort_transaction(60)
    thread.join(60)
    assert source.read().total() == RECORDS


@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
def test_an_outage_of_the_brokers_is_waited_for(
    second_cluster: Cluster, tmp_path: Path, delivery: str
) -> None:
    source = Source(second_cluster, tmp_path, delivery)
    options = dict(source.options)
    store = options.pop("store")
    config = RunConfig(
        source=Spool(folder=options.pop("folder")),
        extractor=Lines(),
        offsets=TopicOffsets(topic=store) if delivery == "exactly_once" else SqliteOffsets(path=store),
        **options,
    )
    runner = SourceRunner(config)
    thread = Thread(target=runner.run, daemon=True)
    thread.start()
    source.write(0)
    until(lambda: 0 in runner.statistics and runner.statistics[0].acknowledged == RECORDS)
    second_cluster.stop()
    for number in range(1, 10):
        source.write(number)
    until(lambda: runner.statistics[0].records > 2 * RECORDS)
    second_cluster.start()
    until(lambda: runner.statistics[0].acknowledged >= 10 * RECORDS)
    runner.stop()
    thread.join(60)
    assert not thread.is_alive()
    found = source.read()
    assert found.total() == len(found) == 10 * RECORDS


@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
def test_an_idle_source_waits_through_an_outage(
    second_cluster: Cluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    delivery: str,
) -> None:
    """It has nothing to send, and still says now and then in a transaction that it is at work."""
    monkeypatch.setattr("headerware.sources.runtime.sender.SIGN_INTERVAL_S", 0.1)
    source = Source(second_cluster, tmp_path, "exactly_once")  # offsets in a topic for both
    options = dict(source.options)
    config = RunConfig(
        source=Spool(folder=options.pop("folder")),
        extractor=Lines(),
        offsets=TopicOffsets(topic=options.pop("store")),
        **options | {"delivery": delivery},
    )
    runner = SourceRunner(config)
    thread = Thread(target=runner.run, daemon=True)
    thread.start()
    source.write(0)
    until(lambda: source.read().total() == RECORDS and runner.statistics[0].complete == 1)
    # That the file is complete may be in a transaction of its own. Later ones have nothing but signs of life.
    end = source.end_of_offsets()
    until(lambda: source.end_of_offsets() >= end + 10)
    second_cluster.stop()
    told = (
        "waits for the brokers: " if delivery == "at_least_once" else "will be tried again: "
    )  # without an end
    until(lambda: told in caplog.text)
    second_cluster.start()
    source.write(1)
    until(lambda: not runner.is_live or runner.statistics[0].acknowledged == 2 * RECORDS)
    runner.stop()
    thread.join(60)
    assert not thread.is_alive()
    found = source.read()
    assert found.total() == len(found) == 2 * RECORDS


def test_the_topic_of_offsets_is_made_if_it_is_not_there(cluster: Cluster, tmp_path: Path) -> None:
    source = Source(cluster, tmp_path, "exactly_once")
    source.options["store"] = source.topic + "-offsets"
    source.write(0)
    source.finish()
    source.finish()
    assert source.read().total() == RECORDS


@pytest.mark.parametrize("change", [{"tasks": 1}, {"distribution": "partition"}])
def test_tasks_of_another_sharing_end_the_earlier_ones(
    cluster: Cluster, tmp_path: Path, change: dict[str, Any]
) -> None:
    """They would go on with their old share."""
    source = Source(cluster, tmp_path, "exactly_once")
    source.options["tasks"] = 3
    source.write(0)
    earlier = source.start()
    until(lambda: source.read().total() == RECORDS)
    source.options |= change
    source.finish()
    for number in range(1, 10):
        source.write(number)
    output, _ = earlier.communicate(timeout=60)
    assert earlier.returncode == 1
    assert "another process has started as" in output
    source.finish()
    found = source.read()
    assert found.total() == len(found) == 10 * RECORDS


@pytest.mark.parametrize("tasks", [1, 3])
def test_processes_that_start_together_stop_one_another_clearly(
    cluster: Cluster, tmp_path: Path, tasks: int
) -> None:
    source = Source(cluster, tmp_path, "exactly_once")
    source.options["tasks"] = tasks
    processes = [source.start() for _ in range(3)]
    written = 0

    def write() -> None:
        nonlocal written
        source.write(written)
        written += 1
        time.sleep(0.1)

    until(lambda: sum(process.poll() is None for process in processes) <= 1, meanwhile=write)
    for process in processes:
        if process.poll() is None:
            process.terminate()
            process.communicate(timeout=60)
        else:
            output, _ = process.communicate(timeout=60)
            assert "another process has started as" in output.splitlines()[-1], output
    source.finish()
    found = source.read()
    assert found.total() == len(found) == written * RECORDS


@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
def test_a_reset_is_not_passed_over_by_a_source_that_is_idle(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, delivery: str
) -> None:
    monkeypatch.setattr("headerware.sources.runtime.sender.SIGN_INTERVAL_S", 0.2)
    monkeypatch.setitem(source_type._built_in, "spool", "tests.spool:Spool")
    monkeypatch.setitem(extractor_type._built_in, "lines", "tests.spool:Lines")
    source = Source(cluster, tmp_path, "exactly_once")
    source.write(0)
    config = tmp_path / "source.toml"
    config.write_text(
        f'name = "{source.topic}"\ntopic = "{source.topic}"\nextractor = "lines"\npoll_wait_s = 0.05\n'
        f'delivery = "{delivery}"\n'
        f'[source]\ntype = "spool"\nfolder = "{source.folder}"\n'
        f'[offsets]\ntype = "topic"\ntopic = "{source.options["store"]}"\n'
        f'[kafka]\n"bootstrap.servers" = "{cluster.servers}"\nlog_level = 0\n'
    )
    errors: list[SourceError] = []

    def run() -> None:
        try:
            SourceRunner(RunConfig.load(config)).run()
        except SourceError as error:
            errors.append(error)

    thread = Thread(target=run, daemon=True)
    thread.start()
    offsets = ["source", "offsets"]
    until(
        lambda: (
            '"complete":true' in CliRunner().invoke(main, [*offsets, "show", str(config), "--json"]).output
        )
    )
    result = CliRunner().invoke(main, [*offsets, "reset", str(config), "000"])
    assert result.exit_code == 0, result.output
    assert "1 object will be read again" in result.output
    assert f"{source.topic}-0-of-1-by-hash was at work a moment ago; if it still is, it ends" in result.output
    until(lambda: errors)
    assert "or has reset its offsets, so this process" in str(errors[0])
    thread.join(60)
    source.finish()
    assert source.read().total() == 2 * RECORDS
