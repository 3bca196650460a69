"""Programs whose topic holds records that their chain refuses, started again and again as a supervisor would.

Each start has to come further than the one before: a refused record is met once, whatever the program's
loop makes of it, and no good record is lost.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from headerware.interceptors import Sign

if TYPE_CHECKING:
    from tests.integration.conftest import Cluster

pytestmark = pytest.mark.broker

READ: Final = Path(__file__).parent / "programs" / "read.py"
DEADLINE_S: Final = 60.0
GOOD: Final = {0: "a", 2: "b", 5: "c"}
REFUSED: Final = (1, 3, 4)


@pytest.fixture
def topic(cluster: Cluster, keyring: str) -> str:
    """Return a topic with records that are signed, and others that are not."""
    topic = cluster.topic("orders")
    signing = cluster.producer(Sign(keyring=keyring, key_id="test"))
    wire = cluster.plain_producer()
    for offset in range(len(GOOD) + len(REFUSED)):
        producer, value = (signing, GOOD[offset]) if offset in GOOD else (wire, "hunter2")
        producer.produce(topic, value, partition=0)
        assert producer.flush(DEADLINE_S) == 0
    return topic


class Application:
    """Starts of the program, one after the other, and what each wrote down."""

    def __init__(self, cluster: Cluster, topic: str, folder: Path, keyring: str) -> None:
        self._config = folder / "chain.toml"
        self._sign = f'type = "sign"\nkeyring = "{keyring}"\nrequire = "enforce"\n'
        self.configure("raise")
        self._log = folder / "log"
        self._leading = [sys.executable, str(READ), cluster.servers, topic, topic, str(self._config)]

    def configure(self, on_error: str) -> None:
        self._config.write_text(f'[[interceptors]]\n{self._sign}on_error = "{on_error}"\n')

    def start(self, chain: str, loop: str, call: str) -> int:
        command = [*self._leading, chain, loop, call, str(self._log)]
        return subprocess.run(command, timeout=DEADLINE_S, check=False, capture_output=True).returncode

    def runs(self) -> list[list[dict[str, Any]]]:
        runs: list[list[dict[str, Any]]] = []
        for line in map(json.loads, self._log.read_text().splitlines()):
            if "started" in line:
                runs.append([])
            else:
                runs[-1].append(line)
        return runs


@pytest.fixture
def application(cluster: Cluster, topic: str, tmp_path: Path, keyring: str) -> Application:
    return Application(cluster, topic, tmp_path, keyring)


def values(runs: list[list[dict[str, Any]]]) -> set[str]:
    return {line["value"] for run in runs for line in run if "value" in line}


class TestThatDie:
    """The program ends at the first error, so each refused record takes one start."""

    @pytest.mark.parametrize("call", ["poll", "consume", "deserializing"])
    @pytest.mark.parametrize(
        ("chain", "loop", "died"),
        [
            ("configuration", "raise", "KafkaException"),
            ("configuration", "unchecked", "AttributeError"),
            ("code", "raise", "SignatureError"),
        ],
    )
    def test_meet_each_refused_record_once(
        self, application: Application, chain: str, loop: str, died: str, call: str
    ) -> None:
        if call == "deserializing" and chain == "configuration":
            died = "ConsumeError"
        ends = [application.start(chain, loop, call) for _ in range(len(REFUSED) + 1)]
        assert ends == [1, 1, 1, 0]
        runs = application.runs()
        assert [run[-1].get("died") for run in runs] == [died, died, died, None]
        assert values(runs) == set(GOOD.values()), "no good record is lost"
        if chain == "configuration" and loop == "raise" and call != "deserializing":
            met = [[line["offset"] for line in run if "error" in line] for run in runs]
            assert met == [[1], [3], [4], []]
        reasons = [run[-1].get("reason", "") for run in runs]
        assert not any("hunter2" in reason for reason in reasons)


class TestThatGoOn:
    @pytest.mark.parametrize("call", ["poll", "consume"])
    def test_meet_each_refused_record_once(self, application: Application, call: str) -> None:
        assert [application.start("configuration", "print", call) for _ in range(3)] == [0, 0, 0]
        first, *later = application.runs()
        assert [line.get("value", line["offset"]) for line in first] == ["a", 1, "b", 3, 4, "c"]
        for line in first:
            if "error" in line:
                assert line["code"] == "_BAD_MSG"
                assert "sign at " in line["error"]
                assert f"[0]@{line['offset']}" in line["error"]
                assert "dead_letter" in line["error"], "it says what to do"
        assert not any("error" in line for run in later for line in run)


class TestWithDeadLetters:
    def test_read_on_behind_a_record_whose_letter_no_topic_takes(
        self, cluster: Cluster, application: Application, topic: str
    ) -> None:
        wire = cluster.plain_producer(message_max_bytes=2_000_000)
        largest: Any = {"value": bytes(1_048_400), "headers": [("hw.slice", b"no slice at all")]}
        stored: list[Any] = []
        wire.produce(topic, partition=0, on_delivery=lambda error, _: stored.append(error), **largest)
        assert wire.flush(DEADLINE_S) == 0
        assert stored == [None]
        application.configure("dead_letter")
        assert [application.start("configuration", "raise", "poll") for _ in range(2)] == [0, 0]
        first, _ = application.runs()
        assert [line.get("value") for line in first] == list(GOOD.values())
        expected = [b"hunter2"] * len(REFUSED) + [None]
        letters = [letter.value() for letter in cluster.on_the_wire(f"{topic}.dead-letter")]
        # A program that ends before it has committed anything reads all of it again.
        assert letters in (expected, expected * 2)
