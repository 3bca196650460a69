"""Variables of the environment whose names are nearly ours: nothing reads them, so nothing says so."""

from __future__ import annotations

import logging
import os
from functools import cache
from typing import TYPE_CHECKING, Final

from headerware.core.suggestions import closest

if TYPE_CHECKING:
    from collections.abc import Mapping

PREFIX: Final = "HEADERWARE"
KNOWN: Final = frozenset(
    {
        *("BOOTSTRAP_SERVERS", "CACHE", "COMPLETE", "CONFIG", "DISABLED", "HIDE_HEADERS", "IVY_SETTINGS"),
        *("KAFKA_JARS", "KEYRING", "NATIVE", "REGISTRY", "RELOAD", "REQUIRE_ALL", "REQUIRE_NATIVE", "RUN"),
        "SPARK_JARS",
    }
)
"""The names after the prefix."""
_LIKE: Final = 0.65
_log: Final = logging.getLogger("headerware")


def misspelt(environment: Mapping[str, str]) -> list[str]:
    """Return a sentence for each variable whose name is like one of ours, and is none."""
    found = []
    for name in environment:
        prefix, line, rest = name.partition("_")
        if not line or closest(prefix, [PREFIX], cutoff=0.8) is None or (prefix == PREFIX and rest in KNOWN):
            continue
        near = closest(rest, sorted(KNOWN), cutoff=_LIKE)
        if near is not None and f"{PREFIX}_{near}" not in environment:
            found.append(f"nothing reads the variable {name}; did you mean {PREFIX}_{near}?")
    return found


@cache
def warn_of_misspelt() -> None:
    """Log a warning for each such variable of this process, once."""
    for sentence in misspelt(os.environ):
        _log.warning("%s", sentence)
