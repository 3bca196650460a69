"""Compare contracts: with each other, with the records of a topic, and with what a chain adds to records.

Two versions of a contract are compared by the records that they allow:

    for readers   who reads by the old version can read each record of the new one
    for writers   what is written by the old version is right in the new one

A writer is taken to write the fields and headers that its version names, and no others: so a version that
names one more is compatible for both, unless it requires it. A comparison that cannot be decided is a no.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from headerware.core.chain import Chain
from headerware.core.context import Context
from headerware.core.errors import ConfigError
from headerware.core.headers import Headers
from headerware.core.hooks import Role
from headerware.core.order import in_order, precedes_bytes, role_of
from headerware.core.record import Record
from headerware.interceptors.contract import Contract, decode_broken_rules
from headerware.interceptors.contract.document import named_by, read_document
from headerware.interceptors.contract.interceptor import MARK_HEADER
from headerware.interceptors.contract.schemas import TABLES, fragment, library
from headerware.interceptors.encrypt import Encrypt
from headerware.kafka.reader import Start, TopicReader
from headerware.kafka.settings import bootstrap_servers
from headerware.ops.tail import ChainView, tailed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from headerware.interceptors.contract.document import Channel, Document, Message, Part
    from headerware.interceptors.contract.schemas import JsonSchema

_MAX_RULES: Final = 1_000
_PROBE: Final = b'{"probe":true}'
_COMBINING: Final = frozenset(
    {
        "$ref",
        "allOf",
        "anyOf",
        "oneOf",
        "not",
        "if",
        "dependencies",
        "patternProperties",
        "additionalProperties",
    }
)
"""The keywords beside which a schema is not closed, because its parts would refuse each other's members."""


# A topic


class BrokenRule(msgspec.Struct, frozen=True, kw_only=True):
    """A rule that records of a topic break.

    Args:
        rule: the fragment of its pointer in the document.
        records: how many records.
        partition: the partition of the first one.
        offset: its offset.
    """

    rule: str
    records: int
    partition: int | None
    offset: int | None


class TopicCheck(msgspec.Struct, frozen=True, kw_only=True):
    """The records of a topic, compared with its contract.

    Args:
        topic: the topic.
        records: how many records were read.
        broken: how many of them break the contract.
        unreadable: how many the chain refused, dropped or held back, so that the contract did not see them.
        refusal: why the chain refused the first of them, with its position; None if it refused none.
        rules: the rules that are broken, the most frequent first.
    """

    topic: str
    records: int
    broken: int
    unreadable: int
    refusal: str | None = None
    rules: tuple[BrokenRule, ...]


def check_topic(
    settings: Mapping[str, Any], topic: str, contract: Contract, chain: Chain, *, count: int
) -> TopicCheck:
    """Compare the last records of each partition with a contract; nothing is committed or published.

    Args:
        settings: a client's settings.
        topic: the topic.
        contract: the contract; its ``on_failure`` and ``on_error`` do not matter.
        chain: the chain by which the records are read; its own contract, if any, is left out.
        count: how many records of each partition.

    Raises:
        ConfigError: the contract has no such topic, or the cluster.
    """
    if read_document(Path(contract.file))[0].channel_of(topic) is None:
        raise ConfigError(f"has no channel for topic {topic!r}", path=contract.file)
    marking = Contract(file=contract.file, registry=contract.registry, on_failure="mark")
    steps = in_order([[step for step in chain if not isinstance(step, Contract)], [marking]])
    found: dict[str, BrokenRule] = {}
    records = broken = unreadable = 0
    refusal: str | None = None
    with TopicReader(settings, topic, group_id="headerware-contract") as source:
        view = ChainView(
            Chain(steps), cluster_id=source.cluster_id, bootstrap_servers=bootstrap_servers(settings)
        )
        try:
            source.start(Start.parse(f"-{count}"))
            for batch in tailed(source, view):
                for each in batch:
                    records += 1
                    unreadable += each.outcome not in ("delivered", "waits")
                    if refusal is None and each.refusal is not None:
                        refusal = f"{topic}[{each.partition}]@{each.offset}: {each.refusal.reason}"
                    rules = [rule for record in each.application for rule in _marked(record.headers)]
                    broken += bool(rules)
                    for rule in rules:
                        before = found.get(rule)
                        if before is not None:
                            found[rule] = msgspec.structs.replace(before, records=before.records + 1)
                        elif len(found) < _MAX_RULES:
                            found[rule] = BrokenRule(
                                rule=rule, records=1, partition=each.partition, offset=each.offset
                            )
                if source.has_reached_the_end:
                    break
        finally:
            view.close()
    ordered = sorted(found.values(), key=lambda each: -each.records)
    return TopicCheck(
        topic=topic,
        records=records,
        broken=broken,
        unreadable=unreadable,
        refusal=refusal,
        rules=tuple(ordered),
    )


