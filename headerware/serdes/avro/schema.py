"""An Avro schema: its text, fastavro's parsed form, its canonical form and fingerprints (spec/schema.md).

The canonical form is the Parsing Canonical Form of the Avro specification. It leaves out all that does not
affect the reading of bytes: documentation, aliases, defaults, order and spacing. The attributes of logical
types are added, because two schemas that differ only in these read different values: ``logicalType``, and for
decimals ``precision`` and a ``scale`` that is not 0, after the other attributes and in this order. Without
logical types the form, and so the digest, is the specification's own.
"""

from __future__ import annotations

import hashlib
import json
from functools import lru_cache
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

import msgspec
from fastavro.schema import UnknownType, parse_schema

from headerware.core.errors import ConfigError, SerdeError, of_file
from headerware.core.plain_files import read_plain, require_json, why_unreadable
from headerware.serdes.avro.defaults import give_defaults_their_values
from headerware.serdes.avro.limits import MAX_DECIMAL_BYTES, Limits, is_decimal, survey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Algorithm = Literal["md5", "rabin", "sha256"]
"""The digest of a schema: MD5, Avro's 64-bit Rabin fingerprint (CRC-64-AVRO), or SHA-256."""

ALGORITHM_BYTES: Final[dict[Algorithm, int]] = {"md5": 1, "rabin": 2, "sha256": 3}
"""The number of each algorithm in the keys of topics."""
DIGEST_BYTES: Final[dict[Algorithm, int]] = {"md5": 16, "rabin": 8, "sha256": 32}
_FORGED: Final[dict[Algorithm, str]] = {
    "md5": "somebody who deposits schemas can make two schemas with one MD5 digest",
    "rabin": "another schema with the same Rabin fingerprint can be made in a moment",
}
_DEFAULT_LIMITS: Final = Limits()
_RABIN_EMPTY: Final = 0xC15D213AA4D7A795
_JSON_BEGINS: Final = ("{", "[", '"')
_MAX_FIXED_BYTES: Final = (1 << 31) - 1
_defaults_lock: Final = Lock()
_PARSED_MARKS: Final = ("__fastavro_parsed", "__named_schemas")
"""These tell fastavro that the schema is parsed, and its named types."""
_MAX_NAMES_CHARS: Final = 32 << 20
"""A schema of the default limit's size with a namespace of 100 characters stays below this."""
_CACHED_SCHEMAS: Final = 256
_CACHED_TEXT_BYTES: Final = 16 << 10
"""Longer texts are not cached, but parsed anew by each serde, so that the cache stays below 4 MiB."""


class Fingerprint(msgspec.Struct, frozen=True):
    """Identify a schema by the digest of its canonical form.

    Args:
        algorithm: the algorithm of the digest.
        digest: 16 bytes for MD5, 8 for Rabin (big-endian), 32 for SHA-256.
    """

    algorithm: Algorithm
    digest: bytes

    @classmethod
    def of(cls, schema_text: str, algorithm: Algorithm = "sha256") -> Fingerprint:
        """Return the fingerprint of a schema (spec/schema.md).

        Args:
            schema_text: the schema as JSON.
            algorithm: the algorithm of the digest.

        Raises:
            SerdeError: the text is not an Avro schema.
        """
        return AvroSchema.parsed(schema_text).fingerprint(algorithm)

    @property
    def code(self) -> bytes:
        """The algorithm's byte and the digest, as the keys of topics have them."""
        return bytes((ALGORITHM_BYTES[self.algorithm],)) + self.digest

    def __str__(self) -> str:
        return f"{self.algorithm} {self.digest.hex()}"


class Schema(msgspec.Struct, frozen=True):
    """Hold a schema as a store keeps it.

    Args:
        fingerprint: the fingerprint by which it is fetched.
        text: the schema as JSON; its canonical form has this fingerprint.
        name: the full name of the record, enumeration or fixed, for people; empty for other types.
    """

    fingerprint: Fingerprint
    text: str
    name: str = ""


class _Store(Protocol):
    def get(self, fingerprint: Fingerprint, /) -> str: ...


class BadSchemaError(SerdeError):
    """A text is not an Avro schema, or exceeds the limits.

    ``detail`` may quote the schema; it is for errors about configuration, not about records.
    """

    detail: str = ""


