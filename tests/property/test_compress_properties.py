from __future__ import annotations

from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headerware.core.context import Context
from headerware.core.errors import CompressionError
from headerware.core.headers import Headers
from headerware.core.record import Record
from headerware.dictionaries.dictionary import COMPRESS_HEADER
from headerware.interceptors.compress import Compress

values = (
    st.none()
    | st.binary(max_size=2000)
    | st.builds(bytes.__mul__, st.binary(max_size=20), st.integers(0, 500))
)
levels = st.tuples(st.just("zstd"), st.sampled_from([-7, -1, 1, 3, 9, 19, 22])) | st.tuples(
    st.just("gzip"), st.integers(1, 9)
)
reader = Compress(max_decompressed_bytes=100_000).open(Context())


class TestCompressProperties:
    @given(value=values, codec_level=levels, min_bytes=st.integers(0, 200), margin=st.floats(0, 0.9))
    def test_any_value_comes_back(
        self,
        value: bytes | None,
        codec_level: tuple[Literal["zstd", "gzip"], int],
        min_bytes: int,
        margin: float,
    ) -> None:
        codec, level = codec_level
        writer = Compress(codec=codec, level=level, min_bytes=min_bytes, margin=margin).open(Context())
        record = Record("orders", value, headers=Headers([("a", None), ("", b"")]))
        sent = writer.on_send(record)
        assert reader.on_consume(sent) == record
        if sent is not record:
            assert value is not None
            assert len(sent.value) + 15 <= len(value) * (1 - margin)

    @given(
        mark=st.binary(max_size=3) | st.sampled_from([b"zstd", b"gzip"]),
        value=st.binary(max_size=300),
    )
    @pytest.mark.parametrize("magic", [b"", b"\x28\xb5\x2f\xfd", b"\x1f\x8b\x08"])
    def test_garbage_is_refused_or_stays_below_the_cap(self, magic: bytes, mark: bytes, value: bytes) -> None:
        record = Record("orders", magic + value, headers=Headers([(COMPRESS_HEADER, mark)]))
        try:
            found = reader.on_consume(record)
        except CompressionError:
            return
        assert len(found.value) <= 100_000
        assert not found.headers
