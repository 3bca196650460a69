"""The worker of a task: list a source, read its objects, and fill the queue.

Each object and its records pass the same steps:

    list, ring buffer, choice of task, context, offset, extract, skip, last evolution, record, queue

Connect's transforms, serializers and the chain come after the queue, in the producer.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, closing
from copy import deepcopy
from enum import Enum
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from headerware.core.backoff import Backoff
from headerware.core.batch import Batch as RecordBatch
from headerware.core.errors import (
    BadRecordError,
    MissingPartError,
    ObjectError,
    SourceError,
    described,
)
from headerware.core.record import Record
from headerware.sources.engine.batches import Batch
from headerware.sources.engine.decision import leave_out, offset_key, task_of
from headerware.sources.engine.moves import Moves
from headerware.sources.engine.records import RecordMaker, part_of
from headerware.sources.engine.retries import Retries, StoppedError
from headerware.sources.extractor import Extracted, Input, extracted_runs
from headerware.sources.offsets import OffsetEntry
from headerware.sources.source import ObjectMovedError, open_source

if TYPE_CHECKING:
    from headerware.core.stop_flag import StopFlag
    from headerware.sources.config import SourceConfig
    from headerware.sources.engine.batches import BatchQueue
    from headerware.sources.engine.decision import Decision
    from headerware.sources.engine.ring_buffer import Known
    from headerware.sources.engine.statistics import Statistics
    from headerware.sources.extractor import Found, Split
    from headerware.sources.offsets import OffsetKey, Offsets
    from headerware.sources.source import NativeItem, OpenSource, SourceContext
    from headerware.sources.transformers import Transformers

_BATCH_BYTES: Final = 48 << 10
"""A batch of this size is put into the queue: a batch that fits the processor's cache is serialized faster. A
block of text is somewhat larger, so each block becomes one batch."""
_EXTRACTED: Final = frozenset({Extracted})
_log: Final = logging.getLogger("headerware.sources")


class Worker:
    """Read a source until the task stops, on one thread.

    Args:
        config: the configuration of the source.
        context: the number of this task.
        offsets: the stored offsets.
        known: the keys whose offsets need no look-up; shared with the polling thread.
        queue: the queue for batches.
        statistics: the counters to increase.
        stopping: set when the task stops.
        once: whether to end when all existing objects are listed and read.
    """

    def __init__(
        self,
        config: SourceConfig,
        context: SourceContext,
        offsets: Offsets,
        known: Known,
        queue: BatchQueue,
        statistics: Statistics,
        stopping: StopFlag,
        *,
        once: bool,
    ) -> None:
        self._config: Final = config
        self._context: Final = context
        self._offsets: Final = offsets
        self._known: Final = known
        self._queue: Final = queue
        self._statistics: Final = statistics
        self._stopping: Final = stopping
        self._once: Final = once
        self._first_key: Final = config.first_key()
        self._retried: Final = (OSError, *config.source.retried)
        self._next_rescan = 0.0
        self._found = False
        self._failing: dict[Any, Retries] = {}
        """The objects that failed in the last listing and are tried again in the current one.

        Other objects do not wait for them, unless ``on_object_error`` is ``raise``. An object keeps its
        deadline, and listings begin at its key if the key is before the ring buffer's.
        """
        self._left: dict[Any, Retries] = {}
        """The objects that failed in the current listing."""
        self._moves: Final = Moves(config, offsets)
        self.reader: ObjectReader | None = None

    @property
    def waiting(self) -> int:
        """The number of objects that have failed and will be tried again."""
        return len(self._failing) + len(self._left)

    def run(self) -> None:
        """Open the source, read it, and close it; report any error to the queue."""
        try:
            with ExitStack() as resources:
                transformers = resources.enter_context(self._config.new_transformers())
                opened = self._opened()
                resources.callback(opened.close)
                reader = self.reader = ObjectReader(
                    self._config, transformers, self._queue, self._statistics, self._stopping, self._retried
                )
                self._read_on(opened, reader)
        except StoppedError:
            self._queue.end(None)
        except BaseException as error:  # noqa: BLE001 - the poll raises it
            self._queue.end(error)
        else:
            self._queue.end(None)

    def _opened(self) -> OpenSource[Any]:
        retries = Retries(self._config, self._stopping, f"opening source {self._config.name!r}")
        while True:
            try:
                return open_source(self._config.source, self._context)
            except self._retried as error:
                self._statistics.retries += 1
                retries.pause(error)

    def _read_on(self, opened: OpenSource[Any], reader: ObjectReader) -> None:
        config = self._config
        backoff = Backoff(config.retry_pause_s, config.listing_pause_s)
        while True:
            is_whole = self._list(opened, reader)
            if self._once and is_whole and not self._failing:
                return
            if self._found:
                backoff.reset()
                continue
            if backoff.wait(self._stopping):
                raise StoppedError

    def _list(self, opened: OpenSource[Any], reader: ObjectReader) -> bool:
        """List once, page by page, and read new objects; return whether the listing was complete."""
        config, source = self._config, self._config.source
        now = time.monotonic()
        oldest = self._known.oldest if source.repeats_order and not self._moves.happen else None
        if oldest is not None:
            oldest = min((oldest, *self._failing))
        is_whole = oldest is None or self._once
        if oldest is not None and config.rescan_interval_s and now >= self._next_rescan:
            is_whole = True
        start = self._first_key if is_whole else oldest
        if is_whole:
            self._next_rescan = now + config.rescan_interval_s
            self._statistics.whole_listings += 1
        self._found = False
        retries = Retries(config, self._stopping, f"listing source {config.name!r}")
        furthest = 0
        while True:
            last = start
            try:
                for count, item in enumerate(self._page(opened, start), 1):
                    key = item.context.key
                    # Keys that were listed before the failure, such as the start, are no progress.
                    if key != start if source.repeats_order else count > furthest:
                        furthest = count
                        retries.progress()
                    if source.repeats_order:
                        if last is None or last < key:
                            last = key
                        elif key < last:
                            self._note_disorder(key)
                    self._found |= self._take(item, opened, reader)
            except self._retried as error:
                self._statistics.retries += 1
                retries.pause(error)
                start = last
                continue
            # A page may end before the last key. Only a page without a further key is the end, so that a task
            # does not list a page of known keys forever.
            if last is None or last == start:
                self._failing, self._left = self._left, {}  # objects that were not listed again are forgotten
                return is_whole
            start = last

    def _page(self, opened: OpenSource[Any], start: Any) -> Generator[NativeItem, None, None]:
        if self._stopping.is_set():
            raise StoppedError
        items = iter(opened.items(start))
        try:
            for item in items:
                self._statistics.listed += 1
                if self._stopping.is_set():
                    raise StoppedError
                yield item
        finally:
            close = getattr(items, "close", None)
            if close is not None:
                close()

    def _take(
        self, item: NativeItem, opened: OpenSource[Any], reader: ObjectReader, *, heeds_moves: bool = True
    ) -> bool:
        """Read an object if this task must read it; return whether it was read to its end.

        If ``heeds_moves``, first read the objects whose offsets would otherwise be lost.
        """
        context = item.context
        if context.key in self._left:
            return False
        later = self._failing.pop(context.key, None)
        if later is not None and not later.is_due:
            self._left[context.key] = later
            return False
        if self._known.holds(context.key, context.version):
            self._statistics.known += 1
            if later is not None:  # its records are in flight
                self._left[context.key] = later
            return False
        try:
            key = offset_key(self._config, context.key)
            task = task_of(self._config, context)
        except SourceError as error:
            self._known.add(context.key, context.version)  # logged only once while the key is remembered
            self._statistics.failed += 1
            leave_out(self._config, context.key, error)
            return False
        if task != self._context.task:
            self._statistics.of_other_tasks += 1
            return False
        entry = self._offsets.get(key)
        if heeds_moves and self._moves.is_other(item, entry):
            for each in self._moves.to_read_first(item, lambda: self._page(opened, None)):
                self._take(each, opened, reader, heeds_moves=False)
        decision = self._moves.decide(item, entry)
        if decision.action == "pass":
            self._known.add(context.key, context.version)
            self._statistics.known += 1
            return False
        self._known.begin(context.key)
        if self._config.on_object_error != "raise" and later is None:
            what = f"reading object {self._config.key_text(context.key)!r} of source {self._config.name!r}"
            later = Retries(self._config, self._stopping, what)
        outcome = reader.read(item, key, decision, later=later)
        if reader.entry is not None:
            self._moves.note(item, key, reader.entry)
        if later is not None and outcome in {Outcome.LATER, Outcome.UNTOUCHED}:
            self._left[context.key] = later
        if outcome is Outcome.UNTOUCHED:
            self._known.end(context.key)
        return outcome is Outcome.READ

    def _note_disorder(self, key: Any) -> None:
        self._statistics.disorder += 1
        if self._statistics.disorder == 1:
            _log.warning(
                "source %r lists %s after a higher key; objects out of order may be found late",
                self._config.name,
                self._config.key_text(key),
            )


class ObjectProgress(NamedTuple):
    """How far an object was read, in bytes."""

    key: str
    position: int
    """0 if the position is not known."""
    length: int
    """-1 if the length is not known."""


class Outcome(Enum):
    """The result of reading an object."""

    READ = "read to its end, or given up for good"
    SKIPPED = "given up for this time"
    LATER = "read in part, until it failed"
    UNTOUCHED = "failed, and nothing new was read"


class ObjectReader:
    """Read objects, one at a time, into batches, for the worker and for Spark's tasks.

    Args:
        config: the configuration of the source.
        transformers: the configured transformers, initialized.
        queue: the queue for batches.
        statistics: the counters to increase.
        stopping: set when the task stops.
        retried: the errors after which to try again.
        lists_again: whether a later listing returns skipped objects again. If not, an object that cannot be
            reached is an error even with ``skip``, because it would be lost.
    """

    def __init__(
        self,
        config: SourceConfig,
        transformers: Transformers,
        queue: BatchQueue,
        statistics: Statistics,
        stopping: StopFlag,
        retried: tuple[type[Exception], ...],
        *,
        lists_again: bool = True,
    ) -> None:
        self._config: Final = config
        self._transformers: Final = transformers
        self._queue: Final = queue
        self._statistics: Final = statistics
        self._stopping: Final = stopping
        self._retried: Final = retried
        self._lists_again: Final = lists_again
        self._reading: _Reading | None = None

    @property
    def progress(self) -> ObjectProgress | None:
        """The progress in the object that is being read; None if no object is."""
        reading = self._reading
        if reading is None or reading.is_over:
            return None
        item = reading.item
        return ObjectProgress(self._config.key_text(item.context.key), reading.position, item.length)

    @property
    def entry(self) -> OffsetEntry | None:
        """How far the latest object was read; None if no record of it was."""
        return None if self._reading is None else self._reading.latest

    def read(
        self,
        item: NativeItem,
        key: OffsetKey,
        decision: Decision,
        split: Split | None = None,
        until: int | None = None,
        later: Retries | None = None,
    ) -> Outcome:
        """Put an object's records into the queue, and return the result.

        Args:
            item: the object.
            key: the key of the object's offset.
            decision: how many of the object's records are stored already.
            split: the part to read; None reads the complete object. A part has no stored records.
            until: the number of the last record to read; None reads to the end.
            later: the retries of this object, if it is left for a later listing when it fails; None tries
                again at once.
        """
        reading = self._reading = _Reading(self._config, item, key, decision, self._queue, split)
        maker = RecordMaker(self._config, item, self._transformers, split)
        retries = later or Retries(self._config, self._stopping, f"reading {maker.where}")
        self._statistics.objects += 1
        while True:
            try:
                maker.route()
                self._extract(item, maker, reading, retries, until)
            except (StoppedError, MissingPartError):
                raise  # a missing package concerns all objects
            except ObjectMovedError as error:
                return reading.leave() if self._lists_again else self._failed(maker, reading, error, error)
            except FileNotFoundError as error:
                vanished = ObjectError("it has vanished since it was listed")
                return self._failed(maker, reading, vanished, error)
            except self._retried as error:
                self._statistics.retries += 1
                try:
                    if later is not None:
                        later.postpone(error)
                        return reading.leave()
                    retries.pause(error)
                except self._retried as final:
                    failed = ObjectError(f"it cannot be read: {described(final)}")
                    return self._failed(maker, reading, failed, final, may_skip=self._lists_again)
                self._statistics.discarded += reading.resume(self._config)
            except SourceError as error:
                return self._failed(maker, reading, error, error)
            except Exception as error:  # noqa: BLE001 - an extractor may raise anything
                failed = ObjectError(f"{self._config.extractor.type} raised {described(error)}")
                return self._failed(maker, reading, failed, error)
            else:
                self._statistics.complete += 1
                reading.end(complete=True)
                return Outcome.READ

    def _extract(
        self,
        item: NativeItem,
        maker: RecordMaker,
        reading: _Reading,
        retries: Retries,
        until: int | None,
    ) -> None:
        known = reading.number - reading.before
        properties = deepcopy(reading.properties)  # an extractor may change the given properties
        given = Input(item, skip=known, properties=properties, split=reading.split)
        reading.given = given
        with closing(extracted_runs(self._config.extractor, given)) as runs:
            for first, run in runs:
                wanted = run if until is None else run[: max(0, until + 1 - first)]
                if first + len(wanted) - 1 > reading.furthest:
                    reading.furthest = first + len(wanted) - 1
                    retries.progress()
                self._add(maker, reading, first, wanted)
                if len(wanted) < len(run):
                    return

    def _add(self, maker: RecordMaker, reading: _Reading, first: int, run: Sequence[Found]) -> None:
        """Make and add the records of a run; one by one if they pass a user's code, which may be slow."""
        if maker.is_plain and len(run) > 1 and _EXTRACTED.issuperset(map(type, run)):
            found = cast("Sequence[Extracted]", run)
            step = self._config.poll_records
            for at in range(0, len(found), step):
                self._add_together(maker, reading, first + at, found[at : at + step])
        else:
            self._add_each(maker, reading, first, run)

    def _add_together(
        self, maker: RecordMaker, reading: _Reading, first: int, found: Sequence[Extracted]
    ) -> None:
        try:
            batch = maker.make_batch(first, found)
        except Exception:  # noqa: BLE001 - the records are then made one by one, to find the bad ones
            batch = None
        if batch is None:
            self._add_each(maker, reading, first, found)
            return
        reading.add_batch(first, batch, found)
        self._statistics.records += len(batch)
        if self._stopping.is_set():
            raise StoppedError

    def _add_each(self, maker: RecordMaker, reading: _Reading, first: int, run: Sequence[Found]) -> None:
        make, add, is_stopping = maker.make, reading.add, self._stopping.is_set
        for number, found in enumerate(run, first):
            if found.__class__ is not Extracted and isinstance(found, BadRecordError):
                self._bad(maker, reading, number, found)
                continue
            try:
                records, properties = make(number, found)
            except Exception as error:  # noqa: BLE001 - a transformer may raise anything
                self._bad(maker, reading, number, error, found.properties)
                continue
            if len(records) == 1:
                add(number, records[0], found.size_bytes, properties)
            elif records:
                reading.add_split(number, records, properties)
            else:
                reading.pass_over(number, properties)
                self._statistics.dropped += 1
            self._statistics.records += len(records)
            if is_stopping():
                raise StoppedError

    def _bad(
        self,
        maker: RecordMaker,
        reading: _Reading,
        number: int,
        error: Exception,
        properties: Mapping[str, Any] | None = None,
    ) -> None:
        """Apply ``on_record_error`` to a bad record."""
        self._statistics.bad_records += 1
        policy = self._config.on_record_error
        shown = f"record {maker.numbered(number)} of {maker.where}: {described(error)}"
        if policy == "raise":
            reading.flush()
            raise _FatalError(shown) from error
        if policy == "skip":
            _log.warning("skipped a record: %s", shown)
        letter = None
        if policy == "dead_letter":
            raw = error.raw if isinstance(error, BadRecordError) else None
            letter = maker.dead_letter(number, shown, raw)
            self._statistics.dead_letters += 1
        reading.pass_over(number, properties, letter)

    def _failed(
        self,
        maker: RecordMaker,
        reading: _Reading,
        error: SourceError,
        cause: Exception,
        *,
        may_skip: bool = True,
    ) -> Outcome:
        """Apply ``on_object_error`` to an object that cannot be read."""
        if isinstance(error, _FatalError):
            raise error
        self._statistics.failed += 1
        policy = self._config.on_object_error
        shown = f"{maker.where} after record {reading.number}: {error}"
        if policy == "raise" or (policy == "skip" and not may_skip):
            reading.flush()
            raise ObjectError(shown) from cause
        if policy != "drop":
            _log.warning("gave up an object: %s", shown)
        if policy == "dead_letter":
            reading.pass_over(
                reading.number, reading.properties, maker.dead_letter(reading.number + 1, shown, None)
            )
            self._statistics.dead_letters += 1
        reading.end(complete=policy != "skip")
        return Outcome.SKIPPED if policy == "skip" else Outcome.READ


