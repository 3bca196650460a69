"""The engine over a source in memory that can fail, change and lie."""

from __future__ import annotations

import errno
import io
import threading
import time
import tracemalloc
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, BinaryIO, ClassVar
from weakref import WeakSet

import msgspec
import pytest

from headerware.connect.data import STRING_SCHEMA, SchemaAndValue
from headerware.core.batch import Batch as RecordBatch
from headerware.core.errors import MissingPartError
from headerware.core.headers import Headers
from headerware.core.hooks import DROP
from headerware.core.record import Record
from headerware.sources import (
    BadRecordError,
    EvolvingRecord,
    Extracted,
    Extractor,
    Input,
    IntegerKeys,
    ItemContext,
    MemoryOffsets,
    NativeItem,
    ObjectError,
    OffsetEntry,
    OffsetKey,
    OpenSource,
    Source,
    SourceConfig,
    SourceContext,
    SourceError,
    SourceUnavailableError,
    TextKeys,
    Transformer,
)
from headerware.sources.engine import batches
from headerware.sources.engine.batches import Batch
from headerware.sources.engine.decision import offset_key, task_of
from headerware.sources.engine.plan import plan
from headerware.sources.engine.task import SourceTask
from headerware.sources.extractors import JsonLinesExtractor
from tests.spool import Lines
from tests.waiting import until


class Shelf:
    """Objects in memory, with what befalls them."""

    def __init__(self, **objects: str) -> None:
        self.objects = {name: text.encode() for name, text in objects.items()}
        self.opened: list[str] = []
        self.starts: list[str | None] = []
        self.listing_errors: list[Exception] = []
        self.opening_errors: dict[str, list[Exception]] = {}
        self.reading_errors: dict[str, list[tuple[int, Exception]]] = {}
        self.connected = 0
        self.closed = 0
        self.connecting_errors: list[Exception] = []
        self.page = 1_000_000
        self.gate = threading.Event()
        self.gate.set()
        self.streams: list[io.IOBase] = []
        self.grows = False


SHELVES: dict[str, Shelf] = {}


class Shelved(Source[str], frozen=True, kw_only=True):
    type: ClassVar[str] = "shelved"
    keys: ClassVar[Any] = TextKeys()

    shelf: str

    def open(self, context: SourceContext) -> OpenSource[str]:
        shelf = SHELVES[self.shelf]
        if shelf.connecting_errors:
            raise shelf.connecting_errors.pop(0)
        shelf.connected += 1
        return _Open(shelf, self.includes_start)


class Behind(Shelved, frozen=True, kw_only=True):
    """Begins behind the start key."""

    includes_start: ClassVar[bool] = False


class Unordered(Shelved, frozen=True, kw_only=True):
    repeats_order: ClassVar[bool] = False


class Starting(Shelved, frozen=True, kw_only=True):
    """Cannot go on in mid-object."""

    repeats_records: ClassVar[bool] = False


class Evolving(Shelved, frozen=True, kw_only=True):
    fault: str = ""

    def last_evolution(self, record: EvolvingRecord) -> EvolvingRecord:
        if self.fault == "none":
            return None  # type: ignore[return-value]  # as this test wants it
        if self.fault == "key":
            return record.replace(native_key="other")
        if self.fault == "number":
            return record.replace(record_number=7)
        return record.replace(
            key=record.native_key,
            key_schema=STRING_SCHEMA,
            value=record.value.upper(),
            headers=record.headers.add("mine", b"1"),
            properties={"last": record.record_number},
        )


class Needy(Extractor, frozen=True, kw_only=True):
    type: ClassVar[str] = "needy"

    def extract(self, given: Input) -> Iterator[Extracted]:
        raise MissingPartError("needy needs all: pip install all")


class _Open:
    def __init__(self, shelf: Shelf, includes_start: bool) -> None:  # noqa: FBT001 - as the class has it
        self.shelf = shelf
        self.includes_start = includes_start

    def items(self, start: str | None) -> Iterator[NativeItem]:
        shelf = self.shelf
        shelf.starts.append(start)
        names = [
            name
            for name in shelf.objects
            if start is None or name > start or (self.includes_start and name == start)
        ]
        for count, name in enumerate(names[: shelf.page]):
            if shelf.listing_errors and count:
                raise shelf.listing_errors.pop(0)
            yield Shelved1(shelf, name)

    def close(self) -> None:
        self.shelf.closed += 1


class Shelved1(NativeItem):
    def __init__(self, shelf: Shelf, name: str) -> None:
        data = shelf.objects[name]
        version = str(len(data)) if shelf.grows else data.decode()
        super().__init__(ItemContext(key=name, version=version, grows=shelf.grows), len(data))
        self.shelf = shelf

    def extends(self, version: str) -> bool:
        return self.shelf.grows and int(version) < self.length

    def open_stream(self) -> BinaryIO:
        name, shelf = self.context.key, self.shelf
        shelf.opened.append(name)
        shelf.gate.wait(60)
        if errors := shelf.opening_errors.get(name):
            raise errors.pop(0)
        if name not in shelf.objects:
            raise FileNotFoundError(name)
        stream = _Failing(shelf.objects[name], shelf.reading_errors.get(name))
        shelf.streams.append(stream)
        return stream


class _Failing(io.BytesIO):
    def __init__(self, data: bytes, errors: list[tuple[int, Exception]] | None) -> None:
        super().__init__(data)
        self.errors = errors
        self.lines = 0

    def __next__(self) -> bytes:
        if self.errors and self.lines == self.errors[0][0]:
            raise self.errors.pop(0)[1]
        self.lines += 1
        return super().__next__()


@pytest.fixture
def shelf(request: pytest.FixtureRequest) -> Iterator[Shelf]:
    made = SHELVES["it"] = Shelf(a="1\n2\n3\n", b="", c="4\n")
    yield made
    assert made.closed == made.connected
    assert all(stream.closed for stream in made.streams)
    del SHELVES["it"]


def config(source: Source[Any] | None = None, **options: Any) -> SourceConfig:
    quick: dict[str, Any] = {
        "topic": "t",
        "extractor": Lines(),
        "poll_wait_s": 0.02,
        "listing_pause_s": 0.02,
        "retry_pause_s": 0.001,
        "retry_max_pause_s": 0.01,
        "retry_deadline_s": 10.0,
    }
    return SourceConfig(name="it", source=source or Shelved(shelf="it"), **(quick | options))


