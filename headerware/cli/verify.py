"""``headerware verify``: verify the signatures of a topic, and show which records fail, and why."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

import click
import msgspec
from rich.text import Text

from headerware.cli.json_output import answer
from headerware.cli.kafka import Cluster, cluster_options, kafka_errors
from headerware.cli.key_options import permissions_option
from headerware.cli.log_lines import log_nothing
from headerware.cli.options import (
    config_option,
    is_from_environment,
    json_option,
    keyring_option,
    partition_option,
    timeout_option,
    topic_name,
)
from headerware.cli.progress_bar import ReadingBar
from headerware.cli.tables import output_console
from headerware.core.chain import Chain, load_chain
from headerware.core.client_chain import CONFIG_VARIABLE, config_of_environment
from headerware.core.errors import ConfigError
from headerware.core.printable import counted, printable
from headerware.core.requirement import writer_advice
from headerware.kafka.reader import Start

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console

    from headerware.keyring import Permissions
    from headerware.ops.verify import Offsets, Report, Signer

_SHOWN: Final = 20
"""How many lines of a kind the terminal shows; --json has all lines."""


@click.command()
@click.argument("topic", type=topic_name)
@config_option(
    "The file of a chain with sign; without this and --keyring, HEADERWARE_CONFIG names the file.",
    envvar=None,
)
@keyring_option(
    "A keyring or a JWKS to verify with, instead of a chain; public halves are enough.",
    type=click.Path(exists=True, dir_okay=False),
)
@permissions_option
@click.option(
    "--registry",
    metavar="LOCATION",
    help="With --keyring: the registry of the topic's header ids; by default HEADERWARE_REGISTRY, else the "
    "built-in ids.",
)
@cluster_options
@click.option(
    "--from",
    "start",
    default="beginning",
    show_default=True,
    metavar="WHERE",
    help="beginning, an offset, -N (records before the end of each partition), a time, or an age (15m).",
)
@partition_option
@timeout_option
@json_option
def verify(
    topic: str,
    config: str | None,
    keyring: str | None,
    permissions: Permissions,
    registry: str | None,
    cluster: Cluster,
    start: str,
    partition: int | None,
    timeout_s: float,
    as_json: bool,  # noqa: FBT001 - click passes flags by name
) -> None:
    """Verify the signatures of TOPIC's records up to its end.

    For each key and producer, the answer says how many records verify, where they are, and which sequences
    are missing or repeated. Records that do not verify are counted by reason, with their first and last
    offsets.

    Verify with a chain that has sign, or with a keyring alone. A chain can say more than a keyring: the root
    of snapshots, the mirrors that may have copied records (accept_origins), and headers that must be covered.

    max_age_ms does not apply, because old records are read; with replay_window, a repeated sequence is
    refused. Nothing is committed, and no consumer group is joined.

    Exit codes: 0 each record verifies; 1 some records do not, or the topic cannot be read; 2 wrong use.
    """
    from headerware.ops.verify import verify_topic  # noqa: PLC0415 - only this needs a client

    settings = cluster.settings_for("TOPIC")
    try:
        begin = Start.parse(start)
    except ConfigError as error:
        raise click.BadParameter(str(error), param_hint="--from") from error
    if is_from_environment("keyring") and (config or os.environ.get(CONFIG_VARIABLE)):
        keyring = None  # a chain can say more
    chain = _chain(config, keyring, permissions, registry)
    log_nothing()
    with kafka_errors(topic), ReadingBar(topic) as bar:
        report = verify_topic(
            settings,
            topic,
            chain,
            start=begin,
            partition=partition,
            timeout_s=timeout_s,
            on_progress=bar.show,
        )
    facts = msgspec.to_builtins(report, str_keys=True)
    answer(facts, lambda: _print(report), as_json=as_json, ok=report.ok)


def _chain(config: str | None, keyring: str | None, permissions: Permissions, registry: str | None) -> Chain:
    """Return the chain that verifies: a file's chain, or one made of a keyring and a registry."""
    if keyring is None:
        if registry is not None:
            raise click.UsageError("--registry needs --keyring; in a chain, header_ids names the registry")
        config = config or config_of_environment()
        if not config:
            raise click.UsageError(
                "expected --keyring, or --config with a chain that signs; HEADERWARE_KEYRING and "
                "HEADERWARE_CONFIG may name them"
            )
        return load_chain(config)
    if config is not None:
        raise click.UsageError("expected one of --keyring and --config, found both")
    from headerware.interceptors import HeaderIds, Sign  # noqa: PLC0415 - they import cryptography

    registry = registry or os.environ.get("HEADERWARE_REGISTRY")
    return Chain([Sign(keyring=keyring, keyring_permissions=permissions), HeaderIds(registry=registry)])


