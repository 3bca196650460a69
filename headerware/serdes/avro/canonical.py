"""The canonical form of a schema, and its digests: what two ends agree on (spec/schema.md).

It is the Parsing Canonical Form of the Avro specification, which leaves out what does not decide how
bytes are read: documentation, aliases, defaults, order and spacing. The attributes of logical types stay
in, for two schemas that differ only in these give different values: ``logicalType``, and for decimals
``precision`` and a ``scale`` that is not 0, behind the others and in this order. Without logical types the
form, and so the digest, is the specification's own.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from headerware.serdes.stores.store import Algorithm

_RABIN_EMPTY: Final = 0xC15D213AA4D7A795


def canonical_form(tree: Any) -> str:
    """Write the canonical form of a schema.

    Args:
        tree: the schema as JSON values, with full names.
    """
    if isinstance(tree, str):
        return _text(tree)
    if isinstance(tree, list):
        return "[" + ",".join(map(canonical_form, tree)) + "]"
    members = [*_LAYOUTS.get(tree["type"], _primitive)(tree), *_logical(tree)]
    if len(members) == 1 and members[0][0] == "type":
        return members[0][1]
    return "{" + ",".join(f'"{name}":{value}' for name, value in members) + "}"


def digest(canonical: str, algorithm: Algorithm) -> bytes:
    """Digest a canonical form.

    Args:
        canonical: what :func:`canonical_form` gave.
        algorithm: MD5 and SHA-256 as they are; Rabin is Avro's CRC-64-AVRO as 8 bytes, big-endian.
    """
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
        f'{{"name":{_text(field["name"])},"type":{canonical_form(field["type"])}}}'
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
    yield "items", canonical_form(tree["items"])


def _map(tree: Any) -> Iterator[tuple[str, str]]:
    yield "type", '"map"'
    yield "values", canonical_form(tree["values"])


_LAYOUTS: Final[dict[str, Callable[[Any], Iterator[tuple[str, str]]]]] = {
    "array": _array,
    "enum": _enum,
    "error": _record,
    "fixed": _fixed,
    "map": _map,
    "record": _record,
}


def _logical(tree: Any) -> Iterator[tuple[str, str]]:
    """Return the attributes of a logical type; those that say nothing are left out."""
    logical = tree.get("logicalType")
    if not isinstance(logical, str):
        return
    yield "logicalType", _text(logical)
    if logical == "decimal":
        for name in ("precision", "scale"):
            if isinstance(tree.get(name), int) and tree[name]:
                yield name, str(int(tree[name]))


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
