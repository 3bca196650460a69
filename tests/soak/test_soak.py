"""A soak on a real broker: two producers, four consumers, a full chain, and faults all along (`make soak`).

Clients are processes of their own. Each fault comes in turn: a client is killed, another leaves the group,
connections are cut, a consumer stands still, the broker restarts. In the end each confirmed record must have
been processed, no other may have been, and a process that lived all along must not have grown.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

import psutil
import pytest

from headerware.keyring import with_new_key
from headerware.keyring.writing import edit_keyring
from headerware.ops.audit import read_reports
from tests.integration.gate import GatedBroker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MINUTES: Final = float(os.environ.get("SOAK_MINUTES", "10"))
FAULT_EVERY_S: Final = 20.0
SAMPLE_EVERY_S: Final = 2.0
DRAIN_S: Final = 180.0
GROWTH_LIMIT: Final = 0.15
WORKER: Final = str(Path(__file__).with_name("worker.py"))

pytestmark = [
    pytest.mark.broker,
    pytest.mark.skipif("SOAK_MINUTES" not in os.environ, reason="takes minutes: make soak"),
    pytest.mark.timeout(MINUTES * 60 + 600),
]


class Client:
    """A producer or consumer, in a process that may end and begin again."""

    def __init__(self, role: str, name: str, folder: Path, **settings: str) -> None:
        self.name = name
        self.output = folder / name
        self.memory: list[tuple[float, int]] = []
        self.starts = 0
        self._role = role
        self._settings = {**settings, "output": str(self.output)}
        self._log = (folder / f"{name}.log").open("ab")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.starts += 1
        own = {**self._settings, "name": f"{self.name}.{self.starts}"}
        command = [sys.executable, WORKER, self._role, json.dumps(own)]
        environment = {**os.environ, "SERVICE": self.name}
        self._process = subprocess.Popen(command, stdout=self._log, stderr=self._log, env=environment)

    def send_signal(self, number: int) -> None:
        self._running.send_signal(number)

    def end(self, number: int = signal.SIGTERM) -> int:
        """End the process, and return its exit code."""
        self.send_signal(number)
        return self._running.wait(DRAIN_S)

    def sample(self) -> None:
        """Note how much memory the process has."""
        if self._process is not None and self._process.poll() is None:
            self.memory.append((time.monotonic(), psutil.Process(self._process.pid).memory_info().rss))

    def lines(self) -> list[str]:
        return self.output.read_text().split("\n")[:-1] if self.output.exists() else []

    def failures(self) -> list[str]:
        path = self.output.with_name(self.output.name + ".failed")
        return path.read_text(errors="replace").split("\n")[:-1] if path.exists() else []

    def kill(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait(10)
        self._log.close()

    @property
    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None
        return self._process


class Soak:
    """The broker behind its gate, the clients, and what goes wrong with them."""

    def __init__(self, gated: GatedBroker, clients: list[Client]) -> None:
        self._gated = gated
        self._clients = {client.name: client for client in clients}
        self.faults: Counter[str] = Counter()

    def faults_in_turn(self) -> Iterator[Callable[[], None]]:
        # The first producer, and the first consumer of each kind, live all along: their memory is measured.
        return itertools.cycle(
            [
                self.a_consumer_leaves,
                self.connections_are_cut,
                self.a_consumer_is_killed,
                self.the_broker_restarts,
                self.a_producer_is_killed,
                self.a_consumer_stands_still,
            ]
        )

    def a_consumer_leaves(self) -> None:
        assert self._clients["consumer-1"].end() == 0
        self._clients["consumer-1"].start()

    def a_consumer_is_killed(self) -> None:
        self._clients["consumer-2"].end(signal.SIGKILL)
        self._clients["consumer-2"].start()

    def a_producer_is_killed(self) -> None:
        self._clients["producer-1"].end(signal.SIGKILL)
        self._clients["producer-1"].start()

    def a_consumer_stands_still(self) -> None:
        self._clients["consumer-1"].send_signal(signal.SIGSTOP)
        time.sleep(5)
        self._clients["consumer-1"].send_signal(signal.SIGCONT)

    def connections_are_cut(self) -> None:
        self._gated.cut()
        time.sleep(2)
        self._gated.admit()

    def the_broker_restarts(self) -> None:
        self._gated.stop()
        self._gated.start()


@pytest.fixture
def gated() -> Iterator[GatedBroker]:
    with GatedBroker() as gated:
        yield gated


@pytest.fixture
def clients(gated: GatedBroker, tmp_path: Path) -> Iterator[list[Client]]:
    edit_keyring(tmp_path / "keys.json", lambda keys: with_new_key(keys, "soak", "hmac-sha256"), create=True)
    chain = tmp_path / "headerware.toml"
    chain.write_text(CHAIN)
    gated.broker.create_topic("soak", partitions=6)
    gated.broker.create_topic(AUDIT_TOPIC)
    settings = {"servers": gated.servers, "topic": "soak", "chain": str(chain)}
    made = [Client("produce", f"producer-{n}", tmp_path, **settings) for n in range(2)]
    roles = ["consume", "consume_with_workers", "consume", "consume_with_workers"]
    made += [Client(role, f"consumer-{n}", tmp_path, **settings) for n, role in enumerate(roles)]
    yield made
    for client in made:
        client.kill()


AUDIT_TOPIC: Final = "soak.audit"
CHAIN: Final = f"""
[[interceptors]]
type = "trace"

