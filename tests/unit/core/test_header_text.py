"""The text form of binary header values has one spelling."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headerware.core.errors import WireFormatError
from headerware.core.header_text import decode_text, encode_text

PIECES = (b"", b"=", b"A", b"B", b"/", b"+", b"\\/", b"\\u0041", b"\\", b'"', b"\n", b"-")


class TestHeaderText:
    @given(st.binary(min_size=1, max_size=300))
    def test_round_trip_is_text(self, layout: bytes) -> None:
        value = encode_text(layout)
        value.decode("ascii")
        assert decode_text(value, "hw.sig") == layout

    @pytest.mark.parametrize(
        "value",
        [
            None,
            b"",
            b"AQ",
            b"AR==",
            b"AQ==\n",
            b" AQ==",
            b"AQ==AQ==",
            b"A-_=",
            b"====",
            b"\xff\xfe",
            b"\\u0041Q==",
            b"\\/8==",
            b"\\/8=",
            b"AQ\\u003d\\u003d",
        ],
    )
    def test_refuses_other_spellings(self, value: bytes | None) -> None:
        with pytest.raises(WireFormatError, match=r"hw\.sig"):
            decode_text(value, "hw.sig")

    @given(st.binary(min_size=1, max_size=6), st.data())
    def test_what_is_read_is_what_would_be_written(self, layout: bytes, data: st.DataObject) -> None:
        value = bytearray(encode_text(layout))
        for _ in range(data.draw(st.integers(0, 3))):
            at = data.draw(st.integers(0, len(value)))
            value[at : at + data.draw(st.integers(0, 1))] = data.draw(
                st.sampled_from(
                    [b"", b"=", b"A", b"B", b"/", b"+", b"\\/", b"\\u0041", b"\\", b'"', b"\n", b"-"]
                )
            )
        try:
            found = decode_text(bytes(value), "hw.sig")
        except WireFormatError:
            return
        assert encode_text(found) == value
