from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest

from headerware.core.headers import EMPTY, Headers
from headerware.core.record import Record, TimestampType
from headerware.spark_bridge.frames.records import (
    HEADERS,
    column,
    header_column,
    header_lists,
    last_offsets,
    milliseconds,
    payload_bytes,
    read_records,
)
from headerware.spark_bridge.frames.schema import RAW

PAIRS = [
    [("a", b"1"), ("a", None), ("", b"")],
    [],
    None,
    [("b", b"\xff\x00")],
]
LARGE = pa.large_list(pa.struct([("key", pa.large_string()), ("value", pa.large_binary())]))
NEVER_NULL = pa.list_(
    pa.field(
        "element",
        pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())]),
        nullable=False,
    )
)


def headers(rows: Any = PAIRS, kind: pa.DataType = HEADERS) -> pa.Array:
    structs = [
        None if row is None else [{"key": name, "value": value} for name, value in row] for row in rows
    ]
    return pa.array(structs, kind)


def whole(rows: int = 4) -> pa.RecordBatch:
    micros = [1_700_000_000_123_000 + row for row in range(rows)]
    return pa.RecordBatch.from_pydict({
        "key": pa.array([b"k", None, b"", b"\xff"][:rows], pa.binary()),
        "value": pa.array([None, b"v", b"", b"w"][:rows], pa.binary()),
        "topic": pa.array(["orders"] * rows),
        "partition": pa.array([3] * rows, pa.int32()),
        "offset": pa.array(range(rows), pa.int64()),
        "timestamp": pa.array(micros, pa.int64()).cast(pa.timestamp("us", "Europe/Berlin")),
        "timestampType": pa.array([0, 1, -1, None][:rows], pa.int32()),
        "headers": headers(PAIRS[:rows]),
    })  # fmt: skip


class TestReadRecords:
    def test_reads_every_column(self) -> None:
        first, *_ = read_records(whole())
        assert first == Record(
            "orders",
            None,
            b"k",
            Headers([("a", b"1"), ("a", None), ("", b"")]),
            3,
            1_700_000_000_123,
            TimestampType.CREATE_TIME,
            0,
        )
        assert first.headers.__class__ is Headers

    def test_null_and_empty_stay_apart(self) -> None:
        records = read_records(whole())
        assert [record.value for record in records] == [None, b"v", b"", b"w"]
        assert [record.key for record in records] == [b"k", None, b"", b"\xff"]

    def test_numbers_timestamp_types_as_records_do(self) -> None:
        # Kafka's own numbers are one less: -1 for none, 0 for the producer's, 1 for the broker's.
        assert [record.timestamp_type for record in read_records(whole())] == [
            TimestampType.CREATE_TIME,
            TimestampType.LOG_APPEND_TIME,
            TimestampType.NOT_AVAILABLE,
            TimestampType.NOT_AVAILABLE,
        ]

    @pytest.mark.parametrize("begin", range(4))
    def test_a_part_of_a_batch_reads_as_in_the_whole(self, begin: int) -> None:
        assert read_records(whole().slice(begin, 2)) == read_records(whole())[begin : begin + 2]

    def test_columns_may_be_missing(self) -> None:
        batch = whole().select(["topic", "value", "headers"])
        assert read_records(batch)[1] == Record("orders", b"v")

    def test_no_rows_are_no_records(self) -> None:
        assert read_records(whole(0)) == []
        assert read_records(whole().slice(4)) == []

    def test_a_row_that_was_put_aside_has_its_raw_parts(self) -> None:
        raw = pa.array(
            [{"key": b"K", "value": b"V"}, None], pa.struct([("key", pa.binary()), ("value", pa.binary())])
        )
        put_aside, plain = read_records(whole(2).append_column(RAW, raw))
        assert (put_aside.key, put_aside.value) == (b"K", b"V")
        assert (plain.key, plain.value) == (None, b"v")

    def test_large_columns_read_the_same(self) -> None:
        large = whole()
        for name in ("key", "value"):
            at = large.schema.get_field_index(name)
            large = large.set_column(at, name, large.column(at).cast(pa.large_binary()))
        large = large.set_column(2, "topic", large.column(2).cast(pa.large_string()))
        large = large.set_column(7, "headers", headers(kind=LARGE))
        assert read_records(large) == read_records(whole())


