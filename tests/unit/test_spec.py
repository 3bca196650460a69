"""The shape of spec/: sections, words, and vectors that are run."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

from headerware.interceptors.built_in import HEADERS

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "spec").glob("*.md"))
VECTORS = sorted((ROOT / "spec" / "vectors").glob("*.json"))
FROZEN = sorted((ROOT / "spec" / "frozen").glob("*.sha256"))
README = (ROOT / "spec" / "README.md").read_text(encoding="utf-8")
ROLES = re.findall(
    r"^\| ([a-z ]+) \| ", README.partition("| role |")[2].partition("| header |")[0], re.MULTILINE
)
KEY_WORD = re.compile(r"\b(MUST|SHOULD|MAY|REQUIRED|SHALL|RECOMMENDED|OPTIONAL)\b")


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
class TestPages:
    def test_has_a_section_on_security(self, page: Path) -> None:
        assert len(re.findall(r"^## Security$", text_of(page), re.MULTILINE)) == 1

    def test_says_what_is_required(self, page: Path) -> None:
        assert KEY_WORD.search(text_of(page))

    def test_says_of_whom(self, page: Path) -> None:
        if page.name != "README.md":  # it says who the roles are
            required = rf"\b(?:{'|'.join(ROLES)})s? (?:MUST|SHOULD|MAY)\b"
            assert re.search(required, text_of(page), re.IGNORECASE)


def test_there_are_roles() -> None:
    assert {"writer", "reader", "verifier", "registrar", "owner", "worker"} <= set(ROLES)


@pytest.mark.parametrize("vectors", VECTORS, ids=lambda vectors: vectors.name)
class TestVectors:
    def test_are_run(self, vectors: Path) -> None:
        running = [
            path for path in (ROOT / "tests" / "vectors").glob("*.py") if vectors.name in text_of(path)
        ]
        assert running

    def test_have_a_page(self, vectors: Path) -> None:
        assert any(f"vectors/{vectors.name}" in text_of(page) for page in PAGES)


@pytest.mark.parametrize("release", FROZEN, ids=lambda release: release.stem)
class TestFrozenVectors:
    """The vectors of a release never change; TestVectors requires a test that reads and writes each file."""

    def test_are_as_they_were_released(self, release: Path) -> None:
        lines = text_of(release).splitlines()
        assert lines
        changed = [
            name for digest, name in map(str.split, lines) if digest_of(ROOT / "spec" / name) != digest
        ]
        assert changed == [], (
            f"released with {release.stem}: put new vectors into a new file (spec/README.md)"
        )


def digest_of(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest() if file.exists() else "no file"


def test_the_first_release_is_frozen() -> None:
    assert "0.1" in {release.stem for release in FROZEN}


@pytest.mark.parametrize("name", sorted(set(HEADERS.compact_keys.values()) | set(HEADERS.encodings)))
def test_the_page_on_chains_has_each_header(name: str) -> None:
    table = text_of(ROOT / "spec" / "chain.md").partition("| header | if it stands")[2].partition("\n\n")[0]
    assert f"`{name}`" in table


def test_the_page_on_chains_has_each_header_of_the_table() -> None:
    """So that a header with a page of its own is not forgotten there."""
    chain = text_of(ROOT / "spec" / "chain.md")
    listed = re.findall(r"`(hw\.[a-z.-]+)`", README.partition("| header | spec |")[2].partition("\n\n")[0])
    assert [name for name in listed if f"`{name}`" not in chain] == []
