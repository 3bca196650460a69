"""TimestampConverter in both modes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from headerware.connect.data import (
    FLOAT64_SCHEMA,
    INT32_SCHEMA,
    INT64_SCHEMA,
    OPTIONAL_INT64_SCHEMA,
    OPTIONAL_STRING_SCHEMA,
    STRING_SCHEMA,
    Date,
    Float32,
    Int32,
    Schema,
    SchemaBuilder,
    Struct,
    Time,
    Timestamp,
    Type,
    alike,
)
from headerware.connect.data.times import from_epoch_ms, to_epoch_ms
from headerware.connect.errors import ConnectConfigError, ConnectDataError, ConnectError, NullValueError
from headerware.connect.modes import KAFKA_4_3, STRICT, Mode
from headerware.connect.records import SourceRecord
from headerware.connect.transforms.timestamp_converter import TimestampConverter
from tests.unit.connect.conftest import record

MS = 1_483_425_001_864


MOMENT = from_epoch_ms(MS)


DAY = datetime(2017, 1, 3, tzinfo=UTC)


OF_DAY = from_epoch_ms(23_401_864)


ISO = "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'"


TEXT = "2017-01-03T06:30:01.864Z"


OPTIONAL_TIMESTAMP = Timestamp.builder().optional().build()


TARGETS = {"string": STRING_SCHEMA, "unix": INT64_SCHEMA, "Date": Date.SCHEMA, "Time": Time.SCHEMA} | {
    "Timestamp": Timestamp.SCHEMA
}


def converted(schema: Schema | None, value: Any, mode: Mode, /, **config: Any) -> Any:
    """Return a record, converted; an underscore in a key stands for a dot."""
    given = {name.replace("_", "."): text for name, text in config.items()}
    return TimestampConverter.Value(given, mode=mode).apply(record(schema, value))


class TestConfig:
    @pytest.mark.parametrize(
        "config",
        [
            {},
            {"target.type": "date"},
            {"target.type": None},
            {"target.type": "string"},
            {"target.type": "string", "format": " "},
            {"target.type": "unix", "format": "bad"},
            {"target.type": "unix", "unix.precision": "bogus"},
            {"target.type": "unix", "replace.null.with.default": "maybe"},
        ],
    )
    def test_refuses(self, config: dict[str, Any], mode: Mode) -> None:
        with pytest.raises(ConnectConfigError):
            TimestampConverter.Value(config, mode=mode)

    def test_strict_refuses_patterns_that_are_not_meant(self) -> None:
        with pytest.raises(ConnectConfigError) as caught:
            TimestampConverter.Value({"target.type": "string", "format": "YYYY-MM-dd"})
        assert caught.value.path == "format"

    def test_works_on_keys_too(self) -> None:
        made = TimestampConverter.Key({"target.type": "unix"}).apply(SourceRecord(key=MOMENT, value=MOMENT))
        assert (made.key, made.value) == (MS, MOMENT)


class TestWholeValues:
    @pytest.mark.parametrize(
        ("target", "expected"),
        [("string", TEXT), ("unix", MS), ("Date", DAY), ("Time", OF_DAY), ("Timestamp", MOMENT)],
    )
    @pytest.mark.parametrize(
        ("schema", "value"), [(Timestamp.SCHEMA, MOMENT), (INT64_SCHEMA, MS), (STRING_SCHEMA, TEXT)]
    )
    def test_become_any_form(
        self, schema: Schema, value: Any, target: str, expected: Any, mode: Mode
    ) -> None:
        for given in (schema, None):
            made = converted(given, value, mode, target_type=target, format=ISO)
            assert alike(made.value, expected)
            assert made.value_schema == (None if given is None else TARGETS[target])

    def test_an_optional_schema_stays_optional(self, mode: Mode) -> None:
        made = converted(OPTIONAL_TIMESTAMP, MOMENT, mode, target_type="unix")
        assert made.value_schema == OPTIONAL_INT64_SCHEMA

    def test_null_takes_the_new_schema(self, mode: Mode) -> None:
        made = converted(OPTIONAL_TIMESTAMP, None, mode, target_type="string", format=ISO)
        assert (made.value_schema, made.value) == (OPTIONAL_STRING_SCHEMA, None)
        assert converted(None, None, mode, target_type="unix", field="ts").value is None

    def test_a_schema_of_something_else_is_refused(self, mode: Mode) -> None:
        for value in (1.5, None):
            with pytest.raises(ConnectError) as caught:
                converted(FLOAT64_SCHEMA, value, mode, target_type="unix")
            assert caught.value.java == "org.apache.kafka.connect.errors.ConnectException"

    @pytest.mark.parametrize("value", [Int32(5), 1.5, Float32(1), True, b"x", [], {}])
    def test_a_value_of_something_else_is_refused(self, value: Any, mode: Mode) -> None:
        with pytest.raises(ConnectDataError):
            converted(None, value, mode, target_type="unix")

    @pytest.mark.parametrize(
        ("schema", "value"),
        [(INT64_SCHEMA, "5"), (STRING_SCHEMA, 5), (Timestamp.SCHEMA, 5), (INT64_SCHEMA, True)],
    )
    def test_a_value_that_is_not_its_schemas_is_refused(self, schema: Schema, value: Any, mode: Mode) -> None:
        with pytest.raises(ConnectDataError):
            converted(schema, value, mode, target_type="Time", format=ISO)

    def test_text_without_a_pattern(self) -> None:
        with pytest.raises(NullValueError):
            converted(STRING_SCHEMA, TEXT, KAFKA_4_3, target_type="unix")
        for schema in (STRING_SCHEMA, None):
            with pytest.raises(ConnectDataError, match="format"):
                converted(schema, TEXT, STRICT, target_type="unix")


class TestText:
    def test_kafka_reads_leniently(self) -> None:
        for schema in (STRING_SCHEMA, None):
            made = converted(
                schema, "2017-02-31 and more", KAFKA_4_3, target_type="Date", format="yyyy-MM-dd"
            )
            assert made.value == datetime(2017, 3, 3, tzinfo=UTC)

    def test_garbage_is_refused_and_not_shown(self, mode: Mode) -> None:
        with pytest.raises(ConnectDataError) as caught:
            converted(STRING_SCHEMA, "secret", mode, target_type="unix", format="yyyy-MM-dd")
        assert "secret" not in str(caught.value)

    def test_strict_reads_exactly(self) -> None:
        for text in ("2017-02-31", "2017-01-03x", "2017-1-3"):
            with pytest.raises(ConnectDataError):
                converted(None, text, STRICT, target_type="Date", format="yyyy-MM-dd")

    def test_kafka_writes_in_the_zone_that_it_read(self) -> None:
        pattern = "yyyy-MM-dd HH:mm z"
        made = converted(None, "2020-07-01 12:00 EST", KAFKA_4_3, target_type="string", format=pattern)
        assert made.value == "2020-07-01 13:00 EDT"

    def test_offsets_become_utc(self, mode: Mode) -> None:
        made = converted(
            None, "2017-01-03 08:30 +02:00", mode, target_type="string", format="yyyy-MM-dd HH:mm XXX"
        )
        assert made.value == "2017-01-03 06:30 Z"


class TestUnixTime:
    @pytest.mark.parametrize(
        ("precision", "units"),
        [
            ("seconds", MS // 1000),
            ("milliseconds", MS),
            ("microseconds", MS * 1000),
            ("nanoseconds", MS * 1_000_000),
        ],
    )
    def test_in_every_precision(self, precision: str, units: int, mode: Mode) -> None:
        made = converted(None, MOMENT, mode, target_type="unix", unix_precision=precision)
        assert made.value == units
        back = converted(None, units, mode, target_type="Timestamp", unix_precision=precision)
        assert to_epoch_ms(back.value) == (MS // 1000 * 1000 if precision == "seconds" else MS)

    def test_kafka_rounds_towards_zero(self) -> None:
        before = from_epoch_ms(-1)
        assert converted(None, before, KAFKA_4_3, target_type="unix", unix_precision="seconds").value == 0
        for units, expected in ((-1999, -1), (1999, 1), (-1, 0)):
            made = converted(None, units, KAFKA_4_3, target_type="Timestamp", unix_precision="microseconds")
            assert to_epoch_ms(made.value) == expected

    def test_strict_rounds_seconds_down_and_refuses_fractions(self) -> None:
        before = from_epoch_ms(-1)
        assert converted(None, before, STRICT, target_type="unix", unix_precision="seconds").value == -1
        with pytest.raises(ConnectDataError, match="without a fraction of a millisecond"):
            converted(None, 1999, STRICT, target_type="Timestamp", unix_precision="microseconds")

    def test_from_unix_time_to_unix_time(self) -> None:
        config = {"target_type": "unix", "unix_precision": "microseconds"}
        assert converted(INT64_SCHEMA, 1999, KAFKA_4_3, **config).value == 1000
        assert converted(INT64_SCHEMA, 1999, STRICT, **config).value == 1999

    def test_a_value_that_does_not_fit(self) -> None:
        late, seconds = (
            from_epoch_ms((1 << 63) - 1),
            {"target_type": "Timestamp", "unix_precision": "seconds"},
        )
        nanoseconds = {"target_type": "unix", "unix_precision": "nanoseconds"}
        assert converted(None, late, KAFKA_4_3, **nanoseconds).value == (1 << 63) - 1
        assert to_epoch_ms(converted(None, -(1 << 62), KAFKA_4_3, **seconds).value) == -(1 << 63)
        with pytest.raises(ConnectDataError):
            converted(None, late, STRICT, **nanoseconds)
        with pytest.raises(ConnectDataError):
            converted(None, -(1 << 62), STRICT, **seconds)


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


def event(**values: Any) -> Struct:
    """Return a struct with points in time."""
    return Struct.of(EVENT, {"ts": MOMENT, "inner": {"at": MOMENT}, "n": 1} | values)


class TestFields:
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

    def test_defaults_are_put_in(self, mode: Mode) -> None:
        made = converted(EVENT, event(), mode, target_type="Timestamp", field="o")
        assert made.value["o"] == from_epoch_ms(5)

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

    def test_a_structs_own_default_is_converted(self, mode: Mode) -> None:
        plain = SchemaBuilder.struct().field("ts", INT64_SCHEMA).build()
        schema = (
            SchemaBuilder.like(plain, fields=True).default(Struct.of(plain, {"ts": 7})).optional().build()
        )
        made = converted(schema, Struct.of(schema, {"ts": 8}), mode, target_type="Timestamp", field="ts")
        assert made.value_schema.optional
        assert made.value_schema.default["ts"] == from_epoch_ms(7)
        assert made.value["ts"] == from_epoch_ms(8)

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
