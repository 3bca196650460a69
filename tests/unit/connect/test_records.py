"""Source and sink records."""

from __future__ import annotations

from typing import Any

import pytest

from headerware.connect.data import INT32_SCHEMA, STRING_SCHEMA, Int32
from headerware.connect.headers import ConnectHeaders
from headerware.connect.records import ConnectRecord, SinkRecord, SourceRecord, TimestampType


def source(**changes: Any) -> SourceRecord:
    facts: dict[str, Any] = {
        "source_partition": {"file": "a"},
        "source_offset": {"line": 3},
        "topic": "t",
        "kafka_partition": 1,
        "key_schema": STRING_SCHEMA,
        "key": "k",
        "value_schema": INT32_SCHEMA,
        "value": Int32(5),
        "timestamp": 7,
        "headers": ConnectHeaders().add_string("h", "x"),
    }
    return SourceRecord(**{**facts, **changes})


def sink(**changes: Any) -> SinkRecord:
    facts: dict[str, Any] = {
        "topic": "t",
        "kafka_partition": 1,
        "value": {"a": 1},
        "kafka_offset": 9,
        "timestamp": 7,
        "timestamp_type": TimestampType.CREATE_TIME,
    }
    return SinkRecord(**{**facts, **changes})


class TestNewRecord:
    def test_keeps_what_belongs_to_the_kind(self) -> None:
        made = source().new_record("u", None, None, None, None, "v", None)
        assert (made.source_partition, made.source_offset) == ({"file": "a"}, {"line": 3})
        assert (made.topic, made.kafka_partition, made.value, made.timestamp) == ("u", None, "v", None)

    def test_of_a_sink_record_remembers_where_it_was_read(self) -> None:
        made = sink().new_record("u", 2, None, None, None, None, None)
        assert (made.original_topic, made.original_kafka_partition, made.original_kafka_offset) == ("t", 1, 9)
        assert (made.kafka_offset, made.timestamp_type) == (9, TimestampType.CREATE_TIME)

    @pytest.mark.parametrize("record", [source(), sink()])
    def test_has_headers_of_its_own(self, record: ConnectRecord) -> None:
        made = record.with_topic("u")
        made.headers.add_string("more", "x")
        assert "more" not in record.headers

    def test_takes_other_headers(self) -> None:
        made = source().new_record("t", 1, None, None, None, None, None, ConnectHeaders().add_int("i", 1))
        assert [header.key for header in made.headers] == ["i"]


class TestEquality:
    @pytest.mark.parametrize(
        "change",
        [
            {"topic": "u"},
            {"kafka_partition": 2},
            {"key": "l"},
            {"key_schema": None},
            {"value": 5},
            {"value_schema": None},
            {"timestamp": 8},
            {"headers": ConnectHeaders()},
            {"headers": ConnectHeaders().add_string("h", "y")},
            {"headers": ConnectHeaders().add_string("h", "x").add_string("h", "x")},
            {"source_offset": {"line": 4}},
        ],
    )
    def test_sees_every_part(self, change: dict[str, Any]) -> None:
        assert source() == source()
        assert source(**change) != source()

    @pytest.mark.parametrize(
        "change",
        [{"kafka_offset": 10}, {"timestamp_type": TimestampType.LOG_APPEND_TIME}, {"original_topic": "u"}],
    )
    def test_of_sink_records_sees_where_they_come_from(self, change: dict[str, Any]) -> None:
        assert sink() == sink()
        assert sink(**change) != sink()

    def test_tells_the_kinds_apart(self) -> None:
        assert SourceRecord(topic="t") != SinkRecord(topic="t")


class TestRepr:
    def test_shows_no_payload(self) -> None:
        shown = repr(source(value="secret", key="hidden", headers=ConnectHeaders().add_string("h", "veiled")))
        assert not {"secret", "hidden", "veiled"} & set(shown.replace("'", " ").replace("=", " ").split())
