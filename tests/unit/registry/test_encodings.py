from __future__ import annotations

from typing import Any, get_args

import pytest

from headerware.registry.encodings import decoder_of
from headerware.registry.values import Encoding


class TestDecoderOf:
    @pytest.mark.parametrize(
        ("encoding", "value", "decoded"),
        [
            ("utf-8", b"\xc3\xa9", "é"),
            ("json", b'{"a": [1]}', {"a": [1]}),
            ("bytes", b"\xff", "/w=="),
            ("uuid", bytes(range(16)), "00010203-0405-0607-0809-0a0b0c0d0e0f"),
            ("boolean", b"\1", True),
            ("boolean", b"\0", False),
            ("int8", b"\xff", -1),
            ("int16", b"\1\2", 258),
            ("int32", b"\0\0\1\2", 258),
            ("int64", b"\0" * 7 + b"\7", 7),
            ("float64", b"\x3f\xf8" + b"\0" * 6, 1.5),
            ("timestamp-ms", b"\0" * 7 + b"\7", 7),
        ],
    )
    def test_decodes_each_encoding(self, encoding: Encoding, value: bytes, decoded: Any) -> None:
        found = decoder_of(encoding)(value)
        assert (type(found), found) == (type(decoded), decoded)

    @pytest.mark.parametrize("encoding", sorted(set(get_args(Encoding)) - {"bytes"}))
    @pytest.mark.parametrize("value", [b"\xff" * 3, b"[" * 10_000 + b"\xff"])
    def test_refuses_other_values(self, encoding: Encoding, value: bytes) -> None:
        with pytest.raises(ValueError, match=r"."):
            decoder_of(encoding)(value)
