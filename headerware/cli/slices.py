"""``headerware slices``: what is left of messages in slices on compacted topics."""

from __future__ import annotations

import click
import msgspec
from rich.console import Console

from headerware.cli.json_output import show_json
from headerware.cli.kafka import (
    client_options,
    client_settings,
    kafka_errors,
    require_servers,
    timeout_option,
)
from headerware.cli.progress_bar import ReadingBar
from headerware.cli.times import Duration
from headerware.core.chain import load_chain
from headerware.core.printable import counted, printable


@click.group()
def slices() -> None:
    """Look after messages in slices on compacted topics."""


@slices.command()
@click.argument("topic")
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False),
    envvar="HEADERWARE_CONFIG",
    help="The file of the producers' chain, whose signature tombstones get; that of HEADERWARE_CONFIG.",
)
@client_options
@click.option("--delete", is_flag=True, help="Write a tombstone for each of them.")
@click.option(
    "--grace",
    type=Duration(above_s=None),
    default="15m",
    show_default=True,
    help="How long to wait for messages that are being sent.",
)
@timeout_option
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
def orphans(
    topic: str,
    config: str | None,
    bootstrap_servers: str | None,
    properties: tuple[str, ...],
    client_config: str | None,
    delete: bool,  # noqa: FBT001 - click passes flags by name
    grace: float,
    timeout: float,
    as_json: bool,  # noqa: FBT001 - as above
) -> None:
    """Find the slices on compacted TOPIC whose message was replaced or deleted.

    Compaction keeps them, because they have keys of their own. Without --delete nothing is written. A message
    whose first slice has not come yet looks the same, so the command waits for --grace seconds and looks
    again; it must be longer than producers try to deliver, and than their transactions last.
    """
    from headerware.ops.slices import orphaned_slices  # noqa: PLC0415 - only this needs a client

    settings = client_settings(bootstrap_servers, properties, client_config)
    require_servers(settings, "TOPIC")
    chain = None if config is None else load_chain(config)
    with kafka_errors(topic), ReadingBar(topic) as bar:
        found = orphaned_slices(
            settings,
            topic,
            chain=chain,
            delete=delete,
            grace_s=grace,
            timeout_s=timeout,
            on_progress=bar.show,
        )
    if as_json:
        show_json(msgspec.to_builtins(found))
        return
    gone = f"{counted(found.slices, 'slice')} of {counted(found.orphans, 'message')} without a first one"
    hint = "; --delete writes tombstones" if found.slices else ""
    console = Console(highlight=False, soft_wrap=True)
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
