from __future__ import annotations

import pytest

from headerware.ops.chargeback.sizes import record_bytes

Headers = list[tuple[str, bytes | None]]


def varint(number: int) -> bytes:
    """Write a number as Kafka's record format does: zigzag, seven bits a byte."""
    left = number * 2 if number >= 0 else -number * 2 - 1
    written = bytearray()
    while left > 0x7F:
        written.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*written, left])


def sized(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def record_v2(key: bytes | None, value: bytes | None, headers: Headers) -> bytes:
    """Write a record as it stands in a batch, 50 ms and 30 offsets behind the first."""
    body = b"\x00" + varint(50) + varint(30) + sized(key) + sized(value) + varint(len(headers))
    body += b"".join(sized(name.encode()) + sized(data) for name, data in headers)
    return varint(len(body)) + body


class TestRecordBytes:
    @pytest.mark.parametrize(
        ("key", "value", "headers"),
        [
            (b"42", b"x" * 200, []),
            (b"42", b"x" * 200, [("hw.owner", b"shop"), ("hw.trail", b"t" * 50), ("hw.sig", b"s" * 70)]),
            (None, b"x" * 5_000, [("a", None), ("traceparent", b"p" * 55)]),
            (b"k" * 36, None, [("hw.owner", b"shop")]),
            (b"k" * 36, b"x" * 900_000, []),
        ],
    )
    def test_is_near_what_kafka_writes(
        self, key: bytes | None, value: bytes | None, headers: Headers
    ) -> None:
        assert abs(record_bytes(key, value, headers) - len(record_v2(key, value, headers))) <= 5

    def test_null_and_empty_are_nothing(self) -> None:
        assert record_bytes(None, None) == record_bytes(b"", b"") == 10

    def test_counts_names_in_utf8(self) -> None:
        assert record_bytes(b"", b"", [("é", None)]) == 10 + 2 + 2
