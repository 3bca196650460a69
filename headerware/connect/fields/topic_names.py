"""Names that topics can have."""

from __future__ import annotations

import re
from typing import Final

from headerware.connect.errors import ConnectDataError

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
