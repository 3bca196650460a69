from __future__ import annotations

import datetime as dt
import enum
import json
import random
import uuid
from collections import OrderedDict, defaultdict
from decimal import Decimal
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import ArrayType, DoubleType, StructField, StructType

from headerware.core.errors import ConfigError, SerdeError
from headerware.core.headers import EMPTY
from headerware.serdes.avro.serde import Avro
from headerware.serdes.formats.plain import Json
from headerware.serdes.serde import SerdeContext
from headerware.spark_bridge.frames.arrow_types import arrow_type
from headerware.spark_bridge.frames.avro_types import avro_type
from headerware.spark_bridge.frames.column_limits import single_chunk
from headerware.spark_bridge.frames.json_types import json_type
from headerware.spark_bridge.frames.typed_columns import column
from headerware.spark_bridge.frames.typed_objects import objects

INSTANT = pa.timestamp("us", "UTC")
LOCAL = pa.timestamp("us")
MONEY = pa.decimal128(6, 2)
CEST = dt.timezone(dt.timedelta(hours=2))
NOON = dt.datetime(2026, 7, 1, 12, 0, 0, 1, tzinfo=dt.UTC)
SOME_UUID = uuid.UUID("12345678-1234-5678-1234-567812345678")
MAP = pa.map_(pa.string(), pa.int64())
NEEDS = pa.struct([pa.field("a", pa.int64(), nullable=False), pa.field("b", pa.string())])
UNION = pa.struct([(f"member{n}", kind) for n, kind in enumerate((pa.int32(), pa.int64(), pa.string(), MAP))])


class Colour(enum.StrEnum):
    RED = "red"


class Count(enum.IntEnum):
    ONE = 1


ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": ["null", "string"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "ms", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}]},
        {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-micros"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "time", "type": {"type": "int", "logicalType": "time-millis"}},
        {"name": "finer", "type": {"type": "long", "logicalType": "time-micros"}},
        {"name": "uid", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "ratio", "type": "float"},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 4}},
        {"name": "tags", "type": {"type": "map", "values": ["null", "string"]}},
        {
            "name": "items",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Item",
                    "fields": [{"name": "sku", "type": "string"}, {"name": "n", "type": ["null", "int"]}],
                },
            },
        },
        {"name": "any", "type": ["null", "long", "string", "Item", {"type": "array", "items": "double"}]},
        {"name": "nothing", "type": "null"},
        {"name": "empty", "type": {"type": "record", "name": "Empty", "fields": []}},
    ],
}


def order(number: int) -> dict[str, Any]:
    pick = random.Random(number)
    return {
        "id": number,
        "customer": pick.choice([None, "Ada", "Grüße"]),
        "at": NOON + dt.timedelta(microseconds=pick.randrange(10**15)),
        "ms": pick.choice([None, NOON.replace(microsecond=5000)]),
        "local": dt.datetime(1815, 12, 10, 1, 2, 3, 4),  # noqa: DTZ001 - a local time has no zone
        "day": dt.date(1815, 12, 10),
        "time": dt.time(23, 59, 59, 999000),
        "finer": dt.time(0, 0, 1, 1),
        "uid": SOME_UUID,
        "price": Decimal(pick.randrange(-(10**9) + 1, 10**9)).scaleb(-2),
        "ratio": 0.5,
        "state": "PAID",
        "hash": b"\x00\xff\x00\x01",
        "tags": pick.choice([{}, {"a": None, "b": "c"}]),
        "items": [{"sku": "x", "n": None}, {"sku": "y", "n": 3}][: pick.randrange(3)],
        "any": pick.choice([None, 5, "five", {"sku": "z", "n": 1}, [1.5, 2.0]]),
        "nothing": None,
        "empty": {},
    }


def failed(value: Any, kind: pa.DataType) -> str:
    """Put a value between two that are null; give what is wrong with it."""
    array, failures = column([None, value, None], kind)
    assert array.null_count == len(array) == 3
    assert list(failures) == [1]
    return failures[1]


def taken(value: Any, kind: pa.DataType) -> Any:
    array, failures = column([value], kind)
    assert failures == {}
    assert array.type == kind
    array.validate(full=True)
    return objects(array)[0]


