"""The exit codes that click does not set by itself (docs/configuration.md)."""

from __future__ import annotations

from typing import Final

INCOMPLETE: Final = 3
"""Nothing failed, but another process is at work on the topic, or some records were not handled."""
