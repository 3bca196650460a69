"""Durations as people write them: a number and a unit, such as ``90s``, ``15m`` and ``1.5h``."""

from __future__ import annotations

import re
from typing import Final

_UNITS_S: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_DURATION: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(ms|[smhd])", re.ASCII)


def duration_s(text: str) -> float | None:
    """Return a duration in seconds, or None if the text is no number with a unit."""
    found = _DURATION.fullmatch(text)
    return None if found is None else float(found[1]) * _UNITS_S[found[2]]
