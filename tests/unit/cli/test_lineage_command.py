"""``headerware lineage``: the jobs that trails name, shown, as events, and sent."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest
from click.testing import CliRunner

from headerware import Chain, Producer
from headerware.cli import main
from headerware.interceptors import HeaderIds, Trail
from headerware.interceptors.trail import TRAIL_HEADER, TrailEntry, TrailReading, encode_trail
from tests.openlineage_events import Events, read_event, told

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from click.testing import Result

    from headerware.testing import EmbeddedCluster

WHEN = 1_767_225_600_000
PRODUCED = TrailEntry(by_whom="shop", when_ms=WHEN, produced_into_cluster="eu", produced_into_topic="orders")
MIRRORED = TrailEntry(
    by_whom="mirror",
    when_ms=WHEN + 1000,
    read_from_cluster="eu",
    read_from_topic="orders",
    produced_into_cluster="us",
    produced_into_topic="orders",
)
VALUE = encode_trail(TrailReading((PRODUCED, MIRRORED)))
CLAIMS = "trails are as their writers claim, and no signature was verified"


@pytest.fixture
def topic(embedded_cluster: EmbeddedCluster, unique_topic: Callable[[str], str]) -> str:
    """Return a topic with two trails that are whole, one that is corrupt, and a record without any."""
    name = unique_topic("lineage")
    embedded_cluster.create_topic(name)
    producer = confluent_kafka.Producer({"bootstrap.servers": embedded_cluster.bootstrap_servers})
    for value in (VALUE, VALUE, b"9", None):
        headers: Any = [] if value is None else [(TRAIL_HEADER, value)]
        producer.produce(name, b"v", headers=headers)
    assert producer.flush(60) == 0
    return name


def run(cluster: EmbeddedCluster, *arguments: str) -> Result:
    result = CliRunner().invoke(
        main, ["lineage", "--bootstrap-servers", cluster.bootstrap_servers, *arguments]
    )
    assert result.exit_code == 0, result.output
    return result


class TestLineageCommand:
    def test_shows_each_job_with_its_topics(self, embedded_cluster: EmbeddedCluster, topic: str) -> None:
        assert run(embedded_cluster, topic, "--cluster", "us=broker.us").output.splitlines() == [
            "shop  2026-01-01 00:00:00.000Z to 2026-01-01 00:00:00.000Z",
            "  writes kafka://eu/orders  2 records",
            "mirror  2026-01-01 00:00:01.000Z to 2026-01-01 00:00:01.000Z",
            "  reads  kafka://eu/orders  2 records",
            "  writes kafka://broker.us:9092/orders  2 records",
            "left out: 1 record without a trail",
            "left out: 1 record with a corrupt trail",
            f"read: 4 records, at most the last 100 of each partition (--count); {CLAIMS}",
        ]

    @pytest.mark.parametrize("option", ["-n", "--count", "--limit"])
    def test_says_how_many_records_it_counts(
        self, embedded_cluster: EmbeddedCluster, topic: str, option: str
    ) -> None:
        assert run(embedded_cluster, topic, option, "3").output.splitlines()[-1] == (
            f"read: 3 records, at most the last 3 of each partition (--count); {CLAIMS}"
        )

    @pytest.mark.parametrize(
        "reason", ["__connect.errors.topic", "headerware.dead_letter.topic", "__dlq.errors.topic"]
    )
    def test_tells_whose_dead_letters_a_topic_has(
        self, embedded_cluster: EmbeddedCluster, unique_topic: Callable[[str], str], reason: str
    ) -> None:
        name, servers = unique_topic("dead-letters"), embedded_cluster.bootstrap_servers
        embedded_cluster.create_topic(name)
        entry = TrailEntry(by_whom="shop", when_ms=WHEN, produced_into_topic="orders")
        trail = encode_trail(TrailReading((entry,)))
        producer = confluent_kafka.Producer({"bootstrap.servers": servers})
        producer.produce(name, b"v", headers=[(TRAIL_HEADER, trail), (reason, b"orders")])
        assert producer.flush(60) == 0
        assert run(embedded_cluster, name).output.splitlines()[1:-1] == [
            f"  writes kafka://{servers.partition(',')[0]}/orders  1 record",
            "1 record: dead letters of orders",
        ]

    def test_prints_events_that_openlineage_reads(
        self, embedded_cluster: EmbeddedCluster, topic: str
    ) -> None:
        lines = run(embedded_cluster, topic, "--json", "--job-namespace", "sales").output.splitlines()
        events = [read_event(json.loads(line)["result"]) for line in lines]
        assert [(told(event).kind, told(event).job) for event in events] == [
            ("START", "sales/shop"),
            ("COMPLETE", "sales/shop"),
            ("START", "sales/mirror"),
            ("COMPLETE", "sales/mirror"),
        ]
        assert told(events[-1]).outputs == {"kafka://us/orders": 2}
        assert events[-1].eventTime == "2026-01-01T00:00:01.000+00:00"

    def test_sends_events_where_openlineage_is_told_to(
        self,
        embedded_cluster: EmbeddedCluster,
        topic: str,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        events = Events.to_file(tmp_path / "events.json", monkeypatch)
        for _ in range(2):
            assert "sent 4 events" in run(embedded_cluster, topic, "--emit").output
        first, again = events.read()[:4], events.read()[4:]
        assert [event.run.runId for event in first] == [event.run.runId for event in again]

    def test_sends_nothing_unasked(
        self, embedded_cluster: EmbeddedCluster, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        events = Events.to_file(tmp_path / "events.json", monkeypatch)
        run(embedded_cluster, topic)
        assert not events.path.exists()

    def test_knows_the_cluster_that_it_reads_and_names_that_are_ids(
        self, embedded_cluster: EmbeddedCluster, unique_topic: Callable[[str], str]
    ) -> None:
        name, servers = unique_topic("lineage"), embedded_cluster.bootstrap_servers
        embedded_cluster.create_topic(name)
        chain = Chain([Trail(service="shop"), HeaderIds()])
        with Producer({"bootstrap.servers": servers}, chain=chain) as producer:
            producer.produce(name, b"v")
        first = servers.partition(",")[0]
        assert f"  writes kafka://{first}/{name}  1 record" in run(embedded_cluster, name).output

    def test_without_trails_says_so(
        self, embedded_cluster: EmbeddedCluster, unique_topic: Callable[[str], str]
    ) -> None:
        name = unique_topic("lineage")
        embedded_cluster.create_topic(name)
        assert run(embedded_cluster, name).output.startswith("no trail in these records\n")

    @pytest.mark.parametrize("text", ["eu", "eu=", "=broker"])
    def test_refuses_a_cluster_without_servers(self, text: str) -> None:
        arguments = ["lineage", "orders", "--bootstrap-servers", "127.0.0.1:1", "--cluster", text]
        result = CliRunner().invoke(main, arguments)
        assert result.exit_code == 2
        assert "expected CLUSTER=SERVERS, such as eu=broker.eu:9092" in result.output

    def test_a_receiver_that_takes_nothing_is_an_error(
        self, embedded_cluster: EmbeddedCluster, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        Events.to_file(tmp_path / "no folder" / "events.json", monkeypatch)
        servers = embedded_cluster.bootstrap_servers
        result = CliRunner().invoke(main, ["lineage", topic, "--bootstrap-servers", servers, "--emit"])
        assert (result.exit_code, result.output) == (
            1,
            "Error: OpenLineage's receiver did not take an event: RuntimeError\n",
        )

    @pytest.mark.parametrize(
        ("variable", "said"),
        [("", "set OPENLINEAGE_URL to"), ("OPENLINEAGE_DISABLED", "switches OpenLineage")],
    )
    def test_that_nobody_is_to_receive_events_is_an_error(
        self,
        embedded_cluster: EmbeddedCluster,
        topic: str,
        monkeypatch: pytest.MonkeyPatch,
        tmp_path: Path,
        variable: str,
        said: str,
    ) -> None:
        for name in [name for name in os.environ if name.startswith("OPENLINEAGE")]:
            monkeypatch.delenv(name)
        if variable:
            monkeypatch.setenv(variable, "true")
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("HOME", str(tmp_path))
        servers = embedded_cluster.bootstrap_servers
        result = CliRunner().invoke(main, ["lineage", topic, "--bootstrap-servers", servers, "--emit"])
        assert result.exit_code == 1
        assert said in result.output
        assert "sent" not in result.stdout