def _print(report: Report) -> None:
    console = output_console()
    found = [
        (report.verified, "verified", "green"),
        (report.refused, "refused", "bold red"),
        (report.unsigned, "unsigned", "yellow"),
    ]
    text = Text.assemble((printable(report.topic), "bold"), f": {counted(report.records, 'record')}")
    for count, word, style in found:
        text.append(", ").append(f"{count:,} {word}", style if count else "dim")
    console.print(text)
    for signer in report.signers[:_SHOWN]:
        console.print(_signer_text(signer))
    _print_rest(console, len(report.signers), "signer")
    if report.signers_left_out:
        console.print(f"{counted(report.signers_left_out, 'record')} of further signers verify", style="dim")
    for refusal in report.refusals[:_SHOWN]:
        who = "" if refusal.key_id is None else f" (claims key {refusal.key_id!r} {refusal.producer})"
        console.print(
            Text(f"refused {refusal.records:,}: ", "bold red")
            .append(printable(refusal.reason) + printable(who), "default")
            .append(f"  {_offsets_text(refusal.partitions)}", "dim")
        )
    _print_rest(console, len(report.refusals), "reason")
    if report.unsigned:
        console.print(
            Text(f"unsigned {report.unsigned:,}", "yellow").append(
                f"  {_offsets_text(report.unsigned_partitions)}", "dim"
            )
        )
        console.print(writer_advice("sign").removeprefix("; "), style="dim")
    if report.uncovered:
        names = sorted(report.uncovered_names, key=lambda name: -report.uncovered_names[name])[:_SHOWN]
        console.print(
            f"{counted(report.uncovered, 'record')} with headers that were added later: "
            + ", ".join(map(printable, names)),
            style="yellow",
            markup=False,
        )


def _print_rest(console: Console, count: int, noun: str) -> None:
    if count > _SHOWN:
        console.print(f"and {counted(count - _SHOWN, f'further {noun}')} (--json has all)", style="dim")


def _signer_text(signer: Signer) -> Text:
    name = f"{printable(signer.key_id)} version {signer.key_version}"
    said = f", producer {signer.producer}: {counted(signer.records, 'record')}"
    said += f", sequences {signer.first_sequence} to {signer.last_sequence}"
    text = Text.assemble((name, "bold"), said)
    if signer.gaps is None:
        text.append(", too far apart to look for gaps", "yellow")
    elif signer.gaps:
        text.append(f", {signer.missing:,} missing in {counted(signer.gaps, 'gap')}", "yellow")
    if signer.repeated:
        text.append(f", {signer.repeated:,} repeated", "yellow")
    if signer.uncovered:
        text.append(f", {signer.uncovered:,} with later headers", "yellow")
    return text.append(f"  {_offsets_text(signer.partitions)}", "dim")


def _offsets_text(partitions: Mapping[int, Offsets]) -> str:
    shown = [f"[{number}] {found.first}..{found.last}" for number, found in sorted(partitions.items())]
    return ", ".join(shown[:_SHOWN]) + (", ..." if len(shown) > _SHOWN else "")
