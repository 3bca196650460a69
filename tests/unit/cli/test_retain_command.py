"""Wrong use of ``headerware retain``; what it does is shown on a broker (``tests/integration``)."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from headerware import Chain
from headerware.cli import main
from headerware.cli.retain import _print, reasons_of
from headerware.ops.retention.rules import RetentionRule
from headerware.ops.retention.worker import RetentionResult

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--store", "file"], "--store needs --into"),
        (["--translate-group", "billing"], "--translate-group needs --into"),
        (["--into", "copy", "--beginnings"], "--beginnings is for removing, and --into only copies"),
        (["--into", "copy", "--objects"], "--objects is for removing, and --into only copies"),
        (["--copies", "mirror"], "--copies needs --objects"),
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


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ("holds = 'case'", "{}:1:1: holds: unknown key; did you mean 'hold'? known: lifetimes, hold, "),
        (
            "[[lifetimes]]\ntopics = ['*']\nafter_ms = 1\n[[lifetimes]]\ntopic = ['*']\nafter_ms = 1",
            "{}:5:1: lifetimes[1].topic: unknown key; did you mean 'topics'? known: topics, after_ms, ",
        ),
        (
            "[[lifetimes]]\ntopics = ['*']\nafter_ms = '1d'",
            "{}:3:1: lifetimes[0].after_ms: expected a whole number of milliseconds, found text '1d'",
        ),
        ("unverified_after_ms = 0", "{}:1:1: unverified_after_ms: expected more than the longest lifetime"),
        ("hold = case", "{}:1:8: is not TOML: Invalid value"),
    ],
)
def test_what_is_wrong_in_the_rules_is_said_with_file_key_and_nearest_name(
    rules: str, said: str, tmp_path: Path
) -> None:
    path = tmp_path / "r.toml"
    path.write_text(rules)
    command = ["retain", "clicks", "--bootstrap-servers", "127.0.0.1:1", "--rules", str(path)]
    result = CliRunner().invoke(main, command)
    assert result.exit_code == 2
    assert said.format(path).replace(" ", "") in re.sub(r"[\s│]", "", result.stderr)


def test_rules_that_are_for_other_topics_are_told(tmp_path: Path) -> None:
    path = tmp_path / "r.toml"
    path.write_text("[[lifetimes]]\ntopics = ['clikcs*']\nafter_ms = 1")
    command = ["retain", "clicks", "--bootstrap-servers", "127.0.0.1:1", "--rules", str(path)]
    said = CliRunner().invoke(main, command).stderr
    assert f"no lifetime in {path} is for clicks (but for clikcs*)" in said


@pytest.mark.parametrize("content", [b"\xff\xfe", None])
def test_a_file_of_properties_that_cannot_be_read_is_wrong_use(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "client.properties"
    if content is not None:
        path.write_bytes(content)
    result = CliRunner().invoke(main, ["retain", "clicks", "--client-config", str(path)])
    assert (result.exit_code, type(result.exception)) == (2, SystemExit)
    assert "--client-config" in result.stderr


def test_an_age_is_given_once(tmp_path: Path) -> None:
    path = tmp_path / "r.toml"
    path.write_text("unverified_after_ms = 86400000")
    command = ["retain", "clicks", "--bootstrap-servers", "127.0.0.1:1", "--rules", str(path)]
    result = CliRunner().invoke(main, [*command, "--unverified-after", "2d"])
    assert (result.exit_code, "give it once" in result.stderr) == (2, True)


def test_a_topic_without_records_is_said_to_have_none(capsys: pytest.CaptureFixture[str]) -> None:
    _print(RetentionResult(topic="clicks", executed=False), None, reasons_of(None))
    assert capsys.readouterr().out.splitlines()[0] == "no records"


def test_without_a_chain_signed_records_are_kept_for_lack_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    result = RetentionResult(topic="clicks", executed=False, dispositions={"unverified": 2})
    _print(result, None, reasons_of(None))
    shown = " ".join(capsys.readouterr().out.split())
    assert "2 they are signed, and no chain is given that verifies them; give --config" in shown
    assert reasons_of(Chain())["unverified"] == "the chain does not verify them, or they are not signed"


def test_the_rules_of_the_page_are_rules() -> None:
    page = (ROOT / "docs" / "retention.md").read_text(encoding="utf-8")
    found = re.search(r"here `retention\.toml`:\n\n```\n(.*?)```", page, re.DOTALL)
    assert found is not None
    rule = msgspec.convert(tomllib.loads(found[1]), RetentionRule)
    assert [(each.header, each.after_ms) for each in rule.lifetimes] == [
        ("class", 86_400_000),
        (None, 2_592_000_000),
    ]
