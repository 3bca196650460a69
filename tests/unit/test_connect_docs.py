"""The pages on Connect hold: their Python runs, and their tables are what the classes say of themselves."""

from __future__ import annotations

import inspect
import json
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from headerware.connect.config import REQUIRED, ConfigKey, Configured
from headerware.connect.converters.catalogue import header_converter_type
from headerware.connect.predicates.catalogue import predicate_type
from headerware.connect.transforms.catalogue import transform_type
from headerware.testing import EmbeddedCluster

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from headerware.connect.catalogue import Catalogue

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "connect.md").read_text(encoding="utf-8")
DIFFERENCES = (DOCS / "connect-differences.md").read_text(encoding="utf-8")
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PART = re.compile(r"(?<!\\)\|")


def kinds(catalogue: Catalogue[Any], *, kafkas: bool) -> Iterator[tuple[str, type[Configured]]]:
    """Give our own classes with their names in configuration, Kafka's or the others."""
    for name in sorted(catalogue.built_in, key=lambda name: name.rpartition(".")[2]):
        simple = name.rpartition(".")[2]
        if (simple != name) is kafkas:
            try:
                yield simple, catalogue(simple)
            except Exception:  # noqa: BLE001 - it has one class for keys and one for values
                yield f"{simple}$Key`, `{simple}$Value", catalogue(f"{simple}$Value")


def summary(kind: type[Configured]) -> str:
    """Give the first sentence of a class, or of the one that it is a part of."""
    found = next(base.__doc__ for base in kind.__mro__ if base.__doc__ and not base.__qualname__.startswith("_"))
    sentence = " ".join(inspect.cleandoc(found).partition("\n\n")[0].split())
    return sentence.replace("``", "`").replace("|", r"\|").removesuffix(".")


def classes(catalogue: Catalogue[Any], what: str, *, kafkas: bool) -> list[str]:
    """Give the table of classes and what they do."""
    rows = [f"| `{name}` | {summary(kind)} |" for name, kind in kinds(catalogue, kafkas=kafkas)]
    return [f"| {what} | what it does |", "| --- | --- |", *rows]


def keys(catalogue: Catalogue[Any], what: str) -> list[str]:
    """Give the table of all keys."""
    rows = []
    every = sorted([*kinds(catalogue, kafkas=True), *kinds(catalogue, kafkas=False)])
    for name, kind in every:
        simple = name.partition("$")[0]
        in_kafka = {key.name for key in kind.config("kafka_4_3")}
        own = [row(key, is_kafkas=key.name in in_kafka) for key in kind.config("strict")]
        rows += [f"| {f'`{simple}`' if not at else ''} | {text} |" for at, text in enumerate(own or ["| | none"])]
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
    "packs": classes(transform_type, "transform", kafkas=False),
    "keys of transforms": keys(transform_type, "transform"),
    "Kafka's predicates": classes(predicate_type, "predicate", kafkas=True),
    "predicates of packs": classes(predicate_type, "predicate", kafkas=False),
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


def rows_of_differences() -> Iterable[list[str]]:
    for line in DIFFERENCES.splitlines():
        if line.startswith("| ") and not line.startswith(("| ---", "| where |")):
            yield [cell.strip() for cell in PART.split(line)[1:-1]]


class TestDifferences:
    @pytest.mark.parametrize("cells", rows_of_differences(), ids=lambda cells: cells[0][:60])
    def test_are_rows_of_three_that_differ(self, cells: list[str]) -> None:
        assert len(cells) == 3
        assert all(cells)
        assert cells[1] != cells[2]

    def test_are_each_there_once(self) -> None:
        where = [cells[0] for cells in rows_of_differences()]
        assert len(where) > 100
        assert sorted({name for name in where if where.count(name) > 1}) == []

    def test_name_classes_that_there_are(self) -> None:
        known = {name.rpartition(".")[2] for each in (transform_type, predicate_type, header_converter_type) for name in each.built_in}
        named = {
            word
            for cells in rows_of_differences()
            for word in re.findall(r"\b[A-Z][a-z]+(?:[A-Z][a-z]+)+\b", cells[0].partition(":")[0])
        }
        assert named - known == set()
        assert len(named) > 20
