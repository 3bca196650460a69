"""Schemas and values, in the oracle's JSON."""

from __future__ import annotations

import struct
from base64 import b64encode
from typing import Any, Final

from hypothesis import strategies as st

from tests.property.connect import oracle_texts

Node = Any
Nodes = st.SearchStrategy[Any]

NAMES: Final = ("a", "b", "c", "a.b", "id", "ts", "x y", "ü")
DAY_MS: Final = 86_400_000
_LOGICAL: Final = "org.apache.kafka.connect.data."
_WIDTHS: Final = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
names: Final = st.sampled_from(NAMES)
"""Names of fields, few, so that configurations and records often agree."""


def typed(kind: str, values: st.SearchStrategy[Any]) -> Nodes:
    """Return values of a type."""
    return values.map(lambda value: {"t": kind, "v": value})


def _integers(bits: int) -> st.SearchStrategy[int]:
    low, high = -(1 << bits - 1), (1 << bits - 1) - 1
    return st.one_of(st.integers(-3, 3), st.sampled_from([low, high]), st.integers(low, high))


def _float32(value: float) -> Node:
    return {"t": "float32", "v": "", "bits": struct.pack(">f", value).hex()}


def _float64(value: float) -> Node:
    return {"t": "float64", "v": "", "bits": struct.pack(">d", value).hex()}


_round: Final = st.integers(-4_000, 4_000).map(lambda number: number / 8)
_millis: Final = st.one_of(
    st.integers(-3 * DAY_MS, 3 * DAY_MS),
    st.integers(-62_135_596_800_000, 253_402_300_799_999),
    st.integers(0, 2_000_000_000_000),
)
_strings: Final = st.one_of(
    st.sampled_from(["", "a", "true", "FALSE", "null", "42", "1.5", "é😀"]),
    oracle_texts.numbers,
    oracle_texts.times,
    oracle_texts.plain,
)


def decimals(scale: int) -> Nodes:
    """Return decimals of a scale."""
    digits = st.one_of(st.integers(-1_000, 1_000), st.integers(-(10**30), 10**30))
    return typed("decimal", digits.map(lambda unscaled: f"{unscaled}E{-scale}"))


_base64: Final = st.binary(max_size=6).map(lambda data: b64encode(data).decode())
SCALARS: Final[dict[str, Nodes]] = {
    **{kind: typed(kind, _integers(bits)) for kind, bits in _WIDTHS.items()},
    "float32": st.one_of(_round, st.floats(width=32)).map(_float32),
    "float64": st.one_of(_round, st.floats(), st.floats(-1e6, 1e6)).map(_float64),
    "boolean": typed("boolean", st.booleans()),
    "string": typed("string", _strings),
    "bytes": st.one_of(typed("bytes", _base64), typed("bytes", _base64), typed("bytebuffer", _base64)),
}
LOGICAL: Final[dict[str, Nodes]] = {
    "Date": typed("date", st.integers(-800_000, 2_900_000).map(DAY_MS.__mul__)),
    "Time": typed("date", st.integers(0, DAY_MS)),
    "Timestamp": typed("date", _millis),
    "Decimal(0)": decimals(0),
    "Decimal(2)": decimals(2),
}
_SIMPLE: Final = {**SCALARS, **LOGICAL}
_simple_kinds: Final = st.sampled_from([*_SIMPLE])
_loose: Final = st.one_of(
    *SCALARS.values(),
    *LOGICAL.values(),
    typed("bigint", st.integers(-(1 << 70), 1 << 70).map(str)),
    typed("date", _millis),
    st.integers(-5, 500),
)
_keys: Final = st.one_of(
    st.lists(names, max_size=3, unique=True), st.lists(st.integers(-2, 300), max_size=3, unique=True)
)


def _nested(inner: Nodes) -> Nodes:
    pairs = st.tuples(_keys, st.lists(inner, min_size=3, max_size=3)).map(
        lambda drawn: [[key, value] for key, value in zip(drawn[0], drawn[1], strict=False)]
    )
    return st.one_of(typed("array", st.lists(inner, max_size=3)), typed("map", pairs))


