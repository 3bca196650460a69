"""``headerware claims``: find and delete objects that no record claims.

Exit codes: 0 done; 1 it cannot be done, or not safely; 2 the command was used wrongly.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Final

import click
import msgspec
from click.core import ParameterSource

from headerware.cli.json_output import answer
from headerware.cli.kafka import Cluster, cluster_options, kafka_errors
from headerware.cli.options import config_option, json_option, timeout_option, topic_name
from headerware.cli.progress_bar import ReadingBar
from headerware.cli.times import Moment
from headerware.core.chain import load_chain
from headerware.core.context import wall_clock_ms
from headerware.core.printable import counted, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from headerware.kafka.reader import Progress
    from headerware.ops.claims import OrphanReport

_SHOWN: Final = 20
"""How many orphans the terminal shows; --json has all orphans."""


@click.group()
def claims() -> None:
    """Find objects that no record claims any more (claim_check)."""


@claims.command()
@click.argument("topics", type=topic_name, nargs=-1, required=True)
@config_option(
    "The file of a chain with claim_check; without this, HEADERWARE_CONFIG names the file.", required=True
)
@click.option(
    "--older-than",
    "before_ms",
    type=Moment(),
    default="7d",
    show_default=True,
    help="Only objects of at least this age (7d, 36h), or stored before this time.",
)
@click.option("--delete", is_flag=True, help="Delete the orphans; needs --older-than of an hour or more.")
@cluster_options
@timeout_option
@json_option
def orphans(
    topics: tuple[str, ...],
    config: str,
    before_ms: int,
    cluster: Cluster,
    timeout_s: float,
    delete: bool,  # noqa: FBT001 - click passes flags by name
    as_json: bool,  # noqa: FBT001 - likewise
) -> None:
    """Find objects of TOPICS that no record claims; delete them with --delete.

    All records of TOPICS and of their dead-letter topics are read. If other topics have copies of these
    records, name those topics, too. The command does not see copies in other clusters: do not delete objects
    of a store that other clusters use under the same prefix.
    """
    from headerware.ops.claims import LEAST_AGE_MS, delete_orphans, find_orphans  # noqa: PLC0415 - a client

    given = click.get_current_context().get_parameter_source("before_ms")
    if delete and given is ParameterSource.DEFAULT:
        raise click.UsageError("--delete needs --older-than: say how old an object must be to be an orphan")
    if delete and before_ms > wall_clock_ms() - LEAST_AGE_MS:
        raise click.UsageError(
            "--delete needs --older-than 1h or more: the record of a younger object may be on its way"
        )
    settings = cluster.settings_for("TOPICS")
    chain = load_chain(config)
    with kafka_errors(), _bars() as show:
        report = find_orphans(
            settings, topics, chain, before_ms=before_ms, timeout_s=timeout_s, on_progress=show
        )
    deleted = delete_orphans(report, chain) if delete else 0
    facts = {**msgspec.to_builtins(report), "size_bytes": report.size_bytes, "deleted": deleted}
    answer(facts, lambda: _print(report, deleted), as_json=as_json)


@contextmanager
def _bars() -> Iterator[Callable[[str, Progress], None]]:
    """Yield a function that shows how far a topic was read: one bar after the other."""
    with ExitStack() as stack:
        shown: dict[str, ReadingBar] = {}

        def show(topic: str, progress: Progress) -> None:
            if topic not in shown:
                stack.close()
                shown[topic] = stack.enter_context(ReadingBar(topic))
            shown[topic].show(progress)

        yield show


def _print(report: OrphanReport, deleted: int) -> None:
    click.echo(f"read {counted(report.records, 'record')} of {', '.join(map(printable, report.topics))}")
    click.echo(f"{counted(report.objects, 'object')}: {report.claimed:,} claimed, {report.young:,} too young")
    for count, what in (
        (report.foreign, "file of another name, left alone"),
        (report.missing, "claim of a missing object"),
    ):
        if count:
            noun, _, rest = what.partition(" ")
            click.echo(f"{counted(count, noun)} {rest}")
    if report.unreadable:
        text = f"the claims of {counted(report.unreadable, 'record')} cannot be read: {report.unreadable_at}"
        click.echo(printable(text), err=True)
    size = f"{report.size_bytes:,} bytes"
    done = "deleted" if deleted else "found, nothing was deleted (--delete deletes them)"
    click.echo(
        f"{counted(len(report.orphans), 'orphan')} of {size} {done}" if report.orphans else "no orphans"
    )
    for orphan in report.orphans[:_SHOWN]:
        click.echo(f"  {printable(orphan.store)} {printable(orphan.name)}  {orphan.size_bytes:,} bytes")
    if len(report.orphans) > _SHOWN:
        click.echo(f"  and {len(report.orphans) - _SHOWN:,} more (--json has all)")
