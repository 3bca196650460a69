"""``headerware chargeback``: count the traffic of each owner, and make the bill."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec
from rich.table import Table
from rich.text import Text

from headerware.cli.json_output import answer
from headerware.cli.kafka import Cluster, cluster_options, kafka_errors
from headerware.cli.options import json_option, timeout_option, topic_name
from headerware.cli.progress_bar import ReadingBar
from headerware.cli.tables import output_console
from headerware.core.printable import counted, printable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headerware.ops.chargeback import Bill, Counted, Traffic

_SHOWN: Final = 20
"""How many lines a table shows on the terminal; --json and the report have all lines."""


def _moment(_context: click.Context, param: click.Parameter, value: str | None) -> datetime | None:
    """Parse a time in ISO 8601; without a zone it is in UTC."""
    if value is None:
        return None
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        raise click.BadParameter(
            f"expected a time such as 2026-01-31 or 2026-01-31T17:00, found {value!r}", param=param
        ) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


@click.command()
@click.argument("topics", type=topic_name, nargs=-1)
@click.option(
    "--usage",
    "usage_file",
    type=click.Path(dir_okay=False),
    required=True,
    help="The file that keeps the counts; it is created if it does not exist.",
)
@click.option(
    "--prices",
    type=click.Path(exists=True, dir_okay=False),
    help="A TOML file of prices; without it, all is free.",
)
@click.option(
    "--report", type=click.Path(dir_okay=False), help="Also write the bill to this file, as an HTML page."
)
@click.option("--title", default="Kafka chargeback", show_default=True, help="The title of the page.")
@click.option(
    "--audit-topic",
    "audit_topics",
    multiple=True,
    help="A topic with the reports of consumers' audit, or the accounts of a guard, which say what was read; "
    "repeatable.",
)
@click.option(
    "--group",
    "groups",
    multiple=True,
    default=("*",),
    show_default=True,
    help="A pattern of the groups whose committed offsets say what was read; repeatable.",
)
@click.option("--no-reads", is_flag=True, help="Do not look at the offsets of groups.")
@click.option(
    "--since",
    callback=_moment,
    metavar="TIME",
    help="Begin the bill with this hour, in UTC; without it, with the first.",
)
@click.option(
    "--until",
    callback=_moment,
    metavar="TIME",
    help="End the bill before this hour, in UTC; without it, after the last.",
)
@cluster_options
@timeout_option
@json_option
def chargeback(
    topics: tuple[str, ...],
    usage_file: str,
    prices: str | None,
    report: str | None,
    title: str,
    audit_topics: tuple[str, ...],
    groups: tuple[str, ...],
    no_reads: bool,  # noqa: FBT001 - click passes flags by name
    since: datetime | None,
    until: datetime | None,
    cluster: Cluster,
    timeout_s: float,
    as_json: bool,  # noqa: FBT001 - likewise
) -> None:
    """Count each owner's traffic in TOPICS, and make the bill.

    Records and bytes are counted by owner, producer, hour and consumer group.

    TOPICS are names or patterns. Each run reads the records that are new since the last run. Without TOPICS
    nothing is read, and the bill is made from the file of --usage. What groups read is known from the second
    run on: it is the difference between the groups' offsets at the two runs. Nothing is committed, and no
    consumer group is joined.

    Exit codes: 0 the bill is made; 1 something went wrong; 2 wrong use.
    """
    from headerware.ops.chargeback import (  # noqa: PLC0415 - only this needs a client
        KeptUsage,
        Prices,
        charge,
        count_usage,
        load_prices,
        write_report,
    )
    from headerware.ops.chargeback.report import require_report  # noqa: PLC0415 - likewise

    if report is not None:
        require_report()  # before anything is counted
    settings = cluster.settings_for("TOPICS") if topics else cluster.settings()
    rates = Prices() if prices is None else load_prices(prices)
    found: Counted | None = None
    with KeptUsage(usage_file) as kept:
        if topics:
            with kafka_errors(), ReadingBar(" ".join(topics)) as bar:
                found = count_usage(
                    settings,
                    topics,
                    kept,
                    groups=None if no_reads else groups,
                    audit_topics=audit_topics,
                    timeout_s=timeout_s,
                    on_progress=lambda _, progress: bar.show(progress),
                )
        bill = charge(kept.usage(since=since, until=until), rates)
    if report is not None:
        write_report(report, bill, title=title)
    facts = {"counted": msgspec.to_builtins(found), "bill": _bill(bill)}
    answer(facts, lambda: _print(found, bill, report), as_json=as_json)


def _bill(bill: Bill) -> dict[str, Any]:
    """Return a bill for JSON; amounts are text, so that they stay exact."""
    tables = ("owner", "topic", "producer", "hour", "group")
    return {
        "currency": bill.prices.currency,
        "total": _traffic(bill.total),
        **{f"by_{name}": _rows(name, getattr(bill, f"by_{name}")) for name in tables},
        "unknown_reads": msgspec.to_builtins(bill.unknown),
        "malformed": bill.malformed,
        "sources": sorted(bill.sources),
    }


def _rows(name: str, sums: Mapping[Any, Traffic]) -> list[dict[str, Any]]:
    in_order = sorted(sums.items(), key=lambda item: (item[0] is not None, str(item[0])))
    return [{name: msgspec.to_builtins(key), **_traffic(traffic)} for key, traffic in in_order]


def _traffic(traffic: Traffic) -> dict[str, Any]:
    return {**msgspec.to_builtins(traffic), "cost": f"{traffic.cost:f}"}


def _print(found: Counted | None, bill: Bill, report: str | None) -> None:
    console = output_console()
    if found is not None:
        text = f"{counted(found.records, 'new record')}, {found.bytes:,} bytes, in "
        console.print(text + counted(len(found.topics), "topic"))
        for topic, missed in found.missed.items():
            said = f"{counted(missed, 'offset')} of {printable(topic)} deleted before they were counted: "
            console.print(Text(said + "run this more often, or keep records longer", "yellow"))
    table = Table(
        "owner", "records in", "bytes in", "records out", "bytes out", bill.prices.currency, box=None
    )
    payers = sorted(bill.by_owner.items(), key=lambda item: (-item[1].cost, str(item[0])))
    for owner, traffic in payers[:_SHOWN]:
        name = Text("(unattributed)", "dim") if owner is None else Text(printable(owner), "bold")
        table.add_row(
            name,
            f"{traffic.records_in:,}",
            f"{traffic.bytes_in:,}",
            f"{traffic.records_out:,}",
            f"{traffic.bytes_out:,}",
            f"{traffic.cost:.{bill.prices.decimals}f}",
        )
    console.print(table)
    if len(payers) > _SHOWN:
        console.print(f"and {counted(len(payers) - _SHOWN, 'further owner')} (--json has all)", style="dim")
    for each in bill.unknown[:_SHOWN]:
        who = "" if each.group is None else f" of {printable(each.group)}"
        console.print(Text(f"reads{who} from {printable(each.topic)} are not known", "dim"))
    if report is not None:
        console.print(f"the report: {report}", markup=False)
