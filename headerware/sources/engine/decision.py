"""Decide whether a listed object is read, and from which record. The engine acts on it; `plan` shows it."""

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
    """The decision about an object.

    ``skip`` is how many of its records are stored already; ``properties`` are the offset's, after these
    records.
    """

    action: Action
    why: str
    skip: int = 0
    properties: Mapping[str, Any] | None = None


def offset_key(config: SourceConfig, native_key: Any) -> OffsetKey:
    """Return the key of an object's offset, which does not depend on tasks."""
    return OffsetKey({"source": config.name, "object": config.source.partition(native_key)})


def leave_out(config: SourceConfig, native_key: Any, error: SourceError) -> None:
    """Apply ``on_object_error`` to an object whose offset cannot be stored; the object is not read.

    Raises:
        ObjectError: ``on_object_error`` is ``raise``.
    """
    where = f"object {config.key_text(native_key)!r} of source {config.name!r}"
    shown = f"the offset of {where} cannot be stored: {error}"
    if config.on_object_error == "raise":
        raise ObjectError(shown) from error
    if config.on_object_error != "drop":
        _log.warning("left an object out: %s", shown)


def task_of(config: SourceConfig, context: ItemContext) -> int:
    """Return the number of the task that reads an object, which is the same in every process."""
    if config.tasks == 1:
        return 0
    if config.distribution == "partition" and context.partition is not None:
        return context.partition % config.tasks
    name = offset_key(config, context.key).encoded
    return int.from_bytes(hashlib.blake2b(name, digest_size=8).digest(), "big") % config.tasks


def decide(config: SourceConfig, item: NativeItem, entry: OffsetEntry | None) -> Decision:
    """Return the decision about an object, given its stored offset.

    An object that was read completely is read again only if it has changed. A changed object is read from its
    first record on, unless it has only grown.
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
    return Decision("read", f"{why}, and goes on after record {number}", number, resumed.properties)
