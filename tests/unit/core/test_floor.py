"""The core is the lowest floor: it names nothing above it, in strings either."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import headerware
from headerware.core.plugins import interceptor_type

PACKAGE = Path(headerware.__file__).parent
ABOVE = sorted(
    path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists() and path.name != "core"
)
WORDS = sorted(interceptor_type.built_in)
_MODULE = re.compile(rf"\bheaderware[./](?:{'|'.join(ABOVE)})\b")
_HEADER = re.compile(r"\bhw\.\w")
_WORD = re.compile(rf"^(?:{'|'.join(WORDS)})$|'(?:{'|'.join(WORDS)})'")


def names_above(source: str) -> list[str]:
    """Return the strings of a module that name a module, header or interceptor of another floor."""
    tree = ast.parse(source)
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    texts = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings
    ]
    return [text for text in texts if any(rule.search(text) for rule in (_MODULE, _HEADER, _WORD))]


@pytest.mark.parametrize("path", sorted((PACKAGE / "core").glob("**/*.py")), ids=lambda path: path.name)
def test_no_string_names_what_is_above(path: Path) -> None:
    assert names_above(path.read_text()) == []


class TestTheRule:
    def test_knows_the_packages_and_the_interceptors(self) -> None:
        assert {"interceptors", "registry", "serdes"} <= set(ABOVE)
        assert {"sign", "slice", "header_ids"} <= set(WORDS)

    @pytest.mark.parametrize(
        "source",
        [
            'NAMES = ("headerware.registry.names", "default_name_of")',
            'TABLE = {"word": "headerware.interceptors.trail:Trail"}',
            'if "hw.ids" in decodes: pass',
            'word = "slice"',
            "def hint(): raise ValueError(f\"add the 'header_ids' interceptor to {chain}\")",
        ],
    )
    def test_finds_names_of_other_floors(self, source: str) -> None:
        assert names_above(source)

    @pytest.mark.parametrize(
        "source",
        [
            '"""Headers such as hw.trail, by headerware.interceptors."""',
            'def f():\n    """Return what sign has signed."""',
            'RESERVED = "hw."',
            'FILE = "headerware.config"',
            'why = "it would change the bytes after sign has signed them"',
        ],
    )
    def test_passes_docstrings_prefixes_and_prose(self, source: str) -> None:
        assert names_above(source) == []
