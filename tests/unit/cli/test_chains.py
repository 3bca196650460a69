"""``headerware check`` and ``explain``: for people, for programs, and in one line when something is wrong."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner, Result

from headerware.cli import main

if TYPE_CHECKING:
    from pathlib import Path

SECRET = "hunter2"


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SERVICE", SECRET)
    monkeypatch.setenv("COLUMNS", "200")
    path = tmp_path / "chain[1].toml"
    path.write_text(
        '[[interceptors]]\ntype = "trail"\nservice = "${env:SERVICE}"\n'
        'topics = ["[o]rders.*", "!orders.eu"]\n'
        '[[interceptors]]\ntype = "compress"\nname = "[red]squeeze[/]"\nlevel = 5\n'
    )
    return path


@pytest.fixture
def missing_keys(tmp_path: Path) -> Path:
    path = tmp_path / "sign.toml"
    path.write_text('[[interceptors]]\ntype = "sign"\nkeyring = "absent.json"\n')
    return path


def one_line(result: Result, told: str) -> None:
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert result.stderr.startswith("Error: ")
    assert told in result.stderr


class TestCheck:
    def test_says_that_all_is_well(self, config: Path) -> None:
        result = run("check", config)
        assert (result.exit_code, result.stderr) == (0, "")
        assert result.stdout == f"{config}: ok (trail -> [red]squeeze[/])\n"

    def test_says_it_to_programs(self, config: Path) -> None:
        result = run("check", config, "--json")
        assert json.loads(result.stdout) == {"ok": True, "chain": ["trail", "[red]squeeze[/]"]}

    def test_an_empty_chain_is_well(self, tmp_path: Path) -> None:
        path = tmp_path / "empty.toml"
        path.touch()
        assert run("check", path).stdout.endswith("ok (an empty chain)\n")

    @pytest.mark.parametrize(
        ("text", "told"),
        [
            ("[[interceptors]]\ntype = 'trial'", "did you mean 'trail'?"),
            ("[[interceptors]]\ntype = 'trail'\nservcie = 'x'", "did you mean 'service'?"),
            ("[[interceptors]]\ntype = 'trail'\nmax_entries = '3'", "(trail).max_entries: Expected 'int'"),
            ("[[interceptors]]\ntype = 'trail'\nservice = '${env:NO_SUCH_VARIABLE}'", "'NO_SUCH_VARIABLE'"),
            ("not toml", "is not TOML"),
            ("include = 'absent.toml'", "absent.toml: cannot be read"),
            (
                "[[interceptors]]\ntype = 'sign'\nkeyring = 'k'\n[[interceptors]]\ntype = 'compress'",
                "'compress' stands behind 'sign', which cannot work",
            ),
        ],
    )
    @pytest.mark.parametrize("command", ["check", "explain"])
    def test_says_in_one_line_what_is_wrong_and_where(
        self, tmp_path: Path, command: str, text: str, told: str
    ) -> None:
        path = tmp_path / "wrong.toml"
        path.write_text(text)
        one_line(run(command, path), told)

    @pytest.mark.parametrize("arguments", [(), ("--json",)])
    def test_a_missing_file_is_one_line(self, tmp_path: Path, arguments: tuple[str, ...]) -> None:
        one_line(run("check", tmp_path / "absent.toml", *arguments), "absent.toml: cannot be read")

    def test_does_not_open_unless_asked(self, missing_keys: Path) -> None:
        assert run("check", missing_keys).exit_code == 0
        one_line(run("check", missing_keys, "--open", "--side", "consumer"), "absent.json")

    @pytest.mark.parametrize(
        "arguments", [["check"], ["check", "a", "b"], ["check", "a", "--side", "x"], ["chekc"]]
    )
    def test_wrong_use_has_a_code_of_its_own(self, arguments: list[str]) -> None:
        assert run(*arguments).exit_code == 2


class TestExplain:
    def test_shows_both_directions_and_every_option(self, config: Path) -> None:
        result = run("explain", config)
        assert result.exit_code == 0, result.output
        assert "send:    application -> trail -> [red]squeeze[/] -> Kafka" in result.stdout
        assert "consume: Kafka -> [red]squeeze[/] -> trail -> application" in result.stdout
        assert "1. trail  observe" in result.stdout or "1. trail  transform" in result.stdout
        assert "2. [red]squeeze[/]  transform, bytes, on_error=raise" in result.stdout
        assert "headerware.interceptors.compress.Compress" in result.stdout

    def test_shows_values_as_they_were_written_brackets_and_all(self, config: Path) -> None:
        lines = [line.split() for line in run("explain", config).stdout.splitlines()]
        assert ["topics", '["[o]rders.*","!orders.eu"]', str(config)] in lines
        assert ["level", "5", str(config)] in lines
        assert ["codec", '"zstd"', "default"] in lines

    def test_shows_no_secret(self, config: Path) -> None:
        for arguments in ([], ["--json"]):
            result = run("explain", config, *arguments)
            assert "${env:SERVICE}" in result.stdout
            assert SECRET not in result.output

    def test_of_a_topic_shows_what_works_there(self, config: Path) -> None:
        assert "application -> [red]squeeze[/] -> Kafka" in run("explain", config, "orders.eu").stdout
        assert "application -> trail -> " in run("explain", config, "orders.us").stdout

    def test_of_a_topic_without_any_says_so(self, tmp_path: Path) -> None:
        path = tmp_path / "chain.toml"
        path.write_text('[[interceptors]]\ntype = "trail"\ntopics = ["a"]\n')
        assert "No interceptor works here" in run("explain", path, "b[/]").stdout

    def test_says_it_to_programs(self, config: Path) -> None:
        found: dict[str, Any] = json.loads(run("explain", config, "orders.us", "--json").stdout)
        assert found["topic"] == "orders.us"
        assert [item["name"] for item in found["send"]] == ["trail", "[red]squeeze[/]"]
        options = {option["name"]: option for option in found["send"][1]["options"]}
        assert options["level"] == {"name": "level", "value": 5, "origin": str(config)}

    def test_of_a_missing_file_is_one_line(self, tmp_path: Path) -> None:
        one_line(run("explain", tmp_path / "absent.toml"), "absent.toml: cannot be read")


class TestRoot:
    def test_shows_its_version(self) -> None:
        assert run("--version").stdout.startswith("headerware, version ")

    @pytest.mark.parametrize("flag", ["-h", "--help"])
    def test_lists_its_commands(self, flag: str) -> None:
        result = run(flag)
        assert result.exit_code == 0
        assert "check" in result.stdout
        assert "explain" in result.stdout

    @pytest.mark.parametrize("arguments", [["--help"], ["keys", "--help"]])
    def test_says_of_each_command_in_a_line_what_it_does(self, arguments: list[str]) -> None:
        assert "..." not in run(*arguments).stdout.partition("Commands:")[2]
