"""Schemas that are inferred from values."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal as DecimalNumber
from typing import Any

import pytest

from headerware.connect.data import (
    BOOLEAN_SCHEMA,
    BYTES_SCHEMA,
    FLOAT32_SCHEMA,
    FLOAT64_SCHEMA,
    INT8_SCHEMA,
    INT16_SCHEMA,
    INT32_SCHEMA,
    INT64_SCHEMA,
    OPTIONAL_INT32_SCHEMA,
    STRING_SCHEMA,
    BigInteger,
    Float32,
    Instant,
    Int8,
    Int16,
    Int32,
    Schema,
    SchemaBuilder,
    Struct,
    Type,
)
from headerware.connect.errors import ConnectDataError, SchemaBuilderError
from headerware.connect.values import infer_schema

STRUCT_SCHEMA = SchemaBuilder.struct().field("id", INT32_SCHEMA).build()


class Named(str):
    """A text of another class."""

    __slots__ = ()


class TestInferSchema:
    @pytest.mark.parametrize(
        ("value", "schema"),
        [
            ("a", STRING_SCHEMA),
            (Named("a"), STRING_SCHEMA),
            (True, BOOLEAN_SCHEMA),
            (Int8(1), INT8_SCHEMA),
            (Int16(1), INT16_SCHEMA),
            (Int32(1), INT32_SCHEMA),
            (1, INT64_SCHEMA),
            (Float32(1), FLOAT32_SCHEMA),
            (1.0, FLOAT64_SCHEMA),
            (b"a", BYTES_SCHEMA),
            (bytearray(b"a"), BYTES_SCHEMA),
            (memoryview(b"a"), BYTES_SCHEMA),
            (Struct(STRUCT_SCHEMA), STRUCT_SCHEMA),
            ([Int32(1)], SchemaBuilder.array(INT32_SCHEMA).build()),
            ((Int32(1),), SchemaBuilder.array(INT32_SCHEMA).build()),
            ([Int32(1), None], SchemaBuilder.array(OPTIONAL_INT32_SCHEMA).build()),
            ({"a": Int32(1)}, SchemaBuilder.map(STRING_SCHEMA, INT32_SCHEMA).build()),
            ([[Int32(1)], ["a"]], SchemaBuilder.array(Schema(Type.ARRAY)).build()),
        ],
    )
    def test_tells_by_the_class(self, value: Any, schema: Schema) -> None:
        assert infer_schema(value) == schema

    @pytest.mark.parametrize(
        "value",
        [
            *(
                None,
                BigInteger(1),
                1 << 63,
                DecimalNumber(1),
                datetime.now(UTC),
                Instant(1),
                object(),
                [],
                {},
            ),
            *([1, "a"], [1, True], [1, DecimalNumber(1)], {"a": 1, 1: 1}, {"a": 1, "b": "x"}, {"a": []}),
            # The value's type is not known before that of the key which holds only nulls.
            {DecimalNumber(1): [None]},
        ],
    )
    def test_gives_none_where_nothing_can_be_told(self, value: Any) -> None:
        assert infer_schema(value) is None

    @pytest.mark.parametrize("value", [[None], {"a": None}, {None: 1}, [[None]]])
    def test_refuses_nulls_alone(self, value: Any) -> None:
        with pytest.raises(SchemaBuilderError):
            infer_schema(value)

    def test_refuses_deep_nesting(self) -> None:
        value: list[Any] = []
        for _ in range(100_000):
            value = [value]
        with pytest.raises(ConnectDataError, match="nested too deeply"):
            infer_schema(value)
