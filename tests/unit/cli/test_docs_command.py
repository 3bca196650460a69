"""``headerware docs`` in a clone and in a wheel, in a terminal and in a pipe."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from headerware.cli import main
from headerware.cli.docs import _pages
from tests.links import ROOT

LINKED = re.findall(r"\]\((?!\.\./\w+\.md)([^)#]+\.md)", (ROOT / "docs/index.md").read_text(encoding="utf-8"))
"""The links of the index, without those to files at the root, which are not in the wheel."""


def docs(*args: str) -> Any:
    return CliRunner().invoke(main, ["docs", *args])


class TestDocs:
    def test_lists_every_page_with_its_title(self) -> None:
        result = docs()
        assert "  trail                Trail\n" in result.output
        assert "  spec/trail            The paper trail: hw.trail\n" in result.output
        listed = [line for line in result.output.splitlines() if line.startswith("  ")]
        files = [*(ROOT / "docs").rglob("*.md"), *(ROOT / "spec").rglob("*.md")]
        files += [*(ROOT / "examples").rglob("README.md"), *(ROOT / "bench").glob("*.md")]
        assert len(listed) == len(files) + 1  # tests/connect_oracle

    def test_lists_each_folder_once(self) -> None:
        titles = [line for line in docs().output.splitlines() if not line.startswith("  ")]
        assert titles == [
            *("pages:", "api:", "bench:", "decisions:", "examples:", "guides:", "interceptors:", "spec:"),
            "tests:",
        ]

    @pytest.mark.parametrize(
        ("given", "file"),
        [
            ("trail", "docs/trail.md"),
            ("docs/trail.md", "docs/trail.md"),
            ("Trail", "docs/trail.md"),
            ("fastapi", "docs/guides/fastapi.md"),
            ("guides/fastapi", "docs/guides/fastapi.md"),
            ("guides", "docs/guides/README.md"),
            ("sign", "docs/interceptors/sign.md"),
            ("spec", "spec/README.md"),
            ("spec/trail", "spec/trail.md"),
            ("spec/README.md", "spec/README.md"),
            ("TRAIL.MD", "docs/trail.md"),
            ("Docs/Guides/README.md", "docs/guides/README.md"),
            ("signature", "spec/signature.md"),
            ("rotate", "docs/guides/rotate-keys.md"),
            ("started", "docs/getting-started.md"),
        ],
    )
    def test_prints_the_markdown_of_a_page_into_a_pipe(self, given: str, file: str) -> None:
        assert docs(given).output == (ROOT / file).read_text(encoding="utf-8")

    @pytest.mark.parametrize("link", LINKED)
    def test_opens_each_page_that_the_index_links_to(self, link: str) -> None:
        path = Path(os.path.normpath(ROOT / "docs" / link))
        name = path.relative_to(ROOT).as_posix()
        assert docs(name).output == path.read_text(encoding="utf-8")
        assert docs(name.removesuffix(".md").removesuffix("/README")).output == docs(name).output

    @pytest.mark.parametrize(("given", "meant"), [("tral", "trail"), ("fastapy", "fastapi")])
    def test_suggests_a_near_name(self, given: str, meant: str) -> None:
        result = docs(given)
        assert result.exit_code == 2
        assert f"there is no page '{given}'; did you mean '{meant}'?" in result.output

    def test_does_not_choose_between_pages_that_begin_alike(self) -> None:
        result = docs("from-")
        assert (result.exit_code, "there is no page 'from-'" in result.output) == (2, True)

    def test_answers_as_json(self) -> None:
        assert json.loads(docs("trail", "--json").output)["result"]["page"] == "trail"
        assert json.loads(docs("--json").output)["result"]["guides"] == "Guides"

    def test_shows_a_page_in_the_pager_of_a_terminal(self) -> None:
        parent, child = pty.openpty()
        environment = {**os.environ, "PAGER": "cat", "COLUMNS": "80", "TERM": "xterm"}
        command = [sys.executable, "-m", "headerware", "docs", "interceptors/sign"]
        with subprocess.Popen(command, stdin=child, stdout=child, stderr=child, env=environment) as process:
            os.close(child)
            shown = b""
            try:
                while part := os.read(parent, 65_536):
                    shown += part
            except OSError:  # Linux's answer when the other side is closed
                pass
            os.close(parent)
        assert process.returncode == 0
        assert b"What it is for" in shown
        assert b"## What it is for" not in shown


class TestPages:
    def test_are_in_the_wheel(self, tmp_path: Path) -> None:
        builder = pytest.importorskip("hatchling.builders.wheel").WheelBuilder(str(ROOT))
        (wheel,) = builder.build(directory=str(tmp_path), versions=["standard"])
        with zipfile.ZipFile(wheel) as packed:
            inside = [name for name in packed.namelist() if name.startswith("headerware/_docs/")]
            packed.extractall(tmp_path, inside)
        assert all(name.endswith(".md") for name in inside)
        assert list(_pages(tmp_path / "headerware")) == list(_pages())
