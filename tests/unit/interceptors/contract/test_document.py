from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headerware import ConfigError
from headerware.interceptors.contract.document import Channel, Document, document_of, read_document
from headerware.serdes.avro.schema import AvroSchema


def document(**parts: Any) -> dict[str, Any]:
    return {"asyncapi": "3.0.0", "info": {"title": "Orders", "version": "1"}, **parts}


def channel(message: dict[str, Any] | None = None, **parts: Any) -> dict[str, Any]:
    return {"address": "orders", "messages": {"Order": message or {}}, **parts}


def read(*, components: Any = None, **channels: Any) -> Document:
    return document_of(document(channels=channels, components=components or {}), "orders.yaml")


def only(**channels: Any) -> Channel:
    return read(**channels).channels[0]


class TestChannels:
    def test_has_the_topic_of_its_address(self) -> None:
        assert read(orders=channel()).channel_of("orders") is not None
        assert read(orders=channel()).channel_of("other") is None

    def test_prefers_the_topic_of_the_binding(self) -> None:
        found = read(orders=channel(bindings={"kafka": {"topic": "shop.orders"}}))
        assert found.channel_of("orders") is None
        assert found.channel_of("shop.orders") is not None

    def test_leaves_out_a_channel_without_an_address(self) -> None:
        assert read(reply=channel(address=None)).channels == ()

    @pytest.mark.parametrize("message", [None, {"traits": [None]}])
    def test_takes_a_part_without_fields_for_an_empty_one(self, message: Any) -> None:
        """In YAML, ``Order:`` alone is null."""
        assert read(orders=None).channels == ()
        found = only(orders={"address": "orders", "messages": {"Order": message}})
        assert [each.name for each in found.messages] == ["Order"]

    def test_fills_a_parameter_with_its_values(self) -> None:
        parameters = {"region": {"enum": ["eu", "us"]}}
        found = read(orders=channel(address="orders.{region}", parameters=parameters))
        topics = ("orders.eu", "orders.us", "orders.no", "orders.")
        assert [found.channel_of(topic) is not None for topic in topics] == [True, True, False, False]

    def test_fills_a_parameter_without_values_with_any_text(self) -> None:
        found = read(orders=channel(address="orders.{region}.v{version}"))
        topics = ("orders.eu.v1", "orders..v1", "orders.eu.v")
        assert [found.channel_of(topic) is not None for topic in topics] == [True, False, False]

    def test_an_exact_address_comes_before_a_pattern(self) -> None:
        found = read(all=channel(address="{any}"), orders=channel()).channel_of("orders")
        assert found is not None
        assert found.name == "orders"

    @pytest.mark.parametrize("address", ["orders/new", "", "a b", "x" * 250, "or*"])
    def test_refuses_what_is_no_topic(self, address: str) -> None:
        with pytest.raises(ConfigError, match="not the name of a topic"):
            read(orders=channel(address=address))


