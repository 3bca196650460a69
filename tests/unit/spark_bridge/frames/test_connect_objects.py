"""Connect's values as the objects that columns take."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from decimal import Decimal as Number
from typing import Any

import pyarrow as pa
import pytest

from headerware.connect.data import (
    INT32_SCHEMA,
    OPTIONAL_INT64_SCHEMA,
    STRING_SCHEMA,
    Date,
    Decimal,
    Float32,
    Instant,
    Int8,
    Int32,
    Schema,
    SchemaAndValue,
    SchemaBuilder,
    Struct,
    Time,
    Timestamp,
)
from headerware.spark_bridge.frames.typed_columns import _from_connect, column

DAY = datetime(1815, 12, 10, tzinfo=UTC)
NOON = datetime(1970, 1, 1, 12, tzinfo=UTC)
SEEN = datetime(2026, 1, 2, 3, 4, 5, 678_000, UTC)
VISIT = SchemaBuilder.struct().field("day", Date.SCHEMA).field("at", Time.SCHEMA).build()
PERSON = (
    SchemaBuilder.struct()
    .field("id", INT32_SCHEMA)
    .field("seen", Timestamp.SCHEMA)
    .field("paid", Decimal.schema(2))
    .field("visits", SchemaBuilder.array(VISIT).build())
    .field("days", SchemaBuilder.map(STRING_SCHEMA, Date.SCHEMA).build())
    .field("score", OPTIONAL_INT64_SCHEMA)
    .build()
)


class TestObjects:
    def test_of_structs_are_dicts_with_dates_and_times(self) -> None:
        values = {
            "id": 1,
            "seen": SEEN,
            "paid": Number("1.50"),
            "visits": [{"day": DAY, "at": NOON}],
            "days": {"a": DAY},
        }
        assert _from_connect(Struct.of(PERSON, values)) == {
            "id": 1,
            "seen": SEEN,
            "paid": Number("1.50"),
            "visits": [{"day": date(1815, 12, 10), "at": time(12)}],
            "days": {"a": date(1815, 12, 10)},
            "score": None,
        }

    @pytest.mark.parametrize(
        ("schema", "value", "expected"),
        [
            (Date.SCHEMA, DAY, date(1815, 12, 10)),
            (Date.SCHEMA, Instant(-(10**15)), -(10**15)),
            (Time.SCHEMA, NOON, time(12)),
            (Timestamp.SCHEMA, SEEN, SEEN),
            (INT32_SCHEMA, Int32(5), 5),
            (OPTIONAL_INT64_SCHEMA, None, None),
            (None, {"a": Int8(1), "b": [Float32(0.5)]}, {"a": 1, "b": [0.5]}),
            (SchemaBuilder.map(Date.SCHEMA, INT32_SCHEMA).build(), {DAY: Int32(1)}, {DAY: 1}),
        ],
    )
    def test_of_values_beside_a_schema_are_by_it(
        self, schema: Schema | None, value: Any, expected: Any
    ) -> None:
        found = _from_connect(SchemaAndValue(schema, value))
        assert found == expected
        assert type(found) is type(expected)


class TestColumns:
    KIND = pa.struct([("day", pa.date32()), ("at", pa.int32())])

    def test_take_structs_with_dates_and_times(self) -> None:
        found = column([Struct.of(VISIT, {"day": DAY, "at": NOON}), None], self.KIND)
        assert found.failures == {}
        assert found.array.to_pylist() == [{"day": date(1815, 12, 10), "at": 12 * 3_600_000}, None]

    def test_refuse_one_beyond_the_years_that_dates_have(self) -> None:
        far = Struct.of(VISIT, {"day": Instant(10**15 // 86_400_000 * 86_400_000), "at": NOON})
        found = column([far, Struct.of(VISIT, {"day": DAY, "at": NOON})], self.KIND)
        assert found.failures == {0: "day: expected date, found int"}