class TestColumn:
    @pytest.mark.parametrize(
        ("value", "kind", "expected"),
        [
            (1, pa.float64(), 1.0),
            (2**60, pa.float64(), 2.0**60),
            (1.0, pa.int64(), 1),
            (float("inf"), pa.float32(), float("inf")),
            (SOME_UUID, pa.string(), str(SOME_UUID)),
            (Colour.RED, pa.string(), "red"),
            (Count.ONE, pa.int8(), 1),
            (bytearray(b"ab"), pa.binary(), b"ab"),
            (memoryview(b"ab"), pa.large_binary(), b"ab"),
            (dt.time(0, 0, 1, 2000), pa.int32(), 1002),
            (dt.time(0, 0, 1, 2), pa.int64(), 1_000_002),
            (Decimal("1.5"), MONEY, Decimal("1.50")),
            (Decimal("1E+3"), MONEY, Decimal("1000.00")),
            (7, MONEY, Decimal("7.00")),
            (NOON.astimezone(CEST), INSTANT, NOON),
            (NOON, pa.timestamp("us", "Europe/Berlin"), NOON),
            ((1, 2), pa.list_(pa.int64()), [1, 2]),
            ([1], pa.large_list(pa.int64()), [1]),
            (OrderedDict(a=1), NEEDS, {"a": 1, "b": None}),
            (defaultdict(int, a=1), NEEDS, {"a": 1, "b": None}),
            (MappingProxyType({"a": 1}), MAP, {"a": 1}),
            (dt.timedelta(microseconds=-1), pa.duration("us"), dt.timedelta(microseconds=-1)),
        ],
    )
    def test_takes_what_comes_back_as_the_same(self, value: Any, kind: pa.DataType, expected: Any) -> None:
        found = taken(value, kind)
        assert found == expected
        assert type(found) is type(expected)

    @pytest.mark.parametrize(
        ("value", "kind", "expected", "found"),
        [
            (1, pa.bool_(), "boolean", "int"),
            (True, pa.int64(), "bigint", "bool"),
            (True, pa.float64(), "double", "bool"),
            (True, MONEY, "decimal(6,2)", "bool"),
            (128, pa.int8(), "tinyint", "int beyond its range"),
            (2**31, pa.int32(), "int", "int beyond its range"),
            (2**63, pa.int64(), "bigint", "int beyond its range"),
            (10**4000, pa.int64(), "bigint", "int beyond its range"),
            (1.5, pa.int64(), "bigint", "float"),
            (float("nan"), pa.int64(), "bigint", "float"),
            (2**53 + 1, pa.float64(), "double", "int that no double holds exactly"),
            (10**4000, pa.float64(), "double", "int beyond its range"),
            (1e39, pa.float32(), "float", "float beyond its range"),
            ("1", pa.int64(), "bigint", "str"),
            ("1.5", pa.float64(), "double", "str"),
            ("text", pa.binary(), "binary", "str"),
            (b"bytes", pa.string(), "string", "bytes"),
            ("\ud800", pa.string(), "string", "str that is no Unicode text (a lone surrogate)"),
            (Decimal("1.234"), MONEY, "decimal(6,2)", "Decimal with more digits"),
            (Decimal(10000), MONEY, "decimal(6,2)", "Decimal with more digits"),
            (Decimal("1E+999999"), MONEY, "decimal(6,2)", "Decimal with more digits"),
            (Decimal("NaN"), MONEY, "decimal(6,2)", "Decimal that is no finite number"),
            (Decimal("sNaN"), MONEY, "decimal(6,2)", "Decimal that is no finite number"),
            (10**4000, MONEY, "decimal(6,2)", "int"),
            (1.5, MONEY, "decimal(6,2)", "float"),
            (NOON, pa.date32(), "date", "datetime"),
            (NOON.date(), INSTANT, "timestamp", "date"),
            (5, INSTANT, "timestamp", "int"),
            (
                NOON.replace(tzinfo=None),
                INSTANT,
                "timestamp",
                "datetime without a zone, so no instant (its column is timestamp_ntz)",
            ),
            (NOON, LOCAL, "timestamp_ntz", "datetime with a zone (its column is timestamp)"),
            (
                dt.datetime.min.replace(tzinfo=CEST),
                INSTANT,
                "timestamp",
                "datetime outside of the years 1 to 9999 in UTC",
            ),
            (dt.time(1, tzinfo=dt.UTC), pa.int64(), "bigint", "time with a zone"),
            (dt.time(0, 0, 0, 1), pa.int32(), "int of milliseconds", "time with microseconds"),
            (dt.time(1), pa.int16(), "smallint", "time"),
            (dt.timedelta.max, pa.duration("us"), "interval", "timedelta beyond its range"),
            ("ab", pa.list_(pa.string()), "array", "str"),
            ({"a"}, pa.list_(pa.string()), "array", "set"),
            ([("a", 1)], MAP, "map", "list"),
            ((1, "b"), NEEDS, "struct", "tuple"),
            (0, pa.null(), "null", "int"),
            (1.5, UNION, "one of the union's 4 types", "float"),
            (object(), UNION, "one of the union's 4 types", "object"),
        ],
    )
    def test_refuses_what_would_come_back_as_another(
        self, value: Any, kind: pa.DataType, expected: str, found: str
    ) -> None:
        assert failed(value, kind) == f"the value: expected {expected}, found {found}"

    def test_a_wrong_row_takes_no_other_along(self) -> None:
        rows: list[Any] = [{"a": n, "b": str(n)} for n in range(1000)]
        rows[7], rows[500], rows[999] = {"a": "x", "b": "y"}, [1], {"b": None}
        array, failures = column(rows, NEEDS)
        assert list(failures) == [7, 500, 999]
        expected = [None if n in failures else row for n, row in enumerate(rows)]
        assert array.to_pylist() == expected
        array.validate(full=True)

    def test_says_where_inside_and_nothing_of_what_is_there(self) -> None:
        item = pa.struct([pa.field("price", pa.float64(), nullable=False)])
        kind = pa.struct([
            ("order", pa.struct([("items", pa.list_(item)), ("tags", pa.map_(pa.string(), item))])),
        ])  # fmt: skip
        good = {"price": 1.5}
        rows = [
            {"order": {"items": [good, good, good, {"price": "secret"}], "tags": {}}},
            {"order": {"items": [], "tags": {"secret": good, "hidden": {"price": b"secret"}}}},
            {"order": {"items": [], "tags": {5: good}}},
            {"order": {"items": [{"other": "secret"}]}},
            {"order": {"items": [good], "tags": {"secret": good}}},
            {"order": None},
        ]
        array, failures = column(rows, kind)
        assert failures == {
            0: "order.items[3].price: expected double, found str",
            1: "order.tags.value[1].price: expected double, found bytes",
            2: "order.tags.key[0]: expected string, found int",
            3: "order.items[0].price: found nothing or null, which is not allowed here",
        }
        assert objects(array)[4:] == [rows[4], rows[5]]

    def test_what_may_not_be_null_is_refused_where_it_is(self) -> None:
        never = arrow_type(ArrayType(DoubleType(), containsNull=False))
        assert failed([1.0, None], never) == "[1]: found nothing or null, which is not allowed here"
        assert failed({}, NEEDS) == "a: found nothing or null, which is not allowed here"
        assert "key[1]" in failed({"a": 1, None: 2}, MAP)
        inner = pa.struct([pa.field("x", NEEDS, nullable=False)])
        assert failed({"x": None}, inner) == "x: found nothing or null, which is not allowed here"

    def test_a_tombstone_is_null_whatever_the_type(self) -> None:
        for kind in (pa.int64(), NEEDS, MAP, UNION, pa.null(), pa.list_(NEEDS)):
            array, failures = column([None, None], kind)
            assert (array.null_count, failures, array.type) == (2, {}, kind)

    def test_fields_that_the_type_lacks_are_left_out(self) -> None:
        assert taken({"a": 1, "b": "x", "more": object()}, NEEDS) == {"a": 1, "b": "x"}
        assert taken({"a": 1, "b": "x", 5: {}}, pa.struct([])) == {}

    def test_asking_for_a_field_does_not_make_it(self) -> None:
        value = defaultdict(int, b=1)
        assert failed(value, NEEDS).startswith("a: found nothing")
        assert dict(value) == {"b": 1}

    @pytest.mark.parametrize(
        ("value", "member"),
        [(5, 0), (2**40, 1), ("x", 2), (SOME_UUID, 2), ({"a": 1}, 3), ({}, 3)],
    )
    def test_a_union_takes_the_first_member_that_fits(self, value: Any, member: int) -> None:
        array, failures = column([value], UNION)
        assert failures == {}
        assert [index for index in range(4) if array.field(index)[0].is_valid] == [member]

    def test_a_union_of_records_goes_by_their_fields(self) -> None:
        made = pa.struct([("id", pa.int64()), ("name", pa.string())])
        dropped = pa.struct([("id", pa.int64())])
        renamed = pa.struct([("id", pa.string())])
        kind = pa.struct([("member0", made), ("member1", dropped), ("member2", renamed), ("member3", MAP)])
        rows = [
            {"id": 1, "name": "x"},
            {"id": 2},
            {"id": "three"},
            {"count": 4},
            {"id": 5, "name": None, "more": 6},
        ]
        array, failures = column(rows[:4], kind)
        assert failures == {}
        assert objects(array) == rows[:4]
        chosen = [array.field(n).is_valid().to_pylist().index(True) for n in range(4)]
        assert chosen == [0, 1, 2, 3]
        assert failed({"id": b"x"}, kind) == "member1.id: expected bigint, found bytes"
        newer = pa.struct([("member0", pa.int64()), ("member1", made)])
        assert taken(rows[4], newer) == {"id": 5, "name": None}

    @pytest.mark.parametrize("kind", [pa.time64("us"), pa.timestamp("ns"), pa.decimal256(40), pa.uint8()])
    def test_refuses_types_that_spark_does_not_have(self, kind: pa.DataType) -> None:
        for whole_kind in (kind, pa.struct([("a", pa.list_(kind))]), pa.map_(pa.string(), kind)):
            with pytest.raises(ConfigError, match="json_type returns, found the Arrow type"):
                column([None], whole_kind)
            with pytest.raises(ConfigError, match="json_type returns, found the Arrow type"):
                objects(pa.nulls(1, whole_kind))

    def test_refuses_a_type_that_nests_without_measure(self) -> None:
        kind = pa.int64()
        for _ in range(200):
            kind = pa.list_(kind)
        with pytest.raises(ConfigError, match="nests more than 128 deep"):
            column([[]], kind)

    def test_an_object_that_nests_without_measure_is_refused_alone(self) -> None:
        bomb: Any = []
        for _ in range(100_000):
            bomb = [bomb]
        loop: dict[str, Any] = {}
        loop["a"] = loop
        array, failures = column([bomb, {"a": 1}, loop], NEEDS)
        assert list(failures) == [0, 2]
        assert array[1].as_py() == {"a": 1, "b": None}
        assert failed(bomb, pa.list_(pa.list_(pa.int64()))) == "[0][0]: expected bigint, found list"

    def test_takes_very_wide_records(self) -> None:
        kind = StructType([StructField(f"f{n}", DoubleType()) for n in range(5000)])
        wide = {f"f{n}": float(n) for n in range(5000)}
        array, failures = column([wide, {**wide, "f4999": "x"}, {}], arrow_type(kind))
        assert failures == {1: "f4999: expected double, found str"}
        assert array[0].as_py() == wide

    def test_a_column_that_arrow_divides_is_refused(self) -> None:
        with pytest.raises(ConfigError, match="maxRecordsPerBatch: expected at most 2 GiB in one column"):
            single_chunk(pa.chunked_array([["a"], ["b"]]))


