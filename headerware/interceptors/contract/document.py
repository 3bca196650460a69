"""Read AsyncAPI 3 documents, as YAML or JSON: which topics they describe, and what a topic's records must be.

A document is read as text that anybody may have written. It has a limit of size, depth, and schemas; ``$ref``
is followed within the document only, and nothing is fetched. A schema that refers to itself is refused,
because a record could then make it take exponential time.

YAML is read by the core schema of YAML 1.2, as AsyncAPI asks for: ``NO`` is text, and so is a date.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from itertools import product
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, NoReturn
from urllib.parse import unquote

from headerware.connect.expressions import CompiledExpression, Result
from headerware.core.errors import ConfigError, MissingPartError, SerdeError
from headerware.core.extras import install_command
from headerware.core.plain_files import read_plain, require_json, why_unreadable
from headerware.core.suggestions import did_you_mean
from headerware.core.topics import TopicPatterns, is_topic_name
from headerware.interceptors.contract.schemas import JsonSchema, SchemaBuilder, pointer_to
from headerware.serdes.avro.schema import AvroSchema
from headerware.serdes.content_types import parse_content_type

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

RULES: Final = "x-headerware-rules"
"""The extension of a channel or a message that has rules: a table of expressions by their names."""
_MAX_BYTES: Final = 1 << 20
_MAX_DEPTH: Final = 64
_MAX_VALUES: Final = 100_000
_MAX_REFERENCES: Final = 32
_MAX_RULES: Final = 100
_MAX_RULE_CHARACTERS: Final = 4_096
_MAX_PATTERNS_OF_ADDRESS: Final = 100
_JSON_TYPES: Final = re.compile(
    r"application/vnd\.aai\.asyncapi(?:\+json|\+yaml)?(?:;version=3\.[0-9.]+)?"
    r"|application/schema\+(?:json|yaml)(?:;version=draft-07)?"
)
_AVRO_TYPES: Final = re.compile(r"application/vnd\.apache\.avro(?:\+json|\+yaml)?(?:;version=1\.[0-9.]+)?")
_PARAMETER: Final = re.compile(r"\{([^{}]*)\}")


class Part(NamedTuple):
    """What a document says about the key or the value of records."""

    pointer: str
    json: JsonSchema | None = None
    avro: AvroSchema | None = None
    unchecked: str | None = None
    """The format of a schema that is not checked."""


class Rule(NamedTuple):
    """A rule that holds for a record if its expression is true."""

    pointer: str
    expression: CompiledExpression


class Message(NamedTuple):
    """One kind of records of a channel; its ``pointer`` says where the document has it."""

    name: str
    pointer: str
    content_type: str | None
    headers: JsonSchema | None
    key: Part | None
    value: Part | None
    rules: tuple[Rule, ...]
    tree: Mapping[str, Any]
    """The message as the document has it, with its traits."""


class Channel(NamedTuple):
    """The contract of one topic, or of the topics of a pattern."""

    name: str
    pointer: str
    address: str
    topics: TopicPatterns
    messages: tuple[Message, ...]


class Document(NamedTuple):
    """A document: its channels, in order."""

    title: str
    channels: tuple[Channel, ...]
    tree: Mapping[str, Any]
    """The document, in which channels have their messages, and messages their traits, in place."""

    def channel_of(self, topic: str) -> Channel | None:
        """Return the channel of a topic; one with exactly this address before one with parameters."""
        found = [channel for channel in self.channels if channel.topics.matches(topic)]
        return next((channel for channel in found if channel.address == topic), found[0] if found else None)


def read_document(path: Path) -> tuple[Document, tuple[Path, ...]]:
    """Read a document; return it with its files, which is this one.

    Raises:
        ConfigError: the file cannot be read, or is not an AsyncAPI 3 document; the message states where.
        MissingPartError: the packages of the extra ``contract`` are not installed.
    """
    try:
        text = read_plain(path, _MAX_BYTES)[0].decode()
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot be read: {why_unreadable(path, error)}", path=str(path)) from error
    return document_of(_parsed(text, str(path)), str(path)), (path,)


def document_of(tree: Any, source: str) -> Document:
    """Return a document; ``source`` names it in errors."""
    return _Reading(tree, source).document()


class _Node(NamedTuple):
    """A value in the document, after its references, and where it is."""

    pointer: str
    value: Any

    def child(self, name: str) -> _Node:
        inner = self.value.get(name) if isinstance(self.value, Mapping) else None
        return _Node(f"{self.pointer}{pointer_to([name])}", inner)


def _found(tree: Any) -> str:
    """Return what kind of a document there is in place of an AsyncAPI 3 document."""
    if not isinstance(tree, dict):
        return _kind(tree)
    for name, title in (("asyncapi", "AsyncAPI"), ("openapi", "OpenAPI"), ("swagger", "OpenAPI")):
        if name in tree:
            version = str(tree[name])
            shown = f" {version}" if re.fullmatch(r"[0-9.]{1,16}", version) else " of another version"
            return f"{title}{shown}" + "; AsyncAPI's own converter makes 3 of 2" * (name == "asyncapi")
    return "a JSON Schema alone; put it into the payload of a message" if "properties" in tree else "none"


class _Reading:
    def __init__(self, tree: Any, source: str) -> None:
        self._source = source
        _require_bounded(tree, self._refusal)
        if not isinstance(tree, dict) or not re.match(r"3\.", str(tree.get("asyncapi"))):
            raise self._refusal(
                "/asyncapi",
                f"expected an AsyncAPI document of version 3, such as 'asyncapi: 3.0.0'; "
                f"found {_found(tree)}",
            )
        self._tree: dict[str, Any] = tree
        self._rules = self._merged = 0

    def document(self) -> Document:
        channels = self._table(self._at("/channels"))
        merged = {name: self._with_messages(node) for name, node in channels.items()}
        self._tree = {**self._tree, "channels": {name: node.value for name, node in merged.items()}}
        self._schemas = SchemaBuilder(self._tree, self._refusal, self._target)
        nodes = {name: _Node(pointer_to(["channels", name]), node.value) for name, node in merged.items()}
        found = [channel for name, node in nodes.items() if (channel := self._channel(name, node))]
        title = self._at("/info").child("title").value
        return Document(title if isinstance(title, str) else "", tuple(found), self._tree)

    def _refusal(self, pointer: str, problem: str) -> ConfigError:
        return ConfigError(problem, path=f"{self._source}: #{pointer}")

    def _target(self, reference: str, pointer: str) -> _Node:
        """Return the value that a reference names."""
        if not reference.startswith("#/"):
            raise self._refusal(
                pointer, f"expected a reference into this document, '#/...', found {reference!r}"
            )
        try:
            return _Node(unquote(reference[1:]), named_by(self._tree, reference))
        except LookupError:
            hint = self._like(reference)
            raise self._refusal(pointer, f"the document has no {reference!r}{hint}") from None

    def _like(self, reference: str) -> str:
        """Return the end of a sentence with the reference that one to nothing may mean."""
        parent, _, name = reference.rpartition("/")
        try:
            beside = self._tree if parent == "#" else named_by(self._tree, parent)
        except LookupError:
            return ""
        names = [each for each in beside if isinstance(each, str)] if isinstance(beside, Mapping) else []
        return did_you_mean(name, names)

    def _follow(self, node: _Node) -> _Node:
        for _ in range(_MAX_REFERENCES):
            reference = node.value.get("$ref") if isinstance(node.value, Mapping) else None
            if not isinstance(reference, str):
                return node
            node = self._target(reference, node.pointer)
        raise self._refusal(node.pointer, f"more than {_MAX_REFERENCES} references follow each other")

    def _at(self, pointer: str) -> _Node:
        return self._follow(_Node(pointer, self._tree.get(pointer[1:], {})))

    def _table(self, node: _Node) -> dict[str, _Node]:
        """Return the members of a table, after their references."""
        node = self._follow(node)
        if node.value is None:
            return {}
        if not isinstance(node.value, Mapping):
            raise self._refusal(node.pointer, f"expected a table, found {_kind(node.value)}")
        return {name: self._follow(node.child(name)) for name in node.value}

    def _text(self, node: _Node) -> str | None:
        if node.value is None or isinstance(node.value, str):
            return node.value
        raise self._refusal(node.pointer, f"expected text, found {_kind(node.value)}")

    def _with_messages(self, node: _Node) -> _Node:
        """Return a channel with its messages in place of references to them, and their traits merged."""
        self._table(node)
        messages = {
            name: self._with_traits(each) for name, each in self._table(node.child("messages")).items()
        }
        return _Node(node.pointer, {**(node.value or {}), "messages": messages})

    def _with_traits(self, node: _Node) -> dict[str, Any]:
        self._table(node)
        value = node.value or {}
        traits = value.get("traits") or []
        if not isinstance(traits, list):
            raise self._refusal(f"{node.pointer}/traits", f"expected a list, found {_kind(traits)}")
        merged: dict[str, Any] = {}
        for index, trait in enumerate(traits):
            found = self._follow(_Node(f"{node.pointer}/traits/{index}", trait))
            if self._table(found):
                merged = self._patched(merged, found)
        own = {name: each for name, each in value.items() if name != "traits"}
        return self._patched(merged, _Node(node.pointer, own))

    def _patched(self, target: Any, patch: _Node) -> dict[str, Any]:
        """Return a JSON Merge Patch (RFC 7386), by which AsyncAPI merges traits."""
        merged = dict(target) if isinstance(target, Mapping) else {}
        self._merged += len(merged) + len(patch.value)
        if self._merged > _MAX_VALUES:
            raise self._refusal(
                patch.pointer, f"traits are merged into messages more than {_MAX_VALUES:,} times"
            )
        for name, value in patch.value.items():
            if value is None:
                merged.pop(name, None)
            elif isinstance(value, Mapping) and name in merged:
                merged[name] = self._patched(merged[name], patch.child(name))
            else:
                merged[name] = value
        return merged

    def _channel(self, name: str, node: _Node) -> Channel | None:
        kafka = self._follow(self._follow(node.child("bindings")).child("kafka"))
        address = self._text(kafka.child("topic")) or self._text(node.child("address"))
        if address is None:
            return None  # of a reply, whose topic is known at run time only
        rules = self._rules_of(node)
        found = self._table(node.child("messages"))
        messages = [self._message(each, message, rules) for each, message in found.items()]
        return Channel(name, node.pointer, address, self._topics(address, node), tuple(messages))

    def _topics(self, address: str, node: _Node) -> TopicPatterns:
        """Return the topics of an address; a parameter is one of its values, or any text."""
        parameters = self._table(node.child("parameters"))
        parts: list[list[str]] = []
        total = 1
        for index, part in enumerate(_PARAMETER.split(address)):
            stated = parameters[part].child("enum").value if index % 2 and part in parameters else None
            values = stated or [part if index % 2 == 0 else "?*"]
            if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
                raise self._refusal(
                    node.child("parameters").pointer, "expected the values of enum to be texts"
                )
            parts.append(values)
            total *= len(values)
        if total > _MAX_PATTERNS_OF_ADDRESS:
            raise self._refusal(
                node.pointer, f"the address stands for {total} names, {_MAX_PATTERNS_OF_ADDRESS} at most"
            )
        patterns = ["".join(each) for each in product(*parts)]
        for pattern in patterns:
            if not is_topic_name(pattern.replace("?*", "x")):
                raise self._refusal(
                    node.child("address").pointer, f"{address!r} is not the name of a topic of Kafka"
                )
        return TopicPatterns(patterns)

    def _message(self, name: str, node: _Node, of_channel: tuple[Rule, ...]) -> Message:
        content_type = self._text(node.child("contentType")) or self._text(self._default_content_type())
        if content_type is not None:
            try:
                parse_content_type(content_type)
            except SerdeError as error:
                raise self._refusal(node.child("contentType").pointer, error.message) from None
        headers = self._part(node.child("headers"))
        if headers is not None and headers.json is None:
            raise self._refusal(headers.pointer, "expected a JSON Schema of the headers")
        kafka = self._follow(self._follow(node.child("bindings")).child("kafka"))
        return Message(
            name,
            node.pointer,
            content_type,
            None if headers is None else headers.json,
            self._part(kafka.child("key")),
            self._part(node.child("payload")),
            (*of_channel, *self._rules_of(node)),
            node.value,
        )

    def _default_content_type(self) -> _Node:
        return _Node("/defaultContentType", self._tree.get("defaultContentType"))

    def _part(self, node: _Node) -> Part | None:
        """Return the schema of a part, which may name its format (a multi-format schema)."""
        if node.value is None:
            return None
        node = self._follow(node)
        stated = self._text(node.child("schemaFormat"))
        if stated is not None:
            node = self._follow(node.child("schema"))
        form = (stated or "application/schema+json").replace(" ", "").lower()
        if _JSON_TYPES.fullmatch(form):
            return Part(node.pointer, json=self._schemas.schema(node.pointer, node.value))
        if not _AVRO_TYPES.fullmatch(form):
            return Part(node.pointer, unchecked=stated)
        try:
            return Part(node.pointer, avro=AvroSchema.parsed(json.dumps(node.value)))
        except SerdeError as error:
            raise self._refusal(node.pointer, error.message) from None

    def _rules_of(self, node: _Node) -> tuple[Rule, ...]:
        return tuple(self._rule(rule) for rule in self._table(node.child(RULES)).values())

    def _rule(self, node: _Node) -> Rule:
        text = self._text(node)
        self._rules += 1
        if text is None or len(text) > _MAX_RULE_CHARACTERS or self._rules > _MAX_RULES:
            raise self._refusal(
                node.pointer,
                f"expected at most {_MAX_RULES} rules of at most {_MAX_RULE_CHARACTERS} characters each",
            )
        path = f"{self._source}: #{node.pointer}"
        expression = CompiledExpression(text, result=Result.BOOLEAN, path=path)
        if "all_headers" in expression.reads:
            raise self._refusal(
                node.pointer, "a rule reads headers, which a contract has once each, not all_headers"
            )
        return Rule(node.pointer, expression)


def named_by(tree: Any, reference: str) -> Any:
    """Return the value that a reference into a document names; raise LookupError if there is none."""
    node = tree
    for part in unquote(reference[2:]).split("/"):
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(node, list):
            node = node[int(name) if name.isdecimal() else len(node)]
        else:
            node = (node if isinstance(node, Mapping) else {})[name]
    return node


def _kind(value: Any) -> str:
    names: Mapping[type, str] = {dict: "a table", list: "a list", str: "text"}
    return names.get(type(value), "a plain value")


def _require_bounded(tree: Any, refusal: Callable[[str, str], ConfigError]) -> None:
    """Refuse a document that is too deep or too large once its YAML aliases are written in full."""
    level, values = [tree], 0
    for _ in range(_MAX_DEPTH):
        values += len(level)
        if odd := next((type(node).__name__ for node in level if type(node) not in _TYPES), None):
            raise refusal("", f"expected the values of JSON only, found one of type {odd}")
        level = [child for node in level for child in _below(node)]
        if not level:
            return
        if values + len(level) > _MAX_VALUES:
            raise refusal("", f"the document has more than {_MAX_VALUES:,} values")
    raise refusal("", f"the document nests deeper than {_MAX_DEPTH} levels")


_TYPES: Final = frozenset({dict, list, str, int, float, bool, type(None)})


def _below(node: Any) -> Iterator[Any]:
    if isinstance(node, list):
        yield from node
    elif isinstance(node, dict):
        yield from node.values()


def _parsed(text: str, source: str) -> Any:
    if text.lstrip().startswith("{"):
        try:
            return json.loads(text, object_pairs_hook=_members, parse_constant=_refuse_constant)
        except (json.JSONDecodeError, RecursionError):
            require_json(text, source)  # it says where
            raise
        except ValueError as error:
            raise ConfigError(f"is not JSON: {error}", path=source) from None
    yaml = yaml_module()
    try:
        return yaml.load(text, Loader=_loader())
    except yaml.MarkedYAMLError as error:
        problem = ConfigError(f"is not YAML: {error.problem or error.context}", path=source)
        if error.problem_mark is None:
            raise problem from None
        mark = error.problem_mark
        raise problem.located(source, mark.line + 1, mark.column + 1) from None
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"is not YAML: {error}", path=source) from None
    except RecursionError:
        raise ConfigError("is not YAML: it is nested too deeply", path=source) from None


def yaml_module() -> Any:
    """Return the package PyYAML."""
    try:
        return import_module("yaml")
    except ImportError as error:
        command = install_command("contract")
        raise MissingPartError(f"contracts in YAML need the package pyyaml: {command}") from error


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name occurs twice in one table")
    return found


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number of JSON")


@cache
def _loader() -> Any:
    """Return the class that loads YAML by the core schema of YAML 1.2, and refuses a key that is repeated."""
    yaml = yaml_module()

    class Loader(yaml.SafeLoader):  # type: ignore[misc, name-defined]  # its module is found at run time
        """A loader whose resolvers are set below."""

        yaml_implicit_resolvers: ClassVar[dict[str, list[tuple[str, re.Pattern[str]]]]] = {}

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002 - its base's
            names = [str(name.value) for name, _ in node.value]
            problem = "a name occurs twice in one table" if len(set(names)) < len(names) else None
            if "<<" in names:
                problem = "merge keys (<<) are not part of YAML 1.2"
            if problem is not None:
                raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
            found: dict[Any, Any] = super().construct_mapping(node, deep)
            return {str(key): value for key, value in found.items()}

    for tag, pattern, first in _CORE_SCHEMA:
        Loader.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(rf"(?:{pattern})\Z"), list(first))
    return Loader


_CORE_SCHEMA: Final = (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"[-+]?[0-9]{1,18}", "-+0123456789"),
    ("float", r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", "-+.0123456789"),
)
"""The plain values that are not text: tag, pattern, and the characters with which they begin."""