class Sink:
    """Polls a task, and acknowledges what comes."""

    def __init__(self, task: SourceTask, *, acknowledges: bool = True) -> None:
        self.task = task
        self.acknowledges = acknowledges
        self.batches: list[Batch] = []

    def poll(self) -> list[Batch]:
        batches = self.task.poll()
        self.batches += batches
        if self.acknowledges:
            for batch in batches:
                self.task.acknowledge(batch)
            self.task.store_offsets()
        return batches

    @property
    def records(self) -> list[Record]:
        return [record for batch in self.batches for record in batch.records]

    @property
    def values(self) -> list[Any]:
        return [record.value for record in self.records]

    @property
    def letters(self) -> list[Record]:
        return [letter for batch in self.batches for letter in batch.dead_letters]


def read_all(made: SourceConfig, offsets: MemoryOffsets | None = None) -> Sink:
    """Read once until nothing is left."""
    with SourceTask(made, MemoryOffsets() if offsets is None else offsets, once=True) as task:
        sink = Sink(task)
        until(lambda: task.is_done, "the end of the source", meanwhile=sink.poll)
        return sink


def failure(made: SourceConfig, offsets: MemoryOffsets | None = None) -> tuple[Sink, SourceError]:
    """Read until the task has ended with an error."""
    with SourceTask(made, MemoryOffsets() if offsets is None else offsets) as task:
        sink = Sink(task)
        errors: list[SourceError] = []

        def poll() -> None:
            try:
                sink.poll()
            except SourceError as error:
                errors.append(error)

        until(lambda: errors, "an error of the task", meanwhile=poll)
        return sink, errors[0]


def entry(offsets: MemoryOffsets, key: str, made: SourceConfig | None = None) -> Any:
    return offsets.get(offset_key(made or config(), key))


class Mixed(Extractor, frozen=True, kw_only=True):
    """Gives records of all kinds, some of them together."""

    type: ClassVar[str] = "mixed"
    content_type: ClassVar[str | None] = "text/plain"

    together: int = 1
    kinds: tuple[str, ...]

    def extract(self, given: Input) -> Iterator[Any]:
        found: list[Any] = []
        for number, kind in enumerate(self.kinds):
            properties = {"at": number}
            found.append(
                {
                    "bytes": Extracted(b"%d" % number, properties=properties, size_bytes=1),
                    "large": Extracted(b"x" * 60, properties=properties),
                    "object": Extracted({"n": number}, key=b"k", timestamp_ms=5, properties=properties),
                    "schema": Extracted("x", STRING_SCHEMA, "k", STRING_SCHEMA),
                    "headers": Extracted(b"h", headers=Headers({"own": b"1"})),
                    "bad": BadRecordError("as this test wants it", raw=b"raw"),
                    "wrong": Extracted(b"w", headers=5),  # type: ignore[arg-type]  # no headers at all
                }[kind]
            )
            if len(found) == self.together:
                yield found
                found = []
        yield found


class TestRuns:
    """Records that are read together come out as they would one by one."""

    @pytest.mark.parametrize("together", [2, 7, 100])
    @pytest.mark.parametrize("options", [{}, {"headers": False}, {"poll_records": 5}, {"poll_bytes": 100}])
    @pytest.mark.parametrize(
        "kinds",
        [
            ["bytes"] * 40,
            ["object"] * 40,
            ["schema"] * 13,
            ["bytes", "object", "schema"] * 5,
            ["bytes"] * 9 + ["headers"] + ["bytes"] * 9,
            ["bytes", "large"] * 10,
            ["bytes"] * 9 + ["bad"] * 3 + ["object"] * 9 + ["wrong"] + ["object"] * 3,
        ],
        ids=["bytes", "objects", "schemas", "mixed", "headers", "large", "bad"],
    )
    def test_are_the_same_records(
        self, shelf: Shelf, kinds: list[str], together: int, options: dict[str, Any]
    ) -> None:
        shelf.objects = {"a": b"1"}
        read = partial(config, on_record_error="dead_letter", **options)
        one_by_one = read_all(read(extractor=Mixed(kinds=tuple(kinds))))
        found = read_all(read(extractor=Mixed(kinds=tuple(kinds), together=together)))
        assert found.records == one_by_one.records
        numbers = [number for batch in found.batches for number in batch.numbers]
        assert numbers == [number for batch in one_by_one.batches for number in batch.numbers]
        assert [letter.key for letter in found.letters] == [letter.key for letter in one_by_one.letters]
        assert max(len(batch.records) for batch in found.batches) <= options.get("poll_records", 500)
        assert found.batches[-1].entry == one_by_one.batches[-1].entry
        assert all(
            batch.entry.properties == {"at": int(batch.numbers[-1]) - 1}
            for batch in found.batches
            if batch.numbers and set(kinds) <= {"bytes", "object", "large"}
        )

    def test_go_by_columns(self, shelf: Shelf) -> None:
        shelf.objects = {"a": b"1"}
        sink = read_all(config(extractor=Mixed(kinds=("bytes",) * 30, together=10), poll_records=20))
        assert [type(batch.records) for batch in sink.batches if batch.records] == [RecordBatch, RecordBatch]
        assert [len(batch.records) for batch in sink.batches if batch.records] == [20, 10]

    def test_of_wide_rows_are_batches_of_a_block(self, shelf: Shelf) -> None:
        rows = [{"number": number, "text": "x" * 2_000} for number in range(400)]
        shelf.objects = {"a": b"".join(msgspec.json.encode(row) + b"\n" for row in rows)}
        sink = read_all(config(extractor=JsonLinesExtractor()))
        assert [record.value for record in sink.records] == rows
        assert all(isinstance(batch.records, RecordBatch) for batch in sink.batches if batch.records)
        assert max(batch.size_bytes for batch in sink.batches) <= 100 << 10  # a block, and a line


