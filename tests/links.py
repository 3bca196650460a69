"""Check that the links and the paths in the documents lead to something; `make check` runs it."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("*.md", "docs/**/*.md", "spec/*.md", "examples/**/README.md")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
CODE = re.compile(r"`([^`\n]+)`")
HEADING = re.compile(r"^#+ +(.*)$", re.MULTILINE)
OURS = re.compile(r"(?!headerware/hw\.)(?:headerware|tests|docs|spec|examples|bench|requirements)/[\w./*-]+")
NOT_IN_THE_LIST = {"README.md", "vectors/commit-metadata.json"}
"""Files of spec/ that its README need not list: itself, and vectors to which a page leads."""


def documents(root: Path = ROOT) -> list[str]:
    """Return the paths of all documents, relative to the root."""
    return sorted(path.relative_to(root).as_posix() for pattern in PAGES for path in root.glob(pattern))


def problems(root: Path = ROOT) -> Iterator[str]:
    """Yield a line for each link and path that leads nowhere, and for each page to which none leads."""
    text_of = {name: (root / name).read_text(encoding="utf-8") for name in documents(root)}
    prose_of = {name: FENCE.sub("", text) for name, text in text_of.items()}
    for document, prose in prose_of.items():
        for target in LINK.findall(prose):
            if not target.startswith("https://") and not _is_there(root, document, target):
                yield f"{document}: the link to {target} leads nowhere"
        for code in CODE.findall(prose):
            if OURS.fullmatch(code) and not list(root.glob(code.rstrip("/"))):
                yield f"{document}: there is no {code}"
    for folder in sorted({path.parent for path in (root / "docs").rglob("*.md")}):
        name = "index.md" if folder == root / "docs" else "README.md"
        contents = (folder / name).relative_to(root).as_posix()
        pages = {path.name for path in folder.glob("*.md")} - {name}
        for page in sorted(pages - set(LINK.findall(prose_of[contents]))):
            yield f"{contents}: no link leads to {page}"
    spec = root / "spec"
    files = {path.relative_to(spec).as_posix() for path in spec.rglob("*.*")}
    for file in sorted(files - set(LINK.findall(prose_of["spec/README.md"])) - NOT_IN_THE_LIST):
        yield f"spec/README.md: no link leads to {file}"


def _is_there(root: Path, document: str, target: str) -> bool:
    name, _, anchor = target.partition("#")
    path = ((root / document).parent / name).resolve() if name else root / document
    if not (path.is_relative_to(root) and path.exists()):
        return False
    return not anchor or anchor in map(_slug, HEADING.findall(path.read_text(encoding="utf-8")))


def _slug(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


if __name__ == "__main__":
    found = list(problems())
    sys.stdout.writelines(f"{line}\n" for line in found)
    sys.exit(bool(found))
