"""The gallery of examples, examples/README.md: what each example is, needs and shows."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, NamedTuple

EXAMPLES: Final = Path(__file__).resolve().parents[1] / "examples"
ENTRY: Final = re.compile(
    r"^### .+\n\n(?P<sentence>.+)\n\n\[.+\]\((?P<name>.+)\) needs (?P<needs>[^;\n]+?)(?:; reads .+)?\.\n\n"
    r"```\n(?P<command>.+)\n```\n\n```text\n(?P<shown>(?:.*\n)+?)```$",
    re.MULTILINE,
)
LEFT_OUT: Final = "..."
VARIES: Final = re.compile(
    r"\S*(?:\d{5,}|\d\d,\d{3}|\d,\d{3},|[0-9a-f]{6,}|\d\d:\d\d)\S*|\d{4}-\d\d-\d\d|\+?[\d.]+ (?:m?s|min)\b"
)
"""Ids, addresses, times, durations and large sizes, which differ from run to run."""


class Entry(NamedTuple):
    """An example as the gallery presents it."""

    name: str
    sentence: str
    needs: str
    command: str
    shown: str

    def is_shown_by(self, output: str) -> bool:
        """Return whether an output has the words of the gallery, with any words for those left out."""
        parts = (re.escape(_words(part)) for part in self.shown.split(LEFT_OUT))
        return re.search(".*".join(parts), _words(output)) is not None


def _words(text: str) -> str:
    # Consoles wrap and indent lines.
    return " ".join(VARIES.sub("~", " ".join(text.split())).split())


def entries() -> dict[str, Entry]:
    """Return the entries by the paths to which they lead."""
    text = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    return {found["name"]: Entry(**found.groupdict()) for found in ENTRY.finditer(text)}
