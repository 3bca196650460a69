"""A compacted topic as a table of bytes that many processes follow live.

Provisional: a minor release may change the names of this package (docs/stability.md).
"""

from headerware.topic_table.rows import Rows
from headerware.topic_table.table import TopicTable
from headerware.topic_table.topic import UnreachableError

__all__ = ["Rows", "TopicTable", "UnreachableError"]