class TestMessages:
    def test_follows_references_within_the_document(self) -> None:
        components = {
            "messages": {"Order": {"payload": {"$ref": "#/components/schemas/Order"}}},
            "schemas": {"Order": {"type": "object"}},
        }
        found = read(
            orders={"address": "orders", "messages": {"Order": {"$ref": "#/components/messages/Order"}}},
            components=components,
        )
        value = found.channels[0].messages[0].value
        assert value is not None
        assert value.pointer == "/components/schemas/Order"

    def test_merges_traits_and_prefers_the_message(self) -> None:
        trait = {"contentType": "text/plain", "headers": {"type": "object", "properties": {"a": {}, "b": {}}}}
        message = {
            "traits": [trait],
            "contentType": "application/json",
            "headers": {"properties": {"a": {"type": "integer"}, "b": None}},
        }
        found = only(orders=channel(message)).messages[0]
        assert found.content_type == "application/json"
        assert found.headers is not None
        assert found.headers.properties == {"a": {"type": "integer"}}

    def test_takes_the_default_content_type(self) -> None:
        tree = document(channels={"orders": channel()}, defaultContentType="application/json")
        assert document_of(tree, "f").channels[0].messages[0].content_type == "application/json"

    def test_reads_a_schema_of_avro(self) -> None:
        payload = {"schemaFormat": "application/vnd.apache.avro;version=1.9.0", "schema": {"type": "long"}}
        value = only(orders=channel({"payload": payload})).messages[0].value
        assert value is not None
        assert isinstance(value.avro, AvroSchema)

    @pytest.mark.parametrize(
        "form",
        [
            "application/vnd.aai.asyncapi;version=3.0.0",
            "application/vnd.aai.asyncapi+json;version=3.0.0",
            "application/schema+json;version=draft-07",
            "application/schema+yaml; version=draft-07",
        ],
    )
    def test_reads_the_names_of_json_schema(self, form: str) -> None:
        payload = {"schemaFormat": form, "schema": {"type": "object"}}
        value = only(orders=channel({"payload": payload})).messages[0].value
        assert value is not None
        assert value.json is not None
        assert value.json.pointer.endswith("/payload/schema")

    def test_says_which_formats_are_not_checked(self) -> None:
        payload = {"schemaFormat": "application/vnd.google.protobuf;version=3", "schema": "message A {}"}
        value = only(orders=channel({"payload": payload})).messages[0].value
        assert value is not None
        assert value.unchecked == "application/vnd.google.protobuf;version=3"

    def test_a_channel_s_rules_hold_for_its_messages(self) -> None:
        rules = {"x-headerware-rules": {"small": "size(headers) < 9"}}
        message = {"x-headerware-rules": {"keyed": "key != ''"}}
        found = only(orders=channel(message, **rules)).messages[0].rules
        assert [rule.pointer for rule in found] == [
            "/channels/orders/x-headerware-rules/small",
            "/channels/orders/messages/Order/x-headerware-rules/keyed",
        ]


class TestRefusals:
    @pytest.mark.parametrize(
        ("message", "place", "problem"),
        [
            ({"headers": {"type": "strin"}}, "messages/Order/headers", "is not a JSON Schema: /type"),
            ({"headers": {"properties": {"a": {"pattern": "(?=a)"}}}}, "messages/Order/headers", "regex"),
            ({"headers": "x"}, "messages/Order/headers", "expected a schema"),
            ({"payload": {"$ref": "#/components/schemas/Gone"}}, "messages/Order/payload", "has no '#/comp"),
            ({"payload": {"$ref": "#/channels/order"}}, "messages/Order/payload", "did you mean 'orders'"),
            ({"payload": {"$id": "urn:x", "type": "object"}}, "messages/Order/payload", r"no keyword \$id"),
            ({"contentType": "json"}, "messages/Order/contentType", "expected a content type"),
            ({"contentType": 3}, "messages/Order/contentType", "expected text"),
            ({"traits": {"a": 1}}, "messages/Order/traits", "expected a list"),
            ({"x-headerware-rules": {"a": "1 +"}}, "x-headerware-rules/a", "expected an expression"),
            ({"x-headerware-rules": {"a": "1 + 1"}}, "x-headerware-rules/a", "returns BOOL"),
            ({"x-headerware-rules": {"a": "size(all_headers) > 1"}}, "x-headerware-rules/a", "all_headers"),
            ({"x-headerware-rules": ["true"]}, "x-headerware-rules", "expected a table"),
            (
                {"headers": {"schemaFormat": "application/vnd.apache.avro", "schema": "long"}},
                "messages/Order/headers",
                "expected a JSON Schema",
            ),
            (
                {"payload": {"schemaFormat": "application/vnd.apache.avro", "schema": "lung"}},
                "messages/Order/payload/schema",
                "not an Avro schema",
            ),
        ],
    )
    def test_says_where(self, message: dict[str, Any], place: str, problem: str) -> None:
        with pytest.raises(ConfigError, match=problem) as refused:
            read(orders=channel(message))
        assert refused.value.path.startswith(f"orders.yaml: #/channels/orders/{place}") or place in str(
            refused.value
        )

    @pytest.mark.parametrize("version", ["2.6.0", None, 3])
    def test_refuses_other_versions(self, version: Any) -> None:
        with pytest.raises(ConfigError, match="version 3"):
            document_of({**document(), "asyncapi": version}, "orders.yaml")