class TestHeaderLists:
    @pytest.mark.parametrize("kind", [HEADERS, LARGE, NEVER_NULL])
    def test_keeps_order_doubles_nulls_and_empty_ones(self, kind: pa.DataType) -> None:
        assert header_lists(headers(kind=kind)) == [Headers(pairs) for pairs in PAIRS]

    def test_rows_without_headers_share_the_empty_ones(self) -> None:
        assert header_lists(headers([None, []]))[0] is EMPTY

    @pytest.mark.parametrize(("begin", "length"), [(0, 2), (1, 3), (2, 1), (3, 1), (2, 0), (4, 0)])
    def test_reads_parts_of_an_array(self, begin: int, length: int) -> None:
        expected = [Headers(pairs) for pairs in PAIRS[begin : begin + length]]
        assert header_lists(headers().slice(begin, length)) == expected

    def test_a_null_row_is_empty_whatever_lies_below_it(self) -> None:
        full = headers([[("a", b"1")], [("b", b"2")]])
        hidden = pa.ListArray.from_arrays(full.offsets, full.values, mask=pa.array([True, False]))
        assert header_lists(hidden) == [EMPTY, Headers([("b", b"2")])]

    def test_a_null_name_makes_a_list_which_the_chain_refuses(self) -> None:
        bad, good = header_lists(headers([[(None, b"1"), ("a", b"2")], [("b", b"3")]]))
        assert bad == [(None, b"1"), ("a", b"2")]
        assert bad.__class__ is list
        assert good.__class__ is Headers

    def test_a_null_header_has_no_name(self) -> None:
        assert header_lists(pa.array([[None, {"key": "a", "value": b"1"}]], HEADERS)) == [
            [(None, None), ("a", b"1")]
        ]

    def test_no_rows(self) -> None:
        assert header_lists(pa.array([], HEADERS)) == []

    def test_header_column_is_the_way_back(self) -> None:
        given = [Headers(pairs) for pairs in PAIRS]
        assert header_lists(header_column(given)) == given
        assert header_column(given).type == HEADERS


class TestMilliseconds:
    @pytest.mark.parametrize(
        ("micros", "millis"),
        [(0, 0), (1_999, 1), (-1, -1), (-1_000, -1), (-1_001, -2), (-2_000, -2), (None, None)],
    )
    def test_rounds_down_before_1970_as_well(self, micros: int | None, millis: int | None) -> None:
        stamps = pa.array([micros], pa.int64()).cast(pa.timestamp("us", "UTC"))
        assert milliseconds(pa.RecordBatch.from_arrays([stamps], ["timestamp"])) == [millis]

    @pytest.mark.parametrize("zone", ["UTC", "Asia/Kathmandu", "America/St_Johns"])
    def test_zones_stand_for_the_same_instant(self, zone: str) -> None:
        noon = dt.datetime(1969, 7, 20, 12, tzinfo=dt.UTC)
        stamps = pa.array([noon], pa.timestamp("us", zone))
        found = milliseconds(pa.RecordBatch.from_arrays([stamps], ["timestamp"]))
        assert found == [int(noon.timestamp()) * 1000]


class TestColumn:
    def test_a_missing_one_is_the_same_for_ever(self) -> None:
        values = iter(column(whole(), "nothing", 7))
        assert [next(values) for _ in range(9)] == [7] * 9


class TestPayloadBytes:
    @pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.string(), pa.large_string()])
    def test_counts_bytes_and_no_nulls(self, kind: pa.DataType) -> None:
        values = pa.array(["é", None, ""], pa.string()).cast(kind)
        assert payload_bytes(pa.RecordBatch.from_arrays([values], ["value"])) == len("é".encode())

    def test_objects_and_no_rows_count_nothing(self) -> None:
        assert payload_bytes(pa.RecordBatch.from_pydict({"value": [{"a": 1}]})) == 0
        assert payload_bytes(pa.RecordBatch.from_arrays([pa.array([], pa.binary())], ["value"])) == 0


class TestLastOffsets:
    def test_gives_each_partitions_last(self) -> None:
        batch = pa.RecordBatch.from_pydict({
            "topic": ["a", "a", "b", "a", None],
            "partition": pa.array([0, 0, 0, None, 0], pa.int32()),
            "offset": [7, 3, 1, 99, 99],
        })  # fmt: skip
        assert dict(last_offsets(batch)) == {("a", 0): 7, ("b", 0): 1}
        assert last_offsets(batch.slice(0, 0)) == []
