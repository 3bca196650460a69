"""Plan micro-batches, in the process that Spark keeps next to its driver for each query.

The steps are: list objects, skip known ones, decide, apply the limits, write the manifest, return the offset;
then split objects and make tasks.

Spark asks for the latest offset, writes it into its checkpoint, and asks for the tasks of the batch. After a
crash, Spark asks again for the batches in its checkpoint, which come from the manifest, never from a new
decision.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import msgspec

from headerware.core.backoff import Backoff
from headerware.core.errors import ConfigError, ObjectError, SourceError
from headerware.core.stop_flag import StopFlag
from headerware.sources.engine.decision import Decision, decide, leave_out, offset_key
from headerware.sources.engine.plan import listed
from headerware.sources.engine.retries import Retries
from headerware.sources.engine.ring_buffer import RingBuffer
from headerware.sources.extractor import Input
from headerware.sources.offsets import OffsetKey
from headerware.sources.source import SourceContext, open_source
from headerware.spark_bridge.native.manifests import Manifest, ManifestFolder, Manifests, PlannedObject
from headerware.spark_bridge.native.reading import Part, SourcePartition

if TYPE_CHECKING:
    from headerware.sources.config import SourceConfig
    from headerware.sources.extractor import Split
    from headerware.sources.source import ItemContext, NativeItem, OpenSource

_log: Final = logging.getLogger("headerware.sources")
_OPENING_BYTES: Final = 4 << 20
"""The cost of opening an object, in bytes, as for Spark's own files."""
_SPECULATES: Final = (
    "expected a path, because objects of this source grow and spark.speculation is true; found an address, "
    "where two attempts at a task could both say how far an object was read; start the query with --conf "
    "spark.speculation=false, or name a path that all nodes share"
)
Chosen = TypeVar("Chosen")


class Offset(msgspec.Struct, frozen=True):
    """The offset in Spark's checkpoint: the run and its last batch, which is 0 before the first one."""

    run: str
    batch: int


INITIAL: Final[dict[str, Any]] = msgspec.to_builtins(Offset("", 0))
"""The offset of a query that has read nothing."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How much a micro-batch and a task read.

    Args:
        objects: how many objects a batch has at most; None means all objects.
        size_bytes: how many bytes of objects it has at most; one larger object is a batch by itself.
        partition_bytes: how many bytes a task reads, as a rule; larger objects are split if they can be.
        partitions: how many tasks there should be at least, if there is enough to read.
    """

    objects: int | None = None
    size_bytes: int | None = None
    partition_bytes: int = 128 << 20
    partitions: int = 1


class _Planned(NamedTuple):
    """A listed object that is to be read."""

    item: NativeItem
    decision: Decision
    planned: PlannedObject


class Lister:
    """List a source, which is opened when it is first needed; failures are retried until the deadline."""

    def __init__(self, config: SourceConfig) -> None:
        self.config: Final = config
        self.stopping: Final = StopFlag()
        self._retried: Final = (OSError, *config.source.retried)
        self._opened: OpenSource[Any] | None = None
        self._left_out: Final = RingBuffer(config.ring_buffer)

    def chosen(
        self, start: Any, choose: Callable[[NativeItem, OffsetKey], Chosen | None]
    ) -> Iterator[Chosen]:
        """Yield the results of ``choose`` for the objects from a key on, except None.

        After a failure, also of ``choose``, the listing begins again, so that objects may come twice.
        """
        retries = Retries(self.config, self.stopping, f"listing source {self.config.name!r}")
        while True:
            try:
                if self._opened is None:
                    self._opened = open_source(self.config.source, SourceContext(name=self.config.name))
                for item in listed(self.config, self._opened, start):
                    retries.progress()
                    key = self._named(item.context)
                    if key is not None and (chosen := choose(item, key)) is not None:
                        yield chosen
            except self._retried as error:
                retries.pause(error)
            else:
                return

    def _named(self, context: ItemContext) -> OffsetKey | None:
        """Return the key of an object's offset; treat an object without one as the configuration says."""
        try:
            return offset_key(self.config, context.key)
        except SourceError as error:
            if not self._left_out.holds(context.key, context.version):
                self._left_out.add(
                    context.key, context.version
                )  # logged once, as long as the ring buffer holds it
                leave_out(self.config, context.key, error)
            return None

    def splits(self, item: NativeItem, size_bytes: int) -> list[Split]:
        """Return the parts of an object; none if it is read in one."""
        retries = Retries(self.config, self.stopping, f"splitting an object of {self.config.name!r}")
        while True:
            try:
                with Input(item) as given:
                    return list(self.config.extractor.splits(given, size_bytes))
            except FileNotFoundError:
                return []
            except self._retried as error:
                try:
                    retries.pause(error)
                except self._retried:
                    return []
            except SourceError:
                return []  # the task of the object raises the error

    def close(self) -> None:
        """Close the source."""
        self.stopping.set()
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.close()


