"""The two modes of all Connect classes.

``strict``, the default, refuses ambiguous input instead of guessing. ``kafka_4_3`` behaves like Apache Kafka
4.3, oddities and exceptions included. docs/connect-differences.md lists every difference.
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
