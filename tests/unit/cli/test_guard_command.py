"""``headerware guard``: wrong use, and what a dry run prints; the integration tests run it on a broker."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
from threading import Thread
from typing import TYPE_CHECKING, Any
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer

from headerware.cli import main
from headerware.cli.guard import _line
from headerware.ops.guard import Status
from tests.ingress import CHAIN, INGRESS, Ingress
from tests.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from headerware.testing import EmbeddedCluster


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--route", "a"), "expected INGRESS=EGRESS"),
        (("--route", "a=b", "--route", "b=c"), "which is an ingress topic too"),
        (("--route", "a=b", "--dead-letter-topic", "b"), "which is an ingress or egress topic"),
        (
            ("--route", "a=b", "--dead-letter-topic", ""),
            "dead_letter_topic: expected a topic's name, found ''",
        ),
        (
            ("--route", "a=b", "--audit-topic", "no such"),
            "audit_topic: expected a topic's name, found 'no such'",
        ),
        (("--route", "a=b", "--group", ""), "group_id: expected a non-empty name"),
        (("--route", "a=b", "--instance", ""), "instance: expected a non-empty name"),
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
    assert (result.exit_code, "a chain that verifies records" in result.stderr) == (2, True)


def test_lines_count_by_kind_of_refusal() -> None:
    refused = {
        "a": {"sign: SignatureError": 2, "admission: AdmissionError": 1},
        "b": {"sign: SignatureError": 1},
    }
    status = Status(
        admitted={"a": 5},
        refused=refused,
        dropped={},
        sent_bytes=0,
        held={},
        held_back={},
        at_ms=0,
        lag={"a[0]": 7},
        deleted=0,
        transactions=1,
        chain={},
    )
    assert _line(status) == (
        "5 records admitted, 4 refused (admission: AdmissionError 1, sign: SignatureError 3); lag 7"
    )


@pytest.mark.parametrize("as_json", [False, True])
def test_a_dry_run_says_what_would_be_done(
    embedded_cluster: EmbeddedCluster, tmp_path: Path, *, as_json: bool
) -> None:
    servers, ingress = embedded_cluster.bootstrap_servers, Ingress(tmp_path)
    topic, egress = f"{INGRESS}-dry-{as_json}".lower(), f"orders-dry-{as_json}".lower()
    with (tmp_path / "policy.toml").open("a") as policy:
        policy.write('[[rules]]\neffect = "deny"\ntopics = ["ordesr"]\n')
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
    said = [re.sub(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ ", "", line) for line in result.stderr.splitlines()]
    assert said == [
        "INFO group headerware-guard, instance random: only shows what it would do (dry run)",
        f"INFO routes {topic} -> {egress}; refused to {{topic}}.dead-letter, accounts to no topic",
        "INFO judged by the chain slice -> admission -> sign; sent on unchanged",
        f"INFO admitted by the policy {tmp_path / 'policy.toml'}, for certificates: enforce",
        "WARNING no ingress topic fits rules[2] (ordesr) of the policy; check its spelling",
    ]
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
        [
            "nothing",
            "was",
            "sent",
            "or",
            "committed;",
            "without",
            "--dry-run,",
            "the",
            "records",
            "are",
            "forwarded",
        ],
    ]


def test_tells_by_http_how_it_is(embedded_cluster: EmbeddedCluster, tmp_path: Path) -> None:
    servers, ingress = embedded_cluster.bootstrap_servers, Ingress(tmp_path)
    topic, egress = f"{INGRESS}-health".lower(), "orders-health"
    with Producer({"bootstrap.servers": servers}) as producer:
        for each in (topic, egress, f"{topic}.dead-letter"):
            producer.produce(each, b"so that it has a partition")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    seen: list[dict[str, Any]] = []

    def ask() -> bool:
        try:
            with urlopen(f"http://127.0.0.1:{port}/ready", timeout=60) as answer:
                seen.append(json.load(answer))
        except URLError:
            return False
        return True

    def stop() -> None:
        until(ask)
        os.kill(os.getpid(), signal.SIGTERM)

    thread = Thread(target=stop)
    thread.start()
    command = [
        *("guard", "--config", ingress.write_guard_chain(), "--bootstrap-servers", servers),
        *("--route", f"{topic}={egress}", "--look-back", "0", "--health", f"127.0.0.1:{port}"),
    ]
    result = CliRunner().invoke(main, command)
    thread.join()
    assert result.exit_code == 0, result.output
    assert seen[-1]["live"]
    assert seen[-1].keys() == {"live", "ready", "held", "lag"}
