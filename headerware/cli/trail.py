"""``headerware trail``: show the paper trails of a topic's records, or of one header value, as timelines."""

from __future__ import annotations

from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from rich.text import Text

from headerware.cli.json_output import show_error, show_json
from headerware.cli.kafka import Cluster, cluster_options, kafka_errors
from headerware.cli.log_lines import log_nothing
from headerware.cli.options import (
    config_option,
    is_from_environment,
    last_records_option,
    partition_option,
    topic_name,
    total_time_option,
)
from headerware.cli.tables import output_console
from headerware.core.chain import load_chain
from headerware.core.client_chain import CONFIG_VARIABLE
from headerware.core.dead_letter import origin_of
from headerware.core.errors import HeaderError, HeaderwareError, WireFormatError, position
from headerware.core.headers import Headers
from headerware.core.printable import printable
from headerware.core.topics import works_on
from headerware.interceptors.sign import Sign
from headerware.interceptors.slice.header import SLICE_HEADER, SliceHeader
from headerware.interceptors.trail import Trail, TrailReading, decode_trail, read_trail
from headerware.interceptors.trail_proof import TrailProof
from headerware.interceptors.trail_timeline import duration_text, time_text, timeline
from headerware.kafka.reader import Start, TopicReader
from headerware.ops.trail_proofs import TrailProofs
from headerware.ops.verify import Verification
from headerware.registry.names import default_name_of
from headerware.registry.wire.codec import HeaderIdCodec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from confluent_kafka import Message

    from headerware.interceptors.trail_proof import HopProof
    from headerware.interceptors.trail_timeline import ClusterAndTopic

_STYLES = {"gap": "yellow", "dead_letter": "yellow", "left_out": "dim"}
_PROOF_STYLES = {"proven": "green", "unproven": "yellow", "broken": "red", "read": "dim"}


