"""Find the items of arrays and maps that have no others in them, as most have: with one pattern, at once."""

from __future__ import annotations

import re
from typing import Final

_BLANKS: Final = r"[ \t\r\n]*+"


class FlatText:
    """Split the texts of arrays and maps of words, numbers and strings in quotes.

    Args:
        quoted: a pattern of what may stand in quotes.
        bare: a pattern of what may stand without.
    """

    __slots__ = ("_array", "_items", "_map")

    def __init__(self, quoted: str, bare: str) -> None:
        item = rf'{_BLANKS}(?:"{quoted}"|{bare}){_BLANKS}'
        self._array: Final = re.compile(rf"\[(?:{item},)*+{item}\]")
        self._map: Final = re.compile(rf"\{{(?:{item}:{item},)*+{item}:{item}\}}")
        self._items: Final = re.compile(rf'"([^"]*)"|({bare})')

    def items(self, text: str) -> list[tuple[str, str]] | None:
        """Return the items of an array, or the keys and values of a map in turn; None for another text.

        Args:
            text: the text, which begins with a bracket or a brace.

        Returns:
            For each what stands in quotes, or else what stands without.
        """
        pattern = self._array if text[0] == "[" else self._map
        if pattern.fullmatch(text) is None:
            return None
        found: list[tuple[str, str]] = self._items.findall(text)
        return found