class TestReading:
    def test_gives_every_record_in_order(self, shelf: Shelf) -> None:
        assert read_all(config()).values == [b"1", b"2", b"3", b"4"]

    def test_completes_an_object_without_records(self, shelf: Shelf) -> None:
        offsets = MemoryOffsets()
        read_all(config(), offsets)
        assert entry(offsets, "b").complete

    def test_tells_where_a_record_is_from(self, shelf: Shelf) -> None:
        record = read_all(config()).records[1]
        assert list(record.headers) == [
            ("content-type", b"text/plain"),
            ("hw.source", b"it"),
            ("hw.source.key", b"a"),
            ("hw.source.record", b"2"),
        ]

    def test_does_not_if_it_is_told_so(self, shelf: Shelf) -> None:
        assert len(read_all(config(headers=False)).records[0].headers) == 0

    def test_opens_nothing_that_is_complete(self, shelf: Shelf) -> None:
        offsets = MemoryOffsets()
        read_all(config(), offsets)
        shelf.opened.clear()
        assert read_all(config(), offsets).records == []
        assert shelf.opened == []

    def test_reads_a_changed_object_from_its_first_record(self, shelf: Shelf) -> None:
        offsets = MemoryOffsets()
        read_all(config(), offsets)
        shelf.objects["a"] = b"1\nnew\n"
        assert read_all(config(), offsets).values == [b"1", b"new"]
        assert entry(offsets, "a").record_number == 2

    def test_goes_on_where_an_object_has_grown(self, shelf: Shelf) -> None:
        shelf.grows = True
        offsets = MemoryOffsets()
        shelf.objects["a"] += b"unfinished"
        assert read_all(config(), offsets).values == [b"1", b"2", b"3", b"4"]
        shelf.objects["a"] += b" line\nlast\n"
        assert read_all(config(), offsets).values == [b"unfinished line", b"last"]

    def test_starts_again_what_it_cannot_resume(self, shelf: Shelf) -> None:
        shelf.reading_errors["a"] = [(2, ObjectError("as this test wants it"))]
        made, offsets = config(Starting(shelf="it"), on_object_error="skip"), MemoryOffsets()
        assert read_all(made, offsets).values == [b"1", b"2", b"4"]
        assert read_all(made, offsets).values == [b"1", b"2", b"3"]

    def test_begins_at_the_start_key(self, shelf: Shelf) -> None:
        assert read_all(config(start_key="b")).values == [b"4"]

    @pytest.mark.parametrize("source", [Shelved, Behind, Unordered])
    def test_takes_sources_of_every_kind(self, shelf: Shelf, source: type[Shelved]) -> None:
        assert sorted(read_all(config(source(shelf="it"))).values) == [b"1", b"2", b"3", b"4"]

    def test_moves_on_over_pages_of_known_keys(self, shelf: Shelf) -> None:
        shelf.objects = {f"{number:02}": f"{number}\n".encode() for number in range(20)}
        shelf.page = 3
        offsets = MemoryOffsets()
        made = config(ring_buffer=2)
        assert len(read_all(made, offsets).values) == 20
        shelf.objects["20"] = b"20\n"
        assert read_all(made, offsets).values == [b"20"]

    def test_counts_disorder(self, shelf: Shelf) -> None:
        shelf.objects = {"b": b"1\n", "a": b"2\n", "c": b"3\n"}
        sink = read_all(config())
        assert sink.task.statistics.disorder >= 1
        assert sorted(sink.values) == [b"1", b"2", b"3"]


class TestLateKeys:
    def run(self, shelf: Shelf, late: str, **options: Any) -> Sink:
        shelf.objects = {name: name.encode() for name in "bdf"}
        with SourceTask(config(ring_buffer=2, **options), MemoryOffsets()) as task:
            sink = Sink(task)
            until(lambda: len(sink.values) == 3, meanwhile=sink.poll)
            shelf.objects = {name: name.encode() for name in sorted("bdf" + late)}
            before = len(shelf.starts)
            until(lambda: len(sink.values) == 4 or len(shelf.starts) > before + 6, meanwhile=sink.poll)
            return sink

    @pytest.mark.parametrize("late", ["e", "g"])
    def test_above_the_oldest_are_found(self, shelf: Shelf, late: str) -> None:
        assert self.run(shelf, late).values[3:] == [late.encode()]

    def test_below_the_oldest_are_not_found_by_a_short_listing(self, shelf: Shelf) -> None:
        assert self.run(shelf, "a").values[3:] == []

    def test_below_the_oldest_are_found_by_a_whole_listing(self, shelf: Shelf) -> None:
        assert self.run(shelf, "a", rescan_interval_s=0.01).values[3:] == [b"a"]


class TestEvolution:
    def test_changes_what_it_may(self, shelf: Shelf) -> None:
        shelf.objects = {"a": b"x\ny\n"}
        offsets = MemoryOffsets()
        made = config(Evolving(shelf="it"))
        sink = read_all(made, offsets)
        assert sink.values == [b"X", b"Y"]
        assert sink.records[0].key == SchemaAndValue(STRING_SCHEMA, "a")
        assert sink.records[0].headers.last("mine") == b"1"
        assert dict(entry(offsets, "a").properties) == {"last": 2}

    @pytest.mark.parametrize(
        ("fault", "message"),
        [
            ("none", "expected an EvolvingRecord from last_evolution, found NoneType"),
            ("key", "changed native_key, which must stay the same"),
            ("number", "changed record_number, which must stay the same"),
        ],
    )
    def test_changes_nothing_else(self, shelf: Shelf, fault: str, message: str) -> None:
        _, error = failure(config(Evolving(shelf="it", fault=fault)))
        assert message in str(error)


