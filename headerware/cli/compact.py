"""``headerware compact``: copy a topic, and keep the record with the highest version of each key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import msgspec
from rich.text import Text

from headerware.cli.exit_codes import INCOMPLETE
from headerware.cli.json_output import answer
from headerware.cli.kafka import Cluster, cluster_options, kafka_errors
from headerware.cli.log_lines import log_nothing
from headerware.cli.options import (
    config_option,
    execute_option,
    json_option,
    rate_option,
    timeout_option,
    topic_name,
)
from headerware.cli.progress_bar import ReadingBar
from headerware.cli.signals import stopped_by_signals
from headerware.cli.tables import output_console, table
from headerware.core.chain import load_chain
from headerware.core.errors import ConfigError
from headerware.core.printable import counted, printable

if TYPE_CHECKING:
    from headerware.core.chain import Chain
    from headerware.ops.compaction import Compaction, CompactionResult, Translated
    from headerware.ops.compaction.rules import CopyRule


class Copy(msgspec.Struct, frozen=True, kw_only=True):
    """A copy of a topic by a rule, with the options that ``compact`` and ``retain --into`` share."""

    settings: dict[str, Any]
    source: str
    target: str
    rule: CopyRule
    chain: Chain | None
    audit: str | None
    store: str | None
    rate: float | None
    timeout_s: float
    translate_group: str | None
    execute: bool
    as_json: bool
    side_topic: str | None = None
    group: str | None = None
    follow: bool = False

    def run(self) -> None:
        """Copy the topic, or translate a group's offsets; exit with 1 or 3 if some records are not copied."""
        from headerware.ops.compaction import Compaction  # noqa: PLC0415 - it takes a client

        with (
            kafka_errors(self.source),
            Compaction(
                self.settings,
                self.source,
                self.target,
                self.rule,
                side_topic=self.side_topic,
                audit=self.audit,
                chain=self.chain,
                store=self.store,
                group_id=self.group,
                rate=self.rate,
                timeout_s=self.timeout_s,
            ) as work,
            stopped_by_signals(work.stop),
        ):
            if self.translate_group is None:
                self._copy(work)
            else:
                self._translate(work, self.translate_group)

    def _copy(self, work: Compaction) -> None:
        is_told = self.as_json
        with ReadingBar(self.source) as bar:

            def tell(result: CompactionResult) -> None:
                nonlocal is_told
                if not is_told:  # before anything is read, which may take long
                    _print_problems(result)
                    is_told = True
                bar.show(work.progress)

            result = work.execute(follow=self.follow, tell=tell) if self.execute else work.preview(tell)
        code = INCOMPLETE if result.is_done else 1
        answer(result, lambda: _print(result), as_json=self.as_json, ok=result.ok, code=code)

    def _translate(self, work: Compaction, group: str) -> None:
        translated = work.translate(group)
        if self.execute:
            work.commit_translated(group, translated)
        answer(
            {"group": group, "executed": self.execute, "partitions": msgspec.to_builtins(translated)},
            lambda: _print_translated(translated, group, self),
            as_json=self.as_json,
        )


@click.command()
@click.argument("source", type=topic_name)
@click.argument("target", type=topic_name)
@click.option("--header", required=True, metavar="NAME", help="The header with a record's version.")
@click.option(
    "--form",
    type=click.Choice(["number", "long", "time"]),
    default="number",
    show_default=True,
    help="The form of the version: digits, eight bytes as Java writes a long, or a time in ISO 8601.",
)
@click.option(
    "--missing",
    type=click.Choice(["unresolved", "oldest", "timestamp"]),
    default="unresolved",
    show_default=True,
    help="How to treat a record without a version: leave it unresolved, as the oldest, or by its timestamp.",
)
@click.option(
    "--side-topic", metavar="TOPIC", help="Write records that cannot be judged to this topic, not to TARGET."
)
@click.option("--audit", metavar="TOPIC", help="Write an account of each transaction to this topic, as JSON.")
@config_option("The file of a chain with sign; records that do not verify are unresolved.")
@cluster_options
@click.option(
    "--store",
    type=click.Path(dir_okay=False),
    help="A file that keeps what was read of SOURCE; without it, SOURCE is read again at each start.",
)
@click.option("--group", help="The group that keeps the offsets.  [default: headerware-compact-TARGET]")
@rate_option("Read")
@execute_option
@click.option(
    "--follow", is_flag=True, help="At the end, wait for new records until the command stops; with --execute."
)
@click.option(
    "--translate-group",
    metavar="GROUP",
    help="Show at which offsets of TARGET the group, which has read SOURCE, continues; with --execute, "
    "commit them.",
)
@timeout_option
@json_option
def compact(
    cluster: Cluster, header: str, form: Any, missing: Any, config: str | None, **options: Any
) -> None:
    """Keep the highest version of each key of SOURCE, in TARGET.

    If two records have the same version, the later record is kept. Each record goes to the same partition, in
    order, with its key, value, headers and time. SOURCE is not changed.

    One transaction holds the written records and the offsets that are done, so the command can be stopped or
    killed at any moment, and started again.

    Exit codes: 0 all is done (or can be); 1 records are missing, something is in the way, or the command was
    stopped before the end; 2 it was used wrongly; 3 all is done, but some records are unresolved.
    """
    from headerware.ops.compaction import Rule  # noqa: PLC0415 - it takes a client

    if options["follow"] and not options["execute"]:
        raise click.UsageError("--follow needs --execute")
    settings = cluster.settings_for("SOURCE")
    try:
        rule = Rule(header=header, form=form, missing=missing)
    except ConfigError as error:
        raise click.UsageError(str(error)) from error
    chain = None if config is None else load_chain(config)
    log_nothing()
    Copy(settings=settings, rule=rule, chain=chain, **options).run()


def _print_translated(translated: list[Translated], group: str, run: Copy) -> None:
    if not translated:
        click.echo(f"group {printable(group)} has committed no offsets of {run.source}")
        return
    shown = table("partition", run.source, "lag", run.target, "")
    for each in translated:
        again = "" if each.exact else "some records come again"
        cells = (each.partition, each.source, each.lag, each.target, again)
        shown.add_row(*(Text(cell if isinstance(cell, str) else f"{cell:,}") for cell in cells))
    output_console().print(shown)
    click.echo("committed" if run.execute else "nothing was committed; --execute commits it")


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
        rows.append(("waiting", result.waiting, "they are slices of incomplete messages, or copies"))
    if result.missed:
        rows.append(("missed", result.missed, f"{result.source} deleted these offsets before they were read"))
    shown = table("", "records", "")
    shown.columns[1].justify = "right"
    for what, count, why in rows:
        shown.add_row(Text(what), Text(f"{count:,}"), Text(why))
    output_console().print(shown)
    for refused in result.refused:
        click.echo(printable(refused))
    if result.stopped:
        click.echo("stopped before the end; start the command again to continue")
    if not result.executed:
        click.echo("nothing was written; --execute writes it")
