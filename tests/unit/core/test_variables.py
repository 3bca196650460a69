from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from headerware.cli import main
from headerware.core.client_chain import client_chain
from headerware.core.variables import KNOWN, misspelt, warn_of_misspelt

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def _first_client() -> Iterator[None]:
    warn_of_misspelt.cache_clear()
    yield
    warn_of_misspelt.cache_clear()


class TestMisspelt:
    @pytest.mark.parametrize(
        ("name", "meant"),
        [
            ("HEADERWARE_CONFG", "HEADERWARE_CONFIG"),
            ("HEADERWARE_CONFIG_FILE", "HEADERWARE_CONFIG"),
            ("HEADERWARE_BOOTSTRAP", "HEADERWARE_BOOTSTRAP_SERVERS"),
            ("HEADERWARE_DISABLE", "HEADERWARE_DISABLED"),
            ("headerware_config", "HEADERWARE_CONFIG"),
            ("HEADWARE_CONFIG", "HEADERWARE_CONFIG"),
        ],
    )
    def test_names_the_variable_that_is_meant(self, name: str, meant: str) -> None:
        assert misspelt({name: "secret"}) == [f"nothing reads the variable {name}; did you mean {meant}?"]

    def test_is_silent_about_what_is_right_and_what_is_others(self) -> None:
        ours = {f"HEADERWARE_{name}": "x" for name in KNOWN}
        others = dict.fromkeys(("HOME", "_HEADERWARE_COMPLETE", "HEADER_CONFIG", "HEADERWARE_TOPIC"), "x")
        assert misspelt({**ours, **others}) == []

    def test_is_silent_if_the_variable_that_is_meant_is_there(self) -> None:
        assert misspelt({"HEADERWARE_CONFIG": "a", "HEADERWARE_CONFIG_FILE": "b"}) == []


@pytest.mark.usefixtures("_first_client")
class TestWarning:
    def test_is_logged_once_by_clients(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.delenv("HEADERWARE_CONFIG", raising=False)
        monkeypatch.setenv("HEADERWARE_CONFG", "chain.toml")
        with caplog.at_level(logging.WARNING, "headerware"):
            client_chain({})
            client_chain({})
        assert caplog.messages == [
            "nothing reads the variable HEADERWARE_CONFG; did you mean HEADERWARE_CONFIG?"
        ]

    def test_is_printed_by_commands(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("HEADERWARE_CONFIG", raising=False)
        monkeypatch.setenv("HEADERWARE_CONFG", "chain.toml")
        answer = CliRunner().invoke(main, ["check"])
        assert answer.exit_code == 2
        assert "Warning: nothing reads the variable HEADERWARE_CONFG; did you mean" in answer.stderr
