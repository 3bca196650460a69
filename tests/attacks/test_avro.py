"""What hostile payloads, schemas and objects can do to Avro: be refused, quickly and in little memory."""

from __future__ import annotations

import collections
import datetime as dt
import json
import re
import threading
import time
import tracemalloc
import types
import uuid
from array import array as array_of_numbers
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.schema_registry import Schema as ConfluentSchema
from confluent_kafka.schema_registry import SchemaRegistryClient, SchemaRegistryError

from headerware.core.chain import Chain
from headerware.core.context import Context
from headerware.core.errors import HeldBackError, SerdeError, UnknownSchemaError
from headerware.core.headers import EMPTY, Headers
from headerware.core.record import Record
from headerware.interceptors import Schema as SchemaStep
from headerware.interceptors import Serialize
from headerware.serdes.avro.schema import AvroSchema, Fingerprint, Schema
from headerware.serdes.avro.serde import Avro
from headerware.serdes.confluent.serde import ConfluentAvro
from headerware.serdes.schema_header import encode_mark
from headerware.serdes.serde import SerdeContext
from headerware.serdes.stores.folder import FolderSchemas
from headerware.serdes.stores.schema_registry import RegistrySchemas
from tests.unit.serdes import conftest
from tests.waiting import until
from tests.work import counted, cpu_within

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from headerware.core.session import Session

LINK = {"type": "record", "name": "Link", "fields": [{"name": "next", "type": ["null", "Link"]}]}
TREE = {
    "type": "record",
    "name": "Tree",
    "fields": [{"name": "in", "type": {"type": "array", "items": "Tree"}}],
}
DATE = {"type": "int", "logicalType": "date"}
ID = uuid.UUID(int=7)
SECRET = "hunter2-4711"
record = partial(conftest.record, name="R")


def number(value: int) -> bytes:
    """Write a long as Avro does."""
    zigzag, out = value << 1 ^ value >> 63, bytearray()
    while zigzag > 0x7F:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    return bytes((*out, zigzag))


_opened: list[Any] = []


def opened(schema: Any = None, **options: Any) -> Any:
    _opened.append(Avro(schema=schema, **options).open(SerdeContext()))
    return _opened[-1]


@pytest.fixture(autouse=True)
def _all_closed() -> Iterator[None]:
    """Close what a test opened."""
    yield
    while _opened:
        _opened.pop().close()


def read(schema: Any, payload: bytes, **options: Any) -> Any:
    return opened(schema, **options).deserialize("t", EMPTY, payload)[0]


