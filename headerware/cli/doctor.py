"""``headerware doctor``: check versions, a chain, its keys, its cluster and topics, and say what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click
from rich.text import Text

from headerware.cli.json_output import answer
from headerware.cli.kafka import QUIET, Cluster, cluster_options, require_servers
from headerware.cli.options import config_option, json_option
from headerware.cli.tables import output_console
from headerware.cli.times import LONGEST_ANSWER_S, Duration

if TYPE_CHECKING:
    from headerware.ops.doctor import Finding, Side

_STYLES: Final = {"ok": "green", "warn": "yellow", "fail": "bold red", "unknown": "dim"}


@click.command()
@click.argument("topics", nargs=-1)
@config_option("The chain's file; without this, HEADERWARE_CONFIG names the file.", exists=False)
@cluster_options
@click.option("--group", help="The application's consumer group.")
@click.option(
    "--side",
    type=click.Choice(["producer", "consumer"]),
    help="Whether the application is a producer or a consumer; by default both.",
)
@click.option(
    "--timeout",
    type=Duration(most_s=LONGEST_ANSWER_S),
    default="10s",
    show_default=True,
    help="How long to wait for each answer.",
)
@json_option
def doctor(
    topics: tuple[str, ...],
    config: str | None,
    cluster: Cluster,
    group: str | None,
    side: Side | None,
    timeout: float,
    as_json: bool,  # noqa: FBT001 - click passes flags by name
) -> None:
    """Check chain, cluster and topics, and say what to do.

    TOPICS are the topics that the application writes or reads. Versions and keys are checked, too.

    Nothing is changed, here or on the cluster. The exit code is 1 if a check fails; warnings and unknown
    results do not change it.
    """
    # Importing headerware.ops.doctor loads the Kafka client, which is slow.
    from headerware.ops.doctor import examine  # noqa: PLC0415

    settings = cluster.settings()
    given = settings.keys() - QUIET.keys()
    # Headerware's own properties, such as headerware.reload, do not name a cluster.
    if topics or group or any(not key.startswith("headerware.") for key in given):
        require_servers(settings, "checking a cluster")
    found = examine(config, settings, topics, group=group, side=side, timeout_s=timeout)
    ok = all(finding.status != "fail" for finding in found)
    answer(found, lambda: _show(found), as_json=as_json, ok=ok)


def _show(found: list[Finding]) -> None:
    console = output_console()
    for finding in found:
        line = Text(f"{finding.status:7}", _STYLES[finding.status])
        console.print(line.append(f" {finding.check}: {finding.found}", "default"))
        if finding.advice is not None:
            console.print(Text(f"        -> {finding.advice}"))
    counts = {status: sum(finding.status == status for finding in found) for status in _STYLES}
    console.print(Text(", ".join(f"{count} {status}" for status, count in counts.items()), "bold"))
