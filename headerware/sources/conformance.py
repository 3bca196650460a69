r"""Tests that every source and every extractor must pass; the tests of a source or extractor inherit them.

    class TestSpool(SourceConformance):
        extractor = "lines"

        def make_source(self):
            return Spool(folder=self.folder)

    class TestLines(ExtractorConformance):
        extractor = Lines()
        sample, count = b"a\nb\n", 2

pytest collects the methods of the subclass. A test that needs a change of the source, such as a removed
object, is skipped, with a reason, until the subclass implements the change.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from itertools import pairwise
from typing import Any, BinaryIO, ClassVar, Final, NamedTuple

import pytest

from headerware.core.errors import BadRecordError, ConfigError, NotAStreamError, ObjectError, SourceError
from headerware.sources.extractor import Extracted, Extractor, Input, Split, extracted, extractor_from
from headerware.sources.offsets import OffsetEntry, OffsetKey, checked_properties
from headerware.sources.source import (
    UNKNOWN_LENGTH,
    ItemContext,
    NativeItem,
    OpenSource,
    Source,
    SourceContext,
    open_source,
)

_AT_MOST: Final = 50
"""How many objects and records a test tries one by one."""


class SourceConformance:
    """Test a source that a subclass makes: with at least three objects, one of them with two records."""

    extractor: ClassVar[Any] = None
    """The extractor that reads the objects: a word such as ``jsonl``, a table of ``type`` and options, or an
    :class:`Extractor`. None if the source has its own, or to skip tests."""

    def make_source(self) -> Source[Any]:
        """Return the source's options; the listed objects must not change during a test."""
        raise NotImplementedError

    def add_late(self) -> None:
        """Add an object whose key is neither the first nor the last."""
        pytest.skip("this source's tests cannot add an object")

    def change(self, key: Any) -> None:
        """Change the contents of an object."""
        pytest.skip(f"this source's tests cannot change {key!r}")

    def remove(self, key: Any) -> None:
        """Remove an object."""
        pytest.skip(f"this source's tests cannot remove {key!r}")

    def test_says_its_name(self) -> None:
        """The type, the source's name in configuration, is text."""
        name = type(self.make_source()).type
        _require(bool(name) and type(name) is str, f"expected a type, found {name!r}")

    def test_lists_keys_that_are_hashable_and_ordered(self) -> None:
        """Keys rise strictly, unless the source sets ``repeats_order = False``."""
        source = self.make_source()
        keys = [item.context.key for item in self._listed(source)]
        _require(len(keys) >= 3, f"these tests need at least three objects, found {len(keys)}")
        _require(len(set(keys)) == len(keys), "a key was listed twice")
        for one, other in pairwise(keys):
            _require(
                (one < other) != (other < one), f"neither of {one!r} and {other!r} is less than the other"
            )
        if source.repeats_order:
            _require(keys == sorted(keys), "the keys do not rise; set repeats_order = False")

    def test_repeats_its_listing(self) -> None:
        """Two listings by one client and one by another client have the same keys, versions and lengths."""
        source = self.make_source()
        with _opened(source) as opened:
            listings = [[_shown(item) for item in _items(source, opened)] for _ in range(2)]
        listings.append([_shown(item) for item in self._listed(source)])
        if not source.repeats_order:
            listings = [sorted(listing, key=lambda shown: shown[0]) for listing in listings]
        _require(
            listings[0] == listings[1] == listings[2], "two listings differ, though no object has changed"
        )

    def test_starts_at_each_key(self) -> None:
        """A listing from a key has all later keys, and the key itself if ``includes_start`` says so."""
        source = self.make_source()
        if not source.repeats_order:
            pytest.skip("this source's order is not repeatable")
        keys = [item.context.key for item in self._listed(source)]
        with _opened(source) as opened:
            for at, key in list(enumerate(keys))[:_AT_MOST]:
                found = [item.context.key for item in _items(source, opened, key)]
                expected = keys[at:] if source.includes_start else keys[at + 1 :]
                _require(found == expected, f"a listing from {key!r} is not the rest of the complete listing")

    def test_is_listed_in_part(self) -> None:
        """After a listing is abandoned halfway, the next listing begins at the start."""
        source = self.make_source()
        with _opened(source) as opened:
            first = iter(opened.items(None))
            key = next(first).context.key
            close = getattr(first, "close", None)
            if close is not None:
                close()
            again = next(iter(opened.items(None))).context.key
        _require(not source.repeats_order or again == key, "the next listing did not begin at the start")

    def test_brings_keys_to_text_and_back(self) -> None:
        """The key serde returns equal keys from their texts, and gives different keys different texts."""
        source = self.make_source()
        if source.keys is None:
            pytest.skip("this source has no key serde")
        keys = [item.context.key for item in self._listed(source)]
        texts = [source.keys.to_text(key) for key in keys]
        _require(all(isinstance(text, str) for text in texts), "a key's text is not text")
        _require(len(set(texts)) == len(keys), "two keys have the same text")
        for key, text in zip(keys, texts, strict=True):
            back = source.keys.from_text(text)
            _require(
                back == key and hash(back) == hash(key),
                f"from_text(to_text({key!r})) is not equal to the key",
            )

    def test_names_objects_among_the_offsets(self) -> None:
        """Partition maps are the same each time, differ between keys, and come back equal from a store."""
        source = self.make_source()
        keys = [item.context.key for item in self._listed(source)]
        found = [OffsetKey(source.partition(key)) for key in keys]
        again = [OffsetKey(source.partition(key)) for key in keys]
        _require(found == again, "a key has a different partition map the second time")
        _require(len(set(found)) == len(keys), "two keys have the same partition map")
        for key, native in zip(found, keys, strict=True):
            _require(
                OffsetKey.from_bytes(key.encoded) == key, "a partition map came back changed from a store"
            )
            changed = source.partition(native)
            changed["added by a test"] = 1
            _require(
                OffsetKey(source.partition(native)) == key,
                "partition() returns the same map twice, rather than a new one",
            )

    def test_resumes_from_a_stored_offset(self) -> None:
        """``resumed()`` returns None, or an offset that skips no unread record."""
        source = self.make_source()
        entry = OffsetEntry.from_bytes(OffsetEntry(record_number=1).to_bytes())
        for item in self._listed(source)[:_AT_MOST]:
            found = source.resumed(item.context.key, entry)
            _require(found is None or isinstance(found, OffsetEntry), "expected an OffsetEntry or None")
            if found is not None:
                _require(
                    found.record_number <= entry.record_number,
                    "resumed() would skip records that were not read",
                )

    def test_opens_fresh_streams(self) -> None:
        """Two streams of one object have the same bytes, and reading one does not move the other."""
        for item in self._listed(self.make_source())[:_AT_MOST]:
            try:
                first = item.open_stream()
            except NotAStreamError:
                with pytest.raises(NotAStreamError):
                    item.open_stream()
                continue
            with closing(first), closing(item.open_stream()) as second:
                head = first.read(7)
                whole = second.read()
                _require(isinstance(whole, bytes), f"a stream gives {type(whole).__name__}, not bytes")
                _require(head + first.read() == whole, "two streams of one object differ")

    def test_estimates_lengths(self) -> None:
        """A length is a number of bytes, or ``UNKNOWN_LENGTH``."""
        for item in self._listed(self.make_source()):
            _require(
                type(item.length) is int and item.length >= UNKNOWN_LENGTH,
                f"expected a length of 0 or more, or {UNKNOWN_LENGTH}; found {item.length!r}",
            )

    def test_states_exact_lengths(self) -> None:
        """Streams have as many bytes as ``length_is_exact`` promises; lengths that are exact are declared so.

        If the lengths are estimates that are right for these objects by chance, override this test.
        """
        lengths: list[tuple[NativeItem, int]] = []
        for item in self._listed(self.make_source())[:_AT_MOST]:
            if item.length > 0:
                with suppress(NotAStreamError), closing(item.open_stream()) as stream:
                    lengths.append((item, _size(stream)))
        for item, found in lengths:
            fits = found >= item.length if item.context.grows else found == item.length
            _require(
                fits or not item.length_is_exact,
                f"expected {item.length} bytes of {item.context.key!r}, found {found}; correct the length, "
                "or remove length_is_exact",
            )
        _require(
            not lengths or any(item.length_is_exact or found != item.length for item, found in lengths),
            "the lengths are exact; set length_is_exact = True in the class of the items, so that a stream "
            "that ends early is an error",
        )

    def test_never_takes_a_lost_connection_for_the_end(self) -> None:
        """A stream that ends early is an error, at whatever byte it ends, if the length is exact."""
        source = self.make_source()
        extractor = self._extractor(source)
        tried = 0
        for item in self._listed(source)[:_AT_MOST]:
            if not item.length_is_exact or item.length <= 0:
                continue
            opened = item.open_stream
            for tenth in (0, 5, 9):
                cut = partial(_CutStream, opened, item.length * tenth // 10)
                item.open_stream = cut  # type: ignore[method-assign, assignment]  # for this test
                with pytest.raises((OSError, ObjectError)):
                    list(extracted(extractor, Input(item)))
            tried += 1
        if not tried:
            pytest.skip(
                "no item of this source has an exact length; its streams must raise OSError themselves"
            )

    def test_tells_contexts(self) -> None:
        """The fields of an item's context have the types that ``ItemContext`` declares."""
        for item in self._listed(self.make_source()):
            context = item.context
            for name in ("topic", "version", "content_type"):
                value = getattr(context, name)
                _require(value is None or type(value) is str, f"{name} is a {type(value).__name__}")
            for name in ("partition", "timestamp_ms"):
                value = getattr(context, name)
                _require(value is None or type(value) is int, f"{name} is a {type(value).__name__}")

    def test_travels(self) -> None:
        """Options and items can be pickled, as Spark does, and come back equal."""
        source = self.make_source()
        again = pickle.loads(pickle.dumps(source))  # noqa: S301 - our own bytes
        _require(again == source, "the options came back changed")
        items = self._listed(source)[:_AT_MOST]
        moved = pickle.loads(pickle.dumps(items))  # noqa: S301 - our own bytes
        _require(
            [_shown(item) for item in moved] == [_shown(item) for item in items], "an item came back changed"
        )

    def test_is_opened_twice_and_closed_once(self) -> None:
        """Closing one client of a source leaves another client of the source usable."""
        source = self.make_source()
        with _opened(source) as staying:
            with _opened(source) as going:
                next(iter(going.items(None)))
            _require(len(_items(source, staying)) >= 3, "closing one client closed another client too")

    def test_gives_the_same_records_again(self) -> None:
        """An object has the same records each time, also if reading resumes after any record."""
        source = self.make_source()
        extractor = self._extractor(source)
        if not source.repeats_records:
            pytest.skip("this source does not repeat its records")
        most = 0
        for item in self._listed(source)[:_AT_MOST]:
            records = list(extracted(extractor, Input(item)))
            most = max(most, len(records))
            _require_tails(extractor, records, lambda item=item: item)
        _require(most >= 2, "these tests need an object with at least two records")

    def test_lists_late_keys(self) -> None:
        """An object that is added between two others is listed."""
        source = self.make_source()
        with _opened(source) as opened:
            before = [item.context.key for item in _items(source, opened)]
            self.add_late()
            after = [item.context.key for item in _items(source, opened)]
        late = set(after) - set(before)
        _require(len(late) == 1, f"expected one new key, found {len(late)}")
        _require(
            before[0] < late.pop() < max(before),
            "the new key is the first or the last; add_late() must add one between others",
        )

    def test_tells_of_a_change(self) -> None:
        """A changed object gets another version, and unchanged objects keep their version."""
        source = self.make_source()
        before = {item.context.key: item.context.version for item in self._listed(source)}
        key = min(before)
        self.change(key)
        after = {item.context.key: item.context.version for item in self._listed(source)}
        if before[key] is None:
            pytest.skip("this source knows no versions")
        changed = [each for each in before if before[each] != after.get(each)]
        _require(
            changed == [key], f"expected a new version of {key!r} only, found new versions of {changed!r}"
        )

    def test_tells_of_a_vanished_object(self) -> None:
        """Opening a removed object raises an error, and a listing from its key has all later objects."""
        source = self.make_source()
        extractor = self._extractor(source)
        items = self._listed(source)
        self.remove(items[1].context.key)
        with pytest.raises((OSError, ObjectError)):
            list(extracted(extractor, Input(items[1])))
        if source.repeats_order:
            with _opened(source) as opened:
                found = [item.context.key for item in _items(source, opened, items[1].context.key)]
            expected = [item.context.key for item in items[2:]]
            _require(found == expected, "a listing from a removed key does not begin with the next key")

    def _listed(self, source: Source[Any]) -> list[NativeItem]:
        with _opened(source) as opened:
            return _items(source, opened)

    def _extractor(self, source: Source[Any]) -> Extractor:
        options = source.fixed.get("extractor", self.extractor)
        if options is None:
            pytest.skip("these tests have no extractor; set extractor in the subclass")
        return extractor_from(options)


class ExtractorConformance:
    """Test an extractor on a sample."""

    extractor: ClassVar[Extractor]
    """The extractor."""
    sample: ClassVar[bytes]
    """The bytes of an object with at least two records, none of them bad."""
    count: ClassVar[int]
    """How many records the sample has."""
    empty: ClassVar[bytes | None] = b""
    """The bytes of an object without records; None if every object of the format has records."""
    damaged: ClassVar[bytes | None] = None
    """The bytes of a truncated or damaged object; None if the format cannot show damage."""
    bad: ClassVar[bytes | None] = None
    """The bytes of a bad, then a good record, both with ``SECRET`` in them; None if no record can be bad."""

    def test_gives_the_records(self) -> None:
        """Records are numbered from 1, and none is bad."""
        found = self._records(self.sample)
        _require([number for number, _ in found] == list(range(1, self.count + 1)), "wrong numbers")
        bad = [number for number, record in found if isinstance(record, BadRecordError)]
        _require(not bad, f"bad records: {bad}")

    def test_gives_values_of_its_type(self) -> None:
        """Values have the type that the extractor declares as ``gives``."""
        gives = self.extractor.gives
        for _, record in self._records(self.sample):
            value = record.value if isinstance(record, Extracted) else None
            _require(not isinstance(gives, type) or isinstance(value, gives), f"a {type(value).__name__}")

    def test_resumes_after_each_record(self) -> None:
        """After every record the rest is the same, with the offset's properties and without them."""
        found = self._records(self.sample)
        for properties in (True, False):
            _require_tails(self.extractor, found, lambda: _Sample(self.sample), with_properties=properties)

    def test_gives_nothing_past_the_end(self) -> None:
        """Resuming after the last record gives no record and no error."""
        found = list(extracted(self.extractor, Input(_Sample(self.sample), skip=self.count + 5)))
        _require(found == [], "there were records past the end")

    def test_takes_an_empty_object(self) -> None:
        """An object without records is no error."""
        if self.empty is None:
            pytest.skip("every object of this format has records")
        _require(self._records(self.empty) == [], "an empty object has records")

    def test_reads_streams_that_give_little_at_a_time(self) -> None:
        """A stream that cannot seek and gives a few bytes at a time has the same records."""
        whole = _values(self._records(self.sample))
        trickled = _values(list(extracted(self.extractor, Input(_Sample(self.sample, trickle=3)))))
        _require(trickled == whole, "the records depend on how many bytes the stream gives at a time")

    @pytest.mark.parametrize("tenth", [0, 3, 5, 9])
    def test_never_takes_an_error_for_the_end(self, tenth: int) -> None:
        """An error of the stream is raised, at whatever byte it occurs."""
        item = _Sample(self.sample, fails_at=len(self.sample) * tenth // 10)
        with pytest.raises((OSError, ObjectError)):
            list(extracted(self.extractor, Input(item)))

    def test_tells_of_damage(self) -> None:
        """A truncated or damaged object raises ObjectError, and the message does not quote the object."""
        if self.damaged is None:
            pytest.skip("this format cannot show that an object is damaged")
        with pytest.raises(ObjectError) as raised:
            self._records(self.damaged)
        _require_hidden(raised.value)

    def test_goes_on_after_a_bad_record(self) -> None:
        """A bad record is one error, which does not quote the record, and the next record is read."""
        if self.bad is None:
            pytest.skip("an object of this format has no bad records")
        found = [record for _, record in self._records(self.bad)]
        errors = [record for record in found if isinstance(record, BadRecordError)]
        _require(len(errors) == 1, f"expected one bad record, found {len(errors)}")
        _require(isinstance(found[-1], Extracted), "no record comes after the bad record")
        _require_hidden(errors[0])

    def test_covers_an_object_with_splits(self) -> None:
        """The splits of an object together have each record once, in order, for every size of splits."""
        whole = _values(self._records(self.sample))
        tried = 0
        for size in (1, 7, max(1, len(self.sample) // 3), len(self.sample) + 1):
            with Input(_Sample(self.sample)) as given:
                splits = list(self.extractor.splits(given, size))
            tried += len(splits)
            if splits:
                found = [pickle.loads(pickle.dumps(split)) for split in splits]  # noqa: S301 - our own
                _require(_values(self._of_splits(found)) == whole, f"splits of {size} bytes differ")
        if not tried:
            pytest.skip("this extractor does not split")

    def test_closes_its_streams(self) -> None:
        """Every stream is closed, also after the reader stops early or fails."""
        item = _Sample(self.sample)
        list(extracted(self.extractor, Input(item)))
        _require(item.left_open == 0, "a stream is open after the last record")
        reading = extracted(self.extractor, Input(item))
        next(reading)
        reading.close()  # type: ignore[attr-defined]  # it is a generator
        _require(item.left_open == 0, "a stream is open after a reader stopped early")
        item = _Sample(self.sample, fails_at=len(self.sample) // 2)
        with pytest.raises((OSError, ObjectError)):
            list(extracted(self.extractor, Input(item)))
        _require(item.left_open == 0, "a stream is open after an error")

    def test_refuses_what_is_no_stream(self) -> None:
        """An object without bytes raises NotAStreamError."""
        with pytest.raises(NotAStreamError):
            list(extracted(self.extractor, Input(NativeItem(ItemContext(key="row")))))

    def _records(self, data: bytes) -> list[tuple[int, Extracted | BadRecordError]]:
        return list(extracted(self.extractor, Input(_Sample(data))))

    def _of_splits(self, splits: list[Split]) -> list[tuple[int, Extracted | BadRecordError]]:
        return [
            found
            for split in splits
            for found in extracted(self.extractor, Input(_Sample(self.sample), split=split))
        ]


class _Sample(NativeItem):
    """An object in memory that counts its open streams, gives a few bytes at a time, or fails."""

    def __init__(self, data: bytes, *, trickle: int = 0, fails_at: int | None = None) -> None:
        super().__init__(ItemContext(key="sample", version="1"), len(data))
        self._data = data
        self._trickle = trickle
        self._fails_at = fails_at
        self._streams: list[_SampleStream] = []  # references, or garbage collection would close them

    @property
    def left_open(self) -> int:
        return sum(not stream.closed for stream in self._streams)

    def open_stream(self) -> Any:
        stream = _SampleStream(self._data, self._trickle, self._fails_at)
        self._streams.append(stream)
        return stream if not self._trickle else io.BufferedReader(stream, 16)


class _SampleStream(io.RawIOBase):
    def __init__(self, data: bytes, trickle: int, fails_at: int | None) -> None:
        super().__init__()
        self._data = data
        self._at = 0
        self._trickle = trickle
        self._fails_at = fails_at

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return not self._trickle

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if self._trickle:
            raise io.UnsupportedOperation("seek")
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: len(self._data)}[whence]
        self._at = max(0, base + offset)
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        size = len(buffer) if not self._trickle else min(len(buffer), self._trickle)
        if self._fails_at is not None and self._at + size > self._fails_at:
            size = self._fails_at - self._at
            if size <= 0:
                raise OSError("the connection was lost, as this test intends")
        found = self._data[self._at : self._at + size]
        buffer[: len(found)] = found
        self._at += len(found)
        return len(found)


class _CutStream(io.RawIOBase):
    """The first bytes of a stream, as if the connection was lost after them."""

    def __init__(self, opened: Callable[[], BinaryIO], left: int) -> None:
        super().__init__()
        self._stream = opened()
        self._left = left

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        found = self._stream.read(min(len(buffer), self._left))
        buffer[: len(found)] = found
        self._left -= len(found)
        return len(found)

    def close(self) -> None:
        self._stream.close()
        super().close()


class _Compared(NamedTuple):
    value: Any
    key: Any
    is_bad: bool


@contextmanager
def _opened(source: Source[Any]) -> Iterator[OpenSource[Any]]:
    opened = open_source(source, SourceContext(name="conformance"))
    with closing(opened):
        yield opened


def _items(source: Source[Any], opened: OpenSource[Any], start: Any = None) -> list[NativeItem]:
    """Return the items of all pages, listed as the engine lists them."""
    found = list(opened.items(start))
    while source.repeats_order and found:
        last = max(item.context.key for item in found)
        if last == start:
            break
        start = last
        found += [item for item in opened.items(start) if item.context.key != start]
    return found


def _shown(item: NativeItem) -> tuple[Any, ...]:
    return item.context.key, item.context.version, item.length, item.context.topic, item.context.partition


def _size(stream: BinaryIO) -> int:
    return sum(map(len, iter(partial(stream.read, 1 << 16), b"")))


def _values(found: list[tuple[int, Extracted | BadRecordError]]) -> list[_Compared]:
    return [
        _Compared(None, None, is_bad=True)
        if isinstance(record, BadRecordError)
        else _Compared(record.value, record.key, is_bad=False)
        for _, record in found
    ]


def _require_tails(
    extractor: Extractor,
    found: list[tuple[int, Extracted | BadRecordError]],
    item: Any,
    *,
    with_properties: bool = True,
) -> None:
    """Fail unless reading that resumes after a record gives the same records as reading without a stop."""
    for number, record in found[:_AT_MOST]:
        properties = getattr(record, "properties", None) if with_properties else None
        if properties is not None:
            try:
                stored = OffsetEntry.from_bytes(OffsetEntry(properties=properties).to_bytes()).properties
            except (SourceError, ConfigError) as error:
                pytest.fail(f"the properties of record {number} cannot be stored: {error}")
            _require(stored == checked_properties(properties), "properties came back changed")
            properties = stored
        rest = list(extracted(extractor, Input(item(), skip=number, properties=properties)))
        expected = found[number:]
        _require([at for at, _ in rest] == [at for at, _ in expected], f"wrong numbers after record {number}")
        _require(_values(rest) == _values(expected), f"different records after record {number}")


def _require_hidden(error: BaseException) -> None:
    _require("SECRET" not in str(error), "the error quotes the object")


def _require(held: bool, otherwise: str) -> None:  # noqa: FBT001 - a statement, as in assert
    if not held:
        pytest.fail(otherwise)
