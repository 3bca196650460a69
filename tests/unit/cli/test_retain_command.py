"""Wrong use of ``headerware retain``; what it does is shown on a broker (``tests/integration``)."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from headerware.cli import main
from headerware.cli.retain import _print
from headerware.ops.retention.rules import RetentionRule
from headerware.ops.retention.worker import Result

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--store", "file"], "--store goes with --into"),
        (["--translate-group", "billing"], "--translate-group goes with --into"),
        (["--into", "copy", "--beginnings"], "--beginnings removes, and --into only copies"),
        (["--into", "copy", "--objects"], "--objects removes, and --into only copies"),
        (["--copies", "mirror"], "--copies goes with --objects"),
        (["--objects"], "--objects needs --config"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    options: list[str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HEADERWARE_CONFIG", raising=False)
    result = CliRunner().invoke(main, ["retain", "clicks", "--bootstrap-servers", "127.0.0.1:1", *options])
    assert result.exit_code == 2
    assert said in result.stderr


def test_a_topic_without_records_is_said_to_have_none(capsys: pytest.CaptureFixture[str]) -> None:
    _print(Result(topic="clicks", executed=False), None)
    assert capsys.readouterr().out.splitlines()[0] == "no records"


def test_the_rules_of_the_page_are_rules() -> None:
    page = (ROOT / "docs" / "retention.md").read_text(encoding="utf-8")
    found = re.search(r"here `retention\.toml`:\n\n```\n(.*?)```", page, re.DOTALL)
    assert found is not None
    rule = msgspec.convert(tomllib.loads(found[1]), RetentionRule)
    assert [(each.header, each.after_ms) for each in rule.lifetimes] == [
        ("class", 86_400_000),
        (None, 2_592_000_000),
    ]
