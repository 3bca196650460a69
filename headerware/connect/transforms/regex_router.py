"""RegexRouter: send records to another topic, by a pattern of the topic's name (KIP-66).

transforms=route
transforms.route.type=org.apache.kafka.connect.transforms.RegexRouter
transforms.route.regex=(.*)-(v[0-9]+)
transforms.route.replacement=$2.$1
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from headerware.connect.config import ConfigDef, ConfigKey
from headerware.connect.errors import ArgumentError, ConnectConfigError, ConnectDataError, NullValueError
from headerware.connect.fields.topics import new_topic
from headerware.connect.java.regex import (
    VALID_PATTERN,
    JavaPattern,
    Match,
    Replacement,
    java_pattern,
    replacement,
)
from headerware.connect.modes import STRICT, Mode
from headerware.connect.transforms.base import Transform
from headerware.core.bounded_cache import BoundedCache

_MAX_NAMES: Final = 2048


class RegexRouter(Transform):
    """Rename the topics whose complete name matches a pattern.

    The strict mode replaces the complete name; Kafka replaces the first match in it, which may be shorter if
    the pattern has alternatives. The strict mode also refuses a bad replacement when the transform is
    created, not at the first record, and a new name that no topic can have.
    """

    CONFIG: ClassVar[ConfigDef] = ConfigDef(
        ConfigKey(
            name="regex",
            type="STRING",
            importance="HIGH",
            check=VALID_PATTERN,
            doc="A regular expression of Java's that must match the topic's complete name.",
        ),
        ConfigKey(
            name="replacement",
            type="STRING",
            importance="HIGH",
            doc="The new name; $1 or ${name} stands for the match of a group.",
        ),
    )

    def __init__(self, config: Mapping[str, Any] | None = None, *, mode: Mode = STRICT) -> None:
        super().__init__(config, mode=mode)
        self._pattern: Final = java_pattern(self.options["regex"], path="regex")
        self._replaced: Final = _replacement(self._pattern, self.options["replacement"], mode)
        # By the topic: its new name, or None if the pattern does not match.
        self._names: Final[BoundedCache[str | None, str | None]] = BoundedCache(_MAX_NAMES, self._renamed)

    def apply(self, record: Any) -> Any:
        """Return the record with its new topic, or the same record if the pattern does not match.

        Raises:
            ConnectDataError: in the strict mode, there is no topic, or no topic can have the new name.
            NullValueError: in ``kafka_4_3``, there is no topic, or no replacement.
            ArgumentError: in ``kafka_4_3``, the replacement cannot be read.
        """
        name = self._names[record.topic]
        return record if name is None else record.with_topic(name)

    def _renamed(self, topic: str | None) -> str | None:
        if topic is None:
            kind = ConnectDataError if self.mode == STRICT else NullValueError
            raise kind("expected a record with a topic, found none")
        match = self._pattern.fullmatch(topic)
        return None if match is None else self._new_name(topic, match)

    def _new_name(self, topic: str, match: Match) -> str:
        if self.mode == STRICT:
            return new_topic(self._replaced(match), topic)
        # Kafka searches again, and replaces the first match, even if it is only a part of the name.
        found = self._pattern.search(topic) or match
        return topic[: found.start()] + self._replaced(found) + topic[found.end() :]


def _replacement(pattern: JavaPattern, text: str | None, mode: Mode) -> Replacement:
    """Return the replacement; in ``kafka_4_3`` a wrong one is an error at the first record."""
    problem: ArgumentError | NullValueError = NullValueError("there is no replacement")
    try:
        if text is not None:
            return replacement(pattern, text)
    except ArgumentError as error:
        if mode == STRICT:
            raise ConnectConfigError(str(error), path="replacement") from error
        problem = error

    def fail(_match: Match) -> str:
        raise type(problem)(str(problem))

    return fail
