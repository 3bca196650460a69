"""``headerware chargeback``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest
from click.testing import CliRunner, Result

from headerware.cli import main

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from headerware.testing import EmbeddedCluster

PRICES = """
currency = "CHF"
decimals = 4
incoming = { per_million_records = 1000 }
"""
ATTACK = b"\x1b]0;owned\x07[bold]"


class TestChargeback:
    @pytest.fixture(autouse=True)
    def _setting(
        self, embedded_cluster: EmbeddedCluster, unique_topic: Callable[[str], str], tmp_path: Path
    ) -> None:
        self.servers, self.folder = embedded_cluster.bootstrap_servers, tmp_path
        self.topic = unique_topic("orders")
        embedded_cluster.create_topic(self.topic)
        (tmp_path / "prices.toml").write_text(PRICES)

    def produce(self, owner: bytes, count: int) -> None:
        producer = confluent_kafka.Producer({"bootstrap.servers": self.servers})
        for _ in range(count):
            producer.produce(self.topic, b"value", headers=[("hw.owner", owner)], timestamp=1_767_225_600_000)
        assert producer.flush(60) == 0

    def run(self, *arguments: str, topics: bool = True) -> Result:
        named = [self.topic, "--no-reads"] if topics else []
        fixed = ["--usage", str(self.folder / "u.db"), "--prices", str(self.folder / "prices.toml")]
        servers = ["--bootstrap-servers", self.servers]
        return CliRunner().invoke(main, ["chargeback", *named, *fixed, *servers, *arguments])

    def json(self, *arguments: str, **more: Any) -> Any:
        result = self.run("--json", *arguments, **more)
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)["result"]

    def test_prints_who_pays(self) -> None:
        self.produce(b"shop", 20)
        self.produce(ATTACK, 1)
        result = self.run("--report", str(self.folder / "report.html"))
        assert result.exit_code == 0, result.output
        assert "21 new records, " in result.stdout
        assert [line.split() for line in result.stdout.splitlines() if line.startswith(" shop")] == [
            ["shop", "20", "580", "0", "0", "0.0200"]
        ]
        assert "\x1b" not in result.stdout
        assert "shop" in (self.folder / "report.html").read_text()
        assert result.stderr == ""

    def test_a_second_run_counts_what_is_new(self) -> None:
        self.produce(b"shop", 5)
        first = self.json()
        self.produce(b"shop", 2)
        second = self.json()
        assert (first["counted"]["records"], second["counted"]["records"]) == (5, 2)
        assert second["bill"]["total"]["records_in"] == 7
        assert second["bill"]["total"]["cost"] == "0.007"
        assert second["bill"]["currency"] == "CHF"
        (owner,) = second["bill"]["by_owner"]
        assert (owner["owner"], owner["bytes_in"]) == ("shop", 7 * 29)

    def test_makes_the_bill_of_what_is_kept(self) -> None:
        self.produce(b"shop", 5)
        self.json()
        self.produce(b"shop", 2)
        assert self.json(topics=False) == {"counted": None, "bill": self.json(topics=False)["bill"]}
        assert self.json(topics=False)["bill"]["total"]["records_in"] == 5
        late = self.json("--since", "2026-01-01T01:00", topics=False)
        assert late["bill"]["total"]["records_in"] == 0
        day = self.json("--since", "2026-01-01", "--until", "2026-01-02", topics=False)
        assert day["bill"]["total"]["records_in"] == 5

    def test_wrong_use_is_told(self) -> None:
        result = self.run("--since", "yesterday", "--json")
        assert result.exit_code == 2
        assert "expected a time such as 2026-01-31" in json.loads(result.stdout)["error"]["message"]
        result = CliRunner().invoke(main, ["chargeback", self.topic, "--usage", str(self.folder / "u.db")])
        assert result.exit_code == 2
        assert "TOPICS needs --bootstrap-servers" in result.stderr
        result = CliRunner().invoke(main, ["chargeback", "--usage", str(self.folder / "prices.toml")])
        assert result.exit_code == 1
        assert "the stored usage cannot be used" in result.stderr


def test_a_cluster_that_does_not_answer(tmp_path: Path) -> None:
    command = ["chargeback", "orders", "--usage", str(tmp_path / "usage.db"), "--timeout", "1"]
    result = CliRunner().invoke(main, [*command, "--bootstrap-servers", "127.0.0.1:1"])
    assert (result.exit_code, "look at the addresses" in result.stderr) == (1, True)
