"""What the exit codes of all commands mean that click does not set by itself (docs/configuration.md)."""

from __future__ import annotations

from typing import Final

LEFT_ALONE: Final = 3
"""Nothing has failed, but something was left: to another process that is at work, or records as they are."""
