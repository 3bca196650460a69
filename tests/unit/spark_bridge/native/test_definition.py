"""What is sent to the tasks of a source."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import pytest

from headerware.core.errors import ConfigError
from headerware.sources import SourceConfig
from headerware.sources.extractors.json_lines import JsonLinesExtractor
from headerware.sources.ready.files import Files
from headerware.spark_bridge.native.definition import SourceDefinition

if TYPE_CHECKING:
    from pathlib import Path

FILE = """\
name = "orders"
topic = "orders"
extractor = "jsonl"
delivery = "at_least_once"
commit_interval_s = 5

[source]
type = "files"
folder = "${env:SPOOL}"

[offsets]
type = "sqlite"
path = "offsets.db"

[kafka]
"bootstrap.servers" = "localhost:9092"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return a file of the plain runtime."""
    path = tmp_path / "orders.toml"
    path.write_text(FILE, encoding="utf-8")
    return path


class TestConfigurationsInCode:
    def test_have_classes_that_executors_can_import(self) -> None:
        class Local(Files, frozen=True, kw_only=True):
            more: int = 0

        config = SourceConfig(name="a", source=Local(folder="x"), extractor=JsonLinesExtractor(), topic="t")
        with pytest.raises(ConfigError, match=r"^source: the class .*Local has options .* addPyFile"):
            SourceDefinition.of(config)


class TestFiles:
    def test_of_the_plain_runtime_are_taken(self, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SPOOL", "spool")
        definition = SourceDefinition.load(file)
        config = definition.config()
        assert (config.name, config.source.folder) == ("orders", str(file.parent / "spool"))
        assert definition.serializer is None

    def test_are_sent_as_they_are_written(self, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SPOOL", "of-the-driver")
        sent = pickle.dumps(SourceDefinition.load(file))
        assert b"of-the-driver" not in sent
        monkeypatch.setenv("SPOOL", "of-the-task")
        restored = pickle.loads(sent)  # noqa: S301 - what was pickled here
        assert restored.config().source.folder.endswith("of-the-task")

    def test_may_have_what_makes_bytes(self, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SPOOL", "spool")
        file.write_text(f'{FILE}interceptors = "serialize"\n"interceptors.serialize.value" = "json"\n')
        assert SourceDefinition.load(file).serializer is not None

    def test_may_not_have_more(self, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SPOOL", "spool")
        file.write_text(f'{FILE}interceptors = "compress"\n', encoding="utf-8")
        with pytest.raises(ConfigError, match=r"'compress' works on bytes.*encode\(\)"):
            SourceDefinition.load(file)

    def test_that_are_none_are_named(self, file: Path) -> None:
        with pytest.raises(ConfigError, match=r"nosuch\.toml: cannot be read"):
            SourceDefinition.load(file.with_name("nosuch.toml"))
        file.write_text("name = ", encoding="utf-8")
        with pytest.raises(ConfigError, match=r"orders\.toml:1:8: is not TOML"):
            SourceDefinition.load(file)
