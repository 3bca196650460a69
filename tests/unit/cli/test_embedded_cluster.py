"""Commands that need more than an embedded cluster answers: one line says so, and leads to a real Kafka."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from headerware.cli import main

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from headerware.testing import EmbeddedCluster

DICTIONARY = bytes.fromhex("37a430ec01000000") + b"x" * 64
RULES = '[[lifetimes]]\ntopics = ["*"]\nafter_ms = 86_400_000\n'


@pytest.mark.parametrize(
    "command",
    [
        "chargeback {topic} --usage {folder}/usage.json",
        "compact {topic} {topic}.latest --header version",
        "retain {topic} --rules {folder}/rules.toml",
        "dictionaries publish {folder}/trained --topic {topic} --store-topic {topic}.new --create",
    ],
)
def test_a_command_says_that_it_needs_a_real_kafka(
    embedded_cluster: EmbeddedCluster, unique_topic: Callable[[str], str], tmp_path: Path, command: str
) -> None:
    topic = unique_topic("orders")
    embedded_cluster.create_topic(topic)
    (tmp_path / "rules.toml").write_text(RULES)
    (tmp_path / "trained").write_bytes(DICTIONARY)
    given = command.format(topic=topic, folder=tmp_path).split()
    result = CliRunner().invoke(main, [*given, "-b", embedded_cluster.bootstrap_servers])
    assert result.exit_code == 1
    (line,) = result.stderr.splitlines()
    assert "is an embedded cluster (librdkafka's mock brokers)" in line
    assert line.endswith("headerware dev --kafka runs a real Kafka; see headerware dev --help")


def test_the_doctor_advises_a_real_kafka_once_rather_than_rights(
    embedded_cluster: EmbeddedCluster, unique_topic: Callable[[str], str]
) -> None:
    topic = unique_topic("orders")
    embedded_cluster.create_topic(topic)
    servers = embedded_cluster.bootstrap_servers
    result = CliRunner().invoke(main, ["doctor", topic, "--group", "billing", "-b", servers])
    assert result.exit_code == 0
    assert f"ok      topic {topic}: it is there" in result.stdout
    assert result.stdout.count("headerware dev --kafka") == 1
    assert "DESCRIBE" not in result.stdout
