"""The two manners in which everything of Connect behaves.

``strict`` refuses what is ambiguous instead of guessing; it is the default. ``kafka_4_3`` does what Apache
Kafka 4.3 does, oddities and exceptions included. docs/connect-differences.md lists every difference.
"""

from __future__ import annotations

from typing import Final, Literal

Mode = Literal["strict", "kafka_4_3"]
STRICT: Final = "strict"
KAFKA_4_3: Final = "kafka_4_3"
