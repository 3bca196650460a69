"""Patterns of topics: globs, and globs to leave out."""

from __future__ import annotations

import re
from fnmatch import translate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class TopicPatterns:
    """Tell which topics an interceptor works on.

    Args:
        patterns: globs (``orders.*``); those that begin with ``!`` exclude, and exclusion wins. Only
            exclusions mean all other topics.
    """

    __slots__ = ("_excluded", "_included")

    def __init__(self, patterns: Iterable[str]) -> None:
        found = list(patterns)
        included = [pattern for pattern in found if not pattern.startswith("!")]
        self._included = _compiled(included or ["*"])
        self._excluded = _compiled([pattern[1:] for pattern in found if pattern.startswith("!")])

    def matches(self, topic: str) -> bool:
        """Whether the interceptor works on this topic."""
        return any(p.match(topic) for p in self._included) and not any(p.match(topic) for p in self._excluded)


class Elsewhere(TopicPatterns):
    """The topics that none of the given patterns match.

    Args:
        patterns: what to leave out; none leave out nothing.
    """

    __slots__ = ("_patterns",)

    def __init__(self, patterns: Iterable[TopicPatterns]) -> None:
        self._patterns = tuple(patterns)

    def matches(self, topic: str) -> bool:
        """Whether none of the patterns match this topic."""
        return not any(patterns.matches(topic) for patterns in self._patterns)


def _compiled(patterns: Iterable[str]) -> list[re.Pattern[str]]:
    return [re.compile(translate(pattern)) for pattern in patterns]
