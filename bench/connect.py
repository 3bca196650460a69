"""Rows for Kafka Connect in Python: each transform, header converters and ``parse_string``.

The reference is Kafka Connect's own classes, in the oracle of tests/connect_oracle and at its ``--bench``: in
one warm process it takes a case that is parsed JSON, makes the record, applies the transform, which it has
made before, and writes the answer as JSON nodes. Ours comes twice: ``apply`` is the transform alone, on a
record that is there, as it is in a chain; ``whole case`` is all that the reference does, by the tests' codec.
What the reference's transform takes of its time is estimated in the note, by a router that leaves the same
record as it is.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from report import Row

sys.path.append(str(Path(__file__).resolve().parents[1]))  # where the tests' codec is
from headerware.connect.values import parse_string
from tests.connect_oracle.oracle import ConnectOracle
from tests.vectors.connect.classes import header_converter_of, transform_of
from tests.vectors.connect.codec import schema_of, value_of
from tests.vectors.connect.nodes import bytes_of, read_json
from tests.vectors.connect.operations import answer
from tests.vectors.connect.records import record_of

Case = dict[str, Any]
BAR: Final = "at least 1"
ROUNDS: Final = 3
SCHEMA: Final = {
    "type": "struct",
    "name": "Order",
    "version": 1,
    "fields": [
        ["id", "int64"],
        ["customer", "string"],
        ["email", "string?"],
        ["amount", "float64"],
        ["items", "int32"],
        ["paid", "boolean"],
        ["at", "Timestamp"],
        ["address", {"type": "struct", "fields": [["street", "string"], ["city", "string"]]}],
    ],
}
FIELDS: Final = {
    "id": 4_711,
    "customer": "Ada",
    "email": "ada@example.org",
    "amount": {"t": "float64", "v": "19.99"},
    "items": {"t": "int32", "v": 3},
    "paid": True,
    "at": {"t": "date", "v": 1_495_384_265_387},
    "address": {"t": "struct", "schema": SCHEMA["fields"][7][1], "v": {"street": "Main", "city": "Paris"}},
}
HEADERS: Final = [
    {"key": "tenant", "schema": "string", "value": {"t": "string", "v": "north"}},
    {"key": "hops", "schema": "int32", "value": {"t": "int32", "v": 2}},
]
_REST: Final = {"topic": "orders", "partition": 3, "timestamp": 1_495_384_265_387, "headers": HEADERS}
STRUCT: Final = {
    **_REST,
    "valueSchema": SCHEMA,
    "value": {"t": "struct", "schema": SCHEMA, "v": FIELDS},
}
MAP: Final = {**_REST, "value": {**FIELDS, "address": {"street": "Main", "city": "Paris"}}}
TRANSFORMS: Final[dict[str, dict[str, str]]] = {
    "Cast$Value": {"spec": "amount:string,items:int64,id:string"},
    "DropHeaders": {"headers": "hops"},
    "ExtractField$Value": {"field": "customer"},
    "Filter": {},
    "Flatten$Value": {"delimiter": "_"},
    "HeaderFrom$Value": {"fields": "customer,items", "headers": "c,i", "operation": "move"},
    "HoistField$Value": {"field": "order"},
    "InsertField$Value": {
        "topic.field": "topic",
        "timestamp.field": "seen",
        "static.field": "by",
        "static.value": "me",
    },
    "InsertHeader": {"header": "origin", "value.literal": "north-7"},
    "MaskField$Value": {"fields": "email,customer"},
    "RegexRouter": {"regex": "(.*)ers", "replacement": "$1er"},
    "ReplaceField$Value": {"exclude": "email", "renames": "id:order_id"},
    "SetSchemaMetadata$Value": {"schema.name": "Purchase", "schema.version": "2"},
    "TimestampConverter$Value": {"field": "at", "target.type": "string", "format": "yyyy-MM-dd HH:mm:ss.SSS"},
    "TimestampRouter": {"topic.format": "${topic}-${timestamp}", "timestamp.format": "yyyyMMdd"},
    "ValueToKey": {"fields": "id,customer"},
}
SCHEMALESS: Final = ("Cast$Value", "MaskField$Value", "ReplaceField$Value", "TimestampConverter$Value")
LEAVES: Final = {"op": "smt", "class": "RegexRouter", "config": {"regex": "none", "replacement": "x"}}
TEXTS: Final = (
    "north",
    "42",
    "1.5",
    "true",
    "2019-08-23T14:34:54.346Z",
    '["a","b"]',
    "00-0af7651916cd43dd-01",
)
WIRE: Final = {"Simple": TEXTS, "String": TEXTS, "Json": ("42", '"north"', "[1,2,3]", '{"a":1}', "true")}


def rows(*, seconds: float) -> Iterator[Row]:
    """Measure all rows for Connect; each side gets so many seconds a row."""
    with tempfile.TemporaryDirectory() as folder, ConnectOracle(Path(folder)) as oracle:
        for kind, config in TRANSFORMS.items():
            yield from _transform(oracle, kind, config, STRUCT, "with a schema", seconds)
        for kind in SCHEMALESS:
            yield from _transform(oracle, kind, TRANSFORMS[kind], MAP, "schemaless", seconds)
        yield from _header_converters(oracle, seconds)
        cases = [{"op": "parseString", "s": text} for text in TEXTS]
        alone = _over(lambda text: parse_string(text, mode="kafka_4_3"), TEXTS)
        note = f"{len(TEXTS)} short texts of headers; the reference writes the answer, too"
        yield _row(oracle, "Connect: parse_string", alone, cases, note, seconds, BAR)


def _transform(
    oracle: ConnectOracle, kind: str, config: dict[str, str], record: Case, what: str, seconds: float
) -> Iterator[Row]:
    case = {"op": "smt", "class": kind, "config": config, "record": record}
    parsed = read_json(json.dumps(case))
    apply, given = transform_of(parsed).apply, record_of(parsed["record"])
    leaves = 1e6 / _reference(oracle, [{**LEAVES, "record": record}], seconds)
    whole = 1e6 / _reference(oracle, [case], seconds)
    note = (
        f"{what}; of the reference's {whole:.1f} us about {max(0.0, whole - leaves):.1f} are the transform's"
    )
    yield _row(oracle, f"Connect {kind}: apply, {what}", _over(apply, [given]), [case], note, seconds, BAR)
    yield _row(oracle, f"Connect {kind}: whole case, {what}", _over(answer, [parsed]), [case], "", seconds)


def _header_converters(oracle: ConnectOracle, seconds: float) -> Iterator[Row]:
    for name, texts in WIRE.items():
        reads = [
            {"op": "header.to", "converter": name, "utf8": text, "config": _config(name)} for text in texts
        ]
        converter, data = header_converter_of(reads[0]), [bytes_of(case) for case in reads]
        read = _over(lambda raw, own=converter: own.to_connect_header("t", "h", raw), data)
        note = f"{len(texts)} short headers; the reference writes the answer, too"
        yield _row(oracle, f"Connect {name} header converter: read", read, reads, note, seconds, BAR)
        pairs = [
            ("string", "north"),
            ("int64", 42),
            ("boolean", True),
            ("float64", {"t": "float64", "v": "1.5"}),
        ]
        writes = [
            {
                "op": "header.from",
                "converter": name,
                "schema": schema,
                "value": value,
                "config": _config(name),
            }
            for schema, value in pairs
        ]
        given = [(schema_of(schema), value_of(value)) for schema, value in pairs]
        write = _over(lambda pair, own=converter: own.from_connect_header("t", "h", *pair), given)
        note = f"{len(pairs)} scalars; the reference reads them from JSON and writes the answer, too"
        yield _row(oracle, f"Connect {name} header converter: write", write, writes, note, seconds, BAR)


def _config(name: str) -> dict[str, str]:
    return {"schemas.enable": "false"} if name == "Json" else {}


def _over(function: Callable[[Any], Any], items: Any) -> Callable[[], int]:
    """Give a chunk of work: a function over all items."""

    def run() -> int:
        for item in items:
            function(item)
        return len(items)

    return run


def _row(
    oracle: ConnectOracle,
    name: str,
    ours: Callable[[], int],
    cases: list[Case],
    note: str,
    seconds: float,
    bar: str = "",
) -> Row:
    """Measure ours before and after the reference, and take the best of each."""
    before = _rate(ours, seconds / 2)
    reference = _reference(oracle, cases, seconds)
    mine = max(before, _rate(ours, seconds / 2))
    return Row(name, mine, reference, "a second", mine / reference, bar, note)


def _reference(oracle: ConnectOracle, cases: list[Case], seconds: float) -> float:
    return oracle.bench(cases, max(1, int(seconds / ROUNDS * 150_000 / len(cases))))


def _rate(work: Callable[[], int], seconds: float) -> float:
    """Give the best rate of several short runs."""
    best = 0.0
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        began = time.perf_counter()
        units = sum(work() for _ in range(200))
        best = max(best, units / (time.perf_counter() - began))
    return best
