"""The check of links finds those that lead nowhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.links import problems

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "docs").mkdir()
    (tmp_path / "spec").mkdir()
    (tmp_path / "README.md").write_text("# Here\n\n[a page](docs/page.md), [a part](docs/page.md#one-part)\n")
    (tmp_path / "docs" / "index.md").write_text("[a page](page.md)\n")
    (tmp_path / "docs" / "page.md").write_text("## One part\n\n[back](../README.md), `docs/page.md`\n")
    (tmp_path / "spec" / "README.md").write_text("[a format](wire.md)\n")
    (tmp_path / "spec" / "wire.md").write_text("[there](https://example.org/nowhere)\n")
    return tmp_path


class TestProblems:
    def test_finds_none_where_all_links_lead_somewhere(self, root: Path) -> None:
        assert list(problems(root)) == []

    @pytest.mark.parametrize(
        ("text", "problem"),
        [
            ("[gone](docs/gone.md)", "the link to docs/gone.md leads nowhere"),
            ("[part](docs/page.md#another)", "the link to docs/page.md#another leads nowhere"),
            ("[outside](../outside.md)", "the link to ../outside.md leads nowhere"),
            ("`docs/gone.md`", "there is no docs/gone.md"),
        ],
    )
    def test_finds_what_is_not_there(self, root: Path, text: str, problem: str) -> None:
        (root / "README.md").write_text(f"[a page](docs/page.md) {text}\n")
        assert list(problems(root)) == [f"README.md: {problem}"]

    def test_finds_pages_to_which_no_link_leads(self, root: Path) -> None:
        (root / "docs" / "alone.md").touch()
        (root / "spec" / "alone.json").touch()
        assert list(problems(root)) == [
            "docs/index.md: no link leads to alone.md",
            "spec/README.md: no link leads to alone.json",
        ]
