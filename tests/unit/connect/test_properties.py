"""A connector's configuration as text; the expected results are those of ``java.util.Properties``."""

from __future__ import annotations

import json

import pytest

from headerware.connect.errors import ConnectConfigError
from headerware.connect.properties import parse_connector, parse_properties


class TestPropertiesFile:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("", {}),
            ("a=b", {"a": "b"}),
            ("a:b\nc d", {"a": "b", "c": "d"}),
            ("  a \t=\f b ", {"a": "b "}),
            ("a = = b", {"a": "= b"}),
            ("a", {"a": ""}),
            ("# x=y\n  ! z\na=1", {"a": "1"}),
            ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
            ("a=b,\\\n    c,\\\r\n\td", {"a": "b,c,d"}),
            ("a=b\\\n# no comment", {"a": "b# no comment"}),
            ("a=b\\\n\nc=d", {"a": "b", "c": "d"}),
            ("\\\n# comment\na=b", {"a": "b"}),
            ("a=b\\", {"a": "b"}),
            ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
            (r"a\ b\=\:=c", {"a b=:": "c"}),
            (r"a=\t\n\r\f\#\!\\\ ", {"a": "\t\n\r\f#!\\ "}),
            (r"a=\u00e9\u0041", {"a": "éA"}),
            (r"a=\ud83d\ude00", {"a": "\U0001f600"}),
            ("é=ü", {"é": "ü"}),
            (r"a=$1\\.b", {"a": "$1\\.b"}),
        ],
    )
    def test_is_read_as_in_java(self, text: str, expected: dict[str, str]) -> None:
        assert parse_properties(text) == expected

    @pytest.mark.parametrize("text", [r"a=\u12", r"a=\uzzzz", r"\u00=b"])
    def test_with_half_a_character_is_refused(self, text: str) -> None:
        with pytest.raises(ConnectConfigError, match=r"line 2: expected four hexadecimal digits"):
            parse_properties(f"\n{text}")

    def test_with_a_key_twice_is_refused_by_strict_only(self) -> None:
        with pytest.raises(ConnectConfigError, match="line 3: this key is given twice") as caught:
            parse_properties("a=1\nb=2\na=3")
        assert caught.value.path == "a"
        assert parse_properties("a=1\nb=2\na=3", mode="kafka_4_3") == {"a": "3", "b": "2"}

    def test_with_a_value_alone_is_refused_by_strict_only(self) -> None:
        with pytest.raises(ConnectConfigError, match="a value without a key"):
            parse_properties("=x")
        assert parse_properties("=x", mode="kafka_4_3") == {"": "x"}

    @pytest.mark.parametrize("text", [r"a=x\.y", r"a=\d", r"a=\$1", r"a=\"x\"", r"a\.b=c"])
    def test_with_a_backslash_that_would_be_lost_is_refused_by_strict_only(self, text: str) -> None:
        with pytest.raises(ConnectConfigError, match=r"line 2: .* would be lost; write two"):
            parse_properties(f"\n{text}")
        assert "\\" not in str(parse_properties(text, mode="kafka_4_3"))

    def test_with_a_backslash_that_would_be_lost_says_which_key(self) -> None:
        with pytest.raises(ConnectConfigError, match=r"before '\.'") as caught:
            parse_properties(r"transforms.a.regex=secret\.(.*)")
        assert caught.value.path == "transforms.a.regex"
        assert "secret" not in str(caught.value)

    @pytest.mark.parametrize(
        "text",
        [
            "# comment\n\napiVersion: kafka.strimzi.io/v1beta2",
            "kind: KafkaConnector",
            "---\nname: a",
            "spec:\n  config:\n    a: b",
            "name: x\r\nconfig:\r\n\r\n  # comment\r\n  transforms: a",
            "transforms:\n  - a",
        ],
    )
    def test_that_is_yaml_is_refused_by_strict_only(self, text: str) -> None:
        with pytest.raises(ConnectConfigError, match=r"expected .*properties file, or .*JSON.*; found YAML"):
            parse_connector(text)
        parse_connector(text, mode="kafka_4_3")

    @pytest.mark.parametrize(
        "text", ["a: b\n  c: d", "a:\nb: c", "kinds: x", "a=b\nkind: c", "a=\\\nx:\n  y: z"]
    )
    def test_with_colons_is_no_yaml(self, text: str) -> None:
        assert parse_properties(text) == parse_properties(text, mode="kafka_4_3")


class TestConnector:
    def test_is_a_properties_file_or_json(self) -> None:
        expected = {"name": "n", "transforms": "a"}
        assert parse_connector("name=n\ntransforms=a") == expected
        assert parse_connector('{"name": "n", "transforms": "a"}') == expected
        assert parse_connector('\ufeff {"name": "n", "config": {"transforms": "a"}}') == expected

    def test_may_be_what_connect_answers(self) -> None:
        answer = {"name": "n", "config": {"name": "n", "a": "b"}, "tasks": [], "type": "sink"}
        assert parse_connector(json.dumps(answer)) == {"name": "n", "a": "b"}

    def test_keeps_the_text_of_numbers_and_booleans(self) -> None:
        text = '{"a": 1.10, "b": 12345678901234567890, "c": true, "d": false, "e": 1e400}'
        assert parse_connector(text) == {
            "a": "1.10",
            "b": "12345678901234567890",
            "c": "true",
            "d": "false",
            "e": "1e400",
        }

    @pytest.mark.parametrize(
        ("text", "path"),
        [
            ('{"a": null}', "a"),
            ('{"a": []}', "a"),
            ('{"a": {}}', "a"),
            ('{"config": {"a": {"b": "c"}}}', "a"),
            ('{"name": "n", "config": {"name": "m"}}', "name"),
            ('{"name": "n", "config": {}, "transforms": "a"}', "transforms"),
            ('{"a": "1", "a": "2"}', "a"),
            ('{"config": {"a": "1", "a": "1"}}', "a"),
        ],
    )
    def test_that_is_ambiguous_is_refused(self, text: str, path: str) -> None:
        with pytest.raises(ConnectConfigError) as caught:
            parse_connector(text)
        assert caught.value.path == path

    def test_with_a_key_twice_has_the_last_one_in_kafka(self) -> None:
        assert parse_connector('{"a": "1", "a": "2"}', mode="kafka_4_3") == {"a": "2"}

    @pytest.mark.parametrize("text", ["{", '{"a"}', '{"a": 1} x', "{" + '"a":[' * 100_000])
    def test_that_is_no_json_is_refused(self, text: str) -> None:
        with pytest.raises(ConnectConfigError, match=r"expected a connector.s configuration as JSON"):
            parse_connector(text)
