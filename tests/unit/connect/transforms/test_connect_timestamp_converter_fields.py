"""TimestampConverter on fields, in both modes."""

from __future__ import annotations

from typing import Any

import pytest

from headerware.connect.data import (
    INT32_SCHEMA,
    INT64_SCHEMA,
    Schema,
    SchemaBuilder,
    Struct,
    Timestamp,
    Type,
)
from headerware.connect.data.times import from_epoch_ms
from headerware.connect.errors import ConnectDataError, ConnectError, NullValueError
from headerware.connect.modes import KAFKA_4_3, STRICT, Mode
from headerware.connect.records import SourceRecord
from headerware.connect.transforms.timestamp_converter import TimestampConverter

MODES = pytest.mark.parametrize("mode", [STRICT, KAFKA_4_3])
MS = 1_483_425_001_864
MOMENT = from_epoch_ms(MS)
ISO = "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'"
TEXT = "2017-01-03T06:30:01.864Z"
OPTIONAL_TIMESTAMP = Timestamp.builder().optional().build()
INNER = SchemaBuilder.struct().field("at", Timestamp.SCHEMA).build()
EVENT = (
    SchemaBuilder.struct()
    .name("Event")
    .field("ts", Timestamp.SCHEMA)
    .field("o", SchemaBuilder.int64().optional().default(5).doc("when"))
    .field("inner", INNER)
    .field("n", INT32_SCHEMA)
    .build()
)


def record(schema: Schema | None, value: Any) -> SourceRecord:
    """Return a record of a value."""
    return SourceRecord(topic="t", value_schema=schema, value=value)


def converted(schema: Schema | None, value: Any, mode: Mode, /, **config: Any) -> Any:
    """Return a record, converted; an underscore in a key stands for a dot."""
    given = {name.replace("_", "."): text for name, text in config.items()}
    return TimestampConverter.Value(given, mode=mode).apply(record(schema, value))


def event(**values: Any) -> Struct:
    """Return a struct with points in time."""
    return Struct.of(EVENT, {"ts": MOMENT, "inner": {"at": MOMENT}, "n": 1} | values)


class TestFields:
    @MODES
    def test_one_is_converted_and_the_rest_stays(self, mode: Mode) -> None:
        made = converted(EVENT, event(), mode, target_type="string", format=ISO, field="ts")
        assert made.value["ts"] == TEXT
        assert made.value_schema.name == "Event"
        assert [field.schema.type for field in made.value_schema.fields] == [
            Type.STRING,
            Type.INT64,
            Type.STRUCT,
            Type.INT32,
        ]
        assert made.value["inner"] == event()["inner"]

    @MODES
    def test_defaults_are_put_in(self, mode: Mode) -> None:
        made = converted(EVENT, event(), mode, target_type="Timestamp", field="o")
        assert made.value["o"] == from_epoch_ms(5)

    @MODES
    def test_or_not(self, mode: Mode) -> None:
        made = converted(
            EVENT, event(), mode, target_type="Timestamp", field="o", replace_null_with_default="false"
        )
        assert made.value.get_without_default("o") is None

    def test_kafka_loses_default_and_doc_and_strict_keeps_them(self) -> None:
        lost = converted(EVENT, event(), KAFKA_4_3, target_type="Timestamp", field="o").value_schema
        assert lost.field("o").schema == OPTIONAL_TIMESTAMP
        kept = converted(EVENT, event(), STRICT, target_type="Timestamp", field="o").value_schema
        assert kept.field("o").schema.default == from_epoch_ms(5)
        assert kept.field("o").schema.doc == "when"

    @MODES
    def test_a_structs_own_default_is_converted(self, mode: Mode) -> None:
        plain = SchemaBuilder.struct().field("ts", INT64_SCHEMA).build()
        schema = (
            SchemaBuilder.like(plain, fields=True).default(Struct.of(plain, {"ts": 7})).optional().build()
        )
        made = converted(schema, Struct.of(schema, {"ts": 8}), mode, target_type="Timestamp", field="ts")
        assert made.value_schema.optional
        assert made.value_schema.default["ts"] == from_epoch_ms(7)
        assert made.value["ts"] == from_epoch_ms(8)

    @MODES
    def test_a_null_struct_takes_the_new_schema(self, mode: Mode) -> None:
        made = converted(EVENT, None, mode, target_type="unix", field="ts")
        assert made.value is None
        assert made.value_schema.field("ts").schema == INT64_SCHEMA

    def test_kafka_passes_over_a_field_that_is_not_there(self) -> None:
        assert converted(EVENT, event(), KAFKA_4_3, target_type="unix", field="zz").value_schema == EVENT
        assert converted(None, {"a": 1}, KAFKA_4_3, target_type="unix", field="zz").value == {
            "a": 1,
            "zz": None,
        }

    def test_strict_does_not(self) -> None:
        with pytest.raises(ConnectDataError, match="it has: ts, o"):
            converted(EVENT, event(), STRICT, target_type="unix", field="zz")
        assert converted(None, {"a": 1}, STRICT, target_type="unix", field="zz").value == {"a": 1}

    def test_strict_goes_into_structs_and_dicts(self) -> None:
        made = converted(EVENT, event(), STRICT, target_type="unix", field="inner.at")
        assert made.value["inner"]["at"] == MS
        given = {"inner": {"at": MOMENT}, "ts": None}
        assert converted(None, given, STRICT, target_type="unix", field="inner.at").value["inner"] == {
            "at": MS
        }
        assert given["inner"] == {"at": MOMENT}

    @MODES
    def test_a_null_field_stays_null(self, mode: Mode) -> None:
        assert converted(None, {"ts": None}, mode, target_type="unix", field="ts").value == {"ts": None}

    def test_a_field_that_is_no_point_in_time(self) -> None:
        for mode in (KAFKA_4_3, STRICT):
            with pytest.raises(ConnectError):
                converted(EVENT, event(), mode, target_type="unix", field="n")
        null = converted(EVENT, None, KAFKA_4_3, target_type="unix", field="n")
        assert null.value_schema.field("n").schema == INT64_SCHEMA
        with pytest.raises(ConnectError):
            converted(EVENT, None, STRICT, target_type="unix", field="n")

    @MODES
    @pytest.mark.parametrize(
        ("schema", "value"), [(None, 5), (EVENT, 5), (EVENT, Struct(INNER)), (INT64_SCHEMA, 5)]
    )
    def test_need_a_struct_or_dict(self, schema: Schema | None, value: Any, mode: Mode) -> None:
        with pytest.raises(ConnectDataError):
            converted(schema, value, mode, target_type="unix", field="ts")

    def test_kafka_refuses_the_first_field_that_is_wrong(self) -> None:
        empty = Struct(EVENT)
        with pytest.raises(ConnectDataError, match="ts"):
            converted(EVENT, empty, KAFKA_4_3, target_type="unix", field="n")

    def test_kafka_stumbles_over_a_null_name(self) -> None:
        with pytest.raises(NullValueError):
            converted(EVENT, event(), KAFKA_4_3, target_type="unix", field=None)