class TestErrorsOfRecords:
    @pytest.fixture(autouse=True)
    def bad(self, shelf: Shelf) -> None:
        shelf.objects = {"a": b"1\n!SECRET\n3\n"}

    @pytest.mark.parametrize("policy", ["skip", "drop"])
    def test_are_passed_over(self, shelf: Shelf, policy: str, caplog: pytest.LogCaptureFixture) -> None:
        offsets = MemoryOffsets()
        sink = read_all(config(on_record_error=policy), offsets)
        assert sink.values == [b"1", b"3"]
        assert [record.headers.last("hw.source.record") for record in sink.records] == [b"1", b"3"]
        assert entry(offsets, "a").record_number == 3
        assert ("skipped a record: record 2 of object 'a'" in caplog.text) == (policy == "skip")
        assert "SECRET" not in caplog.text

    def test_stop_the_task_behind_what_was_read(self, shelf: Shelf) -> None:
        offsets = MemoryOffsets()
        sink, error = failure(config(), offsets)
        assert sink.values == [b"1"]
        assert "record 2 of object 'a' of source 'it': a bad line" in str(error)
        assert "SECRET" not in str(error)
        assert entry(offsets, "a").record_number == 1
        assert not entry(offsets, "a").complete

    def test_become_dead_letters_with_key_and_number(self, shelf: Shelf) -> None:
        sink = read_all(config(on_record_error="dead_letter"))
        (letter,) = sink.letters
        assert letter.topic == "t.dead-letter"
        assert letter.key == b"a#2"
        assert letter.value == b"!SECRET"
        assert letter.headers.last("hw.source.key") == b"a"
        assert letter.headers.last("hw.source.record") == b"2"
        assert sink.values == [b"1", b"3"]

    def test_of_transformers_count_too(self, shelf: Shelf) -> None:
        from tests.unit.sources.test_transformers import Parse  # noqa: PLC0415 - only here

        shelf.objects = {"a": b"1\nSECRET\n3\n"}
        sink = read_all(config(transformers=[Parse()], on_record_error="drop"))
        assert sink.values == [1, 3]
        _, error = failure(config(transformers=[Parse()]))
        assert "SECRET" not in str(error)


class Told(Transformer[bytes, Any], frozen=True, kw_only=True):
    """Drops ``2``, splits ``3`` into 33, and forgets ``!``."""

    def transform(self, given: bytes) -> Any:
        if given == b"SECRET":
            return None
        return {b"2": DROP, b"3": [b"x"] * 33, b"4": [None]}.get(given, given)


class TestTransformers:
    def test_drop_and_split(self, shelf: Shelf) -> None:
        shelf.objects = {"a": b"1\n2\n3\n4\n"}
        offsets = MemoryOffsets()
        sink = read_all(config(transformers=[Told()]), offsets)
        assert sink.values == [b"1", *[b"x"] * 33, None]
        numbers = [b"3.%d" % index for index in range(1, 34)]
        assert [each.headers.last("hw.source.record") for each in sink.records] == [b"1", *numbers, b"4"]
        assert (entry(offsets, "a").record_number, entry(offsets, "a").complete) == (4, True)
        counts = sink.task.statistics
        assert (counts.records, counts.dropped, counts.bad_records) == (35, 1, 0)

    @pytest.mark.parametrize("together", [1, 3])
    def test_what_a_record_is_split_into_is_in_one_batch(self, shelf: Shelf, together: int) -> None:
        shelf.objects = {"a": b"1\n3\n1\n3\n2\n"}
        made = config(transformers=[Told()], extractor=Lines(together=together), poll_records=33)
        sink = read_all(made)
        found = [(batch.entry.record_number, len(batch.records)) for batch in sink.batches if batch.records]
        assert found == [(1, 1), (2, 33), (3, 1), (4, 33)]
        assert sink.batches[-1].entry.record_number == 5

    def test_split_no_further_than_a_poll(self, shelf: Shelf) -> None:
        shelf.objects = {"a": b"3\n1\n"}
        sink, error = failure(config(transformers=[Told()], poll_records=32))
        assert "record 1 of object 'a'" in str(error)
        assert "into 33 records; expected at most 32 (poll_records)" in str(error)
        assert sink.values == []

    def test_that_forget_their_return_lose_nothing(self, shelf: Shelf) -> None:
        shelf.objects = {"a": b"1\nSECRET\n"}
        offsets = MemoryOffsets()
        sink, error = failure(config(transformers=[Told()]), offsets)
        assert "record 2 of object 'a' of source 'it': Told returned None" in str(error)
        assert "SECRET" not in str(error)
        assert (sink.values, entry(offsets, "a").record_number) == ([b"1"], 1)


class TestErrorsOfObjects:
    def damage(self, shelf: Shelf) -> None:
        shelf.objects = {"a": b"1\n!!\n", "c": b"4\n"}

    def test_stop_the_task_and_complete_nothing(self, shelf: Shelf) -> None:
        self.damage(shelf)
        offsets = MemoryOffsets()
        sink, error = failure(config(), offsets)
        assert sink.values == [b"1"]
        assert "object 'a' of source 'it' after record 1: damaged" in str(error)
        assert not entry(offsets, "a").complete

    def test_skip_leaves_the_object_for_later(self, shelf: Shelf) -> None:
        self.damage(shelf)
        offsets = MemoryOffsets()
        assert read_all(config(on_object_error="skip"), offsets).values == [b"1", b"4"]
        assert not entry(offsets, "a").complete

    @pytest.mark.parametrize("policy", ["drop", "dead_letter"])
    def test_give_the_object_up_until_it_changes(self, shelf: Shelf, policy: str) -> None:
        self.damage(shelf)
        offsets = MemoryOffsets()
        sink = read_all(config(on_object_error=policy), offsets)
        assert sink.values == [b"1", b"4"]
        assert [letter.key for letter in sink.letters] == ([b"a#2"] if policy == "dead_letter" else [])
        shelf.opened.clear()
        read_all(config(on_object_error=policy), offsets)
        assert shelf.opened == []
        shelf.objects["a"] = b"1\n2\n"
        assert read_all(config(on_object_error=policy), offsets).values == [b"1", b"2"]

    def test_vanished_objects_are_not_awaited(self, shelf: Shelf) -> None:
        shelf.opening_errors["a"] = [FileNotFoundError("a")]
        sink = read_all(config(on_object_error="drop"))
        assert sink.values == [b"4"]
        assert sink.task.statistics.retries == 0

    def test_an_extractors_own_errors_quote_nothing(self, shelf: Shelf) -> None:
        shelf.reading_errors["a"] = [(1, ValueError("SECRET"))]
        _, error = failure(config())
        assert "lines raised ValueError at " in str(error)
        assert "SECRET" not in str(error)

    @pytest.mark.parametrize("tasks", [1, 2])
    def test_a_key_that_no_store_keeps_is_one(self, shelf: Shelf, tasks: int) -> None:
        shelf.objects = {"b\udcff": b"1\n", "c": b"2\n"}
        made = config(on_object_error="skip", tasks=tasks)
        offsets, values = MemoryOffsets(), []
        for number in range(tasks):
            with SourceTask(made, offsets, task=number, once=True) as task:
                sink = Sink(task)
                until(partial(getattr, task, "is_done"), meanwhile=sink.poll)
                values += sink.values
        assert values == [b"2"]
        assert [each.reads for each in plan(made, MemoryOffsets())] == [False, True]
        _, error = failure(config())
        assert r"the offset of object 'b\udcff' of source 'it' cannot be stored" in str(error)

    def test_a_missing_package_is_none_and_ends_the_task(self, shelf: Shelf) -> None:
        _, error = failure(config(extractor=Needy(), on_object_error="drop"))
        assert str(error) == "task 0 of source 'it' has ended: needy needs all: pip install all"

    def test_the_system_tells_its_reason(self, shelf: Shelf) -> None:
        shelf.opening_errors["a"] = [PermissionError(errno.EACCES, "SECRET")] * 1_000
        _, error = failure(config(retry_deadline_s=0.01))
        assert "it cannot be read: PermissionError (Permission denied) at test_task.py:" in str(error)

    def test_an_object_without_a_topic_is_one(self, shelf: Shelf) -> None:
        _, error = failure(config(topic="{topic}"))
        assert "needs {topic}, which the object does not have" in str(error)


