"""What JSON is: Jackson's idea of it in the ``kafka_4_3`` mode, the standard's in the ``strict`` mode."""

from __future__ import annotations

import json
from base64 import b64encode
from decimal import ExtendedContext, localcontext
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headerware.connect.converters.json.converter import JsonConverter
from headerware.connect.converters.json.parsing import JsonParser, KafkaParser, StrictParser, count_names
from headerware.connect.converters.json.reading import (
    bytes_of_base64,
    bytes_of_base64_as_jackson,
)
from headerware.connect.errors import ConnectConfigError, ConnectDataError
from headerware.connect.modes import KAFKA_4_3, STRICT, Mode

PARSERS: dict[Mode, JsonParser] = {KAFKA_4_3: KafkaParser(), STRICT: StrictParser()}
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
        with_more = data + b" !"  # which only the slow way accepts
        assert KafkaParser().parse_exact(with_more) == KafkaParser().parse_exact(data)


class TestNames:
    @pytest.mark.parametrize("way", ["parse_fast", "parse_exact", "parse_schemaless"])
    @pytest.mark.parametrize(
        "data", [b'{"a":1,"a":2}', b'{"a":1,"a":1e999}', b'[{"b":{"a":1.5,"\\u0061":2}}]']
    )
    def test_that_an_object_has_twice_are_refused_by_each_strict_way(self, way: str, data: bytes) -> None:
        with pytest.raises(
            ConnectDataError, match="expected each name once in a JSON object, found one twice"
        ):
            getattr(StrictParser(), way)(data)

    @pytest.mark.parametrize(
        "schema", ['{"type":"int32","type":"string"}', '{"type":"int32","doc":"a","doc":"b"}']
    )
    def test_of_the_configured_schema_too(self, schema: str) -> None:
        with pytest.raises(ConnectConfigError, match=r"schema\.content: expected each name once"):
            JsonConverter({"schema.content": schema})
        assert JsonConverter({"schema.content": schema}, mode=KAFKA_4_3).to_connect_data("t", b"5").schema

    @pytest.mark.parametrize(
        "options",
        [{}, {"schema.content": '{"type":"map","keys":{"type":"string"},"values":{"type":"int8"}}'}],
    )
    def test_of_a_value_with_a_schema_too(self, options: dict[str, str]) -> None:
        payload = '{"a":1,"a":2}'
        schema = '{"type":"map","keys":{"type":"string"},"values":{"type":"int8"}}'
        data = payload if options else f'{{"schema":{schema},"payload":{payload}}}'
        with pytest.raises(ConnectDataError, match="expected each name once"):
            JsonConverter(options).to_connect_data("t", data.encode())


class TestErrors:
    @pytest.mark.parametrize(
        ("data", "message"),
        [
            (b"[1,x]", r"^expected JSON, found 5 bytes that are malformed at byte 3$"),
            (b'{"a":[1,x]}', r"^expected JSON, found 11 bytes that are malformed at byte 8$"),
            (b'{"a":1', r"^expected JSON, found 6 bytes that are malformed$"),
            (b'{"a":"\xff"}', r"^expected JSON, found 9 bytes that are malformed$"),
            (b"[1" + b"-1" * 1_000, r"^expected JSON, found 2002 bytes that are malformed at byte 2$"),
            (b"[" * 100_000, r"^expected JSON, found 100000 bytes that are nested too deeply$"),
            (b"1e400", "^expected numbers in the range of a float of 64 bits, found a larger one$"),
        ],
    )
    def test_name_the_place_if_it_is_known(self, data: bytes, message: str) -> None:
        with pytest.raises(ConnectDataError, match=message):
            read(data, STRICT)


