"""The worker of a task: it lists a source, reads its objects, and fills the queue.

The way of an object and of its records is always the same:

    list, ring buffer, whose task, context, offset, extract, skip, last evolution, record, queue

Connect's transforms, serializers and the chain come behind the queue; they are the producer's.
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
"""A batch of more is sent on: one that fits the processor's cache is serialized sooner. A block of text is
somewhat larger, and so becomes a batch as it is."""
_EXTRACTED: Final = frozenset({Extracted})
_log: Final = logging.getLogger("headerware.sources")


class Worker:
    """Read a source until it is told to stop; all of it runs on one thread.

    Args:
        config: what to read, and how.
        context: which task this is.
        offsets: how far objects were read.
        known: the keys that need no look at the offsets; shared with the thread that polls.
        queue: where batches go.
        statistics: counted up here.
        stopping: set when the task stops.
        once: whether to end when everything was listed once, and read.
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
        """The objects that the last listing left for the next one, because they failed.

        Nothing waits for such an object, unless the task would stop for it. It keeps the time that it has
        left, and listings begin at it if it is below the ring buffer.
        """
        self._left: dict[Any, Retries] = {}
        """Those of the listing that is going on."""
        self._moves: Final = Moves(config, offsets)
        self.reader: ObjectReader | None = None

    @property
    def waiting(self) -> int:
        """How many objects have failed and wait for another attempt."""
        return len(self._failing) + len(self._left)

    def run(self) -> None:
        """Open the source, read it, and close everything, once, whatever happens."""
        try:
            with ExitStack() as resources:
                transformers = resources.enter_context(self._config.opened_transformers())
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
        """List once, page by page, and read what is new; return whether it began at the first key."""
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
                    # What was listed before the failure, such as the start itself, is no progress.
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
            # A page may end before the last key: only one that brings no other key is the end. Else a task
            # would come back for ever to a page of known keys.
            if last is None or last == start:
                self._failing, self._left = self._left, {}  # those that are gone are forgotten
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
        """Read an object if it is to be read by this task; return whether anything was read.

        ``heeds_moves`` is whether to read before it the objects whose offsets would else be lost.
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
            if later is not None:  # what was read of it is on its way
                self._left[context.key] = later
            return False
        try:
            key = offset_key(self._config, context.key)
            task = task_of(self._config, context)
        except SourceError as error:
            self._known.add(context.key, context.version)  # said once, as long as it is remembered
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
                "source %r lists %s below a key before it; keys that are out of order may be found late",
                self._config.name,
                self._config.key_text(key),
            )


class ObjectProgress(NamedTuple):
    """How far an object has been read, in bytes."""

    key: str
    position: int
    """0 if the object does not tell."""
    length: int
    """-1 if it is not known."""


class Outcome(Enum):
    """What became of an object."""

    READ = "read to its end, or given up for good"
    SKIPPED = "given up for this time"
    LATER = "read in part, until it failed"
    UNTOUCHED = "failed, and nothing new was read"


class ObjectReader:
    """Read objects, one at a time, into batches: for the worker, and for Spark's tasks.

    Args:
        config: what to read, and how.
        transformers: the configured ones, initialized.
        queue: where batches go.
        statistics: counted up here.
        stopping: set when the task stops.
        retried: errors that are worth another attempt.
        lists_again: whether a later listing brings an object that was skipped. If not, one that cannot be
            reached is an error in spite of ``skip``, or it would be lost.
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
        """How far the object that is being read has been read, or None."""
        reading = self._reading
        if reading is None or reading.is_over:
            return None
        item = reading.item
        return ObjectProgress(self._config.key_text(item.context.key), reading.position, item.length)

    @property
    def entry(self) -> OffsetEntry | None:
        """How far the latest object was read, or None if nothing of it was."""
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
        """Put an object's records into the queue; all of them, unless it says otherwise.

        Args:
            item: the object.
            key: the name of its offset.
            decision: how many of its records are known.
            split: the part to read; None is the whole object, as only it may have known records.
            until: the number of the last record to read; None is the end.
            later: the attempts at this object so far, if it is to be left for a later one when it fails.
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
                raise  # what is not installed is missing for every object
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
        properties = deepcopy(reading.properties)  # an extractor may change what it is given
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
        """Make the records of a run, and add them; where users' code does, one by one, for it may be slow."""
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
        except Exception:  # noqa: BLE001 - one by one the bad ones are found
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
        """Do with a bad record what the configuration says."""
        self._statistics.bad_records += 1
        policy = self._config.on_record_error
        shown = f"record {maker.numbered(number)} of {maker.where}: {described(error)}"
        if policy == "raise":
            reading.flush()
            raise _FatalError(shown) from error
        if policy == "skip":
            _log.warning("passed over %s", shown)
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
        """Do with an object that cannot be read what the configuration says."""
        if isinstance(error, _FatalError):
            raise error
        self._statistics.failed += 1
        policy = self._config.on_object_error
        shown = f"{maker.where} behind record {reading.number}: {error}"
        if policy == "raise" or (policy == "skip" and not may_skip):
            reading.flush()
            raise ObjectError(shown) from cause
        if policy != "drop":
            _log.warning("gave up %s", shown)
        if policy == "dead_letter":
            reading.pass_over(
                reading.number, reading.properties, maker.dead_letter(reading.number + 1, shown, None)
            )
            self._statistics.dead_letters += 1
        reading.end(complete=policy != "skip")
        return Outcome.SKIPPED if policy == "skip" else Outcome.READ


