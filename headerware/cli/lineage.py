"""``headerware lineage``: show the jobs that the trails of records name, and their inputs and outputs."""

from __future__ import annotations

from collections import Counter
from itertools import chain
from typing import TYPE_CHECKING

import click
from rich.text import Text

from headerware.cli.json_output import show_json
from headerware.cli.kafka import Cluster, cluster_options, kafka_errors
from headerware.cli.options import last_records_option, topic_name, total_time_option
from headerware.cli.tables import output_console
from headerware.core.dead_letter import origin_of
from headerware.core.errors import HeaderError, WireFormatError
from headerware.core.headers import Headers
from headerware.core.printable import counted, printable
from headerware.interceptors.lineage.jobs import Dataset, JobRun, TrailRuns, kafka_namespace
from headerware.interceptors.slice.header import SLICE_HEADER
from headerware.interceptors.trail import read_trail
from headerware.interceptors.trail_timeline import time_text
from headerware.kafka.reader import Start, TopicReader
from headerware.registry.names import default_name_of
from headerware.registry.wire.codec import HeaderIdCodec

if TYPE_CHECKING:
    from collections.abc import Iterable

    from confluent_kafka import Message


def _namespaces(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in given:
        cluster, equals, servers = text.partition("=")
        if not (cluster and equals and servers):
            raise click.BadParameter(f"expected CLUSTER=SERVERS, such as eu=broker.eu:9092, found {text!r}")
        found[cluster] = kafka_namespace(servers)
    return found


@click.command()
@click.argument("topic", type=topic_name)
@cluster_options
@last_records_option(100)
@total_time_option("30s")
@click.option(
    "--cluster",
    "clusters",
    multiple=True,
    callback=_namespaces,
    help="The servers of a cluster that trails name, CLUSTER=SERVERS; repeatable.",
)
@click.option(
    "--job-namespace",
    envvar="OPENLINEAGE_NAMESPACE",
    default="default",
    show_default=True,
    help="The namespace of all jobs.",
)
@click.option(
    "--emit",
    "emits",
    is_flag=True,
    help="Send the events to the receiver that OpenLineage's client is configured for.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the events, a JSON object a line.")
def lineage(
    topic: str,
    cluster: Cluster,
    count: int,
    timeout_s: float,
    clusters: dict[str, str],
    job_namespace: str,
    emits: bool,  # noqa: FBT001 - click passes flags by name
    as_json: bool,  # noqa: FBT001 - likewise
) -> None:
    """Show the jobs that TOPIC's last records went through.

    The trails of the records name the jobs, and no signature is verified: `headerware trail -c FILE` shows
    which trails are signed. Each job has one run, from its first entry in these trails to its last entry.
    With --emit, the events START and COMPLETE of each run are sent to OpenLineage; the same records give the
    same runs. Nothing is committed, and no consumer group is joined.
    """
    settings = cluster.settings_for("TOPIC")
    own = kafka_namespace(settings["bootstrap.servers"])
    with (
        kafka_errors(topic),
        TopicReader(settings, topic, group_id="headerware-lineage", timeout_s=timeout_s) as reader,
    ):
        named = {**({reader.cluster_id: own} if reader.cluster_id else {}), **clusters}
        reader.start(Start("last", count))
        runs, counts = _runs_of(
            chain.from_iterable(reader.to_end()),
            TrailRuns(job_namespace, named),
            Dataset(named.get(reader.cluster_id or "", own), topic),
        )
    if emits or as_json:
        _emit(runs, emits=emits, as_json=as_json)
    if not as_json:
        _show(runs, counts, count, emitted=emits)


class _Counts:
    """How many records were read, have no trail or a corrupt one, or are dead letters (by their topic)."""

    def __init__(self) -> None:
        self.read = 0
        self.without = 0
        self.corrupt = 0
        self.dead_letters: Counter[str] = Counter()


def _runs_of(
    messages: Iterable[Message], found: TrailRuns, found_in: Dataset
) -> tuple[list[JobRun], _Counts]:
    """Return the runs, and the counts of records that belong to no run or are dead letters."""
    from headerware.kafka.messages import record_of  # noqa: PLC0415 - only this needs a client

    decode = HeaderIdCodec(lambda _name: None, default_name_of).decode
    counts = _Counts()
    for message in messages:
        counts.read += 1
        try:
            headers = decode(Headers(record_of(message).headers))
            trail = read_trail(headers)
            # In a message in slices, the first slice has the trail.
            counts.without += not trail.entries and SLICE_HEADER not in headers
            origin = origin_of(headers, found_in.name)
            if origin is not None:
                counts.dead_letters[origin.topic] += 1
            # A trail has no entry for becoming a dead letter: its last entry is about the original's topic.
            found.add(trail, found_in if origin is None else Dataset(found_in.namespace, origin.topic))
        except (WireFormatError, HeaderError):
            counts.corrupt += 1
    return found.runs(), counts


def _emit(runs: list[JobRun], *, emits: bool, as_json: bool) -> None:
    # It imports OpenLineage's client, which takes long and may not be there.
    from headerware.interceptors.lineage.events import (  # noqa: PLC0415
        as_json_object,
        open_client,
        require_receiver,
        run_event,
    )

    client = open_client() if emits else None
    if client is not None:
        require_receiver(client)
    for run in runs:
        for event in (run_event(run, "START", run.began_ms), run_event(run, "COMPLETE", run.latest_ms)):
            if client is not None:
                try:
                    client.emit(event)
                except Exception as error:
                    raise click.ClickException(
                        f"OpenLineage's receiver did not take an event: {type(error).__name__}"
                    ) from error
            if as_json:
                show_json(as_json_object(event))
    if client is not None:
        client.close()


def _show(runs: list[JobRun], counts: _Counts, last: int, *, emitted: bool) -> None:
    console = output_console()
    for run in runs:
        span = f"  {time_text(run.began_ms)} to {time_text(run.latest_ms)}"
        console.print(Text(printable(run.job.name), "bold").append(span, "dim"))
        for verb, datasets in (("reads", run.inputs), ("writes", run.outputs)):
            for dataset, count in sorted(datasets.items(), key=lambda item: item[0]):
                name = printable(f"{dataset.namespace}/{dataset.name}")
                console.print(Text(f"  {verb:6} {name}").append(f"  {counted(count or 0, 'record')}", "dim"))
    if not runs:
        console.print(Text("no trail in these records", "dim"))
    elif counts.without:
        console.print(Text(f"left out: {counted(counts.without, 'record')} without a trail", "dim"))
    for name, count in sorted(counts.dead_letters.items()):
        console.print(Text(f"{counted(count, 'record')}: dead letters of {name}"))
    if counts.corrupt:
        console.print(Text(f"left out: {counted(counts.corrupt, 'record')} with a corrupt trail", "red"))
    console.print(
        Text(
            f"read: {counted(counts.read, 'record')}, at most the last {last:,} of each partition (--count); "
            "trails are as their writers claim, and no signature was verified",
            "dim",
        )
    )
    if emitted:
        console.print(Text(f"sent {counted(2 * len(runs), 'event')}", "dim"))