class TestObjects:
    def test_reads_a_slice_of_a_column(self) -> None:
        rows = [{"a": n, "b": None, "l": [n] * (n % 3), "m": {str(n): n}} for n in range(10)]
        rows[4] = None  # type: ignore[call-overload]
        kind = pa.struct([*NEEDS, ("l", pa.list_(pa.int64())), ("m", MAP)])
        array = column(rows, kind).array
        assert objects(array) == rows
        assert objects(array.slice(3, 4)) == rows[3:7]
        assert objects(array.slice(10)) == []

    def test_instants_are_in_utc_whatever_zone_the_session_has(self) -> None:
        array = pa.array([NOON, None], pa.timestamp("us", "America/New_York"))
        assert objects(array) == [NOON, None]
        assert objects(array)[0].tzinfo is dt.UTC

    @pytest.mark.parametrize("kind", [INSTANT, LOCAL])
    def test_all_times_that_python_has_come_back(self, kind: pa.DataType) -> None:
        zone = dt.UTC if kind.tz else None
        times = [dt.datetime.min.replace(tzinfo=zone), dt.datetime.max.replace(tzinfo=zone), None]
        assert objects(column(times, kind).array) == times
        assert objects(column(times[:2], kind).array) == times[:2]

    @pytest.mark.parametrize("kind", [INSTANT, LOCAL, pa.date32()])
    def test_a_date_that_python_lacks_fails_alone(self, kind: pa.DataType) -> None:
        storage = pa.int32() if kind == pa.date32() else pa.int64()
        least = -(1 << 31) if kind == pa.date32() else -(1 << 63)
        for far in (2**31 - 1 if kind == pa.date32() else 2**62, least):
            array = pa.array([0, far, None], storage).cast(kind)
            first, second, third = objects(array)
            assert first.year == 1970
            assert isinstance(second, SerdeError)
            assert str(second).startswith("the value: expected a date in the years 1 to 9999")
            assert third is None

    def test_text_that_is_no_text_fails_alone(self) -> None:
        held = pa.array([b"a", b"\xff", None, b"d"], pa.binary())
        text = pa.Array.from_buffers(pa.string(), 4, held.buffers())
        array = pa.StructArray.from_arrays([pa.ListArray.from_arrays([0, 1, 2, 4], text)], ["l"])
        first, second, third = objects(array)
        assert (first, third) == ({"l": ["a"]}, {"l": [None, "d"]})
        assert str(second) == "l[0]: expected text, found bytes that are no UTF-8"

    def test_a_map_with_a_key_twice_fails_alone(self) -> None:
        array = pa.array([[("a", 1)], [("a", 1), ("a", 2)]], MAP)
        first, second = objects(array)
        assert first == {"a": 1}
        assert str(second) == "the value: expected a map, found one that has a key twice"

    def test_maps_by_structs_are_refused(self) -> None:
        with pytest.raises(ConfigError, match="json_type returns, found the Arrow type"):
            objects(pa.array([[({"a": 1}, 1)]], pa.map_(pa.struct([("a", pa.int64())]), pa.int64())))

    def test_what_lies_under_a_null_counts_for_nothing(self) -> None:
        dates = pa.array([2**31 - 1, 0], pa.int32()).cast(pa.date32())
        array = pa.StructArray.from_arrays([dates], ["d"], mask=pa.array([True, False]))
        assert objects(array) == [None, {"d": dt.date(1970, 1, 1)}]

    def test_a_record_that_looks_like_a_union_stays_whole(self) -> None:
        kind = pa.struct([("member0", pa.int64()), ("member1", pa.string())])
        assert taken({"member0": 1, "member1": "x"}, kind) == {"member0": 1, "member1": "x"}