schemaless: Final[Nodes] = st.recursive(st.one_of(st.none(), _loose), _nested, max_leaves=5)
"""Any value without a schema, null too; no structs."""
maps: Final[Nodes] = st.lists(st.tuples(names, schemaless), max_size=4, unique_by=lambda pair: pair[0]).map(
    lambda pairs: {"t": "map", "v": [[name, value] for name, value in pairs]}
)
"""Maps with names for keys, as schemaless records have them."""


@st.composite
def schemas(draw: st.DrawFn, depth: int = 2) -> Node:
    """Return a schema."""
    kind = draw(st.integers(0, 9)) if depth else 0
    if kind < 6:
        return draw(_simple_schemas())
    if kind == 6:
        made = {"type": "array", "valueSchema": draw(schemas(depth - 1))}
    elif kind == 7:
        keys = draw(st.sampled_from(["string", "int32", "string", "boolean"]))
        made = {"type": "map", "keySchema": keys, "valueSchema": draw(schemas(depth - 1))}
    else:
        return draw(struct_schemas(depth))
    return {**made, "optional": draw(st.booleans())}


@st.composite
def _simple_schemas(draw: st.DrawFn) -> Node:
    kind = draw(_simple_kinds)
    shape = draw(st.integers(0, 5))
    if shape < 3 or kind in LOGICAL:
        return kind if shape % 2 else f"{kind}?"
    made: dict[str, Node] = {"type": kind, "optional": draw(st.booleans())}
    if shape == 3:
        made["default"] = draw(_SIMPLE[kind])
    elif shape == 4:
        made |= {"name": draw(st.sampled_from(["N", "n.s"])), "version": draw(st.integers(-1, 3))}
    else:
        made |= {"doc": "d", "parameters": {"p": "1", "b": "2"}}
    return made


@st.composite
def struct_schemas(draw: st.DrawFn, depth: int = 2) -> Node:
    """Return the schema of a struct."""
    chosen = draw(st.lists(names, max_size=4, unique=True))
    made: dict[str, Node] = {
        "type": "struct",
        "fields": [[name, draw(schemas(depth - 1))] for name in chosen],
        "optional": draw(st.booleans()),
    }
    if draw(st.booleans()):
        made |= draw(
            st.sampled_from([{"name": "S"}, {"version": 2}, {"name": "S", "version": 1, "doc": "d"}])
        )
    return made


def _word_of(schema: Node) -> str:
    return str(schema).removesuffix("?") if isinstance(schema, str) else schema["type"]


def _is_optional(schema: Node) -> bool:
    return schema.endswith("?") if isinstance(schema, str) else bool(schema.get("optional"))


@st.composite
def fitting(draw: st.DrawFn, schema: Node) -> Node:
    """Return a value that fits a schema; a null now and then where it may be one, or has a default."""
    may_be_null = _is_optional(schema) or (isinstance(schema, dict) and "default" in schema)
    if may_be_null and draw(st.integers(0, 3)) == 0:
        return None
    kind = _word_of(schema)
    if kind in _SIMPLE:
        return draw(_SIMPLE[kind])
    if kind == "array":
        elements = st.lists(fitting(schema["valueSchema"]), max_size=3)
        return {"t": "array", "v": draw(elements)}
    if kind == "map":
        keys = draw(st.lists(fitting(schema["keySchema"]), max_size=3, unique_by=str))
        return {"t": "map", "v": [[key, draw(fitting(schema["valueSchema"]))] for key in keys]}
    fields = {name: draw(fitting(field)) for name, field in schema["fields"]}
    return {"t": "struct", "schema": schema, "v": fields}


@st.composite
def with_schema(draw: st.DrawFn, given: Nodes | None = None) -> tuple[Node, Node]:
    """Return a schema and a value, which fits it as a rule."""
    schema = draw(schemas() if given is None else given)
    fits = draw(st.integers(0, 9)) > 0
    return schema, draw(fitting(schema) if fits else schemaless)
