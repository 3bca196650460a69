"""An Avro schema: its text, what fastavro made of it, its canonical form and its fingerprints."""

from __future__ import annotations

import json
from functools import lru_cache
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

import msgspec
from fastavro.schema import UnknownType, parse_schema

from headerware.core.errors import SerdeError
from headerware.serdes.avro.canonical import canonical_form, digest
from headerware.serdes.avro.defaults import give_defaults_their_values
from headerware.serdes.avro.limits import MAX_DECIMAL_BYTES, Limits, is_decimal, survey
from headerware.serdes.stores.store import Fingerprint, Schema

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headerware.serdes.stores.store import Algorithm, SchemaStore

DEFAULT_LIMITS: Final = Limits()
_MAX_FIXED_BYTES: Final = (1 << 31) - 1
_defaults_lock: Final = Lock()
_PARSED_MARKS: Final = ("__fastavro_parsed", "__named_schemas")
"""Whoever sets these tells fastavro that there is nothing left to check, and what the named types are."""
_MAX_NAMES_CHARS: Final = 32 << 20
"""By policy; a schema of the largest size by default, with a namespace of 100 characters, stays below."""
_CACHED_SCHEMAS: Final = 256
_CACHED_TEXT_BYTES: Final = 16 << 10
"""Longer texts are parsed each time they are new to a serde, so that the cache stays below 4 MiB of them."""


class BadSchemaError(SerdeError):
    """A text that is no Avro schema, or one that asks for too much.

    ``detail`` may quote the schema; it is for errors about configuration, not about records.
    """

    detail: str = ""


class AvroSchema:
    """A schema that has been checked; safe for use by several threads.

    Attributes:
        text: the schema as JSON, without needless spaces.
        tree: what fastavro works with.
        named: the named types in it, by full name.
        name: its full name; empty where it has none.
        shape: how far payloads can be trusted.
        limits: what it was checked against.
    """

    __slots__ = (
        "_fingerprints",
        "_has_defaults",
        "canonical",
        "limits",
        "name",
        "named",
        "shape",
        "text",
        "tree",
    )

    def __init__(self, plain: Any, limits: Limits) -> None:
        self.text: Final[str] = msgspec.json.encode(plain).decode()
        self.tree: Final[Any] = _parsed(plain)
        self.named: Final[dict[str, Any]] = {}
        widest = 0
        for node in _nodes(self.tree):
            _check(node)
            widest = max(widest, len(node) if isinstance(node, list) else 0)
            if isinstance(node, dict) and "name" in node:
                if node["name"] in self.named:  # a union's branches each begin anew in fastavro
                    raise BadSchemaError("the schema defines one name twice")
                self.named[node["name"]] = node
        if max(widest, len(self.named)) > limits.max_named_types:
            raise BadSchemaError(
                f"the schema defines {len(self.named)} named types and has unions of up to {widest} "
                f"branches; the limit (max_named_types) is {limits.max_named_types} of each"
            )
        self.name: Final[str] = self.tree.get("name", "") if isinstance(self.tree, dict) else ""
        self.limits: Final = limits
        self.shape: Final = survey(self.tree, self.named, limits)
        self.canonical: Final = canonical_form(self.tree)
        self._fingerprints: dict[Algorithm, Fingerprint] = {}
        self._has_defaults = False

    @classmethod
    def parsed(cls, text: str | bytes, limits: Limits = DEFAULT_LIMITS) -> AvroSchema:
        """Parse a schema's text; what was parsed lately is remembered.

        Args:
            text: the schema as JSON.
            limits: what it may ask for.

        Raises:
            BadSchemaError: it is too large, no JSON, no Avro schema, or asks for too much.
        """
        if len(text) > limits.max_schema_bytes:
            raise BadSchemaError(
                f"the schema's text has {len(text)} bytes; the limit (max_schema_bytes) is "
                f"{limits.max_schema_bytes}"
            )
        return (_remembered if len(text) <= _CACHED_TEXT_BYTES else _made)(text, limits)

    @classmethod
    def of(cls, given: Any, limits: Limits = DEFAULT_LIMITS) -> AvroSchema:
        """Take a schema as code has it: text, or the dict or list that the JSON stands for.

        Raises:
            BadSchemaError: it is no Avro schema.
        """
        if isinstance(given, AvroSchema):
            return given
        if isinstance(given, str | bytes):
            return cls.parsed(given, limits)
        try:
            return cls.parsed(json.dumps(_unmarked(given)), limits)
        except (TypeError, ValueError, RecursionError) as error:
            raise _bad("is no JSON", error) from None

    @classmethod
    def fetched(
        cls, store: SchemaStore, fingerprint: Fingerprint, limits: Limits = DEFAULT_LIMITS
    ) -> AvroSchema:
        """Fetch a schema from a store, and check that it is the one.

        Raises:
            UnknownSchemaError: the store does not have it.
            SerdeError: the store is out of reach, or holds another schema under this fingerprint.
        """
        found = cls.parsed(store.get(fingerprint), limits)
        actual = found.fingerprint(fingerprint.algorithm)
        if actual != fingerprint:
            raise SerdeError(
                f"the schema store holds, under {fingerprint}, a schema whose fingerprint is {actual}; "
                f"it is corrupt, or was deposited by what digests schemas in another way"
            )
        return found

    def with_defaults(self) -> AvroSchema:
        """Return the schema itself, once its defaults are values.

        It is for schemas to write by and a reader's own. In a schema that came with a record nobody asks for
        defaults, and small ones can stand for very large values.
        """
        with _defaults_lock:
            if not self._has_defaults:
                give_defaults_their_values(self.named)
                self._has_defaults = True
        return self

    def fingerprint(self, algorithm: Algorithm) -> Fingerprint:
        """Return the digest of the canonical form."""
        found = self._fingerprints.get(algorithm)
        if found is None:
            found = self._fingerprints[algorithm] = Fingerprint(algorithm, digest(self.canonical, algorithm))
        return found

    def deposit(self, algorithm: Algorithm) -> Schema:
        """Return it as a store takes it."""
        return Schema(self.fingerprint(algorithm), self.text, self.name)


