"""The two modes of everything in Connect.

``strict`` refuses what is ambiguous instead of guessing; it is the default. ``kafka_4_3`` does what Apache
Kafka 4.3 does, oddities and exceptions included. docs/connect-differences.md lists every difference.
"""

from __future__ import annotations

from typing import Final, Literal

from headerware.connect.errors import ConnectConfigError

Mode = Literal["strict", "kafka_4_3"]
STRICT: Final = "strict"
KAFKA_4_3: Final = "kafka_4_3"


def require_mode(mode: Mode) -> None:
    """Refuse an unknown mode, so that a typing error does not select the more lenient one."""
    if mode not in {STRICT, KAFKA_4_3}:
        raise ConnectConfigError(f"expected {STRICT!r} or {KAFKA_4_3!r}, found {mode!r}", path="mode")