[[interceptors]]
type = "metrics"

[[interceptors]]
type = "audit"
audit_topic = "{AUDIT_TOPIC}"
service = "${{env:SERVICE}}"
interval_s = 5

[[interceptors]]
type = "trail"
service = "${{env:SERVICE}}"

[[interceptors]]
type = "dedup"
store = "identities.sqlite"

[[interceptors]]
type = "compress"

[[interceptors]]
type = "slice"
max_bytes = 100_000

[[interceptors]]
type = "sign"
keyring = "keys.json"
key_id = "soak"
require = "enforce"
"""


def growth(client: Client) -> float:
    """Return by what share a process has grown since its first third, by medians."""
    sizes = [size for _, size in client.memory]
    third = len(sizes) // 3
    return statistics.median(sizes[-third:]) / statistics.median(sizes[third : 2 * third]) - 1


def audited(servers: str, service: str) -> int:
    """Return how many records a producer that lived all along has counted as stored."""
    found = read_reports({"bootstrap.servers": servers}, AUDIT_TOPIC)
    assert found.malformed == 0
    counts = [count for report in found.reports if report.service == service for count in report.counts]
    return sum(count.records for count in counts if count.outcome == "delivered")


def test_what_is_confirmed_is_processed_and_memory_stays(gated: GatedBroker, clients: list[Client]) -> None:
    soak = Soak(gated, clients)
    for client in clients:
        client.start()
    began = time.monotonic()
    next_fault = began + FAULT_EVERY_S
    faults = soak.faults_in_turn()
    while (now := time.monotonic()) < began + MINUTES * 60:
        if now >= next_fault:
            fault = next(faults)
            soak.faults[fault.__name__] += 1
            fault()
            next_fault = time.monotonic() + FAULT_EVERY_S
        for client in clients:
            client.sample()
        time.sleep(SAMPLE_EVERY_S)
    producers, consumers = clients[:2], clients[2:]
    assert [client.end() for client in producers] == [0, 0]
    sent = {line for client in producers for line in client.lines()}
    drained = time.monotonic() + DRAIN_S
    while missing := sent - (got := {line for client in consumers for line in client.lines()}):
        assert time.monotonic() < drained, f"{len(missing)} lost, among them {sorted(missing)[:5]}"
        time.sleep(1)
    assert [client.end() for client in consumers] == [0, 0, 0, 0]

    times = Counter(line for client in consumers for line in client.lines())
    unconfirmed = got - sent
    measured = (producers[0], consumers[0], consumers[3])
    figures = {
        "minutes": MINUTES,
        "confirmed": len(sent),
        "processed": len(times),
        "processed more than once": sum(count > 1 for count in times.values()),
        "not confirmed, yet processed": len(unconfirmed),
        **{f"fault: {name.replace('_', ' ')}": count for name, count in soak.faults.items()},
        **{
            f"{client.name}: MiB, growth": f"{client.memory[-1][1] / 2**20:.0f}, {growth(client):+.1%}"
            for client in measured
        },
    }
    print(json.dumps(figures, indent=2))  # noqa: T201 - the figures of docs/reliability.md
    failures = [line for client in clients for line in client.failures()]
    assert failures == []
    # Only a killed producer may have stored what nobody confirmed to it.
    assert {line.rpartition("-")[0].rpartition(".")[0] for line in unconfirmed} <= {"producer-1"}
    assert [client.name for client in measured if growth(client) >= GROWTH_LIMIT] == []
    assert audited(gated.servers, producers[0].name) == len(producers[0].lines())