class TestFiles:
    def test_reads_yaml_and_json_alike(self, tmp_path: Path) -> None:
        tree = document(channels={"orders": channel({"headers": {"type": "object"}})})
        (tmp_path / "a.json").write_text(json.dumps(tree, indent=1))
        (tmp_path / "a.yaml").write_text(
            "asyncapi: 3.0.0\ninfo: {title: Orders, version: '1'}\nchannels:\n  orders:\n"
            "    address: orders\n    messages:\n      Order:\n        headers: {type: object}\n"
        )
        found = [read_document(tmp_path / name)[0] for name in ("a.json", "a.yaml")]
        assert found[0].tree == found[1].tree

    def test_reads_yaml_1_2(self, tmp_path: Path) -> None:
        path = tmp_path / "a.yaml"
        path.write_text(
            "asyncapi: 3.0.0\nchannels:\n  orders:\n    address: orders\n    messages:\n      Order:\n"
            "        headers:\n          properties:\n            country: {enum: [NO, SE, on, 2026-11-30]}\n"
        )
        headers = read_document(path)[0].channels[0].messages[0].headers
        assert headers is not None
        assert headers.properties["country"]["enum"] == ["NO", "SE", "on", "2026-11-30"]

    @pytest.mark.parametrize(
        ("text", "problem"),
        [
            ("asyncapi: 3.0.0\na: [", "is not YAML"),
            ("asyncapi: 3.0.0\na: 1\na: 2\n", "occurs twice"),
            ('{"asyncapi": "3.0.0", "a": 1, "a": 2}', "occurs twice"),
            ('{"asyncapi": ', "is not JSON"),
            ("a: &x {b: 1}\nc: {<<: *x}\n", "merge keys"),
            ("a: !!python/object:os.system x\n", "is not YAML"),
            ("a: !!binary aGk=\n", "values of JSON"),
            ("", "version 3"),
        ],
    )
    def test_refuses_what_is_no_document(self, tmp_path: Path, text: str, problem: str) -> None:
        path = tmp_path / "a.yaml"
        path.write_text(text)
        with pytest.raises(ConfigError, match=problem):
            read_document(path)

    def test_says_where_yaml_is_wrong(self, tmp_path: Path) -> None:
        path = tmp_path / "a.yaml"
        path.write_text("asyncapi: 3.0.0\nchannels: {orders: [}\n")
        with pytest.raises(ConfigError) as refused:
            read_document(path)
        assert (refused.value.file, refused.value.line) == (str(path), 2)

    def test_reads_the_document_of_the_page_about_contracts(self, tmp_path: Path) -> None:
        page = (Path(__file__).parents[4] / "docs" / "contracts.md").read_text(encoding="utf-8")
        path = tmp_path / "orders.yaml"
        path.write_text(page.partition("```yaml\n")[2].partition("```")[0], encoding="utf-8")
        (message,) = read_document(path)[0].channels[0].messages
        assert [rule.pointer.rpartition("/")[2] for rule in message.rules] == ["paid-has-amount"]

    def test_names_a_file_like_the_missing_one(self, tmp_path: Path) -> None:
        (tmp_path / "orders.yaml").write_text("a: 1")
        with pytest.raises(ConfigError, match=r"did you mean .*orders\.yaml"):
            read_document(tmp_path / "order.yaml")