class Planner:
    """Plan the batches of one query; ``speculates`` is whether Spark runs slow tasks twice."""

    def __init__(
        self, config: SourceConfig, folder: ManifestFolder, limits: Limits, *, speculates: bool = False
    ) -> None:
        self._config: Final = config
        self._folder: Final = folder
        self._cannot_grow: Final = speculates and not folder.is_exclusive
        self._limits: Final = limits
        self._lister: Final = Lister(config)
        self._first_key: Final = config.first_key()
        self._ring = RingBuffer(config.ring_buffer)
        self._begun: Manifests | None = None
        self._waiting: list[_Planned] | None = None
        """The objects of a batch whose tasks Spark has not asked for."""
        self._given: tuple[dict[str, Any], list[SourcePartition]] | None = None
        """The offset after the last batch, and its tasks, in case Spark asks for them again."""
        self._listing: Iterator[_Planned] | None = None
        self._next_listing = self._next_rescan = 0.0
        self._backoff: Final = Backoff(config.retry_pause_s, config.listing_pause_s)
        self._reads_once = False
        """Whether the query ends with the listing that is open, or with the next one."""
        self._has_listed = False

    def available_now(self) -> None:
        """Plan the objects of one listing, and then nothing more."""
        self._reads_once, self._has_listed = True, False

    def latest(self, start: dict[str, Any] | None) -> dict[str, Any]:
        """Return the offset after the next batch, or the present offset if there is nothing to read."""
        if self._begun is None:
            if start is not None and start != INITIAL:
                self._restore(_offset(start))
            else:
                manifests = Manifests(self._folder, self._config.name)
                manifests.begin()
                self._begun = manifests
        if self._waiting is None and (found := self._found()):
            size_bytes = part_bytes([each.item for each in found], self._limits)
            planned = Manifest(size_bytes, [each.planned for each in found])
            kept = self._manifests.plan(planned)
            if kept is not planned:
                self._ring = RingBuffer(self._config.ring_buffer)
                self._listing, self._has_listed, self._next_listing = None, False, 0.0
                found = self._found_again(self._manifests.batch, kept, raises=False)
            self._waiting = found
        if not self._manifests.batch:
            return INITIAL
        return {"run": self._manifests.run, "batch": self._manifests.batch}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[SourcePartition]:
        """Return the tasks of the batches between two offsets; a replay gets the same parts."""
        if end == INITIAL:
            return []
        first, last = _offset(start), _offset(end)
        if self._begun is None:
            self._restore(last)
        if start == end:
            return []
        batches = range(first.batch + 1, last.batch + 1)
        if self._given is not None and self._given[0] == end and len(batches) == 1:
            return self._given[1]
        tasks: list[SourcePartition] = []
        for batch in batches:
            manifest = self._manifests.manifest(batch)
            if self._waiting is not None and batch == self._manifests.batch:
                found, self._waiting = self._waiting, None
            else:
                raises = self._config.on_object_error == "raise"
                found = self._found_again(batch, manifest, raises=raises)
            tasks += self._tasks(batch, manifest, found)
        if len(batches) == 1:
            self._given = end, tasks
        return tasks

    def commit(self, end: dict[str, Any]) -> None:
        """Clean up what Spark will not ask for again."""
        if self._begun is not None and end != INITIAL:
            self._begun.clean(_offset(end).batch)

    def close(self) -> None:
        """Close the source."""
        self._listing = self._waiting = self._given = None  # listings first, which may hold something open
        self._lister.close()

    @property
    def _manifests(self) -> Manifests:
        assert self._begun is not None  # noqa: S101 - latest() and partitions() begin it
        return self._begun

    def _restore(self, offset: Offset) -> None:
        manifests = Manifests(self._folder, self._config.name, offset.run)
        manifests.restore(offset.batch)
        self._begun = manifests

    def _found(self) -> list[_Planned]:
        """Return the objects of the next batch, within its limits; the listing continues after them."""
        self._manifests.take_ends()
        listing = self._listing or self._begun_listing()
        if listing is None:
            return []
        found: dict[bytes, _Planned] = {}
        size_bytes = 0
        limits = self._limits
        for each in listing:
            context, key = each.item.context, each.planned.key
            if key in found or self._ring.holds(context.key, context.version):
                continue
            size_bytes += max(0, each.item.length)
            if found and limits.size_bytes is not None and size_bytes > limits.size_bytes:
                self._listing = chain([each], listing)
                break
            found[key] = each
            if not context.grows:
                self._ring.add(context.key, context.version)
            if limits.objects is not None and len(found) >= limits.objects:
                self._listing = listing
                break
        else:
            self._listing, self._has_listed = None, True
            if found:
                self._backoff.reset()
            else:
                self._next_listing = time.monotonic() + self._backoff.next_s()
        return list(found.values())

    def _begun_listing(self) -> Iterator[_Planned] | None:
        """Begin a listing if it is time for one: at the oldest key in the ring buffer, or at the first."""
        now = time.monotonic()
        if (self._reads_once and self._has_listed) or now < self._next_listing:
            return None
        config = self._config
        oldest = self._ring.oldest if config.source.repeats_order else None
        rescans = bool(config.rescan_interval_s) and now >= self._next_rescan
        if oldest is None or rescans or self._reads_once:
            oldest, self._next_rescan = self._first_key, now + config.rescan_interval_s
        return self._lister.chosen(oldest, self._planned)

    def _planned(self, item: NativeItem, key: OffsetKey) -> _Planned | None:
        """Return an object that is to be read."""
        context = item.context
        if context.grows and self._cannot_grow:
            raise ConfigError(_SPECULATES, path="manifestLocation")
        if self._ring.holds(context.key, context.version):
            return None
        decision = decide(self._config, item, self._manifests.entry(key))
        if decision.action == "pass":
            self._ring.add(context.key, context.version)
            return None
        properties = dict(decision.properties or {})
        planned = PlannedObject(key.encoded, context.version, context.grows, decision.skip, properties)
        return _Planned(item, decision, planned)

    def _found_again(self, batch: int, manifest: Manifest, *, raises: bool) -> list[_Planned]:
        """Return the objects of a manifest, as they are listed now.

        Raises:
            ObjectError: one is gone or has changed, and ``raises`` is true.
        """
        wanted = {planned.key: planned for planned in manifest.objects}
        found: list[_Planned] = []

        def same(item: NativeItem, key: OffsetKey) -> _Planned | None:
            planned = wanted.get(key.encoded)
            if planned is None or not _is_same(item, planned):
                return None
            del wanted[planned.key]
            decision = Decision("read", "it is in the batch", planned.skip, planned.properties)
            return _Planned(item, decision, planned)

        for each in self._lister.chosen(self._first_key, same):
            found.append(each)
            if not wanted:
                break
        for planned in wanted.values():
            partition = OffsetKey.from_bytes(planned.key).partition["object"]
            text = (
                f"object {json.dumps(partition, default=repr)} of source {self._config.name!r} is gone or "
                f"has changed since batch {batch} was planned, so the batch cannot be repeated with the same "
                "rows"
            )
            if raises:
                raise ObjectError(
                    f"{text}; on_object_error = 'skip' continues without the object, and reads it later"
                )
            _log.warning("%s", text)
        if wanted:
            self._manifests.leave_out(batch, wanted)
        return found

    def _tasks(self, batch: int, manifest: Manifest, found: list[_Planned]) -> list[SourcePartition]:
        ends = self._manifests
        parts = chain.from_iterable(
            parts_of(
                self._lister,
                each.item,
                each.decision,
                manifest.split_bytes,
                ends.end_name(batch, each.planned) if each.planned.grows else None,
            )
            for each in found
        )
        return tasks_of(parts, manifest.split_bytes)


