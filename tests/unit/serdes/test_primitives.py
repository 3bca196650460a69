from __future__ import annotations

import uuid
from typing import Any

import pytest
from confluent_kafka.serialization import DoubleSerializer, IntegerSerializer, StringSerializer

from headerware import Headers, SerdeError
from headerware.serdes.formats.primitives import Double, Float, Integer, Long, Short, String, Uuid
from headerware.serdes.serde import Serde, SerdeContext

NONE = Headers()
ALL = [Short, Integer, Long, Float, Double, Uuid, String]


def opened(kind: type[Serde]) -> Any:
    return kind().open(SerdeContext(part="key"))


class TestPrimitives:
    @pytest.mark.parametrize(
        ("kind", "value", "payload"),
        [
            (Short, -2, b"\xff\xfe"),
            (Integer, 258, b"\x00\x00\x01\x02"),
            (Integer, -(2**31), b"\x80\x00\x00\x00"),
            (Long, 2**63 - 1, b"\x7f" + b"\xff" * 7),
            (Float, 1.5, b"\x3f\xc0\x00\x00"),
            (Double, 1.5, b"\x3f\xf8" + bytes(6)),
            (Double, 2, b"\x40" + bytes(7)),
            (Uuid, uuid.UUID(int=1), b"00000000-0000-0000-0000-000000000001"),
            (String, "é", b"\xc3\xa9"),
            (String, "", b""),
        ],
    )
    def test_have_kafkas_layouts_and_state_no_content_type(
        self, kind: type[Serde], value: Any, payload: bytes
    ) -> None:
        assert opened(kind).serialize("t", NONE, value) == (payload, NONE)
        assert opened(kind).deserialize("t", NONE, payload) == (value, NONE)

    @pytest.mark.parametrize("kind", ALL)
    def test_nulls_go_through(self, kind: type[Serde]) -> None:
        assert opened(kind).serialize("t", NONE, None) == (None, NONE)
        assert opened(kind).deserialize("t", NONE, None) == (None, NONE)

    @pytest.mark.parametrize("charset", ["utf-16", "bogus"])
    def test_a_string_is_utf_8_whatever_a_content_type_says(self, charset: str) -> None:
        """Kafka's own serializers look at no header, and this is for the other side of those."""
        headers = Headers({"key-content-type": f"application/json; charset={charset}"})
        assert opened(String).serialize("t", headers, "é") == (b"\xc3\xa9", headers)
        assert opened(String).deserialize("t", headers, b"\xc3\xa9") == ("é", headers)

    @pytest.mark.parametrize(
        ("kind", "theirs", "value"),
        [
            (Integer, IntegerSerializer(), 7),
            (Double, DoubleSerializer(), 0.1),
            (String, StringSerializer(), "é"),
        ],
    )
    def test_are_what_confluent_kafka_writes(self, kind: type[Serde], theirs: Any, value: Any) -> None:
        assert opened(kind).serialize("t", NONE, value)[0] == theirs(value)

    @pytest.mark.parametrize(
        ("kind", "value"),
        [
            (Short, 2**15),
            (Integer, 2**31),
            (Long, -(2**63) - 1),
            (Float, 1e300),
            (Double, 10**400),
            (Integer, 1.0),
            (Integer, True),
            (Double, "1"),
            (Uuid, "00000000-0000-0000-0000-000000000001"),
            (String, b"x"),
        ],
    )
    def test_refuse_a_value_that_does_not_fit(self, kind: type[Serde], value: Any) -> None:
        with pytest.raises(SerdeError, match=r"^expected"):
            opened(kind).serialize("t", NONE, value)

    @pytest.mark.parametrize("kind", [Short, Integer, Long, Float, Double])
    @pytest.mark.parametrize("size", [0, 1, 3, 5, 9])
    def test_refuse_payloads_of_another_size(self, kind: type[Serde], size: int) -> None:
        with pytest.raises(SerdeError, match=rf"found {size}$"):
            opened(kind).deserialize("t", NONE, bytes(size))

    def test_a_uuid_is_read_in_capitals(self) -> None:
        text = b"ABCDEF00-0000-0000-0000-000000000001"
        assert opened(Uuid).deserialize("t", NONE, text)[0] == uuid.UUID(text.decode())

    @pytest.mark.parametrize(
        "payload",
        [
            b"",
            b"x" * 36,
            b"\xff" * 36,
            b"{0000000-0000-0000-0000-000000000001",
            bytes(16),
            # What Python's UUID reads, though nothing writes it: two keys would be one.
            b"{{00000000000000000000000000000001}}",
            b"0000-0000-0000-0000-0000000000000001",
            b"1_200000-0000-0000-0000-000000000001",
        ],
    )
    def test_require_a_uuid(self, payload: bytes) -> None:
        with pytest.raises(SerdeError, match="expected a UUID"):
            opened(Uuid).deserialize("t", NONE, payload)
