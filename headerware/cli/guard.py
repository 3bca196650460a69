"""``headerware guard``: forward the records that a chain admits, each exactly once."""

from __future__ import annotations

import gc
import time
from collections import Counter
from typing import TYPE_CHECKING, Final

import click
from rich.text import Text

from headerware.cli.health import Health, health_option, served_health
from headerware.cli.json_output import answer, show_json
from headerware.cli.kafka import Cluster, cluster_options, kafka_errors
from headerware.cli.log_lines import log_lines, time_now
from headerware.cli.options import config_option, json_option
from headerware.cli.signals import stopped_by_signals
from headerware.cli.tables import output_console, table
from headerware.cli.times import Duration
from headerware.core.chain import load_chain
from headerware.core.config import FILE
from headerware.core.errors import ConfigError
from headerware.core.file_versions import settle_young
from headerware.core.printable import counted, printable

if TYPE_CHECKING:
    from headerware.ops.guard import Status

_STALLED_S: Final = 60.0
"""A guard that has reported no progress for this long is not ready."""


@click.command()
@config_option("The chain that judges: the chain of a consumer of the ingress topics.", required=True)
@click.option(
    "--route",
    "routes",
    multiple=True,
    required=True,
    metavar="INGRESS=EGRESS",
    help="Where records go: names, or patterns such as 'ingress.{topic}={topic}'; repeatable.",
)
@cluster_options
@click.option(
    "--second",
    type=click.Path(exists=True, dir_okay=False),
    help="The chain through which admitted records are sent; without it, they are forwarded unchanged.",
)
@click.option("--group", default="headerware-guard", show_default=True, help="The consumer group.")
@click.option(
    "--instance",
    help="A name that only this process has, also after a restart, which then takes over at once.",
)
@click.option(
    "--dead-letter-topic",
    default="{topic}.dead-letter",
    show_default=True,
    help="Where refused records go; {topic} is the ingress topic.",
)
@click.option(
    "--audit-topic", metavar="TOPIC", help="Write an account of each transaction to this topic, as JSON."
)
@click.option(
    "--partitioner",
    type=click.Choice(
        ["murmur2_random", "murmur2", "consistent_random", "consistent", "fnv1a_random", "fnv1a"]
    ),
    help="Refuse records that are in another partition than this partitioner chooses for their key.",
)
@click.option(
    "--look-back",
    type=Duration(above_s=None),
    help="Read records again from this long before the group's offset, to recognise copies.  "
    "[default: max_age_ms of sign]",
)
@click.option(
    "--max-headers",
    type=click.IntRange(min=1),
    default=1_000,
    show_default=True,
    help="Refuse records with more headers.",
)
@click.option(
    "--every",
    type=Duration(),
    help="Print the counts so far this often, with --json one object a line.",
)
@health_option
@click.option("--dry-run", is_flag=True, help="Judge the present records, and show what would be done.")
@json_option
def guard(
    config: str,
    routes: tuple[str, ...],
    cluster: Cluster,
    second: str | None,
    group: str,
    instance: str | None,
    dead_letter_topic: str,
    audit_topic: str | None,
    partitioner: str | None,
    look_back: float | None,
    max_headers: int,
    every: float | None,
    health: tuple[str, int] | None,
    dry_run: bool,  # noqa: FBT001 - click passes flags by name
    as_json: bool,  # noqa: FBT001 - likewise
) -> None:
    """Forward what a chain admits, from topic to topic.

    The command works until SIGINT or SIGTERM. On standard error it says what it will do, and what happens,
    with times.

    An admitted record is forwarded unchanged, in the order of its partition; a refused record becomes a dead
    letter with the reason. One transaction holds both, and the offsets, so the command may be killed at any
    moment. Several processes of one group share the partitions. -X headerware.reload=watch follows the
    chain's file; the policy's file is always followed.

    Exit codes: 0 the command was stopped, or all records would be admitted; 1 it failed, or some records
    would be refused; 2 it was used wrongly.
    """
    from headerware.ops.guard import Guard  # noqa: PLC0415 - it takes a client

    if second is not None:
        settle_young(second)
    settings = cluster.settings_for("guard")
    try:
        work = Guard(
            {**settings, FILE: config},
            dict(_route(text) for text in routes),
            second=None if second is None else load_chain(second),
            group_id=group,
            instance=instance,
            dead_letter_topic=dead_letter_topic,
            audit_topic=audit_topic,
            partitioner=partitioner,
            look_back_s=look_back,
            max_headers=max_headers,
        )
    except ConfigError as error:
        raise click.UsageError(str(error)) from error
    shown = time.monotonic()
    told: tuple[float, Status] | None = None

    def look() -> Health:
        """Return the guard's health: ready once it has its partitions, while it reports progress."""
        if told is None:
            return Health(live=True, ready=False, details={})
        at, status = told
        details = {"held": status.held, "lag": sum(status.lag.values())}
        return Health(live=True, ready=time.monotonic() - at < _STALLED_S, details=details)

    def tell(status: Status) -> None:
        nonlocal shown, told
        told = time.monotonic(), status
        if every is not None and time.monotonic() - shown >= every:
            shown = time.monotonic()
            if as_json:
                show_json(status)
            else:
                click.echo(f"{time_now()} {_line(status)}")

    gc.freeze()  # the collector need not look at loaded modules again and again
    with log_lines(), kafka_errors("guard"), stopped_by_signals(work.stop), served_health(health, look):
        if not dry_run:
            work.run(tell)
        status = work.dry_run(tell) if dry_run else work.status()
    is_well = not dry_run or not (status.refused or status.held_back or status.held)
    answer(status, lambda: _print(status, executed=not dry_run), as_json=as_json, ok=is_well)


