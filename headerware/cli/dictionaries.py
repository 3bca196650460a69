"""``headerware dictionaries``: train dictionaries on a topic, evaluate, publish and list them.

Exit codes: 0 done; 1 it cannot be done; 2 the command was used wrongly.
"""

from __future__ import annotations

import shlex
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec
from rich.console import Console
from rich.table import Table

from headerware.cli.json_output import show_json
from headerware.cli.kafka import Cluster, cluster_options, kafka_errors
from headerware.cli.options import config_option, json_option, topic_name, total_time_option
from headerware.core.atomic_files import replace_file
from headerware.core.chain import load_chain
from headerware.core.errors import DictionaryError
from headerware.core.plain_files import read_plain
from headerware.core.printable import counted
from headerware.dictionaries import Dictionary, FolderDictionaries, TopicDictionaries
from headerware.dictionaries.dictionary import MAX_DICTIONARY_BYTES
from headerware.dictionaries.store import publish as publish_to
from headerware.kafka.reader import Start, TopicReader
from headerware.ops.dictionaries import DICTIONARY_BYTES, Samples, evaluate, sample, split, train

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from headerware.dictionaries import DictionaryStore, Use

_MIB: Final = 1 << 20
_PIPE_COLUMNS: Final = 200


def _sample_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        json_option,
        total_time_option("2m"),
        click.option(
            "--max-sample-mib",
            type=click.IntRange(1, 1024),
            default=8,
            show_default=True,
            help="How many MiB of values to keep; they are drawn at random from all values that are read.",
        ),
        click.option(
            "--limit",
            type=click.IntRange(1),
            default=50_000,
            show_default=True,
            help="Records per partition.",
        ),
        click.option("--content-type", help="Only records of this content type."),
        config_option(
            "The chain of the consumers, if values are encrypted or sliced on the wire.", envvar=None
        ),
        cluster_options,
    ):
        command = option(command)
    return command


def _store_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        json_option,
        cluster_options,
        click.option("--store-topic", metavar="TOPIC", help="The compacted topic that has the dictionaries."),
        click.option(
            "--folder", type=click.Path(file_okay=False), help="The folder that has the dictionaries."
        ),
    ):
        command = option(command)
    return command


@click.group()
def dictionaries() -> None:
    """Train, publish and compare dictionaries for small records."""


@dictionaries.command("train")
@click.argument("topic", type=topic_name)
@click.option(
    "--out",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="The file to write the dictionary to.",
)
@click.option(
    "--size",
    "size_bytes",
    type=click.IntRange(256, MAX_DICTIONARY_BYTES),
    default=DICTIONARY_BYTES,
    show_default=True,
    help="The dictionary's size in bytes.",
)
@_sample_options
def train_one(topic: str, out: Path, size_bytes: int, *, as_json: bool, **reading: Any) -> None:
    """Train a dictionary on the last records of TOPIC.

    The dictionary holds parts of the records' values: anyone who can read the file can read these parts.
    """
    samples = _samples(topic, **reading)
    made = train(samples.taken(), size_bytes=size_bytes)
    replace_file(out, made.dictionary.content)
    if as_json:
        result = {
            "id": made.dictionary.id,
            "file": str(out),
            "bytes": len(made.dictionary.content),
            "samples": made.samples,
            "held_out": made.held_out,
            "plain_bytes": made.plain_bytes,
            "without_dictionary_bytes": made.without_bytes,
            "with_dictionary_bytes": made.with_bytes,
            "skipped": samples.skipped,
        }
        show_json(result)
        return
    plain, without, with_it = (
        size / made.held_out for size in (made.plain_bytes, made.without_bytes, made.with_bytes)
    )
    click.echo(
        f"trained dictionary {made.dictionary.id} on {counted(made.samples - made.held_out, 'record')}"
    )
    others = counted(made.held_out, "other record")
    click.echo(f"{others} of {plain:.0f} bytes: {without:.0f} with zstd, {with_it:.0f} with the dictionary")
    _show_skipped(samples)
    click.echo(
        f"wrote {out}; it holds parts of the records' values, so protect it as you protect the records"
    )
    command = f"headerware dictionaries publish {shlex.quote(str(out))} --topic {shlex.quote(topic)}"
    click.echo(f"no client uses it yet; publish it to a store: {command} with --store-topic or --folder")


@dictionaries.command("evaluate")
@click.argument("topic", type=topic_name)
@click.option(
    "--dictionary",
    "path",
    type=click.Path(exists=True, dir_okay=False),
    help="The dictionary to evaluate; without it, one is trained on half of the records.",
)
@click.option(
    "--batch",
    "batch_records",
    type=click.IntRange(1),
    default=100,
    show_default=True,
    help="How many records a producer's batch has.",
)
@_sample_options
def evaluate_topic(
    topic: str, path: str | None, batch_records: int, *, as_json: bool, **reading: Any
) -> None:
    """Compare ways to compress TOPIC's records: by record, by batch, or both.

    The command measures a record's share of its batch in Kafka's format, and the CPU time of compression and
    encryption alone.
    """
    samples = _samples(topic, **reading)
    found = samples.taken()
    if path is None:
        learnt, found = split(found)
        dictionary = train(learnt).dictionary
    else:
        dictionary = _read(path)
    result = evaluate(found, dictionary, batch_records=batch_records)
    if as_json:
        show_json({"dictionary": dictionary.id, "skipped": samples.skipped, **msgspec.to_builtins(result)})
        return
    table = Table("by record", "by batch", "encrypted", "bytes", "ratio", "write us", "read us", box=None)
    for column in table.columns[3:]:
        column.justify = "right"
    for each in result.figures:
        table.add_row(
            each.record,
            "zstd" if each.batch else "none",
            "yes" if each.encrypted else "no",
            f"{each.bytes_per_record:.1f}",
            f"{each.ratio:.2f}",
            f"{each.write_us:.2f}",
            f"{each.read_us:.2f}",
        )
    click.echo(f"{counted(result.records, 'record')}, in batches of {batch_records}:")
    _console().print(table)
    _show_skipped(samples)
    click.echo(result.plain_advice)
    click.echo(result.encrypted_advice)