class _FatalError(SourceError):
    """A bad record, where the configuration says to stop; not an error of the object."""


class _Reading:
    """One object while it is read: where its records go, and how far it has come."""

    _records: Sequence[Record]
    """What is not sent yet, by columns as long as all of it is."""

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
        """What the extractor reads."""
        self.position = 0
        """Where it was in the object's bytes when it had read what was sent last."""
        self.is_over = False
        self.latest: OffsetEntry | None = None
        """The entry of what was sent last."""
        self._key: Final = key
        self._queue: Final = queue
        self.split: Final = split
        first = None if split is None else split.first_record
        self.before: Final = 0 if first is None else first - 1
        """How many records there are before the part."""
        self.number: int = decision.skip + self.before
        """The number of the last record that was read."""
        self._began_at: Final = self.number
        self.properties: Mapping[str, Any] | None = decision.properties
        """Those of the offset behind that record."""
        self.furthest: int = decision.skip
        """The highest number that was read; :attr:`number` is lower once an object has started again."""
        self._max_records: Final = config.poll_records
        self._max_bytes: Final = config.poll_bytes
        self._adding = Lock()
        self._clear()
        queue.hand_over = self.hand_over

    def add(self, number: int, record: Record, size_bytes: int, properties: Mapping[str, Any] | None) -> None:
        """Append a record, and send the batch on if it is full."""
        with self._adding:
            self._add(number, record, size_bytes or _size(record), properties)

    def add_split(self, number: int, records: list[Record], properties: Mapping[str, Any] | None) -> None:
        """Append the records that were made of one; they are in one batch, as they have one number."""
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
        """Append the records that were made of what was found."""
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
        """Append records to those that are not sent yet."""
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
        """Go on after a failure as after a restart; return how many records are not sent because of that.

        Its source may start such objects again.
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
        """Count a record that is not sent, with the dead letter that is sent in its place, if any."""
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
        """Send what there is, if there is anything."""
        with self._adding:
            if self._records or self._letters:
                self._send(complete=False, is_last=False)

    def hand_over(self) -> None:
        """Send what there is on behalf of a poll, unless the worker itself is about to.

        The worker may hold the lock while it waits for a poll to make room, so a poll does not wait for it.
        """
        if not self._adding.acquire(blocking=False):
            return
        try:
            if self._records or self._letters:
                self._send(complete=False, is_last=False)
        except (SourceError, StoppedError):  # the worker meets it again
            pass
        finally:
            self._adding.release()

    def end(self, *, complete: bool) -> None:
        """Send what is left; the object was read to its end, or is given up."""
        with self._adding:
            self._send(complete=complete, is_last=True)

    def leave(self) -> Outcome:
        """Send what is left, if anything was read; the object is read on later."""
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
    """Return roughly how many bytes a record takes, where its extractor has not said it."""
    value = record.value
    return len(value) if isinstance(value, bytes | str) else 256
