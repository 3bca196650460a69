from __future__ import annotations

import pytest

from headerware.connect.errors import ConnectConfigError, ConnectDataError, ConnectError
from headerware.connect.modes import Mode
from headerware.connect.records import SinkRecord, SourceRecord
from headerware.connect.transforms.regex_router import RegexRouter


def routed(topic: str | None, regex: str, replacement: str | None, mode: Mode = "strict") -> str | None:
    made = RegexRouter({"regex": regex, "replacement": replacement}, mode=mode).apply(
        SourceRecord(topic=topic)
    )
    found: str | None = made.topic
    return found


class TestRegexRouter:
    @pytest.mark.parametrize(
        ("topic", "regex", "replacement", "expected"),
        [
            ("orig", "(.*)", "new_$1", "new_orig"),
            ("t-12", r"(.*)-(\d+)", "$2.$1", "12.t"),
            ("orig", "(?<n>o.*)", "${n}2", "orig2"),
            ("orig", "or", "new", "orig"),
            ("a", "(a)|(b)", "$2x", "x"),
        ],
    )
    def test_renames_topics_whose_complete_name_matches(
        self, topic: str, regex: str, replacement: str, expected: str, mode: Mode
    ) -> None:
        assert routed(topic, regex, replacement, mode) == expected

    def test_leaves_other_records_the_very_same(self) -> None:
        router = RegexRouter({"regex": "a.*", "replacement": "b"})
        record = SinkRecord(topic="x", value=1)
        assert router.apply(record) is record
        assert router.apply(record) is record

    def test_keeps_everything_but_the_topic(self) -> None:
        record = SinkRecord("a", 3, None, b"k", None, b"v", 7, 12)
        record.headers.add_string("h", "x")
        made = RegexRouter({"regex": "a", "replacement": "b"}).apply(record)
        assert made == record.with_topic("b")
        assert (made.original_topic, made.headers is record.headers) == ("a", False)

    def test_replaces_the_complete_name_in_strict_and_the_first_match_in_kafka(self) -> None:
        assert routed("ab", "a|ab", "X") == "X"
        assert routed("ab", "a|ab", "X", "kafka_4_3") == "Xb"

    def test_refuses_a_record_without_a_topic(self, mode: Mode) -> None:
        with pytest.raises(ConnectError) as caught:
            routed(None, ".*", "x", mode)
        java = {"strict": ConnectDataError.java, "kafka_4_3": "java.lang.NullPointerException"}
        assert caught.value.java == java[mode]

    @pytest.mark.parametrize(
        ("replacement", "java"),
        [
            ("a\\", "java.lang.IllegalArgumentException"),
            ("${nope}", "java.lang.IllegalArgumentException"),
            ("$9", "java.lang.IndexOutOfBoundsException"),
        ],
    )
    def test_refuses_a_bad_replacement_early_in_strict_and_at_a_record_in_kafka(
        self, replacement: str, java: str
    ) -> None:
        config = {"regex": "(a)", "replacement": replacement}
        with pytest.raises(ConnectConfigError) as refused:
            RegexRouter(config)
        assert refused.value.path == "replacement"
        router = RegexRouter(config, mode="kafka_4_3")
        assert router.apply(SourceRecord(topic="b")).topic == "b"
        for _ in range(2):
            with pytest.raises(ConnectError) as caught:
                router.apply(SourceRecord(topic="a"))
            assert caught.value.java == java

    def test_a_null_replacement_fails_at_a_record_in_kafka(self) -> None:
        with pytest.raises(ConnectError) as caught:
            routed("a", "a", None, "kafka_4_3")
        assert caught.value.java == "java.lang.NullPointerException"
        with pytest.raises(ConnectConfigError):
            routed("a", "a", None)

    @pytest.mark.parametrize("name", ["", ".", "..", "a b", "é", "x" * 250, "a\n"])
    def test_refuses_names_that_no_topic_has_in_strict(self, name: str) -> None:
        with pytest.raises(ConnectDataError, match="no topic can have"):
            routed("a", "a(b?)", f"{name}$1")

    def test_kafka_takes_any_name(self) -> None:
        assert routed("orig", ".*", "", "kafka_4_3") == ""

    @pytest.mark.parametrize("config", [{}, {"regex": "("}, {"regex": "(", "replacement": ""}])
    def test_refuses_a_bad_or_missing_pattern(self, config: dict[str, str], mode: Mode) -> None:
        with pytest.raises(ConnectConfigError) as caught:
            RegexRouter(config, mode=mode)
        assert caught.value.path == "regex"

    def test_a_flood_of_topics_is_forgotten(self) -> None:
        router = RegexRouter({"regex": "(.*)", "replacement": "x-$1"})
        for number in range(3000):
            assert router.apply(SourceRecord(topic=f"t{number}")).topic == f"x-t{number}"
        assert len(router._names) <= 1024
