"""The blocks and entries that come with Headerware, read from the one file that holds them."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from typing import Final, NamedTuple

from headerware.registry.entries import Block, Entry
from headerware.registry.plain import from_plain

_PACKAGE: Final = "headerware.registry"
_FILE: Final = "built_in.toml"


class BuiltInTables(NamedTuple):
    """What ``built_in.toml`` says.

    Attributes:
        blocks: by their order in the file.
        entries: by their order in the file.
    """

    blocks: tuple[Block, ...]
    entries: tuple[Entry, ...]


@cache
def built_in_tables() -> BuiltInTables:
    """Read the file, once a process; the package may be a folder or a zip."""
    tables = tomllib.loads(files(_PACKAGE).joinpath(_FILE).read_text(encoding="utf-8"))
    blocks = tuple(from_plain(table, Block) for table in tables["block"])
    return BuiltInTables(blocks, tuple(from_plain(table, Entry) for table in tables["entry"]))
