from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from headerware.core.errors import MissingPartError
from headerware.core.java import find_java

if TYPE_CHECKING:
    from pathlib import Path


def fake_java(home: Path, first_line: str) -> Path:
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho '{first_line}' >&2\n")
    java.chmod(0o755)
    return java


class TestFindJava:
    @pytest.mark.parametrize(
        "line", ['openjdk version "17.0.15" 2025-04-15', 'java version "21" 2023-09-19 LTS']
    )
    def test_takes_java_home_when_new_enough(
        self, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        java = fake_java(tmp_path, line)
        monkeypatch.setenv("JAVA_HOME", str(tmp_path))
        assert find_java() == java

    @pytest.mark.parametrize(
        ("line", "version"), [('java version "1.8.0_402"', 8), ('openjdk version "11.0.2"', 11)]
    )
    def test_refuses_an_old_one(
        self, line: str, version: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        fake_java(tmp_path, line)
        monkeypatch.setenv("JAVA_HOME", str(tmp_path))
        with pytest.raises(MissingPartError, match=f"too old.* version {version}\\. .*Java 17 or newer"):
            find_java()

    def test_refuses_one_that_is_too_new_for_the_caller(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        java = fake_java(tmp_path, 'openjdk version "25.0.3" 2026-04-21 LTS')
        monkeypatch.setenv("JAVA_HOME", str(tmp_path))
        assert find_java() == java
        with pytest.raises(MissingPartError, match=r"too new.* version 25\. .*version 17 to 22"):
            find_java(newest=22)

    def test_says_how_to_get_one(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("JAVA_HOME", raising=False)
        monkeypatch.setenv("PATH", "")
        with pytest.raises(MissingPartError, match=r"Java is missing: no java on the PATH.*Install a JDK"):
            find_java()

    def test_names_a_java_home_without_java(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("JAVA_HOME", str(tmp_path))
        with pytest.raises(MissingPartError, match=f"no bin/java in JAVA_HOME \\({tmp_path}\\)"):
            find_java()
