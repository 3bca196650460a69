"""Names of topics that records' contents choose."""

from __future__ import annotations

import re
from typing import Any, Final

from headerware.connect.errors import ConnectConfigError, ConnectDataError

_LEGAL: Final = re.compile(r"(?!\.\.?\Z|__)[a-zA-Z0-9._-]{1,249}\Z")
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
    if _LEGAL.match(name) is None:
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
    if _LEGAL.match(name) is None:
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
