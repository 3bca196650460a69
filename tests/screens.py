"""The pictures in the documentation, which `make screens` draws again."""

from __future__ import annotations

import os
import re
from html import unescape
from pathlib import Path

SCREENS = Path(__file__).resolve().parents[1] / "docs" / "screens"


def assert_is_in_docs(name: str, picture: str, *, ignoring: str | None = None) -> None:
    """Fail unless the page's picture has the words of this one, or draw it if that was asked for.

    Words that match the pattern ``ignoring``, such as versions, may be others.
    """
    kept = SCREENS / name
    if os.environ.get("HEADERWARE_DRAW_SCREENS"):
        SCREENS.mkdir(exist_ok=True)
        # Any fixed-width font will do; a page should load none from elsewhere.
        plain = re.sub(r"@font-face \{.*?\}\s*", "", picture, flags=re.DOTALL)
        kept.write_text(plain, encoding="utf-8")
    found, expected = (
        [word for word in words(each) if ignoring is None or not re.fullmatch(ignoring, word)]
        for each in (picture, kept.read_text(encoding="utf-8"))
    )
    assert found == expected, f"{name}: if that is as it should be, `make screens` draws it again"


def words(picture: str) -> list[str]:
    """Return the text of a picture, without what is random or depends on the version that drew it."""
    return words_of(
        unescape(" ".join(re.findall(r"<text[^>]*>([^<]*)</text>", picture))).replace("\xa0", " ")
    )


def words_of(text: str) -> list[str]:
    """Return the words of a text, without what is random."""
    text = re.sub(r"message [0-9a-f]{8}|0x[0-9a-f.]+|session [0-9a-f]{16}", "", text)
    return [word for word in text.split() if not re.fullmatch(r"\W*|[\w+/=]{12,}", word)]
