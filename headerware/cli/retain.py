"""``headerware retain``: remove the records of a topic that have outlived the time in their headers."""

from __future__ import annotations

import logging
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from headerware.cli.json_output import show_json
from headerware.cli.kafka import (
    client_options,
    client_settings,
    kafka_errors,
    require_servers,
    timeout_option,
)
from headerware.cli.signals import stopped_by_signals
from headerware.core.chain import load_chain
from headerware.core.errors import ConfigError
from headerware.core.printable import counted, printable, without_values

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headerware.ops.retention.rules import Fate, RetentionRule
    from headerware.ops.retention.worker import Result

_SHOWN: Final = 10
"""Partitions of a line."""


@click.command()
@click.argument("topic")
@click.option(
    "--rules",
    type=click.Path(exists=True, dir_okay=False),
    help="A TOML file: lifetimes by topic and header, and the header of a legal hold.",
)
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False),
    envvar="HEADERWARE_CONFIG",
    help="The file of a chain with sign; what it does not verify stays.",
)
@client_options
@click.option("--audit", metavar="TOPIC", help="Write there what is removed and why, as JSON.")
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), help="Read this many a second at most.")
@click.option("--execute", is_flag=True, help="Do it; else it only shows what it would do.")
@timeout_option
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
def retain(
    topic: str,
    rules: str | None,
    config: str | None,
    bootstrap_servers: str | None,
    properties: tuple[str, ...],
    client_config: str | None,
    audit: str | None,
    rate: float | None,
    execute: bool,  # noqa: FBT001 - click passes flags by name
    timeout: float,
    as_json: bool,  # noqa: FBT001
) -> None:
    """Remove the records of TOPIC that have expired, in one pass.

    A record's lifetime is its header hw.expires, or a rule's. What has none, or one that cannot be read,
    stays, and so does what is under a legal hold. The beginning of a partition is deleted where all of it has
    expired. The key of a compacted topic gets a tombstone, if its latest record has expired.

    It can be killed at any moment, and started again. Let a timer start it.

    Exit codes: 0 all is removed that can be (or would be); 1 it was stopped before the end; 2 wrong use.
    """
    from headerware.ops.retention.worker import Retention  # noqa: PLC0415 - it takes a client

    settings = client_settings(bootstrap_servers, properties, client_config)
    require_servers(settings, "TOPIC")
    rule = _rule(rules)
    chain = None if config is None else load_chain(config)
    logging.getLogger("headerware").addHandler(logging.NullHandler())  # the report says it
    with (
        kafka_errors(topic),
        Retention(settings, topic, rule, audit=audit, chain=chain, rate=rate, timeout_s=timeout) as work,
        stopped_by_signals(work.stop),
    ):
        result = work.execute() if execute else work.preview()
    if as_json:
        show_json(msgspec.to_builtins(result, str_keys=True), ok=not result.stopped)
    else:
        _print(result)
    if result.stopped:
        sys.exit(1)


def _rule(path: str | None) -> RetentionRule:
    from headerware.ops.retention.rules import RetentionRule  # noqa: PLC0415 - it takes a client

    try:
        found = {} if path is None else tomllib.loads(Path(path).read_text(encoding="utf-8"))
        return msgspec.convert(found, RetentionRule)
    except (tomllib.TOMLDecodeError, UnicodeError) as error:
        raise click.BadParameter(f"{path} is no TOML: {error}", param_hint="--rules") from error
    except ConfigError as error:
        raise click.BadParameter(f"{path}: {error}", param_hint="--rules") from error
    except msgspec.ValidationError as error:
        raise click.BadParameter(f"{path}: {without_values(error)}", param_hint="--rules") from error


def _print(result: Result) -> None:
    from headerware.ops.retention.rules import FATES  # noqa: PLC0415 - as above

    console = Console(highlight=False, soft_wrap=True)
    table = Table(box=None, pad_edge=False)
    for title in ("records", ""):
        table.add_column(title, overflow="fold", justify="right" if title else "left")
    for fate, count in sorted(result.fates.items()):
        table.add_row(Text(f"{count:,}"), Text(FATES[fate]))
    console.print(table)
    does = "" if result.executed else "would be "
    name = printable(result.topic)
    for partition, before in sorted(result.delete_before.items()):
        click.echo(f"{name}[{partition}]: all before offset {before:,} {does}deleted")
    for fate, numbers in sorted(_by_fate(result.held_back).items()):
        click.echo(f"held back by records that stay because {FATES[fate]}: {name}[{_list_of(numbers)}]")
    click.echo(f"{counted(result.deleted, 'record')} {does}deleted at the beginnings of partitions")
    if result.tombstones or result.newer:
        click.echo(
            f"{counted(result.tombstones, 'key')} {does}deleted by tombstones, "
            f"which stand for {counted(result.replaced, 'record')}"
        )
    if result.newer:
        click.echo(f"{counted(result.newer, 'key')} got none, for a newer record had come")
    if result.rest:
        click.echo(f"{counted(result.rest, 'expired record')} left, which only a copy could leave out")
    if result.stopped:
        click.echo("stopped before the end; start it again to go on")
    if not result.executed:
        click.echo("nothing was removed; --execute does it")


def _by_fate(held_back: Mapping[int, Fate]) -> dict[Fate, list[int]]:
    found: dict[Fate, list[int]] = {}
    for number, fate in sorted(held_back.items()):
        found.setdefault(fate, []).append(number)
    return found


def _list_of(numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[:_SHOWN]))
    return shown if len(numbers) <= _SHOWN else f"{shown} and {len(numbers) - _SHOWN} more"
