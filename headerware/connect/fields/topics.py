r"""Names of topics, and texts with the placeholder ``${topic}`` (KIP-66, in the strict mode).

A backslash before the placeholder makes it plain text: ``\${topic}``. Any other ``${...}`` is refused,
because it was probably meant as a placeholder, too.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, TypeVar

from headerware.connect.errors import ConnectConfigError, ConnectDataError
from headerware.connect.modes import STRICT
from headerware.core.bounded_cache import BoundedCache
from headerware.core.topics import is_topic_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from headerware.connect.modes import Mode

_PLACEHOLDER: Final = re.compile(r"(\\*)\$\{([^}]*)\}")
_RULE: Final = (
    "expected the name of a topic: up to 249 letters, digits, dots, underscores and dashes, "
    "not beginning with two underscores"
)
_MAX_TOPICS: Final = 2048
T = TypeVar("T")


class TopicTemplate:
    """A text that may contain ``${topic}``; only the strict mode replaces this placeholder."""

    __slots__ = ("_parts", "constant")

    def __init__(self, text: str, mode: Mode, path: str) -> None:
        self._parts: Final = _parts(text, path) if mode == STRICT else [text]
        self.constant: Final[str | None] = self._parts[0] if len(self._parts) == 1 else None
        """The text, if it has no placeholder."""

    def of(self, topic: str | None) -> str:
        """Return the text for a topic; a record without a topic is refused only if the text needs it."""
        if self.constant is not None:
            return self.constant
        if topic is None:
            raise ConnectDataError(
                "expected a record with a topic, because ${topic} is configured, found none"
            )
        return topic.join(self._parts)


def _parts(text: str, path: str) -> list[str]:
    """Return the texts before, between and after the placeholders."""
    parts, start = [""], 0
    for match in _PLACEHOLDER.finditer(text):
        backslashes, name = match.groups()
        parts[-1] += text[start : match.start()] + "\\" * (len(backslashes) // 2)
        start = match.end()
        if len(backslashes) % 2:
            parts[-1] += f"${{{name}}}"
        elif name == "topic":
            parts.append("")
        else:
            raise ConnectConfigError(f"there is no placeholder ${{{name}}}, only ${{topic}}", path=path)
    parts[-1] += text[start:]
    return parts


def literal(text: str) -> str:
    """Return a text with its placeholders escaped."""
    return _PLACEHOLDER.sub(lambda match: f"{match[1] * 2}\\${{{match[2]}}}", text)


def by_topic(template: TopicTemplate, make: Callable[[str], T]) -> BoundedCache[str | None, T]:
    """Return a cache of the results of ``make`` for the text of each topic."""
    return BoundedCache(_MAX_TOPICS, lambda topic: make(template.of(topic)))


def new_topic(name: str, topic: str) -> str:
    """Return the new name of a topic; raise ConnectDataError if no topic can have it."""
    if not is_topic_name(name):
        raise ConnectDataError(f"no topic can have the new name {name!r} for topic {topic!r}")
    return name


def _is_legal(name: str) -> bool:
    return is_topic_name(name) and not name.startswith("__")


def legal_topic(name: str) -> str:
    """Return a topic's name that comes from a record; refuse it if it is illegal or internal to Kafka."""
    if not _is_legal(name):
        raise ConnectDataError(f"{_RULE}; found another text in the record")
    return name


def legal_topic_option(name: str, path: str) -> str:
    """Return a topic's name from the configuration; refuse it if it is illegal or internal to Kafka."""
    if not _is_legal(name):
        raise ConnectConfigError(f"{_RULE}; found {name!r}", path=path)
    return name


def topic_text(value: Any) -> str:
    """Return the text of a value that chooses a topic; refuse a value that is neither text nor an integer."""
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(int(value))
    raise ConnectDataError(
        f"expected a text or an integer to choose the topic, found a value of class {type(value).__name__}"
    )
