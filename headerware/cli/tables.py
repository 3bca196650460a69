"""The console and the table by which all commands print text for people."""

from __future__ import annotations

from typing import Final

from rich.console import Console
from rich.table import Table

from headerware.core.printable import printable

_PIPE_COLUMNS: Final = 10_000


def output_console() -> Console:
    """Return a console that folds no line in a pipe, which another program reads."""
    made = Console(highlight=False, soft_wrap=True)
    if not made.is_terminal:
        made.width = _PIPE_COLUMNS
    return made


def table(*titles: str) -> Table:
    """Return a table without a frame, whose columns have these titles."""
    made = Table(box=None, pad_edge=False)
    for title in titles:
        made.add_column(printable(title), overflow="fold")
    return made
