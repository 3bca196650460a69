"""Show which objects a source would read now, and why, without opening objects or storing offsets."""

from __future__ import annotations

from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from headerware.core.errors import SourceError
from headerware.core.patterns import any_fits
from headerware.core.printable import counted, printable
from headerware.core.stop_flag import StopFlag
from headerware.sources.engine.decision import offset_key, task_of
from headerware.sources.engine.moves import Moves
from headerware.sources.engine.retries import Retries
from headerware.sources.source import SourceContext, open_source

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headerware.sources.config import SourceConfig
    from headerware.sources.offsets import Offsets
    from headerware.sources.source import NativeItem, OpenSource

_FIRST_OBJECTS: Final = 10_000


class Planned(NamedTuple):
    """The decision about one object."""

    key: str
    """The object's key as text."""
    task: int
    """The task that reads the object."""
    reads: bool
    """Whether the object is read."""
    why: str
    known_records: int
    """How many of the object's records are stored already and are not sent again."""
    topic: str | None
    """The topic of its records; None if it cannot be found, and ``why`` tells the reason."""
    partition: int | None
    """The partition; None if the partitioner chooses it."""
    length: int
    """The estimated length in bytes; -1 if it is not known."""


def plan(config: SourceConfig, offsets: Offsets) -> Iterator[Planned]:
    """Yield the decision about each object, in the order of listing, from the configured start on.

    Raises:
        SourceError: the source cannot be listed, or the offsets cannot be read.
        OSError: the source cannot be reached until the deadline; or a source without an order fails after its
            first object.
    """
    retries, moves = Retries(config, StopFlag(), f"listing source {config.name!r}"), Moves(config, offsets)
    with closing(_opened(config, retries)) as opened:
        for item in listed(config, opened, config.first_key(), retries):
            context = item.context
            try:
                key = offset_key(config, context.key)
            except SourceError as error:
                yield Planned(
                    key=config.key_text(context.key),
                    task=0,
                    reads=False,
                    why=f"the offset of the object cannot be stored: {error}",
                    known_records=0,
                    topic=None,
                    partition=None,
                    length=item.length,
                )
                continue
            decision = moves.decide(item, offsets.get(key))
            why, topic, partition = decision.why, None, None
            try:
                topic, partition = config.route(context)
            except SourceError as error:
                why = f"{why}; but {error}"
            yield Planned(
                config.key_text(context.key),
                task_of(config, context),
                decision.action == "read",
                why,
                decision.skip,
                topic,
                partition,
                item.length,
            )


def include_problem(config: SourceConfig) -> str | None:
    """Return a sentence if a source has objects, and none of the first 10,000 fits its ``include``."""
    include = getattr(config.source, "include", None)
    if not isinstance(include, list) or "*" in include:
        return None
    everything = msgspec.structs.replace(config.source, include=["*"])
    count, example = 0, ""
    with closing(open_source(everything, SourceContext(name=config.name, tasks=config.tasks))) as opened:
        for item in islice(opened.items(None), _FIRST_OBJECTS):
            key = item.context.key
            if any_fits(include, str(key)):
                return None
            count, example = count + 1, example or str(key)
    if not count:
        return None
    found = f"{counted(count, 'object')}, such as {printable(example)}, of which none fits include"
    return f"found {found} ({', '.join(map(printable, include))}); the case counts"


def _opened(config: SourceConfig, retries: Retries) -> OpenSource[Any]:
    while True:
        try:
            return open_source(config.source, SourceContext(name=config.name, tasks=config.tasks))
        except (OSError, *config.source.retried) as error:
            retries.pause(error)


def listed(
    config: SourceConfig, opened: OpenSource[Any], start: Any, retries: Retries | None = None
) -> Iterator[NativeItem]:
    """Yield the objects from a key on, page after page, each key once.

    Args:
        config: the configuration.
        opened: the source.
        start: the first key, or None.
        retries: the retries of a listing that fails; None raises the error.

    Raises:
        SourceError: the source cannot be listed.
        OSError: the source cannot be reached.
    """
    passed, is_first = None, True
    while True:
        last = start
        try:
            for item in opened.items(start):
                key = item.context.key
                if key == passed:
                    continue  # the last object of the former page
                is_first = False
                if retries is not None:
                    retries.progress()
                yield item
                if config.source.repeats_order and (last is None or last < key):
                    last = key
        except (OSError, *config.source.retried) as error:
            if retries is None or not (config.source.repeats_order or is_first):
                raise
            retries.pause(error)
            if not is_first:
                start = passed = last
            continue
        if last == start or last is None:
            return
        start = passed = last
