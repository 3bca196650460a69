from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from headerware.core.extras import install_command
from headerware.testing import MissingPartError, jars
from headerware.testing.jars import BROKER_JARS, TOOLS_JARS, cache_folder, find_jars

if TYPE_CHECKING:
    from pathlib import Path

NOWHERE = ("KAFKA_HOME", "HEADERWARE_KAFKA_JARS", "HEADERWARE_IVY_SETTINGS", "JAVA_HOME")


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Take away all places where jars could be, and give the folder of the empty cache."""
    for name in NOWHERE:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HEADERWARE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(jars, "find_spec", lambda _name: None)
    return tmp_path / "cache"


def touch(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return path.parent


class TestFindJars:
    def test_prefers_kafka_home(self, bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        libs = touch(tmp_path / "kafka" / "libs" / "kafka_2.13-4.3.1.jar")
        monkeypatch.setenv("KAFKA_HOME", str(tmp_path / "kafka"))
        monkeypatch.setenv("HEADERWARE_KAFKA_JARS", str(touch(tmp_path / "jars" / "kafka_2.13-4.3.1.jar")))
        assert find_jars(BROKER_JARS) == libs

    def test_takes_named_folder_before_cache(
        self, bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        folder = touch(tmp_path / "jars" / "kafka_2.13-4.3.1.jar")
        touch(bare / BROKER_JARS.name / "kafka_2.13-4.3.1.jar")
        monkeypatch.setenv("HEADERWARE_KAFKA_JARS", str(folder))
        assert find_jars(BROKER_JARS) == folder

    def test_passes_over_folder_without_the_wanted_jar(
        self, bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(
            "HEADERWARE_KAFKA_JARS", str(touch(tmp_path / "jars" / "kafka-tools-api-4.3.1.jar"))
        )
        cached = touch(bare / TOOLS_JARS.name / "kafka-tools-4.3.1.jar")
        assert find_jars(TOOLS_JARS) == cached

    def test_lists_what_was_tried(self, bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("KAFKA_HOME", str(tmp_path))
        with pytest.raises(MissingPartError) as caught:
            find_jars(BROKER_JARS)
        text = str(caught.value)
        assert f"KAFKA_HOME: no kafka_2.1*.jar in {tmp_path / 'libs'}" in text
        assert "HEADERWARE_KAFKA_JARS: not set" in text
        assert f"cache: no kafka_2.1*.jar in {bare / BROKER_JARS.name}" in text
        assert "Ivy in pyspark: pyspark is not installed" in text
        assert "Maven: no mvn on the PATH" in text

    def test_failed_fetch_leaves_no_folder(
        self, bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        maven = tmp_path / "bin" / "mvn"
        touch(maven)
        maven.write_text("#!/bin/sh\necho no route to the repository\nexit 3\n")
        maven.chmod(0o755)
        monkeypatch.setenv("PATH", str(maven.parent))
        with pytest.raises(MissingPartError, match=r"Maven: exit code 3\n +no route to the repository"):
            find_jars(BROKER_JARS)
        assert [path.name for path in bare.iterdir()] == [".lock"]

    def test_fetched_jars_are_kept(self, bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        maven, calls = tmp_path / "bin" / "mvn", tmp_path / "calls"
        touch(maven)
        maven.write_text(
            f"#!/bin/sh\necho call >> {calls}\n"
            "for a; do case $a in -DoutputDirectory=*) d=${a#*=};; esac; done\n"
            ': > "$d/kafka_2.13-4.3.1.jar"\n'
        )
        maven.chmod(0o755)
        monkeypatch.setenv("PATH", str(maven.parent))
        assert find_jars(BROKER_JARS) == find_jars(BROKER_JARS) == bare / BROKER_JARS.name
        assert calls.read_text().split() == ["call"]


class TestCacheFolder:
    def test_is_in_the_cache_home(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("HEADERWARE_CACHE", raising=False)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        assert cache_folder() == tmp_path / "headerware"


class TestCommand:
    def test_prints_where_the_jars_are(
        self, bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        folder = touch(tmp_path / "jars" / "kafka_2.13-4.3.1.jar")
        monkeypatch.setenv("HEADERWARE_KAFKA_JARS", str(folder))
        assert jars.main() == 0
        assert capsys.readouterr().out == f"Apache Kafka 4.3.1: {folder}\n"

    def test_says_what_was_tried_and_what_installs_a_way_to_fetch_them(
        self, bare: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert jars.main() == 1
        assert (
            capsys.readouterr().err.rstrip().endswith(f"install Maven or pyspark: {install_command('spark')}")
        )
