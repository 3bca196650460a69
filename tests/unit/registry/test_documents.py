from __future__ import annotations

import json
import runpy
import sys
import tomllib
from ipaddress import IPv4Network
from pathlib import Path

import pytest

from headerware.core.header_ids import HeaderId
from headerware.registry import Block, Entry, Registry, built_in, use_registry, with_built_in
from headerware.registry.documents import BEGIN, END, FORMATS, as_json, as_markdown, main, with_tables
from headerware.registry.stores import open_store
from headerware.registry.values import from_plain

PAGE = Path(__file__).resolve().parents[3] / "docs" / "header-ids.md"
DAY = "2027-01-01"


@pytest.fixture
def registry() -> Registry:
    block = Block(network=IPv4Network("0.1.0.0/16"), owner="a_b*", description="<b> | [x]", since=DAY)
    entry = Entry(
        id=HeaderId("0.1.0.1"),
        name="a|b`c",
        owner="a_b*",
        encoding="uuid",
        description="One \u00fc.",
        since=DAY,
        retired="2027-02-01",
    )
    return with_built_in([block], [entry], registrar="platform")


class TestMarkdown:
    def test_is_a_table_of_blocks_and_one_of_entries(self, registry: Registry) -> None:
        lines = as_markdown(registry).splitlines()
        assert lines[0] == "| block | owner | since | description |"
        assert lines.index("") == 2 + len(registry.blocks)
        assert lines[lines.index("") + 1] == "| id | name | value | owner | since | description |"
        assert len(lines) == 5 + len(registry.blocks) + len(registry)

    def test_keeps_what_people_wrote_from_being_markup(self, registry: Registry) -> None:
        lines = as_markdown(registry).splitlines()
        assert lines[3] == r"| `0.1.0.0/16` | a\_b\* | 2027-01-01 | \<b> \| \[x] |"
        assert lines[-1] == (
            r"| `0.1.0.1` | `` a\|b`c `` | uuid | a\_b\* | 2027-01-01, retired 2027-02-01 | One ü. |"
        )


class TestJson:
    def test_says_everything(self, registry: Registry) -> None:
        document = json.loads(as_json(registry))
        blocks = [from_plain(block, Block) for block in document["blocks"]]
        entries = [from_plain(entry, Entry) for entry in document["entries"]]
        assert Registry(blocks, entries, registrar=document["registrar"]) == registry
        assert document["version"] == 1


class TestFormats:
    def test_are_what_can_be_exported(self, registry: Registry) -> None:
        assert set(FORMATS) == {"toml", "json", "markdown"}
        assert tomllib.loads(FORMATS["toml"](registry))["entry"][0]["name"] == "a|b`c"


class TestPage:
    def test_has_the_tables_of_what_comes_with_headerware(self) -> None:
        page = PAGE.read_text(encoding="utf-8")
        assert with_tables(page, as_markdown(built_in())) == page

    def test_can_be_written_anew(self, tmp_path: Path) -> None:
        page = tmp_path / "page.md"
        page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
        main([str(page)])
        text = page.read_text()
        assert text.startswith(f"before\n{BEGIN}\n\n| block |")
        assert text.endswith(f"|\n\n{END}\nafter\n")
        assert "hw.trail" in text
        assert "old" not in text

    def test_is_written_by_the_module_as_a_program(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        page = tmp_path / "page.md"
        page.write_text(f"{BEGIN}{END}")
        monkeypatch.setattr(sys, "argv", ["documents", str(page)])
        monkeypatch.delitem(sys.modules, "headerware.registry.documents")
        runpy.run_module("headerware.registry.documents", run_name="__main__")
        assert "hw.trail" in page.read_text()

    @pytest.mark.parametrize("page", ["", BEGIN, END + BEGIN, BEGIN + END + BEGIN + END, BEGIN + END + END])
    def test_needs_its_marks(self, page: str) -> None:
        with pytest.raises(ValueError, match="expected one <!--"):
            with_tables(page, "")

    def test_has_a_program_that_works(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        program = PAGE.read_text(encoding="utf-8").partition("```python\n")[2].partition("```")[0]
        monkeypatch.chdir(tmp_path)
        try:
            exec(compile(program, str(PAGE), "exec"), {})  # noqa: S102 - our own
        finally:
            use_registry(None)
        with open_store("registry.toml") as store:
            assert store.load().by_name("tenant") is not None