def _made(text: str | bytes, limits: Limits) -> AvroSchema:
    try:
        plain = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        raise _bad("is no JSON", error) from None
    _check_size(plain, limits)
    try:
        return AvroSchema(plain, limits)
    except BadSchemaError:
        raise
    except SerdeError as error:
        raise BadSchemaError(error.message) from None
    except UnknownType as error:
        raise _bad("is no Avro schema: it uses a type that it does not define", error) from None
    except Exception as error:  # noqa: BLE001 - fastavro raises whatever its first wrong step meets
        raise _bad("is no Avro schema", error) from None


_remembered: Final = lru_cache(_CACHED_SCHEMAS)(_made)


def _bad(problem: str, error: BaseException) -> BadSchemaError:
    refused = BadSchemaError(f"the schema's text {problem}")
    refused.detail = f"{type(error).__name__}: {error}"
    return refused


def _check_size(plain: Any, limits: Limits) -> None:
    """Refuse what is too deep to be followed by recursion, or too long once names are full.

    One level of Avro is up to three of JSON. A namespace stands once in the text, and in each name within.
    """
    level, nodes, namespace = [plain], 0, 0
    for _ in range(3 * limits.max_depth):
        nodes += len(level)
        namespace = max(namespace, *map(_namespace_chars, level))
        level = [child for node in level for child in _below(node)]
        if not level:
            break
    else:
        raise BadSchemaError(f"the schema nests more than {limits.max_depth} deep, the limit (max_depth)")
    if nodes * namespace > _MAX_NAMES_CHARS:
        raise BadSchemaError(
            f"the schema's names, written in full, may have more than {_MAX_NAMES_CHARS} characters"
        )


def _namespace_chars(node: Any) -> int:
    """Tell how long the namespace is, at most, that a type sets."""
    if not isinstance(node, dict):
        return 0
    name, namespace = node.get("name"), node.get("namespace")
    return max(
        len(name) if isinstance(name, str) and "." in name else 0,
        len(namespace) if isinstance(namespace, str) else 0,
    )


def _below(node: Any) -> Any:
    if isinstance(node, dict):
        if any(mark in node for mark in _PARSED_MARKS):
            raise BadSchemaError("the schema's text is no Avro schema: it holds fastavro's own marks")
        return node.values()
    return node if isinstance(node, list) else ()


def _unmarked(given: Any) -> Any:
    """Take fastavro's marks off a schema that it parsed."""
    if isinstance(given, list):
        return [_unmarked(member) for member in given]
    if isinstance(given, dict):
        return {name: value for name, value in given.items() if name not in _PARSED_MARKS}
    return given


def _parsed(plain: Any) -> Any:
    if not isinstance(plain, str | dict | list):
        raise BadSchemaError(f"the schema's text is no Avro schema: a JSON {type(plain).__name__}")
    named: dict[str, Any] = {}
    tree = parse_schema(plain, named)
    for node in tree if isinstance(tree, list) else [tree]:
        if isinstance(node, dict):  # fastavro marks records only, and would parse all others with each value
            node.update(zip(_PARSED_MARKS, (True, named), strict=True))
            if isinstance(tree, list):
                named = {}  # fastavro merges those of all branches for each value; the first brings them all
    return tree


def _nodes(tree: Any) -> Iterator[Any]:
    """Go through the types that stand in a schema, from the outside in."""
    yield tree
    if isinstance(tree, list):
        inner = tree
    elif isinstance(tree, str):
        return
    else:
        inner = [tree[name] for name in ("items", "values") if tree["type"] in _HOLDS.get(name, ())]
        if tree["type"] in {"record", "error"}:
            inner = [field["type"] for field in tree["fields"]]
    for node in inner:
        yield from _nodes(node)


_HOLDS: Final = {"items": ("array",), "values": ("map",)}


def _check(node: Any) -> None:
    """Refuse what fastavro lets pass, and would stumble over with the first payload."""
    if isinstance(node, list):
        if any(isinstance(branch, list) for branch in node):
            raise BadSchemaError("the schema has a union in a union")
    elif isinstance(node, dict):
        rule = _RULES.get(node["type"])
        if rule is not None and not rule[0](node):
            raise BadSchemaError(f"the schema has {rule[1]}")


def _is_size(node: Any) -> bool:
    size = node["size"]
    most = MAX_DECIMAL_BYTES if is_decimal(node) else _MAX_FIXED_BYTES
    return isinstance(size, int) and not isinstance(size, bool) and 0 <= size <= most


def _has_symbols(node: Any) -> bool:
    symbols = node["symbols"]
    return isinstance(symbols, list) and all(isinstance(symbol, str) for symbol in symbols)


def _has_fields(node: Any) -> bool:
    names = [field["name"] for field in node["fields"]]
    return all(isinstance(name, str) for name in names) and len(names) == len(set(names))


_RULES: Final = {
    "enum": (_has_symbols, "an enumeration whose symbols are no list of names"),
    "error": (_has_fields, "a record with a field's name that is no text, or there twice"),
    "fixed": (_is_size, "a fixed whose size is no number of bytes, or too large"),
    "record": (_has_fields, "a record with a field's name that is no text, or there twice"),
}
