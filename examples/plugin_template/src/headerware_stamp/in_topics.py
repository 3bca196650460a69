"""A predicate, which selects the records of a transform."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from headerware.connect import ConfigDef, ConfigKey
from headerware.connect.predicates import Predicate

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headerware.connect import Mode


class InTopics(Predicate):
    """Select records of some topics.

    transforms.short.predicate=isComment
    predicates=isComment
    predicates.isComment.type=InTopics
    predicates.isComment.topics=comments,reviews
    """

    CONFIG: ClassVar[ConfigDef] = ConfigDef(
        ConfigKey(name="topics", type="LIST", importance="HIGH", doc="The topics' names."),
    )

    def __init__(self, config: Mapping[str, Any] | None = None, *, mode: Mode = "strict") -> None:
        super().__init__(config, mode=mode)
        self._topics = frozenset(self.options["topics"])

    def test(self, record: Any) -> bool:
        """Return whether the record's topic is one of the topics."""
        return record.topic in self._topics
