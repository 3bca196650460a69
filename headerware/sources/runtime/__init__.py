"""The plain runtime: it reads a source and produces to Kafka. Only this package of sources uses Kafka."""

from headerware.sources.runtime.config import RunConfig
from headerware.sources.runtime.group import RunnerGroup
from headerware.sources.runtime.runner import SourceRunner
from headerware.sources.runtime.sqlite_offsets import SqliteOffsets
from headerware.sources.runtime.stores import OffsetStore, offsets_type
from headerware.sources.runtime.topic_offsets import TopicOffsets

__all__ = [
    "OffsetStore",
    "RunConfig",
    "RunnerGroup",
    "SourceRunner",
    "SqliteOffsets",
    "TopicOffsets",
    "offsets_type",
]
