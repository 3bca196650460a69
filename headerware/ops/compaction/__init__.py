"""Compaction by header: of each key the record with the highest version is kept, in a copy of its topic."""

from headerware.ops.compaction.rules import LOST, UNTOUCHED, Rule
from headerware.ops.compaction.worker import Compaction, Result, Translated

__all__ = ["LOST", "UNTOUCHED", "Compaction", "Result", "Rule", "Translated"]