class _FatalError(SourceError):
    """A bad record with ``on_record_error = "raise"``; not an error of the object."""


class _Reading:
    """The reading of one object: its records that are not in the queue yet, and the progress."""

    _records: Sequence[Record]
    """The records that are not in the queue yet; as columns if all of them are."""

    def __init__(
        self,
        config: SourceConfig,
        item: NativeItem,
        key: OffsetKey,
        decision: Decision,
        queue: BatchQueue,
        split: Split | None,
    ) -> None:
        self.item: Final = item
        self.given: Input | None = None
        """The input of the extractor."""
        self.position = 0
        """The position in the object's bytes when the last batch was sent."""
        self.is_over = False
        self.latest: OffsetEntry | None = None
        """The entry of the last batch that was sent."""
        self._key: Final = key
        self._queue: Final = queue
        self.split: Final = split
        first = None if split is None else split.first_record
        self.before: Final = 0 if first is None else first - 1
        """How many records the object has before the part."""
        self.number: int = decision.skip + self.before
        """The number of the last record that was read."""
        self._began_at: Final = self.number
        self.properties: Mapping[str, Any] | None = decision.properties
        """The offset's properties after that record."""
        self.furthest: int = decision.skip
        """The highest number that was read; :attr:`number` is lower after the object was started again."""
        self._max_records: Final = config.poll_records
        self._max_bytes: Final = config.poll_bytes
        self._adding = Lock()
        self._clear()
        queue.hand_over = self.hand_over

    def add(self, number: int, record: Record, size_bytes: int, properties: Mapping[str, Any] | None) -> None:
        """Append a record, and send the batch if it is full."""
        with self._adding:
            self._add(number, record, size_bytes or _size(record), properties)

    def add_split(self, number: int, records: list[Record], properties: Mapping[str, Any] | None) -> None:
        """Append the records that were split from one, all into one batch, because they share an offset."""
        size_bytes = sum(map(_size, records))
        with self._adding:
            held = len(self._records) + len(self._letters)
            if held and (
                held + len(records) > self._max_records or self._bytes + size_bytes > self._max_bytes
            ):
                self._send(complete=False, is_last=False)
            self._records = [*self._records, *records]
            self._numbers += [f"{number}.{index}" for index in range(1, len(records) + 1)]
            self._bytes += size_bytes
            self.number, self.properties = number, properties
            self._send_if_full()

    def add_batch(self, first: int, batch: RecordBatch, found: Sequence[Extracted]) -> None:
        """Append the records of extracted values."""
        sizes = [each.size_bytes for each in found]
        if 0 in sizes:
            sizes = [each.size_bytes or _size(each) for each in found]
        with self._adding:
            at = 0
            while at < len(batch):
                end = at + self._max_records - len(self._records) - len(self._letters)
                size_bytes = sum(sizes[at:end])
                if self._bytes + size_bytes > self._max_bytes:
                    end = at + 1
                    self._add(first + at, batch[at], sizes[at], found[at].properties)
                else:
                    some = batch if at == 0 and end >= len(batch) else batch[at:end]
                    end = at + len(some)
                    self._append(some)
                    self._numbers += range(first + at, first + end)
                    self._bytes += size_bytes
                    self.number, self.properties = first + end - 1, found[end - 1].properties
                    self._send_if_full()
                at = end

    def _append(self, some: RecordBatch) -> None:
        """Append records to the batch."""
        records = self._records
        if not records:
            self._records = some
        elif isinstance(records, RecordBatch) and records.topic == some.topic:
            self._records = records.join(some)
        else:
            self._records = [*records, *some]

    def _add(
        self, number: int, record: Record, size_bytes: int, properties: Mapping[str, Any] | None
    ) -> None:
        if self._records and self._bytes + size_bytes > self._max_bytes:
            self._send(complete=False, is_last=False)
        if isinstance(self._records, list):
            self._records.append(record)
        else:
            self._records = [*self._records, record]
        self._numbers.append(number)
        self._bytes += size_bytes
        self.number, self.properties = number, properties
        self._send_if_full()

    def _send_if_full(self) -> None:
        if len(self._letters) + len(self._records) >= self._max_records or self._bytes >= _BATCH_BYTES:
            self._send(complete=False, is_last=False)

    def resume(self, config: SourceConfig) -> int:
        """Continue after a failure as after a restart; return how many records are discarded.

        Records are discarded if the source starts such objects again from the first record.
        """
        with self._adding:
            if not self.number:
                return 0
            resumed = config.source.resumed(self.item.context.key, self._entry(complete=False))
            if resumed is not None:
                self.number, self.properties = resumed.record_number, resumed.properties
                return 0
            discarded = len(self._records)
            self.number, self.properties = 0, None
            self._clear()
            return discarded

    def pass_over(
        self, number: int, properties: Mapping[str, Any] | None, letter: Record | None = None
    ) -> None:
        """Advance past a record that is not sent; add its dead letter, if there is one."""
        with self._adding:
            size_bytes = 0 if letter is None else _size(letter)
            if (self._letters or self._records) and self._bytes + size_bytes > self._max_bytes:
                self._send(complete=False, is_last=False)
            self.number, self.properties = number, properties
            if letter is not None:
                self._letters.append(letter)
                self._bytes += size_bytes
                self._send_if_full()

    def flush(self) -> None:
        """Send the batch, if it is not empty."""
        with self._adding:
            if self._records or self._letters:
                self._send(complete=False, is_last=False)

    def hand_over(self) -> None:
        """Send a partial batch for a poll, unless the worker holds the lock.

        The worker may hold the lock while it waits for a poll to make room, so a poll must not wait for the
        lock.
        """
        if not self._adding.acquire(blocking=False):
            return
        try:
            if self._records or self._letters:
                self._send(complete=False, is_last=False)
        except (SourceError, StoppedError):  # the worker will get the same error
            pass
        finally:
            self._adding.release()

    def end(self, *, complete: bool) -> None:
        """Send the last batch; the object was read to its end, or is given up."""
        with self._adding:
            self._send(complete=complete, is_last=True)

    def leave(self) -> Outcome:
        """Send the last batch, if any record was read; the rest of the object is read later."""
        self.is_over = True
        if self.number == self._began_at:
            return Outcome.UNTOUCHED
        self.end(complete=False)
        return Outcome.LATER

    def _entry(self, *, complete: bool) -> OffsetEntry:
        return OffsetEntry(
            record_number=self.number,
            complete=complete,
            version=self.item.context.version,
            properties={} if self.properties is None else self.properties,
        )

    def _send(self, *, complete: bool, is_last: bool) -> None:
        self.latest = self._entry(complete=complete)
        batch = Batch(
            native_key=self.item.context.key,
            key=self._key,
            entry=self.latest,
            records=self._records,
            numbers=self._numbers,
            dead_letters=self._letters,
            size_bytes=self._bytes,
            part=part_of(self.split),
            is_last=is_last,
        )
        self._clear()
        self.position = 0 if self.given is None else self.given.position
        self.is_over = is_last
        self._queue.put(batch)

    def _clear(self) -> None:
        self._records = []
        self._numbers: list[int | str] = []
        self._letters: list[Record] = []
        self._bytes = 0


def _size(record: Record | Extracted) -> int:
    """Return the approximate size of a record whose extractor does not tell it."""
    value = record.value
    return len(value) if isinstance(value, bytes | str) else 256
