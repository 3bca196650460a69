"""``headerware tail`` on a real broker."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest
from click.testing import CliRunner
from confluent_kafka.admin import AdminClient

from headerware.cli import main

if TYPE_CHECKING:
    from collections.abc import Callable

    from headerware.testing import KafkaBroker

pytestmark = pytest.mark.broker
FIRST_MS = 1_767_225_600_000
"""2026-01-01, 00:00 in UTC."""


@pytest.fixture
def topic(kafka_broker: KafkaBroker, unique_topic: Callable[[str], str]) -> str:
    """Return a topic of two partitions, with a record an hour in one and two newer ones in the other."""
    name = unique_topic("orders")
    kafka_broker.create_topic(name, partitions=2)
    producer = confluent_kafka.Producer({"bootstrap.servers": kafka_broker.bootstrap_servers})
    for hour, partition in enumerate((0, 0, 0, 1, 1)):
        producer.produce(name, b"v", partition=partition, timestamp=FIRST_MS + hour * 3_600_000)
    assert producer.flush(60) == 0
    return name


class TestFrom:
    @pytest.mark.parametrize(
        ("start", "shown"),
        [
            ("2026-01-01T01:00", {(0, 1), (0, 2), (1, 0), (1, 1)}),
            ("2026-01-01T01:00:00.001", {(0, 2), (1, 0), (1, 1)}),
            ("2026-01-01T04:30+00:30", {(1, 1)}),
            ("2026-01-01T05:00", set()),
            ("-1", {(0, 2), (1, 1)}),
            ("2", {(0, 2)}),
        ],
    )
    def test_begins_there_in_each_partition(
        self, kafka_broker: KafkaBroker, topic: str, start: str, shown: set[Any]
    ) -> None:
        servers = kafka_broker.bootstrap_servers
        result = CliRunner().invoke(
            main,
            ["tail", topic, "--bootstrap-servers", servers, "--from", start, "--until-end", "--json"],
            env={"HEADERWARE_CONFIG": ""},
        )
        assert result.exit_code == 0, result.output
        found = [json.loads(line)["result"] for line in result.stdout.splitlines()]
        assert {(record["partition"], record["offset"]) for record in found} == shown
        assert len(found) == len(shown)

    def test_leaves_no_group(self, kafka_broker: KafkaBroker, topic: str) -> None:
        servers = kafka_broker.bootstrap_servers
        assert (
            CliRunner()
            .invoke(
                main,
                ["tail", topic, "--bootstrap-servers", servers, "--from", "beginning", "-n", "5", "--json"],
            )
            .stdout.count("\n")
            == 5
        )
        admin = AdminClient({"bootstrap.servers": servers})
        groups = admin.list_consumer_groups().result(60).valid
        assert "headerware-tail" not in {group.group_id for group in groups}


@pytest.mark.parametrize("command", [["tail", "--until-end"], ["trail"]])
def test_a_missing_topic_is_told(kafka_broker: KafkaBroker, command: list[str]) -> None:
    arguments = [*command, "no-such-topic", "--bootstrap-servers", kafka_broker.bootstrap_servers]
    answer = CliRunner().invoke(main, arguments, env={"HEADERWARE_CONFIG": ""})
    assert answer.exit_code == 1
    assert answer.stderr == (
        "Error: no-such-topic: there is no such topic, or this user may not see it; "
        "look at the name, or give DESCRIBE on it\n"
    )
