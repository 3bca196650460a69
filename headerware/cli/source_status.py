"""``headerware source status``: show the progress of sources, from their stored offsets."""

from __future__ import annotations

import time
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import click
import msgspec
from rich.table import Table
from rich.text import Text

from headerware.cli.json_output import answer
from headerware.cli.kafka import Cluster, cluster_options, kafka_errors
from headerware.cli.options import json_option
from headerware.cli.tables import output_console
from headerware.core.context import wall_clock_ms
from headerware.core.errors import SourceError, described
from headerware.core.printable import counted, printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headerware.sources import OffsetEntry, OffsetKey
    from headerware.sources.runtime import RunConfig
    from headerware.sources.runtime.stores import Sign, StoredOffsets


class _PartlyRead(msgspec.Struct, frozen=True, kw_only=True):
    """An object that was read in part."""

    object: str
    record_number: int


class _Status(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of a source."""

    source: str
    complete: int
    in_work: int
    records: int
    places: list[_PartlyRead]
    """The objects that were read in part."""
    at_work_ms: int | None
    """When a task last said that it is at work, in milliseconds since the epoch."""
    bad_records: int
    """Counted since the tasks were started, as is ``failed``."""
    failed: int
    waiting: int | None = None
    """The objects that would be read now; None if the source was not listed."""


@click.command()
@click.argument("path", required=False, type=click.Path(exists=True))
@cluster_options
@click.option("--topic", default="headerware-offsets", show_default=True, help="The topic of offsets.")
@click.option(
    "--lag", is_flag=True, help="List the sources of PATH, and count the objects that are not read yet."
)
@json_option
def status(
    path: str | None,
    cluster: Cluster,
    topic: str,
    lag: bool,  # noqa: FBT001 - click passes flags by name
    as_json: bool,  # noqa: FBT001 - likewise
) -> None:
    """Show the progress of all sources that keep offsets in a topic, or of the sources of PATH.

    PATH is the file of a source or a folder. Without PATH, name the cluster as for other commands; only the
    topic of offsets is read. With --lag the objects of the sources of PATH are listed; no object is opened.
    Nothing is stored.
    """
    if path is None:
        if lag:
            raise click.UsageError("--lag lists the sources of PATH: give a file or a folder")
        settings = cluster.settings_for("status")
        with kafka_errors("status"):
            found = _of_topic(settings, topic)
    else:
        found = _of_files(path, lag=lag)
    answer(found, lambda: _print(found, lag=lag), as_json=as_json)


def _of_topic(settings: dict[str, Any], topic: str) -> list[_Status]:
    from headerware.sources.runtime.stores import of_objects, signs_in  # noqa: PLC0415 - a client
    from headerware.sources.runtime.topic_offsets import TopicOffsets, read_sources  # noqa: PLC0415 - a client

    found = read_sources(TopicOffsets(topic=topic), settings)
    return [_status(source, of_objects(rows), signs_in(rows)) for source, rows in found.items()]


def _of_files(path: str, *, lag: bool) -> list[_Status]:
    from headerware.sources.runtime import RunConfig  # noqa: PLC0415 - likewise

    found = []
    for loaded in RunConfig.load_all(path):
        with closing(loaded.offsets.open(loaded.kafka, source=loaded.name)) as store:
            made = _status(loaded.name, store.items(), store.signs())
            if lag:
                made = msgspec.structs.replace(made, waiting=_waiting(loaded, store))
        found.append(made)
    return found


def _waiting(loaded: RunConfig, store: StoredOffsets) -> int:
    from headerware.sources.engine.plan import plan  # noqa: PLC0415 - likewise

    with source_errors(loaded):
        return sum(each.reads for each in plan(loaded, store))


@contextmanager
def source_errors(loaded: RunConfig) -> Iterator[None]:
    """Show an error of the source's system as one line."""
    try:
        yield
    except (OSError, *loaded.source.retried) as error:
        raise SourceError(f"source {loaded.name!r} cannot be listed: {described(error)}") from error


def _status(source: str, entries: list[tuple[OffsetKey, OffsetEntry]], signs: list[Sign]) -> _Status:
    from headerware.sources.runtime.stores import SIGN_INTERVAL_S  # noqa: PLC0415 - it imports a client

    in_work = [(key, entry) for key, entry in entries if not entry.complete]
    latest = max((sign.at_ms for sign in signs), default=None)
    # Older signs are of former tasks.
    signs = [sign for sign in signs if latest is not None and latest - sign.at_ms < 2_000 * SIGN_INTERVAL_S]
    return _Status(
        source=source,
        complete=len(entries) - len(in_work),
        in_work=len(in_work),
        records=sum(entry.record_number for _, entry in entries),
        places=[
            _PartlyRead(object=object_text(key), record_number=entry.record_number) for key, entry in in_work
        ],
        at_work_ms=latest,
        bad_records=sum(sign.counts.get("bad_records", 0) for sign in signs),
        failed=sum(sign.counts.get("failed", 0) for sign in signs),
    )


def object_text(key: OffsetKey) -> str:
    """Return the name of the object that an offset is about."""
    partition = key.partition.get("object", {})
    return str(partition["key"]) if set(partition) == {"key"} else str(partition)


def _print(found: list[_Status], *, lag: bool) -> None:
    columns = ["source", "complete", "in work", "records", "failed", "bad", "at work", "reads"]
    table = Table(*columns, *(["waiting"] if lag else []), box=None, pad_edge=False)
    for each in found:
        current = each.places[-1] if each.places else None
        cells = [
            each.source,
            f"{each.complete:,}",
            f"{each.in_work:,}",
            f"{each.records:,}",
            f"{each.failed:,}",
            f"{each.bad_records:,}",
            _when(each.at_work_ms),
            "" if current is None else f"{current.object} to record {current.record_number:,}",
        ]
        table.add_row(*(Text(printable(cell)) for cell in cells), *([f"{each.waiting:,}"] if lag else []))
    output_console().print(table)
    click.echo(counted(len(found), "source"))


def _when(at_ms: int | None) -> str:
    """Return a time and its age as text."""
    if at_ms is None:
        return "never"
    shown = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at_ms / 1_000))
    return f"{shown} ({max(0, wall_clock_ms() - at_ms) // 1_000:,} s ago)"
