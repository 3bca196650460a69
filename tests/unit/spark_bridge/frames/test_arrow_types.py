"""Arrow's types for Spark's columns; tests/spark compares them with those that Spark itself gives."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    DataType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
    VariantType,
    YearMonthIntervalType,
)

from headerware import ConfigError
from headerware.spark_bridge.frames.arrow_types import arrow_schema, arrow_type, require_arrow_type


class TestArrowType:
    def test_timestamps_are_in_utc(self) -> None:
        assert arrow_type(TimestampType()) == pa.timestamp("us", "UTC")

    def test_what_is_never_null_stays_so(self) -> None:
        kind = ArrayType(StructType([StructField("id", LongType(), nullable=False)]), containsNull=False)
        inner = pa.struct([pa.field("id", pa.int64(), nullable=False)])
        assert arrow_type(kind) == pa.list_(pa.field("element", inner, nullable=False))

    @pytest.mark.parametrize(
        "kind", [YearMonthIntervalType(), VariantType(), MapType(StringType(), VariantType())]
    )
    def test_a_type_that_cannot_hold_objects_is_refused(self, kind: DataType) -> None:
        with pytest.raises(ConfigError, match=r"^value: a column of the type .* cannot hold objects; use"):
            require_arrow_type(kind, "value")


class TestArrowSchema:
    def test_a_column_of_an_unknown_type_waits_for_the_type_that_spark_gives(self) -> None:
        text = StructType([StructField("id", LongType()), StructField("own", VariantType())]).json()
        assert arrow_schema(text) == pa.schema({"id": pa.int64(), "own": pa.null()})