class Taking(Extractor, frozen=True, kw_only=True):
    """Takes out of what it is given where it begins; the first two attempts fail behind that."""

    type: ClassVar[str] = "taking"
    seen: list[Any]

    def extract(self, given: Input) -> Iterator[Any]:
        self.seen.append(given.properties.pop("at", None))  # type: ignore[attr-defined]  # it may be a dict
        if len(self.seen) == 1:
            yield Extracted(b"1", properties={"at": 1})
        if len(self.seen) < 4:
            raise OSError("down")
        given.skipped = given.skip
        yield Extracted(b"2")


class TestRetries:
    def test_give_an_extractor_a_copy_of_the_properties(self, shelf: Shelf) -> None:
        shelf.objects = {"a": b""}
        seen: list[Any] = []
        assert read_all(config(extractor=Taking(seen=seen))).values == [b"1", b"2"]
        assert seen == [None, 1, 1, 1]

    def test_of_listing(self, shelf: Shelf) -> None:
        shelf.listing_errors = [OSError("down"), OSError("down")]
        sink = read_all(config())
        assert sink.values == [b"1", b"2", b"3", b"4"]
        assert sink.task.statistics.retries == 2

    @pytest.mark.parametrize("source", [Shelved, Unordered])
    def test_of_listing_end_if_nothing_new_is_listed(self, shelf: Shelf, source: type[Shelved]) -> None:
        shelf.listing_errors = [OSError("down")] * 100_000  # behind the first key of each listing
        _, error = failure(config(source(shelf="it"), retry_deadline_s=0.1))
        assert "has ended: OSError" in str(error)

    def test_show_the_text_of_an_error_of_ours(self, shelf: Shelf, caplog: pytest.LogCaptureFixture) -> None:
        shelf.listing_errors = [SourceUnavailableError("status 503")] * 100_000
        _, error = failure(config(retry_deadline_s=0.05))
        assert "has ended: status 503" in str(error)
        assert "listing source 'it' failed, and will be tried again for 0 s: status 503" in caplog.text
        shelf.listing_errors = [OSError("SECRET")]
        read_all(config())
        assert "tried again for 10 s: OSError at" in caplog.text
        assert "SECRET" not in caplog.text

    def test_of_opening_the_source(self, shelf: Shelf) -> None:
        shelf.connecting_errors = [OSError("down")]
        assert len(read_all(config()).values) == 4

    def test_in_mid_object_go_on_behind_the_last_record(self, shelf: Shelf) -> None:
        shelf.reading_errors["a"] = [(1, OSError("down")), (2, OSError("down"))]
        sink = read_all(config())
        assert sink.values == [b"1", b"2", b"3", b"4"]
        assert shelf.opened == ["a", "a", "a", "b", "c"]

    def test_in_mid_object_start_again_what_cannot_go_on(self, shelf: Shelf) -> None:
        shelf.reading_errors["a"] = [(2, OSError("down"))]
        offsets = MemoryOffsets()
        sink = read_all(config(Starting(shelf="it"), poll_records=1), offsets)
        assert sink.values == [b"1", b"2", b"1", b"2", b"3", b"4"]
        assert entry(offsets, "a").record_number == 3

    @pytest.mark.parametrize("poll_records", [1, 100])
    def test_that_start_again_leave_nothing_in_flight(self, shelf: Shelf, poll_records: int) -> None:
        shelf.reading_errors["a"] = [(2, OSError("down"))]
        sink = read_all(config(Starting(shelf="it"), poll_records=poll_records))
        counted = sink.task.statistics
        assert counted.acknowledged == len(sink.values)
        assert counted.in_flight == 0

    def test_that_start_again_end_at_the_deadline(self, shelf: Shelf) -> None:
        shelf.reading_errors["a"] = [(2, OSError("down"))] * 100_000
        _, error = failure(config(Starting(shelf="it"), retry_deadline_s=0.1))
        assert "it cannot be read: OSError" in str(error)

    def test_end_at_the_deadline(self, shelf: Shelf) -> None:
        shelf.opening_errors["a"] = [OSError("down")] * 1_000
        _, error = failure(config(retry_deadline_s=0.05))
        assert "it cannot be read: OSError" in str(error)

    @pytest.mark.parametrize("policy", ["skip", "drop", "dead_letter"])
    def test_do_not_hold_up_other_objects(self, shelf: Shelf, policy: str) -> None:
        shelf.opening_errors["a"] = [OSError("down")] * 100_000
        offsets = MemoryOffsets()
        with SourceTask(config(on_object_error=policy, ring_buffer=1), offsets) as task:
            sink = Sink(task)
            until(lambda: entry(offsets, "c") is not None, meanwhile=sink.poll)
            assert entry(offsets, "c").complete
            until(lambda: "a" in shelf.starts, meanwhile=sink.poll)  # though it is below the ring buffer
            shelf.opening_errors["a"] = []
            until(lambda: entry(offsets, "a") and entry(offsets, "a").complete, meanwhile=sink.poll)
            assert sink.values == [b"4", b"1", b"2", b"3"]
            assert task.statistics.failed == 0

    @pytest.mark.parametrize("policy", ["skip", "drop", "dead_letter"])
    def test_of_an_object_by_later_listings_end_at_the_deadline(self, shelf: Shelf, policy: str) -> None:
        shelf.opening_errors["a"] = [OSError("down")] * 100_000
        offsets = MemoryOffsets()
        sink = read_all(config(on_object_error=policy, retry_deadline_s=0.1), offsets)
        assert sink.values == [b"4"]
        assert sink.task.statistics.failed == 1
        assert sink.task.statistics.retries > 1
        assert entry(offsets, "a").complete == (policy != "skip")

    def test_of_an_object_by_later_listings_go_on_behind_the_last_record(self, shelf: Shelf) -> None:
        shelf.reading_errors["a"] = [(1, OSError("down")), (2, OSError("down"))]
        sink = read_all(config(on_object_error="skip"))
        assert sorted(sink.values) == [b"1", b"2", b"3", b"4"]
        assert sink.task.statistics.failed == 0

    def test_of_an_object_that_is_gone_meanwhile_end(self, shelf: Shelf) -> None:
        shelf.opening_errors["a"] = [OSError("down")] * 100_000
        with SourceTask(config(on_object_error="skip"), MemoryOffsets(), once=True) as task:
            sink = Sink(task)
            until(lambda: task.statistics.retries, meanwhile=sink.poll)
            del shelf.objects["a"]
            until(lambda: task.is_done, meanwhile=sink.poll)
        assert sink.values == [b"4"]

    def test_of_a_source_that_cannot_be_opened_end_too(self, shelf: Shelf) -> None:
        shelf.connecting_errors = [OSError("down")] * 1_000
        _, error = failure(config(retry_deadline_s=0.05))
        assert "has ended: OSError" in str(error)
        assert isinstance(error.__cause__, OSError)

    def test_wait_as_long_as_the_system_asks(self, shelf: Shelf) -> None:
        shelf.listing_errors = [SourceUnavailableError("busy", after_s=0.3)]
        began = time.monotonic()
        assert len(read_all(config()).values) == 4
        assert time.monotonic() - began >= 0.3
        shelf.listing_errors = [SourceUnavailableError("busy", after_s=3_600.0)] * 2
        _, error = failure(config(retry_deadline_s=0.1))  # it is tried once more at the deadline
        assert "has ended: busy" in str(error)

    def test_do_not_hold_up_a_stop(self, shelf: Shelf) -> None:
        shelf.opening_errors["a"] = [OSError("down")] * 1_000
        task = SourceTask(config(retry_pause_s=60.0, retry_max_pause_s=60.0), MemoryOffsets())
        task.start()
        until(lambda: task.statistics.retries)
        assert task.stop()


