"""The pages on Connect hold: their Python runs, and their tables are what the classes say of themselves."""

from __future__ import annotations

import importlib
import json
import re
import sys
from operator import itemgetter
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from headerware.connect.config import REQUIRED, ConfigKey, Configured
from headerware.connect.converters.base import TYPE_KEY
from headerware.connect.converters.catalogue import header_converter_type
from headerware.connect.predicates.catalogue import predicate_type
from headerware.connect.transforms.catalogue import transform_type
from headerware.testing import EmbeddedCluster

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headerware.connect.catalogue import Catalogue

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "connect.md").read_text(encoding="utf-8")
DIFFERENCES = (DOCS / "connect-differences.md").read_text(encoding="utf-8")
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PART = re.compile(r"(?<!\\)\|")


def kinds(catalogue: Catalogue[Any], *, kafkas: bool) -> Iterator[tuple[str, type[Configured]]]:
    """Return our own classes with their names in configuration, Kafka's or the others."""
    for name, place in sorted(catalogue.built_in.items(), key=lambda item: item[0].rpartition(".")[2]):
        simple = name.rpartition(".")[2]
        module, _, symbol = place.partition(":")
        kind = getattr(importlib.import_module(module), symbol)
        if (simple != name) is kafkas:
            yield (f"{simple}$Key`, `{simple}$Value" if hasattr(kind, "Key") else simple), kind


def summary(kind: type[Configured]) -> str:
    """Return the first sentence of a class."""
    sentence = " ".join((kind.__doc__ or "").partition("\n\n")[0].split())
    return sentence.replace("``", "`").replace("|", r"\|").removesuffix(".")


def classes(catalogue: Catalogue[Any], what: str, *, kafkas: bool) -> list[str]:
    """Return the table of classes and what they do."""
    rows = [f"| `{name}` | {summary(kind)} |" for name, kind in kinds(catalogue, kafkas=kafkas)]
    return [f"| {what} | what it does |", "| --- | --- |", *rows]


def keys(catalogue: Catalogue[Any], what: str) -> list[str]:
    """Return the table of all keys."""
    rows = []
    every = sorted([*kinds(catalogue, kafkas=True), *kinds(catalogue, kafkas=False)], key=itemgetter(0))
    for name, kind in every:
        simple = name.partition("$")[0]
        in_kafka = {key.name for key in kind.config("kafka_4_3")}
        own = [key for key in kind.config("strict") if key.name != TYPE_KEY]  # what it is used for says that
        texts = [row(key, is_kafkas=key.name in in_kafka) for key in own] or [" |  | "]
        rows += [f"| {f'`{simple}`' if not at else ''} | {text} |" for at, text in enumerate(texts)]
    return [f"| {what} | key | default | meaning |", "| --- | --- | --- | --- |", *rows]


def row(key: ConfigKey, *, is_kafkas: bool) -> str:
    doc = key.doc.replace("|", r"\|")
    return f"`{key.name}` | {default(key)} | {doc if is_kafkas else f'(strict) {doc}'}"


def default(key: ConfigKey) -> str:
    if key.default is REQUIRED:
        return "-"
    if isinstance(key.default, str):
        return f"`{key.default}`" if key.default else '`""`'
    return f"`{json.dumps(key.default)}`"


TABLES = {
    "converters": keys(header_converter_type, "converter"),
    "Kafka's transforms": classes(transform_type, "transform", kafkas=True),
    "own transforms": classes(transform_type, "transform", kafkas=False),
    "keys of transforms": keys(transform_type, "transform"),
    "Kafka's predicates": classes(predicate_type, "predicate", kafkas=True),
    "own predicates": classes(predicate_type, "predicate", kafkas=False),
    "keys of predicates": keys(predicate_type, "predicate"),
}


class TestPage:
    def test_runs_and_shows_what_it_says(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setitem(sys.modules, "page", ModuleType("page"))
        namespace: dict[str, Any] = {"__name__": "page"}
        with EmbeddedCluster() as cluster:
            for block in PYTHON.findall(PAGE):
                program = block.replace("localhost:9092", cluster.bootstrap_servers)
                exec(compile(program, "docs/connect.md", "exec"), namespace)  # noqa: S102 - our own
                shown = re.findall(r"print\(.*\)  # (.*)$", program, re.MULTILINE)
                assert capsys.readouterr().out.splitlines() == shown
            namespace.clear()  # a client that outlived the cluster would look for it

    @pytest.mark.parametrize("name", TABLES)
    def test_has_the_table_that_the_classes_make(self, name: str) -> None:
        assert "\n".join(TABLES[name]) in PAGE, "docs/connect.md lacks:\n" + "\n".join(TABLES[name])


def rows_of_differences() -> list[list[str]]:
    lines = [line for line in DIFFERENCES.splitlines() if line.startswith("| ")]
    rows = [[cell.strip() for cell in PART.split(line)[1:-1]] for line in lines]
    return [cells for cells in rows if cells[0] not in {"where", "---"}]


class TestDifferences:
    @pytest.mark.parametrize("cells", rows_of_differences(), ids=lambda cells: cells[0][:60])
    def test_are_rows_of_three_that_differ(self, cells: list[str]) -> None:
        assert len(cells) == 3
        assert all(cells)
        assert cells[1] != cells[2]

    def test_are_each_there_once(self) -> None:
        rows = [tuple(cells) for cells in rows_of_differences()]
        assert len(rows) > 100
        assert sorted({cells for cells in rows if rows.count(cells) > 1}) == []

    def test_name_classes_that_there_are(self) -> None:
        catalogues: list[Catalogue[Any]] = [transform_type, predicate_type, header_converter_type]
        known = {name.rpartition(".")[2] for each in catalogues for name in each.built_in}
        named = {
            word
            for cells in rows_of_differences()
            for word in re.findall(r"\b[A-Z][a-z]+(?:[A-Z][a-z]+)+\b", cells[0].partition(":")[0])
        }
        assert named - known == set()
        assert len(named) > 15
