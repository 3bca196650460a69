"""The tables, walks and map of docs/design.md, held to the tree.

``make map`` runs this as a program, which writes the map.
"""

from __future__ import annotations

import ast
import re
from itertools import groupby
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
PACKAGE: Final = ROOT / "headerware"
PAGE: Final = ROOT / "docs" / "design.md"
TEXT: Final = PAGE.read_text(encoding="utf-8")
MAP: Final = "\n### `headerware/`\n"
"""The first heading of the page's last part, which ``make map`` writes."""
WALK: Final = re.compile(r"^### ([^\n]+)\n(.*?)(?=^##|\Z)", re.MULTILINE | re.DOTALL)
STEP: Final = re.compile(r"^\d+\. `([a-z_/]+\.py)` `([\w.]+)`", re.MULTILINE)
WALKS: Final = {title: steps for title, text in WALK.findall(TEXT) if (steps := STEP.findall(text))}
PLACE: Final = re.compile(r"`([A-Za-z_][\w.]*)` in `headerware/([\w/]+\.py)`")
ROLE: Final = re.compile(r":[a-z]+:`~?([^`]+)`")


def summary_of(path: Path) -> str:
    """Return the first paragraph of a module's docstring, as Markdown."""
    text = (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").partition("\n\n")[0]
    return ROLE.sub(r"`\1`", " ".join(text.split())).replace("``", "`")


def written_map() -> str:
    """Return the map: each folder with modules, and each module with what it says of itself."""
    lines = list[str]()
    for folder in sorted({path.parent for path in PACKAGE.rglob("*.py")}):
        modules = sorted(path for path in folder.glob("*.py") if not path.name.startswith("__"))
        if modules:
            about = folder / "__init__.py"
            lines += [f"### `{folder.relative_to(ROOT).as_posix()}/`", ""]
            lines += [summary_of(about), ""] if about.exists() and folder != PACKAGE else []
            lines += [*(f"- `{path.name}`: {summary_of(path)}" for path in modules), ""]
    return "\n".join(lines)


def defined_in(path: Path) -> set[str]:
    """Return the functions, classes and constants of a module, methods as ``Class.method``."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    top = [node for node in tree.body if isinstance(node, kinds)]
    inner = [
        f"{node.name}.{part.name}"
        for node in top
        if isinstance(node, ast.ClassDef)
        for part in node.body
        if isinstance(part, kinds)
    ]
    constants = [
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
    ]
    return {node.name for node in top} | {*inner, *constants}


class TestMap:
    def test_is_what_the_modules_say_of_themselves(self) -> None:
        assert TEXT.endswith(written_map()), "run `make map`"

    def test_says_something_of_every_module(self) -> None:
        assert not [line for line in written_map().splitlines() if line.endswith("`: ")]


class TestTables:
    @pytest.mark.parametrize(("name", "file"), sorted(set(PLACE.findall(TEXT))))
    def test_name_what_is_there(self, name: str, file: str) -> None:
        assert name in defined_in(PACKAGE / file)


class TestWalks:
    def test_are_those_that_a_reader_asks_for(self) -> None:
        assert len(WALKS) >= 4

    @pytest.mark.parametrize("title", WALKS)
    def test_name_functions_that_are_there(self, title: str) -> None:
        for file, name in WALKS[title]:
            assert name in defined_in(PACKAGE / file), f"{file}: {name}"

    @pytest.mark.parametrize("title", WALKS)
    def test_never_come_back_to_a_file_that_they_have_left(self, title: str) -> None:
        files = [file for file, _ in groupby(file for file, _ in WALKS[title])]
        assert len(files) == len(set(files)), files


if __name__ == "__main__":
    PAGE.write_text(TEXT.partition(MAP)[0] + "\n" + written_map(), encoding="utf-8")
