"""Attacks on contracts: documents that would take for ever or reach outside, and records against them."""

from __future__ import annotations

import json
import os
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from headerware import Chain, ConfigError, Context, Headers, Record
from headerware.interceptors import Contract, ContractError
from headerware.interceptors.contract.document import document_of, read_document

BOUND_S = 60
"""Far more than any of these takes, and far less than what they would take without a bound."""
SECRET = "4111-1111-1111-1111"


def document(message: dict[str, Any], **parts: Any) -> dict[str, Any]:
    channels = {"orders": {"address": "orders", "messages": {"Order": message}}}
    return {"asyncapi": "3.0.0", "channels": channels, **parts}


def step_of(folder: Path, message: dict[str, Any], **parts: Any) -> Any:
    path = folder / "orders.json"
    path.write_text(json.dumps(document(message, **parts)))
    return Contract(file=str(path)).open(Context())


def failure_of(step: Any, value: bytes | None = b"{}", headers: Any = ()) -> ContractError:
    with pytest.raises(ContractError) as refused:
        step.on_send(Record("orders", value, b"k", Headers(headers)))
    return refused.value


@pytest.fixture
def clock() -> Any:
    """Fail if the test takes longer than the bound."""
    began = time.monotonic()
    yield
    assert time.monotonic() - began < BOUND_S


@pytest.mark.usefixtures("clock")
class TestDocumentsThatTakeForEver:
    def test_references_that_double_at_each_level(self) -> None:
        schemas: dict[str, Any] = {
            f"S{level}": {"allOf": [{"$ref": f"#/components/schemas/S{level + 1}"}] * 2}
            for level in range(40)
        }
        schemas["S40"] = {"type": "string"}
        message = {"payload": {"$ref": "#/components/schemas/S0"}}
        with pytest.raises(ConfigError, match=r"more than 20,000 parts|deeper than"):
            document_of(document(message, components={"schemas": schemas}), "f")

    @pytest.mark.parametrize(
        "schema",
        [
            {"$ref": "#/components/schemas/A"},
            {"allOf": [{"$ref": "#/components/schemas/A"}] * 2},
            {"properties": {"enum": {"$ref": "#/components/schemas/A"}}},
            {"items": {"description": "beside", "$ref": "#/components/schemas/A"}},
        ],
    )
    def test_a_schema_that_refers_to_itself(self, schema: dict[str, Any]) -> None:
        message = {"payload": {"$ref": "#/components/schemas/A"}}
        with pytest.raises(ConfigError, match=r"refers to itself|references follow each other"):
            document_of(document(message, components={"schemas": {"A": schema}}), "f")

    @pytest.mark.parametrize(
        "keyword",
        ["$id", "$anchor", "$recursiveRef", "$dynamicRef", "unevaluatedItems", "unevaluatedProperties"],
    )
    def test_a_keyword_that_refers_in_another_way_or_takes_exponential_time(self, keyword: str) -> None:
        with pytest.raises(ConfigError, match="have no keyword"):
            document_of(document({"payload": {"properties": {"a": {keyword: "#x"}}}}), "f")

    def test_references_in_a_circle(self) -> None:
        components = {"messages": {name: {"$ref": f"#/components/messages/{name}"} for name in "AB"}}
        with pytest.raises(ConfigError, match="references follow each other"):
            document_of(document({"$ref": "#/components/messages/A"}, components=components), "f")

    def test_aliases_of_yaml_that_double_at_each_level(self, tmp_path: Path) -> None:
        levels = [f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]" for level in range(1, 30)]
        path = tmp_path / "a.yaml"
        path.write_text("\n".join(["asyncapi: 3.0.0", "a0: &a0 [x]", *levels]))
        with pytest.raises(ConfigError, match="more than 100,000 values"):
            read_document(path)

    def test_an_alias_of_yaml_to_itself(self, tmp_path: Path) -> None:
        path = tmp_path / "a.yaml"
        path.write_text("asyncapi: 3.0.0\na: &a [*a]\n")
        with pytest.raises(ConfigError, match="nests deeper"):
            read_document(path)

    @pytest.mark.parametrize("begin", ["[", '{"a":', "a: {"])
    def test_a_document_that_nests_very_deep(self, tmp_path: Path, begin: str) -> None:
        path = tmp_path / "a.yaml"
        path.write_text(begin * 10_000)
        with pytest.raises(ConfigError):
            read_document(path)

    def test_a_document_that_is_very_large(self, tmp_path: Path) -> None:
        path = tmp_path / "a.yaml"
        path.write_bytes(b"#" * ((1 << 20) + 1))
        with pytest.raises(ConfigError, match="larger than"):
            read_document(path)

    def test_traits_that_are_merged_into_many_messages(self) -> None:
        trait = {"headers": {"properties": {f"p{index}": True for index in range(5_000)}}}
        message = {
            "traits": [{"$ref": "#/components/messageTraits/T"}],
            "headers": {"properties": {"a": True}},
        }
        tree = document(message, components={"messageTraits": {"T": trait}})
        tree["channels"]["orders"]["messages"] = {f"M{index}": message for index in range(5_000)}
        with pytest.raises(ConfigError, match="traits are merged"):
            document_of(tree, "f")

    def test_an_address_that_stands_for_very_many_topics(self) -> None:
        parameters = {name: {"enum": list("abcdefghij")} for name in "pqrs"}
        tree = document({})
        tree["channels"]["orders"] |= {"address": "{p}{q}{r}{s}", "parameters": parameters}
        with pytest.raises(ConfigError, match="stands for 10000 names"):
            document_of(tree, "f")

    @pytest.mark.parametrize("keyword", ["allOf", "anyOf", "oneOf", "not", "if", "items", "contains"])
    def test_keywords_that_are_nested_as_deep_as_they_may(self, tmp_path: Path, keyword: str) -> None:
        schema: dict[str, Any] = {"type": "object", "required": ["b"]}
        for _ in range(20):
            inner = schema if keyword in {"not", "items", "contains", "if"} else [schema]
            schema = {keyword: inner, "then": False, "properties": {"a": {"type": "integer"}}}
        value: Any = {"a": "x"}
        for _ in range(20 if keyword in {"items", "contains"} else 0):
            value = [value]
        step = step_of(tmp_path, {"payload": schema})
        with suppress(ContractError):  # what matters is how long it takes
            step.on_send(Record("orders", json.dumps(value).encode(), b"k", Headers()))

    @pytest.mark.parametrize("pattern", ["(a{1000}){1000}", "(?:\\w{500}){500}", "(?=a)", "(a)\\1"])
    def test_a_regular_expression_that_is_large_or_not_linear(self, pattern: str) -> None:
        with pytest.raises(ConfigError, match="regex"):
            document_of(document({"payload": {"type": "string", "pattern": pattern}}), "f")

    def test_very_many_regular_expressions(self) -> None:
        schema = {"patternProperties": {f"^a{index}": True for index in range(300)}}
        with pytest.raises(ConfigError, match="200 regular expressions"):
            document_of(document({"payload": schema}), "f")

    def test_very_many_rules_and_very_long_ones(self) -> None:
        for rules in ({f"r{index}": "true" for index in range(200)}, {"r": f"'{'a' * 5_000}' == ''"}):
            with pytest.raises(ConfigError, match="at most 100 rules"):
                document_of(document({"x-headerware-rules": rules}), "f")


