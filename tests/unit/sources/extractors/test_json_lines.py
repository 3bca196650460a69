"""JSON lines."""

from __future__ import annotations

import gzip
import json
import tracemalloc

import pytest

from headerware.core.errors import ObjectError
from headerware.sources import Input
from headerware.sources.conformance import ExtractorConformance
from headerware.sources.extractor import extracted, extractor_from
from headerware.sources.extractors import JsonLinesExtractor
from tests.source_objects import MadeObject, MemoryObject, problems, records, values

SAMPLE = '{"city": "Zürich"}\n\n[1, 2.5]\r\n   \n"text"\nnull\n{"last": true}'.encode()


class TestJsonLines(ExtractorConformance):
    extractor = JsonLinesExtractor()
    sample, count = SAMPLE, 5
    bad = b'{"a": SECRET}\n{"a": "SECRET"}\n'


class TestJsonLinesAsBytes(ExtractorConformance):
    extractor = JsonLinesExtractor(values="bytes")
    sample, count = SAMPLE, 5
    bad = b'{"a": SECRET}\n{"a": "SECRET"}\n'


class TestValues:
    def test_are_parsed(self) -> None:
        assert values(JsonLinesExtractor(), SAMPLE) == [
            {"city": "Zürich"},
            [1, 2.5],
            "text",
            None,
            {"last": True},
        ]

    def test_may_stay_bytes_with_all_digits(self) -> None:
        extractor = extractor_from({"type": "JSONL", "values": "bytes"})
        assert values(extractor, b' {"price": 1.10} \r\n') == [b'{"price": 1.10}']
        assert (extractor.gives, extractor.content_type) == (bytes, "application/json")

    def test_have_their_numbers_at_blank_and_bad_lines(self) -> None:
        found = extracted(JsonLinesExtractor(), Input(MemoryObject(b"1\n\n  \nbad\n3\n")))
        assert [number for number, _ in found] == [1, 2, 3]

    @pytest.mark.parametrize("how", ["parsed", "bytes"])
    @pytest.mark.parametrize(
        "line", [b'{"a": "\xff"}', b"{", b"[1,]", b'"\x00"', b"\x00\x00", b"[" * 100_000, b"NaN", b"1 2"]
    )
    def test_that_are_bad_are_one_error(self, how: str, line: bytes) -> None:
        extractor = extractor_from({"type": "jsonl", "values": how})
        found = records(extractor, b"1\n" + line + b"\n2\n")
        assert len(found) == 3
        assert problems(extractor, b"1\n" + line + b"\n2\n") == ["the line at byte 2 is not JSON in UTF-8"]

    def test_keep_the_bytes_of_a_bad_line_beside_the_error(self) -> None:
        assert getattr(records(JsonLinesExtractor(), b"{\n")[0], "raw", None) == b"{"

    @pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
    def test_follow_a_byte_order_mark(self, encoding: str) -> None:
        data = '\ufeff{"city": "Zürich"}\n{"city": "東京"}\n'.encode(encoding)
        assert values(JsonLinesExtractor(), data) == [{"city": "Zürich"}, {"city": "東京"}]
        assert values(JsonLinesExtractor(), data, skip=1) == [{"city": "東京"}]

    def test_of_a_cut_off_utf_16_are_an_error_of_the_object(self) -> None:
        with pytest.raises(ObjectError, match="utf-16-le"):
            values(JsonLinesExtractor(), '"a"\n"b"\n'.encode("utf-16")[:-1])


class TestLongLines:
    @pytest.mark.parametrize("length", [101, 102, 103, 10_000, 200_000])
    def test_are_one_error(self, length: int) -> None:
        extractor = JsonLinesExtractor(max_record_bytes=100)
        found = records(extractor, b"1\n" + b"x" * length + b"\n2\n")
        assert len(found) == 3
        assert "max_record_bytes" in str(found[1]) or length < 103

    def test_may_be_the_last_one(self) -> None:
        assert len(records(JsonLinesExtractor(max_record_bytes=100), b"1\n" + b"x" * 1000)) == 2

    def test_are_not_held(self) -> None:
        def line() -> object:
            yield b'{"a": "'
            for _ in range(256):
                yield b"x" * (1 << 18)
            yield b'"}\n2\n'

        extractor = JsonLinesExtractor(max_record_bytes=1 << 20)
        tracemalloc.start()
        try:
            found = records(extractor, MadeObject(line()))  # type: ignore[arg-type]
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert len(found) == 2
        assert peak < 8 << 20


class TestMemory:
    def test_does_not_grow_with_the_object(self) -> None:
        block = b"".join(json.dumps({"n": n, "text": "x" * 80}).encode() + b"\n" for n in range(1_000))

        def peak(blocks: int) -> int:
            item = MadeObject(block for _ in range(blocks))
            tracemalloc.start()
            try:
                count = sum(1 for _ in extracted(JsonLinesExtractor(), Input(item)))
                assert count == blocks * 1_000
                return tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()

        assert peak(24) < peak(6) + (1 << 18)


class TestResuming:
    def test_goes_to_the_byte(self) -> None:
        first = records(JsonLinesExtractor(), SAMPLE)[1]
        given = Input(MemoryObject(SAMPLE), skip=2, properties=getattr(first, "properties", None))
        found = list(extracted(JsonLinesExtractor(), given))
        assert given.skipped == 2
        assert [number for number, _ in found] == [3, 4, 5]

    def test_goes_to_the_byte_of_a_compressed_object(self) -> None:
        item = MemoryObject(gzip.compress(b"1\n2\n3\n"))
        assert values(JsonLinesExtractor(), item, skip=2, properties={"byte": 4}) == [3]

    def test_leaves_an_unfinished_line_of_a_growing_object(self) -> None:
        assert values(JsonLinesExtractor(), MemoryObject(b"1\n2\n33", grows=True)) == [1, 2]
        assert values(JsonLinesExtractor(), MemoryObject(b"1\n2\n33", grows=False)) == [1, 2, 33]


class TestSplits:
    def test_are_none_of_a_compressed_object(self) -> None:
        assert list(JsonLinesExtractor().splits(Input(MemoryObject(gzip.compress(SAMPLE))), 5)) == []

    def test_are_none_where_nothing_can_be_sought(self) -> None:
        assert list(JsonLinesExtractor().splits(Input(MemoryObject(SAMPLE, seekable=False)), 5)) == []

    def test_count_from_a_byte_order_mark(self) -> None:
        data = b"\xef\xbb\xbf1\n2\n3\n"
        for size in range(1, 10):
            splits = list(JsonLinesExtractor().splits(Input(MemoryObject(data)), size))
            found = [value for split in splits for value in values(JsonLinesExtractor(), data, split=split)]
            assert found == [1, 2, 3]
