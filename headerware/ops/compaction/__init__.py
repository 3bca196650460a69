"""Compaction by header: of each key the record with the highest version is kept, in a copy of its topic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headerware.core.lazy import lazy
from headerware.ops.compaction.rules import LOST, UNRESOLVED, Rule

if TYPE_CHECKING:
    from headerware.ops.compaction.worker import Compaction, CompactionResult, Translated

__all__ = ["LOST", "UNRESOLVED", "Compaction", "CompactionResult", "Rule", "Translated"]

_HOMES: Final = {"Compaction": "worker", "CompactionResult": "worker", "Translated": "worker"}
"""What reads and writes needs a client; the tasks of a Spark job have only the rules."""

_load: Final = lazy(__name__, _HOMES)


def __getattr__(name: str) -> Any:
    return _load(name)


def __dir__() -> list[str]:
    return [*__all__]