class TestReachingOutside:
    @pytest.mark.parametrize("part", ["payload", "headers", "message"])
    def test_no_reference_leaves_the_document(self, tmp_path: Path, part: str) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.settimeout(0.2)
            address = f"http://127.0.0.1:{server.getsockname()[1]}/x.json"
            for reference in (address, "file:///etc/passwd", "other.yaml#/a", "//x/y", ""):
                inner = {"$ref": reference}
                message = inner if part == "message" else {part: {"properties": {"a": inner}}}
                with pytest.raises(ConfigError, match="expected a reference into this document"):
                    document_of(document(message), "f")
            with pytest.raises(TimeoutError):
                server.accept()

    def test_a_pipe_is_no_document(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "orders.yaml")
        with pytest.raises(ConfigError, match="expected a plain file"):
            read_document(tmp_path / "orders.yaml")

    def test_yaml_makes_no_objects(self, tmp_path: Path) -> None:
        path = tmp_path / "a.yaml"
        path.write_text(f"a: !!python/object/apply:pathlib.Path.touch [{tmp_path / 'made'}]\n")
        with pytest.raises(ConfigError):
            read_document(path)
        assert not (tmp_path / "made").exists()


@pytest.mark.usefixtures("clock")
class TestRecordsThatTakeForEver:
    def test_a_text_against_a_pattern_that_backtracks_elsewhere(self, tmp_path: Path) -> None:
        step = step_of(tmp_path, {"headers": {"properties": {"a": {"type": "string", "pattern": "^(a+)+$"}}}})
        assert failure_of(step, headers=[("a", b"a" * 100_000 + b"!")]).rules

    def test_failures_below_a_choice_are_not_listed(self, tmp_path: Path) -> None:
        branch = {"items": {"items": {"type": "integer"}}}
        step = step_of(tmp_path, {"payload": {"anyOf": [branch] * 10}})
        large = b"[" + b",".join([b'["a"]'] * 150_000) + b"]"
        assert failure_of(step, large).rules == ("#/channels/orders/messages/Order/payload",)
        assert failure_of(step, b'[["a"]]').rules == ("#/channels/orders/messages/Order/payload/anyOf",)

    def test_a_large_value_against_a_large_schema_is_not_tried(self, tmp_path: Path) -> None:
        values = list(range(15_000))
        step = step_of(tmp_path, {"payload": {"items": {"enum": values}}})
        assert failure_of(step, b"[" + b"14999," * 20_000 + b"0]").rules

    @pytest.mark.parametrize(
        "value", [b"[" * 100_000, b'{"a":' * 50_000, b"1" * 5_000, b"1e999", b"\xff", b""]
    )
    def test_values_that_are_deep_long_or_broken(self, tmp_path: Path, value: bytes) -> None:
        step = step_of(tmp_path, {"payload": {"type": "object"}, "x-headerware-rules": {"a": "value.a > 0"}})
        assert failure_of(step, value).rules

    def test_a_rule_is_stopped(self, tmp_path: Path) -> None:
        rule = "value.all(a, value.all(b, value.all(c, a + b + c < 0 || true)))"
        step = step_of(tmp_path, {"contentType": "application/json", "x-headerware-rules": {"a": rule}})
        assert failure_of(step, json.dumps(list(range(10_000))).encode()).rules

    def test_very_many_names_of_headers(self, tmp_path: Path) -> None:
        step = step_of(tmp_path, {"headers": {"type": "object", "maxProperties": 3}})
        for part in range(20):
            headers = [(f"h{part}-{index}", b"x") for index in range(1_000)]
            assert failure_of(step, headers=headers).rules


