from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Any

import pytest

from headerware.connect.data import (
    INT32_SCHEMA,
    OPTIONAL_INT32_SCHEMA,
    OPTIONAL_INT64_SCHEMA,
    OPTIONAL_STRING_SCHEMA,
    STRING_SCHEMA,
    Schema,
    SchemaBuilder,
    Struct,
    Timestamp,
)
from headerware.connect.errors import ConnectConfigError, ConnectDataError
from headerware.connect.headers import ConnectHeader
from headerware.connect.records import SinkRecord, SourceRecord
from headerware.connect.transforms.outbox_router import OutboxRouter

MICROS = SchemaBuilder.int64().name("io.debezium.time.MicroTimestamp").version(1).optional().build()


ROW = (
    SchemaBuilder.struct()
    .name("db.inventory.outbox.Value")
    .field("id", STRING_SCHEMA)
    .field("aggregatetype", STRING_SCHEMA)
    .field("aggregateid", STRING_SCHEMA)
    .field("type", STRING_SCHEMA)
    .field("payload", OPTIONAL_STRING_SCHEMA)
    .field("tenant", OPTIONAL_STRING_SCHEMA)
    .field("shard", OPTIONAL_INT32_SCHEMA)
    .field("version", OPTIONAL_INT32_SCHEMA)
    .field("micros", MICROS)
    .field("at", Timestamp.builder().optional().build())
    .field("bare", OPTIONAL_INT64_SCHEMA)
    .optional()
    .build()
)


CHANGE = (
    SchemaBuilder.struct()
    .name("db.inventory.outbox.Envelope")
    .field("before", ROW)
    .field("after", ROW)
    .field("op", STRING_SCHEMA)
    .field("ts_ms", OPTIONAL_INT64_SCHEMA)
    .build()
)


CELLS: dict[str, Any] = {
    "id": "e1",
    "aggregatetype": "order",
    "aggregateid": "7",
    "type": "OrderCreated",
    "payload": '{"a": 1}',
    "tenant": "acme",
    "shard": 3,
    "version": 2,
    "micros": 1_700_000_000_123_456,
    "at": datetime(2024, 1, 1, tzinfo=UTC),
    "bare": 5,
}


def change(op: str = "c", schema: Schema = CHANGE, **cells: Any) -> SourceRecord:
    value = Struct.of(schema, {"op": op, "ts_ms": 111, "after": CELLS | cells})
    return SourceRecord(
        {"server": "db"}, {"lsn": 1}, "db.inventory.outbox", None, None, None, schema, value, 9
    )


def schemaless(op: Any = "c", **cells: Any) -> SourceRecord:
    value = {"op": op, "ts_ms": 111, "after": CELLS | cells}
    return SourceRecord(topic="db.inventory.outbox", value=value, timestamp=9)


def routed(record: Any, **config: str) -> Any:
    return OutboxRouter({name.replace("_", "."): text for name, text in config.items()}).apply(record)


