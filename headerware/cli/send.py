"""``headerware send``: send lines or a file through a chain, and say which records were not delivered."""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

import click
import msgspec

from headerware.cli.json_output import answer
from headerware.cli.kafka import Cluster, cluster_options, kafka_errors
from headerware.cli.log_lines import log_nothing
from headerware.cli.options import config_option, json_option, timeout_option, topic_name
from headerware.cli.progress_bar import ReadingBar
from headerware.core.chain import Chain, load_chain
from headerware.core.headers import Headers
from headerware.core.order import unprotected_by
from headerware.core.printable import counted, printable
from headerware.core.suggestions import with_equals
from headerware.kafka.reader import Progress

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from headerware.clients.producer import Producer
    from headerware.ops.send import DeadLettersOfLines, Failure, Format, LineSender, RecordTemplate

_RECORDS_PER_STEP: Final = 500
"""After how many records the bar moves."""
_FORMAT: Final = click.Choice(["bytes", "text", "json"])


def _header(text: str) -> tuple[str, bytes | None]:
    if meant := with_equals(text):
        raise click.BadParameter(
            f"expected NAME=VALUE, found a colon; did you mean {meant}?", param_hint="'--header'"
        )
    name, equals, value = text.partition("=")
    if not name:
        raise click.BadParameter("expected NAME=VALUE, found no name", param_hint="'--header'")
    if name != name.strip():
        raise click.BadParameter(
            f"expected NAME=VALUE, found a space around the name; did you mean {name.strip()}=...?",
            param_hint="'--header'",
        )
    return name, value.encode("utf-8", "surrogateescape") if equals else None


@click.command()
@click.argument("topic", type=topic_name)
@config_option("The chain's file; without this, HEADERWARE_CONFIG names the file, or there is no chain.")
@cluster_options
@click.option(
    "--file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Read this file, not standard input.",
)
@click.option("--whole", is_flag=True, help="Send all that is read as one record.")
@click.option("-k", "--key", help="The key of all records.")
@click.option("-K", "--key-separator", metavar="TEXT", help="Each line is a key, this text and a value.")
@click.option(
    "-H",
    "--header",
    "headers",
    multiple=True,
    metavar="NAME=VALUE",
    help="A header of all records; NAME alone has no value; repeatable.",
)
@click.option(
    "--key-format",
    type=_FORMAT,
    default="bytes",
    show_default=True,
    help="What the chain gets as the key, for a serde of keys.",
)
@click.option(
    "--value-format",
    type=_FORMAT,
    default="bytes",
    show_default=True,
    help="What the chain gets as the value, for a serde of values; null in JSON is a tombstone.",
)
@click.option("-p", "--partition", type=click.IntRange(0), help="Send to this partition only.")
@click.option("-Z", "--null", "empty_is_null", is_flag=True, help="Send an empty value as null, a tombstone.")
@timeout_option
@json_option
def send(
    topic: str,
    config: str | None,
    cluster: Cluster,
    file: Path | None,
    whole: bool,  # noqa: FBT001 - click passes flags by name
    key: str | None,
    key_separator: str | None,
    headers: tuple[str, ...],
    key_format: Format,
    value_format: Format,
    partition: int | None,
    empty_is_null: bool,  # noqa: FBT001
    timeout_s: float,
    as_json: bool,  # noqa: FBT001
) -> None:
    """Send lines to TOPIC through a chain.

    Each line of standard input, or of --file, is a record without its line end; empty lines are skipped.
    With -K: the text before the first ":" of a line is the key. TOPIC must exist, unless
    -X allow.auto.create.topics=true lets the brokers create it.

    A chain with serialize turns objects into bytes. It gets objects with --value-format json: each line is
    parsed as JSON. With text, the line is text rather than bytes. --key-format is the same for keys.

    The command waits until all records are delivered. If some are not, it names them by the numbers of
    their lines, and the exit code is 1.
    """
    from headerware.ops.send import DeadLettersOfLines, RecordTemplate, read_as  # noqa: PLC0415 - imports a client

    if key is not None and key_separator is not None:
        raise click.UsageError("--key and --key-separator both give the key of a record: give one")
    if key_separator == "":
        raise click.BadParameter("expected a text that is not empty", param_hint="'--key-separator'")
    settings = cluster.settings_for("TOPIC")
    template = RecordTemplate(
        topic=topic,
        key=None if key is None else read_as(key_format, _bytes(key), "key"),
        key_separator=None if key_separator is None else _bytes(key_separator),
        key_format=key_format,
        value_format=value_format,
        headers=Headers(map(_header, headers)),
        partition=partition,
        empty_is_null=empty_is_null,
    )
    chain = Chain() if config is None else load_chain(config)
    if chain and not chain.for_topic(topic):
        click.echo(
            f"Warning: no step of {config} works on {topic}, so records are sent as they are", err=True
        )
    elif warning := unprotected_by(chain, topic):
        click.echo(f"Warning: {warning}", err=True)
    dead_letters = DeadLettersOfLines(chain)
    log_nothing()
    with (
        kafka_errors(topic),
        _producer(settings, dead_letters.chain, topic, partition, timeout_s) as producer,
    ):
        sending, interrupted = _send(producer, template, file, dead_letters, whole=whole, quiet=as_json)
    facts = {
        "topic": topic,
        "records": sending.read,
        "delivered": sending.delivered,
        "failed": sending.failed,
        "unknown": sending.unknown,
        "failures": msgspec.to_builtins(sending.failures),
    }
    if whole and not sending.read and not interrupted:
        raise click.ClickException("there is nothing to send: the input is empty; -Z sends null, a tombstone")
    ok = sending.delivered == sending.read and not interrupted
    answer(facts, lambda: _show(sending, topic, interrupted=interrupted), as_json=as_json, ok=ok)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _producer(
    settings: Mapping[str, Any], chain: Chain, topic: str, partition: int | None, timeout_s: float
) -> Producer:
    """Return a client whose cluster has answered, and has the topic."""
    from headerware.clients.producer import Producer  # noqa: PLC0415 - imports a client
    from headerware.kafka.errors import right_to_write  # noqa: PLC0415 - likewise
    from headerware.kafka.first_answer import Troubles  # noqa: PLC0415 - likewise
    from headerware.kafka.settings import boolean, bootstrap_servers  # noqa: PLC0415 - likewise

    troubles = Troubles()
    limits = {"message.timeout.ms", "delivery.timeout.ms"} & settings.keys()
    default = {} if limits else {"message.timeout.ms": max(1, round(timeout_s * 1_000))}
    conf = {"error_cb": troubles, "allow.auto.create.topics": False, **default, **settings}
    producer = Producer(conf, chain=chain)
    deadline = time.monotonic() + timeout_s
    described = troubles.first_metadata(producer, bootstrap_servers(conf), topic, deadline).topics[topic]
    found = described.error
    if right := right_to_write(found, printable(topic)):
        raise click.ClickException(f"{printable(topic)}: {found.str()}{right}")
    if found is not None and not boolean(conf, "allow.auto.create.topics", default=False):
        raise click.ClickException(
            f"{printable(topic)}: {found.str()}; look at the name, or create the topic "
            "(-X allow.auto.create.topics=true lets the brokers create it)"
        )
    count = len(described.partitions)
    if found is None and partition is not None and partition >= count:
        raise click.ClickException(
            f"{printable(topic)} has {counted(count, 'partition')}, from 0 on; found partition {partition}"
        )
    return producer


