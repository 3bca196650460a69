from __future__ import annotations

import contextlib

import pytest

from headerware import ConfigError, Headers, SerdeError
from headerware.serdes.content_types import (
    _MAX_CACHED,
    CODECS,
    FORMATS,
    WRITTEN,
    ContentTypeContext,
    ContentTypeHeader,
    _known,
    codec_of,
    content_type_of,
    header_for,
    parse_content_type,
    require_content_type,
)
from headerware.serdes.serde import SerdeContext
from tests.work import cpu_within

VALUE = SerdeContext()
JSON = Headers([("content-type", b"application/json")])


class TestParseContentType:
    @pytest.mark.parametrize(
        ("text", "essence", "parameters"),
        [
            ("application/json", "application/json", {}),
            ("Application/JSON", "application/json", {}),
            (" text/plain ;charset=utf-8", "text/plain", {"charset": "utf-8"}),
            ("text/plain; CharSet=UTF-8 ; a=B", "text/plain", {"charset": "UTF-8", "a": "B"}),
            ('text/plain; charset="utf-8"', "text/plain", {"charset": "utf-8"}),
            (r'a/b; x="semi;colon \"quoted\" \\"', "a/b", {"x": 'semi;colon "quoted" \\'}),
            ('a/b; x=""', "a/b", {"x": ""}),
            ("a/b;", "a/b", {}),
            ("a/b; ;;\t;c=d", "a/b", {"c": "d"}),
            ("application/vnd.a.b+json; v=1", "application/vnd.a.b+json", {"v": "1"}),
        ],
    )
    def test_reads(self, text: str, essence: str, parameters: dict[str, str]) -> None:
        read = parse_content_type(text)
        assert (read.essence, dict(read.parameters)) == (essence, parameters)

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "json",
            "/json",
            "application/",
            "a/b c",
            "a/b, c/d",
            "a/b; c",
            "a/b; c=",
            "a/b; c =d",
            'a/b; c="d',
            'a/b; c="d\\"',
            "a/b; c=d e",
            "a/b; c=1; C=2",
            "a/b\n",
            'a/b; c="\x01"',
            "ä/b",
            "a/b" + " " * 2000,
        ],
    )
    def test_refuses_malformed_input(self, text: str) -> None:
        with pytest.raises(SerdeError, match="expected"):
            parse_content_type(text)

    @pytest.mark.parametrize("text", ["hunter2", "a/b hunter2", "a/b; hunter2", "a/b; hunter2=1; hunter2=2"])
    def test_quotes_nothing(self, text: str) -> None:
        with pytest.raises(SerdeError) as caught:
            parse_content_type(text)
        assert "hunter2" not in str(caught.value)

    @pytest.mark.parametrize(
        "text", ["a/b;" + ";" * 1000, 'a/b; x="' + "\\\\" * 400, "a/b;" + " " * 1000 + "!"]
    )
    def test_takes_no_time_for_hostile_text(self, text: str) -> None:
        with cpu_within(0.02):
            for _ in range(100):
                with contextlib.suppress(SerdeError):
                    parse_content_type(text)

    def test_parameters_cannot_be_changed_for_others(self) -> None:
        with pytest.raises(TypeError):
            content_type_of(b"a/b; c=d").parameters["c"] = "e"  # type: ignore[index]  # what is tested


class TestFormats:
    @pytest.mark.parametrize(
        ("text", "form"),
        [
            *FORMATS.items(),
            ("application/vnd.orders+json", "json"),
            ("application/problem+json; charset=utf-8", "json"),
            ("application/vnd.orders+avro", "avro"),
            ("application/senml+cbor", "cbor"),
            ("application/vnd.x+xml", None),
            ("application/xml", None),
            ("application/vnd.x+zip", None),
            ("application/jsonish", None),
            ("text/csv", "text"),
            ("image/png", None),
        ],
    )
    def test_a_content_type_stands_for_a_format(self, text: str, form: str | None) -> None:
        assert parse_content_type(text).format == form

    def test_each_format_has_its_own_type(self) -> None:
        assert WRITTEN == {
            "avro": "application/avro-binary",
            "bytes": "application/octet-stream",
            "cbor": "application/cbor",
            "json": "application/json",
            "msgpack": "application/msgpack",
            "protobuf": "application/protobuf",
            "text": "text/plain",
        }


