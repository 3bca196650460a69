"""``headerware audit``: compare what producers sent with what consumers read, by their reports."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click
import msgspec
from rich.table import Table

from headerware.cli.json_output import answer
from headerware.cli.kafka import Cluster, cluster_options
from headerware.cli.options import json_option, topic_name, total_time_option
from headerware.cli.tables import output_console
from headerware.cli.times import Moment
from headerware.core.printable import counted
from headerware.interceptors.trail_timeline import time_text

if TYPE_CHECKING:
    from headerware.ops.audit import Comparison, Reconciled

_FAILURES = (
    "lost",
    "unknown",
    "undecided",
    "duplicated",
    "unreported",
    "uncommitted",
    "late",
    "failed",
    "aborted",
    "stopped",
    "given_up",
    "pending",
)
_BAD = {
    "lost": "bold red",
    "unknown": "yellow",
    "undecided": "yellow",
    "duplicated": "yellow",
    "unreported": "yellow",
    "uncommitted": "yellow",
}
_COLUMNS = (
    "produced",
    "aborted",
    "undecided",
    "failed",
    "consumed",
    "stopped",
    "given_up",
    "lost",
    "unknown",
    "pending",
    "duplicated",
    "unreported",
    "uncommitted",
    "late",
)
_ALWAYS = {"produced", "consumed", "lost"}
"""Columns that are shown even if all their cells are zero."""


@click.group()
def audit() -> None:
    """Compare what was sent with what was read."""


@audit.command("compare")
@click.argument("topics", type=topic_name, nargs=-1)
@cluster_options
@click.option("--audit-topic", default="headerware-audit", show_default=True, help="The topic of reports.")
@click.option(
    "--from",
    "from_ms",
    type=Moment(),
    help="Begin with the bucket of this time, or of this age (15m).",
)
@click.option("--to", "to_ms", type=Moment(), help="End before this time.")
@click.option(
    "--fail-on",
    type=click.Choice(_FAILURES),
    multiple=True,
    default=("lost",),
    show_default=True,
    help="Exit with 1 if there are any of these records; repeatable.",
)
@total_time_option("60s")
@json_option
def compare_command(
    topics: tuple[str, ...],
    cluster: Cluster,
    audit_topic: str,
    from_ms: int | None,
    to_ms: int | None,
    fail_on: tuple[str, ...],
    timeout_s: float,
    as_json: bool,  # noqa: FBT001 - click passes flags by name
) -> None:
    """Compare what was sent to TOPICS (or all) with what each consumer group read.

    \b
    lost         delivered, and skipped by the group without a trace
    unknown      not counted, but a crashed session may have read them
    pending      not yet reached by the group
    duplicated   deliveries to the application beyond the first
    unreported   consumed, but no producer reported them
    uncommitted  consumed, but their transaction was aborted
    late         consumed later than 'late_after_s' allows
    aborted      delivered in a transaction that was aborted
    undecided    delivered in a transaction whose end nobody reported
    failed       not delivered by the producer
    stopped      refused, dropped or dead-lettered by the consumer's chain
    given_up     consumed, but skipped or dead-lettered, because processing failed
    """  # noqa: D301 - click's mark for preformatted text
    from headerware.ops.audit import compare, read_reports  # noqa: PLC0415 - only this needs a client

    settings = cluster.settings_for("the audit topic")
    found = read_reports(settings, audit_topic, from_ms=from_ms, timeout_s=timeout_s)
    result = compare(
        found.reports, now_ms=time.time_ns() // 1_000_000, topics=topics, from_ms=from_ms, to_ms=to_ms
    )
    without = sorted(set(topics) - {row.topic for row in result.rows})
    ok = not without and not any(getattr(row, what) for row in result.rows for what in fail_on)

    def show() -> None:
        _print(result, found.malformed)
        if not result.rows and not topics:
            click.echo(
                "no counts: check that clients have audit, that --audit-topic is their audit topic, and the "
                "time of --from and --to",
                err=True,
            )
        for topic in without:
            click.echo(
                f"no counts of topic {topic!r}: check that its clients have audit, and that --audit-topic is "
                "their audit topic",
                err=True,
            )

    answer({**msgspec.to_builtins(result), "malformed": found.malformed}, show, as_json=as_json, ok=ok)


def _print(result: Comparison, malformed: int) -> None:
    console = output_console()
    columns = [name for name in _COLUMNS if name in _ALWAYS or any(getattr(r, name) for r in result.rows)]
    table = Table(box=None, pad_edge=False)
    for name in ("topic", "group", "bucket"):
        table.add_column(name, no_wrap=True)
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for row in result.rows:
        table.add_row(
            row.topic,
            row.group or "-",
            time_text(row.bucket),
            *(_cell(row, name) for name in columns),
            " ".join(word for word, said in (("open", row.open), ("by numbers", not row.exact)) if said),
        )
    if result.rows:
        console.print(table)
    console.print(f"{counted(result.reports, 'report')} of {counted(result.sessions, 'session')}")
    if malformed:
        console.print(
            f"{counted(malformed, 'record')} of the audit topic cannot be read as reports", style="yellow"
        )
    for session, reason in result.incomplete.items():
        console.print(f"session {session} is incomplete: {reason}", style="yellow")


def _cell(row: Reconciled, name: str) -> str:
    value: int = getattr(row, name)
    style = _BAD.get(name)
    return f"[{style}]{value}[/]" if value and style else str(value)
