r"""Texts that name the record's topic: ``${topic}`` (KIP-66, in the strict mode).

A backslash before it makes it plain text: ``\${topic}``. Any other ``${...}`` is refused, for it was meant to
be filled in by somebody.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from headerware.connect.errors import ConnectConfigError, ConnectDataError
from headerware.connect.modes import STRICT

if TYPE_CHECKING:
    from collections.abc import Callable

    from headerware.connect.modes import Mode

_PLACEHOLDER: Final = re.compile(r"(\\*)\$\{([^}]*)\}")
_TOPICS: Final = 1024
"""The topics of which something is kept; a flood of them must not fill the memory."""


class TopicText:
    """Hold a text with or without ``${topic}`` in it.

    Args:
        text: the text as configured.
        mode: only strict knows the placeholder.
        path: the configuration's key, for errors.

    Raises:
        ConnectConfigError: there is another placeholder in it.
    """

    __slots__ = ("_parts", "constant")

    def __init__(self, text: str, mode: Mode, path: str) -> None:
        self._parts: Final = _parts(text, path) if mode == STRICT else [text]
        self.constant: Final[str | None] = self._parts[0] if len(self._parts) == 1 else None
        """The text where no topic is in it."""

    def of(self, topic: str | None) -> str:
        """Return the text for a topic.

        Raises:
            ConnectDataError: it is in the text, and the record has none.
        """
        if self.constant is not None:
            return self.constant
        if topic is None:
            raise ConnectDataError("expected a record with a topic, for ${topic} is configured; found none")
        return topic.join(self._parts)


def _parts(text: str, path: str) -> list[str]:
    """Return what stands before, between and behind the placeholders."""
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
    """Return the text that is configured for a text without placeholders."""
    return _PLACEHOLDER.sub(lambda match: f"{match[1] * 2}\\${{{match[2]}}}", text)


class ByTopic:
    """Keep what is made of a text for each topic.

    Args:
        text: the text.
        make: makes it of the text with the topic in it.
    """

    __slots__ = ("_made", "_make", "_text")

    def __init__(self, text: TopicText, make: Callable[[str], Any]) -> None:
        self._text: Final = text
        self._make: Final = make
        self._made: dict[str | None, Any] = {}

    def of(self, topic: str | None) -> Any:
        """Return what was made for a topic.

        Raises:
            ConnectDataError: there is none.
        """
        made = self._made.get(topic)
        if made is None:
            if len(self._made) >= _TOPICS:
                self._made = {}
            made = self._made[topic] = self._make(self._text.of(topic))
        return made


_LEGAL: Final = re.compile(r"(?!\.{1,2}\Z)[a-zA-Z0-9._-]{1,249}")


def new_topic(name: str, topic: str) -> str:
    """Return the new name of a topic.

    Args:
        name: the new name.
        topic: the old one, for the error.

    Raises:
        ConnectDataError: no topic of Kafka's can have the name.
    """
    if _LEGAL.fullmatch(name) is None:
        raise ConnectDataError(f"no topic can have the new name {name!r} for topic {topic!r}")
    return name


_OWN: Final = re.compile(r"(?!\.\.?\Z|__)[a-zA-Z0-9._-]{1,249}\Z")
"""What Kafka takes for a topic's name, but for internal ones, such as ``__consumer_offsets``."""
_RULE: Final = (
    "expected the name of a topic: up to 249 letters, digits, dots, underscores and dashes, "
    "not two underscores first"
)


def legal_topic(name: str) -> str:
    """Return a topic's name that a record's contents gave.

    Raises:
        ConnectDataError: Kafka does not take it, or has the topic for itself.
    """
    if _OWN.match(name) is None:
        raise ConnectDataError(f"{_RULE}; the record gives something else")
    return name


def legal_topic_option(name: str, path: str) -> str:
    """Return a topic's name that is configured.

    Args:
        name: the name.
        path: the configuration's key, for errors.

    Raises:
        ConnectConfigError: Kafka does not take it, or has the topic for itself.
    """
    if _OWN.match(name) is None:
        raise ConnectConfigError(f"{_RULE}; found {name!r}", path=path)
    return name


def topic_text(value: Any) -> str:
    """Return the text of a value that is to be a topic's name, or a part of one.

    Raises:
        ConnectDataError: it is neither text nor an integer.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(int(value))
    raise ConnectDataError(
        f"expected a text or an integer to choose the topic, found a value of class {type(value).__name__}"
    )
