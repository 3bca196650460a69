"""Where the tables of a registry stand in its TOML, and how one is put among them or extended.

Nothing else of the text changes: neither comments nor the order in which people wrote it.
"""

from __future__ import annotations

import re
import tomllib
from ipaddress import IPv4Network
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from headerware.core.header_ids import HeaderId

if TYPE_CHECKING:
    from collections.abc import Callable

TableKind = Literal["block", "entry"]

_HEADER: Final = re.compile(r"[ \t]*\[\[[ \t]*(block|entry)[ \t]*\]\][ \t]*(#.*)?\r?")
_COMMENT: Final = re.compile(r"[ \t]*#")
_KEY: Final[dict[str, Callable[[Any], Any]]] = {
    "block": lambda table: _network_order(table["network"]),
    "entry": lambda table: HeaderId(table["id"]),
}
"""By kind: what tables are sorted by."""


class Place(NamedTuple):
    """Where a table stands.

    Attributes:
        kind: ``block`` or ``entry``.
        start: its first line, counted from 0; a comment right above it belongs to it.
        header: the line with its kind.
    """

    kind: str
    start: int
    header: int


def places(text: str) -> list[Place]:
    """Find the tables of a text that are written as ``[[block]]`` or ``[[entry]]``, in its order."""
    lines = text.split("\n")
    found = ((number, _HEADER.fullmatch(line)) for number, line in enumerate(lines))
    return [Place(match[1], _start(lines, number), number) for number, match in found if match]


def with_table(text: str, kind: TableKind, table: list[str]) -> str:
    """Put a table in its place: before the first of its kind that is to stand behind it.

    Args:
        text: TOML whose tables :func:`places` finds.
        kind: what the table is.
        table: its lines, header included.
    """
    here = places(text)
    at = _index(tomllib.loads(text), here, kind, tomllib.loads("\n".join(table))[kind][0])
    if at == len(here):
        return "\n".join([text.rstrip(), "", *table, ""])
    lines = text.split("\n")
    lines[here[at].start : here[at].start] = [*table, ""]
    return "\n".join(lines)


def with_line(text: str, header_id: HeaderId, line: str) -> str:
    """Put a line at the end of an entry's table.

    Args:
        text: TOML whose tables :func:`places` finds, with the entry among them.
        header_id: the entry.
        line: the line.
    """
    here = places(text)
    lines = text.split("\n")
    entries = [index for index, place in enumerate(here) if place.kind == "entry"]
    ids = [table["id"] for table in tomllib.loads(text)["entry"]]
    index = entries[ids.index(str(header_id))]
    last = here[index + 1].start if index + 1 < len(here) else len(lines)
    while not lines[last - 1].strip() or _COMMENT.match(lines[last - 1]):
        last -= 1
    lines.insert(last, line)
    return "\n".join(lines)


def _start(lines: list[str], header: int) -> int:
    start = header
    while start > 0 and _COMMENT.match(lines[start - 1]):
        start -= 1
    return start


def _index(document: dict[str, Any], here: list[Place], kind: TableKind, table: dict[str, Any]) -> int:
    """Return the index of the table before which another of a kind belongs."""
    key = _KEY[kind]
    wanted = key(table)
    own = [index for index, place in enumerate(here) if place.kind == kind]
    for index, other in zip(own, document.get(kind, ()), strict=True):
        if key(other) > wanted:
            return index
    if own:
        return own[-1] + 1
    return 0 if kind == "block" else len(here)


def _network_order(text: str) -> tuple[int, int]:
    network = IPv4Network(text)
    return int(network.network_address), network.prefixlen
