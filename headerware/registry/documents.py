"""A registry as a document: Markdown for people, JSON and TOML for programs.

Run as a program, it writes the tables of the built-in registry into a page, between two marks:

    python -m headerware.registry.documents docs/header-ids.md
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from headerware.registry.registry import built_in
from headerware.registry.stores.toml import registry_text
from headerware.registry.values import to_plain

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headerware.registry.registry import Registry
    from headerware.registry.values import Block, Entry

JSON_VERSION: Final = 1
BEGIN: Final = "<!-- from headerware/registry/built_in.toml: change that, and write this anew -->"
END: Final = "<!-- to here -->"

_BLOCK_COLUMNS: Final = ("block", "owner", "since", "description")
_ENTRY_COLUMNS: Final = ("id", "name", "value", "owner", "since", "description")


def as_markdown(registry: Registry) -> str:
    """Write a registry as two Markdown tables, of its blocks and of its entries."""
    blocks = _table(_BLOCK_COLUMNS, map(_block_row, registry.blocks))
    return f"{blocks}\n{_table(_ENTRY_COLUMNS, map(_entry_row, registry.entries))}"


def as_json(registry: Registry) -> str:
    """Write a registry as JSON: ``version``, ``registrar``, ``blocks`` and ``entries``."""
    document = {
        "version": JSON_VERSION,
        "registrar": registry.registrar,
        "blocks": [to_plain(block) for block in registry.blocks],
        "entries": [to_plain(entry) for entry in registry.entries],
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


FORMATS: Final[Mapping[str, Callable[[Registry], str]]] = MappingProxyType(
    {"toml": registry_text, "json": as_json, "markdown": as_markdown}
)
"""The function that writes a registry in each format. Built-in entries are left out of TOML."""


def with_tables(page: str, tables: str) -> str:
    """Return a page with other tables between its two marks; it must have each mark once."""
    head, begin, rest = page.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not (begin and end) or BEGIN in tail or END in tail:
        raise ValueError(f"expected one {BEGIN} and one {END} after it")
    return f"{head}{BEGIN}\n\n{tables}\n{END}{tail}"


def main(arguments: list[str]) -> None:
    """Write the tables of the built-in registry into pages."""
    for path in map(Path, arguments):
        page = path.read_text(encoding="utf-8")
        path.write_text(with_tables(page, as_markdown(built_in())), encoding="utf-8")


def _block_row(block: Block) -> tuple[str, ...]:
    return f"`{block.network}`", _cell(block.owner), block.since, _cell(block.description)


def _entry_row(entry: Entry) -> tuple[str, ...]:
    since = entry.since if entry.retired is None else f"{entry.since}, retired {entry.retired}"
    return (
        f"`{entry.id}`",
        _code(entry.name),
        entry.encoding,
        _cell(entry.owner),
        since,
        _cell(entry.description),
    )


def _table(columns: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [columns, ("---",) * len(columns), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _code(text: str) -> str:
    """Write a name in a cell; names with a backtick need a longer fence."""
    fence = "``" if "`" in text else "`"
    space = " " if "`" in text else ""
    return f"{fence}{space}{text.replace('|', chr(92) + '|')}{space}{fence}"


def _cell(text: str) -> str:
    return "".join(f"\\{character}" if character in "\\|`*_<[" else character for character in text)


if __name__ == "__main__":
    main(sys.argv[1:])
