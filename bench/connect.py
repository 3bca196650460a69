"""Rows for Kafka Connect in Python: each transform, header converters and ``parse_string``.

The reference is Kafka Connect's own classes in the oracle of tests/connect_oracle, with ``--bench``: one warm
process takes a case of parsed JSON, makes the record, applies a transform that it has made before, and writes
the answer as JSON nodes. Ours is the transform, converter or parser alone, on a record that exists, as in a
chain. So the ratio does not compare Python with Java. For this, each row's note has two more rates: of Java
without JSON, in a JVM that optimises fully, and of ours from case to answer, with the tests' codec. The
transforms of headers also have a row of their own against Java without JSON.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from report import Row

sys.path.append(str(Path(__file__).resolve().parents[1]))  # where the tests' codec is
from headerware.connect.values import parse_string
from tests.connect_oracle.oracle import ConnectOracle
from tests.vectors.connect.classes import header_converter_of, transform_of
from tests.vectors.connect.codec import schema_of, value_of
from tests.vectors.connect.nodes import read_json
from tests.vectors.connect.operations import answer
from tests.vectors.connect.records import record_of

Case = dict[str, Any]
BAR: Final = "at least 1"
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
OF_HEADERS: Final = ("DropHeaders", "HeaderFrom$Value", "InsertHeader")
SCHEMALESS: Final = ("Cast$Value", "MaskField$Value", "ReplaceField$Value", "TimestampConverter$Value")
TEXTS: Final = (
    "north",
    "42",
    "1.5",
    "true",
    "2019-08-23T14:34:54.346Z",
    '["a","b"]',
    "00-0af7651916cd43dd-01",
)
VALUES: Final = (
    ("string", "north"),
    ("int64", 42),
    ("boolean", True),
    ("float64", {"t": "float64", "v": "1.5"}),
)
WIRE: Final = {"Simple": TEXTS, "String": TEXTS, "Json": ("42", '"north"', "[1,2,3]", '{"a":1}', "true")}


def rows(*, seconds: float) -> Iterator[Row]:
    """Measure all rows for Connect, each side of a row for this many seconds."""
    with tempfile.TemporaryDirectory() as folder, ConnectOracle(Path(folder)) as oracle:
        for work in (*_transforms(), *_header_converters(), _parse_string()):
            yield from _measured(oracle, work, seconds)


class Work(NamedTuple):
    """One measurement: its name, our own work, and the cases for the same work in Java."""

    name: str
    function: Callable[[Any], Any]
    items: list[Any]
    cases: list[Case]
    is_of_headers: bool = False


def _transforms() -> Iterator[Work]:
    given = [(kind, STRUCT, "with a schema") for kind in TRANSFORMS]
    given += [(kind, MAP, "schemaless") for kind in SCHEMALESS]
    for kind, record, what in given:
        case = {"op": "smt", "class": kind, "config": TRANSFORMS[kind], "record": record}
        parsed = read_json(json.dumps(case))
        apply = transform_of(parsed).apply
        records = [record_of(parsed["record"])]
        yield Work(f"Connect: {kind}, {what}", apply, records, [case], kind in OF_HEADERS)


def _header_converters() -> Iterator[Work]:
    for name, texts in WIRE.items():
        asked = {"converter": name, "config": {"schemas.enable": "false"} if name == "Json" else {}}
        converter = header_converter_of(asked)
        to = partial(_read, converter.to_connect_header)
        reads = [{**asked, "op": "header.to", "utf8": text} for text in texts]
        yield Work(f"Connect: {name} header converter, read", to, [text.encode() for text in texts], reads)
        writes = [
            {**asked, "op": "header.from", "schema": schema, "value": value} for schema, value in VALUES
        ]
        pairs = [(schema_of(schema), value_of(value)) for schema, value in VALUES]
        from_ = partial(_write, converter.from_connect_header)
        yield Work(f"Connect: {name} header converter, write", from_, pairs, writes)


def _read(read: Callable[..., Any], data: bytes) -> Any:
    return read("t", "h", data)


def _write(write: Callable[..., Any], pair: tuple[Any, Any]) -> Any:
    return write("t", "h", *pair)


def _parse_string() -> Work:
    cases = [{"op": "parseString", "s": text} for text in TEXTS]
    return Work("Connect: parse_string", partial(parse_string, mode="kafka_4_3"), list(TEXTS), cases)


def _over(function: Callable[[Any], Any], items: Any) -> Callable[[], int]:
    """Return a chunk of work: a function over all items."""

    def run() -> int:
        for item in items:
            function(item)
        return len(items)

    return run


def _measured(oracle: ConnectOracle, work: Work, seconds: float) -> Iterator[Row]:
    """Measure ours before and after the reference, and take the best of each."""
    ours = _over(work.function, work.items)
    before = _rate(ours, seconds / 2)
    reference = oracle.bench(work.cases, max(1, int(seconds * 50_000 / len(work.cases))))
    (java,) = oracle.rates([work.cases], int(seconds * 1_000))
    mine = max(before, _rate(ours, seconds / 2))
    from_case = _rate(_over(answer, [read_json(json.dumps(case)) for case in work.cases]), seconds / 2)
    note = (
        f"Java without JSON, optimised: {java:,.0f}, of which ours is {mine / java:.2f}; "
        f"ours from case to answer: {from_case:,.0f}"
    )
    yield Row(work.name, mine, reference, "a second", mine / reference, BAR, note)
    if work.is_of_headers:
        name = f"{work.name}, against Java without JSON"
        yield Row(name, mine, java, "a second", mine / java, note="a JVM that optimises fully")


def _rate(work: Callable[[], int], seconds: float) -> float:
    """Return the best rate of several short runs."""
    best = 0.0
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        began = time.perf_counter()
        units = sum(work() for _ in range(200))
        best = max(best, units / (time.perf_counter() - began))
    return best
