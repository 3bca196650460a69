"""Frameworks and tracers under ``headerware run``, unmodified.

They have an environment of their own, ``.venv-frameworks``; in another one these tests are skipped.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from confluent_kafka import Consumer, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from headerware.testing import EmbeddedCluster, KafkaBroker

pytestmark = pytest.mark.skipif(find_spec("faststream") is None, reason="runs in .venv-frameworks")

PROGRAMS: Final = Path(__file__).parent / "programs"
SCRIPTS: Final = Path(sys.executable).parent
RUN: Final = [SCRIPTS / "headerware", "run"]
OTEL: Final = [SCRIPTS / "opentelemetry-instrument"]
DATADOG: Final = [SCRIPTS / "ddtrace-run"]
# Neither sends anything; OpenTelemetry would refuse to start for want of an exporter.
QUIET: Final = {f"OTEL_{kind}_EXPORTER": "none" for kind in ("TRACES", "METRICS", "LOGS")} | {
    "DD_TRACE_AGENT_URL": "http://127.0.0.1:1",
    "DD_INSTRUMENTATION_TELEMETRY_ENABLED": "false",
    "DD_REMOTE_CONFIGURATION_ENABLED": "false",
}


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    chain = tmp_path / "chain.toml"
    chain.write_text('carry = ["tenant"]\n[[interceptors]]\ntype = "trail"\nservice = "under-run"\n')
    return {**os.environ, **QUIET, "HEADERWARE_CONFIG": str(chain)}


def answer_of(command: list[Any], environment: dict[str, str]) -> str:
    done = subprocess.run(
        [str(each) for each in command],
        env=environment,
        cwd=PROGRAMS,
        capture_output=True,
        text=True,
        check=False,
        timeout=90,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def headers_in(servers: str, topic: str, *, count: int = 1) -> list[dict[str, bytes]]:
    """Return the headers of the first records of a topic, read by a plain client."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[dict[str, bytes]] = []
    deadline = time.monotonic() + 60
    while len(found) < count:
        assert time.monotonic() < deadline, f"only {len(found)} of {count} records"
        message: Any = consumer.poll(0.2)
        if message is not None and message.error() is None:
            found.append(dict(message.headers() or []))
    consumer.close()
    return found


@pytest.fixture
def topics(embedded_cluster: EmbeddedCluster, unique_topic: Callable[[str], str]) -> list[str]:
    names = [unique_topic("in"), unique_topic("out")]
    for name in names:
        embedded_cluster.create_topic(name, partitions=1)
    return names


class TestFrameworks:
    def test_faststream(
        self, embedded_cluster: EmbeddedCluster, topics: list[str], environment: dict[str, str]
    ) -> None:
        servers = embedded_cluster.bootstrap_servers
        command = [sys.executable, "faststream_app.py", servers, *topics]
        assert "confirmed order 1" in answer_of([*RUN, *command], environment).splitlines()
        (sent,), (answered,) = headers_in(servers, topics[0]), headers_in(servers, topics[1])
        assert sent["tenant"] == b"north"
        assert b"by=under-run" in sent["hw.trail"]
        assert answered["tenant"] == b"north"
        assert answered["hw.trail"].startswith(sent["hw.trail"])
        assert answered["hw.trail"].count(b"by=under-run") == 2

    def test_quix_streams(
        self, kafka_broker: KafkaBroker, unique_topic: Callable[[str], str], environment: dict[str, str]
    ) -> None:
        names = [unique_topic("in"), unique_topic("out")]
        servers = kafka_broker.bootstrap_servers
        answer_of([*RUN, sys.executable, "quix_app.py", servers, *names], environment)
        (sent,), (answered,) = headers_in(servers, names[0]), headers_in(servers, names[1])
        assert sent["hw.trail"].count(b"by=under-run") == 1
        # It polls and processes on one thread. It copies headers itself, too, but does not see this one.
        assert answered["hw.trail"].startswith(sent["hw.trail"])
        assert answered["hw.trail"].count(b"by=under-run") == 2


class TestGunicorn:
    @pytest.fixture
    def url(
        self,
        embedded_cluster: EmbeddedCluster,
        topics: list[str],
        environment: dict[str, str],
        tmp_path: Path,
    ) -> Iterator[str]:
        """Run it with two workers that are forked after the application was imported."""
        places = {"SERVERS": embedded_cluster.bootstrap_servers, "TOPIC": topics[0]}
        socket = f"{tmp_path}/port"
        command = [
            *RUN,
            SCRIPTS / "gunicorn",
            "--preload",
            "--workers",
            "2",
            "--bind",
            "127.0.0.1:0",
            "shop:app",
        ]
        with Path(socket).open("w+", encoding="utf-8") as log:
            process = subprocess.Popen(
                [str(each) for each in command], env={**environment, **places}, cwd=PROGRAMS, stderr=log
            )
            try:
                deadline = time.monotonic() + 60
                while "Listening at: " not in (text := Path(socket).read_text(encoding="utf-8")):
                    assert process.poll() is None, text
                    assert time.monotonic() < deadline, text
                    time.sleep(0.05)
                yield text.split("Listening at: ")[1].split()[0]
            finally:
                process.terminate()
                process.wait(30)

    def test_has_a_chain_in_each_worker(
        self, url: str, embedded_cluster: EmbeddedCluster, topics: list[str]
    ) -> None:
        workers: set[bytes] = set()
        asked = 0
        deadline = time.monotonic() + 60
        while len(workers) < 2:
            assert time.monotonic() < deadline, f"{len(workers)} of 2 workers answered"
            with urllib.request.urlopen(f"{url}/order", timeout=30) as response:  # noqa: S310 - our own
                worker, left = response.read().split()
            assert left == b"0"
            workers.add(worker)
            asked += 1
        found = headers_in(embedded_cluster.bootstrap_servers, topics[0], count=asked)
        assert all(headers["hw.trail"].count(b"by=under-run") == 1 for headers in found)


class TestTracers:
    """The chain is behind them, next to the wire, in both orders."""

    @pytest.mark.parametrize(
        ("first", "second", "their_package"),
        [
            (RUN, OTEL, "opentelemetry"),
            (OTEL, RUN, "opentelemetry"),
            (RUN, DATADOG, "ddtrace"),
            (DATADOG, RUN, "ddtrace"),
        ],
        ids=["run otel", "otel run", "run ddtrace", "ddtrace run"],
    )
    def test_work_together(
        self,
        embedded_cluster: EmbeddedCluster,
        topics: list[str],
        environment: dict[str, str],
        first: list[Any],
        second: list[Any],
        their_package: str,
    ) -> None:
        servers = embedded_cluster.bootstrap_servers
        command = [*first, *second, sys.executable, "order.py", servers, topics[0]]
        left, *packages = answer_of(command, environment).split()
        assert left == "0"
        assert packages.index(their_package) < packages.index("headerware") < packages.index("cimpl")
        (headers,) = headers_in(servers, topics[0])
        assert headers["hw.trail"].count(b"by=under-run") == 1


class TestPeersOfTheBench:
    def test_make_as_many_spans_as_ours(self, kafka_broker: KafkaBroker) -> None:
        answer = answer_of(
            [sys.executable, "peer_spans.py", kafka_broker.bootstrap_servers], {**os.environ, **QUIET}
        )
        produced, *consumed = json.loads(answer).values()
        assert produced["headerware"] == produced["opentelemetry"] > 0
        for spans in consumed:
            # Ours also has spans of the fetch before the first chunk, and of commits.
            assert 0 < spans["opentelemetry"] <= spans["headerware"] <= spans["opentelemetry"] + 4
