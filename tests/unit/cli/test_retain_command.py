"""Wrong use of ``headerware retain``; what it does is shown on a broker (``tests/integration``)."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from headerware.cli import main


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
