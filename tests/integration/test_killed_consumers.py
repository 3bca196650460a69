"""A consumer that is killed in the middle of a message, and comes back: nothing lost, nothing twice.

What may come twice is what was delivered and not yet committed at the kill, and nothing else. The broker
itself says what was: the committed offset and, where slices hold that back, the watermark in its metadata.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from itertools import count, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from headerware.core.commit_metadata import decode_metadata
from headerware.interceptors import Slice

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from headerware import Record
    from tests.integration.conftest import Cluster

pytestmark = [pytest.mark.broker, pytest.mark.long]

DELIVER: Final = Path(__file__).parent / "programs" / "deliver.py"
DEADLINE_S: Final = 60.0
COMMITS: Final = ("manual", "auto")


class Application:
    """Runs of the program, one after the other, and what they wrote down."""

    def __init__(self, cluster: Cluster, topic: str, folder: Path, commits: str) -> None:
        self._log = folder / "log"
        self._command = [sys.executable, str(DELIVER), cluster.servers, topic, topic, str(self._log), commits]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen(self._command)

    def kill(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def lines(self) -> list[dict[str, Any]]:
        if not self._log.exists():
            return []
        # The last line may be cut off by the kill.
        whole, _, _ = self._log.read_text().rpartition("\n")
        return [json.loads(line) for line in whole.splitlines()]

    def runs(self) -> list[list[dict[str, Any]]]:
        """Return what each run delivered."""
        runs: list[list[dict[str, Any]]] = []
        for line in self.lines():
            if "started" in line:
                runs.append([])
            elif "delivered" in line:
                runs[-1].append(line)
        return runs

    def delivered(self) -> list[str]:
        return [line["delivered"] for run in self.runs() for line in run]

    def committed(self) -> list[str]:
        return [line["committed"] for line in self.lines() if "committed" in line]

    def wait_for(self, what: str, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            assert self._process is not None
            assert self._process.poll() is None, "the application ended by itself"
            assert time.monotonic() < deadline, (
                f"not within {DEADLINE_S:.0f} s: {what}; {len(self.delivered())} came"
            )
            time.sleep(0.02)

    def wait_for_messages(self, count: int) -> None:
        self.wait_for(f"{count} messages", lambda: len(self.delivered()) >= count)


@pytest.fixture(params=COMMITS)
def commits(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def start(cluster: Cluster, tmp_path: Path, commits: str) -> Iterator[Callable[[str], Application]]:
    """Give a function that starts the application on a topic, killed at the latest when the test is over."""
    started: list[Application] = []

    def run(topic: str) -> Application:
        application = Application(cluster, topic, tmp_path, commits)
        application.start()
        started.append(application)
        return application

    yield run
    for application in started:
        application.kill()


def watermark(cluster: Cluster, topic: str) -> tuple[int, int]:
    """Return the committed offset, and the one below which everything is known to be delivered."""
    offset, metadata = cluster.committed(topic, topic)
    beyond = decode_metadata(0, metadata).position
    return offset, max(offset, beyond or 0)


class TestKilledInMidMessage:
    def test_each_message_comes_once(
        self,
        cluster: Cluster,
        cut: Callable[[str, bytes], list[Record]],
        commits: str,
        start: Callable[[str], Application],
    ) -> None:
        topic = cluster.topic("half")
        wire = cluster.plain_producer()
        first, second = (cut(topic, name + bytes(6_000)) for name in (b"large--1", b"large--2"))
        assert len(first) > 3

        def put(*records: Record | bytes) -> None:
            for record in records:
                if isinstance(record, bytes):
                    wire.produce(topic, record, b"key", 0)
                else:
                    wire.produce(topic, record.value, b"key", 0, headers=list(record.headers))
            assert wire.flush(DEADLINE_S) == 0

        # The first message has small ones among its slices; the second has half its slices.
        put(b"small--1", first[0], b"small--2", *first[1:-1], b"small--3", first[-1], b"small--4")
        put(*second[:2], b"small--5", second[2], b"small--6")
        before = ["small--1", "small--2", "small--3", "large--1", "small--4", "small--5", "small--6"]
        start_of_second, end = len(first) + 4, len(first) + 9

        application = start(topic)
        application.wait_for_messages(len(before))
        application.wait_for("committed", lambda: watermark(cluster, topic) == (start_of_second, end))
        if commits == "manual":
            application.wait_for("noted", lambda: application.committed() == before)
        application.kill()
        assert application.delivered() == before

        put(*second[3:], b"small--7")
        application.start()
        application.wait_for("the rest", lambda: "small--7" in application.delivered())
        end += len(second) - 2
        application.wait_for("committed to the end", lambda: watermark(cluster, topic)[0] == end)
        application.kill()
        assert application.delivered() == [*before, "large--2", "small--7"]
        whole = {line["delivered"]: line["sha256"] for run in application.runs() for line in run}
        for name in (b"large--1", b"large--2"):
            assert whole[name.decode()] == hashlib.sha256(name + bytes(6_000)).hexdigest()


class TestKilledAtAnyMoment:
    """Two producers fill one partition, one with large messages and one with small ones."""

    def test_nothing_is_lost_and_nothing_that_was_committed_comes_again(
        self, cluster: Cluster, start: Callable[[str], Application]
    ) -> None:
        topic = cluster.topic("killed")
        application = start(topic)
        sent: dict[str, str] = {}
        killed = threading.Event()
        threads = [
            threading.Thread(target=send, args=(cluster, topic, kind, sizes, sent, killed))
            for kind, sizes in (("large", (3_000, 30_000)), ("small", (0, 100)))
        ]
        for thread in threads:
            thread.start()
        known: list[int] = []
        for enough in (40, 90, 150):
            application.wait_for_messages(enough)
            # Else nothing of this run is committed yet, and all of it may come again.
            before = known[-1] if known else 0
            application.wait_for("something committed", partial(is_beyond, cluster, topic, before))
            application.kill()
            known.append(watermark(cluster, topic)[1])
            application.start()
        killed.set()
        for thread in threads:
            thread.join(DEADLINE_S)
            assert not thread.is_alive()
        application.wait_for("all", lambda: set(application.delivered()) >= set(sent))
        application.wait_for("committed", lambda: watermark(cluster, topic)[0] == end_of(cluster, topic))
        application.kill()

        kinds = ["slice" if message.headers() else "small" for message in cluster.on_the_wire(topic)]
        assert sum(before != after for before, after in pairwise(kinds)) > 20, "the two kinds do mix"
        assert len(sent) >= 2 * COUNT
        assert {line["delivered"]: line["sha256"] for run in application.runs() for line in run} == sent
        assert known == sorted(set(known))
        seen: set[int] = set()
        for run, delivered_below in zip(application.runs(), [0, *known], strict=True):
            offsets = [line["offset"] for line in run]
            assert len(offsets) == len(set(offsets)), "none twice in one run"
            again = seen.intersection(offsets)
            assert all(offset >= delivered_below for offset in again), "what was committed came again"
            seen.update(offsets)


COUNT: Final = 120


def send(
    cluster: Cluster,
    topic: str,
    kind: str,
    sizes: tuple[int, int],
    sent: dict[str, str],
    killed: threading.Event,
) -> None:
    """Send messages of one kind, each slice a request of its own, so that the two kinds mix.

    However fast the application reads, there is more to come until it has been killed for the last time.
    """
    producer = cluster.producer(
        Slice(max_bytes=1_500), batch_num_messages=1, linger_ms=0, max_in_flight_requests_per_connection=1
    )
    generator = random.Random(kind)
    for number in count():
        if number >= COUNT and killed.wait(0.02):
            break
        name = f"{kind[0]}{number:07}"
        value = name.encode() + generator.randbytes(generator.randint(*sizes))
        sent[name] = hashlib.sha256(value).hexdigest()
        producer.produce(topic, value, b"key", partition=0)
        if number % 10 == 9:
            assert producer.flush(DEADLINE_S) == 0
    assert producer.flush(DEADLINE_S) == 0


def is_beyond(cluster: Cluster, topic: str, offset: int) -> bool:
    return watermark(cluster, topic)[1] > offset


def end_of(cluster: Cluster, topic: str) -> int:
    return int((cluster.on_the_wire(topic)[-1].offset() or 0) + 1)
