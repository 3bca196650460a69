"""HTML by construction: whatever is not markup already is escaped, so that no name can become any."""

from __future__ import annotations

from html import escape
from typing import Final

_VOID: Final = frozenset({"meta"})


class Html(str):
    """Text that is markup already; made by :func:`element` and :func:`joined` only."""

    __slots__ = ()


def element(tag: str, /, *parts: str | None, **attributes: str | float | None) -> Html:
    """Return an element.

    Args:
        tag: its tag.
        parts: what it holds; plain text is escaped, None is nothing.
        attributes: by name; ``class_`` is ``class``, underscores inside are hyphens, None is left out.
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Html(f"<{tag}{written}>" if tag in _VOID else f"<{tag}{written}>{joined(*parts)}</{tag}>")


def joined(*parts: str | None) -> Html:
    """Return parts one behind the other; plain text is escaped, None is nothing."""
    return Html("".join(part if isinstance(part, Html) else escape(part) for part in parts if part))
