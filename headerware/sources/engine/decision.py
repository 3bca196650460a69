"""Decisions: what is done with a listed object, and why. The engine acts on them; `plan` shows them."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from headerware.core.errors import ObjectError, SourceError
from headerware.sources.offsets import OffsetEntry, OffsetKey

if TYPE_CHECKING:
    from headerware.sources.config import SourceConfig
    from headerware.sources.source import ItemContext, NativeItem

_log: Final = logging.getLogger("headerware.sources")
Action = Literal["read", "pass"]


class Decision(NamedTuple):
    """What is done with an object.

    ``skip`` is how many of its records are known, and ``properties`` are those of the offset behind them.
    """

    action: Action
    why: str
    skip: int = 0
    properties: Mapping[str, Any] | None = None


def offset_key(config: SourceConfig, native_key: Any) -> OffsetKey:
    """Return the name of an object's offset, which does not depend on tasks."""
    return OffsetKey({"source": config.name, "object": config.source.partition(native_key)})


def leave_out(config: SourceConfig, native_key: Any, error: SourceError) -> None:
    """Do with an object whose offset no store can keep what the configuration says; it is never read.

    Raises:
        ObjectError: the configuration says to stop.
    """
    where = f"object {config.key_text(native_key)!r} of source {config.name!r}"
    shown = f"{where} cannot be named among the offsets: {error}"
    if config.on_object_error == "raise":
        raise ObjectError(shown) from error
    if config.on_object_error != "drop":
        _log.warning("left out %s", shown)


def task_of(config: SourceConfig, context: ItemContext) -> int:
    """Return the number of the task that reads an object: the same in every process."""
    if config.tasks == 1:
        return 0
    if config.distribution == "partition" and context.partition is not None:
        return context.partition % config.tasks
    name = offset_key(config, context.key).encoded
    return int.from_bytes(hashlib.blake2b(name, digest_size=8).digest(), "big") % config.tasks


def decide(config: SourceConfig, item: NativeItem, entry: OffsetEntry | None) -> Decision:
    """Return what is done with an object of which this is the stored offset.

    An object that was read completely is read again only if it has changed; a changed one starts at its
    first record, unless it has only grown.
    """
    if entry is None:
        return Decision("read", "it is new")
    version = item.context.version
    same = entry.version == version or entry.version is None or version is None
    if same and entry.complete:
        return Decision("pass", f"it was read completely, {entry.record_number} records")
    if not same and not item.extends(entry.version or ""):
        return Decision("read", f"it has changed since {entry.record_number} records of it were read")
    resumed = config.source.resumed(item.context.key, entry)
    if resumed is None:
        return Decision("read", "it was read in part, and its source starts such objects again")
    why = "it was read in part" if same else "it has grown"
    number = resumed.record_number
    return Decision("read", f"{why}, and goes on behind record {number}", number, resumed.properties)