class TestNumbers:
    @pytest.mark.parametrize("digits", [1001, 4300, 4301, 100_000])
    @pytest.mark.parametrize(
        ("text", "more"), [("{}", 0), ("-{}", 0), ('["\\"",1,{}]', 0), ("0.{}", 1), ("{}.5", 1), ("1e{}", 1)]
    )
    def test_of_too_many_digits_are_refused_with_their_count(
        self, digits: int, text: str, more: int, mode: Mode
    ) -> None:
        data = text.format("7" * digits)
        expected = f"^expected numbers of up to 1000 digits, found one of {digits + more}$"
        with pytest.raises(ConnectDataError, match=expected):
            read(data.encode(), mode)
        with pytest.raises(ConnectDataError, match=expected):
            JsonConverter(mode=mode).to_connect_data("t", f'{{"schema":null,"payload":{data}}}'.encode())

    def test_in_text_may_have_any_number_of_digits(self, mode: Mode) -> None:
        for text in ("7" * 5_000, '"' + "7" * 5_000, "\\" + "7" * 5_000):
            assert read(json.dumps([text]).encode(), mode) == [text]

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
        with pytest.raises(
            ConnectDataError, match=r"^expected numbers with a scale of 32 bits, found one of 2147483649$"
        ):
            KafkaParser().parse_exact(b"1.0e-2147483648")
        with pytest.raises(ConnectDataError):
            read(b"1e2147483647", STRICT)
        for mode in (STRICT, KAFKA_4_3):  # which is more than a Decimal has
            with pytest.raises(ConnectDataError):
                read(b"1e1000000000000000000", mode)
        assert read(b"1e2147483647", KAFKA_4_3) == float("inf")

    def test_of_too_large_an_exponent_are_refused_in_each_decimal_context(self, mode: Mode) -> None:
        for text in (b"1e99999999999999999999", b"1e-99999999999999999999"):
            with (
                localcontext(ExtendedContext),
                pytest.raises(ConnectDataError, match="whose exponent is larger"),
            ):
                PARSERS[mode].parse_exact(text)


class TestNesting:
    def test_may_be_as_deep_as_jackson_allows(self) -> None:
        found = read(b"[" * 1000 + b"]" * 1000, KAFKA_4_3)
        for _ in range(999):
            found = found[0]
        assert found == []
        with pytest.raises(ConnectDataError, match="deep"):
            read(b"[" * 1001 + b"]" * 1001, KAFKA_4_3)

    @pytest.mark.parametrize("way", ["parse_fast", "parse_exact", "parse_schemaless"])
    @pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}")])
    def test_has_the_same_limit_in_each_python(
        self, way: str, opening: bytes, closing: bytes, mode: Mode
    ) -> None:
        limit = 1_000 if mode == KAFKA_4_3 else 500
        parse = getattr(PARSERS[mode], way)
        parse(opening * limit + b"1" + closing * limit)
        with pytest.raises(ConnectDataError, match="deep"):
            parse(opening * (limit + 1) + b"1" + closing * (limit + 1))

    def test_has_the_same_limit_in_an_envelope(self, mode: Mode) -> None:
        limit = 1_000 if mode == KAFKA_4_3 else 500
        envelope = b'{"schema":{"type":"struct","fields":[]},"payload":{"ignored":%s1%s}}'
        data = envelope % (b"[" * (limit - 1), b"]" * (limit - 1))
        with pytest.raises(ConnectDataError, match="deep"):
            JsonConverter(mode=mode).to_connect_data("t", data)

    def test_counts_no_neighbours(self, mode: Mode) -> None:
        data = b"[" + b'[{"a":[]},"[["],' * 2_000 + b"1]"
        assert len(read(data, mode)) == 2_001

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
        assert KafkaParser().parse_exact(b"null") is None
        assert KafkaParser().parse_exact(b"  ") is not None
        assert KafkaParser().parse_schemaless(b"  ") is None

    def test_counts_names_in_all_objects(self) -> None:
        assert count_names([{"a": {"b": 1}, "c": [{"d": 2}]}, 5]) == 4
        assert count_names("x") == 0


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
