"""``headerware tail``: show a topic's records as they are on the wire and as an application sees them."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections import Counter
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from headerware.cli.json_output import show_json
from headerware.cli.kafka import Cluster, cluster_options, kafka_errors
from headerware.cli.log_lines import log_nothing
from headerware.cli.options import config_option, count_option, partition_option, topic_name
from headerware.cli.tables import output_console
from headerware.cli.tail_lines import NO_CHAIN, Values, as_json, brief_line, record_lines
from headerware.core.chain import Chain, load_chain
from headerware.core.errors import ConfigError
from headerware.core.extras import install_command
from headerware.kafka.reader import Start, TopicReader
from headerware.ops.tail import ChainView, Condition, tailed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from headerware.ops.tail import TailedRecord

_USUAL_COUNT: Final = 10


class Output(NamedTuple):
    """How records are shown."""

    values: Values
    json_lines: bool
    brief: bool
    plain: bool


def output_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say how records are shown; the command gets them as ``output``."""

    @wraps(command)
    def with_output(
        *given: Any, values: Values, json_lines: bool, brief: bool, plain: bool, **options: Any
    ) -> Any:
        return command(*given, output=Output(values, json_lines, brief, plain), **options)

    for option in (
        click.option("--plain", is_flag=True, help="Print lines also in a terminal."),
        click.option("--brief", is_flag=True, help="Print one line a record, such as for grep."),
        click.option("--json", "json_lines", is_flag=True, help="Print a JSON object a line."),
        click.option(
            "--values",
            type=click.Choice(["none", "text", "hex"]),
            default="none",
            show_default=True,
            help="Show keys, values and headers' values, or only their sizes.",
        ),
    ):
        option(with_output)
    return with_output


@click.command()
@click.argument("topic", type=topic_name)
@config_option("The chain's file; without this, HEADERWARE_CONFIG names the file, or there is no chain.")
@cluster_options
@click.option(
    "--from",
    "start",
    show_default=f"as many before the end as -n says, or {_USUAL_COUNT}",
    metavar="WHERE",
    help="beginning, end, an offset, -N (records before the end of each partition), a time, or an age (15m).",
)
@partition_option
@count_option
@click.option(
    "--until-end",
    is_flag=True,
    help="Stop at the end that the topic had at the start; without this, follow the topic.",
)
@click.option(
    "--where",
    multiple=True,
    metavar="HEADER=VALUE",
    help="Show only records with HEADER=VALUE, HEADER~REGEX, HEADER or !HEADER; repeatable, all must hold.",
)
@click.option("-k", "--key", help="Show records with this key only.")
@output_options
def tail(
    topic: str,
    config: str | None,
    cluster: Cluster,
    start: str | None,
    partition: int | None,
    count: int | None,
    until_end: bool,  # noqa: FBT001 - click passes flags by name
    where: tuple[str, ...],
    key: str | None,
    output: Output,
) -> None:
    """Show TOPIC's records, and what a chain makes of them.

    Each record is shown with its headers on the wire, the sizes before and after each step, its signer, why
    it is refused or held back, its slices and its trail. In a terminal, the command opens a view to follow,
    pause, search and open records.

    Nothing is committed, no consumer group is joined, and the chain leaves no mark: interceptors that only
    observe do not run, dead letters are not published, and dedup does not open its store.
    """
    settings = cluster.settings_for("TOPIC")
    with _wrong_use("--from"):
        begin = Start.parse(start or f"-{count or _USUAL_COUNT}")
    with _wrong_use("--where"):
        conditions = [Condition.parse(text) for text in where]
    chain = Chain() if config is None else load_chain(config)
    log_nothing()  # a log line would appear in the middle of the view
    view = None
    try:
        with (
            kafka_errors(topic),
            TopicReader(settings, topic, group_id="headerware-tail", partition=partition) as source,
        ):
            view = ChainView(
                chain,
                cluster_id=source.cluster_id,
                bootstrap_servers=settings["bootstrap.servers"],
                where=conditions,
                key=key,
            )
            source.start(begin)
            shown: Counter[str] = Counter()
            records = _until(tailed(source, view), source, count=count, until_end=until_end, shown=shown)
            show_records(records, output, title=topic, chain=view.names, left_out=view.left_out)
            if until_end and not shown[topic] and source.has_reached_the_end:
                filters = [
                    option for option, given in (("--where", where), ("--key", key is not None)) if given
                ]
                such = f" that fits {' and '.join(filters)}" if filters else ""
                all_of_it = "" if start == "beginning" else "; --from beginning reads the complete topic"
                click.echo(
                    f"no record{such} from {start or f'-{count or _USUAL_COUNT}'} on{all_of_it}", err=True
                )
    finally:
        if view is not None:
            view.close()


@contextmanager
def _wrong_use(option: str) -> Iterator[None]:
    try:
        yield
    except ConfigError as error:
        raise click.BadParameter(str(error), param_hint=option) from error


def _until(
    batches: Iterator[list[TailedRecord]],
    source: TopicReader,
    *,
    count: int | None,
    until_end: bool,
    shown: Counter[str],
) -> Iterator[list[TailedRecord]]:
    """Yield batches until there are enough records, or the end is reached; count records by topic."""
    left = count
    for batch in batches:
        shown.update(each.topic for each in batch)
        if left is None:
            yield batch
        else:
            yield batch[:left]
            left -= len(batch)
            if left <= 0:
                return
        if until_end and source.has_reached_the_end:
            return


def _is_terminal() -> bool:
    # The view reads keys from standard input, and is drawn on standard error.
    if not all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)):
        return False
    if importlib.util.find_spec("textual") is None:
        click.echo(f"The view needs textual ({install_command('tail')}); showing plain lines.", err=True)
        return False
    return True


def show_records(
    batches: Iterator[list[TailedRecord]],
    output: Output,
    *,
    title: str,
    chain: Sequence[str],
    left_out: Sequence[str],
    pause: str | None = None,
) -> None:
    """Show records until they end or Ctrl-C is pressed: in a view if a terminal allows it, else as lines.

    The view covers what was printed, so it waits for a key if ``pause`` has a text that asks for one. The
    steps of ``chain`` run; the steps of ``left_out`` only observe, and do not run.
    """
    if (output.json_lines or output.brief or output.plain) or not _is_terminal():
        if not (output.json_lines or chain or left_out):
            click.echo(f"{NO_CHAIN}; records are shown as they are on the wire", err=True)
        _print(batches, output)
        return
    from headerware.cli.tail_view import TailView  # noqa: PLC0415 - it takes textual

    if pause is not None:
        click.echo(pause, err=True)
        click.getchar()
    TailView(batches, topic=title, chain=chain, left_out=left_out, values=output.values).run()


def _print(batches: Iterator[list[TailedRecord]], output: Output) -> None:
    console = output_console()
    try:
        for batch in batches:
            for record in batch:
                if output.json_lines:
                    show_json(
                        as_json(record, output.values),
                        ok=record.outcome not in ("refused", "held_back", "dead_letter"),
                    )
                    continue
                with console.capture() as text:
                    lines = [brief_line(record)] if output.brief else record_lines(record, output.values)
                    console.print(*lines, sep="\n")
                click.echo(text.get(), nl=False)
    except KeyboardInterrupt:
        return  # the usual way to end it
    except BrokenPipeError:
        # The reader of the pipe has closed it; discard what Python would still flush at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