class TestPlan:
    @pytest.mark.parametrize("source", [Shelved, Behind])
    def test_tries_a_listing_again(self, shelf: Shelf, source: type[Shelved]) -> None:
        shelf.connecting_errors = [OSError("down")]
        shelf.listing_errors = [OSError("down"), OSError("down")]
        assert [each.key for each in plan(config(source(shelf="it")), MemoryOffsets())] == ["a", "b", "c"]
        shelf.listing_errors = [OSError("down")]
        started = plan(config(source(shelf="it"), start_key="a"), MemoryOffsets())
        assert [each.key for each in started] == (["a", "b", "c"] if source is Shelved else ["b", "c"])

    def test_gives_a_listing_up_at_the_deadline(self, shelf: Shelf) -> None:
        shelf.listing_errors = [OSError("down")] * 100_000
        with pytest.raises(OSError, match="down"):
            list(plan(config(retry_deadline_s=0.05), MemoryOffsets()))

    def test_tells_no_object_twice(self, shelf: Shelf) -> None:
        """Without an order, a listing that failed cannot go on where it was."""
        shelf.listing_errors = [OSError("down")]
        planned = plan(config(Unordered(shelf="it")), MemoryOffsets())
        assert next(planned).key == "a"
        with pytest.raises(OSError, match="down"):
            next(planned)


