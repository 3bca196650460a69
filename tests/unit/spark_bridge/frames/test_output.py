from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from headerware.core.headers import Headers
from headerware.core.record import Record
from headerware.spark_bridge.frames import output
from headerware.spark_bridge.frames.output import FLUSH_BYTES, OutputRows, position_rows, resolve_schema
from headerware.spark_bridge.frames.records import HEADERS, read_records
from headerware.spark_bridge.frames.schema import FAILURE, STATUS, Status, with_columns

WIRE = {"topic": output.topics, "value": output.values, "headers": output.headers}
STRICT = pa.list_(pa.field("element", pa.int32(), nullable=False))
PAIR = pa.struct([("a", pa.int32()), ("b", pa.string())])
OWN: dict[str, pa.Array] = {
    "number": pa.array([1, None, 3], pa.int64()),
    "text": pa.array(["é", None, ""], pa.string()),
    "price": pa.array([Decimal("1.50"), None, Decimal(0)], pa.decimal128(9, 2)),
    "map": pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int32())),
    "struct": pa.array([{"a": 1, "b": None}, None, {"a": None, "b": "x"}], PAIR),
    "strict": pa.array([[1, 2], None, []], STRICT),
    "when": pa.array([0, None, -1], pa.int64()).cast(pa.timestamp("us", "Asia/Tokyo")),
    "nothing": pa.nulls(3),
    "flag": pa.array([True, False, None]),
}  # fmt: skip


def source(**columns: Any) -> pa.RecordBatch:
    wire = {
        "topic": pa.array(["t"] * 3),
        "value": pa.array([b"0", b"1", b"2"], pa.binary()),
        "headers": pa.array([[{"key": "a", "value": b"1"}], None, []], HEADERS),
    }
    return pa.RecordBatch.from_pydict({**wire, **OWN, **columns})


def rows_of(batch: pa.RecordBatch, *more: tuple[str, pa.DataType]) -> OutputRows:
    return OutputRows(batch, pa.schema([*batch.schema, *(pa.field(*field) for field in more)]))


class TestRows:
    def test_users_columns_follow_their_rows(self) -> None:
        batch = source()
        rows, order = rows_of(batch), [2, 0, 0, 1]
        for index in order:
            rows.add(index, Record("t", b"new"))
        found = rows.batch(WIRE)
        assert found.column("value").to_pylist() == [b"new"] * 4
        for name, column in OWN.items():
            assert found.column(name).equals(column.take(pa.array(order))), name
            assert found.column(name).type == column.type, name

    def test_all_rows_in_their_order_are_not_copied(self) -> None:
        batch = source()
        rows = rows_of(batch)
        for index, record in enumerate(read_records(batch)):
            rows.add(index, record)
        assert (
            rows.batch(WIRE).column("text").buffers()[2].address == batch.column("text").buffers()[2].address
        )

    def test_rows_of_a_part_of_a_batch(self) -> None:
        part = source().slice(1, 2)
        rows = rows_of(part)
        rows.add(1, Record("t", b"x"))
        assert rows.batch(WIRE).column("number").to_pylist() == [3]

    def test_dropped_rows_leave_a_batch_of_none(self) -> None:
        found = rows_of(source()).batch(WIRE)
        assert found.num_rows == 0
        assert found.column("strict").type == STRICT

    def test_extras_are_null_but_where_marked(self) -> None:
        rows = rows_of(source(), (STATUS, pa.int32()))
        for index in range(3):
            rows.add(index, Record("t"))
        rows.mark({STATUS: Status.SLICE})
        rows.mark({STATUS: Status.FAILED}, 0)
        assert rows.batch(WIRE).column(STATUS).to_pylist() == [1, None, 2]

    def test_what_was_said_of_a_row_before_is_forgotten(self) -> None:
        batch = source(**{STATUS: pa.array([2, 2, 2], pa.int32())})
        rows = rows_of(batch)
        rows.add(0, Record("t"))
        assert rows.batch(WIRE).column(STATUS).to_pylist() == [None]

    def test_kept_rows_have_the_sources_headers_and_timestamp(self) -> None:
        micros = pa.array([1_234_567, -1, None], pa.int64()).cast(pa.timestamp("us", "UTC"))
        batch = source(timestamp=micros)
        rows = rows_of(batch)
        records = read_records(batch)
        rows.add(0, records[0].replace(headers=Headers([("b", b"2")])))
        rows.keep(1, records[1])
        rows.keep(0, records[0])
        found = rows.batch({**WIRE, "timestamp": output.timestamps})
        assert found.column("headers").to_pylist() == [
            [{"key": "b", "value": b"2"}],
            None,
            [{"key": "a", "value": b"1"}],
        ]
        assert found.column("timestamp").cast(pa.int64()).to_pylist() == [1_234_000, -1, 1_234_567]

    def test_kept_headers_take_the_type_of_the_others(self) -> None:
        never_null = pa.list_(
            pa.field(
                "element",
                pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())]),
                nullable=False,
            )
        )
        given = [[{"key": "a", "value": None}], None, []]
        rows = rows_of(source(headers=pa.array(given, never_null)))
        for index in range(3):
            rows.keep(index, Record("t"))
        found = rows.batch(WIRE).column("headers")
        assert (found.type, found.to_pylist()) == (HEADERS, given)

    def test_clear_forgets_all(self) -> None:
        rows = rows_of(source(), (STATUS, pa.int32()))
        rows.keep(0, Record("t", b"12"))
        rows.mark({STATUS: 1})
        rows.clear()
        rows.add(1, Record("t", b"3"))
        found = rows.batch(WIRE)
        assert (len(rows), rows.size_bytes) == (1, 1)
        assert (found.column(STATUS).to_pylist(), found.column("headers").to_pylist()) == ([None], [[]])


