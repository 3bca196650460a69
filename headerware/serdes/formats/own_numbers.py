"""Numbers of classes of their own, such as Connect's Int32: msgspec writes none but Python's own."""

from __future__ import annotations

from typing import Any


def number(value: Any) -> int | float:
    """Return the plain number that one of a class of its own is.

    Raises:
        TypeError: it is none.
    """
    found = number_if_any(value)
    if found is None:
        raise TypeError(f"found an object of class {type(value).__qualname__}")
    return found


def number_if_any(value: Any) -> int | float | None:
    """Return the plain number that one of a class of its own is, or None."""
    if isinstance(value, int):
        return int(value)
    return float(value) if isinstance(value, float) else None
