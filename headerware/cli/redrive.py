"""``headerware redrive``: send the records of a dead-letter topic back, exactly once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from rich.text import Text

from headerware.cli.exit_codes import INCOMPLETE
from headerware.cli.json_output import answer
from headerware.cli.kafka import Cluster, cluster_options, kafka_errors
from headerware.cli.options import config_option, execute_option, json_option, rate_option, topic_name
from headerware.cli.progress_bar import ReadingBar
from headerware.cli.signals import stopped_by_signals
from headerware.cli.tables import output_console, table
from headerware.core.chain import load_chain
from headerware.core.errors import ConfigError
from headerware.core.hooks import Interceptor
from headerware.core.printable import counted, printable

if TYPE_CHECKING:
    from headerware.ops.redrive import Redrive, RedriveResult


@click.command()
@click.argument("topic", type=topic_name, metavar="DEAD_LETTER_TOPIC")
@config_option("The chain's file; its dead_letter_topic says to which topics dead letters may go back.")
@cluster_options
@click.option(
    "--to",
    default="original",
    show_default=True,
    metavar="TOPIC",
    help="Where records go: a topic, or original for the topic that each dead letter names.",
)
@click.option(
    "--allow",
    multiple=True,
    metavar="PATTERN",
    help="A topic that dead letters may name; repeatable. Default: topics whose dead-letter topic is TOPIC.",
)
@click.option(
    "--where",
    multiple=True,
    metavar="HEADER=VALUE",
    help="Send only records with HEADER=VALUE, HEADER~REGEX, HEADER or !HEADER; repeatable, all must hold.",
)
@click.option("--reason", metavar="REGEX", help="Send only records whose reason, error or step matches.")
@rate_option("Send")
@click.option("--limit", type=click.IntRange(1), help="Send at most this many records.")
@click.option(
    "--max-attempts",
    type=click.IntRange(0),
    default=3,
    show_default=True,
    help="Send a record back at most this often; 0 sets no limit, and adds no header.",
)
@click.option("--parking", metavar="TOPIC", help="Move dead letters that have reached --max-attempts here.")
@click.option("--group", help="The group that keeps the offsets.  [default: headerware-redrive-TOPIC]")
@click.option(
    "--show",
    type=click.IntRange(0),
    default=20,
    show_default=True,
    help="Show at most this many dead letters.",
)
@execute_option
@json_option
def redrive(
    topic: str,
    config: str | None,
    cluster: Cluster,
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
    """Send the dead letters of DEAD_LETTER_TOPIC back, exactly once.

    Each record goes back to its topic as it was, with its key, headers and time. The command reads the dead
    letters of Headerware, Kafka Connect, Spring and Kafka's own brokers. If a dead letter has no payload, the
    payload is read from the original's topic.

    One transaction holds the records that are sent, and which dead letters are done, so the command can be
    stopped or killed at any moment, and started again. Dead letters that are not sent are kept, and the next
    run looks at them again.

    Exit codes: 0 all selected dead letters are sent (or can be); 1 some dead letters were deleted, or the
    command was stopped; 2 it was used wrongly; 3 it is done, but some dead letters are left.
    """
    from headerware.ops.redrive import DEFAULT_PATTERN, Redrive, Selection  # noqa: PLC0415 - it takes a client
    from headerware.ops.tail import Condition  # noqa: PLC0415 - as above

    settings = cluster.settings_for("DEAD_LETTER_TOPIC")
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
    code = INCOMPLETE if is_done else 1
    answer(result, lambda: _print(result), as_json=as_json, ok=is_well, code=code)


def _patterns(config: str) -> tuple[str, ...]:
    """Return the patterns of dead-letter topics in a chain's file."""
    steps = [step for step in load_chain(config) if isinstance(step, Interceptor)]
    return tuple(dict.fromkeys(step.dead_letter_topic for step in steps))


def _executed(work: Redrive) -> RedriveResult:
    with ReadingBar("redriving") as bar:
        return work.execute(lambda _: bar.show(work.progress))


def _print(result: RedriveResult) -> None:
    from headerware.ops.redrive import WHY  # noqa: PLC0415 - as above

    if result.shown:
        shown = table("dead letter", "what", "to", "headers", "attempts", "step", "reason")
        for each in result.shown:
            done = each["outcome"] if result.executed else f"would be {each['outcome']}"
            what = f"left: {each['why']}" if each["why"] else done
            cells = (
                each["dead_letter"],
                what,
                each["to"],
                each["dialect"],
                str(each["attempts"]),
                each["step"],
                each["reason"] or each["error"],
            )
            shown.add_row(*(Text(printable(cell or "")) for cell in cells))
        output_console().print(shown)
    did = "sent" if result.executed else "would be sent"
    for topic, count in sorted(result.sent.items()):
        click.echo(f"{counted(count, 'record')} {did} to {topic}")
    if result.parked:
        parked = "moved" if result.executed else "would be moved"
        click.echo(f"{counted(result.parked, 'dead letter')} {parked} to the parking topic")
    for why, count in sorted(result.pending.items()):
        click.echo(f"{counted(count, 'dead letter')} left ({why}): {WHY[why]}")
    if result.passed_over:
        click.echo(f"{counted(result.passed_over, 'dead letter')} not selected")
    if result.deleted:
        click.echo(
            f"{counted(result.deleted, 'offset')} of {result.topic} were deleted before they were done: the "
            f"retention of the topic counts from the records' own time; set retention.ms=-1"
        )
    if not result.dead_letters:
        click.echo(f"no dead letters are left in {result.topic}")
    if result.stopped:
        click.echo("stopped before the end; start the command again to continue")
    if not result.executed and result.done:
        click.echo("nothing was sent; --execute sends it")
