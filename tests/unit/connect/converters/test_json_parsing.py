"""What JSON is: Jackson's idea of it in the ``kafka_4_3`` mode, the standard's in the ``strict`` mode."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headerware.connect.converters.json.converter import JsonConverter
from headerware.connect.converters.json.parsing import MISSING, KafkaParser, count_of_names, parse_as_jackson
from headerware.connect.converters.json.reading import (
    bytes_of_base64,
    bytes_of_base64_as_jackson,
)
from headerware.connect.errors import ConnectDataError
from headerware.connect.modes import KAFKA_4_3, STRICT, Mode

PLAIN = {"schemas.enable": "false"}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text() | st.floats(0.1, 1e9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)


def read(data: bytes, mode: Mode) -> Any:
    return JsonConverter(PLAIN, mode=mode).to_connect_data("t", data).value


class TestLeniency:
    @pytest.mark.parametrize(
        ("data", "value"),
        [
            (b"", None),
            (b" \n", None),
            (b"007", 7),
            (b"-00.50", -0.5),
            (b"1 2", 1),
            (b"{} x", {}),
            (b"[1]]", [1]),
            (b'"a"b', "a"),
            (b"true ]", True),
            (b'"\\ud800"', "\ud800"),
            (b'"\\uDE00\\uD83D"', "\ude00\ud83d"),
            (b'["\\ud83d\\ude00",07]', ["😀", 7]),
            (b'{"\\ud83d\\ude00":07, "a" : { } , "b":[ ]}', {"😀": 7, "a": {}, "b": []}),
            (b'[07,"\\"\\\\\\/\\b\\f\\n\\r\\t\\u0041"]', [7, '"\\/\b\f\n\r\tA']),
            (b"\xef\xbb\xbf12", 12),
            ("12".encode("utf-16"), 12),
            ("12".encode("utf-16-be"), 12),
            ("12".encode("utf-16-le"), 12),
            ("[12]".encode("utf-32"), [12]),
            ("[12]".encode("utf-32-be"), [12]),
            (b'{"a":1,"b":2,"a":3}', {"a": 3, "b": 2}),
        ],
    )
    def test_of_jackson_is_kafkas_only(self, data: bytes, value: Any) -> None:
        assert read(data, KAFKA_4_3) == value
        with pytest.raises(ConnectDataError):
            read(data, STRICT)

    @pytest.mark.parametrize(
        "data",
        [
            *(
                b"1x",
                b"1]",
                b"1,",
                b"tru",
                b"truex",
                b"null5",
                b"NaN",
                b"Infinity",
                b"+1",
                b".5",
                b"5.",
                b"-",
                b"1e",
            ),
            *(
                b"'a'",
                b'"\t"',
                b'"\\x"',
                b'"\\u12"',
                b'"',
                b'"a',
                b"[",
                b"{",
                b"[1",
                b'{"a"',
                b'{"a":',
                b'{"a":1',
            ),
            *(
                b"[1,]",
                b"[,1]",
                b"[1 2]",
                b'{"a":1,}',
                b"{1:2}",
                b'{"a" 1}',
                b"]",
                b":",
                b"// x\n1",
                b"[1}",
                b'{"a":1]',
            ),
            *(
                b'"\xff"',
                b'"\xed\xa0\x80"',
                b'"\xc3("',
                b"\xff",
                b"\x00\x01\x02",
                b'{"\\ud800":07}',
                b"0x10",
                b"1_0",
            ),
            *(b"[01x]", b"[01" + b",1" * 9, b"[07,tru]", b'[07,"\x01"]'),
        ],
    )
    def test_has_limits(self, data: bytes, mode: Mode) -> None:
        with pytest.raises(ConnectDataError):
            read(data, mode)

    def test_of_a_name_that_stands_twice_is_kafkas_only(self, mode: Mode) -> None:
        for text in (
            '{"a":1,"a":2}',
            '[{"b":{"a":1,"a" :2}}]',
            '{"a":1, "a"\n:2, "b":":"}',
            '{"a":"\\":","a":2}',
            '{"a":1,"\\u0061":2}',
        ):
            if mode == STRICT:
                with pytest.raises(ConnectDataError, match="twice"):
                    read(text.encode(), mode)
            else:
                assert read(text.encode(), mode) == json.loads(text)

    @given(
        value=JSON,
        indent=st.sampled_from([None, 1]),
        separators=st.sampled_from([(",", ":"), (" , ", " : ")]),
    )
    def test_of_spaces_changes_nothing(
        self, value: Any, indent: int | None, separators: tuple[str, str], mode: Mode
    ) -> None:
        data = json.dumps(value, indent=indent, separators=separators).encode("utf-8", "surrogatepass")
        if mode == STRICT and "\\ud" in data.decode():
            return
        assert read(data, mode) == value

    @given(value=JSON)
    def test_reads_as_the_fast_way_does(self, value: Any) -> None:
        data = json.dumps(value).encode()
        assert parse_as_jackson(data) == KafkaParser().exact(data)


class TestNumbers:
    @pytest.mark.parametrize("data", [b"1" * 1001, b"0." + b"1" * 1000, b"[1e" + b"0" * 1000 + b"1]"])
    def test_of_too_many_digits_are_refused_by_jackson(self, data: bytes) -> None:
        with pytest.raises(ConnectDataError, match="digits"):
            read(data, KAFKA_4_3)

    def test_of_many_digits_are_read(self) -> None:
        assert read(b"-" + b"1" * 1000, KAFKA_4_3) == -8198552921648689607
        assert read(b"0." + b"1" * 999, KAFKA_4_3) == 0.1111111111111111
        assert read(b"1" * 1000, STRICT) == int("1" * 1000)

    def test_of_too_large_an_exponent_are_refused(self) -> None:
        with pytest.raises(ConnectDataError):
            read(b"1e2147483648", KAFKA_4_3)
        with pytest.raises(ConnectDataError):
            read(b"1e2147483647", STRICT)
        for mode in (STRICT, KAFKA_4_3):  # which is more than a Decimal has
            with pytest.raises(ConnectDataError):
                read(b"1e1000000000000000000", mode)
        assert read(b"1e2147483647", KAFKA_4_3) == float("inf")


class TestNesting:
    def test_may_be_as_deep_as_jackson_allows(self) -> None:
        found = read(b"[" * 1000 + b"]" * 1000, KAFKA_4_3)
        for _ in range(999):
            found = found[0]
        assert found == []
        with pytest.raises(ConnectDataError, match="deep"):
            read(b"[" * 1001 + b"]" * 1001, KAFKA_4_3)

    @pytest.mark.parametrize("opening", [b"[", b'{"a":', b'[{"a":'])
    def test_that_is_hostile_is_refused(self, opening: bytes, mode: Mode) -> None:
        with pytest.raises(ConnectDataError):
            read(opening * 100_000, mode)
        with pytest.raises(ConnectDataError):
            JsonConverter(mode=mode).to_connect_data("t", b'{"schema":null,"payload":' + opening * 100_000)

    def test_of_schemas_is_refused(self, mode: Mode) -> None:
        schema = b'{"type":"array","items":' * 450 + b'{"type":"int8"}' + b"}" * 450
        with pytest.raises(ConnectDataError, match="deep"):
            JsonConverter(mode=mode).to_connect_data("t", b'{"schema":' + schema + b',"payload":[]}')


class TestNodes:
    def test_nothing_is_missing(self) -> None:
        assert parse_as_jackson(b"  ") is MISSING

    def test_counts_names_in_all_objects(self) -> None:
        assert count_of_names([{"a": {"b": 1}, "c": [{"d": 2}]}, 5]) == 4
        assert count_of_names("x") == 0


class TestBase64:
    @given(data=st.binary(max_size=40))
    def test_comes_back(self, data: bytes) -> None:
        assert bytes_of_base64(b64encode(data).decode()) == data
        assert bytes_of_base64_as_jackson(b64encode(data).decode()) == data

    @pytest.mark.parametrize(
        ("text", "data"), [(" aGk= aGk=\n", b"hihi"), ("aA==aA==", b"hh"), ("aGl=", b"hi"), (" ", b"")]
    )
    def test_is_read_as_jackson_does(self, text: str, data: bytes) -> None:
        assert bytes_of_base64_as_jackson(text) == data
        with pytest.raises(ConnectDataError):
            bytes_of_base64(text)

    @pytest.mark.parametrize(
        "text", ["aGk", "a Gk=", "aA=x", "aA= =", "-_-_", "éAAA", "=", "aGk==", "====", "a"]
    )
    def test_is_refused_where_it_is_none(self, text: str) -> None:
        for read_it in (bytes_of_base64, bytes_of_base64_as_jackson):
            with pytest.raises(ConnectDataError):
                read_it(text)
