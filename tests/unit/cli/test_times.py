"""Durations and moments as options of commands."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import pytest
from click.testing import CliRunner

from headerware.cli import main
from headerware.cli.times import Duration, Moment
from headerware.core.context import wall_clock_ms

if TYPE_CHECKING:
    from collections.abc import Iterator

OTHERWISE = {"--rate", "--days"}
"""Options with a fraction that say their unit in their name, or are no durations."""


def options(command: click.Command, name: str = "headerware") -> Iterator[tuple[str, click.Option]]:
    if isinstance(command, click.Group):
        for word, inner in command.commands.items():
            yield from options(inner, f"{name} {word}")
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            yield name, parameter


class TestDuration:
    @pytest.mark.parametrize(
        ("text", "seconds"),
        [
            *(("90", 90.0), ("0.5", 0.5), ("1e2", 100.0), ("90s", 90.0), ("500ms", 0.5)),
            *(("15m", 900.0), ("1.5h", 5_400.0), ("7d", 604_800.0)),
        ],
    )
    def test_takes_seconds_or_a_unit(self, text: str, seconds: float) -> None:
        assert Duration().convert(text, None, None) == seconds

    @pytest.mark.parametrize(
        "text", ["", "s", "15 m", "-1", "-1s", "nan", "inf", "1w", "1h30m", "٣s", "0", "0s"]
    )
    def test_refuses_what_is_none(self, text: str) -> None:
        with pytest.raises(click.BadParameter, match=r"expected (seconds|more than 0 s)"):
            Duration().convert(text, None, None)

    @pytest.mark.parametrize("text", ["1e308", "999999999d"])
    def test_refuses_what_no_clock_can_count(self, text: str) -> None:
        with pytest.raises(click.BadParameter, match=r"expected 1e\+10 s at most"):
            Duration(above_s=None).convert(text, None, None)

    def test_of_one_answer_is_no_longer_than_clients_wait(self) -> None:
        result = CliRunner().invoke(main, ["retain", "t", "--timeout", "2h"])
        assert (result.exit_code, "expected 3600 s at most" in result.stderr) == (2, True)

    def test_may_be_nothing_where_that_makes_sense(self) -> None:
        assert Duration(above_s=None).convert("0", None, None) == 0

    def test_is_what_every_command_takes(self) -> None:
        found = [(name, option) for name, option in options(main) if "--timeout" in option.opts]
        assert len(found) > 10
        assert [name for name, option in found if not isinstance(option.type, Duration)] == []
        fractions = [
            f"{name} {option.opts[0]}"
            for name, option in options(main)
            if isinstance(option.type, click.types.FloatParamType) and not OTHERWISE & {*option.opts}
        ]
        assert fractions == []


class TestMoment:
    def test_takes_times_ages_and_milliseconds(self) -> None:
        moment = Moment()
        assert moment.convert("2026-01-31T17:30", None, None) == 1_769_880_600_000
        assert moment.convert("1769880600000", None, None) == 1_769_880_600_000
        ages = {text: wall_clock_ms() - moment.convert(text, None, None) for text in ("90s", "1.5h", "7d")}
        assert {text: round(age / 60_000, 1) for text, age in ages.items()} == {
            "90s": 1.5,
            "1.5h": 90.0,
            "7d": 10_080.0,
        }

    @pytest.mark.parametrize("text", ["90", "beginning", "end", "-5", "soon"])
    def test_refuses_what_is_none(self, text: str) -> None:
        with pytest.raises(click.BadParameter, match="expected a time such as"):
            Moment().convert(text, None, None)
