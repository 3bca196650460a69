"""Text of strangers on a terminal."""

from __future__ import annotations

import pytest

from headerware.core.printable import printable


class TestPrintable:
    @pytest.mark.parametrize(
        ("text", "shown"),
        [
            ("plain text, 日本", "plain text, 日本"),
            ("\x1b[2J", "\\x1b[2J"),
            ("\x9b2J", "\\x9b2J"),
            ("a\nb\tc", "a\\nb\\tc"),
            ("\u202eabc", "\\u202eabc"),
            ("\ud800", "\\ud800"),
        ],
    )
    def test_escapes_what_a_terminal_would_obey(self, text: str, shown: str) -> None:
        assert printable(text) == shown
