"""TopicNameMatches: whether a pattern matches the topic's complete name (KIP-585).

predicates=isOrder
predicates.isOrder.type=org.apache.kafka.connect.transforms.predicates.TopicNameMatches
predicates.isOrder.pattern=orders-.*
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from headerware.connect.config import ConfigDef, ConfigKey
from headerware.connect.java.regex import PATTERN_WITH_TEXT, java_pattern
from headerware.connect.modes import STRICT, Mode
from headerware.connect.predicates.base import Predicate


class TopicNameMatches(Predicate):
    """Hold for records whose complete topic name matches the pattern, not for records without a topic."""

    CONFIG: ClassVar[ConfigDef] = ConfigDef(
        ConfigKey(
            name="pattern",
            type="STRING",
            check=PATTERN_WITH_TEXT,
            doc="A regular expression of Java's.",
        ),
    )

    def __init__(self, config: Mapping[str, Any] | None = None, *, mode: Mode = STRICT) -> None:
        super().__init__(config, mode=mode)
        self._matches: Final = java_pattern(self.options["pattern"], path="pattern").fullmatch

    def test(self, record: Any) -> bool:
        """Return whether the topic's name matches."""
        topic = record.topic
        return topic is not None and self._matches(topic) is not None
