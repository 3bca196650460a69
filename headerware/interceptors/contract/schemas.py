"""JSON Schemas of a document: compiled once, with bounds of what a record can make them cost.

jsonschema-rs validates, because it matches regular expressions in linear time (others are refused), fetches
nothing, says where the failed rule is, and takes 0.5 us for ten headers; fastjsonschema takes 18 us, and
matches by backtracking. AsyncAPI's schemas are of draft 07. They are validated as draft 2019-09, which knows
``uuid`` and ``duration`` as formats; keywords beside ``$ref`` are left out, as draft 07 ignores them.

Three things could take for ever, and are bounded here:

    a schema           its parts, with those that ``$ref`` names, are counted; one that refers to itself is
                       refused, because each level of a record could double the work
    a record           its bytes times the parts of the schema are limited; above the limit it fails
    an explanation     the library lists every failure below anyOf and oneOf, so it explains only small
                       records; for others, the failure is that of the schema as a whole
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote

from headerware.core.errors import ConfigError, MissingPartError
from headerware.core.extras import install_command

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

_DOCUMENT: Final = "urn:headerware:contract"
_META_SCHEMA: Final = "http://json-schema.org/draft-07/schema#"
_MAX_PARTS: Final = 20_000
"""The most parts of one schema, and a tenth of those of all schemas of a document."""
_MAX_DEPTH: Final = 64
_MAX_PATTERNS: Final = 200
_MAX_PATTERN_BYTES: Final = 1 << 20
"""The most memory of a compiled regular expression."""
_MAX_WORK: Final = 1 << 30
"""The most bytes of a value, times the parts of its schema: less than half a minute."""
_SMALL_PARTS: Final = 200
"""The most parts of a schema for which the headers of a record are never too large."""
_MAX_EXPLAINED: Final = 1 << 18
"""The same for a value whose failures are explained."""
_MAX_FAILURES: Final = 8
TABLES: Final = frozenset({"properties", "patternProperties", "dependencies", "dependentSchemas"})
"""The keywords whose members are schemas by name."""
_PLAIN: Final = frozenset({"enum", "const", "default", "examples", "example"})
"""The keywords whose values are not schemas, whatever they look like."""
_STORES: Final = frozenset({"definitions", "$defs"})
"""The keywords whose members count where a reference names them."""
_REFUSED: Final = frozenset(
    {"$id", "$anchor", "$recursiveAnchor", "$recursiveRef", "$dynamicRef"}
    | {"unevaluatedItems", "unevaluatedProperties"}
)
"""Keywords that could name another schema in other ways than by its place in the document, and keywords that
draft 07 does not have and that take exponential time if they are nested."""
_CHOICES: Final = frozenset({"anyOf", "oneOf"})


class Failure(NamedTuple):
    """A rule that a record breaks: its JSON pointer in the document, and the place in the record."""

    rule: str
    place: str


class JsonSchema:
    """A schema; safe for use by several threads."""

    __slots__ = (
        "_has_choices",
        "_names",
        "_parts",
        "_validator",
        "is_valid",
        "pointer",
        "properties",
        "root",
    )

    def __init__(
        self,
        pointer: str,
        validator: Any,
        *,
        parts: int,
        has_choices: bool,
        names: Collection[str],
        root: Mapping[str, Any],
        properties: Mapping[str, Mapping[str, Any]],
    ) -> None:
        self.root: Final = root
        """The schema itself, after its references; empty for true and false."""
        self.pointer: Final = pointer
        """Where the document has it."""
        self.properties: Final = properties
        """Its members by name, each after its references."""
        self._validator: Final = validator
        is_small = parts <= _SMALL_PARTS
        self.is_valid: Final[Callable[[Any], bool]] = validator.is_valid if is_small else _not_known
        """Whether headers are valid. It may raise ValueError, and of a large schema it returns False."""
        self._parts: Final = parts
        self._has_choices: Final = has_choices
        self._names: Final = names

    def holds(self, value: Any, size_bytes: int) -> bool:
        """Return whether a value that was read from so many bytes is valid."""
        try:
            return size_bytes * self._parts <= _MAX_WORK and self._validator.is_valid(value) is True
        except ValueError:  # a value that JSON cannot have, such as half a surrogate pair
            return False

    def failures(self, value: Any, size_bytes: int, part: str) -> list[Failure]:
        """Return the rules that an invalid value breaks; they name no part of the value.

        Args:
            value: the value.
            size_bytes: how many bytes it was read from.
            part: what it is, for the places.
        """
        errors: list[Any] = []
        work = size_bytes * self._parts
        try:
            if work <= _MAX_EXPLAINED:
                errors = list(islice(self._validator.iter_errors(value), _MAX_FAILURES))
            elif work <= _MAX_WORK and not self._has_choices:
                self._validator.validate(value)
        except ValueError as error:
            errors = [error] if hasattr(error, "schema_path") else []
        found = [Failure(pointer_to(error.schema_path), self._place(part, error)) for error in errors]
        return found or [Failure(self.pointer, part)]

    def _place(self, part: str, error: Any) -> str:
        """Return a place; a name that the document does not have may be a secret of the record."""
        steps = [*error.instance_path]
        if type(error.kind).__name__.endswith("Required"):
            steps.append(error.kind.property)
        shown = (step if isinstance(step, int) or step in self._names else "*" for step in steps)
        return " ".join([part, "/".join(map(str, shown))]).rstrip()


def _not_known(_: Any) -> bool:
    return False


class SchemaBuilder:
    """Compile the schemas of a document.

    Args:
        tree: the document.
        refusal: returns the error for a place in the document.
        target: returns the place and the value that a reference names; it takes the reference and its place.

    Raises:
        MissingPartError: jsonschema-rs is not installed.
    """

    def __init__(
        self,
        tree: Any,
        refusal: Callable[[str, str], ConfigError],
        target: Callable[[str, str], tuple[str, Any]],
    ) -> None:
        self._library: Final = library()
        self._refusal: Final = refusal
        self._target: Final = target
        self._registry: Final = self._library.Registry(
            [(_DOCUMENT, _with_lone_references(tree))], draft=self._library.Draft201909
        )
        self._known: dict[str, _Weight] = {}
        self._open: set[str] = set()
        self._total = 0
        self._patterns = 0

    def schema(self, pointer: str, schema: Any) -> JsonSchema:
        """Return the compiled schema at a place of the document."""
        weight = self._at(pointer, schema, 0)
        self._total += weight.parts
        if self._total > 10 * _MAX_PARTS:
            raise self._refusal(pointer, f"the schemas have more than {10 * _MAX_PARTS:,} parts together")
        library = self._library
        try:
            validator = library.Draft201909Validator(
                {"$ref": f"{_DOCUMENT}{fragment(pointer)}"},
                registry=self._registry,
                validate_formats=True,
                pattern_options=library.RegexOptions(size_limit=_MAX_PATTERN_BYTES),
                mask="a value",
                offline=True,
            )
        except ValueError as error:
            raise self._refusal(pointer, f"is not a JSON Schema: {_reason(error)}") from None
        root = self._followed(schema, pointer)
        members = {name: self._followed(each, pointer) for name, each in root.get("properties", {}).items()}
        return JsonSchema(
            pointer,
            validator,
            parts=weight.parts,
            has_choices=weight.has_choices,
            names=weight.names,
            root=root,
            properties=members,
        )

    def _followed(self, schema: Any, pointer: str) -> dict[str, Any]:
        while isinstance(schema, dict) and "$ref" in schema:  # it ends: _weigh has followed it
            pointer, schema = self._target(schema["$ref"], pointer)
        return schema if isinstance(schema, dict) else {}

    def _at(self, pointer: str, schema: Any, depth: int) -> _Weight:
        """Return the weight of the schema at a place, and refuse what is not a schema."""
        if pointer in self._open:
            raise self._refusal(pointer, "the schema refers to itself; a record could make it take for ever")
        if pointer in self._known:
            return self._known[pointer]
        if not isinstance(schema, dict | bool):
            raise self._refusal(pointer, f"expected a schema, found a {type(schema).__name__}")
        if isinstance(schema, dict):
            try:
                self._library.meta.validate({**schema, "$schema": _META_SCHEMA})
            except ValueError as error:
                raise self._refusal(pointer, f"is not a JSON Schema: {_reason(error)}") from None
        self._open.add(pointer)
        found = self._known[pointer] = self._weigh(pointer, schema, depth, is_schema=True)
        self._open.discard(pointer)
        return found

    def _weigh(self, pointer: str, node: Any, depth: int, *, is_schema: bool) -> _Weight:
        """Return the weight of a part of a schema: of a schema, or of a table or list of them."""
        if depth > _MAX_DEPTH:
            raise self._refusal(pointer, f"the schema nests deeper than {_MAX_DEPTH} levels")
        if isinstance(node, list):
            return _sum(self._weigh(pointer, each, depth + 1, is_schema=is_schema) for each in node)
        if not isinstance(node, dict):
            return _Weight()
        if is_schema and isinstance(node.get("$ref"), str):
            return self._at(*self._target(node["$ref"], pointer), depth + 1)
        if is_schema and (names := _REFUSED.intersection(node)):
            raise self._refusal(pointer, f"a contract's schemas have no keyword {min(names)}")
        self._patterns += is_schema and "pattern" in node
        self._patterns += len(node.get("patternProperties", ())) if is_schema else 0
        if self._patterns > _MAX_PATTERNS:
            raise self._refusal(pointer, f"the document has more than {_MAX_PATTERNS} regular expressions")
        parts = [
            _Weight(1, is_schema and not _CHOICES.isdisjoint(node), frozenset() if is_schema else {*node})
        ]
        for name, each in node.items():
            if is_schema and name in _STORES:
                continue
            if is_schema and name in _PLAIN:
                parts.append(_Weight(_size(each)))
                continue
            is_table = is_schema and name in TABLES
            parts.append(self._weigh(pointer, each, depth + 1, is_schema=not is_table))
        found = _sum(parts)
        if found.parts > _MAX_PARTS:
            raise self._refusal(pointer, f"the schema has more than {_MAX_PARTS:,} parts")
        return found


def _with_lone_references(node: Any) -> Any:
    """Return a document in which nothing is beside a reference."""
    if isinstance(node, list):
        return [_with_lone_references(each) for each in node]
    if not isinstance(node, dict):
        return node
    if isinstance(node.get("$ref"), str):
        return {"$ref": node["$ref"]}
    return {name: each if name in _PLAIN else _with_lone_references(each) for name, each in node.items()}


class _Weight(NamedTuple):
    """How many parts a schema has, whether it has choices, and the names of its properties."""

    parts: int = 1
    has_choices: bool = False
    names: Collection[str] = frozenset()


def _sum(weights: Any) -> _Weight:
    found = list(weights)
    return _Weight(
        1 + sum(each.parts for each in found),
        any(each.has_choices for each in found),
        frozenset().union(*(each.names for each in found)),
    )


def _size(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + sum(map(_size, inner))


def library() -> Any:
    """Return the package jsonschema-rs."""
    try:
        import jsonschema_rs  # noqa: PLC0415 - of the extra
    except ImportError as error:
        raise MissingPartError(
            f"contracts need the package jsonschema-rs: {install_command('contract')}"
        ) from error
    return jsonschema_rs


def pointer_to(path: Iterable[Any]) -> str:
    """Return the JSON pointer of a path (RFC 6901)."""
    return "".join(f"/{str(step).replace('~', '~0').replace('/', '~1')}" for step in path)


def fragment(pointer: str) -> str:
    """Return a JSON pointer as a URI's fragment: ASCII without spaces (RFC 6901, section 6)."""
    return f"#{quote(pointer, safe=_UNQUOTED)}"


_UNQUOTED: Final = "/~!$&'()*+,;=:@?"


def _reason(error: Any) -> str:
    """Return the first line of an error about a schema; a document is no secret."""
    where = pointer_to(getattr(error, "instance_path", ()))
    text = getattr(error, "message", str(error)).partition("\n")[0]
    return f"{where}: {text}" if where else text
