from __future__ import annotations

from typing import TYPE_CHECKING

from headerware.testing.java import main

if TYPE_CHECKING:
    import pytest


class TestMain:
    def test_fails_with_one_message(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.delenv("JAVA_HOME", raising=False)
        monkeypatch.setenv("PATH", "")
        assert main() == 1
        assert capsys.readouterr().err.count("\n") == 1