def _marked(headers: Any) -> tuple[str, ...]:
    return next((decode_broken_rules(value.beginning) for name, value in headers if name == MARK_HEADER), ())


# What a chain adds


def added_headers(chain: Chain, topic: str) -> tuple[str, ...]:
    """Return the headers that a chain adds to a record of a topic, by a record that is not sent.

    Steps that work on objects, observe or judge by a contract are left out. The chain is opened as a producer
    in a dry run, so its keys must be there.

    Raises:
        HeaderwareError: the chain cannot be opened here, or a step refuses the record.
    """
    steps = [
        step
        for step in chain
        if not precedes_bytes(step)
        and not isinstance(step, Contract)
        and (role_of(step) is not Role.OBSERVE or getattr(step, "type", None) == "trail")
    ]
    if not steps:
        return ()
    secret = {name: b"1" for step in steps if isinstance(step, Encrypt) for name in step.headers}
    session = Chain(steps).open(Context(side="producer", cluster_id=lambda: "probe", dry_run=True))
    try:
        sent = session.send([Record(topic, _PROBE, b"key", Headers(secret))])
    finally:
        session.close()
    found = dict.fromkeys(name for record in sent for name, _ in record.headers)
    return tuple(name for name in found if name not in secret)


# Two versions


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a contract that differs in another version.

    Args:
        place: the part: the fragment of a pointer.
        what: what has become of it.
        readers: whether readers by the old version can read what the new one allows.
        writers: whether what the old version allows is right in the new one.
    """

    place: str
    what: str
    readers: bool
    writers: bool


def changes(old: Document, new: Document) -> list[Change]:
    """Return the parts of a contract that differ in a new version."""
    before = {channel.address: channel for channel in old.channels}
    after = {channel.address: channel for channel in new.channels}
    found = [
        Change(place=fragment(each.pointer), what="the channel is gone", readers=False, writers=False)
        for address, each in before.items()
        if address not in after
    ]
    for address, each in after.items():
        if address not in before:
            what = "the channel is new"
            found.append(Change(place=fragment(each.pointer), what=what, readers=True, writers=True))
        else:
            found += _of_channel(old, before[address], new, each)
    return list(dict.fromkeys(found))  # a shared schema is once in the document


def _of_channel(old: Document, before: Channel, new: Document, after: Channel) -> Iterator[Change]:
    messages = {message.name: message for message in before.messages}
    left = {message.name: message for message in after.messages}
    for name, message in messages.items():
        if name not in left:
            what = "the message is gone"
            yield Change(place=fragment(message.pointer), what=what, readers=True, writers=False)
    for name, message in left.items():
        if name not in messages:
            what = "the message is new"
            yield Change(place=fragment(message.pointer), what=what, readers=False, writers=True)
        else:
            yield from _of_message(old, messages[name], new, message)


def _of_message(old: Document, before: Message, new: Document, after: Message) -> Iterator[Change]:
    if before.content_type != after.content_type:
        yield _narrowed(f"{after.pointer}/contentType", before.content_type, after.content_type)
    yield from _of_schema(f"{after.pointer}/headers", old, before.headers, new, after.headers)
    for name, mine, theirs in (
        ("bindings/kafka/key", before.key, after.key),
        ("payload", before.value, after.value),
    ):
        yield from _of_part(f"{after.pointer}/{name}", old, mine, new, theirs)
    rules = {rule.pointer.rpartition("/")[2]: rule for rule in before.rules}
    left = {rule.pointer.rpartition("/")[2]: rule for rule in after.rules}
    for name in dict.fromkeys([*rules, *left]):
        texts = [
            None if rule is None else named_by(document.tree, fragment(rule.pointer))
            for document, rule in ((old, rules.get(name)), (new, left.get(name)))
        ]
        if texts[0] != texts[1]:
            yield _narrowed((left.get(name) or rules[name]).pointer, *texts)


def _narrowed(pointer: str, before: Any, after: Any) -> Change:
    """Return the change of a requirement: None requires nothing, and two others are not compared."""
    what = "is gone" if after is None else "is new" if before is None else "is another"
    return Change(place=fragment(pointer), what=what, readers=before is None, writers=after is None)


def _of_part(
    pointer: str, old: Document, before: Part | None, new: Document, after: Part | None
) -> Iterator[Change]:
    if (before is None or before.json) and (after is None or after.json):
        yield from _of_schema(pointer, old, before and before.json, new, after and after.json)
        return
    canonical = [part and part.avro and part.avro.canonical for part in (before, after)]
    stated = [part and (part.unchecked or "avro") for part in (before, after)]
    if canonical[0] != canonical[1] or stated[0] != stated[1]:
        yield _narrowed(pointer, before, after)


def _of_schema(
    pointer: str, old: Document, before: JsonSchema | None, new: Document, after: JsonSchema | None
) -> Iterator[Change]:
    mine: Any = True if before is None else _inlined(old.tree, {"$ref": fragment(before.pointer)})
    theirs: Any = True if after is None else _inlined(new.tree, {"$ref": fragment(after.pointer)})
    if mine != theirs:
        readers, writers = _covers(mine, theirs), _covers(theirs, mine)
        place = fragment(pointer if after is None else after.pointer)
        yield Change(place=place, what="is another", readers=readers, writers=writers)


def _covers(wide: Any, narrow: Any) -> bool:
    """Return whether one schema surely allows all that is written by another."""
    jsonschema = library()
    forms = [
        jsonschema.canonicalize(schema, draft=jsonschema.Draft201909, validate_formats=True, offline=True)
        for schema in (wide, _closed(narrow))
    ]
    return str(forms[0].covers(forms[1])) == "yes"


def _inlined(tree: Any, node: Any) -> Any:
    """Return a schema without references; reading the document has bounded its size."""
    if isinstance(node, list):
        return [_inlined(tree, each) for each in node]
    if not isinstance(node, dict):
        return node
    if isinstance(node.get("$ref"), str):
        return _inlined(tree, named_by(tree, node["$ref"]))
    found: dict[str, Any] = {}
    for name, each in node.items():
        if name in TABLES and isinstance(each, dict):
            found[name] = {member: _inlined(tree, inner) for member, inner in each.items()}
        elif name in {"enum", "const"}:
            found[name] = each
        elif name not in _SILENT:
            found[name] = _inlined(tree, each)
    return found


_SILENT: Final = frozenset(
    {"title", "description", "examples", "example", "default", "definitions", "$comment"}
)
"""The keywords that allow and refuse nothing."""


def _closed(schema: Any) -> Any:
    """Return a schema that allows no members but those that it names, down to where it combines others."""
    if not isinstance(schema, dict) or not _COMBINING.isdisjoint(schema):
        return schema
    closed = dict(schema)
    if isinstance(schema.get("items"), dict):
        closed["items"] = _closed(schema["items"])
    if "properties" in schema:
        closed["properties"] = {name: _closed(each) for name, each in schema["properties"].items()}
        closed["additionalProperties"] = False
    return closed
