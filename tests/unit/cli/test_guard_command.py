"""``headerware guard``: wrong use, and what a dry run prints; the integration tests run it on a broker."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer

from headerware.cli import main
from tests.ingress import CHAIN, INGRESS, Ingress

if TYPE_CHECKING:
    from pathlib import Path

    from headerware.testing import EmbeddedCluster


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--route", "a"), "expected INGRESS=EGRESS"),
        (("--route", "a=b", "--route", "b=c"), "ingress topic itself"),
        (("--route", "a=b", "--dead-letter-topic", "b"), "where admitted ones go"),
        ((), "Missing option '--route'"),
    ],
)
def test_wrong_use(tmp_path: Path, options: tuple[str, ...], said: str) -> None:
    config = tmp_path / "guard.toml"
    config.write_text(CHAIN)
    command = ["guard", "--config", str(config), "--bootstrap-servers", "nowhere:1", *options]
    result = CliRunner().invoke(main, command)
    assert result.exit_code == 2
    assert said in " ".join(result.stderr.replace("\u2502", "").split())


def test_a_chain_that_verifies_nothing(tmp_path: Path) -> None:
    config = tmp_path / "guard.toml"
    config.write_text('[[interceptors]]\ntype = "slice"\n')
    command = ["guard", "--config", str(config), "--bootstrap-servers", "nowhere:1", "--route", "a=b"]
    result = CliRunner().invoke(main, command)
    assert (result.exit_code, "verifies nothing" in result.stderr) == (2, True)


@pytest.mark.parametrize("as_json", [False, True])
def test_a_dry_run_says_what_would_be_done(
    embedded_cluster: EmbeddedCluster, tmp_path: Path, *, as_json: bool
) -> None:
    servers, ingress = embedded_cluster.bootstrap_servers, Ingress(tmp_path)
    topic, egress = f"{INGRESS}-dry-{as_json}".lower(), f"orders-dry-{as_json}".lower()
    with Producer({"bootstrap.servers": servers}) as producer:
        for other in (egress, f"{topic}.dead-letter"):
            producer.produce(other, b"so that it has a partition")
        producer.produce(topic, b"unsigned", partition=0)
        for record in ingress.sent(b"1", b"2", topic=topic):
            producer.produce(topic, record.value, record.key, 0, headers=list(record.headers))
    command = [
        *("guard", "--config", ingress.write_guard_chain(), "--bootstrap-servers", servers),
        *("--route", f"{topic}={egress}", "--dry-run", "--look-back", "0"),
    ]
    result = CliRunner().invoke(main, [*command, "--json"] if as_json else command)
    assert result.exit_code == 1, "some would be refused"
    if as_json:
        status = json.loads(result.stdout)["result"]
        assert status["admitted"] == {topic: 2}
        assert status["refused"] == {topic: {"sign: SignatureError": 1}}
        return
    lines = [line.split() for line in result.stdout.splitlines()]
    assert lines == [
        ["topic", "verdict", "reason", "records"],
        [topic, "would", "be", "admitted", "2"],
        [topic, "would", "be", "refused", "sign:", "SignatureError", "1"],
        ["nothing", "was", "sent", "or", "committed;", "without", "--dry-run", "it", "is"],
    ]
