from __future__ import annotations

from typing import Any

import pytest

from headerware.connect.data import INT64_SCHEMA, STRING_SCHEMA, Int32, SchemaBuilder, Struct
from headerware.connect.errors import ConnectConfigError, ConnectDataError
from headerware.connect.records import SinkRecord, SourceRecord
from headerware.connect.transforms.content_router import ContentRouter

INNER = SchemaBuilder.struct().field("region", STRING_SCHEMA).optional().build()
SCHEMA = SchemaBuilder.struct().field("amount", INT64_SCHEMA).field("customer", INNER).build()


def topic(record: Any, **config: str) -> Any:
    return ContentRouter({name.replace("_", "."): text for name, text in config.items()}).apply(record).topic


class TestContentRouter:
    def test_routes_by_a_field_of_the_value(self) -> None:
        value = Struct.of(SCHEMA, {"amount": 1, "customer": {"region": "eu"}})
        record = SinkRecord("orders", value_schema=SCHEMA, value=value)
        assert topic(record, topic_field="customer.region") == "eu"
        assert topic(record, topic_field="customer.region", topic_format="${topic}-${routed}") == "orders-eu"
        assert (
            topic(SinkRecord("t", value={"customer": {"region": "us"}}), topic_field="customer.region")
            == "us"
        )

    def test_routes_by_a_field_of_the_key(self) -> None:
        assert (
            topic(SinkRecord("t", key={"id": Int32(7)}), topic_key_field="id", topic_format="t${routed}")
            == "t7"
        )

    def test_routes_by_the_last_header(self) -> None:
        record = SinkRecord("t")
        record.headers.add_string("to", "a").add_string("to", "b")
        assert topic(record, topic_header="to") == "b"

    def test_routes_by_an_expression(self) -> None:
        config = {"topic_expression": 'value.amount > 10 ? "large" : topic'}
        assert topic(SinkRecord("t", value={"amount": 11}), **config) == "large"
        assert topic(SinkRecord("t", value={"amount": 10}), **config) == "t"

    def test_keeps_the_kind_of_record(self) -> None:
        record = SourceRecord({"file": "a"}, {"line": 1}, "t", value={"r": "x"})
        made = ContentRouter({"topic.field": "r"}).apply(record)
        assert (made.topic, made.source_partition, record.topic) == ("x", {"file": "a"}, "t")

    @pytest.mark.parametrize("value", [None, {}, {"r": None}, {"r": ""}])
    def test_falls_back(self, value: Any) -> None:
        record = SinkRecord("t", value=value)
        assert topic(record, topic_field="r", topic_fallback="lost") == "lost"
        assert topic(record, topic_field="r", missing_or_null_behavior="keep") == "t"
        with pytest.raises(ConnectDataError, match=r"topic\.field is missing or null"):
            topic(record, topic_field="r")

    def test_falls_back_if_an_expression_reads_a_missing_part(self) -> None:
        record = SinkRecord("t", value={})
        assert topic(record, topic_expression="value.r", topic_fallback="lost") == "lost"
        assert topic(record, topic_expression="value.r", missing_or_null_behavior="keep") == "t"
        with pytest.raises(ConnectDataError, match=r"value\.r"):
            topic(record, topic_expression="value.r")

    @pytest.mark.parametrize(
        "name", ["a b", "a/b", "..", ".", "x" * 250, "ä", "a\n", "__consumer_offsets", "secret!", "a\x00"]
    )
    def test_refuses_a_name_that_kafka_does_not_take(self, name: str) -> None:
        with pytest.raises(ConnectDataError, match="name of a topic") as caught:
            topic(SinkRecord("t", value={"r": name}), topic_field="r", topic_fallback="lost")
        assert name not in str(caught.value).removesuffix("; found another text in the record") or name in {
            ".",
            "..",
        }

    @pytest.mark.parametrize("value", [True, 1.5, b"x", ["a"], {"a": 1}])
    def test_requires_text_or_an_integer(self, value: Any) -> None:
        with pytest.raises(ConnectDataError, match="text or an integer"):
            topic(SinkRecord("t", value={"r": value}), topic_field="r")

    def test_fills_in_what_looks_like_a_placeholder_only_once(self) -> None:
        with pytest.raises(ConnectDataError, match="name of a topic"):
            topic(
                SinkRecord("t", value={"r": "${topic}"}), topic_field="r", topic_format="${topic}-${routed}"
            )

    def test_needs_the_topic_that_the_format_names(self) -> None:
        with pytest.raises(ConnectDataError, match=r"\$\{topic\} is configured"):
            topic(SourceRecord(value={"r": "x"}), topic_field="r", topic_format="${topic}-${routed}")

    def test_takes_a_flood_of_names(self) -> None:
        router = ContentRouter({"topic.field": "r"})
        for at in range(3000):
            assert router.apply(SinkRecord("t", value={"r": f"n{at}"})).topic == f"n{at}"
        assert len(router._legal) <= 1024

    @pytest.mark.parametrize(
        "config",
        [
            {},
            {"topic.field": "a", "topic.header": "b"},
            {"topic.field": "a", "topic.format": "constant"},
            {"topic.field": "a", "topic.fallback": "no topic"},
            {"topic.field": ""},
            {"topic.expression": "1 +"},
            {"topic.expression": "value.a > 3"},
        ],
    )
    def test_refuses_a_configuration_that_cannot_work(self, config: dict[str, str]) -> None:
        with pytest.raises(ConnectConfigError):
            ContentRouter(config)
