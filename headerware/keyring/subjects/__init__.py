"""Keys of subjects, such as persons: each has a key of its own, kept in a compacted topic, and erasable.

Provisional: a minor release may change the names of this package (docs/stability.md).
"""

from headerware.keyring.subjects.topic import SubjectTopic

__all__ = ["SubjectTopic"]