class TestSecrets:
    @pytest.mark.parametrize(
        "message",
        [
            {"payload": {"additionalProperties": {"type": "integer"}}},
            {"payload": {"propertyNames": {"maxLength": 3}}},
            {"payload": {"additionalProperties": False}},
            {"payload": {"patternProperties": {"1": {"const": 1}}}},
            {"headers": {"additionalProperties": False}},
            {"headers": {"properties": {"card": {"enum": ["none"]}}}},
            {"bindings": {"kafka": {"key": {"enum": ["none"]}}}},
            {"contentType": "application/json", "x-headerware-rules": {"a": "size(value) == 0"}},
        ],
    )
    def test_no_error_mark_or_log_has_a_part_of_a_record(
        self, tmp_path: Path, message: dict[str, Any], caplog: pytest.LogCaptureFixture
    ) -> None:
        path = tmp_path / "orders.json"
        path.write_text(json.dumps(document(message)))
        value = json.dumps({SECRET: SECRET}).encode()
        record = Record("orders", value, SECRET.encode(), Headers([("card", SECRET), (SECRET, b"x")]))
        with Chain([Contract(file=str(path), on_error="drop")]).open() as session:
            assert session.send([record]) == []
        assert caplog.messages
        assert SECRET not in caplog.text
        with Chain([Contract(file=str(path), on_failure="mark")]).open() as session:
            [marked] = session.send([record])
        assert SECRET.encode() not in (marked.headers.last("hw.contract") or SECRET.encode())


class TestForgedMarks:
    def test_a_sender_s_mark_does_not_survive_a_reader_that_marks(self, tmp_path: Path) -> None:
        step = step_of(tmp_path, {"headers": {"required": ["a"]}})
        marking = Contract(file=str(tmp_path / "orders.json"), on_failure="mark")
        forged = Headers([("hw.contract", b"#/forged"), ("a", b"x")])
        with Chain([marking]).open() as session:
            [read] = session.consume([Record("orders", b"v", headers=forged, partition=0, offset=0)])
        assert read.headers == Headers([("a", b"x")])
        assert failure_of(step, headers=[("hw.contract", b"#/forged")]).rules

    def test_a_second_header_does_not_hide_the_first(self, tmp_path: Path) -> None:
        step = step_of(tmp_path, {"headers": {"properties": {"a": {"const": "good"}}}})
        for values in ((b"bad", b"good"), (b"good", b"bad"), (b"good", b"good")):
            assert failure_of(step, headers=[("a", value) for value in values]).rules