@click.command()
@click.argument("topic", type=topic_name, required=False)
@config_option(
    "The chain's file, whose step sign verifies the records, and whose signed trail proves their hops. "
    "Without this, HEADERWARE_CONFIG names the file, or nothing is verified.",
    exists=False,
)
@cluster_options
@partition_option
@click.option("--offset", type=click.IntRange(0), help="Begin at this offset of --partition.")
@last_records_option(10)
@total_time_option("30s")
@click.option("--value", "text", help="Decode this value of hw.trail.")
@click.option(
    "--file", "path", type=click.Path(exists=True, dir_okay=False), help="Decode the value in a file."
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object a line.")
def trail(
    topic: str | None,
    config: str | None,
    cluster: Cluster,
    partition: int | None,
    offset: int | None,
    count: int,
    timeout_s: float,
    text: str | None,
    path: str | None,
    as_json: bool,  # noqa: FBT001 - click passes flags by name
) -> None:
    """Show where records have been.

    The records are the last records of TOPIC, or one header value from --value or --file. A topic is never
    changed by its readers: to see who has read a record of TOPIC, look at the topic that the reader wrote to.

    Anybody who may write to the topic can write any trail. With a chain that signs, each record is verified,
    and the trail of a record without a valid signature is marked "(not verified)". With a chain whose trail
    is signed, each entry is marked: proven, and by which key, not proven, or broken.

    Nothing is committed, and no consumer group is joined. The exit code is 1 if a header value that was given
    is corrupt, or the topic cannot be read; a corrupt trail within a topic is shown as such.
    """
    settings = cluster.settings()
    _check_usage(topic, partition, offset, text, path)
    if topic is None:
        value = Path(path).read_bytes() if path is not None else (text or "").encode("utf-8", "replace")
        _show(None, decode_trail(value.strip()), as_json=as_json)
        return
    settings = cluster.settings_for("TOPIC")
    group_id = "headerware-trail"
    with (
        kafka_errors(topic),
        TopicReader(settings, topic, group_id=group_id, partition=partition, timeout_s=timeout_s) as reader,
        ExitStack() as stack,
    ):
        verification = proofs = None
        why = "no chain was given (-c)" if config is None else f"{config} does not sign {topic}"
        try:
            if config is not None:
                verification, proofs = _verification(
                    config, topic, reader.cluster_id, settings["bootstrap.servers"]
                )
        except HeaderwareError as error:
            if not is_from_environment("config"):
                raise
            why = f"{CONFIG_VARIABLE}: {error}"
        for opened in (verification, proofs):
            if opened is not None:
                stack.enter_context(closing(opened))
        show = _RecordPrinter(reader.cluster_id, verification, proofs, as_json=as_json)
        reader.start(Start("last", count) if offset is None else Start("offset", offset), limit=count)
        if verification is None and proofs is None and not as_json:
            click.echo(f"{printable(why)}: trails are as their writers claim", err=True)
        is_empty = True
        for batch in reader.to_end():
            is_empty = False
            for message in batch:
                show(message)
        if is_empty:
            click.echo(_nothing_of(topic, reader.bounds, offset), err=True)


def _verification(
    config: str, topic: str, cluster_id: str | None, bootstrap_servers: str
) -> tuple[Verification | None, TrailProofs | None]:
    """Return what verifies a topic's records, and what proves their trails; None if the chain does not."""
    chain = load_chain(config)
    steps = [step for step in chain if works_on(step, topic)]
    signs = any(isinstance(step, Sign) for step in steps)
    proves = any(isinstance(step, Trail) and step.signed for step in steps)
    if signs or proves:
        log_nothing()  # a log line would appear among the records
    return (
        Verification(chain, topic, cluster_id=cluster_id) if signs else None,
        TrailProofs(chain, topic, cluster_id=cluster_id, bootstrap_servers=bootstrap_servers)
        if proves
        else None,
    )


def _nothing_of(topic: str, bounds: Mapping[int, tuple[int, int]], offset: int | None) -> str:
    """Return why no record was shown."""
    if offset is None and all(begin == end for begin, end in bounds.values()):
        return f"{topic} has no records; those of transactions that are open are not read"
    if offset is None:
        return f"{topic}: the last offsets have no records, as at the end of a transaction; raise --count"
    ((partition, (_, end)),) = bounds.items()
    return f"no record from offset {offset} on: {position(topic, partition, None)} ends at {end}"


def _check_usage(
    topic: str | None,
    partition: int | None,
    offset: int | None,
    text: str | None,
    path: str | None,
) -> None:
    wrong = None
    if [topic, text, path].count(None) != 2:
        wrong = "name a TOPIC, or give one of --value and --file"
    elif offset is not None and partition is None:
        wrong = "--offset needs --partition"
    if wrong is not None:
        raise click.UsageError(wrong)


class _RecordPrinter:
    """Print the trail of each record; a message in slices has it in its first slice only."""

    def __init__(
        self,
        cluster_id: str | None,
        verification: Verification | None,
        proofs: TrailProofs | None,
        *,
        as_json: bool,
    ) -> None:
        self._cluster_id = cluster_id
        self._verification = verification
        self._proofs = proofs
        self._as_json = as_json
        self._decode = HeaderIdCodec(_no_id, default_name_of).decode
        self._sliced: set[bytes] = set()

    def __call__(self, message: Message) -> None:
        from headerware.kafka.messages import record_of  # noqa: PLC0415 - only this needs a client

        record = wire = record_of(message)
        found: dict[str, Any] = {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp_ms": record.timestamp_ms,
            "verified": None,
        }
        if self._verification is not None:
            verified = self._verification.verified(record)
            found["verified"] = verified is not None
            record = verified or record  # the headers that were added after signing are left out
        try:
            headers = self._decode(Headers(record.headers))
            values = headers.all(SLICE_HEADER)
            slice_header = SliceHeader.unpack(values[-1]) if values else None
            if slice_header is not None:
                if slice_header.message_id in self._sliced:
                    return
                self._sliced.add(slice_header.message_id)
                found |= {"slice": slice_header.index, "slices": slice_header.count}
            origin = origin_of(headers, record.topic)
            if origin is not None:
                found |= {"cluster": self._cluster_id, "dead_letter_of": str(origin)}
            reading, proof = read_trail(headers), None
            if self._proofs is not None and reading.entries:
                proof = _OF_SLICES if slice_header is not None else self._proofs.prove(wire)
            _show(found, reading, proof, as_json=self._as_json)
        except (WireFormatError, HeaderError) as error:
            if self._as_json:
                show_error(error, found)
            else:
                output_console().print(Text.assemble(_title(found), "\n  ", (f"corrupt: {error}", "red")))


_OF_SLICES: Final = TrailProof(
    trail=TrailReading(),
    problem="a message in slices is proven when it is complete; headerware tail shows it",
)


def _no_id(name: str) -> None:
    """Return no id, because names are only decoded here."""


def _show(
    found: dict[str, Any] | None, trail: TrailReading, proof: TrailProof | None = None, *, as_json: bool
) -> None:
    if as_json:
        result = (found or {}) | {"left_out": trail.left_out, "entries": trail.entries}
        if found is not None:
            result |= {
                "hops": None if proof is None else proof.hops,
                "problem": None if proof is None else proof.problem,
            }
        show_json(result)
        return
    console = output_console()
    if found is not None:
        console.print(_title(found))
        if found.get("slice"):
            first = found["offset"] - found["slice"]
            text = f"the trail is in the first slice, at offset {first} or earlier (--offset, --count)"
            console.print(Text(f"  {text}", "dim"))
            return
    origin = None if found is None else found.get("dead_letter_of")
    found_in = None if found is None else (found.get("cluster"), found["topic"])
    is_verified = None if found is None else found.get("verified")
    for line in trail_lines(
        trail,
        found_in=found_in,
        dead_letter_of=origin,
        is_verified=is_verified,
        hops=() if proof is None else proof.hops,
        problem=None if proof is None else proof.problem,
    ):
        console.print(Text("  ").append_text(line))


def trail_lines(
    trail: TrailReading,
    *,
    found_in: ClusterAndTopic | None = None,
    dead_letter_of: str | None = None,
    is_verified: bool | None = None,
    hops: Sequence[HopProof] = (),
    problem: str | None = None,
) -> list[Text]:
    """Return the lines of a trail in columns for a terminal: when, how long after, who, and what.

    ``found_in`` shows a gap at the end, between the last entry and the topic of the record;
    ``dead_letter_of`` names the original of a dead letter. If ``is_verified`` is False, a line says that
    no valid signature covers the trail; None is for a trail whose record was not verified. ``hops`` are the
    proofs of its entries, and ``problem`` says why they do not prove it.
    """
    steps = timeline(trail, found_in=found_in, dead_letter_of=dead_letter_of, hops=hops)
    afters = ["" if step.after_ms is None else duration_text(step.after_ms) for step in steps]
    wide, widest = (
        max(map(len, afters), default=0),
        max((len(step.by_whom or "?") for step in steps), default=0),
    )
    lines = [Text("(not verified)", "yellow")] if trail.entries and is_verified is False else []
    if trail.entries and problem is not None:
        lines.append(Text(f"(not proven: {problem})", "yellow"))
    for step, after in zip(steps, afters, strict=True):
        if step.when_ms is None:
            lines.append(Text(f"{'':24}  {after:>{wide}}  {step.text}", style=_STYLES[step.kind]))
        else:
            who = f"{step.by_whom or '?':{widest}}"
            line = Text.assemble(
                f"{time_text(step.when_ms):24}  {after:>{wide}}  ", (who, "bold"), f"  {step.text}"
            )
            if step.proof is not None and step.proof_text:
                line.append(f"  {step.proof_text}", _PROOF_STYLES[step.proof])
            lines.append(line)
    return lines or [Text("no trail", style="dim")]


def _title(found: dict[str, Any]) -> Text:
    when = "" if found["timestamp_ms"] is None else f"  {time_text(found['timestamp_ms'])}"
    title = Text(position(found["topic"], found["partition"], found["offset"]), style="bold").append(
        when, "dim"
    )
    return title.append(
        f"  slice {found['slice'] + 1} of {found['slices']}" if "slice" in found else "", "dim"
    )
