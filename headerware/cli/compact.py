"""``headerware compact``: keep of each key the record with the highest version, in a copy of its topic."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING

import click
import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from headerware.cli.exit_codes import LEFT_ALONE
from headerware.cli.json_output import show_json
from headerware.cli.kafka import (
    client_options,
    client_settings,
    kafka_errors,
    require_servers,
    timeout_option,
)
from headerware.cli.progress_bar import ReadingBar
from headerware.cli.signals import stopped_by_signals
from headerware.core.chain import load_chain
from headerware.core.errors import ConfigError
from headerware.core.printable import counted, printable

if TYPE_CHECKING:
    from headerware.ops.compaction import Compaction, CompactionResult, Translated


@click.command()
@click.argument("source")
@click.argument("target")
@click.option("--header", required=True, metavar="NAME", help="The header that has a record's version.")
@click.option(
    "--form",
    type=click.Choice(["number", "long", "time"]),
    default="number",
    show_default=True,
    help="How: digits, eight bytes as Java writes a long, or a time in ISO 8601.",
)
@click.option(
    "--missing",
    type=click.Choice(["unresolved", "oldest", "timestamp"]),
    default="unresolved",
    show_default=True,
    help="What a record without it is: unresolved, older than all others, or as old as its timestamp.",
)
@click.option("--side-topic", metavar="TOPIC", help="Write there what is unresolved, not into TARGET.")
@click.option("--audit", metavar="TOPIC", help="Write there an account of each transaction, as JSON.")
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False),
    envvar="HEADERWARE_CONFIG",
    help="The file of a chain with sign; what it does not verify is unresolved.",
)
@client_options
@click.option(
    "--store",
    type=click.Path(dir_okay=False),
    help="A file for what is known of SOURCE; without it, SOURCE is read anew at each start.",
)
@click.option("--group", help="The group that keeps what is done.  [default: headerware-compact-TARGET]")
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), help="Read this many a second at most.")
@click.option("--execute", is_flag=True, help="Do it; else it only shows what it would do.")
@click.option("--follow", is_flag=True, help="Go on at the end, until it is stopped; with --execute.")
@click.option(
    "--translate-group",
    metavar="GROUP",
    help="Show where GROUP, which has read SOURCE, goes on in TARGET; with --execute, commit it.",
)
@timeout_option
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
def compact(
    source: str,
    target: str,
    header: str,
    form: str,
    missing: str,
    side_topic: str | None,
    audit: str | None,
    config: str | None,
    bootstrap_servers: str | None,
    properties: tuple[str, ...],
    client_config: str | None,
    store: str | None,
    group: str | None,
    rate: float | None,
    execute: bool,  # noqa: FBT001 - click passes flags by name
    follow: bool,  # noqa: FBT001
    translate_group: str | None,
    timeout: float,
    as_json: bool,  # noqa: FBT001
) -> None:
    """Keep the highest version of each key of SOURCE, in TARGET.

    Of equal versions the later record is kept. Each goes into the same partition, in order, as it is: key,
    value, headers and time. SOURCE is not changed.

    What is written and what is done are one transaction. So it can be stopped or killed at any moment, and
    started again.

    Exit codes: 0 all is done (or can be); 1 records are missing, something is in the way, or it was stopped
    before the end; 2 it was used wrongly; 3 all is done, but some records are unresolved.
    """
    from headerware.ops.compaction import Compaction, Rule  # noqa: PLC0415 - it takes a client

    if follow and not execute:
        raise click.UsageError("--follow goes with --execute")
    settings = client_settings(bootstrap_servers, properties, client_config)
    require_servers(settings, "SOURCE")
    try:
        rule = Rule(header=header, form=form, missing=missing)  # type: ignore[arg-type]  # click has checked them
    except ConfigError as error:
        raise click.UsageError(str(error)) from error
    chain = None if config is None else load_chain(config)
    logging.getLogger("headerware").addHandler(logging.NullHandler())  # the report says it
    with (
        kafka_errors(source),
        Compaction(
            settings,
            source,
            target,
            rule,
            side_topic=side_topic,
            audit=audit,
            chain=chain,
            store=store,
            group_id=group,
            rate=rate,
            timeout_s=timeout,
        ) as work,
        stopped_by_signals(work.stop),
    ):
        if translate_group is not None:
            translate(work, translate_group, source, target, execute=execute, as_json=as_json)
        else:
            copy(work, source, execute=execute, follow=follow, as_json=as_json)


def copy(work: Compaction, source: str, *, execute: bool, follow: bool, as_json: bool) -> None:
    """Let a worker copy a topic, show what was done or would be, and exit with 1 or 3 if some is left."""
    is_told = as_json
    with ReadingBar(source) as bar:

        def tell(result: CompactionResult) -> None:
            nonlocal is_told
            if not is_told:  # before anything is read, which may take long
                _print_problems(result)
                is_told = True
            bar.show(work.progress)

        result = work.execute(follow=follow, tell=tell) if execute else work.preview(tell)
    if as_json:
        show_json(result, ok=result.ok)
    else:
        _print(result)
    if not result.ok:
        sys.exit(LEFT_ALONE if result.is_done else 1)


def translate(
    work: Compaction, group: str, source: str, target: str, *, execute: bool, as_json: bool
) -> None:
    """Show where a group goes on in the copy of a topic, and commit that if asked to."""
    translated = work.translate(group)
    if execute:
        work.commit_translated(group, translated)
    if as_json:
        show_json({"group": group, "executed": execute, "partitions": msgspec.to_builtins(translated)})
    else:
        _print_translated(translated, group, source, target, executed=execute)


def _print_translated(
    translated: list[Translated], group: str, source: str, target: str, *, executed: bool
) -> None:
    if not translated:
        click.echo(f"group {printable(group)} has committed no offsets of {source}")
        return
    table = _table("partition", source, "lag", target, "")
    for each in translated:
        again = "" if each.exact else "some come again"
        cells = (each.partition, each.source, each.lag, each.target, again)
        table.add_row(*(Text(cell if isinstance(cell, str) else f"{cell:,}") for cell in cells))
    _console().print(table)
    click.echo("committed" if executed else "nothing was committed; --execute does it")


def _print_problems(result: CompactionResult) -> None:
    for problem in result.problems:
        click.echo(f"in the way: {printable(problem)}")


def _print(result: CompactionResult) -> None:
    from headerware.ops.compaction import LOST, UNRESOLVED  # noqa: PLC0415 - it takes a client

    does = "" if result.executed else "would be "
    rows: list[tuple[str, int, str]] = [
        ("read", result.records, f"{result.size_bytes:,} bytes"),
        (
            f"{does}written",
            result.written,
            f"{result.written_bytes:,} bytes, {counted(result.tombstones, 'tombstone')} among them",
        ),
        *((f"{does}left out", count, LOST[why]) for why, count in sorted(result.lost.items())),
        *(("unresolved", count, UNRESOLVED[why]) for why, count in sorted(result.unresolved.items())),
    ]
    if result.waiting:
        rows.append(
            ("waiting", result.waiting, "they are slices of messages that are not complete, or copies")
        )
    if result.missed:
        rows.append(("missed", result.missed, f"{result.source} deleted these offsets before they were read"))
    table = _table("", "records", "")
    table.columns[1].justify = "right"
    for what, count, why in rows:
        table.add_row(Text(what), Text(f"{count:,}"), Text(why))
    _console().print(table)
    for refused in result.refused:
        click.echo(printable(refused))
    if result.stopped:
        click.echo("stopped before the end; start it again to go on")
    if not result.executed:
        click.echo("nothing was written; --execute does it")


def _table(*titles: str) -> Table:
    table = Table(box=None, pad_edge=False)
    for title in titles:
        table.add_column(printable(title), overflow="fold")
    return table


def _console() -> Console:
    console = Console(highlight=False, soft_wrap=True)
    if not console.is_terminal:
        console.width = 10_000  # no line is folded that other programs read
    return console
