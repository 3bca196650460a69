"""Names in quotes: they would be part of the name, and nothing has such a name."""

from __future__ import annotations

from collections.abc import Iterable

from headerware.connect.errors import ConnectConfigError


def refuse_quotes(names: Iterable[str], path: str) -> None:
    """Refuse names that begin and end with the same quote.

    Args:
        names: the names as configured, with their escapes.
        path: the configuration's key, for the error.

    Raises:
        ConnectConfigError: one of them does.
    """
    for name in names:
        text = name.strip()
        if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'":
            raise ConnectConfigError(
                "quotes are part of a name here: leave them out, or write a backslash before each that "
                "belongs to it",
                path=path,
            )