class TestOutboxRouter:
    @pytest.mark.parametrize("op", ["c", "r"])
    def test_makes_an_event_of_a_row(self, op: str) -> None:
        record = change(op)
        record.headers.add_string("trace", "x")
        made = routed(record)
        assert made == SourceRecord(
            {"server": "db"},
            {"lsn": 1},
            "outbox.event.order",
            None,
            STRING_SCHEMA,
            "7",
            OPTIONAL_STRING_SCHEMA,
            '{"a": 1}',
            111,
            [ConnectHeader("trace", STRING_SCHEMA, "x"), ConnectHeader("id", STRING_SCHEMA, "e1")],
        )
        assert len(record.headers) == 1

    def test_makes_an_event_of_a_row_without_a_schema(self) -> None:
        made = routed(schemaless())
        assert made == SourceRecord(
            topic="outbox.event.order",
            key="7",
            value='{"a": 1}',
            timestamp=111,
            headers=[ConnectHeader("id", None, "e1")],
        )

    @pytest.mark.parametrize("make", [change, schemaless])
    def test_takes_other_columns(self, make: Any) -> None:
        made = routed(
            make(),
            table_field_event_id="type",
            table_field_event_key="tenant",
            table_field_event_payload="aggregateid",
            route_by_field="tenant",
            route_topic_regex="(?<who>a)(.*)",
            route_topic_replacement="x.${who}.$2",
        )
        assert (made.topic, made.key, made.value) == ("x.a.cme", "acme", "7")
        assert [header.value for header in made.headers] == ["OrderCreated"]

    def test_leaves_the_topic_that_its_pattern_does_not_match(self) -> None:
        assert routed(change(), route_topic_regex="x+", route_topic_replacement="y").topic == "order"

    @pytest.mark.parametrize("make", [change, schemaless])
    def test_drops_tombstones_and_deletes(self, make: Any) -> None:
        assert routed(make("d")) is None
        assert routed(SinkRecord("t", value_schema=CHANGE)) is None

    @pytest.mark.parametrize("make", [change, schemaless])
    @pytest.mark.parametrize("op", ["u", "t", "m"])
    @pytest.mark.parametrize(("behaviour", "level"), [("warn", logging.WARNING), ("error", logging.ERROR)])
    def test_logs_and_drops_other_changes(
        self, make: Any, op: str, behaviour: str, level: int, caplog: pytest.LogCaptureFixture
    ) -> None:
        assert routed(make(op), table_op_invalid_behavior=behaviour) is None
        assert [record.levelno for record in caplog.records] == [level]
        assert "acme" not in caplog.text

    @pytest.mark.parametrize("make", [change, schemaless])
    def test_refuses_other_changes_where_they_are_fatal(self, make: Any) -> None:
        with pytest.raises(ConnectDataError, match="another change"):
            routed(make("u"), table_op_invalid_behavior="fatal")

    def test_takes_an_operation_of_a_wrong_type_for_another_change(self) -> None:
        assert routed(schemaless(op=["c"])) is None

    @pytest.mark.parametrize(
        "record",
        [
            SinkRecord("heartbeat", value={"ts_ms": 1}),
            SinkRecord("text", value="c"),
            SinkRecord("t", value_schema=ROW, value=Struct.of(ROW, CELLS)),
            SinkRecord("t", value_schema=STRING_SCHEMA, value="x"),
        ],
    )
    def test_keeps_records_that_are_not_changes(self, record: SinkRecord) -> None:
        assert routed(record) is record

    @pytest.mark.parametrize("make", [change, schemaless])
    def test_places_columns_in_headers_and_the_partition(self, make: Any) -> None:
        made = routed(
            make(), table_fields_additional_placement="type:header:eventType, tenant:header,shard:partition"
        )
        assert [(header.key, header.value) for header in made.headers] == [
            ("id", "e1"),
            ("eventType", "OrderCreated"),
            ("tenant", "acme"),
        ]
        assert (made.kafka_partition, made.value) == (3, '{"a": 1}')

    def test_places_columns_in_an_envelope(self) -> None:
        made = routed(
            change(),
            table_fields_additional_placement="type:envelope:eventType,tenant:envelope",
            table_field_event_schema_version="version",
        )
        assert made.value.to_dict() == {"payload": '{"a": 1}', "eventType": "OrderCreated", "tenant": "acme"}
        assert made.value_schema.name == "db.inventory.outbox.order.Value"
        assert made.value_schema.version == 2
        made.value.validate()

    def test_places_columns_in_an_envelope_without_a_schema(self) -> None:
        made = routed(schemaless(), table_fields_additional_placement="type:envelope")
        assert made.value == {"payload": '{"a": 1}', "type": "OrderCreated"}

    def test_names_the_envelope_for_each_rows_topic(self) -> None:
        router = OutboxRouter({"table.fields.additional.placement": "type:envelope"})
        names = [router.apply(change(aggregatetype=kind)).value_schema.name for kind in ("a", "b", "a")]
        assert names == [f"db.inventory.outbox.{kind}.Value" for kind in ("a", "b", "a")]

    @pytest.mark.parametrize("make", [change, schemaless])
    @pytest.mark.parametrize("placement", ["header", "envelope", "partition"])
    def test_refuses_or_passes_over_a_missing_column(self, make: Any, placement: str) -> None:
        config = {"table_fields_additional_placement": f"nope:{placement}"}
        with pytest.raises(ConnectDataError, match="nope"):
            routed(make(), **config)
        made = routed(make(), **config, table_fields_additional_error_on_missing="false")
        assert made.topic == "outbox.event.order"

    @pytest.mark.parametrize("make", [change, schemaless])
    @pytest.mark.parametrize("payload", [None, "", "  "])
    def test_makes_a_tombstone_of_an_empty_payload_where_asked(self, make: Any, payload: Any) -> None:
        made = routed(make(payload=payload), route_tombstone_on_empty_payload="true")
        assert (made.value, made.value_schema, made.key) == (None, None, "7")
        assert routed(make(payload=payload)).value == payload

    def test_expands_a_json_payload(self) -> None:
        text = json.dumps({"id": 1, "items": [{"n": "a"}, {"n": "b", "q": 3000000000}], "none": None})
        made = routed(change(payload=text), table_expand_json_payload="true")
        assert made.value_schema.name == "payload"
        assert made.value.to_dict() == {
            "id": 1,
            "items": [{"n": "a", "q": None}, {"n": "b", "q": 3000000000}],
        }
        made.value.validate()

    def test_expands_into_an_envelope(self) -> None:
        made = routed(
            change(), table_expand_json_payload="true", table_fields_additional_placement="type:envelope"
        )
        assert made.value.to_dict() == {"payload": {"a": 1}, "type": "OrderCreated"}
        made.value.validate()

    def test_expands_without_a_schema(self) -> None:
        made = routed(schemaless(payload='[1, {"b": null}]'), table_expand_json_payload="true")
        assert made.value == [1, {"b": None}]

    @pytest.mark.parametrize("make", [change, schemaless])
    @pytest.mark.parametrize(
        "payload", ["secret", '{"a": 1', '{"a": NaN}', '{"a": 1, "a": 2}', "[" * 100_000]
    )
    def test_leaves_and_logs_a_payload_that_is_no_json(
        self, make: Any, payload: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        assert routed(make(payload=payload), table_expand_json_payload="true").value == payload
        assert "stays text" in caplog.text
        assert "secret" not in caplog.text

    @pytest.mark.parametrize(
        ("column", "expected"), [("micros", 1_700_000_000_123), ("at", 1_704_067_200_000)]
    )
    def test_takes_the_timestamp_of_a_column(self, column: str, expected: int) -> None:
        assert routed(change(), table_field_event_timestamp=column).timestamp == expected
        cells: dict[str, Any] = {column: None}
        assert routed(change(**cells), table_field_event_timestamp=column).timestamp == 111

    def test_takes_the_timestamp_of_a_column_without_a_schema(self) -> None:
        assert routed(schemaless(), table_field_event_timestamp="at").timestamp == 1_704_067_200_000

    @pytest.mark.parametrize(("make", "column"), [(change, "bare"), (change, "type"), (schemaless, "bare")])
    def test_refuses_a_timestamp_of_no_unit(self, make: Any, column: str) -> None:
        with pytest.raises(ConnectDataError, match="unit"):
            routed(make(), table_field_event_timestamp=column)

    @pytest.mark.parametrize("make", [change, schemaless])
    @pytest.mark.parametrize(
        "key",
        [
            "table_field_event_id",
            "table_field_event_key",
            "table_field_event_payload",
            "table_field_event_timestamp",
            "route_by_field",
        ],
    )
    def test_refuses_a_row_that_lacks_a_column(self, make: Any, key: str) -> None:
        with pytest.raises(ConnectDataError, match="nope"):
            routed(make(), **{key: "nope"})

    @pytest.mark.parametrize("topic", ["a b", "../x", "x" * 250])
    @pytest.mark.parametrize("make", [change, schemaless])
    def test_refuses_a_topic_that_kafka_does_not_take(self, make: Any, topic: str) -> None:
        with pytest.raises(ConnectDataError, match="name of a topic"):
            routed(make(aggregatetype=topic))

    def test_refuses_a_change_without_a_row(self) -> None:
        record = SinkRecord("t", value_schema=CHANGE, value=Struct.of(CHANGE, {"op": "c"}))
        with pytest.raises(ConnectDataError, match="the row"):
            routed(record)
        with pytest.raises(ConnectDataError, match="the row"):
            routed(SinkRecord("t", value={"op": "c", "after": None}))

    def test_refuses_a_change_whose_row_is_no_struct(self) -> None:
        schema = (
            SchemaBuilder.struct()
            .name("x.Envelope")
            .field("op", STRING_SCHEMA)
            .field("after", INT32_SCHEMA)
            .build()
        )
        record = SinkRecord("t", value_schema=schema, value=Struct.of(schema, {"op": "c", "after": 1}))
        with pytest.raises(ConnectDataError, match="'after'"):
            routed(record)

    @pytest.mark.parametrize(
        ("column", "key"), [("id", "table_field_event_schema_version"), ("shard", "route_by_field")]
    )
    def test_refuses_a_column_of_another_type(self, column: str, key: str) -> None:
        with pytest.raises(ConnectDataError, match=f"in the column {column!r}"):
            routed(change(), **{key: column})

    @pytest.mark.parametrize("shard", [-1, True, "3"])
    def test_requires_a_partition(self, shard: Any) -> None:
        with pytest.raises(ConnectDataError, match="partition"):
            routed(schemaless(shard=shard), table_fields_additional_placement="shard:partition")

    @pytest.mark.parametrize(
        "config",
        [
            {"table.fields.additional.placement": "type"},
            {"table.fields.additional.placement": "type:body"},
            {"table.fields.additional.placement": "a:header:b:c"},
            {"table.fields.additional.placement": ":header"},
            {"table.op.invalid.behavior": "ignore"},
            {"route.topic.regex": "("},
            {"route.topic.replacement": "$9"},
            {"route.topic.replacment": "x"},
        ],
    )
    def test_refuses_a_configuration_that_cannot_work(self, config: dict[str, str]) -> None:
        with pytest.raises(ConnectConfigError):
            OutboxRouter(config)
