"""A compacted topic as a table of bytes that many processes follow live."""

from headerware.registry.topic_table.clients import UnreachableError
from headerware.registry.topic_table.rows import Rows
from headerware.registry.topic_table.table import TopicTable

__all__ = ["Rows", "TopicTable", "UnreachableError"]
