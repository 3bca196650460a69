"""``headerware doctor``: check versions, a chain, its keys, its cluster and topics, and say what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click
from rich.text import Text

from headerware.cli.json_output import answer
from headerware.cli.kafka import QUIET, Cluster, cluster_options, require_servers
from headerware.cli.options import config_option, json_option, topic_name
from headerware.cli.tables import output_console
from headerware.cli.times import LONGEST_ANSWER_S, Duration
from headerware.core.printable import printable

if TYPE_CHECKING:
    from headerware.ops.doctor import Finding, Side

_STYLES: Final = {"ok": "green", "warn": "yellow", "fail": "bold red", "unknown": "dim"}


@click.command()
@click.argument("topics", type=topic_name, nargs=-1)
@config_option("The chain's file; without this, HEADERWARE_CONFIG names the file.", exists=False)
@cluster_options
@click.option(
    "--topic", "more_topics", metavar="TOPIC", multiple=True, help="A further one of the TOPICS; repeatable."
)
@click.option("--group", help="The application's consumer group.")
@click.option(
    "--side",
    type=click.Choice(["producer", "consumer"]),
    help="Check for a producer or a consumer only.",
)
@click.option(
    "--timeout",
    "timeout_s",
    type=Duration(most_s=LONGEST_ANSWER_S),
    default="10s",
    show_default=True,
    help="How long to wait for each answer of the cluster or a key service.",
)
@json_option
def doctor(
    topics: tuple[str, ...],
    config: str | None,
    cluster: Cluster,
    more_topics: tuple[str, ...],
    group: str | None,
    side: Side | None,
    timeout_s: float,
    as_json: bool,  # noqa: FBT001 - click passes flags by name
) -> None:
    """Check chain, cluster and topics, and say what to do.

    TOPICS are the topics that the application writes or reads. Versions and keys are checked, too.

    Nothing is changed, here or on the cluster. The exit code is 1 if a check fails; warnings and unknown
    results do not change it.
    """
    # Importing headerware.ops.doctor loads the Kafka client, which is slow.
    from headerware.ops.doctor import examine  # noqa: PLC0415

    topics = tuple(dict.fromkeys((*topics, *more_topics)))
    settings = cluster.settings()
    client_options = settings.keys() - QUIET.keys()
    # A cluster is checked if anything asks for one: a topic, the group, or a client's property.
    # Headerware's own properties, such as headerware.reload, do not ask for one.
    if topics or group or any(not key.startswith("headerware.") for key in client_options):
        require_servers(settings, "checking topics, a group or client properties")
    findings = examine(config, settings, topics, group=group, side=side, timeout_s=timeout_s)
    ok = all(finding.status != "fail" for finding in findings)
    answer(findings, lambda: _print_findings(findings), as_json=as_json, ok=ok)


def _print_findings(findings: list[Finding]) -> None:
    console = output_console()
    for finding in findings:
        line = Text(f"{finding.status:7}", _STYLES[finding.status])
        console.print(line.append(f" {printable(finding.check)}: {printable(finding.found)}", "default"))
        if finding.advice is not None:
            console.print(Text(f"        -> {printable(finding.advice)}"))
    counts = {status: sum(finding.status == status for finding in findings) for status in _STYLES}
    console.print(Text(", ".join(f"{count} {status}" for status, count in counts.items()), "bold"))
