"""Extractors read what was written, wherever they begin; and garbage is an error of theirs, never another."""

from __future__ import annotations

import csv
import io
import json
from typing import Any, Final
from unittest.mock import patch

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headerware.core.errors import BadRecordError, ObjectError
from headerware.sources import Extracted, Extractor, Input, Split
from headerware.sources.extractor import extracted
from headerware.sources.extractors import (
    BytesExtractor,
    CsvExtractor,
    JsonLinesExtractor,
    lines,
)
from tests.source_objects import MemoryObject, values
from tests.source_samples import LINES, SAMPLES

WIDTH: Final = 3
TEXT: Final = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
ROWS: Final = st.lists(st.lists(TEXT, min_size=WIDTH, max_size=WIDTH), min_size=1, max_size=8)
PLAIN_ROWS: Final = st.lists(
    st.lists(st.text("ab,\"' ü", max_size=5), min_size=WIDTH, max_size=WIDTH), min_size=1, max_size=8
)
COLUMNS: Final = ["a", "b", "c"]


def written(rows: list[list[str]], ends: str) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator=ends, quoting=csv.QUOTE_ALL).writerows([COLUMNS, *rows])
    return text.getvalue().encode()


class TestCsv:
    @given(ROWS, st.sampled_from(["\n", "\r\n"]), st.data())
    @example([["", "", ""]], "\n", None)
    def test_reads_what_was_written_from_each_row_on(
        self, rows: list[list[str]], ends: str, data: Any
    ) -> None:
        written_rows = written(rows, ends)
        expected = [dict(zip(COLUMNS, row, strict=True)) for row in rows]
        extractor = CsvExtractor()
        found = [record for _, record in extracted(extractor, Input(MemoryObject(written_rows)))]
        assert [record.value for record in found if isinstance(record, Extracted)] == expected
        skip = data.draw(st.integers(1, len(rows))) if data is not None else 1
        properties = getattr(found[skip - 1], "properties", None)
        for known in (properties, None):
            assert values(extractor, written_rows, skip=skip, properties=known) == expected[skip:]

    @given(PLAIN_ROWS, st.sampled_from(["\n", "\r\n"]), st.integers(1, 60), st.booleans())
    def test_reads_all_in_parts(self, rows: list[list[str]], ends: str, size: int, header: bool) -> None:  # noqa: FBT001
        extractor = CsvExtractor(quoted_newlines=False, header=header)
        data = written(rows, ends)
        whole = values(extractor, data)
        assert len(whole) == len(rows) + (not header)
        assert of_splits(extractor, data, size) == whole


class TestJsonLines:
    @given(
        st.lists(st.one_of(st.none(), st.integers(), TEXT, st.lists(TEXT, max_size=3))),
        st.integers(1, 60),
        st.binary(max_size=3),
    )
    def test_reads_all_in_parts(self, written_values: list[Any], size: int, blank: bytes) -> None:
        blank = blank.translate(None, bytes(set(range(256)) - set(b" \t\r\n")))
        data = b"".join(json.dumps(value).encode() + b"\n" + blank for value in written_values)
        assert values(JsonLinesExtractor(), data) == written_values
        assert of_splits(JsonLinesExtractor(), data, size) == written_values


class TestSplits:
    @pytest.mark.parametrize("name", ["avro", "avro deflate", "parquet", "jsonl", "csv lines", "bytes"])
    @given(size=st.integers(1, 400))
    def test_cover_an_object_once(self, name: str, size: int) -> None:
        extractor, data = SAMPLES[name]
        if name == "bytes":
            extractor, data = BytesExtractor(piece_bytes=7), LINES
        assert of_splits(extractor, data, size) == values(extractor, data)


class TestGarbage:
    @pytest.mark.parametrize("name", SAMPLES)
    @given(st.data())
    def test_in_an_object_is_an_error_of_the_object_or_of_records(self, name: str, data: Any) -> None:
        extractor, sample = SAMPLES[name]
        spoiled = bytearray(sample)
        for _ in range(data.draw(st.integers(1, 4))):
            at = data.draw(st.integers(0, len(spoiled)))
            spoiled[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=6))
        read_safely(extractor, bytes(spoiled))

    @pytest.mark.parametrize("name", SAMPLES)
    @given(garbage=st.binary(max_size=80), kept=st.integers(0, 40))
    def test_behind_a_head_is_an_error_too(self, name: str, garbage: bytes, kept: int) -> None:
        extractor, sample = SAMPLES[name]
        read_safely(extractor, sample[:kept] + garbage)


def read_safely(extractor: Extractor, data: bytes) -> None:
    """Read an object in several ways that must agree; only an ObjectError may be raised."""
    whole = outcome(extractor, data)
    assert outcome(extractor, data, seekable=False) == whole
    if isinstance(extractor, CsvExtractor | JsonLinesExtractor):
        plain = msgspec.structs.replace(extractor, compression="none")
        whole = outcome(plain, data)
        with patch.object(lines, "_PIECE_BYTES", 5):
            assert outcome(plain, data) == whole


def outcome(extractor: Extractor, data: bytes, *, seekable: bool = True) -> list[Any]:
    found: list[Any] = []
    try:
        for number, record in extracted(extractor, Input(MemoryObject(data, seekable=seekable))):
            value = (
                None
                if isinstance(record, BadRecordError)
                else (record.value, record.properties, record.size_bytes)
            )
            found.append((number, repr(value)))
    except ObjectError:
        found.append("an error of the object")
    return found


def of_splits(extractor: Extractor, data: bytes, size: int) -> list[Any]:
    with Input(MemoryObject(data)) as given_object:
        splits = list(extractor.splits(given_object, size))
    assert all(isinstance(split, Split) for split in splits)
    assert bool(splits) == bool(data)
    return [value for split in splits for value in values(extractor, data, split=split)]
