"""The worker of a task: it lists a source, reads its objects, and fills the queue.

The way of an object and of its records is always the same:

    list, ring buffer, whose task, context, offset, extract, skip, last evolution, record, queue

Connect's transforms, serializers and the chain come behind the queue; they are the producer's.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

from headerware.connect.wire_records import joined
from headerware.core.errors import (
    BadRecordError,
    ObjectError,
    SourceError,
    described,
)
from headerware.core.headers import Headers
from headerware.core.record import Record
from headerware.sources.engine.batches import Batch
from headerware.sources.engine.decision import decide, offset_key, task_of
from headerware.sources.engine.retries import Retries, StoppedError
from headerware.sources.evolving import (
    KEY_HEADER,
    NUMBER_HEADER,
    SOURCE_HEADER,
    EvolvingRecord,
    source_dead_letter,
    text_bytes,
)
from headerware.sources.extractor import Extracted, Input, extracted
from headerware.sources.offsets import OffsetEntry
from headerware.sources.source import Source, open_source

if TYPE_CHECKING:
    from threading import Event

    from headerware.sources.config import SourceConfig
    from headerware.sources.engine.batches import BatchQueue
    from headerware.sources.engine.decision import Decision
    from headerware.sources.engine.task import Known, Statistics
    from headerware.sources.extractor import Split
    from headerware.sources.offsets import OffsetKey, Offsets
    from headerware.sources.source import NativeItem, OpenSource, SourceContext
    from headerware.sources.transformers import Transformers

_log: Final = logging.getLogger("headerware.sources")
_CONTENT_TYPE: Final = "content-type"
_WORTHWHILE: Final = 64
"""Records that are handed to a poll that waits, though there is room for more."""
_SLOW_S: Final = 0.01
"""A source whose records come at such intervals, in seconds, has each one handed on at once."""


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
        stopping: Event,
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

    def run(self) -> None:
        """Open the source, read it, and close everything, once, whatever happens."""
        try:
            with ExitStack() as resources:
                transformers = resources.enter_context(self._config.opened_transformers())
                opened = self._opened()
                resources.callback(opened.close)
                reader = ObjectReader(
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
        pause_s = config.retry_pause_s
        while True:
            is_whole = self._list(opened, reader)
            if self._once and is_whole:
                return
            if self._found:
                pause_s = config.retry_pause_s
                continue
            if self._stopping.wait(min(pause_s, config.listing_pause_s)):
                raise StoppedError
            pause_s = min(2 * pause_s, config.listing_pause_s)

    def _list(self, opened: OpenSource[Any], reader: ObjectReader) -> bool:
        """List once, page by page, and read what is new; return whether it began at the first key."""
        config, source = self._config, self._config.source
        now = time.monotonic()
        oldest = self._known.oldest if source.repeats_order else None
        is_whole = oldest is None or self._once
        if oldest is not None and config.rescan_interval_s and now >= self._next_rescan:
            is_whole = True
        start = self._first_key if is_whole else oldest
        if is_whole:
            self._next_rescan = now + config.rescan_interval_s
            self._statistics.whole_listings += 1
        self._found = False
        retries = Retries(config, self._stopping, f"listing source {config.name!r}")
        while True:
            last = start
            try:
                for item in self._page(opened, start):
                    retries.progress()
                    key = item.context.key
                    if source.repeats_order:
                        if last is None or last < key:
                            last = key
                        elif key < last:
                            self._note_disorder(key)
                    self._found |= self._take(item, reader)
            except self._retried as error:
                self._statistics.retries += 1
                retries.pause(error)
                start = last
                continue
            # A page may end before the last key: only one that brings no other key is the end. Else a task
            # would come back for ever to a page of known keys.
            if last is None or last == start:
                return is_whole
            start = last

    def _page(self, opened: OpenSource[Any], start: Any) -> Iterator[NativeItem]:
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

    def _take(self, item: NativeItem, reader: ObjectReader) -> bool:
        """Read an object if it is to be read by this task; return whether anything was read."""
        context = item.context
        if self._known.holds(context.key, context.version):
            self._statistics.known += 1
            return False
        if task_of(self._config, context) != self._context.task:
            self._statistics.of_other_tasks += 1
            return False
        key = offset_key(self._config, context.key)
        decision = decide(self._config, item, self._offsets.get(key))
        if decision.action == "pass":
            self._known.add(context.key, context.version)
            self._statistics.known += 1
            return False
        self._known.begin(context.key)
        return reader.read(item, key, decision)

    def _note_disorder(self, key: Any) -> None:
        self._statistics.disorder += 1
        if self._statistics.disorder == 1:
            _log.warning(
                "source %r lists %s below a key before it; keys that are out of order may be found late",
                self._config.name,
                self._config.key_text(key),
            )


class ObjectReader:
    """Read objects, one at a time, into batches: for the worker, and for Spark's tasks."""

    def __init__(
        self,
        config: SourceConfig,
        transformers: Transformers,
        queue: BatchQueue,
        statistics: Statistics,
        stopping: Event,
        retried: tuple[type[Exception], ...],
    ) -> None:
        self._config: Final = config
        self._transform: Final = transformers if len(transformers) else None
        self._queue: Final = queue
        self._statistics: Final = statistics
        self._stopping: Final = stopping
        self._retried: Final = retried
        evolves = type(config.source).last_evolution is not Source.last_evolution
        self._evolve: Final = config.source.last_evolution if evolves else None

    def read(
        self,
        item: NativeItem,
        key: OffsetKey,
        decision: Decision,
        split: Split | None = None,
        until: int | None = None,
    ) -> bool:
        """Put an object's records into the queue; return false if it is left for a later listing.

        Args:
            item: the object.
            key: the name of its offset.
            decision: how many of its records are known.
            split: the part to read; None is the whole object, as only it may have known records.
            until: the number of the last record to read; None is the end.
        """
        reading = _Reading(self._config, item, key, decision, self._queue, split)
        retries = Retries(self._config, self._stopping, f"reading {reading.where}")
        self._statistics.objects += 1
        while True:
            try:
                reading.route()
                self._extract(item, reading, retries, until)
            except StoppedError:
                raise
            except FileNotFoundError as error:
                vanished = ObjectError("it has vanished since it was listed")
                return self._failed(reading, vanished, error)
            except self._retried as error:
                self._statistics.retries += 1
                try:
                    retries.pause(error)
                except self._retried as final:
                    failed = ObjectError(f"it cannot be read: {described(final)}")
                    return self._failed(reading, failed, final)
            except SourceError as error:
                return self._failed(reading, error, error)
            except Exception as error:  # noqa: BLE001 - an extractor may raise anything
                failed = ObjectError(f"{self._config.extractor.type} raised {described(error)}")
                return self._failed(reading, failed, error)
            else:
                self._statistics.complete += 1
                reading.end(complete=True)
                return True

    def _extract(self, item: NativeItem, reading: _Reading, retries: Retries, until: int | None) -> None:
        known = reading.number - reading.before
        given = Input(item, skip=known, properties=reading.properties, split=reading.split)
        transform, evolve = self._transform, self._evolve
        statistics, stopping = self._statistics, self._stopping
        records = extracted(self._config.extractor, given)
        try:
            for number, found in records:
                if until is not None and number > until:
                    return
                retries.progress()
                if found.__class__ is BadRecordError or isinstance(found, BadRecordError):
                    self._bad(reading, number, found)
                    continue
                try:
                    record, properties = reading.record(number, found, transform, evolve)
                except Exception as error:  # noqa: BLE001 - a transformer may raise anything
                    self._bad(reading, number, error, found.properties)
                    continue
                reading.add(number, record, found.size_bytes, properties)
                statistics.records += 1
                if stopping.is_set():
                    raise StoppedError
        finally:
            records.close()  # type: ignore[attr-defined]  # it is a generator

    def _bad(
        self,
        reading: _Reading,
        number: int,
        error: Exception,
        properties: Mapping[str, Any] | None = None,
    ) -> None:
        """Do with a bad record what the configuration says."""
        self._statistics.bad_records += 1
        policy = self._config.on_record_error
        shown = f"record {reading.numbered(number)} of {reading.where}: {described(error)}"
        if policy == "raise":
            reading.flush()
            raise _FatalError(shown) from error
        if policy == "skip":
            _log.warning("passed over %s", shown)
        letter = None
        if policy == "dead_letter":
            letter = reading.dead_letter(number, shown, getattr(error, "raw", None))
            self._statistics.dead_letters += 1
        reading.pass_over(number, properties, letter)

    def _failed(self, reading: _Reading, error: SourceError, cause: Exception) -> bool:
        """Do with an object that cannot be read what the configuration says."""
        if isinstance(error, _FatalError):
            raise error
        self._statistics.failed += 1
        policy = self._config.on_object_error
        shown = f"{reading.where} behind record {reading.number}: {error}"
        if policy == "raise":
            reading.flush()
            raise ObjectError(shown) from cause
        if policy != "drop":
            _log.warning("gave up %s", shown)
        if policy == "dead_letter":
            reading.pass_over(
                reading.number, reading.properties, reading.dead_letter(reading.number + 1, shown, None)
            )
            self._statistics.dead_letters += 1
        reading.end(complete=policy != "skip")
        return policy != "skip"


