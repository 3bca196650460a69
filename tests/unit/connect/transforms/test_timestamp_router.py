"""TimestampRouter in both modes."""

from __future__ import annotations

from typing import Any

import pytest

from headerware.connect.errors import ArgumentError, ConnectConfigError, ConnectDataError, NullValueError
from headerware.connect.modes import KAFKA_4_3, STRICT, Mode
from headerware.connect.records import SourceRecord
from headerware.connect.transforms.timestamp_router import TimestampRouter

MS = 1_483_425_001_864


def routed(config: dict[str, Any], mode: Mode, *, topic: str | None = "t", timestamp: int | None = MS) -> Any:
    """Return the topic that a record is routed to."""
    return TimestampRouter(config, mode=mode).apply(SourceRecord(topic=topic, timestamp=timestamp)).topic


class TestTimestampRouter:
    @pytest.mark.parametrize(
        ("config", "topic"),
        [
            ({}, "t-20170103"),
            ({"topic.format": "${timestamp}.${topic}.${topic}"}, "20170103.t.t"),
            ({"timestamp.format": "YYYY-'W'ww"}, "t-2017-W01"),
            ({"timestamp.format": ""}, "t-"),
            ({"topic.format": "x.${timestamp}"}, "x.20170103"),
        ],
    )
    def test_names_the_topic(self, config: dict[str, Any], topic: str, mode: Mode) -> None:
        assert routed(config, mode) == topic

    def test_keeps_the_rest(self, mode: Mode) -> None:
        given = SourceRecord({"f": 1}, {"o": 2}, "t", 3, None, "k", None, "v", -1)
        made = TimestampRouter(mode=mode).apply(given)
        assert made.topic == "t-19691231"
        assert (made.source_offset, made.kafka_partition, made.key, made.value) == ({"o": 2}, 3, "k", "v")
        assert given.topic == "t"

    def test_refuses_a_record_without_a_timestamp(self, mode: Mode) -> None:
        with pytest.raises(ConnectDataError, match="timestamp"):
            routed({}, mode, timestamp=None)

    def test_kafka_replaces_in_the_topics_own_name(self) -> None:
        assert routed({"topic.format": "${topic}"}, KAFKA_4_3, topic="a$1${timestamp}") == "a$120170103"

    def test_strict_takes_the_topics_name_as_it_is(self) -> None:
        with pytest.raises(ConnectDataError, match=r"a\$1\$\{timestamp\}"):
            routed({"topic.format": "${topic}"}, STRICT, topic="a$1${timestamp}")

    @pytest.mark.parametrize("text", ["x", "{topic}-{timestamp}", "-", "$topic-$timestamp", ""])
    def test_strict_refuses_a_format_without_placeholders(self, text: str) -> None:
        with pytest.raises(ConnectConfigError, match=r"may have removed the '\$'") as caught:
            TimestampRouter({"topic.format": text})
        assert caught.value.path == "topic.format"
        assert routed({"topic.format": text}, KAFKA_4_3) == text

    @pytest.mark.parametrize(
        "config",
        [
            {"timestamp.format": "HH:mm"},
            {"topic.format": "$1\\${topic}"},
            {"topic.format": "${topic}" + "x" * 249},
            {"topic.format": "${timestamp}", "timestamp.format": ""},
            {"topic.format": "${topic}${timestamp}.", "timestamp.format": "'t'"},
        ],
    )
    def test_strict_refuses_a_name_that_no_topic_can_have(self, config: dict[str, str]) -> None:
        topic = "." if "'t'" not in str(config) else "ü"
        router = TimestampRouter(config)
        with pytest.raises(ConnectDataError, match="no topic can have the new name"):
            router.apply(SourceRecord(topic=topic, timestamp=MS))
        routed(config, KAFKA_4_3, topic=topic)

    @pytest.mark.parametrize("pattern", ["bad{", "'x", "XXXX"])
    def test_kafka_sees_a_bad_pattern_with_the_first_record(self, pattern: str) -> None:
        with pytest.raises(ArgumentError):
            routed({"timestamp.format": pattern}, KAFKA_4_3)
        with pytest.raises(ConnectDataError):
            routed({"timestamp.format": pattern}, KAFKA_4_3, timestamp=None)

    @pytest.mark.parametrize("pattern", ["bad{", "'x", "XXXX", "YYYYMMdd", "yyyymmdd"])
    def test_strict_sees_a_bad_pattern_at_once(self, pattern: str) -> None:
        with pytest.raises(ConnectConfigError) as caught:
            TimestampRouter({"timestamp.format": pattern})
        assert caught.value.path == "timestamp.format"

    @pytest.mark.parametrize("text", ["${topics}", "${topic}-${date}", "${topic"])
    def test_unknown_placeholders(self, text: str) -> None:
        assert "{" in routed({"topic.format": text}, KAFKA_4_3)
        with pytest.raises(ConnectConfigError, match="there is no placeholder"):
            TimestampRouter({"topic.format": text})

    def test_nulls(self) -> None:
        for config in ({"topic.format": None}, {"timestamp.format": None}):
            with pytest.raises(NullValueError):
                routed(config, KAFKA_4_3)
            with pytest.raises(ConnectConfigError):
                TimestampRouter(config)
        with pytest.raises(NullValueError):
            routed({}, KAFKA_4_3, topic=None)
        with pytest.raises(ConnectDataError):
            routed({}, STRICT, topic=None)

    def test_timestamps_beyond_datetime(self) -> None:
        assert routed({}, KAFKA_4_3, timestamp=(1 << 63) - 1) == "t-2922789940817"
        with pytest.raises(ConnectDataError):
            routed({}, STRICT, timestamp=(1 << 63) - 1)
