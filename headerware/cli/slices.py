"""``headerware slices``: find slices of replaced or deleted messages on compacted topics."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import msgspec

from headerware.cli.json_output import answer
from headerware.cli.kafka import Cluster, cluster_options, kafka_errors
from headerware.cli.options import config_option, json_option, timeout_option
from headerware.cli.progress_bar import ReadingBar
from headerware.cli.tables import output_console
from headerware.cli.times import Duration
from headerware.core.chain import load_chain
from headerware.core.printable import counted, printable

if TYPE_CHECKING:
    from headerware.ops.slices import OrphanedSlices


@click.group()
def slices() -> None:
    """Find slices whose message is gone, on compacted topics."""


@slices.command()
@click.argument("topic")
@config_option(
    "The file of the producers' chain, which signs the tombstones; without it, that of HEADERWARE_CONFIG."
)
@cluster_options
@click.option("--delete", is_flag=True, help="Write a tombstone for each of them.")
@click.option(
    "--grace",
    type=Duration(above_s=None),
    default="15m",
    show_default=True,
    help="How long to wait for messages that are still being sent.",
)
@timeout_option
@json_option
def orphans(
    topic: str,
    config: str | None,
    cluster: Cluster,
    delete: bool,  # noqa: FBT001 - click passes flags by name
    grace: float,
    timeout_s: float,
    as_json: bool,  # noqa: FBT001 - as above
) -> None:
    """Find the slices on compacted TOPIC whose message was replaced or deleted.

    Compaction keeps these slices, because they have keys of their own. Without --delete nothing is written. A
    message whose first slice has not come yet looks the same. So the command waits for --grace, and looks
    again. The wait must be longer than producers try to deliver, and longer than their transactions last.
    """
    from headerware.ops.slices import orphaned_slices  # noqa: PLC0415 - only this needs a client

    settings = cluster.settings_for("TOPIC")
    chain = None if config is None else load_chain(config)
    with kafka_errors(topic), ReadingBar(topic) as bar:
        found = orphaned_slices(
            settings,
            topic,
            chain=chain,
            delete=delete,
            grace_s=grace,
            timeout_s=timeout_s,
            on_progress=bar.show,
        )
    answer(msgspec.to_builtins(found), lambda: _print(topic, found, delete=delete), as_json=as_json)


def _print(topic: str, found: OrphanedSlices, *, delete: bool) -> None:
    gone = f"{counted(found.slices, 'slice')} of {counted(found.orphans, 'message')} without a first slice"
    hint = "; --delete writes tombstones" if found.slices else ""
    console = output_console()
    console.print(
        f"{printable(topic)}: {counted(found.messages, 'message')} in slices, and {gone}"
        f"{f'; {found.deleted:,} deleted' if delete else hint}"
    )
    if found.exposed:
        console.print(
            f"{counted(found.exposed, 'slice')} with the key of the message, so compaction breaks such "
            f"messages: name the topic in compacted_topics of slice, for all its producers",
            markup=False,
        )
