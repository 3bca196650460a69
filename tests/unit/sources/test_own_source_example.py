"""The example of a source of one's own, held against the conformance suite as its author would do."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar
from zipfile import ZipFile

import pytest

from headerware.sources import Extractor, ExtractorConformance, Source, SourceConformance

EXAMPLE = Path(__file__).parents[3] / "examples" / "own_source.py"


def loaded() -> ModuleType:
    spec = importlib.util.spec_from_file_location("own_source", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["own_source"] = module  # where pickle looks for its classes
    spec.loader.exec_module(module)
    return module


own_source = loaded()
MEMBERS = {"a.csv": "x,y\n1,2\n3,4\n", "c.csv": "x\n5\n", "d.csv": "x\n"}


class TestZip(SourceConformance):
    extractor = own_source.CsvRows()

    @pytest.fixture(autouse=True)
    def archive(self, tmp_path: Path) -> None:
        self.path = tmp_path / "some.zip"
        self.members = dict(MEMBERS)
        self.write()

    def write(self) -> None:
        with ZipFile(self.path, "w") as archive:
            for name, text in self.members.items():
                archive.writestr(name, text)

    def make_source(self) -> Source[Any]:
        made: Source[Any] = own_source.Zip(path=str(self.path))
        return made

    def add_late(self) -> None:
        self.members["b.csv"] = "x\nlate\n"
        self.write()

    def change(self, key: Any) -> None:
        self.members[key] = "x\nchanged\n"
        self.write()

    def remove(self, key: Any) -> None:
        del self.members[key]
        self.write()


class TestCsvRows(ExtractorConformance):
    extractor: ClassVar[Extractor] = own_source.CsvRows()
    sample, count = b'x,y\n1,"a\nb"\n2,c\n3,d\n', 3


def test_the_example_is_short() -> None:
    text = EXAMPLE.read_text()
    classes = text[text.index("class Member") : text.index("def main")]
    assert len(classes.strip().splitlines()) < 60
