"""``headerware dev``: run a cluster for development, and show what a chain makes of its records."""

from __future__ import annotations

import signal
import time
from contextlib import ExitStack
from threading import Event
from typing import TYPE_CHECKING, Any, Final, NoReturn

import click

from headerware.cli.kafka import QUIET, SERVERS_VARIABLE, kafka_errors
from headerware.cli.log_lines import log_nothing
from headerware.cli.options import config_option, topic_name
from headerware.cli.tail import Output, output_options, show_records
from headerware.core.chain import Chain, load_chain
from headerware.core.topics import TOPIC_NAME, is_topic_name
from headerware.kafka.errors import Kind, kind_of
from headerware.kafka.reader import TopicReader
from headerware.ops.tail import ChainView, tailed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headerware.ops.tail import TailedRecord
    from headerware.testing.broker import KafkaBroker
    from headerware.testing.embedded import EmbeddedCluster

_TOPIC: Final = "orders"
"""The topic if none is named."""
_LEADERS_S: Final = 30.0
"""How long the leaders of new topics may take to be ready."""
_PAUSE_S: Final = 0.1
_ROUND_S: Final = 0.2
"""How long reading all topics takes if no record comes."""
_EMPTY_GROUP: Final = (
    "a consumer group whose last member has left can be joined again after 45 seconds (session.timeout.ms); "
    "with --kafka, at once"
)
_KEY_TEXT: Final = "press a key here to see the records as they come"


def _named(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, int | None]:
    """Return the topics by name, each with its number of partitions if ``NAME:PARTITIONS`` gives it."""
    found: dict[str, int | None] = {}
    for value in values:
        name, colon, partitions = value.partition(":")
        if not is_topic_name(name):
            raise click.BadParameter(f"expected a name of {TOPIC_NAME}, found {name!r}", ctx, param)
        found[name] = _PARTITIONS(partitions, param, ctx) if colon else None
    return found


_PARTITIONS: Final = click.IntRange(1, 1_000)


@click.command()
@click.argument("topics", type=topic_name, nargs=-1, callback=_named, metavar="[NAME[:PARTITIONS]]...")
@config_option(
    "The chain that shows the records; without this, HEADERWARE_CONFIG names the file, or there is no chain."
)
@click.option(
    "--kafka", is_flag=True, help="Run Apache Kafka instead of the embedded cluster; needs Java 17."
)
@click.option(
    "--port", type=click.IntRange(1, 65_535), help="With --kafka: the port of Kafka; by default a free one."
)
@click.option(
    "--partitions",
    type=_PARTITIONS,
    default=1,
    show_default=True,
    help="The number of partitions of a topic that is named without :PARTITIONS.",
)
@click.option("--quiet", is_flag=True, help="Show no records; only run the cluster.")
@output_options
def dev(
    topics: dict[str, int | None],
    config: str | None,
    kafka: bool,  # noqa: FBT001 - click passes flags by name
    port: int | None,
    partitions: int,
    quiet: bool,  # noqa: FBT001 - likewise
    output: Output,
) -> None:
    """Run a cluster, and show the records of its topics.

    The cluster is for development. It has the topics that are named, such as orders or orders:3, or the topic
    orders. It runs until Ctrl-C or SIGTERM; then its records are gone, and the exit code is 0. Records are
    shown as `headerware tail` shows them. While the cluster runs, a producer creates another topic when it
    names the topic; `headerware send` does so with -X allow.auto.create.topics=true. The embedded cluster
    needs nothing but Headerware: it serves clients of librdkafka, such as this one, but neither Java nor
    admin requests. Each start has another port, so the command prints the line that tells other terminals the
    address.
    """
    if port is not None and not kafka:
        raise click.UsageError("--port needs --kafka: the embedded cluster takes a free port")
    chain = Chain() if config is None else load_chain(config)
    wanted = topics or {_TOPIC: None}
    names = tuple(wanted)
    log_nothing()  # a log line would appear in the middle of the view
    signal.signal(signal.SIGTERM, _interrupt)
    with ExitStack() as stack:
        try:
            cluster = _cluster(kafka=kafka, port=port)
            stack.enter_context(cluster)
            for name, own in wanted.items():
                cluster.create_topic(name, partitions=own or partitions)
            servers = cluster.bootstrap_servers
            with kafka_errors():
                sources = [stack.enter_context(_reader(servers, name)) for name in names if not quiet]
                views = [
                    ChainView(chain, cluster_id=source.cluster_id, bootstrap_servers=servers)
                    for source in sources
                ]
                for view in views:
                    stack.callback(view.close)
                what = "Apache Kafka is" if kafka else "an embedded cluster is"
                click.echo(
                    f"{what} at {servers} until Ctrl-C; in another terminal, type:\n"
                    f"  export {SERVERS_VARIABLE}={servers}",
                    err=True,
                )
                if not kafka:
                    click.echo(_EMPTY_GROUP, err=True)
                if quiet:
                    Event().wait()  # until a signal
                wait_s = _ROUND_S / len(names)
                topics_read = [tailed(*each, wait_s=wait_s) for each in zip(sources, views, strict=True)]
                show_records(
                    _in_turn(topics_read),
                    output,
                    title=f"{', '.join(names)} at {servers}",
                    chain=views[0].names,  # all topics have the same chain
                    left_out=views[0].left_out,
                    pause=_KEY_TEXT,
                )
        except (KeyboardInterrupt, EOFError):
            pass  # Ctrl-C is the usual way to end it; Ctrl-D in place of a key ends it, too
    click.echo("the cluster has stopped, and its records are gone", err=True)


def _cluster(*, kafka: bool, port: int | None) -> EmbeddedCluster | KafkaBroker:
    """Return a cluster: the embedded cluster runs already, Apache Kafka starts when its block begins."""
    if kafka:
        from headerware.testing.broker import KafkaBroker  # noqa: PLC0415 - only this command runs clusters

        click.echo("starting Apache Kafka, which takes some seconds", err=True)
        return KafkaBroker(port=port)
    from headerware.testing.embedded import EmbeddedCluster  # noqa: PLC0415 - as above

    return EmbeddedCluster()


def _reader(servers: str, topic: str) -> TopicReader:
    from confluent_kafka import KafkaException  # noqa: PLC0415 - slow to import

    source = TopicReader({**QUIET, "bootstrap.servers": servers}, topic, group_id="headerware-dev")
    deadline = time.monotonic() + _LEADERS_S
    try:
        while True:
            try:
                source.start()
            except KafkaException as error:  # Kafka may name a leader before the leader itself knows it
                if kind_of(error) is not Kind.LEADER_MOVED or time.monotonic() > deadline:
                    raise
                time.sleep(_PAUSE_S)
            else:
                return source
    except BaseException:
        source.close()
        raise


def _in_turn(topics: Sequence[Iterator[list[TailedRecord]]]) -> Iterator[list[TailedRecord]]:
    while True:
        for batches in topics:
            yield next(batches)


def _interrupt(_number: int, _frame: Any) -> NoReturn:
    raise KeyboardInterrupt
