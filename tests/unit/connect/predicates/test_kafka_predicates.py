from __future__ import annotations

from typing import Any

import pytest

from headerware.connect.data import OPTIONAL_STRING_SCHEMA
from headerware.connect.errors import ConnectConfigError
from headerware.connect.modes import Mode
from headerware.connect.predicates import HasHeaderKey, RecordIsTombstone, TopicNameMatches
from headerware.connect.records import SinkRecord, SourceRecord


class TestTopicNameMatches:
    @pytest.mark.parametrize(
        ("pattern", "topic", "holds"),
        [
            ("te.*", "test", True),
            ("te", "test", False),
            (r"\w+-\d", "a-1", True),
            ("(?i)TEST", "test", True),
            (".*", "a\n", False),
            (".*", None, False),
        ],
    )
    def test_holds_if_the_complete_name_matches(
        self, pattern: str, topic: str | None, mode: Mode, *, holds: bool
    ) -> None:
        assert TopicNameMatches({"pattern": pattern}, mode=mode).test(SourceRecord(topic=topic)) is holds

    @pytest.mark.parametrize("config", [{}, {"pattern": ""}, {"pattern": "["}, {"pattern": None}])
    def test_refuses_a_bad_pattern(self, config: dict[str, Any], mode: Mode) -> None:
        with pytest.raises(ConnectConfigError) as caught:
            TopicNameMatches(config, mode=mode)
        assert caught.value.path == "pattern"


class TestHasHeaderKey:
    @pytest.mark.parametrize(("name", "holds"), [("h", True), ("H", False), ("other", False)])
    def test_holds_where_there_is_one(self, name: str, mode: Mode, *, holds: bool) -> None:
        record = SinkRecord(topic="t")
        record.headers.add_string("x", "1").add("h", None)
        assert HasHeaderKey({"name": name}, mode=mode).test(record) is holds

    @pytest.mark.parametrize("config", [{}, {"name": ""}, {"name": " "}])
    def test_refuses_an_empty_name(self, config: dict[str, str], mode: Mode) -> None:
        with pytest.raises(ConnectConfigError) as caught:
            HasHeaderKey(config, mode=mode)
        assert caught.value.path == "name"


class TestRecordIsTombstone:
    @pytest.mark.parametrize(
        ("record", "holds"),
        [
            (SourceRecord(), True),
            (SourceRecord(value_schema=OPTIONAL_STRING_SCHEMA), True),
            (SourceRecord(value=""), False),
            (SourceRecord(value=0), False),
        ],
    )
    def test_holds_where_the_value_is_null(self, record: SourceRecord, mode: Mode, *, holds: bool) -> None:
        assert RecordIsTombstone(mode=mode).test(record) is holds


class TestUnknownKeys:
    @pytest.mark.parametrize("kind", [RecordIsTombstone, HasHeaderKey, TopicNameMatches])
    def test_are_refused_by_strict_only(self, kind: Any) -> None:
        config = {"any": "1", "name": "h", "pattern": "p"}
        with pytest.raises(ConnectConfigError, match="there is no such key"):
            kind(config)
        kind(config, mode="kafka_4_3")

    def test_null_is_a_name_that_no_header_has_in_kafka(self) -> None:
        assert not HasHeaderKey({"name": None}, mode="kafka_4_3").test(SourceRecord())
