"""The text form of binary header values has one spelling."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headerware.core.errors import WireFormatError
from headerware.core.header_text import decode_text, encode_text


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
        ],
    )
    def test_refuses_other_spellings(self, value: bytes | None) -> None:
        with pytest.raises(WireFormatError, match=r"hw\.sig"):
            decode_text(value, "hw.sig")
