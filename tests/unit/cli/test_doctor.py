"""The command ``doctor``: which options ask for a cluster, and how findings are printed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner, Result

from headerware.cli import main

if TYPE_CHECKING:
    from pathlib import Path

    from headerware.testing import EmbeddedCluster

ATTACK = "a\x1b[2Jb"


def doctor(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["doctor", *arguments])


class TestDoctor:
    def test_a_chain_file_that_does_not_exist_is_a_finding(self, tmp_path: Path) -> None:
        result = doctor("--json", "--config", str(tmp_path / "none.toml"))
        (found,) = (each for each in json.loads(result.stdout)["result"] if each["check"] == "chain")
        assert (result.exit_code, found["status"]) == (1, "fail")
        assert "No such file" in found["found"]

    def test_the_name_of_a_file_does_not_act_on_the_terminal(self) -> None:
        text = doctor("--config", f"{ATTACK}.toml").stdout
        assert "fail    chain: a\\x1b[2Jb.toml: cannot be read" in text
        assert "\x1b" not in text

    def test_the_name_of_a_topic_does_not_act_on_the_terminal(
        self, embedded_cluster: EmbeddedCluster
    ) -> None:
        text = doctor(ATTACK, "--bootstrap-servers", embedded_cluster.bootstrap_servers).stdout
        assert "topic a\\x1b[2Jb" in text
        assert "\x1b" not in text

    def test_takes_topics_as_check_does(self, embedded_cluster: EmbeddedCluster) -> None:
        servers = embedded_cluster.bootstrap_servers
        given = ("a", "--topic", "b", "--topic", "a", "--bootstrap-servers", servers)
        lines = doctor(*given).stdout.splitlines()
        assert [name for line in lines for name in ("a", "b") if f" topic {name}: " in line] == ["a", "b"]

    @pytest.mark.parametrize(
        "asked", [("orders",), ("--topic", "orders"), ("--group", "billing"), ("-X", "client.id=shop")]
    )
    def test_a_cluster_that_is_asked_for_must_be_named(self, asked: tuple[str, ...]) -> None:
        result = doctor(*asked)
        assert result.exit_code == 2
        assert "checking topics, a group or client properties needs --bootstrap-servers" in result.stderr

    def test_a_property_of_headerware_asks_for_no_cluster(self) -> None:
        assert doctor("-X", "headerware.reload=never").exit_code == 0