def _route(text: str) -> tuple[str, str]:
    ingress, equals, egress = text.partition("=")
    if not (ingress and equals and egress):
        raise click.BadParameter(f"expected INGRESS=EGRESS, found {text!r}", param_hint="--route")
    return ingress.strip(), egress.strip()


def _line(status: Status) -> str:
    refused: Counter[str] = Counter()
    for reasons in status.refused.values():
        refused.update(reasons)
    line = f"{counted(sum(status.admitted.values()), 'record')} admitted, {refused.total():,} refused"
    if refused:
        line += (
            f" ({', '.join(f'{printable(reason)} {count:,}' for reason, count in sorted(refused.items()))})"
        )
    if dropped := sum(status.dropped.values()):
        line += f", {dropped:,} dropped"
    line += f"; lag {sum(status.lag.values()):,}"
    return f"{line}; held back: {', '.join(sorted(status.held))}" if status.held else line


def _print(status: Status, *, executed: bool) -> None:
    rows = [(topic, "admitted", "", count) for topic, count in status.admitted.items()]
    rows += [(topic, "dropped", "", count) for topic, count in status.dropped.items()]
    rows += [
        (topic, "refused", reason, count)
        for topic, reasons in status.refused.items()
        for reason, count in reasons.items()
    ]
    if rows:
        shown = table("topic", "verdict", "reason", "records")
        for topic, verdict, reason, count in sorted(rows):
            said = verdict if executed else f"would be {verdict}"
            shown.add_row(Text(printable(topic)), said, Text(printable(reason)), f"{count:,}")
        output_console().print(shown)
    else:
        click.echo("no records")
    for partition, why in sorted(status.held.items()):
        click.echo(f"{printable(partition)} is held back: {printable(why)}")
    for why, count in sorted(status.held_back.items()):
        click.echo(f"held back {counted(count, 'time')}: {printable(why)}")
    if status.deleted:
        click.echo(
            f"{counted(status.deleted, 'offset')} were deleted before they were judged; keep records longer"
        )
    if not executed:
        held = status.held or status.held_back
        which = "the records that are not held back" if held else "the records"
        click.echo(f"nothing was sent or committed; without --dry-run, {which} are forwarded")