@dictionaries.command("publish")
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@click.option(
    "--topic", required=True, help="The topic whose values are written with the dictionary from now on."
)
@click.option("--content-type", help="Only values of this content type.")
@click.option("--create", is_flag=True, help="Create the store's topic if it does not exist.")
@_store_options
def publish(
    file: str, topic: str, content_type: str | None, *, create: bool, as_json: bool, **store: Any
) -> None:
    """Write the values of a topic with the dictionary in FILE from now on.

    Running clients switch to it. Older dictionaries are kept, so that values written with them can be read.
    """
    dictionary = _read(file)
    with _opened(makes=True, create=create, **store) as opened:
        opened.read()
        use = publish_to(opened, dictionary, topic, content_type)
    if as_json:
        show_json(_row(use))
    else:
        which = "" if use.content_type is None else f" of type {use.content_type}"
        version = f"dictionary {dictionary.id}, version {use.current.number}"
        click.echo(f"values of {topic}{which} are written with {version}")


@dictionaries.command("list")
@_store_options
def list_all(*, as_json: bool, **store: Any) -> None:
    """List the dictionaries, and the topics that are written with them."""
    with _opened(**store) as opened:
        opened.read()
        uses = sorted(opened.uses(), key=lambda use: use.key)
        sizes = {each: len(opened.known(each) or b"") for each in sorted(opened.ids())}
    if as_json:
        show_json({"uses": [_row(use) for use in uses], "dictionaries": sizes})
        return
    table = Table("dictionary", "bytes", "topic", "content type", "version", "since", box=None)
    named = set()
    for use in uses:
        for each in reversed(use.versions):
            named.add(each.dictionary)
            size = sizes.get(each.dictionary)
            current = each is use.current
            table.add_row(
                each.dictionary,
                "missing" if size is None else f"{size:,}",
                use.topic,
                use.content_type or "any",
                f"{each.number}{' (current)' if current else ''}",
                each.since,
            )
    for each_id in sizes.keys() - named:
        table.add_row(each_id, f"{sizes[each_id]:,}", "-", "-", "-", "-")
    _console().print(table)


def _console() -> Console:
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=_PIPE_COLUMNS)


def _samples(
    topic: str,
    *,
    cluster: Cluster,
    config: str | None,
    content_type: str | None,
    limit: int,
    max_sample_mib: int,
    timeout_s: float,
) -> Samples:
    """Read samples of the last records of a topic."""
    settings = cluster.settings_for("TOPIC")
    chain = None if config is None else load_chain(config)
    with (
        kafka_errors(topic),
        TopicReader(settings, topic, group_id="headerware-dictionaries", timeout_s=timeout_s) as reader,
        closing(
            Samples(
                chain,
                cluster_id=reader.cluster_id,
                bootstrap_servers=settings["bootstrap.servers"],
                content_type=content_type,
                max_bytes=max_sample_mib * _MIB,
            )
        ) as samples,
    ):
        reader.start(Start("last", limit))
        return sample(reader.to_end(), samples)


def _show_skipped(samples: Samples) -> None:
    reasons = {
        "empty": "empty",
        "large": "too large to gain anything",
        "compressed": "compressed already",
        "content_type": "of another content type",
        "encoded": "encoded by a step that is not in --config",
    }
    for reason, text in reasons.items():
        if count := getattr(samples.skipped, reason):
            click.echo(f"left out {counted(count, 'record')}: {text}")


def _read(path: str) -> Dictionary:
    try:
        return Dictionary(read_plain(path, MAX_DICTIONARY_BYTES)[0])
    except OSError as error:
        raise DictionaryError(f"{path} cannot be read: {error.strerror}") from error
    except DictionaryError as error:
        raise DictionaryError(f"{path}: {error}") from None


@contextmanager
def _opened(
    *,
    makes: bool = False,
    create: bool = False,
    folder: str | None,
    store_topic: str | None,
    cluster: Cluster,
) -> Iterator[DictionaryStore]:
    """Open the store that a command's options name."""
    if (folder is None) is (store_topic is None):
        raise click.UsageError("expected either --folder or --store-topic")
    store: DictionaryStore
    if folder is not None:
        if makes:
            Path(folder).mkdir(parents=True, exist_ok=True)
        store = FolderDictionaries(path=folder).open()
    else:
        settings = cluster.settings_for("--store-topic")
        store = TopicDictionaries(
            servers=settings["bootstrap.servers"], topic=store_topic or "", config=settings, create=create
        ).open()
    try:
        yield store
    finally:
        store.close()


def _row(use: Use) -> dict[str, Any]:
    return {
        "topic": use.topic,
        "content_type": use.content_type,
        "dictionary": use.current.dictionary,
        "version": use.current.number,
        "versions": use.versions,
    }
