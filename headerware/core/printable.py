"""Text of strangers, such as header names and payloads, made harmless for a terminal."""

from __future__ import annotations


def printable(text: str) -> str:
    """Escape all that a terminal might act on, such as escape sequences, line breaks and turned text."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
