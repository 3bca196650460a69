"""Print the demo for people."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

import wire
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from headerware.cli.trail import trail_lines
from headerware.interceptors import read_trail

if TYPE_CHECKING:
    from rich.console import Console


def step(console: Console, number: int, title: str, subtitle: str) -> None:
    """Print a heading."""
    console.print(f"\n[bold cyan]{number}. {title}[/]  [dim]{subtitle}[/]")


def configuration(console: Console, path: Path) -> None:
    """Print the chain's lines."""
    console.print(f"\n[bold]The configuration that does all of this[/]  [dim]{path.name}[/]")
    console.print(Syntax(path.read_text(encoding="utf-8").rstrip(), "toml", background_color="default"))


def sizes(console: Console, steps: list[wire.Size], seen: list) -> None:
    """Print bytes before and on the wire, interceptor by interceptor."""
    table = Table(box=None, padding=(0, 2), header_style="bold")
    for column in ("", "records", "values", "headers", "total", "change"):
        table.add_column(column, justify="left" if not column else "right")
    stored = wire.measured("as a plain client reads it", seen)
    before = steps[0].total
    for size in [*steps, stored]:
        change = "" if size in (steps[0], stored) else f"{size.total - before:+,}"
        figures = (size.records, size.value_bytes, size.header_bytes, size.total)
        table.add_row(size.step, *(f"{figure:,}" for figure in figures), change)
        before = size.total
    console.print(table)
    console.print("   [dim]bytes[/]")


def refused(console: Console, reasons: list[str]) -> None:
    """Print the reasons of refusals."""
    for reason in reasons:
        console.print(f"   [red]refused[/] {reason}")
    if not reasons:
        console.print("   [red]nothing was refused: the altered record was not noticed[/]")


def large_file(console: Console, path: Path, received: dict) -> None:
    """Print a file's digest before and after."""
    sent = hashlib.sha256(path.read_bytes()).hexdigest()
    same = "[green]the same[/]" if sent == received["sha256"] else "[red]not the same[/]"
    console.print(f"   {path.name}, {path.stat().st_size:,} bytes in one message")
    console.print(f"     SHA-256 sent      {sent}")
    console.print(f"     SHA-256 received  {received['sha256']}  {same}")


def trail(console: Console, received: dict) -> None:
    """Print a record's trail as a timeline."""
    headers = [(name, None if value is None else bytes.fromhex(value)) for name, value in received["headers"]]
    for line in trail_lines(read_trail(headers)):
        console.print(Text("   ").append_text(line))
    traced = dict(headers).get("traceparent", b"").decode()
    console.print("   [dim]and its trace context, from the request that produced it:[/]")
    console.print(f"   traceparent {traced}")
