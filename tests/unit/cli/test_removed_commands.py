"""Commands of earlier versions."""

from __future__ import annotations

from click.testing import CliRunner

from headerware.cli import main


def test_slices_names_what_to_use_now() -> None:
    result = CliRunner().invoke(main, ["slices", "orphans", "customers"])
    assert result.exit_code == 2
    assert "No such command 'slices': " in result.output
    assert "claim_check" in result.output
