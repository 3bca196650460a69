"""Headers from the wire and back, through a header converter."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from headerware.connect.config import ConfigDef
from headerware.connect.converters.base import HeaderConverter
from headerware.connect.converters.wire_headers import WireHeader, from_connect, to_connect
from headerware.connect.data import NULL, STRING_SCHEMA, Schema, SchemaAndValue
from headerware.connect.errors import ConnectDataError
from headerware.connect.headers import ConnectHeader
from headerware.connect.records import SinkRecord
from headerware.core.errors import HeaderError
from headerware.core.headers import Headers


class Counting(HeaderConverter):
    """Count what is decoded and encoded."""

    CONFIG: ClassVar[ConfigDef] = ConfigDef()

    def __init__(self) -> None:
        super().__init__()
        self.decoded: list[str] = []
        self.encoded: list[str] = []

    def from_connect_header(self, topic: str, key: str, schema: Schema | None, value: Any) -> bytes | None:
        del topic, schema
        self.encoded.append(key)
        return str(value).encode()

    def to_connect_header(self, topic: str, key: str, data: bytes | None) -> SchemaAndValue:
        del topic
        self.decoded.append(key)
        if data == b"bad":
            raise ConnectDataError("bad")
        return NULL if data is None else SchemaAndValue(STRING_SCHEMA, data.decode("latin1"))


WIRE = Headers([("a", b"1"), ("b", None), ("a", b"\xff"), ("c", b"3")])


class TestWireHeaders:
    def test_gives_the_very_headers_back_where_nobody_looked(self) -> None:
        converter = Counting()
        headers = to_connect("t", WIRE, converter)
        assert from_connect("t", headers, converter) is WIRE
        record = SinkRecord("t", headers=to_connect("t", WIRE, converter)).with_topic("u")
        assert from_connect("u", record.headers, converter) is WIRE
        assert (converter.decoded, converter.encoded) == ([], [])

    def test_decodes_a_header_that_is_read_once(self) -> None:
        converter = Counting()
        headers = to_connect("t", WIRE, converter)
        assert [header.key for header in headers] == ["a", "b", "a", "c"]
        last = headers.last_with_name("c")
        assert last is not None
        assert (last.value, last.schema, last.value) == ("3", STRING_SCHEMA, "3")
        assert converter.decoded == ["c"]

    def test_keeps_the_bytes_of_headers_that_are_not_replaced(self) -> None:
        converter = Counting()
        headers = to_connect("t", WIRE, converter)
        headers.apply(lambda header: header.rename("z") if header.key == "c" else header)
        headers.add("new", "x", STRING_SCHEMA)
        found = from_connect("t", headers, converter)
        assert found == Headers([("a", b"1"), ("b", None), ("a", b"\xff"), ("z", b"3"), ("new", b"x")])
        assert (converter.decoded, converter.encoded) == ([], ["new"])

    def test_writes_replaced_headers(self) -> None:
        converter = Counting()
        headers = to_connect("t", Headers([("a", b"1")]), converter)
        headers.apply(lambda header: header.with_value(STRING_SCHEMA, f"{header.value}!"))
        assert from_connect("t", headers, converter) == Headers([("a", b"1!")])

    def test_freezes_headers_that_have_left(self) -> None:
        converter = Counting()
        for headers in (to_connect("t", WIRE, converter), to_connect("t", WIRE, converter).remove("a")):
            from_connect("t", headers, converter)
            with pytest.raises(HeaderError):
                headers.add_string("x", "y")
            assert len(headers.duplicate().add_string("x", "y")) == len(headers) + 1

    def test_raises_where_a_bad_header_is_looked_at(self) -> None:
        converter = Counting()
        headers = to_connect("t", Headers([("a", b"bad")]), converter)
        duplicate = headers.duplicate()
        header = next(iter(headers))
        assert isinstance(header, WireHeader)
        with pytest.raises(ConnectDataError):
            _ = header.value
        assert from_connect("t", duplicate, converter) == Headers([("a", b"bad")])

    def test_knows_no_other_attributes(self) -> None:
        headers = to_connect("t", WIRE, Counting())
        assert not hasattr(headers, "other")
        assert headers == to_connect("t", WIRE, Counting())
        assert list(headers)[1] == ConnectHeader("b", None, None)

    def test_takes_no_headers(self) -> None:
        headers = to_connect("t", Headers(), Counting())
        assert len(headers) == 0
        assert from_connect("t", headers, Counting()) == Headers()


class TestWireHeader:
    def test_is_decoded_when_somebody_looks_and_once(self) -> None:
        asked: list[str] = []

        def decode(key: str, raw: bytes | None) -> SchemaAndValue:
            asked.append(key)
            return SchemaAndValue(STRING_SCHEMA, (raw or b"").decode())

        header = WireHeader("k", b"v", decode)
        renamed = header.rename("l")
        assert (header.rename("k") is header, asked) == (True, [])
        assert (header.schema, header.value, header.value) == (STRING_SCHEMA, "v", "v")
        assert asked == ["k"]
        again = header.rename("m")
        assert isinstance(again, WireHeader)
        assert (again.key, again.raw, again.value, asked) == ("m", b"v", "v", ["k"])
        assert (renamed.value, asked) == ("v", ["k", "l"])
        assert header == ConnectHeader("k", STRING_SCHEMA, "v")