class TestContentTypeOf:
    def test_remembers_frequent_values(self) -> None:
        assert content_type_of(b"text/x-often") is content_type_of(b"text/x-often")

    def test_a_flood_of_types_takes_no_memory(self) -> None:
        for number in range(3 * _MAX_CACHED):
            content_type_of(b"a/b%d" % number)
        assert _known.total() <= _MAX_CACHED

    def test_long_ones_are_not_remembered(self) -> None:
        long = b"a/b; c=" + b"d" * 500
        assert content_type_of(long).essence == "a/b"
        assert long not in _known

    @pytest.mark.parametrize("value", [None, b"", b"\xff/\xff", b"x" * (1 << 20)])
    def test_refuses_invalid_input(self, value: bytes | None) -> None:
        with pytest.raises(SerdeError):
            content_type_of(value)


class TestCodecOf:
    @pytest.mark.parametrize("charset", sorted(CODECS))
    def test_each_charset_has_a_codec(self, charset: str) -> None:
        assert "a".encode(codec_of(charset)).decode(codec_of(charset.upper())) == "a"

    @pytest.mark.parametrize(
        "charset", ["punycode", "idna", "zlib", "unicode_escape", "no-such", "../utf-8", ""]
    )
    def test_refuses_others(self, charset: str) -> None:
        with pytest.raises(SerdeError, match="charset"):
            codec_of(charset)


class TestHeaderFor:
    def test_keys_and_values_have_one_each(self) -> None:
        assert header_for(SerdeContext(part="key")) == "key-content-type"
        assert header_for(SerdeContext(part="value")) == "content-type"

    def test_a_serde_around_it_may_say_another(self) -> None:
        assert header_for(ContentTypeContext(part="key", header="own")) == "own"


class TestRequireContentType:
    @pytest.mark.parametrize("text", [None, "", "a/b; c=d"])
    def test_passes(self, text: str | None) -> None:
        require_content_type(text)

    def test_refuses_invalid_input(self) -> None:
        with pytest.raises(ConfigError, match=r"^types\.x: expected a content type"):
            require_content_type("json", path="types.x")


class TestContentTypeHeader:
    def test_states_it_at_the_end(self) -> None:
        stated = ContentTypeHeader(VALUE, "application/json").state(Headers([("a", b"1")]))
        assert stated == Headers([("a", b"1"), ("content-type", b"application/json")])

    def test_gives_the_same_headers_where_it_stands_already(self) -> None:
        assert ContentTypeHeader(VALUE, "application/json").state(JSON) is JSON

    @pytest.mark.parametrize(
        "headers",
        [
            Headers([("content-type", b"application/json"), ("content-type", b"application/json")]),
            Headers([("content-type", b"text/plain")]),
            Headers([("content-type", None)]),
            Headers([("content-type", b"\xff")]),
        ],
    )
    def test_replaces_others_and_doubles(self, headers: Headers) -> None:
        assert ContentTypeHeader(VALUE, "application/json").state(headers) == JSON

    def test_keeps_one_that_fits(self) -> None:
        own = Headers([("content-type", b"application/vnd.orders+json; charset=UTF-8")])
        assert ContentTypeHeader(VALUE, "application/json", frozenset({"json"})).state(own) is own

    def test_keeps_none_with_another_charset(self) -> None:
        own = Headers([("content-type", b"application/vnd.orders+json; charset=utf-16")])
        assert ContentTypeHeader(VALUE, "application/json", frozenset({"json"})).state(own) == JSON

    def test_is_found_as_bridges_from_http_spell_it(self) -> None:
        header = ContentTypeHeader(VALUE, "text/plain", frozenset({"text"}), charsets=True)
        fits = Headers([("Content-Type", b"text/plain; charset=iso-8859-1")])
        assert (header.state(fits) is fits, header.codec(fits)) == (True, "iso8859-1")
        assert header.stated(fits) == b"text/plain; charset=iso-8859-1"
        assert header.state(Headers([("Content-Type", b"a/b"), ("content-type", b"a/c")])) == Headers(
            {"content-type": "text/plain"}
        )

    def test_a_header_of_ones_own_has_one_spelling(self) -> None:
        header = ContentTypeHeader(ContentTypeContext(header="own"), "text/plain")
        assert header.stated(Headers({"Own": "a/b"})) is None

    def test_states_nothing_where_it_has_nothing(self) -> None:
        headers = Headers([("content-type", b"x")])
        assert ContentTypeHeader(VALUE, "").state(headers) is headers