class AvroSchema:
    """A schema that has been checked; safe for use by several threads."""

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
                if node["name"] in self.named:  # fastavro does not check this across a union's branches
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
        self.canonical: Final = _canonical_form(self.tree)
        self._fingerprints: dict[Algorithm, Fingerprint] = {}
        self._has_defaults = False

    @classmethod
    def parsed(cls, text: str | bytes, limits: Limits = _DEFAULT_LIMITS) -> AvroSchema:
        """Parse a schema's text, or return it from the cache; raise BadSchemaError for a bad one."""
        if len(text) > limits.max_schema_bytes:
            raise BadSchemaError(
                f"the schema's text has {len(text)} bytes; the limit (max_schema_bytes) is "
                f"{limits.max_schema_bytes}"
            )
        return (_remembered if len(text) <= _CACHED_TEXT_BYTES else _made)(text, limits)

    @classmethod
    def of(cls, given: Any, limits: Limits = _DEFAULT_LIMITS) -> AvroSchema:
        """Return the schema for text, or for the dict or list of its JSON."""
        if isinstance(given, AvroSchema):
            return given
        if isinstance(given, str | bytes):
            return cls.parsed(given, limits)
        try:
            return cls.parsed(json.dumps(_unmarked(given)), limits)
        except (TypeError, ValueError, RecursionError) as error:
            raise _bad("is not JSON", error) from None

    @classmethod
    def fetched(cls, store: _Store, fingerprint: Fingerprint, limits: Limits = _DEFAULT_LIMITS) -> AvroSchema:
        """Fetch a schema from a store, and check its fingerprint."""
        found = cls.parsed(store.get(fingerprint), limits)
        actual = found.fingerprint(fingerprint.algorithm)
        if actual != fingerprint:
            raise SerdeError(
                f"the schema store holds, under {fingerprint}, a schema whose fingerprint is {actual}; "
                f"the schema is corrupt, or was deposited by software that computes other fingerprints"
            )
        return found

    def with_defaults(self) -> AvroSchema:
        """Convert the defaults to values, and return the schema itself.

        This is for schemas to write by, and for a reader's own schema. The defaults of a schema that came
        with a record are not needed, and small defaults can stand for very large values.
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
            found = self._fingerprints[algorithm] = Fingerprint(algorithm, _digest(self.canonical, algorithm))
        return found

    def deposit(self, algorithm: Algorithm) -> Schema:
        return Schema(self.fingerprint(algorithm), self.text, self.name)


def weakness(algorithm: Algorithm) -> str | None:
    """Return why a digest does not bind a signed record to its schema, or None if it does."""
    forged = _FORGED.get(algorithm)
    return forged and f"{forged}, so that signed bytes could be read as other values; use sha256"


def require_strong(fingerprint: Fingerprint, *, signed: bool) -> None:
    """Refuse a fingerprint that does not bind a signed record to its schema."""
    weak = weakness(fingerprint.algorithm) if signed else None
    if weak:
        raise SerdeError(
            f"the schema is named by its {fingerprint.algorithm} fingerprint, expected sha256 where records "
            f"are signed: {weak}"
        )


def _made(text: str | bytes, limits: Limits) -> AvroSchema:
    try:
        plain = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        raise _bad("is not JSON", error) from None
    _check_size(plain, limits)
    try:
        return AvroSchema(plain, limits)
    except BadSchemaError:
        raise
    except SerdeError as error:
        raise BadSchemaError(error.message) from None
    except UnknownType as error:
        raise _bad("is not an Avro schema: it uses a type that it does not define", error) from None
    except Exception as error:  # noqa: BLE001 - fastavro raises errors of many types
        raise _bad("is not an Avro schema", error) from None


_remembered: Final = lru_cache(_CACHED_SCHEMAS)(_made)


def _bad(problem: str, error: BaseException) -> BadSchemaError:
    refused = BadSchemaError(f"the schema's text {problem}")
    refused.detail = f"{type(error).__name__}: {error}"
    return refused


def _check_size(plain: Any, limits: Limits) -> None:
    """Refuse a schema that is too deep for recursion, or too long once its names are written in full.

    One level of Avro is up to three levels of JSON. A namespace is once in the text, but in each full name.
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
    """Return the length of the namespace that a type sets, at most."""
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
            raise BadSchemaError("the schema's text is not an Avro schema: it holds fastavro's own marks")
        return node.values()
    return node if isinstance(node, list) else ()


def _unmarked(given: Any) -> Any:
    """Remove fastavro's marks from a schema that it parsed."""
    if isinstance(given, list):
        return [_unmarked(member) for member in given]
    if isinstance(given, dict):
        return {name: value for name, value in given.items() if name not in _PARSED_MARKS}
    return given


def _parsed(plain: Any) -> Any:
    if not isinstance(plain, str | dict | list):
        raise BadSchemaError(f"the schema's text is not an Avro schema: a JSON {type(plain).__name__}")
    named: dict[str, Any] = {}
    tree = parse_schema(plain, named)
    for node in tree if isinstance(tree, list) else [tree]:
        if isinstance(node, dict):  # fastavro marks only records, and parses other types again for each value
            node.update(zip(_PARSED_MARKS, (True, named), strict=True))
            if isinstance(tree, list):
                named = {}  # fastavro merges the tables of all branches for each value; the first is complete
    return tree