class TestQueue:
    def test_a_full_one_blocks_the_worker(self, shelf: Shelf) -> None:
        shelf.objects = {f"{number:03}": b"x\n" for number in range(100)}
        with SourceTask(config(queue_records=5, poll_records=5), MemoryOffsets()) as task:
            until(lambda: task.queued == 5)
            time.sleep(0.05)  # the worker would go on by now
            assert len(shelf.opened) <= 6
            sink = Sink(task)
            until(lambda: len(sink.values) == 100, meanwhile=sink.poll)

    def test_bytes_count_too(self, shelf: Shelf) -> None:
        shelf.objects = {f"{number:03}": b"x" * 99 + b"\n" for number in range(20)}
        with SourceTask(config(queue_bytes=250), MemoryOffsets()) as task:
            until(lambda: task.queued == 2)
            sink = Sink(task)
            until(lambda: len(sink.values) == 20, meanwhile=sink.poll)

    def test_bytes_of_dead_letters_count_too(self, shelf: Shelf) -> None:
        shelf.objects = {"a": b"".join(b"!" + b"x" * 99 + b"\n" for _ in range(100))}
        made = config(on_record_error="dead_letter", poll_bytes=1_000, queue_bytes=2_000)
        sink = read_all(made)
        assert len(sink.letters) == 100
        assert (
            max(sum(len(letter.value or b"") for letter in each.dead_letters) for each in sink.batches)
            <= 1_000
        )

    def test_dead_letters_and_records_share_the_limit(self, shelf: Shelf) -> None:
        shelf.objects = {"a": b"!\n" * 9 + b"x\n" * 50}
        sink = read_all(config(on_record_error="dead_letter", poll_records=10))
        assert max(len(batch.records) + len(batch.dead_letters) for batch in sink.batches) == 10

    def test_stopping_wakes_a_blocked_worker(self, shelf: Shelf) -> None:
        shelf.objects["a"] = b"x\n" * 100
        task = SourceTask(config(queue_records=5, poll_records=5), MemoryOffsets())
        task.start()
        until(lambda: task.queued == 5)
        assert task.stop()

    def test_a_poll_gives_no_more_than_its_limit(self, shelf: Shelf) -> None:
        shelf.objects["a"] = b"".join(b"%d\n" % number for number in range(1_000))
        with SourceTask(config(poll_records=7), MemoryOffsets()) as task:
            sink = Sink(task)
            sizes: list[int] = []
            until(
                lambda: len(sink.values) == 1_001,
                meanwhile=lambda: sizes.append(sum(len(batch.records) for batch in sink.poll())),
            )
        assert max(sizes) <= 7
        assert sink.values[:1_000] == [b"%d" % number for number in range(1_000)]

    def test_an_empty_poll_comes_back_soon(self, shelf: Shelf) -> None:
        shelf.objects = {}
        with SourceTask(config(), MemoryOffsets()) as task:
            began = time.monotonic()
            assert task.poll() == []
            assert time.monotonic() - began < 30

    @pytest.mark.parametrize("poll_wait_s", [0.0, 0.02, 20.0])
    def test_a_slow_source_is_not_waited_for(self, shelf: Shelf, poll_wait_s: float) -> None:
        """Records are given to a poll that waits, though their batch is not full and their object goes on."""

        class Slow(Lines, frozen=True, kw_only=True):
            def extract(self, given: Input) -> Iterator[Extracted | BadRecordError]:
                yield Extracted(b"1")
                yield Extracted(b"2")
                assert waits.wait(60)
                yield Extracted(b"3")

        waits = threading.Event()
        shelf.objects = {"a": b""}
        with SourceTask(config(extractor=Slow(), poll_wait_s=poll_wait_s), MemoryOffsets()) as task:
            sink = Sink(task)
            until(lambda: len(sink.values) == 2, meanwhile=sink.poll)
            assert not any(batch.is_last for batch in sink.batches)
            waits.set()
            until(lambda: len(sink.values) == 3, meanwhile=sink.poll)
        assert sink.values == [b"1", b"2", b"3"]

    def test_a_slow_transformer_is_not_waited_for(self, shelf: Shelf) -> None:
        """Records that were read together are given to a poll one by one, if making them takes its time."""

        class Slow(Transformer[bytes, bytes], frozen=True, kw_only=True):
            def transform(self, given: bytes) -> bytes:
                assert given == b"1" or waits.wait(60)
                return given

        waits = threading.Event()
        shelf.objects = {"a": b"1\n2\n3\n"}
        with SourceTask(
            config(extractor={"type": "jsonl", "values": "bytes"}, transformers=[Slow()]), MemoryOffsets()
        ) as task:
            sink = Sink(task)
            until(lambda: sink.values == [b"1"], meanwhile=sink.poll)
            waits.set()
            until(lambda: len(sink.values) == 3, meanwhile=sink.poll)

    def test_records_read_before_an_error_come_first(self, shelf: Shelf) -> None:
        """Also those of a block that is damaged further on."""
        shelf.objects = {"a": b'n\n1\n2\n"3'}
        sink, error = failure(config(extractor="csv"))
        assert "has no end" in str(error)
        assert sink.values == [{"n": "1"}, {"n": "2"}]

    def test_what_is_handed_over_early_stays_in_order(
        self, shelf: Shelf, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(batches, "_PATIENCE_S", 1e-5)
        shelf.objects = {
            name: b"".join(b"%s%d\n" % (name.encode(), number) for number in range(3_000)) for name in "abc"
        }
        offsets = MemoryOffsets()
        sink = read_all(config(poll_records=200, queue_records=300), offsets)
        assert sink.values == [
            b"%s%d" % (name, number) for name in (b"a", b"b", b"c") for number in range(3_000)
        ]
        assert [entry(offsets, name).record_number for name in "abc"] == [3_000] * 3


class TestProgress:
    def test_is_that_of_the_object_that_is_read(self, shelf: Shelf) -> None:
        with SourceTask(config(queue_records=1, poll_records=1), MemoryOffsets(), once=True) as task:
            until(lambda: task.progress == ("a", 4, 6))  # the second record waits for room
            sink = Sink(task)
            until(lambda: task.is_done, meanwhile=sink.poll)
            assert task.progress is None


class TestStopping:
    def test_a_hanging_source_is_left_behind(self, shelf: Shelf) -> None:
        shelf.gate.clear()
        task = SourceTask(config(), MemoryOffsets())
        task.start()
        until(lambda: shelf.opened)
        assert not task.stop(timeout_s=0.05)
        shelf.gate.set()
        until(lambda: shelf.closed)  # by the worker itself, once

    def test_twice_does_nothing(self, shelf: Shelf) -> None:
        task = SourceTask(config(), MemoryOffsets())
        task.start()
        assert task.stop()
        assert task.stop()

    def test_before_starting_does_nothing(self, shelf: Shelf) -> None:
        assert SourceTask(config(), MemoryOffsets()).stop()


def test_a_task_that_failed_is_not_done(shelf: Shelf) -> None:
    shelf.objects = {"a": b"!\n"}
    with SourceTask(config(), MemoryOffsets(), once=True) as task:
        until(lambda: not task._thread.is_alive())
        assert not task.is_done
        with pytest.raises(SourceError):
            task.poll()


def test_a_listing_is_never_held(shelf: Shelf) -> None:
    class Counted(Unordered, frozen=True, kw_only=True):
        keys: ClassVar[Any] = IntegerKeys()

        def open(self, context: SourceContext) -> OpenSource[str]:
            return _Many()

    class Empty(NativeItem):
        def open_stream(self) -> BinaryIO:
            return io.BytesIO()

    alive: WeakSet[NativeItem] = WeakSet()
    most = [0]

    class _Many:
        def items(self, start: str | None) -> Iterator[NativeItem]:
            for number in range(20_000):
                item = Empty(ItemContext(key=number))
                alive.add(item)
                most[0] = max(most[0], len(alive))
                yield item

        def close(self) -> None:
            pass

    assert len(read_all(config(Counted(shelf="it"), poll_records=5_000)).batches) == 20_000
    assert most[0] < 10


class Many(Source[int], frozen=True, kw_only=True):
    """Lists objects without end, as far as anybody asks."""

    keys: ClassVar[Any] = IntegerKeys()

    count: int

    def items(self, start: int | None) -> Iterator[NativeItem]:
        for number in range(start or 0, self.count):
            yield NativeItem(ItemContext(key=number, version="1"))


class Complete(MemoryOffsets):
    """Has every object as complete, and holds none."""

    def get(self, key: OffsetKey) -> OffsetEntry | None:
        return OffsetEntry(record_number=1, complete=True, version="1")


def test_objects_that_are_known_take_no_memory() -> None:
    task = SourceTask(config(Many(count=50_000)), Complete(), once=True)
    tracemalloc.start()
    try:
        task.start()
        until(lambda: task.is_done)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20  # 20 bytes an object, with the ring buffer
    finally:
        tracemalloc.stop()
        task.stop()
    assert task.statistics.known == task.statistics.listed == 50_001  # the last key comes again, as the end


class TestTasks:
    @pytest.mark.parametrize("tasks", [1, 2, 3])
    def test_read_each_object_once(self, shelf: Shelf, tasks: int) -> None:
        shelf.objects = {f"{number:03}": f"{number}\n".encode() for number in range(50)}
        offsets = MemoryOffsets()
        values: list[Any] = []
        for number in range(tasks):
            with SourceTask(config(tasks=tasks), offsets, task=number, once=True) as task:
                sink = Sink(task)
                until(partial(getattr, task, "is_done"), meanwhile=sink.poll)
                values += sink.values
        assert sorted(values, key=int) == [b"%d" % number for number in range(50)]
        assert tasks == 1 or read_all(config(), offsets).values == []  # whatever the number of tasks

    def test_by_partition(self) -> None:
        SHELVES["it"] = Shelf()
        made = config(tasks=3, distribution="partition")
        assert task_of(made, ItemContext(key="k", partition=7)) == 1

    def test_the_hash_is_the_same_everywhere(self) -> None:
        made = config(tasks=100)
        assert [task_of(made, ItemContext(key=key)) for key in ("a", "b", "c")] == HASHED


HASHED = [17, 90, 6]


class TestAcknowledgement:
    def test_goes_only_as_far_as_the_run_is_unbroken(self, shelf: Shelf) -> None:
        shelf.objects = {"a": b"1\n2\n3\n", "c": b"4\n"}
        offsets = MemoryOffsets()
        with SourceTask(config(poll_records=1), offsets) as task:
            sink = Sink(task, acknowledges=False)
            until(lambda: len(sink.batches) >= 5, meanwhile=sink.poll)
            first, second, third, *_ = [batch for batch in sink.batches if batch.native_key == "a"]
            (other,) = [batch for batch in sink.batches if batch.native_key == "c" and batch.records]

            def acknowledged(batch: Batch) -> int | None:
                task.acknowledge(batch)
                task.store_offsets()
                found = entry(offsets, "a")
                return None if found is None else found.record_number

            assert acknowledged(other) is None
            assert entry(offsets, "c").record_number == 1
            assert acknowledged(third) is None
            assert acknowledged(second) is None
            assert acknowledged(first) == 3
            assert not entry(offsets, "a").complete

    def test_an_object_is_complete_when_all_of_it_is_stored(self, shelf: Shelf) -> None:
        shelf.objects = {"a": b"1\n2\n"}
        offsets = MemoryOffsets()
        with SourceTask(config(poll_records=1), offsets) as task:
            sink = Sink(task, acknowledges=False)
            until(lambda: any(batch.is_last for batch in sink.batches), meanwhile=sink.poll)
            for batch in sink.batches[1:]:
                task.acknowledge(batch)
            task.store_offsets()
            assert entry(offsets, "a") is None
            assert task._known.oldest is None
            task.acknowledge(sink.batches[0])
            task.store_offsets()
            assert entry(offsets, "a").complete
            assert task._known.oldest == "a"

    def test_two_threads_store_in_the_order_of_reading(self, shelf: Shelf) -> None:
        class Slow(MemoryOffsets):
            def put(self, entries: Mapping[OffsetKey, OffsetEntry | None]) -> None:
                if not begun.is_set():
                    begun.set()
                    overtaken.wait(0.2)
                super().put(entries)

        begun, overtaken = threading.Event(), threading.Event()
        offsets = Slow()
        shelf.objects = {"a": b"1\n2\n"}
        with SourceTask(config(poll_records=1), offsets) as task:
            sink = Sink(task, acknowledges=False)
            until(lambda: len(sink.values) == 2, meanwhile=sink.poll)
            task.acknowledge(sink.batches[0])
            first = threading.Thread(target=task.store_offsets)
            first.start()
            assert begun.wait(60)
            task.acknowledge(sink.batches[1])
            task.store_offsets()
            overtaken.set()
            first.join()
        assert entry(offsets, "a").record_number == 2

    def test_nothing_that_is_stored_in_part_is_read_again(self, shelf: Shelf) -> None:
        shelf.objects = {"a": b"1\n2\n"}
        with SourceTask(config(poll_records=1), MemoryOffsets()) as task:
            sink = Sink(task)
            until(lambda: sink.batches, meanwhile=sink.poll)
            before = len(shelf.starts)
            until(lambda: len(shelf.starts) > before + 4)
            until(lambda: sink.batches[-1].is_last, meanwhile=sink.poll)
            sink.poll()
            assert sink.values == [b"1", b"2"]

    def test_nothing_on_its_way_is_read_again(self, shelf: Shelf) -> None:
        with SourceTask(config(), MemoryOffsets()) as task:
            sink = Sink(task, acknowledges=False)
            until(lambda: len(sink.values) == 4, meanwhile=sink.poll)
            before = len(shelf.starts)
            until(lambda: len(shelf.starts) > before + 4)
            sink.poll()
            assert sink.values == [b"1", b"2", b"3", b"4"]


def test_a_worker_that_dies_raises_at_every_poll(shelf: Shelf) -> None:
    class Broken(MemoryOffsets):
        def get(self, key: OffsetKey) -> OffsetEntry | None:
            raise ZeroDivisionError

    task = SourceTask(config(), Broken())
    with task:
        for _ in range(2):
            with pytest.raises(SourceError, match="has ended: ZeroDivisionError") as raised:
                until(task.poll)
            assert isinstance(raised.value.__cause__, ZeroDivisionError)
