from __future__ import annotations

import pytest

from headerware.connect import ConnectError, SinkRecord, SourceRecord, from_connect, to_connect
from headerware.connect.data import INT64_SCHEMA, STRING_SCHEMA, SchemaAndValue, SchemaBuilder, Struct
from headerware.core.headers import Headers
from headerware.core.record import Record

ORDER = SchemaBuilder.struct().field("id", INT64_SCHEMA).build()


def record() -> Record:
    order = Struct(ORDER)
    order.put("id", 7)
    return Record(
        "orders",
        order,
        SchemaAndValue(STRING_SCHEMA, "k"),
        Headers([("a", b"1"), ("b", None)]),
        partition=3,
        timestamp_ms=5,
        timestamp_type=1,
        offset=9,
        local={"mine": 1},
    )


class TestToConnect:
    def test_splits_schemas_from_values(self) -> None:
        made = to_connect(record())
        assert isinstance(made, SourceRecord)
        assert (made.key_schema, made.key) == (STRING_SCHEMA, "k")
        assert (made.value_schema, made.value["id"]) == (ORDER, 7)
        assert (made.topic, made.kafka_partition, made.timestamp) == ("orders", 3, 5)

    def test_gives_sink_records_to_consumers(self) -> None:
        made = to_connect(record(), side="consumer")
        assert isinstance(made, SinkRecord)
        assert made.kafka_offset == 9
        assert made.timestamp_type.value == "CreateTime"

    def test_decodes_headers(self) -> None:
        found = to_connect(record()).headers.last_with_name("a")
        assert found is not None
        assert found.value == 1


class TestFromConnect:
    @pytest.mark.parametrize("side", ["producer", "consumer"])
    def test_returns_what_nobody_has_changed(self, side: str) -> None:
        came = record()
        made = to_connect(came) if side == "producer" else to_connect(came, side="consumer")
        back = from_connect(made, came)
        assert back == came
        assert back.value is came.value
        assert back.headers is came.headers

    def test_joins_changed_values(self) -> None:
        came = record()
        made = to_connect(came).with_part("value", STRING_SCHEMA, "text")
        assert from_connect(made, came).value == SchemaAndValue(STRING_SCHEMA, "text")

    def test_needs_no_record_to_begin_with(self) -> None:
        made = SourceRecord(topic="t", value="plain", timestamp=4)
        assert from_connect(made) == Record("t", "plain", timestamp_ms=4)

    def test_gives_plain_values(self) -> None:
        came = record()
        made = from_connect(to_connect(came), came, plain=True)
        assert (made.key, made.value) == ("k", {"id": 7})

    def test_wants_a_topic(self) -> None:
        with pytest.raises(ConnectError, match="no topic"):
            from_connect(SourceRecord(value="x"))