def _nodes(tree: Any) -> Iterator[Any]:
    """Yield the types that are written out in a schema, from the outside in."""
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
    """Refuse errors that fastavro would report only with the first payload."""
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
    "enum": (_has_symbols, "an enumeration whose symbols are not a list of names"),
    "error": (_has_fields, "a record in which a field's name is not text, or occurs twice"),
    "fixed": (_is_size, "a fixed whose size is not a number of bytes, or is too large"),
    "record": (_has_fields, "a record in which a field's name is not text, or occurs twice"),
}


def _canonical_form(tree: Any) -> str:
    """Return the canonical form of a parsed schema, which has full names."""
    if isinstance(tree, str):
        return _text(tree)
    if isinstance(tree, list):
        return "[" + ",".join(map(_canonical_form, tree)) + "]"
    members = [*_LAYOUTS.get(tree["type"], _primitive)(tree), *_logical(tree)]
    if len(members) == 1 and members[0][0] == "type":
        return members[0][1]
    return "{" + ",".join(f'"{name}":{value}' for name, value in members) + "}"


def _digest(canonical: str, algorithm: Algorithm) -> bytes:
    """Digest a canonical form; Rabin is Avro's CRC-64-AVRO as 8 bytes, big-endian."""
    content = canonical.encode("utf-8", "surrogatepass")
    if algorithm == "rabin":
        return _rabin(content).to_bytes(8, "big")
    return hashlib.new(algorithm, content, usedforsecurity=False).digest()


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)


def _primitive(tree: Any) -> Iterator[tuple[str, str]]:
    yield "type", _text(tree["type"])


def _record(tree: Any) -> Iterator[tuple[str, str]]:
    fields = (
        f'{{"name":{_text(field["name"])},"type":{_canonical_form(field["type"])}}}'
        for field in tree["fields"]
    )
    yield "name", _text(tree["name"])
    yield "type", '"record"'
    yield "fields", "[" + ",".join(fields) + "]"


def _enum(tree: Any) -> Iterator[tuple[str, str]]:
    yield "name", _text(tree["name"])
    yield "type", '"enum"'
    yield "symbols", "[" + ",".join(map(_text, tree["symbols"])) + "]"


def _fixed(tree: Any) -> Iterator[tuple[str, str]]:
    yield "name", _text(tree["name"])
    yield "type", '"fixed"'
    yield "size", str(tree["size"])


def _array(tree: Any) -> Iterator[tuple[str, str]]:
    yield "type", '"array"'
    yield "items", _canonical_form(tree["items"])


def _map(tree: Any) -> Iterator[tuple[str, str]]:
    yield "type", '"map"'
    yield "values", _canonical_form(tree["values"])


_LAYOUTS: Final[dict[str, Callable[[Any], Iterator[tuple[str, str]]]]] = {
    "array": _array,
    "enum": _enum,
    "error": _record,
    "fixed": _fixed,
    "map": _map,
    "record": _record,
}


def _logical(tree: Any) -> Iterator[tuple[str, str]]:
    """Yield the attributes of a logical type, without attributes that are 0."""
    logical = tree.get("logicalType")
    if not isinstance(logical, str):
        return
    yield "logicalType", _text(logical)
    if logical == "decimal":
        for name in ("precision", "scale"):
            number = tree.get(name)
            if type(number) is int and number:  # JSON's true is not an integer, though it equals 1 in Python
                yield name, str(number)


def _rabin_table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = value >> 1 ^ (_RABIN_EMPTY if value & 1 else 0)
        table.append(value)
    return tuple(table)


_RABIN: Final = _rabin_table()


def _rabin(content: bytes) -> int:
    value = _RABIN_EMPTY
    for byte in content:
        value = value >> 8 ^ _RABIN[(value ^ byte) & 0xFF]
    return value


def schema_option(given: Any, limits: Limits, *, path: str) -> AvroSchema | None:
    """Return the schema of an option: JSON text, the path of a file, a dict or list, or None."""
    if given is None:
        return None
    try:
        return AvroSchema.of(_read(given, limits, path) if isinstance(given, str) else given, limits)
    except BadSchemaError as error:
        detail = f" ({error.detail})" if error.detail else ""
        where = f"{given}: " if isinstance(given, str) and not is_json(given) else ""
        raise ConfigError(f"{where}{error.message}{detail}", path=path) from None


def is_json(text: str) -> bool:
    """Return whether an option's text is a schema, not the path of a file."""
    return text.lstrip().startswith(_JSON_BEGINS)


def _read(text: str, limits: Limits, path: str) -> str:
    if is_json(text):
        return text
    try:
        found = read_plain(text, limits.max_schema_bytes)[0].decode()
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"cannot read {text}: {why_unreadable(text, error)}; "
            "expected a file with a schema, or the schema as JSON",
            path=path,
        ) from error
    with of_file(path):
        require_json(found, text)
    return found
