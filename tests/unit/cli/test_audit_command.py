"""``headerware audit compare``, against a topic of reports on the embedded cluster."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import confluent_kafka
import msgspec
import pytest
from click.testing import CliRunner, Result

from headerware.cli import main
from tests.unit.ops.audit.test_compare import SENT, count, report

if TYPE_CHECKING:
    from headerware.testing import EmbeddedCluster

LOST = report(2, 0, count("consumed", 0, 1, 2, 3, 5, 6, 7, 8, 9))


@pytest.fixture(scope="module")
def audit_topic(embedded_cluster: EmbeddedCluster) -> str:
    """Return a topic with the reports of a producer and of a consumer, and with nonsense."""
    name = "audit-command"
    embedded_cluster.create_topic(name, partitions=2)
    producer = confluent_kafka.Producer({"bootstrap.servers": embedded_cluster.bootstrap_servers})
    for each in (SENT, LOST):
        producer.produce(name, msgspec.json.encode(each), each.session.encode())
    producer.produce(name, b"nonsense")
    assert producer.flush(60) == 0
    return name


@pytest.fixture
def run(embedded_cluster: EmbeddedCluster, audit_topic: str) -> Callable[..., Result]:
    def run(*arguments: str) -> Result:
        where = ["--bootstrap-servers", embedded_cluster.bootstrap_servers, "--audit-topic", audit_topic]
        return CliRunner(env={"COLUMNS": "200"}).invoke(main, ["audit", "compare", *where, *arguments])

    return run


class TestCompare:
    def test_shows_what_was_lost_and_fails(self, run: Callable[..., Result]) -> None:
        result = run("orders")
        assert result.exit_code == 1
        (line,) = [line for line in result.stdout.splitlines() if line.startswith("orders")]
        assert line.split()[:2] == ["orders", "billing"]
        header = next(line for line in result.stdout.splitlines() if line.startswith("topic"))
        assert header.split() == ["topic", "group", "bucket", "produced", "consumed", "lost"]
        assert line.split()[-3:] == ["10", "9", "1"]
        assert "2 reports of 2 sessions" in result.stdout
        assert "1 record of the audit topic cannot be read as reports" in result.stdout

    def test_is_shown_as_the_document_has_it(self, run: Callable[..., Result]) -> None:
        page = (Path(__file__).parents[3] / "docs" / "audit.md").read_text(encoding="utf-8")
        shown = page.partition("$ headerware audit compare")[2].partition("```")[0].splitlines()[1:]
        found = run("orders").stdout.splitlines()
        assert shown == [line.rstrip() for line in found[: len(shown)]]

    def test_fails_on_what_it_is_told_to(self, run: Callable[..., Result]) -> None:
        assert run("--fail-on", "duplicated", "--fail-on", "late").exit_code == 0

    def test_of_a_topic_without_counts_fails(self, run: Callable[..., Result]) -> None:
        result = run("payments")
        assert result.exit_code == 1
        assert "no counts of topic 'payments'" in result.output

    def test_of_another_time_has_no_rows(self, run: Callable[..., Result]) -> None:
        result = run("--to", "2026-01-01T00:00")
        assert result.exit_code == 0
        assert "no counts: check that clients have audit" in result.stderr

    def test_answers_in_json(self, run: Callable[..., Result]) -> None:
        result = run("--json")
        answer = json.loads(result.stdout)
        assert (answer["ok"], answer["result"]["malformed"], result.exit_code) == (False, 1, 1)
        (row,) = answer["result"]["rows"]
        assert (row["topic"], row["group"], row["lost"], row["duplicated"]) == ("orders", "billing", 1, 0)

    def test_takes_an_age_as_tail_does(self, run: Callable[..., Result]) -> None:
        assert run("orders", "--from", "36500d").exit_code == 1
        assert run("--from", "1s").exit_code == 0  # the reports' buckets are older

    def test_refuses_a_time_that_is_none(self, run: Callable[..., Result]) -> None:
        result = run("--from", "yesterday")
        assert result.exit_code == 2
        assert "expected a time such as" in result.output

    def test_names_the_audit_topic_that_a_cluster_does_not_have(self, run: Callable[..., Result]) -> None:
        result = run("--audit-topic", "audits")
        assert result.exit_code == 1
        assert "the audit topic audits: there is no such topic" in result.output

    def test_names_a_topic_that_is_not_there(self, embedded_cluster: EmbeddedCluster) -> None:
        where = ["--bootstrap-servers", "127.0.0.1:1", "--timeout", "0.5"]
        result = CliRunner().invoke(main, ["audit", "compare", *where])
        assert result.exit_code == 1
        assert "the audit topic 'headerware-audit' cannot be read" in result.output