def all_tasks(config: SourceConfig, limits: Limits) -> list[SourcePartition]:
    """Return the tasks that read everything that is listed now, for a batch read, which stores nothing."""
    lister = Lister(config)
    try:
        items = dict(lister.chosen(config.first_key(), lambda item, key: (key, item)))
        size_bytes = part_bytes(list(items.values()), limits)
        decision = Decision("read", "everything is read")
        parts = (parts_of(lister, item, decision, size_bytes, None) for item in items.values())
        return tasks_of(chain.from_iterable(parts), size_bytes)
    finally:
        lister.close()


def part_bytes(items: list[NativeItem], limits: Limits) -> int:
    """Return how much a task should read: less than the limit if there is too little for all tasks."""
    total = sum(max(0, item.length) + _OPENING_BYTES for item in items)
    return min(limits.partition_bytes, max(_OPENING_BYTES, total // limits.partitions))


def parts_of(
    lister: Lister, item: NativeItem, decision: Decision, size_bytes: int, end: str | None
) -> Iterator[Part]:
    """Yield the parts of an object: one for each split, or one in all; a growing object is not split."""
    splits: list[Split] = []
    if item.length > size_bytes and not (item.context.grows or decision.skip):
        splits = lister.splits(item, size_bytes)
    if len(splits) < 2:
        yield Part(item, decision, end=end)
    for split in splits if len(splits) > 1 else ():
        yield Part(item, decision, split)


def tasks_of(parts: Iterator[Part], size_bytes: int) -> list[SourcePartition]:
    """Return tasks of about a size, with the parts in order."""
    tasks: list[SourcePartition] = []
    held: list[Part] = []
    held_bytes = 0
    for part in parts:
        part_size = _OPENING_BYTES + (size_bytes if part.split is not None else max(0, part.item.length))
        if held and held_bytes + part_size > size_bytes + _OPENING_BYTES:
            tasks.append(SourcePartition(held))
            held, held_bytes = [], 0
        held.append(part)
        held_bytes += part_size
    if held:
        tasks.append(SourcePartition(held))
    return tasks


def _offset(found: Any) -> Offset:
    """Return the offset from Spark's checkpoint; raise if it is not ours."""
    try:
        return msgspec.convert(found, Offset)
    except msgspec.ValidationError as error:
        raise SourceError(
            "the checkpoint does not belong to a query of headerware-objects; give each query a "
            "checkpoint of its own"
        ) from error


def _is_same(item: NativeItem, planned: PlannedObject) -> bool:
    """Return whether an object begins with the records that a batch has of it."""
    version = item.context.version
    if version == planned.version or version is None or planned.version is None:
        return True
    with suppress(SourceError):
        return planned.grows and item.extends(planned.version)
    return False
