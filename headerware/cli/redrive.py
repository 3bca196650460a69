"""``headerware redrive``: show what would be sent back of a dead-letter topic, or send it, exactly once."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

import click
from rich.console import Console
from rich.progress import Progress as Bar
from rich.table import Table
from rich.text import Text

from headerware.cli.exit_codes import LEFT_ALONE
from headerware.cli.json_output import show_json
from headerware.cli.kafka import client_options, client_settings, kafka_errors, require_servers
from headerware.cli.signals import stopped_by_signals
from headerware.core.chain import load_chain
from headerware.core.errors import ConfigError
from headerware.core.hooks import Interceptor
from headerware.core.printable import counted, printable

if TYPE_CHECKING:
    from headerware.ops.redrive import Redrive, RedriveResult

_PIPE_COLUMNS: Final = 10_000  # no line is folded that other programs read


@click.command()
@click.argument("topic")
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False),
    envvar="HEADERWARE_CONFIG",
    help="The chain's file: its dead_letter_topic says which topics TOPIC's letters may go back to.",
)
@client_options
@click.option(
    "--to",
    default="original",
    show_default=True,
    metavar="TOPIC",
    help="Where records go: a topic, or the one that each letter names.",
)
@click.option(
    "--allow",
    multiple=True,
    metavar="PATTERN",
    help="A topic that letters may name; repeatable. Default: those whose dead-letter topic TOPIC is.",
)
@click.option(
    "--where",
    multiple=True,
    metavar="HEADER=VALUE",
    help="Send these only: HEADER=VALUE, HEADER~REGEX, HEADER or !HEADER; repeatable, and all must hold.",
)
@click.option("--reason", metavar="REGEX", help="Send those only whose reason, error or step matches.")
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), help="Send this many a second at most.")
@click.option("--limit", type=click.IntRange(1), help="Send this many at most.")
@click.option(
    "--max-attempts",
    type=click.IntRange(0),
    default=3,
    show_default=True,
    help="Send a record back this often at most; 0 does not count, and adds no header.",
)
@click.option("--parking", metavar="TOPIC", help="Move letters there that were sent back that often.")
@click.option("--group", help="The group that keeps what is done.  [default: headerware-redrive-TOPIC]")
@click.option("--show", type=click.IntRange(0), default=20, show_default=True, help="Show this many letters.")
@click.option("--execute", is_flag=True, help="Do it; else it only shows what it would do.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
def redrive(
    topic: str,
    config: str | None,
    bootstrap_servers: str | None,
    properties: tuple[str, ...],
    client_config: str | None,
    to: str,
    allow: tuple[str, ...],
    where: tuple[str, ...],
    reason: str | None,
    rate: float | None,
    limit: int | None,
    max_attempts: int,
    parking: str | None,
    group: str | None,
    show: int,
    execute: bool,  # noqa: FBT001 - click passes flags by name
    as_json: bool,  # noqa: FBT001
) -> None:
    """Send the dead letters of a TOPIC back, exactly once.

    Each goes to where its record came from. It reads the letters of Headerware, Kafka Connect, Spring and
    Kafka's own brokers. A letter without a payload gets it from the original's topic. Each record is as it
    was, with its key, headers and time.

    What is sent, and which letters are done, is one transaction. So it can be stopped or killed at any
    moment, and started again. Letters that are not sent stay, and are looked at again the next time.

    Exit codes: 0 all that was selected is sent (or can be); 1 some letters were deleted, or it was stopped;
    2 it was used wrongly; 3 it is done, but some letters stay.
    """
    from headerware.ops.redrive import DEFAULT_PATTERN, Redrive, Selection  # noqa: PLC0415 - it takes a client
    from headerware.ops.tail import Condition  # noqa: PLC0415 - as above

    settings = client_settings(bootstrap_servers, properties, client_config)
    require_servers(settings, "TOPIC")
    try:
        selection = Selection(
            to=to,
            allow=allow or None,
            patterns=(DEFAULT_PATTERN,) if config is None else _patterns(config),
            where=tuple(Condition.parse(text) for text in where),
            reason=reason,
            max_attempts=max_attempts,
            parking=parking,
            limit=limit,
        )
    except ConfigError as error:
        raise click.UsageError(str(error)) from error
    with (
        kafka_errors(topic),
        Redrive(settings, topic, selection, group_id=group, rate=rate, shown=show) as work,
        stopped_by_signals(work.stop),
    ):
        result = _executed(work) if execute else work.preview()
    is_done = not (result.deleted or result.stopped)
    is_well = is_done and not result.pending
    if as_json:
        show_json(result, ok=is_well)
    else:
        _print(result)
    if not is_well:
        sys.exit(LEFT_ALONE if is_done else 1)


def _patterns(config: str) -> tuple[str, ...]:
    """Return the patterns of dead-letter topics in a chain's file."""
    steps = [step for step in load_chain(config) if isinstance(step, Interceptor)]
    return tuple(dict.fromkeys(step.dead_letter_topic for step in steps))


def _executed(work: Redrive) -> RedriveResult:
    console = Console(stderr=True)
    if not console.is_terminal:
        return work.execute()
    with Bar(console=console, transient=True) as bar:
        task = bar.add_task("redriving", total=None)

        def tell(_: RedriveResult) -> None:
            done, total = work.progress
            bar.update(task, completed=done, total=total)

        return work.execute(tell)


def _print(result: RedriveResult) -> None:
    from headerware.ops.redrive import WHY  # noqa: PLC0415 - as above

    console = Console(highlight=False, soft_wrap=True)
    if not console.is_terminal:
        console.width = _PIPE_COLUMNS
    if result.shown:
        table = Table(box=None, pad_edge=False)
        for title in ("dead letter", "what", "to", "headers", "attempts", "step", "reason"):
            table.add_column(title, overflow="fold")
        for each in result.shown:
            done = each["outcome"] if result.executed else f"would be {each['outcome']}"
            what = f"pending: {each['why']}" if each["why"] else done
            cells = (
                each["dead_letter"],
                what,
                each["to"],
                each["dialect"],
                str(each["attempts"]),
                each["step"],
                each["reason"] or each["error"],
            )
            table.add_row(*(Text(printable(cell or "")) for cell in cells))
        console.print(table)
    did = "sent" if result.executed else "would be sent"
    for topic, count in sorted(result.sent.items()):
        click.echo(f"{counted(count, 'record')} {did} to {topic}")
    if result.parked:
        parked = "moved" if result.executed else "would be moved"
        click.echo(f"{counted(result.parked, 'letter')} {parked} to the parking topic")
    for why, count in sorted(result.pending.items()):
        click.echo(f"{counted(count, 'letter')} left ({why}): {WHY[why]}")
    if result.passed_over:
        click.echo(f"{counted(result.passed_over, 'letter')} not selected")
    if result.deleted:
        click.echo(
            f"{counted(result.deleted, 'offset')} of {result.topic} that were not answered are deleted: its "
            f"retention counts from the records' own time; set retention.ms=-1"
        )
    if not result.dead_letters:
        click.echo(f"no letters in {result.topic} that are not done")
    if result.stopped:
        click.echo("stopped before the end; start it again to go on")
    if not result.executed and result.done:
        click.echo("nothing was sent; --execute does it")