def _send(
    producer: Producer,
    template: RecordTemplate,
    file: Path | None,
    dead_letters: DeadLettersOfLines,
    *,
    whole: bool,
    quiet: bool,
) -> tuple[LineSender, bool]:
    """Send all that is read, and return the counts; also return whether Ctrl-C was pressed."""
    from headerware.ops.send import LineSender, read_records  # noqa: PLC0415 - imports a client

    subject = "record" if whole else "line"

    def tell(failure: Failure) -> None:
        if not quiet:
            click.echo(f"{subject} {failure.record} was not delivered: {printable(failure.error)}", err=True)

    sending = LineSender(producer, tell, dead_letters)
    with ExitStack() as stack:
        stream, advance = _opened(file, stack)
        interrupted = False
        try:
            for number, record in read_records(stream, template, as_one_record=whole):
                sending.send(number, record)
                if sending.read % _RECORDS_PER_STEP == 0:
                    advance()
        except KeyboardInterrupt:
            interrupted = True
        sending.finish()
    return sending, interrupted


def _opened(file: Path | None, stack: ExitStack) -> tuple[BinaryIO, Callable[[], object]]:
    """Return what is read, and a function that moves the bar."""
    if file is None:
        stream = sys.stdin.buffer
        if sys.stdin.isatty():
            click.echo("each line that you type is a record; Ctrl-D ends", err=True)
        return stream, lambda: None
    stream = stack.enter_context(file.open("rb"))
    size_bytes = file.stat().st_size
    bar = stack.enter_context(ReadingBar(file.name))
    return stream, lambda: bar.show(Progress(stream.tell(), size_bytes))


def _show(sending: LineSender, topic: str, *, interrupted: bool) -> None:
    text = f"{counted(sending.delivered, 'record')} delivered to {printable(topic)}"
    if sending.failed:
        text += f", {sending.failed:,} not delivered"
    if sending.unknown:
        text += f", {sending.unknown:,} without an answer"
    click.echo(f"{text}; interrupted" if interrupted else text)
