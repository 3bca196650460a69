"""``headerware check`` and ``headerware explain``: what a configuration comes to, before it runs."""

from __future__ import annotations

from typing import Any

import click
import msgspec
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from headerware.core.chain import load_chain
from headerware.core.context import Context
from headerware.core.explanation import ExplainedInterceptor
from headerware.core.explanation import explain as explanation_of

_config = click.argument("config", type=click.Path(dir_okay=False))
_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.command()
@_config
@click.option(
    "--open/--no-open",
    "opens",
    default=False,
    help="Also open the chain, so that keyrings and the like must be there.",
)
@click.option("--side", type=click.Choice(["producer", "consumer"]), help="With --open: as which client.")
@_json
def check(config: str, opens: bool, side: Any, as_json: bool) -> None:  # noqa: FBT001 - click passes flags by name
    """Check a chain's CONFIG file, for CI.

    The exit code is 1 where something is wrong, and one line says what and where.
    """
    chain = load_chain(config)
    if opens:
        chain.open(Context(side=side)).close()
    if as_json:
        click.echo(msgspec.json.encode({"ok": True, "chain": list(chain.names)}).decode())
    else:
        click.echo(f"{config}: ok ({' -> '.join(chain.names) or 'an empty chain'})")


@click.command()
@_config
@click.argument("topic", required=False)
@_json
def explain(config: str, topic: str | None, as_json: bool) -> None:  # noqa: FBT001 - click passes flags by name
    """Show the chain that TOPIC gets from CONFIG.

    It says the order in both directions, and every option with where it came from. Without TOPIC it is the
    whole chain.
    """
    interceptors = explanation_of(config, topic)
    if as_json:
        click.echo(msgspec.json.encode({"topic": topic, "send": interceptors}).decode())
        return
    console = Console(highlight=False, soft_wrap=True)
    names = [interceptor.name for interceptor in interceptors]
    console.print(f"[bold]{escape(config)}[/]{f', topic [bold]{escape(topic)}[/]' if topic else ''}")
    if not names:
        console.print("No interceptor works here: records pass as they are.")
        return
    console.print(f"  send:    application -> {' -> '.join(names)} -> Kafka", markup=False)
    console.print(f"  consume: Kafka -> {' -> '.join(reversed(names))} -> application\n", markup=False)
    for number, interceptor in enumerate(interceptors, 1):
        _print(console, number, interceptor)


def _print(console: Console, number: int, interceptor: ExplainedInterceptor) -> None:
    console.print(
        f"[bold]{number}. {escape(interceptor.name)}[/]  {interceptor.role}, {interceptor.stage}, "
        f"on_error={interceptor.on_error}  [dim]{interceptor.implementation}[/]"
    )
    table = Table(box=None, padding=(0, 2), show_header=False)
    for _ in ("option", "value", "origin"):
        table.add_column(overflow="fold")
    for option in interceptor.options:
        style = "dim" if option.origin == "default" else ""
        shown = msgspec.json.encode(option.value).decode()
        table.add_row(f"   {option.name}", escape(shown), escape(option.origin), style=style)
    console.print(table)
