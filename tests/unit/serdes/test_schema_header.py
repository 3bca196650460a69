from __future__ import annotations

import pytest

from headerware.core.errors import SerdeError
from headerware.core.headers import Headers
from headerware.serdes.avro.schema import Fingerprint
from headerware.serdes.confluent.framing import (
    decode_id_header,
    encode_guid,
    encode_id,
    encode_single_object,
    prefix_of,
    single_object_digest,
)
from headerware.serdes.schema_header import decode_mark, encode_mark, is_mark_of_part, without_mark

KEY, VALUE = (f"{part}:rabin:{bytes(range(8)).hex()}".encode() for part in ("key", "value"))


class TestSchemaHeader:
    def test_reads_what_it_writes(self) -> None:
        assert encode_mark("key", Fingerprint("rabin", bytes(range(8)))) == KEY
        assert decode_mark(VALUE) == ("value", Fingerprint("rabin", bytes(range(8))))

    def test_tells_the_parts_apart(self) -> None:
        headers = Headers([("hw.schema", KEY), ("a", b"1"), ("hw.schema", VALUE)])
        assert without_mark("key", headers) == [("a", b"1"), ("hw.schema", VALUE)]
        assert without_mark("value", headers) == [("hw.schema", KEY), ("a", b"1")]

    @pytest.mark.parametrize("broken", [None, b"", b"keys", b"\x01\x07\x02"])
    def test_what_does_not_tell_is_the_values(self, broken: bytes | None) -> None:
        assert is_mark_of_part("value", ("hw.schema", broken))
        assert not is_mark_of_part("key", ("hw.schema", broken))

    def test_an_error_says_what_was_expected_and_no_digest(self) -> None:
        with pytest.raises(SerdeError, match="a digest of 14 digits, expected 16 for rabin") as caught:
            decode_mark(VALUE[:-2])
        assert bytes(range(7)).hex() not in str(caught.value)


class TestConfluentFraming:
    def test_ids(self) -> None:
        assert encode_id(0x01020304) == b"\x00\x01\x02\x03\x04"
        assert prefix_of(b"\x00\x01\x02\x03\x04rest") == 0x01020304
        assert decode_id_header("__value_schema_id", b"\x00\x01\x02\x03\x04") == 0x01020304

    def test_guids(self) -> None:
        guid = bytes(range(16))
        assert encode_guid(guid) == b"\x01" + guid
        assert decode_id_header("__value_schema_id", b"\x01" + guid) == guid

    @pytest.mark.parametrize("payload", [b"", b"\x00\x01\x02\x03", b"\x01\x00\x00\x00\x01", b"plain text"])
    def test_payloads_without_a_prefix(self, payload: bytes) -> None:
        assert prefix_of(payload) is None

    @pytest.mark.parametrize(
        "value", [None, b"", b"\x00", b"\x01" + bytes(15), b"\x00" + bytes(16), b"\x02" + bytes(16)]
    )
    def test_headers_of_another_layout(self, value: bytes | None) -> None:
        with pytest.raises(SerdeError, match=r"__key_schema_id is .*, expected 0 and an id of 4 bytes"):
            decode_id_header("__key_schema_id", value)

    def test_a_guid_has_16_bytes(self) -> None:
        with pytest.raises(SerdeError, match="has 16 bytes, found 15"):
            encode_guid(bytes(15))


class TestSingleObject:
    def test_the_fingerprint_is_little_endian_there(self) -> None:
        fingerprint = Fingerprint("rabin", bytes(range(8)))
        assert encode_single_object(fingerprint) == b"\xc3\x01\x07\x06\x05\x04\x03\x02\x01\x00"
        assert single_object_digest(b"\xc3\x01\x07\x06\x05\x04\x03\x02\x01\x00rest") == fingerprint.digest

    @pytest.mark.parametrize("payload", [b"", b"\xc3\x01\x07", b"\xc3\x02" + bytes(8), bytes(10)])
    def test_other_payloads(self, payload: bytes) -> None:
        assert single_object_digest(payload) is None
