"""Check names of topics, and match topics by patterns, also by patterns that exclude."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from headerware.core.bounded_cache import BoundedCache
from headerware.core.errors import ConfigError
from headerware.core.patterns import WILDCARDS, compiled

if TYPE_CHECKING:
    from collections.abc import Iterable


TOPIC_NAME: Final = "1 to 249 letters, digits, '.', '_' and '-', other than '.' and '..'"
"""Kafka's rule for the names of topics, for errors."""
TOPIC_PATTERN: Final = r"(?!\.{1,2}\Z)[A-Za-z0-9._-]{1,249}"
"""The same rule as a regular expression; the name ends the text."""
_TOPIC_NAME: Final = re.compile(TOPIC_PATTERN)
_TOPICS_LIMIT: Final = 1_000
_NOT_IN_TOPICS: Final = re.compile(r"[^A-Za-z0-9._\-*?]")
# A repeated dot in a position at which no part of a name can end: `.*`, `orders-.*`; `orders.*` is a pattern.
_REPEATED_DOT: Final = re.compile(r"(?:^|[-_.])\.[*?]")


def is_topic_name(text: str) -> bool:
    """Return whether Kafka allows a topic of this name."""
    return _TOPIC_NAME.fullmatch(text) is not None


def check_patterns(patterns: Iterable[str], *, path: str) -> None:
    """Refuse patterns that can match no topic, such as regular expressions."""
    for pattern in patterns:
        own = pattern.removeprefix("!")
        if not own or _NOT_IN_TOPICS.search(own) or _REPEATED_DOT.search(own):
            raise ConfigError(
                f"expected a pattern such as 'orders-*' or 'orders-?', found {pattern!r}, which looks like a "
                f"regular expression or has characters that no topic has; '*' stands for any text, '?' for "
                f"one character, and alternatives are patterns of their own: ['orders', 'payments']",
                path=path,
            )


def check_topics(patterns: Iterable[str], *, path: str) -> None:
    """Refuse the patterns of an interceptor that can match no topic, and an empty list, which has no meaning.

    Whoever writes an empty list may want to switch the interceptor off; it would work on all topics.
    """
    found = tuple(patterns)
    if not found:
        raise ConfigError(
            "expected a pattern, found none; leave the option out for all topics, or name a topic; to switch "
            "the interceptor off, remove it",
            path=path,
        )
    check_patterns(found, path=path)


def suspicious(patterns: Iterable[str]) -> list[str]:
    """Return a sentence for each pattern ``NAME.*`` that may be meant as a regular expression.

    A list that also names ``NAME``, or anything else that begins with it, was written with this in mind, and
    so was a ``NAME`` with wildcards.
    """
    found = tuple(patterns)
    texts = [pattern.removeprefix("!") for pattern in found]
    return [
        f"'*' is a glob: {pattern!r} fits '{name}.x' and not {name!r}; did you mean '{name}*'?"
        for pattern, name in ((each, each.removesuffix(".*")) for each in found if each.endswith(".*"))
        if not WILDCARDS & set(name) and not any(each.startswith(name) for each in texts if each != pattern)
    ]


class TopicPatterns:
    """Decide which topics an interceptor works on.

    Patterns that begin with ``!`` exclude topics, and take precedence. Exclusions alone mean all other
    topics.
    """

    __slots__ = ("_excluded", "_found", "_included", "_seen", "_unmatched", "patterns")

    def __init__(self, patterns: Iterable[str]) -> None:
        found = list(patterns)
        self.patterns: Final = tuple(found)
        """The patterns as they were written."""
        included = [pattern for pattern in found if not pattern.startswith("!")]
        self._included = list(map(compiled, included or ["*"]))
        self._excluded = [compiled(pattern[1:]) for pattern in found if pattern.startswith("!")]
        self._unmatched = dict(zip(included, self._included, strict=False))
        self._seen = False
        self._found: BoundedCache[str, bool] = BoundedCache(_TOPICS_LIMIT, self._matches)

    def matches(self, topic: str) -> bool:
        return self._found[topic]

    def _matches(self, topic: str) -> bool:
        return any(p.match(topic) for p in self._included) and not any(p.match(topic) for p in self._excluded)

    def note(self, topic: str) -> None:
        """Note a topic that a record belongs to, for :attr:`unmatched`."""
        self._seen = True
        for pattern, expression in list(self._unmatched.items()):
            if expression.match(topic):
                self._unmatched.pop(pattern, None)

    def misses(self, topic: str) -> bool:
        """Return whether a topic is neither matched nor excluded, and no noted topic was matched."""
        return (
            self._unmatched.keys() == {each for each in self.patterns if not each.startswith("!")}
            and not self.matches(topic)
            and not any(pattern.match(topic) for pattern in self._excluded)
        )

    @property
    def unmatched(self) -> tuple[str, ...]:
        """The patterns that matched none of the noted topics; empty if no topic was noted."""
        return tuple(self._unmatched) if self._seen else ()


def topics_of(interceptor: object) -> TopicPatterns:
    """Return the topics that an interceptor works on: all topics, if it states none."""
    return TopicPatterns(getattr(interceptor, "topics", ("*",)))


def works_on(interceptor: object, topic: str) -> bool:
    """Return whether an interceptor works on a topic."""
    return topics_of(interceptor).matches(topic)


class Elsewhere(TopicPatterns):
    """The topics that none of the given patterns match."""

    __slots__ = ("_patterns",)

    def __init__(self, patterns: Iterable[TopicPatterns]) -> None:
        super().__init__(())
        self._patterns = tuple(patterns)

    def matches(self, topic: str) -> bool:
        """Return whether none of the patterns match this topic."""
        return not any(patterns.matches(topic) for patterns in self._patterns)
