"""A look ahead: what a source would read now, and why. It opens no object, and stores nothing."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

from headerware.core.errors import SourceError
from headerware.sources.engine.decision import decide, offset_key, task_of
from headerware.sources.source import SourceContext, open_source

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headerware.sources.config import SourceConfig
    from headerware.sources.offsets import Offsets


class Planned(NamedTuple):
    """What is done with one object."""

    key: str
    """Its key as text."""
    task: int
    """The task that reads it."""
    reads: bool
    """Whether it is read."""
    why: str
    known_records: int
    """How many of its records are not sent again."""
    topic: str | None
    """Where its records go; None if that cannot be told, and ``why`` says so."""
    partition: int | None
    """The partition, or None if the partitioner chooses one."""
    length: int
    """Its estimated length in bytes, or -1."""


def plan(config: SourceConfig, offsets: Offsets) -> Iterator[Planned]:
    """Yield what is done with each object, in the order of listing, from the configured start on.

    Raises:
        SourceError: the source cannot be listed, or the offsets cannot be read.
        OSError: the source cannot be reached now; nothing is tried again here.
    """
    with closing(open_source(config.source, SourceContext(name=config.name, tasks=config.tasks))) as opened:
        start, passed = config.first_key(), None
        while True:
            last = start
            for item in opened.items(start):
                context = item.context
                if context.key == passed:
                    continue  # it was the last one of the page before
                if config.source.repeats_order and (last is None or last < context.key):
                    last = context.key
                try:
                    key = offset_key(config, context.key)
                except SourceError as error:
                    why = f"it cannot be named among the offsets: {error}"
                    yield Planned(
                        key=config.key_text(context.key),
                        task=0,
                        reads=False,
                        why=why,
                        known_records=0,
                        topic=None,
                        partition=None,
                        length=item.length,
                    )
                    continue
                decision = decide(config, item, offsets.get(key))
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
            if last == start or last is None:
                return
            start = passed = last
