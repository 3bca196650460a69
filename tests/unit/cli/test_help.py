"""``headerware help`` and ``version``, and what a mistyped command is told."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner, Result

from headerware import __version__
from headerware.cli import main


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


class TestHelp:
    @pytest.mark.parametrize("words", [[], ["tail"], ["run"], ["keys"], ["keys", "generate"]])
    def test_is_the_help_of_the_command(self, words: list[str]) -> None:
        found = run("help", *words)
        assert (found.exit_code, found.stdout) == (0, run(*words, "--help").stdout)

    @pytest.mark.parametrize(
        ("words", "told"),
        [
            (["nonsense"], "No such command 'nonsense'"),
            (["keys", "nonsense"], "No such command 'nonsense'"),
            (["tail", "orders"], "tail has no commands, found 'orders'"),
            (["registry"], "`headerware registry` is `headerware header-ids` now"),
        ],
    )
    def test_of_no_command_is_wrong_use(self, words: list[str], told: str) -> None:
        found = run("help", *words)
        assert (found.exit_code, told in found.stderr) == (2, True)


class TestVersion:
    def test_is_what_the_option_shows(self) -> None:
        assert run("version").stdout == run("--version").stdout == f"headerware, version {__version__}\n"


@pytest.mark.skipif(not hasattr(click, "NoSuchCommand"), reason="click 8.4 suggests commands")
class TestMistypedCommand:
    @pytest.mark.parametrize(("words", "near"), [(["chekc"], "check"), (["keys", "generat"], "generate")])
    def test_names_the_near_one(self, words: list[str], near: str) -> None:
        found = run(*words)
        assert found.exit_code == 2
        assert f"Did you mean '{near}'?" in found.stderr
