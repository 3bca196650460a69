"""Bytes, in pieces."""

from __future__ import annotations

import pytest

from headerware.core.errors import ConfigError
from headerware.sources import Input
from headerware.sources.conformance import ExtractorConformance
from headerware.sources.extractors import BytesExtractor
from tests.source_objects import MemoryObject, values


class TestBytes(ExtractorConformance):
    extractor = BytesExtractor(piece_bytes=4)
    sample, count = b"0123456789", 3


class TestPieces:
    @pytest.mark.parametrize(
        ("length", "sizes"), [(0, []), (1, [1]), (3, [3]), (4, [4]), (5, [4, 1]), (8, [4, 4]), (9, [4, 4, 1])]
    )
    def test_are_full_but_for_the_last_and_never_empty(self, length: int, sizes: list[int]) -> None:
        assert list(map(len, values(BytesExtractor(piece_bytes=4), bytes(length)))) == sizes

    def test_fit_a_record_by_default(self) -> None:
        assert list(map(len, values(BytesExtractor(), bytes(2_500_000)))) == [900_000, 900_000, 700_000]

    def test_of_a_growing_object_are_whole(self) -> None:
        item = MemoryObject(b"0123456789", grows=True)
        assert values(BytesExtractor(piece_bytes=4), item) == [b"0123", b"4567"]

    def test_of_splits_are_numbered(self) -> None:
        splits = list(BytesExtractor(piece_bytes=4).splits(Input(MemoryObject(bytes(20))), 9))
        assert [(split.begin, split.end, split.first_record) for split in splits] == [
            (0, 8, 1),
            (8, 16, 3),
            (16, 20, 5),
        ]

    @pytest.mark.parametrize("size", [0, (16 << 20) + 1])
    def test_of_a_size_beyond_the_limit_are_refused(self, size: int) -> None:
        with pytest.raises(ConfigError, match="piece_bytes"):
            BytesExtractor(piece_bytes=size)
