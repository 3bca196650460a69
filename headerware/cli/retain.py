"""``headerware retain``: remove the records of a topic whose lifetime is over.

With ``--into`` it removes nothing, but copies all other records, as ``headerware compact`` does by another
rule.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
import msgspec
from rich.text import Text

from headerware.cli.compact import Copy
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
from headerware.cli.times import Duration
from headerware.core.chain import load_chain
from headerware.core.errors import ConfigError
from headerware.core.options import table_from
from headerware.core.printable import counted, printable
from headerware.core.toml import naming_lines, parse_toml
from headerware.core.topics import works_on
from headerware.interceptors.trail_timeline import time_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headerware.core.chain import Chain
    from headerware.ops.retention.rules import RetentionDisposition, RetentionRule
    from headerware.ops.retention.worker import HeldBack, Objects, RetentionResult

_SHOWN: Final = 10
"""How many partitions a line lists."""


class _AtWorkError(click.ClickException):
    """Another process is at work on the topic, which is no failure for a timer."""

    exit_code = INCOMPLETE


@click.command()
@click.argument("topic", type=topic_name)
@click.option(
    "--rules",
    type=click.Path(exists=True, dir_okay=False),
    help="A TOML file: lifetimes by topic and header, and the header of a legal hold.",
)
@config_option(
    "The file of a chain. With sign, records that do not verify are kept; --objects needs claim_check."
)
@click.option(
    "--unverified-after",
    type=Duration(),
    help="Let records that do not verify, or cannot be read, expire at this age, over all lifetimes.",
)
@cluster_options
@click.option(
    "--audit", metavar="TOPIC", help="Write an account of what is removed, and why, to this topic, as JSON."
)
@click.option("--beginnings", is_flag=True, help="Read each partition up to its first record that is kept.")
@click.option("--objects", is_flag=True, help="Afterwards, delete the topic's objects that no record claims.")
@click.option(
    "--copies", multiple=True, metavar="TOPIC", help="With --objects: a topic with copies of records."
)
@click.option(
    "--into", metavar="TARGET", help="Remove nothing, but copy here the records that have not expired."
)
@click.option(
    "--store",
    type=click.Path(dir_okay=False),
    help="With --into: a file for slices of incomplete messages.",
)
@click.option(
    "--translate-group",
    metavar="GROUP",
    help="With --into: show at which offsets of TARGET the group, which has read TOPIC, continues; with "
    "--execute, commit them.",
)
@rate_option("Read")
@execute_option
@timeout_option
@json_option
def retain(
    topic: str,
    rules: str | None,
    config: str | None,
    unverified_after: float | None,
    cluster: Cluster,
    audit: str | None,
    beginnings: bool,  # noqa: FBT001 - click passes flags by name
    objects: bool,  # noqa: FBT001
    copies: tuple[str, ...],
    into: str | None,
    store: str | None,
    translate_group: str | None,
    rate: float | None,
    execute: bool,  # noqa: FBT001
    timeout_s: float,
    as_json: bool,  # noqa: FBT001
) -> None:
    """Remove the records of TOPIC that have expired, in one pass.

    One process works on a topic at a time; any other process ends at once.

    The header hw.expires or a rule says when a record expires. A record is kept if it has no lifetime, if its
    lifetime cannot be read, or if it is under a legal hold. The beginning of a partition is deleted up to the
    first record that is kept. A key of a compacted topic gets a tombstone if its latest record has expired.

    The command can be killed at any moment, and started again. Let a timer start it.

    An expired record that comes after a kept record is left in the topic. With --into, all records that have
    not expired are copied to another topic, and nothing is removed.

    Exit codes: 0 all is removed that can be (or would be); 1 the command was stopped before the end,
    something is in the way, or --objects could not read some records; 2 it was used wrongly; 3 another pass
    is at work, or --into has left some records unresolved.
    """
    from headerware.ops.retention.worker import Retention  # noqa: PLC0415 - likewise
    from headerware.workers.ownership import LeaseHeldError  # noqa: PLC0415 - likewise

    if into is None:
        _refuse({"--store": store, "--translate-group": translate_group}, "needs --into")
    else:
        _refuse({"--beginnings": beginnings, "--objects": objects}, "is for removing, and --into only copies")
    if not objects:
        _refuse({"--copies": copies}, "needs --objects")
    elif config is None:
        raise click.UsageError("--objects needs --config: the chain's claim_check says where the objects are")
    settings = cluster.settings_for("TOPIC")
    rule = _rule(rules, unverified_after)
    if rule.lifetimes and not rule.for_topic(topic).lifetimes:
        patterns = ", ".join(pattern for each in rule.lifetimes for pattern in each.topics)
        click.echo(
            f"warning: no lifetime in {rules} is for {printable(topic)} (but for {printable(patterns)}); "
            "only records with hw.expires can expire",
            err=True,
        )
    chain = None if config is None else load_chain(config)
    log_nothing()
    if into is not None:
        Copy(
            settings=settings,
            source=topic,
            target=into,
            rule=rule,
            chain=chain,
            audit=audit,
            store=store,
            rate=rate,
            timeout_s=timeout_s,
            translate_group=translate_group,
            execute=execute,
            as_json=as_json,
        ).run()
        return
    found: Objects | None = None
    with (
        kafka_errors(topic),
        Retention(
            settings,
            topic,
            rule,
            audit=audit,
            chain=None if objects and not _signs(chain, topic) else chain,
            beginnings=beginnings,
            rate=rate,
            timeout_s=timeout_s,
        ) as work,
        stopped_by_signals(work.stop),
    ):
        try:
            if objects and chain is not None:
                work.require_objects(chain, copies=copies)  # before anything is removed
            with ReadingBar(topic) as bar:
                result = work.execute(bar.show) if execute else work.preview(bar.show)
            if objects and chain is not None and not result.stopped:
                found = work.objects(chain, copies=copies, execute=execute)
        except LeaseHeldError as error:
            raise _AtWorkError(str(error)) from error
    ok = result.ok and (found is None or not found.unreadable)
    facts = {**msgspec.to_builtins(result, str_keys=True), "objects": found}
    answer(facts, lambda: _print(result, found, reasons_of(chain)), as_json=as_json, ok=ok)


def _refuse(options: Mapping[str, object], why: str) -> None:
    for name, value in options.items():
        if value:
            raise click.UsageError(f"{name} {why}")


def _signs(chain: Chain | None, topic: str) -> bool:
    from headerware.interceptors.sign import Sign  # noqa: PLC0415 - slow to import

    return chain is not None and any(isinstance(step, Sign) and works_on(step, topic) for step in chain)


def _rule(path: str | None, unverified_after_s: float | None) -> RetentionRule:
    from headerware.ops.retention.rules import RetentionRule  # noqa: PLC0415 - it takes a client

    try:
        text = "" if path is None else Path(path).read_text(encoding="utf-8")
        with naming_lines({str(path): text}):
            rule = table_from(parse_toml(text, str(path)), RetentionRule, source=str(path))
    except UnicodeError as error:
        raise click.BadParameter(f"{path} is not valid TOML: {error}", param_hint="--rules") from error
    except ConfigError as error:
        raise click.BadParameter(str(error), param_hint="--rules") from error
    if unverified_after_s is None:
        return rule
    if rule.unverified_after_ms is not None:
        raise click.UsageError(f"--unverified-after is in {path}, too (unverified_after_ms); give it once")
    try:
        return msgspec.structs.replace(rule, unverified_after_ms=round(unverified_after_s * 1_000))
    except ConfigError as error:
        raise click.BadParameter(str(error), param_hint="--unverified-after") from error


def reasons_of(chain: Chain | None) -> Mapping[RetentionDisposition, str]:
    """Return why records of each disposition stay, or go, with this chain or without one."""
    from headerware.ops.retention.rules import DISPOSITIONS, NO_CHAIN  # noqa: PLC0415 - as above

    return DISPOSITIONS if chain is not None else {**DISPOSITIONS, "unverified": NO_CHAIN}


def _print(
    result: RetentionResult, objects: Objects | None, reasons: Mapping[RetentionDisposition, str]
) -> None:
    shown = table("records", "")
    shown.columns[0].justify = "right"
    for disposition, count in sorted(result.dispositions.items()):
        shown.add_row(Text(f"{count:,}"), Text(reasons[disposition]))
    if result.dispositions:
        output_console().print(shown)
    else:
        click.echo("no records")
    does = "" if result.executed else "would be "
    name = printable(result.topic)
    for partition, before in sorted(result.delete_before.items()):
        click.echo(f"{name}[{partition}]: all before offset {before:,} {does}deleted")
    in_the_way = result.in_the_way
    for number, held in sorted(in_the_way.items()):
        click.echo(_in_the_way(f"{name}[{number}]", held, reasons[held.disposition]))
    others = {number: each for number, each in result.held_back.items() if number not in in_the_way}
    for disposition, numbers in sorted(_by_disposition(others).items()):
        click.echo(
            f"held back by records that are kept because {reasons[disposition]}: {name}[{_list_of(numbers)}]"
        )
    click.echo(f"{counted(result.deleted, 'record')} {does}deleted at the beginnings of partitions")
    if result.tombstones or result.newer:
        click.echo(
            f"{counted(result.tombstones, 'key')} {does}deleted by tombstones, "
            f"which stand for {counted(result.replaced, 'record')}"
        )
    if result.newer:
        click.echo(f"{counted(result.newer, 'key')} got no tombstone, because a newer record had come")
    if result.rest:
        click.echo(f"{counted(result.rest, 'expired record')} left, which only a copy can leave out (--into)")
    if result.beginnings:
        click.echo("only the beginnings of partitions were read; later records are not counted")
    if objects is not None:
        size = f"{objects.size_bytes:,} bytes"
        name = counted(objects.count, "object")
        if result.executed:
            click.echo(f"{name} of {size} that no record claims, {objects.deleted:,} deleted")
        else:
            click.echo(
                f"{name} of {size} that no record claims would be deleted, and then the objects that only "
                f"the records above claim"
            )
        if objects.unreadable:
            click.echo(
                f"no object is deleted: the claims of {counted(objects.unreadable, 'record')} cannot be read "
                f"(headerware claims orphans says where)"
            )
    if result.stopped:
        click.echo("stopped before the end; start the command again to continue")
    if not result.executed:
        click.echo("nothing was removed; --execute removes it")


def _in_the_way(partition: str, held: HeldBack, why: str) -> str:
    """Return the lines about a kept record that keeps expired records after it from being deleted."""
    since = "" if held.timestamp_ms is None else f" since {time_text(held.timestamp_ms)}"
    where = f"{partition} at offset {held.offset:,}"
    text = f"IN THE WAY{since}: {where} is kept ({held.disposition}), because {why}"
    if held.reason is not None:
        claims = "" if held.key_id is None else f", and claims key {printable(held.key_id)!r}"
        text += f"\n  its readers say: {printable(held.reason)}{claims}"
    if held.expired:
        later = counted(held.expired, "expired record")
        text += f"\n  {later} after it cannot be deleted as long as this record is there"
    if held.disposition in ("unverified", "malformed"):
        text += "\n  repair the keyring of --config if the record is genuine; else use --unverified-after"
    return text


def _by_disposition(held_back: Mapping[int, HeldBack]) -> dict[RetentionDisposition, list[int]]:
    found: dict[RetentionDisposition, list[int]] = {}
    for number, each in sorted(held_back.items()):
        found.setdefault(each.disposition, []).append(number)
    return found


def _list_of(numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[:_SHOWN]))
    return shown if len(numbers) <= _SHOWN else f"{shown} and {len(numbers) - _SHOWN} more"