def array(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def refused(attack: Callable[[], Any], match: str, *, calls: int = 3_000_000) -> SerdeError:
    """Run an attack, which must be refused within so many calls and 32 MiB."""
    tracemalloc.start()
    try:
        with counted() as work, pytest.raises(SerdeError, match=match) as caught:
            attack()
        assert work.calls < calls
        assert tracemalloc.get_traced_memory()[1] < 32 << 20
    finally:
        tracemalloc.stop()
    return caught.value


@pytest.fixture
def small_stack() -> Iterator[Callable[[Callable[[], Any]], Any]]:
    """Return what runs a function in a thread with the 512 KiB of stack that macOS gives them."""
    before = threading.stack_size(512 << 10)

    def run(function: Callable[[], Any]) -> Any:
        found: list[Any] = []
        thread = threading.Thread(target=lambda: found.append(function()))
        thread.start()
        thread.join()
        return found[0]

    yield run
    threading.stack_size(before)


class TestHostilePayloads:
    @pytest.mark.parametrize(
        ("schema", "payload", "match"),
        [
            ('"string"', number(10) + b"abc", "is truncated"),
            ('"string"', number(1 << 40) + b"abc", "is truncated"),
            ('"bytes"', number(-5) + b"abc", "is truncated"),
            ('"bytes"', b"", "is truncated"),
            ('"double"', b"\0" * 7, "is truncated"),
            ({"type": "fixed", "name": "F", "size": (1 << 31) - 1}, b"abc", "is truncated"),
            ('"string"', number(2) + b"\xff\xff", "not UTF-8"),
            ('["null", "int"]', number(7), "branch or symbol"),
            ({"type": "enum", "name": "E", "symbols": ["A"]}, number(9), "branch or symbol"),
            ('"long"', number(1) + b"\0", "has 1 more bytes"),
            (array("int"), number(1 << 40) + b"ab", "more than 1000000 values|is truncated"),
            (array("int"), number(-(1 << 40)) + number(8) + b"ab", "more than 1000000 values|is truncated"),
            (
                {"type": "map", "values": "int"},
                number(1 << 40) + b"ab",
                "more than 1000000 values|is truncated",
            ),
            ({"type": "int", "logicalType": "date"}, number((1 << 31) - 1), "range"),
            ({"type": "long", "logicalType": "timestamp-millis"}, number(1 << 60), "range"),
        ],
    )
    def test_what_is_no_payload_of_its_schema(self, schema: Any, payload: bytes, match: str) -> None:
        refused(lambda: read(schema, payload), match)

    @pytest.mark.parametrize("schema", [LINK, TREE], ids=["unions", "arrays"])
    @pytest.mark.parametrize("depth", [200, 100_000])
    def test_nesting_that_would_overflow_the_stack(self, schema: Any, depth: int) -> None:
        refused(lambda: read(schema, b"\x02" * depth + b"\0" * depth), "nests more than 128 deep")

    @pytest.mark.parametrize(
        ("kind", "rest"),
        [
            ("string", number(9) + b"ab"),
            ("double", b""),
            ("boolean", b""),
            ({"type": "fixed", "name": "F", "size": 1_000_000}, b"abc"),
            (array("string"), number(-1) + number(99) + b"\0"),
        ],
    )
    def test_a_cut_in_what_the_readers_schema_leaves_out(self, kind: Any, rest: bytes) -> None:
        """What a reader's schema does not have is skipped, and has to be there all the same."""
        headers = Headers([("avro.schema", json.dumps(record(("a", "int"), ("b", kind))).encode())])
        reader = opened(reader_schema=record(("a", "int")))
        refused(lambda: reader.deserialize("t", headers, b"\x02" + rest), "is truncated")

    @pytest.mark.parametrize("key", [b"", number(1) + b"k"], ids=["array", "map"])
    def test_a_block_that_lies_about_its_size_where_it_is_left_out(self, key: bytes) -> None:
        """fastavro would skip to the end of the stated size, and read ten million nulls there."""
        skipped = {"type": "map", "values": "int"} if key else array("int")
        written = record(("skipped", skipped), ("nulls", array("null")))
        wanted = record(("nulls", array("null")))
        item, ends = key + number(5), number(0) + number(0)
        hidden = number(0) + number(10_000_000) + number(0)

        def payload(size: int) -> bytes:
            return number(-1) + number(size) + item + ends

        assert read(written, payload(len(item)), reader_schema=wanted) == {"nulls": []}
        attack = payload(len(item + ends)) + hidden
        refused(lambda: read(written, attack, reader_schema=wanted), "a block of . bytes, but its items have")

    def test_nesting_up_to_the_limit(self, small_stack: Callable[[Callable[[], Any]], Any]) -> None:
        value: Any = None
        for _ in range(63):
            value = {"next": value}
        serde = opened(LINK)
        payload, headers = small_stack(lambda: serde.serialize("t", EMPTY, value))
        assert small_stack(lambda: serde.deserialize("t", headers, payload))[0] == value
        refused(lambda: serde.serialize("t", EMPTY, {"next": {"next": value}}), "nests more than 128 deep")

    def test_the_depth_is_an_option(self) -> None:
        payload = b"\x02" * 9 + b"\0"
        assert read(LINK, payload, max_depth=20)["next"]
        refused(lambda: read(LINK, payload, max_depth=19), "nests more than 19 deep")

    @pytest.mark.parametrize(
        "items",
        ["null", record(name="Empty"), {"type": "fixed", "name": "None", "size": 0}, record(("a", "null"))],
        ids=["null", "empty record", "empty fixed", "record of null"],
    )
    @pytest.mark.parametrize("count", [number(1 << 40), number(-(1 << 40)) + number(0)])
    def test_items_that_take_no_bytes(self, items: Any, count: bytes) -> None:
        refused(lambda: read(array(items), count + b"\0"), "more than 1000000 values")

    def test_few_items_that_take_no_bytes_are_fine(self) -> None:
        assert read(array("null"), number(3) + b"\0") == [None, None, None]
        assert read(array("null"), number(-2) + number(0) + number(1) + b"\0") == [None, None, None]

    def test_bytes_that_stand_for_many_values_each(self) -> None:
        wide = record(*((f"f{index}", "null") for index in range(1000)), ("b", "boolean"))
        payload = number(5000) + b"\x01" * 5000 + b"\0"
        refused(lambda: read(array(wide), payload), "stands for more than 330192 values")
        assert len(read(array(wide), number(5) + b"\x01" * 5 + b"\0")) == 5

    def test_values_that_a_readers_defaults_add(self) -> None:
        wide = record(name="R")
        wide["fields"] = [{"name": f"f{index}", "type": "int", "default": index} for index in range(100)]
        writer = json.dumps(array(record(name="R"))).encode()
        headers = Headers([("avro.schema", writer)])
        reader = opened(reader_schema=array(wide))
        assert len(reader.deserialize("t", headers, number(9) + b"\0")[0][8]) == 100
        refused(lambda: reader.deserialize("t", headers, number(9_990) + b"\0"), "more than 1000000 values")

    def test_the_number_of_values_is_an_option(self) -> None:
        payload = number(100) + b"\x02" * 100 + b"\0"
        assert len(read(array("int"), payload, max_values=101)) == 100
        refused(lambda: read(array("int"), payload, max_values=100), "more than 100 values")

    def test_decimals_that_take_minutes(self) -> None:
        money = {"type": "bytes", "logicalType": "decimal", "precision": 1 << 30, "scale": 2}
        huge = number(1_000_000) + b"\x7f" * 1_000_000
        refused(lambda: read(money, huge), "a decimal of 1000000 bytes; the limit is 1024")
        refused(
            lambda: read(record(("m", ["null", array(money)])), b"\x02\x02" + huge + b"\0"),
            "the limit is 1024",
        )
        assert read(money, number(1024) + b"\0" * 1023 + b"\x07") == Decimal("0.07")
        assert read({"type": "bytes"}, huge) == huge[-1_000_000:]
        fixed = {"type": "fixed", "name": "F", "size": 1_000_000, "logicalType": "decimal", "precision": 9}
        refused(
            lambda: opened().deserialize("t", Headers([("avro.schema", json.dumps(fixed).encode())]), huge),
            "large",
        )

    @pytest.mark.parametrize(
        ("payload", "match"),
        [
            (b"\x04", "names choice 2, but its schema has 2"),
            (b"\x01", "names choice -1"),
            (b"\x02" * 20, "is truncated"),
            (b"\xff" * 5, "is truncated"),
            (b"\xff" * 50, "more than 10 bytes"),
        ],
    )
    def test_garbage_under_a_schema_that_holds_itself(self, payload: bytes, match: str) -> None:
        refused(lambda: read(LINK, payload), match)

    def test_errors_hold_nothing_of_the_payload(self) -> None:
        text = SECRET.encode()
        for schema, payload in [
            ('"string"', number(len(text) + 1) + text + b"\xff"),
            ('"string"', number(len(text) + 9) + text),
            ('"string"', number(len(text)) + text + text),
        ]:
            error = refused(partial(read, schema, payload), "payload")
            assert SECRET not in str(error)
            assert error.__cause__ is None
            assert error.__suppress_context__ or error.__context__ is None

    def test_the_stream_goes_on(self) -> None:
        serde = opened(LINK)
        for _ in range(3):
            refused(lambda: serde.deserialize("t", EMPTY, b"\x02" * 100_000), "deep")
            assert serde.deserialize("t", EMPTY, b"\x02\0")[0] == {"next": {"next": None}}


def nested(depth: int) -> Any:
    schema: Any = "null"
    for _ in range(depth):
        schema = array(schema)
    return schema


def laughs(count: int) -> Any:
    """Make a schema whose one value is made of 2**count, and takes no byte."""
    inner = record(("x", "null"), name="R0")
    for index in range(1, count):
        inner = record(("a", inner), ("b", f"R{index - 1}"), name=f"R{index}")
    return inner


def chained(count: int) -> Any:
    """Make a schema that nests by names only."""
    links = [record(("n", ["null", f"C{index + 1}"]), name=f"C{index}") for index in range(count)]
    last = record(name=f"C{count}")
    return [last, *reversed(links)]


def _namespaced(where: str) -> bytes:
    """Make a schema whose names, each with the namespace that they stand in, are gigabytes."""
    schema = record(*((f"f{index}", record(name=f"R{index}")) for index in range(8000)))
    schema[where] = "n" * 300_000 + (".R" if where == "name" else "")
    return json.dumps(schema, separators=(",", ":")).encode()


class TestHostileSchemas:
    @pytest.mark.parametrize(
        ("text", "match"),
        [
            (b" " * (2 << 20), "limit .max_schema_bytes. is 1048576"),
            (b"[" * 100_000, "is not JSON"),
            (b'{"type":"array","items":' * 20_000 + b'"null"' + b"}" * 20_000, "is not JSON|deep"),
            (json.dumps(nested(200)).encode(), "nests more than 128 deep"),
            (json.dumps(chained(200)).encode(), "nests more than 128 deep"),
            (json.dumps(laughs(60)).encode(), "one value of the schema contains more than 1000000"),
            (json.dumps(array(laughs(60))).encode(), "one value of the schema contains more than 1000000"),
            (json.dumps([LINK, {**record(), "name": "Link"}]).encode(), "one name twice"),
            (json.dumps(record(("r", "R"))).encode(), "always contains itself"),
            (
                json.dumps(record(("s", record(("t", record(("u", "R"), name="T")), name="S")))).encode(),
                "always contains itself",
            ),
            (b'{"__fastavro_parsed": true, "type": "nonsense"}', "fastavro's own marks"),
            (b'[{"__fastavro_parsed": true, "__named_schemas": {}, "type": "x"}]', "fastavro's own marks"),
            (b'{"type": "fixed", "name": "F", "size": -1}', "size is not a number"),
            (
                b'{"type": "fixed", "name": "F", "size": 99999999999999999999}',
                "size is not a number",
            ),
            (b'{"type": "fixed", "name": "F", "size": true}', "size is not a number"),
            (b'{"type": "enum", "name": "E", "symbols": "AB"}', "symbols are not a list"),
            (b'{"type": "record", "name": "R", "fields": 5}', "not an Avro schema"),
            (b'{"type": "record", "name": 5, "fields": []}', "not an Avro schema"),
            (b'{"type": {"type": {"type": "int"}}}', "not an Avro schema"),
            (b'[["null"]]', "a union in a union"),
            (b'{"type": "array"}', "not an Avro schema"),
            (b"null", "not an Avro schema"),
            (b"\xff\xfe", "is not JSON"),
            (b"", "is not JSON"),
            (_namespaced("namespace"), "names, written in full"),
            (_namespaced("name"), "names, written in full"),
        ],
    )
    def test_a_header_with_what_is_no_good_schema(self, text: bytes, match: str) -> None:
        refused(lambda: opened().deserialize("t", Headers([("avro.schema", text)]), b""), match)

    def test_their_errors_hold_nothing_of_the_header(self) -> None:
        for text in (f'"{SECRET}"', f'{{"type": "{SECRET}"}}', f'{{"{SECRET}": 1}}', f"[{SECRET}"):
            headers = Headers([("avro.schema", text.encode())])
            error = refused(partial(opened().deserialize, "t", headers, b""), "schema")
            assert SECRET not in str(error)
            assert error.__suppress_context__

    @pytest.mark.parametrize(
        ("text", "match"),
        [
            (
                json.dumps([{"type": "fixed", "name": f"F{i}", "size": 1} for i in range(17_000)]),
                "defines 17000 named types .* limit .max_named_types. is 4096",
            ),
            (json.dumps(["int"] * 68_000), "unions of up to 68000 branches; the limit .max_named_types."),
        ],
    )
    def test_more_types_than_the_limit_are_refused(self, text: str, match: str) -> None:
        headers = Headers([("avro.schema", text.encode())])
        refused(lambda: opened().deserialize("t", headers, b"\0\0"), match)

    @pytest.mark.parametrize(
        ("schema", "payload"),
        [
            ([{"type": "enum", "name": f"E{i}", "symbols": ["A"]} for i in range(4096)], b"\0\0"),
            ([record(name=f"R{i}") for i in range(4096)], b"\0"),
            (["int", *({"type": "fixed", "name": f"F{i}", "size": 1} for i in range(4095))], b"\0\0"),
            (record(("u", [record(name=f"R{i}") for i in range(4094)]), name="U"), b"\0"),
            (["int"] * 4096, b"\0\0"),
            ({"type": "enum", "name": "E", "symbols": [f"S{i}" for i in range(60_000)]}, b"\0"),
            (record(*((f"f{i}", "null") for i in range(9_000))), b""),
        ],
    )
    @pytest.mark.parametrize("resolved", [False, True])
    def test_the_largest_take_little_time_with_each_record(
        self,
        schema: Any,
        payload: bytes,
        resolved: bool,  # noqa: FBT001 - parametrized
    ) -> None:
        wanted = [*(schema if isinstance(schema, list) else [schema]), "string"]
        serde = opened(reader_schema=wanted if resolved else None, max_named_types=5000)
        headers = Headers([("avro.schema", json.dumps(schema, separators=(",", ":")).encode())])
        serde.deserialize("t", headers, payload)
        with cpu_within(0.1):  # where each branch brought the names of all, one record took half a second
            for _ in range(20):
                serde.deserialize("t", headers, payload)

    @pytest.mark.parametrize(
        ("schema", "payload"),
        [
            (array(record(*((f"f{i}", "null") for i in range(1000)))), number(900) + number(0)),
            (array("null"), number(900_000) + number(0)),
            (laughs(19), b""),
        ],
    )
    def test_values_that_take_no_bytes_are_few(self, schema: Any, payload: bytes) -> None:
        refused(lambda: read(schema, payload), "stands for more than 1[0-9]{4} values")

    def test_many_types_survey_quickly(self) -> None:
        many = [
            record(*((f"f{field}", "int") for field in range(5)), name=f"M{index}") for index in range(4000)
        ]
        with counted() as work:
            AvroSchema.parsed(json.dumps(many))
        assert work.calls < 5_000_000

    def test_a_flood_of_schemas_is_not_remembered(self) -> None:
        serde = opened()
        padding = " " * 500_000

        def flood(first: int, count: int) -> None:
            for index in range(first, first + count):
                text = f'{{"type": "enum", "name": "E", "symbols": ["S{index}"],{padding}"doc": ""}}'.encode()
                assert serde.deserialize("t", Headers([("avro.schema", text)]), b"\0")[0] == f"S{index}"

        flood(0, 20)
        tracemalloc.start()
        flood(20, 60)
        assert tracemalloc.get_traced_memory()[0] < 20 << 20
        tracemalloc.stop()

    def test_a_store_that_holds_another_schema_under_a_fingerprint(self, tmp_path: Path) -> None:
        class Liar:
            def get(self, fingerprint: Fingerprint) -> str:
                return '"string"'

            def put(self, schema: Schema) -> None:
                """Forget it."""

            def close(self) -> None:
                """Do nothing."""

        payload, headers = opened('"long"', store=FolderSchemas(path=str(tmp_path))).serialize("t", EMPTY, 7)
        liar = opened(store=Liar())
        error = refused(
            lambda: liar.deserialize("t", headers, payload), "holds, under sha256 [0-9a-f]{64}, a schema"
        )
        assert str(Fingerprint.of('"string"')) in str(error)

    def test_a_store_that_gives_garbage(self, tmp_path: Path) -> None:
        store = FolderSchemas(path=str(tmp_path), rescan_s=0)
        payload, headers = opened('"long"', store=store).serialize("t", EMPTY, 7)
        for file in tmp_path.iterdir():
            file.write_text("garbage")
        with pytest.raises(SerdeError, match="no file in"):
            opened(store=FolderSchemas(path=str(tmp_path))).deserialize("t", headers, payload)


class TestHostileObjects:
    def test_objects_that_hold_themselves(self) -> None:
        link: dict[str, Any] = {}
        link["next"] = link
        loop: list[Any] = []
        loop.append(loop)
        branching: dict[str, Any] = {"in": []}
        branching["in"] = [branching] * 3
        for schema, value in [
            (LINK, link),
            (TREE, branching),
            (array("int"), loop),
            (array(["null", "int", array("int")]), loop),
            (record(("a", "int")), {"a": link}),
        ]:
            serde = opened(schema)
            refused(
                partial(serde.serialize, "t", EMPTY, value),
                "contains itself|not fit|values",
                calls=10_000_000,
            )

    def test_objects_too_deep(self) -> None:
        value: Any = None
        for _ in range(100_000):
            value = {"next": value}
        refused(lambda: opened(LINK).serialize("t", EMPTY, value), "deep")

    @pytest.mark.parametrize(
        ("schema", "value", "match"),
        [
            ("int", 1 << 31, "the object is of type int and beyond the range of int"),
            ("int", -(1 << 31) - 1, "beyond the range of int"),
            ("long", 1 << 63, "beyond the range of long"),
            ("int", 5.5, "of type float, expected int"),
            ("long", 5.0, "of type float, expected long"),
            ("int", True, "of type bool, expected int"),
            ("null", 5, "of type int, expected null"),
            ("boolean", "yes", "of type str, expected boolean"),
            ("string", b"x", "of type bytes, expected string"),
            ("bytes", "x", "of type str, expected bytes"),
            ("double", "1.0", "of type str, expected double"),
        ],
    )
    def test_values_that_would_be_lost_or_changed(self, schema: str, value: Any, match: str) -> None:
        refused(lambda: opened(f'"{schema}"').serialize("t", EMPTY, value), match)
        inside = record(("a", schema))
        wrapped = [
            (inside, {"a": value}),
            (array(inside), [{"a": value}]),
            (record(("m", {"type": "map", "values": array(schema)})), {"m": {"k": [value]}}),
            (array(["boolean" if schema == "null" else "null", schema]), [value]),
        ]
        for outer, given in wrapped:
            serde = opened(outer)
            refused(partial(serde.serialize, "t", EMPTY, given), "does not fit")

    @pytest.mark.parametrize(
        ("schema", "value"),
        [
            (DATE, 5.5),
            (DATE, 1 << 40),
            (DATE, dt.datetime(2026, 1, 2, 3, tzinfo=dt.UTC)),
            ({"type": "long", "logicalType": "timestamp-millis"}, 5.5),
            ({"type": "int", "logicalType": "of-our-own"}, 5.5),
            ({"type": "boolean", "logicalType": "of-our-own"}, "no"),
            ({"type": "string", "logicalType": "uuid"}, "nonsense"),
            (array("int"), (5.5,)),
            (array("int"), collections.deque([5.5])),
            (array("string"), "text"),
            (array("string"), {"a": 1}),
            ({"type": "map", "values": "string"}, []),
            (record(name="Empty"), "text"),
            (record(name="Empty"), [5]),
            (record(("n", "int"), name="N"), collections.OrderedDict(n=5.5)),
            (record(("n", "int"), name="N"), collections.UserDict(n=5.5)),
            ({"type": "map", "values": "int"}, types.MappingProxyType({"n": 5.5})),
            (["null", "int"], ("int", 5.5)),
            (["null", "int"], ("null", 5)),
            (["null", record(("n", "int"), name="N")], ("N", {"n": 5.5})),
            (["null", {"type": "string", "logicalType": "uuid"}], "nonsense"),
        ],
    )
    def test_what_would_be_lost_without_a_word(self, schema: Any, value: Any) -> None:
        for outer, given in ((schema, value), (record(("a", schema)), {"a": value})):
            serde = opened(json.dumps(outer))
            refused(partial(serde.serialize, "t", EMPTY, given), "does not fit")

    @pytest.mark.parametrize(
        ("schema", "value", "expected"),
        [
            (DATE, 5, dt.date(1970, 1, 6)),
            (DATE, dt.datetime(1970, 1, 6), dt.date(1970, 1, 6)),  # noqa: DTZ001 - a date has no zone
            ({"type": "int", "logicalType": "of-our-own"}, 5, 5),
            ({"type": "string", "logicalType": "uuid"}, str(ID), ID),
            (["null", {"type": "string", "logicalType": "uuid"}], ID, ID),
            (["null", {"type": "string", "logicalType": "uuid"}], None, None),
            (array("int"), (5,), [5]),
            (array("string"), collections.deque("ab"), ["a", "b"]),
            (array("int"), array_of_numbers("q", [1, 2]), [1, 2]),
            (record(("n", "int"), name="N"), collections.OrderedDict(n=5), {"n": 5}),
            (["null", "int"], ("int", 5), 5),
            (["null", record(("n", "int"), name="N")], ("N", {"n": 5}), {"n": 5}),
        ],
    )
    def test_what_fits_is_written(self, schema: Any, value: Any, expected: Any) -> None:
        payload, headers = opened(record(("a", schema))).serialize("t", EMPTY, {"a": value})
        assert opened().deserialize("t", headers, payload)[0] == {"a": expected}

    @pytest.mark.parametrize(
        ("schema", "value"), [("int", -(1 << 31)), ("int", (1 << 31) - 1), ("long", -(1 << 63))]
    )
    def test_the_ends_of_the_ranges_fit(self, schema: str, value: int) -> None:
        payload, headers = opened(f'"{schema}"').serialize("t", EMPTY, value)
        assert opened().deserialize("t", headers, payload)[0] == value

    def test_errors_say_where_and_what_was_expected_but_not_what_was_there(self) -> None:
        order = record(("id", "long"), ("note", ["null", "string"]), name="Order")
        for value in (
            {"id": SECRET},
            {"id": 1, "note": SECRET.encode()},
            {"note": SECRET},
            SECRET,
            {SECRET: 1},
        ):
            error = refused(partial(opened(order).serialize, "t", EMPTY, value), "Order")
            assert SECRET not in str(error)
            assert error.__cause__ is None
            assert error.__suppress_context__
        with pytest.raises(
            SerdeError, match=re.escape("Order.note is of type bytes, expected null or string")
        ):
            opened(order).serialize("t", EMPTY, {"id": 1, "note": b""})

    def test_errors_name_a_missing_field_and_what_it_was_written_as(self) -> None:
        order = record(("id", "long"), ("note", ["null", "string"]), name="shop.Order")
        lacks = "it lacks 'id', and has 'idd', which the schema lacks"
        for strict in (False, True):
            written = partial(opened(order, strict=strict).serialize, "t", EMPTY, {"idd": 1, "note": None})
            refused(written, lacks)
        refused(partial(opened(order).serialize, "t", EMPTY, {SECRET: 1}), "it lacks 'id'")
        found = refused(partial(opened(order).serialize, "t", EMPTY, {"id": None}), "id is of type NoneType")
        assert "lacks" not in str(found)

    def test_unknown_fields_are_left_out_or_refused(self) -> None:
        schema, given = record(("a", "int")), {"a": 1, "b": 2}
        assert opened(schema).serialize("t", EMPTY, given)[0] == b"\x02"
        refused(
            lambda: opened(schema, strict=True).serialize("t", EMPTY, given),
            "lacks a field without a default",
        )

    def test_strict_takes_an_object_without_a_field_that_has_a_default(self) -> None:
        schema = record(("a", "int"), ("b", ["null", "int"]))
        schema["fields"][0]["default"] = 5
        serde = opened(schema, strict=True)
        assert serde.serialize("t", EMPTY, {"b": None})[0] == b"\x0a\0"
        refused(lambda: serde.serialize("t", EMPTY, {"a": 1}), "lacks a field without a default")

    def test_too_many_values_are_not_sent(self) -> None:
        refused(
            lambda: opened(array("null"), max_values=10).serialize("t", EMPTY, [None] * 10), "more than 10"
        )

    def test_an_object_that_nobody_can_convert(self) -> None:
        refused(
            lambda: opened(record(("a", "int"))).serialize("t", EMPTY, object()),
            "of type object, does not fit",
        )


class SlowStore:
    """Keep schemas in memory; to say that there is none takes two seconds, as over a bad network."""

    is_numbered = True

    def __init__(self) -> None:
        self.texts: dict[object, str] = {}

    def get(self, fingerprint: Fingerprint) -> str:
        return self._found(fingerprint)

    def by_id(self, schema_id: int) -> str:
        return self._found(schema_id)

    def by_guid(self, guid: bytes) -> str:
        return self._found(guid)

    def register(self, subject: str, text: str) -> tuple[int, bytes]:
        raise NotImplementedError

    def put(self, schema: Schema) -> None:
        raise NotImplementedError

    def close(self) -> None:
        """Do nothing."""

    def _found(self, question: object) -> str:
        if question not in self.texts:
            time.sleep(2.05)
            raise UnknownSchemaError("not there")
        return self.texts[question]


class TestFloodsOfUnknownSchemas:
    """Requests in vain are limited; genuine records of schemas that are not known yet wait meanwhile."""

    FINGERPRINT = AvroSchema.parsed('"long"').fingerprint("sha256")
    UNKNOWN = Fingerprint("sha256", bytes(32))

    def outcome_after_a_flood(self, chain: Chain, forged: Record, genuine: Record) -> Record:
        """Return the genuine record, once it has waited."""
        with chain.open(Context(side="consumer")) as session:
            assert type(session.consume_outcomes([forged])[0]) is UnknownSchemaError
            [held_back] = session.consume_outcomes([genuine])
            assert isinstance(held_back, HeldBackError)
            assert "the record waits" in str(held_back)
            found: list[Any] = [held_back]
            until(
                lambda: not isinstance(found[0], HeldBackError),
                meanwhile=lambda: self.try_again(found, session, genuine),
            )
        assert isinstance(found[0], Record)
        return found[0]

    def try_again(self, found: list[Any], session: Session, record: Record) -> None:
        time.sleep(0.05)
        found[:] = session.consume_outcomes([record])

    def test_keep_no_record_from_a_serde(self) -> None:
        store = SlowStore()
        store.texts[2] = '"long"'
        chain = Chain([Serialize(value=Avro(store=store))])
        forged, genuine = (Record("t", b"\0\0\0\0" + bytes((number,)) + b"\x0e") for number in (1, 2))
        assert self.outcome_after_a_flood(chain, forged, genuine).value == 7

    def test_keep_no_record_from_the_interceptor(self) -> None:
        store = SlowStore()
        store.texts[self.FINGERPRINT] = '"long"'
        chain = Chain([SchemaStep(store=store)])
        forged, genuine = (
            Record("t", b"\x0e", headers=Headers([("hw.schema", encode_mark("value", fingerprint))]))
            for fingerprint in (self.UNKNOWN, self.FINGERPRINT)
        )
        found = self.outcome_after_a_flood(chain, forged, genuine)
        assert found.headers.last("avro.schema") == b'"long"'

    def test_keep_no_record_from_confluents_own_deserializer(self, monkeypatch: pytest.MonkeyPatch) -> None:
        ids = {2: ConfluentSchema('"long"', "AVRO")}

        def get_schema(_client: Any, schema_id: int, *_: Any, **__: Any) -> ConfluentSchema:
            if schema_id not in ids:
                time.sleep(2.05)
                raise SchemaRegistryError(404, 40403, "not there")
            return ids[schema_id]

        monkeypatch.setattr(
            type(SchemaRegistryClient.new_client({"url": "mock://"})), "get_schema", get_schema
        )
        serde = ConfluentAvro(url="mock://flooded")
        forged, genuine = (Record("t", b"\0\0\0\0" + bytes((number,)) + b"\x0e") for number in (1, 2))
        assert self.outcome_after_a_flood(Chain([Serialize(value=serde)]), forged, genuine).value == 7

    def test_a_registry_that_is_down_refuses_none(self) -> None:
        store = RegistrySchemas(url="http://127.0.0.1:1", config={"max.retries": 0})
        for serde in (
            Avro(store=store),
            ConfluentAvro(url="http://127.0.0.1:1", registry={"max.retries": 0}),
        ):
            with Chain([Serialize(value=serde)]).open(Context(side="consumer")) as session:
                for _ in range(2):  # the second answer is the remembered one
                    [outcome] = session.consume_outcomes([Record("t", b"\0\0\0\0\1\x0e")])
                    assert isinstance(outcome, HeldBackError)
