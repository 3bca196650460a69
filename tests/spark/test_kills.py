"""Drivers and tasks that are killed during a batch: nothing is lost, and repeats are only where they may be.

================  ===========================  ==============================  =====================
killed            where                        on the wire after the restart   the restart's batch
================  ===========================  ==============================  =====================
driver            batch begun, not decoded     every record once               replayed
driver            decoded, ledger not written  every record once               replayed
driver            ledger's rows written        every record once               replayed
driver            in the middle of the write   some of the batch twice         replayed
driver            written, not committed       all of the batch twice          replayed
driver            ledger committed, not Spark  every record once               skipped
Python worker     in the middle of the write   some of the task's rows twice   (the task is retried)
task              fails in the middle of it    some of the task's rows twice   (the task is retried)
================  ===========================  ==============================  =====================

Readers with ``dedup`` see every record once in all of them.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest

from headerware import Chain, Record
from headerware.interceptors import Dedup, Slice
from headerware.spark_bridge import BatchProgress, foreach_batch, kafka_sink, kafka_source

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from tests.spark.conftest import Kafka

pytestmark = [
    pytest.mark.broker,
    pytest.mark.long,
    pytest.mark.timeout(1200),
    pytest.mark.usefixtures("interpreted"),
]

PROGRAM: Final = Path(__file__).parent / "programs" / "stop_at_points.py"
DEADLINE_S: Final = 400
MAX_BYTES: Final = 2_000
SLICES: Final = 5
BATCH: Final = 20
"""How many offsets are read at a time; the program stops in the batch of number 1."""

DRIVER_POINTS: Final = ("begun", "decoded", "rows", "sink", "written", "committed")
TASK_POINTS: Final = ("worker", "task")
POINTS: Final = (*DRIVER_POINTS, *TASK_POINTS)
QUIET: Final = ("begun", "decoded", "rows", "committed")
"""Where nothing of the batch is on the wire yet, or it is known that all is."""

SMALL_BEFORE: Final = range(22, 36)
"""The small messages of batch 1 that stand before the one at which tasks stop."""


def name(value: bytes) -> str:
    return value[:9].decode()


def message(kind: str, number: int) -> bytes:
    title = f"{kind}-{number:03d}".encode()
    size = 400 if kind == "small" else SLICES * (MAX_BYTES - 500)
    return title + random.Random(title).randbytes(size)


def smalls(begin: int, end: int) -> list[bytes]:
    return [message("small", number) for number in range(begin, end)]


# Numbers are offsets: those of batch 1 end inside of one large message and begin inside of another.
SENT: Final = (
    *smalls(0, 18),
    message("large", 18),
    *smalls(23, 38),
    message("large", 38),
    *smalls(43, 50),
    message("large", 50),
    *smalls(55, 60),
)
BY_BATCH: Final = (
    {name(value) for value in SENT[:18]},
    {name(value) for value in SENT[18:34]},
    {name(value) for value in SENT[34:]},
)
ALL: Final = {name(value): 1 for value in SENT}


class Batch(NamedTuple):
    """The report of a batch by the function for foreachBatch."""

    id: int
    skipped: bool
    replay: bool
    waiting: int


class Run(NamedTuple):
    """The result of a query: its records on the wire, and its batches before and after the kill."""

    topic: str
    copies: Counter[str]
    slices: int
    before: list[Batch]
    after: list[Batch]


class Killed(NamedTuple):
    """The remains of a killed driver: the topic that it read, its checkpoints and notes."""

    source: str
    folder: Path
    jvm_ended: bool


class Driver:
    """The program, from its start to its end."""

    def __init__(self, kafka: Kafka, source: str, folder: Path) -> None:
        self._folder = folder
        self._log = (folder / "log").open("wb")
        command = [sys.executable, str(PROGRAM), kafka.servers, source, str(folder), str(MAX_BYTES)]
        self._process = subprocess.Popen(command, stdout=self._log, stderr=self._log)

    def wait_for(self, *names: str, until: Callable[[], bool] = lambda: True) -> None:
        """Wait for files that the program makes, and for a condition."""
        deadline = time.monotonic() + DEADLINE_S
        while not all((self._folder / name).exists() for name in names) or not until():
            assert self._process.poll() is None, (self._folder / "log").read_text(errors="replace")[-3000:]
            assert time.monotonic() < deadline, f"{names} are not all there, or what was to happen did not"
            time.sleep(0.1)

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._log.close()

    def jvm_ends(self) -> bool:
        """Wait for the driver's JVM to follow it."""
        pid = int((self._folder / "jvm").read_text())
        deadline = time.monotonic() + DEADLINE_S
        while is_running(pid) and time.monotonic() < deadline:
            time.sleep(0.1)
        return not is_running(pid)


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def finished(spark: SparkSession, kafka: Kafka, killed: Killed) -> dict[str, list[Batch]]:
    """Start the queries from their checkpoints, like a driver after a kill; all at once, to be quick."""
    source, folder, _ = killed
    chain = Chain([Dedup(), Slice(max_bytes=MAX_BYTES)])
    reading = {"kafka.bootstrap.servers": kafka.servers, "subscribe": source, "startingOffsets": "earliest"}
    found: dict[str, list[Batch]] = {point: [] for point in DRIVER_POINTS}
    queries = []
    for point, batches in found.items():

        def note(progress: BatchProgress, batches: list[Batch] = batches) -> None:
            batches.append(Batch(progress.batch, progress.skipped, progress.replay, progress.waiting))

        options = {"kafka.bootstrap.servers": kafka.servers, "topic": f"{source}-{point}"}
        checkpoint = str(folder / point)
        function = foreach_batch(
            chain, kafka_sink(options, chain=chain), checkpoint=checkpoint, on_progress=note
        )
        stream = kafka_source(spark.readStream, {**reading, "maxOffsetsPerTrigger": str(BATCH)})
        writer = stream.writeStream.foreachBatch(function).option("checkpointLocation", checkpoint)
        queries.append(writer.trigger(availableNow=True).start())
    for query in queries:
        assert query.awaitTermination(DEADLINE_S)
        assert query.exception() is None
    return found


