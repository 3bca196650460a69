"""``headerware contract``: check, compare and show the contracts of topics (AsyncAPI 3)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from rich.markup import escape

from headerware.cli.json_output import answer, show_json
from headerware.cli.kafka import Cluster, cluster_options, kafka_errors
from headerware.cli.options import config_option, json_option, last_records_option, topic_name
from headerware.cli.tables import output_console, table
from headerware.core.chain import Chain, load_chain
from headerware.core.errors import ConfigError
from headerware.core.printable import counted, printable
from headerware.core.suggestions import closest, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from headerware.interceptors.contract.document import Channel, Document, Message, Part
    from headerware.ops.contract import TopicCheck

_file: Final = click.Path(exists=True, dir_okay=False)
_LAST: Final = 1_000
_SIDES: Final = ("readers", "writers", "both")
_RULES: Final = "x-headerware-rules"
_COMMON: Final = ("title", "summary", "description", "tags", "externalDocs", "bindings")
_CHANNEL: Final = (*_COMMON, "address", "messages", "servers", "parameters", "$ref", _RULES)
_MESSAGE: Final = (
    *(*_COMMON, "headers", "payload", "correlationId", "contentType", "name", "examples", "traits"),
    *("deprecated", "$ref", _RULES),
)
"""The fields of a channel and of a message in AsyncAPI 3."""


@click.group()
def contract() -> None:
    """Check, compare and show contracts in AsyncAPI."""


@contract.command("check")
@click.argument("file", type=_file)
@click.option("--topic", "topics", multiple=True, help="Also read this topic; repeatable.")
@config_option("The chain by which the records of --topic are read; its own contract is left out.")
@last_records_option(_LAST)
@cluster_options
@json_option
def check_contract(
    file: str,
    topics: tuple[str, ...],
    config: str | None,
    count: int,
    cluster: Cluster,
    as_json: bool,  # noqa: FBT001 - click passes flags by name
) -> None:
    """Check a document, and a topic's last records against it.

    FILE is an AsyncAPI 3 document. The exit code is 1 if it is wrong, or if a record breaks its contract.
    Nothing is committed or published; no part of a record is shown.
    """
    from headerware.interceptors.contract import Contract  # noqa: PLC0415 - slow to import

    document = _document(file)
    checks = []
    if topics:
        from headerware.ops.contract import check_topic  # noqa: PLC0415 - it takes a client

        settings = cluster.settings_for("--topic")
        chain = Chain() if config is None else load_chain(config)
        for topic in topics:
            with kafka_errors(topic):
                checks.append(check_topic(settings, topic, Contract(file=file), chain, count=count))
    ok = not any(check.broken for check in checks)
    facts = {
        "file": file,
        "channels": [_channel_facts(channel) for channel in document.channels],
        "unchecked": list(_unchecked(document)),
        "topics": checks,
    }
    answer(facts, lambda: _print_check(file, document, checks), as_json=as_json, ok=ok)


@contract.command("diff")
@click.argument("old", type=_file)
@click.argument("new", type=_file)
@click.option(
    "--for",
    "side",
    type=click.Choice(_SIDES),
    default="both",
    show_default=True,
    help="Whose compatibility the exit code states.",
)
@json_option
def diff_contracts(old: str, new: str, side: str, as_json: bool) -> None:  # noqa: FBT001 - click passes flags by name
    """Compare two documents by the records that they allow.

    NEW is compatible for readers if they can read by OLD what NEW allows, and for writers if what OLD allows
    is right in NEW. The exit code is 1 if it is not; what cannot be decided counts as not compatible.
    """
    from headerware.ops.contract import changes  # noqa: PLC0415 - it takes a client

    found = changes(_document(old), _document(new))
    readers, writers = all(each.readers for each in found), all(each.writers for each in found)
    ok = (readers or side == "writers") and (writers or side == "readers")

    def show() -> None:
        lines = table("place", "change", "for readers", "for writers")
        for each in found:
            words = ["compatible" if fits else "not compatible" for fits in (each.readers, each.writers)]
            lines.add_row(escape(printable(each.place)), each.what, *words)
        console = output_console()
        if found:
            console.print(lines)
        for who, fits in (("readers", readers), ("writers", writers)):
            console.print(f"for {who}: {'compatible' if fits else 'not compatible'}")

    answer({"readers": readers, "writers": writers, "changes": found}, show, as_json=as_json, ok=ok)


@contract.command("show")
@click.argument("topic", type=topic_name)
@click.option("--file", type=_file, help="The document; without this, that of the chain's contract step.")
@config_option("The chain whose headers are shown, too; without this, HEADERWARE_CONFIG names the file.")
@click.option("--asyncapi", is_flag=True, help="Print an AsyncAPI document, with the headers of the chain.")
@json_option
def show_contract(
    topic: str,
    file: str | None,
    config: str | None,
    asyncapi: bool,  # noqa: FBT001 - click passes flags by name
    as_json: bool,  # noqa: FBT001 - likewise
) -> None:
    """Show a topic's contract, and what a chain adds.

    The chain is opened as a producer, as by `explain --open`, and nothing is sent.
    """
    from headerware.interceptors.contract import Contract  # noqa: PLC0415 - slow to import
    from headerware.ops.contract import added_headers  # noqa: PLC0415 - it takes a client

    chain = Chain() if config is None else load_chain(config)
    own = next((step for step in chain if isinstance(step, Contract)), None)
    path = file or (None if own is None else own.file)
    if path is None:
        raise click.UsageError("expected --file, or a chain (-c) with a contract step")
    document = _document(path)
    channel = document.channel_of(topic)
    if channel is None:
        raise ConfigError(f"has no channel for topic {topic!r}", path=path)
    added = {name: _description(name) for name in added_headers(chain, topic)}
    if asyncapi:
        click.echo(_as_yaml(_with_headers(document, channel, added)), nl=False)
    elif as_json:
        show_json({"topic": topic, "channel": _channel_facts(channel), "added": added})
    else:
        _print_channel(channel, added)


def _document(file: str) -> Document:
    from headerware.interceptors.contract.document import read_document  # noqa: PLC0415 - slow to import

    return read_document(Path(file))[0]


def _channel_facts(channel: Channel) -> dict[str, Any]:
    messages = [message.name for message in channel.messages]
    return {"name": channel.name, "address": channel.address, "messages": messages}


def _unchecked(document: Document) -> Iterator[str]:
    """Yield a sentence for each part that is not checked, and each channel that allows no record."""
    channels = document.tree.get("channels") or {}
    for name in sorted(channels.keys() - {channel.name for channel in document.channels}):
        yield from _unknown(channels[name], f"/channels/{name}", _CHANNEL)
        if "address" not in channels[name] and "$ref" not in channels[name]:
            yield f"channel {name!r} has no address, so it is of no topic"
    for channel in document.channels:
        yield from _unknown(channels[channel.name], channel.pointer, _CHANNEL)
        if not channel.messages:
            yield f"channel {channel.name!r} has no message, so it refuses nothing"
        for message in channel.messages:
            yield from _unknown(message.tree, message.pointer, _MESSAGE)
            for part in (message.key, message.value):
                if part is not None and part.unchecked is not None:
                    yield f"#{part.pointer}: schemas of format {part.unchecked!r} are not checked"


def _unknown(tree: Mapping[str, Any], pointer: str, known: tuple[str, ...]) -> Iterator[str]:
    """Yield a sentence for each field that AsyncAPI does not have, and for misspelt rules."""
    for name in tree:
        if name.startswith("x-") and (name == _RULES or closest(name, [_RULES], cutoff=0.8) is None):
            continue
        if name not in known:
            hint = did_you_mean(name, [*known, _RULES])
            yield f"#{pointer}: {name!r} is no field of AsyncAPI, so nothing reads it{hint}"


def _print_check(file: str, document: Document, checks: list[TopicCheck]) -> None:
    click.echo(printable(f"{file}: ok ({counted(len(document.channels), 'channel')})"))
    for line in _unchecked(document):
        click.echo(printable(f"warning: {line}"))
    for check in checks:
        read = f"{check.topic}: {counted(check.records, 'record')} read, {check.broken:,} break the contract"
        unseen = f", {check.unreadable:,} did not pass the chain" if check.unreadable else ""
        click.echo(printable(f"{read}{unseen}"))
        if check.refusal:
            click.echo(printable(f"  not read: {check.refusal}"))
        for rule in check.rules:
            where = f"first at {rule.partition}@{rule.offset}"
            click.echo(printable(f"  {rule.rule}: {counted(rule.records, 'record')}, {where}"))


def _print_channel(channel: Channel, added: Mapping[str, str]) -> None:
    console = output_console()
    console.print(f"[bold]{escape(printable(channel.address))}[/]")
    for message in channel.messages:
        console.print(f"\n[bold]{escape(printable(message.name))}[/] ({message.content_type or 'any type'})")
        for name, part in (("key", message.key), ("value", message.value)):
            console.print(f"  {name}: {escape(printable(_part_text(part)))}")
        for title, schema in (
            ("header", message.headers),
            ("field of the value", None if message.value is None else message.value.json),
        ):
            if schema is not None and schema.properties:
                lines = table(title, "is", "must be there", "description")
                required = schema.root.get("required", ())
                for name, each in schema.properties.items():
                    about = str(each.get("description", ""))
                    row = (name, _is(each), "yes" if name in required else "no", about)
                    lines.add_row(*(escape(printable(cell)) for cell in row))
                console.print(lines)
        for rule in message.rules:
            console.print(f"  rule {escape(printable(rule.pointer.rpartition('/')[2]))}", markup=True)
    if added:
        lines = table("header of the chain", "description")
        for name, about in added.items():
            lines.add_row(escape(printable(name)), escape(printable(about)))
        console.print()
        console.print(lines)


def _part_text(part: Part | None) -> str:
    if part is None:
        return "anything"
    if part.json is not None:
        return _is(part.json.root)
    return "Avro" if part.avro is not None else f"{part.unchecked}, which is not checked"


_LIMITS: Final = ("format", "pattern", "minimum", "maximum", "minLength", "maxLength")


def _is(schema: Mapping[str, Any]) -> str:
    """Return the type of a schema, with its values and limits, in one line."""
    if "const" in schema:
        return json.dumps(schema["const"])
    if "enum" in schema:
        return " or ".join(json.dumps(value) for value in schema["enum"])
    stated = schema.get("type", "anything")
    types = stated if isinstance(stated, str) else " or ".join(stated)
    limits = [f"{name} {schema[name]}" for name in _LIMITS if name in schema]
    return ", ".join([types, *limits])


def _description(name: str) -> str:
    from headerware.registry.registry import built_in  # noqa: PLC0415 - slow to import

    entry = built_in().by_name(name)
    return "" if entry is None else entry.description


def _with_headers(document: Document, channel: Channel, added: Mapping[str, str]) -> dict[str, Any]:
    """Return a document in which the messages of a channel also have the headers that a chain adds."""
    of_chain = {name: {"type": "string", "description": about} for name, about in added.items()}
    messages = {message.name: _with_properties(message, of_chain) for message in channel.messages}
    channels = document.tree["channels"]
    here = {**channels[channel.name], "messages": messages}
    return {**document.tree, "channels": {**channels, channel.name: here}}


def _with_properties(message: Message, of_chain: Mapping[str, Any]) -> dict[str, Any]:
    if not of_chain:
        return dict(message.tree)
    headers: Mapping[str, Any] = {"type": "object"} if message.headers is None else message.headers.root
    properties = {**headers.get("properties", {}), **of_chain}
    return {**message.tree, "headers": {**headers, "properties": properties}}


def _as_yaml(tree: Mapping[str, Any]) -> str:
    from headerware.interceptors.contract.document import yaml_module  # noqa: PLC0415 - slow to import

    yaml = yaml_module()

    class Dumper(yaml.SafeDumper):  # type: ignore[misc, name-defined]  # its module is found at run time
        """A dumper that writes each value in full."""

        def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - its base's
            return True

    text: str = yaml.dump(tree, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=100)
    return text
