"""The gallery of examples is complete, and says of each example what its file says."""

from __future__ import annotations

import ast
import json
import re
from typing import TYPE_CHECKING, Final

import pytest

from tests.gallery import EXAMPLES, Entry, entries
from tests.links import LINK

if TYPE_CHECKING:
    from pathlib import Path

TEXT: Final = (EXAMPLES / "README.md").read_text(encoding="utf-8")
PROGRAMS: Final = sorted(EXAMPLES.glob("*.py"))
GALLERY: Final = entries()
MAX_LINES: Final = 12


def docstring(path: Path) -> list[str]:
    return (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").splitlines()


def needs(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    if "pyspark" in text:
        return "Java and Spark"
    return "Java" if "KafkaBroker" in text else "nothing"


def test_leads_to_each_file_and_folder() -> None:
    there = {path.name for path in EXAMPLES.iterdir() if path.name not in {"README.md", "__pycache__"}}
    assert there - {target.partition("/")[0] for target in LINK.findall(TEXT)} == set()


def test_has_an_entry_for_each_program_and_notebook() -> None:
    assert {path.name for path in [*PROGRAMS, *EXAMPLES.glob("*.ipynb")]} - set(GALLERY) == set()


def test_has_no_other_form_of_entry() -> None:
    assert len(GALLERY) == len(re.findall(r"^### ", TEXT, re.MULTILINE))


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.name)
class TestProgram:
    def test_has_the_sentence_and_the_command_of_its_docstring(self, path: Path) -> None:
        first, _, command, *_ = docstring(path)
        entry = GALLERY[path.name]
        assert (entry.sentence, entry.command) == (first, command.strip())
        assert entry.command == f"python examples/{path.name}"

    def test_needs_what_it_imports(self, path: Path) -> None:
        assert GALLERY[path.name].needs == needs(path)


@pytest.mark.parametrize("entry", GALLERY.values(), ids=lambda entry: entry.name)
def test_shows_a_short_output(entry: Entry) -> None:
    assert 1 < len(entry.shown.splitlines()) <= MAX_LINES


class TestNotebook:
    def test_shows_what_is_stored_in_the_notebook(self) -> None:
        notebook = json.loads((EXAMPLES / "spark_bridge.ipynb").read_text(encoding="utf-8"))
        outputs = [output for cell in notebook["cells"] for output in cell.get("outputs", ())]
        stored = "".join(line for output in outputs for line in output["text"])
        assert GALLERY["spark_bridge.ipynb"].is_shown_by(stored)


class TestEntry:
    ENTRY = Entry("a.py", "", "", "", "sent 3 to orders-82d552a1\n...\nread 3 in 0.5 s")

    def test_is_shown_by_a_run_with_other_ids_and_times(self) -> None:
        assert self.ENTRY.is_shown_by("sent 3 to\n  orders-11d552b0\nand more\nread 3 in 12.0 s\n")

    @pytest.mark.parametrize(
        "output", ["sent 3 to orders-82d552a1", "sent 4 to orders-82d552a1 read 3 in 0.5 s"]
    )
    def test_is_not_shown_by_other_words(self, output: str) -> None:
        assert not self.ENTRY.is_shown_by(output)