def batches_of(folder: Path, point: str) -> list[Batch]:
    return [Batch(*json.loads(line)) for line in (folder / f"{point}.progress").read_text().splitlines()]


def titles(records: list[Record]) -> Counter[str]:
    """Count the messages of a wire by their names; each has exactly one record that begins with it."""
    values = (record.value or b"" for record in records)
    return Counter(name(value) for value in values if value.startswith((b"small-", b"large-")))


@pytest.fixture(scope="module")
def killed(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Killed:
    """Let all queries reach their points, and kill their driver."""
    folder = tmp_path_factory.mktemp("kills")
    source = kafka.topic("kills")
    for point in POINTS:
        kafka.topic(f"{source}-{point}", partitions=2)
    keys = [None if number % 3 == 0 else str(number % 5).encode() for number in range(len(SENT))]
    sending = Chain([Dedup(), Slice(max_bytes=MAX_BYTES)])
    kafka.send(sending, *(Record(source, value, key) for value, key in zip(SENT, keys, strict=True)))
    assert kafka.ends(source) == {0: 3 * BATCH}

    def is_amid_the_write(point: str) -> bool:
        return sum(kafka.ends(f"{source}-{point}").values()) > len(BY_BATCH[0])

    driver = Driver(kafka, source, folder)
    try:
        for point in TASK_POINTS:
            driver.wait_for(f"{point}.there", until=partial(is_amid_the_write, point))
            (folder / f"{point}.go").touch()
        names = [f"{point}.there" for point in DRIVER_POINTS] + [f"{point}.done" for point in TASK_POINTS]
        driver.wait_for(*names, until=partial(is_amid_the_write, "sink"))
    finally:
        driver.kill()
    return Killed(source, folder, driver.jvm_ends())


@pytest.fixture(scope="module")
def runs(spark: SparkSession, kafka: Kafka, killed: Killed) -> dict[str, Run]:
    """Finish the queries from their checkpoints, and return their results."""
    before = {point: batches_of(killed.folder, point) for point in POINTS}
    after = finished(spark, kafka, killed)
    topics = {point: f"{killed.source}-{point}" for point in POINTS}
    records, _ = kafka.read(list(topics.values()), Chain([]))
    wires = {point: [each for each in records if each.topic == topics[point]] for point in POINTS}
    return {
        point: Run(
            topics[point],
            titles(wire),
            sum("hw.slice" in record.headers for record in wire),
            before[point],
            after.get(point, []),
        )
        for point, wire in wires.items()
    }


def once(runs: dict[str, Run], records: list[Record]) -> dict[str, bool]:
    """Return for each point whether every message came exactly once from its topic, and whole."""
    found = {point: Counter[bytes]() for point in runs}
    points = {run.topic: point for point, run in runs.items()}
    for record in records:
        found[points[record.topic]][record.value] += 1
    return {point: counts == Counter(SENT) for point, counts in found.items()}


class TestKilledDriver:
    def test_takes_its_jvm_along(self, killed: Killed) -> None:
        assert killed.jvm_ended

    @pytest.mark.parametrize("point", DRIVER_POINTS)
    def test_was_in_the_middle_of_messages(self, runs: dict[str, Run], point: str) -> None:
        assert runs[point].before[0].waiting > 0
        assert [batch.waiting > 0 for batch in runs[point].after] == [point != "committed", False]

    @pytest.mark.parametrize("point", QUIET)
    def test_leaves_every_record_once_on_the_wire(self, runs: dict[str, Run], point: str) -> None:
        assert runs[point].copies == ALL
        assert runs[point].slices == 3 * SLICES

    def test_after_the_write_leaves_its_batch_twice(self, runs: dict[str, Run]) -> None:
        assert runs["written"].copies == {key: 2 if key in BY_BATCH[1] else 1 for key in ALL}
        assert runs["written"].slices == 4 * SLICES

    def test_amid_the_write_leaves_some_of_its_batch_twice(self, runs: dict[str, Run]) -> None:
        copies = runs["sink"].copies
        assert set(copies) == set(ALL)
        repeated = {key for key, count in copies.items() if count == 2}
        assert repeated
        assert repeated < BY_BATCH[1]
        assert {count for key, count in copies.items() if key not in repeated} == {1}

    @pytest.mark.parametrize("point", [point for point in DRIVER_POINTS if point != "committed"])
    def test_has_the_batch_replayed(self, runs: dict[str, Run], point: str) -> None:
        found = [(batch.id, batch.skipped, batch.replay) for batch in runs[point].after]
        assert found == [(1, False, True), (2, False, False)]

    def test_after_the_commit_has_the_batch_skipped(self, runs: dict[str, Run]) -> None:
        found = [(batch.id, batch.skipped, batch.replay) for batch in runs["committed"].after]
        assert found == [(1, True, False), (2, False, False)]
        assert [batch.id for batch in runs["committed"].before] == [0, 1]


class TestKilledTask:
    @pytest.mark.parametrize("point", TASK_POINTS)
    def test_leaves_some_of_its_rows_twice(self, runs: dict[str, Run], point: str) -> None:
        copies = runs[point].copies
        assert set(copies) == set(ALL)
        repeated = {key for key, count in copies.items() if count == 2}
        assert repeated
        assert repeated <= {f"small-{number:03d}" for number in SMALL_BEFORE}
        assert {count for key, count in copies.items() if key not in repeated} == {1}

    @pytest.mark.parametrize("point", TASK_POINTS)
    def test_is_retried_within_its_batch(self, runs: dict[str, Run], point: str) -> None:
        assert [(batch.id, batch.skipped, batch.replay) for batch in runs[point].before] == [
            (0, False, False),
            (1, False, False),
            (2, False, False),
        ]


class TestReader:
    def test_with_dedup_in_memory_sees_every_record_once(self, runs: dict[str, Run], kafka: Kafka) -> None:
        topics = [run.topic for run in runs.values()]
        found, refused = kafka.read(topics, Chain([Dedup(), Slice()]))
        assert not refused
        assert once(runs, found) == dict.fromkeys(POINTS, True)

    def test_with_dedup_in_sqlite_sees_every_record_once_across_its_restart(
        self, runs: dict[str, Run], kafka: Kafka, tmp_path: Path
    ) -> None:
        chain = Chain([Dedup(store=str(tmp_path / "seen.sqlite")), Slice()])
        topics = [run.topic for run in runs.values()]
        half = len(POINTS) * len(SENT) // 2
        first, refused = kafka.read(topics, chain, group=topics[0], count=half)
        rest, refused_later = kafka.read(topics, chain, group=topics[0])
        assert not [*refused, *refused_later]
        assert once(runs, [*first, *rest]) == dict.fromkeys(POINTS, True)
        assert len(first) == half