class _FatalError(SourceError):
    """A bad record, where the configuration says to stop; not an error of the object."""


class _Reading:
    """One object while it is read: where its records go, and how far it has come."""

    def __init__(
        self,
        config: SourceConfig,
        item: NativeItem,
        key: OffsetKey,
        decision: Decision,
        queue: BatchQueue,
        split: Split | None,
    ) -> None:
        self._config: Final = config
        self._item: Final = item
        self._key: Final = key
        self._queue: Final = queue
        self.split: Final = split
        first = None if split is None else split.first_record
        self.before: Final = 0 if first is None else first - 1
        """How many records there are before the part."""
        self._part: Final = "" if split is None or first is not None else f"{split.begin}+"
        self._part_bytes: Final = self._part.encode()
        self.number: int = decision.skip + self.before
        """The number of the last record that was read."""
        self.properties: Mapping[str, Any] | None = decision.properties
        """Those of the offset behind that record."""
        self._text: Final = config.key_text(item.context.key)
        self.where: Final = f"object {self._text!r} of source {config.name!r}"
        self._topic = ""
        self._partition: int | None = None
        self._headers: list[tuple[str, bytes | None]] = []
        if config.headers:
            self._headers = [
                (SOURCE_HEADER, config.name.encode()),
                (KEY_HEADER, text_bytes(self._text)),
            ]
        self._content_type: Final = item.context.content_type or config.extractor.content_type
        self._max_records: Final = config.poll_records
        self._max_bytes: Final = config.poll_bytes
        self._asked = 0.0
        self._clear()

    def numbered(self, number: int) -> str:
        """Return a record's number; in a part whose first number nobody knows, with where the part begins."""
        return f"{self._part}{number}"

    def route(self) -> None:
        """Find the topic and the partition; raise SourceError if there are none."""
        self._topic, self._partition = self._config.route(self._item.context)

    def record(
        self, number: int, found: Extracted, transform: Any, evolve: Any
    ) -> tuple[Record, Mapping[str, Any] | None]:
        """Make the record of what was extracted; return it with the offset's properties."""
        value = found.value if transform is None else transform(found.value)
        timestamp_ms = found.timestamp_ms
        if timestamp_ms is None:
            timestamp_ms = self._item.context.timestamp_ms
        headers = found.headers
        if self._headers:
            own = [*self._headers, (NUMBER_HEADER, b"%s%d" % (self._part_bytes, number))]
            if self._content_type is not None and value.__class__ is bytes:
                own.append((_CONTENT_TYPE, self._content_type.encode()))
            headers = Headers.trusted([*own, *headers])
        if evolve is None:
            value, key = joined(found.schema, value), joined(found.key_schema, found.key)
            made = Record(self._topic, value, key, headers, self._partition, timestamp_ms)
            return made, found.properties
        evolving = EvolvingRecord(
            self._item.context.key,
            number,
            self._topic,
            self._partition,
            found.key,
            found.key_schema,
            value,
            found.schema,
            headers,
            timestamp_ms,
            found.properties,
        )
        evolving = self._evolved(evolving, evolve)
        return evolving.to_record(), evolving.properties

    def _evolved(self, given: EvolvingRecord, evolve: Any) -> EvolvingRecord:
        found = evolve(given)
        if not isinstance(found, EvolvingRecord):
            raise SourceError(f"last_evolution gave {type(found).__name__}, expected an EvolvingRecord")
        for name in ("native_key", "record_number"):
            if getattr(found, name) != getattr(given, name):
                raise SourceError(f"last_evolution changed the {name.replace('_', ' ')}, which must stay")
        return found

    def dead_letter(self, number: int, reason: str, raw: bytes | None) -> Record:
        """Return the dead letter of a record, with its object's key and its number."""
        return source_dead_letter(
            self._config, self._text, self.numbered(number), topic=self._topic, reason=reason, raw=raw
        )

    def add(self, number: int, record: Record, size_bytes: int, properties: Mapping[str, Any] | None) -> None:
        """Append a record, and send the batch on if it is full or somebody waits for it."""
        size_bytes = size_bytes or _size(record)
        if self._records and self._bytes + size_bytes > self._max_bytes:
            self.flush()
        self._records.append(record)
        self._bytes += size_bytes
        self.number, self.properties = number, properties
        if len(self._records) >= self._max_records or (self._queue.is_hungry and self._is_due()):
            self.flush()

    def _is_due(self) -> bool:
        """Return whether a poll that waits gets a batch that is not full.

        A fast source fills one in no time, and handing over each record costs more than reading it.
        """
        now = time.monotonic()
        was, self._asked = self._asked, now
        return len(self._records) >= _WORTHWHILE or now - was >= _SLOW_S

    def pass_over(
        self, number: int, properties: Mapping[str, Any] | None, letter: Record | None = None
    ) -> None:
        """Count a record that is not sent, with the dead letter that is sent in its place, if any."""
        self.number, self.properties = number, properties
        if letter is not None:
            self._letters.append(letter)
            if len(self._letters) + len(self._records) >= self._max_records:
                self.flush()

    def flush(self) -> None:
        """Send what there is, if there is anything."""
        if self._records or self._letters:
            self._send(complete=False, is_last=False)

    def end(self, *, complete: bool) -> None:
        """Send what is left; the object was read to its end, or is given up."""
        self._send(complete=complete, is_last=True)

    def _send(self, *, complete: bool, is_last: bool) -> None:
        entry = OffsetEntry(
            record_number=self.number,
            complete=complete,
            version=self._item.context.version,
            properties={} if self.properties is None else self.properties,
        )
        batch = Batch(
            native_key=self._item.context.key,
            key=self._key,
            entry=entry,
            records=self._records,
            dead_letters=self._letters,
            size_bytes=self._bytes,
            is_last=is_last,
        )
        self._clear()
        self._queue.put(batch)

    def _clear(self) -> None:
        self._records: list[Record] = []
        self._letters: list[Record] = []
        self._bytes = 0


def _size(record: Record) -> int:
    """Return roughly how many bytes a record takes, where its extractor has not said it."""
    value = record.value
    return len(value) if isinstance(value, bytes | str) else 256