class TestRowsTake:
    def test_takes_records_up_to_what_is_none(self) -> None:
        rows = rows_of(source())
        results: Any = iter([(0, Record("t", b"ab")), (1, None), (2, Record("t", b"c"))])
        assert rows.take(results, {}) == (1, None)
        assert (rows.indices, rows.size_bytes) == ([0], 2)
        assert rows.take(results, {}) is None
        assert (rows.indices, rows.size_bytes) == ([0, 2], 3)

    def test_stops_behind_a_record_with_an_identity(self) -> None:
        rows = rows_of(source())
        results = iter([(0, Record("t")), (1, Record("t"))])
        assert rows.take(results, {"place": b"id"}) == (0, Record("t"))
        assert rows.indices == [0]

    def test_stops_behind_the_record_that_fills_the_batch(self) -> None:
        rows = rows_of(source())
        large = Record("t", bytes(FLUSH_BYTES // 2 + 1))
        results = iter([(0, large), (1, large), (2, large)])
        assert rows.take(results, {}) == (1, large)
        assert rows.size_bytes > FLUSH_BYTES


class TestResolved:
    def test_carried_columns_have_the_types_they_came_in(self) -> None:
        schema = pa.schema({"value": pa.binary(), "when": pa.timestamp("us", "UTC"), "failure": pa.string()})
        came = pa.schema({"value": pa.large_binary(), "when": pa.timestamp("us", "Asia/Tokyo")})
        found = resolve_schema(schema, came, {"value"})
        assert found.types == [pa.binary(), pa.timestamp("us", "Asia/Tokyo"), pa.string()]
        assert resolve_schema(found, came, {"value"}) == found


class TestBareRows:
    @pytest.mark.parametrize("name", OWN)
    def test_has_nulls_of_the_users_types(self, name: str) -> None:
        schema = source().append_column("offset", pa.array([0, 1, 2])).schema
        found = position_rows(schema, [Record("t", offset=9)], {})
        assert found.column(name).null_count == 1
        assert found.column(name).type == OWN[name].type
        assert (found.column("topic")[0].as_py(), found.column("offset")[0].as_py()) == ("t", 9)


class TestWithColumns:
    def test_any_column_may_be_null(self) -> None:
        strict = StructType([
            StructField("a", StringType(), nullable=False),
            StructField("b", IntegerType(), nullable=False, metadata={"of": "the user's"}),
        ])  # fmt: skip
        found = with_columns(strict, a=IntegerType(), failure=FAILURE)
        assert found.names == ["a", "b", "failure"]
        assert all(field.nullable for field in found)
        assert (found["a"].dataType, found["b"].metadata) == (IntegerType(), {"of": "the user's"})
