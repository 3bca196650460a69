"""The conformance suite on a source and an extractor that keep the contract, and on some that do not."""

from __future__ import annotations

import io
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

import pytest

from headerware.sources import Extracted, Extractor, Input, NativeItem, Source, Split
from headerware.sources.conformance import ExtractorConformance, SourceConformance
from headerware.sources.extractor import Found
from tests.spool import Lines, Spool, SpoolFile

FILES = {"a": "1\n2\n", "c": "3\n", "d": "", "e": "4\n5\n6\n"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    return tmp_path


class TestSpool(SourceConformance):
    extractor = Lines()

    @pytest.fixture(autouse=True)
    def filled(self, folder: Path) -> None:
        self.folder = folder

    def make_source(self) -> Source[Any]:
        return Spool(folder=str(self.folder))

    def add_late(self) -> None:
        (self.folder / "b").write_text("late\n")

    def change(self, key: Any) -> None:
        (self.folder / key).write_text("changed\n")

    def remove(self, key: Any) -> None:
        (self.folder / key).unlink()


class _Paged(Spool, frozen=True, kw_only=True):
    """Ends each listing after two keys; the framework goes on from the last."""

    def items(self, start: str | None) -> Iterator[NativeItem]:
        yield from islice(super().items(start), 2)


class TestPages(TestSpool):
    def make_source(self) -> Source[Any]:
        return _Paged(folder=str(self.folder))


class TestLines(ExtractorConformance):
    extractor = Lines()
    sample, count = b"one\ntwo\nthree\n", 3
    damaged = b"one\n!! SECRET\n"
    bad = b"!SECRET\nSECRET\n"


class TestLinesThatSeek(TestLines):
    extractor = Lines(seeks=True)


class _Repeating(Spool, frozen=True, kw_only=True):
    """Has the wrong order, or the same key twice."""

    order: str

    def items(self, start: str | None) -> Iterator[NativeItem]:
        found = list(super().items(start))
        if self.order == "falling":
            yield from reversed(found)
        elif self.order == "twice":
            yield from [*found, *found[:1]]
        elif self.order == "page":
            yield from found[:1]
        elif self.order == "deaf":
            yield from super().items(None)
        else:
            yield from found[1:] if start is not None else found


class _Shared(SpoolFile):
    """Gives the same stream each time."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._stream = io.BytesIO(path.read_bytes())

    def open_stream(self) -> BinaryIO:
        return self._stream


class TestFindsFaultsOfSources:
    @pytest.mark.parametrize(
        ("order", "test"),
        [
            ("falling", "test_lists_keys_that_are_hashable_and_ordered"),
            ("twice", "test_lists_keys_that_are_hashable_and_ordered"),
            ("page", "test_lists_keys_that_are_hashable_and_ordered"),
            ("deaf", "test_starts_at_each_key"),
            ("behind", "test_starts_at_each_key"),
        ],
    )
    def test_in_the_listing(self, folder: Path, order: str, test: str) -> None:
        class Tests(SourceConformance):
            def make_source(self) -> Source[Any]:
                return _Repeating(folder=str(folder), order=order)

        with pytest.raises(pytest.fail.Exception):
            getattr(Tests(), test)()

    def test_in_streams(self, folder: Path) -> None:
        class Sharing(Spool, frozen=True, kw_only=True):
            def items(self, start: str | None) -> Iterator[NativeItem]:
                for path in sorted(Path(self.folder).iterdir()):
                    yield _Shared(path)

        class Tests(SourceConformance):
            def make_source(self) -> Source[Any]:
                return Sharing(folder=str(folder))

        with pytest.raises((pytest.fail.Exception, ValueError)):
            Tests().test_opens_fresh_streams()

    @pytest.mark.parametrize(
        ("exact", "more", "fault"),
        [
            (False, 0, "set length_is_exact = True"),
            (False, 1, None),
            (True, 0, None),
            (True, 1, "expected 5 bytes of 'a', found 4"),
            (True, -1, "expected 3 bytes of 'a', found 4"),
        ],
    )
    def test_in_lengths(self, folder: Path, exact: bool, more: int, fault: str | None) -> None:  # noqa: FBT001
        class Sized(Spool, frozen=True, kw_only=True):
            def items(self, start: str | None) -> Iterator[NativeItem]:
                for item in super().items(start):
                    item.length += more if item.length else 0
                    item.length_is_exact = exact
                    yield item

        class Tests(SourceConformance):
            def make_source(self) -> Source[Any]:
                return Sized(folder=str(folder))

        if fault is None:
            Tests().test_states_exact_lengths()
            return
        with pytest.raises(pytest.fail.Exception, match=fault):
            Tests().test_states_exact_lengths()

    def test_in_extractors_that_take_a_lost_connection_for_the_end(self, folder: Path) -> None:
        class Tests(SourceConformance):
            extractor = _Wrong(fault="swallows")

            def make_source(self) -> Source[Any]:
                return Spool(folder=str(folder))

        with pytest.raises(pytest.fail.Exception):
            Tests().test_never_takes_a_lost_connection_for_the_end()


class _Wrong(Lines, frozen=True, kw_only=True):
    fault: str

    def extract(self, given: Input) -> Iterator[Found | list[Found]]:
        if self.fault == "leaves it open":
            yield from (Extracted(line) for line in given.item.open_stream())
            return
        try:
            yield from super().extract(given)
        except OSError:
            if self.fault != "swallows":
                raise
        if self.fault == "one more":
            yield Extracted(b"")

    def splits(self, given: Input, size_bytes: int) -> list[Split]:
        return [Split(0, 5), Split(5, 9)] if self.fault == "splits" else []


class TestFindsFaultsOfExtractors:
    @pytest.mark.parametrize(
        ("fault", "test", "arguments"),
        [
            ("swallows", "test_never_takes_an_error_for_the_end", (5,)),
            ("one more", "test_gives_the_records", ()),
            ("one more", "test_takes_an_empty_object", ()),
            ("splits", "test_covers_an_object_with_splits", ()),
            ("leaves it open", "test_closes_its_streams", ()),
        ],
    )
    def test_in_the_records(self, fault: str, test: str, arguments: tuple[Any, ...]) -> None:
        class Tests(ExtractorConformance):
            extractor: ClassVar[Extractor] = _Wrong(fault=fault)
            sample, count = b"one\ntwo\nthree\n", 3

        with pytest.raises(pytest.fail.Exception):
            getattr(Tests(), test)(*arguments)
