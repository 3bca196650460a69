from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from headerware.core.errors import BadRecordError, ConfigError, SourceError
from headerware.sources import Extracted, Extractor, Input, ItemContext, NativeItem, Split
from headerware.sources.extractor import extracted, extracted_runs, extractor_from
from tests.spool import Lines, SpoolFile


class Pipe(NativeItem):
    """An object whose streams cannot seek."""

    def __init__(self, data: bytes) -> None:
        super().__init__(ItemContext(key="pipe"))
        self.data = data
        self.streams: list[Any] = []

    def open_stream(self) -> BinaryIO:
        stream = io.BytesIO(self.data)
        stream.seekable = lambda: False  # type: ignore[method-assign]
        self.streams.append(stream)
        return stream


class TestExtracted:
    def test_numbers_records_from_one(self, tmp_path: Path) -> None:
        (tmp_path / "x").write_bytes(b"a\nb\n")
        found = list(extracted(Lines(), Input(SpoolFile(tmp_path / "x"))))
        assert [number for number, _ in found] == [1, 2]

    def test_counts_bad_records(self, tmp_path: Path) -> None:
        (tmp_path / "x").write_bytes(b"!\nb\n")
        (first, bad), (second, good) = extracted(Lines(), Input(SpoolFile(tmp_path / "x")))
        assert (first, second) == (1, 2)
        assert isinstance(bad, BadRecordError)
        assert isinstance(good, Extracted)

    def test_numbers_a_split_from_its_first_record(self, tmp_path: Path) -> None:
        (tmp_path / "x").write_bytes(b"a\nb\n")
        given = Input(SpoolFile(tmp_path / "x"), split=Split(0, 4, first_record=11))
        assert [number for number, _ in extracted(Lines(), given)] == [11, 12]

    def test_refuses_an_extractor_that_passes_over_unknown_records(self) -> None:
        class Far(Lines, frozen=True, kw_only=True):
            def extract(self, given: Input) -> Iterator[Extracted | BadRecordError]:
                given.skipped = given.skip + 1
                yield Extracted(b"")

        with pytest.raises(SourceError, match="expected at most 2 skipped records, found 3"):
            list(extracted(Far(), Input(Pipe(b""), skip=2)))

    def test_refuses_what_is_no_record(self) -> None:
        class Bare(Lines, frozen=True, kw_only=True):
            def extract(self, given: Input) -> Iterator[Any]:
                yield b"bytes"

        with pytest.raises(SourceError, match="found bytes"):
            list(extracted(Bare(), Input(Pipe(b""))))


class Runs(Extractor, frozen=True, kw_only=True):
    """Gives a list, a record, and a list; the values are the numbers."""

    broken: bool = False

    def extract(self, given: Input) -> Iterator[Any]:
        yield [Extracted(1), BadRecordError("it is bad"), Extracted(3)]
        yield Extracted(4)
        yield []
        yield [Extracted(5), b"bytes"] if self.broken else [Extracted(5), Extracted(6)]


class TestRuns:
    @pytest.mark.parametrize("skip", range(8))
    def test_are_numbered_and_passed_over_record_by_record(self, skip: int) -> None:
        found = list(extracted(Runs(), Input(Pipe(b""), skip=skip)))
        assert [number for number, _ in found] == list(range(skip + 1, 7))
        for number, record in found:
            assert (
                isinstance(record, BadRecordError)
                if number == 2
                else getattr(record, "value", None) == number
            )

    def test_stay_together(self) -> None:
        with closing(extracted_runs(Runs(), Input(Pipe(b""), skip=1))) as runs:
            assert [(first, len(run)) for first, run in runs] == [(2, 2), (4, 1), (5, 2)]

    def test_have_nothing_but_records(self) -> None:
        with pytest.raises(SourceError, match="found bytes"):
            list(extracted(Runs(broken=True), Input(Pipe(b""))))


class TestInput:
    def test_copies_a_stream_that_cannot_seek(self) -> None:
        pipe = Pipe(b"x" * 3_000_000)
        with Input(pipe) as given:
            stream = given.open_seekable()
            assert stream.seek(2_999_999) == 2_999_999
            assert stream.read() == b"x"
        assert stream.closed
        assert pipe.streams[0].closed

    def test_closes_all_streams_though_one_cannot_be_closed(self) -> None:
        class Stuck(io.BytesIO):
            def close(self) -> None:
                super().close()
                raise OSError("stuck")

        pipe = Pipe(b"")
        given = Input(pipe)
        given.open_stream()
        given.closing(Stuck())
        with pytest.raises(OSError, match="stuck"):
            given.close()
        assert pipe.streams[0].closed


class TestExtractorFrom:
    def test_refuses_one_without_extract(self) -> None:
        with pytest.raises(ConfigError, match=r"extractor: Extractor needs a method extract\(given\)"):
            extractor_from(Extractor())

    def test_refuses_other_objects(self) -> None:
        with pytest.raises(ConfigError, match="expected an Extractor, found list"):
            extractor_from([])

    def test_names_what_there_is(self) -> None:
        with pytest.raises(ConfigError, match="there is no extractor type 'nothing'"):
            extractor_from("nothing")
