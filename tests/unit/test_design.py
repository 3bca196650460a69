"""The map and the walks of docs/design.md, held to the tree."""

from __future__ import annotations

import ast
import re
from itertools import groupby
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
PACKAGE: Final = ROOT / "headerware"
TEXT: Final = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
ROW: Final = re.compile(r"^\| `((?:[a-z_]+/)+)` \| (.*) \|$", re.MULTILINE)
CODE: Final = re.compile(r"`([^`]+)`")
FOLDERS: Final = dict(ROW.findall(TEXT))
WALK: Final = re.compile(r"^### ([^\n]+)\n(.*?)(?=^##|\Z)", re.MULTILINE | re.DOTALL)
STEP: Final = re.compile(r"^\d+\. `([a-z_/]+\.py)` `([\w.]+)`", re.MULTILINE)
WALKS: Final = {title: steps for title, text in WALK.findall(TEXT) if (steps := STEP.findall(text))}

ALIKE: Final = {"connect/transforms/", "connect/predicates/"}
"""Folders of alike modules, such as one for each transform, which their table lists."""


def modules_of(folder: str) -> set[str]:
    """Return the modules that stand in a folder itself, without those that only hand names on."""
    found = (PACKAGE / folder).glob("*.py")
    return {path.name for path in found if path.name not in {"__init__.py", "__main__.py"}}


def defined_in(path: Path) -> set[str]:
    """Return the functions and classes of a module, methods as ``Class.method``."""
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
    return {node.name for node in top} | set(inner)


class TestMap:
    def test_has_every_folder_that_has_modules(self) -> None:
        folders = {path.parent.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py")}
        with_modules = {f"{folder}/" for folder in folders - {"."} if modules_of(folder)}
        assert with_modules == set(FOLDERS)

    @pytest.mark.parametrize("folder", FOLDERS)
    def test_names_every_module_of_a_folder_and_no_other(self, folder: str) -> None:
        named = {code for code in CODE.findall(FOLDERS[folder]) if code.endswith(".py")}
        if folder not in ALIKE:
            assert named == modules_of(folder)


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