class TestSerdes:
    def test_avro_goes_through_columns_to_the_same_bytes(self) -> None:
        serde = Avro(schema=json.dumps(ORDER)).open(SerdeContext())
        payloads = [serde.serialize("t", EMPTY, order(n))[0] for n in range(200)]
        read = [serde.deserialize("t", EMPTY, payload)[0] for payload in payloads]
        array, failures = column(read, arrow_type(avro_type(ORDER)))
        assert failures == {}
        array.validate(full=True)
        assert [serde.serialize("t", EMPTY, value)[0] for value in objects(array)] == payloads

    def test_json_goes_through_columns_to_the_same_bytes(self) -> None:
        schema = {
            "type": "object",
            "properties": {
                "id": {"type": "integer"},
                "price": {"type": "number"},
                "at": {"type": "string", "format": "date-time"},
                "tags": {"type": "object", "additionalProperties": {"type": "boolean"}},
                "items": {"type": "array", "items": {"type": ["string", "null"]}},
            },
        }
        serde = Json().open(SerdeContext())
        payload = b'{"id":1,"price":0.5,"at":"2026-07-01T12:00:00Z","tags":{"a":true},"items":["x",null]}'
        value = serde.deserialize("t", EMPTY, payload)[0]
        array, failures = column([value, {"id": 2**63}], arrow_type(json_type(schema)))
        assert failures == {1: "id: expected bigint, found int beyond its range"}
        assert serde.serialize("t", EMPTY, objects(array)[0])[0] == payload

    def test_an_older_column_leaves_out_what_a_newer_record_has(self) -> None:
        newer = {**ORDER, "fields": [*ORDER["fields"], {"name": "added", "type": "string"}]}
        serde = Avro(schema=json.dumps(newer)).open(SerdeContext())
        value = {**order(1), "added": "later"}
        read = serde.deserialize("t", EMPTY, serde.serialize("t", EMPTY, value)[0])[0]
        array, failures = column([read], arrow_type(avro_type(ORDER)))
        assert failures == {}
        assert "added" not in objects(array)[0]
